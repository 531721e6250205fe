//! When the ticks of an entry come, and what becomes of those that were missed.

use std::sync::Arc;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::definition::{Definition, Times};
use super::{Missed, Overlap};
use crate::config::TEN_YEARS;
use crate::error::{Error, Result};
use crate::source::MAX_NAME;
use crate::steps::millis;

/// A tick that is this late is late, but not missed. A take-over takes less.
pub(super) const LATE_MS: u64 = 5_000;
/// How long an entry rests after its first failure. The rest doubles with each further failure, up to the longest one.
const FIRST_REST_MS: u64 = 1_000;
const LONGEST_REST_MS: u64 = 60_000;
/// The age at which a missed tick is given up by default.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// When an entry comes, and what becomes of its missed and overlapping ticks.
pub(super) struct Timing {
    pub name: Arc<str>,
    pub definition: Definition,
    pub rhythm: Rhythm,
    /// The last tick that Redis knows, or the beginning of the entry.
    pub last: Option<u64>,
    /// How often its messages could not be made, in a row.
    failures: u32,
    /// Until when it rests after a failure.
    rests_until: u64,
}

impl Timing {
    pub fn new(name: String, times: Times, missed: Missed) -> Result<Self> {
        if !(1..=MAX_NAME).contains(&name.len()) {
            let got = format!("{} bytes", name.len());
            return Err(Error::expected("name of a schedule entry", format!("1 to {MAX_NAME} bytes"), got));
        }
        let rhythm = Rhythm::new(&times)?;
        let definition = Definition { times, missed, max_age: MAX_AGE, overlap: Overlap::Queue };
        Ok(Self { name: name.into(), definition, rhythm, last: None, failures: 0, rests_until: 0 })
    }

    /// When to publish the next tick, and that tick.
    pub fn upcoming(&self, now: u64) -> Option<(u64, u64)> {
        let tick = self.next(self.last?, now)?;
        Some((tick.max(self.rests_until), tick))
    }

    /// Lets the entry rest after a failure.
    pub fn rest(&mut self, now: u64) {
        let rest = FIRST_REST_MS.saturating_mul(1 << self.failures.min(10)).min(LONGEST_REST_MS);
        self.failures += 1;
        self.rests_until = now + rest;
    }

    /// Ends the row of failures, because the messages of a tick could be made.
    pub fn succeed(&mut self) {
        (self.failures, self.rests_until) = (0, 0);
    }

    /// The next tick to publish after `last`. It may be due already.
    pub fn next(&self, last: u64, now: u64) -> Option<u64> {
        let last = match self.rhythm {
            // The clock was ahead when the last tick was published, and was set right.
            Rhythm::Every { ms } if last > now.saturating_add(ms) => now,
            _ => last,
        };
        let first = self.rhythm.next_after(last)?;
        let in_time = now.saturating_sub(LATE_MS);
        if first >= in_time {
            return Some(first);
        }
        let oldest = now.saturating_sub(millis(self.definition.max_age));
        match self.definition.missed {
            Missed::Skip => self.rhythm.next_in_phase(first, in_time.saturating_sub(1)),
            Missed::Last => {
                let newest = self.rhythm.last_until(first, now)?;
                if newest >= oldest { Some(newest) } else { self.rhythm.next_in_phase(first, now) }
            }
            Missed::All => self.rhythm.next_in_phase(first, oldest.saturating_sub(1)),
        }
    }
}

/// When the ticks of an entry come, parsed and checked.
pub(crate) enum Rhythm {
    Every { ms: u64 },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Rhythm {
    /// Refuses times that this version does not understand, and times that never come.
    pub fn new(times: &Times) -> Result<Self> {
        let (expression, zone) = match times {
            Times::Cron { expression, zone } => (expression, zone),
            Times::Every { interval } => {
                if !(SHORTEST..=TEN_YEARS).contains(interval) {
                    return Err(Error::expected("interval", "10ms to 10 years", format!("{interval:?}")));
                }
                return Ok(Self::Every { ms: millis(*interval) });
            }
        };
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| {
            Error::expected("cron expression", format!("fields like '30 2 * * *' ({error})"), expression)
        })?;
        let zone = TimeZone::get(zone)
            .map_err(|_| Error::expected("time zone", "an IANA name such as Europe/Berlin", zone))?;
        let rhythm = Self::Cron { cron: Box::new(cron), zone };
        if rhythm.next_after(u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)).is_none() {
            return Err(Error::expected("cron expression", "times that come some day", expression));
        }
        Ok(rhythm)
    }

    /// The ticks after a time, if none was missed. An interval begins with the last tick, or now if there was none.
    pub fn upcoming(&self, last: Option<u64>, now: u64) -> impl Iterator<Item = u64> {
        let first = self.next_after(last.unwrap_or(now)).and_then(|first| self.next_in_phase(first, now));
        std::iter::successors(first, |tick| self.next_after(*tick))
    }

    /// The first tick after a tick.
    fn next_after(&self, tick: u64) -> Option<u64> {
        match self {
            Self::Every { ms } => tick.checked_add(*ms),
            Self::Cron { cron, zone } => {
                let next = cron.find_next_occurrence(&zoned(tick, zone)?, false).ok()?;
                u64::try_from(next.timestamp().as_millisecond()).ok()
            }
        }
    }

    /// The first tick after `time`, if `tick` is one of the ticks. It is `tick` itself if that is later.
    fn next_in_phase(&self, tick: u64, time: u64) -> Option<u64> {
        match self {
            _ if tick > time => Some(tick),
            Self::Every { ms } => tick.checked_add(((time - tick) / ms + 1).checked_mul(*ms)?),
            Self::Cron { .. } => self.next_after(time),
        }
    }

    /// The last tick until `time`, if `tick` is one that is not later.
    fn last_until(&self, tick: u64, time: u64) -> Option<u64> {
        match self {
            Self::Every { ms } => Some(tick + time.saturating_sub(tick) / ms * ms),
            Self::Cron { cron, zone } => {
                let last = cron.find_previous_occurrence(&zoned(time, zone)?, true).ok()?;
                u64::try_from(last.timestamp().as_millisecond()).ok()
            }
        }
    }

    /// The time zone of the ticks.
    pub fn zone(&self) -> TimeZone {
        match self {
            Self::Every { .. } => TimeZone::UTC,
            Self::Cron { zone, .. } => zone.clone(),
        }
    }
}

fn zoned(ms: u64, zone: &TimeZone) -> Option<Zoned> {
    let time = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(time.to_zoned(zone.clone()))
}
