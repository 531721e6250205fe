//! Times at which the elected node publishes messages, and what becomes of times that were missed.
//!
//! Each entry has a name, which is its identity. Redis keeps the last tick of every entry, and moves it in the step
//! that publishes the messages of that tick. So a tick is published once, whichever node is in office, and a new
//! generator knows what its predecessor has done. An entry that Redis does not know yet begins now. The generator
//! stores the beginning at once, so that the first tick is not lost if that generator dies before it.
//!
//! An entry may skip a tick while messages of an earlier one have no outcome yet. Redis keeps the ids of these messages,
//! and the schedule asks for them when such a tick is due. The steps that give messages their outcomes remove the ids.
//!
//! If the messages of an entry cannot be made, only that entry fails. The generator reports the failure like that of
//! any source. The entry then rests for a while, and the other entries go on meanwhile.
//!
//! All times are those of Redis' clock. The schedule computes which tick comes next and waits for it. It computes that
//! again whenever a heartbeat has brought a newer time.

mod definition;
mod timing;

use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::feed::{Batch, BatchMessage};
use crate::handler::catch;
use crate::message::{ENTRY, TICK};
use crate::node::RingView;
use crate::source::{MAX_TICKS, Made, Plan, Progress, RawBatch, Source, SourceMessage};
pub use definition::{Definition, Times};
pub(crate) use timing::Rhythm;
use timing::{LATE_MS, Timing};

/// When the elected node publishes which messages: one or more named entries.
///
/// ```
/// use std::time::Duration;
/// use estafeta::{Missed, Schedule};
///
/// # fn example() -> Result<(), estafeta::Error> {
/// let nightly = Schedule::cron("nightly", "30 2 * * *", "Europe/Berlin")?
///     .missed(Missed::Last)
///     .each(|_tick| ["berlin", "hamburg"].map(|shop| format!("report of {shop}")));
/// let pulse = Schedule::every("pulse", Duration::from_secs(10))?.body("pulse".to_owned());
/// let schedule = nightly.and(pulse);
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
///
/// Run it on as many machines as you like: each tick is published once. The name of an entry is its identity. If you
/// change the times of an entry, it goes on from its last tick. If you rename it, it begins anew.
pub struct Schedule<T = ()> {
    entries: Vec<Entry<T>>,
    /// The last checkpoint of the ring, as far as this term knows.
    checkpoint: Option<Bytes>,
}

impl<T> fmt::Debug for Schedule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| &entry.timing.name)).finish()
    }
}

struct Entry<T> {
    timing: Timing,
    make: Make<T>,
}

/// What makes the messages of an entry.
enum Make<T> {
    Bodies(Box<dyn FnMut(Tick) -> Vec<T> + Send>),
    /// Gets the last checkpoint of the ring, and may return a new one.
    Batch(Box<MakeBatch<T>>),
}

type MakeBatch<T> =
    dyn FnMut(Tick, Option<Bytes>) -> BoxFuture<'static, Result<Batch<T, Bytes>, Failure>> + Send;

/// An entry of a [`Schedule`] that has its times and no messages yet. [`each`](Self::each) or [`body`](Self::body)
/// completes it.
#[must_use = "an entry without messages does nothing"]
pub struct ScheduleEntry(Timing);

impl fmt::Debug for ScheduleEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScheduleEntry").field(&self.0.name).finish()
    }
}

/// What happens to ticks that were missed because no node was in office, Redis was away, or the ring was full or paused.
/// A tick that is at most 5 s late is not missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Missed {
    /// They are skipped. The default of [`Schedule::every`].
    Skip,
    /// The newest of them is published, if it is not [too old](ScheduleEntry::max_age). The default of
    /// [`Schedule::cron`].
    Last,
    /// All of them are published, the oldest first, except those that are [too old](ScheduleEntry::max_age).
    All,
}

/// What happens to a tick while messages of an earlier tick of the same entry have no outcome yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Overlap {
    /// Its messages are published all the same.
    #[default]
    Queue,
    /// It is skipped, and not made up for. A message that waits for another attempt, or was snoozed, has no outcome yet.
    /// A dead letter has one.
    Skip,
}

/// One moment of a [`Schedule`].
#[derive(Clone, Debug)]
pub struct Tick {
    name: Arc<str>,
    ms: u64,
}

impl Tick {
    /// The name of its entry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time for which it was planned. Its messages may be published later. [`Job::tick`](crate::Job::tick) returns
    /// the same time.
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.ms)
    }
}

impl Schedule {
    /// An entry with the times of a cron expression in a time zone: `30 2 * * *` is half past two every night. There are
    /// five fields (minute, hour, day of the month, month, day of the week), or six if seconds come first. The zone has a
    /// name of the IANA database, such as `Europe/Berlin` or `UTC`.
    ///
    /// When the clocks of the zone go forward, a fixed time within the gap comes right after it. When they go back, a
    /// fixed time comes once, at the first of the two. Times like `*/10 * * * *` follow the clock in both cases.
    pub fn cron(name: impl Into<String>, expression: &str, zone: &str) -> Result<ScheduleEntry> {
        let times = Times::Cron { expression: expression.to_owned(), zone: zone.to_owned() };
        Timing::new(name.into(), times, Missed::Last).map(ScheduleEntry)
    }

    /// An entry with one tick per interval, which is 10 ms to 10 years. The first interval begins when a node with this
    /// entry first takes office.
    pub fn every(name: impl Into<String>, interval: Duration) -> Result<ScheduleEntry> {
        Timing::new(name.into(), Times::Every { interval }, Missed::Skip).map(ScheduleEntry)
    }
}

impl ScheduleEntry {
    /// What happens to missed ticks.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.0.definition.missed = missed;
        self
    }

    /// How old a missed tick may be and still be published. Default: a day.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.0.definition.max_age = age;
        self
    }

    /// What happens to a tick while messages of an earlier one have no outcome yet. Default: [`Overlap::Queue`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.0.definition.overlap = overlap;
        self
    }

    /// The messages of a tick: as many as the function returns, at most 1,000. They are published in one step.
    pub fn each<T, M>(self, mut make: impl FnMut(Tick) -> M + Send + 'static) -> Schedule<T>
    where
        M: IntoIterator<Item = T>,
        T: Serialize + Send + 'static,
    {
        self.making(Make::Bodies(Box::new(move |tick| make(tick).into_iter().collect())))
    }

    /// The messages of a tick, as an async function returns them in a [`Batch`]. The function also gets the last
    /// checkpoint of the ring, and may move it. Messages, checkpoint and tick go to Redis in one step, or not at all. So
    /// a function that reads what is new since the checkpoint publishes each message once.
    ///
    /// If the function fails or panics, the tick stays due, and the function is called again after a pause. While it
    /// runs, the other entries of this schedule wait. It is dropped if the node loses its office.
    ///
    /// ```
    /// use std::time::Duration;
    /// use estafeta::{Batch, Bytes, Failure, Schedule, Tick};
    ///
    /// async fn new_orders(_: Tick, from: Option<Bytes>) -> Result<Batch<String, Bytes>, Failure> {
    ///     let last: u64 = from.map_or(Ok(0), |bytes| std::str::from_utf8(&bytes)?.parse().map_err(Failure::from))?;
    ///     // Reads the orders after the last one from a database ...
    ///     # let orders: Vec<(u64, String)> = vec![(last + 1, "two pizzas".into())];
    ///     let newest = orders.iter().map(|(id, _)| *id).max().unwrap_or(last);
    ///     let batch = Batch::new(orders.into_iter().map(|(_, order)| order));
    ///     Ok(batch.checkpoint(newest.to_string().into()))
    /// }
    ///
    /// # fn example() -> Result<(), estafeta::Error> {
    /// let orders = Schedule::every("orders", Duration::from_secs(10))?.run(new_orders);
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn run<T, A>(self, mut make: impl FnMut(Tick, Option<Bytes>) -> A + Send + 'static) -> Schedule<T>
    where
        A: Future<Output = Result<Batch<T, Bytes>, Failure>> + Send + 'static,
        T: Serialize + Send + 'static,
    {
        self.making(Make::Batch(Box::new(move |tick, from| Box::pin(make(tick, from)))))
    }

    fn making<T>(self, make: Make<T>) -> Schedule<T> {
        Schedule { entries: vec![Entry { timing: self.0, make }], checkpoint: None }
    }

    /// One message per tick, always with this body.
    pub fn body<T: Serialize + Clone + Send + 'static>(self, body: T) -> Schedule<T> {
        self.each(move |_| [body.clone()])
    }
}

impl<T> Schedule<T> {
    /// The entries of both. If a name occurs twice, the node refuses to start.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// The name of each entry, and its next `count` times after `from`. Use it in tests, or to show the times.
    pub fn upcoming(&self, from: SystemTime, count: usize) -> Vec<(&str, Vec<SystemTime>)> {
        let from = from.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let from = u64::try_from(from.as_millis()).unwrap_or(u64::MAX);
        let times = |timing: &Timing| {
            let ticks = timing.rhythm.upcoming(None, from);
            ticks.take(count).map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms)).collect()
        };
        self.entries.iter().map(|entry| (&*entry.timing.name, times(&entry.timing))).collect()
    }

    /// The names of all entries.
    #[cfg(feature = "testing")]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.timing.name)
    }

    /// Refuses a schedule in which two entries have one name, and one that no publish could store.
    pub(crate) fn check(&self) -> Result<()> {
        let (count, mut names) = (self.entries.len(), BTreeSet::new());
        if count > MAX_TICKS {
            return Err(Error::expected(
                "schedule",
                format!("at most {MAX_TICKS} entries"),
                count.to_string(),
            ));
        }
        match self.entries.iter().find(|entry| !names.insert(&entry.timing.name)) {
            Some(twice) => {
                let name = &twice.timing.name;
                Err(Error::expected("schedule", "entries with different names", format!("{name}, {name}")))
            }
            None => Ok(()),
        }
    }
}

/// A tick that an entry publishes next, and when.
#[derive(Debug, PartialEq, Eq)]
struct NextTick {
    due: u64,
    tick: u64,
    index: usize,
}

impl<T> Schedule<T> {
    /// The tick that is published next. If several ticks are due, those that are not missed come first. So an entry
    /// that makes up for many missed ticks does not hold up the others.
    fn next_tick(&self, now: u64) -> Option<NextTick> {
        let upcoming = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let (due, tick) = entry.timing.upcoming(now)?;
            Some(NextTick { due, tick, index })
        });
        upcoming.min_by_key(|&NextTick { due, tick, index }| {
            (due.max(now), tick.saturating_add(LATE_MS) < now, due, index)
        })
    }
}

impl<T: Serialize + Send + 'static> Source for Schedule<T> {
    async fn open(&mut self, from: &Progress) -> Result<(), Failure> {
        for Entry { timing, .. } in &mut self.entries {
            timing.last = from.ticks.get(&*timing.name).copied();
        }
        self.checkpoint = from.checkpoint.clone().map(Bytes::from);
        Ok(())
    }

    fn plan(&self) -> Plan {
        let definition =
            |Entry { timing, .. }: &Entry<T>| (timing.name.to_string(), timing.definition.text());
        self.entries.iter().map(definition).collect()
    }

    async fn next(&mut self, ring: &mut RingView) -> Result<Made, Failure> {
        let begins = ring.clock.borrow().ms_at(Instant::now());
        let mut ticks = Vec::new();
        for timing in self.entries.iter_mut().map(|entry| &mut entry.timing) {
            if timing.last.is_none() {
                timing.last = Some(begins);
                ticks.push((timing.name.to_string(), begins));
            }
        }
        if !ticks.is_empty() {
            return Ok(Made::Batch(RawBatch { ticks, ..RawBatch::default() }));
        }
        loop {
            let now = ring.clock.borrow_and_update().ms_at(Instant::now());
            let Some(NextTick { due, tick, index }) = self.next_tick(now) else {
                return std::future::pending().await;
            };
            if due <= now {
                let entry = &mut self.entries[index];
                if entry.skips() && ring.is_open(&entry.timing.name).await? {
                    return Ok(Made::Batch(entry.skip(tick)));
                }
                let made = entry.publish(tick, self.checkpoint.clone(), ring.max_waiting).await;
                match &made {
                    Ok(batch) => {
                        entry.timing.succeed();
                        self.checkpoint = batch.checkpoint.clone().or(self.checkpoint.take());
                    }
                    Err(_) => entry.timing.rest(now),
                }
                return made.map(Made::Batch);
            }
            let at = ring.clock.borrow().instant(due);
            tokio::select! {
                () = tokio::time::sleep_until(at.into()) => {}
                changed = ring.clock.changed() => if changed.is_err() { return std::future::pending().await },
            }
        }
    }
}

impl<T: Serialize + 'static> Entry<T> {
    /// Whether a tick is skipped while messages of an earlier one have no outcome yet.
    fn skips(&self) -> bool {
        self.timing.definition.overlap == Overlap::Skip
    }

    /// The messages of a tick.
    async fn publish(
        &mut self,
        ms: u64,
        checkpoint: Option<Bytes>,
        max_waiting: u64,
    ) -> Result<RawBatch, Failure> {
        let name = Arc::clone(&self.timing.name);
        let failed = |reason: &str| Failure::new(format_args!("schedule entry '{name}': {reason}"));
        let tick = Tick { name: Arc::clone(&name), ms };
        let made = match &mut self.make {
            Make::Bodies(make) => catch("function", || ready(Ok(Batch::new(make(tick))))).await,
            Make::Batch(make) => catch("function", || make(tick, checkpoint)).await,
        };
        let Batch { messages, checkpoint } = made.map_err(|failure| failed(failure.reason()))?;
        let skips = self.skips();
        let message = |message: BatchMessage<T>| {
            let mut message = message.into_source()?;
            if skips {
                message.headers.insert_first(ENTRY, &*name)?;
            }
            message.headers.insert(TICK, ms.to_string())?;
            Ok(SourceMessage { not_before_ms: ms, ..message })
        };
        let messages = messages.into_iter().map(message).collect::<Result<_, Failure>>();
        let messages = messages.map_err(|failure| failed(failure.reason()))?;
        let batch = RawBatch {
            messages,
            checkpoint,
            ticks: vec![(name.to_string(), ms)],
            entry: skips.then(|| name.to_string()),
            ..RawBatch::default()
        };
        batch.check(usize::MAX, max_waiting).map_err(|failure| failed(failure.reason()))?;
        self.timing.last = Some(ms);
        Ok(batch)
    }

    /// A tick without messages.
    fn skip(&mut self, ms: u64) -> RawBatch {
        self.timing.last = Some(ms);
        RawBatch { ticks: vec![(self.timing.name.to_string(), ms)], ..RawBatch::default() }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn ms(time: &str) -> u64 {
        u64::try_from(time.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    /// The next runs of a cron entry, as UTC.
    fn runs(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::cron("x", expression, zone).unwrap().body(());
        let from = SystemTime::UNIX_EPOCH + Duration::from_millis(ms(from));
        let [(_, times)] = &schedule.upcoming(from, count)[..] else { panic!("one entry") };
        times.iter().map(|time| Timestamp::try_from(*time).unwrap().to_string()).collect()
    }

    #[test]
    fn a_fixed_time_in_a_gap_comes_right_after_it() {
        let berlin = runs("30 2 * * *", "Europe/Berlin", "2027-03-27T00:00:00Z", 3);
        assert_eq!(berlin, ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]);
        let new_york = runs("30 2 * * *", "America/New_York", "2027-03-13T00:00:00Z", 3);
        assert_eq!(new_york, ["2027-03-13T07:30:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]);
    }

    #[test]
    fn a_fixed_time_in_an_overlap_comes_once_and_a_repeated_time_follows_the_clock() {
        let berlin = runs("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", 2);
        assert_eq!(berlin, ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]);
        let new_york = runs("30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", 2);
        assert_eq!(new_york, ["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"]);
        let half_hours = runs("*/30 * * * *", "Europe/Berlin", "2027-10-30T23:59:00Z", 5);
        let expected = ["00:00", "00:30", "01:00", "01:30", "02:00"];
        assert_eq!(half_hours, expected.map(|time| format!("2027-10-31T{time}:00Z")));
    }

    #[test]
    fn cron_expressions_have_the_dialect_of_the_guide() {
        let days = |expression: &str, from: &str| {
            let times = runs(expression, "UTC", &format!("{from}T00:00:00Z"), 3);
            times.iter().map(|time| time[..10].to_owned()).collect::<Vec<_>>()
        };
        // 2027-08-01 is a Sunday.
        let sundays = ["2027-08-08", "2027-08-15", "2027-08-22"];
        for sunday in ["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "@weekly"] {
            assert_eq!(days(sunday, "2027-08-01"), sundays, "{sunday}");
        }
        let cases = [
            ("@daily", ["2027-08-02", "2027-08-03", "2027-08-04"]),
            ("@monthly", ["2027-09-01", "2027-10-01", "2027-11-01"]),
            ("@yearly", ["2028-01-01", "2029-01-01", "2030-01-01"]),
            ("0 0 * JAN,FEB MON", ["2028-01-03", "2028-01-10", "2028-01-17"]),
            ("0 0 L * *", ["2027-08-31", "2027-09-30", "2027-10-31"]),
            // The 15th of August is a Sunday.
            ("0 0 15W * *", ["2027-08-16", "2027-09-15", "2027-10-15"]),
            ("0 0 * * MON#2", ["2027-08-09", "2027-09-13", "2027-10-11"]),
            ("0 0 4 * MON", ["2027-08-02", "2027-08-04", "2027-08-09"]),
            ("0 0 2-8/3 * *", ["2027-08-02", "2027-08-05", "2027-08-08"]),
        ];
        for (expression, expected) in cases {
            assert_eq!(days(expression, "2027-08-01"), expected, "{expression}");
        }
        let hourly = runs("@hourly", "UTC", "2027-08-01T00:00:00Z", 2);
        assert_eq!(hourly, ["2027-08-01T01:00:00Z", "2027-08-01T02:00:00Z"]);
        assert!(Schedule::cron("x", "5/15 * * * *", "UTC").is_err());
    }

    #[test]
    fn seconds_may_come_first() {
        let runs = runs("*/20 * * * * *", "UTC", "2027-01-01T00:00:00Z", 3);
        assert_eq!(runs, ["00:20", "00:40", "01:00"].map(|time| format!("2027-01-01T00:{time}Z")));
    }

    #[test]
    fn missed_ticks_are_skipped_or_made_up_for_until_they_are_too_old() {
        const HOUR: u64 = 3_600_000;
        let (last, now) = (ms("2027-01-01T12:00:00Z"), ms("2027-01-01T15:30:00Z"));
        let hourly = || Schedule::cron("x", "0 * * * *", "UTC").unwrap();
        let every = || Schedule::every("x", Duration::from_secs(3600)).unwrap();
        let next = |entry: ScheduleEntry, now| entry.0.next(last, now).map(|tick| tick - last);
        for missed in [Missed::Skip, Missed::Last, Missed::All] {
            for entry in [hourly(), every()] {
                let late = next(entry.missed(missed), last + HOUR + LATE_MS);
                assert_eq!(late, Some(HOUR), "{missed:?}: late, but not missed");
            }
        }
        for entry in [hourly, every] {
            assert_eq!(next(entry().missed(Missed::Skip), now), Some(4 * HOUR));
            assert_eq!(next(entry().missed(Missed::Last), now), Some(3 * HOUR));
            assert_eq!(next(entry().missed(Missed::All), now), Some(HOUR));
            let two_hours = Duration::from_secs(2 * 3600);
            assert_eq!(next(entry().missed(Missed::All).max_age(two_hours), now), Some(2 * HOUR));
            let minute = Duration::from_secs(60);
            assert_eq!(next(entry().missed(Missed::Last).max_age(minute), now), Some(4 * HOUR));
        }
        assert_eq!(next(hourly(), now), Some(3 * HOUR), "cron makes up for the last one");
        assert_eq!(next(every(), now), Some(4 * HOUR), "every skips");
    }

    #[test]
    fn a_tick_in_time_comes_before_the_missed_ticks_of_another_entry() {
        let now = ms("2027-01-01T15:30:00Z");
        let seconds = Schedule::every("seconds", Duration::from_secs(1)).unwrap().missed(Missed::All);
        let minutes = Schedule::every("minutes", Duration::from_secs(60)).unwrap();
        let mut schedule = seconds.body(()).and(minutes.body(()));
        schedule.entries[0].timing.last = Some(now - 3_600_000);
        schedule.entries[1].timing.last = Some(now - 60_000);
        assert_eq!(schedule.next_tick(now), Some(NextTick { due: now, tick: now, index: 1 }));
        schedule.entries[1].timing.last = Some(now);
        let missed = now - 3_599_000;
        assert_eq!(schedule.next_tick(now), Some(NextTick { due: missed, tick: missed, index: 0 }));
    }

    #[test]
    fn an_interval_goes_on_after_a_clock_that_was_ahead_is_set_right() {
        let now = ms("2027-01-01T15:30:00Z");
        let every = Schedule::every("x", Duration::from_secs(60)).unwrap();
        assert_eq!(every.0.next(now + 3_600_000, now), Some(now + 60_000));
        assert_eq!(every.0.next(now + 60_000, now), Some(now + 120_000), "one interval may be ahead");
    }

    #[tokio::test]
    async fn an_entry_with_more_messages_than_may_wait_fails_alone_and_by_its_name() {
        let mut crowd = Schedule::every("crowd", Duration::from_secs(1)).unwrap().each(|_| [1, 2, 3]);
        let failure = crowd.entries[0].publish(1, None, 2).await.unwrap_err();
        assert!(failure.reason().starts_with("schedule entry 'crowd': "), "{failure}");
        assert!(crowd.entries[0].publish(1, None, 3).await.is_ok());
    }

    #[test]
    fn what_can_never_come_is_refused_with_one_clear_error() {
        let error = |entry: Result<ScheduleEntry>| entry.expect_err("an error").to_string();
        let second = Duration::from_secs(1);
        let cases = [
            (
                Schedule::cron("x", "61 * * * *", "UTC"),
                "cron expression: expected fields like '30 2 * * *' (Component error: Number out of bounds.), got \
                 '61 * * * *'",
            ),
            (
                Schedule::cron("x", "0 0 30 2 *", "UTC"),
                "cron expression: expected times that come some day, got '0 0 30 2 *'",
            ),
            (
                Schedule::cron("x", "0 0 * * *", "Europe/Atlantis"),
                "time zone: expected an IANA name such as Europe/Berlin, got 'Europe/Atlantis'",
            ),
            (Schedule::every("", second), "name of a schedule entry: expected 1 to 512 bytes, got '0 bytes'"),
            (
                Schedule::every("x".repeat(513), second),
                "name of a schedule entry: expected 1 to 512 bytes, got '513 bytes'",
            ),
            (Schedule::every("x", Duration::ZERO), "interval: expected 10ms to 10 years, got '0ns'"),
        ];
        for (entry, expected) in cases {
            assert_eq!(error(entry), expected);
        }
        let entry = |name: &str| Schedule::every(name, second).unwrap().body(1);
        assert!(entry("a").and(entry("b")).check().is_ok());
        let twice = entry("a").and(entry("b")).and(entry("a")).check().unwrap_err();
        assert_eq!(twice.to_string(), "schedule: expected entries with different names, got 'a, a'");
        let many = |count: usize| {
            let all = (1..count).map(|n| entry(&n.to_string()));
            all.fold(entry("0"), Schedule::and).check()
        };
        assert!(many(1000).is_ok());
        assert_eq!(
            many(1001).unwrap_err().to_string(),
            "schedule: expected at most 1000 entries, got '1001'"
        );
    }
}
