//! A program on a private terminal.

mod pty;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
pub use vt100;

use crate::data_dir::DataDir;
use crate::owned_child::OwnedChild;
use crate::process::private_command;

const POLL: Duration = Duration::from_millis(2);
/// How long to wait for the last output of a program that has ended.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// How long the drawing thread waits before it checks again whether the test has hung up.
const HANG_UP_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A program on a private terminal. An emulator draws what the program writes, and a test can read the screen. The
/// program is killed when the terminal is dropped.
///
/// The environment is that of a [`Process`](crate::Process). In addition, `TERM` promises 256 colours, and no variable
/// switches colours off.
pub struct Terminal {
    child: Mutex<OwnedChild>,
    /// `None` after [`hang_up`](Self::hang_up).
    master: Option<File>,
    shown: Arc<TerminalOutput>,
    name: String,
    // Declared after the child, so dropped after it. It shuts down a Redis that a living node would start again.
    _data: DataDir,
}

/// What the program has shown so far, and a condition variable for its changes.
struct TerminalOutput {
    state: Mutex<TerminalState>,
    changed: Condvar,
}

struct TerminalState {
    parser: vt100::Parser,
    raw: Vec<u8>,
    /// No process has the terminal open any more.
    closed: bool,
    /// The test has taken the terminal away.
    hung_up: bool,
}

impl Terminal {
    /// Starts `program` on a terminal of `rows` by `cols`. `envs` works as in
    /// [`Process::spawn`](crate::Process::spawn).
    #[track_caller]
    pub fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        envs: impl IntoIterator<Item = (K, V)>,
        rows: u16,
        cols: u16,
    ) -> Self {
        let data = DataDir::new();
        let mut command = private_command(program, &data);
        for name in ["NO_COLOR", "COLORTERM", "CLICOLOR", "CLICOLOR_FORCE", "LINES", "COLUMNS"] {
            command.env_remove(name);
        }
        command.args(args).env("TERM", "xterm-256color").envs(envs);
        let (master, slave) = pty::open().expect("a pseudo-terminal can be opened");
        tcsetwinsize(&master, size(rows, cols)).expect("a terminal has a size");
        pty::put_on(&mut command, slave).expect("a terminal can be shared");
        let child = OwnedChild::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let parser = vt100::Parser::new(at_least_one(rows), at_least_one(cols), 0);
        let state = Mutex::new(TerminalState { parser, raw: Vec::new(), closed: false, hung_up: false });
        let shown = Arc::new(TerminalOutput { state, changed: Condvar::new() });
        shown.draw(master.try_clone().expect("a terminal can be shared"));
        let name = format!("{} (pid {})", program.display(), child.pid());
        Self { child: Mutex::new(child), master: Some(master), shown, name, _data: data }
    }

    /// The text on the screen, one line per row, down to the last row with text. Blanks at the end of a row are left
    /// out.
    pub fn screen(&self) -> String {
        self.shown.lock().text()
    }

    /// Waits until the screen satisfies `fits`, and returns it. Panics with the screen if that does not happen in time,
    /// or if the program ends first. `what` describes the awaited screen.
    #[track_caller]
    pub fn wait_for(&self, limit: Duration, what: &str, mut fits: impl FnMut(&str) -> bool) -> String {
        let mut found = None;
        self.shown.wait_until(Instant::now() + limit, |state| {
            found = Some(state.text()).filter(|text| fits(text));
            found.is_some() || state.closed
        });
        found.unwrap_or_else(|| panic!("{} did not show {what} within {limit:?}\n{self:?}", self.name))
    }

    /// Returns what `look` finds on the screen. This is for colours, styles and the position of the cursor.
    pub fn cells<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.shown.lock().parser.screen())
    }

    /// All bytes that the program has written so far. The terminal has replaced their line ends.
    pub fn raw_output(&self) -> Vec<u8> {
        self.shown.lock().raw.clone()
    }

    /// Types these characters. `\r` is Enter, `\x03` is Ctrl-C, `\x1b` is Escape.
    #[track_caller]
    pub fn type_keys(&self, keys: &str) {
        let typed = self.master().write_all(keys.as_bytes());
        typed.unwrap_or_else(|error| panic!("cannot type {keys:?} at {}: {error}\n{self:?}", self.name));
    }

    /// Changes the size of the terminal. The program receives SIGWINCH.
    pub fn resize(&self, rows: u16, cols: u16) {
        // The emulator changes first. It must not draw output for the new size on a screen of the old size.
        let mut state = self.shown.lock();
        state.parser.set_size(at_least_one(rows), at_least_one(cols));
        tcsetwinsize(self.master(), size(rows, cols)).expect("a terminal has a size");
    }

    /// Takes the terminal away, as if its window was closed.
    pub fn hang_up(&mut self) {
        self.master = None;
        self.shown.update(|state| state.hung_up = true);
        self.shown.wait_until(Instant::now() + LAST_OUTPUT, |state| state.closed);
    }

    fn master(&self) -> &File {
        self.master.as_ref().expect("the terminal was not hung up")
    }

    /// The process id of the program.
    pub fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// Whether the program has not ended.
    pub fn is_running(&self) -> bool {
        self.child().exit_status().is_none()
    }

    /// Sends a signal to the program, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        self.child().signal(signal);
    }

    /// Waits for the end of the program and for its last output. Panics with the screen if the program does not end in
    /// time.
    #[track_caller]
    pub fn wait(&self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.child().exit_status();
            if let Some(status) = ended {
                // A process that the program has started may still hold the terminal open.
                self.shown.wait_until(Instant::now() + LAST_OUTPUT, |state| state.closed);
                return status;
            }
            if Instant::now() >= deadline {
                panic!("{} still runs after {limit:?}\n{self:?}", self.name);
            }
            thread::sleep(POLL);
        }
    }

    /// Whether the terminal reads whole lines and echoes what is typed, as a shell expects.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(self.master()).expect("a terminal has modes").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Whether the program draws on the alternate screen, which leaves the screen of the shell untouched.
    pub fn in_alternate_screen(&self) -> bool {
        self.cells(vt100::Screen::alternate_screen)
    }

    /// Whether the cursor is hidden.
    pub fn cursor_hidden(&self) -> bool {
        self.cells(vt100::Screen::hide_cursor)
    }

    /// Whether clicks go to the program instead of selecting text.
    pub fn mouse_captured(&self) -> bool {
        self.cells(|screen| screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None)
    }

    fn child(&self) -> MutexGuard<'_, OwnedChild> {
        self.child.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let screen = self.screen();
        write!(f, "--- screen of {}\n{screen}\n---", self.name)
    }
}

impl TerminalState {
    fn text(&self) -> String {
        let screen = self.parser.screen();
        let rows: Vec<_> = screen.rows(0, screen.size().1.get()).collect();
        let lines: Vec<_> = rows.iter().map(|row| row.trim_end()).collect();
        lines.join("\n").trim_end_matches('\n').to_owned()
    }
}

impl TerminalOutput {
    /// Draws what the program writes until no process has the terminal open any more. Linux reports that as an error.
    fn draw(self: &Arc<Self>, mut master: File) {
        let shown = Arc::clone(self);
        thread::spawn(move || {
            let mut chunk = [0; 8192];
            loop {
                let ready = poll(&mut [PollFd::new(&master, PollFlags::IN)], Some(&HANG_UP_CHECK));
                if shown.lock().hung_up {
                    break;
                }
                if matches!(ready, Ok(0) | Err(_)) {
                    continue;
                }
                match master.read(&mut chunk) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                    Ok(size) => shown.update(|state| {
                        state.parser.process(&chunk[..size]);
                        state.raw.extend_from_slice(&chunk[..size]);
                    }),
                }
            }
            drop(master);
            shown.update(|state| state.closed = true);
        });
    }

    fn update(&self, change: impl FnOnce(&mut TerminalState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, deadline: Instant, mut reached: impl FnMut(&TerminalState) -> bool) {
        let mut state = self.lock();
        while !reached(&state) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, TerminalState> {
        // A predicate of the test may have panicked in `wait_until`. What was drawn is complete all the same.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}

fn at_least_one(length: u16) -> NonZeroU16 {
    NonZeroU16::new(length).unwrap_or(NonZeroU16::MIN)
}
