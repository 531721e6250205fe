//! Wrong calls. Each prints one clear line with what was expected, returns the right exit code, and leaves Redis as it
//! was.

use estafeta_testbed::Output;

use crate::reset::dump;
use crate::support::{ProgramRing, SOON, TextFile, start};

/// Runs the program, which must fail with `code`, print everything in `expected`, and change nothing in Redis. Returns
/// its stderr.
#[track_caller]
pub fn refuses(
    ring: &ProgramRing,
    args: &[&str],
    envs: &[(&str, &str)],
    code: i32,
    expected: &[&str],
) -> String {
    let before = dump(ring);
    let output = start(args, envs).output(SOON);
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    for words in expected {
        assert!(stderr.contains(words), "{args:?} did not say {words:?}: {stderr}");
    }
    assert_eq!(dump(ring), before, "{args:?} changed Redis");
    stderr
}

/// Like [`refuses`], for messages that must be a single line.
#[track_caller]
pub fn refuses_in_one_line(
    ring: &ProgramRing,
    args: &[&str],
    envs: &[(&str, &str)],
    code: i32,
    expected: &[&str],
) {
    let stderr = refuses(ring, args, envs, code, expected);
    assert!(stderr.starts_with("estafeta: ") && stderr.ends_with('\n'), "{stderr:?}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// A ring with data that a wrong call could damage.
pub fn ring_with_errors() -> ProgramRing {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=3, |_| b"body".to_vec());
    ring
}

#[test]
fn an_invalid_url_is_refused_with_an_example() {
    let ring = ring_with_errors();
    for url in [
        "http://x",
        "127.0.0.1:6379",
        "localhost",
        "",
        "redis://:6379:x",
        "redis://host:port",
        "redis+unix:/x",
        "redis://ho st",
        "redis://ho%20st",
        "redis://ho!st",
        "redis://host/?timeout=5",
        "redis://host/2?db=3",
        "redis+unix:///x?password=p",
    ] {
        for args in
            [&["run", "--redis", url][..], &["getErrors", "--redis", url], &["status", "--redis", url]]
        {
            refuses_in_one_line(&ring, args, &[], 2, &["estafeta: --redis: expected a URL such as redis://"]);
        }
        // An empty REDIS_URL is as good as none.
        if !url.is_empty() {
            refuses_in_one_line(
                &ring,
                &["status"],
                &[("REDIS_URL", url)],
                2,
                &["variable REDIS_URL: expected"],
            );
        }
        refuses_in_one_line(
            &ring,
            &["status"],
            &[("ESTAFETA_REDIS", url)],
            2,
            &["variable ESTAFETA_REDIS: expected"],
        );
    }
}

#[test]
fn arguments_that_cannot_be_parsed_are_refused() {
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
    for (args, expected) in cases {
        refuses_in_one_line(&ring, args, &[("REDIS_URL", &url)], 2, expected);
    }
}

#[test]
fn a_password_in_a_misplaced_url_is_not_printed() {
    let ring = ring_with_errors();
    let stderr = refuses(&ring, &["run", "redis://:s3cret@host"], &[], 2, &["redis://***@host"]);
    assert!(!stderr.contains("s3cret"), "{stderr}");
}

#[test]
fn a_setting_out_of_range_is_refused_with_its_range() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let cases: [(&[&str], &[&str]); 13] = [
        (&["--error-rate", "2"], &["error-rate", "expected 0 to 1", "2"]),
        (&["--error-rate", "-0.1"], &["error-rate", "expected 0 to 1", "-0.1"]),
        (&["--error-rate", "NaN"], &["error-rate", "expected 0 to 1", "NaN"]),
        (&["--interval", "1us"], &["interval: expected 0 or at least 1ms"]),
        (&["--limit", "0"], &["limit: expected at least 1"]),
        (&["--concurrency", "0"], &["concurrency: expected 1 to 1024"]),
        (&["--lease", "1ms"], &["lease: expected 200ms to 1h"]),
        (&["--max-body", "0"], &["max-body: expected 1 to"]),
        (&["--max-deaths", "0"], &["max-deaths: expected at least 1"]),
        (&["--time-limit", "0"], &["time-limit: expected 1ms to a year"]),
        (
            &["--never-generate", "--never-handle"],
            &["never-handle: expected a node that may generate, got 'never-generate'"],
        ),
        (&["--until-done"], &["until-done: expected a limit beside it"]),
        (&["--ring", "{x}"], &["--ring: expected 1 to 100 letters", "'{x}'"]),
    ];
    for (args, expected) in cases {
        refuses_in_one_line(&ring, &[&["run"], args].concat(), &[("REDIS_URL", &url)], 2, expected);
        refuses_in_one_line(&ring, args, &[("REDIS_URL", &url)], 2, expected);
    }
    for name in ["", "a b", "a}b", "x*", "\u{1b}[31m"] {
        refuses_in_one_line(
            &ring,
            &["status", "--ring", name],
            &[("REDIS_URL", &url)],
            2,
            &["--ring: expected"],
        );
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    for more in [["--host", "h"], ["--port", "1"]] {
        refuses_in_one_line(
            &ring,
            &["status", "--redis", &url, more[0], more[1]],
            &[],
            2,
            &["expected a Redis URL or host and port, not both"],
        );
    }
    let both = ["status", "--password", "p", "--password-file", "f"];
    refuses_in_one_line(&ring, &both, &[], 2, &["expected password or password-file"]);
    let ignored = ["--cleanTemp", "--max-deaths", "3"];
    refuses_in_one_line(&ring, &ignored, &[("REDIS_URL", &url)], 2, &["--max-deaths", "expected"]);
    let misplaced = ["--limit", "5", "getErrors"];
    refuses_in_one_line(&ring, &misplaced, &[("REDIS_URL", &url)], 2, &["--limit", "expected"]);
}

#[test]
fn an_invalid_settings_file_is_refused_with_its_name_and_the_setting() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let cases: [(&str, &[&str]); 8] = [
        ("interval = ", &["expected TOML"]),
        ("just text", &["expected TOML"]),
        ("intervall = \"1s\"", &["unknown setting 'intervall'", "expected one of", "interval"]),
        ("limit = \"many\"", &["limit", "expected"]),
        ("interval = 500", &["interval", "expected"]),
        ("interval = \"fast\"", &["interval", "expected a duration", "fast"]),
        ("port = 70000", &["port", "expected"]),
        ("redis = \"redis://x\"\nhost = \"y\"", &["expected a Redis URL or host and port, not both"]),
    ];
    for (text, expected) in cases {
        let file = TextFile::new(text);
        let expected = [expected, &[file.path()]].concat();
        refuses_in_one_line(&ring, &["run", "--config", file.path()], &[("REDIS_URL", &url)], 2, &expected);
        refuses_in_one_line(
            &ring,
            &["status"],
            &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", file.path())],
            2,
            &expected,
        );
    }
}

#[test]
fn a_password_of_the_wrong_type_in_the_file_is_not_printed() {
    let ring = ring_with_errors();
    let file = TextFile::new("password = 271828182845\n");
    let stderr = refuses(&ring, &["status", "--config", file.path()], &[], 2, &["password"]);
    assert!(!stderr.contains("271828182845"), "{stderr}");
}

#[test]
fn a_missing_file_is_reported_by_name() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    for option in ["--config", "--password-file"] {
        let args = ["status", "--host", "127.0.0.1", option, "/no/such/file"];
        refuses_in_one_line(&ring, &args, &[], 2, &["expected a file that can be read", "/no/such/file"]);
    }
    refuses_in_one_line(
        &ring,
        &["run"],
        &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", "/no/such/file")],
        2,
        &["expected a file that can be read", "/no/such/file"],
    );
}

#[test]
fn bodies_over_the_limit_become_errors_and_the_node_goes_on() {
    let ring = ProgramRing::new();
    let args =
        ["--max-body", "3", "--interval", "1ms", "--limit", "5", "--until-done", "--generator-handles"];
    let output: Output = ring.command(&[&["run"], &args[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let status = ring.status();
    assert_eq!((&status["published"], &status["errorsKept"]), (&5.into(), &5.into()), "{status}");
    let errors = ring.success(&["getErrors"]);
    assert_eq!(errors.matches("body: expected at most 3 bytes, got ").count(), 5, "{errors}");
}

#[test]
fn a_file_without_an_end_is_refused() {
    let ring = ring_with_errors();
    for (option, size) in [("--config", "1 MiB"), ("--password-file", "64 KiB")] {
        let args = ["status", "--host", "127.0.0.1", option, "/dev/zero"];
        let expected = format!("estafeta: {option}: expected a file of at most {size}, got /dev/zero");
        refuses_in_one_line(&ring, &args, &[], 2, &[&expected]);
    }
}

#[test]
fn a_log_in_a_directory_that_does_not_exist_is_refused_and_the_directory_is_not_created() {
    let ring = ring_with_errors();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("no/such");
    let log = directory.join("log");
    let args = ["monitor", "--for", "1s", "--log", log.to_str().unwrap()];
    let expected =
        format!("estafeta: --log: expected a file in an existing directory, got {}", log.display());
    let missing = format!("there is no directory {}", directory.display());
    refuses_in_one_line(&ring, &args, &[("REDIS_URL", &ring.redis.url())], 2, &[&expected, &missing]);
    assert!(!scratch.path().join("no").exists());
}

#[test]
fn a_log_filter_that_cannot_be_read_is_reported_by_the_name_of_its_variable() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    for filter in ["estafeta=dbg", "!!!", "debgu", "warn,estafeta=debug,x=y"] {
        for command in ["status", "run", "monitor", "getErrors"] {
            let envs = [("REDIS_URL", url.as_str()), ("ESTAFETA_LOG", filter)];
            let expected = format!(
                "estafeta: variable ESTAFETA_LOG: expected a filter such as debug or estafeta=trace, got '{filter}'"
            );
            refuses_in_one_line(&ring, &[command], &envs, 2, &[&expected]);
        }
    }
    for filter in
        ["", "debug", "OFF", "3", "estafeta", "estafeta=trace,redis=warn", "estafeta::node[step]=info"]
    {
        let output = start(&["status"], &[("REDIS_URL", &url), ("ESTAFETA_LOG", filter)]).output(SOON);
        assert!(output.status.success(), "{filter}: {output:?}");
    }
}

#[test]
fn a_wrong_call_points_to_the_help_of_its_command() {
    let ring = ring_with_errors();
    let cases: [(&[&str], &str); 17] = [
        (&["bench", "nosuch"], "bench"),
        (&["bench", "latency", "--tries", "x"], "bench"),
        (&["chaos", "--for", "x"], "chaos"),
        (&["completions", "nosuch"], "completions"),
        (&["errors", "drop"], "errors drop"),
        (&["errors", "retry", "x"], "errors retry"),
        (&["errors", "--ring", "status", "retry", "x"], "errors retry"),
        (&["get-errors", "--db", "x"], "getErrors"),
        (&["cleanTemp", "--ring"], "cleanTemp"),
        (&["monitor", "-n", "x"], "monitor"),
        (&["monitor", "--for"], "monitor"),
        (&["rings", "--db", "99999"], "rings"),
        (&["--ring", "x", "status", "--port", "x"], "status"),
        (&["--port", "x", "status"], "status"),
        (&["run", "--interval", "x"], "run"),
        (&["--interval", "x"], "run"),
        (&["redis", "--host", "x", "status", "--port", "x"], "redis status"),
    ];
    for (args, command) in cases {
        let expected = format!("(see estafeta {command} --help)\n");
        refuses_in_one_line(&ring, args, &[], 2, &[&expected]);
    }
    let top = "(see estafeta --help)\n";
    refuses_in_one_line(&ring, &["--port", "x"], &[], 2, &[top]);
    refuses_in_one_line(&ring, &["nosuch"], &[], 2, &[top]);
    // The bad value may also come from a variable.
    let in_variable = [("ESTAFETA_PORT", "x")];
    refuses_in_one_line(
        &ring,
        &["errors", "list"],
        &in_variable,
        2,
        &["(see estafeta errors list --help)\n"],
    );
}
