//! The plot of the results: one self-contained SVG, with one panel below the other.

use std::fmt::Write as _;

use super::table::{Cell, Table, TableColumn, shown};

/// One chart of a table.
#[derive(Clone, Copy, Debug)]
pub enum Panel {
    /// One bar per row, by this column.
    Bars(&'static str),
    /// The times of each row: median, 99th percentile and maximum.
    Spread,
    /// This column over the number of nodes.
    Curve(&'static str),
}

/// The geometry of the plot, in SVG units.
const LEFT: f64 = 350.0;
const WIDTH: f64 = 560.0;
const RIGHT: f64 = 190.0;
const ROW: f64 = 22.0;
const TITLE: f64 = 44.0;
const CHART: f64 = 180.0;
const GAP: f64 = 24.0;

const STYLE: &str = "
svg { --ink: #1b1f24; --faint: #6b7280; --paper: #ffffff; --line: #d7dbe0; --bar: #1f6feb; --worst: #cf222e; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --faint: #8b949e; --paper: #0d1117; --line: #30363d;
  --bar: #58a6ff; --worst: #ff7b72; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .title { font-weight: 600; font-size: 14px; }
.faint { fill: var(--faint); }
";

pub fn picture(tables: &[Table]) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for table in tables {
        for panel in &table.panels {
            let (drawn, height) = draw(table, *panel, y + TITLE);
            if height > 0.0 {
                body.push_str(&drawn);
                y += TITLE + height + GAP;
            }
        }
    }
    let width = LEFT + WIDTH + RIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" height=\"{y}\" role=\"img\" \
         aria-label=\"What estafeta bench measured\">\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{y}\" fill=\"var(--paper)\"/>\n{body}</svg>\n"
    )
}

/// Draws a panel below `top`. Returns its height too, which is 0 if there is nothing to draw.
fn draw(table: &Table, panel: Panel, top: f64) -> (String, f64) {
    let heading = |key| table.column(key).map_or(key, |column| column.heading);
    let what = match panel {
        Panel::Spread => "milliseconds: bar to the median, line to 99 of 100, mark at the worst".to_owned(),
        Panel::Bars(key) => heading(key).to_owned(),
        Panel::Curve(key) => format!("{} by number of nodes", heading(key)),
    };
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"10\" y=\"{:.1}\">{}: {what}</text>",
        top - 22.0,
        table.bench.name()
    );
    let height = match panel {
        Panel::Bars(key) => bars(&mut svg, table, key, top),
        Panel::Spread => spread(&mut svg, table, top),
        Panel::Curve(key) => curve(&mut svg, table, key, top),
    };
    (svg, height.unwrap_or(0.0))
}

fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(*number),
        _ => None,
    }
}

fn numbers(table: &Table, key: &str) -> Option<Vec<Option<f64>>> {
    Some(table.cells(key)?.map(number).collect())
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max)
}

/// The label of a row: its texts, and its batch, because some rows differ only in that.
fn label(table: &Table, row: &[Cell]) -> String {
    let words = table.columns.iter().zip(row).filter_map(|(column, cell)| match (column.key, cell) {
        ("batch", Cell::Number(batch)) => Some(format!("batches of {}", shown(*batch, 0))),
        ("appendOnly", Cell::Text(sync)) => (sync != "off").then(|| format!("AOF {sync}")),
        (_, Cell::Text(text)) => Some(text.clone()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

fn bars(svg: &mut String, table: &Table, key: &str, top: f64) -> Option<f64> {
    let (values, column) = (numbers(table, key)?, table.column(key)?);
    let most = most(values.iter().flatten().copied());
    let drawn = table.rows.iter().zip(&values).filter_map(|(row, value)| Some((row, (*value)?)));
    let mut y = top;
    for (row, value) in drawn {
        let width = (WIDTH * value / most).max(0.5);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"var(--bar)\"/>\
             <text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            y + 15.0,
            label(table, row),
            y + 3.0,
            ROW - 6.0,
            LEFT + width + 6.0,
            y + 15.0,
            shown(value, column.decimals),
        );
        y += ROW;
    }
    Some(y - top)
}

fn spread(svg: &mut String, table: &Table, top: f64) -> Option<f64> {
    let columns = ["p50Ms", "p99Ms", "maxMs"].map(|key| numbers(table, key));
    let [Some(middle), Some(high), Some(worst)] = columns else { return None };
    let most = most(worst.iter().flatten().copied());
    let x = |value: f64| LEFT + WIDTH * value / most;
    let mut y = top;
    for (at, row) in table.rows.iter().enumerate() {
        let (Some(p50), Some(p99), Some(max)) = (middle[at], high[at], worst[at]) else { continue };
        let line = y + ROW / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"var(--bar)\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"var(--bar)\" stroke-width=\"2\"/>\
             <circle cx=\"{:.1}\" cy=\"{line:.1}\" r=\"3.5\" fill=\"var(--worst)\"/>\
             <text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{p50:.2} / {p99:.2} / {max:.2}</text>",
            LEFT - 8.0,
            y + 15.0,
            label(table, row),
            y + 4.0,
            (x(p50) - LEFT).max(0.5),
            ROW - 8.0,
            x(p50),
            x(p99),
            x(max),
            x(max) + 8.0,
            y + 15.0,
        );
        y += ROW;
    }
    Some(y - top)
}

/// Draws a column over the number of nodes, on a logarithmic axis.
fn curve(svg: &mut String, table: &Table, key: &str, top: f64) -> Option<f64> {
    let (xs, ys, column) = (numbers(table, "nodes")?, numbers(table, key)?, table.column(key)?);
    let points: Vec<(f64, f64)> = xs.into_iter().zip(ys).filter_map(|(x, y)| Some((x?, y?))).collect();
    let (first, last) = (points.first()?.0, points.last()?.0);
    let most = most(points.iter().map(|(_, value)| *value));
    let span = (last / first).ln().max(f64::MIN_POSITIVE);
    let place = |(nodes, value): &(f64, f64)| {
        (LEFT + WIDTH * (nodes / first).ln() / span, top + CHART * (1.0 - value / most))
    };
    let base = top + CHART;
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base:.1}\" y2=\"{base:.1}\" stroke=\"var(--line)\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"var(--bar)\" stroke-width=\"2\"/>",
        LEFT + WIDTH,
        points
            .iter()
            .map(|point| format!("{:.1},{:.1}", place(point).0, place(point).1))
            .collect::<Vec<_>>()
            .join(" "),
    );
    for point in &points {
        svg.push_str(&mark(point, place(point), base, column));
    }
    Some(CHART + 20.0)
}

fn mark((nodes, value): &(f64, f64), (x, y): (f64, f64), base: f64, column: &TableColumn) -> String {
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"var(--bar)\"/>\
         <text class=\"faint\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
        y - 8.0,
        shown(*value, column.decimals),
        base + 16.0,
        shown(*nodes, 0),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Bench;
    use super::super::table::{TIMES, column, times};
    use super::*;

    #[test]
    fn every_kind_of_panel_is_drawn_and_one_without_figures_is_left_out() {
        let mut columns = vec![column("what", "what", 0), column("nodes", "nodes", 0)];
        columns.extend(TIMES);
        let row = |what: &str, nodes: usize, samples: Vec<f64>| {
            [vec![what.into(), nodes.into()], times(samples).to_vec()].concat()
        };
        let mut table = Table {
            bench: Bench::Scale,
            title: String::new(),
            columns,
            rows: vec![
                row("few", 1, vec![1.0, 2.0]),
                row("many", 10, vec![3.0, 4.0]),
                row("empty", 5, vec![]),
            ],
            notes: Vec::new(),
            panels: vec![Panel::Bars("p50Ms"), Panel::Spread, Panel::Curve("maxMs"), Panel::Curve("nothing")],
        };
        let svg = picture(std::slice::from_ref(&table));
        assert_eq!(svg.matches("class=\"title\"").count(), 3, "{svg}");
        for part in ["<polyline", "<circle", ">few</text>", ">3.00 / 4.00 / 4.00<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("empty"), "{svg}");
        table.panels.clear();
        assert!(picture(&[table]).ends_with("</svg>\n"));
    }
}
