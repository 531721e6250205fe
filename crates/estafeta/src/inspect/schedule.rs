//! The schedule of a ring, as its last generator stored it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::Result;
use crate::redis::Store;
use crate::schedule::{Definition, Rhythm};

/// An entry of the schedule that the last generator of a ring has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedEntry {
    /// Its name.
    pub name: String,
    /// What it is. None if this version does not understand what is stored, for example because a newer one wrote it.
    pub definition: Option<Definition>,
    /// What is stored, as it is.
    pub text: String,
    /// Its last tick. If it had none yet, the time at which the entry began. None if no generator has begun it.
    pub last_tick: Option<Moment>,
    /// Whether a message of it has no outcome yet. Only known of entries that [skip](crate::Overlap::Skip) overlapping
    /// ticks, and false for others.
    pub is_open: bool,
    /// The next times at which it comes, after Redis' time. Empty without a definition.
    pub upcoming: Vec<Moment>,
}

/// A time of Redis' clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// In milliseconds since 1970.
    pub ms: u64,
    /// On the clocks of the entry's time zone, with the distance from UTC: `2027-03-28T03:00:00+02:00`. An entry without
    /// a zone has UTC.
    pub local: String,
}

impl Moment {
    fn new(ms: u64, zone: &TimeZone) -> Option<Self> {
        let time = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let local = time.display_with_offset(zone.to_offset(time)).to_string();
        Some(Self { ms, local })
    }
}

impl PlannedEntry {
    /// `last` is the stored tick, and `now` Redis' time.
    fn new(name: &[u8], text: &[u8], last: Option<u64>, is_open: bool, now: u64, count: usize) -> Self {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (name, text) = (lossy(name), lossy(text));
        let read = |definition: Definition| Some((Rhythm::new(&definition.times).ok()?, definition));
        let (rhythm, definition) = Definition::parse(&text).and_then(read).unzip();
        let zone = rhythm.as_ref().map_or(TimeZone::UTC, Rhythm::zone);
        let upcoming = rhythm.iter().flat_map(|rhythm| rhythm.upcoming(last, now));
        Self {
            upcoming: upcoming.take(count).filter_map(|ms| Moment::new(ms, &zone)).collect(),
            last_tick: last.and_then(|ms| Moment::new(ms, &zone)),
            name,
            definition,
            text,
            is_open,
        }
    }
}

impl Store {
    /// Returns the entries of the stored schedule by name, each with its next `count` times.
    pub async fn schedule(&self, count: usize) -> Result<Vec<PlannedEntry>> {
        let plan = self.plan().await?;
        let (_, ticks) = self.progress().await?;
        let open: BTreeSet<Vec<u8>> = self.open_messages().await?.into_values().collect();
        let (seconds, micros): (u64, u64) = self.read(&redis::cmd("TIME")).await?;
        let now = seconds * 1000 + micros / 1000;
        let number = |bytes: &Vec<u8>| std::str::from_utf8(bytes).ok()?.parse().ok();
        let entry = |(name, text): (&Vec<u8>, &Vec<u8>)| {
            let last = ticks.get(name).and_then(number);
            PlannedEntry::new(name, text, last, open.contains(name), now, count)
        };
        Ok(plan.iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, last: Option<u64>, now: &str, count: usize) -> PlannedEntry {
        let now = now.parse::<Timestamp>().unwrap().as_millisecond();
        PlannedEntry::new(b"x", text.as_bytes(), last, false, u64::try_from(now).unwrap(), count)
    }

    fn locals(entry: &PlannedEntry) -> Vec<&str> {
        entry.upcoming.iter().map(|moment| moment.local.as_str()).collect()
    }

    #[test]
    fn the_next_times_of_a_cron_entry_are_those_of_its_zone() {
        let text =
            r#"{"cron":"30 2 * * *","zone":"Europe/Berlin","missed":"last","maxAgeMs":1,"overlap":"skip"}"#;
        let nightly = entry(text, Some(0), "2027-03-27T01:30:00Z", 2);
        assert_eq!(locals(&nightly), ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]);
        assert_eq!(nightly.upcoming[0].ms, 1_806_195_600_000);
        assert_eq!(nightly.last_tick.map(|tick| tick.local).as_deref(), Some("1970-01-01T01:00:00+01:00"));
        assert_eq!(locals(&entry(text, None, "2027-03-27T01:29:59.999Z", 1)), ["2027-03-27T02:30:00+01:00"]);
    }

    #[test]
    fn the_next_times_of_an_interval_keep_the_phase_of_its_last_tick() {
        let text = r#"{"everyMs":600000,"missed":"skip","maxAgeMs":1,"overlap":"queue"}"#;
        let last = Some(1_800_000_000_123);
        let every = entry(text, last, "2027-01-15T09:00:00.123Z", 2);
        assert_eq!(locals(&every), ["2027-01-15T09:10:00.123+00:00", "2027-01-15T09:20:00.123+00:00"]);
        let ahead = entry(text, last, "2027-01-15T07:00:00Z", 1);
        assert_eq!(locals(&ahead), ["2027-01-15T08:10:00.123+00:00"], "Redis' clock was set back");
        assert_eq!(locals(&entry(text, None, "2027-01-15T07:00:00Z", 1)), ["2027-01-15T07:10:00+00:00"]);
        assert_eq!(locals(&entry(text, last, "2027-01-15T07:00:00Z", 0)), [""; 0]);
    }

    #[test]
    fn what_is_not_understood_is_shown_as_it_is_and_has_no_times() {
        let valid = r#"{"cron":"30 2 * * *","zone":"UTC","missed":"last","maxAgeMs":1,"overlap":"skip"}"#;
        let unknown = [
            "soon\n",
            &valid.replace("UTC", "Europe/Atlantis"),
            &valid.replace("30 2", "61 2"),
            &valid.replace("30 2 *", "0 0 30").replace("* *\"", "2 *\""),
            r#"{"everyMs":0,"missed":"skip","maxAgeMs":1,"overlap":"queue"}"#,
        ];
        for text in unknown {
            let shown = entry(text, Some(1000), "2027-01-15T07:00:00Z", 5);
            assert_eq!((shown.definition, shown.text.as_str(), shown.upcoming), (None, text, vec![]));
            assert_eq!(shown.last_tick.map(|tick| tick.local).as_deref(), Some("1970-01-01T00:00:01+00:00"));
        }
        let foreign = PlannedEntry::new(b"\xff", b"\xfe", None, true, 0, 5);
        assert_eq!((foreign.name.as_str(), foreign.text.as_str()), ("\u{fffd}", "\u{fffd}"));
    }
}
