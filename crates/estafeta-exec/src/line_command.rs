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

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use estafeta::{Failure, Job, Outcome, RingName};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::command_line::CommandLine;
use crate::environment;
use crate::guard::Guard;
use crate::output::Relay;
use crate::process::{Ended, PATIENCE, Pipes, Process, Spawner};
use crate::reply::{DEFAULT_TTL, Reply};
use crate::rests::Rests;

/// The longest line that can be a reply.
const LONGEST_LINE: usize = 1024 * 1024;
/// A process that ends before this time, without a reply, counts as one that could not be started.
const BRIEF: Duration = Duration::from_secs(1);
/// How long nothing is claimed after such a process: the first time, and at most.
const REST: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// How long the output of a process may stay open after its exit.
const LINGERING: Duration = Duration::from_millis(200);

/// A command that answers messages line by line. Clones share its processes.
#[derive(Clone, Debug)]
pub struct LineCommand(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The processes with room for a message, each as often as it has room.
    free: Mutex<VecDeque<usize>>,
    processes: Vec<mpsc::UnboundedSender<Ask>>,
    time_limit: Duration,
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

/// What a lane asks of a process.
#[derive(Debug)]
enum Ask {
    Handle(Request),
    /// The ring has given this node up, so nobody waits for the answers.
    Abandon,
}

/// A message for a process.
#[derive(Debug)]
struct Request {
    id: u64,
    line: Vec<u8>,
    deadline: Instant,
    answer: oneshot::Sender<Result<Outcome, Failure>>,
}

/// What all processes of one command have in common.
#[derive(Clone, Debug)]
struct Common {
    spawner: Spawner,
    relay: Relay,
    in_hand: usize,
    time_limit: Duration,
    ttl: Duration,
    suspects: Suspects,
    stop: CancellationToken,
}

impl LineCommand {
    /// How much longer than the command the node has to wait, as with [`MessageCommand`](crate::MessageCommand::GRACE).
    pub const GRACE: Duration = crate::MessageCommand::GRACE;

    /// Starts so many processes of a command for messages of this ring, each with at most `in_hand` messages at a time.
    /// `results` is how long results are kept, unless a reply says otherwise. Needs a tokio runtime.
    #[expect(clippy::too_many_arguments, reason = "a builder for two callers would be longer")]
    pub fn start(
        command: CommandLine,
        ring: &RingName,
        guard: Arc<Guard>,
        relay: Relay,
        processes: usize,
        in_hand: usize,
        time_limit: Duration,
        results: Option<Duration>,
    ) -> Self {
        let stop = CancellationToken::new();
        let common = Common {
            spawner: Spawner::new(command, ring.as_str(), guard),
            relay,
            in_hand,
            time_limit,
            ttl: results.unwrap_or(DEFAULT_TTL),
            suspects: Suspects::default(),
            stop: stop.clone(),
        };
        let mut tasks = JoinSet::new();
        let start = |_| {
            let (sender, asks) = mpsc::unbounded_channel();
            tasks.spawn(LineTask::new(common.clone()).run(asks));
            sender
        };
        let senders = (0..processes).map(start).collect();
        let free = (0..in_hand).flat_map(|_| 0..processes).collect();
        Self(Arc::new(Shared {
            free: Mutex::new(free),
            processes: senders,
            time_limit,
            stop,
            tasks: tasks.into(),
        }))
    }

    /// Handles one message. At most `processes * in_hand` may be handled at the same time.
    pub async fn handle(self, job: Job<Bytes>) -> Result<Outcome, Failure> {
        let shared = &*self.0;
        let Some(place) = Place::take(shared) else {
            return Err(Failure::broken(REST[0], "every process has its hands full"));
        };
        let deadline = Instant::now() + shared.time_limit;
        let (answer, answered) = oneshot::channel();
        let request = Request { id: job.id(), line: environment::line(&job, deadline), deadline, answer };
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

    /// Ends all processes: closes their stdin, then SIGTERM, then SIGKILL.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock().expect("no panic while held"));
        while tasks.join_next().await.is_some() {}
    }
}

/// Room for one message in a process.
struct Place<'a> {
    shared: &'a Shared,
    process: usize,
}

impl<'a> Place<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        let process = shared.free.lock().expect("no panic while held").pop_front()?;
        Some(Self { shared, process })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.free.lock().expect("no panic while held").push_back(self.process);
    }
}

/// The ids of messages that were in hand with others when a process ended. All processes of a node share them.
#[derive(Clone, Debug, Default)]
struct Suspects(Arc<Mutex<HashSet<u64>>>);

impl Suspects {
    /// If another node handles them, nobody removes them here. So there is a limit.
    const MOST: usize = 10_000;

    fn add(&self, ids: impl Iterator<Item = u64>) {
        let mut all = self.0.lock().expect("no panic while held");
        if all.len() > Self::MOST {
            all.clear();
        }
        all.extend(ids);
    }

    fn contains(&self, id: u64) -> bool {
        self.0.lock().expect("no panic while held").contains(&id)
    }

    fn remove(&self, id: u64) {
        self.0.lock().expect("no panic while held").remove(&id);
    }
}

/// Owns one process after another.
struct LineTask {
    common: Common,
    rests: Rests,
    /// Messages that no process has got yet.
    waiting: VecDeque<Request>,
}

/// Why a task no longer needs its process.
enum Reason {
    /// The process has exited, or cannot be talked to any more.
    Ended(Option<Ended>),
    /// A message is over its time limit, or nobody waits for the answers.
    Terminate,
    Stop,
}

impl LineTask {
    fn new(common: Common) -> Self {
        let rests = Rests::new(REST[0], REST[1]);
        Self { common, rests, waiting: VecDeque::new() }
    }

    async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        while !self.common.stop.is_cancelled() {
            let (process, pipes) = match self.common.spawner.start(&self.common.spawner.environment) {
                Ok(started) => started,
                Err(error) => {
                    let reason = format!("cannot start '{}': {error}", self.common.spawner.command);
                    let rest = self.rests.next(Instant::now());
                    self.rest(&mut asks, rest, &reason).await;
                    continue;
                }
            };
            let mut run = ProcessRun::new(process, pipes, &self.common);
            let reason = run.serve(&mut self, &mut asks).await;
            let ended = match reason {
                Reason::Ended(Some(ended)) => Ok(ended),
                Reason::Ended(None) | Reason::Terminate => run.process.terminate(PATIENCE).await,
                Reason::Stop => run.stop().await,
            };
            let Ok(ended) = ended else { continue };
            self.sort_out(run, ended, matches!(reason, Reason::Terminate), &mut asks).await;
        }
        let failure = Failure::broken(REST[0], "the node stops");
        self.answer_all(&failure);
        asks.close();
        while let Some(ask) = asks.recv().await {
            if let Ask::Handle(request) = ask {
                let _ = request.answer.send(Err(failure.clone()));
            }
        }
    }

    /// Decides what becomes of the messages that a process had in hand when it ended.
    async fn sort_out(
        &mut self,
        mut run: ProcessRun,
        ended: Ended,
        was_terminated: bool,
        asks: &mut mpsc::UnboundedReceiver<Ask>,
    ) {
        let tail = run.end().await;
        let mut left: Vec<Request> = std::mem::take(&mut run.in_hand).into_values().collect();
        left.sort_unstable_by_key(|request| request.id);
        let reason = match String::from_utf8_lossy(&tail).trim_end() {
            "" => format!("the command ended with {ended} and without a reply"),
            text => format!("the command ended with {ended} and without a reply: {text}"),
        };
        let was_brief = !run.has_replied && run.started.elapsed() < BRIEF && !was_terminated;
        match (left.len(), ended) {
            // The process did not read the messages, or at least not all of them.
            _ if self.common.stop.is_cancelled() || !was_terminated && !run.has_read_all() => {
                self.waiting = left.into_iter().chain(self.waiting.drain(..)).collect();
            }
            (1, ended) if !was_terminated => {
                let failure = match ended {
                    Ended::Code(0) => Failure::new(reason.clone()),
                    _ => Failure::died(reason.clone()),
                };
                left.into_iter().for_each(|request| drop(request.answer.send(Err(failure.clone()))));
            }
            _ => {
                if !was_terminated {
                    self.common.suspects.add(left.iter().map(|request| request.id));
                }
                let failure =
                    Failure::broken(Duration::ZERO, "its process ended with several messages in hand");
                left.into_iter().for_each(|request| drop(request.answer.send(Err(failure.clone()))));
            }
        }
        if was_brief {
            let rest = self.rests.next(Instant::now());
            self.rest(asks, rest, &reason).await;
        } else {
            self.rests.end();
        }
    }

    /// Gives all messages back for a while.
    async fn rest(&mut self, asks: &mut mpsc::UnboundedReceiver<Ask>, rest: Duration, reason: &str) {
        let until = Instant::now() + rest;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.answer_all(&Failure::broken(left, reason));
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                () = self.common.stop.cancelled() => return,
                ask = asks.recv() => match ask {
                    Some(Ask::Handle(request)) => self.waiting.push_back(request),
                    Some(Ask::Abandon) => {}
                    None => return,
                },
            }
        }
    }

    fn answer_all(&mut self, failure: &Failure) {
        for request in self.waiting.drain(..) {
            let _ = request.answer.send(Err(failure.clone()));
        }
    }
}

/// One process, from its start to its end.
struct ProcessRun {
    process: Process,
    started: Instant,
    stdin: Option<Sender>,
    stdout: Receiver,
    stderr: JoinHandle<Vec<u8>>,
    relay: Relay,
    ttl: Duration,
    /// What is not written yet.
    outgoing: BytesMut,
    /// What was read after the last whole line.
    incoming: BytesMut,
    /// The rest of a line that was too long follows.
    skips: bool,
    in_hand: HashMap<u64, Request>,
    /// The message in hand is a suspect, and alone with the process.
    is_alone: bool,
    has_replied: bool,
    suspects: Suspects,
}

impl ProcessRun {
    fn new(process: Process, pipes: Pipes, common: &Common) -> Self {
        let Pipes { stdin, stdout, stderr, reply: _ } = pipes;
        Self {
            process,
            started: Instant::now(),
            stdin: Some(stdin),
            stdout,
            stderr: tokio::spawn(common.relay.clone().all(stderr)),
            relay: common.relay.clone(),
            ttl: common.ttl,
            outgoing: BytesMut::new(),
            incoming: BytesMut::new(),
            skips: false,
            in_hand: HashMap::new(),
            is_alone: false,
            has_replied: false,
            suspects: common.suspects.clone(),
        }
    }

    async fn serve(&mut self, task: &mut LineTask, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Reason {
        loop {
            self.send(task);
            let first = self.in_hand.values().map(|request| request.deadline).min();
            let Some(stdin) = &self.stdin else { return Reason::Ended(None) };
            let closed = stdin.ready(Interest::ERROR);
            tokio::select! {
                biased;
                () = task.common.stop.cancelled() => return Reason::Stop,
                read = self.stdout.read_buf(&mut self.incoming) => match read {
                    Ok(0) | Err(_) => return self.ended().await,
                    Ok(_) => self.read_lines(),
                },
                ready = stdin.writable(), if !self.outgoing.is_empty() => match stdin.try_write(&self.outgoing) {
                    Ok(count) if ready.is_ok() => self.outgoing.advance(count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => return self.ended().await,
                },
                ask = asks.recv() => match ask {
                    Some(Ask::Handle(request)) => {
                        task.waiting.push_back(request);
                        // Lines that wait already go along in the same write.
                        while let Ok(ask) = asks.try_recv() {
                            match ask {
                                Ask::Handle(request) => task.waiting.push_back(request),
                                Ask::Abandon => return Reason::Terminate,
                            }
                        }
                    }
                    Some(Ask::Abandon) => return Reason::Terminate,
                    None => return Reason::Stop,
                },
                // The process has closed its stdin. It will not read what was written already.
                _ = closed => return self.ended().await,
                ended = self.process.wait() => return Reason::Ended(ended.ok()),
                () = sleep_until(first) => {
                    self.time_out(task.common.time_limit);
                    return Reason::Terminate;
                }
            }
        }
    }

    /// The process has closed its stdin or its stdout. It may be about to exit, and then it is known how.
    async fn ended(&mut self) -> Reason {
        let ended = tokio::time::timeout(LINGERING, self.process.wait()).await;
        Reason::Ended(ended.ok().and_then(Result::ok))
    }

    /// Passes on as many messages as the process may have in hand.
    fn send(&mut self, task: &mut LineTask) {
        self.is_alone &= !self.in_hand.is_empty();
        while self.in_hand.len() < task.common.in_hand && !self.is_alone {
            let Some(next) = task.waiting.pop_front() else { return };
            if next.answer.is_closed() {
                continue;
            }
            if task.common.suspects.contains(next.id) {
                if !self.in_hand.is_empty() {
                    return task.waiting.push_front(next);
                }
                self.is_alone = true;
            }
            if let Some(other) = self.in_hand.get(&next.id) {
                // Only a foreign client can make two messages with one id. A reply could mean either.
                let reason = format!("another message with the id {} is in hand", other.id);
                let _ = next.answer.send(Err(Failure::new(reason)));
                continue;
            }
            self.outgoing.extend_from_slice(&next.line);
            self.in_hand.insert(next.id, next);
        }
    }

    fn time_out(&mut self, limit: Duration) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .in_hand
            .values()
            .filter(|request| request.deadline <= now)
            .map(|request| request.id)
            .collect();
        for request in late.iter().filter_map(|id| self.in_hand.remove(id)) {
            let limit = humantime::format_duration(limit);
            let reason = format!("the command took longer than its time limit of {limit}");
            let _ = request.answer.send(Err(Failure::new(reason)));
        }
    }

    /// Reads the whole lines that have arrived.
    fn read_lines(&mut self) {
        while let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') {
            let line = self.incoming.split_to(end + 1);
            if !std::mem::take(&mut self.skips) {
                self.read_line(&line);
            }
        }
        if self.incoming.len() > LONGEST_LINE {
            if !self.skips {
                self.relay.line(b"estafeta: a line of the command is longer than 1 MiB and was dropped\n");
            }
            self.incoming.clear();
            self.skips = true;
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let reply = line.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice::<IdOnly>(line));
        let request = match reply {
            Some(Ok(IdOnly { id })) => self.in_hand.remove(&id),
            _ => None,
        };
        match request {
            None => self.relay.line(line),
            Some(request) => {
                self.has_replied = true;
                if self.is_alone {
                    self.suspects.remove(request.id);
                }
                let answer = Reply::parse(line).and_then(|reply| reply.answer(self.ttl));
                let _ = request.answer.send(answer);
            }
        }
    }

    /// Closes stdin, so that the process can finish, and reads replies meanwhile.
    async fn stop(&mut self) -> std::io::Result<Ended> {
        self.stdin = None;
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                ended = self.process.wait() => return ended,
                read = self.stdout.read_buf(&mut self.incoming) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(_) => self.read_lines(),
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        match tokio::time::timeout_at(until, self.process.wait()).await {
            Ok(ended) => ended,
            Err(_) => self.process.terminate(PATIENCE).await,
        }
    }

    /// Whether the process has read all messages that it had in hand.
    fn has_read_all(&self) -> bool {
        let unread = self.stdin.as_ref().map_or(Ok(0), rustix::io::ioctl_fionread);
        self.outgoing.is_empty() && unread.is_ok_and(|count| count == 0)
    }

    /// Reads what the process wrote before it exited. Returns the end of its stderr.
    async fn end(&mut self) -> Vec<u8> {
        let until = tokio::time::Instant::now() + LINGERING;
        let rest = async {
            while self.stdout.read_buf(&mut self.incoming).await.is_ok_and(|count| count > 0) {
                self.read_lines();
            }
        };
        let _ = tokio::time::timeout_at(until, rest).await;
        tokio::time::timeout_at(until, &mut self.stderr).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for ProcessRun {
    fn drop(&mut self) {
        self.stderr.abort();
    }
}

/// What shows whether a line is a reply.
#[derive(serde::Deserialize)]
struct IdOnly {
    id: u64,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
