//! Draws the errors view: the list, the selected error in full, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::footer::keys;
use super::log::line;
use super::text::printable;
use super::theme::Theme;
use super::{HitAreas, first_visible};
use crate::model::errors_view::{ErrorsView, Page};
use estafeta_lab::text::{counted, grouped, moment};

/// The most bytes shown of a body, of a reason and of a search text.
const MAX_BODY: usize = 8000;
const MAX_REASON: usize = 300;
const MAX_TEXT: usize = 40;

pub fn draw(frame: &mut Frame<'_>, area: Rect, view: &ErrorsView, paused: bool, theme: Theme) -> HitAreas {
    let detail = match area.height {
        height if view.wide => height.saturating_sub(2),
        height @ 12.. => height / 3,
        _ => 0,
    };
    let [head, list, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(detail),
        Constraint::Length(1),
    ])
    .areas(area);
    let title = if paused { "PAUSED, p goes on".to_owned() } else { title(view) };
    frame.render_widget(theme.title(&title, area.width), head);
    frame.render_widget(Paragraph::new(foot_line(view, area.width, theme)), foot);
    let Some(page) = &view.page else {
        return HitAreas::default();
    };
    let height = usize::from(list.height);
    let first = first_visible(view.at, page.errors.len(), height);
    let shown = page.errors.iter().enumerate().skip(first).take(height);
    let lines = shown.map(|(index, error)| {
        let is_selected = index == view.at;
        let mut line = line(error, theme);
        line.spans.insert(0, Span::raw(if is_selected { "> " } else { "  " }));
        if is_selected { line.style(theme.selected()) } else { line }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    if page.errors.is_empty() && page.text == view.text {
        let nothing = if view.text.is_empty() { "  no errors are kept" } else { "  none has this text" };
        frame.render_widget(Line::styled(nothing, theme.faint()), list);
    }
    frame.render_widget(Paragraph::new(lines), list);
    draw_selected(frame, detail, view, theme);
    HitAreas { list: Some((list, first)), count: page.errors.len() }
}

fn title(view: &ErrorsView) -> String {
    let Some(Page { text, errors, kept, searched }) = &view.page else {
        return "errors: fetching ...".to_owned();
    };
    if *text != view.text {
        return format!("errors: searching for \"{}\" ...", printable(view.text.as_bytes(), MAX_TEXT));
    }
    let count = errors.len() as u64;
    let mut title = format!("errors: {} kept, newest first", grouped(*kept));
    if !text.is_empty() {
        let text = printable(text.as_bytes(), MAX_TEXT);
        title += &format!(", {} with \"{text}\" among the newest {}", grouped(count), grouped(*searched));
    } else if count < *kept {
        title += &format!(", the newest {} shown", grouped(count));
    }
    title
}

fn foot_line(view: &ErrorsView, width: u16, theme: Theme) -> Line<'static> {
    if let Some(question) = view.question() {
        return Line::styled(question, theme.notable().patch(theme.selected()));
    }
    if view.typing {
        let text = printable(view.text.as_bytes(), MAX_TEXT);
        return Line::styled(format!("search: {text}_   Enter keeps it, Esc ends it"), theme.notable());
    }
    if let Some(answer) = &view.answer {
        return Line::styled(answer.clone(), theme.notable());
    }
    let all = [
        ("Esc", "back"),
        ("/", "search"),
        ("r", "retry"),
        ("d", "drop"),
        ("R D", "all shown"),
        ("q", "quit"),
    ];
    keys(&all, width, theme)
}

fn draw_selected(frame: &mut Frame<'_>, area: Rect, view: &ErrorsView, theme: Theme) {
    let Some(error) = view.selected() else {
        return;
    };
    let facts = format!(
        "failed {} at member {} on attempt {}, published {} in epoch {}",
        moment(error.failed_ms),
        error.member,
        error.attempt,
        moment(error.published_ms),
        error.epoch
    );
    let lines = vec![
        theme.title(&format!("#{}", error.id), area.width),
        Line::styled(facts, theme.faint()),
        Line::styled(printable(error.reason.as_bytes(), MAX_REASON), theme.bad()),
        Line::raw(format!(
            "{}: \"{}\"",
            counted(error.body().len() as u64, "byte"),
            printable(error.body(), MAX_BODY)
        )),
    ];
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
