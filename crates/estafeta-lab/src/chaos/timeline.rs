//! The timeline of a run: one row for Redis and one row per node. A chart below shows messages per second.

use super::ChaosOutcome;
use super::attack::InjectedFault;
use super::plan::FaultKind;
use super::watch::CountSample;
use crate::plot::chart::{Scale, tick};
use crate::plot::svg::{SvgElement, group, inline, line, polyline, rect, text};
use crate::record::{RecordLine, Step};
use crate::text::grouped;

/// The geometry of the timeline, in SVG units.
const LEFT: f64 = 70.0;
const WIDTH: f64 = 1100.0;
const ROW: f64 = 26.0;
const TOP: f64 = 24.0;
const CHART: f64 = 150.0;
/// The length of time over which messages are counted.
const BUCKET_MS: u64 = 500;

/// The time axis, from the start of the run to its last recorded moment.
pub struct TimeAxis {
    from_ms: u64,
    until_ms: u64,
}

impl TimeAxis {
    pub fn of(outcome: &ChaosOutcome) -> Self {
        let lines = outcome.records.iter().flatten().map(|line| line.at_ms);
        let until = lines.chain(outcome.seen.samples.iter().map(|sample| sample.at_ms)).max();
        Self { from_ms: outcome.began_ms, until_ms: until.unwrap_or(0).max(outcome.began_ms + 1) }
    }

    fn x(&self, at_ms: u64) -> f64 {
        let length = (self.until_ms - self.from_ms) as f64;
        let scale = Scale::linear((0.0, length), (LEFT, LEFT + WIDTH));
        scale.at(at_ms.saturating_sub(self.from_ms) as f64)
    }

    pub fn seconds(&self, at_ms: u64) -> f64 {
        at_ms.saturating_sub(self.from_ms) as f64 / 1000.0
    }
}

/// Draws the rows and the chart.
pub fn timeline(outcome: &ChaosOutcome) -> String {
    let axis = TimeAxis::of(outcome);
    let nodes = outcome.records.len();
    let rows_end = TOP + ROW * (nodes + 1) as f64;
    let height = rows_end + CHART + 50.0;
    let mut svg = inline(LEFT + WIDTH + 10.0, height, "What happened to each node over time");
    svg.extend(tick_seconds(&axis).map(|second| {
        let x = axis.x(axis.from_ms + second * 1000);
        tick(x, (TOP, rows_end + CHART + 20.0), &format!("{second} s"), 14.0)
    }));
    for row in 0..=nodes {
        let y = TOP + ROW * row as f64;
        let name = row.checked_sub(1).map_or("Redis", |node| &outcome.names[node]);
        svg.extend([text(0.0, y + 17.0, name)]);
        let life = if row == 0 { Vec::new() } else { spans(&outcome.records, row - 1, &outcome.faults) };
        svg.extend(life.iter().map(|span| span.draw(&axis, y)));
    }
    for fault in &outcome.faults {
        let rows: Vec<usize> = if fault.victims.is_empty() {
            vec![0]
        } else {
            fault.victims.iter().map(|node| node + 1).collect()
        };
        svg.extend(rows.into_iter().map(|row| mark(fault, &axis, TOP + ROW * row as f64)));
    }
    svg.extend(chart(&outcome.seen.samples, &axis, rows_end + 20.0));
    svg.to_string()
}

/// Draws a fault: when it began, and how long it lasted.
fn mark(fault: &InjectedFault, axis: &TimeAxis, y: f64) -> SvgElement {
    let (x, (colour, letter)) = (axis.x(fault.from_ms), style(fault.kind));
    let area = |width| rect(x, y + 2.0, width, ROW - 4.0).set("fill", colour);
    group()
        .title(&format!("{:.1} s: {}", axis.seconds(fault.from_ms), fault.what))
        .child(area((axis.x(fault.until_ms) - x).max(3.0)).set("fill-opacity", "0.35"))
        .child(area(3.0))
        .child(text(x + 4.0, y + 11.0, letter))
}

/// A period in which a node was alive or in office.
#[derive(Debug, PartialEq)]
struct LifeSpan {
    from_ms: u64,
    until_ms: u64,
    office: bool,
}

impl LifeSpan {
    fn draw(&self, axis: &TimeAxis, y: f64) -> SvgElement {
        let (what, class, inset) =
            if self.office { ("in office", "office", 5.0) } else { ("alive", "alive", 8.0) };
        let (x, until) = (axis.x(self.from_ms), axis.x(self.until_ms));
        let bar = rect(x, y + inset, (until - x).max(0.5), ROW - 2.0 * inset).set("class", class);
        let (from_s, until_s) = (axis.seconds(self.from_ms), axis.seconds(self.until_ms));
        bar.title(&format!("{what} from {from_s:.1} s to {until_s:.1} s"))
    }
}

/// Returns when a node was alive and, to be drawn over that, when it was in office. A killed node does not record its
/// end. It lived until the kill, and its office ended when another node took it.
fn spans(records: &[Vec<RecordLine>], node: usize, faults: &[InjectedFault]) -> Vec<LifeSpan> {
    let others: Vec<u64> = records
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != node)
        .flat_map(|(_, record)| record)
        .filter(|line| matches!(line.step, Step::TookOffice { .. }))
        .map(|line| line.at_ms)
        .collect();
    let until_others = |from_ms: u64, until_ms: u64| {
        others.iter().copied().filter(|at| *at > from_ms).min().unwrap_or(until_ms).min(until_ms)
    };
    let (mut alive, mut office) = (Vec::new(), Vec::new());
    let (mut born, mut elected, mut last) = (None, None, 0);
    let close = |spans: &mut Vec<LifeSpan>, from: &mut Option<u64>, until_ms: u64, is_office: bool| {
        if let Some(from_ms) = from.take() {
            let until_ms = if is_office { until_others(from_ms, until_ms) } else { until_ms };
            spans.push(LifeSpan { from_ms, until_ms, office: is_office });
        }
    };
    for line in &records[node] {
        match line.step {
            Step::Started { .. } => {
                let kills = faults
                    .iter()
                    .filter(|fault| fault.kind == FaultKind::Kill && fault.victims.contains(&node));
                let killed =
                    kills.map(|fault| fault.from_ms).find(|at_ms| (last..line.at_ms).contains(at_ms));
                let end = killed.unwrap_or(last);
                close(&mut office, &mut elected, end, true);
                close(&mut alive, &mut born, end, false);
                born = Some(line.at_ms);
            }
            Step::TookOffice { .. } => {
                close(&mut office, &mut elected, line.at_ms, true);
                elected = Some(line.at_ms);
            }
            Step::BecameHandler | Step::DeclaredDead => close(&mut office, &mut elected, line.at_ms, true),
            Step::Left => {
                close(&mut office, &mut elected, line.at_ms, true);
                close(&mut alive, &mut born, line.at_ms, false);
            }
            _ => {}
        }
        last = line.at_ms;
    }
    close(&mut office, &mut elected, last, true);
    close(&mut alive, &mut born, last, false);
    alive.extend(office);
    alive
}

/// Draws how many messages per second were published and settled.
fn chart(samples: &[CountSample], axis: &TimeAxis, top: f64) -> Vec<SvgElement> {
    let (published, settled) = (rates(samples, axis, |s| s.published), rates(samples, axis, |s| s.settled));
    let most = published.iter().chain(&settled).map(|(_, rate)| *rate).fold(1.0, f64::max);
    let base = top + CHART;
    let y = Scale::linear((0.0, most), (base, top));
    let curve = |rates: &[(u64, f64)], class| {
        let points = rates.iter().map(|(at_ms, rate)| (axis.x(*at_ms), y.at(*rate)));
        polyline(points).set("class", class).set("stroke-width", "1.5")
    };
    vec![
        text(0.0, top + 12.0, "messages"),
        text(0.0, top + 26.0, "per second"),
        text(0.0, top + 44.0, &format!("max {}", grouped(most as u64))).set("class", "faint"),
        curve(&published, "published"),
        curve(&settled, "settled"),
        line((LEFT, base), (LEFT + WIDTH, base)).set("class", "grid"),
    ]
}

/// Returns how much a count grew per second in each bucket of time. While Redis was down there are no samples, and so
/// no growth.
fn rates(samples: &[CountSample], axis: &TimeAxis, count: impl Fn(&CountSample) -> u64) -> Vec<(u64, f64)> {
    let mut rates = Vec::new();
    let (mut from_ms, mut before) = (axis.from_ms, 0);
    while from_ms < axis.until_ms {
        let until_ms = from_ms + BUCKET_MS;
        let last = samples.iter().rfind(|sample| sample.at_ms < until_ms).map_or(0, &count);
        rates.push((until_ms, last.saturating_sub(before) as f64 * 1000.0 / BUCKET_MS as f64));
        (from_ms, before) = (until_ms, last.max(before));
    }
    rates
}

fn tick_seconds(axis: &TimeAxis) -> impl Iterator<Item = u64> + use<> {
    let length = (axis.until_ms - axis.from_ms) / 1000;
    let step =
        [1, 2, 5, 10, 30, 60, 300, 600, 3600].into_iter().find(|step| length / step <= 15).unwrap_or(7200);
    (0..=length).step_by(step as usize)
}

/// The colour and the letter of a kind of fault. The letter distinguishes the kinds where colours do not: in print, or
/// for colour-blind readers.
pub fn style(kind: FaultKind) -> (&'static str, &'static str) {
    match kind {
        FaultKind::Kill => ("#d62728", "K"),
        FaultKind::Freeze => ("#17becf", "F"),
        FaultKind::Cut => ("#ff7f0e", "C"),
        FaultKind::Lag => ("#bcbd22", "L"),
        FaultKind::HalfOpen => ("#9467bd", "H"),
        FaultKind::LostReply => ("#e377c2", "R"),
        FaultKind::RedisKill => ("#8c564b", "X"),
        FaultKind::RedisStall => ("#1f77b4", "S"),
        FaultKind::ScriptFlush => ("#7f7f7f", "U"),
        FaultKind::ClientKill => ("#2ca02c", "D"),
        FaultKind::Flood => ("#393b79", "W"),
        FaultKind::Failover => ("#637939", "P"),
        FaultKind::Migrate => ("#8c6d31", "M"),
        FaultKind::Demote => ("#843c39", "T"),
        FaultKind::ReplicaLag => ("#7b4173", "G"),
        FaultKind::NodeKill => ("#5254a3", "N"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_fault_has_its_own_colour_and_letter() {
        let styles = FaultKind::ALL.map(style);
        let colours: BTreeSet<_> = styles.iter().map(|(colour, _)| colour).collect();
        let letters: BTreeSet<_> = styles.iter().map(|(_, letter)| letter).collect();
        assert_eq!((colours.len(), letters.len()), (styles.len(), styles.len()));
    }

    #[test]
    fn an_office_ends_with_its_node_or_when_another_node_takes_it() {
        let line = |at_ms, step| RecordLine { at_ms, step };
        let office = |epoch| Step::TookOffice { epoch, from: None, silence_ms: 0 };
        let records = vec![
            vec![
                line(0, Step::Started { pid: 1 }),
                line(10, office(1)),
                line(90, Step::BecameHandler),
                line(100, Step::Started { pid: 2 }),
                line(200, Step::Left),
            ],
            vec![line(5, Step::Started { pid: 3 }), line(60, office(2)), line(300, Step::BecameHandler)],
        ];
        let span = |from_ms, until_ms, office| LifeSpan { from_ms, until_ms, office };
        let killed = InjectedFault {
            kind: FaultKind::Kill,
            from_ms: 95,
            until_ms: 100,
            victims: vec![0],
            what: String::new(),
        };
        let faults = [killed];
        assert_eq!(
            spans(&records, 0, &faults),
            [span(0, 95, false), span(100, 200, false), span(10, 60, true)]
        );
        assert_eq!(spans(&records, 1, &faults), [span(5, 300, false), span(60, 300, true)]);
    }

    #[test]
    fn a_rate_is_what_was_added_in_each_half_second() {
        let sample = |at_ms, published| CountSample { at_ms, published, settled: 0 };
        let samples = [sample(100, 10), sample(400, 50), sample(1600, 150)];
        let axis = TimeAxis { from_ms: 0, until_ms: 2000 };
        let rates = rates(&samples, &axis, |sample| sample.published);
        assert_eq!(rates, [(500, 100.0), (1000, 0.0), (1500, 0.0), (2000, 200.0)]);
    }
}
