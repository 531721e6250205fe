//! The settings file: a TOML table with the names of options.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::origin::Place;
use super::read_file;
use crate::call;
use crate::cli::{ReachArgs, RunArgs};
use crate::failure::usage;

/// The largest settings file, in KiB.
const MOST_KIB: u64 = 1024;

/// What a settings file contains. Without a file, it contains nothing.
#[derive(Default)]
pub struct File {
    path: PathBuf,
    names: Vec<String>,
    pub reach: ReachArgs,
    pub run: RunArgs,
}

impl File {
    /// Reads the file that the user named in `place`.
    pub fn read(path: &Path, place: Place<'_>) -> Result<Self> {
        let shown = path.display();
        let text = read_file(path, &place.name("config"), MOST_KIB)?;
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
        let names = table.keys().cloned().collect();
        let reach = table.clone().try_into().map_err(wrong)?;
        let run = table.try_into().map_err(wrong)?;
        Ok(Self { path: path.to_owned(), names, reach, run })
    }

    /// This file as the place of an option, if it contains the option.
    pub fn place(&self, option: &str) -> Option<Place<'_>> {
        self.names.iter().any(|name| name == option).then_some(Place::File(&self.path))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The names that a settings file may use. They are the names of the options.
pub fn known_names() -> Vec<String> {
    let options = call::layered_options();
    let names = options.get_arguments().filter_map(clap::Arg::get_long);
    names.filter(|name| !["config", "verbose"].contains(name)).map(ToOwned::to_owned).collect()
}
