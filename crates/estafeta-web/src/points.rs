//! The history of a ring as points of charts. Rates are differences between samples, and quantiles come from counts.

use estafeta::{HistoryGap, HistoryRange, Latencies, RingHistory, Sample};
use serde::Serialize;
use utoipa::ToSchema;

use crate::shown_id::ShownId;

/// The charts of a ring.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartHistory {
    /// `5m`, `1h` or `24h`.
    pub range: String,
    /// The time that one point covers.
    pub step_ms: u64,
    /// The begin of the range, in milliseconds of Redis' clock.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
    /// At most 360 points, oldest first.
    pub points: Vec<ChartPoint>,
    /// The times in which nobody sampled the ring.
    pub gaps: Vec<ChartGap>,
}

/// A time in which nobody sampled the ring.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartGap {
    pub from_ms: u64,
    pub to_ms: u64,
    /// Why, in words.
    pub why: String,
}

/// One point of the charts. A rate is absent if it is not known: for the first sample, after a gap, and if a count fell.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartPoint {
    /// In milliseconds of Redis' clock.
    pub time_ms: u64,
    /// The term in office. In a ring with partitions, the sum of their terms.
    pub epoch: u64,
    /// The generator. In a ring with partitions, that of the first one.
    pub member: ShownId,
    /// Messages published per second.
    pub generated: Option<f64>,
    /// Messages settled per second: handled successfully, or failed for good.
    pub handled: Option<f64>,
    /// Messages per second that failed for good.
    pub failed: Option<f64>,
    pub waiting: u64,
    pub later: u64,
    pub in_flight: u64,
    pub oldest_waiting_ms: u64,
    /// Quantiles 0.5, 0.95 and 0.99 of the time until handling began. Absent if no message was counted.
    pub wait_ms: Option<[f64; 3]>,
    /// The same of the time that handlers took.
    pub handling_ms: Option<[f64; 3]>,
}

impl ChartHistory {
    pub fn new(history: &RingHistory) -> Self {
        let length_ms = u64::try_from(history.range.length().as_millis()).unwrap_or(u64::MAX);
        let befores = std::iter::once(None).chain(history.samples.iter().map(Some));
        let points =
            befores.zip(&history.samples).map(|(before, sample)| point(before, sample, &history.gaps));
        Self {
            range: history.range.to_string(),
            step_ms: history.width_ms,
            from_ms: history.time_ms.saturating_sub(length_ms),
            to_ms: history.time_ms,
            points: points.collect(),
            gaps: history.gaps.iter().map(ChartGap::new).collect(),
        }
    }
}

impl ChartGap {
    fn new(gap: &HistoryGap) -> Self {
        Self { from_ms: gap.from_ms, to_ms: gap.to_ms, why: gap.reason.to_string() }
    }
}

/// The newest complete point of the finest history.
pub fn newest(history: &RingHistory) -> Option<ChartPoint> {
    debug_assert_eq!(history.range, HistoryRange::FiveMinutes);
    let (sample, earlier) = history.samples.split_last()?;
    Some(point(earlier.last(), sample, &history.gaps))
}

fn point(before: Option<&Sample>, sample: &Sample, gaps: &[HistoryGap]) -> ChartPoint {
    let is_between =
        |gap: &HistoryGap, before: &Sample| gap.from_ms < sample.time_ms && before.time_ms < gap.to_ms;
    let before = before.filter(|before| !gaps.iter().any(|gap| is_between(gap, before)));
    let rates = before.and_then(|before| sample.rates_since(before));
    ChartPoint {
        time_ms: sample.time_ms,
        epoch: sample.epoch.0,
        member: sample.member.into(),
        generated: rates.map(|rates| rates.published),
        handled: rates.map(|rates| rates.done + rates.failed),
        failed: rates.map(|rates| rates.failed),
        waiting: sample.waiting,
        later: sample.later,
        in_flight: sample.in_flight,
        oldest_waiting_ms: sample.oldest_waiting_ms,
        wait_ms: quantiles(&sample.wait),
        handling_ms: quantiles(&sample.handling),
    }
}

fn quantiles(times: &Latencies) -> Option<[f64; 3]> {
    let ms = |quantile| times.quantile(quantile).map(|time| time.as_secs_f64() * 1000.0);
    Some([ms(0.5)?, ms(0.95)?, ms(0.99)?])
}
