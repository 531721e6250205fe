//! Lets time pass for a ring. Redis' clock stays as it is: what the ring has stored as a time moves back instead.

use std::time::Duration;

use super::TestRing;
use crate::config::TEN_YEARS;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::schedule::Schedule;
use crate::steps::{Call, Script, assemble};

pub(crate) static SCRIPT: Script = Script::new(
    "advance",
    || {
        let shared = [
            include_str!("../steps/shared/clock.lua"),
            include_str!("../steps/shared/notify.lua"),
            include_str!("../steps/shared/events.lua"),
            include_str!("../steps/shared/brakes.lua"),
            include_str!("../steps/shared/office.lua"),
        ];
        assemble("", &shared.map(Into::into), include_str!("advance.lua"))
    },
    || redis::Script::new(SCRIPT.code()).get_hash().to_owned(),
);

pub(crate) fn call(keys: &Keys, time: Duration) -> Call {
    let mut call = SCRIPT.call(&[
        ("succession", &keys.succession),
        ("ledger", &keys.ledger),
        ("later", &keys.later),
        ("ticks", &keys.ticks),
        ("events", &keys.events),
    ]);
    call.arg("ms", u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).arg("channel-prefix", &keys.channels);
    call
}

impl TestRing {
    /// Lets this much time pass for the ring, at most ten years.
    ///
    /// - Messages that were retried, snoozed or published with a delay wait that much less. Those that are due go to the
    ///   queue with the next claim. An idle node notices them within a fraction of a second.
    /// - The windows of publish keys, and the times to live of results and of keys that effects wrote, get shorter.
    ///   Redis forgets those that are over.
    /// - Pauses end earlier, and a limit on the rate saves up claims.
    /// - The last ticks of a schedule lie further back, so its next ticks come earlier. The same holds for
    ///   [`every`](crate::every). A node that is in office begins a new term, because a generator reads the ticks only
    ///   then. Its feed is opened again.
    ///
    /// The clock stays as it is. After a day, an entry of [`Schedule::cron`](crate::Schedule::cron) therefore publishes
    /// the ticks of the last 24 hours, not those of the next. Its rule for [missed](crate::Missed) ticks decides which. An
    /// entry of [`Schedule::every`](crate::Schedule::every) that skips missed ticks publishes the last one, if that is no
    /// more than 5 s late.
    ///
    /// Nothing else changes. Nodes stay alive, a handler that is running keeps its time limit, and messages keep the time
    /// at which they were published. Other rings in the same Redis stay as they are.
    pub async fn advance(&self, time: Duration) -> Result<()> {
        if time > TEN_YEARS {
            return Err(Error::expected("time", "at most 10 years", format!("{time:?}")));
        }
        let (store, ms) = (self.ring.store(), i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        for key in store.scan(&store.keys().pattern()).await? {
            let left: i64 = store.read(redis::cmd("PTTL").arg(&key)).await?;
            if left > 0 {
                // Redis deletes a key whose time is over.
                store.send(redis::cmd("PEXPIRE").arg(&key).arg(left - ms)).await?;
            }
        }
        store.run(&SCRIPT, &call(store.keys(), time)).await.map(drop)
    }

    /// Makes the entries of a schedule begin now, unless they have begun. Without this call, an entry begins when a
    /// node that has the entry first takes office. A test would have to wait for that before it can
    /// [`advance`](Self::advance) the time.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use estafeta::{Schedule, testing::TestRing};
    /// # async fn example(ring: TestRing) -> Result<(), estafeta::Error> {
    /// let hour = Duration::from_secs(3600);
    /// let hourly = Schedule::every("hourly", hour)?.body("make a report");
    /// ring.begin(&hourly).await?;
    /// ring.advance(hour).await?;
    /// // The first tick is due. A node publishes it as soon as it is in office.
    /// let node = ring.node().generate(hourly);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin<T>(&self, schedule: &Schedule<T>) -> Result<()> {
        let store = self.ring.store();
        let (seconds, micros): (u64, u64) = store.read(&redis::cmd("TIME")).await?;
        for name in schedule.names() {
            let mut begins = redis::cmd("HSETNX");
            begins.arg(&store.keys().ticks).arg(name).arg(seconds * 1000 + micros / 1000);
            store.send(&begins).await?;
        }
        Ok(())
    }
}
