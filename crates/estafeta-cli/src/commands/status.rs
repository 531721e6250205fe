//! `estafeta status`: shows the ring at one moment, and whether its balance adds up.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use estafeta::{Event, EventKind, GeneratorView, Health, MemberView, Ring, Role, Snapshot};

use super::{is_closed_pipe, no_such_ring, with_ring};
use crate::cli::StatusArgs;
use crate::settings::Reach;
use crate::signals::stop_signal;
use estafeta_lab::escape::escape;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::paint::{BAD, FAINT, GOOD, NOTABLE, OFFICE, Paint, colour_for};
use estafeta_lab::partitions::Partitions;
use estafeta_lab::report::json_line;
use estafeta_lab::ring_status::{AskedDurability, RingStatus};
use estafeta_lab::text::{age, counted, grouped, limits, moment, paused};

/// How many events are read.
const EVENTS: usize = 50;
/// How many lines about events are shown. Several events of readers may share one line.
const SHOWN: usize = 8;

pub fn run(reach: &Reach, args: &StatusArgs) -> Result<ExitCode> {
    with_ring(reach, async |ring| {
        let partitions = Partitions::of(ring).await?;
        if !args.watch && !partitions.exist().await? {
            return Err(no_such_ring(&partitions.whole));
        }
        let status = read(&partitions).await?;
        let mut balanced = status.snapshot.balanced;
        let shown = show(&partitions.whole, &status, args);
        if !reader_is_gone(shown)? && args.watch {
            tokio::select! {
                watched = watch(partitions, args) => balanced &= watched?,
                _ = stop_signal() => {}
            }
        }
        Ok(if balanced { ExitCode::SUCCESS } else { FAILED.into() })
    })
}

async fn read(partitions: &Partitions) -> estafeta::Result<RingStatus> {
    RingStatus::read(partitions, EVENTS).await
}

/// Shows the ring once per second until the reader of the output ends, through any trouble with Redis. Returns whether
/// the balance added up every time.
async fn watch(partitions: Partitions, args: &StatusArgs) -> Result<bool> {
    let (mut balanced, mut complained) = (true, false);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match read(&partitions).await {
            Ok(status) => {
                complained = false;
                balanced &= status.snapshot.balanced;
                if reader_is_gone(show(&partitions.whole, &status, args))? {
                    return Ok(balanced);
                }
            }
            Err(error) => {
                if !complained {
                    let message = escape(error.to_string().as_bytes());
                    let _ = writeln!(io::stderr(), "estafeta: {message}; trying again");
                }
                complained = true;
            }
        }
    }
}

/// Whether the reader of the output has closed the pipe.
fn reader_is_gone(shown: io::Result<()>) -> Result<bool> {
    match shown {
        Err(error) if is_closed_pipe(&error) => Ok(true),
        other => Ok(other.map(|()| false)?),
    }
}

fn show(ring: &Ring, status: &RingStatus, args: &StatusArgs) -> io::Result<()> {
    let stdout = io::stdout();
    let screen = args.watch && stdout.is_terminal();
    let mut text = Vec::new();
    if args.output.json {
        writeln!(text, "{}", json_line(status))?;
    } else {
        draw(&mut text, ring, status, Paint(colour_for(&stdout)))?;
        if screen {
            text = in_place(&text);
        }
    }
    let mut out = stdout.lock();
    out.write_all(&text)?;
    out.flush()
}

/// Draws over the previous text without clearing the screen first, so that nothing flickers. Cuts off what does not fit
/// into the window.
fn in_place(text: &[u8]) -> Vec<u8> {
    let (columns, rows) =
        terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0, height.0));
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().take(usize::from(rows.saturating_sub(1)).max(1));
    let lines: Vec<String> =
        lines.map(|line| format!("{}\x1b[0m\x1b[K", cut(line, usize::from(columns)))).collect();
    format!("\x1b[H{}\n\x1b[J", lines.join("\n")).into_bytes()
}

/// The first `columns` characters of a line. Escape sequences for styles do not count.
fn cut(line: &str, columns: usize) -> &str {
    let (mut left, mut in_style) = (columns, false);
    for (at, c) in line.char_indices() {
        match (in_style, c) {
            (false, '\x1b') => in_style = true,
            (true, 'm') => in_style = false,
            (true, _) => {}
            (false, _) if left == 0 => return &line[..at],
            (false, _) => left -= 1,
        }
    }
    line
}

fn draw(out: &mut impl Write, ring: &Ring, status: &RingStatus, paint: Paint) -> io::Result<()> {
    let snapshot = &status.snapshot;
    let redis = escape(ring.endpoint().to_string().as_bytes());
    writeln!(out, "ring {} at {redis}, {}", snapshot.ring, moment(snapshot.time_ms))?;
    let application =
        snapshot.application.as_deref().map_or_else(|| "none".into(), |name| escape(name.as_bytes()));
    let layout = snapshot.layout.map_or_else(|| "none".to_owned(), |layout| layout.to_string());
    writeln!(out, "application {application}, layout {layout}")?;
    match &snapshot.generator {
        _ if !status.partitions.is_empty() => draw_partitions(out, &status.partitions, paint)?,
        Some(generator) => {
            let office = paint.paint(OFFICE, &format!("member {}", generator.member));
            let (host, pid) = (escape(generator.host.as_bytes()), generator.pid);
            let since = age(generator.in_office_ms);
            let state = state_of(generator, paint);
            let epoch = generator.epoch;
            writeln!(out, "generator {office}{state} on {host}, pid {pid}, epoch {epoch}, for {since}")?;
        }
        None => writeln!(out, "generator {}", paint.paint(NOTABLE, "none"))?,
    }
    if let Some(pause) = paused(snapshot) {
        writeln!(out, "{}", paint.paint(NOTABLE, &pause))?;
    }
    if let Some(limits) = limits(snapshot) {
        writeln!(out, "{limits}")?;
    }
    for AskedDurability { level, shortfall } in &status.durability {
        match shortfall {
            None => writeln!(out, "durability {level}: reached")?,
            Some(reason) => {
                let reason = escape(reason.as_bytes());
                writeln!(out, "durability {level}: {}", paint.paint(BAD, &format!("not reached, {reason}")))?;
            }
        }
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
    if snapshot.submitted > 0 {
        writeln!(out, "submitted {}", grouped(snapshot.submitted))?;
    }
    if snapshot.retries + snapshot.snoozes > 0 {
        writeln!(out, "retries {}, snoozes {}", grouped(snapshot.retries), grouped(snapshot.snoozes))?;
    }
    if snapshot.source_failed > 0 {
        let line = format!("source failures {}", grouped(snapshot.source_failed));
        writeln!(out, "{}", paint.paint(NOTABLE, &line))?;
    }
    if !snapshot.events.is_empty() {
        writeln!(out, "\nlast events")?;
        let lines = fold_readers(&snapshot.events);
        for (time_ms, line) in &lines[lines.len().saturating_sub(SHOWN)..] {
            writeln!(out, "  {}  {}", paint.paint(FAINT, &moment(*time_ms)), escape(line.as_bytes()))?;
        }
    }
    Ok(())
}

/// One line per partition.
fn draw_partitions(out: &mut impl Write, partitions: &[Snapshot], paint: Paint) -> io::Result<()> {
    writeln!(
        out,
        "\n{:>9}  {:>9}  {:>12}  {:>10}  {:>10}  {:>9}  {:>12}  {:>10}  balance",
        "partition", "generator", "published", "waiting", "later", "in flight", "done", "errors"
    )?;
    for (index, part) in partitions.iter().enumerate() {
        let generator = match &part.generator {
            Some(generator) => {
                paint.paint(OFFICE, &format!("{:>9}", format!("{index}:{}", generator.member)))
            }
            None => paint.paint(NOTABLE, &format!("{:>9}", "none")),
        };
        let balance =
            if part.balanced { paint.paint(GOOD, "adds up") } else { paint.paint(BAD, "DOES NOT ADD UP") };
        writeln!(
            out,
            "{index:>9}  {generator}  {:>12}  {:>10}  {:>10}  {:>9}  {:>12}  {:>10}  {balance}",
            grouped(part.published),
            grouped(part.waiting),
            grouped(part.later),
            grouped(part.in_flight),
            grouped(part.done),
            grouped(part.errors_kept + part.errors_taken),
        )?;
    }
    Ok(())
}

/// The state of a generator that is not alive, in brackets.
fn state_of(generator: &GeneratorView, paint: Paint) -> String {
    match generator.state {
        Some(Health::Alive) => String::new(),
        Some(state) => format!(" ({})", painted(state, paint)),
        None => format!(" ({})", paint.paint(BAD, "no longer a member")),
    }
}

fn painted(state: Health, paint: Paint) -> String {
    let colour = match state {
        Health::Alive => GOOD,
        Health::Ahead => NOTABLE,
        _ => BAD,
    };
    paint.paint(colour, &state.to_string())
}

/// One line per event, with its time. A reader joins and leaves with every getErrors, so neighbouring events of readers
/// share a line.
fn fold_readers(events: &[Event]) -> Vec<(u64, String)> {
    let mut readers = BTreeSet::new();
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut folded = 0;
    for event in events {
        let of_reader = match event.kind {
            EventKind::Joined { member, reader: true, .. } => readers.insert(member),
            EventKind::Left { member, returned: 0 } => readers.contains(&member),
            _ => false,
        };
        folded = if of_reader { folded + 1 } else { 0 };
        if folded > 1 {
            lines.pop();
            lines.push((event.time_ms, format!("{folded} times a reader of errors joined or left")));
        } else {
            lines.push((event.time_ms, event.kind.to_string()));
        }
    }
    lines
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
            role => format!("{role:<9}"),
        };
        let state = painted(member.state, paint);
        let stuck = match member.stuck {
            0 => String::new(),
            stuck => format!(", {}", paint.paint(BAD, &format!("{} stuck", counted(stuck, "lane")))),
        };
        writeln!(
            out,
            "{:>6}  {role}  {:>4}  {:<host_width$}  {:>8}  {:>8}  {:>8}  {:>9}  {state}{stuck}",
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
    let terms: Vec<_> =
        snapshot.balance().into_iter().map(|(name, count)| format!("{name} {}", grouped(count))).collect();
    writeln!(out, "{verdict}: published {} = {}", grouped(snapshot.published), terms.join(" + "))
}

#[cfg(test)]
mod tests {
    use estafeta::{MemberId, Role};

    use super::*;

    #[test]
    fn neighbouring_events_of_readers_share_a_line() {
        let joined = |member, role: Role| EventKind::Joined {
            member: MemberId(member),
            reader: role == Role::Reader,
            host: "h".into(),
            pid: 7,
        };
        let left = |member| EventKind::Left { member: MemberId(member), returned: 0 };
        let events = [
            Event::sample(1, joined(1, Role::Handler)),
            Event::sample(2, joined(2, Role::Reader)),
            Event::sample(3, left(2)),
            Event::sample(4, joined(3, Role::Reader)),
            Event::sample(5, left(1)),
            Event::sample(6, left(3)),
        ];
        let lines = fold_readers(&events);
        let lines: Vec<_> = lines.iter().map(|(time_ms, line)| (*time_ms, line.as_str())).collect();
        assert_eq!(
            lines,
            [
                (1, "1 joined as node (h, pid 7)"),
                (4, "3 times a reader of errors joined or left"),
                (5, "1 left, 0 messages returned"),
                (6, "3 left, 0 messages returned"),
            ]
        );
    }

    #[test]
    fn a_line_is_cut_by_characters_and_styles_do_not_count() {
        assert_eq!(cut("привет", 3), "при");
        assert_eq!(cut("\x1b[32mgood\x1b[0m!", 4), "\x1b[32mgood\x1b[0m");
        assert_eq!(cut("short", 80), "short");
    }
}
