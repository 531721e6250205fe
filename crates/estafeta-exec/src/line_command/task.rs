//! The task that owns one process after another, and decides what becomes of the messages of one that ended.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use estafeta::Failure;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::process_run::{ProcessRun, Reason};
use super::{Ask, LineRequest, REST};
use crate::output::Relay;
use crate::process::{Ended, PATIENCE, Spawner};
use crate::rests::Rests;

/// A process that ends before this time, without a reply, counts as one that could not be started.
const BRIEF: Duration = Duration::from_secs(1);

/// What all processes of one command have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub spawner: Spawner,
    pub relay: Relay,
    pub in_hand: usize,
    pub time_limit: Duration,
    pub ttl: Duration,
    pub suspects: SuspectIds,
    pub stop: CancellationToken,
    /// How long a process may take to end, in each of two stages. Set before `stop`.
    pub patience: Arc<OnceLock<Duration>>,
}

/// The ids of messages that were in hand with others when a process ended. All processes of a node share them.
#[derive(Clone, Debug, Default)]
pub(super) struct SuspectIds(Arc<Mutex<HashSet<u64>>>);

impl SuspectIds {
    /// If another node handles them, nobody removes them here. So there is a limit.
    const MOST: usize = 10_000;

    pub fn add(&self, ids: impl Iterator<Item = u64>) {
        let mut all = self.0.lock().expect("no panic while held");
        if all.len() > Self::MOST {
            all.clear();
        }
        all.extend(ids);
    }

    pub fn contains(&self, id: u64) -> bool {
        self.0.lock().expect("no panic while held").contains(&id)
    }

    pub fn remove(&self, id: u64) {
        self.0.lock().expect("no panic while held").remove(&id);
    }
}

/// Owns one process after another.
pub(super) struct LineTask {
    pub common: Common,
    rests: Rests,
    /// Messages that no process has got yet.
    pub waiting: VecDeque<LineRequest>,
}

impl LineTask {
    pub fn new(common: Common) -> Self {
        let rests = Rests::new(REST[0], REST[1]);
        Self { common, rests, waiting: VecDeque::new() }
    }

    pub async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        while !self.common.stop.is_cancelled() {
            let (process, pipes) = match self.common.spawner.start(&self.common.spawner.environment) {
                Ok(started) => started,
                Err(error) => {
                    let rest = self.rests.next(Instant::now());
                    self.rest(&mut asks, rest, &error.to_string()).await;
                    continue;
                }
            };
            let mut run = ProcessRun::new(process, pipes, &self.common);
            let reason = run.serve(&mut self, &mut asks).await;
            let ended = match reason {
                Reason::Ended(Some(ended)) => Ok(ended),
                Reason::Ended(None) | Reason::Terminate => run.process.terminate(PATIENCE).await,
                Reason::Stop => run.stop(self.common.patience.get().copied().unwrap_or(PATIENCE)).await,
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
        let mut left: Vec<LineRequest> = std::mem::take(&mut run.in_hand).into_values().collect();
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
