//! A monitor on a private terminal, and what its screen shows.

use std::path::Path;
use std::time::Duration;

use estafeta_testbed::{Terminal, eventually};

use super::SOON;

pub struct Monitored {
    pub terminal: Terminal,
}

/// One row of the table of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u64,
    pub role: String,
    pub is_mine: bool,
    pub pid: u32,
    pub state: String,
}

impl Monitored {
    /// Starts a monitor in a window of 80 by 24.
    pub fn start(args: &[&str], envs: &[(&str, &str)]) -> Self {
        Self::start_by(&[env!("CARGO_BIN_EXE_estafeta")], args, envs)
    }

    /// Starts a monitor by this command line, whose last word is the program.
    pub fn start_by(words: &[&str], args: &[&str], envs: &[(&str, &str)]) -> Self {
        let args = [&words[1..], &["monitor"], args].concat();
        Self { terminal: Terminal::start(Path::new(words[0]), args, envs.iter().copied(), 24, 80) }
    }

    pub fn rows(&self) -> Vec<Row> {
        rows(&self.terminal.screen())
    }

    /// Waits until the table satisfies `fits`.
    #[track_caller]
    pub fn wait_for_rows(&self, what: &str, fits: impl Fn(&[Row]) -> bool) -> Vec<Row> {
        rows(&self.terminal.wait_for(SOON, what, |screen| fits(&rows(screen))))
    }

    /// Waits until this many nodes are alive and one of them is in office. Returns the generator.
    #[track_caller]
    pub fn wait_for_ring(&self, alive: usize) -> Row {
        let is_there = |rows: &[Row]| {
            let alive_now = rows.iter().filter(|row| row.state == "alive").count();
            alive_now == alive && generators(rows).count() == 1
        };
        let rows = self.wait_for_rows("a ring at work", is_there);
        generators(&rows).next().unwrap().clone()
    }

    /// Waits until another node than `of` is the only generator, and returns it.
    #[track_caller]
    pub fn wait_for_successor(&self, of: &Row) -> Row {
        let rows = self.wait_for_rows("another generator", |rows| {
            let mut all = generators(rows);
            all.next().is_some_and(|row| row.id != of.id && row.state == "alive") && all.next().is_none()
        });
        generators(&rows).next().unwrap().clone()
    }

    /// Presses q and waits for the end. The terminal must be restored to its former state.
    #[track_caller]
    pub fn quit(&self) {
        self.terminal.type_keys("q");
        let status = self.terminal.wait(SOON);
        assert_eq!(status.code(), Some(0), "{:?}", self.terminal);
        self.assert_restored();
    }

    #[track_caller]
    pub fn assert_restored(&self) {
        let terminal = &self.terminal;
        assert!(terminal.is_cooked(), "the terminal is still raw: {terminal:?}");
        assert!(!terminal.in_alternate_screen(), "not back on the shell's screen: {terminal:?}");
        assert!(!terminal.cursor_hidden(), "the cursor is hidden: {terminal:?}");
        assert!(!terminal.mouse_captured(), "the mouse is captured: {terminal:?}");
    }
}

fn generators(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.role == "generator")
}

fn rows(screen: &str) -> Vec<Row> {
    let table = screen.lines().skip_while(|line| !line.contains(" id role ")).skip(1);
    table.map_while(|line| row(line.get(1..)?)).collect()
}

/// Returns `None` if the line is no row, or if the node has no number yet.
fn row(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.trim_start_matches(['◆', ' ']).split_whitespace().collect();
    let [id, role, _rank, whose, pid, .., state] = words[..] else {
        return None;
    };
    Some(Row {
        id: id.parse().ok()?,
        role: role.to_owned(),
        is_mine: whose == "mine",
        pid: pid.parse().ok()?,
        state: state.to_owned(),
    })
}

/// The processes of these rows that still run.
pub fn running(rows: &[Row]) -> Vec<u32> {
    let runs = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A process that is not reaped yet has ended all the same.
        !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
    };
    rows.iter().map(|row| row.pid).filter(runs).collect()
}

#[track_caller]
pub fn wait_until_none_runs(rows: &[Row], limit: Duration) {
    eventually(limit, "the end of every node", || running(rows).is_empty().then_some(()));
}
