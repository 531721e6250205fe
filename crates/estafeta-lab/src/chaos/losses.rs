//! What the Redis under attack may lose of what it has acknowledged.

/// What Redis may lose, by its topology and by the durability that the processes ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Losses {
    /// Nothing.
    #[default]
    Nothing,
    /// Only steps that were not confirmed, so no process has reported them.
    Unconfirmed,
    /// Steps that it acknowledged in these times, from and until, in ms since 1970. A replica without them may have been
    /// promoted.
    During(Vec<(u64, u64)>),
}

impl Losses {
    /// Whether a step that a process reported at this time may be lost.
    pub fn cover(&self, at_ms: u64) -> bool {
        self.cover_some_of(at_ms, at_ms)
    }

    /// Whether a step that a process reported between these times may be lost.
    pub fn cover_some_of(&self, from_ms: u64, until_ms: u64) -> bool {
        match self {
            Self::Nothing | Self::Unconfirmed => false,
            Self::During(times) => times.iter().any(|(from, until)| *from <= until_ms && from_ms <= *until),
        }
    }

    /// Whether anything at all may be lost that processes have reported.
    pub fn are_reported(&self) -> bool {
        matches!(self, Self::During(_))
    }

    /// For how long, between these times, a step that a process reported could be lost. None if there is no such time in
    /// the whole run.
    pub fn at_risk_ms(&self, from_ms: u64, until_ms: u64) -> Option<u64> {
        let Self::During(times) = self else { return None };
        let mut times = times.clone();
        times.sort_unstable();
        let (mut sum, mut counted_until) = (0, from_ms);
        for (from, until) in times {
            let (from, until) = (from.max(counted_until), until.min(until_ms));
            sum += until.saturating_sub(from);
            counted_until = counted_until.max(until);
        }
        Some(sum)
    }
}
