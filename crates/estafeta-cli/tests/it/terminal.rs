//! What only a terminal shows: colours, the progress bar, a question.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use nix::pty::openpty;

use crate::support::TestRing;

/// Which of the program's streams are a terminal; the others are thrown away.
#[derive(Default)]
struct Terminal<'a> {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    types: &'a str,
    envs: &'a [(&'a str, &'a str)],
}

impl Terminal<'_> {
    /// Runs the program to its end; returns its exit code and what the terminal showed.
    fn run(&self, ring: &TestRing, args: &[&str]) -> (i32, String) {
        let pty = openpty(None, None).unwrap();
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
        master.write_all(self.types.as_bytes()).unwrap();
        let mut shown = Vec::new();
        // The end of a terminal is an error on Linux.
        let _ = master.read_to_end(&mut shown);
        let status = child.wait().unwrap();
        (status.code().unwrap(), String::from_utf8_lossy(&shown).into_owned())
    }
}

#[test]
fn status_has_colours_on_a_terminal_unless_they_are_not_wanted() {
    let ring = TestRing::new();
    let (code, shown) = Terminal { stdout: true, ..Terminal::default() }.run(&ring, &["status"]);
    assert!(code == 0 && shown.contains("\u{1b}[32madds up"), "{shown:?}");
    let plain = Terminal { stdout: true, envs: &[("NO_COLOR", "1")], ..Terminal::default() };
    let (_, shown) = plain.run(&ring, &["status"]);
    assert!(shown.contains("adds up") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn get_errors_shows_a_bar_only_to_somebody_who_does_not_see_the_errors() {
    let ring = TestRing::new();
    ring.plant_errors(1..=5000, |_| b"body".to_vec());
    let (code, shown) = Terminal { stderr: true, ..Terminal::default() }.run(&ring, &["getErrors"]);
    assert!(code == 0 && shown.contains("of 5,000 errors"), "{shown:?}");

    ring.plant_errors(5001..=10_000, |_| b"\x1b[31mred".to_vec());
    let both = Terminal { stdout: true, stderr: true, ..Terminal::default() };
    let (_, shown) = both.run(&ring, &["getErrors"]);
    assert!(!shown.contains("of 5,000 errors"));
    assert_eq!(shown.lines().count(), 5000);
    assert!(shown.contains("\\u{1b}[31mred") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn reset_asks_and_takes_no_for_an_answer() {
    let ring = TestRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let answer = |types| Terminal { stdin: true, stdout: true, stderr: true, types, ..Terminal::default() };
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
    assert_eq!(ring.success(&["errors", "count"]), "0\n");
}
