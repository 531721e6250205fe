//! The commands of the user: each one changes the model and returns requests.
//!
//! A command that kills, freezes or stops works only on an own node that still runs. Otherwise a notice shows why
//! the model refuses it. A paused or quitting monitor ignores most commands.

use estafeta::Role;

use crate::model::command::MonitorCommand;
use crate::model::errors_view::ErrorsView;
use crate::model::lifecycle::RESPAWN_MS;
use crate::model::log::{Occurrence, UserAction};
use crate::model::notice::{ActsOn, UserNotice};
use crate::model::own_node::{NodeName, OwnNode};
use crate::model::request::{AppRequest, ErrorsRequest};
use crate::model::rows::{Condition, MemberRow};
use crate::model::{Model, View};
use estafeta_lab::fleet::NodeKey;

/// The most own nodes that can run at the same time.
pub const MAX_NODES: usize = 200;

impl Model {
    /// Executes a command and returns its requests.
    pub fn command(&mut self, now_ms: u64, command: MonitorCommand) -> Vec<AppRequest> {
        let requests = self.execute(now_ms, command);
        // The table must show the change at once and not only after the next poll.
        self.refresh_rows(now_ms);
        requests
    }

    /// Whether a command changes anything on the screen. While the screen is paused, few commands do.
    pub fn changes_screen(&self, command: MonitorCommand) -> bool {
        !self.paused || matches!(command, MonitorCommand::Quit | MonitorCommand::Pause)
    }

    fn execute(&mut self, now_ms: u64, command: MonitorCommand) -> Vec<AppRequest> {
        match command {
            MonitorCommand::Quit if self.quitting => return vec![AppRequest::QuitNow],
            MonitorCommand::Quit => {
                self.quitting = true;
                return vec![AppRequest::Quit];
            }
            MonitorCommand::Suspend => return vec![AppRequest::Suspend],
            MonitorCommand::Pause => {
                self.paused = !self.paused;
                return vec![AppRequest::Mouse(!self.paused)];
            }
            // A paused screen would not show the effect of the command.
            _ if self.paused || self.quitting => return Vec::new(),
            MonitorCommand::Move(step) if self.help.is_some() => {
                // The length of the help depends on the window, so the screen corrects what leads beyond the end.
                self.help = self.help.map(|first| step.from(first, usize::MAX));
                return Vec::new();
            }
            _ if self.help.take().is_some() => return Vec::new(),
            MonitorCommand::Help => {
                self.help = Some(0);
                return Vec::new();
            }
            _ => {}
        }
        match &mut self.view {
            View::Errors(view) => {
                let closes =
                    matches!(command, MonitorCommand::Back | MonitorCommand::Errors) && !view.is_busy();
                let request = view.command(command, self.info.attach);
                if closes {
                    self.view = View::Ring;
                }
                request.map(AppRequest::Errors).into_iter().collect()
            }
            View::Ring => self.command_ring(now_ms, command),
        }
    }

    fn command_ring(&mut self, now_ms: u64, command: MonitorCommand) -> Vec<AppRequest> {
        match command {
            MonitorCommand::Errors => {
                self.view = View::Errors(Box::default());
                return vec![AppRequest::Errors(ErrorsRequest::List(String::new()))];
            }
            MonitorCommand::Back => self.pinned = None,
            MonitorCommand::Move(step) => {
                let at = self.selected().unwrap_or(0);
                self.pin(step.from(at, self.rows.len()));
            }
            MonitorCommand::Choose(index) => self.pin(index),
            MonitorCommand::KillGenerator => {
                let generator = self.generator().cloned();
                return self.act_on_own(now_ms, generator.as_ref(), ActsOn::Generator, Self::kill);
            }
            MonitorCommand::KillSelected => {
                let row = self.chosen_row();
                return self.act_on_own(now_ms, row.as_ref(), ActsOn::SelectedNode, Self::kill);
            }
            MonitorCommand::Freeze => {
                let row = self.chosen_row();
                // Pins the row, so that the same key thaws the same node.
                self.pinned = row.as_ref().map(|row| row.key);
                let is_frozen = row.as_ref().is_some_and(|row| row.condition == Condition::Frozen);
                let act = if is_frozen { Self::thaw } else { Self::freeze };
                return self.act_on_own(now_ms, row.as_ref(), ActsOn::SelectedNode, act);
            }
            MonitorCommand::Add => return self.add(now_ms),
            MonitorCommand::Stop => return self.stop_one(now_ms),
            MonitorCommand::Restart => return self.restart(now_ms),
            _ => {}
        }
        Vec::new()
    }

    fn pin(&mut self, index: usize) {
        self.pinned = self.rows.get(index).map(|row| row.key);
    }

    fn chosen_row(&self) -> Option<MemberRow> {
        self.selected().map(|index| self.rows[index].clone())
    }

    /// Calls `act` with the own node of this row, or shows why that is impossible.
    fn act_on_own(
        &mut self,
        now_ms: u64,
        row: Option<&MemberRow>,
        acts_on: ActsOn,
        act: impl Fn(&mut Self, u64, NodeKey) -> Vec<AppRequest>,
    ) -> Vec<AppRequest> {
        let refusal = match row {
            None => UserNotice::NoSuchRow(acts_on),
            Some(row) if !row.mine => UserNotice::Foreign { acts_on, name: row.name() },
            Some(MemberRow { node: Some(node), condition, .. }) if !condition.is_gone() => {
                return act(self, now_ms, *node);
            }
            Some(row) => UserNotice::AlreadyDead(row.name()),
        };
        self.show_notice(now_ms, refusal);
        Vec::new()
    }

    fn kill(&mut self, now_ms: u64, node: NodeKey) -> Vec<AppRequest> {
        let Some(own) = self.own.get_mut(&node).filter(|own| !own.killed) else {
            return Vec::new();
        };
        own.killed = true;
        self.log_action(now_ms, node, UserAction::Killed);
        vec![AppRequest::Kill(node)]
    }

    fn freeze(&mut self, now_ms: u64, node: NodeKey) -> Vec<AppRequest> {
        if let Some(own) = self.own.get_mut(&node) {
            own.frozen = true;
        }
        self.log_action(now_ms, node, UserAction::Froze);
        vec![AppRequest::Freeze(node)]
    }

    fn thaw(&mut self, now_ms: u64, node: NodeKey) -> Vec<AppRequest> {
        if let Some(own) = self.own.get_mut(&node) {
            own.frozen = false;
        }
        self.log_action(now_ms, node, UserAction::Thawed);
        vec![AppRequest::Thaw(node)]
    }

    fn log_action(&mut self, now_ms: u64, node: NodeKey, action: fn(NodeName) -> UserAction) {
        if let Some(own) = self.own.get(&node) {
            self.log.add(now_ms, Occurrence::Action(action(own.name())));
        }
    }

    fn add(&mut self, now_ms: u64) -> Vec<AppRequest> {
        let refusal = if self.info.attach {
            UserNotice::OnlyWatching
        } else if self.running().count() >= MAX_NODES {
            UserNotice::TooManyNodes
        } else {
            self.log.add(now_ms, Occurrence::Action(UserAction::Started));
            return vec![AppRequest::Start { pause_ms: RESPAWN_MS }];
        };
        self.show_notice(now_ms, refusal);
        Vec::new()
    }

    /// Asks the selected node to stop, or the youngest handler if no live row is selected.
    fn stop_one(&mut self, now_ms: u64) -> Vec<AppRequest> {
        let pinned = self.pinned.and_then(|_| self.chosen_row()).filter(|row| !row.condition.is_gone());
        let row = pinned.or_else(|| self.dispensable().cloned());
        self.act_on_own(now_ms, row.as_ref(), ActsOn::SelectedNode, |model, now_ms, node| {
            let Some(own) = model.own.get_mut(&node).filter(|own| !own.stopping) else {
                model.show_notice(now_ms, UserNotice::AlreadyStopping);
                return Vec::new();
            };
            own.stopping = true;
            // A frozen node cannot receive the request, so it is thawed first.
            own.frozen = false;
            model.log_action(now_ms, node, UserAction::AskedToStop);
            vec![AppRequest::Thaw(node), AppRequest::Stop(node)]
        })
    }

    /// The youngest own node that handles messages, or else the youngest own node that is not ending.
    fn dispensable(&self) -> Option<&MemberRow> {
        let mut ours = self.rows.iter().rev().filter(|row| {
            let is_going = row.condition.is_gone() || row.condition == Condition::Dying;
            row.node.is_some() && !is_going
        });
        let handles = |row: &&MemberRow| {
            let is_well = matches!(row.condition, Condition::Alive | Condition::Starting);
            is_well && row.role != Some(Role::Generator)
        };
        ours.clone().find(handles).or_else(|| ours.next())
    }

    /// Starts a node in place of the selected one if that is dead, or else in place of the one that died last.
    fn restart(&mut self, now_ms: u64) -> Vec<AppRequest> {
        let dead = |own: &&OwnNode| own.ended.is_some();
        let chosen = self.chosen_row().and_then(|row| row.node);
        let chosen = chosen.and_then(|node| self.own.get(&node)).filter(dead);
        let last = || self.own.values().filter(dead).max_by_key(|own| own.ended.map(|ended| ended.at_ms));
        let Some(own) = chosen.or_else(last) else {
            self.show_notice(now_ms, UserNotice::NoDeadNode);
            return Vec::new();
        };
        let (node, name) = (own.node, own.name());
        self.log.add(now_ms, Occurrence::Action(UserAction::Replaced(name)));
        self.forget(node);
        vec![AppRequest::Start { pause_ms: RESPAWN_MS }]
    }

    /// The errors view, while it is open.
    pub fn errors_view(&mut self) -> Option<&mut ErrorsView> {
        match &mut self.view {
            View::Errors(view) => Some(view),
            _ => None,
        }
    }
}
