//! Where the private server keeps its files, and the checks that no other user can enter there.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{PrivateRedisError, io_error};

pub(super) const LOCK: &str = "redis.lock";

/// Linux allows 108 bytes and macOS 104, including the final zero byte.
pub(super) const MAX_SOCKET_PATH: usize = 100;

/// Proof that the directory exists, belongs to this user and is closed to others.
pub(super) struct Prepared(PathBuf);

impl Prepared {
    pub(super) fn open_lock(&self) -> Result<File, PrivateRedisError> {
        let path = self.0.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(io_error("opening", &path))
    }
}

/// The directory of the server, below that of the user's data.
pub(super) fn locate(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PrivateRedisError> {
    Ok(locate_data(variable)?.join("redis"))
}

/// `ESTAFETA_DATA`, or else a directory in the platform's place for the data of a user.
pub(super) fn locate_data(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PrivateRedisError> {
    let directory = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG specification requires that a relative XDG_DATA_HOME is ignored.
    let data_home = || directory("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let platform = || {
        let home = directory("HOME")?;
        Some(home.join(if cfg!(target_os = "macos") {
            "Library/Application Support"
        } else {
            ".local/share"
        }))
    };
    let data = directory("ESTAFETA_DATA")
        .or_else(|| Some(data_home().or_else(platform)?.join("estafeta")))
        .ok_or(PrivateRedisError::NoHome)?;
    std::path::absolute(&data).map_err(io_error("finding", &data))
}

pub(super) fn check_length(socket: &Path) -> Result<(), PrivateRedisError> {
    if socket.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(PrivateRedisError::PathTooLong { path: socket.to_owned() });
    }
    Ok(())
}

/// Creates the directory. If it exists already, checks that it belongs to this user and closes it to all others.
pub(super) fn prepare(directory: &Path) -> Result<Prepared, PrivateRedisError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(io_error("creating", directory))?;
    let metadata = fs::metadata(directory).map_err(io_error("examining", directory))?;
    if metadata.uid() != geteuid().as_raw() {
        return Err(PrivateRedisError::NotOurs { path: directory.to_owned(), owner: metadata.uid() });
    }
    if metadata.mode() & 0o777 != 0o700 {
        fs::set_permissions(directory, Permissions::from_mode(0o700))
            .map_err(io_error("closing", directory))?;
    }
    Ok(Prepared(directory.to_owned()))
}
