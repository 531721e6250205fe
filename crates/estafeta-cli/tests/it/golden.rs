//! Golden files of what users and their programs rely on: help pages, printed text, the fields of every JSON object,
//! and the exit codes. Users notice any difference here. To accept an intended one, run this command and read the files
//! in the diff:
//!
//!     INSTA_UPDATE=always cargo test -p estafeta-cli --test it golden

use std::collections::BTreeMap;

use estafeta_testbed::NO_ENV;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON, reports, run};

/// Every command that has a help page.
const COMMANDS: [&str; 26] = [
    "",
    "run",
    "monitor",
    "web",
    "publish",
    "cancel",
    "getErrors",
    "errors",
    "errors list",
    "errors count",
    "errors retry",
    "errors drop",
    "results",
    "schedule",
    "status",
    "doctor",
    "cleanTemp",
    "pause",
    "resume",
    "limit",
    "upgrade",
    "reset",
    "chaos",
    "bench",
    "redis status",
    "redis stop",
];

#[test]
fn help_pages_match_the_golden_files() {
    for command in COMMANDS {
        let args: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).chain(["--help"]).collect();
        let output = run(&args, &NO_ENV);
        assert!(output.status.success(), "{command}: {output:?}");
        let name = format!("help {command}").trim().replace(' ', "-");
        assert_snapshot!(name, String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn exit_codes_match_the_golden_file() {
    let ring = ProgramRing::new();
    let url = ring.redis.url();
    let nowhere = ["--redis", "redis://127.0.0.1:1"];
    let here = ["--redis", url.as_str()];
    let cases: [(&str, &[&str], &[&str]); 42] = [
        ("an unknown command", &["dance"], &[]),
        ("an unknown option", &["status", "--dance"], &[]),
        ("a value out of range", &["run", "--lease", "1ms"], &here),
        ("no such file", &["status", "--config", "/nowhere/at/all"], &here),
        ("no Redis: run", &["run"], &nowhere),
        ("no Redis: status", &["status"], &nowhere),
        ("no Redis: getErrors", &["getErrors"], &nowhere),
        ("no Redis: chaos", &["chaos"], &nowhere),
        ("no Redis: doctor", &["doctor"], &nowhere),
        ("doctor with warnings", &["doctor"], &here),
        ("doctor with an option of run", &["doctor", "--limit", "1"], &here),
        ("status of a ring that does not exist", &["status"], &here),
        ("getErrors of a ring that does not exist", &["getErrors"], &here),
        ("errors count of a ring that does not exist", &["errors", "count"], &here),
        ("results of a ring that does not exist", &["results"], &here),
        ("schedule of a ring that does not exist", &["schedule"], &here),
        ("cleanTemp of a ring that does not exist", &["cleanTemp"], &here),
        ("reset --yes of a ring that does not exist", &["reset", "--yes"], &here),
        ("reset --yes --force of a ring that does not exist", &["reset", "--yes", "--force"], &here),
        ("no Redis: publish", &["publish", "a"], &nowhere),
        ("publish with an unknown option", &["publish", "--dance"], &here),
        ("publish with a key", &["publish", "--key", "k", "a"], &here),
        ("publish of a duplicate", &["publish", "--key", "k", "a"], &here),
        ("publish with the key of another message", &["publish", "--key", "k", "b"], &here),
        ("publish in a full ring", &["publish", "--max-waiting", "1", "a"], &here),
        ("pause", &["pause"], &here),
        ("publish in a paused ring", &["publish", "a"], &here),
        ("resume", &["resume"], &here),
        ("limit", &["limit", "--in-flight", "none"], &here),
        ("no Redis: cancel", &["cancel", "1"], &nowhere),
        ("cancel without an id", &["cancel"], &here),
        ("cancel of a message that waits", &["cancel", "1"], &here),
        ("cancel with a key that nobody has", &["cancel", "--key", "none"], &here),
        ("getErrors without errors", &["getErrors"], &here),
        ("errors retry of an unknown id", &["errors", "retry", "7"], &here),
        ("results without results", &["results"], &here),
        ("results of an unknown id", &["results", "7"], &here),
        ("schedule of a ring without one", &["schedule"], &here),
        ("cleanTemp", &["cleanTemp"], &here),
        ("upgrade", &["upgrade"], &here),
        ("reset without a terminal", &["reset"], &here),
        ("reset --yes", &["reset", "--yes"], &here),
    ];
    let code = |(what, args, redis): &(&str, &[&str], &[&str])| {
        let output = run(&[*args, *redis].concat(), &NO_ENV);
        format!("{}  {what}\n", output.status.code().unwrap())
    };
    assert_snapshot!("exit-codes", cases.iter().map(code).collect::<String>());
}

#[test]
fn printed_errors_match_the_golden_file() {
    let bodies: [&[u8]; 3] = [b"plain", "привет\n\u{1b}[2J".as_bytes(), b"\xff\0"];
    let mut printed = String::new();
    for args in
        [&["errors", "list"][..], &["errors", "list", "--json"], &["getErrors"], &["getErrors", "--json"]]
    {
        let ring = ProgramRing::new();
        ring.plant_errors(1..=3, |id| bodies[id as usize - 1].to_vec());
        printed += &format!("$ estafeta {}\n{}", args.join(" "), ring.success(args));
    }
    assert_snapshot!("errors", printed);
}

/// Replaces each number and text by its type. Words that programs compare stay as they are. Whether a new generator
/// names its predecessor depends on which of two nodes was quicker, so `from` always has the same shape.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!(null),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(items) => items.iter().map(shape).take(1).collect(),
        Value::Object(fields) => {
            let word = |name: &str| ["msg", "kind", "role", "state"].contains(&name);
            let field = |(name, value): (&String, &Value)| {
                let shape = match name.as_str() {
                    "from" => json!("number or null"),
                    name if word(name) => value.clone(),
                    _ => shape(value),
                };
                (name.clone(), shape)
            };
            fields.iter().map(field).collect()
        }
    }
}

#[test]
fn the_json_of_status_matches_the_golden_file() {
    let ring = ProgramRing::new();
    let _one = ring.node(&["--limit", "1"]);
    ring.eventually(SOON, "a generator with one message", |status| status["published"] == 1);
    let status = shape(&ring.status());
    assert_snapshot!("status", serde_json::to_string_pretty(&status).unwrap());
}

#[test]
fn the_json_of_a_run_matches_the_golden_file() {
    let ring = ProgramRing::new();
    let args = ["--json", "--interval", "20ms", "--limit", "3", "--error-rate", "1"];
    let one = ring.node(&args);
    one.wait_for_line(SOON, |line| line.contains("limitReached"));
    let other = ring.node(&args);
    other.wait_for_line(SOON, |line| line.contains(r#""processed","total":3"#));
    one.kill();
    other.wait_for_line(SOON, |line| line.contains("buried"));
    other.signal(estafeta_testbed::Signal::SIGTERM);
    assert!(other.wait(SOON).success());
    let kinds: BTreeMap<String, Value> = [&one, &other]
        .into_iter()
        .flat_map(reports)
        .map(|object| (object["msg"].as_str().unwrap().to_owned(), shape(&object)))
        .collect();
    let lines: String = kinds.values().map(|object| format!("{object}\n")).collect();
    assert_snapshot!("run", lines);
}

#[test]
fn the_json_of_other_commands_matches_the_golden_file() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=2, |_| b"body".to_vec());
    let mut lines = String::new();
    for args in [
        &["errors", "count", "--json"][..],
        &["errors", "retry", "1", "--json"],
        &["errors", "drop", "--all", "--yes", "--json"],
        &["cleanTemp", "--json"],
        &["doctor", "--json"],
    ] {
        let printed: Value = serde_json::from_str(&ring.success(args)).unwrap();
        lines += &format!("{}: {}\n", args.join(" "), shape(&printed));
    }
    assert_snapshot!("others", lines);
}
