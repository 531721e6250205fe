//! The plot of the results: one SVG, with one panel below the other.

use super::table::{Cell, Table};
use crate::plot::chart::{Scale, bar, bar_figure, page, row_label};
use crate::plot::svg::{SvgElement, circle, group, line, polyline, text};
use crate::text::figure;

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
const BAR: f64 = 16.0;
const TITLE: f64 = 44.0;
const CHART: f64 = 180.0;
const GAP: f64 = 24.0;

pub fn picture(tables: &[Table]) -> String {
    let mut drawn = Vec::new();
    let mut y = 10.0;
    for table in tables {
        for panel in &table.panels {
            if let Some((svg, height)) = draw(table, *panel, y + TITLE) {
                drawn.push(svg);
                y += TITLE + height + GAP;
            }
        }
    }
    let mut svg = page(LEFT + WIDTH + RIGHT, y, "Results of estafeta bench");
    svg.extend(drawn);
    format!("{svg}\n")
}

/// Draws a panel below `top`, and returns its height too. None if there is nothing to draw.
fn draw(table: &Table, panel: Panel, top: f64) -> Option<(SvgElement, f64)> {
    let heading = |key| table.column(key).map_or(key, |column| column.heading);
    let what = match panel {
        Panel::Spread => "milliseconds (bar: median, line: 99th percentile, dot: maximum)".to_owned(),
        Panel::Bars(key) => heading(key).to_owned(),
        Panel::Curve(key) => format!("{} by number of nodes", heading(key)),
    };
    let title = text(10.0, top - 22.0, &format!("{}: {what}", table.bench.name())).set("class", "title");
    let (body, height) = match panel {
        Panel::Bars(key) => bars(table, key, top),
        Panel::Spread => spread(table, top),
        Panel::Curve(key) => curve(table, key, top),
    }?;
    let mut svg = group().child(title);
    svg.extend(body);
    (height > 0.0).then_some((svg, height))
}

/// The elements of a panel, and its height.
type PanelBody = Option<(Vec<SvgElement>, f64)>;

fn numbers(table: &Table, key: &str) -> Option<Vec<Option<f64>>> {
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => Some(*number),
        _ => None,
    };
    Some(table.cells(key)?.map(number).collect())
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max)
}

/// The scale of bars, up to this value.
fn bar_scale(most: f64) -> Scale {
    Scale::linear((0.0, most), (LEFT, LEFT + WIDTH))
}

/// The label of a row: its texts, and its batch, because some rows differ only in that.
fn label(table: &Table, row: &[Cell]) -> String {
    let words = table.columns.iter().zip(row).filter_map(|(column, cell)| match (column.key, cell) {
        ("batch", Cell::Number(batch)) => Some(format!("batches of {}", figure(*batch, 0))),
        ("appendOnly", Cell::Text(sync)) => (sync != "off").then(|| format!("AOF {sync}")),
        (_, Cell::Text(text)) => Some(text.clone()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(", ")
}

fn bars(table: &Table, key: &str, top: f64) -> PanelBody {
    let (values, column) = (numbers(table, key)?, table.column(key)?);
    let scale = bar_scale(most(values.iter().flatten().copied()));
    let rows = table.rows.iter().zip(&values).filter_map(|(row, value)| Some((row, (*value)?)));
    let (mut drawn, mut y) = (Vec::new(), top);
    for (row, value) in rows {
        let middle = y + ROW / 2.0;
        drawn.push(row_label(&scale, middle, &label(table, row)));
        drawn.push(bar(&scale, middle, BAR, value).set("class", "bar"));
        drawn.push(bar_figure(&scale, middle, value, &figure(value, column.decimals)));
        y += ROW;
    }
    Some((drawn, y - top))
}

fn spread(table: &Table, top: f64) -> PanelBody {
    let columns = ["p50Ms", "p99Ms", "maxMs"].map(|key| numbers(table, key));
    let [Some(middles), Some(highs), Some(maxima)] = columns else { return None };
    let scale = bar_scale(most(maxima.iter().flatten().copied()));
    let (mut drawn, mut y) = (Vec::new(), top);
    for (at, row) in table.rows.iter().enumerate() {
        let (Some(p50), Some(p99), Some(max)) = (middles[at], highs[at], maxima[at]) else { continue };
        let middle = y + ROW / 2.0;
        let figures = [p50, p99, max].map(|ms| figure(ms, 2)).join(" / ");
        drawn.push(row_label(&scale, middle, &label(table, row)));
        drawn.push(bar(&scale, middle, BAR, p50).set("class", "bar"));
        let to_p99 = line((scale.at(p50), middle), (scale.at(p99), middle));
        drawn.push(to_p99.set("stroke", "var(--bar)").set("stroke-width", "2"));
        drawn.push(circle((scale.at(max), middle), 3.5).set("fill", "var(--maximum)"));
        drawn.push(bar_figure(&scale, middle, max, &figures));
        y += ROW;
    }
    Some((drawn, y - top))
}

/// Draws a column over the number of nodes, on a logarithmic axis.
fn curve(table: &Table, key: &str, top: f64) -> PanelBody {
    let (xs, ys, column) = (numbers(table, "nodes")?, numbers(table, key)?, table.column(key)?);
    let points: Vec<(f64, f64)> = xs.into_iter().zip(ys).filter_map(|(x, y)| Some((x?, y?))).collect();
    let base = top + CHART;
    let x = Scale::logarithmic((points.first()?.0, points.last()?.0), (LEFT, LEFT + WIDTH));
    let y = Scale::linear((0.0, most(points.iter().map(|(_, value)| *value))), (base, top));
    let places = points.iter().map(|(nodes, value)| (x.at(*nodes), y.at(*value)));
    let mut drawn = vec![
        line((LEFT, base), (LEFT + WIDTH, base)).set("class", "grid"),
        polyline(places.clone()).set("stroke", "var(--bar)").set("stroke-width", "2"),
    ];
    for ((nodes, value), (x, y)) in points.iter().zip(places) {
        let centred = |label: SvgElement| label.set("text-anchor", "middle");
        drawn.push(circle((x, y), 3.0).set("class", "bar"));
        drawn.push(centred(text(x, y - 8.0, &figure(*value, column.decimals))).set("class", "faint"));
        drawn.push(centred(text(x, base + 16.0, &figure(*nodes, 0))));
    }
    Some((drawn, CHART + 20.0))
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
            keys: 2,
            rows: vec![
                row("few", 1, vec![1.0, 2.0]),
                row("many", 10, vec![3.0, 4000.0]),
                row("empty", 5, vec![]),
            ],
            notes: Vec::new(),
            panels: vec![Panel::Bars("p50Ms"), Panel::Spread, Panel::Curve("maxMs"), Panel::Curve("nothing")],
        };
        let svg = picture(std::slice::from_ref(&table));
        assert_eq!(svg.matches("class=\"title\"").count(), 3, "{svg}");
        for part in ["<polyline", "<circle", ">few</text>", ">3.00 / 4,000.00 / 4,000.00<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("empty"), "{svg}");
        table.panels.clear();
        assert!(picture(&[table]).ends_with("</svg>\n"));
    }
}
