//! One process from its start to its end: what it is sent, and what its lines mean.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use estafeta::Failure;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::task::{Common, LineTask, SuspectIds};
use super::{Ask, LineRequest};
use crate::output::Relay;
use crate::process::{CommandProcess, Ended, LINGERING, Pipes, timed_out};
use crate::reply::CommandReply;

/// The longest line that can be a reply.
const LONGEST_LINE: usize = 1024 * 1024;
/// How much is read at once: as much as a pipe holds.
const READ_AT_ONCE: usize = 64 * 1024;

/// Why a task no longer needs its process.
pub(super) enum Reason {
    /// The process has exited, or cannot be talked to any more.
    Ended(Option<Ended>),
    /// A message is over its time limit, or nobody waits for the answers.
    Terminate,
    Stop,
}

/// One process, from its start to its end.
pub(super) struct ProcessRun {
    pub process: CommandProcess,
    pub started: Instant,
    stdin: Option<Sender>,
    stdout: Receiver,
    stderr: JoinHandle<Vec<u8>>,
    relay: Relay,
    ttl: Duration,
    /// What is not written yet.
    outgoing: BytesMut,
    /// What was read after the last whole line.
    incoming: BytesMut,
    /// The rest of a line that was too long follows.
    skips: bool,
    pub in_hand: HashMap<u64, LineRequest>,
    /// The message in hand is a suspect, and alone with the process.
    is_alone: bool,
    /// The process has closed its stdin. It may still answer what it has read, and gets no more.
    is_deaf: bool,
    pub has_replied: bool,
    suspects: SuspectIds,
}

impl ProcessRun {
    pub fn new(process: CommandProcess, pipes: Pipes, common: &Common) -> Self {
        let Pipes { stdin, stdout, stderr, reply: _ } = pipes;
        Self {
            process,
            started: Instant::now(),
            stdin: Some(stdin),
            stdout,
            stderr: tokio::spawn(common.relay.clone().all(stderr)),
            relay: common.relay.clone(),
            ttl: common.ttl,
            outgoing: BytesMut::new(),
            incoming: BytesMut::new(),
            skips: false,
            in_hand: HashMap::new(),
            is_alone: false,
            is_deaf: false,
            has_replied: false,
            suspects: common.suspects.clone(),
        }
    }

    pub async fn serve(&mut self, task: &mut LineTask, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Reason {
        loop {
            self.send(task);
            let first = self.in_hand.values().map(|request| request.deadline).min();
            if self.is_deaf && self.in_hand.is_empty() {
                return self.ended().await;
            }
            let Some(stdin) = &self.stdin else { return Reason::Ended(None) };
            let closed = stdin.ready(Interest::ERROR);
            self.incoming.reserve(READ_AT_ONCE);
            tokio::select! {
                biased;
                () = task.common.stop.cancelled() => return Reason::Stop,
                ask = asks.recv() => match ask {
                    Some(Ask::Handle(request)) => {
                        task.waiting.push_back(request);
                        // Lines that wait already go along in the same write.
                        while let Ok(ask) = asks.try_recv() {
                            match ask {
                                Ask::Handle(request) => task.waiting.push_back(request),
                                Ask::Abandon => return Reason::Terminate,
                            }
                        }
                    }
                    Some(Ask::Abandon) => return Reason::Terminate,
                    None => return Reason::Stop,
                },
                read = self.stdout.read_buf(&mut self.incoming) => match read {
                    Ok(0) | Err(_) => return self.ended().await,
                    Ok(_) => {
                        self.read_lines();
                        // A process that never stops printing would keep the branches below from their turn.
                        if first.is_some_and(|at| at <= Instant::now()) && self.time_out(task.common.time_limit) {
                            return Reason::Terminate;
                        }
                    }
                },
                ready = stdin.writable(), if !self.outgoing.is_empty() => match stdin.try_write(&self.outgoing) {
                    Ok(count) if ready.is_ok() => self.outgoing.advance(count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    _ => return self.ended().await,
                },
                // The process has closed its stdin. It will not read what was written already.
                _ = closed, if !self.is_deaf => match self.has_read_all() {
                    true => self.is_deaf = true,
                    false => return self.ended().await,
                },
                ended = self.process.wait() => return Reason::Ended(ended.ok()),
                () = sleep_until(first) => {
                    self.time_out(task.common.time_limit);
                    return Reason::Terminate;
                }
            }
        }
    }

    /// The process has closed its stdin or its stdout. It may be about to exit, and then it is known how.
    async fn ended(&mut self) -> Reason {
        let ended = tokio::time::timeout(LINGERING, self.process.wait()).await;
        Reason::Ended(ended.ok().and_then(Result::ok))
    }

    /// Passes on as many messages as the process may have in hand.
    fn send(&mut self, task: &mut LineTask) {
        self.is_alone &= !self.in_hand.is_empty();
        while self.in_hand.len() < task.common.in_hand && !self.is_alone && !self.is_deaf {
            let Some(next) = task.waiting.pop_front() else { return };
            if next.answer.is_closed() {
                continue;
            }
            // It has waited while another message was alone with the process. The next delivery has its full time.
            if next.deadline.saturating_duration_since(Instant::now()) < task.common.time_limit / 2 {
                let _ =
                    next.answer.send(Err(Failure::broken(Duration::ZERO, "its process had no time for it")));
                continue;
            }
            if task.common.suspects.contains(next.id) {
                if !self.in_hand.is_empty() {
                    return task.waiting.push_front(next);
                }
                self.is_alone = true;
            }
            if let Some(other) = self.in_hand.get(&next.id) {
                // Only a foreign client can make two messages with one id. A reply could mean either.
                let reason = format!("another message with the id {} is in hand", other.id);
                let _ = next.answer.send(Err(Failure::new(reason)));
                continue;
            }
            self.outgoing.extend_from_slice(&next.line);
            self.in_hand.insert(next.id, next);
        }
    }

    /// Answers the messages that are over their time limit. Returns whether there are any.
    fn time_out(&mut self, limit: Duration) -> bool {
        let now = Instant::now();
        let late: Vec<u64> = self
            .in_hand
            .values()
            .filter(|request| request.deadline <= now)
            .map(|request| request.id)
            .collect();
        for request in late.iter().filter_map(|id| self.in_hand.remove(id)) {
            let _ = request.answer.send(Err(timed_out(limit)));
        }
        !late.is_empty()
    }

    /// Reads the whole lines that have arrived.
    fn read_lines(&mut self) {
        while let Some(end) = self.incoming.iter().position(|byte| *byte == b'\n') {
            let line = self.incoming.split_to(end + 1);
            if !std::mem::take(&mut self.skips) {
                self.read_line(&line);
            }
        }
        if self.incoming.len() > LONGEST_LINE {
            if !self.skips {
                self.relay.line(b"estafeta: a line of the command is longer than 1 MiB and was dropped\n");
            }
            self.incoming.clear();
            self.skips = true;
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let reply = line.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice::<IdOnly>(line));
        let request = match reply {
            Some(Ok(IdOnly { id })) => self.in_hand.remove(&id),
            _ => None,
        };
        match request {
            None => self.relay.line(line),
            Some(request) => {
                self.has_replied = true;
                if self.is_alone {
                    self.suspects.remove(request.id);
                }
                let answer = CommandReply::parse(line).and_then(|reply| reply.answer(self.ttl));
                let _ = request.answer.send(answer);
            }
        }
    }

    /// Closes stdin, so that the process can finish, and reads replies meanwhile.
    pub async fn stop(&mut self, patience: Duration) -> std::io::Result<Ended> {
        self.stdin = None;
        let until = tokio::time::Instant::now() + patience;
        loop {
            tokio::select! {
                ended = self.process.wait() => return ended,
                read = self.stdout.read_buf(&mut self.incoming) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(_) => self.read_lines(),
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        match tokio::time::timeout_at(until, self.process.wait()).await {
            Ok(ended) => ended,
            Err(_) => self.process.terminate(patience).await,
        }
    }

    /// Whether the process has read all messages that it had in hand.
    pub fn has_read_all(&self) -> bool {
        let unread = self.stdin.as_ref().map_or(Ok(0), rustix::io::ioctl_fionread);
        self.outgoing.is_empty() && unread.is_ok_and(|count| count == 0)
    }

    /// Reads what the process wrote before it exited. Returns the end of its stderr.
    pub async fn end(&mut self) -> Vec<u8> {
        let until = tokio::time::Instant::now() + LINGERING;
        let rest = async {
            while self.stdout.read_buf(&mut self.incoming).await.is_ok_and(|count| count > 0) {
                self.read_lines();
            }
        };
        let _ = tokio::time::timeout_at(until, rest).await;
        tokio::time::timeout_at(until, &mut self.stderr).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for ProcessRun {
    fn drop(&mut self) {
        self.stderr.abort();
    }
}

/// What shows whether a line is a reply.
#[derive(serde::Deserialize)]
struct IdOnly {
    id: u64,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
