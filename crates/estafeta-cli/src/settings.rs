//! Turns what was given on the command line, in the environment and in the file into settings ready for use.
//!
//! A flag beats the environment beats the file. For most options that is one `or` after the other. Where Redis is can
//! be said in two ways, by URL or by host and port; the layer that says it first in that order decides alone, and one
//! layer that says it both ways is an error.

use std::path::Path;

use anyhow::{Context as _, Result};
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
    db: Option<u16>,
    password: Option<String>,
}

impl Refinement {
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
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            usage(format!("{shown}: expected TOML: {}", error.message()))
        })?;
        let known = known_names();
        if let Some(unknown) = table.keys().find(|key| !known.contains(key)) {
            return Err(usage(format!(
                "{shown}: unknown setting '{unknown}', expected one of: {}",
                known.join(", ")
            )));
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
    pub fn resolve(given: ReachArgs, file: ReachArgs, matches: &ArgMatches) -> Result<Self> {
        let flagged = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let by_url = flagged("redis");
        let by_host = flagged("host") || flagged("port");
        if by_url && (by_host || flagged("db") || flagged("password") || flagged("password_file")) {
            return Err(usage(
                "--redis says it all: expected it without --host, --port, --db and --password",
            ));
        }
        if flagged("password") && flagged("password_file") {
            return Err(usage("expected --password or --password-file, not both"));
        }
        if file.redis.is_some() && (file.host.is_some() || file.port.is_some()) {
            return Err(usage("settings file: expected redis or host and port, not both"));
        }
        let password = given_password(&given, flagged("password_file"))?;
        let password = match password {
            None => given_password(&file, file.password.is_none())?,
            some => some,
        };
        let refinement = Refinement { db: given.db.or(file.db), password };
        let host_or_port = |args: &ReachArgs| args.host.is_some() || args.port.is_some();
        let url = if by_url {
            given.redis
        } else if by_host {
            None
        } else if given.redis.is_some() {
            given.redis
        } else if let Ok(url) = std::env::var("REDIS_URL") {
            Some(url)
        } else if host_or_port(&given) {
            None
        } else {
            file.redis
        };
        let (host, port) = (given.host.or(file.host), given.port.or(file.port));
        let redis = match url {
            Some(url) => {
                let endpoint: Endpoint = url.parse()?;
                Where::Given(Box::new(if by_url { endpoint } else { refinement.apply(endpoint) }))
            }
            None if host.is_some() || port.is_some() => {
                let host = host.as_deref().unwrap_or("127.0.0.1");
                Where::Given(Box::new(refinement.apply(Endpoint::tcp(host, port.unwrap_or(6379)))))
            }
            None => Where::Unsaid(refinement),
        };
        let ring = given.ring.or(file.ring).map(|name| name.parse()).transpose()?.unwrap_or_default();
        Ok(Self { ring, redis })
    }
}

fn given_password(args: &ReachArgs, from_file: bool) -> Result<Option<String>> {
    match &args.password_file {
        Some(path) if from_file || args.password.is_none() => {
            let shown = path.display();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        _ => Ok(args.password.clone()),
    }
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
            json: self.json.or(lower.json),
            seed: self.seed.or(lower.seed),
        }
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

    pub fn work(&self) -> Result<Work> {
        let error_rate = self.error_rate.unwrap_or(0.05);
        if !(0.0..=1.0).contains(&error_rate) {
            return Err(usage(format!("error-rate: expected 0 to 1, got '{error_rate}'")));
        }
        let per_char = self.work_per_char.map_or(std::time::Duration::ZERO, |time| time.0);
        Ok(Work { error_rate, per_char, seed: self.seed })
    }
}
