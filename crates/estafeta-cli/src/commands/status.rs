//! `estafeta status`: the ring at one moment, and whether its balance adds up.

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use estafeta::{Health, MemberView, Ring, Role, Snapshot};

use super::{is_closed_pipe, with_ring};
use crate::cli::StatusArgs;
use crate::escape::{escape, escape_json};
use crate::failure::FAILED;
use crate::narrate::{age, sentence};
use crate::output::{BAD, FAINT, GOOD, NOTABLE, OFFICE, Paint, colour_for, grouped, moment};
use crate::settings::Reach;
use crate::signals::told_to_stop;

const EVENTS: usize = 8;

pub fn run(reach: &Reach, args: &StatusArgs) -> Result<ExitCode> {
    with_ring(reach, async |ring| {
        let snapshot = ring.snapshot(EVENTS).await?;
        let mut balanced = snapshot.balanced;
        let shown = show(&snapshot, args);
        if !is_over(shown)? && args.watch {
            tokio::select! {
                watched = watch(ring, args) => balanced &= watched?,
                _ = told_to_stop() => {}
            }
        }
        Ok(if balanced { ExitCode::SUCCESS } else { FAILED.into() })
    })
}

/// Shows the ring once a second until nobody looks any more, over any trouble with Redis. Says whether the balance
/// added up all the time.
async fn watch(mut ring: Ring, args: &StatusArgs) -> Result<bool> {
    let (mut balanced, mut complained) = (true, false);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match ring.snapshot(EVENTS).await {
            Ok(snapshot) => {
                complained = false;
                balanced &= snapshot.balanced;
                if is_over(show(&snapshot, args))? {
                    return Ok(balanced);
                }
            }
            Err(error) => {
                if !complained {
                    let told = escape(error.to_string().as_bytes());
                    let _ = writeln!(io::stderr(), "estafeta: {told}; trying again");
                }
                complained = true;
                if let Ok(again) = ring.reconnect().await {
                    ring = again;
                }
            }
        }
    }
}

/// Whether whoever read our output has had enough.
fn is_over(shown: io::Result<()>) -> Result<bool> {
    match shown {
        Err(error) if is_closed_pipe(&error) => Ok(true),
        other => Ok(other.map(|()| false)?),
    }
}

fn show(snapshot: &Snapshot, args: &StatusArgs) -> io::Result<()> {
    let stdout = io::stdout();
    let screen = args.watch && stdout.is_terminal();
    let mut text = Vec::new();
    if args.output.json {
        writeln!(text, "{}", escape_json(serde_json::to_string(snapshot)?))?;
    } else {
        if screen {
            text.extend(b"\x1b[H\x1b[2J");
        }
        draw(&mut text, snapshot, Paint(colour_for(&stdout)))?;
    }
    let mut out = stdout.lock();
    out.write_all(&text)?;
    out.flush()
}

fn draw(out: &mut impl Write, snapshot: &Snapshot, paint: Paint) -> io::Result<()> {
    writeln!(out, "ring {} at {}", snapshot.ring, moment(snapshot.time_ms))?;
    match &snapshot.generator {
        Some(generator) => {
            let office = paint.paint(OFFICE, &format!("member {}", generator.member));
            let (host, pid) = (escape(generator.host.as_bytes()), generator.pid);
            let since = age(generator.in_office_ms);
            writeln!(out, "generator {office} on {host}, pid {pid}, epoch {}, for {since}", generator.epoch)?;
        }
        None => writeln!(out, "generator {}", paint.paint(NOTABLE, "none"))?,
    }
    writeln!(out)?;
    draw_members(out, &snapshot.members, paint)?;
    draw_balance(out, snapshot, paint)?;
    writeln!(
        out,
        "take-overs {}, returned {}, fenced {}, buried {}, retried {}, dropped {}",
        grouped(snapshot.takeovers),
        grouped(snapshot.returned),
        grouped(snapshot.fenced),
        grouped(snapshot.buried),
        grouped(snapshot.retried),
        grouped(snapshot.dropped),
    )?;
    if !snapshot.events.is_empty() {
        writeln!(out, "\nlast events")?;
        for event in snapshot.events.iter().rev() {
            writeln!(out, "  {}  {}", paint.paint(FAINT, &moment(event.time_ms)), sentence(event))?;
        }
    }
    Ok(())
}

fn draw_members(out: &mut impl Write, members: &[MemberView], paint: Paint) -> io::Result<()> {
    if members.is_empty() {
        return writeln!(out, "no members\n");
    }
    let host_width = members.iter().map(|member| member.host.len()).max().unwrap_or(0).clamp(4, 30);
    writeln!(
        out,
        "{:>6}  {:<9}  {:>4}  {:<host_width$}  {:>8}  {:>8}  {:>8}  {:>9}  state",
        "member", "role", "rank", "host", "pid", "age", "lease", "in flight"
    )?;
    for member in members {
        let role = match member.role {
            Role::Generator => paint.paint(OFFICE, "generator"),
            Role::Handler => "handler  ".to_owned(),
            Role::Reader => "reader   ".to_owned(),
        };
        let state = match member.state {
            Health::Well => paint.paint(GOOD, "well"),
            Health::Expired => paint.paint(BAD, "expired"),
            Health::Absent => paint.paint(BAD, "absent"),
            Health::Ahead => paint.paint(NOTABLE, "ahead"),
        };
        writeln!(
            out,
            "{:>6}  {role}  {:>4}  {:<host_width$}  {:>8}  {:>8}  {:>8}  {:>9}  {state}",
            member.id,
            member.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            escape(member.host.as_bytes()),
            member.pid,
            age(member.age_ms),
            format!("{:.1}s", member.lease_ms as f64 / 1000.0),
            grouped(member.in_flight),
        )?;
    }
    writeln!(out)
}

fn draw_balance(out: &mut impl Write, snapshot: &Snapshot, paint: Paint) -> io::Result<()> {
    let verdict =
        if snapshot.balanced { paint.paint(GOOD, "adds up") } else { paint.paint(BAD, "DOES NOT ADD UP") };
    writeln!(
        out,
        "published {} = waiting {} + in flight {} + done {} + errors kept {} + errors taken {}: {verdict}",
        grouped(snapshot.published),
        grouped(snapshot.waiting),
        grouped(snapshot.in_flight),
        grouped(snapshot.done),
        grouped(snapshot.errors_kept),
        grouped(snapshot.errors_taken),
    )
}
