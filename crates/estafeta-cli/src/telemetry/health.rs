//! Whether a node lives and is ready, as far as its notices show it. Nothing here asks Redis.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use estafeta::Notice;
use estafeta_lab::escape::escape;

/// A control thread that was not heard of for this long hangs. It reports once per second.
const HANGS: Duration = Duration::from_secs(10);

/// What the notices of a node show about its health.
pub struct NodeHealth {
    /// Redis must have answered a step within this time.
    patience: Duration,
    /// One for each partition of the ring.
    states: Mutex<Vec<HealthState>>,
}

#[derive(Clone)]
struct HealthState {
    is_member: bool,
    stops: bool,
    ran_at: Instant,
    answered_at: Option<Instant>,
    /// Why Redis does not serve the node.
    outage: Option<String>,
}

impl NodeHealth {
    pub fn new(lease: Duration, partitions: u32) -> Self {
        let state = HealthState {
            is_member: false,
            stops: false,
            ran_at: Instant::now(),
            answered_at: None,
            outage: None,
        };
        Self { patience: 2 * lease, states: Mutex::new(vec![state; partitions as usize]) }
    }

    pub fn notice(&self, partition: u32, notice: &Notice<'_>) {
        let mut states = self.states.lock().expect("no panic while held");
        let Some(state) = states.get_mut(partition as usize) else { return };
        match notice {
            Notice::Joined { .. } => state.is_member = true,
            Notice::DeclaredDead | Notice::Left { .. } => state.is_member = false,
            Notice::Stopping => state.stops = true,
            Notice::StillRunning => state.ran_at = Instant::now(),
            Notice::StepAnswered { .. } => state.answered_at = Some(Instant::now()),
            Notice::RedisLost { reason } => state.outage = Some(escape(reason.as_bytes())),
            Notice::RedisBack => state.outage = None,
            _ => {}
        }
    }

    /// A sentence about the node. It is an error if the process hangs and should be restarted.
    pub fn liveness(&self, now: Instant) -> Result<String, String> {
        self.each(|state| state.check_control_thread(now))?;
        Ok("the node lives".to_owned())
    }

    /// A sentence about the node. It is an error if the node cannot do its work at the moment.
    pub fn readiness(&self, now: Instant) -> Result<String, String> {
        self.each(|state| state.check_control_thread(now))?;
        self.each(|state| state.check_work(now, self.patience))?;
        Ok("the node is a member of its ring, and Redis answers".to_owned())
    }

    /// The first thing that is wrong in any partition.
    fn each(&self, check: impl Fn(&HealthState) -> Result<(), String>) -> Result<(), String> {
        let states = self.states.lock().expect("no panic while held");
        for (index, state) in states.iter().enumerate() {
            check(state).map_err(|why| match states.len() {
                1 => why,
                _ => format!("partition {index}: {why}"),
            })?;
        }
        Ok(())
    }
}

impl HealthState {
    fn check_control_thread(&self, now: Instant) -> Result<(), String> {
        let silent = now.saturating_duration_since(self.ran_at);
        match silent < HANGS {
            true => Ok(()),
            false => Err(format!("the control thread of this node has not run for {} s", silent.as_secs())),
        }
    }

    fn check_work(&self, now: Instant, patience: Duration) -> Result<(), String> {
        let silent = self.answered_at.map(|at| now.saturating_duration_since(at));
        if self.stops {
            Err("the node stops".to_owned())
        } else if let Some(silent) = silent.filter(|silent| *silent > patience) {
            let reason = self.outage.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            Err(format!("Redis has not answered this node for {} s{reason}", silent.as_secs()))
        } else if !self.is_member {
            Err("the node is not a member of its ring".to_owned())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use estafeta::MemberId;

    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    #[test]
    fn a_node_is_ready_while_redis_answers_it_within_two_leases() {
        let health = NodeHealth::new(LEASE, 1);
        let now = Instant::now;
        assert!(health.readiness(now()).unwrap_err().contains("not a member"));
        health.notice(0, &Notice::StepAnswered { step: "join", took: Duration::ZERO });
        health.notice(0, &Notice::Joined { member: MemberId(3) });
        assert!(health.readiness(now()).is_ok());
        assert!(health.readiness(now() + LEASE).is_ok());
        let late = now() + 2 * LEASE + Duration::from_millis(1);
        assert_eq!(health.readiness(late).unwrap_err(), "Redis has not answered this node for 4 s");
        health.notice(0, &Notice::RedisLost { reason: "it is\naway" });
        let why = health.readiness(late).unwrap_err();
        assert_eq!(why, "Redis has not answered this node for 4 s: it is\\naway");
        assert!(health.liveness(late).is_ok(), "a node without Redis lives");
        health.notice(0, &Notice::DeclaredDead);
        assert!(health.readiness(now()).unwrap_err().contains("not a member"));
        health.notice(0, &Notice::Joined { member: MemberId(4) });
        health.notice(0, &Notice::Stopping);
        assert_eq!(health.readiness(now()).unwrap_err(), "the node stops");
    }

    #[test]
    fn a_node_whose_control_thread_hangs_is_neither_alive_nor_ready() {
        let health = NodeHealth::new(Duration::from_secs(60), 1);
        health.notice(0, &Notice::Joined { member: MemberId(3) });
        health.notice(0, &Notice::StillRunning);
        let late = Instant::now() + HANGS;
        for answer in [health.liveness(late), health.readiness(late)] {
            assert_eq!(answer.unwrap_err(), "the control thread of this node has not run for 10 s");
        }
    }

    #[test]
    fn a_node_is_ready_when_it_is_a_member_of_every_partition() {
        let health = NodeHealth::new(LEASE, 2);
        let now = Instant::now;
        health.notice(0, &Notice::Joined { member: MemberId(3) });
        let why = health.readiness(now()).unwrap_err();
        assert_eq!(why, "partition 1: the node is not a member of its ring");
        health.notice(1, &Notice::Joined { member: MemberId(3) });
        assert!(health.readiness(now()).is_ok());
        health.notice(0, &Notice::DeclaredDead);
        assert!(health.readiness(now()).unwrap_err().starts_with("partition 0: "));
    }
}
