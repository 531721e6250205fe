//! The recent past of a ring, as its generators sampled it.
//!
//! A sample holds the counts of the ledger, which only grow. So rates are differences between two samples, and a gap
//! between them loses nothing. Readers compute everything else here: gaps and their reasons, rates, and coarser samples.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::identity::{Epoch, MemberId};
use crate::keys::Keys;
use crate::latency::Latencies;
use crate::redis::Store;

/// How far apart two samples may be before nobody sampled in between. They are taken once per second.
const LONGEST_PAUSE_MS: u64 = 2_500;

/// How much of the past to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HistoryRange {
    /// The last 5 minutes, one sample per second: `5m`.
    #[serde(rename = "5m")]
    FiveMinutes,
    /// The last hour, one sample per 10 seconds: `1h`.
    #[serde(rename = "1h")]
    Hour,
    /// The last 24 hours, one sample per 4 minutes: `24h`.
    #[serde(rename = "24h")]
    Day,
}

impl HistoryRange {
    /// Every range, the shortest first.
    pub const ALL: [Self; 3] = [Self::FiveMinutes, Self::Hour, Self::Day];

    /// The time that the range covers.
    pub fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::FiveMinutes => 300,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        })
    }

    /// The time that one sample covers.
    pub fn width(self) -> Duration {
        Duration::from_secs(match self {
            Self::FiveMinutes => 1,
            Self::Hour => 10,
            Self::Day => 240,
        })
    }

    fn list(self, keys: &Keys) -> &str {
        match self {
            Self::FiveMinutes => &keys.seconds,
            Self::Hour => &keys.tens,
            Self::Day => &keys.minutes,
        }
    }
}

impl fmt::Display for HistoryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
            Self::Day => "24h",
        })
    }
}

impl FromStr for HistoryRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let range = Self::ALL.into_iter().find(|range| range.to_string() == text);
        range.ok_or_else(|| Error::expected("range", "5m, 1h or 24h", text))
    }
}

/// The recent past of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RingHistory {
    /// How much of the past this is.
    pub range: HistoryRange,
    /// The time that one sample covers at most.
    pub width_ms: u64,
    /// When it was read, in milliseconds of Redis' clock.
    pub time_ms: u64,
    /// The samples, oldest first, at most 360.
    pub samples: Vec<Sample>,
    /// The times between two samples, or after the last one, in which no member sampled the ring.
    pub gaps: Vec<HistoryGap>,
}

/// A ring during one second, ten seconds or four minutes.
///
/// The counts are those of the ring since it began, at the end of this time. `waiting`, `in_flight` and
/// `oldest_waiting_ms` are the highest values that were seen during this time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Sample {
    /// When it was first sampled, in milliseconds of Redis' clock.
    pub from_ms: u64,
    /// When it was last sampled.
    pub time_ms: u64,
    /// The term in office. If it differs from the sample before, the office has changed hands.
    pub epoch: Epoch,
    /// The member that sampled: the generator, or another one if no member may generate.
    pub member: MemberId,
    /// How many members the ring had, including readers.
    pub members: u64,
    /// Messages ever published.
    pub published: u64,
    /// Messages that were handled successfully.
    pub done: u64,
    /// Messages that became dead letters, each time.
    pub failed: u64,
    /// How often a handler failed and its message was put off for another attempt.
    pub retries: u64,
    /// Messages that went back to the queue because their holder died or left.
    pub returned: u64,
    /// Members that were declared dead.
    pub buried: u64,
    /// How often the office passed from one member to another.
    pub takeovers: u64,
    /// Messages in the queue.
    pub waiting: u64,
    /// Messages that wait for a time.
    pub later: u64,
    /// Messages that handlers hold.
    pub in_flight: u64,
    /// For how long the oldest message has waited.
    pub oldest_waiting_ms: u64,
    /// The longest time in which Redis did not answer the member that sampled.
    pub silence_ms: u64,
    /// How long messages waited for their first handler, as far as nodes handed it over during this time.
    pub wait: Latencies,
    /// How long handlers took, as far as nodes handed it over during this time.
    pub handling: Latencies,
}

/// A time in which no member sampled the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HistoryGap {
    /// The time of the last sample before it, in milliseconds of Redis' clock.
    pub from_ms: u64,
    /// The time of the first sample after it. For a gap that goes on, the time at which the history was read.
    pub to_ms: u64,
    /// Why no member sampled.
    pub reason: GapReason,
}

/// Why no member sampled a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum GapReason {
    /// No member was in office, or the one in office was dead.
    NobodyInOffice,
    /// Redis did not answer.
    NoRedis,
    /// The same member stayed in office and Redis answered others. That member was frozen, cut off, or is of an older
    /// version that does not sample.
    NotSampled,
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyInOffice => "nobody in office",
            Self::NoRedis => "no Redis",
            Self::NotSampled => "not sampled",
        })
    }
}

/// How much the counts of a ring grew per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CountRates {
    /// Messages published.
    pub published: f64,
    /// Messages handled successfully.
    pub done: f64,
    /// Messages that became dead letters.
    pub failed: f64,
    /// Messages put off for another attempt.
    pub retries: f64,
}

impl Sample {
    /// How much the counts grew per second since an earlier sample. None if one of them fell: Redis was rolled back, or
    /// the ring began anew. None as well if no time has passed.
    pub fn rates_since(&self, before: &Self) -> Option<CountRates> {
        let ms = self.time_ms.checked_sub(before.time_ms).filter(|ms| *ms > 0)?;
        let per_second = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 * 1_000.0 / ms as f64);
        Some(CountRates {
            published: per_second(self.published, before.published)?,
            done: per_second(self.done, before.done)?,
            failed: per_second(self.failed, before.failed)?,
            retries: per_second(self.retries, before.retries)?,
        })
    }

    /// Reads a sample as Redis stores it. None if it is none.
    pub(crate) fn parse(element: &str) -> Option<Self> {
        let words: Vec<&str> = element.split(' ').collect();
        let (numbers, latencies) = words.split_at_checked(18)?;
        let [wait, handling] = *latencies else { return None };
        // The number at 16 is for `sample` alone: how long the queue was not seen empty.
        let number = |at: usize| numbers[at].parse::<u64>().ok();
        Some(Self {
            from_ms: number(0)?.saturating_sub(number(1)?),
            time_ms: number(0)?,
            epoch: Epoch(number(2)?),
            member: MemberId(number(3)?),
            members: number(4)?,
            published: number(5)?,
            done: number(6)?,
            failed: number(7)?,
            retries: number(8)?,
            returned: number(9)?,
            buried: number(10)?,
            takeovers: number(11)?,
            waiting: number(12)?,
            later: number(13)?,
            in_flight: number(14)?,
            oldest_waiting_ms: number(15)?,
            silence_ms: number(17)?,
            wait: Latencies::parse(wait)?,
            handling: Latencies::parse(handling)?,
        })
    }

    /// Makes one sample of this one and the next.
    fn absorb(&mut self, next: Self) {
        let (mut wait, mut handling) = (std::mem::take(&mut self.wait), std::mem::take(&mut self.handling));
        wait.merge(&next.wait);
        handling.merge(&next.handling);
        *self = Self {
            from_ms: self.from_ms,
            waiting: self.waiting.max(next.waiting),
            in_flight: self.in_flight.max(next.in_flight),
            oldest_waiting_ms: self.oldest_waiting_ms.max(next.oldest_waiting_ms),
            silence_ms: self.silence_ms.max(next.silence_ms),
            wait,
            handling,
            ..next
        };
    }
}

impl RingHistory {
    /// `is_vacant` is whether nobody is in office now.
    pub(super) fn new(range: HistoryRange, now_ms: u64, is_vacant: bool, found: Vec<Sample>) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (width_ms, since_ms) = (millis(range.width()), now_ms.saturating_sub(millis(range.length())));
        let found: Vec<Sample> = found.into_iter().filter(|sample| sample.time_ms > since_ms).collect();
        let later = |at: usize| found.get(at + 1..).unwrap_or_default();
        let gaps = found.iter().enumerate().filter_map(|(at, before)| gap(before, later(at)));
        let mut gaps: Vec<HistoryGap> = gaps.collect();
        if let Some(last) = found.last().filter(|last| now_ms.saturating_sub(last.time_ms) > LONGEST_PAUSE_MS)
        {
            let reason = if is_vacant { GapReason::NobodyInOffice } else { GapReason::NotSampled };
            gaps.push(HistoryGap { from_ms: last.time_ms, to_ms: now_ms, reason });
        }
        let mut samples: Vec<Sample> = Vec::new();
        for sample in found {
            match samples.last_mut() {
                // A sample on either side of a gap stays on its side.
                Some(last)
                    if last.time_ms / width_ms == sample.time_ms / width_ms
                        && gap(last, std::slice::from_ref(&sample)).is_none() =>
                {
                    last.absorb(sample);
                }
                _ => samples.push(sample),
            }
        }
        let most = usize::try_from(millis(range.length()) / width_ms).unwrap_or(usize::MAX);
        samples.drain(..samples.len().saturating_sub(most));
        Self { range, width_ms, time_ms: now_ms, samples, gaps }
    }
}

/// The gap between a sample and the later ones, if there is one.
fn gap(before: &Sample, later: &[Sample]) -> Option<HistoryGap> {
    let after = later.first()?;
    let (from_ms, to_ms) = (before.time_ms, after.from_ms);
    let length = to_ms.checked_sub(from_ms).filter(|length| *length > LONGEST_PAUSE_MS)?;
    // The member that samples next knows whether Redis answered it during that time. Its first sample may be a call from
    // before the gap that Redis answered late.
    let next = later.iter().take_while(|sample| sample.from_ms <= to_ms + 2 * LONGEST_PAUSE_MS);
    let silence = next.map(|sample| sample.silence_ms).max().unwrap_or(0);
    let reason = if silence >= length / 2 {
        GapReason::NoRedis
    } else if after.epoch != before.epoch {
        GapReason::NobodyInOffice
    } else {
        GapReason::NotSampled
    };
    Some(HistoryGap { from_ms, to_ms, reason })
}

impl Store {
    pub async fn history(&self, range: HistoryRange) -> Result<RingHistory> {
        let mut list = redis::cmd("LRANGE");
        list.arg(range.list(self.keys())).arg(0).arg(-1);
        let elements: Vec<Vec<u8>> = self.read(&list).await?;
        let office: Option<String> =
            self.read(redis::cmd("HGET").arg(&self.keys().ledger).arg("member")).await?;
        let (seconds, micros): (u64, u64) = self.read(&redis::cmd("TIME")).await?;
        // Another program may have put something else into the list.
        let read = |element: &Vec<u8>| std::str::from_utf8(element).ok().and_then(Sample::parse);
        let samples = elements.iter().filter_map(read).collect();
        Ok(RingHistory::new(range, seconds * 1_000 + micros / 1_000, office.is_none(), samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_ms: u64, epoch: u64, published: u64) -> Sample {
        let text = format!("{time_ms} 0 {epoch} 1 3 {published} 0 0 0 0 0 0 4 0 2 70 -1 0 3:1 -");
        Sample::parse(&text).expect("a sample")
    }

    fn history(range: HistoryRange, now_ms: u64, samples: Vec<Sample>) -> RingHistory {
        RingHistory::new(range, now_ms, false, samples)
    }

    #[test]
    fn rates_are_differences_and_a_count_that_fell_is_a_break() {
        let (one, other) = (sample(10_000, 1, 100), sample(12_000, 1, 400));
        assert_eq!(other.rates_since(&one).map(|rates| rates.published), Some(150.0));
        assert_eq!(sample(12_000, 1, 99).rates_since(&one), None, "a count fell");
        assert_eq!(one.rates_since(&one), None, "no time has passed");
        assert_eq!(one.rates_since(&other), None, "the clock was set back");
    }

    #[test]
    fn a_gap_has_its_reason() {
        let mut redis_back = sample(40_000, 2, 5);
        redis_back.silence_ms = 14_000;
        let samples = vec![
            sample(1_000, 1, 0),
            sample(2_900, 1, 0),
            sample(9_000, 1, 0),
            sample(20_000, 2, 0),
            redis_back.clone(),
        ];
        let gaps = history(HistoryRange::FiveMinutes, 41_000, samples).gaps;
        let gaps: Vec<_> = gaps.iter().map(|gap| (gap.from_ms, gap.to_ms, gap.reason)).collect();
        let expected = [
            (2_900, 9_000, GapReason::NotSampled),
            (9_000, 20_000, GapReason::NobodyInOffice),
            (20_000, 40_000, GapReason::NoRedis),
        ];
        assert_eq!(gaps, expected);
    }

    #[test]
    fn a_call_that_redis_answered_late_does_not_hide_the_reason() {
        let (late, mut next) = (sample(20_000, 1, 0), sample(21_000, 1, 0));
        next.silence_ms = 11_000;
        let read =
            history(HistoryRange::FiveMinutes, 21_500, vec![sample(9_000, 1, 0), late.clone(), next.clone()]);
        assert_eq!(read.gaps[0].reason, GapReason::NoRedis);
        // That of a later gap does not count.
        next.from_ms = 26_000;
        let read = history(HistoryRange::FiveMinutes, 26_500, vec![sample(9_000, 1, 0), late, next]);
        assert_eq!(read.gaps[0].reason, GapReason::NotSampled);
    }

    #[test]
    fn a_gap_that_goes_on_ends_when_the_history_is_read() {
        for (is_vacant, reason) in [(true, GapReason::NobodyInOffice), (false, GapReason::NotSampled)] {
            let read = RingHistory::new(HistoryRange::Hour, 9_000, is_vacant, vec![sample(2_000, 1, 0)]);
            assert_eq!(read.gaps, [HistoryGap { from_ms: 2_000, to_ms: 9_000, reason }]);
        }
        assert_eq!(history(HistoryRange::Hour, 4_000, vec![sample(2_000, 1, 0)]).gaps, []);
    }

    #[test]
    fn a_day_has_one_sample_for_four_minutes_with_the_highest_values() {
        let minute = |at: u64| {
            let mut minute = sample(at * 60_000 + 59_500, 1, at);
            (minute.from_ms, minute.waiting, minute.in_flight) = (at * 60_000 + 500, at % 7, at % 5);
            minute
        };
        let read = history(HistoryRange::Day, 1_440 * 60_000, (0..1_440).map(minute).collect());
        assert_eq!((read.samples.len(), read.gaps.len()), (360, 0));
        let first = &read.samples[0];
        assert_eq!((first.from_ms, first.time_ms, first.published), (500, 239_500, 3));
        assert_eq!((first.waiting, first.in_flight, first.wait.total()), (3, 3, 4));
        assert_eq!(read.samples[1].waiting, 6, "of 4, 5, 6 and 0");
    }

    #[test]
    fn samples_on_both_sides_of_a_gap_stay_apart() {
        let read = history(HistoryRange::Day, 200_000, vec![sample(60_000, 1, 1), sample(180_000, 2, 2)]);
        assert_eq!(read.samples.len(), 2);
        assert_eq!(read.gaps.len(), 2, "one between them, one after them");
    }

    #[test]
    fn only_samples_within_the_range_are_shown() {
        let samples = (0..400).map(|second| sample(second * 1_000, 1, second)).collect();
        let read = history(HistoryRange::FiveMinutes, 399_500, samples);
        assert_eq!((read.samples.len(), read.samples[0].published), (300, 100));
    }

    #[test]
    fn what_is_no_sample_is_not_read() {
        for text in [
            "",
            "1 2 3",
            "x",
            "1 0 1 1 3 0 0 0 0 0 0 0 4 0 2 70 -1 0 3:1",
            "1 0 1 1 3 0 0 0 0 0 0 0 4 0 2 70 -1 0 - - -",
        ] {
            assert_eq!(Sample::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_range_is_named_by_its_length() {
        for range in HistoryRange::ALL {
            assert_eq!(range.to_string().parse::<HistoryRange>().unwrap(), range);
            assert!(range.length().as_secs() / range.width().as_secs() <= 360);
        }
        let refused = "7m".parse::<HistoryRange>().unwrap_err().to_string();
        assert!(refused.contains("5m, 1h or 24h"), "{refused}");
    }
}
