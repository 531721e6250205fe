//! How several messages are handled with one call of the user's function.
//!
//! Each message of a batch keeps its own lane. So its time limit, its retries and its outcome are those of any other
//! message. The lanes meet here. Each adds its job to the batch that is open, and awaits the future that all lanes of the
//! batch share. That future waits until the batch is full or old enough, calls the function once, and hands each lane
//! the outcome of its message. A lane whose time limit is over drops only its share. The last lane to do so drops the
//! function's future.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::{Handler, catch};
use crate::config::{Config, MOST_LANES};
use crate::error::{Error, Result as NodeResult};
use crate::failure::Failure;
use crate::job::{Delivery, Job};
use crate::outcome::{Outcome, Outcomes};
use crate::trace;

/// An async function of several jobs.
pub(crate) struct BatchHandler<F, T> {
    most: usize,
    wait: Duration,
    function: Arc<F>,
    /// The last batch that was opened. It may be full, or have begun.
    last: Mutex<Option<LastBatch<T>>>,
    stopping: CancellationToken,
}

struct LastBatch<T> {
    entries: Arc<Entries<T>>,
    /// Ends with the last lane that awaits it.
    call: WeakShared<BoxFuture<'static, ()>>,
}

/// The jobs of one batch.
struct Entries<T> {
    /// None once the batch has begun.
    open: Mutex<Option<Vec<BatchEntry<T>>>>,
    full: Notify,
}

/// A job, and its lane, which waits for the outcome.
struct BatchEntry<T> {
    job: Job<T>,
    span: Span,
    lane: oneshot::Sender<Result<Outcome, Failure>>,
}

impl<T> Entries<T> {
    /// Adds an entry. Returns it if the batch is full or has begun.
    fn add(&self, entry: BatchEntry<T>, most: usize) -> Option<BatchEntry<T>> {
        match &mut *self.open.lock().expect("no panic while held") {
            Some(entries) if entries.len() < most => {
                entries.push(entry);
                if entries.len() == most {
                    self.full.notify_one();
                }
                None
            }
            _ => Some(entry),
        }
    }

    /// Takes the entries out. From then on, the batch accepts no other entry.
    fn close(&self) -> Vec<BatchEntry<T>> {
        self.open.lock().expect("no panic while held").take().unwrap_or_default()
    }
}

impl<F, T, A, O> BatchHandler<F, T>
where
    F: Fn(Vec<Job<T>>) -> A + Send + Sync + 'static,
    A: Future<Output = Result<O, Failure>> + Send + 'static,
    O: Into<Outcomes> + 'static,
    T: Send + 'static,
{
    pub fn new(most: usize, wait: Duration, function: F) -> Self {
        let (last, stopping) = (Mutex::new(None), CancellationToken::new());
        Self { most, wait, function: function.into(), last, stopping }
    }

    /// Adds a job to the open batch, or opens one. Returns the call of that batch.
    fn join(&self, mut entry: BatchEntry<T>) -> Shared<BoxFuture<'static, ()>> {
        let mut last = self.last.lock().expect("no panic while held");
        if let Some(LastBatch { entries, call }) = &*last
            && let Some(call) = call.upgrade()
        {
            match entries.add(entry, self.most) {
                None => return call,
                Some(back) => entry = back,
            }
        }
        let entries = Arc::new(Entries { open: Mutex::new(Some(Vec::new())), full: Notify::new() });
        entries.add(entry, self.most);
        let (function, stopping) = (Arc::clone(&self.function), self.stopping.clone());
        let call = call(function, Arc::clone(&entries), self.wait, stopping).boxed().shared();
        let former = std::mem::replace(&mut *last, call.downgrade().map(|call| LastBatch { entries, call }));
        // The former batch may hold jobs that all lanes have given up. Bodies are values of the user, and may panic
        // when they are dropped.
        drop(last);
        drop(former);
        call
    }
}

/// Waits for the jobs of a batch, and calls the function with all of them.
async fn call<F, T, A, O>(
    function: Arc<F>,
    entries: Arc<Entries<T>>,
    wait: Duration,
    stopping: CancellationToken,
) where
    F: Fn(Vec<Job<T>>) -> A,
    A: Future<Output = Result<O, Failure>>,
    O: Into<Outcomes>,
{
    tokio::select! {
        () = entries.full.notified() => {}
        () = tokio::time::sleep(wait) => {}
        () = stopping.cancelled() => {}
    }
    // A message that the ring took away from this node may have come back meanwhile. It is not handled twice in one call.
    let wanted = entries.close().into_iter().filter(|entry| !entry.job.is_cancelled());
    let (jobs, spans, lanes): (Vec<_>, Vec<_>, Vec<_>) =
        wanted.map(|BatchEntry { job, span, lane }| (job, span, lane)).collect();
    let Some(first) = jobs.first() else { return };
    let span = trace::handling_batch(first.ring(), &spans);
    let answer = catch("handler", || async { function(jobs).await.map(Into::into) });
    // Any of the lanes may poll this future. Their messages belong to different traces.
    let answer = trace::outside(answer).instrument(span).await;
    let outcomes = answer.map_or_else(|failure| vec![Err(failure); lanes.len()], |all| all.of(lanes.len()));
    for (lane, outcome) in lanes.into_iter().zip(outcomes) {
        // A lane whose time limit is over no longer waits.
        let _ = lane.send(outcome);
    }
}

impl<F, T, A, O> Handler for BatchHandler<F, T>
where
    F: Fn(Vec<Job<T>>) -> A + Send + Sync + 'static,
    A: Future<Output = Result<O, Failure>> + Send + 'static,
    O: Into<Outcomes> + 'static,
    T: DeserializeOwned + Send + 'static,
{
    fn prepare(&self, config: &mut Config) -> NodeResult<()> {
        if !(1..=MOST_LANES).contains(&self.most) {
            return Err(Error::expected("batch", format!("1 to {MOST_LANES} messages"), self.most));
        }
        let limit = config.time_limit;
        if !(Duration::from_millis(1)..limit).contains(&self.wait) {
            let expected = format!("1ms or more, and less than the time limit of {limit:?}");
            return Err(Error::expected("wait of a batch", expected, format!("{:?}", self.wait)));
        }
        config.concurrency = config.concurrency.max(self.most);
        Ok(())
    }

    fn stop(&self) {
        self.stopping.cancel();
    }

    async fn handle(&self, delivery: Delivery<'_>) -> Result<Outcome, Failure> {
        let job = match delivery.job() {
            Ok(job) => job,
            Err(unreadable) => return unreadable.answer(),
        };
        let (lane, mut outcome) = oneshot::channel();
        self.join(BatchEntry { job, span: Span::current(), lane }).await;
        outcome.try_recv().unwrap_or_else(|_| Err(Failure::new("its batch was handled without it")))
    }
}
