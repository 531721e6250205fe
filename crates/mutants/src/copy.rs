//! A copy of the sources in which bugs are planted. Files that already have the right text are not written again,
//! because cargo builds what has a newer time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The names of files and directories that are not sources.
const LEFT_OUT: [&str; 4] = [".git", ".venv", "node_modules", "target"];

pub struct TreeCopy {
    path: PathBuf,
}

/// A changed file. It gets its original text back when this is dropped.
pub struct Planted {
    file: PathBuf,
    original: String,
}

impl TreeCopy {
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

    /// Writes a file, unless it already has this text.
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

/// Changes a file until the returned value is dropped.
pub fn plant(file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<Planted> {
    let original = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::write(file, change(&original)?)?;
    Ok(Planted { file: file.to_owned(), original })
}

impl Drop for Planted {
    fn drop(&mut self) {
        // If this fails, the next `TreeCopy::of` finds the difference to the sources.
        let _ = fs::write(&self.file, &self.original);
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
