//! Tests that every step passes the keys and arguments that the header of its script names, in that order.

use super::*;

/// The names after `-- KEYS` or `-- ARGV` in a header, without their notation. `[journal]` is an optional key. `{index
/// reason}...` may occur several times. `kind(member|reader)` lists the values.
fn named(script: &Script, what: &str) -> Vec<String> {
    let start = format!("-- {what} ");
    let lines = script.code().lines().filter_map(|line| line.strip_prefix(&start));
    let plain = |name: &str| -> String {
        let name = name.trim_end_matches("...").split('(').next().unwrap_or_default();
        name.chars().filter(|c| !"[]{}.".contains(*c)).collect()
    };
    lines.flat_map(str::split_whitespace).map(plain).filter(|name| !name.is_empty()).collect()
}

/// One call per step. Every key and argument that may be missing or repeated is there once.
fn every_call(keys: &Keys) -> Vec<(&'static Script, Call)> {
    let incarnation = Incarnation::random();
    let me = Identity { number: MemberId(1), incarnation };
    let messages = messages(Epoch(1), 1, &["body"]);
    let ticks = [("name".to_owned(), 1)];
    let plan = Plan::from([("name".to_owned(), "definition".to_owned())]);
    let terms = [delayed("body", Some("key"), 1).terms];
    let moving = Dispatch {
        terms: &terms,
        checkpoint: Some(b"here"),
        ticks: &ticks,
        entry: Some("entry"),
        plan: Some(&plan),
        ..batch(Epoch(1), 0, &messages)
    };
    let part = Part { name: "1*3".into(), settled: vec![0], back: vec![1] };
    let forward = Effect::forward(RingName::sample(), "body");
    let add = Effect::Add { key: "key".into(), n: 1 };
    let settlement = Settlement {
        effects: vec![MessageEffects {
            name: "2".into(),
            index: 0,
            id: 1,
            effects: Effects(vec![forward, add]).into(),
        }],
        whole: vec!["2".into()],
        returns: vec!["3".into()],
        parts: vec![part],
        not_done: vec![NotDone {
            name: "1*3".into(),
            index: 0,
            disposition: Disposition::Fail { reason: "reason".into(), died: false },
        }],
        ..Settlement::default()
    };
    vec![
        (&join::SCRIPT, join::call(keys, &introduction(incarnation, MemberKind::Node, 1, true))),
        (&beat::SCRIPT, beat::call(keys, incarnation, LEASE, Known::default(), &LatencyGroup::default())),
        (&lead::SCRIPT, lead::call(keys, incarnation, LEASE, &candidacy())),
        (&resign::SCRIPT, resign::call(keys, incarnation, Epoch(1))),
        (
            &report::SCRIPT,
            report::call(
                keys,
                incarnation,
                &SourceFailure { epoch: Epoch(1), n: 1, in_a_row: 1, reason: "reason" },
            ),
        ),
        (&complain::SCRIPT, complain::call(keys, incarnation, LEASE, "reason")),
        (&publish::SCRIPT, publish::call(keys, incarnation, &moving)),
        (&submit::SCRIPT, submit::call(keys, &submission(1, &[delayed("body", Some("key"), 1)]))),
        (&cancel::SCRIPT, cancel::call(keys, &cancellation(1, MessageRef::Key("key")))),
        (&turn::SCRIPT, turn::call(keys, me, 1, &settlement, true)),
        (&upgrade::SCRIPT, upgrade::call(keys, 5, &Roll::new(1, &[incarnation]))),
        (&take::SCRIPT, take::call(keys, me, &ShownLetters::default())),
        (&suspects::SCRIPT, suspects::call(keys, LEASE)),
        (&bury::SCRIPT, bury::call(keys, incarnation, 0, GRACE, None)),
        (&leave::SCRIPT, leave::call(keys, incarnation)),
        (&wake::SCRIPT, wake::call(keys)),
        (&pause::SCRIPT, pause::call(keys, Some(1), None, "ops")),
        (&limit::SCRIPT, limit::call(keys, &LimitChange::default(), &Roll::new(1, &[incarnation]))),
        (&checkpoint::SCRIPT, checkpoint::call(keys, Some(b"here"))),
        (&divide::SCRIPT, divide::call(keys, 3)),
        (&resolve::SCRIPT, resolve::call(keys, "retry", "ops", &[(0, b"element")])),
        (&sample::SCRIPT, sample::call(keys, me, Some(Epoch(1)), LEASE)),
        (&snapshot::SCRIPT, snapshot::call(keys, &Roll::new(1, &[incarnation]), 1)),
        (&confirm::SCRIPT, confirm::call(keys)),
    ]
}

#[test]
fn every_call_matches_the_header_of_its_script() {
    let calls = every_call(&Keys::new(&RingName::sample()));
    let called: Vec<&str> = calls.iter().map(|(script, _)| script.name).collect();
    assert_eq!(called, SCRIPTS.map(|script| script.name), "one call of each");
    for (script, mut call) in calls {
        if script.name == turn::SCRIPT.name {
            // Only two effects have both a ring and a key.
            let effect = call.arguments.split_off(call.arguments.len() - 7);
            assert!(call.arguments.ends_with(&effect), "{:?}", call.arguments);
        }
        assert_matches(script, &call);
    }
}

fn assert_matches(script: &Script, call: &Call) {
    assert_eq!(call.keys, named(script, "KEYS"), "keys of {}", script.name);
    assert_eq!(call.arguments, named(script, "ARGV"), "arguments of {}", script.name);
}

#[cfg(feature = "testing")]
#[test]
fn the_calls_of_a_test_ring_match_the_headers_of_their_scripts() {
    use crate::testing::{published, time};

    let keys = Keys::new(&RingName::sample());
    assert_matches(&time::SCRIPT, &time::call(&keys, LEASE));
    assert_matches(&published::SCRIPT, &published::call(&keys));
}
