//! The histories of all partitions of a ring as one.
//!
//! Each partition is sampled by its own generator, at different times. The samples of the first partition give the times.
//! The counts of the others are interpolated, so that a rate shows no dips where the times do not meet. What comes and
//! goes, and latencies, belong to the sample of the same second, ten seconds or four minutes.

use super::history::{GapReason, HistoryGap, RingHistory, Sample};

/// The counts of a sample, which only grow.
type Counts = [u64; 7];

impl RingHistory {
    /// The histories of all partitions of a ring together, in their order: counts and latencies add up, and the age of
    /// the oldest message is the highest one.
    ///
    /// A time in which one of the partitions was not sampled is a gap, and has no samples, because the sums are not
    /// known.
    pub fn of_partitions(mut parts: Vec<Self>) -> Option<Self> {
        if parts.len() < 2 {
            return parts.pop();
        }
        let time_ms = parts.iter().map(|part| part.time_ms).max()?;
        let (range, width_ms) = (parts[0].range, parts[0].width_ms);
        let gaps = all_gaps(&parts, time_ms);
        let samples = all_samples(&parts, width_ms, &gaps).unwrap_or_default();
        Some(Self { range, width_ms, time_ms, samples, gaps })
    }
}

/// The gaps of all partitions, oldest first. Those that meet are one.
fn all_gaps(parts: &[RingHistory], now_ms: u64) -> Vec<HistoryGap> {
    let mut found: Vec<HistoryGap> = parts.iter().flat_map(|part| part.gaps.iter().copied()).collect();
    let first = parts.iter().filter_map(|part| part.samples.first()).map(|sample| sample.from_ms).min();
    if let Some(from_ms) = first.filter(|_| parts.iter().any(|part| part.samples.is_empty())) {
        // One partition has no sample in the whole range.
        found.push(HistoryGap { from_ms, to_ms: now_ms, reason: GapReason::NotSampled });
    }
    found.sort_by_key(|gap| gap.from_ms);
    let mut gaps: Vec<HistoryGap> = Vec::new();
    for gap in found {
        match gaps.last_mut() {
            Some(last) if gap.from_ms <= last.to_ms => last.to_ms = last.to_ms.max(gap.to_ms),
            _ => gaps.push(gap),
        }
    }
    gaps
}

/// None if a partition has no samples.
fn all_samples(parts: &[RingHistory], width_ms: u64, gaps: &[HistoryGap]) -> Option<Vec<Sample>> {
    let begins = parts.iter().map(|part| part.samples.first().map(|sample| sample.from_ms));
    let ends = parts.iter().map(|part| part.samples.last().map(|sample| sample.time_ms));
    let begin_ms = begins.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    let end_ms = ends.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
    let (first, others) = parts.split_first()?;
    let (mut samples, mut before): (Vec<Sample>, Option<&Sample>) = (Vec::new(), None);
    for sample in &first.samples {
        // The partitions are known together until the first of them ends.
        let time_ms = sample.time_ms.min(end_ms);
        let is_known = time_ms >= begin_ms
            && samples.last().is_none_or(|last| last.time_ms < time_ms)
            && !gaps.iter().any(|gap| gap.from_ms < time_ms && time_ms < gap.to_ms);
        if is_known {
            let counts = counts_at(&first.samples, time_ms)?;
            let mut whole = Sample {
                from_ms: sample.from_ms.min(time_ms),
                time_ms,
                member: sample.member.in_partition(0),
                ..with_counts(sample.clone(), counts)
            };
            let since = before.map(|before| before.time_ms / width_ms);
            let bucket = sample.time_ms / width_ms;
            for part in others {
                let is_meant = |other: &&Sample| {
                    let at = other.time_ms / width_ms;
                    at <= bucket && since.map_or(at == bucket, |since| at > since)
                };
                add(&mut whole, &part.samples, part.samples.iter().filter(is_meant))?;
            }
            samples.push(whole);
        }
        before = Some(sample);
    }
    Some(samples)
}

/// Adds another partition at the time of a sample. `meanwhile` are its samples that belong to this one.
fn add<'a>(
    whole: &mut Sample,
    part: &'a [Sample],
    meanwhile: impl Iterator<Item = &'a Sample> + Clone,
) -> Option<()> {
    // No sample of that second: the times do not meet. The next one shows how the partition was.
    let next = part.get(part.partition_point(|sample| sample.time_ms < whole.time_ms)).or(part.last())?;
    let latest = meanwhile.clone().last().unwrap_or(next);
    let highest = |of: fn(&Sample) -> u64| meanwhile.clone().map(of).max().unwrap_or_else(|| of(next));
    whole.epoch.0 += latest.epoch.0;
    whole.members += latest.members;
    whole.later += latest.later;
    whole.waiting += highest(|sample| sample.waiting);
    whole.in_flight += highest(|sample| sample.in_flight);
    whole.oldest_waiting_ms = whole.oldest_waiting_ms.max(highest(|sample| sample.oldest_waiting_ms));
    whole.silence_ms = whole.silence_ms.max(highest(|sample| sample.silence_ms));
    for sample in meanwhile {
        whole.wait.merge(&sample.wait);
        whole.handling.merge(&sample.handling);
    }
    let (sum, more) = (counts(whole), counts_at(part, whole.time_ms)?);
    let sum = std::array::from_fn(|index| sum[index].saturating_add(more[index]));
    *whole = with_counts(whole.clone(), sum);
    Some(())
}

fn counts(sample: &Sample) -> Counts {
    let Sample { published, done, failed, retries, returned, buried, takeovers, .. } = *sample;
    [published, done, failed, retries, returned, buried, takeovers]
}

fn with_counts(sample: Sample, counts: Counts) -> Sample {
    let [published, done, failed, retries, returned, buried, takeovers] = counts;
    Sample { published, done, failed, retries, returned, buried, takeovers, ..sample }
}

/// The counts at a time until the last sample.
fn counts_at(samples: &[Sample], time_ms: u64) -> Option<Counts> {
    let at = samples.partition_point(|sample| sample.time_ms < time_ms);
    let after = samples.get(at)?;
    let Some(before) = at.checked_sub(1).and_then(|at| samples.get(at)) else { return Some(counts(after)) };
    let share = (time_ms - before.time_ms) as f64 / (after.time_ms - before.time_ms) as f64;
    let (from, to) = (counts(before), counts(after));
    // A count that fell stays fallen: Redis was rolled back.
    let between = |index: usize| from[index] as f64 + (to[index] as f64 - from[index] as f64) * share;
    Some(std::array::from_fn(|index| between(index).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::history::HistoryRange;

    fn sample(time_ms: u64, length_ms: u64, published: u64, waiting: u64) -> Sample {
        let text = format!(
            "{time_ms} {length_ms} 2 1 3 {published} 0 0 0 0 0 0 {waiting} 0 2 {waiting}0 -1 0 3:1 -"
        );
        Sample::parse(&text).expect("a sample")
    }

    fn history(range: HistoryRange, now_ms: u64, samples: &[(u64, u64, u64)]) -> RingHistory {
        let length_ms = if range == HistoryRange::Day { 59_000 } else { 0 };
        let sample =
            |(time, published, waiting): &(u64, u64, u64)| sample(*time, length_ms, *published, *waiting);
        let samples = samples.iter().map(sample);
        RingHistory::new(range, now_ms, true, samples.collect())
    }

    fn short(whole: &RingHistory) -> Vec<(u64, u64)> {
        whole.samples.iter().map(|sample| (sample.time_ms, sample.published)).collect()
    }

    #[test]
    fn counts_are_added_at_the_same_times_although_samples_come_at_others() {
        let steady = |shift: u64| (0..5).map(|n| (1_000 * n + shift, 100 * n, n)).collect::<Vec<_>>();
        let parts =
            [steady(500), steady(900)].map(|part| history(HistoryRange::FiveMinutes, 5_000, &part)).to_vec();
        let whole = RingHistory::of_partitions(parts).unwrap();
        // At 0.5 s the second partition is not yet known. At 1.5 s it is 60 % of the way from 0 to 100.
        assert_eq!(short(&whole), [(1_500, 160), (2_500, 360), (3_500, 560), (4_500, 760)]);
        let rates = whole.samples.windows(2).map(|pair| pair[1].rates_since(&pair[0]).unwrap().published);
        assert!(rates.eq([200.0; 3]), "no dips");
        let one = &whole.samples[1];
        assert_eq!((one.waiting, one.in_flight, one.oldest_waiting_ms, one.members), (4, 4, 20, 6));
        assert_eq!((one.wait.total(), one.epoch.0, one.member.to_string().as_str()), (2, 4, "0:1"));
    }

    #[test]
    fn the_age_is_the_highest_and_every_latency_is_counted_once() {
        // One partition has no sample in the third second, the other one has none in the second.
        let first = history(HistoryRange::FiveMinutes, 5_000, &[(1_100, 0, 0), (2_100, 0, 0), (4_100, 0, 0)]);
        let second = history(
            HistoryRange::FiveMinutes,
            5_000,
            &[(1_000, 0, 7), (1_990, 0, 5), (3_005, 0, 9), (4_100, 0, 1)],
        );
        let whole = RingHistory::of_partitions(vec![first, second]).unwrap();
        let seen = whole.samples.iter().map(|sample| (sample.oldest_waiting_ms, sample.wait.total()));
        assert_eq!(seen.collect::<Vec<_>>(), [(70, 3), (90, 1), (90, 3)]);
    }

    #[test]
    fn a_gap_of_one_partition_is_a_gap_of_the_ring() {
        let whole = |silent: &[(u64, u64, u64)]| {
            let steady: Vec<_> = (1..=20).map(|n| (1_000 * n, 10 * n, 0)).collect();
            let parts = [&steady[..], silent];
            let parts = parts.map(|part| history(HistoryRange::FiveMinutes, 20_500, part)).to_vec();
            RingHistory::of_partitions(parts).unwrap()
        };
        let silent: Vec<_> = (1..=20).filter(|n| !(6..12).contains(n)).map(|n| (1_000 * n, n, 0)).collect();
        let gapped = whole(&silent);
        let gaps: Vec<_> = gapped.gaps.iter().map(|gap| (gap.from_ms, gap.to_ms)).collect();
        assert_eq!(gaps, [(5_000, 12_000)]);
        let times: Vec<u64> = gapped.samples.iter().map(|sample| sample.time_ms / 1_000).collect();
        assert_eq!(times, (1..=5).chain(12..=20).collect::<Vec<_>>());
        let ended = whole(&silent[..5]);
        assert_eq!((ended.samples.len(), ended.gaps[0].to_ms), (5, 20_500), "a gap that goes on");
        let never = whole(&[]);
        assert_eq!((never.samples.len(), never.gaps.len()), (0, 1));
        assert_eq!((never.gaps[0].from_ms, never.gaps[0].to_ms), (1_000, 20_500));
    }

    #[test]
    fn coarse_samples_stay_with_those_of_the_same_time() {
        let part = |shift: u64| {
            let all: Vec<_> = (1..=30).map(|minute| (60_000 * minute - shift, minute, minute % 8)).collect();
            history(HistoryRange::Day, 1_800_000, &all)
        };
        let whole = RingHistory::of_partitions(vec![part(700), part(300)]).unwrap();
        let alone = part(700);
        assert_eq!(whole.samples.len(), alone.samples.len());
        for (both, one) in whole.samples.iter().zip(&alone.samples) {
            assert_eq!((both.waiting, both.wait.total()), (2 * one.waiting, 2 * one.wait.total()));
        }
    }

    #[test]
    fn a_ring_without_partitions_has_its_own_history() {
        let one = history(HistoryRange::Hour, 5_000, &[(1_000, 1, 1), (2_000, 2, 2)]);
        assert_eq!(RingHistory::of_partitions(vec![one.clone()]), Some(one));
        assert_eq!(RingHistory::of_partitions(Vec::new()), None);
    }
}
