//! Members in this process, each with its own thread and runtime, and what they report.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, bail};
use contract::MessageCounter;
use estafeta::{Node, Notice};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// All members of this process.
pub struct RunningMembers {
    stop: CancellationToken,
    threads: Vec<JoinHandle<estafeta::Result<()>>>,
    /// Cancelled when a member has ended or panicked.
    ended: CancellationToken,
}

impl RunningMembers {
    pub fn none() -> RunningMembers {
        RunningMembers {
            stop: CancellationToken::new(),
            threads: Vec::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Starts a member that will publish or handle this many messages.
    pub fn start(&mut self, member: Node, expected: u64) -> Result<Arc<MemberEvents>> {
        let events = Arc::new(MemberEvents::of(expected));
        self.start_observed(member, &events)?;
        Ok(events)
    }

    /// Starts a member that reports what it does to `events`.
    pub fn start_observed(&mut self, member: Node, events: &Arc<MemberEvents>) -> Result<()> {
        let member = observed(member, events);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, end) = (self.stop.clone(), self.ended.clone().drop_guard());
        self.threads.push(std::thread::spawn(move || {
            let _end = end;
            runtime.block_on(member.until(stop.cancelled_owned()))
        }));
        Ok(())
    }

    /// Waits for something that the members do. Fails if one of them ends first.
    pub async fn working<T>(&mut self, awaited: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            value = awaited => return Ok(value),
            () = self.ended.cancelled() => {}
        }
        self.leave()?;
        bail!("a member ended too early");
    }

    /// Stops all members. Each leaves the ring.
    pub fn finish(mut self) -> Result<()> {
        self.leave()
    }

    fn leave(&mut self) -> Result<()> {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            thread.join().ok().context("a member panicked")??;
        }
        Ok(())
    }
}

/// Lets a member report what it does to `events`.
pub fn observed(member: Node, events: &Arc<MemberEvents>) -> Node {
    let events = Arc::clone(events);
    member.observe(move |notice| events.notice(notice))
}

/// What one member has reported.
pub struct MemberEvents {
    joined: Notify,
    in_office: Notify,
    /// Messages that the member has published.
    pub put: MessageCounter,
    /// Messages whose outcome Redis has recorded.
    pub settled: MessageCounter,
}

impl MemberEvents {
    /// Nothing yet, of a member that will publish or handle this many messages.
    pub fn of(expected: u64) -> MemberEvents {
        let (put, settled) = (MessageCounter::of(expected), MessageCounter::of(expected));
        MemberEvents { joined: Notify::new(), in_office: Notify::new(), put, settled }
    }

    pub async fn joined(&self) {
        self.joined.notified().await;
    }

    pub async fn in_office(&self) {
        self.in_office.notified().await;
    }

    fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Joined { .. } => self.joined.notify_one(),
            Notice::BecameGenerator { .. } => self.in_office.notify_one(),
            Notice::Generated { messages } => self.put.add(messages.len() as u64),
            Notice::Settled { messages, .. } => self.settled.add(messages.len() as u64),
            _ => {}
        }
    }
}
