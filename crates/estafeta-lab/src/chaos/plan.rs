//! The plan of a run: which fault hits which target, and when. The seed decides it before the first node starts.
//!
//! The plan holds each requested kind of fault at least once. Weights decide the rest, and the times are random. Some
//! faults are meant for the generator, which is known only when the fault is due. A fault whose victim is down already
//! hits the next node. So the same seed always gives the same plan, though not the same course of events.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::LEASE;
use crate::redis_servers::Topology;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
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
    Failover,
    Migrate,
    Demote,
    ReplicaLag,
    NodeKill,
}

impl FaultKind {
    pub const ALL: [Self; 16] = [
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
        Self::Failover,
        Self::Migrate,
        Self::Demote,
        Self::ReplicaLag,
        Self::NodeKill,
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
            Self::Failover => "failover",
            Self::Migrate => "migrate",
            Self::Demote => "demote",
            Self::ReplicaLag => "replica-lag",
            Self::NodeKill => "node-kill",
        }
    }

    /// The topologies in which it can happen.
    pub fn topologies(self) -> &'static [Topology] {
        match self {
            // Elsewhere, `node-kill` kills the server, and another one may take its place.
            Self::RedisKill => &[Topology::Single],
            Self::Failover | Self::ReplicaLag | Self::NodeKill => &[Topology::Sentinel, Topology::Cluster],
            Self::Migrate => &[Topology::Cluster],
            _ => &Topology::ALL,
        }
    }

    /// Whether another server may keep the ring after it.
    pub fn may_move_ring(self) -> bool {
        let moving =
            [Self::RedisStall, Self::Failover, Self::Migrate, Self::Demote, Self::ReplicaLag, Self::NodeKill];
        moving.contains(&self)
    }

    /// Whether it moves the ring only when the new server has everything.
    pub fn is_lossless_in(self, topology: Option<Topology>) -> bool {
        topology == Some(Topology::Cluster) && matches!(self, Self::Migrate | Self::Failover)
    }

    /// Whether it would also hit other users of the same Redis.
    pub fn needs_own_redis(self) -> bool {
        !matches!(self, Self::Kill | Self::Freeze | Self::Cut | Self::Lag | Self::HalfOpen | Self::LostReply)
    }

    /// How often it occurs, compared with other kinds.
    fn weight(self) -> u32 {
        match self {
            Self::Kill => 5,
            Self::Freeze | Self::Cut | Self::LostReply => 3,
            Self::Lag | Self::HalfOpen | Self::ClientKill => 2,
            Self::RedisKill | Self::RedisStall | Self::ScriptFlush | Self::Flood => 1,
            Self::Failover | Self::Migrate | Self::Demote | Self::ReplicaLag | Self::NodeKill => 1,
        }
    }

    fn duration(self, random: &mut SmallRng) -> Duration {
        let between =
            |random: &mut SmallRng, from: f64, to: f64| LEASE.mul_f64(random.random_range(from..to));
        match self {
            // The time until the node is started again.
            Self::Kill => between(random, 0.05, 1.5),
            // Some are shorter than the lease, some much longer.
            Self::Freeze => match random.random_range(0..3) {
                0 => LEASE.mul_f64(0.9),
                1 => LEASE * 3,
                _ => LEASE.mul_f64(random.random_range(0.2..2.0)),
            },
            Self::Cut => between(random, 0.05, 2.0),
            Self::Lag | Self::HalfOpen => between(random, 0.5, 3.0),
            Self::RedisKill => between(random, 0.05, 1.5),
            Self::RedisStall => between(random, 0.2, 2.0),
            Self::Flood => between(random, 1.0, 3.0),
            // Some are shorter than the lease, some longer.
            Self::Migrate if random.random() => LEASE.mul_f64(random.random_range(0.1..0.8)),
            Self::Migrate => LEASE.mul_f64(random.random_range(1.2..2.5)),
            Self::ReplicaLag => between(random, 0.3, 2.0),
            // Some servers come back before anyone has taken them for dead.
            Self::NodeKill => between(random, 0.05, 3.0),
            Self::LostReply | Self::ScriptFlush | Self::ClientKill | Self::Failover | Self::Demote => {
                Duration::ZERO
            }
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kinds of faults that the user requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that are possible on the Redis under attack.
    All,
    These(Vec<FaultKind>),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut kinds = Vec::new();
        for name in text.split(',').map(str::trim) {
            if name == "all" {
                return Ok(Self::All);
            }
            let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                let names = FaultKind::ALL.map(FaultKind::name).join(", ");
                format!("expected all, or some of {names}, separated by commas; got {name:?}")
            })?;
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        // The order in which the user named them must not change the plan.
        kinds.sort_unstable();
        Ok(Self::These(kinds))
    }
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Redis,
    Generator,
    /// A node or a publisher.
    Process(usize),
    /// All nodes at once, except this one.
    AllBut(usize),
}

/// One fault of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// The time since the attack began.
    pub at: Duration,
    pub kind: FaultKind,
    pub target: Target,
    pub lasts: Duration,
    /// Selects a variant, for kinds that have several.
    pub form: u32,
}

/// The mean time between two faults.
const PACE: Duration = Duration::from_millis(600);
/// On average, the plan takes Redis down no more often than this, so that there is something left to attack.
const REDIS_REST: Duration = Duration::from_secs(6);

/// The first targets are the nodes, and the publishers follow them.
pub fn plan(
    seed: u64,
    length: Duration,
    (nodes, publishers): (usize, usize),
    kinds: &[FaultKind],
) -> Vec<PlannedFault> {
    let mut random = SmallRng::seed_from_u64(seed);
    let count = (length.as_secs_f64() / PACE.as_secs_f64()) as usize;
    let mut chosen = kinds.to_vec();
    let rests = (length.as_secs_f64() / REDIS_REST.as_secs_f64()) as usize;
    while chosen.len() < count {
        let kind = choose(&mut random, kinds);
        let takes_redis_down = |kind: &FaultKind| *kind == FaultKind::RedisKill || kind.may_move_ring();
        if takes_redis_down(&kind)
            && chosen.iter().filter(|kind| takes_redis_down(kind)).count() >= rests
            && !kinds.iter().all(takes_redis_down)
        {
            continue;
        }
        chosen.push(kind);
    }
    chosen.shuffle(&mut random);
    // Each fault starts somewhere in its own share of the time. So all of them fit in, however short the run.
    let share = length / u32::try_from(chosen.len().max(1)).unwrap_or(u32::MAX);
    let fault = |(index, kind): (usize, FaultKind)| {
        let at =
            share * u32::try_from(index).unwrap_or(u32::MAX) + share.mul_f64(random.random_range(0.0..0.9));
        let target = if kind.needs_own_redis() {
            Target::Redis
        } else {
            match random.random_range(0..10) {
                0 if kind == FaultKind::Kill => Target::AllBut(random.random_range(0..nodes)),
                0..5 => Target::Generator,
                _ => Target::Process(random.random_range(0..nodes + publishers)),
            }
        };
        PlannedFault { at, kind, target, lasts: kind.duration(&mut random), form: random.random() }
    };
    chosen.into_iter().enumerate().map(fault).collect()
}

fn choose(random: &mut SmallRng, kinds: &[FaultKind]) -> FaultKind {
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
    fn the_same_seed_gives_the_same_plan_and_another_seed_gives_another_plan() {
        assert_eq!(plan(7, MINUTE, (8, 3), &FaultKind::ALL), plan(7, MINUTE, (8, 3), &FaultKind::ALL));
        assert_ne!(plan(7, MINUTE, (8, 3), &FaultKind::ALL), plan(8, MINUTE, (8, 3), &FaultKind::ALL));
    }

    #[test]
    fn every_plan_has_each_kind_in_order_of_time_and_only_existing_targets() {
        for seed in 0..50 {
            for (length, nodes, publishers) in [(MINUTE, 8, 3), (Duration::from_secs(2), 2, 0)] {
                let faults = plan(seed, length, (nodes, publishers), &FaultKind::ALL);
                for kind in FaultKind::ALL {
                    assert!(faults.iter().any(|fault| fault.kind == kind), "{kind} in {faults:?}");
                }
                assert!(faults.is_sorted_by_key(|fault| fault.at));
                assert!(faults.iter().all(|fault| fault.at < length));
                let exists = |target| match target {
                    Target::AllBut(node) => node < nodes,
                    Target::Process(process) => process < nodes + publishers,
                    Target::Redis | Target::Generator => true,
                };
                assert!(faults.iter().all(|fault| exists(fault.target)));
            }
        }
    }

    #[test]
    fn only_the_requested_kinds_are_planned() {
        let Wanted::These(kinds) = "kill, redis-kill,kill".parse().unwrap() else { panic!("not all") };
        assert_eq!(kinds, [FaultKind::Kill, FaultKind::RedisKill]);
        let faults = plan(1, MINUTE, (3, 0), &kinds);
        assert!(!faults.is_empty() && faults.iter().all(|fault| kinds.contains(&fault.kind)));
        let only_redis = plan(1, MINUTE, (3, 0), &[FaultKind::RedisStall]);
        assert!(!only_redis.is_empty());
        assert!(only_redis.iter().all(|fault| fault.target == Target::Redis));
        assert_eq!("kill,all".parse(), Ok(Wanted::All));
        let error = "kil".parse::<Wanted>().unwrap_err();
        assert!(
            error.contains("expected all, or some of kill, freeze") && error.contains("got \"kil\""),
            "{error}"
        );
    }
}
