//! One sequential worker of a node: takes messages from the desk, has them handled, and reports their results.
//!
//! A lane belongs to no membership. If the ring declares the node dead while a lane handles a message, the lane finishes
//! it, and the closed desk ignores the result. The lane then goes on at the desk of the next membership. When the node
//! stops, a lane finishes its current message and ends.
//!
//! A handler that waits longer than its time limit is dropped. A handler that blocks its thread cannot be dropped, and
//! keeps its lane from noticing the limit. The clerk watches over that: it settles the message without the lane.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::complaints::Complaints;
use super::desk::{Desk, Handled, NextTask};
use crate::config::Config;
use crate::effects::Effects;
use crate::error::Result;
use crate::failure::{Failure, FailureKind};
use crate::handler::{Handler, catch};
use crate::job::Delivery;
use crate::message::Message;
use crate::observer::{Notice, Observers};
use crate::outcome::Outcome;
use crate::steps::Disposition;
use crate::trace::{TraceContext, Traced};

/// What a node gives to each of its lanes.
#[derive(Clone)]
pub(crate) struct LaneStart {
    pub(super) config: Arc<Config>,
    pub(super) observers: Arc<Observers>,
    pub(super) complaints: Arc<Complaints>,
    /// The desk of the current membership.
    pub(super) desk: watch::Receiver<Option<Arc<Desk>>>,
    pub(super) quiet: CancellationToken,
}

pub(crate) struct Lane<H> {
    config: Arc<Config>,
    observers: Arc<Observers>,
    complaints: Arc<Complaints>,
    handler: Arc<H>,
    desk: watch::Receiver<Option<Arc<Desk>>>,
    quiet: CancellationToken,
}

impl<H: Handler> Lane<H> {
    pub fn new(handler: Arc<H>, start: LaneStart) -> Self {
        let LaneStart { config, observers, complaints, desk, quiet } = start;
        Self { config, observers, complaints, handler, desk, quiet }
    }

    pub async fn run(mut self) -> Result<()> {
        let quiet = self.quiet.clone();
        loop {
            let desk = tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                desk = next_desk(&mut self.desk) => desk,
            };
            if self.work_at(&desk, &quiet).await {
                return Ok(());
            }
        }
    }

    /// Works until the desk is closed. Returns true if the node stops.
    async fn work_at(&self, desk: &Desk, quiet: &CancellationToken) -> bool {
        let (mut handled, mut was_idle) = (None, false);
        let mut started = Instant::now();
        loop {
            if quiet.is_cancelled() {
                desk.finish(handled, was_idle);
                return true;
            }
            match desk.next(handled.take(), was_idle, started) {
                NextTask::Closed => return false,
                NextTask::Wait => {
                    was_idle = true;
                    tokio::select! {
                        () = desk.work.notified() => {}
                        () = quiet.cancelled() => {}
                    }
                    started = Instant::now();
                }
                NextTask::Handle(claimed) => {
                    was_idle = false;
                    let task = LaneTask { message: claimed.message(), started, membership: &desk.membership };
                    let answer = task.work(&*self.handler, &self.config).await;
                    let at = Instant::now();
                    match answer {
                        LaneAnswer::Settle(disposition, effects) => {
                            handled = Some(Handled { claimed, disposition, effects, took: at - started, at });
                            started = at;
                        }
                        LaneAnswer::PutBack { rest, reason } => {
                            let message = claimed.message();
                            self.observers.notice(Notice::HandlerBroken { message, reason: &reason, rest });
                            self.complaints.add(&reason);
                            desk.put_back(claimed, at);
                            tokio::select! {
                                () = tokio::time::sleep(rest) => {}
                                () = quiet.cancelled() => {}
                                () = desk.membership.cancelled() => {}
                            }
                            started = Instant::now();
                        }
                    }
                    // Gives the clerk a chance to make a turn while this lane goes on.
                    tokio::task::coop::consume_budget().await;
                }
            }
        }
    }
}

/// What a lane does with a message after its handler was called.
pub(crate) enum LaneAnswer {
    /// It settles the message with this disposition, or None if it is done. A message that is done may have effects.
    Settle(Option<Disposition>, Option<Box<Effects>>),
    /// It gives the message back and rests, because the handler can handle none at the moment.
    PutBack { rest: Duration, reason: String },
}

/// A message that is handled under one membership.
pub(crate) struct LaneTask<'a> {
    pub message: &'a Message,
    pub started: Instant,
    pub membership: &'a CancellationToken,
}

impl LaneTask<'_> {
    /// Calls the handler, and decides what becomes of the message.
    pub async fn work<H: Handler>(&self, handler: &H, config: &Config) -> LaneAnswer {
        let (disposition, effects) = match self.handle(handler, config).await {
            Ok(outcome) if outcome == Outcome::done() => (None, None),
            // If no step could apply the effects, no further attempt would mend that.
            Ok(Outcome { snooze: None, carry: None, effects: Some(mut effects) }) => {
                if let Some(trace) = TraceContext::of(self.message) {
                    effects.carry_on(&trace);
                }
                match effects.check(&config.ring, config.max_body) {
                    Ok(()) => (None, Some(effects)),
                    Err(reason) => (Some(Disposition::Fail { reason, died: false }), None),
                }
            }
            Err(Failure { kind: FailureKind::Broken(rest), reason }) => {
                return LaneAnswer::PutBack { rest, reason };
            }
            answer => {
                let chance = rand::random();
                (config.retry.disposition(self.message, answer, config.max_deaths, chance), None)
            }
        };
        LaneAnswer::Settle(disposition, effects)
    }

    async fn handle<H: Handler>(&self, handler: &H, config: &Config) -> Result<Outcome, Failure> {
        let Self { message, started, membership } = *self;
        if message.id == 0 {
            return Err(Failure::fatal("not a message of estafeta: foreign data in the queue"));
        }
        if let Some(reason) = message.unfit() {
            return Err(Failure::fatal(reason));
        }
        let (size, limit) = (message.body().len(), config.max_body);
        if size > limit {
            return Err(Failure::fatal(format_args!("body: expected at most {limit} bytes, got {size}")));
        }
        let (limit, attempts) = (config.time_limit, config.retry.attempts);
        let deadline = started + limit;
        let delivery = Delivery { message, body: None, attempts, deadline, membership };
        let handling = pin!(catch("handler", || handler.handle(delivery)));
        let mut handling = Traced::new(message, handling);
        // Most handlers that are quick need no timer.
        if let Poll::Ready(answer) = futures_util::poll!(&mut handling) {
            return answer;
        }
        if !handler.can_be_dropped() {
            return handling.await;
        }
        let answer = tokio::time::timeout_at(deadline.into(), &mut handling).await;
        answer.unwrap_or_else(|_| handling.end_with(Err(timed_out(limit))))
    }
}

/// The answer in place of a handler that took too long.
pub(super) fn timed_out(limit: Duration) -> Failure {
    Failure::new(format_args!("the handler took longer than its time limit of {limit:?}"))
}

/// Waits for a desk that this lane has not seen yet. Once the clerk has ended, there is no other one. The node is about
/// to stop for that reason, and a lane that ended as well would hide the reason.
async fn next_desk(desks: &mut watch::Receiver<Option<Arc<Desk>>>) -> Arc<Desk> {
    loop {
        if desks.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(desk) = desks.borrow_and_update().clone() {
            return desk;
        }
    }
}
