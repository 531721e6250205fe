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
mod due;
mod timing;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::feed::Batch;
use crate::source::MAX_TICKS;
pub use definition::{Definition, Times};
pub(crate) use timing::Rhythm;
use timing::Timing;

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

#[cfg(test)]
mod tests;
