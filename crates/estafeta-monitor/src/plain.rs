//! The plain output, one line per second, for a monitor without a terminal. Each line is escaped as a whole, because it
//! contains text from outside.

use crate::model::Model;
use estafeta_lab::escape::escape;
use estafeta_lab::text::{age, counted, grouped, moment};

/// The current line. Names and figures alternate, so that a program can read it too.
pub fn line(model: &Model, now_ms: u64) -> String {
    escape(raw_line(model, now_ms).as_bytes())
}

/// The summary that stays in the terminal after the monitor has quit.
pub fn summary(model: &Model, now_ms: u64) -> String {
    escape(raw_summary(model, now_ms).as_bytes())
}

fn raw_line(model: &Model, now_ms: u64) -> String {
    let when = moment(now_ms);
    let ring = &model.info.ring;
    if let Some(reason) = &model.lost {
        return format!("{when} ring {ring} Redis does not answer: {reason}");
    }
    let Some(snapshot) = &model.snapshot else {
        return format!("{when} ring {ring} was not read yet");
    };
    let generator = snapshot.generator.as_ref();
    let generator = generator.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
    let epoch = snapshot.generator.as_ref().map_or(0, |generator| generator.epoch.0);
    let state = snapshot.generator.as_ref().and_then(|generator| generator.state);
    let state = state.map_or_else(|| "none".to_owned(), |state| state.to_string());
    let rates = model.history.now().unwrap_or_default();
    let paused = match (snapshot.producing_pause, snapshot.handling_pause) {
        (None, None) => "",
        (Some(_), None) => " paused producing",
        (None, Some(_)) => " paused handling",
        (Some(_), Some(_)) => " paused both",
    };
    let in_flight = snapshot.in_flight_limit.map(|most| format!(" in-flight-limit {most}"));
    let rate = snapshot.rate_limit.map(|rate| format!(" rate-limit {rate}"));
    let limits: String = in_flight.into_iter().chain(rate).collect();
    format!(
        "{when} ring {ring} generator {generator} epoch {epoch} generator-state {state} take-overs {} members {} \
         mine {} generated/s {:.1} handled/s {:.1} errors/s {:.1} published {} waiting {} later {} in-flight {} \
         done {} cancelled {} errors-kept {} errors-taken {} lost {} submitted {} layout {} application {} \
         balance {}{}{}",
        snapshot.takeovers,
        snapshot.members.len(),
        model.running().count(),
        rates.generated,
        rates.handled,
        rates.errors,
        snapshot.published,
        snapshot.waiting,
        snapshot.later,
        snapshot.in_flight,
        snapshot.done,
        snapshot.cancelled,
        snapshot.errors_kept,
        snapshot.errors_taken,
        snapshot.lost,
        snapshot.submitted,
        snapshot.layout.map_or_else(|| "none".to_owned(), |layout| layout.to_string()),
        // A program that reads the line needs one word.
        snapshot.application.as_deref().unwrap_or("none").replace(char::is_whitespace, "_"),
        if snapshot.balanced { "adds-up" } else { "DOES-NOT-ADD-UP" },
        paused,
        limits,
    )
}

fn raw_summary(model: &Model, now_ms: u64) -> String {
    let ring = &model.info.ring;
    let Some(snapshot) = &model.snapshot else {
        return format!("ring {ring}: Redis was never read");
    };
    let (old, reason) = match &model.lost {
        Some(reason) => {
            let age = age(now_ms.saturating_sub(model.seen_ms));
            (format!(", last seen {age} ago"), format!(" ({reason})"))
        }
        None => Default::default(),
    };
    let balance = if snapshot.balanced { "the balance adds up" } else { "THE BALANCE DOES NOT ADD UP" };
    format!(
        "ring {ring}{old}: {} published, {} done, {}{} waiting, {}{} in flight, {}, {}{}; {balance}{reason}",
        grouped(snapshot.published),
        grouped(snapshot.done),
        if snapshot.cancelled > 0 {
            format!("{} cancelled, ", grouped(snapshot.cancelled))
        } else {
            String::new()
        },
        grouped(snapshot.waiting),
        if snapshot.later > 0 { format!("{} later, ", grouped(snapshot.later)) } else { String::new() },
        grouped(snapshot.in_flight),
        counted(snapshot.errors_kept + snapshot.errors_taken, "error"),
        if snapshot.lost > 0 { format!("{} lost, ", grouped(snapshot.lost)) } else { String::new() },
        counted(snapshot.takeovers, "take-over"),
    )
}
