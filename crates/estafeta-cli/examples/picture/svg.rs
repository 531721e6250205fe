//! Draws a terminal's screen as an SVG that looks the same everywhere. Each run of text has its own position and
//! length, so the choice of the monospaced font does not matter.

use estafeta_lab::plot::svg::{SvgElement, circle, document, rect, text};
use estafeta_testbed::vt100::{Cell, Screen};

use crate::palette::{self, BACKGROUND, Rgb, hex};
use crate::shapes::{self, Shape};

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 17.0;
/// From the top of a cell down to the baseline of its letters.
const BASELINE: f64 = 13.0;
const MARGIN: f64 = 16.0;
const TITLE_BAR: f64 = 34.0;
const BUTTONS: [&str; 3] = ["#e86771", "#e6c073", "#8fc87a"];
/// The `font` shorthand would override the attributes of bold and italic text.
const STYLE: &str = "text { font-family: ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace; font-size: 14px; \
                     white-space: pre }";

/// Draws the screen in a window with this title.
pub fn draw(screen: &Screen, title: &str) -> String {
    let (rows, cols) = (screen.size().0.get(), screen.size().1.get());
    let width = f64::from(cols) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL_HEIGHT + TITLE_BAR + MARGIN;
    let window = rect(0.5, 0.5, width - 1.0, height - 1.0).set("rx", "10").set("fill", &hex(BACKGROUND));
    let mut svg = document(width, height, title, STYLE).child(window.set("stroke", "#3a4250"));
    let buttons = [20.0, 38.0, 56.0].into_iter().zip(BUTTONS);
    svg.extend(buttons.map(|(x, colour)| circle((x, 17.0), 5.5).set("fill", colour)));
    svg.extend([text(width / 2.0, 22.0, title).set("text-anchor", "middle").set("fill", "#8a93a3")]);
    for row in 0..rows {
        let cells: Vec<_> = (0..cols).filter_map(|col| Some((col, screen.cell(row, col)?))).collect();
        let top = TITLE_BAR + f64::from(row) * CELL_HEIGHT;
        // Backgrounds come first, because a letter may reach into the next cell.
        svg.extend(backgrounds(&cells, top));
        svg.extend(shapes(&cells, top));
        svg.extend(texts(&cells, top));
    }
    format!("{svg}\n")
}

fn left_of(col: u16) -> f64 {
    MARGIN + f64::from(col) * CELL_WIDTH
}

/// The character of a cell, if there is exactly one.
fn single(cell: &Cell) -> Option<char> {
    let mut chars = cell.contents().chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn shape(col: u16, cell: &Cell, top: f64) -> Option<Shape> {
    shapes::of(single(cell)?, left_of(col), top, CELL_WIDTH, CELL_HEIGHT)
}

fn backgrounds(cells: &[(u16, &Cell)], top: f64) -> Vec<SvgElement> {
    let runs = cells.chunk_by(|one, next| palette::of(one.1).1 == palette::of(next.1).1);
    let coloured = runs.map(|run| (run, palette::of(run[0].1).1)).filter(|(_, colour)| *colour != BACKGROUND);
    let drawn = coloured.map(|(run, colour)| {
        rect(left_of(run[0].0), top, run.len() as f64 * CELL_WIDTH, CELL_HEIGHT)
            .set("fill", &hex(colour))
            .set("shape-rendering", "crispEdges")
    });
    drawn.collect()
}

/// Neighbouring shapes of the same kind and colour become one path.
fn shapes(cells: &[(u16, &Cell)], top: f64) -> Vec<SvgElement> {
    let mut drawn = Vec::new();
    for run in cells.chunk_by(|one, next| palette::of(one.1).0 == palette::of(next.1).0) {
        let colour = hex(palette::of(run[0].1).0);
        let [mut bars, mut dots, mut light, mut thick] = [(); 4].map(|()| String::new());
        for (col, cell) in run {
            match shape(*col, cell, top) {
                Some(Shape::Bar(path)) => bars.push_str(&path),
                Some(Shape::Dots(path)) => dots.push_str(&path),
                Some(Shape::Stroke { path, heavy: false }) => light.push_str(&path),
                Some(Shape::Stroke { path, heavy: true }) => thick.push_str(&path),
                None => {}
            }
        }
        let path = |data: &str| (!data.is_empty()).then(|| SvgElement::new("path").set("d", data));
        let filled = |data: &str| Some(path(data)?.set("fill", &colour));
        let stroked = |data: &str| Some(path(data)?.set("fill", "none").set("stroke", &colour));
        // Soft edges would let the background shine through between two bars.
        drawn.extend(filled(&bars).map(|path| path.set("shape-rendering", "crispEdges")));
        drawn.extend(filled(&dots));
        drawn.extend(stroked(&light));
        drawn.extend(stroked(&thick).map(|path| path.set("stroke-width", "2.2")));
    }
    drawn
}

#[derive(Clone, Copy, PartialEq)]
struct Style {
    colour: Rgb,
    bold: bool,
    italic: bool,
    underline: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        Self {
            colour: palette::of(cell).0,
            bold: cell.bold(),
            italic: cell.italic(),
            underline: cell.underline(),
        }
    }
}

/// Neighbouring letters of one style.
struct Run {
    style: Style,
    col: u16,
    width: u16,
    text: String,
    /// A character that a font may lack. Its substitute from another font may have another width, and must not stretch
    /// its neighbours.
    alone: bool,
}

impl Run {
    fn of(col: u16, cell: &Cell, top: f64) -> Option<Self> {
        if cell.is_wide_continuation() {
            return None;
        }
        let blank = !cell.has_contents() || shape(col, cell, top).is_some();
        let text = if blank { " " } else { cell.contents() };
        let alone = cell.is_wide() || single(cell).is_some_and(|c| !c.is_ascii() && !c.is_alphabetic());
        let width = if cell.is_wide() { 2 } else { 1 };
        Some(Self { style: Style::of(cell), col, width, text: text.to_owned(), alone: alone && !blank })
    }

    /// Appends the next run if both look the same. Returns whether it did.
    fn join(&mut self, next: &Self) -> bool {
        let joins = self.style == next.style && !self.alone && !next.alone;
        if joins {
            self.text.push_str(&next.text);
            self.width += next.width;
        }
        joins
    }

    /// Draws the letters. Returns None if there are only blanks.
    fn draw(&self, top: f64) -> Option<SvgElement> {
        let mut shown = self.text.as_str();
        let (mut col, mut width) = (self.col, self.width);
        if !self.style.underline {
            let start = shown.trim_start_matches(' ');
            let leading = (shown.len() - start.len()) as u16;
            shown = start.trim_end_matches(' ');
            let trailing = (start.len() - shown.len()) as u16;
            (col, width) = (col + leading, width - leading - trailing);
        }
        if shown.is_empty() {
            return None;
        }
        let mut drawn = text(left_of(col), top + BASELINE, shown)
            .set_number("textLength", f64::from(width) * CELL_WIDTH)
            .set("lengthAdjust", "spacingAndGlyphs")
            .set("fill", &hex(self.style.colour))
            .set("xml:space", "preserve");
        let marks = [
            (self.style.bold, "font-weight", "bold"),
            (self.style.italic, "font-style", "italic"),
            (self.style.underline, "text-decoration", "underline"),
        ];
        for (_, name, value) in marks.into_iter().filter(|(on, ..)| *on) {
            drawn = drawn.set(name, value);
        }
        Some(drawn)
    }
}

fn texts(cells: &[(u16, &Cell)], top: f64) -> Vec<SvgElement> {
    let mut runs: Vec<Run> = Vec::new();
    for run in cells.iter().filter_map(|(col, cell)| Run::of(*col, cell, top)) {
        if !runs.last_mut().is_some_and(|last| last.join(&run)) {
            runs.push(run);
        }
    }
    runs.iter().filter_map(|run| run.draw(top)).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use estafeta_testbed::vt100::Parser;

    use super::*;

    /// The lines of the SVG that show text, bars or backgrounds, without the window around them.
    fn drawn(written: &str) -> Vec<String> {
        let size = |length| NonZeroU16::new(length).unwrap();
        let mut parser = Parser::new(size(3), size(20), 0);
        parser.process(written.as_bytes());
        let svg = draw(parser.screen(), "a <title>");
        assert!(svg.contains("<title>a &lt;title&gt;</title>"), "{svg}");
        svg.lines().skip_while(|line| !line.contains("text-anchor")).skip(1).map(str::to_owned).collect()
    }

    fn text(line: &str) -> &str {
        line.split_once('>').unwrap().1.strip_suffix("</text>").unwrap()
    }

    #[test]
    fn a_run_of_one_style_is_one_text_with_its_position_and_length() {
        let lines = drawn("  a <b> & \"c\"\r\n\x1b[31mred\x1b[1mbold");
        assert_eq!(text(&lines[0]), "a &lt;b&gt; &amp; &quot;c&quot;");
        assert!(lines[0].starts_with("<text x=\"32.8\" y=\"47\" textLength=\"92.4\""), "{}", lines[0]);
        assert!(lines[1].contains("fill=\"#e86771\"") && text(&lines[1]) == "red", "{}", lines[1]);
        assert!(lines[2].contains("font-weight=\"bold\"") && text(&lines[2]) == "bold", "{}", lines[2]);
        assert!(lines[2].contains("x=\"41.2\" y=\"64\""), "{}", lines[2]);
        assert_eq!(lines[3..], ["</svg>"]);
    }

    #[test]
    fn backgrounds_and_reversed_text_become_rectangles() {
        let lines = drawn("\x1b[44mblue\x1b[0m \x1b[7mturned");
        let blue = r##"<rect x="16" y="34" width="33.6" height="17" fill="#6ca8f0""##;
        assert!(lines[0].starts_with(blue), "{}", lines[0]);
        assert!(lines[1].starts_with("<rect x=\"58\"") && lines[1].contains("#d5dae3"), "{}", lines[1]);
        assert!(lines[3].contains("fill=\"#12161e\"") && text(&lines[3]) == "turned", "{}", lines[3]);
    }

    #[test]
    fn dim_underlined_and_italic_text_keep_their_style() {
        let lines = drawn("\x1b[2mdim\x1b[0;4m u \x1b[0;3mi");
        assert!(lines[0].contains("fill=\"#737880\""), "{}", lines[0]);
        assert!(lines[1].contains("underline") && text(&lines[1]) == " u ", "{}", lines[1]);
        assert!(lines[2].contains("italic"), "{}", lines[2]);
    }

    #[test]
    fn frames_and_bars_become_paths_and_unusual_characters_stay_alone() {
        let lines = drawn("│a✓b│ ▃▅ привет");
        assert!(lines[0].starts_with("<path d=\"") && lines[0].contains("crispEdges"), "{}", lines[0]);
        assert!(lines[1].contains("fill=\"none\" stroke="), "{}", lines[1]);
        let texts: Vec<_> = lines[2..lines.len() - 1].iter().map(|line| text(line)).collect();
        assert_eq!(texts, ["a", "✓", "b     привет"]);
    }

    #[test]
    fn a_wide_character_takes_two_cells() {
        let lines = drawn("日x");
        assert!(lines[0].contains("textLength=\"16.8\"") && lines[1].contains("x=\"32.8\""), "{lines:?}");
    }
}
