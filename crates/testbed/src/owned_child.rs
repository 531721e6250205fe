use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::spawner;

/// A child process that is killed and reaped when dropped.
///
/// The id of a reaped process may soon belong to another process. So signals are sent only here, where the same `&mut`
/// that would reap the child proves that it has not been reaped yet.
pub(crate) struct OwnedChild(Child);

impl OwnedChild {
    pub(crate) fn spawn(command: Command) -> std::io::Result<Self> {
        spawner::spawn(command).map(Self)
    }

    pub(crate) fn inner(&mut self) -> &mut Child {
        &mut self.0
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child of ours can be waited for")
    }

    /// Sends `signal`, unless the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.exit_status().is_none() {
            kill(self.nix_pid(), signal).expect("a living child of ours takes signals");
        }
    }

    /// Stops the process with SIGSTOP, and returns when it has stopped. Until then it might still act, although the
    /// test believes that it cannot.
    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
        #[cfg(target_os = "linux")]
        {
            use nix::sys::wait::{Id, WaitPidFlag, waitid};
            // If the process exits first, WNOWAIT leaves that exit for `exit_status` to find.
            let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            let _ = waitid(Id::Pid(self.nix_pid()), flags);
        }
    }

    pub(crate) fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    pub(crate) fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.0.wait().expect("a child of ours can be waited for")
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("a pid fits in an i32"))
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // `self.kill` may panic. If another panic unwinds already, that would abort the process and hide the first
        // panic. SIGKILL ends a frozen process as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
