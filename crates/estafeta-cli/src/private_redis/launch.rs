//! Starting the server as a process of its own that keeps the lock.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::setsid;

use super::probe::{Probe, probe};
use super::{POLL, PrivateRedisError, Result, io_error};

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];
const LOG: &str = "redis.log";

/// Starts the server, leaves it `lock`, and returns when it has answered.
pub(super) fn launch(directory: &Path, socket: &Path, lock: File, deadline: Instant) -> Result<()> {
    let program = super::find_program().ok_or(PrivateRedisError::NotInstalled)?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("removing", socket)(error));
        }
        _ => {}
    }
    cut_torn_tail(&program, directory);
    let log_path = directory.join(LOG);
    let mut log = open_log(&log_path).map_err(io_error("opening", &log_path))?;
    let said_before = log.seek(SeekFrom::End(0)).map_err(io_error("reading", &log_path))?;
    let mut server =
        spawn(&program, directory, socket, &log, lock).map_err(io_error("starting", &program))?;

    while probe(socket) != Probe::Ready {
        if let Some(status) = server.try_wait().map_err(io_error("waiting for", &program))? {
            let reason = last_line(&mut log, said_before).unwrap_or_else(|| status.to_string());
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

/// A server that is killed may leave half a transaction at the end of its file. Redis skips it when it loads the file,
/// but leaves its beginning there, and with the next transaction after it, the restart after next would carry it out:
/// half a script. Redis' own tool cuts it off whole. Where the tool is missing, or finds more wrong than that, the server
/// has the last word: what was acknowledged must not be cut off unasked.
pub fn cut_torn_tail(program: &Path, directory: &Path) {
    let files = directory.join("appendonlydir");
    let manifest = files.join("appendonly.aof.manifest");
    let tool = program.with_file_name(match program.file_name() {
        Some(name) if name == "valkey-server" => "valkey-check-aof",
        _ => "redis-check-aof",
    });
    if !manifest.exists() {
        return;
    }
    let check = Command::new(&tool).arg(&manifest).stdin(Stdio::null()).output();
    if !check.is_ok_and(|check| is_torn_at_the_end(&files, &String::from_utf8_lossy(&check.stdout))) {
        return;
    }
    tracing::warn!("cutting a torn transaction off the end of {}", files.display());
    let mut command = Command::new(tool);
    command.arg("--fix").arg(manifest).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut fix) = command.spawn() {
        // It asks before it cuts.
        let _ = fix.stdin.take().map(|mut stdin| stdin.write_all(b"y\n"));
        let _ = fix.wait();
    }
}

/// Whether what the tool does not understand is one transaction without its end, and nothing comes after it.
fn is_torn_at_the_end(files: &Path, report: &str) -> bool {
    let Some(line) = report.lines().rfind(|line| line.starts_with("AOF analyzed:")) else { return false };
    let field = |name: &str| line.split([' ', ',']).find_map(|word| word.strip_prefix(name));
    let (Some(name), Some(Ok(good))) = (field("filename="), field("ok_up_to=").map(str::parse::<usize>))
    else {
        return false;
    };
    let rest = fs::read(files.join(name)).map(|bytes| bytes.get(good..).unwrap_or_default().to_vec());
    let ends = |rest: &[u8]| rest.windows(4).any(|word| word.eq_ignore_ascii_case(b"EXEC"));
    rest.is_ok_and(|rest| !rest.is_empty() && !ends(&rest))
}

/// The first of [`PROGRAMS`] on the search path.
pub(super) fn find(path: Option<&OsStr>) -> Option<PathBuf> {
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"));
    let is_executable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    PROGRAMS
        .iter()
        .flat_map(|program| std::env::split_paths(path).map(move |directory| directory.join(program)))
        .find(is_executable)
}

/// `lock` is closed on return, so that from here on the server alone holds it.
fn spawn(program: &Path, directory: &Path, socket: &Path, log: &File, lock: File) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(["--port", "0", "--databases", "16", "--daemonize", "no"])
        .args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""])
        .args(["--unixsocketperm", "700", "--logfile", LOG])
        .arg("--unixsocket")
        .arg(socket)
        .arg("--dir")
        .arg(directory)
        .current_dir(directory)
        .stdin(Stdio::null())
        // A complaint about the options above goes here, as the log named by them is not open yet.
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    let lock_fd = lock.as_raw_fd();
    let in_child = move || {
        // SAFETY: the parent keeps `lock` open until `spawn` returns, so in its child the number is the
        // lock's.
        #[allow(unsafe_code)]
        let lock = unsafe { std::os::fd::BorrowedFd::borrow_raw(lock_fd) };
        // In the child alone: cleared in the parent, the lock could leak into another child started
        // meanwhile.
        fcntl(lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
        // A Ctrl-C or a closed terminal ends the copies in it, and must not end the server of all others.
        setsid()?;
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are two plain system
    // calls, and neither they nor the errors made of them allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
    let server = command.spawn();
    drop(lock);
    server
}

/// The server is meant to outlive this copy. Should it end first, somebody has to take note of its end, or it
/// stays in the list of processes as a zombie.
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
