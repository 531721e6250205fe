//! What all tables of `docs/benchmarks.md` share. Each table is between two markers. People write the rest of the page.

use std::fmt::Write;

use anyhow::{Context, Result};
use estafeta_lab::text::{counted, figure};

use crate::results::{MeasuredQueue, PeerResults};

/// Replaces what is between the markers of this name.
pub fn replace(page: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let missing = |marker: &str| format!("docs/benchmarks.md has no {marker}");
    let (before, rest) = page.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    Ok(format!("{before}{begin}\n{text}{end}{after}"))
}

/// Where and how often was measured.
pub fn introduction(results: &PeerResults, options: &str) -> String {
    let machine = &results.machine;
    format!(
        "Measured on {} with `make peers ROUNDS={}{options}` on {} of {}. {} ran on the same machine\n\
         without persistence. Figures are medians of {}, in which the queues took turns.",
        machine.date,
        results.rounds,
        counted(machine.cores as u64, "core"),
        machine.cpu,
        machine.redis,
        counted(results.rounds as u64, "round"),
    )
}

/// The settings of each queue, and the queues that were not measured.
pub fn settings(results: &PeerResults, queues: &[&MeasuredQueue]) -> String {
    let mut text = String::new();
    for queue in queues {
        let _ = writeln!(text, "- **{}**: {}.", queue.name, queue.settings);
    }
    if !results.skipped.is_empty() {
        let skipped: Vec<_> =
            results.skipped.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
        let _ = writeln!(text, "\nNot measured: {}.", skipped.join("; "));
    }
    text
}

pub fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Formats a figure with two significant digits if it is below 10. More of them would be noise.
pub fn significant(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.2}"),
        Some(value) if value < 10.0 => format!("{value:.1}"),
        Some(value) => thousands(value),
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
        let written = [Some(0.8), Some(5.04), Some(19.6), None].map(significant);
        assert_eq!(written, ["0.80", "5.0", "20", "-"]);
    }

    #[test]
    fn only_the_text_between_the_markers_of_a_table_changes() {
        let page =
            "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n";
        let changed = replace(page, "x", "new\n").unwrap();
        assert_eq!(changed, page.replace("old", "new"));
        assert_eq!(replace(&changed, "x", "old\n").unwrap(), page);
        assert!(replace(page, "z", "").is_err());
    }
}
