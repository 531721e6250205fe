//! Measures how long round trips take, and how the clock of the server goes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::trial::SUBSCRIBERS;
use super::{ServerFinding, is_refusal};
use crate::error::Result;
use crate::redis::Store;

/// The clock is read so often, with a pause after each time. All of it takes about a second.
const READINGS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// So many round trips of each kind are measured between two readings.
const TRIPS: usize = 5;
/// A server whose clock differs by more is off, whatever the network does.
const OFF: Duration = Duration::from_secs(5);
/// Clocks that are adjusted in passing move by less than this.
const JUMP: Duration = Duration::from_millis(50);

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pings: Vec<Duration>,
    scripts: Vec<Duration>,
    readings: Vec<Reading>,
}

/// The clock of the server, read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// When the request was sent, since the first one.
    sent: Duration,
    round_trip: Duration,
    /// The time here in the middle of the round trip, since 1970.
    here: Duration,
    /// The time there, since 1970.
    there: Duration,
}

impl Store {
    pub(super) async fn measure_pace(&self) -> Result<Pace> {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut script = SUBSCRIBERS.call::<String>(&[]);
        script.arg("channel", &self.keys().channels);
        for _ in 0..READINGS {
            let asked = start.elapsed();
            match self.read::<(u64, u64)>(&redis::cmd("TIME")).await {
                Ok((seconds, micros)) => {
                    let round_trip = start.elapsed() - asked;
                    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    let there = Duration::from_secs(seconds) + Duration::from_micros(micros);
                    let here = here.saturating_sub(round_trip / 2);
                    pace.readings.push(Reading { sent: asked, round_trip, here, there });
                }
                Err(error) if is_refusal(&error).is_some() => {}
                Err(error) => return Err(error),
            }
            for _ in 0..TRIPS {
                let asked = Instant::now();
                self.send(&redis::cmd("PING")).await?;
                pace.pings.push(asked.elapsed());
                let asked = Instant::now();
                match self.run(&SUBSCRIBERS, &script).await {
                    Ok(_) => pace.scripts.push(asked.elapsed()),
                    Err(error) if is_refusal(&error).is_some() => {}
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        // The first call may have had to load the script.
        pace.scripts = pace.scripts.split_off(pace.scripts.len().min(1));
        pace.pings.sort_unstable();
        pace.scripts.sort_unstable();
        Ok(pace)
    }
}

impl Pace {
    pub(super) fn clock(&self) -> ServerFinding {
        let Some(best) = self.readings.iter().min_by_key(|reading| reading.round_trip) else {
            return ServerFinding::unknown("clock", "TIME is refused", "leases follow the clock of Redis");
        };
        let (ahead, jump) = (best.ahead_s(), self.jump_s());
        let figures = [("aheadMs", ahead * 1000.0), ("jumpMs", jump * 1000.0)];
        let direction = if ahead < 0.0 { "behind" } else { "ahead of" };
        let found = format!("{:.1} ms {direction} this machine", ahead.abs() * 1000.0);
        let finding = if jump > JUMP.as_secs_f64() {
            let found = format!("{found}; it jumped by {:.0} ms within a second", jump * 1000.0);
            let meaning = "leases and ticks follow this clock, so a jump delays or hastens take-overs";
            ServerFinding::warning("clock", found, meaning)
                .remedy("let the server adjust its clock gradually, with chrony or ntpd")
        } else if ahead.abs() > OFF.as_secs_f64() {
            let meaning = "schedules follow the clock of Redis, so their messages come early or late";
            ServerFinding::warning("clock", found, meaning).remedy("set the clock of the wrong machine")
        } else {
            let meaning = "leases and ticks follow this clock, and it goes evenly";
            ServerFinding::good("clock", found, meaning)
        };
        finding.figures(figures)
    }

    /// How far the clock of the server moved more or less than time did between two readings, at most. What the round
    /// trips leave open does not count.
    fn jump_s(&self) -> f64 {
        let jumps = self.readings.windows(2).map(|pair| {
            let there = pair[1].there.as_secs_f64() - pair[0].there.as_secs_f64();
            let here = pair[1].sent.as_secs_f64() - pair[0].sent.as_secs_f64();
            let open = pair[0].round_trip.max(pair[1].round_trip);
            ((there - here).abs() - open.as_secs_f64()).max(0.0)
        });
        jumps.fold(0.0, f64::max)
    }

    pub(super) fn round_trip(&self, lease: Duration) -> ServerFinding {
        let ms = |sorted: &[Duration], share: f64| {
            let rank = (sorted.len() as f64 * share).ceil() as usize;
            sorted.get(rank.max(1) - 1).map(|time| time.as_secs_f64() * 1000.0)
        };
        let named = [
            ("pingP50Ms", ms(&self.pings, 0.5)),
            ("pingP99Ms", ms(&self.pings, 0.99)),
            ("scriptP50Ms", ms(&self.scripts, 0.5)),
            ("scriptP99Ms", ms(&self.scripts, 0.99)),
        ];
        let figures: Vec<_> = named.into_iter().filter_map(|(name, ms)| Some((name, ms?))).collect();
        let text = |ms: Option<f64>| ms.map_or("unknown".to_owned(), |ms| format!("{ms:.2} ms"));
        let [ping, ping_tail, script, script_tail] = named.map(|(_, ms)| text(ms));
        let found =
            format!("PING {ping} (p99 {ping_tail}), script {script} (p99 {script_tail}), as p50 of 100");
        let slowest = figures.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
        let finding = match slowest > lease.as_secs_f64() * 1000.0 / 20.0 {
            false => ServerFinding::good("roundTrip", found, "far below the lease of a node"),
            true => {
                let meaning = format!("nodes with a lease of {lease:?} may lose Redis for a moment");
                ServerFinding::warning("roundTrip", found, meaning)
                    .remedy("raise --lease, or run the nodes nearer to Redis")
            }
        };
        finding.figures(figures)
    }
}

impl Reading {
    /// How far the server is ahead of this machine.
    fn ahead_s(&self) -> f64 {
        self.there.as_secs_f64() - self.here.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings every 50 ms, with this many seconds between the clocks at each.
    fn pace(ahead: &[f64]) -> Pace {
        let reading = |(index, ahead): (usize, &f64)| {
            let sent = PAUSE * u32::try_from(index).unwrap();
            let here = Duration::from_secs(1_000_000) + sent;
            let there = Duration::from_secs_f64(here.as_secs_f64() + ahead);
            Reading { sent, round_trip: Duration::from_millis(1), here, there }
        };
        Pace { readings: ahead.iter().enumerate().map(reading).collect(), ..Pace::default() }
    }

    #[test]
    fn a_clock_that_jumps_or_is_off_is_a_warning() {
        let severity = |ahead: &[f64]| pace(ahead).clock().severity.word();
        assert_eq!(severity(&[0.001, 0.001, 0.002]), "good");
        assert_eq!(severity(&[-3.0, -3.0]), "good", "the clocks of nodes do not matter");
        assert_eq!(severity(&[8.0, 8.0]), "warning");
        assert_eq!(severity(&[0.0, 0.0, 0.3, 0.3]), "warning");
        assert_eq!(severity(&[0.0, 0.0, -0.3, -0.3]), "warning");
        assert_eq!(severity(&[]), "unknown");
    }

    #[test]
    fn round_trips_that_come_near_the_lease_are_a_warning() {
        let trips = |ms: u64| vec![Duration::from_millis(ms); 100];
        let finding = |ping, script| {
            let pace = Pace { pings: trips(ping), scripts: trips(script), readings: Vec::new() };
            pace.round_trip(Duration::from_secs(2))
        };
        assert_eq!(finding(1, 2).severity.word(), "good");
        assert_eq!(finding(1, 2).figures[2], ("scriptP50Ms", 2.0));
        assert_eq!(finding(1, 150).severity.word(), "warning");
    }
}
