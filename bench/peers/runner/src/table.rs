//! The table in `docs/benchmarks.md`. It is between two markers. People write the rest of that page.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use contract::Mode;
use estafeta_lab::text::{counted, figure};

use crate::plot;
use crate::results::{MeasuredQueue, PeerResults};

const BEGIN: &str = "<!-- peers: begin -->";
const END: &str = "<!-- peers: end -->";

/// Writes the table and the plot into the directory `docs`.
pub fn write(docs: &Path, results: &PeerResults) -> Result<()> {
    let page = docs.join("benchmarks.md");
    let text = std::fs::read_to_string(&page).context("cannot read docs/benchmarks.md")?;
    let (before, rest) =
        text.split_once(BEGIN).with_context(|| format!("docs/benchmarks.md has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("docs/benchmarks.md has no {END}"))?;
    std::fs::write(page, format!("{before}{BEGIN}\n{}{END}{after}", markdown(results)))?;
    std::fs::write(docs.join("benchmarks-peers.svg"), plot::svg(results))?;
    Ok(())
}

/// The text between the markers.
pub fn markdown(results: &PeerResults) -> String {
    let mut text = String::new();
    let machine = &results.machine;
    let _ = writeln!(
        text,
        "Measured on {} with `make peers ROUNDS={}` on {} of {}. {} ran on the same machine\n\
         without persistence. Bodies had {} bytes, and handlers only counted. Figures are medians of {}, in which the\n\
         queues took turns.\n",
        machine.date,
        results.rounds,
        counted(machine.cores as u64, "core"),
        machine.cpu,
        machine.redis,
        results.body,
        counted(results.rounds as u64, "round"),
    );
    text += "![Messages per second of each queue](benchmarks-peers.svg)\n\n";
    text += "| queue | version | end to end, messages/s | consume only, messages/s | server CPU per message, µs | \
             Redis commands per message | memory per waiting message, bytes |\n|---|---|--:|--:|--:|--:|--:|\n";
    for queue in results.ranking() {
        text += &row(queue);
    }
    text +=
        "\nServer CPU and commands were measured end to end. Commands inside scripts count. Settings:\n\n";
    for queue in results.ranking() {
        let _ = writeln!(text, "- **{}**: {}.", queue.name, queue.settings);
    }
    if !results.skipped.is_empty() {
        text += "\nNot measured: ";
        let skipped: Vec<_> =
            results.skipped.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
        let _ = writeln!(text, "{}.", skipped.join("; "));
    }
    text
}

fn row(queue: &MeasuredQueue) -> String {
    let (both, consume) = (queue.figures(Mode::EndToEnd), queue.figures(Mode::Consume));
    let rate = |figures: &Option<crate::results::Figures>| {
        figures.as_ref().map_or("-".to_owned(), |figures| thousands(figures.messages_per_second))
    };
    let short = |value: Option<f64>| value.map_or("-".to_owned(), significant);
    let cells = [
        queue.name.clone(),
        queue.version.clone(),
        rate(&both),
        rate(&consume),
        short(both.as_ref().and_then(|figures| figures.server_us_per_message)),
        short(both.as_ref().and_then(|figures| figures.commands_per_message)),
        consume.and_then(|figures| figures.bytes_per_waiting_message).map_or("-".to_owned(), thousands),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Formats a figure with two significant digits if it is below 10. More of them would be noise.
fn significant(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{value:.2}"),
        value if value < 10.0 => format!("{value:.1}"),
        value => thousands(value),
    }
}

/// Formats a figure with three significant digits, and with commas. More digits would be noise.
pub fn thousands(value: f64) -> String {
    let magnitude = 10f64.powi((value.abs().max(1.0).log10().floor() as i32 - 2).max(0));
    figure((value / magnitude).round() * magnitude, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_at_most_three_significant_digits() {
        let written: Vec<_> = [7.4, 999.6, 1050.0, 131_649.0, 1_234_567.0].map(thousands).into();
        assert_eq!(written, ["7", "1,000", "1,050", "132,000", "1,230,000"]);
        assert_eq!([0.8, 5.04, 19.6].map(significant), ["0.80", "5.0", "20"]);
    }
}
