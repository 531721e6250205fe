//! Adds the state of the ring to its history, once per second.
//!
//! The generator samples. A ring whose nodes never generate has no generator by design. There, one of the other nodes
//! samples: Redis lets the node go on that sampled last, until it has been silent for two and a half seconds. The others
//! ask so seldom that all of them together ask about twice per second, however many they are.
//!
//! History is a convenience. So the sampler has a store that gives up, and it never keeps a node from beating. Each call
//! is sent in the middle of a second of Redis' clock. A call that comes a little early or late still meets its second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::state::{MemberState, ServerClock};
use crate::config::Config;
use crate::error::Result;
use crate::identity::{Epoch, Identity};
use crate::redis::Store;
use crate::steps::Sampling;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Sampler {
    /// A store that gives up if Redis does not answer.
    pub store: Store,
    pub config: Arc<Config>,
    pub state: watch::Receiver<MemberState>,
    /// The number of members while the ring has no living generator, and None otherwise.
    pub unguarded: watch::Receiver<Option<u64>>,
    /// Redis' clock, as beats report it.
    pub clock: watch::Receiver<ServerClock>,
}

impl Sampler {
    pub async fn run(mut self, end: CancellationToken) -> Result<()> {
        let mut silence = Silence::longer_than(SECOND.max(2 * self.config.beat()));
        let mut has_failed = false;
        let mut rests_until = Instant::now();
        loop {
            let turn = self.turn();
            let wait = async {
                match turn {
                    Some(_) => tokio::time::sleep_until(rests_until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                changed = self.clock.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    silence.note(self.clock.borrow_and_update().heard_at());
                    continue;
                }
                changed = self.state.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.state.borrow_and_update();
                    // A term begins with a sample.
                    rests_until = Instant::now();
                    continue;
                }
                () = wait => {}
            }
            let Some((me, epoch)) = turn else { continue };
            let silent = silence.until(Instant::now());
            let sampled = tokio::select! {
                // At the end of a node, nothing connects to Redis again. A call without a session would wait for ever.
                () = end.cancelled() => return Ok(()),
                sampled = self.store.sample(me, epoch, silent) => sampled,
            };
            let pause = match sampled {
                Ok(Sampling::Sampled { now_ms }) => {
                    has_failed = false;
                    silence.forget(Instant::now());
                    until_next_second(now_ms)
                }
                Ok(Sampling::Fenced | Sampling::Other) => self.pause_of_others(),
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!("cannot add to the history of the ring: {error}");
                    }
                    SECOND
                }
            };
            rests_until = Instant::now() + pause;
        }
    }

    /// As which member this node samples, if it does.
    fn turn(&self) -> Option<(Identity, Option<Epoch>)> {
        match &*self.state.borrow() {
            MemberState::Generator(me, term, _) => Some((*me, Some(term.epoch))),
            MemberState::Handler(me) if self.config.never_generate => Some((*me, None)),
            _ => None,
        }
    }

    /// How long a node rests that may not sample now.
    fn pause_of_others(&self) -> Duration {
        let members = self.unguarded.borrow().unwrap_or(0).clamp(4, 3_600);
        SECOND / 2 * u32::try_from(members).unwrap_or(u32::MAX)
    }
}

/// The time to the middle of the next second of Redis' clock.
fn until_next_second(now_ms: u64) -> Duration {
    Duration::from_millis(1_500 - now_ms % 1_000)
}

/// The longest time in which Redis did not answer this node, if it was longer than answers are usually apart.
struct Silence {
    usual: Duration,
    heard_at: Instant,
    longest: Duration,
    /// When the last silence ended.
    ended_at: Instant,
}

impl Silence {
    /// What ended longer ago is no reason for a gap before the next sample. A node that waits for the office does not
    /// sample, so it would hand over the silences of its whole life.
    const RECENT: Duration = Duration::from_secs(10);

    fn longer_than(usual: Duration) -> Self {
        let now = Instant::now();
        Self { usual, heard_at: now, longest: Duration::ZERO, ended_at: now }
    }

    /// Redis has answered.
    fn note(&mut self, at: Instant) {
        self.longest = self.until(at);
        if at.saturating_duration_since(self.heard_at) > self.usual {
            self.ended_at = at;
        }
        self.heard_at = self.heard_at.max(at);
    }

    /// The longest silence of late. It may go on at this moment.
    fn until(&self, now: Instant) -> Duration {
        let is_recent = now.saturating_duration_since(self.ended_at) <= Self::RECENT;
        let longest = if is_recent { self.longest } else { Duration::ZERO };
        let since = now.saturating_duration_since(self.heard_at);
        if since > self.usual { longest.max(since) } else { longest }
    }

    /// Redis has recorded the longest silence with an answer that came now.
    fn forget(&mut self, now: Instant) {
        (self.longest, self.heard_at) = (Duration::ZERO, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_taken_in_the_middle_of_each_second() {
        for (now_ms, pause) in [(7_000, 1_500), (7_500, 1_000), (7_999, 501), (8_001, 1_499)] {
            assert_eq!(until_next_second(now_ms), Duration::from_millis(pause));
        }
    }

    #[test]
    fn a_silence_that_ended_long_ago_is_no_reason_for_a_gap() {
        let mut silence = Silence::longer_than(SECOND);
        let start = silence.heard_at;
        let at = |ms| start + Duration::from_millis(ms);
        for ms in [3_000, 3_500, 4_000] {
            silence.note(at(ms));
        }
        assert_eq!(silence.until(at(4_500)), Duration::from_millis(3_000));
        for ms in (5_000..=14_000).step_by(500) {
            silence.note(at(ms));
        }
        assert_eq!(silence.until(at(14_100)), Duration::ZERO);
    }

    #[test]
    fn only_a_long_silence_counts_and_only_until_it_is_recorded() {
        let mut silence = Silence::longer_than(SECOND);
        let start = silence.heard_at;
        let at = |ms| start + Duration::from_millis(ms);
        for ms in [0, 500, 1_500, 9_000, 9_500, 12_000] {
            silence.note(at(ms));
        }
        assert_eq!(silence.until(at(12_900)), Duration::from_millis(7_500));
        assert_eq!(silence.until(at(20_000)), Duration::from_millis(8_000), "it goes on");
        silence.forget(at(20_000));
        assert_eq!(silence.until(at(20_500)), Duration::ZERO);
        // A beat that was answered before the sample.
        silence.note(at(19_900));
        assert_eq!(silence.until(at(20_900)), Duration::ZERO);
    }
}
