//! Nodes whose handlers follow the plan in the body of each message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use estafeta::{Config, Failure, Generate, Job, Node, Outcome, RingName, every};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::effects;
use super::feed::line_number;
use super::message_plan::{End, MessagePlan, PlannedAnswer, RETRY_AFTER, SNOOZE, Stage, WaitRule};
use crate::record::Recorder;

/// The handler works for this long, or twice or three times as long.
const WORK: Duration = Duration::from_millis(1);

/// A node that handles messages. If it gets a ring to forward to, some of its done messages forward others.
pub fn handling(config: Config, recorder: Arc<Recorder>, next: Option<RingName>) -> Node {
    let observer = Arc::clone(&recorder);
    let node = Node::with(config).handle_with(Worker { recorder, next }, follow_plan);
    node.observe(move |notice| observer.notice(notice))
}

/// A source of random plans. It makes them as fast as Redis takes them.
pub fn random_plans() -> impl Generate {
    let mut plans = RandomPlans { random: SmallRng::seed_from_u64(rand::random()), calls: 0 };
    every(Duration::ZERO, move || std::future::ready(plans.next()))
}

/// What the handler of a node needs besides the message.
#[derive(Clone)]
struct Worker {
    recorder: Arc<Recorder>,
    /// The ring to which messages are forwarded.
    next: Option<RingName>,
}

/// The name of every message of the generator begins with this. No publisher uses it.
pub const GENERATED: &str = "g";

/// The source fails at its third call, and later once in so many calls.
const FAILS_ONCE_IN: u64 = 3000;

struct RandomPlans {
    random: SmallRng,
    calls: u64,
}

impl RandomPlans {
    fn next(&mut self) -> Result<Bytes, Failure> {
        self.calls += 1;
        if self.calls % FAILS_ONCE_IN == 3 {
            return Err(Failure::new("the source fails, as planned"));
        }
        let name = format!("{GENERATED}{:x}", self.random.random::<u64>());
        Ok(MessagePlan::random(&mut self.random, name).to_string().into())
    }
}

async fn follow_plan(worker: Worker, job: Job<Bytes>) -> Result<Outcome, Failure> {
    let message = job.message();
    worker.recorder.attempts(message);
    let body = message.text();
    let plan = MessagePlan::parse(&body).ok_or_else(|| Failure::fatal("the body is no plan"))?;
    tokio::time::sleep(WORK * (1 + u32::try_from(message.id % 3).unwrap_or(0))).await;
    let at = Stage { snoozes: message.snoozes, failures: message.failures };
    let carried = (at.snoozes > 0).then(|| at.snoozes.to_string());
    if message.carry() != carried.as_deref() {
        return Err(Failure::fatal(format_args!("expected to carry {carried:?}, got {:?}", message.carry())));
    }
    match plan.answer(at) {
        PlannedAnswer::Snooze => Ok(Outcome::snooze(SNOOZE).carry((at.snoozes + 1).to_string())),
        PlannedAnswer::Retry(WaitRule::Handler) => Err(Failure::retry_after(RETRY_AFTER, plan.reason())),
        PlannedAnswer::Retry(WaitRule::Settings) | PlannedAnswer::End(End::Hopeless) => {
            Err(Failure::new(plan.reason()))
        }
        PlannedAnswer::End(End::Fatal) => Err(Failure::fatal(plan.reason())),
        PlannedAnswer::End(End::Done) => {
            Ok(effects::done(message.id, line_number(&plan.name), worker.next.as_ref()))
        }
    }
}
