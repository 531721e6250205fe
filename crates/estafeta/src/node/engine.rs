//! Starts the parts of a node, watches over them, and stops them in order.
//!
//! Four parts run on the control thread. The first is the command connection, which shows that the node is alive, with
//! its keeper. The others are the heartbeat, with the election, the sweeper and the sampler. The generator and the lanes run on the
//! caller's runtime, because they call the user's code.
//!
//! The work connection, with its keeper, and the clerk carry the messages. With a single lane, they run on that lane's
//! runtime, so a turn needs no hop between threads. With several lanes, they run on the control thread. Otherwise a lane
//! that blocks its thread could keep the others from receiving messages.
//!
//! If any part fails, panics or ends unexpectedly, the node stops and returns the error.
//!
//! A node stops in stages. *Quiet*: no new messages, the generator resigns, and every lane finishes its current
//! message. *Drain*: the node waits for them until the deadline. *Leave*: the node hands back what is left over. Only
//! then do the heartbeat and the connections end. So the ring never mistakes a node that is finishing its work for a
//! dead one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clerk::Clerk;
use super::complaints::Complaints;
use super::control_thread::ControlThread;
use super::generator::GeneratorStart;
use super::heartbeat::{Heartbeat, join};
use super::lane::LaneStart;
use super::latency_log::LatencyLog;
use super::refusals::Refusals;
use super::sampler::Sampler;
use super::state::{MemberState, ServerClock};
use super::sweeper::{FailureDetector, Sweeper};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::handler::Work;
use crate::identity::Identity;
use crate::observer::{Notice, Observers};
use crate::redis::{CallError, FIRST, Keeper, ManagedConnection, Store, Topology};
use crate::source::Produce;
use crate::steps::{Known, MemberKind};

/// A node with all that it was given.
pub(super) struct Engine {
    pub config: Arc<Config>,
    /// None if it never generates.
    pub source: Option<Box<dyn Produce>>,
    /// None if it never handles.
    pub handler: Option<Arc<dyn Work>>,
    pub observers: Arc<Observers>,
}

impl Engine {
    /// Joins the ring and works in it until `stop` is ready, or until all work is done if the settings request that.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        self.config.validate()?;
        let control =
            ControlThread::start().map_err(|error| Error::PartFailed("control", error.to_string()))?;
        let end = CancellationToken::new();
        let outcome = self.run_on(&control, stop, &end).await;
        end.cancel();
        // Joins the control thread where blocking is allowed.
        let _ = tokio::task::spawn_blocking(move || drop(control)).await;
        outcome
    }

    async fn run_on(
        self,
        control: &ControlThread,
        stop: impl Future<Output = ()>,
        end: &CancellationToken,
    ) -> Result<()> {
        let Self { config, source, handler, observers } = self;
        let work_home = if config.concurrency == 1 { &Handle::current() } else { control.handle() };
        let topology = Arc::new(Topology::new(config.redis.clone(), &config.ring));
        let (connection, keeper) = open(control.handle(), &config, &topology).await?;
        let (work_connection, work_keeper) = open(work_home, &config, &topology).await?;
        let work_keeper = work_keeper.beside(&connection);
        // The server may be demoted at any moment, even before this node has joined.
        let mut control_tasks = Parts::on(control.handle());
        control_tasks.start("connection", keep(Arc::clone(&connection), keeper, end.clone()));
        let mut work_link = Parts::on(work_home);
        work_link.start("connection", keep(Arc::clone(&work_connection), work_keeper, end.clone()));
        let store = Store::new(Arc::clone(&connection), config.ring.clone()).observed(Arc::clone(&observers));
        let work_store = store.through(Arc::clone(&work_connection)).confirming(config.durability);
        let starting = work_store.trying_for(FIRST);
        starting.check_durability().await?;
        starting.wait_for_replicas().await?;
        let me = join(&store.trying_for(FIRST), &config, MemberKind::Node).await?;
        observers.notice(Notice::Joined { member: me.number });

        let (state_sender, state) = watch::channel(MemberState::Handler(me));
        let shared = Shared {
            store: store.patient(end.clone()),
            work_store: work_store.patient(end.clone()),
            config: Arc::clone(&config),
            observers: Arc::clone(&observers),
            state: state.clone(),
            refusals: Arc::default(),
            known: Arc::default(),
            latencies: Arc::default(),
            clock: Arc::new(watch::Sender::new(ServerClock::new(0))),
            quiet: CancellationToken::new(),
            end: end.clone(),
        };
        let done = CancellationToken::new();
        shared.start_control(&mut control_tasks, me, state_sender, &connection, done.clone());
        let mut workers = Parts::on(&Handle::current());
        let complaints = Arc::new(Complaints::new());
        if handler.is_some() {
            let (sender, store, state) = (Arc::clone(&complaints), shared.store.clone(), state.clone());
            let end = end.clone();
            control_tasks.start("complaints", async move { sender.send(store, state, end).await });
        }
        shared.start_workers(&mut workers, work_home, source, handler.clone(), complaints);

        let failed = tokio::select! {
            () = stop => None,
            confirmed = shared.confirmed(&done) => confirmed.err(),
            failed = control_tasks.first_to_end() => Some(failed),
            failed = work_link.first_to_end() => Some(failed),
            failed = workers.first_to_end() => Some(failed),
        };
        observers.notice(Notice::Stopping);
        shared.quiet.cancel();
        if let Some(handler) = handler {
            handler.begin_stop();
        }
        let late = tokio::select! {
            late = workers.all_to_end() => late,
            () = tokio::time::sleep(config.stop_deadline) => None,
            () = stays_away(connection.outage(), config.lease) => None,
        };
        if let Some(returned) = leave(&store, &state).await {
            observers.notice(Notice::Left { returned });
        }
        end.cancel();
        work_link.all_to_end().await;
        control_tasks.all_to_end().await;
        failed.or(late).map_or(Ok(()), Err)
    }
}

/// What the parts of one node share.
struct Shared {
    store: Store,
    /// The same ring through the work connection, which confirms its steps.
    work_store: Store,
    config: Arc<Config>,
    observers: Arc<Observers>,
    state: watch::Receiver<MemberState>,
    refusals: Arc<Refusals>,
    known: Arc<Mutex<Known>>,
    latencies: Arc<LatencyLog>,
    clock: Arc<watch::Sender<ServerClock>>,
    quiet: CancellationToken,
    end: CancellationToken,
}

impl Shared {
    /// Waits until all work is done, and confirmed as far as this node can know.
    async fn confirmed(&self, done: &CancellationToken) -> Result<()> {
        done.cancelled().await;
        self.work_store.confirm_all().await
    }

    fn start_control(
        &self,
        parts: &mut Parts,
        me: Identity,
        state: watch::Sender<MemberState>,
        connection: &ManagedConnection,
        done: CancellationToken,
    ) {
        let (outage, observers) = (connection.outage(), Arc::clone(&self.observers));
        parts.start("connection", report_outages(outage, observers, self.end.clone()));
        parts.start("watch", report_life(Arc::clone(&self.observers), self.end.clone()));
        let (unguarded_sender, unguarded) = watch::channel(None);
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            config: Arc::clone(&self.config),
            observers: Arc::clone(&self.observers),
            state,
            unguarded: unguarded_sender,
            refusals: Arc::clone(&self.refusals),
            known: Arc::clone(&self.known),
            latencies: Arc::clone(&self.latencies),
            clock: Arc::clone(&self.clock),
            quiet: self.quiet.clone(),
            done,
        };
        parts.start("heartbeat", heartbeat.run(me, self.end.clone()));
        let sweeper = Sweeper {
            detector: FailureDetector::new(
                self.store.clone(),
                Arc::clone(&self.config),
                Some(self.state.clone()),
            ),
            config: Arc::clone(&self.config),
            observers: Arc::clone(&self.observers),
            state: self.state.clone(),
            unguarded: unguarded.clone(),
        };
        parts.start("sweeper", sweeper.run(self.end.clone()));
        let sampler = Sampler {
            store: self.store.impatient(),
            config: Arc::clone(&self.config),
            state: self.state.clone(),
            unguarded,
            clock: self.clock.subscribe(),
        };
        parts.start("sampler", sampler.run(self.end.clone()));
    }

    fn start_workers(
        &self,
        parts: &mut Parts,
        clerk_home: &Handle,
        source: Option<Box<dyn Produce>>,
        handler: Option<Arc<dyn Work>>,
        complaints: Arc<Complaints>,
    ) {
        if let Some(source) = source {
            let start = GeneratorStart {
                store: self.work_store.clone(),
                config: Arc::clone(&self.config),
                observers: Arc::clone(&self.observers),
                state: self.state.clone(),
                refusals: Arc::clone(&self.refusals),
                known: Arc::clone(&self.known),
                clock: self.clock.subscribe(),
                quiet: self.quiet.clone(),
            };
            parts.start("generator", source.run_generator(start));
        }
        let Some(handler) = handler else { return };
        let (desk, desks) = watch::channel(None);
        let clerk = Clerk {
            store: self.work_store.clone(),
            config: Arc::clone(&self.config),
            observers: Arc::clone(&self.observers),
            state: self.state.clone(),
            refusals: Arc::clone(&self.refusals),
            known: Arc::clone(&self.known),
            latencies: Arc::clone(&self.latencies),
            clock: self.clock.subscribe(),
            stuck: Arc::default(),
            desk,
        };
        parts.start_on(clerk_home, "clerk", clerk.run(self.quiet.clone()));
        let start = LaneStart {
            config: Arc::clone(&self.config),
            observers: Arc::clone(&self.observers),
            complaints,
            desk: desks,
            quiet: self.quiet.clone(),
        };
        for _ in 0..self.config.concurrency {
            parts.start("lane", Arc::clone(&handler).run_lane(start.clone()));
        }
    }
}

/// Tasks that run on one runtime, each with the name of its part.
struct Parts {
    runtime: Handle,
    tasks: JoinSet<(&'static str, Result<()>)>,
}

impl Parts {
    fn on(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), tasks: JoinSet::new() }
    }

    fn start(&mut self, name: &'static str, part: impl Future<Output = Result<()>> + Send + 'static) {
        let runtime = self.runtime.clone();
        self.start_on(&runtime, name, part);
    }

    fn start_on(
        &mut self,
        runtime: &Handle,
        name: &'static str,
        part: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn_on(async move { (name, part.await) }, runtime);
    }

    /// Waits for a part that ends before it was asked to, which none should.
    async fn first_to_end(&mut self) -> Error {
        match self.tasks.join_next().await {
            Some(Ok((_, Err(error)))) => error,
            Some(Ok((name, Ok(())))) => Error::PartFailed(name, "it ended by itself".into()),
            Some(Err(panic)) => Error::PartFailed("inside", panic.to_string()),
            None => std::future::pending().await,
        }
    }

    /// Waits for all parts after they were asked to end. Returns what went wrong meanwhile.
    async fn all_to_end(&mut self) -> Option<Error> {
        let mut failed = None;
        while let Some(ended) = self.tasks.join_next().await {
            failed = failed.or(match ended {
                Ok((_, Ok(()) | Err(Error::Stopped))) => None,
                Ok((_, Err(error))) => Some(error),
                Err(panic) => Some(Error::PartFailed("inside", panic.to_string())),
            });
        }
        failed
    }
}

/// Opens a connection on the runtime where it will run.
pub(crate) async fn open(
    home: &Handle,
    config: &Config,
    topology: &Arc<Topology>,
) -> Result<(Arc<ManagedConnection>, Keeper)> {
    let opening = home.spawn(ManagedConnection::open(Arc::clone(topology), config.lease / 2));
    let opened = opening.await.map_err(|error| Error::PartFailed("connection", error.to_string()))?;
    opened.map(|(connection, keeper)| (Arc::new(connection), keeper))
}

async fn keep(connection: Arc<ManagedConnection>, keeper: Keeper, end: CancellationToken) -> Result<()> {
    connection.keep(keeper, end).await;
    Ok(())
}

/// Leaves the ring and returns how many messages went back. If Redis is away, the ring will notice by itself.
async fn leave(store: &Store, state: &watch::Receiver<MemberState>) -> Option<u64> {
    let me = state.borrow().identity()?;
    let left = store.leave(me.incarnation).await;
    left.inspect_err(|error| tracing::warn!("could not say goodbye, the ring will notice: {error}")).ok()
}

/// Waits until Redis has been away for `time` without a break. The node can then settle nothing, and the ring has given
/// this node up anyway.
async fn stays_away(mut outage: watch::Receiver<Option<CallError>>, time: Duration) {
    loop {
        if outage.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        if tokio::time::timeout(time, outage.wait_for(Option::is_none)).await.is_err() {
            return;
        }
    }
}

/// Reports that the control thread runs. A supervisor may end a process from which it does not hear this.
async fn report_life(observers: Arc<Observers>, end: CancellationToken) -> Result<()> {
    loop {
        observers.notice(Notice::StillRunning);
        tokio::select! {
            () = end.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

async fn report_outages(
    mut outage: watch::Receiver<Option<CallError>>,
    observers: Arc<Observers>,
    end: CancellationToken,
) -> Result<()> {
    let mut lost = false;
    loop {
        tokio::select! {
            () = end.cancelled() => return Ok(()),
            changed = outage.changed() => if changed.is_err() { return Ok(()) },
        }
        let error = outage.borrow_and_update().clone();
        match error {
            Some(error) => observers.notice(Notice::RedisLost { reason: &error.to_string() }),
            None if lost => observers.notice(Notice::RedisBack),
            None => {}
        }
        lost = outage.borrow().is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Observer;
    use crate::partition::Partition;

    #[tokio::test]
    async fn redis_back_is_reported_only_after_redis_lost() {
        let (sender, outage) = watch::channel(None);
        // The outage is over before the task looks.
        sender.send_replace(Some(CallError::Broken("a moment".to_owned())));
        sender.send_replace(None);
        let (heard, end) = (Arc::<Mutex<Vec<String>>>::default(), CancellationToken::new());
        let keeps = Arc::clone(&heard);
        let observer: Observer = Box::new(move |_, notice| keeps.lock().unwrap().push(format!("{notice:?}")));
        let only = Partition { index: 0, count: 1 };
        let observers = Observers::new("sample".parse().unwrap(), only, Arc::new([observer]));
        let reporting = tokio::spawn(report_outages(outage, observers.into(), end.clone()));
        let notices = || heard.lock().unwrap().clone();
        for (reason, notice) in [(Some("gone"), "RedisLost { reason: \"gone\" }"), (None, "RedisBack")] {
            tokio::task::yield_now().await;
            sender.send_replace(reason.map(|reason| CallError::Broken(reason.to_owned())));
            while notices().last().is_none_or(|last| last != notice) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(notices().len(), 2, "{:?}", notices());
        end.cancel();
        reporting.await.unwrap().unwrap();
    }
}
