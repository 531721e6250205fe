//! `estafeta checkpoint`: shows, sets and removes where the feed of a ring continues.

use crate::support::{ProgramRing, SOON};

#[test]
fn a_checkpoint_is_set_shown_and_removed_while_nobody_is_in_office() {
    let ring = ProgramRing::new();
    let show = |args: &[&str]| ring.command(&[&["checkpoint", "show"], args].concat());
    let missing = ring.command(&["checkpoint", "set", "1"]);
    assert_eq!(missing.status.code(), Some(1), "there is no ring yet: {missing:?}");
    ring.success(&["publish", "x"]);
    let none = show(&[]);
    assert_eq!(none.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&none.stderr), "estafeta: ring estafeta has no checkpoint\n");
    assert_eq!(show(&["--json"]).stdout, b"{\"ring\":\"estafeta\",\"checkpoint\":null}\n");
    assert_eq!(
        ring.success(&["checkpoint", "set", "{\"line\":17}"]),
        "ring estafeta: the checkpoint is set\n"
    );
    assert_eq!(show(&[]).stdout, b"{\"line\":17}\n");
    ring.success(&["checkpoint", "set", "-7\n"]);
    assert_eq!(show(&[]).stdout, b"-7\\n\n");
    assert_eq!(ring.success(&["checkpoint", "clear"]), "ring estafeta: the checkpoint is gone\n");
    assert_eq!(show(&[]).status.code(), Some(1));
}

#[test]
fn a_checkpoint_is_not_changed_under_a_generator() {
    let ring = ProgramRing::new();
    let node = ring.node(&["--interval", "10ms"]);
    ring.eventually(SOON, "a generator", |status| !status["generator"].is_null());
    for args in [&["checkpoint", "set", "1"][..], &["checkpoint", "clear"]] {
        let refused = ring.command(args);
        assert_eq!(refused.status.code(), Some(1));
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            error.contains("ring estafeta has a generator, member 1: stop all nodes that may generate first"),
            "{error}"
        );
    }
    drop(node);
}
