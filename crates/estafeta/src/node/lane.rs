//! One sequential worker of a node: it claims messages, has them handled and settles them, all with the one step
//! `turn`.
//!
//! A lane always knows the identity under which it claimed. It knows how many messages it has settled under that
//! identity (the cursor). It knows which results it has not yet settled. `turn` settles those results and claims the
//! next batch in one round trip. If the reply is lost, the store repeats the step, and Redis sees from the cursor that
//! it already has the results. `lost` means that the ring declared this member dead. The messages that the lane held
//! are back in the queue and belong to other members. The lane therefore drops its results and waits for the node's
//! next identity.
//!
//! While the node is the generator, its lanes settle what they hold and rest. When the node stops, a lane finishes the
//! current message, settles, and ends. `leave` returns the other messages that the lane claimed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::batch_size::BatchSize;
use super::refusals::Refusals;
use super::state::MemberState;
use super::wakeup::Wakeup;
use crate::config::Config;
use crate::error::Result;
use crate::handler::{Failure, Handler};
use crate::identity::Identity;
use crate::message::Message;
use crate::observer::{Notice, Observer};
use crate::redis::Store;
use crate::steps::{Settlement, Turn};

pub(crate) struct Lane<H, O> {
    pub index: usize,
    pub store: Store,
    pub config: Arc<Config>,
    pub handler: Arc<H>,
    pub observer: Arc<O>,
    pub state: watch::Receiver<MemberState>,
    pub wakeup: Wakeup,
    pub refusals: Arc<Refusals>,
}

/// UnsettledResults that Redis has not recorded yet.
#[derive(Default)]
struct UnsettledResults {
    handled: Vec<Message>,
    failures: Vec<(usize, String)>,
    /// The number of elements that held these messages, if none was left over.
    elements: usize,
}

impl<H: Handler, O: Observer> Lane<H, O> {
    pub async fn run(mut self, quiet: CancellationToken) -> Result<()> {
        loop {
            let me = tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                me = self.identity() => me,
            };
            if self.work_as(me, &quiet).await? {
                return Ok(());
            }
            self.refusals.report_member(me.incarnation);
            tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                () = self.other_than(me) => {}
            }
        }
    }

    /// Works under one identity. Returns true if the node stops, false if the ring no longer knows this identity.
    async fn work_as(&mut self, me: Identity, quiet: &CancellationToken) -> Result<bool> {
        let mut batch_size = BatchSize::new(self.config.max_batch);
        let mut results = UnsettledResults::default();
        let mut cursor = 0;
        loop {
            let handles = self.state.borrow().handles() && !quiet.is_cancelled();
            if !handles && results.handled.is_empty() {
                if quiet.is_cancelled() {
                    return Ok(true);
                }
                tokio::select! {
                    () = quiet.cancelled() => {}
                    () = changed(&mut self.state) => {}
                }
                if !quiet.is_cancelled() && self.state.borrow().identity() != Some(me) {
                    return Ok(false);
                }
                continue;
            }
            let settlement = Settlement {
                cursor,
                settled: results.handled.len(),
                elements: std::mem::take(&mut results.elements),
                failures: std::mem::take(&mut results.failures),
                want: if handles { batch_size.next() } else { 0 },
            };
            let turn = self.store.turn(me, self.index, &settlement, self.config.journal).await?;
            let Turn::Holds { cursor: settled, held, elements } = turn else {
                return Ok(false);
            };
            cursor = settled;
            if !results.handled.is_empty() {
                let (messages, failures) = (&results.handled[..], &settlement.failures[..]);
                self.observer.notice(Notice::Settled { member: me.number, messages, failures });
                results.handled.clear();
            }
            if quiet.is_cancelled() {
                return Ok(true);
            }
            if held.is_empty() {
                self.idle(quiet).await;
            } else {
                let count = held.len();
                self.handle(held, &mut results, &mut batch_size, quiet).await;
                results.elements = if results.handled.len() == count { elements } else { 0 };
            }
        }
    }

    async fn handle(
        &self,
        held: Vec<Message>,
        results: &mut UnsettledResults,
        batch_size: &mut BatchSize,
        quiet: &CancellationToken,
    ) {
        let started = Instant::now();
        for message in held {
            if quiet.is_cancelled() {
                break;
            }
            if let Err(failure) = self.handle_one(&message).await {
                results.failures.push((results.handled.len(), failure.into_reason()));
            }
            results.handled.push(message);
        }
        let bytes = results.handled.iter().map(|message| message.body().len()).sum();
        batch_size.record(results.handled.len(), bytes, started.elapsed());
    }

    async fn handle_one(&self, message: &Message) -> Result<(), Failure> {
        if message.id == 0 {
            return Err(Failure::new("not a message of estafeta: foreign data in the queue"));
        }
        let (size, limit) = (message.body().len(), self.config.max_body);
        if size > limit {
            return Err(Failure::new(format_args!("body: expected at most {limit} bytes, got {size}")));
        }
        let handled = AssertUnwindSafe(self.handler.handle(message)).catch_unwind().await;
        handled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(Failure::new(format_args!("the handler panicked: {text}")))
        })
    }

    /// Waits for a wakeup, or for a change in what this lane has to do.
    async fn idle(&mut self, quiet: &CancellationToken) {
        tokio::select! {
            () = quiet.cancelled() => {}
            () = changed(&mut self.state) => {}
            () = self.wakeup.wait() => {}
        }
    }

    async fn identity(&mut self) -> Identity {
        loop {
            if let Some(me) = self.state.borrow_and_update().identity() {
                return me;
            }
            changed(&mut self.state).await;
        }
    }

    async fn other_than(&mut self, me: Identity) {
        let other = |state: &MemberState| state.identity().is_some_and(|now| now != me);
        if self.state.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until the node's state changes. Once the heartbeat has ended, the state never changes again. The node is about
/// to stop for that reason, and a lane that ended as well would hide the reason.
async fn changed(state: &mut watch::Receiver<MemberState>) {
    if state.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
