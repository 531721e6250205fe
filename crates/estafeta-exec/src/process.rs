//! One process of a command, with its pipes and its process group.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use estafeta::Failure;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::net::unix::pipe::{Receiver, Sender};

use crate::command_line::CommandLine;
use crate::context::CommandContext;
use crate::environment::Environment;
use crate::guard::{Guard, TOKEN};

/// The variables with parts of an address of Redis, which would contradict a whole one.
const PARTS_OF_REDIS: [&str; 6] = [
    "ESTAFETA_HOST",
    "ESTAFETA_PORT",
    "ESTAFETA_DB",
    "ESTAFETA_USER",
    "ESTAFETA_PASSWORD",
    "ESTAFETA_PASSWORD_FILE",
];
/// How long a process may go on after SIGTERM.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the outputs of a process may stay open after its exit, because a process that left its group holds them.
pub(crate) const LINGERING: Duration = Duration::from_millis(200);

/// Starts the processes of one command.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    command: Arc<CommandLine>,
    pub environment: Arc<Environment>,
    guard: Arc<Guard>,
}

impl Spawner {
    pub fn new(command: CommandLine, context: &CommandContext) -> Self {
        let mut environment = Environment::inherited();
        environment.set("ESTAFETA_RING", &context.ring);
        environment.set("ESTAFETA_PARTITIONS", context.partitions);
        environment.remove("ESTAFETA_PARTITION");
        if let Some(partition) = context.partition {
            environment.set("ESTAFETA_PARTITION", partition);
        }
        if let Some(url) = &context.redis {
            PARTS_OF_REDIS.into_iter().for_each(|name| environment.remove(name));
            environment.set("ESTAFETA_REDIS", url);
        }
        environment.set(TOKEN, context.guard.token());
        let guard = Arc::clone(&context.guard);
        Self { command: command.into(), environment: environment.into(), guard }
    }

    /// Starts a process in a separate group, with pipes at its descriptors 0 to 3. Needs a tokio runtime. The error names
    /// the command.
    pub fn start(&self, environment: &Environment) -> io::Result<(CommandProcess, Pipes)> {
        self.try_start(environment).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start '{}': {error}", self.command))
        })
    }

    fn try_start(&self, environment: &Environment) -> io::Result<(CommandProcess, Pipes)> {
        // The file is looked for each time, because a deployment may have moved it.
        let file = self.command.find().map_err(|reason| io::Error::new(io::ErrorKind::NotFound, reason))?;
        let file = CString::new(file.as_os_str().as_bytes())?;
        let (stdin_end, stdin) = io::pipe()?;
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        let (reply, reply_end) = io::pipe()?;
        let ends: [OwnedFd; 4] = [stdin_end.into(), stdout_end.into(), stderr_end.into(), reply_end.into()];
        let mut actions = PosixSpawnFileActions::init()?;
        // This process has its own 0 to 2. So only one of these ends can lie at 3, and 3 is replaced last.
        for (at, end) in (0..).zip(&ends) {
            actions.add_dup2(end.as_raw_fd(), at)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
        )?;
        attributes.set_pgroup(Pid::from_raw(0))?;
        attributes.set_sigmask(&SigSet::empty())?;
        // Rust programs ignore SIGPIPE. A command expects the default.
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        let pid = posix_spawn(&*file, &actions, &attributes, self.command.words(), environment.as_slice())?;
        self.guard.add(pid);
        drop(ends);
        let process = CommandProcess(Some(RunningProcess::new(pid, Arc::clone(&self.guard))?));
        let pipes = Pipes {
            stdin: Sender::from_owned_fd(stdin.into())?,
            stdout: Receiver::from_owned_fd(stdout.into())?,
            stderr: Receiver::from_owned_fd(stderr.into())?,
            reply: Receiver::from_owned_fd(reply.into())?,
        };
        Ok((process, pipes))
    }
}

/// This process' ends of the pipes of a command.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub stdin: Sender,
    pub stdout: Receiver,
    pub stderr: Receiver,
    /// What the command writes to its descriptor 3.
    pub reply: Receiver,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(Signal),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "{signal}"),
        }
    }
}

impl Ended {
    /// Why a message or a run failed: how the process ended, and the end of its stderr.
    pub fn because(self, stderr: &[u8]) -> String {
        match String::from_utf8_lossy(stderr).trim_end() {
            "" => self.to_string(),
            text => format!("{self}: {text}"),
        }
    }
}

/// The failure of a command that took too long.
pub(crate) fn timed_out(limit: Duration) -> Failure {
    let limit = humantime::format_duration(limit);
    Failure::new(format_args!("the command took longer than its time limit of {limit}"))
}

/// A process and its group. If it is dropped before it has ended, it gets SIGTERM, and SIGKILL after a while.
#[derive(Debug)]
pub(crate) struct CommandProcess(Option<RunningProcess>);

impl CommandProcess {
    /// Waits until the process has exited, then kills the rest of its group.
    pub async fn wait(&mut self) -> io::Result<Ended> {
        let Some(running) = &self.0 else { return Err(io::Error::other("it has been waited for")) };
        running.exited().await?;
        let running = self.0.take().expect("looked up above");
        Ok(running.reap())
    }

    /// Sends SIGTERM to the group, waits for its end, and kills it if that takes longer than `patience`.
    pub async fn terminate(&mut self, patience: Duration) -> io::Result<Ended> {
        match self.0.take() {
            Some(running) => running.terminate(patience).await,
            None => Err(io::Error::other("it has been waited for")),
        }
    }
}

impl Drop for CommandProcess {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(running.terminate(PATIENCE))),
                Err(_) => running.signal(Signal::SIGKILL),
            }
        }
    }
}

/// A process that has not been reaped. So its id and its group are still its own.
#[derive(Debug)]
struct RunningProcess {
    pid: Pid,
    guard: Arc<Guard>,
    #[cfg(target_os = "linux")]
    handle: tokio::io::unix::AsyncFd<OwnedFd>,
}

impl RunningProcess {
    fn new(pid: Pid, guard: Arc<Guard>) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let handle = {
            use rustix::process::{PidfdFlags, pidfd_open};
            let opened = rustix::process::Pid::from_raw(pid.as_raw()).expect("a pid is not 0");
            let opened = pidfd_open(opened, PidfdFlags::NONBLOCK).map_err(io::Error::from);
            let interest = tokio::io::Interest::READABLE;
            // SAFETY: an OwnedFd returns the same descriptor until it is dropped, and nobody takes it out.
            #[allow(unsafe_code)]
            let register = |fd| unsafe { tokio::io::unix::AsyncFd::register_with_interest(fd, interest) };
            let handle = opened.and_then(|fd| Ok(register(fd)?));
            handle.inspect_err(|_| {
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                guard.remove(pid);
            })?
        };
        Ok(Self {
            pid,
            guard,
            #[cfg(target_os = "linux")]
            handle,
        })
    }

    /// Waits until the process is a zombie.
    async fn exited(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        self.handle.readable().await?.retain_ready();
        #[cfg(not(target_os = "linux"))]
        {
            use rustix::process::{WaitId, WaitIdOptions, waitid};
            let pid = rustix::process::Pid::from_raw(self.pid.as_raw()).expect("a pid is not 0");
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let waited = tokio::task::spawn_blocking(move || waitid(WaitId::Pid(pid), options));
            waited.await.map_err(io::Error::other)??;
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }

    /// Takes the exit status. The process has exited.
    fn reap(self) -> Ended {
        // Before the process is reaped, its id still names its group and no other one.
        self.signal(Signal::SIGKILL);
        let ended = match waitpid(self.pid, None) {
            Ok(WaitStatus::Signaled(_, signal, _)) => Ended::Signal(signal),
            Ok(WaitStatus::Exited(_, code)) => Ended::Code(code),
            // Nobody else waits for children of this node.
            Ok(_) | Err(_) => Ended::Signal(Signal::SIGKILL),
        };
        self.guard.remove(self.pid);
        ended
    }

    async fn terminate(self, patience: Duration) -> io::Result<Ended> {
        self.signal(Signal::SIGTERM);
        // A stopped process would not see the signal.
        self.signal(Signal::SIGCONT);
        if tokio::time::timeout(patience, self.exited()).await.is_err() {
            self.signal(Signal::SIGKILL);
            self.exited().await?;
        }
        Ok(self.reap())
    }
}
