//! Kills what a node has started, if the node itself can no longer do it.
//!
//! A guard is a separate process. Its stdin is a pipe that only its node holds open. Over this pipe it learns which
//! process groups exist: `+4711` when the node has started one, `-4711` when it has reaped one. The end of the pipe means
//! that the node is gone, by whatever death. The guard then kills every group that is left, and exits.
//!
//! Two gaps remain. A node can die after it has started a process and before it has announced the group. And a process
//! can leave its group, as daemons do. So each command has a variable with the token of its guard, which its descendants
//! inherit. On Linux the guard looks for this token in the environment of all processes, and kills those that have it,
//! until none is left or a second is over. A process that leaves its group *and* clears its environment escapes.
//!
//! The guard ignores the signals that stop a node, because it must outlive its node. Its process has another name than
//! the node, so that `pkill estafeta` does not hit both.
//!
//! If the guard dies, the next command that the node starts brings a new one, which learns all groups anew.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, killpg, signal};
use nix::unistd::Pid;

/// The variable by which a guard finds processes that have left their group.
pub const TOKEN: &str = "ESTAFETA_GUARD";
/// How long the guard looks for processes that are left.
const LONGEST: Duration = Duration::from_secs(1);
/// How often the guard reads. Each wakeup costs more than the line that it brings.
const PAUSE: Duration = Duration::from_millis(20);

/// The guard, as its node knows it.
#[derive(Debug)]
pub struct Guard {
    program: PathBuf,
    arguments: Vec<String>,
    token: String,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// The groups that exist.
    groups: BTreeSet<i32>,
    process: Option<(Child, ChildStdin)>,
}

impl Guard {
    /// Starts a guard. `program` with `arguments` is a process that calls [`watch_over`].
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let guard = Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            token: format!("{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>()),
            state: Mutex::default(),
        };
        let process = guard.spawn()?;
        guard.state.lock().expect("no panic while held").process = Some(process);
        Ok(guard)
    }

    /// The value of [`TOKEN`] for the commands of this node.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Announces a group that the node has started.
    pub(crate) fn add(&self, group: Pid) {
        let mut state = self.state.lock().expect("no panic while held");
        state.groups.insert(group.as_raw());
        if !state.tell(&format!("+{group}\n")) {
            self.replace(&mut state);
        }
    }

    /// Announces that a group is gone.
    pub(crate) fn remove(&self, group: Pid) {
        let mut state = self.state.lock().expect("no panic while held");
        state.groups.remove(&group.as_raw());
        // A guard that is gone will not kill anything.
        let _ = state.tell(&format!("-{group}\n"));
    }

    /// Starts another guard, which learns all groups.
    fn replace(&self, state: &mut GuardState) {
        if let Some((mut child, pipe)) = state.process.take() {
            drop(pipe);
            // A guard that hangs would read the end of its pipe when it wakes, and kill groups that are alive.
            let _ = child.kill();
            let _ = child.wait();
        }
        match self.spawn() {
            Ok(process) => state.process = Some(process),
            Err(error) => {
                tracing::warn!("no guard: {error}. If this node is killed, its commands go on");
                return;
            }
        }
        let all: String = state.groups.iter().map(|group| format!("+{group}\n")).collect();
        if !state.tell(&all) {
            tracing::warn!("the guard does not read. If this node is killed, its commands go on");
        }
    }

    fn spawn(&self) -> io::Result<(Child, ChildStdin)> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(&self.token).stdin(Stdio::piped()).stdout(Stdio::null());
        // The directory of the node may be deleted or unmounted, and the guard needs none.
        command.stderr(Stdio::null()).current_dir("/").process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take().expect("it was piped");
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok((child, pipe))
    }
}

impl GuardState {
    /// Writes to the guard. Returns false if it is gone or does not read.
    fn tell(&mut self, text: &str) -> bool {
        self.process.as_mut().is_some_and(|(_, pipe)| pipe.write_all(text.as_bytes()).is_ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let state = self.state.get_mut().expect("no panic while held");
        if let Some((mut child, pipe)) = state.process.take() {
            drop(pipe);
            // A guard that hangs must not keep its node from ending.
            let until = Instant::now() + 2 * LONGEST;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The work of a guard: reads stdin to its end, and then kills what is left. `token` is that of its node.
pub fn watch_over(token: &str) -> io::Result<()> {
    for ignored in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP] {
        // SAFETY: ignoring a signal runs no code.
        #[allow(unsafe_code)]
        unsafe {
            signal(ignored, SigHandler::SigIgn)?;
        }
    }
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_name(c"command-guard")?;
    let (mut input, mut rest, mut groups) = (io::stdin().lock(), Vec::new(), BTreeSet::new());
    let mut bytes = [0; 16 * 1024];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => rest.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = rest.drain(..end).collect();
        note(&mut groups, &String::from_utf8_lossy(&lines));
        std::thread::sleep(PAUSE);
    }
    let until = Instant::now() + LONGEST;
    loop {
        for group in &groups {
            let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
        }
        groups.clear();
        if kill_marked(token) == 0 || Instant::now() >= until {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn note(groups: &mut BTreeSet<i32>, lines: &str) {
    for line in lines.lines() {
        match (line.get(..1), line.get(1..).and_then(|number| number.parse().ok())) {
            (Some("+"), Some(group)) if group > 1 => drop(groups.insert(group)),
            (Some("-"), Some(group)) => drop(groups.remove(&group)),
            _ => {}
        }
    }
}

/// Kills every process that has the token in its environment. Returns how many there were.
#[cfg(target_os = "linux")]
fn kill_marked(token: &str) -> usize {
    let mark = format!("{TOKEN}={token}").into_bytes();
    let own = std::process::id().to_string();
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| *name != own).and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark) {
            killed += usize::from(nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        }
    }
    killed
}

/// Other systems do not show the environment of processes.
#[cfg(not(target_os = "linux"))]
fn kill_marked(_: &str) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_knows_the_groups_that_were_added_and_not_removed() {
        let mut groups = BTreeSet::new();
        note(&mut groups, "+10\n+11\n-10\n+12\n");
        // Nobody may make a guard kill its own group, everything, or init.
        note(&mut groups, "+0\n+1\n+-1\n+x\n\n*7\n-99\n");
        assert_eq!(groups, BTreeSet::from([11, 12]));
    }
}
