//! Child processes that never outlive the program. Keys that the user presses in its terminal do not reach them.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{LazyLock, Mutex, mpsc};

use estafeta::RingName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The settings that a child inherits from the environment.
const INHERITED: [&str; 2] = ["ESTAFETA_LOG", "ESTAFETA_TRACES"];

/// A child process that is killed and reaped when dropped.
///
/// Each child has its own process group, so Ctrl-C or Ctrl-Z in the terminal does not reach it. On Linux the kernel
/// kills it when this program ends, even by kill -9.
///
/// The id of a reaped process may soon belong to another one. So signals are sent only here, where the same `&mut` that
/// would reap the child proves that it has not been reaped yet.
#[derive(Debug)]
pub struct ChildProcess(Child);

impl ChildProcess {
    /// Starts a child.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        #[cfg(target_os = "linux")]
        die_with_parent(&mut command);
        let (answer, child) = mpsc::channel();
        let sent = SPAWNER.lock().expect("no panic while held").send((command, answer));
        sent.map_err(io::Error::other)?;
        child.recv().map_err(io::Error::other)?.map(Self)
    }

    /// The underlying child, with its pipes.
    pub fn inner(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns how the process ended, if it did.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.exit_status()? {
            Some(_) => Ok(()),
            None => Ok(kill(self.nix_pid(), signal)?),
        }
    }

    /// Kills the process with SIGKILL, frozen or not, and waits for its end.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.0.wait()
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("a pid fits in an i32"))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command that starts this program as a child. The child learns its ring and Redis from the environment, where no
/// other user of the machine can read the password. Of all other settings in the environment, it inherits only
/// `ESTAFETA_LOG` and `ESTAFETA_TRACES`.
pub fn this_program(ring: &RingName, secret_url: &str) -> io::Result<Command> {
    // The path is read once, because it is no longer valid after the file has been replaced.
    static PROGRAM: LazyLock<io::Result<PathBuf>> = LazyLock::new(std::env::current_exe);
    let program = PROGRAM.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    Ok(program_at(program, ring, secret_url))
}

/// Like [`this_program`], with another build of this program.
pub fn program_at(path: &Path, ring: &RingName, secret_url: &str) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("ESTAFETA_") && !INHERITED.contains(&&*name_text) {
            command.env_remove(name);
        }
    }
    command.env("ESTAFETA_REDIS", secret_url).env("ESTAFETA_RING", ring.to_string());
    command
}

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel ties a child to the thread that started it, not to its process. So one thread, which never ends, starts
/// all children.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<SpawnRequest>>> = LazyLock::new(|| {
    let (requests, inbox) = mpsc::channel::<SpawnRequest>();
    std::thread::spawn(move || {
        for (mut command, answer) in inbox {
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(requests)
});

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let in_child = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If the parent is gone already, no signal will come.
        if nix::unistd::getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. These are plain system calls, and neither
    // they nor the errors made of them allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
}
