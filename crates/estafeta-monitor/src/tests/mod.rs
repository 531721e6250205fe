//! Tests of the model and its screens without processes, Redis or a terminal. The tests feed recorded snapshots and
//! commands to the model, and check the screens and requests that result.
//!
//! The recording is the output of `estafeta status --watch --json` while five nodes ran. The first node was killed with
//! `kill -9`. The second was frozen for longer than its lease and thawed. The fifth was frozen.

mod commands;
mod errors_view;
mod hostile_text;
mod screens;

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use estafeta::{DeadLetter, MemberId, Snapshot};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::model::command::MonitorCommand;
use crate::model::lifecycle::RESPAWN_MS;
use crate::model::request::AppRequest;
use crate::model::ring_update::RingUpdate;
use crate::model::{Model, MonitorInfo};
use crate::tui::draw::{self, Theme, sentence};
use estafeta_lab::fleet::NodeKey;
use estafeta_lab::report::Report;

const COLOURED: Theme = Theme { colour: true, ascii: false };

/// A model that receives the recording.
struct RecordedRun {
    model: Model,
    snapshots: Vec<Snapshot>,
    /// The index of the next snapshot.
    next: usize,
    /// The id of the last event that the model received.
    last_event: String,
}

impl RecordedRun {
    fn begin() -> Self {
        let recorded = include_str!("recorded/killed-frozen.jsonl");
        let snapshots: Vec<Snapshot> =
            recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let info = MonitorInfo {
            ring: "estafeta".into(),
            redis: "redis://10.0.0.5:6379/0".into(),
            host: "web-1".into(),
            attach: false,
            respawn: false,
            log_file: Some("/home/ann/.local/share/estafeta/monitor.log".into()),
            page: None,
            started_ms: snapshots[0].time_ms - 1500,
        };
        Self { model: Model::new(info), snapshots, next: 0, last_event: String::new() }
    }

    /// Makes these members of the recording own nodes. The key of each node equals the number of its member.
    fn owning(mut self, members: &[u64]) -> Self {
        for number in members {
            let node = NodeKey(u32::try_from(*number).unwrap());
            let all = self.snapshots.iter().flat_map(|snapshot| &snapshot.members);
            let pid = all.clone().find(|member| member.id.0 == *number).unwrap().pid;
            let now = self.now();
            self.model.started(now, node, u32::try_from(pid).unwrap(), RESPAWN_MS);
            self.model.reported(now, node, &Report::CreatedTaskId { task_id: MemberId(*number) });
        }
        self
    }

    /// The time of the last snapshot that the model received.
    fn now(&self) -> u64 {
        self.snapshots[self.next.saturating_sub(1)].time_ms
    }

    /// Receives the recording up to and including this snapshot. The first one is 1.
    fn until(mut self, last: usize) -> Self {
        while self.next < last {
            let snapshot = self.snapshots[self.next].clone();
            self.receive(snapshot);
        }
        self
    }

    fn receive(&mut self, snapshot: Snapshot) {
        self.next += 1;
        let mut events = snapshot.events.clone();
        events.retain(|event| event.id > self.last_event);
        self.last_event = events.last().map_or(self.last_event.clone(), |event| event.id.clone());
        let errors = (1..=snapshot.errors_kept.min(30)).map(|number| dead_letter(snapshot.time_ms, number));
        let errors = errors.collect();
        self.model.updated(snapshot.time_ms, RingUpdate { snapshot, events, errors });
    }

    fn command(&mut self, command: MonitorCommand) -> Vec<AppRequest> {
        self.model.command(self.now(), command)
    }

    /// Ends the process of this member with a raw wait status.
    fn end(&mut self, number: u32, status: i32) {
        self.model.ended(self.now(), NodeKey(number), ExitStatus::from_raw(status));
    }

    fn screen(&self, width: u16, height: u16, theme: Theme) -> TestBackend {
        self.screen_at(self.now(), width, height, theme)
    }

    /// The screen at another time than that of the last snapshot.
    fn screen_at(&self, now_ms: u64, width: u16, height: u16, theme: Theme) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                draw::draw(frame, &self.model, theme, now_ms);
            })
            .unwrap();
        terminal.backend().clone()
    }

    /// Draws the screen as the app does, which lets the model know what is visible.
    fn draw(&mut self, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let now = self.now();
        terminal.draw(|frame| self.model.help = draw::draw(frame, &self.model, COLOURED, now).help).unwrap();
        terminal.backend().to_string()
    }

    /// The last entry of the log, as a sentence.
    fn last_log_line(&self) -> String {
        sentence::occurrence(&self.model.log.last(1).next().unwrap().what)
    }

    fn notice(&self) -> String {
        self.model.notice.as_ref().map(|(_, notice)| sentence::notice(notice)).unwrap_or_default()
    }
}

fn dead_letter(now_ms: u64, number: u64) -> DeadLetter {
    let reason = "the message contains an error";
    let (id, member) = (number * 12, MemberId(2 + number % 3));
    let (published, failed) = (now_ms - 1000, now_ms - 30 * (30 - number.min(30)));
    let header =
        format!("!{failed} {member} {} {reason} {id} 1794796076000 {published} 0 0 0 0 0 ", reason.len());
    DeadLetter::parse(&"demo".parse().unwrap(), format!("{header}zelevi cudibi {number}").into_bytes())
}
