//! What the app does with each input: passes it to the model, and decides what counts as a request to quit.

use std::time::{Duration, Instant};

use super::App;
use super::clock::SECOND;
use super::input::{Input, SignalInput};
use crate::feed::FeedUpdate;
use crate::model::View;
use crate::model::command::MonitorCommand;
use crate::model::request::AppRequest;
use estafeta_lab::fleet::FromNode;

/// Requests to quit that arrive closer together than this count as one.
const SAME_REQUEST: Duration = Duration::from_millis(100);

impl App {
    pub(super) fn receive(&mut self, input: Input) -> Vec<AppRequest> {
        match input {
            Input::Node(FromNode { node, report: Some(report), .. }) => {
                self.model.reported(self.clock.now_ms(), node, &report);
            }
            Input::Node(FromNode { report: None, .. }) => self.reap(),
            Input::Feed(update) => return self.feed(update),
            Input::Signal(SignalInput::Stop) => return self.issue(MonitorCommand::Quit),
            // A lost terminal causes several inputs. They are not separate requests to quit.
            Input::Signal(SignalInput::HangUp) => return self.quit(),
            Input::Signal(SignalInput::Continue) => {}
        }
        Vec::new()
    }

    fn feed(&mut self, update: FeedUpdate) -> Vec<AppRequest> {
        let now = self.clock.now_ms();
        self.stale = true;
        match update {
            FeedUpdate::Ring(update) => self.model.updated(now, *update),
            FeedUpdate::Lost(reason) => self.model.lost(now, &reason),
            FeedUpdate::Errors(page) => {
                if let Some(view) = self.model.errors_view() {
                    view.show(page);
                }
            }
            FeedUpdate::Answer(answer) => {
                let request = self.model.errors_view().and_then(|view| view.show_answer(answer));
                return request.map(AppRequest::Errors).into_iter().collect();
            }
        }
        Vec::new()
    }

    pub(super) fn tick(&mut self) -> Vec<AppRequest> {
        self.reap();
        // The age of old figures grows, although nothing arrives from Redis.
        self.stale |= self.model.lost.is_some();
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.deadline = None;
            return self.quit();
        }
        if self.kill_at.is_some_and(|kill_at| Instant::now() >= kill_at) {
            return vec![AppRequest::QuitNow];
        }
        let mut requests = self.model.tick(self.clock.now_ms());
        if let View::Errors(view) = &self.model.view
            && self.errors_requested.elapsed() >= SECOND
            && self.model.lost.is_none()
        {
            requests.push(AppRequest::Errors(view.list()));
        }
        requests
    }

    fn reap(&mut self) {
        for (node, status) in self.fleet.reap() {
            self.model.ended(self.clock.now_ms(), node, status);
            self.stale = true;
        }
    }

    /// Quits, unless the monitor quits already. Unlike a second [`MonitorCommand::Quit`], this never kills the nodes.
    pub(super) fn quit(&mut self) -> Vec<AppRequest> {
        self.stale = true;
        if self.model.quitting {
            Vec::new()
        } else {
            self.model.command(self.clock.now_ms(), MonitorCommand::Quit)
        }
    }

    /// Passes on a command of the user or of a signal. A second request to quit kills the nodes. Some senders signal
    /// both the process and its group, so requests that arrive together count as one.
    pub(super) fn issue(&mut self, command: MonitorCommand) -> Vec<AppRequest> {
        if command == MonitorCommand::Quit {
            let before = self.quit_requested.replace(Instant::now());
            let is_same = before.is_some_and(|before| before.elapsed() < SAME_REQUEST);
            // The first request never kills, even if the monitor already quits for another reason.
            if is_same || before.is_none() && self.model.quitting {
                return Vec::new();
            }
        }
        self.stale = true;
        self.model.command(self.clock.now_ms(), command)
    }
}
