//! The table of work in `docs/benchmarks.md`: messages that take a while.

use crate::page::{introduction, row, settings, significant, thousands};
use crate::results::{Figures, MeasuredQueue, PeerResults};
use crate::work::{JOB_MS, PeerLoad, SLOTS, WAITING, WORKERS};

/// The text between the markers.
pub fn markdown(results: &PeerResults) -> String {
    let mut text = introduction(results, " TABLE=work");
    text += &format!(
        "\nBodies had {} bytes. A message takes {JOB_MS} ms, in {WORKERS} worker processes with {SLOTS} slots each.\n\n",
        results.body
    );
    text += "| load | queue | version | messages/s | server CPU per message, µs | Redis commands per message | \
             wait p50, ms | wait p99, ms |\n|---|---|---|--:|--:|--:|--:|--:|\n";
    for load in PeerLoad::ALL {
        for (queue, figures) in results.cheapest_first(load) {
            text += &queue_row(load, queue, &figures);
        }
    }
    text += &format!(
        "\nAt {}, the wait is the time from the put to the start of the handling. Under full load, it is only the length\n\
         of the queue, so it is not shown: about {} messages are in the queue or in work. Commands inside scripts count.\n\
         What an idle server uses is not part of the CPU time.",
        PeerLoad::Paced.name(),
        thousands(WAITING as f64)
    );
    let starved = starved(results);
    if !starved.is_empty() {
        text += &format!(
            "\nUnder full load, these queues ran empty now and then, because the producer was too slow: {}.",
            starved.join(", ")
        );
    }
    text += " Settings:\n\n";
    let queues: Vec<_> = results.cheapest_first(PeerLoad::Full).into_iter().map(|(queue, _)| queue).collect();
    text + &settings(results, &queues)
}

fn queue_row(load: PeerLoad, queue: &MeasuredQueue, figures: &Figures) -> String {
    let wait = |ms: Option<f64>| significant(ms.filter(|_| load != PeerLoad::Full));
    row(&[
        load.name(),
        queue.name.clone(),
        queue.version.clone(),
        thousands(figures.messages_per_second),
        significant(figures.server_us_per_message),
        significant(figures.commands_per_message),
        wait(figures.wait_p50_ms),
        wait(figures.wait_p99_ms),
    ])
}

/// The queues that did not always have a message for each slot under full load, in most of the rounds.
fn starved(results: &PeerResults) -> Vec<String> {
    let empty =
        |figures: &Figures| figures.least_waiting.is_some_and(|least| least <= (WORKERS * SLOTS) as f64);
    let measured = results.cheapest_first(PeerLoad::Full).into_iter();
    measured.filter(|(_, figures)| empty(figures)).map(|(queue, _)| queue.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::measure::Sample;
    use crate::results::Measurement;

    #[test]
    fn a_wait_is_shown_at_a_pace_only_and_a_queue_that_ran_empty_is_named() {
        let machine = Machine { date: String::new(), cores: 1, cpu: String::new(), redis: String::new() };
        let mut results = PeerResults::new(machine, 1, 64);
        for (name, server_us, least_waiting) in [("slow", 20.0, 100), ("cheap", 8.0, 3_000)] {
            let sample = Sample {
                server_us: Some(server_us),
                wait_p50_ms: Some(1.5),
                least_waiting: Some(least_waiting),
                ..Sample::of(500, 1.0)
            };
            for load in PeerLoad::ALL {
                results.add(Measurement::Work(load), name, "its settings", sample.clone());
            }
        }
        let text = markdown(&results);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("| 500 |")).collect();
        assert_eq!(
            rows,
            [
                "| full | cheap | 1 | 500 | 8.0 | - | - | - |",
                "| full | slow | 1 | 500 | 20 | - | - | - |",
                "| 500/s | cheap | 1 | 500 | 8.0 | - | 1.5 | - |",
                "| 500/s | slow | 1 | 500 | 20 | - | 1.5 | - |",
            ]
        );
        assert!(text.contains("producer was too slow: slow. Settings:"), "{text}");
        assert!(text.contains("- **cheap**: its settings.\n"), "{text}");
    }
}
