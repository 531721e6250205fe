//! How a lane calls the user's function, whatever its form.
//!
//! A node knows its handler only as [`Work`], because users should not have to name its type. The handler itself starts
//! the lanes. So a lane knows the type of its handler, and calls it without an allocation.

mod batch;

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

pub(crate) use batch::BatchHandler;

use crate::config::Config;
use crate::error::Result as NodeResult;
use crate::failure::Failure;
use crate::job::{Delivery, Job, Unreadable};
use crate::node::{Lane, LaneStart};
use crate::outcome::Outcome;
use crate::trace;

/// How long a message waits whose body is an unknown variant of an enum.
const ROLL_OUT: Duration = Duration::from_secs(600);

/// Handles one message at a time.
pub(crate) trait Handler: Send + Sync {
    /// Changes the settings if this handler needs others, or refuses them.
    fn prepare(&self, config: &mut Config) -> NodeResult<()> {
        let _ = config;
        Ok(())
    }

    /// The node stops, and gives this handler no further message.
    fn stop(&self) {}

    /// Whether its future may be dropped when the time limit is over. If not, the lane is stuck until the future is
    /// ready.
    fn can_be_dropped(&self) -> bool {
        true
    }

    fn handle(&self, delivery: Delivery<'_>) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// A handler of any type.
pub(crate) trait Work: Send + Sync {
    /// See [`Handler::prepare`].
    fn adapt(&self, config: &mut Config) -> NodeResult<()>;

    /// See [`Handler::stop`].
    fn begin_stop(&self);

    /// Works until the node stops.
    fn run_lane(self: Arc<Self>, start: LaneStart) -> BoxFuture<'static, NodeResult<()>>;

    /// See [`Handler::can_be_dropped`].
    fn may_be_dropped(&self) -> bool;

    /// Handles one message.
    fn call<'a>(&'a self, delivery: Delivery<'a>) -> BoxFuture<'a, Result<Outcome, Failure>>;
}

impl<H: Handler + 'static> Work for H {
    fn adapt(&self, config: &mut Config) -> NodeResult<()> {
        self.prepare(config)
    }

    fn begin_stop(&self) {
        self.stop();
    }

    fn run_lane(self: Arc<Self>, start: LaneStart) -> BoxFuture<'static, NodeResult<()>> {
        Box::pin(Lane::new(self, start).run())
    }

    fn may_be_dropped(&self) -> bool {
        self.can_be_dropped()
    }

    fn call<'a>(&'a self, delivery: Delivery<'a>) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(self.handle(delivery))
    }
}

/// An async function.
pub(crate) struct AsyncHandler<F, T> {
    function: F,
    body: PhantomData<fn(T)>,
}

impl<F, T> AsyncHandler<F, T> {
    pub fn new(function: F) -> Self {
        Self { function, body: PhantomData }
    }
}

impl<F, T, A, O> Handler for AsyncHandler<F, T>
where
    F: Fn(Job<T>) -> A + Send + Sync,
    A: Future<Output = Result<O, Failure>> + Send,
    O: Into<Outcome>,
    T: DeserializeOwned + Send + 'static,
{
    async fn handle(&self, delivery: Delivery<'_>) -> Result<Outcome, Failure> {
        match delivery.job() {
            Ok(job) => (self.function)(job).await.map(Into::into),
            Err(unreadable) => unreadable.answer(),
        }
    }
}

/// A function that blocks its thread.
pub(crate) struct BlockingHandler<F, T> {
    function: Arc<F>,
    body: PhantomData<fn(T)>,
}

impl<F, T> BlockingHandler<F, T> {
    pub fn new(function: F) -> Self {
        Self { function: function.into(), body: PhantomData }
    }
}

impl<F, T, O> Handler for BlockingHandler<F, T>
where
    F: Fn(Job<T>) -> Result<O, Failure> + Send + Sync + 'static,
    O: Into<Outcome> + Send + 'static,
    T: DeserializeOwned + Send + 'static,
{
    fn can_be_dropped(&self) -> bool {
        false
    }

    async fn handle(&self, delivery: Delivery<'_>) -> Result<Outcome, Failure> {
        let job = match delivery.job() {
            Ok(job) => job,
            Err(unreadable) => return unreadable.answer(),
        };
        let function = Arc::clone(&self.function);
        let call = trace::on_other_thread(move || function(job).map(Into::into));
        match tokio::task::spawn_blocking(call).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl Unreadable {
    fn answer(self) -> Result<Outcome, Failure> {
        match self {
            Self::UnknownVariant => Ok(Outcome::snooze(ROLL_OUT)),
            Self::Bad(failure) => Err(failure),
        }
    }
}

/// A handler with a function around it.
pub(crate) struct WrappedHandler<F> {
    inner: Arc<dyn Work>,
    wrapper: F,
}

impl<F, A> WrappedHandler<F>
where
    F: Fn(Job<Bytes>, Next) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Outcome, Failure>> + Send,
{
    pub fn new(inner: Arc<dyn Work>, wrapper: F) -> Self {
        Self { inner, wrapper }
    }
}

impl<F, A> Handler for WrappedHandler<F>
where
    F: Fn(Job<Bytes>, Next) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Outcome, Failure>> + Send,
{
    fn stop(&self) {
        self.inner.begin_stop();
    }

    fn can_be_dropped(&self) -> bool {
        self.inner.may_be_dropped()
    }

    async fn handle(&self, delivery: Delivery<'_>) -> Result<Outcome, Failure> {
        match delivery.job() {
            Ok(job) => (self.wrapper)(job, Next(Arc::clone(&self.inner))).await,
            Err(unreadable) => unreadable.answer(),
        }
    }
}

/// The rest of the way to the handler, as a [wrapper](crate::Node::wrap) gets it.
pub struct Next(Arc<dyn Work>);

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

impl Next {
    /// Calls the handler, or the next wrapper.
    pub async fn run(self, job: Job<Bytes>) -> Result<Outcome, Failure> {
        self.0.call(job.as_delivery()).await
    }
}

/// Calls a function of the user and awaits its answer. A panic becomes a failure, wherever in the function it happens.
/// The caller may drop this future before it is ready. If a value of the function panics while it is dropped, that
/// panic is only logged. `who` names the function.
pub(crate) async fn catch<T, F: Future<Output = Result<T, Failure>>>(
    who: &str,
    function: impl FnOnce() -> F,
) -> Result<T, Failure> {
    let future = pin!(Some(AssertUnwindSafe(async { function().await }).catch_unwind()));
    let mut guard = DropGuard { future, who };
    let answer = poll_fn(|context| {
        guard.future.as_mut().as_pin_mut().expect("only the guard takes it away").poll(context)
    });
    answer.await.unwrap_or_else(|panic| {
        Err(Failure::new(format_args!("the {who} panicked: {}", panic_text(&*panic))))
    })
}

/// Drops a future of the user, and catches a panic.
struct DropGuard<'a, F> {
    future: Pin<&'a mut Option<F>>,
    who: &'a str,
}

impl<F> Drop for DropGuard<'_, F> {
    fn drop(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.future.set(None))) {
            let text = panic_text(&*panic);
            tracing::warn!("the {} panicked while its future was dropped: {text}", self.who);
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_before_and_after_the_first_await() {
        fn at_once() -> std::future::Ready<Result<(), Failure>> {
            panic!("at once")
        }
        let later = || async {
            tokio::task::yield_now().await;
            panic!("later")
        };
        assert_eq!(catch("source", at_once).await, Err(Failure::new("the source panicked: at once")));
        assert_eq!(catch::<(), _>("handler", later).await, Err(Failure::new("the handler panicked: later")));
        assert_eq!(catch("source", || async { Ok(7) }).await, Ok(7));
    }
}
