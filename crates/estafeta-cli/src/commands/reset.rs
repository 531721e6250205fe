//! `estafeta reset`: deletes the keys of the ring and no others.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::with_ring;
use crate::cli::ResetArgs;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &ResetArgs) -> Result<ExitCode> {
    let name = &reach.ring;
    let erased = with_ring(reach, async |ring| {
        let snapshot = ring.snapshot(0).await?;
        let alive = snapshot.members.iter().filter(|member| member.state == estafeta::Health::Well).count();
        if alive > 0 && !args.force {
            bail!("ring {name} has {alive} living members: stop them first, or use --force");
        }
        if !args.yes
            && !confirmed(&format!(
                "Delete ring {name} with {} messages waiting and {} errors? [y/N] ",
                snapshot.waiting, snapshot.errors_kept
            ))?
        {
            bail!("nothing was deleted");
        }
        Ok(ring.erase().await?)
    })?;
    writeln!(std::io::stdout(), "ring {name} is gone: {erased} keys deleted")?;
    Ok(ExitCode::SUCCESS)
}

fn confirmed(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("there is no terminal to ask at: use --yes if you mean it");
    }
    let mut err = std::io::stderr();
    err.write_all(question.as_bytes())?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
