//! Starts the server as an independent process that keeps the lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Instant;

use estafeta_lab::redis_program;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::setsid;

use super::probe::{Probe, probe};
use super::{POLL, PrivateRedisError, io_error};

const LOG: &str = "redis.log";

/// Starts the server, hands `lock` over to it, and returns once the server has answered.
pub(super) fn launch(
    directory: &Path,
    socket: &Path,
    lock: File,
    deadline: Instant,
) -> Result<(), PrivateRedisError> {
    let program = redis_program::find()?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("removing", socket)(error));
        }
        _ => {}
    }
    redis_program::cut_torn_tail(&program, directory);
    let log_path = directory.join(LOG);
    let mut log = open_log(&log_path).map_err(io_error("opening", &log_path))?;
    let log_start = log.seek(SeekFrom::End(0)).map_err(io_error("reading", &log_path))?;
    let mut server = spawn(&program, directory, &log, lock).map_err(io_error("starting", &program))?;

    while probe(socket) != Probe::Ready {
        if let Some(status) = server.try_wait().map_err(io_error("waiting for", &program))? {
            let reason = last_line(&mut log, log_start).unwrap_or_else(|| status.to_string());
            return Err(PrivateRedisError::Died { reason, log: log_path });
        }
        if Instant::now() >= deadline {
            return Err(PrivateRedisError::NoAnswer { socket: socket.to_owned() });
        }
        thread::sleep(POLL);
    }
    reap_in_the_background(server);
    Ok(())
}

/// Starts the process. This node closes `lock` before the function returns, so from then on only the server holds it.
fn spawn(program: &Path, directory: &Path, log: &File, lock: File) -> io::Result<Child> {
    let settings = [
        ("databases", "16"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("unixsocketperm", "700"),
        ("logfile", LOG),
    ];
    let mut command = redis_program::command(program, directory, &settings);
    command
        // A complaint about the settings above goes here, because the server has not opened its own log yet.
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    let lock_fd = lock.as_raw_fd();
    let in_child = move || {
        // SAFETY: the parent keeps `lock` open until `spawn` returns, so in the child this number refers to the lock.
        #[allow(unsafe_code)]
        let lock = unsafe { std::os::fd::BorrowedFd::borrow_raw(lock_fd) };
        // Only the child clears the flag. If the parent cleared it, another child that starts meanwhile would inherit
        // the lock.
        fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
        // A Ctrl-C or a closed terminal ends the nodes of that terminal. It must not end the server, which other nodes
        // use.
        setsid()?;
        Ok(())
    };
    // SAFETY: between fork and exec, only async-signal-safe calls are allowed. These are two plain system calls.
    // Neither they nor the errors made from them allocate memory.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
    let server = command.spawn();
    drop(lock);
    server
}

/// The server is meant to outlive this node. If the server ends first, a thread of this node collects its exit status.
/// Otherwise it would stay in the list of processes as a zombie.
fn reap_in_the_background(mut server: Child) {
    thread::spawn(move || server.wait());
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn last_line(log: &mut File, from: u64) -> Option<String> {
    let mut text = Vec::new();
    log.seek(SeekFrom::Start(from)).ok()?;
    log.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}
