//! Draws a terminal's screen as an SVG that looks the same everywhere. Each run of text has its own position and
//! length, so the choice of the monospaced font does not matter.

use std::fmt::Write as _;

use estafeta_testbed::vt100::{Cell, Screen};

use crate::palette::{self, BACKGROUND, Rgb, hex};
use crate::shapes::{self, Shape};

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 17.0;
const FONT_SIZE: f64 = 14.0;
/// From the top of a cell down to the baseline of its letters.
const BASELINE: f64 = 13.0;
const MARGIN: f64 = 16.0;
const TITLE_BAR: f64 = 34.0;
const BUTTONS: [&str; 3] = ["#e86771", "#e6c073", "#8fc87a"];

/// Draws the screen in a window with this title.
pub fn draw(screen: &Screen, title: &str) -> String {
    let (rows, cols) = (screen.size().0.get(), screen.size().1.get());
    let width = f64::from(cols) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL_HEIGHT + TITLE_BAR + MARGIN;
    let (title, middle) = (escape(title), width / 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n\
         <style>text {{ font-family: ui-monospace, \"DejaVu Sans Mono\", Menlo, Consolas, monospace; \
         font-size: {FONT_SIZE}px; white-space: pre }}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"10\" fill=\"{}\" stroke=\"#3a4250\"/>\n",
        width - 1.0,
        height - 1.0,
        hex(BACKGROUND),
    );
    for (x, colour) in [20, 38, 56].into_iter().zip(BUTTONS) {
        let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"17\" r=\"5.5\" fill=\"{colour}\"/>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"{middle:.1}\" y=\"22\" text-anchor=\"middle\" fill=\"#8a93a3\">{title}</text>"
    );
    for row in 0..rows {
        let cells: Vec<_> = (0..cols).filter_map(|col| Some((col, screen.cell(row, col)?))).collect();
        let top = TITLE_BAR + f64::from(row) * CELL_HEIGHT;
        // Backgrounds come first, because a letter may reach into the next cell.
        backgrounds(&mut svg, &cells, top);
        shapes(&mut svg, &cells, top);
        texts(&mut svg, &cells, top);
    }
    svg.push_str("</svg>\n");
    svg
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

fn backgrounds(svg: &mut String, cells: &[(u16, &Cell)], top: f64) {
    for run in cells.chunk_by(|one, next| palette::of(one.1).1 == palette::of(next.1).1) {
        let colour = palette::of(run[0].1).1;
        if colour != BACKGROUND {
            let (x, width) = (left_of(run[0].0), run.len() as f64 * CELL_WIDTH);
            let colour = hex(colour);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{colour}\" \
                 shape-rendering=\"crispEdges\"/>"
            );
        }
    }
}

/// Neighbouring shapes of the same kind and colour become one path.
fn shapes(svg: &mut String, cells: &[(u16, &Cell)], top: f64) {
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
        let drawn = [
            // Soft edges would let the background shine through between two bars.
            (bars, format!("fill=\"{colour}\" shape-rendering=\"crispEdges\"")),
            (dots, format!("fill=\"{colour}\"")),
            (light, format!("fill=\"none\" stroke=\"{colour}\"")),
            (thick, format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.2\"")),
        ];
        for (path, look) in drawn.iter().filter(|(path, _)| !path.is_empty()) {
            let _ = writeln!(svg, "<path d=\"{path}\" {look}/>");
        }
    }
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

    fn write(&self, svg: &mut String, top: f64) {
        let mut text = self.text.as_str();
        let (mut col, mut width) = (self.col, self.width);
        if !self.style.underline {
            let blanks = |text: &str| text.bytes().take_while(|byte| *byte == b' ').count() as u16;
            let leading = blanks(text);
            text = text.trim_start_matches(' ');
            let shown = text.trim_end_matches(' ');
            let trailing = (text.len() - shown.len()) as u16;
            (col, width) = (col + leading, width - leading - trailing);
            text = shown;
        }
        if text.is_empty() {
            return;
        }
        let (x, y, length) = (left_of(col), top + BASELINE, f64::from(width) * CELL_WIDTH);
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"",
            hex(self.style.colour)
        );
        let marks = [
            (self.style.bold, " font-weight=\"bold\""),
            (self.style.italic, " font-style=\"italic\""),
            (self.style.underline, " text-decoration=\"underline\""),
        ];
        marks.iter().filter(|(on, _)| *on).for_each(|(_, mark)| svg.push_str(mark));
        let _ = writeln!(svg, " xml:space=\"preserve\">{}</text>", escape(text));
    }
}

fn texts(svg: &mut String, cells: &[(u16, &Cell)], top: f64) {
    let mut runs: Vec<Run> = Vec::new();
    for run in cells.iter().filter_map(|(col, cell)| Run::of(*col, cell, top)) {
        if !runs.last_mut().is_some_and(|last| last.join(&run)) {
            runs.push(run);
        }
    }
    runs.iter().for_each(|run| run.write(svg, top));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
        assert!(lines[0].starts_with("<text x=\"32.8\" y=\"47.0\" textLength=\"92.4\""), "{}", lines[0]);
        assert!(lines[1].contains("fill=\"#e86771\"") && text(&lines[1]) == "red", "{}", lines[1]);
        assert!(lines[2].contains("font-weight=\"bold\"") && text(&lines[2]) == "bold", "{}", lines[2]);
        assert!(lines[2].contains("x=\"41.2\" y=\"64.0\""), "{}", lines[2]);
        assert_eq!(lines[3..], ["</svg>"]);
    }

    #[test]
    fn backgrounds_and_reversed_text_become_rectangles() {
        let lines = drawn("\x1b[44mblue\x1b[0m \x1b[7mturned");
        let blue = r##"<rect x="16.0" y="34.0" width="33.6" height="17" fill="#6ca8f0""##;
        assert!(lines[0].starts_with(blue), "{}", lines[0]);
        assert!(lines[1].starts_with("<rect x=\"58.0\"") && lines[1].contains("#d5dae3"), "{}", lines[1]);
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
