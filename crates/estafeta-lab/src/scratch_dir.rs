//! A temporary directory for one run of `bench` or `chaos`. It is removed when the run ends.
//!
//! A run that is killed leaves its directory behind. The next run of the same kind removes it. Each run holds a lock on
//! a file in its directory. The kernel releases the lock when the process ends, however it ends. So a directory whose
//! lock is free is abandoned. A directory that was kept for study has no lock file, and is never removed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

const LOCK: &str = "lock";

pub struct ScratchDir {
    directory: TempDir,
    _lock: File,
}

impl ScratchDir {
    pub fn new(kind: &str) -> Result<Self> {
        let made = Self::new_in(&std::env::temp_dir(), kind);
        made.context("cannot create the directory of this run in the temporary directory (see TMPDIR)")
    }

    fn new_in(place: &Path, kind: &str) -> io::Result<Self> {
        let prefix = format!("estafeta-{kind}-");
        remove_leftovers(place, &prefix);
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        // The file is locked before it gets the name that other runs look for.
        let unnamed = directory.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory and returns its path.
    pub fn keep(self) -> PathBuf {
        let _ = fs::remove_file(self.path().join(LOCK));
        self.directory.keep()
    }
}

/// Removes the directories of killed runs. A directory that cannot be removed stays.
fn remove_leftovers(place: &Path, prefix: &str) {
    let me = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let has_prefix = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        let is_mine = |about: fs::Metadata| about.is_dir() && about.uid() == me;
        if has_prefix && entry.metadata().is_ok_and(is_mine) {
            let lock = File::open(entry.path().join(LOCK));
            if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_removes_only_what_killed_runs_of_its_kind_left_behind() {
        let place = TempDir::new().unwrap();
        let new = || ScratchDir::new_in(place.path(), "bench").unwrap();
        let (alive, kept) = (new(), new().keep());
        let killed = place.path().join("estafeta-bench-killed");
        let foreign = place.path().join("estafeta-bench-foreign");
        let of_chaos = place.path().join("estafeta-chaos-killed");
        for directory in [&killed, &foreign, &of_chaos] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(killed.join(LOCK), "").unwrap();
        fs::write(of_chaos.join(LOCK), "").unwrap();

        let own = new().path().to_owned();
        let there = [alive.path(), &kept, &foreign, &of_chaos].map(Path::exists);
        assert_eq!((there, killed.exists(), own.exists()), ([true; 4], false, false));
    }
}
