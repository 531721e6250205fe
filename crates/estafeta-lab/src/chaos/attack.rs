//! Carries out the plan: injects each fault when it is due, and undoes it when its time is over.
//!
//! A fault reserves the nodes that it hits until it is undone, so no node has two faults at once. If the node that the
//! plan names is reserved, the fault hits the next free node. If all are reserved, it waits. Faults of Redis wait for
//! each other. A fault that another server may survive ends when all servers agree again. If a fault cannot be injected
//! or undone, the attack phase fails. Faults of Redis that are still at work then are interrupted, and chaos waits for
//! their end before it brings all servers back.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::proxy::{LinkCondition, Proxy, Upstream};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, sleep_until};

use super::LEASE;
use super::node::ChaosNode;
use super::plan::{FaultKind, PlannedFault, Target};
use super::promotions::{Promotions, TimeSpan};
use crate::clock::now_ms;
use crate::ephemeral_redis::EphemeralRedis;
use crate::redis_servers::{RedisServers, ReplicaLag, Topology};

/// A fault that chaos has injected.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    pub kind: FaultKind,
    pub from_ms: u64,
    /// When it was undone. If it broke off, its effects last until now.
    pub until_ms: u64,
    /// The nodes that it hit. Empty if it hit Redis.
    pub victims: Vec<usize>,
    /// A description for people.
    pub what: String,
}

pub struct Targets {
    pub nodes: Vec<ChaosNode>,
    /// The servers that chaos has started. None if the user named a Redis.
    pub redis: Option<RedisServers>,
    /// The proxy of the readers and of chaos itself, which are not attacked.
    pub clear_proxy: Proxy,
    /// Which nodes are reserved by a fault. The next fault hits another node.
    reserved: Vec<AtomicBool>,
    /// Lets faults of Redis happen one after another.
    redis_turn: tokio::sync::Mutex<()>,
    /// Every action at Redis that still runs has a read lock, even if nobody waits for it any more.
    actions: Arc<tokio::sync::RwLock<()>>,
    /// The attack is over, so no more faults of Redis begin.
    is_over: AtomicBool,
    faults: Mutex<Vec<FaultNote>>,
    /// From the beginning of the first attack to the end of the last one, in ms since 1970.
    attacked: Mutex<Option<TimeSpan>>,
    promotions: Mutex<Promotions>,
    /// Lets looks at the servers happen one after another.
    look_turn: Arc<tokio::sync::Mutex<()>>,
    /// The longest time in which chaos itself could not run, in ms.
    pub standstill_ms: AtomicU64,
}

struct FaultNote {
    fault: InjectedFault,
    is_undone: bool,
}

/// How long to wait for the replies that the proxy shall lose.
const LOSS_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a fault checks whether it can continue, for example whether a node is free.
const POLL: Duration = Duration::from_millis(20);
const FLOODERS: usize = 8;
/// How long to wait for a replica that has everything.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to look which server keeps the ring.
const LOOKS: Duration = Duration::from_millis(100);

impl Targets {
    pub fn new(nodes: Vec<ChaosNode>, redis: Option<RedisServers>, clear_proxy: Proxy) -> Self {
        Self {
            reserved: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
            nodes,
            redis,
            clear_proxy,
            redis_turn: tokio::sync::Mutex::default(),
            actions: Arc::default(),
            is_over: AtomicBool::new(false),
            faults: Mutex::default(),
            attacked: Mutex::default(),
            promotions: Mutex::default(),
            look_turn: Arc::default(),
            standstill_ms: AtomicU64::new(0),
        }
    }

    /// Notes each change of the server that keeps the ring, even if no fault of the plan has moved it. Returns only if that
    /// fails.
    pub async fn watch_moves(self: Arc<Self>) -> Result<Infallible> {
        loop {
            self.look().await?;
            sleep(LOOKS).await;
        }
    }

    /// Looks until a replica has everything, because the next fault may promote it. Gives up after a while.
    async fn look_until_complete(self: &Arc<Self>) -> Result<()> {
        let until = Instant::now() + COMPLETE_TIMEOUT;
        while Instant::now() < until {
            self.look().await?;
            let is_complete = self.promotions.lock().expect("no panic while held").has_complete_replica();
            if is_complete {
                break;
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Looks once which server keeps the ring.
    pub async fn look(self: &Arc<Self>) -> Result<()> {
        let (targets, turn) = (Arc::clone(self), Arc::clone(&self.look_turn).lock_owned().await);
        let looked = spawn_blocking(move || {
            let _turn = turn;
            // A single server swaps with its replica only when that has everything.
            let redis = targets.redis.as_ref().filter(|redis| redis.topology() != Topology::Single);
            if let Some(redis) = redis {
                let look = redis.look();
                let mut promotions = targets.promotions.lock().expect("no panic while held");
                promotions.note(look, |between| targets.has_lossless_fault(between));
            }
        });
        looked.await.context("cannot watch which server keeps the ring")
    }

    /// Whether a fault moved the ring without a loss at this time.
    fn has_lossless_fault(&self, (from_ms, until_ms): TimeSpan) -> bool {
        let topology = self.redis.as_ref().map(RedisServers::topology);
        let faults = self.faults().into_iter().filter(|fault| fault.kind.is_lossless_in(topology));
        let mut at_that_time = faults.filter(|fault| fault.from_ms <= until_ms && from_ms <= fault.until_ms);
        at_that_time.next().is_some()
    }

    /// The times in which a promotion may have lost what a process reported.
    pub fn risky_times(&self) -> Vec<TimeSpan> {
        let promotions = self.promotions.lock().expect("no panic while held");
        let standstill_ms = self.standstill_ms.load(Ordering::Relaxed);
        with_late_reports(promotions.times(), &self.faults(), standstill_ms)
    }

    /// From the beginning of the first attack to the end of the last one, in ms since 1970.
    pub fn attacked(&self) -> Option<TimeSpan> {
        *self.attacked.lock().expect("no panic while held")
    }

    /// The faults so far, in the order in which they began.
    pub fn faults(&self) -> Vec<InjectedFault> {
        let now = now_ms();
        let faults = self.faults.lock().expect("no panic while held");
        let until = |note: &FaultNote| if note.is_undone { note.fault.until_ms } else { now };
        let faults = faults.iter().map(|note| InjectedFault { until_ms: until(note), ..note.fault.clone() });
        let mut faults: Vec<InjectedFault> = faults.collect();
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
        let _times = AttackTimes::begin(self);
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
            let fault = InjectedFault { kind: fault.kind, from_ms, until_ms: from_ms, victims, what };
            faults.push(FaultNote { fault, is_undone: false });
            faults.len() - 1
        };
        match &self.redis {
            Some(redis) if fault.target == Target::Redis => {
                self.inject_into_redis(&fault).await?;
                if fault.kind.may_move_ring() && redis.topology() != Topology::Single {
                    self.look_until_complete().await?;
                }
            }
            _ => self.inject_into_nodes(&fault, &victims).await?,
        }
        let note = &mut self.faults.lock().expect("no panic while held")[index];
        (note.fault.until_ms, note.is_undone) = (now_ms(), true);
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

    async fn inject_into_redis(self: &Arc<Self>, fault: &PlannedFault) -> Result<()> {
        let lasts = fault.lasts;
        match fault.kind {
            FaultKind::RedisKill | FaultKind::NodeKill => {
                self.with_redis(move |redis| redis.kill_owner(lasts)).await?;
            }
            FaultKind::RedisStall => {
                self.with_redis(RedisServers::wait_until_agreed).await?;
                self.stall(fault).await?;
                self.with_redis(RedisServers::wait_until_agreed).await?;
            }
            FaultKind::Failover => self.with_redis(RedisServers::fail_over).await?,
            FaultKind::Migrate => self.with_redis(move |redis| redis.migrate(lasts)).await?,
            FaultKind::Demote => self.demote().await?,
            FaultKind::ReplicaLag => {
                let lag = replica_lag(fault);
                self.with_redis(move |redis| redis.lag(lasts, lag)).await?;
            }
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

    /// Lets the server that keeps the ring answer nobody for a while.
    async fn stall(self: &Arc<Self>, fault: &PlannedFault) -> Result<()> {
        let lasts = fault.lasts;
        match fault.form % 3 {
            0 => {
                self.with_redis(move |redis| {
                    let owner = redis.owner()?;
                    owner.freeze()?;
                    let paused = redis.pause(lasts);
                    owner.thaw()?;
                    paused
                })
                .await
            }
            1 => {
                self.command(&["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "ALL"]).await?;
                sleep(lasts).await;
                Ok(())
            }
            _ => self.busy_script(lasts).await,
        }
    }

    /// The server that keeps the ring no longer does, but goes on.
    async fn demote(self: &Arc<Self>) -> Result<()> {
        let targets = Arc::clone(self);
        self.with_redis(move |redis| {
            if redis.topology() != Topology::Single {
                return redis.depose();
            }
            // The address leads to the other server from now on. Open connections stay at the old one.
            let address = Upstream::Tcp("127.0.0.1".to_owned(), redis.swap()?.port());
            let proxies = targets.nodes.iter().map(|node| &node.proxy);
            proxies.for_each(|proxy| proxy.lead_to(address.clone()));
            targets.clear_proxy.lead_to(address);
            // A watch that only reads would not notice that its server is a replica.
            targets.clear_proxy.close_connections();
            redis.wait_until_agreed()
        })
        .await
    }

    /// Runs an action that may block. Does nothing if chaos did not start this Redis. The action runs to its end even if
    /// the caller does not wait for it any more.
    async fn with_redis(
        self: &Arc<Self>,
        act: impl FnOnce(&RedisServers) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (targets, action) = (Arc::clone(self), Arc::clone(&self.actions).read_owned().await);
        let acted = spawn_blocking(move || {
            let _action = action;
            if targets.is_over.load(Ordering::Relaxed) {
                bail!("the attack is over");
            }
            targets.redis.as_ref().map_or(Ok(()), act)
        });
        acted.await?
    }

    /// Ends all faults of Redis, waits until none of them acts any more, and brings all servers back.
    pub async fn revive(self: &Arc<Self>) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.redis.iter().for_each(RedisServers::interrupt);
        let (targets, alone) = (Arc::clone(self), Arc::clone(&self.actions).write_owned().await);
        let revived = spawn_blocking(move || {
            let _alone = alone;
            targets.redis.as_ref().map_or(Ok(()), RedisServers::revive)
        });
        revived.await?
    }

    /// Runs a script that never ends. After a moment Redis answers BUSY to every client, until the script is killed.
    async fn busy_script(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        // Meanwhile another server may take the place of this one.
        let targets = Arc::clone(self);
        let owner = spawn_blocking(move || anyhow::Ok(targets.owner()?.port())).await??;
        let threshold = async |ms: &str| {
            self.command_at(Some(owner), &["CONFIG", "SET", "busy-reply-threshold", ms]).await
        };
        threshold("50").await?;
        // This call lasts as long as the script, so nobody waits for its end if the attack breaks off.
        let targets = Arc::clone(self);
        let mut busy = spawn_blocking(move || -> Result<()> {
            let server = targets.redis.as_ref().context("no Redis to attack")?.server_at(owner)?;
            Ok(redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut server.connect()?)?)
        });
        let mut pause = lasts;
        loop {
            tokio::select! {
                // The call fails, because the script was killed.
                _ = &mut busy => return threshold("5000").await,
                () = sleep(pause) => {}
            }
            // Redis refuses this if the script has not begun yet.
            let _ = self.command_at(Some(owner), &["SCRIPT", "KILL"]).await;
            pause = POLL;
        }
    }

    /// The server that keeps the ring.
    fn owner(&self) -> Result<&EphemeralRedis> {
        self.redis.as_ref().context("the Redis is not that of chaos")?.owner()
    }

    /// Floods Redis with clients that request much data at once, each time on a new connection.
    async fn flood(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        // `PING` knows no slots, so it floods a node of a cluster as well.
        let text = "x".repeat(10_000);
        let until = Instant::now() + lasts;
        let mut flooders = JoinSet::new();
        for _ in 0..FLOODERS {
            let (targets, text) = (Arc::clone(self), text.clone());
            let action = Arc::clone(&self.actions).read_owned().await;
            flooders.spawn_blocking(move || -> Result<()> {
                let _action = action;
                let mut owner = targets.owner()?;
                while Instant::now() < until && !targets.is_over.load(Ordering::Relaxed) {
                    let mut pipe = redis::pipe();
                    for _ in 0..200 {
                        pipe.cmd("PING").arg(&text).ignore();
                    }
                    let flooded = owner.connect().and_then(|mut connection| pipe.exec(&mut connection));
                    if let Err(error) = flooded {
                        // Sentinels close all connections to a master that they have replaced.
                        let before = std::mem::replace(&mut owner, targets.owner()?);
                        if owner.port() == before.port() {
                            return Err(error.into());
                        }
                    }
                }
                Ok(())
            });
        }
        while let Some(ended) = flooders.join_next().await {
            ended??;
        }
        Ok(())
    }

    fn describe(&self, fault: &PlannedFault, victims: &[usize], generator: Option<usize>) -> String {
        let whom = match victims {
            [one] if Some(*one) == generator => format!("{} (generator)", self.nodes[*one].name()),
            [one] => self.nodes[*one].name(),
            several => format!("{} nodes at once", several.len()),
        };
        describe(fault, &whom)
    }

    /// Sends a command to the server that keeps the ring.
    async fn command(self: &Arc<Self>, words: &[&str]) -> Result<()> {
        self.command_at(None, words).await
    }

    /// Sends a command to the server with this port, or to the one that keeps the ring.
    async fn command_at(self: &Arc<Self>, port: Option<u16>, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        self.with_redis(move |redis| {
            let server = match port {
                Some(port) => redis.server_at(port)?,
                None => redis.owner()?,
            };
            Ok(redis::cmd(&words[0]).arg(&words[1..]).exec(&mut server.connect()?)?)
        })
        .await
    }
}

/// Notes the time of an attack, even if it breaks off.
struct AttackTimes(Arc<Targets>);

impl AttackTimes {
    fn begin(targets: &Arc<Targets>) -> Self {
        let mut attacked = targets.attacked.lock().expect("no panic while held");
        let now = now_ms();
        *attacked = Some((attacked.map_or(now, |(from_ms, _)| from_ms), now));
        Self(Arc::clone(targets))
    }
}

impl Drop for AttackTimes {
    fn drop(&mut self) {
        let mut attacked = self.0.attacked.lock().expect("no panic while held");
        *attacked = attacked.map(|(from_ms, _)| (from_ms, now_ms()));
    }
}

/// Adds the times in which processes may still report what Redis acknowledged before. A node works on what it has claimed
/// for at most a lease. A machine that stands still, and faults that delay replies, make a report late.
fn with_late_reports(times: &[TimeSpan], faults: &[InjectedFault], standstill_ms: u64) -> Vec<TimeSpan> {
    let after_ms = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX) + standstill_ms;
    let delays = || faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Freeze | FaultKind::Lag));
    let late = |(from_ms, until_ms): &TimeSpan| {
        let meets = |fault: &&InjectedFault| fault.from_ms <= *until_ms && *from_ms <= fault.until_ms;
        let until_ms = delays().filter(meets).map(|fault| fault.until_ms).fold(*until_ms, u64::max);
        (*from_ms, until_ms + after_ms)
    };
    times.iter().map(late).collect()
}

fn replica_lag(fault: &PlannedFault) -> ReplicaLag {
    match fault.form % 3 {
        0 => ReplicaLag::Frozen,
        1 => ReplicaLag::Cut,
        _ => ReplicaLag::CutThenPromoted,
    }
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
        FaultKind::Failover => "a planned failover to a replica".to_owned(),
        FaultKind::Migrate => format!("the slot of the ring moves to another master, for {seconds}"),
        FaultKind::Demote => "the server is replaced, but goes on".to_owned(),
        FaultKind::ReplicaLag => match replica_lag(fault) {
            ReplicaLag::Frozen => format!("a replica frozen for {seconds}"),
            ReplicaLag::Cut => format!("all replicas cut off for {seconds}"),
            ReplicaLag::CutThenPromoted => {
                format!("all replicas cut off for {seconds}, then the server killed and one of them promoted")
            }
        },
        FaultKind::NodeKill => format!("the server of the ring killed, to start again after {seconds}"),
    }
}

#[cfg(test)]
#[path = "attack_tests.rs"]
mod tests;
