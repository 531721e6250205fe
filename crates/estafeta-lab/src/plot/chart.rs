//! What charts share: scales, ticks, rows with bars, and one style.

use super::svg::{SvgElement, document, group, line, rect, text};

/// The colours for light and dark screens, and the classes of charts: `title`, `faint`, `grid`, `bar` and `other-bar`.
/// A page with inline charts needs this style as well.
pub const STYLE: &str = "
:root { --ink: #1b1f24; --faint: #6b7280; --paper: #ffffff; --line: #d7dbe0; --bar: #1f6feb; --other-bar: #bc6c00;
  --maximum: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #8b949e; --paper: #0d1117; --line: #30363d;
  --bar: #58a6ff; --other-bar: #e3a008; --maximum: #ff7b72; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .title { font-weight: 600; font-size: 14px; }
.faint { fill: var(--faint); } .grid { stroke: var(--line); }
.bar { fill: var(--bar); } .other-bar { fill: var(--other-bar); }
";

/// The distance between a label and its bar, and between a bar and its figure.
const GAP: f64 = 8.0;
/// The distance from the middle of a line of text down to its baseline.
const HALF_LETTER: f64 = 4.0;

/// Maps values to positions on an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    values: (f64, f64),
    positions: (f64, f64),
    is_logarithmic: bool,
}

impl Scale {
    /// Maps the first and the last value to the first and the last position.
    pub fn linear(values: (f64, f64), positions: (f64, f64)) -> Self {
        Self { values, positions, is_logarithmic: false }
    }

    /// Like `linear`, but values with the same ratio are equally far apart. All values must be greater than zero.
    pub fn logarithmic(values: (f64, f64), positions: (f64, f64)) -> Self {
        Self { values, positions, is_logarithmic: true }
    }

    /// The position of a value. A value beyond an end of the axis is at that end.
    pub fn at(&self, value: f64) -> f64 {
        let project = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let (first, last) = (project(self.values.0), project(self.values.1));
        let share = (project(value) - first) / (last - first).max(f64::MIN_POSITIVE);
        let (start, end) = self.positions;
        start + (end - start) * share.clamp(0.0, 1.0)
    }

    fn start(&self) -> f64 {
        self.positions.0
    }
}

/// A chart in a file, on a background that suits the screen.
pub fn page(width: f64, height: f64, title: &str) -> SvgElement {
    document(width, height, title, STYLE).child(rect(0.0, 0.0, width, height).set("fill", "var(--paper)"))
}

/// A vertical line with a label, whose baseline is at `label_y`.
pub fn tick(x: f64, (top, bottom): (f64, f64), label: &str, label_y: f64) -> SvgElement {
    let label = text(x, label_y, label).set("class", "faint").set("text-anchor", "middle");
    group().child(line((x, top), (x, bottom)).set("class", "grid")).child(label)
}

/// The name of a row, to the left of its bars.
pub fn row_label(scale: &Scale, middle: f64, name: &str) -> SvgElement {
    text(scale.start() - GAP, middle + HALF_LETTER, name).set("text-anchor", "end")
}

/// A bar from the start of the scale to a value. It is never too short to be seen.
pub fn bar(scale: &Scale, middle: f64, height: f64, value: f64) -> SvgElement {
    let width = (scale.at(value) - scale.start()).max(0.5);
    rect(scale.start(), middle - height / 2.0, width, height)
}

/// The figure of a bar, to the right of its end.
pub fn bar_figure(scale: &Scale, middle: f64, value: f64, figure: &str) -> SvgElement {
    text(scale.at(value) + GAP, middle + HALF_LETTER, figure).set("class", "faint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_maps_values_to_positions_and_ends_at_its_ends() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 200.0));
        assert_eq!(
            [0.0, 5.0, 10.0, 11.0, -1.0].map(|value| linear.at(value)),
            [100.0, 150.0, 200.0, 200.0, 100.0]
        );
        let down = Scale::linear((0.0, 10.0), (50.0, 0.0));
        assert_eq!([0.0, 10.0].map(|value| down.at(value)), [50.0, 0.0]);
        let decades = Scale::logarithmic((1.0, 100.0), (0.0, 8.0));
        assert_eq!([1.0, 10.0, 100.0].map(|value| decades.at(value)), [0.0, 4.0, 8.0]);
        assert_eq!(Scale::logarithmic((3.0, 3.0), (7.0, 9.0)).at(3.0), 7.0, "a single value is at the start");
    }

    #[test]
    fn a_bar_is_visible_even_if_its_value_is_zero() {
        let scale = Scale::linear((0.0, 10.0), (100.0, 200.0));
        let bar = |value| bar(&scale, 20.0, 10.0, value).to_string();
        assert_eq!(bar(5.0), "<rect x=\"100\" y=\"15\" width=\"50\" height=\"10\"/>");
        assert!(bar(0.0).contains("width=\"0.5\""), "{}", bar(0.0));
    }
}
