//! The single thread that starts all children. The documentation of the crate explains why one thread must do it.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

struct Request {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

/// Starts `command` as a child that does not outlive this process.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    die_with_parent(&mut command);
    let (reply, answer) = channel();
    spawner().lock().unwrap().send(Request { command, reply }).expect("the spawner thread never ends");
    answer.recv().expect("the spawner thread never ends")
}

fn spawner() -> &'static Mutex<Sender<Request>> {
    static SPAWNER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::Builder::new()
            .name("testbed-spawner".into())
            .spawn(move || {
                for Request { mut command, reply } in requests {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        Mutex::new(sender)
    })
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::Signal;
    use nix::unistd::{Pid, getppid};
    use std::os::unix::process::CommandExt;

    let parent = Pid::this();
    let in_child = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // If the parent died before the call above, the kernel no longer sends the signal.
        if getppid() != parent {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. These are two plain system calls. Neither
    // they nor the error made here allocate.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
