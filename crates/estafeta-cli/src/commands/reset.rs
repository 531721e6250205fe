//! `estafeta reset`: deletes the keys of the ring and no others.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use estafeta::{Error, Health, MemberView};
use estafeta_lab::partitions::Partitions;
use estafeta_lab::text::counted;

use super::{confirmed, no_such_ring, print_result, with_ring};
use crate::cli::ResetArgs;
use crate::settings::Reach;

pub fn run(reach: &Reach, args: &ResetArgs) -> Result<ExitCode> {
    let name = &reach.ring;
    with_ring(reach, async |ring| {
        let partitions = Partitions::of_damaged(ring).await?;
        // A damaged ring may lack the keys that every ring has. What is left of it is deleted all the same.
        let is_gone = !partitions.exist().await? && partitions.whole.is_untouched().await?;
        if is_gone && !(args.user_keys && partitions.whole.count_user_keys().await? > 0) {
            if !args.force {
                return Err(no_such_ring(&partitions.whole));
            }
            let redis = partitions.whole.endpoint();
            let _ = writeln!(
                io::stderr(),
                "estafeta: there is no ring {name} at {redis}, so nothing was deleted"
            );
            return Ok(ExitCode::SUCCESS);
        }
        let question = question(&partitions, args.force).await?;
        if !args.yes && !confirmed(&question)? {
            bail!("nothing was deleted");
        }
        let (mut erased, mut kept) = (partitions.erase().await?, 0);
        for ring in partitions.rings() {
            match args.user_keys {
                true => erased += ring.erase_user_keys().await?,
                false => kept += ring.count_user_keys().await?,
            }
        }
        print_result(format_args!("ring {name} is gone: {} deleted", counted(erased, "key")))?;
        if kept > 0 {
            let keys = counted(kept, "key");
            let _ = writeln!(
                io::stderr(),
                "estafeta: {keys} of effects stay in Redis: `estafeta reset --user-keys` deletes them"
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What to ask before the ring is deleted. Fails if the ring may only be deleted by force.
async fn question(partitions: &Partitions, force: bool) -> Result<String> {
    let name = partitions.whole.name();
    match partitions.snapshot().await {
        Ok(snapshot) => {
            let is_alive = |member: &&MemberView| member.state == Health::Alive;
            let alive = snapshot.members.iter().filter(is_alive).count();
            if alive > 0 && !force {
                let members = counted(alive as u64, "living member");
                bail!("ring {name} has {members}: stop them first, or use --force");
            }
            let waiting = counted(snapshot.waiting, "message");
            let errors = counted(snapshot.errors_kept, "error");
            Ok(format!("Delete ring {name} with {waiting} waiting and {errors}?"))
        }
        // The data of an unknown layout or of another program cannot be read, but the keys of the ring have the
        // same names.
        Err(error @ (Error::Layout { .. } | Error::ForeignKey { .. } | Error::Answer(_))) => {
            if !force {
                return Err(error)
                    .with_context(|| format!("to delete ring {name}, stop its nodes and use --force"));
            }
            Ok(format!("{error}. Delete ring {name}?"))
        }
        Err(error) => Err(error.into()),
    }
}
