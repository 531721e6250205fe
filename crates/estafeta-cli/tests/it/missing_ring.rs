//! The name of a ring is mistyped, or its Redis was wiped. A command that works on a ring says so and fails.

use crate::bad_input::refuses_in_one_line;
use crate::support::ProgramRing;

#[test]
fn a_command_on_a_ring_that_does_not_exist_fails_and_names_the_ring_and_its_redis() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    let url = ring.redis.url();
    let commands: [&[&str]; 22] = [
        &["status"],
        &["errors", "list"],
        &["errors", "list", "--json"],
        &["errors", "count"],
        &["errors", "count", "--json"],
        &["errors", "retry", "--all"],
        &["errors", "retry", "2"],
        &["errors", "drop", "--all"],
        &["errors", "drop", "--all", "--yes"],
        &["errors", "drop", "2"],
        &["cleanTemp"],
        &["cleanTemp", "--json"],
        &["--cleanTemp"],
        &["pause"],
        &["resume", "--json"],
        &["limit"],
        &["schedule"],
        &["schedule", "--json"],
        &["upgrade"],
        &["upgrade", "--json"],
        &["reset"],
        &["reset", "--yes"],
    ];
    let socket = url.strip_prefix("redis+unix://").unwrap();
    let expected =
        format!("estafeta: there is no ring typo at {socket}: `estafeta rings` lists the rings there");
    for command in commands {
        let args = [command, &["--ring", "typo"]].concat();
        refuses_in_one_line(&ring, &args, &[("REDIS_URL", &url)], 1, &[&expected]);
        assert_eq!(String::from_utf8(ring.command(&args).stdout).unwrap(), "", "{args:?}");
    }
}

/// A script that starts from an empty ring must be able to run twice.
#[test]
fn a_forced_reset_of_a_ring_that_does_not_exist_succeeds() {
    let ring = ProgramRing::new();
    for args in [&["reset", "--force"][..], &["reset", "--force", "--yes"]] {
        let output = ring.command(args);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let begins = stderr.starts_with("estafeta: there is no ring estafeta at ");
        assert!(begins && stderr.ends_with(", so nothing was deleted\n"), "{stderr}");
    }
}

/// What is left of a damaged ring can be deleted, even if no key is left that every ring has.
#[test]
fn a_ring_of_which_only_parts_are_left_can_be_reset() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["RPUSH", "{estafeta}:inflight:00000000000000aa", "1 1 1 1000 body"]);
    assert_eq!(ring.success(&["reset", "--yes"]), "ring estafeta is gone: 1 key deleted\n");
    assert!(crate::reset::dump(&ring).is_empty());
}
