//! How soon another node generates after the generator is killed, stopped or frozen, and how late its tick is.
//!
//! The nodes are real processes that publish every [`INTERVAL`]. The fault comes at a random moment between two ticks,
//! so the time to the successor's first message includes the wait for the next tick. Users of a schedule notice how
//! much later that message comes than it was due. Each time is the moment at which bench receives a line of a node's
//! output.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::env::BenchEnv;
use super::nodes::{BenchNodes, PATIENCE};
use super::plot::Panel;
use super::table::{TIMES, Table, column, times};
use super::{Bench, BenchOptions};
use crate::fleet::FromNode;
use crate::report::Report;
use crate::text::grouped;

pub const INTERVAL: Duration = Duration::from_millis(500);
pub const INTERVAL_TEXT: &str = "500ms";
const NODES: usize = 5;
/// An heir that has just joined does not trust its own view yet.
const TRUST_DELAY: Duration = Duration::from_millis(600);

/// The fault that hits the generator.
#[derive(Clone, Copy, Debug)]
pub enum GeneratorFault {
    Kill,
    Stop,
    Freeze,
}

impl GeneratorFault {
    const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Freeze];

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Stop => "SIGTERM",
            Self::Freeze => "SIGSTOP",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::SIGKILL,
            Self::Stop => Signal::SIGTERM,
            Self::Freeze => Signal::SIGSTOP,
        }
    }
}

/// The times of one take-over, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct TakeOverTimes {
    /// From the fault until the successor reported that it is in office.
    pub office: f64,
    /// From the fault until the first message of the successor.
    pub message: f64,
    /// How much later that message came than it was due.
    pub late: f64,
}

pub fn steps(options: &BenchOptions) -> usize {
    GeneratorFault::ALL.len() * options.tries
}

pub async fn run(env: &BenchEnv<'_>) -> Result<Table> {
    let mut nodes = BenchNodes::new(env, &["--interval", INTERVAL_TEXT]).await?;
    nodes.start_many(NODES).await?;
    let mut rows = Vec::new();
    for fault in GeneratorFault::ALL {
        let mut take_overs = Vec::new();
        for number in 1..=env.options.tries {
            let (number, tries) = (grouped(number as u64), grouped(env.options.tries as u64));
            env.step(&format!("failover: {}, {number} of {tries}", fault.name()));
            take_overs.push(measure_take_over(&mut nodes, fault).await?);
        }
        let mut row = |what: &str, figure: fn(&TakeOverTimes) -> f64| {
            let samples = take_overs.iter().map(figure).collect();
            rows.push([vec![fault.name().into(), what.into()], times(samples).to_vec()].concat());
        };
        row("successor in office", |take_over| take_over.office);
        row("its first message", |take_over| take_over.message);
        row("tick late by", |take_over| take_over.late);
    }
    nodes.end().await?;
    let mut columns = vec![column("fault", "generator", 0), column("what", "what", 0)];
    columns.extend(TIMES);
    Ok(Table {
        bench: Bench::Failover,
        title: format!("{NODES} nodes, a message every {INTERVAL_TEXT}, lease {:?}", env.options.lease),
        columns,
        keys: 2,
        rows,
        notes: vec![
            "The fault comes at a random moment between two ticks, so the first message also waits for the next tick."
                .to_owned(),
        ],
        panels: vec![Panel::Spread],
    })
}

/// Injects a fault into the generator of a complete ring, waits for the first message of its successor, and replaces
/// the lost node.
pub async fn measure_take_over(nodes: &mut BenchNodes<'_>, fault: GeneratorFault) -> Result<TakeOverTimes> {
    let victim = nodes.until_whole().await?;
    let mut schedule = TickPlan(None);
    let pause = if nodes.keys().count() < 3 { TRUST_DELAY } else { Duration::ZERO };
    // The schedule is unknown before the first tick.
    let moment = Instant::now() + pause + INTERVAL + INTERVAL.mul_f64(rand::random());
    while Instant::now() < moment || schedule.0.is_none() {
        let until = if schedule.0.is_none() { Instant::now() + PATIENCE } else { moment };
        match nodes.next(until).await {
            Some(from) if from.node == victim && is_message(&from) => schedule.tick(from.at),
            Some(_) => {}
            None if schedule.0.is_none() => return Err(nodes.time_out("a message")),
            None => break,
        }
    }
    let injected = Instant::now();
    nodes.signal(victim, fault.signal());

    let mut office = None;
    let (office, message) = loop {
        let Some(from) = nodes.next(injected + PATIENCE).await else {
            return Err(nodes.time_out("a successor of the generator"));
        };
        match from.report {
            // Its last message may have been on its way already.
            Some(Report::GeneratedMessage { .. }) if from.node == victim => schedule.tick(from.at),
            Some(Report::SwitchedToGeneratorMode) if from.node != victim && from.at > injected => {
                office = Some(from.at)
            }
            Some(Report::GeneratedMessage { .. }) => break (office.unwrap_or(from.at), from.at),
            _ => {}
        }
    };
    nodes.remove(victim);
    nodes.start()?;
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    let due = schedule.0.map_or(message, |last| last + INTERVAL);
    Ok(TakeOverTimes { office: ms(injected, office), message: ms(injected, message), late: ms(due, message) })
}

fn is_message(from: &FromNode) -> bool {
    matches!(from.report, Some(Report::GeneratedMessage { .. }))
}

/// When the last tick was due. A line may arrive late but never early, so the earliest lines show the schedule.
struct TickPlan(Option<Instant>);

impl TickPlan {
    fn tick(&mut self, received: Instant) {
        self.0 = Some(match self.0 {
            None => received,
            Some(last) => {
                let beats = ((received - last).as_secs_f64() / INTERVAL.as_secs_f64()).round();
                (last + INTERVAL.mul_f64(beats)).min(received)
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_follows_the_earliest_lines() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut schedule = TickPlan(None);
        for (received, last) in [(10, 10), (502, 502), (1030, 1002), (2501, 2501)] {
            schedule.tick(at(received));
            assert_eq!(schedule.0, Some(at(last)));
        }
    }
}
