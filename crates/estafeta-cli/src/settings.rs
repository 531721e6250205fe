//! Turns the command line, the environment and the settings file into settings that are ready for use.
//!
//! Each of the three is a layer. A flag overrides the environment, which overrides the file. `reach` has the additional
//! rules for the address of Redis.

mod file;
mod origin;
pub mod reach;
#[cfg(test)]
mod tests;
mod work;

use std::io::Read as _;
use std::path::Path;

use anyhow::Result;
use estafeta::{Config, Endpoint, Error, RingName};

use crate::cli::{DEFAULT_ERROR_RATE, DEFAULT_WORK_PER_CHAR, RunArgs};
use crate::demo::{self, DemoSettings};
use crate::failure::usage;
use crate::retry_rule::RetryRule;

pub use file::File;
pub use origin::{Origins, Place};
pub use reach::{Reach, Where};

/// How a node shows its events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for people.
    Human,
    /// JSON objects for programs. With `brief`, fewer objects, for a program that reads many nodes.
    Json { brief: bool },
}

/// Reads a file of at most `limit` KiB. `option` names the option that contains its path. A device such as `/dev/zero`
/// has no end, so only a part of it may be read.
pub fn read_file(path: &Path, option: &str, limit: u64) -> Result<String> {
    let (shown, bytes) = (path.display(), limit * 1024);
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(bytes + 1).read_to_string(&mut text));
    match read {
        Ok(size) if size as u64 > bytes => {
            let size = if limit < 1024 { format!("{limit} KiB") } else { format!("{} MiB", limit / 1024) };
            Err(usage(format!("{option}: expected a file of at most {size}, got {shown}")))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(usage(format!("{option}: expected a file that can be read, got {shown}: {error}"))),
    }
}

impl RunArgs {
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
        let works = self.work()?.is_some();
        config.application = match &self.app {
            _ if !works => demo::APPLICATION.to_owned(),
            Some(name) => name.clone(),
            None => config.application,
        };
        config.interval = self.interval.map_or(config.interval, |time| time.0);
        config.partitions = self.partitions.unwrap_or(config.partitions);
        config.concurrency = self.concurrency.unwrap_or(config.concurrency);
        // In the demo, the generator does nothing else.
        config.generator_handles = self.generator_handles.unwrap_or(works);
        config.retry = self.retry.map_or(config.retry, RetryRule::retry);
        config.never_generate = self.never_generate.unwrap_or(config.never_generate);
        config.never_handle = self.never_handle.unwrap_or(config.never_handle);
        config.limit = self.limit;
        config.until_done = self.until_done.unwrap_or(config.until_done);
        config.max_waiting = self.max_waiting.unwrap_or(config.max_waiting);
        config.max_deaths = self.max_deaths.unwrap_or(config.max_deaths);
        config.time_limit = self.time_limit.map_or(config.time_limit, |time| time.0);
        config.max_body = self.max_body.unwrap_or(config.max_body);
        config.lease = self.lease.map_or(config.lease, |time| time.0);
        config.durability = self.durability.unwrap_or(config.durability);
        config.catch_up = self.missed.map_or(config.catch_up, |missed| missed.catches_up());
        config.journal = self.journal.unwrap_or(config.journal);
        config.validate()?;
        Ok(config)
    }

    pub fn output_form(&self) -> Result<OutputForm> {
        match (self.json == Some(true), self.brief == Some(true)) {
            (true, brief) => Ok(OutputForm::Json { brief }),
            (false, false) => Ok(OutputForm::Human),
            (false, true) => Err(wrong("brief", "--json with it", "none")),
        }
    }

    pub fn demo(&self) -> Result<DemoSettings> {
        let error_rate = self.error_rate.unwrap_or(DEFAULT_ERROR_RATE);
        if !(0.0..=1.0).contains(&error_rate) {
            return Err(wrong("error-rate", "0 to 1", &format!("'{error_rate}'")));
        }
        let per_char = self.work_per_char.unwrap_or(DEFAULT_WORK_PER_CHAR).0;
        Ok(DemoSettings { error_rate, per_char, seed: self.seed })
    }
}

/// An error about the value of an option, of the same kind as the errors of the library's settings.
pub fn wrong(what: &'static str, expected: &str, got: &str) -> anyhow::Error {
    Error::Expected { what, expected: expected.to_owned(), got: got.to_owned() }.into()
}
