//! Everything a copy is told before it starts, checked once.

use std::time::Duration;

use crate::appetite::MOST;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::keys::RingName;

/// What happens to ticks that nobody could publish because there was no generator, no Redis or no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// They are passed over; the beat keeps its phase.
    #[default]
    Skip,
    /// They are made up for, one message each.
    CatchUp,
}

/// The settings of one copy. Copies of one ring should agree on them; nothing breaks if they do not.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the copies meet.
    pub redis: Endpoint,
    /// The ring to join.
    pub ring: RingName,
    /// The time between two messages; zero means as fast as Redis takes them.
    pub interval: Duration,
    /// How many messages this copy handles side by side.
    pub concurrency: usize,
    /// The ring as a whole publishes no more than this, over all take-overs.
    pub limit: Option<u64>,
    /// Stop once the limit is reached and every message has its outcome.
    pub until_done: bool,
    /// The generator pauses while more than this many messages wait.
    pub max_waiting: u64,
    /// The most messages that travel in one step, published or claimed. A smaller number gives others their turn at Redis
    /// sooner, at the price of more steps.
    pub max_batch: usize,
    /// A message whose handlers died this often becomes an error.
    pub max_attempts: u32,
    /// How long a copy that cannot be heard is still believed to live.
    pub lease: Duration,
    /// What to do about missed ticks.
    pub missed: Missed,
    /// Write every outcome to the journal stream as well.
    pub journal: bool,
    /// The largest body that is published or handled, in bytes.
    pub max_body: usize,
    /// Let Redis notice the death of this copy at once. Off: leases alone decide, as behind a proxy without RESP3.
    pub presence: bool,
    /// How long a copy's connection must be gone before that means death: time for it to reconnect.
    pub grace: Duration,
    /// How often the first in line looks at the generator.
    pub look: Duration,
    /// How often the generator looks for dead members.
    pub sweep: Duration,
    /// How long one wait for the bell lasts.
    pub bell_wait: Duration,
    /// How long handlers may go on after the copy was told to stop.
    pub stop_deadline: Duration,
}

impl Config {
    /// The defaults, for a ring at the given Redis.
    pub fn new(redis: Endpoint, ring: RingName) -> Self {
        Self {
            redis,
            ring,
            interval: Duration::from_millis(500),
            concurrency: 1,
            limit: None,
            until_done: false,
            max_waiting: 100_000,
            max_batch: MOST,
            max_attempts: 5,
            lease: Duration::from_secs(2),
            missed: Missed::Skip,
            journal: false,
            max_body: 1024 * 1024,
            presence: true,
            grace: Duration::from_millis(100),
            look: Duration::from_millis(50),
            sweep: Duration::from_millis(100),
            bell_wait: Duration::from_secs(5),
            stop_deadline: Duration::from_secs(25),
        }
    }

    /// Checks the settings; a member refuses to start on wrong ones.
    pub fn validate(&self) -> Result<(), Error> {
        let ms = Duration::from_millis;
        let shown = |value: Duration| format!("{value:?}");
        let year = Duration::from_secs(365 * 24 * 3600);
        if !self.interval.is_zero() && !(ms(1)..=year).contains(&self.interval) {
            return Err(Error::expected(
                "interval",
                "0 or at least 1ms and at most a year",
                shown(self.interval),
            ));
        }
        if !(ms(200)..=ms(3_600_000)).contains(&self.lease) {
            return Err(Error::expected("lease", "200ms to 1h", shown(self.lease)));
        }
        if !(1..=1024).contains(&self.concurrency) {
            return Err(Error::expected("concurrency", "1 to 1024", self.concurrency));
        }
        let waits = [
            ("grace", self.grace),
            ("look", self.look),
            ("sweep", self.sweep),
            ("bell-wait", self.bell_wait),
        ];
        if let Some((name, wait)) = waits.into_iter().find(|(_, wait)| *wait < ms(1)) {
            return Err(Error::expected(name, "at least 1ms", shown(wait)));
        }
        if self.max_attempts == 0 {
            return Err(Error::expected("max-attempts", "at least 1", self.max_attempts));
        }
        if self.max_waiting == 0 {
            return Err(Error::expected("max-waiting", "at least 1", self.max_waiting));
        }
        if !(1..=MOST).contains(&self.max_batch) {
            return Err(Error::expected("max-batch", "1 to 1000", self.max_batch));
        }
        if self.limit == Some(0) {
            return Err(Error::expected("limit", "at least 1", 0));
        }
        if self.until_done && self.limit.is_none() {
            return Err(Error::expected("until-done", "a limit beside it", "none"));
        }
        if !(1..=64 * 1024 * 1024).contains(&self.max_body) {
            return Err(Error::expected("max-body", "1 to 67108864 bytes", self.max_body));
        }
        Ok(())
    }

    /// How often a member shows that it lives.
    pub(crate) fn beat(&self) -> Duration {
        self.lease / 4
    }

    /// How long after a reconnect, or after its own lease ran out, a member believes in nobody's death: time for all
    /// others to reconnect and to beat.
    pub(crate) fn settling(&self) -> Duration {
        self.beat().max(Duration::from_millis(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new(Endpoint::tcp("localhost", 6379), RingName::default())
    }

    #[test]
    fn every_setting_is_refused_by_its_name_beyond_its_limits_and_taken_up_to_them() {
        type Set = fn(&mut Config, u64);
        const YEAR: u64 = 365 * 24 * 3600 * 1000;
        const MIB: u64 = 1024 * 1024;
        let ms = Duration::from_millis;
        let cases: [(&str, Set, &[u64], &[u64]); 11] = [
            ("interval", |config, n| config.interval = Duration::from_millis(n), &[0, 1, YEAR], &[YEAR + 1]),
            (
                "lease",
                |config, n| config.lease = Duration::from_millis(n),
                &[200, 3_600_000],
                &[199, 3_600_001],
            ),
            ("concurrency", |config, n| config.concurrency = n as usize, &[1, 1024], &[0, 1025]),
            ("grace", |config, n| config.grace = Duration::from_millis(n), &[1], &[0]),
            ("look", |config, n| config.look = Duration::from_millis(n), &[1], &[0]),
            ("sweep", |config, n| config.sweep = Duration::from_millis(n), &[1], &[0]),
            ("bell-wait", |config, n| config.bell_wait = Duration::from_millis(n), &[1], &[0]),
            ("max-attempts", |config, n| config.max_attempts = n as u32, &[1], &[0]),
            ("max-waiting", |config, n| config.max_waiting = n, &[1], &[0]),
            ("max-batch", |config, n| config.max_batch = n as usize, &[1, 1000], &[0, 1001]),
            ("max-body", |config, n| config.max_body = n as usize, &[1, 64 * MIB], &[0, 64 * MIB + 1]),
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
                let told = config.validate().expect_err(name).to_string();
                assert!(told.starts_with(&format!("{name}: expected ")), "{told}");
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
    }

    #[test]
    fn a_member_beats_four_times_a_lease_and_settles_for_at_least_half_a_second() {
        let of_lease = |seconds| Config { lease: Duration::from_secs(seconds), ..config() };
        assert_eq!(of_lease(1).beat(), Duration::from_millis(250));
        assert_eq!(of_lease(1).settling(), Duration::from_millis(500));
        assert_eq!(of_lease(8).settling(), Duration::from_secs(2));
    }
}
