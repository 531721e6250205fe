//! The plot of all queues: two bars per queue on a logarithmic scale.

use contract::Mode;
use estafeta_lab::plot::chart::{Scale, bar, bar_figure, page, row_label, tick};
use estafeta_lab::plot::svg::{SvgElement, rect, text};

use crate::page::thousands;
use crate::results::{Measurement, PeerResults};

const WIDTH: f64 = 780.0;
const LABELS: f64 = 210.0;
/// Room to the right of the longest bar for its figure.
const FIGURES: f64 = 80.0;
const TOP: f64 = 44.0;
const ROW: f64 = 40.0;
const BAR: f64 = 14.0;

/// The class of the bars of each mode, and what the legend calls them.
const MODES: [(Mode, &str, &str); 2] =
    [(Mode::EndToEnd, "bar", "end to end"), (Mode::Consume, "other-bar", "consume only")];

pub fn svg(results: &PeerResults) -> String {
    let queues = results.fastest_first();
    let rates: Vec<[Option<f64>; 2]> = queues
        .iter()
        .map(|queue| {
            MODES.map(|(mode, ..)| Some(queue.figures(Measurement::Speed(mode))?.messages_per_second))
        })
        .collect();
    let (low, high) = decades(rates.iter().flatten().flatten().copied());
    let ends = (10f64.powi(low), 10f64.powi(high));
    let scale = Scale::logarithmic(ends, (LABELS, WIDTH - FIGURES));
    let bottom = TOP + ROW * queues.len() as f64 + 4.0;

    let mut svg = page(WIDTH, bottom + 24.0, "Messages per second of each queue, logarithmic scale");
    svg.extend(legend());
    svg.extend((low..=high).map(|decade| {
        let value = 10f64.powi(decade);
        tick(scale.at(value), (TOP, bottom), &thousands(value), bottom + 15.0)
    }));
    for (index, (queue, rates)) in queues.iter().zip(&rates).enumerate() {
        let middle = TOP + ROW * (index as f64 + 0.5);
        svg.extend([row_label(&scale, middle, &queue.name)]);
        for ((_, class, _), (rate, offset)) in MODES.into_iter().zip(rates.iter().zip([-0.5, 0.5])) {
            let middle = middle + BAR * offset;
            svg.extend(rate.iter().flat_map(|rate| {
                let bar = bar(&scale, middle, BAR - 1.0, *rate).set("class", class);
                [bar, bar_figure(&scale, middle, *rate, &thousands(*rate))]
            }));
        }
    }
    format!("{svg}\n")
}

fn legend() -> Vec<SvgElement> {
    let mut drawn = Vec::new();
    for ((_, class, words), x) in MODES.into_iter().zip([LABELS, LABELS + 100.0]) {
        drawn.push(rect(x, 12.0, 12.0, 12.0).set("class", class));
        drawn.push(text(x + 18.0, 22.5, words));
    }
    drawn.push(text(LABELS + 220.0, 22.5, "messages per second, logarithmic scale").set("class", "faint"));
    drawn
}

/// Returns the powers of ten below the slowest rate and above the fastest.
fn decades(rates: impl Iterator<Item = f64> + Clone) -> (i32, i32) {
    let low = rates.clone().fold(f64::INFINITY, f64::min).clamp(1.0, 1e9);
    let high = rates.fold(1.0, f64::max);
    // The scale begins at least a tenth of a decade lower, so that the slowest bar is visible.
    let low = (low.log10() - 0.1).floor() as i32;
    (low, (high.log10().ceil() as i32).max(low + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_begins_below_the_slowest_rate_and_ends_above_the_fastest() {
        assert_eq!(decades([769.0, 2_180_000.0].into_iter()), (2, 7));
        assert_eq!(decades([100.0, 1000.0].into_iter()), (1, 3));
        assert_eq!(decades([].into_iter()), (8, 9));
    }
}
