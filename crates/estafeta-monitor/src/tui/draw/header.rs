//! Draws the top of the screen: the ring, the generator, and whether the balance adds up.

use estafeta::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::number::short;
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;
use estafeta_lab::escape::escape;
use estafeta_lab::text::age;
use estafeta_lab::text::{counted, grouped};

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) {
    let info = &model.info;
    let up = whole_seconds(now_ms.saturating_sub(info.started_ms));
    let first = Line::from(vec![
        Span::styled("estafeta", theme.strong()),
        Span::raw("  ring "),
        Span::styled(info.ring.clone(), theme.strong()),
        Span::raw(format!("  up {up}  redis {}", info.redis)),
    ]);
    let lines = vec![first, office(model, theme), balance(model, theme, area.width)];
    frame.render_widget(Paragraph::new(lines), area);
    let flag = match (model.paused, info.attach) {
        (true, _) => Span::styled(" PAUSED, p goes on ", theme.notable().patch(theme.selected())),
        (false, true) => Span::styled(" only watching", theme.faint()),
        (false, false) => Span::raw(""),
    };
    let place = Rect { height: area.height.min(1), ..area };
    let width = u16::try_from(flag.width()).unwrap_or(0).min(place.width);
    let place = Rect { x: place.right() - width, width, ..place };
    frame.render_widget(Paragraph::new(Line::from(flag)).alignment(Alignment::Right), place);
}

/// The line about the generator.
fn office(model: &Model, theme: Theme) -> Line<'static> {
    if let Some(reason) = &model.lost {
        return Line::styled(format!("REDIS DOES NOT ANSWER: {reason}"), theme.bad());
    }
    let Some(snapshot) = &model.snapshot else {
        return Line::styled("looking for the ring ...", theme.faint());
    };
    let mut spans = vec![Span::raw("generator ")];
    match &snapshot.generator {
        Some(generator) => {
            spans.push(Span::styled(format!("{} {}", theme.mark(), generator.member), theme.office()));
            let condition = model.generator().map_or(Condition::Dead, |row| row.condition);
            if condition != Condition::Alive {
                let any_alive = model.rows.iter().any(|row| row.condition == Condition::Alive);
                let suffix = if any_alive { "" } else { " AND NOBODY ELSE IS ALIVE" };
                let name = condition.name().to_uppercase();
                spans.push(Span::styled(format!(" IS {name}{suffix}"), theme.bad()));
            }
            let host = escape(generator.host.as_bytes());
            let (since, epoch) = (whole_seconds(generator.in_office_ms), generator.epoch);
            spans.push(Span::raw(format!(" on {host} for {since}, epoch {epoch}")));
        }
        None => spans.push(Span::styled("none", theme.notable().patch(theme.strong()))),
    }
    spans.push(Span::raw(format!(", take-overs {}", grouped(snapshot.takeovers))));
    spans.push(Span::raw(format!(", {}", counted(snapshot.members.len() as u64, "member"))));
    Line::from(spans)
}

/// The line about the balance, as detailed as the width allows.
fn balance(model: &Model, theme: Theme, width: u16) -> Line<'static> {
    let Some(snapshot) = &model.snapshot else {
        return Line::default();
    };
    let (verdict, style) = match (model.lost.is_some(), snapshot.balanced) {
        (true, _) => ("seen last", theme.faint()),
        (false, true) => ("balance adds up", theme.good()),
        (false, false) => ("BALANCE IS OFF", theme.bad().patch(theme.selected())),
    };
    let long = ["waiting", "in flight", "done", "errors kept", "errors taken"];
    let middle = ["waiting", "held", "done", "errors", "taken"];
    let candidates = [
        sum(snapshot, grouped, long),
        sum(snapshot, grouped, middle),
        sum(snapshot, short, ["wait", "held", "done", "err", "taken"]),
    ];
    let room = usize::from(width).saturating_sub(verdict.len() + 2);
    let fits = candidates.iter().position(|sum| sum.len() <= room).unwrap_or(candidates.len() - 1);
    Line::from(vec![Span::styled(verdict, style), Span::raw(format!(": {}", candidates[fits]))])
}

fn sum(snapshot: &Snapshot, number: fn(u64) -> String, words: [&str; 5]) -> String {
    let parts =
        [snapshot.waiting, snapshot.in_flight, snapshot.done, snapshot.errors_kept, snapshot.errors_taken];
    let parts = parts.into_iter().zip(words).map(|(part, word)| format!("{} {word}", number(part)));
    let relation = if snapshot.balanced { "=" } else { "is not" };
    format!("{} {relation} {}", number(snapshot.published), parts.collect::<Vec<_>>().join(" + "))
}

fn whole_seconds(ms: u64) -> String {
    if ms < 1000 { "0s".to_owned() } else { age(ms) }
}

/// Draws only the most important facts, for a window without room for more.
pub fn draw_tiny(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut lines = Vec::new();
    if model.lost.is_some() {
        lines.push(Line::styled("REDIS IS LOST", theme.bad()));
    }
    if let Some(snapshot) = &model.snapshot {
        let office = snapshot.generator.as_ref();
        let office = office.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
        lines.push(Line::styled(
            format!("{} {office} of {}", theme.mark(), snapshot.members.len()),
            theme.office(),
        ));
        lines.push(match snapshot.balanced {
            true => Line::styled("adds up", theme.good()),
            false => Line::styled("DOES NOT ADD UP", theme.bad()),
        });
        lines.push(Line::raw(format!("done {} err {}", short(snapshot.done), short(snapshot.errors_kept))));
    }
    lines.push(Line::styled(format!("ring {}", model.info.ring), theme.faint()));
    lines.push(Line::styled("q quits, ? helps", theme.faint()));
    frame.render_widget(Paragraph::new(lines), area);
}
