//! The top of the screen: which ring, who is in office, and whether the balance adds up.

use estafeta::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::ink::Ink;
use super::number::short;
use crate::escape::escape;
use crate::monitor::rows::Condition;
use crate::monitor::state::State;
use crate::narrate::age;
use crate::output::{counted, grouped};

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink, now_ms: u64) {
    let setting = &state.setting;
    let up = whole_seconds(now_ms.saturating_sub(setting.started_ms));
    let first = Line::from(vec![
        Span::styled("estafeta", ink.strong()),
        Span::raw("  ring "),
        Span::styled(setting.ring.clone(), ink.strong()),
        Span::raw(format!("  up {up}  redis {}", setting.redis)),
    ]);
    let lines = vec![first, office(state, ink), balance(state, ink, area.width)];
    frame.render_widget(Paragraph::new(lines), area);
    let flag = match (state.paused, setting.attach) {
        (true, _) => Span::styled(" PAUSED, p goes on ", ink.notable().patch(ink.selected())),
        (false, true) => Span::styled(" only watching", ink.faint()),
        (false, false) => Span::raw(""),
    };
    let place = Rect { height: area.height.min(1), ..area };
    let width = u16::try_from(flag.width()).unwrap_or(0).min(place.width);
    let place = Rect { x: place.right() - width, width, ..place };
    frame.render_widget(Paragraph::new(Line::from(flag)).alignment(Alignment::Right), place);
}

/// The line about the generator.
fn office(state: &State, ink: Ink) -> Line<'static> {
    if let Some(reason) = &state.lost {
        return Line::styled(format!("REDIS DOES NOT ANSWER: {reason}"), ink.bad());
    }
    let Some(snapshot) = &state.snapshot else {
        return Line::styled("looking for the ring ...", ink.faint());
    };
    let mut spans = vec![Span::raw("generator ")];
    match &snapshot.generator {
        Some(generator) => {
            spans.push(Span::styled(format!("{} {}", ink.mark(), generator.member), ink.office()));
            let condition = state.generator().map_or(Condition::Dead, |row| row.condition);
            if condition != Condition::Alive {
                let heirs = state.rows.iter().any(|row| row.condition == Condition::Alive);
                let told = if heirs { "" } else { " AND NOBODY ELSE IS ALIVE" };
                let name = condition.name().to_uppercase();
                spans.push(Span::styled(format!(" IS {name}{told}"), ink.bad()));
            }
            let host = escape(generator.host.as_bytes());
            let (since, epoch) = (whole_seconds(generator.in_office_ms), generator.epoch);
            spans.push(Span::raw(format!(" on {host} for {since}, epoch {epoch}")));
        }
        None => spans.push(Span::styled("none", ink.notable().patch(ink.strong()))),
    }
    spans.push(Span::raw(format!(", take-overs {}", grouped(snapshot.takeovers))));
    spans.push(Span::raw(format!(", {}", counted(snapshot.members.len() as u64, "member"))));
    Line::from(spans)
}

/// Told as fully as the width allows.
fn balance(state: &State, ink: Ink, width: u16) -> Line<'static> {
    let Some(snapshot) = &state.snapshot else {
        return Line::default();
    };
    let (verdict, style) = match (state.lost.is_some(), snapshot.balanced) {
        (true, _) => ("seen last", ink.faint()),
        (false, true) => ("balance adds up", ink.good()),
        (false, false) => ("BALANCE IS OFF", ink.bad().patch(ink.selected())),
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

/// What matters most, for a window that has no room for more.
pub fn draw_tiny(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let mut lines = Vec::new();
    if state.lost.is_some() {
        lines.push(Line::styled("REDIS IS LOST", ink.bad()));
    }
    if let Some(snapshot) = &state.snapshot {
        let office = snapshot.generator.as_ref();
        let office = office.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
        lines.push(Line::styled(
            format!("{} {office} of {}", ink.mark(), snapshot.members.len()),
            ink.office(),
        ));
        lines.push(match snapshot.balanced {
            true => Line::styled("adds up", ink.good()),
            false => Line::styled("DOES NOT ADD UP", ink.bad()),
        });
        lines.push(Line::raw(format!("done {} err {}", short(snapshot.done), short(snapshot.errors_kept))));
    }
    lines.push(Line::styled(format!("ring {}", state.setting.ring), ink.faint()));
    lines.push(Line::styled("q quits, ? helps", ink.faint()));
    frame.render_widget(Paragraph::new(lines), area);
}
