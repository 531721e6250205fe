//! The copies that the monitor started: real processes, told and heard over their stdin and stdout, one JSON object a
//! line. They are in process groups of their own and end with the monitor, whatever ends it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};

use anyhow::{Context as _, Result};
use estafeta::{Endpoint, RingName};
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc::UnboundedSender;

use super::own::Slot;
use super::said::Said;
use crate::cli::RunArgs;
use crate::offspring;

/// A line longer than this is none of the protocol's.
const LONGEST_LINE: u64 = 64 * 1024;

/// What is the same for all copies.
pub struct Family {
    pub ring: RingName,
    pub endpoint: Endpoint,
    pub run: RunArgs,
    /// -v and --log-format of the monitor itself.
    pub logging: Vec<String>,
    /// Where their stderr goes.
    pub log: File,
}

pub struct Brood {
    family: Family,
    copies: BTreeMap<Slot, (Child, Option<ChildStdin>)>,
    last: u32,
    heard: UnboundedSender<(Slot, Heard)>,
}

/// What comes from a copy.
#[derive(Debug)]
pub enum Heard {
    Said(Said),
    /// Its output has ended, and so has the copy, or it is about to.
    Silent,
}

impl Brood {
    pub fn new(family: Family, heard: UnboundedSender<(Slot, Heard)>) -> Self {
        Self { family, copies: BTreeMap::new(), last: 0, heard }
    }

    /// Starts one more; its process id, too.
    pub fn start(&mut self) -> Result<(Slot, u32)> {
        let slot = Slot(self.last + 1);
        let family = &self.family;
        let mut command = offspring::of_this_program(&family.ring, &family.endpoint.secret_url())?;
        // One copy, one record.
        let record = family.run.record.as_ref().map(|record| {
            let mut name = record.clone().into_os_string();
            name.push(format!(".{}", slot.0));
            name.into()
        });
        let run = RunArgs {
            record,
            json: Some(true),
            brief: Some(true),
            control: Some(true),
            ..family.run.clone()
        };
        command.arg("run").args(run.flags()?).args(&family.logging);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(family.log.try_clone()?);
        let mut child = offspring::spawn(command).context("cannot start a copy of this program")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let pid = child.id();
        self.copies.insert(slot, (child, stdin));
        self.last = slot.0;
        let stdout = Receiver::from_owned_fd(OwnedFd::from(stdout.context("it has no stdout")?))?;
        tokio::spawn(listen(slot, stdout, self.heard.clone()));
        Ok((slot, pid))
    }

    /// Asks it to stop: it finishes what it has in hand, gives up the office and leaves the ring.
    pub fn stop(&mut self, slot: Slot) {
        if let Some((child, stdin)) = self.copies.get_mut(&slot) {
            let told = stdin.take().map(|mut stdin| stdin.write_all(b"{\"msg\":\"stop\"}\r\n"));
            if !matches!(told, Some(Ok(()))) {
                let _ = offspring::signal(child, Signal::SIGTERM);
            }
        }
    }

    pub fn signal(&mut self, slot: Slot, signal: Signal) {
        if let Some((child, _)) = self.copies.get_mut(&slot) {
            // One that has ended meanwhile is told by `reap`.
            let _ = offspring::signal(child, signal);
        }
    }

    /// Those that have ended since the last call.
    pub fn reap(&mut self) -> Vec<(Slot, ExitStatus)> {
        let ended = self.copies.iter_mut().filter_map(|(slot, (child, _))| {
            let status = child.try_wait().ok().flatten()?;
            Some((*slot, status))
        });
        let ended: Vec<_> = ended.collect();
        for (slot, _) in &ended {
            self.copies.remove(slot);
        }
        ended
    }

    pub fn slots(&self) -> Vec<Slot> {
        self.copies.keys().copied().collect()
    }
}

impl Drop for Brood {
    fn drop(&mut self) {
        for (child, _) in self.copies.values_mut() {
            let _ = child.kill();
        }
        for (child, _) in self.copies.values_mut() {
            let _ = child.wait();
        }
    }
}

async fn listen(slot: Slot, stdout: Receiver, heard: UnboundedSender<(Slot, Heard)>) {
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if let Some(said) = Said::read(&line).filter(|said| *said != Said::Other) {
            let _ = heard.send((slot, Heard::Said(said)));
        }
    }
    let _ = heard.send((slot, Heard::Silent));
}
