//! Turns what was given on the command line, in the environment and in the file into settings ready for use.
//!
//! A flag beats the environment beats the file. For most options that is one `or` after the other. Where Redis is can
//! be said in two ways, by URL or by host and port; the highest layer that says it decides, and one layer that says it
//! both ways is an error.

use std::path::Path;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _};
use estafeta::{Config, Endpoint, Missed, RingName};

use crate::cli::{MissedTicks, ReachArgs, RunArgs};
use crate::failure::usage;

/// Where the ring is.
pub struct Reach {
    pub ring: RingName,
    pub redis: Where,
}

/// Which Redis was asked for.
pub enum Where {
    Given(Box<Endpoint>),
    /// None: whatever answers at the usual port, or else a private one. The database and password apply to either.
    Unsaid(Refinement),
}

/// What can be said of Redis without saying where it is.
#[derive(Default)]
pub struct Refinement {
    pub db: Option<u16>,
    pub password: Option<String>,
}

impl Refinement {
    pub fn without_password(&self) -> Self {
        Self { db: self.db, password: None }
    }

    pub fn apply(&self, mut endpoint: Endpoint) -> Endpoint {
        if let Some(db) = self.db {
            endpoint = endpoint.with_db(db.into());
        }
        if let Some(password) = &self.password {
            endpoint = endpoint.with_password(password);
        }
        endpoint
    }
}

/// What the simulated work of `run` is.
pub struct Work {
    pub error_rate: f64,
    pub per_char: std::time::Duration,
    pub seed: Option<u64>,
}

/// In which words a copy tells what it does.
#[derive(Clone, Copy)]
pub enum Speech {
    /// Lines for people.
    Human,
    /// Objects for programs: about everything, or only what a program with many copies can follow.
    Json { brief: bool },
}

/// The two halves of a settings file.
#[derive(Default)]
pub struct File {
    pub reach: ReachArgs,
    pub run: RunArgs,
}

impl File {
    pub fn read(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let shown = path.display();
        let text = read_file(path)?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line =
                error.span().map_or(1, |at| text.get(..at.start).unwrap_or_default().lines().count().max(1));
            usage(format!("{shown}, line {line}: expected TOML: {}", error.message()))
        })?;
        let known = known_names();
        if let Some(unknown) = table.keys().find(|key| !known.contains(key)) {
            return Err(usage(format!(
                "{shown}: unknown setting '{unknown}', expected one of: {}",
                known.join(", ")
            )));
        }
        // One by one: the reader of the whole table does not say which setting was wrong.
        for (name, value) in &table {
            let alone = toml::Table::from_iter([(name.clone(), value.clone())]);
            let read = alone.clone().try_into::<ReachArgs>().and(alone.try_into::<RunArgs>());
            if let Err(error) = read {
                // What was written in place of a password may be one.
                let told = if name == "password" { "expected a string" } else { error.message() };
                return Err(usage(format!("{shown}: {name}: {told}")));
            }
        }
        let wrong = |error: toml::de::Error| usage(format!("{shown}: {}", error.message()));
        let reach = table.clone().try_into().map_err(wrong)?;
        let run = table.try_into().map_err(wrong)?;
        Ok(Self { reach, run })
    }
}

/// The names that a settings file may use: those of the options.
fn known_names() -> Vec<String> {
    let command = ReachArgs::augment_args(RunArgs::augment_args(clap::Command::new("settings")));
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    names
        .filter(|name| !["config", "verbose", "help", "version"].contains(name))
        .map(ToOwned::to_owned)
        .collect()
}

impl Reach {
    pub fn resolve(given: &ReachArgs, file: &ReachArgs, matches: &ArgMatches) -> Result<Self> {
        let from = |source| move |name: &str| matches.value_source(name) == Some(source);
        let flags = Layer::of(given, from(ValueSource::CommandLine), "the command line")?;
        let mut environment = Layer::of(given, from(ValueSource::EnvVariable), "the environment")?;
        if environment.url.is_none() && !environment.names_server() {
            environment.url = std::env::var("REDIS_URL").ok();
        }
        let file_layer = Layer::of(file, |_| true, "the settings file")?;
        let ring = given.ring.as_ref().or(file.ring.as_ref());
        let ring = ring.map(|name| name.parse()).transpose()?.unwrap_or_default();
        Ok(Self { ring, redis: Where::resolve([flags, environment, file_layer])? })
    }
}

impl Where {
    /// The highest layer that names a server decides where it is; that layer and those above it, which database and
    /// password. What a lower layer says is meant for another server, and a password must not end up there.
    fn resolve(layers: [Layer; 3]) -> Result<Self> {
        let deciding = layers.iter().position(Layer::names_server);
        let heard = &layers[..=deciding.unwrap_or(layers.len() - 1)];
        let mut refinement = Refinement {
            db: heard.iter().find_map(|layer| layer.db),
            password: heard.iter().find_map(|layer| layer.password.clone()),
        };
        let Some(layer) = deciding.map(|deciding| &layers[deciding]) else {
            return Ok(Self::Unsaid(refinement));
        };
        let endpoint = match &layer.url {
            Some(url) => url.parse::<Endpoint>()?,
            None => Endpoint::tcp(layer.host.as_deref().unwrap_or("127.0.0.1"), layer.port.unwrap_or(6379)),
        };
        // The environment is the place for secrets, so its password serves a server named by flag as well.
        if refinement.password.is_none() && deciding == Some(0) && !endpoint.has_password() {
            refinement.password.clone_from(&layers[1].password);
        }
        Ok(Self::Given(Box::new(refinement.apply(endpoint))))
    }
}

/// What one layer says of Redis.
struct Layer {
    url: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    db: Option<u16>,
    password: Option<String>,
}

impl Layer {
    /// The options that came from this layer; `name` is for the error if they contradict each other.
    fn of(args: &ReachArgs, from_here: impl Fn(&str) -> bool, name: &str) -> Result<Self> {
        let mut layer = Self {
            url: args.redis.clone().filter(|_| from_here("redis")),
            host: args.host.clone().filter(|_| from_here("host")),
            port: args.port.filter(|_| from_here("port")),
            db: args.db.filter(|_| from_here("db")),
            password: args.password.clone().filter(|_| from_here("password")),
        };
        let parts =
            layer.host.is_some() || layer.port.is_some() || layer.db.is_some() || layer.password.is_some();
        if layer.url.is_some() && parts {
            return Err(usage(format!(
                "{name}: expected --redis (which says it all) or host, port, db and password, not both"
            )));
        }
        if let Some(path) = args.password_file.as_deref().filter(|_| from_here("password_file")) {
            if layer.password.is_some() {
                return Err(usage(format!("{name}: expected password or password-file, not both")));
            }
            layer.password = Some(read_password(path)?);
        }
        Ok(layer)
    }

    fn names_server(&self) -> bool {
        self.url.is_some() || self.host.is_some() || self.port.is_some()
    }
}

fn read_file(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| usage(format!("expected a file that can be read, got {}: {error}", path.display())))
}

fn read_password(path: &Path) -> Result<String> {
    let text = read_file(path)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl RunArgs {
    /// These options, completed by those of a lower layer.
    pub fn or(self, lower: Self) -> Self {
        Self {
            interval: self.interval.or(lower.interval),
            error_rate: self.error_rate.or(lower.error_rate),
            concurrency: self.concurrency.or(lower.concurrency),
            limit: self.limit.or(lower.limit),
            until_done: self.until_done.or(lower.until_done),
            work_per_char: self.work_per_char.or(lower.work_per_char),
            max_waiting: self.max_waiting.or(lower.max_waiting),
            max_attempts: self.max_attempts.or(lower.max_attempts),
            max_body: self.max_body.or(lower.max_body),
            lease: self.lease.or(lower.lease),
            missed: self.missed.or(lower.missed),
            journal: self.journal.or(lower.journal),
            record: self.record.or(lower.record),
            json: self.json.or(lower.json),
            brief: self.brief.or(lower.brief),
            control: self.control.or(lower.control),
            seed: self.seed.or(lower.seed),
        }
    }

    /// The command line that says the same.
    pub fn flags(&self) -> Result<Vec<String>> {
        let serde_json::Value::Object(options) = serde_json::to_value(self)? else {
            unreachable!("a struct is an object");
        };
        let flag = |(name, value): (String, serde_json::Value)| match value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(format!("--{name}={text}")),
            other => Some(format!("--{name}={other}")),
        };
        Ok(options.into_iter().filter_map(flag).collect())
    }

    /// The library's settings, checked.
    pub fn config(&self, redis: Endpoint, ring: RingName) -> Result<Config> {
        let mut config = Config::new(redis, ring);
        let set = |target: &mut std::time::Duration, given: Option<crate::duration::HumanDuration>| {
            if let Some(given) = given {
                *target = given.0;
            }
        };
        set(&mut config.interval, self.interval);
        set(&mut config.lease, self.lease);
        config.limit = self.limit;
        config.concurrency = self.concurrency.unwrap_or(config.concurrency);
        config.until_done = self.until_done.unwrap_or(config.until_done);
        config.max_waiting = self.max_waiting.unwrap_or(config.max_waiting);
        config.max_attempts = self.max_attempts.unwrap_or(config.max_attempts);
        config.max_body = self.max_body.unwrap_or(config.max_body);
        config.journal = self.journal.unwrap_or(config.journal);
        config.missed = match self.missed {
            Some(MissedTicks::CatchUp) => Missed::CatchUp,
            Some(MissedTicks::Skip) | None => Missed::Skip,
        };
        config.validate()?;
        Ok(config)
    }

    pub fn speech(&self) -> Result<Speech> {
        match (self.json == Some(true), self.brief == Some(true)) {
            (true, brief) => Ok(Speech::Json { brief }),
            (false, false) => Ok(Speech::Human),
            (false, true) => Err(usage("brief: expected --json with it")),
        }
    }

    pub fn work(&self) -> Result<Work> {
        let error_rate = self.error_rate.unwrap_or(0.05);
        if !(0.0..=1.0).contains(&error_rate) {
            return Err(usage(format!("error-rate: expected 0 to 1, got '{error_rate}'")));
        }
        let per_char = self.work_per_char.map_or(std::time::Duration::ZERO, |time| time.0);
        Ok(Work { error_rate, per_char, seed: self.seed })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Parser as _};
    use proptest::prelude::*;

    use super::{File, Refinement, known_names};
    use crate::cli::{Cli, RunArgs};

    /// A value as a person might write it, right or wrong.
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
        fn any_file_is_read_or_refused_by_the_name_of_what_is_wrong(
            name in prop_oneof![4 => prop::sample::select(known_names()), 1 => "[a-z]{1,8}"],
            value in value(),
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("# one line\n{name} = {value}\n")).unwrap();
            if let Err(error) = File::read(Some(file.path())) {
                let told = error.to_string();
                prop_assert!(told.contains("line 2") || told.contains(&name), "{}", told);
            }
        }

        #[test]
        fn what_stands_where_the_password_belongs_is_never_shown(secret in "[0-9]{9,12}") {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("password = {secret}\n")).unwrap();
            let told = File::read(Some(file.path())).err().expect("a number is no password").to_string();
            prop_assert!(!told.contains(&secret), "{}", told);
        }
    }

    #[test]
    fn a_server_without_a_password_is_still_asked_for_the_database() {
        let refinement = Refinement { db: Some(3), password: Some("secret".into()) };
        let endpoint = refinement.without_password().apply("redis+unix:///run/redis.sock".parse().unwrap());
        assert_eq!(endpoint.secret_url(), "redis+unix:///run/redis.sock?db=3");
    }

    /// Two values for each option of `run`.
    const EACH_OPTION: [(&str, &str, &str); 17] = [
        ("interval", "1s", "2s"),
        ("error-rate", "0.25", "0.5"),
        ("concurrency", "3", "4"),
        ("limit", "5", "6"),
        ("until-done", "true", "false"),
        ("work-per-char", "1ms", "2ms"),
        ("max-waiting", "7", "8"),
        ("max-attempts", "9", "10"),
        ("max-body", "11", "12"),
        ("lease", "1s", "2s"),
        ("missed", "skip", "catch-up"),
        ("journal", "true", "false"),
        ("record", "a", "b"),
        ("json", "true", "false"),
        ("brief", "true", "false"),
        ("control", "true", "false"),
        ("seed", "13", "14"),
    ];

    #[test]
    fn the_higher_layer_wins_option_by_option_and_the_lower_fills_what_it_leaves_open() {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let options: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        assert_eq!(EACH_OPTION.map(|(name, ..)| name), options[..], "all of them");
        let parse = |flags: Vec<String>| {
            Cli::try_parse_from(["estafeta".to_owned()].into_iter().chain(flags)).unwrap().run
        };
        let every = |choose: fn(&(&str, &'static str, &'static str)) -> &'static str| -> Vec<String> {
            EACH_OPTION.iter().map(|option| format!("--{}={}", option.0, choose(option))).collect()
        };
        let (high, low) = (every(|option| option.1), every(|option| option.2));
        assert_eq!(parse(high.clone()).or(parse(low.clone())).flags().unwrap(), high);
        assert_eq!(RunArgs::default().or(parse(low.clone())).flags().unwrap(), low);
        for index in 0..EACH_OPTION.len() {
            let mut expected = low.clone();
            expected[index].clone_from(&high[index]);
            let one = parse(vec![high[index].clone()]);
            assert_eq!(one.or(parse(low.clone())).flags().unwrap(), expected);
        }
    }

    #[test]
    fn every_option_reaches_the_setting_that_it_is_named_after() {
        let args = Cli::try_parse_from([
            "estafeta",
            "--interval=3s",
            "--concurrency=3",
            "--limit=5",
            "--until-done",
            "--max-waiting=7",
            "--max-attempts=9",
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
        assert_eq!((config.max_waiting, config.max_attempts, config.max_body), (7, 9, 11));
        assert_eq!((config.missed, config.journal), (estafeta::Missed::CatchUp, true));
        assert_eq!(
            (config.ring.as_str(), config.redis.to_string().as_str()),
            ("x", "redis://localhost:6379/0")
        );
        let work = args.work().unwrap();
        assert_eq!((work.error_rate, work.per_char.as_millis(), work.seed), (0.25, 1, Some(13)));
    }

    #[test]
    fn flags_say_what_they_were_made_of() {
        let said = [
            "--interval=1s 500ms",
            "--error-rate=0.25",
            "--until-done=true",
            "--missed=catch-up",
            "--record=a b",
        ];
        let parse =
            |flags: &[String]| Cli::try_parse_from(["estafeta".to_owned()].iter().chain(flags)).unwrap().run;
        let flags = parse(&said.map(ToOwned::to_owned)).flags().unwrap();
        assert_eq!(flags, said);
        assert_eq!(parse(&flags).flags().unwrap(), said);
    }
}
