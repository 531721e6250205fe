//! What the compiler answers to mistakes that beginners make. The answers must be readable, and stay so.
//!
//! The words of the compiler differ from version to version. So this test runs only with the version whose words are
//! stored. To accept a change that you meant, or a new version, run `TRYBUILD=overwrite cargo test -p estafeta-mistakes` and
//! read the diff.

#![allow(missing_docs, clippy::print_stderr, clippy::unwrap_used)]

/// The version of the compiler whose words are stored in `tests/cases`.
const VERSION: &str = "rustc 1.95.";

#[test]
fn mistakes_of_beginners_get_readable_answers() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&output.stdout);
    if !version.starts_with(VERSION) {
        eprintln!("skipped: the stored answers are those of {VERSION}x, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/cases/*.rs");
}
