//! The bar plot: SVG by hand, because two dozen rectangles need no library.

use std::fmt::Write;

use contract::Mode;

use crate::results::Results;
use crate::table::thousands;

const WIDTH: f64 = 780.0;
const LABELS: f64 = 210.0;
/// Room to the right of the longest bar for its figure.
const FIGURES: f64 = 80.0;
const TOP: f64 = 44.0;
const ROW: f64 = 40.0;
const BAR: f64 = 14.0;

/// Greys and colours in the middle of the scale stand out on white and on black alike; where the viewer tells which it
/// is, the text goes further.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#6e7681}.axis{font-size:11px}\
                     .grid{stroke:#808080;stroke-opacity:.3}.both{fill:#2f81f7}.consume{fill:#d29922}\
                     @media(prefers-color-scheme:light){text{fill:#24292f}}\
                     @media(prefers-color-scheme:dark){text{fill:#e6edf3}}";

pub fn svg(results: &Results) -> String {
    let queues = results.ranking();
    let rates: Vec<[Option<f64>; 2]> = queues
        .iter()
        .map(|queue| {
            [Mode::EndToEnd, Mode::Consume].map(|mode| queue.figures(mode).map(|f| f.messages_per_second))
        })
        .collect();
    let scale = Scale::over(rates.iter().flatten().flatten().copied());
    let height = TOP + ROW * queues.len() as f64 + 28.0;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>Messages a second, logarithmic scale</title>\n<style>{STYLE}</style>\n"
    );
    legend(&mut svg);
    for decade in scale.low..=scale.high {
        let (x, bottom) = (scale.x(10f64.powi(decade)), height - 24.0);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
        let label = thousands(10f64.powi(decade));
        let y = bottom + 15.0;
        let _ = writeln!(
            svg,
            "<text class=\"axis\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    for (index, (queue, rates)) in queues.iter().zip(&rates).enumerate() {
        let top = TOP + ROW * index as f64 + (ROW - 2.0 * BAR) / 2.0;
        let (x, y) = (LABELS - 10.0, top + BAR + 4.5);
        let name = escaped(&queue.name);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
        for (bar, (class, rate)) in ["both", "consume"].into_iter().zip(rates).enumerate() {
            if let Some(rate) = *rate {
                scale.bar(&mut svg, class, top + BAR * bar as f64, rate);
            }
        }
    }
    svg + "</svg>\n"
}

fn legend(svg: &mut String) {
    for (class, x, words) in
        [("both", LABELS, "end to end, messages/s"), ("consume", LABELS + 190.0, "consume only, messages/s")]
    {
        let _ = writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"12\" width=\"12\" height=\"12\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"22.5\">{words}</text>", x + 18.0);
    }
    let _ =
        writeln!(svg, "<text class=\"axis\" x=\"{}\" y=\"22.5\">logarithmic scale</text>", LABELS + 410.0);
}

/// Powers of ten, from the one below the slowest to the one above the fastest.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn over(rates: impl Iterator<Item = f64> + Clone) -> Scale {
        let low = rates.clone().fold(f64::INFINITY, f64::min).clamp(1.0, 1e9);
        let high = rates.fold(1.0, f64::max);
        // A tenth of a decade lower, so that the slowest bar is still to be seen.
        let low = (low.log10() - 0.1).floor() as i32;
        Scale { low, high: (high.log10().ceil() as i32).max(low + 1) }
    }

    fn x(&self, rate: f64) -> f64 {
        let share = (rate.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LABELS + share * (WIDTH - LABELS - FIGURES)
    }

    fn bar(&self, svg: &mut String, class: &str, y: f64, rate: f64) {
        let end = self.x(rate);
        let (width, height) = (end - LABELS, BAR - 1.0);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            end + 5.0,
            y + 10.5,
            thousands(rate)
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
