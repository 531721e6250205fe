//! What the program shows only on a terminal: colours, the progress bar, a question.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::support::ProgramRing;

/// Which streams of the program are a terminal. The others are discarded.
#[derive(Default)]
struct Streams<'a> {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    /// The width of the terminal. None leaves it unknown.
    columns: Option<u16>,
    input: &'a str,
    envs: &'a [(&'a str, &'a str)],
}

impl Streams<'_> {
    /// Runs the program to its end. Returns its exit code and what the terminal showed.
    fn run(&self, ring: &ProgramRing, args: &[&str]) -> (i32, String) {
        let size = self.columns.map(|ws_col| Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
        let pty = openpty(size.as_ref(), None).unwrap();
        let stream = |on: bool| match on {
            true => Stdio::from(pty.slave.try_clone().unwrap()),
            false => Stdio::null(),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_estafeta"));
        command.args(args).args(["--redis", &ring.redis.url()]).env("TERM", "xterm").env_remove("NO_COLOR");
        command.envs(self.envs.iter().copied());
        command.stdin(stream(self.stdin)).stdout(stream(self.stdout)).stderr(stream(self.stderr));
        let mut child = command.spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let mut master = File::from(pty.master);
        master.write_all(self.input.as_bytes()).unwrap();
        let mut shown = Vec::new();
        // Linux reports the end of a terminal as an error.
        let _ = master.read_to_end(&mut shown);
        let status = child.wait().unwrap();
        (status.code().unwrap(), String::from_utf8_lossy(&shown).into_owned())
    }
}

#[test]
fn status_has_colours_on_a_terminal_unless_no_color_is_set() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=1, |_| b"body".to_vec());
    let (code, shown) = Streams { stdout: true, ..Streams::default() }.run(&ring, &["status"]);
    assert!(code == 0 && shown.contains("\u{1b}[32madds up"), "{shown:?}");
    let plain = Streams { stdout: true, envs: &[("NO_COLOR", "1")], ..Streams::default() };
    let (_, shown) = plain.run(&ring, &["status"]);
    assert!(shown.contains("adds up") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn get_errors_shows_a_progress_bar_only_if_the_errors_are_not_on_the_same_terminal() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=5000, |_| b"body".to_vec());
    let (code, shown) = Streams { stderr: true, ..Streams::default() }.run(&ring, &["getErrors"]);
    assert!(code == 0 && shown.contains("of 5,000 errors"), "{shown:?}");

    ring.plant_errors(5001..=10_000, |_| b"\x1b[31mred".to_vec());
    let both = Streams { stdout: true, stderr: true, ..Streams::default() };
    let (_, shown) = both.run(&ring, &["getErrors"]);
    assert!(!shown.contains("of 5,000 errors"));
    assert_eq!(shown.lines().count(), 5000);
    assert!(shown.contains("\\u{1b}[31mred") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn reset_asks_first_and_deletes_nothing_unless_the_answer_is_yes() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let answer = |input| Streams { stdin: true, stdout: true, stderr: true, input, ..Streams::default() };
    for no in ["n\n", "\n", "what?\n"] {
        let (code, shown) = answer(no).run(&ring, &["reset"]);
        assert!(
            code == 1 && shown.contains("Delete ring estafeta") && shown.contains("nothing was deleted"),
            "{shown:?}"
        );
        assert_eq!(ring.success(&["errors", "count"]), "3\n");
    }
    let (code, shown) = answer("y\n").run(&ring, &["reset"]);
    assert!(code == 0 && shown.contains("is gone"), "{shown:?}");
    assert!(crate::reset::dump(&ring).is_empty());
}

#[test]
fn the_tables_of_bench_fit_the_terminal_and_are_whole_if_stdout_is_no_terminal() {
    let ring = ProgramRing::new();
    let args = ["bench", "latency", "idle", "--quick", "--nodes", "1"];
    let headings = |shown: &str| shown.lines().filter(|line| line.starts_with("nodes ")).count();
    let envs = &[("NO_COLOR", "1")];
    for (columns, parts) in [(60, 2), (120, 1)] {
        let terminal = Streams { stdout: true, columns: Some(columns), envs, ..Streams::default() };
        let (code, shown) = terminal.run(&ring, &args);
        // The first paragraph names the socket, whose path may be longer than a line.
        let tables = shown.lines().map(str::trim_end).skip_while(|line| !line.is_empty());
        let longest = tables.map(|line| line.chars().count()).max().unwrap();
        assert!(code == 0 && longest <= columns.into(), "{longest} of {columns}: {shown}");
        assert_eq!(headings(&shown), parts, "{shown}");
    }
    let piped = ring.success(&args);
    assert_eq!(headings(&piped), 1, "{piped}");
}
