//! How long nothing is tried with a command that cannot be started: longer each time, until it works.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The rest that is going on, if any. All lanes of a node share it, so they rest together.
#[derive(Debug)]
pub(crate) struct Rests {
    first: Duration,
    longest: Duration,
    state: Mutex<(u32, Option<Instant>)>,
}

impl Rests {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, state: Mutex::default() }
    }

    /// A start has failed. Returns how long to rest.
    pub fn next(&self, now: Instant) -> Duration {
        let mut state = self.state.lock().expect("no panic while held");
        if let Some(left) =
            state.1.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero())
        {
            return left;
        }
        let rest = self.first.saturating_mul(1 << state.0.min(16)).min(self.longest);
        *state = (state.0 + 1, Some(now + rest));
        rest
    }

    /// The command works.
    pub fn end(&self) {
        *self.state.lock().expect("no panic while held") = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest_and_begin_anew_after_a_start() {
        let rests = Rests::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut now = Instant::now();
        let mut seconds = Vec::new();
        for _ in 0..8 {
            let rest = rests.next(now);
            assert_eq!(rests.next(now + rest / 2), rest - rest / 2, "a lane joins the rest that goes on");
            now += rest;
            seconds.push(rest.as_secs());
        }
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        rests.end();
        assert_eq!(rests.next(now), Duration::from_secs(1));
    }
}
