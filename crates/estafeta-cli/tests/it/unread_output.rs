//! Commands whose output nobody reads. They have done their work all the same, and exit with 0.

use std::process::{Command, Stdio};

use crate::support::ProgramRing;

/// Runs the program with a stdout that no one reads. Returns the exit code and stderr.
fn run(ring: &ProgramRing, args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut call = Command::new(env!("CARGO_BIN_EXE_estafeta"));
    call.args(args).env("REDIS_URL", ring.redis.url()).stdin(Stdio::null()).stdout(writer);
    let output = call.stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_command_whose_output_nobody_reads_succeeds() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "x"]);
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let commands: [&[&str]; 12] = [
        &["status"],
        &["pause"],
        &["resume", "--json"],
        &["limit", "--in-flight", "3"],
        &["upgrade"],
        &["cleanTemp"],
        &["rings"],
        &["results"],
        &["errors", "count"],
        &["errors", "retry", "1"],
        &["errors", "drop", "2"],
        &["reset", "--yes"],
    ];
    for args in commands {
        assert_eq!(run(&ring, args), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(ring.redis_cli(&["DBSIZE"]), redis::Value::Int(0));
}
