//! The program keeps the contract of `bench/peers/README.md`.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use estafeta_testbed::{Process, RedisServer};

const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_estafeta-peer");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A program that answers each line. It ends with its stdin, so it never outlives this value by much.
struct Talker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Talker {
    fn start(server: &RedisServer, arguments: [&str; 3]) -> Talker {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("REDIS_URL", server.tcp_url());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Talker { child, answers }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer
    }

    /// Closes its stdin. Returns its last line.
    fn end(&mut self) -> String {
        drop(self.child.stdin.take());
        let line = self.answer();
        assert!(self.child.wait().unwrap().success());
        line
    }
}

fn run(server: &RedisServer, mode: &str, batch: &str) -> serde_json::Value {
    let process =
        Process::spawn(Path::new(PROGRAM), [mode, "5050", "64", batch], [("REDIS_URL", server.tcp_url())]);
    let output = process.output(PATIENCE);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert_eq!(talk, if mode == "consume" { "filled\n" } else { "" });
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The producer puts messages, which the worker handles, until each of them reads the end of its stdin.
#[test]
fn a_worker_handles_what_a_producer_puts() {
    for every_ms in ["0", "2"] {
        let server = RedisServer::builder().tcp().start();
        let mut producer = Talker::start(&server, ["producer", every_ms, "64"]);
        producer.ask("1000000");
        let mut worker = Talker::start(&server, ["worker", "4", "1"]);
        let mut handled = 0;
        let mut handle = || {
            let waits: Vec<u64> = serde_json::from_str(&worker.ask("")).unwrap();
            handled += waits.len() as u64;
            handled
        };
        while handle() < 20 {}
        let report: serde_json::Value = serde_json::from_str(&producer.end()).unwrap();
        assert_eq!((report["peer"].as_str(), report["version"].as_str()), (Some("estafeta"), Some(VERSION)));
        while handle() < report["put"].as_u64().unwrap() {}
        assert_eq!(Some(handle()), report["put"].as_u64());
    }
}

#[test]
fn all_messages_are_handled_in_both_modes() {
    for (mode, batch) in [("end-to-end", 1000), ("consume", 100)] {
        let server = RedisServer::builder().tcp().start();
        let mut report = run(&server, mode, &batch.to_string());
        assert!(report["seconds"].take().as_f64().unwrap() > 0.0);
        let expected = serde_json::json!({
            "peer": "estafeta", "batch": batch, "version": VERSION, "mode": mode, "count": 5050, "seconds": null
        });
        assert_eq!(report, expected);
    }
}
