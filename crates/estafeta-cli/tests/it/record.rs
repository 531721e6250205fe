//! `run --record FILE`: a node records all of its steps.

use super::support::{ProgramRing, SOON};
use estafeta_testbed::{DataDir, eventually};

#[test]
fn every_step_is_recorded_and_the_record_survives_a_kill() {
    let (ring, scratch) = (ProgramRing::new(), DataDir::new());
    let record = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (record("first"), record("second"));
    let args = ["--interval", "10ms", "--limit", "50", "--error-rate", "0.5"];
    let generator = ring.node(&[&args[..], &["--record", &first]].concat());
    generator.wait_for_line(SOON, |line| line.starts_with("became generator"));
    let handler = ring.node(&[&args[..], &["--record", &second]].concat());
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let kinds = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect()
    };
    let ids = |text: &str, kind: &str| -> Vec<u64> {
        let lines = text.lines().filter(|line| line.split(' ').nth(1) == Some(kind));
        let words = lines.flat_map(|line| line.split(' ').skip(3));
        words.map(|word| word.split(['=', '!']).next().unwrap().parse().unwrap()).collect()
    };
    eventually(SOON, "all to be settled", || (ids(&read(&second), "settled").len() == 50).then_some(()));
    // A handler may be done with the last message before the generator has recorded that it was published.
    eventually(SOON, "all to be published", || (ids(&read(&first), "published").len() == 50).then_some(()));
    generator.kill();
    handler.kill();

    assert_eq!(kinds(&read(&first))[..3], ["started", "joined", "office"]);
    assert_eq!(ids(&read(&first), "published"), (1..=50).collect::<Vec<_>>());
    let handled = read(&second);
    assert_eq!(kinds(&handled).iter().filter(|kind| *kind == "began").count(), 50);
    let mut settled = ids(&handled, "settled");
    settled.sort_unstable();
    assert_eq!(settled, (1..=50).collect::<Vec<_>>());
    let failed = handled.matches('!').count() as u64;
    assert_eq!(ring.status()["errorsKept"], failed);
}

#[test]
fn a_record_that_cannot_be_written_stops_the_node_with_the_reason() {
    let ring = ProgramRing::new();
    for (file, expected) in [("/dev/full", "No space left on device"), ("/nowhere/at/all", "No such file")] {
        let output = ring.start(&["run", "--record", file]).output(SOON);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot write the record") && stderr.contains(expected), "{stderr}");
    }
}
