//! How a step is called: until it is answered, by a patient store; once, by a plain one.

use redis::{Cmd, FromRedisValue, Value};

use super::link::pauses;
use super::live::Live;
use super::script::Script;
use super::trouble::Trouble;
use super::{Reply, Store};
use crate::error::{Error, Result};

impl Store {
    /// Calls a script and returns its tagged answer.
    pub(super) async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Reply> {
        tracing::trace!(step = script.name);
        self.try_until_answered(|live| async move {
            match self.link.send(&live, call).await {
                Err(Trouble::NoScript) => {
                    self.load(&live, script).await?;
                    self.link.send(&live, call).await
                }
                other => other,
            }
        })
        .await
        .and_then(|value| Reply::new(script.name, value))
    }

    /// Calls a script and reads right after it, in one round trip. The call is built anew for each try.
    pub(super) async fn run_and_read(
        &self,
        script: &'static Script,
        build: impl Fn() -> Cmd,
        read: &Cmd,
    ) -> Result<(Reply, Value)> {
        tracing::trace!(step = script.name);
        let build = &build;
        let (answer, value) = self
            .try_until_answered(|live| async move {
                match self.link.send_both(&live, build(), read).await {
                    Err(Trouble::NoScript) => {
                        self.load(&live, script).await?;
                        self.link.send_both(&live, build(), read).await
                    }
                    other => other,
                }
            })
            .await?;
        Ok((Reply::new(script.name, answer)?, value))
    }

    async fn load(&self, live: &Live, script: &Script) -> Result<(), Trouble> {
        self.link.send(live, redis::cmd("SCRIPT").arg("LOAD").arg(script.code())).await.map(drop)
    }

    pub(super) async fn read<T: FromRedisValue>(&self, call: &Cmd) -> Result<T> {
        let value = self.send(call).await?;
        T::from_redis_value(value).map_err(|error| Error::Answer(error.to_string()))
    }

    pub(super) async fn send(&self, call: &Cmd) -> Result<Value> {
        self.try_until_answered(|live| async move { self.link.send(&live, call).await }).await
    }

    pub(super) async fn try_until_answered<T, F>(&self, send: impl Fn(Live) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        // A connection that is only borrowed says nothing about our own: its trouble is its owner's.
        if let Some(live) = self.shortcut.as_ref().and_then(|link| link.free())
            && let Ok(value) = send(live).await
        {
            return Ok(value);
        }
        let mut pauses = pauses();
        let mut waiting = None;
        loop {
            let live = match (&self.patient_until, self.link.current()) {
                (_, Some(live)) => live,
                (None, None) => {
                    return Err(self.link.error(Trouble::Broken("the connection was lost".into())));
                }
                (Some(end), None) => {
                    waiting.get_or_insert_with(|| self.link.wait_along());
                    tokio::select! {
                        () = end.cancelled() => return Err(Error::Stopped),
                        live = self.link.live() => live,
                    }
                }
            };
            let trouble = match send(live).await {
                Ok(value) => return Ok(value),
                Err(trouble) => trouble,
            };
            let Some(end) = &self.patient_until else {
                return Err(self.explain(trouble).await);
            };
            waiting.get_or_insert_with(|| self.link.wait_along());
            self.link.complain(&trouble);
            tokio::select! {
                () = end.cancelled() => return Err(Error::Stopped),
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// An error that says which key is of the wrong type, where that is the trouble.
    async fn explain(&self, trouble: Trouble) -> Error {
        if let (Trouble::WrongType, Some(live)) = (&trouble, self.link.current()) {
            for (key, expected) in self.keys.fixed() {
                let found = self.link.send(&live, redis::cmd("TYPE").arg(key)).await;
                if let Ok(Value::SimpleString(found)) = found
                    && found != expected
                    && found != "none"
                {
                    return Error::ForeignKey { key: key.to_owned(), found, expected };
                }
            }
        }
        self.link.error(trouble)
    }
}
