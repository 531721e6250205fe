//! Has messages handled one by one, without the tasks of a node.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::TestRing;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::handler::{AsyncHandler, Handler};
use crate::identity::Identity;
use crate::inspect::Ring;
use crate::job::Job;
use crate::message::Message;
use crate::node::heartbeat::join;
use crate::node::{LaneAnswer, LaneTask};
use crate::outcome::Outcome;
use crate::pack;
use crate::steps::{Disposition, MemberKind, MessageEffects, NotDone, Settlement, Turn};

/// The lease of a member without a heartbeat, the longest one. A test may stop in a debugger.
const LEASE: Duration = Duration::from_secs(3600);
/// After so many messages, a drain has no end.
const MOST: usize = 10_000;

/// A message that was handled, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandledJob {
    /// The message as the handler got it.
    pub message: Message,
    /// What became of it.
    pub outcome: JobOutcome,
}

/// What became of a message that was handled. Redis has recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobOutcome {
    /// It is done, with all its effects.
    Done,
    /// It failed and waits for another attempt.
    Retried {
        /// How long it waits.
        after: Duration,
        /// Why it failed.
        reason: String,
    },
    /// Its handler snoozed it. That is no failure.
    Snoozed {
        /// How long it waits.
        after: Duration,
    },
    /// It went back to the queue, because the handler is [broken](crate::Failure::broken).
    PutBack {
        /// How long the lane of a node would rest.
        rest: Duration,
        /// Why it is broken.
        reason: String,
    },
    /// It is a dead letter, because the failure was fatal, no attempt was left, or an effect was bad.
    DeadLetter {
        /// Why.
        reason: String,
    },
}

impl JobOutcome {
    fn of(disposition: Option<Disposition>) -> Self {
        match disposition {
            None => Self::Done,
            Some(Disposition::Retry { after, reason } | Disposition::Die { after, reason }) => {
                Self::Retried { after, reason }
            }
            Some(Disposition::Snooze { after, .. }) => Self::Snoozed { after },
            Some(Disposition::Fail { reason, .. }) => Self::DeadLetter { reason },
        }
    }
}

impl TestRing {
    /// Has the first message of the queue handled, and returns what became of it. A node does the same: it joins the
    /// ring, claims the message, calls the function, settles the message and leaves. Messages that are due go to the queue
    /// first.
    ///
    /// Returns None if no message may be claimed. Either none waits, or handling is paused, or a limit of the ring is
    /// reached.
    ///
    /// The function is one that [`Node::handle`](crate::Node::handle) takes, and may also borrow from the test. A panic is
    /// a failure, and the time limit holds. A closure around a function of another kind will do:
    ///
    /// | the function is for | closure |
    /// |---|---|
    /// | [`handle_with`](crate::Node::handle_with) | <code>&#124;job&#124; deliver(http.clone(), job)</code> |
    /// | [`handle_blocking`](crate::Node::handle_blocking) | <code>&#124;job&#124; async move { shrink(job) }</code> |
    /// | [`handle_batch`](crate::Node::handle_batch) | <code>&#124;job&#124; store(vec![job])</code> |
    ///
    /// Run a [`node`](Self::node) to test a [wrapper](crate::Node::wrap), a batch of several messages, or a function that
    /// returns [`Outcomes`](crate::Outcomes).
    ///
    /// If the test drops this call before it ends, the ring sees the death of a node. The message goes back to the
    /// queue with one more death, at the latest when the next call of this ring begins.
    pub async fn work_one<F, T, A, O>(&self, function: F) -> Result<Option<HandledJob>>
    where
        F: Fn(Job<T>) -> A + Send + Sync,
        A: Future<Output = Result<O, Failure>> + Send,
        O: Into<Outcome>,
        T: DeserializeOwned + Send + 'static,
    {
        let mut member = SoloMember::join(self).await?;
        let handled = member.work_one(&AsyncHandler::new(function)).await?;
        member.leave().await?;
        Ok(handled)
    }

    /// Has messages handled until none may be claimed, as in [`work_one`](Self::work_one), and returns what became of each.
    /// It takes the same functions. A message that is tried again at once is handled again. A handler that is
    /// [broken](crate::Failure::broken) ends it. A message that waits for a time stays: let the time pass with
    /// [`advance`](Self::advance), and drain again.
    ///
    /// Messages that a handler forwards to this ring are handled as well. Those that it forwards to another ring wait
    /// there. Drain that ring, which [`beside`](Self::beside) returns.
    ///
    /// Fails after 10,000 messages, because the handler then seems to forward messages without end.
    pub async fn drain<F, T, A, O>(&self, function: F) -> Result<Vec<HandledJob>>
    where
        F: Fn(Job<T>) -> A + Send + Sync,
        A: Future<Output = Result<O, Failure>> + Send,
        O: Into<Outcome>,
        T: DeserializeOwned + Send + 'static,
    {
        let (mut member, handler) = (SoloMember::join(self).await?, AsyncHandler::new(function));
        let mut all = Vec::new();
        while let Some(handled) = member.work_one(&handler).await? {
            let was_put_back = matches!(handled.outcome, JobOutcome::PutBack { .. });
            all.push(handled);
            if was_put_back {
                break;
            }
            if all.len() == MOST {
                member.leave().await?;
                return Err(Error::TestRing(format!("drain: expected an end, got {MOST} messages")));
            }
        }
        member.leave().await?;
        Ok(all)
    }

    /// Buries the members whose calls were dropped.
    pub(super) async fn bury_dropped(&self) -> Result<()> {
        let dropped = std::mem::take(&mut *self.dropped.lock().expect("no panic while held"));
        for member in dropped {
            self.bury(member).await?;
        }
        Ok(())
    }
}

/// A member that handles one message after another, and does nothing else. It has a separate connection, because its
/// presence ends with it.
struct SoloMember<'a> {
    test: &'a TestRing,
    ring: Ring,
    me: Identity,
    cursor: u64,
    seen: u64,
    has_left: bool,
}

impl<'a> SoloMember<'a> {
    async fn join(test: &'a TestRing) -> Result<Self> {
        test.config.validate()?;
        test.bury_dropped().await?;
        let config = Config { lease: LEASE, never_generate: true, ..test.config.clone() };
        let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await?;
        let me = join(ring.store(), &config, MemberKind::Node).await?;
        Ok(Self { test, ring, me, cursor: 0, seen: 0, has_left: false })
    }

    async fn work_one(&mut self, handler: &impl Handler) -> Result<Option<HandledJob>> {
        let Some((name, message)) = self.claim().await? else { return Ok(None) };
        let membership = CancellationToken::new();
        let _over = membership.clone().drop_guard();
        let task = LaneTask { message: &message, started: Instant::now(), membership: &membership };
        let (disposition, effects) = match task.work(handler, &self.test.config).await {
            LaneAnswer::Settle(disposition, effects) => (disposition, effects),
            LaneAnswer::PutBack { rest, reason } => {
                let back = Settlement { count: 1, returns: vec![name], ..Settlement::default() };
                self.turn(back).await?;
                return Ok(Some(HandledJob { message, outcome: JobOutcome::PutBack { rest, reason } }));
            }
        };
        let mut outcome = JobOutcome::of(disposition.clone());
        let effects =
            effects.map(|effects| MessageEffects { name: name.clone(), index: 0, id: message.id, effects });
        let not_done = disposition.map(|disposition| NotDone { name: name.clone(), index: 0, disposition });
        let settlement = Settlement {
            count: 1,
            whole: vec![name],
            not_done: not_done.into_iter().collect(),
            effects: effects.into_iter().collect(),
            application: self.test.config.named_application(),
            partitions: self.test.config.partitions,
            ..Settlement::default()
        };
        if let Turned { bad: Some(reason), .. } = self.turn(settlement).await? {
            outcome = JobOutcome::DeadLetter { reason };
        }
        Ok(Some(HandledJob { message, outcome }))
    }

    /// Claims a message. Returns it with the name of its element.
    async fn claim(&mut self) -> Result<Option<(String, Message)>> {
        let claim = Settlement { want: 1, each: 1, ..Settlement::default() };
        let Turned { claim: Some((name, element)), .. } = self.turn(claim).await? else { return Ok(None) };
        let mut messages = Vec::new();
        pack::read(self.ring.name(), element, &mut messages);
        Ok(messages.pop().map(|message| (name, message)))
    }

    async fn turn(&mut self, settlement: Settlement) -> Result<Turned> {
        let settlement = Settlement { cursor: self.cursor, seen: self.seen, ..settlement };
        match self.ring.store().turn(self.me, &settlement, self.test.config.journal).await? {
            Turn::Applied { cursor, claimed, claims, bad, .. } => {
                (self.cursor, self.seen) = (cursor, claimed);
                let bad = bad.into_iter().next().map(|bad| bad.reason);
                Ok(Turned { claim: claims.into_iter().next(), bad })
            }
            Turn::Forbidden { reason } => {
                Err(Error::TestRing(format!("Redis refuses to forward a message: {reason}")))
            }
            Turn::Lost => Err(Error::TestRing(
                "the ring was erased, or took the message away while its handler ran".to_owned(),
            )),
        }
    }

    async fn leave(mut self) -> Result<()> {
        self.has_left = true;
        self.ring.store().leave(self.me.incarnation).await.map(drop)
    }
}

impl Drop for SoloMember<'_> {
    fn drop(&mut self) {
        if !self.has_left {
            self.test.dropped.lock().expect("no panic while held").push(self.me.incarnation);
        }
    }
}

/// What a turn of one message brought: a claim, and why its effects are bad.
struct Turned {
    claim: Option<(String, Vec<u8>)>,
    bad: Option<String>,
}
