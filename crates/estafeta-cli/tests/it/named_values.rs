//! An error about a value names the place that the value came from: the option, the variable, or the settings file and
//! the name there. It does not matter which part of the program refuses the value. A command ignores the values that it
//! does not use.

use estafeta_testbed::NO_ENV;

use crate::bad_input::{refuses_in_one_line, ring_with_errors};
use crate::support::{ProgramRing, run};

/// A settings file with one setting.
fn file_with(name: &str, value: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let is_plain = value.parse::<f64>().is_ok() || value == "true";
    let value = if is_plain { value.to_owned() } else { format!("{value:?}") };
    std::fs::write(file.path(), format!("{name} = {value}\n")).unwrap();
    file
}

/// Gives a command a bad value by each of the three ways. Each time, the error must begin with the name of the value.
#[track_caller]
fn each_place_is_named(ring: &ProgramRing, command: &str, name: &str, value: &str, expected: &str) {
    let url = ring.redis.url();
    // A good address would hide a bad one, and a password for another one.
    let base = [("REDIS_URL", url.as_str())];
    let base = if ["redis", "host", "password-file"].contains(&name) { &[][..] } else { &base };
    let check = |args: &[&str], envs: &[(&str, &str)], shown: &str| {
        let begin = format!("estafeta: {shown}: {expected}");
        refuses_in_one_line(ring, args, &[base, envs].concat(), 2, &[&begin]);
    };
    check(&[command, &format!("--{name}={value}")], &[], &format!("--{name}"));
    let variable = format!("ESTAFETA_{}", name.to_uppercase().replace('-', "_"));
    check(&[command], &[(&variable, value)], &format!("variable {variable}"));
    let file = file_with(name, value);
    let path = file.path().to_str().unwrap();
    check(&[command, "--config", path], &[], &format!("{path}: {name}"));
    check(&[command], &[("ESTAFETA_CONFIG", path)], &format!("{path}: {name}"));
}

#[test]
fn a_refused_option_of_run_is_named_by_its_place() {
    let ring = ring_with_errors();
    let cases = [
        ("lease", "1ms", "expected 200ms to 1h, got '1ms'"),
        ("interval", "1us", "expected 0 or at least 1ms and at most a year"),
        ("limit", "0", "expected at least 1, got '0'"),
        ("error-rate", "2", "expected 0 to 1, got '2'"),
        ("until-done", "true", "expected a limit beside it"),
    ];
    for (name, value, expected) in cases {
        each_place_is_named(&ring, "run", name, value, expected);
        each_place_is_named(&ring, "monitor", name, value, expected);
    }
    each_place_is_named(&ring, "run", "brief", "true", "expected --json with it");
    // Without a command, the program starts a node.
    let envs = [("REDIS_URL", ring.redis.url()), ("ESTAFETA_LEASE", "1ms".to_owned())];
    let envs = envs.each_ref().map(|(name, value)| (*name, value.as_str()));
    refuses_in_one_line(&ring, &[], &envs, 2, &["estafeta: variable ESTAFETA_LEASE: expected 200ms to 1h"]);
}

#[test]
fn a_refused_ring_or_redis_is_named_by_its_place() {
    let ring = ring_with_errors();
    for command in ["run", "monitor", "status", "getErrors"] {
        each_place_is_named(&ring, command, "ring", "{bad", "expected 1 to 100 letters");
        each_place_is_named(&ring, command, "redis", "x", "expected a URL such as redis://");
        each_place_is_named(
            &ring,
            command,
            "host",
            "ho st",
            "expected a host name or an IP address, got 'ho st'",
        );
        each_place_is_named(&ring, command, "password-file", "/no/such", "expected a file that can be read");
        let shown = ["estafeta: variable REDIS_URL: expected a URL such as redis://"];
        refuses_in_one_line(&ring, &[command], &[("REDIS_URL", "x")], 2, &shown);
    }
}

#[test]
fn a_host_or_database_in_the_settings_file_is_checked_like_an_option() {
    let ring = ring_with_errors();
    for (name, value, expected) in [
        ("db", "20000", "expected a number below 16384, got 20000"),
        ("host", "", "expected a host name or an IP address, got ''"),
    ] {
        let file = file_with(name, value);
        let path = file.path().to_str().unwrap();
        let shown = format!("estafeta: {path}: {name}: {expected}");
        refuses_in_one_line(&ring, &["status", "--config", path], &[], 2, &[&shown]);
    }
}

#[test]
fn a_password_file_that_is_not_used_is_not_read() {
    let ring = ring_with_errors();
    let file = file_with("password-file", "/no/such");
    let path = file.path().to_str().unwrap();
    let url = ring.redis.url();
    let named = ["cleanTemp", "--redis", &url, "--config", path];
    assert!(run(&named, &NO_ENV).status.success());
    // A server without a password accepts any.
    let given = [&named[..], &["--password", "p"]].concat();
    let output = run(&given, &[("ESTAFETA_PASSWORD_FILE", "/no/such")]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_settings_file_that_cannot_be_read_is_named_by_its_place() {
    let ring = ring_with_errors();
    let expected =
        |shown: &str| format!("estafeta: {shown}: expected a file that can be read, got /no/such: ");
    let (flag, variable) = (expected("--config"), expected("variable ESTAFETA_CONFIG"));
    refuses_in_one_line(&ring, &["status", "--config", "/no/such"], &[], 2, &[&flag]);
    refuses_in_one_line(&ring, &["status"], &[("ESTAFETA_CONFIG", "/no/such")], 2, &[&variable]);
}

#[test]
fn a_flag_that_overrides_a_bad_value_hides_it() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let file = file_with("ring", "{bad");
    let envs = [("REDIS_URL", "x"), ("ESTAFETA_CONFIG", file.path().to_str().unwrap())];
    let output = run(&["cleanTemp", "--ring", "estafeta", "--redis", &url], &envs);
    assert!(output.status.success(), "{output:?}");
}

/// The private Redis and the pages about the program have nothing to do with a ring. These commands read none of the
/// settings, so a bad one must not stop them. A bad flag is refused: its user is at the keyboard.
#[test]
fn commands_without_a_ring_ignore_every_bad_variable() {
    let pages = tempfile::tempdir().unwrap();
    let bad = [
        ("ESTAFETA_CONFIG", "/no/such"),
        ("REDIS_URL", "x"),
        ("ESTAFETA_RING", "{bad"),
        ("ESTAFETA_PORT", "many"),
        ("ESTAFETA_LEASE", "1ms"),
        ("ESTAFETA_LOG_FORMAT", "prose"),
    ];
    let man = ["man", pages.path().to_str().unwrap()];
    for args in [&["redis", "stop"][..], &["completions", "bash"], &man] {
        let output = run(args, &bad);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
    let output = run(&["redis", "stop", "--config", "/no/such"], &NO_ENV);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_command_that_starts_its_own_redis_ignores_bad_variables_about_another() {
    let bad = [("REDIS_URL", "x"), ("ESTAFETA_PORT", "many"), ("ESTAFETA_PASSWORD_FILE", "/no/such")];
    let output = run(&["bench", "latency", "--quick"], &[&bad[..], &[("ESTAFETA_RING", "{bad")]].concat());
    assert!(output.status.success(), "{output:?}");
    // This call fails for another reason, so the test need not wait for an attack.
    let output = run(&["chaos", "--for", "1ms"], &bad);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("estafeta: --for: expected 1s to 24h"), "{stderr}");
}
