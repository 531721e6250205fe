//! `estafeta reset`: deletes the keys of the ring and no others.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{confirmed, with_ring};
use crate::cli::ResetArgs;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &ResetArgs) -> Result<ExitCode> {
    let name = &reach.ring;
    let erased = with_ring(reach, async |ring| {
        let question = match ring.snapshot(0).await {
            Ok(snapshot) => {
                let is_alive = |member: &&estafeta::MemberView| member.state == estafeta::Health::Alive;
                let alive = snapshot.members.iter().filter(is_alive).count();
                if alive > 0 && !args.force {
                    bail!("ring {name} has {alive} living members: stop them first, or use --force");
                }
                let (waiting, errors) = (snapshot.waiting, snapshot.errors_kept);
                format!("Delete ring {name} with {waiting} messages waiting and {errors} errors?")
            }
            // The data of another layout version cannot be read, but the keys of the ring have the same names.
            Err(error @ estafeta::Error::Schema { .. }) if !args.force => {
                bail!("{error}. To delete it all the same, stop its nodes and use --force")
            }
            Err(estafeta::Error::Schema { found, .. }) => {
                format!("Delete ring {name} of layout version {found}?")
            }
            Err(error) => return Err(error.into()),
        };
        if !args.yes && !confirmed(&question)? {
            bail!("nothing was deleted");
        }
        Ok(ring.erase().await?)
    })?;
    writeln!(std::io::stdout(), "ring {name} is gone: {erased} keys deleted")?;
    Ok(ExitCode::SUCCESS)
}
