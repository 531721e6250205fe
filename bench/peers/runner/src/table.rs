//! The table of speed in `docs/benchmarks.md`.

use contract::Mode;

use crate::page::{introduction, row, settings, significant, thousands};
use crate::results::{Figures, MeasuredQueue, Measurement, PeerResults};

/// The text between the markers.
pub fn markdown(results: &PeerResults) -> String {
    let ranking = results.fastest_first();
    let mut text = introduction(results, "");
    text += &format!("\nBodies had {} bytes, and handlers only counted.\n\n", results.body);
    text += "![Messages per second of each queue](benchmarks-peers.svg)\n\n";
    text += "| queue | version | end to end, messages/s | consume only, messages/s | server CPU per message, µs | \
             Redis commands per message | memory per waiting message, bytes |\n|---|---|--:|--:|--:|--:|--:|\n";
    for queue in &ranking {
        text += &queue_row(queue);
    }
    text +=
        "\nServer CPU and commands were measured end to end. Commands inside scripts count. Settings:\n\n";
    text + &settings(results, &ranking)
}

fn queue_row(queue: &MeasuredQueue) -> String {
    let figures = |mode| queue.figures(Measurement::Speed(mode));
    let (both, consume) = (figures(Mode::EndToEnd), figures(Mode::Consume));
    let rate = |figures: &Option<Figures>| {
        figures.as_ref().map_or("-".to_owned(), |figures| thousands(figures.messages_per_second))
    };
    row(&[
        queue.name.clone(),
        queue.version.clone(),
        rate(&both),
        rate(&consume),
        significant(both.as_ref().and_then(|figures| figures.server_us_per_message)),
        significant(both.as_ref().and_then(|figures| figures.commands_per_message)),
        consume.and_then(|figures| figures.bytes_per_waiting_message).map_or("-".to_owned(), thousands),
    ])
}
