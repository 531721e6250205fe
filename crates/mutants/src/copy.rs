//! A copy of the sources in which bugs are planted. Files that are the same already are left as they are, for a build goes
//! by their times.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::bugs::Bug;

/// What is not a source, wherever it is.
const LEFT_OUT: [&str; 4] = [".git", ".venv", "node_modules", "target"];

pub struct Copy {
    path: PathBuf,
}

/// A bug in the copy; dropped, it is mended.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn plant(&self, bug: &Bug) -> Result<Planted> {
        let file = self.path.join(&bug.file);
        let sound = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let times = sound.matches(&bug.from).count();
        ensure!(times == 1, "{}: its text is {times} times in {}", bug.bug, bug.file);
        fs::write(&file, sound.replace(&bug.from, &bug.to))?;
        Ok(Planted { file, sound })
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        // One that stays because this failed is found by the next comparison with the sources.
        let _ = fs::write(&self.file, &self.sound);
    }
}

/// All files under `root`, by their path from there.
fn list(root: &Path, at: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
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
