//! Draws the top of the screen: the ring, the generator, and whether the balance adds up.

use estafeta::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};

use super::number::short;
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;
use estafeta_lab::text::{age, counted, grouped};

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) {
    let info = &model.info;
    let up = whole_seconds(now_ms.saturating_sub(info.started_ms));
    let first = SafeLine::default()
        .add("estafeta", theme.strong())
        .raw("  ring ")
        .add(&info.ring, theme.strong())
        .raw(format!("  up {up}  redis {}", info.redis));
    frame.render_widget(paragraph([first, office(model, theme), balance(model, theme, area.width)]), area);
    let flag = match (model.paused, info.attach) {
        (true, _) => SafeLine::styled(" PAUSED, p continues ", theme.notable().patch(theme.selected())),
        (false, true) => SafeLine::styled(" only watching", theme.faint()),
        (false, false) => SafeLine::default(),
    };
    let place = Rect { height: area.height.min(1), ..area };
    let width = u16::try_from(flag.width()).unwrap_or(0).min(place.width);
    let place = Rect { x: place.right() - width, width, ..place };
    frame.render_widget(paragraph([flag]).alignment(Alignment::Right), place);
}

/// The line about the generator.
fn office(model: &Model, theme: Theme) -> SafeLine {
    if let Some(reason) = &model.lost {
        return SafeLine::styled(format!("REDIS DOES NOT ANSWER: {reason}"), theme.bad());
    }
    let Some(snapshot) = &model.snapshot else {
        return SafeLine::styled("looking for the ring ...", theme.faint());
    };
    let mut line = SafeLine::from("generator ");
    match &snapshot.generator {
        Some(generator) => {
            line = line.add(format!("{} {}", theme.mark(), generator.member), theme.office());
            let condition = model.generator().map_or(Condition::Dead, |row| row.condition);
            if condition != Condition::Alive {
                let any_alive = model.rows.iter().any(|row| row.condition == Condition::Alive);
                let suffix = if any_alive { "" } else { " AND NO OTHER NODE IS ALIVE" };
                let name = condition.name().to_uppercase();
                line = line.add(format!(" IS {name}{suffix}"), theme.bad());
            }
            let (since, epoch) = (whole_seconds(generator.in_office_ms), generator.epoch);
            line = line.raw(format!(" on {} for {since}, epoch {epoch}", generator.host));
        }
        None => line = line.add("none", theme.notable().patch(theme.strong())),
    }
    let members = counted(snapshot.members.len() as u64, "member");
    line.raw(format!(", take-overs {}, {members}", grouped(snapshot.takeovers)))
}

/// The line about the balance, as detailed as the width allows.
fn balance(model: &Model, theme: Theme, width: u16) -> SafeLine {
    let Some(snapshot) = &model.snapshot else {
        return SafeLine::default();
    };
    let (verdict, style) = match (model.lost.is_some(), snapshot.balanced) {
        (true, _) => ("last seen", theme.faint()),
        (false, true) => ("balance adds up", theme.good()),
        (false, false) => ("BALANCE IS OFF", theme.bad().patch(theme.selected())),
    };
    let candidates = [
        sum(snapshot, grouped, |name| name),
        sum(snapshot, grouped, |name| match name {
            "in flight" => "held",
            "errors kept" => "errors",
            "errors taken" => "taken",
            name => name,
        }),
        sum(snapshot, short, |name| match name {
            "waiting" => "wait",
            "in flight" => "held",
            "errors kept" => "err",
            "errors taken" => "taken",
            name => name,
        }),
    ];
    let room = usize::from(width).saturating_sub(verdict.len() + 2);
    let fits = candidates.iter().position(|sum| sum.len() <= room).unwrap_or(candidates.len() - 1);
    SafeLine::default().add(verdict, style).raw(format!(": {}", candidates[fits]))
}

fn sum(snapshot: &Snapshot, number: fn(u64) -> String, word: fn(&'static str) -> &'static str) -> String {
    let terms = snapshot.balance().into_iter();
    let terms: Vec<_> = terms.map(|(name, count)| format!("{} {}", number(count), word(name))).collect();
    let relation = if snapshot.balanced { "=" } else { "is not" };
    format!("{} {relation} {}", number(snapshot.published), terms.join(" + "))
}

fn whole_seconds(ms: u64) -> String {
    if ms < 1000 { "0s".to_owned() } else { age(ms) }
}

/// Draws only the most important facts, for a window without room for more.
pub fn draw_tiny(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut lines = Vec::new();
    if model.lost.is_some() {
        lines.push(SafeLine::styled("REDIS IS LOST", theme.bad()));
    }
    if let Some(snapshot) = &model.snapshot {
        let office = snapshot.generator.as_ref();
        let office = office.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
        lines.push(SafeLine::styled(
            format!("{} {office} of {}", theme.mark(), grouped(snapshot.members.len() as u64)),
            theme.office(),
        ));
        lines.push(match snapshot.balanced {
            true => SafeLine::styled("adds up", theme.good()),
            false => SafeLine::styled("DOES NOT ADD UP", theme.bad()),
        });
        lines.push(format!("done {} err {}", short(snapshot.done), short(snapshot.errors_kept)).into());
    }
    lines.push(SafeLine::styled(format!("ring {}", model.info.ring), theme.faint()));
    lines.push(SafeLine::styled("q quits, ? helps", theme.faint()));
    frame.render_widget(paragraph(lines), area);
}
