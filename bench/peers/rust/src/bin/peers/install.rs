//! Installs what the peers need into directories beside them, as far as it is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use crate::catalogue::Program;

/// `bench/peers`.
pub fn bench_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// How a peer is called.
pub fn command(program: Program) -> Result<Command> {
    let bench = bench_directory();
    Ok(match program {
        Program::Rust(name) => Command::new(
            std::env::current_exe()?.with_file_name(name).with_extension(std::env::consts::EXE_EXTENSION),
        ),
        Program::Node(script) => {
            let mut command = Command::new("node");
            command.arg(bench.join("node").join(script));
            command
        }
        Program::Python(script) => {
            let mut command = Command::new(python(&bench));
            command.arg(bench.join("python").join(script)).env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
    })
}

/// Installs what a program needs, once a language; answers why it cannot run here, if so.
pub fn prepare(program: Program) -> Result<Option<String>> {
    static RUST: OnceLock<Option<String>> = OnceLock::new();
    static NODE: OnceLock<Option<String>> = OnceLock::new();
    static PYTHON: OnceLock<Option<String>> = OnceLock::new();
    let (done, install): (_, fn() -> Result<Option<String>>) = match program {
        Program::Rust(_) => (&RUST, rust),
        Program::Node(_) => (&NODE, node),
        Program::Python(_) => (&PYTHON, python_packages),
    };
    if done.get().is_none() {
        let _ = done.set(install()?);
    }
    Ok(done.get().cloned().flatten())
}

/// `cargo run` built this program only, not its neighbours.
fn rust() -> Result<Option<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "--locked", "--bins"]);
    build.arg("--manifest-path").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    run("building the peers in Rust", &mut build)?;
    Ok(None)
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
