//! A copy that this monitor started, as far as it is known from the process itself and from what it says.

use estafeta::MemberId;

use super::said::Said;

/// Tells our copies apart, also those that have no number yet. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Running totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub generated: u64,
    pub processed: u64,
    pub failed: u64,
}

#[derive(Debug)]
pub struct Own {
    pub slot: Slot,
    pub pid: u32,
    pub started_ms: u64,
    /// Its number, once it has joined; another one after it was declared dead and came back.
    pub member: Option<MemberId>,
    pub frozen: bool,
    /// Told to stop, by us or by somebody else.
    pub stopping: bool,
    /// Killed from here.
    pub killed: bool,
    pub ended: Option<Ended>,
    /// How long to wait before it is started again by itself.
    pub pause_ms: u64,
    totals: Totals,
    at_join: Totals,
}

#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub at_ms: u64,
    /// When it is started again.
    pub back_at_ms: Option<u64>,
}

impl Own {
    pub fn new(slot: Slot, pid: u32, started_ms: u64, pause_ms: u64) -> Self {
        Self {
            slot,
            pid,
            started_ms,
            member: None,
            frozen: false,
            stopping: false,
            killed: false,
            ended: None,
            pause_ms,
            totals: Totals::default(),
            at_join: Totals::default(),
        }
    }

    pub fn hear(&mut self, said: &Said) {
        match *said {
            Said::CreatedTaskId { task_id } => {
                self.member = Some(MemberId(task_id));
                self.at_join = self.totals;
            }
            Said::Generated { total } => self.totals.generated = total,
            Said::Processed { total, errors } => {
                (self.totals.processed, self.totals.failed) = (total, errors);
            }
            Said::Stopping => self.stopping = true,
            _ => {}
        }
    }

    /// What it said it did as the member that it is.
    pub fn since_joining(&self) -> Totals {
        Totals {
            generated: self.totals.generated.saturating_sub(self.at_join.generated),
            processed: self.totals.processed.saturating_sub(self.at_join.processed),
            failed: self.totals.failed.saturating_sub(self.at_join.failed),
        }
    }

    pub fn runs(&self) -> bool {
        self.ended.is_none()
    }
}
