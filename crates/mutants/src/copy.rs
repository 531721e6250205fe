//! A copy of the sources in which bugs are planted. Files that are the same already are left as they are, for a build goes
//! by their times.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// What is not a source, wherever it is.
const LEFT_OUT: [&str; 4] = [".git", ".venv", "node_modules", "target"];

pub struct Copy {
    path: PathBuf,
}

/// A changed file; dropped, it is as it was.
pub struct Planted {
    file: PathBuf,
    sound: String,
}

impl Copy {
    pub fn of(root: &Path, path: &Path) -> Result<Self> {
        let mut wanted = BTreeSet::new();
        list(root, Path::new(""), &mut wanted)?;
        for file in &wanted {
            let (source, copy) = (fs::read(root.join(file))?, path.join(file));
            if fs::read(&copy).ok().as_ref() != Some(&source) {
                fs::create_dir_all(copy.parent().unwrap_or(path))?;
                fs::write(&copy, source).with_context(|| format!("cannot write {}", copy.display()))?;
            }
        }
        let mut there = BTreeSet::new();
        list(path, Path::new(""), &mut there)?;
        for file in there.difference(&wanted) {
            fs::remove_file(path.join(file))?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Writes a file, unless it is the same already.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        if fs::read_to_string(&path).ok().as_deref() != Some(text) {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Changes a file until the answer is dropped.
pub fn plant(file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<Planted> {
    let sound = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::write(file, change(&sound)?)?;
    Ok(Planted { file: file.to_owned(), sound })
}

impl Drop for Planted {
    fn drop(&mut self) {
        // One that stays because this failed is found by the next comparison with the sources.
        let _ = fs::write(&self.file, &self.sound);
    }
}

/// All files under `root`, by their path from there.
pub fn list(root: &Path, at: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let directory = root.join(at);
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let (name, path) = (entry.file_name(), at.join(entry.file_name()));
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}
