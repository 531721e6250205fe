//! Draws the errors view: the list, the selected error in full, and the keys.

use estafeta_lab::message_id::MessageId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::Wrap;

use super::footer::keys;
use super::log::add_error;
use super::sentence;
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use super::{HitAreas, first_visible};
use crate::model::Model;
use crate::model::errors_view::{ErrorsView, Page};
use estafeta_lab::text::{counted, grouped, moment};

/// The most bytes shown of a body, of a reason and of a search text.
const MAX_BODY: usize = 8000;
const MAX_REASON: usize = 300;
const MAX_TEXT: usize = 40;

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &ErrorsView, theme: Theme) -> HitAreas {
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
    let title = if model.paused { "PAUSED, p continues".into() } else { title(view) };
    frame.render_widget(paragraph([theme.title(title, area.width)]), head);
    frame.render_widget(paragraph([foot_line(view, model.info.attach, area.width, theme)]), foot);
    let Some(page) = &view.page else {
        return HitAreas::default();
    };
    let height = usize::from(list.height);
    let first = first_visible(view.at, page.errors.len(), height);
    let shown = page.errors.iter().enumerate().skip(first).take(height);
    let lines = shown.map(|(index, error)| {
        let is_selected = index == view.at;
        let pointer = if is_selected { "> " } else { "  " };
        let line = add_error(pointer.into(), error, theme);
        if is_selected { line.style(theme.selected()) } else { line }
    });
    if page.errors.is_empty() && page.text == view.text {
        let nothing =
            if view.text.is_empty() { "  no errors are kept" } else { "  no error contains this text" };
        frame.render_widget(paragraph([SafeLine::styled(nothing, theme.faint())]), list);
    }
    frame.render_widget(paragraph(lines), list);
    draw_selected(frame, detail, view, theme);
    HitAreas { list: Some((list, first)), count: page.errors.len(), help: None }
}

fn title(view: &ErrorsView) -> SafeLine {
    let Some(Page { text, errors, kept, searched }) = &view.page else {
        return "errors: fetching ...".into();
    };
    if *text != view.text {
        let searching = SafeLine::from("errors: searching for \"");
        return searching.add_cut(&view.text, MAX_TEXT, Style::new()).raw("\" ...");
    }
    let count = errors.len() as u64;
    let title = SafeLine::from(format!("errors: {} kept, newest first", grouped(*kept)));
    if !text.is_empty() {
        return title
            .raw(format!(", {} with \"", grouped(count)))
            .add_cut(text, MAX_TEXT, Style::new())
            .raw(format!("\" among the newest {}", grouped(*searched)));
    }
    if count < *kept { title.raw(format!(", the newest {} shown", grouped(count))) } else { title }
}

fn foot_line(view: &ErrorsView, only_watching: bool, width: u16, theme: Theme) -> SafeLine {
    if let Some(question) = view.question.as_ref().and_then(sentence::question) {
        return SafeLine::styled(question, theme.notable().patch(theme.selected()));
    }
    if view.typing {
        let line = SafeLine::styled("search: ", theme.notable()).add_cut(&view.text, MAX_TEXT, Style::new());
        return line.raw("_   Enter keeps the text, Esc ends the search");
    }
    if let Some(answer) = &view.answer {
        return SafeLine::styled(sentence::answer(answer), theme.notable());
    }
    let watching = [("Esc", "back"), ("/", "search"), ("q", "quit")];
    let all = [
        ("Esc", "back"),
        ("/", "search"),
        ("r", "retry"),
        ("d", "drop"),
        ("R D", "all shown"),
        ("q", "quit"),
    ];
    keys(if only_watching { &watching } else { &all }, width, theme)
}

fn draw_selected(frame: &mut Frame<'_>, area: Rect, view: &ErrorsView, theme: Theme) {
    let Some(error) = view.selected() else {
        return;
    };
    let facts = format!(
        "failed {} at member {} on delivery {}, published {} in epoch {}",
        moment(error.failed_ms),
        error.member,
        error.message.delivery,
        moment(error.message.published_ms),
        error.message.epoch
    );
    let body = SafeLine::from(format!("{}: \"", counted(error.message.body().len() as u64, "byte")));
    let lines = [
        theme.title(format!("#{}", MessageId::from(&error.message)), area.width),
        SafeLine::styled(facts, theme.faint()),
        SafeLine::default().add_cut(&error.reason, MAX_REASON, theme.bad()),
        body.add_cut(error.message.body(), MAX_BODY, Style::new()).raw("\""),
    ];
    frame.render_widget(paragraph(lines).wrap(Wrap { trim: false }), area);
}
