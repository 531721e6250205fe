//! A directory for one run of `bench` or `chaos`, which goes with it.
//!
//! A run that is killed leaves its directory behind, and the next of its kind removes it. Whether a run lives is told by a
//! lock on a file in its directory: it ends with the process, however that ends. A directory that was kept for somebody to
//! look at has no such file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

const LOCK: &str = "lock";

pub struct Workplace {
    directory: TempDir,
    _lock: File,
}

impl Workplace {
    pub fn new(kind: &str) -> Result<Self> {
        let made = Self::new_in(&std::env::temp_dir(), kind);
        made.context("cannot make a directory for the run (TMPDIR says where)")
    }

    fn new_in(place: &Path, kind: &str) -> io::Result<Self> {
        let prefix = format!("estafeta-{kind}-");
        remove_left_over(place, &prefix);
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        // It is locked before it has the name by which others look for it.
        let unnamed = directory.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it where it is.
    pub fn keep(self) -> PathBuf {
        let _ = fs::remove_file(self.path().join(LOCK));
        self.directory.keep()
    }
}

/// What cannot be removed may stay.
fn remove_left_over(place: &Path, prefix: &str) {
    let me = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_named_so = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        let is_mine = |about: fs::Metadata| about.is_dir() && about.uid() == me;
        if is_named_so && entry.metadata().is_ok_and(is_mine) {
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
    fn what_a_killed_run_left_goes_and_nothing_else() {
        let place = TempDir::new().unwrap();
        let new = || Workplace::new_in(place.path(), "bench").unwrap();
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
