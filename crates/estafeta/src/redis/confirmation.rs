//! Confirms that a change is stored where the settings want it, before its step counts as answered.
//!
//! Redis answers a step when its own memory has the change. A store with a [`Durability`] above `memory` asks for more.
//! After each step, on the same session, it sends two commands in one round trip:
//!
//! 1. The step `confirm` writes a mark. Replicas and the disk receive all writes of a server in their order. So if they
//!    have the mark, they have the step. The mark is needed because `WAIT` waits for the last write *of its connection*.
//!    A step that was repeated after a lost reply may have written nothing on the new one. The answer contains the
//!    server's replication id and the number of its replicas.
//! 2. `WAIT` or `WAITAOF` waits until enough of them have the mark, for half of the response time-out at most.
//!
//! **Too few.** If fewer replicas have the mark than the level wants, the step is not lost, but not confirmed either. The
//! call fails with [`CallError::Unconfirmed`]. A patient store repeats the whole step, on whichever server then keeps
//! the ring. The step recognises the repeat.
//!
//! **The same history.** A server may be demoted and promoted again between the step and its mark. It then has the data
//! of another server, perhaps without the step, and the mark would confirm nothing. Each promotion and each demotion
//! changes the replication id. The session therefore reads the id before its first step. If the id has changed, the
//! server does not count as the place of the ring any more, and the step is repeated on a new session.
//!
//! **All replicas.** A replica that is promoted disconnects from its old master first. From then on the old master has one
//! replica less, and it may go on accepting writes for some seconds. If only the connected replicas counted, they would
//! confirm steps that the new master never gets. So a replica that has disconnected counts for another 15 s. By then the
//! clients have left the old master. A replica that died holds up the ring for that time. The mark itself remembers the
//! replicas, so this holds for every client, also for one that connects after the replica has left.
//!
//! **Who waits.** `WAIT` blocks its connection. So only the work connection of a node confirms, which carries `publish`
//! and `turn`. Beats go on beside it, and a node whose replicas are frozen keeps its office. `lead` is not confirmed by
//! itself, because nothing depends on a term before its first publish, which confirms both. Readers, publishers and
//! commands confirm on their only connection.

use std::time::Duration;

use redis::{Cmd, InfoDict, Value};

use super::call_error::CallError;
use super::reply::Reply;
use super::session::Session;
use super::store::Store;
use crate::durability::Durability;
use crate::error::Result;
use crate::steps::{CONFIRM, Replication, confirm_call, millis, read_mark};

/// How often a node that starts looks whether all its replicas are connected.
const LOOK: Duration = Duration::from_millis(50);

impl Store {
    /// Checks that the server can confirm at the level of this store.
    pub async fn check_durability(&self) -> Result<()> {
        self.try_until_answered(|session| async move { self.before_step(&session).await.map(drop) }).await
    }

    /// Waits until as many replicas are connected as the level of this store names. If they do not come in time, the number
    /// is probably wrong. All replicas are as many as there are, so that level waits for none.
    pub async fn wait_for_replicas(&self) -> Result<()> {
        let Durability::Replicas(_) = self.durability else { return Ok(()) };
        while let Some(reason) = self.shortfall().await? {
            if !self.may_try_again() {
                let refusal = CallError::Refused(format!("durability {}: {reason}", self.durability));
                return Err(self.connection().error(refusal));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Why the server cannot confirm at the level of this store at the moment. None if it can. Nothing is written.
    pub async fn shortfall(&self) -> Result<Option<String>> {
        self.try_until_answered(|session| async move {
            if self.durability == Durability::Disk {
                return match self.check_disk(&session).await {
                    Err(CallError::Refused(reason)) => Ok(Some(reason)),
                    checked => checked.map(|()| None),
                };
            }
            let answer = self.connection().send(&session, &replication_query()).await?;
            let online = read_info(&answer)?.replicas;
            let wanted = self.durability.replicas(online).unwrap_or(0);
            let few = || format!("only {online} of {wanted} replicas are connected");
            Ok((online < wanted).then(few))
        })
        .await
    }

    /// Waits until everything that Redis has answered to this node is confirmed.
    pub async fn confirm_all(&self) -> Result<()> {
        self.try_until_answered(|session| async move {
            let before = self.before_step(&session).await?;
            self.confirm(&session, before).await
        })
        .await
    }

    /// The server's history before a step that is to be confirmed. None if Redis' memory is enough.
    pub(super) async fn before_step(&self, session: &Session) -> Result<Option<Replication>, CallError> {
        if self.durability == Durability::Memory {
            return Ok(None);
        }
        let known = session.replication.lock().expect("no panic while held").clone();
        if known.is_some() {
            return Ok(known);
        }
        if self.durability == Durability::Disk {
            self.check_disk(session).await?;
        }
        let answer = self.connection().send(session, &replication_query()).await?;
        let found = read_info(&answer)?;
        *session.replication.lock().expect("no panic while held") = Some(found.clone());
        Ok(Some(found))
    }

    /// Waits until the step that was just answered on this session is confirmed.
    pub(super) async fn confirm(
        &self,
        session: &Session,
        before: Option<Replication>,
    ) -> Result<(), CallError> {
        let Some(before) = before else { return Ok(()) };
        let answers = match self.send_mark(session, &before).await {
            Err(CallError::NoScript) => {
                self.load(session, CONFIRM).await?;
                self.send_mark(session, &before).await?
            }
            answers => answers?,
        };
        let [mark, waited] = answers;
        let found = Reply::new(CONFIRM.name, mark).and_then(read_mark);
        let found = found.map_err(|error| CallError::Refused(error.to_string()))?;
        if found.id != before.id {
            return Err(session.leave("its replication id has changed, so it may have lost the step"));
        }
        let wanted = self.durability.replicas(found.replicas);
        *session.replication.lock().expect("no panic while held") = Some(found);
        match (wanted, waited) {
            (Some(wanted), Value::Int(has)) if has >= i64::from(wanted) => Ok(()),
            (Some(wanted), Value::Int(has)) => {
                Err(CallError::Unconfirmed(format!("only {has} of {wanted} replicas have it")))
            }
            (None, Value::Array(counts)) if matches!(counts.first(), Some(Value::Int(1..))) => Ok(()),
            (None, Value::Array(_)) => Err(CallError::Unconfirmed("the disk does not have it yet".into())),
            // The server writes to its disk before it answers.
            (None, Value::SimpleString(_)) => Ok(()),
            (_, other) => Err(CallError::Refused(format!("its answer to WAIT is {other:?}"))),
        }
    }

    async fn send_mark(&self, session: &Session, before: &Replication) -> Result<[Value; 2], CallError> {
        let limit = self.connection().response_timeout() / 2;
        let wait = self.wait_command(before.replicas, limit, session.server.has_waitaof());
        let commands = [confirm_call(self.keys()).command, wait];
        self.connection().send_all(session, commands).await
    }

    fn wait_command(&self, all: u32, limit: Duration, has_waitaof: bool) -> Cmd {
        let mut command = match (self.durability.replicas(all), has_waitaof) {
            (Some(replicas), _) => {
                let mut wait = redis::cmd("WAIT");
                wait.arg(replicas);
                wait
            }
            (None, true) => {
                let mut wait = redis::cmd("WAITAOF");
                wait.arg(1).arg(0);
                wait
            }
            // `check_disk` has made sure that answers come after the write to the disk.
            (None, false) => return redis::cmd("PING"),
        };
        command.arg(millis(limit));
        command
    }

    /// Checks that this server can confirm that its disk has a change.
    async fn check_disk(&self, session: &Session) -> Result<(), CallError> {
        let refused = |reason: &str| CallError::Refused(format!("durability disk: {reason}"));
        let mut query = redis::cmd("INFO");
        query.arg("persistence");
        let info = self.connection().send(session, &query).await?;
        let text = match &info {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            _ => String::new(),
        };
        if InfoDict::new(&text).get::<u8>("aof_enabled") != Some(1) {
            return Err(refused("expected a server with appendonly yes, got one with no"));
        }
        if session.server.has_waitaof() {
            return Ok(());
        }
        let mut query = redis::cmd("CONFIG");
        query.arg("GET").arg("appendfsync");
        let found = self.connection().send(session, &query).await?;
        match redis::from_redis_value::<std::collections::HashMap<String, String>>(found) {
            Ok(settings) if settings.get("appendfsync").is_some_and(|value| value == "always") => Ok(()),
            _ => Err(refused("expected Redis 7.2 or newer, or appendfsync always, got neither")),
        }
    }
}

fn replication_query() -> Cmd {
    let mut query = redis::cmd("INFO");
    query.arg("replication");
    query
}

/// Parses the answer to `INFO replication`.
fn read_info(answer: &Value) -> Result<Replication, CallError> {
    let text = match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::VerbatimString { text, .. } => text.into(),
        other => return Err(CallError::Refused(format!("its answer to INFO is {other:?}"))),
    };
    let info = InfoDict::new(&text);
    let replica = |n: &u32| info.get::<String>(&format!("slave{n}"));
    let listed = info.get("connected_slaves").unwrap_or(0);
    let is_online = |line: &String| line.contains("state=online");
    let online = (0..listed).filter_map(|n| replica(&n)).filter(is_online).count();
    match info.get("master_replid") {
        Some(id) => Ok(Replication { id, replicas: online.try_into().unwrap_or(u32::MAX) }),
        None => {
            Err(CallError::Refused("it does not report its replication, so nothing can be confirmed".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_receive_writes_are_counted() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n\
                    slave0:ip=::1,port=1,state=online,offset=7,lag=0\r\n\
                    slave1:ip=::1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                    slave2:ip=::1,port=3,state=online,offset=6,lag=1\r\nmaster_replid:abc\r\n";
        let found = read_info(&Value::BulkString(info.into())).unwrap();
        assert_eq!((found.id.as_str(), found.replicas), ("abc", 2));
        assert!(read_info(&Value::BulkString(b"role:master\r\n".to_vec())).is_err());
        assert!(read_info(&Value::Nil).is_err());
    }
}
