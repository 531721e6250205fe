//! Runs a node in all partitions of its ring: one engine in each, which all stop together.
//!
//! Each engine is a separate member with its own connections and its own control thread. They share only the handler
//! and the observers. If one of them fails, the others stop in stages, and the node returns that error. An engine that
//! has done all the work of its partition leaves, and the node goes on until all have.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::{LaneStart, NodeSource};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::handler::Work;
use crate::inspect::divide;
use crate::job::Delivery;
use crate::observer::{Observer, Observers};
use crate::outcome::Outcome;
use crate::partition::{self, Partition};
use crate::redis::{FIRST, Store};

pub(super) async fn run(
    config: Config,
    source: Option<NodeSource>,
    handler: Option<Arc<dyn Work>>,
    observers: Arc<[Observer]>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    config.validate()?;
    partition::check(&config.ring, config.partitions)?;
    let count = config.partitions;
    let handler = handler.map(|inner| -> Arc<dyn Work> {
        match count {
            1 => inner,
            _ => Arc::new(SharedHandler { inner, engines_left: AtomicUsize::new(count as usize) }),
        }
    });
    let engines = engines(&config, source, handler, &observers)?;
    if count > 1 {
        let patience = config.lease / 2;
        let (whole, _open) = Store::open(config.redis.clone(), config.ring.clone(), patience).await?;
        divide(&config.redis, &whole.trying_for(FIRST), count, patience).await?;
    }
    let stopping = CancellationToken::new();
    let mut running: FuturesUnordered<_> =
        engines.into_iter().map(|engine| engine.run(stopping.clone().cancelled_owned())).collect();
    let (mut stop, mut failed) = (pin!(stop), None);
    loop {
        tokio::select! {
            () = &mut stop, if !stopping.is_cancelled() => stopping.cancel(),
            ended = running.next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                    stopping.cancel();
                }
                None => return failed.map_or(Ok(()), Err),
            },
        }
    }
}

/// The engine of each partition.
fn engines(
    config: &Config,
    source: Option<NodeSource>,
    handler: Option<Arc<dyn Work>>,
    observers: &Arc<[Observer]>,
) -> Result<Vec<Engine>> {
    let mut source = match source {
        Some(NodeSource::One(_)) if config.partitions > 1 => {
            let expected = "a source for each partition, by Node::generate_each";
            return Err(Error::expected("node", expected, "one for all, by Node::generate"));
        }
        Some(NodeSource::One(Err(error))) => return Err(error),
        source => source,
    };
    let engine = |part: Partition| {
        let mut config = config.of_partition(part);
        let source = match &mut source {
            Some(NodeSource::Each(make)) => Some(make(part, &mut config)?),
            _ => source.take().and_then(NodeSource::only),
        };
        Ok(Engine {
            source: source.filter(|_| !config.never_generate),
            handler: handler.clone(),
            observers: Observers::new(config.ring.clone(), part, Arc::clone(observers)).into(),
            config: config.into(),
        })
    };
    Partition::all(config.partitions).map(engine).collect()
}

/// A handler that works in several partitions. It learns that the node stops when all engines do. Until then, one that
/// is done must not change how it works for the others.
struct SharedHandler {
    inner: Arc<dyn Work>,
    engines_left: AtomicUsize,
}

impl Work for SharedHandler {
    fn adapt(&self, config: &mut Config) -> Result<()> {
        self.inner.adapt(config)
    }

    fn begin_stop(&self) {
        if self.engines_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.inner.begin_stop();
        }
    }

    fn run_lane(self: Arc<Self>, start: LaneStart) -> BoxFuture<'static, Result<()>> {
        Arc::clone(&self.inner).run_lane(start)
    }

    fn may_be_dropped(&self) -> bool {
        self.inner.may_be_dropped()
    }

    fn call<'a>(&'a self, delivery: Delivery<'a>) -> BoxFuture<'a, Result<Outcome, Failure>> {
        self.inner.call(delivery)
    }
}
