//! The last minutes: messages a second, and the queue.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, SparklineBar};

use super::ink::Ink;
use super::number::{rate, short};
use crate::monitor::history::{History, Sample};
use crate::monitor::state::State;

/// Room for the name and the figures left of a chart of one line.
const LABEL: u16 = 27;

struct Series {
    name: &'static str,
    value: fn(&Sample) -> f64,
    shown: fn(f64) -> String,
    style: Style,
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    if area.height < 4 || area.width < LABEL + 5 {
        return;
    }
    let a_second = |value| format!("{}/s", rate(value));
    let count = |value: f64| short(value.round() as u64);
    let series = [
        Series { name: "generated", value: |s| s.generated, shown: a_second, style: ink.office() },
        Series { name: "handled", value: |s| s.handled, shown: a_second, style: ink.good() },
        Series { name: "errors", value: |s| s.errors, shown: a_second, style: ink.bad() },
        Series { name: "waiting", value: |s| s.waiting as f64, shown: count, style: ink.notable() },
    ];
    let areas: [Rect; 4] = Layout::vertical([Constraint::Ratio(1, 4); 4]).areas(area);
    for (series, area) in series.iter().zip(areas) {
        draw_one(frame, area, state, series, ink);
    }
}

fn draw_one(frame: &mut Frame<'_>, area: Rect, state: &State, series: &Series, ink: Ink) {
    let [label, chart] = if area.height == 1 {
        Layout::horizontal([Constraint::Length(LABEL), Constraint::Min(0)]).areas(area)
    } else {
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area)
    };
    let columns = state.history.columns(chart.width.into(), series.value);
    let most = columns.iter().flatten().copied().fold(0.0, f64::max);
    let now = state.history.now().map_or_else(|| "-".to_owned(), |now| (series.shown)((series.value)(&now)));
    let most_shown = (series.shown)(most);
    let mut spans = vec![
        Span::styled(format!("{:<9}", series.name), series.style),
        Span::styled(format!(" {now:>8}"), ink.strong()),
    ];
    if area.height == 1 {
        spans.push(Span::styled(
            format!("{:>8} ", format!("^{}", most_shown.trim_end_matches("/s"))),
            ink.faint(),
        ));
    } else {
        let minutes = usize::from(chart.width) * History::seconds_a_column(chart.width.into()) / 60;
        let text = format!("   at most {most_shown} in the last {minutes} min");
        spans.push(Span::styled(text, ink.faint()));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), label);
    // Whole numbers are what the widget draws; a thousandth of the highest bar is finer than it can show.
    let scale = 1000.0 / most.max(f64::MIN_POSITIVE);
    let bars = columns.iter().map(|value| SparklineBar::from(value.map(|value| (value * scale) as u64)));
    let chart_line = Sparkline::default()
        .data(bars)
        .max(1000)
        .bar_set(ink.bars())
        .absent_value_symbol(" ")
        .style(series.style);
    frame.render_widget(chart_line, chart);
}
