//! `estafeta completions` and `estafeta man`: pages that are generated from the definition of the command line.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::call;

pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut call::command(), "estafeta", &mut script);
    match io::Write::write_all(&mut io::stdout(), &script) {
        Err(error) if !super::is_closed_pipe(&error) => Err(error).context("cannot print the script"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes one page per command, such as `estafeta-status.1`.
pub fn man(directory: &Path) -> Result<ExitCode> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(call::command(), directory));
    written.with_context(|| format!("cannot write man pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
