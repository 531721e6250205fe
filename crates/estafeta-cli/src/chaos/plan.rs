//! What is done to whom, and when: decided by the seed before the first copy starts.
//!
//! The plan holds each wanted kind of fault at least once, the rest by weight, at random moments. Some strikes are meant
//! for the generator, whoever that is when the moment comes; and one that finds its victim down already hits the next
//! copy. So the same seed always gives the same plan, though not the same course of events.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::LEASE;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Kill,
    Freeze,
    Cut,
    Lag,
    HalfOpen,
    LostReply,
    RedisKill,
    RedisStall,
    ScriptFlush,
    ClientKill,
    Flood,
}

impl Kind {
    pub const ALL: [Self; 11] = [
        Self::Kill,
        Self::Freeze,
        Self::Cut,
        Self::Lag,
        Self::HalfOpen,
        Self::LostReply,
        Self::RedisKill,
        Self::RedisStall,
        Self::ScriptFlush,
        Self::ClientKill,
        Self::Flood,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::Lag => "lag",
            Self::HalfOpen => "half-open",
            Self::LostReply => "lost-reply",
            Self::RedisKill => "redis-kill",
            Self::RedisStall => "redis-stall",
            Self::ScriptFlush => "script-flush",
            Self::ClientKill => "client-kill",
            Self::Flood => "flood",
        }
    }

    /// Whether it would hit others who use the same Redis.
    pub fn needs_own_redis(self) -> bool {
        !matches!(self, Self::Kill | Self::Freeze | Self::Cut | Self::Lag | Self::HalfOpen | Self::LostReply)
    }

    /// How often it comes, compared with others.
    fn weight(self) -> u32 {
        match self {
            Self::Kill => 5,
            Self::Freeze | Self::Cut | Self::LostReply => 3,
            Self::Lag | Self::HalfOpen | Self::ClientKill => 2,
            Self::RedisKill | Self::RedisStall | Self::ScriptFlush | Self::Flood => 1,
        }
    }

    fn duration(self, random: &mut SmallRng) -> Duration {
        let mut between = |from: f64, to: f64| LEASE.mul_f64(random.random_range(from..to));
        match self {
            // Until it is started again.
            Self::Kill => between(0.05, 1.5),
            // Some within their lease, some long beyond it.
            Self::Freeze => match random.random_range(0..3) {
                0 => LEASE.mul_f64(0.9),
                1 => LEASE * 3,
                _ => LEASE.mul_f64(random.random_range(0.2..2.0)),
            },
            Self::Cut => between(0.05, 2.0),
            Self::Lag | Self::HalfOpen => between(0.5, 3.0),
            Self::RedisKill => between(0.05, 1.5),
            Self::RedisStall => between(0.2, 2.0),
            Self::Flood => between(1.0, 3.0),
            Self::LostReply | Self::ScriptFlush | Self::ClientKill => Duration::ZERO,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kinds of faults that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that make sense on the Redis at hand.
    All,
    These(Vec<Kind>),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut kinds = Vec::new();
        for name in text.split(',').map(str::trim) {
            if name == "all" {
                return Ok(Self::All);
            }
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                let names = Kind::ALL.map(Kind::name).join(", ");
                format!("expected all, or some of {names}, separated by commas; got {name:?}")
            })?;
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        // The order in which they were named must not change the plan.
        kinds.sort_unstable();
        Ok(Self::These(kinds))
    }
}

/// Whom a strike is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Redis,
    Generator,
    Copy(usize),
    /// All copies at once, but for this one.
    AllBut(usize),
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Counted from the moment when the ring was up.
    pub at: Duration,
    pub kind: Kind,
    pub target: Target,
    pub lasts: Duration,
    /// Chooses among the forms that some kinds have.
    pub form: u32,
}

/// The mean time between two strikes.
const PACE: Duration = Duration::from_millis(600);
/// Redis as a whole goes down no more often than this, so that there is something left to attack.
const REDIS_REST: Duration = Duration::from_secs(6);

pub fn plan(seed: u64, length: Duration, copies: usize, kinds: &[Kind]) -> Vec<Strike> {
    let mut random = SmallRng::seed_from_u64(seed);
    let count = (length.as_secs_f64() / PACE.as_secs_f64()) as usize;
    let mut chosen = kinds.to_vec();
    let rests = (length.as_secs_f64() / REDIS_REST.as_secs_f64()) as usize;
    while chosen.len() < count {
        let kind = choose(&mut random, kinds);
        let takes_redis_down = |kind: &Kind| matches!(kind, Kind::RedisKill | Kind::RedisStall);
        if takes_redis_down(&kind)
            && chosen.iter().filter(|kind| takes_redis_down(kind)).count() >= rests
            && !kinds.iter().all(takes_redis_down)
        {
            continue;
        }
        chosen.push(kind);
    }
    chosen.shuffle(&mut random);
    // Each strike in its own share of the time, somewhere: none is crowded out, however short the run.
    let share = length / u32::try_from(chosen.len().max(1)).unwrap_or(u32::MAX);
    let strike = |(index, kind): (usize, Kind)| {
        let at =
            share * u32::try_from(index).unwrap_or(u32::MAX) + share.mul_f64(random.random_range(0.0..0.9));
        let target = if kind.needs_own_redis() {
            Target::Redis
        } else {
            match random.random_range(0..10) {
                0 if kind == Kind::Kill => Target::AllBut(random.random_range(0..copies)),
                0..5 => Target::Generator,
                _ => Target::Copy(random.random_range(0..copies)),
            }
        };
        Strike { at, kind, target, lasts: kind.duration(&mut random), form: random.random() }
    };
    chosen.into_iter().enumerate().map(strike).collect()
}

fn choose(random: &mut SmallRng, kinds: &[Kind]) -> Kind {
    let total: u32 = kinds.iter().map(|kind| kind.weight()).sum();
    let mut ticket = random.random_range(0..total);
    for kind in kinds {
        match ticket.checked_sub(kind.weight()) {
            Some(rest) => ticket = rest,
            None => return *kind,
        }
    }
    kinds[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        assert_eq!(plan(7, MINUTE, 8, &Kind::ALL), plan(7, MINUTE, 8, &Kind::ALL));
        assert_ne!(plan(7, MINUTE, 8, &Kind::ALL), plan(8, MINUTE, 8, &Kind::ALL));
    }

    #[test]
    fn every_plan_has_each_kind_in_order_of_time_and_on_somebody() {
        for seed in 0..50 {
            for (length, copies) in [(MINUTE, 8), (Duration::from_secs(2), 2)] {
                let strikes = plan(seed, length, copies, &Kind::ALL);
                for kind in Kind::ALL {
                    assert!(strikes.iter().any(|strike| strike.kind == kind), "{kind} in {strikes:?}");
                }
                assert!(strikes.is_sorted_by_key(|strike| strike.at));
                assert!(strikes.iter().all(|strike| strike.at < length));
                let exists = |target| match target {
                    Target::Copy(copy) | Target::AllBut(copy) => copy < copies,
                    Target::Redis | Target::Generator => true,
                };
                assert!(strikes.iter().all(|strike| exists(strike.target)));
            }
        }
    }

    #[test]
    fn only_what_was_asked_for_is_planned() {
        let Wanted::These(kinds) = "kill, redis-kill,kill".parse().unwrap() else { panic!("not all") };
        assert_eq!(kinds, [Kind::Kill, Kind::RedisKill]);
        let strikes = plan(1, MINUTE, 3, &kinds);
        assert!(!strikes.is_empty() && strikes.iter().all(|strike| kinds.contains(&strike.kind)));
        let only_redis = plan(1, MINUTE, 3, &[Kind::RedisStall]);
        assert!(!only_redis.is_empty());
        assert!(only_redis.iter().all(|strike| strike.target == Target::Redis));
        assert_eq!("kill,all".parse(), Ok(Wanted::All));
        let error = "kil".parse::<Wanted>().unwrap_err();
        assert!(
            error.contains("expected all, or some of kill, freeze") && error.contains("got \"kil\""),
            "{error}"
        );
    }
}
