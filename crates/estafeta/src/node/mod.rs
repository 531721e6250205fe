//! One running node: starts its parts, watches over them, and stops them in order.
//!
//! Three parts run on the control thread. The first is the main connection, which shows that the node is alive, with its
//! keeper. The others are the heartbeat, with the election, and the sweeper. The generator and the lanes run on the
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

pub(crate) mod batch_size;
mod clerk;
pub(crate) mod control_thread;
mod desk;
mod election;
mod generator;
pub(crate) mod heartbeat;
mod lane;
mod refusals;
pub(crate) mod state;
pub(crate) mod sweeper;

pub use sweeper::Burial;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::handler::{Handler, Outcome};
use crate::identity::Identity;
use crate::observer::{Notice, Observer};
use crate::redis::{CallError, FIRST, Keeper, ManagedConnection, Store};
use crate::source::Source;
use crate::steps::{Known, MemberKind};
use clerk::Clerk;
use control_thread::ControlThread;
use generator::Generator;
use heartbeat::{Heartbeat, join};
use lane::Lane;
use refusals::Refusals;
use state::MemberState;
use sweeper::{FailureDetector, Sweeper};

/// A node: one running process of the program.
pub struct Node<S, H, O> {
    config: Arc<Config>,
    source: S,
    handler: Arc<H>,
    observer: Arc<O>,
}

impl<S: Source, H, O: Observer> Node<S, H, O> {
    /// Creates a node with these settings. `source` supplies its messages, `handler` does its work, and `observer`
    /// receives its notices.
    pub fn new(config: Config, source: S, handler: H, observer: O) -> Self {
        Self { config: config.into(), source, handler: handler.into(), observer: observer.into() }
    }

    /// Joins the ring and works in it until `stop` is ready, or until all work is done if the settings request that.
    ///
    /// Fails if Redis cannot be reached or refuses the node at the start. Once it has joined, the node survives every
    /// outage of Redis. The runtime that polls this future must have its timers and its I/O enabled.
    pub async fn run<T>(self, stop: impl Future<Output = ()>) -> Result<()>
    where
        H: Handler<T>,
        T: Into<Outcome> + 'static,
    {
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

    async fn run_on<T>(
        self,
        control: &ControlThread,
        stop: impl Future<Output = ()>,
        end: &CancellationToken,
    ) -> Result<()>
    where
        H: Handler<T>,
        T: Into<Outcome> + 'static,
    {
        let Self { config, source, handler, observer } = self;
        let work_home = if config.concurrency == 1 { &Handle::current() } else { control.handle() };
        let (connection, keeper) = open(control.handle(), &config).await?;
        let (work_connection, work_keeper) = open(work_home, &config).await?;
        let work_keeper = work_keeper.beside(&connection);
        let store = Store::new(Arc::clone(&connection), config.ring.clone());
        let me = join(&store.trying_for(FIRST), &config, MemberKind::Node).await?;
        observer.notice(Notice::Joined { member: me.number });

        let (state_sender, state) = watch::channel(MemberState::Handler(me));
        let shared = Shared {
            store: store.patient(end.clone()),
            work_store: store.patient(end.clone()).through(Arc::clone(&work_connection)),
            config: Arc::clone(&config),
            observer: Arc::clone(&observer),
            state: state.clone(),
            refusals: Arc::default(),
            known: Arc::default(),
            quiet: CancellationToken::new(),
            end: end.clone(),
        };
        let done = CancellationToken::new();
        let mut control_tasks = Parts::on(control.handle());
        shared.start_control(
            &mut control_tasks,
            me,
            state_sender,
            (Arc::clone(&connection), keeper),
            done.clone(),
        );
        let mut work_link = Parts::on(work_home);
        work_link.start("connection", keep(work_connection, work_keeper, end.clone()));
        let mut workers = Parts::on(&Handle::current());
        shared.start_workers(&mut workers, work_home, source, &handler);

        let failed = tokio::select! {
            () = stop => None,
            () = done.cancelled() => None,
            failed = control_tasks.first_to_end() => Some(failed),
            failed = work_link.first_to_end() => Some(failed),
            failed = workers.first_to_end() => Some(failed),
        };
        observer.notice(Notice::Stopping);
        shared.quiet.cancel();
        let late = tokio::select! {
            late = workers.all_to_end() => late,
            () = tokio::time::sleep(config.stop_deadline) => None,
            () = stays_away(connection.outage(), config.lease) => None,
        };
        if let Some(returned) = leave(&store, &state).await {
            observer.notice(Notice::Left { returned });
        }
        end.cancel();
        work_link.all_to_end().await;
        control_tasks.all_to_end().await;
        failed.or(late).map_or(Ok(()), Err)
    }
}

/// What the parts of one node share.
struct Shared<O> {
    store: Store,
    /// The same ring through the work connection.
    work_store: Store,
    config: Arc<Config>,
    observer: Arc<O>,
    state: watch::Receiver<MemberState>,
    refusals: Arc<Refusals>,
    known: Arc<Mutex<Known>>,
    quiet: CancellationToken,
    end: CancellationToken,
}

impl<O: Observer> Shared<O> {
    fn start_control(
        &self,
        parts: &mut Parts,
        me: Identity,
        state: watch::Sender<MemberState>,
        (connection, keeper): (Arc<ManagedConnection>, Keeper),
        done: CancellationToken,
    ) {
        let (outage, observer) = (connection.outage(), Arc::clone(&self.observer));
        parts.start("connection", report_outages(outage, observer, self.end.clone()));
        parts.start("connection", keep(connection, keeper, self.end.clone()));
        let (unguarded_sender, unguarded) = watch::channel(None);
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            config: Arc::clone(&self.config),
            observer: Arc::clone(&self.observer),
            state,
            unguarded: unguarded_sender,
            refusals: Arc::clone(&self.refusals),
            known: Arc::clone(&self.known),
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
            observer: Arc::clone(&self.observer),
            state: self.state.clone(),
            unguarded,
        };
        parts.start("sweeper", sweeper.run(self.end.clone()));
    }

    fn start_workers<S: Source, H: Handler<T>, T: Into<Outcome> + 'static>(
        &self,
        parts: &mut Parts,
        clerk_home: &Handle,
        source: S,
        handler: &Arc<H>,
    ) {
        if !self.config.never_generate {
            let generator = Generator {
                store: self.work_store.clone(),
                config: Arc::clone(&self.config),
                source,
                observer: Arc::clone(&self.observer),
                state: self.state.clone(),
                refusals: Arc::clone(&self.refusals),
                known: Arc::clone(&self.known),
                failures_in_a_row: 0,
            };
            parts.start("generator", generator.run(self.quiet.clone()));
        }
        if self.config.never_handle {
            return;
        }
        let (desk, desks) = watch::channel(None);
        let clerk = Clerk {
            store: self.work_store.clone(),
            config: Arc::clone(&self.config),
            observer: Arc::clone(&self.observer),
            state: self.state.clone(),
            refusals: Arc::clone(&self.refusals),
            stuck: Arc::default(),
            desk,
        };
        parts.start_on(clerk_home, "clerk", clerk.run(self.quiet.clone()));
        for _ in 0..self.config.concurrency {
            let (config, handler) = (Arc::clone(&self.config), Arc::clone(handler));
            let lane = Lane { config, handler, desk: desks.clone(), answer: PhantomData };
            parts.start("lane", lane.run(self.quiet.clone()));
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
pub(crate) async fn open(home: &Handle, config: &Config) -> Result<(Arc<ManagedConnection>, Keeper)> {
    let opening = home.spawn(ManagedConnection::open(config.redis.clone(), config.lease / 2));
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

async fn report_outages<O: Observer>(
    mut outage: watch::Receiver<Option<CallError>>,
    observer: Arc<O>,
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
            Some(error) => observer.notice(Notice::RedisLost { reason: &error.to_string() }),
            None if lost => observer.notice(Notice::RedisBack),
            None => {}
        }
        lost = outage.borrow().is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the notices it received about Redis.
    #[derive(Default)]
    struct NoticeRecorder(std::sync::Mutex<Vec<String>>);

    impl Observer for NoticeRecorder {
        fn notice(&self, notice: Notice<'_>) {
            self.0.lock().unwrap().push(format!("{notice:?}"));
        }
    }

    #[tokio::test]
    async fn redis_back_is_reported_only_after_redis_lost() {
        let (sender, outage) = watch::channel(None);
        // The outage is over before the task looks.
        sender.send_replace(Some(CallError::Broken("a moment".to_owned())));
        sender.send_replace(None);
        let (observer, end) = (Arc::new(NoticeRecorder::default()), CancellationToken::new());
        let reporting = tokio::spawn(report_outages(outage, Arc::clone(&observer), end.clone()));
        let notices = || observer.0.lock().unwrap().clone();
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
