//! How soon another copy generates when the generator is killed, told to stop, or frozen, and how late its tick is.
//!
//! The copies are real processes with a beat of [`INTERVAL`]. The blow comes at a random moment of the beat, so the time to
//! the successor's first message has the rest of the beat in it; how late that message is against the beat is what users
//! of a schedule feel. Moments are those at which a line of a copy's output arrives here.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::copies::{Copies, PATIENCE, Said};
use super::plot::Panel;
use super::stand::Stand;
use super::table::{TIMES, Table, column, times};
use super::{Bench, Order};

pub const INTERVAL: Duration = Duration::from_millis(500);
pub const INTERVAL_TEXT: &str = "500ms";
const COPIES: usize = 5;
/// A heir that has just joined does not trust its eyes yet.
const SETTLING: Duration = Duration::from_millis(600);

/// What happens to the generator.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    Kill,
    Stop,
    Freeze,
}

impl Blow {
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

/// How the office passed on, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// From the blow until the successor said that it is in office.
    pub office: f64,
    /// Until its first message.
    pub message: f64,
    /// How much later that message came than the beat wanted it.
    pub late: f64,
}

pub fn steps(order: &Order) -> usize {
    Blow::ALL.len() * order.tries
}

pub async fn run(stand: &Stand<'_>) -> Result<Table> {
    let mut copies = Copies::new(stand, &["--interval", INTERVAL_TEXT]).await?;
    copies.start_many(COPIES).await?;
    let mut rows = Vec::new();
    for blow in Blow::ALL {
        let mut passings = Vec::new();
        for number in 1..=stand.order.tries {
            stand.step(&format!("failover: {}, {number} of {}", blow.name(), stand.order.tries));
            passings.push(pass_on(&mut copies, blow).await?);
        }
        let mut row = |what: &str, figure: fn(&Passing) -> f64| {
            let samples = passings.iter().map(figure).collect();
            rows.push([vec![blow.name().into(), what.into()], times(samples).to_vec()].concat());
        };
        row("successor in office", |passing| passing.office);
        row("its first message", |passing| passing.message);
        row("tick late by", |passing| passing.late);
    }
    copies.end().await?;
    let mut columns = vec![column("blow", "generator", 0), column("what", "what", 0)];
    columns.extend(TIMES);
    Ok(Table {
        bench: Bench::Failover,
        title: format!("{COPIES} copies, a message every {INTERVAL_TEXT}, lease {:?}", stand.order.lease),
        columns,
        rows,
        notes: vec![
            "The blow comes at any moment of the beat: the first message also waits for the next tick."
                .to_owned(),
        ],
        panels: vec![Panel::Spread],
    })
}

/// Strikes the generator of a whole ring, waits for its successor's first message and brings the ring to its old strength.
pub async fn pass_on(copies: &mut Copies<'_>, blow: Blow) -> Result<Passing> {
    let victim = copies.until_whole().await?;
    let mut beat = Beat(None);
    let pause = if copies.pids().count() < 3 { SETTLING } else { Duration::ZERO };
    // At least one tick must be heard, or the beat is not known.
    let moment = Instant::now() + pause + INTERVAL + INTERVAL.mul_f64(rand::random());
    while Instant::now() < moment || beat.0.is_none() {
        let until = if beat.0.is_none() { Instant::now() + PATIENCE } else { moment };
        match copies.next(until).await {
            Some(heard) if heard.said == Said::GeneratedMessage && heard.pid == victim => beat.tick(heard.at),
            Some(_) => {}
            None if beat.0.is_none() => return Err(copies.complaint("a message")),
            None => break,
        }
    }
    let struck = Instant::now();
    copies.signal(victim, blow.signal())?;

    let mut office = None;
    let (office, message) = loop {
        let Some(heard) = copies.next(struck + PATIENCE).await else {
            return Err(copies.complaint("a successor of the generator"));
        };
        match heard.said {
            // Its last one may have been on its way.
            Said::GeneratedMessage if heard.pid == victim => beat.tick(heard.at),
            Said::SwitchedToGeneratorMode if heard.pid != victim && heard.at > struck => {
                office = Some(heard.at)
            }
            Said::GeneratedMessage => break (office.unwrap_or(heard.at), heard.at),
            _ => {}
        }
    };
    copies.remove(victim)?;
    copies.start()?;
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    let due = beat.0.map_or(message, |last| last + INTERVAL);
    Ok(Passing { office: ms(struck, office), message: ms(struck, message), late: ms(due, message) })
}

/// When the last tick was due. A line may arrive late but never early, so the earliest ones show the beat.
struct Beat(Option<Instant>);

impl Beat {
    fn tick(&mut self, heard: Instant) {
        self.0 = Some(match self.0 {
            None => heard,
            Some(last) => {
                let beats = ((heard - last).as_secs_f64() / INTERVAL.as_secs_f64()).round();
                (last + INTERVAL.mul_f64(beats)).min(heard)
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beat_is_that_of_the_earliest_lines() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut beat = Beat(None);
        for (heard, last) in [(10, 10), (502, 502), (1030, 1002), (2501, 2501)] {
            beat.tick(at(heard));
            assert_eq!(beat.0, Some(at(last)));
        }
    }
}
