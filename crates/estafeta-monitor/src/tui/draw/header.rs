//! Draws the top of the screen: the ring, the generator, and whether the balance adds up.

use estafeta::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::Style;

use super::number::short;
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;
use estafeta_lab::text::{age, counted, grouped, limits, paused, paused_briefly};

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) {
    let info = &model.info;
    let flag = match (model.paused, info.attach) {
        (true, _) => SafeLine::styled(" PAUSED, p continues ", theme.notable().patch(theme.selected())),
        (false, true) => SafeLine::styled(" only watching", theme.faint()),
        (false, false) => SafeLine::default(),
    };
    let flag_width = u16::try_from(flag.width()).unwrap_or(0).min(area.width);
    let first = ring(model, theme, area.width - flag_width, now_ms);
    let lines = [first, office(model, theme, area.width), balance(model, theme, area.width, now_ms)];
    frame.render_widget(paragraph(lines), area);
    let place = Rect { height: area.height.min(1), ..area };
    let place = Rect { x: place.right() - flag_width, width: flag_width, ..place };
    frame.render_widget(paragraph([flag]).alignment(Alignment::Right), place);
}

/// The first of these lines that fits into the width, or else the last one.
fn widest<const N: usize>(width: u16, lines: [SafeLine; N]) -> SafeLine {
    let fits = lines.iter().position(|line| line.width() <= usize::from(width)).unwrap_or(N - 1);
    lines.into_iter().nth(fits).unwrap_or_default()
}

/// The line about the ring, its pause and its Redis.
fn ring(model: &Model, theme: Theme, width: u16, now_ms: u64) -> SafeLine {
    let info = &model.info;
    let up = whole_seconds(now_ms.saturating_sub(info.started_ms));
    let ring =
        SafeLine::default().add("estafeta", theme.strong()).raw("  ring ").add(&info.ring, theme.strong());
    let current = model.snapshot.as_ref().filter(|_| model.lost.is_none());
    let with = |pause: Option<String>| match pause {
        Some(pause) => ring.clone().raw("  ").add(pause, theme.notable().patch(theme.strong())),
        None => ring.clone(),
    };
    let brief = with(current.and_then(paused_briefly).map(str::to_owned));
    let ring = with(current.and_then(paused));
    let limits = current.and_then(limits).map_or_else(String::new, |limits| format!("  {limits}"));
    let redis = format!("  redis {}", info.redis);
    let page = info.page.as_ref().map_or_else(String::new, |page| format!("  page {page}"));
    let owner = model.snapshot.as_ref().map_or_else(String::new, owner);
    widest(
        width,
        [
            ring.clone().raw(format!("{limits}{owner}  up {up}{page}{redis}")),
            ring.clone().raw(format!("{limits}  up {up}{page}{redis}")),
            ring.clone().raw(format!("{limits}{page}{redis}")),
            ring.clone().raw(format!("{limits}{page}")),
            ring.clone().raw(&limits),
            ring,
            brief.clone().raw(limits),
            brief,
        ],
    )
}

/// The application and the layout of the ring, as far as it has them.
fn owner(snapshot: &Snapshot) -> String {
    let application = snapshot.application.as_ref().map(|name| format!("  application {name}"));
    let layout = snapshot.layout.map(|layout| format!("  layout {layout}"));
    application.into_iter().chain(layout).collect()
}

/// The line about the generator.
fn office(model: &Model, theme: Theme, width: u16) -> SafeLine {
    if let Some(reason) = &model.lost {
        return SafeLine::styled(format!("REDIS DOES NOT ANSWER: {reason}"), theme.bad());
    }
    let Some(snapshot) = &model.snapshot else {
        return SafeLine::styled("looking for the ring ...", theme.faint());
    };
    let takeovers = format!(", take-overs {}", grouped(snapshot.takeovers));
    let counts = format!("{takeovers}, {}", counted(snapshot.members.len() as u64, "member"));
    let line = SafeLine::from("generator ");
    let Some(generator) = &snapshot.generator else {
        return line.add("none", theme.notable().patch(theme.strong())).raw(counts);
    };
    let mut line = line.add(format!("{} {}", theme.mark(), generator.member), theme.office());
    let condition = model.generator().map_or(Condition::Dead, |row| row.condition);
    if condition != Condition::Alive {
        let any_alive = model.rows.iter().any(|row| row.condition == Condition::Alive);
        let suffix = if any_alive { "" } else { " AND NO OTHER NODE IS ALIVE" };
        let name = condition.name().to_uppercase();
        line = line.add(format!(" IS {name}{suffix}"), theme.bad());
    }
    let (since, epoch) = (whole_seconds(generator.in_office_ms), generator.epoch);
    let term = format!(" on {} for {since}", generator.host);
    widest(
        width,
        [
            line.clone().raw(format!("{term}, epoch {epoch}{counts}")),
            line.clone().raw(format!("{term}{counts}")),
            line.clone().raw(&counts),
            line.clone().raw(takeovers),
            line,
        ],
    )
}

/// The line about the balance, as detailed as the width allows. Old figures have their age, and they are dim.
fn balance(model: &Model, theme: Theme, width: u16, now_ms: u64) -> SafeLine {
    let Some(snapshot) = &model.snapshot else {
        return SafeLine::default();
    };
    let age = whole_seconds(now_ms.saturating_sub(model.seen_ms));
    let last_seen = format!("last seen {age} ago");
    let (verdict, shorter, style) = match (model.lost.is_some(), snapshot.balanced) {
        (true, _) => (last_seen.as_str(), last_seen.as_str(), theme.faint()),
        (false, true) => ("balance adds up", "adds up", theme.good()),
        (false, false) => ("BALANCE IS OFF", "BALANCE IS OFF", theme.bad().patch(theme.selected())),
    };
    let figures = if model.lost.is_some() { theme.faint() } else { Style::new() };
    let line = |verdict: &str, text: String| {
        SafeLine::default().add(verdict, style).add(format!(": {text}"), figures)
    };
    let usual = |name| match name {
        "in flight" => "held",
        "errors kept" => "errors",
        "errors taken" => "taken",
        name => name,
    };
    let least = |name| match name {
        "waiting" => "wait",
        "in flight" => "held",
        "errors kept" => "err",
        "errors taken" => "taken",
        name => name,
    };
    let (published, done) = (short(snapshot.published), short(snapshot.done));
    widest(
        width,
        [
            line(verdict, sum(snapshot, grouped, |name| name)),
            line(verdict, sum(snapshot, grouped, usual)),
            line(verdict, sum(snapshot, short, least)),
            line(shorter, sum(snapshot, short, least)),
            line(shorter, format!("{published} published, {done} done")),
        ],
    )
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
pub fn draw_tiny(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) {
    let mut lines = Vec::new();
    if model.lost.is_some() {
        let age = whole_seconds(now_ms.saturating_sub(model.seen_ms));
        lines.push(SafeLine::styled(format!("REDIS LOST, {age} ago"), theme.bad()));
    }
    let current = |style: Style| if model.lost.is_some() { theme.faint() } else { style };
    if let Some(snapshot) = &model.snapshot {
        let office = snapshot.generator.as_ref();
        let office = office.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
        lines.push(SafeLine::styled(
            format!("{} {office} of {}", theme.mark(), grouped(snapshot.members.len() as u64)),
            current(theme.office()),
        ));
        if let Some(pause) = paused_briefly(snapshot) {
            lines.push(SafeLine::styled(pause, current(theme.notable())));
        }
        lines.push(match snapshot.balanced {
            true => SafeLine::styled("adds up", current(theme.good())),
            false => SafeLine::styled("DOES NOT ADD UP", current(theme.bad())),
        });
        let counts = format!("done {} err {}", short(snapshot.done), short(snapshot.errors_kept));
        lines.push(SafeLine::styled(counts, current(Style::new())));
    }
    lines.push(SafeLine::styled(format!("ring {}", model.info.ring), theme.faint()));
    lines.push(SafeLine::styled("q quits, ? helps", theme.faint()));
    frame.render_widget(paragraph(lines), area);
}
