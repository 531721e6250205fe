//! One sequential worker of a copy: claims messages, has them handled, settles them, all with the one step `turn`.
//!
//! A lane always knows three things: under which identity it claimed, how many messages it has settled under it (the
//! cursor), and which results it has not yet settled. `turn` settles those results and claims the next batch in one
//! round trip. If its reply is lost the store repeats it; Redis sees by the cursor that the results are in already.
//! `lost` means that the ring declared this member dead: what the lane held is in the queue again and somebody else's,
//! so its results are dropped, and it waits for the copy's next identity.
//!
//! While the copy is the generator its lanes settle what they hold and rest. When the copy stops, a lane finishes the
//! message in hand, settles, and ends; what it claimed beyond that goes back with `leave`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::appetite::Appetite;
use crate::bell::Bell;
use crate::config::Config;
use crate::doubt::Doubt;
use crate::error::Result;
use crate::member_id::Identity;
use crate::message::Message;
use crate::observer::{Notice, Observer};
use crate::standing::Standing;
use crate::store::{Settlement, Store, Turn};
use crate::work::{Failure, Handler};

pub(crate) struct Lane<H, O> {
    pub index: usize,
    pub store: Store,
    pub config: Arc<Config>,
    pub handler: Arc<H>,
    pub observer: Arc<O>,
    pub standing: watch::Receiver<Standing>,
    pub bell: Bell,
    pub doubt: Arc<Doubt>,
}

/// Results that Redis has not recorded yet.
#[derive(Default)]
struct Results {
    handled: Vec<Message>,
    failures: Vec<(usize, String)>,
    /// In how many elements they lay, if nothing was left over.
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
            self.doubt.about_member(me.incarnation);
            tokio::select! {
                () = quiet.cancelled() => return Ok(()),
                () = self.other_than(me) => {}
            }
        }
    }

    /// Works under one identity. True if the copy stops, false if the ring does not know this identity any more.
    async fn work_as(&mut self, me: Identity, quiet: &CancellationToken) -> Result<bool> {
        let mut appetite = Appetite::new(self.config.max_batch);
        let mut results = Results::default();
        let mut cursor = 0;
        loop {
            let handles = self.standing.borrow().handles() && !quiet.is_cancelled();
            if !handles && results.handled.is_empty() {
                if quiet.is_cancelled() {
                    return Ok(true);
                }
                tokio::select! {
                    () = quiet.cancelled() => {}
                    () = changed(&mut self.standing) => {}
                }
                if !quiet.is_cancelled() && self.standing.borrow().identity() != Some(me) {
                    return Ok(false);
                }
                continue;
            }
            let settlement = Settlement {
                cursor,
                settled: results.handled.len(),
                elements: std::mem::take(&mut results.elements),
                failures: std::mem::take(&mut results.failures),
                want: if handles { appetite.want() } else { 0 },
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
                self.handle(held, &mut results, &mut appetite, quiet).await;
                results.elements = if results.handled.len() == count { elements } else { 0 };
            }
        }
    }

    async fn handle(
        &self,
        held: Vec<Message>,
        results: &mut Results,
        appetite: &mut Appetite,
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
        appetite.ate(results.handled.len(), bytes, started.elapsed());
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

    /// Waits for the bell, or for something that changes what this lane is to do.
    async fn idle(&mut self, quiet: &CancellationToken) {
        tokio::select! {
            () = quiet.cancelled() => {}
            () = changed(&mut self.standing) => {}
            () = self.bell.wait() => {}
        }
    }

    async fn identity(&mut self) -> Identity {
        loop {
            if let Some(me) = self.standing.borrow_and_update().identity() {
                return me;
            }
            changed(&mut self.standing).await;
        }
    }

    async fn other_than(&mut self, me: Identity) {
        let other = |standing: &Standing| standing.identity().is_some_and(|now| now != me);
        if self.standing.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for a change of what the copy is. When the heartbeat has ended, nothing changes any more: the copy is about to stop
/// for that, and a lane that ended as well would hide the reason.
async fn changed(standing: &mut watch::Receiver<Standing>) {
    if standing.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
