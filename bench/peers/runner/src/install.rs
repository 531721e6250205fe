//! Builds and installs what the peers need, unless it is installed already. Makes the command that starts each peer.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::catalogue::{Language, Program};
use crate::children::{Children, Interrupted};

/// Why a peer cannot run here. The page prints it, so it holds no detail of this machine.
pub type Reason = &'static str;

/// `bench/peers`.
pub fn bench_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Which peers are ready to run, and which cannot run here.
pub struct Installation<'a> {
    children: &'a Children,
    outcomes: HashMap<Language, Option<Reason>>,
    /// The paths of the programs that cargo built.
    binaries: HashMap<String, PathBuf>,
}

/// One line of the report of cargo about a build.
#[derive(Deserialize)]
struct BuiltProgram {
    target: BuiltTarget,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
}

impl<'a> Installation<'a> {
    pub fn new(children: &'a Children) -> Installation<'a> {
        Installation { children, outcomes: HashMap::new(), binaries: HashMap::new() }
    }

    /// Installs what a program needs, once per language. Returns why the program cannot run here, or None if it can.
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

    /// Returns the command that starts a program.
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

    /// Builds a workspace. If that fails, the runner fails. It skips no peer, because these sources belong to the
    /// project.
    fn build(&mut self, what: &str, manifest: &str) -> Result<Option<Reason>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--release", "--locked", "--bins"]);
        cargo.arg("--message-format=json-render-diagnostics");
        cargo.arg("--manifest-path").arg(bench_directory().join(manifest));
        eprintln!("{what}");
        cargo.stdin(Stdio::null()).stdout(Stdio::piped());
        let (status, messages) = self.children.run(cargo, |child| {
            let mut messages = String::new();
            child.stdout.take().context("no stdout")?.read_to_string(&mut messages)?;
            Ok(messages)
        })?;
        ensure!(status.success(), "{what} failed: {status}");
        for artifact in messages.lines().filter_map(|line| serde_json::from_str::<BuiltProgram>(line).ok()) {
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
        Ok(if self.succeeds(npm)? { None } else { Some("`npm ci` failed") })
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
        if !self.succeeds(venv)? {
            return Ok(Some("no virtual environment could be made"));
        }
        let mut pip = Command::new(virtual_python(&bench));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        pip.arg(&requirements);
        if !self.succeeds(pip)? {
            return Ok(Some("`pip install` failed"));
        }
        std::fs::write(stamp, "")?;
        Ok(None)
    }

    /// Whether an installer succeeded. If it fails, the reason is on stderr.
    fn succeeds(&self, mut installer: Command) -> Result<bool> {
        // The stdout of the runner is for its result only.
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

/// Whether the file `made` exists, and is not older than the file that it was made from.
fn is_newer(made: &Path, from: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    matches!((changed(made), changed(from)), (Some(made), Some(from)) if made >= from)
}
