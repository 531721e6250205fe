use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open as open_file};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Opens both ends of a new pseudo-terminal. It does not use `openpty`: any process that is started at this moment
/// would inherit the ends. The terminal would then seem to be in use after its program has ended.
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

/// Makes `terminal` the controlling terminal of the program. Only then do its keys and changes of its size become
/// signals.
pub(super) fn put_on(command: &mut Command, terminal: OwnedFd) -> io::Result<()> {
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let in_child = || {
        rustix::process::setsid()?;
        Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. These are two plain system calls. Neither
    // they nor the errors made of them allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
    Ok(())
}
