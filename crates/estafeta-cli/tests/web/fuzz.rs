//! Schemathesis reads the description of the API, makes requests that fit it and requests that do not, and compares every
//! answer with the description.

use std::path::Path;

use estafeta_testbed::{NO_ENV, Process, RedisServer};

use crate::support::{SOON, WebServer, add_many_errors, find_tool, skip, start};

const SECRET: &str = "correct horse";

#[test]
fn the_api_answers_as_its_description_promises() {
    let Some(schemathesis) = find_tool(&["schemathesis"], "schemathesis/bin") else {
        return skip("requests made from the description of the API", "there is no Schemathesis here");
    };
    let redis = RedisServer::start();
    add_many_errors(&redis, 50);
    let node = start(&redis, &["run", "--ring", "orders"], &[]);
    node.wait_for_line(SOON, |line| line.starts_with("joined"));
    let server = WebServer::start_with(&redis, &["--ring", "orders"], &[("ESTAFETA_WEB_ADMIN", SECRET)]);
    let description = format!("{}api/openapi.json", server.url());
    let args = [
        "run".to_owned(),
        description,
        format!("--header=Authorization: Bearer {SECRET}"),
        format!("--max-examples={}", setting("ESTAFETA_FUZZ_EXAMPLES", "15")),
        format!("--seed={}", setting("ESTAFETA_FUZZ_SEED", "1")),
        // The stream never ends. Other tests read it.
        "--exclude-path=/api/rings/{ring}/live".to_owned(),
        "--generation-database=none".to_owned(),
        "--request-timeout=20".to_owned(),
        // A busy machine is no finding.
        "--suppress-health-check=all".to_owned(),
        "--no-color".to_owned(),
    ];
    // It leaves files where it works.
    let (place, script) = (tempfile::tempdir().unwrap(), "cd \"$0\" && exec \"$@\"");
    let begin = ["-c", script, place.path().to_str().unwrap(), schemathesis.to_str().unwrap()];
    let args = begin.map(ToOwned::to_owned).into_iter().chain(args);
    let output = Process::spawn(Path::new("/bin/sh"), args, NO_ENV).output(10 * SOON);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("No issues found"), "{text}");
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}
