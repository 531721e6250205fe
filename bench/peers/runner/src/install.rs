//! Builds and installs what the peers need, as far as it is missing, and knows how each is called.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::catalogue::{Language, Program};

/// `bench/peers`.
pub fn bench_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What is ready to run, and what cannot run here.
#[derive(Default)]
pub struct Installation {
    outcomes: HashMap<Language, Option<String>>,
    /// Where cargo put the programs that it built.
    binaries: HashMap<String, PathBuf>,
}

/// What cargo says of what it built.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Installation {
    /// Installs what a program needs, once a language; answers why it cannot run here, if so.
    pub fn prepare(&mut self, program: Program) -> Result<Option<String>> {
        if !self.outcomes.contains_key(&program.language) {
            let outcome = match program.language {
                Language::Rust => self.build("rust/Cargo.toml")?,
                Language::Node => node()?,
                Language::Python => python_packages()?,
            };
            self.outcomes.insert(program.language, outcome);
        }
        Ok(self.outcomes[&program.language].clone())
    }

    /// How a program is called.
    pub fn command(&self, program: Program) -> Result<Command> {
        let bench = bench_directory();
        Ok(match program.language {
            Language::Rust => {
                Command::new(self.binaries.get(program.name).context("cargo built no such program")?)
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.arg(bench.join("node").join(program.name));
                command
            }
            Language::Python => {
                let mut command = Command::new(python(&bench));
                command.arg(bench.join("python").join(program.name)).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        })
    }

    fn build(&mut self, manifest: &str) -> Result<Option<String>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--release", "--locked", "--bins"]);
        build.arg("--message-format=json-render-diagnostics");
        build.arg("--manifest-path").arg(bench_directory().join(manifest));
        let what = "building the peers in Rust";
        eprintln!("{what}");
        let mut child =
            build.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        let mut told = String::new();
        child.stdout.take().context("no stdout")?.read_to_string(&mut told)?;
        let status = child.wait()?;
        ensure!(status.success(), "{what} failed: {status}");
        for artifact in told.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok()) {
            if let Some(path) = artifact.executable {
                self.binaries.insert(artifact.target.name, path);
            }
        }
        Ok(None)
    }
}
fn node() -> Result<Option<String>> {
    if !is_there("node") || !is_there("npm") {
        return Ok(Some("there is no Node.js with npm here".to_owned()));
    }
    let directory = bench_directory().join("node");
    if !is_newer(&directory.join("node_modules/.package-lock.json"), &directory.join("package-lock.json")) {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&directory);
        if let Err(error) = run("installing the peers in JavaScript (npm ci)", &mut npm) {
            return Ok(Some(format!("{error:#}")));
        }
    }
    Ok(None)
}

fn python_packages() -> Result<Option<String>> {
    let bench = bench_directory();
    let (directory, python) = (bench.join("python"), python(&bench));
    let requirements = directory.join("requirements.txt");
    let stamp = directory.join(".venv/installed");
    if is_newer(&stamp, &requirements) {
        return Ok(None);
    }
    let has_venv =
        Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
    if !has_venv.is_ok_and(|status| status.success()) {
        return Ok(Some("there is no Python 3 with venv here".to_owned()));
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(directory.join(".venv"));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&requirements);
    let installed = run("making a virtual environment", &mut venv)
        .and_then(|()| run("installing the peers in Python (pip install)", &mut pip));
    if let Err(error) = installed {
        return Ok(Some(format!("{error:#}")));
    }
    std::fs::write(stamp, "")?;
    Ok(None)
}

fn python(bench: &Path) -> PathBuf {
    bench.join("python/.venv/bin/python")
}

fn is_there(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Whether `made` is there and not older than what it was made from.
fn is_newer(made: &Path, from: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    matches!((changed(made), changed(from)), (Some(made), Some(from)) if made >= from)
}

fn run(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("{what}");
    // What installers say is talk, and stdout is for data.
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    ensure!(status.success(), "{what} failed: {status}");
    Ok(())
}
