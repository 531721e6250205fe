//! All settings of a node, checked once before it starts.

use std::time::Duration;

use crate::durability::Durability;
use crate::error::Error;
use crate::keys::RingName;
use crate::node::batch_size::MOST;
use crate::partition::{self, Partition};
use crate::redis::Endpoint;
use crate::retry::Retry;
use crate::steps::Duties;

/// The longest delay, pause, window, wait and time to live. Redis stores their ends in milliseconds, with at most 15
/// digits.
/// A year has 365.25 days, as in the durations of the command line.
pub(crate) const TEN_YEARS: Duration = Duration::from_secs(3652 * 24 * 3600 + 12 * 3600);

/// The most messages that a node handles concurrently.
pub(crate) const MOST_LANES: usize = 1024;

/// The settings of one node. The nodes of one ring should agree on them, but nothing breaks if they do not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The Redis where the nodes meet.
    pub redis: Endpoint,
    /// The ring to join.
    pub ring: RingName,
    /// The application that this node runs. The first node to join a ring decides to which application it belongs, and
    /// nodes of other applications are refused. Default: the ring's name.
    pub application: String,
    /// How many partitions the ring has, 1 to 1,024. The first node or publisher decides that for the life of the ring.
    /// [`Node::partitions`](crate::Node::partitions) explains them. Default: 1.
    pub partitions: u32,
    /// The time between two messages. Zero means as fast as Redis accepts them. [`Node::generate`](crate::Node::generate)
    /// sets it: a change before that call has no effect. Default: 500 ms.
    pub interval: Duration,
    /// How many messages this node handles concurrently. Default: 1.
    pub concurrency: usize,
    /// Handle messages even while this node is the generator, so that a node alone does all the work. Default: true.
    pub generator_handles: bool,
    /// Never take office. The node only handles messages, and its source is not called. Default: false.
    pub never_generate: bool,
    /// Never handle messages. The node only generates, or waits for the office. Default: false.
    pub never_handle: bool,
    /// The maximum number of messages that the ring as a whole publishes, across all take-overs. Default: no limit.
    pub limit: Option<u64>,
    /// Stop once the limit is reached and every message has its outcome. Default: false.
    pub until_done: bool,
    /// At most this many messages wait. The generator pauses while its next ones would make it more. Default: 100,000.
    pub max_waiting: u64,
    /// The maximum number of messages that one step publishes, and that one claim asks for. A claim may bring some more,
    /// because packs stay whole. A smaller number lets others reach Redis sooner, at the price of more steps.
    /// Default: 1,000, the largest.
    pub max_batch: usize,
    /// A message becomes a dead letter after this many nodes died while they held it. Default: 5.
    pub max_deaths: u32,
    /// How often a message is tried, and how long it waits after each failure. Default: 8 attempts, 1 s, four times as
    /// long each time, at most 1 h.
    pub retry: Retry,
    /// How long the handler may take for one message. After that, the message counts as failed, and the handler's future
    /// is dropped. Default: 10 minutes.
    pub time_limit: Duration,
    /// How long a node that cannot be heard still counts as alive. Default: 2 s.
    pub lease: Duration,
    /// Where Redis must have stored a change before this node reports it. Default: [`Durability::Memory`].
    pub durability: Durability,
    /// Make up for ticks that were missed because there was no generator, no Redis or no room. Otherwise the generator
    /// skips them, and the rhythm keeps its phase. Default: false.
    pub catch_up: bool,
    /// Also write every outcome to the journal stream. Default: false.
    pub journal: bool,
    /// The largest body that a node publishes or handles, in bytes. Default: 1 MiB.
    pub max_body: usize,
    /// Let Redis notice the death of this node at once. If off, leases alone decide, as behind a proxy without RESP3.
    /// Default: true.
    pub presence: bool,
    /// How long a node's connection must be gone before the node counts as dead. This gives it time to reconnect.
    /// Default: 100 ms.
    pub grace: Duration,
    /// How often the first in line looks at the generator. Default: 50 ms.
    pub look: Duration,
    /// How often the generator looks for dead members. Without a living generator, all nodes together look twice as
    /// often. Default: 100 ms.
    pub sweep: Duration,
    /// How often an idle node looks for messages if Redis cannot call it, as behind a proxy without RESP3. Default:
    /// 20 ms.
    pub poll: Duration,
    /// How long handlers may continue after the node was asked to stop. Default: 25 s.
    pub stop_deadline: Duration,
}

impl Config {
    /// The default settings for this ring in this Redis. The address is like `redis://127.0.0.1:6379`.
    pub fn on(redis: &str, ring: &str) -> Result<Self, Error> {
        Ok(Self::new(redis.parse()?, ring.parse()?))
    }

    /// Creates the default settings for a ring in the given Redis.
    pub fn new(redis: Endpoint, ring: RingName) -> Self {
        Self {
            redis,
            application: ring.to_string(),
            ring,
            partitions: 1,
            interval: Duration::from_millis(500),
            concurrency: 1,
            generator_handles: true,
            never_generate: false,
            never_handle: false,
            limit: None,
            until_done: false,
            max_waiting: 100_000,
            max_batch: MOST,
            max_deaths: 5,
            retry: Retry::default(),
            time_limit: Duration::from_secs(600),
            lease: Duration::from_secs(2),
            durability: Durability::Memory,
            catch_up: false,
            journal: false,
            max_body: 1024 * 1024,
            presence: true,
            grace: Duration::from_millis(100),
            look: Duration::from_millis(50),
            sweep: Duration::from_millis(100),
            poll: Duration::from_millis(20),
            stop_deadline: Duration::from_secs(25),
        }
    }

    /// Checks the settings. A node refuses to start with wrong ones.
    pub fn validate(&self) -> Result<(), Error> {
        self.redis.check()?;
        let ms = Duration::from_millis;
        let shown = |value: Duration| if value.is_zero() { "0".to_owned() } else { format!("{value:?}") };
        let year = Duration::from_secs(365 * 24 * 3600);
        if !self.interval.is_zero() && !(ms(1)..=year).contains(&self.interval) {
            return Err(Error::expected(
                "interval",
                "0 or at least 1ms and at most a year",
                shown(self.interval),
            ));
        }
        if !(ms(1)..=year).contains(&self.time_limit) {
            return Err(Error::expected("time-limit", "1ms to a year", shown(self.time_limit)));
        }
        if !(ms(200)..=ms(3_600_000)).contains(&self.lease) {
            return Err(Error::expected("lease", "200ms to 1h", shown(self.lease)));
        }
        self.durability.validate()?;
        if !(1..=100).contains(&self.application.len()) {
            return Err(Error::expected("application", "1 to 100 bytes", &self.application));
        }
        if !(1..=MOST_LANES).contains(&self.concurrency) {
            return Err(Error::expected("concurrency", format!("1 to {MOST_LANES}"), self.concurrency));
        }
        if self.never_generate && self.never_handle {
            return Err(Error::expected("never-handle", "a node that may generate", "never-generate"));
        }
        let waits = [("grace", self.grace), ("look", self.look), ("sweep", self.sweep), ("poll", self.poll)];
        if let Some((name, wait)) = waits.into_iter().find(|(_, wait)| *wait < ms(1)) {
            return Err(Error::expected(name, "at least 1ms", shown(wait)));
        }
        if self.max_deaths == 0 {
            return Err(Error::expected("max-deaths", "at least 1", self.max_deaths));
        }
        if self.retry.attempts == 0 {
            return Err(Error::expected("attempts", "at least 1", self.retry.attempts));
        }
        if !(Duration::ZERO..=year).contains(&self.retry.first) {
            return Err(Error::expected("backoff", "at most a year", shown(self.retry.first)));
        }
        if !(self.retry.first..=year).contains(&self.retry.longest) {
            let expected = "at least as long as the first wait and at most a year";
            return Err(Error::expected("longest wait", expected, shown(self.retry.longest)));
        }
        if !(1.0..=1000.0).contains(&self.retry.factor) {
            return Err(Error::expected("backoff factor", "1 to 1000", self.retry.factor));
        }
        if !(0.0..=1.0).contains(&self.retry.jitter) {
            return Err(Error::expected("jitter", "0 to 1", self.retry.jitter));
        }
        if self.max_waiting == 0 {
            return Err(Error::expected("max-waiting", "at least 1", self.max_waiting));
        }
        if !(1..=MOST).contains(&self.max_batch) {
            return Err(Error::expected("max-batch", "1 to 1000", self.max_batch));
        }
        if !(1..=partition::MOST).contains(&self.partitions) {
            return Err(Error::expected("partitions", format!("1 to {}", partition::MOST), self.partitions));
        }
        // A partition has its share of the limit.
        let least = if self.ring.whole().is_some() { 1 } else { self.partitions };
        if let Some(limit) = self.limit.filter(|limit| *limit < least.into()) {
            let expected = match least {
                1 => "at least 1".to_owned(),
                count => format!("at least {count}, one for each partition"),
            };
            return Err(Error::expected("limit", expected, limit));
        }
        if self.until_done && self.limit.is_none() {
            return Err(Error::expected("until-done", "a limit beside it", "none"));
        }
        // Redis closes a connection with a subscription if more than 32 MB wait on it, unless its settings say otherwise.
        if !(1..=16 * 1024 * 1024).contains(&self.max_body) {
            return Err(Error::expected("max-body", "1 to 16777216 bytes", self.max_body));
        }
        Ok(())
    }

    /// The settings of a node in one partition of its ring. Lanes and limits are shared out.
    pub(crate) fn of_partition(&self, part: Partition) -> Self {
        let at_least_one = |total: u64| part.share_of(total).max(1);
        Self {
            ring: part.name_in(&self.ring),
            concurrency: usize::try_from(at_least_one(self.concurrency as u64)).unwrap_or(usize::MAX),
            limit: self.limit.map(|limit| part.share_of(limit)),
            max_waiting: at_least_one(self.max_waiting),
            ..self.clone()
        }
    }

    /// What this node does in its ring.
    pub(crate) fn duties(&self) -> Duties {
        match (self.never_generate, self.never_handle) {
            (true, _) => Duties::Handle,
            (_, true) => Duties::Generate,
            _ => Duties::Both,
        }
    }

    /// The application, unless it is the default.
    pub(crate) fn named_application(&self) -> Option<String> {
        (self.application != self.ring.as_str()).then(|| self.application.clone())
    }

    /// How often a member shows that it is alive.
    pub(crate) fn beat(&self) -> Duration {
        self.lease / 4
    }

    /// How long a member believes no other member to be dead, after a reconnect or after its own lease expired. This
    /// gives all others time to reconnect and to beat.
    pub(crate) fn trust_delay(&self) -> Duration {
        self.beat().max(Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Endpoint::tcp("localhost", 6379), RingName::sample())
    }

    #[test]
    fn every_setting_is_refused_by_its_name_beyond_its_limits_and_taken_up_to_them() {
        type Set = fn(&mut Config, u64);
        const YEAR: u64 = 365 * 24 * 3600 * 1000;
        const MIB: u64 = 1024 * 1024;
        let ms = Duration::from_millis;
        let cases: [(&str, Set, &[u64], &[u64]); 14] = [
            ("partitions", |config, n| config.partitions = n as u32, &[1, 1024], &[0, 1025]),
            ("application", |config, n| config.application = "x".repeat(n as usize), &[1, 100], &[0, 101]),
            ("interval", |config, n| config.interval = Duration::from_millis(n), &[0, 1, YEAR], &[YEAR + 1]),
            (
                "lease",
                |config, n| config.lease = Duration::from_millis(n),
                &[200, 3_600_000],
                &[199, 3_600_001],
            ),
            (
                "time-limit",
                |config, n| config.time_limit = Duration::from_millis(n),
                &[1, YEAR],
                &[0, YEAR + 1],
            ),
            ("concurrency", |config, n| config.concurrency = n as usize, &[1, 1024], &[0, 1025]),
            ("grace", |config, n| config.grace = Duration::from_millis(n), &[1], &[0]),
            ("look", |config, n| config.look = Duration::from_millis(n), &[1], &[0]),
            ("sweep", |config, n| config.sweep = Duration::from_millis(n), &[1], &[0]),
            ("poll", |config, n| config.poll = Duration::from_millis(n), &[1], &[0]),
            ("max-deaths", |config, n| config.max_deaths = n as u32, &[1], &[0]),
            ("max-waiting", |config, n| config.max_waiting = n, &[1], &[0]),
            ("max-batch", |config, n| config.max_batch = n as usize, &[1, 1000], &[0, 1001]),
            ("max-body", |config, n| config.max_body = n as usize, &[1, 16 * MIB], &[0, 16 * MIB + 1]),
        ];
        for (name, set, good, bad) in cases {
            for value in good {
                let mut config = config();
                set(&mut config, *value);
                config.validate().unwrap_or_else(|error| panic!("{value}: {error}"));
            }
            for value in bad {
                let mut config = config();
                set(&mut config, *value);
                let message = config.validate().expect_err(name).to_string();
                assert!(message.starts_with(&format!("{name}: expected ")), "{message}");
            }
        }
        let mut config = Config { interval: Duration::from_micros(999), ..config() };
        assert!(config.validate().is_err());
        (config.interval, config.limit) = (ms(1), Some(0));
        assert!(config.validate().unwrap_err().to_string().starts_with("limit: "));
        (config.limit, config.until_done) = (None, true);
        assert!(config.validate().unwrap_err().to_string().starts_with("until-done: "));
        config.limit = Some(1);
        config.validate().unwrap();
        config.never_generate = true;
        config.validate().unwrap();
        config.never_handle = true;
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "never-handle: expected a node that may generate, got 'never-generate'");
        config.never_generate = false;
        config.validate().unwrap();
    }

    #[test]
    fn lanes_and_limits_are_shared_out_among_the_partitions() {
        let whole = Config { partitions: 3, concurrency: 4, limit: Some(8), max_waiting: 2, ..config() };
        let parts: Vec<Config> = Partition::all(3).map(|part| whole.of_partition(part)).collect();
        let of = |value: fn(&Config) -> u64| parts.iter().map(value).collect::<Vec<_>>();
        assert_eq!(of(|part| part.concurrency as u64), [2, 1, 1]);
        assert_eq!(of(|part| part.limit.unwrap()), [3, 3, 2]);
        assert_eq!(of(|part| part.max_waiting), [1, 1, 1], "at least one each");
        assert_eq!(parts[2].ring.as_str(), "estafeta:2");
        assert!(parts.iter().all(|part| part.validate().is_ok()), "each is valid by itself");
        assert_eq!(parts[2].application, "estafeta", "all partitions belong to one application");
        let few = Config { limit: Some(2), ..whole };
        let message = few.validate().unwrap_err().to_string();
        assert_eq!(message, "limit: expected at least 3, one for each partition, got '2'");
    }

    #[test]
    fn a_member_beats_four_times_a_lease_and_trusts_after_at_least_half_a_second() {
        let of_lease = |seconds| Config { lease: Duration::from_secs(seconds), ..config() };
        assert_eq!(of_lease(1).beat(), Duration::from_millis(250));
        assert_eq!(of_lease(1).trust_delay(), Duration::from_millis(500));
        assert_eq!(of_lease(8).trust_delay(), Duration::from_secs(2));
    }
}
