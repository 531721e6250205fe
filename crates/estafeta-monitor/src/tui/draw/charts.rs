//! Draws the charts: the rates and the length of the queue over the last minutes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Sparkline, SparklineBar};

use super::number::{rate, short};
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::history::{History, RateSample};

/// The width of the name and the figures to the left of a one-line chart.
const LABEL: u16 = 27;

struct Series {
    name: &'static str,
    value: fn(&RateSample) -> f64,
    shown: fn(f64) -> String,
    style: Style,
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    if area.height < 4 || area.width < LABEL + 5 {
        return;
    }
    let per_second = |value| format!("{}/s", rate(value));
    let count = |value: f64| short(value.round() as u64);
    let series = [
        Series { name: "generated", value: |s| s.generated, shown: per_second, style: theme.office() },
        Series { name: "handled", value: |s| s.handled, shown: per_second, style: theme.good() },
        Series { name: "errors", value: |s| s.errors, shown: per_second, style: theme.bad() },
        Series { name: "waiting", value: |s| s.waiting as f64, shown: count, style: theme.notable() },
    ];
    let areas: [Rect; 4] = Layout::vertical([Constraint::Ratio(1, 4); 4]).areas(area);
    for (series, area) in series.iter().zip(areas) {
        draw_one(frame, area, model, series, theme);
    }
}

fn draw_one(frame: &mut Frame<'_>, area: Rect, model: &Model, series: &Series, theme: Theme) {
    let [label, chart] = if area.height == 1 {
        Layout::horizontal([Constraint::Length(LABEL), Constraint::Min(0)]).areas(area)
    } else {
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area)
    };
    let columns = model.history.columns(chart.width.into(), series.value);
    let max = columns.iter().flatten().copied().fold(0.0, f64::max);
    let now = model.history.now().map_or_else(|| "-".to_owned(), |now| (series.shown)((series.value)(&now)));
    let max_shown = (series.shown)(max);
    let most = if area.height == 1 {
        format!("{:>8} ", format!("^{}", max_shown.trim_end_matches("/s")))
    } else {
        let minutes = usize::from(chart.width) * History::seconds_per_column(chart.width.into()) / 60;
        format!("   at most {max_shown} in the last {minutes} min")
    };
    // While Redis does not answer, all figures are old.
    let current = |style| if model.lost.is_some() { theme.faint() } else { style };
    let line = SafeLine::default()
        .add(format!("{:<9}", series.name), current(series.style))
        .add(format!(" {now:>8}"), current(theme.strong()))
        .add(most, theme.faint());
    frame.render_widget(paragraph([line]), label);
    // The widget draws whole numbers. A thousandth of the highest bar is finer than it can show.
    let scale = 1000.0 / max.max(f64::MIN_POSITIVE);
    let bars = columns.iter().map(|value| SparklineBar::from(value.map(|value| (value * scale) as u64)));
    let chart_line = Sparkline::default()
        .data(bars)
        .max(1000)
        .bar_set(theme.bars())
        .absent_value_symbol(" ")
        .style(current(series.style));
    frame.render_widget(chart_line, chart);
}
