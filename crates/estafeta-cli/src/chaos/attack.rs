//! Carries the plan out: strikes when the moment has come, and undoes each strike when its time is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use estafeta_proxy::Weather;
use nix::sys::signal::Signal;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, sleep_until};

use super::copy::Copy;
use super::plan::{Kind, Strike, Target};
use crate::duration::now_ms;
use crate::own_redis::OwnRedis;

/// What was really done.
#[derive(Clone, Debug)]
pub struct Blow {
    pub kind: Kind,
    pub from_ms: u64,
    pub until_ms: u64,
    /// The copies it hit; none if it hit Redis.
    pub victims: Vec<usize>,
    /// In words.
    pub what: String,
}

pub struct Arena {
    pub copies: Vec<Copy>,
    pub redis: Option<OwnRedis>,
    /// Copies that a strike holds right now; the next one is for another.
    hurt: Vec<AtomicBool>,
    /// What hits Redis comes one after the other.
    redis_turn: tokio::sync::Mutex<()>,
    blows: Mutex<Vec<Blow>>,
}

/// How long a reply is waited for that is to be lost.
const LOSS: Duration = Duration::from_secs(3);
/// How often a strike looks for a copy that is free.
const LOOK: Duration = Duration::from_millis(20);
const FLOODERS: usize = 8;

impl Arena {
    pub fn new(copies: Vec<Copy>, redis: Option<OwnRedis>) -> Self {
        let hurt = copies.iter().map(|_| AtomicBool::new(false)).collect();
        Self { copies, redis, hurt, redis_turn: tokio::sync::Mutex::default(), blows: Mutex::default() }
    }

    /// What was done so far, in the order of its beginning.
    pub fn blows(&self) -> Vec<Blow> {
        let mut blows = self.blows.lock().expect("no panic while held").clone();
        blows.sort_by_key(|blow| blow.from_ms);
        blows
    }

    /// Strikes by the plan, until everything is undone again. `generator` says who that is at the moment.
    pub async fn attack(
        self: &Arc<Self>,
        plan: Vec<Strike>,
        generator: impl Fn() -> Option<usize>,
        tell: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<()> {
        let start = Instant::now();
        let mut strikes = JoinSet::new();
        for strike in plan {
            sleep_until((start + strike.at).into()).await;
            while let Some(ended) = strikes.try_join_next() {
                ended??;
            }
            let victims = self.victims(&strike, generator()).await;
            let what = describe(&strike, &victims, generator());
            strikes.spawn(Arc::clone(self).strike(strike, victims, what, tell.clone()));
        }
        while let Some(ended) = strikes.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Chooses the copies to hit, none of which is down already, and holds them.
    async fn victims(&self, strike: &Strike, generator: Option<usize>) -> Vec<usize> {
        let first = match strike.target {
            Target::Redis => return Vec::new(),
            Target::AllBut(spared) => {
                let others: Vec<usize> = (0..self.copies.len()).filter(|copy| *copy != spared).collect();
                for copy in &others {
                    while !self.hold(*copy) {
                        sleep(LOOK).await;
                    }
                }
                return others;
            }
            Target::Generator => generator.unwrap_or(0),
            Target::Copy(copy) => copy,
        };
        loop {
            let mut in_turn = (0..self.copies.len()).map(|step| (first + step) % self.copies.len());
            if let Some(free) = in_turn.find(|copy| self.hold(*copy)) {
                return vec![free];
            }
            sleep(LOOK).await;
        }
    }

    fn hold(&self, copy: usize) -> bool {
        !self.hurt[copy].swap(true, Ordering::Relaxed)
    }

    async fn strike(
        self: Arc<Self>,
        strike: Strike,
        victims: Vec<usize>,
        what: String,
        tell: impl Fn(&str),
    ) -> Result<()> {
        let _turn = match strike.target {
            Target::Redis => Some(self.redis_turn.lock().await),
            _ => None,
        };
        tell(&what);
        let from_ms = now_ms();
        let index = {
            let mut blows = self.blows.lock().expect("no panic while held");
            let victims = victims.clone();
            blows.push(Blow { kind: strike.kind, from_ms, until_ms: from_ms, victims, what });
            blows.len() - 1
        };
        match &self.redis {
            Some(redis) if strike.target == Target::Redis => self.strike_redis(redis, &strike).await?,
            _ => self.strike_copies(&strike, &victims).await?,
        }
        self.blows.lock().expect("no panic while held")[index].until_ms = now_ms();
        victims.iter().for_each(|copy| self.hurt[*copy].store(false, Ordering::Relaxed));
        Ok(())
    }

    async fn strike_copies(&self, strike: &Strike, victims: &[usize]) -> Result<()> {
        let each = || victims.iter().map(|copy| &self.copies[*copy]);
        let weather = |weather| each().for_each(|copy| copy.proxy.set(weather));
        match strike.kind {
            Kind::Kill => Copy::kill_all(each())?,
            Kind::Freeze => each().try_for_each(|copy| copy.signal(Signal::SIGSTOP))?,
            Kind::Cut => weather(Weather::Closed),
            Kind::Lag => weather(slowness(strike)),
            Kind::HalfOpen => weather(Weather::Silent),
            Kind::LostReply => {
                for copy in each() {
                    lose_replies(copy, 1 + u64::from(strike.form % 3)).await;
                }
            }
            _ => {}
        }
        sleep(strike.lasts).await;
        match strike.kind {
            Kind::Kill => each().try_for_each(|copy| copy.start(&[]))?,
            Kind::Freeze => each().try_for_each(|copy| copy.signal(Signal::SIGCONT))?,
            _ => weather(Weather::Clear),
        }
        Ok(())
    }

    async fn strike_redis(self: &Arc<Self>, redis: &OwnRedis, strike: &Strike) -> Result<()> {
        match strike.kind {
            Kind::RedisKill => {
                self.with_redis(|redis| Ok(redis.kill()?)).await?;
                sleep(strike.lasts).await;
                self.with_redis(OwnRedis::start_again).await?;
            }
            Kind::RedisStall if strike.form.is_multiple_of(3) => {
                redis.signal(Signal::SIGSTOP)?;
                sleep(strike.lasts).await;
                redis.signal(Signal::SIGCONT)?;
            }
            Kind::RedisStall if strike.form % 3 == 1 => {
                let pause = strike.lasts.as_millis().to_string();
                self.command(&["CLIENT", "PAUSE", &pause, "ALL"]).await?;
                sleep(strike.lasts).await;
            }
            Kind::RedisStall => self.busy_script(strike.lasts).await?,
            Kind::ScriptFlush => self.command(&["SCRIPT", "FLUSH"]).await?,
            Kind::ClientKill => {
                let kind = if strike.form.is_multiple_of(2) { "normal" } else { "pubsub" };
                self.command(&["CLIENT", "KILL", "TYPE", kind]).await?;
            }
            Kind::Flood => self.flood(strike.lasts).await?,
            _ => {}
        }
        Ok(())
    }

    /// For what may block until the disk is ready.
    pub async fn with_redis(
        self: &Arc<Self>,
        act: impl FnOnce(&OwnRedis) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let arena = Arc::clone(self);
        spawn_blocking(move || arena.redis.as_ref().map_or(Ok(()), act)).await?
    }

    /// A script that does not end: after a moment Redis answers BUSY to everybody, until it is killed.
    async fn busy_script(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        self.command(&["CONFIG", "SET", "busy-reply-threshold", "50"]).await?;
        let mut busy = std::pin::pin!(self.command(&["EVAL", "while true do end", "0"]));
        let mut pause = lasts;
        loop {
            tokio::select! {
                // With an error, as it was killed.
                _ = &mut busy => return self.command(&["CONFIG", "SET", "busy-reply-threshold", "5000"]).await,
                () = sleep(pause) => {}
            }
            // Refused, as long as the script has not even begun.
            let _ = self.command(&["SCRIPT", "KILL"]).await;
            pause = LOOK;
        }
    }

    /// Strangers who ask for much at once, over and over, each time on a new connection.
    async fn flood(self: &Arc<Self>, lasts: Duration) -> Result<()> {
        let key = "flood";
        self.command(&["SET", key, &"x".repeat(10_000)]).await?;
        let until = Instant::now() + lasts;
        let mut flooders = JoinSet::new();
        for _ in 0..FLOODERS {
            let arena = Arc::clone(self);
            flooders.spawn_blocking(move || -> Result<()> {
                while let (Some(redis), true) = (&arena.redis, Instant::now() < until) {
                    let mut pipe = redis::pipe();
                    for _ in 0..200 {
                        pipe.cmd("GET").arg(key).ignore();
                    }
                    pipe.exec(&mut redis.connect()?)?;
                }
                Ok(())
            });
        }
        while let Some(ended) = flooders.join_next().await {
            ended??;
        }
        self.command(&["DEL", key]).await
    }

    async fn command(self: &Arc<Self>, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        self.with_redis(move |redis| send(redis, &words)).await
    }
}

fn send(redis: &OwnRedis, words: &[String]) -> Result<()> {
    Ok(redis::cmd(&words[0]).arg(&words[1..]).exec(&mut redis.connect()?)?)
}

fn slowness(strike: &Strike) -> Weather {
    match strike.form % 3 {
        0 => Weather::Trickle,
        _ => Weather::Lag(Duration::from_millis(20 + u64::from(strike.form % 130))),
    }
}

/// Waits until they really are lost, unless the copy says nothing that could be replied to.
async fn lose_replies(copy: &Copy, count: u64) {
    let until = Instant::now() + LOSS;
    for _ in 0..count {
        let before = copy.proxy.replies_lost();
        copy.proxy.lose_a_reply();
        while copy.proxy.replies_lost() == before && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
    }
    copy.proxy.lose_none();
}

fn describe(strike: &Strike, victims: &[usize], generator: Option<usize>) -> String {
    let seconds = format!("{:.1} s", strike.lasts.as_secs_f64());
    let whom = match victims {
        [one] if Some(*one) == generator => format!("copy {} (generator)", one + 1),
        [one] => format!("copy {}", one + 1),
        several => format!("{} copies at once", several.len()),
    };
    match strike.kind {
        Kind::Kill => format!("{whom} killed, to start again after {seconds}"),
        Kind::Freeze => format!("{whom} frozen for {seconds}"),
        Kind::Cut => format!("{whom} cut off for {seconds}"),
        Kind::Lag => match slowness(strike) {
            Weather::Lag(delay) => format!("{whom} {} ms away from Redis for {seconds}", delay.as_millis()),
            _ => format!("{whom} on a trickling line for {seconds}"),
        },
        Kind::HalfOpen => format!("{whom} on half-open connections for {seconds}"),
        Kind::LostReply => format!("{whom} loses replies of Redis"),
        Kind::RedisKill => format!("Redis killed, to start again after {seconds}"),
        Kind::RedisStall => match strike.form % 3 {
            0 => format!("Redis frozen for {seconds}"),
            1 => format!("Redis pauses all clients for {seconds}"),
            _ => format!("Redis busy with a script for {seconds}"),
        },
        Kind::ScriptFlush => "Redis forgets all scripts".to_owned(),
        Kind::ClientKill if strike.form.is_multiple_of(2) => "Redis drops all normal connections".to_owned(),
        Kind::ClientKill => "Redis drops all subscribed connections".to_owned(),
        Kind::Flood => format!("strangers flood Redis for {seconds}"),
    }
}
