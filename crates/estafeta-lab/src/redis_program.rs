//! The installed `redis-server` program, and what every server that we start needs.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

const SENTINEL_FILE: &str = "sentinel.conf";

/// Neither `redis-server` nor `valkey-server` is on the PATH.
#[derive(Debug, thiserror::Error)]
#[error(
    "redis-server is not installed: install it with `apt install redis-server` (Debian, Ubuntu), \
     `brew install redis` (macOS) or `dnf install redis` (Fedora), or give --redis URL"
)]
pub struct NotInstalled;

/// Finds the server on the PATH.
pub fn find() -> Result<PathBuf, NotInstalled> {
    find_on(std::env::var_os("PATH").as_deref()).ok_or(NotInstalled)
}

/// The first of the known programs on the search path.
pub fn find_on(path: Option<&OsStr>) -> Option<PathBuf> {
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"));
    let is_executable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    PROGRAMS
        .iter()
        .flat_map(|program| std::env::split_paths(path).map(move |directory| directory.join(program)))
        .find(is_executable)
}

/// The command that starts a server with its socket, data and working directory in `directory`. The server stays in the
/// foreground, listens only on its socket, and saves only what `settings` request.
pub fn command(program: &Path, directory: &Path, settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.args(["--port", "0", "--daemonize", "no", "--save", ""]);
    command.arg("--unixsocket").arg(socket_in(directory)).arg("--dir").arg(directory);
    for (name, value) in settings {
        command.arg(format!("--{name}")).arg(value);
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// Writes the configuration file of a sentinel, which needs one to keep what it learns. `lines` follow the settings.
pub fn write_sentinel_file(
    directory: &Path,
    settings: &[(String, String)],
    lines: &str,
) -> std::io::Result<()> {
    let quoted = |value: &str| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
    let path = |path: &Path| quoted(&path.display().to_string());
    let mut text = format!("unixsocket {}\ndir {}\n", path(&socket_in(directory)), path(directory));
    for (name, value) in settings {
        text.push_str(&format!("{name} {}\n", quoted(value)));
    }
    fs::write(directory.join(SENTINEL_FILE), text + lines)
}

/// The command that starts a sentinel with the configuration file in `directory`.
pub fn sentinel_command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(directory.join(SENTINEL_FILE)).arg("--sentinel");
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// The socket of the server in a directory.
pub fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis.sock")
}

/// The URL of a unix socket. The path may hold bytes that a URL may not. On macOS it always holds a space.
pub fn socket_url(socket: &Path) -> String {
    const UNSAFE: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    format!("redis+unix://{}", percent_encode(socket.as_os_str().as_bytes(), UNSAFE))
}

/// Cuts half a transaction off the end of a server's append-only file, before the server starts again.
///
/// A killed server may leave half a transaction there. Redis skips it when it loads the file, but leaves its beginning
/// in place. The next transaction is appended after it. The restart after that would then execute half a script. Redis'
/// own tool cuts the half transaction off. If the tool is missing or finds other damage, nothing is cut, because
/// acknowledged data must not be removed without being asked.
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
        // The tool asks before it cuts.
        let _ = fix.stdin.take().map(|mut stdin| stdin.write_all(b"y\n"));
        let _ = fix.wait();
    }
}

/// Whether the part that the tool does not understand is one transaction without its end, followed by nothing.
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
