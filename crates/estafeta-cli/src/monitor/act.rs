//! What the keys do: each command changes the state and says what is to be done.

use estafeta::Role;

use super::errors_view::ErrorsView;
use super::log::Tone;
use super::own::{Own, Slot};
use super::rows::{Condition, Key, Row};
use super::state::{Deed, Errand, RESPAWN_MS, State, View, name_of};

/// Copies of ours at most.
pub const MOST_COPIES: usize = 200;

/// What a key or the mouse asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Quit,
    KillGenerator,
    KillSelected,
    Freeze,
    Add,
    Stop,
    Restart,
    Errors,
    Pause,
    Help,
    /// Back to where one came from; in the table, to the generator.
    Back,
    Move(Step),
    /// The row with this index, by mouse.
    Choose(usize),
    Suspend,
    Search,
    /// A character of the text that is searched for, or its deletion.
    Type(char),
    Erase,
    Enter,
    Retry {
        all: bool,
    },
    Drop {
        all: bool,
    },
    Confirm(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Step {
    /// The index after this step in a list of `count`.
    pub fn from(self, at: usize, count: usize) -> usize {
        const PAGE: usize = 10;
        let last = count.saturating_sub(1);
        match self {
            Self::Up => at.saturating_sub(1),
            Self::Down => at + 1,
            Self::PageUp => at.saturating_sub(PAGE),
            Self::PageDown => at + PAGE,
            Self::First => 0,
            Self::Last => last,
        }
        .min(last)
    }
}

impl State {
    pub fn command(&mut self, now_ms: u64, command: Command) -> Vec<Deed> {
        let deeds = self.obey(now_ms, command);
        // What was done to a copy shows at once, not with the next look.
        self.refresh_rows(now_ms);
        deeds
    }

    /// Whether a command changes anything on the screen: while the picture stands still, few do.
    pub fn shows(&self, command: Command) -> bool {
        !self.paused || matches!(command, Command::Quit | Command::Pause)
    }

    fn obey(&mut self, now_ms: u64, command: Command) -> Vec<Deed> {
        match command {
            Command::Quit if self.quitting => return vec![Deed::QuitNow],
            Command::Quit => {
                self.quitting = true;
                return vec![Deed::Quit];
            }
            Command::Suspend => return vec![Deed::Suspend],
            Command::Pause => {
                self.paused = !self.paused;
                return vec![Deed::Mouse(!self.paused)];
            }
            // The picture stands still: what is done to it would not be seen.
            _ if self.paused || self.quitting => return Vec::new(),
            _ if self.help => {
                self.help = false;
                return Vec::new();
            }
            Command::Help => {
                self.help = true;
                return Vec::new();
            }
            _ => {}
        }
        match &mut self.view {
            View::Errors(view) => {
                let closes = matches!(command, Command::Back | Command::Errors) && !view.is_busy();
                let errand = view.command(command, self.setting.attach);
                if closes {
                    self.view = View::Ring;
                }
                errand.map(Deed::Errors).into_iter().collect()
            }
            View::Ring => self.command_ring(now_ms, command),
        }
    }

    fn command_ring(&mut self, now_ms: u64, command: Command) -> Vec<Deed> {
        match command {
            Command::Errors => {
                self.view = View::Errors(Box::default());
                return vec![Deed::Errors(Errand::List(String::new()))];
            }
            Command::Back => self.pinned = None,
            Command::Move(step) => {
                let at = self.selected().unwrap_or(0);
                self.pin(step.from(at, self.rows.len()));
            }
            Command::Choose(index) => self.pin(index),
            Command::KillGenerator => {
                let generator = self.generator().cloned();
                return self.on_own(now_ms, generator.as_ref(), "generator", Self::kill);
            }
            Command::KillSelected => {
                let row = self.chosen_row();
                return self.on_own(now_ms, row.as_ref(), "copy", Self::kill);
            }
            Command::Freeze => {
                let row = self.chosen_row();
                // Pinned, so that the same key thaws the same copy.
                self.pinned = row.as_ref().map(|row| row.key);
                let is_frozen = row.as_ref().is_some_and(|row| row.condition == Condition::Frozen);
                let act = if is_frozen { Self::thaw } else { Self::freeze };
                return self.on_own(now_ms, row.as_ref(), "copy", act);
            }
            Command::Add => return self.add(now_ms),
            Command::Stop => return self.stop_one(now_ms),
            Command::Restart => return self.restart(now_ms),
            _ => {}
        }
        Vec::new()
    }

    fn pin(&mut self, index: usize) {
        self.pinned = self.rows.get(index).map(|row| row.key);
    }

    fn chosen_row(&self) -> Option<Row> {
        self.selected().map(|index| self.rows[index].clone())
    }

    /// Does something to a copy of ours, or says why that cannot be.
    fn on_own(
        &mut self,
        now_ms: u64,
        row: Option<&Row>,
        what: &str,
        act: impl Fn(&mut Self, u64, Slot) -> Vec<Deed>,
    ) -> Vec<Deed> {
        let refusal = match row {
            None => format!("there is no {what} at the moment"),
            Some(row) if !row.mine => format!(
                "the {what} {} was not started here: this monitor can only watch it",
                self.name_of_row(row)
            ),
            Some(Row { slot: Some(slot), condition, .. }) if !condition.is_gone() => {
                return act(self, now_ms, *slot);
            }
            Some(row) => format!("{} is dead already", self.name_of_row(row)),
        };
        self.say(now_ms, refusal);
        Vec::new()
    }

    fn name_of_row(&self, row: &Row) -> String {
        match row.key {
            Key::Member(member) => member.to_string(),
            Key::Slot(_) => format!("with pid {}", row.pid),
        }
    }

    fn kill(&mut self, now_ms: u64, slot: Slot) -> Vec<Deed> {
        let Some(own) = self.own.get_mut(&slot).filter(|own| !own.killed) else {
            return Vec::new();
        };
        own.killed = true;
        self.tell(now_ms, slot, "killed");
        vec![Deed::Kill(slot)]
    }

    fn freeze(&mut self, now_ms: u64, slot: Slot) -> Vec<Deed> {
        if let Some(own) = self.own.get_mut(&slot) {
            own.frozen = true;
        }
        self.tell(now_ms, slot, "froze");
        vec![Deed::Freeze(slot)]
    }

    fn thaw(&mut self, now_ms: u64, slot: Slot) -> Vec<Deed> {
        if let Some(own) = self.own.get_mut(&slot) {
            own.frozen = false;
        }
        self.tell(now_ms, slot, "thawed");
        vec![Deed::Thaw(slot)]
    }

    fn tell(&mut self, now_ms: u64, slot: Slot, did: &str) {
        if let Some(own) = self.own.get(&slot) {
            self.log.say(now_ms, Tone::Deed, format!("{did} {}", name_of(own)));
        }
    }

    fn add(&mut self, now_ms: u64) -> Vec<Deed> {
        let refusal = if self.setting.attach {
            "only watching (--attach): copies are started elsewhere".to_owned()
        } else if self.running().count() >= MOST_COPIES {
            format!("{MOST_COPIES} copies run, and that is the most")
        } else {
            self.log.say(now_ms, Tone::Deed, "started one more copy");
            return vec![Deed::Start { pause_ms: RESPAWN_MS }];
        };
        self.say(now_ms, refusal);
        Vec::new()
    }

    /// The chosen copy, or else the youngest handler.
    fn stop_one(&mut self, now_ms: u64) -> Vec<Deed> {
        let pinned = self.pinned.and_then(|_| self.chosen_row()).filter(|row| !row.condition.is_gone());
        let row = pinned.or_else(|| self.dispensable().cloned());
        self.on_own(now_ms, row.as_ref(), "copy", |state, now_ms, slot| {
            let Some(own) = state.own.get_mut(&slot).filter(|own| !own.stopping) else {
                state.say(now_ms, "it was told to stop already; K kills it");
                return Vec::new();
            };
            own.stopping = true;
            // Only one that runs can hear.
            own.frozen = false;
            state.tell(now_ms, slot, "told to stop:");
            vec![Deed::Thaw(slot), Deed::Stop(slot)]
        })
    }

    /// The youngest copy of ours that handles messages, or else the youngest of all.
    fn dispensable(&self) -> Option<&Row> {
        let mut ours = self.rows.iter().rev().filter(|row| {
            let is_going = row.condition.is_gone() || row.condition == Condition::Dying;
            row.slot.is_some() && !is_going
        });
        let handles = |row: &&Row| {
            let is_well = matches!(row.condition, Condition::Alive | Condition::Starting);
            is_well && row.role != Some(Role::Generator)
        };
        ours.clone().find(handles).or_else(|| ours.next())
    }

    /// Starts the chosen copy again if it is dead, or else the one that died last.
    fn restart(&mut self, now_ms: u64) -> Vec<Deed> {
        let dead = |own: &&Own| own.ended.is_some();
        let chosen = self.chosen_row().and_then(|row| row.slot);
        let chosen = chosen.and_then(|slot| self.own.get(&slot)).filter(dead);
        let last = || self.own.values().filter(dead).max_by_key(|own| own.ended.map(|ended| ended.at_ms));
        let Some(own) = chosen.or_else(last) else {
            self.say(now_ms, "no dead copy of ours is left; + starts one more");
            return Vec::new();
        };
        let (slot, who) = (own.slot, name_of(own));
        self.log.say(now_ms, Tone::Deed, format!("started a copy in place of {who}"));
        self.forget(slot);
        vec![Deed::Start { pause_ms: RESPAWN_MS }]
    }

    /// The view of the errors, while it is open.
    pub fn errors_view(&mut self) -> Option<&mut ErrorsView> {
        match &mut self.view {
            View::Errors(view) => Some(view),
            _ => None,
        }
    }
}
