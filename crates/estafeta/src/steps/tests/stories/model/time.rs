//! Times of Redis' clock, as far as the model knows them.

/// A time of Redis' clock, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Span {
    pub from: u64,
    pub to: u64,
}

/// When a step was made.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ModelClock {
    pub span: Span,
    /// The exact time, if it is known.
    pub now: Option<u64>,
}

impl Span {
    pub fn exactly(ms: u64) -> Self {
        Self { from: ms, to: ms }
    }

    pub fn plus(self, ms: u64) -> Self {
        Self { from: self.from + ms, to: self.to + ms }
    }

    /// How long it takes from `now` to this time.
    pub fn since(self, now: Self) -> Self {
        Self { from: self.from.saturating_sub(now.to), to: self.to.saturating_sub(now.from) }
    }

    pub fn covers(self, ms: u64) -> bool {
        (self.from..=self.to).contains(&ms)
    }
}

impl ModelClock {
    pub fn now(&self) -> u64 {
        self.now.unwrap_or(self.span.from)
    }

    /// The time `ms` after this step, as far as it is known.
    pub fn in_ms(&self, ms: u64) -> Span {
        self.now.map_or(self.span, Span::exactly).plus(ms)
    }
}
