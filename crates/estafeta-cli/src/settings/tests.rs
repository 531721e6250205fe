#![allow(clippy::unwrap_used)]

use std::path::Path;

use anyhow::Result;
use clap::{Args as _, CommandFactory as _, Parser as _};
use proptest::prelude::*;

use super::file::known_names;
use super::reach::Refinement;
use super::{File, Origins, Place};
use crate::cli::{Cli, RunArgs};

fn read(path: &Path) -> Result<File> {
    File::read(path, Place::CommandLine)
}

/// A value as a user might write it, right or wrong.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "\"[a-z0-9 ]{0,6}\"",
        "-?[0-9]{1,25}",
        "[0-9]\\.[0-9]",
        Just("true".to_owned()),
        Just("[1, 2]".to_owned()),
        "[a-z=\\[\\]\"]{0,6}",
    ]
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused_with_the_line_or_name_of_the_mistake(
        name in prop_oneof![4 => prop::sample::select(known_names()), 1 => "[a-z]{1,8}"],
        value in value(),
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("# one line\n{name} = {value}\n")).unwrap();
        if let Err(error) = read(file.path()) {
            let message = error.to_string();
            prop_assert!(message.contains("line 2") || message.contains(&name), "{}", message);
        }
    }

    #[test]
    fn a_wrong_value_for_the_password_is_never_shown(secret in "[0-9]{9,12}") {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("password = {secret}\n")).unwrap();
        let message = read(file.path()).err().expect("a number is no password").to_string();
        prop_assert!(!message.contains(&secret), "{}", message);
    }
}

#[test]
fn removing_the_credentials_from_a_refinement_keeps_the_database() {
    let refinement = Refinement { db: Some(3), password: Some("secret".into()), ..Refinement::default() };
    let endpoint = refinement.without_credentials().apply("redis+unix:///run/redis.sock".parse().unwrap());
    assert_eq!(endpoint.secret_url(), "redis+unix:///run/redis.sock?db=3");
}

/// Two different values that an option accepts.
fn two_values(option: &clap::Arg) -> [String; 2] {
    let flag = format!("--{}=", option.get_long().unwrap());
    let parses = |value: &String| Cli::try_parse_from(["estafeta", &format!("{flag}{value}")]).is_ok();
    let shown = option.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let names = shown.map(|value| value.get_name().to_owned());
    let others = ["0.25", "0.5", "3", "4", "1s", "2s", "memory", "disk"].map(ToOwned::to_owned);
    let candidates = names.chain(others);
    candidates.filter(parses).take(2).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_flag_overrides_each_option_of_the_file_and_the_file_fills_the_gaps() {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let values = command.get_arguments().map(|option| (option.get_long().unwrap(), two_values(option)));
    let (low, high): (Vec<_>, Vec<_>) =
        values.map(|(name, [low, high])| (format!("--{name}={low}"), format!("--{name}={high}"))).unzip();
    let merged = |flags: &[String], file: &File| {
        let words = ["estafeta".to_owned()].into_iter().chain(flags.iter().cloned());
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        Origins { matches: &matches, file }.run_options().unwrap()
    };
    let mut file = File::default();
    file.run = merged(&low, &file);
    assert_eq!(merged(&[], &file).flags().unwrap(), low);
    assert_eq!(merged(&high, &file).flags().unwrap(), high);
    for index in 0..high.len() {
        let mut expected = low.clone();
        expected[index].clone_from(&high[index]);
        assert_eq!(merged(&high[index..=index], &file).flags().unwrap(), expected);
    }
}

#[test]
fn options_reach_the_settings_that_they_are_named_after() {
    let args = Cli::try_parse_from([
        "estafeta",
        "--interval=3s",
        "--concurrency=3",
        "--limit=5",
        "--until-done",
        "--max-waiting=7",
        "--max-deaths=9",
        "--max-body=11",
        "--lease=4s",
        "--missed=catch-up",
        "--journal",
        "--error-rate=0.25",
        "--work-per-char=1ms",
        "--seed=13",
    ]);
    let args = args.unwrap().run;
    let config = args.config("redis://localhost".parse().unwrap(), "x".parse().unwrap()).unwrap();
    let seconds = std::time::Duration::from_secs;
    assert_eq!((config.interval, config.lease), (seconds(3), seconds(4)));
    assert_eq!((config.concurrency, config.limit, config.until_done), (3, Some(5), true));
    assert_eq!((config.max_waiting, config.max_deaths, config.max_body), (7, 9, 11));
    assert_eq!((config.catch_up, config.journal), (true, true));
    assert_eq!((config.ring.as_str(), config.redis.to_string().as_str()), ("x", "redis://localhost:6379/0"));
    let demo = args.demo().unwrap();
    assert_eq!((demo.error_rate, demo.per_char.as_millis(), demo.seed), (0.25, 1, Some(13)));
}

#[test]
fn flags_parse_back_into_the_same_options() {
    let given = [
        "--interval=1s 500ms",
        "--error-rate=0.25",
        "--until-done=true",
        "--missed=catch-up",
        "--record=a b",
    ];
    let parse =
        |flags: &[String]| Cli::try_parse_from(["estafeta".to_owned()].iter().chain(flags)).unwrap().run;
    let flags = parse(&given.map(ToOwned::to_owned)).flags().unwrap();
    assert_eq!(flags, given);
    assert_eq!(parse(&flags).flags().unwrap(), given);
}
