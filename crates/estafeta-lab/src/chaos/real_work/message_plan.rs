//! The plan of one message, which is its body: what becomes of it at each attempt.
//!
//! A body is a name and the words of the plan, such as `p1-17/delay:300/snooze:2/retry:1/done`. The words stand in
//! the order in which things happen. The handler looks at the message's own counts of snoozes and failures, so its
//! answer does not depend on how often a node died.

use std::fmt;
use std::time::Duration;

use estafeta::Retry;
use rand::RngExt as _;
use rand::rngs::SmallRng;

/// How long a snoozed message waits.
pub const SNOOZE: Duration = Duration::from_millis(60);
/// How long a message waits whose handler says so.
pub const RETRY_AFTER: Duration = Duration::from_millis(80);
/// A message becomes an error when it has failed this often.
const ATTEMPTS: u32 = 4;
/// When a message is tried again whose handler does not say so: the first wait, how much longer each further one is, the
/// longest one, and how much a wait differs at random.
const FIRST: Duration = Duration::from_millis(40);
const FACTOR: f64 = 2.0;
const LONGEST: Duration = Duration::from_secs(1);
const JITTER: f64 = 0.25;

/// The rule for retries of all nodes.
pub fn retry() -> Retry {
    Retry::exponential(FIRST).factor(FACTOR).longest(LONGEST).jitter(JITTER).attempts(ATTEMPTS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// A failure that no retry would mend.
    Fatal,
    /// It fails until its attempts are used up.
    Hopeless,
}

/// Who decides how long a message that failed waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRule {
    Settings,
    Handler,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePlan {
    pub name: String,
    pub delay_ms: u64,
    pub snoozes: u32,
    /// How many failures come before the end.
    pub retries: u32,
    pub rule: WaitRule,
    pub end: End,
}

/// How far a message is: the counts that it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stage {
    pub snoozes: u32,
    pub failures: u32,
}

/// What the handler does at one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedAnswer {
    Snooze,
    Retry(WaitRule),
    End(End),
}

impl MessagePlan {
    /// Makes up a plan without a delay.
    pub fn random(random: &mut SmallRng, name: String) -> Self {
        let end = match random.random_range(0..100) {
            0..4 => End::Fatal,
            4..6 => End::Hopeless,
            _ => End::Done,
        };
        // Most messages are handled at once, as in life.
        let is_eventful = random.random_bool(0.3);
        let mut some = || if is_eventful { random.random_range(0..3) } else { 0 };
        let (snoozes, retries) = (some(), some());
        let rule = if random.random() { WaitRule::Settings } else { WaitRule::Handler };
        Self { name, delay_ms: 0, snoozes, retries, rule, end }.sound()
    }

    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), ..self }
    }

    /// A hopeless message fails as often as the settings allow.
    fn sound(self) -> Self {
        match self.end {
            End::Hopeless => Self { retries: ATTEMPTS - 1, rule: WaitRule::Settings, ..self },
            _ if self.retries == 0 => Self { rule: WaitRule::Settings, ..self },
            _ => self,
        }
    }

    pub fn parse(body: &str) -> Option<Self> {
        let mut words = body.split('/');
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        let (mut delay_ms, mut snoozes, mut retries) = (0, 0, 0);
        let (mut rule, mut end) = (WaitRule::Settings, None);
        for word in words {
            if end.is_some() {
                return None;
            }
            match word.split_once(':') {
                Some(("delay", number)) => delay_ms = number.parse().ok()?,
                Some(("snooze", number)) => snoozes = number.parse().ok()?,
                Some(("retry", number)) => retries = number.parse().ok()?,
                Some(("retry-after", number)) => {
                    (retries, rule) = (number.parse().ok()?, WaitRule::Handler);
                }
                None if word == "done" => end = Some(End::Done),
                None if word == "fatal" => end = Some(End::Fatal),
                None if word == "hopeless" => end = Some(End::Hopeless),
                _ => return None,
            }
        }
        Some(Self { name, delay_ms, snoozes, retries, rule, end: end? }.sound())
    }

    pub fn answer(&self, at: Stage) -> PlannedAnswer {
        if at.snoozes < self.snoozes {
            PlannedAnswer::Snooze
        } else if at.failures < self.retries {
            PlannedAnswer::Retry(self.rule)
        } else {
            PlannedAnswer::End(self.end)
        }
    }

    /// All stages of the message, in their order.
    pub fn stages(&self) -> impl Iterator<Item = Stage> {
        let (snoozes, retries) = (self.snoozes, self.retries);
        let first = (0..snoozes).map(|snoozes| Stage { snoozes, failures: 0 });
        first.chain((0..=retries).map(move |failures| Stage { snoozes, failures }))
    }

    pub fn becomes_error(&self) -> bool {
        self.end != End::Done
    }

    /// How long the message waits at least and at most after an attempt at this stage. None if that was the last one.
    pub fn wait_after(&self, at: Stage) -> Option<(Duration, Duration)> {
        match self.answer(at) {
            PlannedAnswer::Snooze => Some((SNOOZE, SNOOZE)),
            PlannedAnswer::Retry(WaitRule::Handler) => Some((RETRY_AFTER, RETRY_AFTER)),
            PlannedAnswer::Retry(WaitRule::Settings) => {
                let wait = FIRST.mul_f64(FACTOR.powf(f64::from(at.failures))).min(LONGEST);
                Some((wait.mul_f64(1.0 - JITTER), wait.mul_f64(1.0 + JITTER)))
            }
            PlannedAnswer::End(_) => None,
        }
    }

    /// The reason of an error with this plan.
    pub fn reason(&self) -> &'static str {
        match self.end {
            End::Fatal => "fatal, as planned",
            _ => "failed, as planned",
        }
    }
}

impl fmt::Display for MessagePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.delay_ms > 0 {
            write!(f, "/delay:{}", self.delay_ms)?;
        }
        if self.snoozes > 0 {
            write!(f, "/snooze:{}", self.snoozes)?;
        }
        match (self.end, self.rule) {
            _ if self.retries == 0 => {}
            (End::Hopeless, _) => {}
            (_, WaitRule::Settings) => write!(f, "/retry:{}", self.retries)?,
            (_, WaitRule::Handler) => write!(f, "/retry-after:{}", self.retries)?,
        }
        f.write_str(match self.end {
            End::Done => "/done",
            End::Fatal => "/fatal",
            End::Hopeless => "/hopeless",
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn every_plan_is_read_back_as_written() {
        let mut random = SmallRng::seed_from_u64(1);
        for number in 0..2000 {
            let plan = MessagePlan::random(&mut random, format!("p1-{number}"))
                .delayed(Duration::from_millis(number % 3 * 100));
            assert_eq!(MessagePlan::parse(&plan.to_string()), Some(plan.clone()), "{plan}");
        }
        for foreign in ["", "/done", "x", "x/", "x/done/retry:1", "x/retry:y/done", "x/fly/done"] {
            assert_eq!(MessagePlan::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_stages_follow_each_other_as_the_answers_say() {
        let plan = MessagePlan::parse("x/snooze:1/retry-after:2/fatal").unwrap();
        let stages: Vec<(u32, u32)> = plan.stages().map(|stage| (stage.snoozes, stage.failures)).collect();
        assert_eq!(stages, [(0, 0), (1, 0), (1, 1), (1, 2)]);
        let answers: Vec<PlannedAnswer> = plan.stages().map(|stage| plan.answer(stage)).collect();
        let retry = PlannedAnswer::Retry(WaitRule::Handler);
        assert_eq!(answers, [PlannedAnswer::Snooze, retry, retry, PlannedAnswer::End(End::Fatal)]);
        let waits: Vec<_> =
            plan.stages().map(|stage| plan.wait_after(stage).map(|(least, _)| least)).collect();
        assert_eq!(waits, [Some(SNOOZE), Some(RETRY_AFTER), Some(RETRY_AFTER), None]);
    }

    #[test]
    fn a_hopeless_message_fails_as_often_as_the_settings_allow() {
        let plan = MessagePlan::parse("x/hopeless").unwrap();
        let answers: Vec<PlannedAnswer> = plan.stages().map(|stage| plan.answer(stage)).collect();
        let retry = PlannedAnswer::Retry(WaitRule::Settings);
        assert_eq!(answers, [retry, retry, retry, PlannedAnswer::End(End::Hopeless)]);
        let ms = |time: Duration| time.as_millis();
        let waits: Vec<_> = plan.stages().filter_map(|stage| plan.wait_after(stage)).collect();
        let waits: Vec<_> = waits.into_iter().map(|(least, most)| (ms(least), ms(most))).collect();
        assert_eq!(waits, [(30, 50), (60, 100), (120, 200)]);
    }
}
