//! Which files are mutated, and which tests must notice.
//!
//! An [`Area`] is a part of the sources with one goal: the share of its mutants that the tests must catch. Each of its
//! files has *stages*, tests that run one after another until one fails. The stages that fail soonest come first.
//!
//! Tests are named `suite` or `suite:filter,filter`. The suites are
//!
//! - `stories`: random orders of script calls, compared with a model,
//! - `sample`: the first of these stories,
//! - `damage`: the test that damages each field before each step, which takes as long as the stories,
//! - `scripts`: all other tests inside the library,
//! - `library`: nodes inside a test process,
//! - `lab`: tests inside the laboratory,
//! - `program`: tests inside the program,
//! - `commands`: the real program, with real signals,
//! - `web`: its web server, over HTTP and in a browser.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// A part of the sources and the share of its mutants that must be caught, in percent.
pub struct Area {
    pub name: &'static str,
    pub goal: u32,
    /// Each path with the tests that must notice its mutants. A path that ends with a slash stands for everything below
    /// it.
    files: &'static [(&'static str, &'static [&'static str])],
}

/// Where the scripts are, from the root of the workspace.
pub const SCRIPTS: &str = "crates/estafeta/src/steps/";

/// Tests of the real program that show how a node behaves, for mutants of the library that its own tests miss.
const BEHAVIOUR: &str =
    "commands:bad_lines,clock_jumps,exactly_once,freezes,get_errors,lost_redis,redis_forgets,takeover";

/// The suites for a bug in a file that belongs to no area.
pub const ALL: [&str; 8] =
    ["sample", "scripts", "lab", "program", "library", "commands", "damage", "stories"];

/// The first path that fits a file decides, so the more specific ones come first.
pub const AREAS: &[Area] = &[
    Area { name: "scripts", goal: 95, files: &[(SCRIPTS, &["sample", "scripts", "damage", "stories"])] },
    Area {
        name: "judge",
        goal: 95,
        files: &[
            ("crates/estafeta-lab/src/chaos/judge.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/losses.rs", &["lab:chaos"]),
            ("crates/estafeta-lab/src/chaos/verdict.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/effects.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/evidence.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/feed.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/findings.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/publications.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/rules.rs", &["lab:chaos", "commands:chaos"]),
            ("crates/estafeta-lab/src/chaos/real_work/rules/", &["lab:chaos", "commands:chaos"]),
        ],
    },
    Area {
        name: "getErrors",
        goal: 95,
        files: &[
            ("crates/estafeta-cli/src/commands/get_errors.rs", &["commands:get_errors"]),
            ("crates/estafeta/src/inspect/dead_letters.rs", &["library", "commands:get_errors"]),
        ],
    },
    Area {
        name: "library",
        goal: 90,
        files: &[
            ("crates/estafeta/src/steps/", &["sample", "scripts", "library", BEHAVIOUR, "damage", "stories"]),
            ("crates/estafeta/src/redis/", &["sample", "scripts", "library", BEHAVIOUR, "damage", "stories"]),
            ("crates/estafeta/src/pack.rs", &["sample", "scripts", "library", "stories"]),
            (
                "crates/estafeta/src/inspect/",
                &["scripts", "library", "commands:clean_temp,errors,results,reset,foreign_data,status"],
            ),
            ("crates/estafeta/src/", &["scripts", "library", BEHAVIOUR]),
        ],
    },
    Area {
        name: "settings",
        goal: 90,
        files: &[
            (
                "crates/estafeta-cli/src/settings.rs",
                &["program:settings", "commands:settings,named_values,bad_input,tls,private_redis"],
            ),
            (
                "crates/estafeta-cli/src/settings/",
                &["program:settings", "commands:settings,named_values,bad_input,tls,private_redis"],
            ),
            ("crates/estafeta-cli/src/duration.rs", &["program", "commands:settings,bad_input"]),
            (
                "crates/estafeta-cli/src/find_redis.rs",
                &["program", "commands:private_redis,settings,bad_redis"],
            ),
        ],
    },
    Area {
        name: "private Redis",
        goal: 90,
        files: &[
            (
                "crates/estafeta-cli/src/private_redis.rs",
                &["program:private_redis", "commands:private_redis"],
            ),
            ("crates/estafeta-cli/src/private_redis/", &["program:private_redis", "commands:private_redis"]),
        ],
    },
];

/// The area of a file and the tests of its mutants, if it is to be mutated.
pub fn of_file(file: &str) -> Option<(&'static Area, &'static [&'static str])> {
    let fits = |path: &str| if path.ends_with('/') { file.starts_with(path) } else { file == path };
    // A script and its Rust file are in the same directory, and different tests must notice their mutants.
    let of_kind = |area: &&Area| (area.name == AREAS[0].name) == is_script(file);
    AREAS.iter().filter(of_kind).find_map(|area| {
        let (_, tests) = area.files.iter().find(|(path, _)| fits(path))?;
        Some((area, *tests))
    })
}

pub fn is_script(file: &str) -> bool {
    file.ends_with(".lua")
}

/// The paths of all Rust files to mutate, as cargo-mutants wants them.
pub fn rust_globs() -> Vec<String> {
    let paths = AREAS[1..].iter().flat_map(|area| area.files).map(|(path, _)| *path);
    paths.map(|path| if path.ends_with('/') { format!("{path}**/*.rs") } else { path.to_owned() }).collect()
}

/// Every Rust file to mutate, by its path from the root of the workspace.
pub fn rust_files() -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    crate::copy::list(&crate::root(), Path::new("crates"), &mut files)?;
    let names = files.iter().map(|file| file.to_string_lossy().into_owned());
    Ok(names.filter(|file| file.ends_with(".rs") && !is_test(file) && of_file(file).is_some()).collect())
}

/// Whether a file contains tests, or code that only tests use.
pub fn is_test(file: &str) -> bool {
    file.ends_with(".rs")
        && (file.contains("/tests/") || file.ends_with("tests.rs") || file.starts_with("crates/testbed/"))
}

/// Every script, by its path from the root of the workspace, with its text.
pub fn scripts() -> Result<Vec<(String, String)>> {
    let mut scripts = Vec::new();
    for directory in [SCRIPTS.to_owned(), format!("{SCRIPTS}shared/")] {
        let path = crate::root().join(&directory);
        for entry in path.read_dir().with_context(|| format!("cannot list {}", path.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".lua") {
                let text = std::fs::read_to_string(path.join(&name))?;
                scripts.push((format!("{directory}{name}"), text));
            }
        }
    }
    scripts.sort();
    Ok(scripts)
}

/// Where the tests of a suite are.
pub struct Suite {
    pub package: &'static str,
    /// The directory of the package, from the root of the workspace.
    pub directory: &'static Path,
    /// The target that cargo builds.
    pub target: &'static [&'static str],
    /// The arguments of the test binary: which tests to run, and which to skip.
    pub arguments: Vec<String>,
    /// How many calls the stories make, unless all of them run.
    pub calls: Option<u64>,
}

const STORIES: &str = "every_story_ends_well";
const DAMAGE: &str = "a_step_that_a_damaged_field_stops_writes_nothing";
/// How many calls a sample makes. Most mutants that the stories notice at all are noticed long before that.
const SAMPLE: u64 = 10_000;

/// The name of a suite, without a filter.
pub fn name(tests: &str) -> &str {
    tests.split_once(':').map_or(tests, |(suite, _)| suite)
}

pub fn suite(tests: &str) -> Result<Suite> {
    let (suite, filters) = tests.split_once(':').unwrap_or((tests, ""));
    let mut arguments: Vec<String> =
        filters.split(',').filter(|filter| !filter.is_empty()).map(Into::into).collect();
    let (package, target): (_, &[_]) = match suite {
        "sample" | "stories" | "damage" | "scripts" => ("estafeta", &["--lib"]),
        "library" => ("estafeta", &["--test", "it"]),
        "lab" => ("estafeta-lab", &["--lib"]),
        "program" => ("estafeta-cli", &["--bin", "estafeta"]),
        "commands" => ("estafeta-cli", &["--test", "it"]),
        "web" => ("estafeta-cli", &["--test", "web"]),
        other => bail!("there are no tests called {other}"),
    };
    match suite {
        "sample" | "stories" => arguments.push(STORIES.into()),
        "damage" => arguments.push(DAMAGE.into()),
        "scripts" => {
            arguments.extend(["--skip".into(), STORIES.into(), "--skip".into(), DAMAGE.into()]);
        }
        _ => {}
    }
    let directory = Path::new(match package {
        "estafeta" => "crates/estafeta",
        "estafeta-lab" => "crates/estafeta-lab",
        _ => "crates/estafeta-cli",
    });
    let calls = (suite == "sample").then_some(SAMPLE);
    Ok(Suite { package, directory, target, arguments, calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_area_names_files_that_exist_and_tests_that_can_be_run() {
        for area in AREAS {
            for (path, tests) in area.files {
                assert!(crate::root().join(path).exists(), "{path}");
                assert!(!tests.is_empty(), "{path}");
                for tests in *tests {
                    suite(tests).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_most_specific_path_decides() {
        let area = |file| of_file(file).map(|(area, _)| area.name);
        assert_eq!(area("crates/estafeta/src/inspect/dead_letters.rs"), Some("getErrors"));
        assert_eq!(area("crates/estafeta/src/node/lane.rs"), Some("library"));
        assert_eq!(area("crates/estafeta/src/steps/shared/clock.lua"), Some("scripts"));
        assert_eq!(area("crates/estafeta-cli/src/main.rs"), None);
    }
}
