//! One running copy: starts its parts, watches over them, stops them in order.
//!
//! Parts and where they run. On the pulse (a thread of their own): the connection by which the copy shows that it lives
//! with its keeper, the heartbeat with the election, and the sweeper. On the caller's runtime, because they call the
//! user's code: the generator and the lanes. The ear, which is the second connection with its keeper and the listener for
//! the bell, is where the lane is: it is free when the lane is woken, which so makes its next step without a hop from
//! thread to thread; so does the generator, whose lanes rest. The ear of several lanes is on the pulse: if one of them
//! blocks its thread, the others would not get their answers. A part that fails or panics stops the copy loudly.
//!
//! Stopping goes in stages: *quiet* (no new messages, the generator resigns, every lane finishes the message in hand),
//! *drain* until the deadline, *leave* (hands back what is left over), and only then do heartbeat and connections end,
//! so that the ring never takes a copy that is finishing its work for a dead one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bell::Bell;
use crate::config::Config;
use crate::doubt::Doubt;
use crate::error::{Error, Result};
use crate::generator::Generator;
use crate::heartbeat::{Heartbeat, join};
use crate::lane::Lane;
use crate::member_id::Identity;
use crate::observer::{Notice, Observer};
use crate::pulse::Pulse;
use crate::standing::Standing;
use crate::store::{Keeper, Kind, Link, Store};
use crate::sweeper::{Judge, Sweeper};
use crate::work::{Handler, Source};

/// One copy of the program.
pub struct Member<S, H, O> {
    config: Arc<Config>,
    source: S,
    handler: Arc<H>,
    observer: Arc<O>,
}

impl<S: Source, H: Handler, O: Observer> Member<S, H, O> {
    /// A copy with these settings, fed by `source`, doing `handler`'s work, telling `observer` about it.
    pub fn new(config: Config, source: S, handler: H, observer: O) -> Self {
        Self { config: config.into(), source, handler: handler.into(), observer: observer.into() }
    }

    /// Joins the ring and works in it until `stop` is ready, or until all is done if the settings say so.
    ///
    /// Fails if Redis cannot be reached or refuses at the start; once it has joined, the copy outlasts any trouble
    /// with Redis. The runtime that this runs on must have its timers and its input and output enabled.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        self.config.validate()?;
        let pulse = Pulse::start().map_err(|error| Error::PartFailed("pulse", error.to_string()))?;
        let end = CancellationToken::new();
        let outcome = self.run_on(&pulse, stop, &end).await;
        end.cancel();
        // The pulse's thread is joined where that may block.
        let _ = tokio::task::spawn_blocking(move || drop(pulse)).await;
        outcome
    }

    async fn run_on(
        self,
        pulse: &Pulse,
        stop: impl Future<Output = ()>,
        end: &CancellationToken,
    ) -> Result<()> {
        let Self { config, source, handler, observer } = self;
        let ear_home = if config.concurrency == 1 { &Handle::current() } else { pulse.handle() };
        let (link, keeper) = open(pulse.handle(), &config).await?;
        let (ear, ear_keeper) = open(ear_home, &config).await?;
        let ear_keeper = ear_keeper.beside(&link);
        let store = Store::new(Arc::clone(&link), config.ring.clone());
        let me = join(&store, &config, Kind::Member).await?;
        observer.notice(Notice::Joined { member: me.number });

        let (standing_sender, standing) = watch::channel(Standing::Handler(me));
        let shared = Shared {
            store: store.patient(end.clone()),
            config: Arc::clone(&config),
            observer: Arc::clone(&observer),
            standing: standing.clone(),
            bell: Bell::new(),
            doubt: Arc::default(),
            known_published: Arc::default(),
            quiet: CancellationToken::new(),
            end: end.clone(),
        };
        let done = CancellationToken::new();
        let mut engine = Parts::on(pulse.handle());
        shared.start_engine(&mut engine, me, standing_sender, (Arc::clone(&link), keeper), done.clone());
        let mut hearing = Parts::on(ear_home);
        shared.start_hearing(&mut hearing, (Arc::clone(&ear), ear_keeper));
        let mut workers = Parts::on(&Handle::current());
        shared.start_workers(&mut workers, source, &handler, &ear);

        let failed = tokio::select! {
            () = stop => None,
            () = done.cancelled() => None,
            failed = engine.first_to_end() => Some(failed),
            failed = hearing.first_to_end() => Some(failed),
            failed = workers.first_to_end() => Some(failed),
        };
        observer.notice(Notice::Stopping);
        shared.quiet.cancel();
        let late = tokio::select! {
            late = workers.all_to_end() => late,
            () = tokio::time::sleep(config.stop_deadline) => None,
            () = stays_away(link.trouble(), config.lease) => None,
        };
        if let Some(returned) = leave(&store, &standing, &config).await {
            observer.notice(Notice::Left { returned });
        }
        end.cancel();
        hearing.all_to_end().await;
        engine.all_to_end().await;
        failed.or(late).map_or(Ok(()), Err)
    }
}

/// What the parts of one copy share.
struct Shared<O> {
    store: Store,
    config: Arc<Config>,
    observer: Arc<O>,
    standing: watch::Receiver<Standing>,
    bell: Bell,
    doubt: Arc<Doubt>,
    known_published: Arc<AtomicU64>,
    quiet: CancellationToken,
    end: CancellationToken,
}

impl<O: Observer> Shared<O> {
    fn start_engine(
        &self,
        parts: &mut Parts,
        me: Identity,
        standing: watch::Sender<Standing>,
        (link, keeper): (Arc<Link>, Keeper),
        done: CancellationToken,
    ) {
        let (trouble, observer) = (link.trouble(), Arc::clone(&self.observer));
        parts.start("connection", tell_trouble(trouble, observer, self.end.clone()));
        parts.start("connection", keep(link, keeper, self.end.clone()));
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            config: Arc::clone(&self.config),
            observer: Arc::clone(&self.observer),
            standing,
            doubt: Arc::clone(&self.doubt),
            known_published: Arc::clone(&self.known_published),
            quiet: self.quiet.clone(),
            done,
        };
        parts.start("heartbeat", heartbeat.run(me, self.end.clone()));
        let sweeper = Sweeper {
            judge: Judge::new(self.store.clone(), Arc::clone(&self.config), Some(self.standing.clone())),
            interval: self.config.sweep,
            observer: Arc::clone(&self.observer),
            standing: self.standing.clone(),
        };
        parts.start("sweeper", sweeper.run(self.end.clone()));
    }

    fn start_hearing(&self, parts: &mut Parts, (ear, keeper): (Arc<Link>, Keeper)) {
        parts.start("connection", keep(Arc::clone(&ear), keeper, self.end.clone()));
        let ear = Store::new(ear, self.config.ring.clone()).patient(self.end.clone());
        let (store, wait) = (self.store.clone(), self.config.bell_wait);
        parts.start("bell", self.bell.clone().listen(ear, store, wait, self.end.clone()));
    }

    fn start_workers<S: Source, H: Handler>(
        &self,
        parts: &mut Parts,
        source: S,
        handler: &Arc<H>,
        ear: &Arc<Link>,
    ) {
        // The ear of several lanes is elsewhere: no hop would be saved.
        let store = match self.config.concurrency {
            1 => self.store.with_shortcut(Arc::clone(ear)),
            _ => self.store.clone(),
        };
        let generator = Generator {
            store: store.clone(),
            config: Arc::clone(&self.config),
            source,
            observer: Arc::clone(&self.observer),
            standing: self.standing.clone(),
            doubt: Arc::clone(&self.doubt),
            known_published: Arc::clone(&self.known_published),
        };
        parts.start("generator", generator.run(self.quiet.clone()));
        for index in 0..self.config.concurrency {
            let lane = Lane {
                index,
                store: store.clone(),
                config: Arc::clone(&self.config),
                handler: Arc::clone(handler),
                observer: Arc::clone(&self.observer),
                standing: self.standing.clone(),
                bell: self.bell.clone(),
                doubt: Arc::clone(&self.doubt),
            };
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
        self.tasks.spawn_on(async move { (name, part.await) }, &self.runtime);
    }

    /// Waits for a part to end before it was told to, which none should.
    async fn first_to_end(&mut self) -> Error {
        match self.tasks.join_next().await {
            Some(Ok((_, Err(error)))) => error,
            Some(Ok((name, Ok(())))) => Error::PartFailed(name, "it ended by itself".into()),
            Some(Err(panic)) => Error::PartFailed("inside", panic.to_string()),
            None => std::future::pending().await,
        }
    }

    /// Waits for all parts after they were told to end; answers what went wrong meanwhile.
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

/// Opens a link on the runtime where its connection will live.
pub(crate) async fn open(home: &Handle, config: &Config) -> Result<(Arc<Link>, Keeper)> {
    let opening = home.spawn(Link::open(config.redis.clone(), config.lease / 2));
    let opened = opening.await.map_err(|error| Error::PartFailed("connection", error.to_string()))?;
    opened.map(|(link, keeper)| (Arc::new(link), keeper))
}

async fn keep(link: Arc<Link>, keeper: Keeper, end: CancellationToken) -> Result<()> {
    link.keep(keeper, end).await;
    Ok(())
}

/// Leaves the ring; answers how many messages went back. If Redis is away, the ring will notice by itself.
async fn leave(store: &Store, standing: &watch::Receiver<Standing>, config: &Config) -> Option<u64> {
    let me = standing.borrow().identity()?;
    let left = store.leave(me.incarnation, config.concurrency).await;
    left.inspect_err(|error| tracing::warn!("could not say goodbye, the ring will notice: {error}")).ok()
}

/// Waits until Redis has been away for `time` without a break: nothing can be settled then, and the ring has given this
/// copy up anyway.
async fn stays_away(mut trouble: watch::Receiver<Option<String>>, time: Duration) {
    loop {
        if trouble.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        if tokio::time::timeout(time, trouble.wait_for(Option::is_none)).await.is_err() {
            return;
        }
    }
}

async fn tell_trouble<O: Observer>(
    mut trouble: watch::Receiver<Option<String>>,
    observer: Arc<O>,
    end: CancellationToken,
) -> Result<()> {
    let mut lost = false;
    loop {
        tokio::select! {
            () = end.cancelled() => return Ok(()),
            changed = trouble.changed() => if changed.is_err() { return Ok(()) },
        }
        let reason = trouble.borrow_and_update().clone();
        match reason {
            Some(reason) => observer.notice(Notice::RedisLost { reason: &reason }),
            None if lost => observer.notice(Notice::RedisBack),
            None => {}
        }
        lost = trouble.borrow().is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what it was told about Redis.
    #[derive(Default)]
    struct Told(std::sync::Mutex<Vec<String>>);

    impl Observer for Told {
        fn notice(&self, notice: Notice<'_>) {
            self.0.lock().unwrap().push(format!("{notice:?}"));
        }
    }

    #[tokio::test]
    async fn nobody_is_told_that_redis_is_back_who_was_not_told_that_it_was_lost() {
        let (sender, trouble) = watch::channel(None);
        // Over before anybody looked.
        sender.send_replace(Some("a moment".to_owned()));
        sender.send_replace(None);
        let (observer, end) = (Arc::new(Told::default()), CancellationToken::new());
        let telling = tokio::spawn(tell_trouble(trouble, Arc::clone(&observer), end.clone()));
        let told = || observer.0.lock().unwrap().clone();
        for (trouble, notice) in [(Some("gone"), "RedisLost { reason: \"gone\" }"), (None, "RedisBack")] {
            tokio::task::yield_now().await;
            sender.send_replace(trouble.map(ToOwned::to_owned));
            while told().last().is_none_or(|last| last != notice) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(told().len(), 2, "{:?}", told());
        end.cancel();
        telling.await.unwrap().unwrap();
    }
}
