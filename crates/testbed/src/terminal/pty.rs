use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open as open_file};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both ends of a new pseudo-terminal. Not by `openpty`: its ends would be inherited by whatever else is started
/// at this moment, and then the terminal seems to be in use after its program has ended.
pub(super) fn open() -> io::Result<(File, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    let flags = flags | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = open_file(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((master.into(), slave))
}

/// Makes `terminal` the one that belongs to the program: only then do its keys and its size become signals.
pub(super) fn put_on(command: &mut Command, terminal: OwnedFd) -> io::Result<()> {
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let in_child = || {
        rustix::process::setsid()?;
        Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are two plain system
    // calls, and neither they nor the errors made of them allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
    Ok(())
}
