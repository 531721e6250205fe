//! Confirms that a change is stored where the settings want it, before its step counts as answered.
//!
//! Redis answers a step when its own memory has the change. A store with a [`Durability`] above `memory` asks for more.
//! After each step, on the same session, it sends three commands in one round trip:
//!
//! 1. The step `confirm` writes a mark. Replicas and the disk receive all writes of a server in their order. So if they
//!    have the mark, they have the step. The mark is needed because `WAIT` waits for the last write *of its connection*.
//!    A step that was repeated after a lost reply may have written nothing on the new one.
//! 2. `INFO replication` shows the server's replication id, and how many replicas are connected.
//! 3. `WAIT` or `WAITAOF` waits until enough of them have the mark, for half of the response time-out at most.
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
//! **Who waits.** `WAIT` blocks its connection. So only the work connection of a node confirms, which carries `publish`
//! and `turn`. Beats go on beside it, and a node whose replicas are frozen keeps its office. `lead` is not confirmed by
//! itself, because nothing depends on a term before its first publish, which confirms both. Readers, publishers and
//! commands confirm on their only connection.

use std::time::Duration;

use redis::{Cmd, InfoDict, Value};

use super::call_error::CallError;
use super::session::Session;
use super::store::Store;
use crate::durability::Durability;
use crate::error::Result;
use crate::steps::{CONFIRM, confirm_call, millis};

/// What a server reports about its replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicationInfo {
    /// Changes with each promotion and demotion of the server.
    id: String,
    /// The replicas that are connected and receive writes.
    online: u32,
}

impl ReplicationInfo {
    /// Parses the answer to `INFO replication`.
    fn read(answer: &Value) -> Result<Self, CallError> {
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
            Some(id) => Ok(Self { id, online: online.try_into().unwrap_or(u32::MAX) }),
            None => Err(CallError::Refused(
                "it does not report its replication, so nothing can be confirmed".into(),
            )),
        }
    }
}

impl Store {
    /// Checks that the server can confirm at the level of this store.
    pub async fn check_durability(&self) -> Result<()> {
        self.try_until_answered(|session| async move { self.before_step(&session).await.map(drop) }).await
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
            let online = ReplicationInfo::read(&answer)?.online;
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
    pub(super) async fn before_step(&self, session: &Session) -> Result<Option<ReplicationInfo>, CallError> {
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
        let found = ReplicationInfo::read(&answer)?;
        *session.replication.lock().expect("no panic while held") = Some(found.clone());
        Ok(Some(found))
    }

    /// Waits until the step that was just answered on this session is confirmed.
    pub(super) async fn confirm(
        &self,
        session: &Session,
        before: Option<ReplicationInfo>,
    ) -> Result<(), CallError> {
        let Some(before) = before else { return Ok(()) };
        let answers = match self.send_mark(session, &before).await {
            Err(CallError::NoScript) => {
                self.load(session, CONFIRM).await?;
                self.send_mark(session, &before).await?
            }
            answers => answers?,
        };
        let [_, info, waited] = answers;
        let found = ReplicationInfo::read(&info)?;
        if found.id != before.id {
            return Err(session.leave("its replication id has changed, so it may have lost the step"));
        }
        let wanted = self.durability.replicas(found.online);
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

    async fn send_mark(&self, session: &Session, before: &ReplicationInfo) -> Result<[Value; 3], CallError> {
        let limit = self.connection().response_timeout() / 2;
        let wait = self.wait_command(before.online, limit, session.server.has_waitaof());
        let commands = [confirm_call(self.keys()).command, replication_query(), wait];
        self.connection().send_all(session, commands).await
    }

    fn wait_command(&self, online: u32, limit: Duration, has_waitaof: bool) -> Cmd {
        let mut command = match (self.durability.replicas(online), has_waitaof) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_receive_writes_are_counted() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n\
                    slave0:ip=::1,port=1,state=online,offset=7,lag=0\r\n\
                    slave1:ip=::1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                    slave2:ip=::1,port=3,state=online,offset=6,lag=1\r\nmaster_replid:abc\r\n";
        let found = ReplicationInfo::read(&Value::BulkString(info.into())).unwrap();
        assert_eq!(found, ReplicationInfo { id: "abc".into(), online: 2 });
        assert!(ReplicationInfo::read(&Value::BulkString(b"role:master\r\n".to_vec())).is_err());
        assert!(ReplicationInfo::read(&Value::Nil).is_err());
    }
}
