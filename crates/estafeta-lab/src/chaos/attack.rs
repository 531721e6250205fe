//! Carries out the plan: injects each fault when it is due, and undoes it when its time is over.
//!
//! A fault reserves the nodes that it hits until it is undone, so no node has two faults at once. If the node that the
//! plan names is reserved, the fault hits the next free node. If all are reserved, it waits. Faults of Redis wait for
//! each other. If a fault cannot be injected or undone, the attack phase fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::proxy::LinkCondition;
use anyhow::Result;
use nix::sys::signal::Signal;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, sleep_until};

use super::node::ChaosNode;
use super::plan::{FaultKind, PlannedFault, Target};
use crate::clock::now_ms;
use crate::ephemeral_redis::EphemeralRedis;

/// A fault that chaos has injected.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    pub kind: FaultKind,
    pub from_ms: u64,
    pub until_ms: u64,
    /// The nodes that it hit. Empty if it hit Redis.
    pub victims: Vec<usize>,
    /// A description for people.
    pub what: String,
}

pub struct Targets {
    pub nodes: Vec<ChaosNode>,
    pub redis: Option<EphemeralRedis>,
    /// Which nodes are reserved by a fault. The next fault hits another node.
    reserved: Vec<AtomicBool>,
    /// Lets faults of Redis happen one after another.
    redis_turn: tokio::sync::Mutex<()>,
    faults: Mutex<Vec<InjectedFault>>,
}

/// How long to wait for the replies that the proxy shall lose.
const LOSS_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a fault checks whether it can continue, for example whether a node is free.
const POLL: Duration = Duration::from_millis(20);
const FLOODERS: usize = 8;

impl Targets {
    pub fn new(nodes: Vec<ChaosNode>, redis: Option<EphemeralRedis>) -> Self {
        let reserved = nodes.iter().map(|_| AtomicBool::new(false)).collect();
        Self { nodes, redis, reserved, redis_turn: tokio::sync::Mutex::default(), faults: Mutex::default() }
    }

    /// The faults so far, in the order in which they began.
    pub fn faults(&self) -> Vec<InjectedFault> {
        let mut faults = self.faults.lock().expect("no panic while held").clone();
        faults.sort_by_key(|fault| fault.from_ms);
        faults
    }

    /// Injects the faults of the plan, and returns when all of them are undone. `generator` returns the current
    /// generator.
    pub async fn attack(
        self: &Arc<Self>,
        plan: Vec<PlannedFault>,
        generator: impl Fn() -> Option<usize>,
        report: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<()> {
        let start = Instant::now();
        let mut faults = JoinSet::new();
        for fault in plan {
            sleep_until((start + fault.at).into()).await;
            while let Some(ended) = faults.try_join_next() {
                ended??;
            }
            let victims = self.victims(&fault, generator()).await;
            let what = self.describe(&fault, &victims, generator());
            faults.spawn(Arc::clone(self).inject(fault, victims, what, report.clone()));
        }
        while let Some(ended) = faults.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Chooses nodes that no other fault has reserved, and reserves them.
    async fn victims(&self, fault: &PlannedFault, generator: Option<usize>) -> Vec<usize> {
        let first = match fault.target {
            Target::Redis => return Vec::new(),
            Target::AllBut(spared) => {
                let nodes = self.nodes.iter().filter(|node| node.is_node()).map(|node| node.index);
                let others: Vec<usize> = nodes.filter(|node| *node != spared).collect();
                for node in &others {
                    self.reserve_when_free(*node).await;
                }
                return others;
            }
            Target::Generator => generator.unwrap_or(0),
            Target::Process(process) => process,
        };
        loop {
            let mut in_turn = (0..self.nodes.len()).map(|step| (first + step) % self.nodes.len());
            if let Some(free) = in_turn.find(|node| self.reserve(*node)) {
                return vec![free];
            }
            sleep(POLL).await;
        }
    }

    /// Reserves a node as a fault does, as soon as no fault has it.
    pub async fn reserve_when_free(&self, node: usize) {
        while !self.reserve(node) {
            sleep(POLL).await;
        }
    }

    pub fn release(&self, node: usize) {
        self.reserved[node].store(false, Ordering::Relaxed);
    }

    fn reserve(&self, node: usize) -> bool {
        !self.reserved[node].swap(true, Ordering::Relaxed)
    }

    async fn inject(
        self: Arc<Self>,
        fault: PlannedFault,
        victims: Vec<usize>,
        what: String,
        report: impl Fn(&str),
    ) -> Result<()> {
        let _turn = match fault.target {
            Target::Redis => Some(self.redis_turn.lock().await),
            _ => None,
        };
        report(&what);
        let from_ms = now_ms();
        let index = {
            let mut faults = self.faults.lock().expect("no panic while held");
            let victims = victims.clone();
            faults.push(InjectedFault { kind: fault.kind, from_ms, until_ms: from_ms, victims, what });
            faults.len() - 1
        };
        match &self.redis {
            Some(redis) if fault.target == Target::Redis => self.inject_into_redis(redis, &fault).await?,
            _ => self.inject_into_nodes(&fault, &victims).await?,
        }
        self.faults.lock().expect("no panic while held")[index].until_ms = now_ms();
        victims.iter().for_each(|node| self.release(*node));
        Ok(())
    }

    async fn inject_into_nodes(&self, fault: &PlannedFault, victims: &[usize]) -> Result<()> {
        let each = || victims.iter().map(|node| &self.nodes[*node]);
        let condition = |condition| each().for_each(|node| node.proxy.set(condition));
        match fault.kind {
            FaultKind::Kill => ChaosNode::kill_all(each())?,
            FaultKind::Freeze => each().try_for_each(|node| node.signal(Signal::SIGSTOP))?,
            FaultKind::Cut => condition(LinkCondition::Closed),
            FaultKind::Lag => condition(slowness(fault)),
            FaultKind::HalfOpen => condition(LinkCondition::Silent),
            FaultKind::LostReply => {
                for node in each() {
                    lose_replies(node, 1 + u64::from(fault.form % 3)).await;
                }
            }
            _ => {}
        }
        sleep(fault.lasts).await;
        match fault.kind {
            FaultKind::Kill => each().try_for_each(|node| node.start(None))?,
            FaultKind::Freeze => each().try_for_each(|node| node.signal(Signal::SIGCONT))?,
            _ => condition(LinkCondition::Clear),
        }
        Ok(())
    }

    async fn inject_into_redis(self: &Arc<Self>, redis: &EphemeralRedis, fault: &PlannedFault) -> Result<()> {
        match fault.kind {
            FaultKind::RedisKill => {
                self.with_redis(|redis| Ok(redis.kill()?)).await?;
                sleep(fault.lasts).await;
                self.with_redis(EphemeralRedis::start_again).await?;
            }
            FaultKind::RedisStall if fault.form.is_multiple_of(3) => {
                redis.signal(Signal::SIGSTOP)?;
                sleep(fault.lasts).await;
                redis.signal(Signal::SIGCONT)?;
            }
            FaultKind::RedisStall if fault.form % 3 == 1 => {
                let pause = fault.lasts.as_millis().to_string();
                self.command(&["CLIENT", "PAUSE", &pause, "ALL"]).await?;
                sleep(fault.lasts).await;
            }
            FaultKind::RedisStall => self.busy_script(fault.lasts).await?,
            FaultKind::ScriptFlush => self.command(&["SCRIPT", "FLUSH"]).await?,
            FaultKind::ClientKill => {
                let kind = if fault.form.is_multiple_of(2) { "normal" } else { "pubsub" };
                self.command(&["CLIENT", "KILL", "TYPE", kind]).await?;
            }
            FaultKind::Flood => self.flood(fault.lasts).await?,
            _ => {}
        }
        Ok(())
    }

    /// Runs an action that may block until the disk is ready. Does nothing if chaos did not start this Redis.
    pub async fn with_redis(
        self: &Arc<Self>,
        act: impl FnOnce(&EphemeralRedis) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let targets = Arc::clone(self);
        spawn_blocking(move || targets.redis.as_ref().map_or(Ok(()), act)).await?
    }

    /// Runs a script that never ends. After a moment Redis answers BUSY to every client, until the script is killed.
    async fn busy_script(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        self.command(&["CONFIG", "SET", "busy-reply-threshold", "50"]).await?;
        let mut busy = std::pin::pin!(self.command(&["EVAL", "while true do end", "0"]));
        let mut pause = lasts;
        loop {
            tokio::select! {
                // The call fails, because the script was killed.
                _ = &mut busy => return self.command(&["CONFIG", "SET", "busy-reply-threshold", "5000"]).await,
                () = sleep(pause) => {}
            }
            // Redis refuses this if the script has not begun yet.
            let _ = self.command(&["SCRIPT", "KILL"]).await;
            pause = POLL;
        }
    }

    /// Floods Redis with clients that request much data at once, each time on a new connection.
    async fn flood(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        let key = "flood";
        self.command(&["SET", key, &"x".repeat(10_000)]).await?;
        let until = Instant::now() + lasts;
        let mut flooders = JoinSet::new();
        for _ in 0..FLOODERS {
            let targets = Arc::clone(self);
            flooders.spawn_blocking(move || -> Result<()> {
                while let (Some(redis), true) = (&targets.redis, Instant::now() < until) {
                    let mut pipe = redis::pipe();
                    for _ in 0..200 {
                        pipe.cmd("GET").arg(key).ignore();
                    }
                    pipe.exec(&mut redis.connect()?)?;
                }
                Ok(())
            });
        }
        while let Some(ended) = flooders.join_next().await {
            ended??;
        }
        self.command(&["DEL", key]).await
    }

    fn describe(&self, fault: &PlannedFault, victims: &[usize], generator: Option<usize>) -> String {
        let whom = match victims {
            [one] if Some(*one) == generator => format!("{} (generator)", self.nodes[*one].name()),
            [one] => self.nodes[*one].name(),
            several => format!("{} nodes at once", several.len()),
        };
        describe(fault, &whom)
    }

    async fn command(self: &Arc<Self>, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        self.with_redis(move |redis| send(redis, &words)).await
    }
}

fn send(redis: &EphemeralRedis, words: &[String]) -> Result<()> {
    Ok(redis::cmd(&words[0]).arg(&words[1..]).exec(&mut redis.connect()?)?)
}

fn slowness(fault: &PlannedFault) -> LinkCondition {
    match fault.form % 3 {
        0 => LinkCondition::Trickle,
        _ => LinkCondition::Lag(Duration::from_millis(20 + u64::from(fault.form % 130))),
    }
}

/// Waits until the proxy has lost the replies. Gives up if the node sends no command.
async fn lose_replies(node: &ChaosNode, count: u64) {
    let until = Instant::now() + LOSS_TIMEOUT;
    for _ in 0..count {
        let before = node.proxy.replies_lost();
        node.proxy.lose_a_reply();
        while node.proxy.replies_lost() == before && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }
    node.proxy.cancel_losses();
}

fn describe(fault: &PlannedFault, whom: &str) -> String {
    let seconds = format!("{:.1} s", fault.lasts.as_secs_f64());
    match fault.kind {
        FaultKind::Kill => format!("{whom} killed, to start again after {seconds}"),
        FaultKind::Freeze => format!("{whom} frozen for {seconds}"),
        FaultKind::Cut => format!("{whom} cut off for {seconds}"),
        FaultKind::Lag => match slowness(fault) {
            LinkCondition::Lag(delay) => {
                format!("{whom} delayed by {} ms for {seconds}", delay.as_millis())
            }
            _ => format!("{whom} on a trickling link for {seconds}"),
        },
        FaultKind::HalfOpen => format!("{whom} on half-open connections for {seconds}"),
        FaultKind::LostReply => format!("{whom} loses replies of Redis"),
        FaultKind::RedisKill => format!("Redis killed, to start again after {seconds}"),
        FaultKind::RedisStall => match fault.form % 3 {
            0 => format!("Redis frozen for {seconds}"),
            1 => format!("Redis pauses all clients for {seconds}"),
            _ => format!("Redis busy with a script for {seconds}"),
        },
        FaultKind::ScriptFlush => "Redis forgets all scripts".to_owned(),
        FaultKind::ClientKill if fault.form.is_multiple_of(2) => {
            "Redis drops all normal connections".to_owned()
        }
        FaultKind::ClientKill => "Redis drops all subscribed connections".to_owned(),
        FaultKind::Flood => format!("other clients flood Redis for {seconds}"),
    }
}
