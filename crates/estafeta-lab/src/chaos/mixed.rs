//! A run with another build of estafeta, usually the release before this one.
//!
//! All nodes begin as the other build. What happens in the middle of the run depends on the layout of its ring:
//!
//! - This build knows the layout. Then nodes of both builds share the ring for a while. Chaos replaces the nodes one by
//!   one, under attack, as a rolling restart does. When no node of the other build is left, `estafeta upgrade` raises the
//!   layout, also under attack.
//! - This build does not know the layout. Then the builds must refuse each other with one clear line, and change
//!   nothing. Chaos does what `docs/operations.md` describes for such a release: the other build empties the queue, its
//!   nodes stop, its `getErrors` takes the errors, and `estafeta reset --force` deletes the ring. Then this build
//!   starts. The same judge examines both halves of the run.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::Layouts;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::collect::read_records;
use super::judge::{self, Breach, Evidence};
use super::node::{ChaosNode, NodeTemplate};
use super::phases::{CHECK_INTERVAL, Phases, START};
use super::watch::Glance;
use super::{ChaosObserver, DRAIN, RECOVERY};
use crate::child_process::ChildProcess;
use crate::text::grouped;

/// How long a program may take to print its version or its help.
const VERSION: Duration = Duration::from_secs(10);
/// How many bytes of that are read.
const PRINTED: u64 = 64 * 1024;
/// How long a command of a build may take, even under attack.
const COMMAND: Duration = Duration::from_secs(30);

/// Another build of estafeta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherBuild {
    pub program: PathBuf,
    /// What it prints as its version, such as `estafeta 0.1.0`.
    pub version: String,
}

impl OtherBuild {
    /// Finds out whether the program is a build of estafeta. The error is one sentence.
    pub fn find(path: &Path) -> Result<Self, String> {
        let wrong = |what: &str| format!("expected a build of estafeta, got {}: {what}", path.display());
        let program = path.canonicalize().map_err(|error| wrong(&error.to_string()))?;
        let (status, text) = printed(&program, &["--version"]).map_err(|what| wrong(&what))?;
        let version = text.lines().next().unwrap_or_default().trim();
        match version.strip_prefix("estafeta ") {
            Some(_) if status.success() => Ok(Self { program, version: version.to_owned() }),
            _ => Err(wrong("its --version does not name estafeta")),
        }
    }

    /// Whether the help of its nodes names this option or this form of a URL.
    pub fn knows(&self, word: &str) -> Result<bool, String> {
        Ok(printed(&self.program, &["run", "--help"])?.1.contains(word))
    }
}

/// What a program printed, and how it ended. The error is a part of a sentence.
fn printed(program: &Path, args: &[&str]) -> Result<(ExitStatus, String), String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = ChildProcess::spawn(command).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + VERSION;
    let status = loop {
        match child.exit_status().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() > deadline => return Err(format!("its {} does not end", args.join(" "))),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // A version or a help page fits into the pipe.
    let mut text = Vec::new();
    if let Some(stdout) = child.inner().stdout.take() {
        stdout.take(PRINTED).read_to_end(&mut text).map_err(|error| error.to_string())?;
    }
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

/// How the run got from the other build to this one.
#[derive(Clone, Debug)]
pub struct BuildUpgrade {
    /// The version of the other build.
    pub from: String,
    pub from_layout: String,
    pub kind: UpgradeKind,
}

#[derive(Clone, Debug)]
pub enum UpgradeKind {
    /// The nodes were replaced one by one, and the layout was raised. `printed` is what `estafeta upgrade` printed.
    Rolling { printed: String },
    /// The builds refused each other, and the ring was deleted in between.
    Anew {
        /// How many messages the other build has published.
        published: u64,
        /// What was wrong with that half of the run.
        breaches: Vec<Breach>,
        /// How each build refused the ring of the other one.
        refusals: [String; 2],
    },
}

impl BuildUpgrade {
    pub fn breaches(&self) -> &[Breach] {
        match &self.kind {
            UpgradeKind::Rolling { .. } => &[],
            UpgradeKind::Anew { breaches, .. } => breaches,
        }
    }

    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let Self { from, from_layout, kind } = self;
        match kind {
            UpgradeKind::Rolling { printed } => {
                vec![(
                    "upgrade",
                    format!("nodes of {from} (layout {from_layout}) replaced one by one; {printed}"),
                )]
            }
            UpgradeKind::Anew { published, refusals, .. } => {
                let [ours, theirs] = refusals;
                let published = grouped(*published);
                vec![
                    (
                        "upgrade",
                        format!(
                            "{from} (layout {from_layout}) published {published} and emptied its ring before the reset"
                        ),
                    ),
                    ("refusals", format!("this build, in that ring: {ours}")),
                    ("", format!("that build, in this ring: {theirs}")),
                ]
            }
        }
    }

    pub fn json(&self) -> Value {
        let (kind, published) = match &self.kind {
            UpgradeKind::Rolling { .. } => ("rolling", None),
            UpgradeKind::Anew { published, .. } => ("anew", Some(published)),
        };
        json!({"from": self.from, "fromLayout": self.from_layout, "kind": kind, "messagesBefore": published})
    }
}

impl<S: ChaosObserver> Phases<'_, S> {
    /// Starts the nodes as the other build. Returns the layout of their ring, and whether this build knows it.
    pub async fn start_other(&self, other: &OtherBuild) -> Result<(String, bool)> {
        let (nodes, place) = (self.options.nodes, self.options.place());
        self.observer.phase(&format!("starting {nodes} nodes of {} on {place}", other.version));
        for node in self.nodes() {
            node.set_program(Some(other.program.clone()));
        }
        self.targets.nodes.iter().try_for_each(|node| node.start(None))?;
        tokio::time::timeout(START, self.until_all_work())
            .await
            .with_context(|| format!("the nodes did not form a ring within {} s", START.as_secs()))??;
        let layout = self.ring().layout().await?.context("the nodes of the other build made no ring")?;
        let Layouts { oldest, newest } = Layouts::KNOWN;
        let is_known = layout.parse().is_ok_and(|layout: u32| (oldest..=newest).contains(&layout));
        Ok((layout, is_known))
    }

    /// Waits until every node has joined the ring and does something.
    async fn until_all_work(&self) -> Result<()> {
        let sizes: Vec<Vec<u64>> = self.nodes().map(ChaosNode::record_sizes).collect();
        loop {
            self.supervise()?;
            let works = |(node, before): (&ChaosNode, &Vec<u64>)| {
                node.has_worked_since(before) && node.has_joined().unwrap_or(false)
            };
            if self.nodes().zip(&sizes).all(works) {
                return Ok(());
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Replaces the nodes one by one while the attack lasts, and raises the layout. Returns what `upgrade` printed.
    pub async fn roll(&self) -> Result<String> {
        let length = self.options.length;
        tokio::time::sleep(length / 4).await;
        self.observer.phase("replacing the nodes by this build, one by one");
        let pause = length / 2 / u32::try_from(self.options.nodes).unwrap_or(u32::MAX);
        for node in self.nodes() {
            self.targets.reserve_when_free(node.index).await;
            node.stop(Instant::now() + DRAIN).await?;
            node.set_program(None);
            node.start(None)?;
            self.targets.release(node.index);
            tokio::time::sleep(pause).await;
        }
        self.observer.phase("raising the layout");
        let deadline = Instant::now() + COMMAND;
        loop {
            let upgrade = self.command(None, &["upgrade"]).await?;
            match upgrade.code {
                Some(0) => return Ok(upgrade.stdout.trim().to_owned()),
                // Redis may be away.
                _ if Instant::now() < deadline => tokio::time::sleep(CHECK_INTERVAL).await,
                _ => bail!("upgrade failed: {}", upgrade.stderr.trim()),
            }
        }
    }

    /// The other build works alone under attack, empties its ring and hands its errors over. Then the ring is deleted.
    pub async fn finish_other(
        &self,
        other: &OtherBuild,
        layout: String,
        glances: &[Receiver<Glance>],
    ) -> Result<BuildUpgrade> {
        let mut readings = self.no_readings();
        self.attack(glances, &mut readings, self.options.length / 2, Some(&other.program), None).await?;
        let last_fault = Instant::now();
        self.observer.phase("waiting for the ring to recover");
        tokio::time::timeout(RECOVERY, self.until_all_work()).await.with_context(|| {
            format!("not all nodes worked again within {} s of the last fault", RECOVERY.as_secs())
        })??;
        self.observer.phase(&format!("emptying the ring of {}", other.version));
        self.stop(last_fault + DRAIN).await?;
        // A ring that has ever published a message has reached this limit.
        self.nodes().try_for_each(|node| node.start(Some(1)))?;
        for node in self.nodes() {
            node.finish(last_fault + DRAIN).await.context("the queue was not emptied")?;
        }
        self.read_errors(&mut readings, Some(&other.program)).await?;
        let status = self.command(Some(&other.program), &["status", "--json"]).await?;
        if status.code != Some(0) {
            bail!("the ring of {} does not add up: {}", other.version, status.stderr.trim());
        }
        let snapshot: Value = serde_json::from_str(&status.stdout).context("cannot read its status")?;
        let published = snapshot["published"].as_u64().context("its status names no published messages")?;
        let ours = self.refusal(None).await?;
        let upgrade = self.command(None, &["upgrade"]).await?;
        if upgrade.code == Some(0) {
            bail!("upgrade accepted layout {layout}, which this build does not know");
        }
        if self.ring().layout().await?.as_ref() != Some(&layout) {
            bail!("a build that does not know layout {layout} has changed it");
        }
        let journal = self.ring().journal().await?;
        let (records, readers) = (read_records(self.nodes(), 0)?, readings.remove(0));
        // A build that does not know these counts prints none. Its events may have another form, so they are not read.
        let count = |name: &str| snapshot[name].as_u64().unwrap_or_default();
        let (lost, cancelled) = (count("lost"), count("cancelled"));
        let evidence = Evidence {
            published,
            lost,
            reported_losses: lost,
            cancelled,
            losses: self.options.losses(self.targets.risky_times()),
            journal,
            records,
            readers,
            complete: true,
            work: None,
        };
        let mut breaches = judge::judge(&evidence).breaches;
        breaches.iter_mut().for_each(|breach| breach.what.insert_str(0, "before the upgrade: "));
        self.observer.phase("deleting the ring, and starting this build");
        let reset = self.command(None, &["reset", "--yes", "--force"]).await?;
        if reset.code != Some(0) {
            bail!("reset failed: {}", reset.stderr.trim());
        }
        for node in self.nodes() {
            node.forget()?;
            node.set_program(None);
        }
        let kind = UpgradeKind::Anew { published, breaches, refusals: [ours, String::new()] };
        Ok(BuildUpgrade { from: other.version.clone(), from_layout: layout, kind })
    }

    /// Starts a node of a build in a ring that it must refuse, and returns the line that it prints.
    pub async fn refusal(&self, program: Option<&Path>) -> Result<String> {
        let node = self.command(program, &["run"]).await?;
        let lines: Vec<&str> = node.stderr.lines().collect();
        match lines[..] {
            [line] if node.code == Some(1) && line.contains("layout") => {
                Ok(line.trim_start_matches("estafeta: ").to_owned())
            }
            _ => bail!(
                "expected a node to refuse a layout with one line, but it ended with {:?} and printed: {}",
                node.code,
                node.stderr.trim()
            ),
        }
    }

    /// Runs a command of a build to its end. None is this build.
    async fn command(&self, program: Option<&Path>, args: &[&str]) -> Result<CommandOutput> {
        let url = self.clear_url();
        run_to_end(&self.template, program, args, &url).await
    }
}

/// How a command ended.
struct CommandOutput {
    /// None after a signal.
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn run_to_end(
    template: &NodeTemplate,
    program: Option<&Path>,
    args: &[&str],
    url: &str,
) -> Result<CommandOutput> {
    let number = template.commands.fetch_add(1, Ordering::Relaxed);
    let file = |kind: &str| template.directory.join(format!("command-{number}.{kind}"));
    let (stdout, stderr) = (file("out"), file("err"));
    let mut child = template.start(template.first_ring(), program, args, url, &stdout, &stderr)?;
    let deadline = Instant::now() + COMMAND;
    let mut stopped = false;
    let status = loop {
        match child.exit_status()? {
            Some(status) => break status,
            // A node that was not refused stops when it is asked to.
            None if Instant::now() > deadline && !stopped => {
                child.signal(Signal::SIGTERM)?;
                stopped = true;
            }
            None if Instant::now() > deadline + COMMAND => bail!("{args:?} did not end"),
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let read = |path: &Path| std::fs::read_to_string(path).context("cannot read what a command printed");
    Ok(CommandOutput { code: status.code(), stdout: read(&stdout)?, stderr: read(&stderr)? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_a_program_that_calls_itself_estafeta_is_a_build_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let error = |path: &Path| OtherBuild::find(path).unwrap_err();
        let good = script("good", "echo estafeta 0.0.9", 0o755);
        assert_eq!(OtherBuild::find(&good).unwrap().version, "estafeta 0.0.9");
        let other = error(&script("other", "echo something 1.0", 0o755));
        assert!(other.ends_with("its --version does not name estafeta"), "{other}");
        let failing = error(&script("failing", "echo estafeta 1; exit 3", 0o755));
        assert!(failing.ends_with("its --version does not name estafeta"), "{failing}");
        let plain = error(&script("plain", "echo estafeta 1", 0o644));
        assert!(
            plain.starts_with("expected a build of estafeta, got /") && plain.contains("denied"),
            "{plain}"
        );
        assert!(error(directory.path()).contains("denied"));
        assert!(error(&directory.path().join("none")).contains("No such file"));
    }
}
