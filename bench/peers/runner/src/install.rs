//! Builds and installs what the peers need, as far as it is missing, and knows how each is called.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::catalogue::{Language, Program};
use crate::children::{Children, Interrupted};

/// Why a peer cannot run here. It is published, so it has nothing of this machine in it.
pub type Reason = &'static str;

/// `bench/peers`.
pub fn bench_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What is ready to run, and what cannot run here.
pub struct Installation<'a> {
    children: &'a Children,
    outcomes: HashMap<Language, Option<Reason>>,
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

impl<'a> Installation<'a> {
    pub fn new(children: &'a Children) -> Installation<'a> {
        Installation { children, outcomes: HashMap::new(), binaries: HashMap::new() }
    }

    /// Installs what a program needs, once a language; answers why it cannot run here, if so.
    pub fn prepare(&mut self, program: Program) -> Result<Option<Reason>> {
        if let Some(outcome) = self.outcomes.get(&program.language) {
            return Ok(*outcome);
        }
        let outcome = match program.language {
            Language::Estafeta => self.build("building estafeta", "estafeta/Cargo.toml")?,
            Language::Rust => self.build("building the peers in Rust", "rust/Cargo.toml")?,
            Language::Node => self.node()?,
            Language::Python => self.python()?,
        };
        self.outcomes.insert(program.language, outcome);
        Ok(outcome)
    }

    /// How a program is called.
    pub fn command(&self, program: Program) -> Result<Command> {
        let bench = bench_directory();
        Ok(match program.language {
            Language::Estafeta | Language::Rust => {
                Command::new(self.binaries.get(program.name).context("cargo built no such program")?)
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.arg(bench.join("node").join(program.name));
                command
            }
            Language::Python => {
                let mut command = Command::new(virtual_python(&bench));
                command.arg(bench.join("python").join(program.name)).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        })
    }

    /// A failure here is one of ours, and no reason to leave anybody out.
    fn build(&mut self, what: &str, manifest: &str) -> Result<Option<Reason>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--release", "--locked", "--bins"]);
        cargo.arg("--message-format=json-render-diagnostics");
        cargo.arg("--manifest-path").arg(bench_directory().join(manifest));
        eprintln!("{what}");
        cargo.stdin(Stdio::null()).stdout(Stdio::piped());
        let (status, told) = self.children.run(&mut cargo, |child| {
            let mut told = String::new();
            child.stdout.take().context("no stdout")?.read_to_string(&mut told)?;
            Ok(told)
        })?;
        ensure!(status.success(), "{what} failed: {status}");
        for artifact in told.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok()) {
            if let Some(path) = artifact.executable {
                self.binaries.insert(artifact.target.name, path);
            }
        }
        Ok(None)
    }

    fn node(&self) -> Result<Option<Reason>> {
        if !is_there("node") || !is_there("npm") {
            return Ok(Some("there is no Node.js with npm"));
        }
        let directory = bench_directory().join("node");
        if is_newer(&directory.join("node_modules/.package-lock.json"), &directory.join("package-lock.json"))
        {
            return Ok(None);
        }
        eprintln!("installing the peers in JavaScript");
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&directory);
        Ok(if self.succeeds(&mut npm)? { None } else { Some("`npm ci` failed") })
    }

    fn python(&self) -> Result<Option<Reason>> {
        let bench = bench_directory();
        let directory = bench.join("python");
        let requirements = directory.join("requirements.txt");
        let stamp = directory.join(".venv/installed");
        if is_newer(&stamp, &requirements) {
            return Ok(None);
        }
        let has_venv =
            Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
        if !has_venv.is_ok_and(|status| status.success()) {
            return Ok(Some("there is no Python 3 with venv"));
        }
        eprintln!("installing the peers in Python");
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(directory.join(".venv"));
        if !self.succeeds(&mut venv)? {
            return Ok(Some("no virtual environment could be made"));
        }
        let mut pip = Command::new(virtual_python(&bench));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        if !self.succeeds(pip.arg(&requirements))? {
            return Ok(Some("`pip install` failed"));
        }
        std::fs::write(stamp, "")?;
        Ok(None)
    }

    /// Whether an installer did its work. Why not is told on stderr, in full.
    fn succeeds(&self, installer: &mut Command) -> Result<bool> {
        // What installers say is talk, and stdout is for data.
        installer.stdin(Stdio::null()).stdout(std::io::stderr());
        match self.children.run(installer, |_| Ok(())) {
            Ok((status, ())) => Ok(status.success()),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                eprintln!("{error:#}");
                Ok(false)
            }
        }
    }
}

fn virtual_python(bench: &Path) -> PathBuf {
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
