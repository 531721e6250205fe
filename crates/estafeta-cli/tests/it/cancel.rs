//! `cancel`: takes delayed messages back, by id or by key.

use estafeta_testbed::Output;
use serde_json::{Value, json};

use crate::support::ProgramRing;

/// The exit code, and what was printed to stdout and stderr.
fn printed(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn counts(ring: &ProgramRing) -> [Value; 4] {
    let status = ring.status();
    ["published", "later", "waiting", "cancelled"].map(|name| status[name].clone())
}

#[test]
fn delayed_messages_are_cancelled_by_their_ids() {
    let ring = ProgramRing::new();
    for body in ["a", "b", "c", "d"] {
        ring.success(&["publish", "--delay", "1h", body]);
    }
    assert_eq!(ring.success(&["cancel", "2"]), "1 message cancelled\n");
    assert_eq!(ring.success(&["cancel", "--json", "4", "1", "4"]), "{\"cancelled\":2}\n");
    assert_eq!(counts(&ring), [4, 1, 0, 3].map(|count| json!(count)));
    // The rest of them is cancelled, and the ids that are not delayed are named.
    ring.success(&["publish", "now"]);
    let output = printed(&ring.command(&["cancel", "5", "3", "2", "99"]));
    let missing = "estafeta: no delayed message has the id #2, #5, #99\n";
    assert_eq!(output, (1, "1 message cancelled\n".into(), missing.into()));
    assert_eq!(counts(&ring), [5, 0, 1, 4].map(|count| json!(count)));
}

#[test]
fn a_cancel_by_key_frees_the_key() {
    let ring = ProgramRing::new();
    let args = ["publish", "--delay", "1h", "--key", "reminder-17", "pay"];
    assert_eq!(ring.success(&args), "{\"id\":1,\"duplicate\":false}\n");
    assert_eq!(ring.success(&["cancel", "--key", "reminder-17"]), "1 message cancelled\n");
    let output = printed(&ring.command(&["cancel", "--json", "--key", "reminder-17"]));
    let missing = "estafeta: no delayed message has the key 'reminder-17'\n";
    assert_eq!(output, (1, "{\"cancelled\":0}\n".into(), missing.into()));
    assert_eq!(ring.success(&args), "{\"id\":2,\"duplicate\":false}\n");
}

#[test]
fn wrong_calls_change_nothing_and_have_the_exit_code_64() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "--delay", "1h", "--key", "k", "a"]);
    let long = "k".repeat(513);
    let cases: [(&[&str], &str); 8] = [
        (&[], "required arguments were not provided"),
        (&["1", "--key", "k"], "cannot be used with"),
        (&["0"], "ID: expected 1 or more, got '0'"),
        (&["-1"], "unexpected argument '-1' found"),
        (&["first"], "invalid value 'first'"),
        (&["18446744073709551616"], "invalid value '18446744073709551616'"),
        (&["--key", ""], "--key: expected 1 to 512 bytes, got 0"),
        (&["--key", &long], "--key: expected 1 to 512 bytes, got 513"),
    ];
    for (args, expected) in cases {
        let (code, stdout, error) = printed(&ring.command(&[&["cancel"], args].concat()));
        assert_eq!((code, stdout.as_str()), (64, ""), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(counts(&ring)[1], 1);
    let largest = printed(&ring.command(&["cancel", "18446744073709551615"]));
    assert_eq!(largest.0, 1, "{largest:?}");
    assert_eq!(counts(&ring)[1], 1);
}

#[test]
fn a_ring_that_does_not_exist_is_not_created() {
    let ring = ProgramRing::new();
    let (code, _, error) = printed(&ring.command(&["cancel", "1"]));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("there is no ring estafeta at"), "{error}");
    assert_eq!(ring.redis_cli(&["DBSIZE"]), redis::Value::Int(0));
}
