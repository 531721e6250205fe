use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A separate file system, small enough to be filled up.
///
/// It is detached from the directory tree as soon as it is mounted, and reached through an open file of this process.
/// So the kernel removes it however the process ends.
#[derive(Debug)]
pub struct SmallDisk(File);

impl SmallDisk {
    /// Mounts a disk of this size. Returns `None` if this process has no right to mount.
    pub fn new(bytes: usize) -> Option<Self> {
        let mount_point = tempfile::Builder::new().prefix("est-").tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted =
            mount(Some("tmpfs"), mount_point.path(), Some("tmpfs"), MsFlags::empty(), Some(size.as_str()));
        match mounted {
            Err(Errno::EPERM) => return None,
            mounted => mounted.unwrap(),
        }
        let root = File::open(mount_point.path());
        umount2(mount_point.path(), MntFlags::MNT_DETACH).unwrap();
        Some(Self(root.unwrap()))
    }

    /// The directory that holds its files.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Fills the disk until no room is left.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        loop {
            match ballast.write_all(&[0; 512]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("cannot fill the disk: {error}"),
            }
        }
    }

    /// Makes room again.
    pub fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}
