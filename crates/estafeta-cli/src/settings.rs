//! Turns the command line, the environment and the settings file into settings that are ready for use.
//!
//! Each of the three is a layer. A flag overrides the environment, which overrides the file. The address of Redis is a
//! URL, or a host and a port. One layer may not name both.
//!
//! The highest layer that names a server decides which server is used. That layer and those above it may refine the
//! address by database, user and password, even if the address is a URL. Lower layers describe another server, so their
//! refinements are ignored: a password must not reach the wrong server. There is one exception. The environment is the
//! place for secrets, so its credentials apply to a server that a flag names, if no other password is given.

use std::path::Path;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _};
use estafeta::{Config, Endpoint, Missed, RingName};

use crate::cli::{MissedTicks, ReachArgs, RunArgs};
use crate::failure::usage;

const DEFAULT_RING: &str = "estafeta";

/// The application of the nodes that `run` and `monitor` start. They join no ring of another application, and nodes of
/// another application do not join theirs.
pub const DEMO: &str = "estafeta-demo";

/// Where the ring is.
pub struct Reach {
    pub ring: RingName,
    pub redis: Where,
}

/// Which Redis to use.
pub enum Where {
    Given(Box<Endpoint>),
    /// No layer names a server: use the one at the usual port, or else a private one. The database applies to both, the
    /// credentials only to the former. If `private` is false, the user forbids a private one.
    Unspecified {
        refinement: Refinement,
        private: bool,
    },
}

/// What can be added to an address of Redis without naming a server.
#[derive(Default)]
pub struct Refinement {
    pub db: Option<u16>,
    pub user: Option<String>,
    pub password: Option<String>,
}

impl Refinement {
    pub fn without_credentials(&self) -> Self {
        Self { db: self.db, user: None, password: None }
    }

    pub fn apply(&self, mut endpoint: Endpoint) -> Endpoint {
        if let Some(db) = self.db {
            endpoint = endpoint.with_db(db.into());
        }
        if let Some(user) = &self.user {
            endpoint = endpoint.with_user(user);
        }
        if let Some(password) = &self.password {
            endpoint = endpoint.with_password(password);
        }
        endpoint
    }
}

/// The settings of the demo workload.
pub struct DemoSettings {
    pub error_rate: f64,
    pub per_char: std::time::Duration,
    pub seed: Option<u64>,
}

/// How a node shows its events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for people.
    Human,
    /// JSON objects for programs. If `brief`, only those that a program with many nodes can follow.
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
        // Each setting is parsed alone, because an error of the whole table does not name the setting.
        for (name, value) in &table {
            let alone = toml::Table::from_iter([(name.clone(), value.clone())]);
            let read = alone.clone().try_into::<ReachArgs>().and(alone.try_into::<RunArgs>());
            if let Err(error) = read {
                // The error may quote the value, which may be a password.
                let message = if name == "password" { "expected a string" } else { error.message() };
                return Err(usage(format!("{shown}: {name}: {message}")));
            }
        }
        let wrong = |error: toml::de::Error| usage(format!("{shown}: {}", error.message()));
        let reach = table.clone().try_into().map_err(wrong)?;
        let run = table.try_into().map_err(wrong)?;
        Ok(Self { reach, run })
    }
}

/// The names that a settings file may use. They are the names of the options.
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
            environment.url = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
        }
        let file_layer = Layer::of(file, |_| true, "the settings file")?;
        let ring = given.ring.as_ref().or(file.ring.as_ref());
        let ring = ring.map_or(DEFAULT_RING, String::as_str).parse()?;
        let no_private = given.no_private_redis.or(file.no_private_redis) == Some(true);
        Ok(Self { ring, redis: Where::resolve([flags, environment, file_layer], !no_private)? })
    }
}

impl Where {
    /// Picks the server and its refinements from the layers, highest first. The documentation of this module has the
    /// rules.
    fn resolve(layers: [Layer; 3], private: bool) -> Result<Self> {
        let deciding = layers.iter().position(Layer::names_server);
        let applicable = &layers[..=deciding.unwrap_or(layers.len() - 1)];
        let mut refinement = Refinement {
            db: applicable.iter().find_map(|layer| layer.db),
            user: applicable.iter().find_map(|layer| layer.user.clone()),
            password: applicable.iter().find_map(|layer| layer.password.clone()),
        };
        let Some(layer) = deciding.map(|deciding| &layers[deciding]) else {
            return Ok(Self::Unspecified { refinement, private });
        };
        let endpoint = match &layer.url {
            Some(url) => url.parse::<Endpoint>()?,
            None => Endpoint::tcp(layer.host.as_deref().unwrap_or("127.0.0.1"), layer.port.unwrap_or(6379)),
        };
        // Credentials in the environment apply even if a flag names the server.
        if refinement.password.is_none() && deciding == Some(0) && !endpoint.has_password() {
            refinement.password.clone_from(&layers[1].password);
            if refinement.user.is_none() && !endpoint.has_user() {
                refinement.user.clone_from(&layers[1].user);
            }
        }
        Ok(Self::Given(Box::new(refinement.apply(endpoint))))
    }
}

/// What one layer contains about Redis.
struct Layer {
    url: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    db: Option<u16>,
    user: Option<String>,
    password: Option<String>,
}

impl Layer {
    /// The options that came from this layer. `name` describes the layer in the error about options that contradict
    /// each other.
    fn of(args: &ReachArgs, from_here: impl Fn(&str) -> bool, name: &str) -> Result<Self> {
        let mut layer = Self {
            url: args.redis.clone().filter(|_| from_here("redis")),
            host: args.host.clone().filter(|_| from_here("host")),
            port: args.port.filter(|_| from_here("port")),
            db: args.db.filter(|_| from_here("db")),
            user: args.user.clone().filter(|_| from_here("user")),
            password: args.password.clone().filter(|_| from_here("password")),
        };
        if layer.url.is_some() && (layer.host.is_some() || layer.port.is_some()) {
            return Err(usage(format!("{name}: expected a Redis URL or host and port, not both")));
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

    /// The flags that give the same options on a command line.
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

    /// The library's settings, validated.
    pub fn config(&self, redis: Endpoint, ring: RingName) -> Result<Config> {
        let mut config = Config::new(redis, ring);
        config.application = DEMO.to_owned();
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

    pub fn output_form(&self) -> Result<OutputForm> {
        match (self.json == Some(true), self.brief == Some(true)) {
            (true, brief) => Ok(OutputForm::Json { brief }),
            (false, false) => Ok(OutputForm::Human),
            (false, true) => Err(usage("brief: expected --json with it")),
        }
    }

    pub fn demo(&self) -> Result<DemoSettings> {
        let error_rate = self.error_rate.unwrap_or(0.05);
        if !(0.0..=1.0).contains(&error_rate) {
            return Err(usage(format!("error-rate: expected 0 to 1, got '{error_rate}'")));
        }
        let per_char = self.work_per_char.map_or(std::time::Duration::ZERO, |time| time.0);
        Ok(DemoSettings { error_rate, per_char, seed: self.seed })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Parser as _};
    use proptest::prelude::*;

    use super::{File, Refinement, known_names};
    use crate::cli::{Cli, RunArgs};

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
            if let Err(error) = File::read(Some(file.path())) {
                let message = error.to_string();
                prop_assert!(message.contains("line 2") || message.contains(&name), "{}", message);
            }
        }

        #[test]
        fn a_wrong_value_for_the_password_is_never_shown(secret in "[0-9]{9,12}") {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("password = {secret}\n")).unwrap();
            let message = File::read(Some(file.path())).err().expect("a number is no password").to_string();
            prop_assert!(!message.contains(&secret), "{}", message);
        }
    }

    #[test]
    fn removing_the_credentials_from_a_refinement_keeps_the_database() {
        let refinement = Refinement { db: Some(3), user: None, password: Some("secret".into()) };
        let endpoint =
            refinement.without_credentials().apply("redis+unix:///run/redis.sock".parse().unwrap());
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
    fn a_higher_layer_overrides_each_option_and_a_lower_one_fills_the_gaps() {
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
    fn options_reach_the_settings_that_they_are_named_after() {
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
}
