//! Where the value of an option came from. An error about the value names that place.

use std::fmt;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches as _};
use estafeta::Error;

use super::File;
use crate::call;
use crate::cli::RunArgs;
use crate::failure::usage;

/// A place that values of options come from.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    CommandLine,
    Environment,
    File(&'a Path),
}

impl Place<'_> {
    /// How an error names an option whose value came from this place.
    pub fn name(self, option: &str) -> String {
        match self {
            Self::CommandLine => format!("--{option}"),
            Self::Environment => format!("variable {}", call::variable(option).unwrap_or_default()),
            Self::File(path) => format!("{}: {option}", path.display()),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("the command line"),
            Self::Environment => f.write_str("the environment"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// All three places. Finds the one that decided each option.
pub struct Origins<'a> {
    /// The options on the command line and in the environment.
    pub matches: &'a ArgMatches,
    pub file: &'a File,
}

impl Origins<'_> {
    /// The options of `run`: those of the file, overridden by all that were given elsewhere.
    pub fn run_options(&self) -> Result<RunArgs, clap::Error> {
        let mut options = self.file.run.clone();
        options.update_from_arg_matches(self.matches)?;
        Ok(options)
    }

    /// The place that the value of an option came from. None if the option was not given, or if there is no such
    /// option.
    pub fn place(&self, option: &str) -> Option<Place<'_>> {
        let id = option.replace('-', "_");
        let source = self.matches.try_contains_id(&id).ok().and_then(|_| self.matches.value_source(&id));
        match source {
            Some(ValueSource::CommandLine) => Some(Place::CommandLine),
            Some(ValueSource::EnvVariable) => Some(Place::Environment),
            _ => self.file.place(option),
        }
    }

    /// Makes an error about the value of an option name the place of that value. The error may come from any part of
    /// the program or the library. All other errors stay as they are.
    pub fn name_place(&self, failure: anyhow::Error) -> anyhow::Error {
        let named = match failure.downcast_ref() {
            Some(Error::Expected { what, expected, got }) => {
                self.place(what).map(|place| format!("{}: expected {expected}, got {got}", place.name(what)))
            }
            _ => None,
        };
        named.map_or(failure, usage)
    }
}

/// Turns an error about a value into one that begins with `name`.
pub fn refused(name: &str, error: Error) -> anyhow::Error {
    match error {
        Error::Expected { expected, got, .. } => usage(format!("{name}: expected {expected}, got {got}")),
        other => other.into(),
    }
}
