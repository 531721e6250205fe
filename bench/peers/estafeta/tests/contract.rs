//! The program keeps the contract of `bench/peers/README.md`.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use estafeta_testbed::{Process, RedisServer};

const PATIENCE: Duration = Duration::from_secs(60);

fn run(server: &RedisServer, mode: &str, batch: &str) -> serde_json::Value {
    let program = Path::new(env!("CARGO_BIN_EXE_estafeta-peer"));
    let process = Process::spawn(program, [mode, "5050", "64", batch], [("REDIS_URL", server.tcp_url())]);
    let output = process.output(PATIENCE);
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert_eq!(talk, if mode == "consume" { "filled\n" } else { "" });
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn all_messages_are_handled_in_both_modes() {
    for (mode, batch) in [("end-to-end", 1000), ("consume", 100)] {
        let server = RedisServer::builder().tcp().start();
        let mut report = run(&server, mode, &batch.to_string());
        assert!(report["seconds"].take().as_f64().unwrap() > 0.0);
        let version = env!("CARGO_PKG_VERSION");
        let expected = serde_json::json!({
            "peer": "estafeta", "batch": batch, "version": version, "mode": mode, "count": 5050, "seconds": null
        });
        assert_eq!(report, expected);
    }
}
