//! Processes that live long, and answer messages line by line.
//!
//! Each process has a task, which owns it. Lanes send their messages to one of these tasks and wait for the answer. A task
//! writes a message as one line of JSON, up to `in_hand` of them at a time, and reads replies in any order.
//!
//! **A line that is no reply is log output.** A reply is a JSON object with the id of a message in hand. Everything else,
//! such as a forgotten `print`, goes to stderr.
//!
//! **When a process ends** with one message in hand, it is the fault of that message: a death, or a failure if the process
//! exited with code 0. If the process has not read the message yet, it cannot be its fault, and the next process gets it.
//! With several in hand, nobody knows whose fault it was. They go back to the queue, and count nothing. When they come
//! again, they are *suspects*: each is alone with its process until it has its answer.
//!
//! **A process that lives under a second without a reply** is started again after 0.1 to 30 s. Meanwhile its lanes give
//! their messages back and rest.
//!
//! **A message over its time limit** has failed. Its process cannot be asked to drop one message, so it is ended. The
//! others in hand go back to the queue, and count nothing.
//!
//! **The end.** The stdin of a process is closed first, so that it can finish. Then it gets SIGTERM, and then SIGKILL.

mod process_run;
mod task;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use estafeta::{Failure, Job, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::command_line::CommandLine;
use crate::context::CommandContext;
use crate::environment;
use crate::process::{PATIENCE, Spawner};
use crate::reply::DEFAULT_TTL;
use task::{Common, LineTask, SuspectIds};

/// How long nothing is claimed after a process that could not be started, or ended at once: the first time, and at most.
const REST: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// A command that answers messages line by line. Clones share its processes.
#[derive(Clone, Debug)]
pub struct LineCommand(Arc<LineProcesses>);

#[derive(Debug)]
struct LineProcesses {
    /// The processes with room for a message, each as often as it has room.
    free: Mutex<VecDeque<usize>>,
    processes: Vec<mpsc::UnboundedSender<Ask>>,
    time_limit: Duration,
    stop: CancellationToken,
    patience: Arc<OnceLock<Duration>>,
    tasks: Mutex<JoinSet<()>>,
}

/// What a lane asks of a process.
#[derive(Debug)]
enum Ask {
    Handle(LineRequest),
    /// The ring has given this node up, so nobody waits for the answers.
    Abandon,
}

/// A message for a process.
#[derive(Debug)]
struct LineRequest {
    id: u64,
    line: Vec<u8>,
    deadline: Instant,
    answer: oneshot::Sender<Result<Outcome, Failure>>,
}

impl LineCommand {
    /// How long a process may take to end after its stdin was closed, and again after SIGTERM.
    pub const PATIENCE: Duration = PATIENCE;

    /// Starts so many processes of a command, each with at most `in_hand` messages at a time. `results` is how long results
    /// are kept, unless a reply says otherwise. Needs a tokio runtime.
    pub fn start(
        command: CommandLine,
        context: &CommandContext,
        processes: usize,
        in_hand: usize,
        time_limit: Duration,
        results: Option<Duration>,
    ) -> Self {
        let (stop, patience) = (CancellationToken::new(), Arc::default());
        let common = Common {
            spawner: Spawner::new(command, context),
            relay: context.relay.clone(),
            in_hand,
            time_limit,
            ttl: results.unwrap_or(DEFAULT_TTL),
            suspects: SuspectIds::default(),
            stop: stop.clone(),
            patience: Arc::clone(&patience),
        };
        let mut tasks = JoinSet::new();
        let start = |_| {
            let (sender, asks) = mpsc::unbounded_channel();
            tasks.spawn(LineTask::new(common.clone()).run(asks));
            sender
        };
        let senders = (0..processes).map(start).collect();
        let free = (0..in_hand).flat_map(|_| 0..processes).collect();
        Self(Arc::new(LineProcesses {
            free: Mutex::new(free),
            processes: senders,
            time_limit,
            stop,
            patience,
            tasks: tasks.into(),
        }))
    }

    /// Handles one message. At most `processes * in_hand` may be handled at the same time.
    pub async fn handle(self, job: Job<Bytes>) -> Result<Outcome, Failure> {
        let shared = &*self.0;
        let Some(place) = TakenPlace::take(shared) else {
            return Err(Failure::broken(REST[0], "every process has its hands full"));
        };
        let deadline = Instant::now() + shared.time_limit;
        let (answer, answered) = oneshot::channel();
        let request = LineRequest { id: job.id(), line: environment::line(&job, deadline), deadline, answer };
        let process = &shared.processes[place.process];
        let ended = || Failure::broken(REST[0], "the node stops");
        process.send(Ask::Handle(request)).map_err(|_| ended())?;
        tokio::select! {
            answer = answered => answer.unwrap_or_else(|_| Err(ended())),
            () = job.cancelled() => {
                let _ = process.send(Ask::Abandon);
                Err(Failure::new("the node was declared dead"))
            }
        }
    }

    /// Ends all processes: closes their stdin, then SIGTERM, then SIGKILL. Each of the two waits takes at most `patience`.
    pub async fn stop(&self, patience: Duration) {
        let _ = self.0.patience.set(patience);
        self.0.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock().expect("no panic while held"));
        while tasks.join_next().await.is_some() {}
    }
}

/// Room for one message in a process.
struct TakenPlace<'a> {
    shared: &'a LineProcesses,
    process: usize,
}

impl<'a> TakenPlace<'a> {
    fn take(shared: &'a LineProcesses) -> Option<Self> {
        let process = shared.free.lock().expect("no panic while held").pop_front()?;
        Some(Self { shared, process })
    }
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        self.shared.free.lock().expect("no panic while held").push_back(self.process);
    }
}
