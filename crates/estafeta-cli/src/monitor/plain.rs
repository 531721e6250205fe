//! One line a second, for where there is no terminal.

use super::state::State;
use crate::output::moment;

/// Names and figures by turns, so that a program can read them as well.
pub fn line(state: &State, now_ms: u64) -> String {
    let when = moment(now_ms);
    let ring = &state.setting.ring;
    if let Some(reason) = &state.lost {
        return format!("{when} ring {ring} Redis does not answer: {reason}");
    }
    let Some(snapshot) = &state.snapshot else {
        return format!("{when} ring {ring} not looked at yet");
    };
    let generator = snapshot.generator.as_ref();
    let generator = generator.map_or_else(|| "none".to_owned(), |generator| generator.member.to_string());
    let epoch = snapshot.generator.as_ref().map_or(0, |generator| generator.epoch.0);
    let rates = state.history.now().unwrap_or_default();
    format!(
        "{when} ring {ring} generator {generator} epoch {epoch} take-overs {} members {} mine {} generated/s {:.1} \
         handled/s {:.1} errors/s {:.1} published {} waiting {} in-flight {} done {} errors-kept {} errors-taken {} \
         balance {}",
        snapshot.takeovers,
        snapshot.members.len(),
        state.running().count(),
        rates.generated,
        rates.handled,
        rates.errors,
        snapshot.published,
        snapshot.waiting,
        snapshot.in_flight,
        snapshot.done,
        snapshot.errors_kept,
        snapshot.errors_taken,
        if snapshot.balanced { "adds-up" } else { "DOES-NOT-ADD-UP" },
    )
}
