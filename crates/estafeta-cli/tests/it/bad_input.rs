//! Wrong calls: one clear line that says what was expected, the right exit code, and Redis as it was.

use std::path::PathBuf;

use estafeta_testbed::Output;

use crate::reset::dump;
use crate::support::{SOON, TestRing, start};

/// Runs the program and expects it to fail without a trace in Redis, saying all of `says`.
#[track_caller]
pub fn refuses(ring: &TestRing, args: &[&str], envs: &[(&str, &str)], code: i32, says: &[&str]) -> String {
    let before = dump(ring);
    let output = start(args, envs).output(SOON);
    let told = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    for words in says {
        assert!(told.contains(words), "{args:?} did not say {words:?}: {told}");
    }
    assert_eq!(dump(ring), before, "{args:?} changed Redis");
    told
}

/// What our own words are held to; clap explains itself in a few lines.
#[track_caller]
pub fn in_one_line(ring: &TestRing, args: &[&str], envs: &[(&str, &str)], code: i32, says: &[&str]) {
    let told = refuses(ring, args, envs, code, says);
    assert!(told.starts_with("estafeta: ") && told.ends_with('\n'), "{told:?}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A ring with something in it that a wrong call could harm.
pub fn ring_with_errors() -> TestRing {
    let ring = TestRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    ring
}

#[test]
fn a_url_that_is_none_is_told_with_an_example() {
    let ring = ring_with_errors();
    for url in [
        "http://x",
        "127.0.0.1:6379",
        "localhost",
        "",
        "redis://:6379:x",
        "redis://host:port",
        "redis+unix:/x",
    ] {
        for args in
            [&["run", "--redis", url][..], &["getErrors", "--redis", url], &["status", "--redis", url]]
        {
            in_one_line(&ring, args, &[], 2, &["Redis URL: expected a URL such as redis://"]);
        }
        in_one_line(&ring, &["status"], &[("REDIS_URL", url)], 2, &["Redis URL: expected"]);
        in_one_line(&ring, &["status"], &[("ESTAFETA_REDIS", url)], 2, &["Redis URL: expected"]);
    }
}

#[test]
fn clap_refuses_what_it_cannot_read() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let cases: [(&[&str], &[&str]); 11] = [
        (&["--no-such-flag"], &["--no-such-flag"]),
        (&["run", "--no-such-flag"], &["--no-such-flag"]),
        (&["nonsense"], &["nonsense"]),
        (&["errors"], &["expected a subcommand"]),
        (&["run", "--interval", "300000000000y"], &["interval", "at most a year"]),
        (&["run", "--interval", "-5ms"], &["--interval", "expected a duration such as 500ms", "-5ms"]),
        (&["run", "--interval", "fast"], &["--interval", "expected a duration", "fast"]),
        (&["run", "--limit", "-1"], &["--limit", "-1"]),
        (&["--port", "70000"], &["--port", "70000"]),
        (&["--db", "-1"], &["-1"]),
        (&["--getErrors", "--cleanTemp"], &["--getErrors", "--cleanTemp"]),
    ];
    for (args, says) in cases {
        in_one_line(&ring, args, &[("REDIS_URL", &url)], 2, says);
    }
}

#[test]
fn a_password_in_a_misplaced_url_is_not_repeated() {
    let ring = ring_with_errors();
    let told = refuses(&ring, &["run", "redis://:s3cret@host"], &[], 2, &["redis://***@host"]);
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn a_setting_out_of_range_is_told_with_its_range() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let cases: [(&[&str], &[&str]); 11] = [
        (&["--error-rate", "2"], &["error-rate", "expected 0 to 1", "2"]),
        (&["--error-rate", "-0.1"], &["error-rate", "expected 0 to 1", "-0.1"]),
        (&["--error-rate", "NaN"], &["error-rate", "expected 0 to 1", "NaN"]),
        (&["--interval", "1us"], &["interval: expected 0 or at least 1ms"]),
        (&["--limit", "0"], &["limit: expected at least 1"]),
        (&["--concurrency", "0"], &["concurrency: expected 1 to 1024"]),
        (&["--lease", "1ms"], &["lease: expected 200ms to 1h"]),
        (&["--max-body", "0"], &["max-body: expected 1 to"]),
        (&["--max-attempts", "0"], &["max-attempts: expected at least 1"]),
        (&["--until-done"], &["until-done: expected a limit beside it"]),
        (&["--ring", "{x}"], &["ring name: expected 1 to 100 letters", "'{x}'"]),
    ];
    for (args, says) in cases {
        in_one_line(&ring, &[&["run"], args].concat(), &[("REDIS_URL", &url)], 2, says);
        in_one_line(&ring, args, &[("REDIS_URL", &url)], 2, says);
    }
    for name in ["", "a b", "a}b", "x*", "\u{1b}[31m"] {
        in_one_line(&ring, &["status", "--ring", name], &[("REDIS_URL", &url)], 2, &["ring name: expected"]);
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    for more in [["--host", "h"], ["--port", "1"], ["--db", "1"], ["--password", "p"]] {
        in_one_line(&ring, &["status", "--redis", &url, more[0], more[1]], &[], 2, &["--redis", "expected"]);
    }
    let both = ["status", "--password", "p", "--password-file", "f"];
    in_one_line(&ring, &both, &[], 2, &["expected password or password-file"]);
    let ignored = ["--cleanTemp", "--max-attempts", "3"];
    in_one_line(&ring, &ignored, &[("REDIS_URL", &url)], 2, &["--max-attempts", "expected"]);
    let misplaced = ["--limit", "5", "getErrors"];
    in_one_line(&ring, &misplaced, &[("REDIS_URL", &url)], 2, &["--limit", "expected"]);
}

struct Settings {
    dir: tempfile::TempDir,
}

impl Settings {
    fn file(&self, text: &str) -> String {
        let path: PathBuf = self.dir.path().join("settings.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

#[test]
fn a_wrong_settings_file_is_told_with_its_name_and_the_setting() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let settings = Settings { dir: tempfile::tempdir().unwrap() };
    let cases: [(&str, &[&str]); 8] = [
        ("interval = ", &["expected TOML"]),
        ("just text", &["expected TOML"]),
        ("intervall = \"1s\"", &["unknown setting 'intervall'", "expected one of", "interval"]),
        ("limit = \"many\"", &["limit", "expected"]),
        ("interval = 500", &["interval", "expected"]),
        ("interval = \"fast\"", &["interval", "expected a duration", "fast"]),
        ("port = 70000", &["port", "expected"]),
        ("redis = \"redis://x\"\nhost = \"y\"", &["expected --redis (which says it all) or host"]),
    ];
    for (text, says) in cases {
        let file = settings.file(text);
        let says = [says, &["settings"]].concat();
        in_one_line(&ring, &["run", "--config", &file], &[("REDIS_URL", &url)], 2, &says);
        in_one_line(&ring, &["status"], &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", &file)], 2, &says);
    }
}

#[test]
fn a_password_of_the_wrong_type_in_the_file_is_not_repeated() {
    let ring = ring_with_errors();
    let settings = Settings { dir: tempfile::tempdir().unwrap() };
    let file = settings.file("password = 271828182845\n");
    let told = refuses(&ring, &["status", "--config", &file], &[], 2, &["password"]);
    assert!(!told.contains("271828182845"), "{told}");
}

#[test]
fn a_file_that_is_not_there_is_told_by_name() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    for option in ["--config", "--password-file"] {
        let args = ["status", "--host", "127.0.0.1", option, "/no/such/file"];
        in_one_line(&ring, &args, &[], 2, &["expected a file that can be read", "/no/such/file"]);
    }
    in_one_line(
        &ring,
        &["run"],
        &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", "/no/such/file")],
        2,
        &["expected a file that can be read", "/no/such/file"],
    );
}

#[test]
fn a_body_over_the_limit_is_refused_and_not_published() {
    let ring = TestRing::new();
    let output: Output = ring.command(&["run", "--max-body", "3", "--interval", "1ms"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("message body: expected at most 3 bytes, got "), "{told}");
    let status = ring.status();
    assert_eq!((&status["published"], &status["members"]), (&0.into(), &serde_json::json!([])), "{status}");
}
