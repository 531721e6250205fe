//! The monitor without processes, Redis or a terminal: recorded snapshots go in, screens and deeds come out.
//!
//! The recording is what `estafeta status --watch --json` printed while five copies ran, the first was killed with -9,
//! the second frozen for longer than its lease and thawed, and the fifth frozen.

mod commands;
mod screens;

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use estafeta::{DeadLetter, MemberId, Snapshot};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::act::Command;
use super::draw::{self, Ink};
use super::own::Slot;
use super::said::Said;
use super::state::{Deed, Look, RESPAWN_MS, Setting, State};

const COLOURED: Ink = Ink { colour: true, ascii: false };

/// A monitor that sees the recording.
struct Story {
    state: State,
    snapshots: Vec<Snapshot>,
    /// The next one to be seen.
    next: usize,
    last_event: String,
}

impl Story {
    fn begin() -> Self {
        let recorded = include_str!("recorded/killed-frozen.jsonl");
        let snapshots: Vec<Snapshot> =
            recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let setting = Setting {
            ring: "estafeta".into(),
            redis: "redis://10.0.0.5:6379/0".into(),
            host: "web-1".into(),
            attach: false,
            respawn: false,
            log_file: Some("/home/ann/.local/share/estafeta/monitor.log".into()),
            started_ms: snapshots[0].time_ms - 1500,
        };
        Self { state: State::new(setting), snapshots, next: 0, last_event: String::new() }
    }

    /// Says that these members of the recording are copies of ours; each is in the slot of its number.
    fn owning(mut self, members: &[u64]) -> Self {
        for number in members {
            let slot = Slot(u32::try_from(*number).unwrap());
            let all = self.snapshots.iter().flat_map(|snapshot| &snapshot.members);
            let pid = all.clone().find(|member| member.id.0 == *number).unwrap().pid;
            let now = self.now();
            self.state.started(now, slot, u32::try_from(pid).unwrap(), RESPAWN_MS);
            self.state.heard(now, slot, &Said::CreatedTaskId { task_id: *number });
        }
        self
    }

    fn now(&self) -> u64 {
        self.snapshots[self.next.saturating_sub(1)].time_ms
    }

    /// Sees the recording up to and with this snapshot, the first being 1.
    fn until(mut self, last: usize) -> Self {
        while self.next < last {
            let snapshot = self.snapshots[self.next].clone();
            self.see(snapshot);
        }
        self
    }

    fn see(&mut self, snapshot: Snapshot) {
        self.next += 1;
        let mut events = snapshot.events.clone();
        events.reverse();
        events.retain(|event| event.id > self.last_event);
        self.last_event = events.last().map_or(self.last_event.clone(), |event| event.id.clone());
        let errors = (1..=snapshot.errors_kept.min(30)).map(|number| failed(snapshot.time_ms, number));
        let errors = errors.collect();
        self.state.look(snapshot.time_ms, Look { snapshot, events, errors });
    }

    fn command(&mut self, command: Command) -> Vec<Deed> {
        self.state.command(self.now(), command)
    }

    /// The process of this member ends like that.
    fn end(&mut self, number: u32, status: i32) {
        self.state.ended(self.now(), Slot(number), ExitStatus::from_raw(status));
    }

    fn screen(&self, width: u16, height: u16, ink: Ink) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                draw::draw(frame, &self.state, ink, self.now());
            })
            .unwrap();
        terminal.backend().clone()
    }

    /// What the log says last.
    fn last_event(&self) -> String {
        self.state.log.last(1).next().unwrap().text.clone()
    }

    fn notice(&self) -> &str {
        self.state.notice.as_ref().map_or("", |(_, text)| text)
    }
}

fn failed(now_ms: u64, number: u64) -> DeadLetter {
    let reason = "the message contains an error";
    let (id, member) = (number * 12, MemberId(2 + number % 3));
    let (published, failed) = (now_ms - 1000, now_ms - 30 * (30 - number.min(30)));
    let header = format!("{id} 1794796076000 1 {published} {failed} {member} {} {reason} ", reason.len());
    DeadLetter::parse(format!("{header}zelevi cudibi {number}").into_bytes())
}
