//! Children that never outlive the program, and that no key of its terminal reaches.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, mpsc};

use estafeta::RingName;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// This very program, as a child that hears of its ring and Redis by the environment, where no other user of the machine
/// can read the password. Settings of ours that came by the environment do not reach it, but for what is logged.
pub fn of_this_program(ring: &RingName, secret_url: &str) -> io::Result<Command> {
    // Asked once: the answer is no path any more when the file was replaced since.
    static PROGRAM: LazyLock<io::Result<PathBuf>> = LazyLock::new(std::env::current_exe);
    let program = PROGRAM.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ESTAFETA_") && name != "ESTAFETA_LOG" {
            command.env_remove(name);
        }
    }
    command.env("ESTAFETA_REDIS", secret_url).env("ESTAFETA_RING", ring.to_string());
    Ok(command)
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel ties a child to the thread that started it, not to its process. So one thread, which never ends, starts
/// them all.
static NURSERY: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in inbox {
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// Starts a child in a process group of its own, so that Ctrl-C or Ctrl-Z in the terminal does not hit it. On Linux the
/// kernel kills it when this program ends, even if that was by kill -9.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    die_with_parent(&mut command);
    let (answer, child) = mpsc::channel();
    let order = NURSERY.lock().expect("no panic while held").send((command, answer));
    order.map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let in_child = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may be gone already, and then nobody will tell.
        if nix::unistd::getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are plain system calls, and neither
    // they nor the errors made of them allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
}

/// Does nothing if the child has ended: its id may belong to somebody else by now.
pub fn signal(child: &mut Child, signal: Signal) -> io::Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(kill(Pid::from_raw(pid), signal)?)
}
