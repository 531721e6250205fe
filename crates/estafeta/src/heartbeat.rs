//! Keeps a copy in its ring: joins, beats, tries for the office, and joins again when it was declared dead.
//!
//! This is the only part that decides who the copy is; all others await what it writes into [`Standing`]. It runs on
//! the pulse, where no handler can starve it. The observer is told first, so that no line of a copy that acts comes before
//! the one that says as what. States and what ends them:
//!
//! - *away*: not a member. `join`, as a new incarnation, until Redis takes it.
//! - *handler*: `beat` at the pace of its rank. `lost` (buried while frozen or cut off, or the ring was wiped, or what
//!   this copy told of itself was deleted) leads to *away*; a vacancy and a successful `lead` lead to *generator*.
//! - *generator*: `beat` a quarter of a lease apart. Somebody else in office leads to *handler*; `lost` to *away*.
//!   Fewer messages published than this copy saw acknowledged, or a publish refused in an office that is still its own,
//!   mean that Redis was rolled back: it takes a new epoch.
//!
//! A lane that is *lost* although the beat is not (its cursor was rolled back with the rest of Redis) ends the membership
//! too. However it ends, the copy leaves, which hands back what it may still hold, and joins again.
//!
//! How long a belief is trusted: a copy believes that it is the generator until a beat says otherwise, and that is safe,
//! because no step relies on the belief; Redis checks the epoch in the step itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::doubt::Doubt;
use crate::election::{Election, Vacancy};
use crate::error::Result;
use crate::member_id::{Identity, Incarnation, MemberId};
use crate::observer::{Notice, Observer};
use crate::standing::{ServerClock, Standing};
use crate::store::{Beat, Candidacy, Health, Introduction, Kind, Lead, Office, Stand, Store};

pub(crate) struct Heartbeat<O> {
    pub store: Store,
    pub config: Arc<Config>,
    pub observer: Arc<O>,
    pub standing: watch::Sender<Standing>,
    /// Where other parts tell that Redis does not agree with what they believe.
    pub doubt: Arc<Doubt>,
    /// Messages that this copy knows to be published.
    pub known_published: Arc<AtomicU64>,
    /// Cancelled when the copy begins to stop: it stays a member, but does not take office any more.
    pub quiet: CancellationToken,
    /// Cancelled by this part when the limit is reached and every message has its outcome.
    pub done: CancellationToken,
}

impl<O: Observer> Heartbeat<O> {
    pub async fn run(self, mut me: Identity, end: CancellationToken) -> Result<()> {
        loop {
            self.beat_until_lost(me, &end).await?;
            self.standing.send_replace(Standing::Away);
            // A copy that stops is lost because it has left, or has nothing to come back for.
            if self.quiet.is_cancelled() {
                return Ok(());
            }
            self.observer.notice(Notice::DeclaredDead);
            me = join(&self.store, &self.config, Kind::Member).await?;
            if self.quiet.is_cancelled() {
                return self.store.leave(me.incarnation, self.config.concurrency).await.map(drop);
            }
            self.observer.notice(Notice::Joined { member: me.number });
            self.standing.send_replace(Standing::Handler(me));
        }
    }

    async fn beat_until_lost(&self, me: Identity, end: &CancellationToken) -> Result<()> {
        let mut election = Election::new();
        let mut pace = Duration::ZERO;
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = tokio::time::sleep(pace) => {}
                () = self.doubt.raised() => {}
                () = self.store.link().called() => {}
            }
            // Read before the beat is sent: what is published while it travels is no roll-back.
            let known = self.known_published.load(Ordering::Relaxed);
            let stand = match self.store.beat(me.incarnation, self.config.lease).await? {
                Beat::Stands(stand) => stand,
                Beat::Lost => return self.let_go(me).await,
            };
            if self.doubt.is_about_member(me.incarnation) {
                return self.let_go(me).await;
            }
            if stand.overslept {
                self.store.link().unsettle();
            }
            self.check_done(&stand);
            if !self.follow(me, &stand, stand.published < known, &mut election).await? {
                return self.let_go(me).await;
            }
            pace = election.pace(&stand, self.config.look, self.config.beat(), self.config.grace);
        }
    }

    /// Hands back what is left of a lost membership. Whoever was buried has nothing left; but somebody may have deleted what
    /// this copy told of itself, or a roll-back its cursors, and then nobody else knows what it holds.
    async fn let_go(&self, me: Identity) -> Result<()> {
        self.store.leave(me.incarnation, self.config.concurrency).await.map(drop)
    }

    /// Acts on what the beat told. False if the copy turned out to be no member any more.
    async fn follow(
        &self,
        me: Identity,
        stand: &Stand,
        rolled_back: bool,
        election: &mut Election,
    ) -> Result<bool> {
        let believed = self.standing.borrow().epoch();
        let (behind, renewal) = match stand.office {
            Office::Mine(epoch) => (rolled_back || self.doubt.is_about_epoch(epoch), believed != Some(epoch)),
            _ => (false, false),
        };
        if believed.is_some() && !matches!(stand.office, Office::Mine(_)) {
            // One that stops has resigned, and will handle nothing.
            if !self.quiet.is_cancelled() {
                self.observer.notice(Notice::BecameHandler);
            }
            self.standing.send_replace(Standing::Handler(me));
        }
        if let Office::Held { by, health: Health::Ahead } = stand.office {
            self.cut_lease(me, by).await?;
        }
        if let Office::Mine(epoch) = stand.office
            && self.quiet.is_cancelled()
        {
            // Taken while the copy began to stop: its generator has ended already.
            self.store.resign(me.incarnation, epoch).await?;
        }
        let settled = self.store.link().is_settled(self.config.settling());
        let vacancy = election.consider(stand, settled, self.config.grace);
        let vacancy = vacancy
            .or((behind || renewal).then_some(Vacancy { absent_since_ms: 0, silence: Duration::ZERO }));
        match vacancy {
            Some(vacancy) if !self.quiet.is_cancelled() => self.lead(me, vacancy, behind).await,
            _ => {
                if !matches!(stand.office, Office::Mine(_)) {
                    self.known_published.store(stand.published, Ordering::Relaxed);
                }
                Ok(true)
            }
        }
    }

    async fn lead(&self, me: Identity, vacancy: Vacancy, renew: bool) -> Result<bool> {
        let candidacy = Candidacy {
            absent_since_ms: vacancy.absent_since_ms,
            grace: self.config.grace,
            interval: self.config.interval,
            silence: vacancy.silence,
            known_published: self.known_published.load(Ordering::Relaxed),
            renew,
        };
        match self.store.lead(me.incarnation, self.config.lease, &candidacy).await? {
            Lead::Leads(term) => {
                self.known_published.store(term.published, Ordering::Relaxed);
                let (epoch, silence) = (term.epoch, term.silence);
                let from = term.predecessor.filter(|from| *from != me.number);
                let clock = ServerClock::new(term.now_ms);
                self.observer.notice(Notice::BecameGenerator { epoch, from, silence });
                self.standing.send_replace(Standing::Generator(me, term, clock));
                Ok(true)
            }
            Lead::Follows => Ok(true),
            Lead::Lost => Ok(false),
        }
    }

    /// Redis' clock jumped back, and the incumbent's lease would run for as long as the jump was wide: `bury` cuts it.
    async fn cut_lease(&self, me: Identity, incumbent: Incarnation) -> Result<()> {
        if let Some(facts) = self.store.facts(incumbent).await? {
            self.store.bury(incumbent, &facts, 0, self.config.grace, Some(me.incarnation)).await?;
        }
        Ok(())
    }

    fn check_done(&self, stand: &Stand) {
        let reached = self.config.limit.is_some_and(|limit| stand.published >= limit);
        if self.config.until_done && reached && stand.outstanding == 0 {
            self.done.cancel();
        }
    }
}

/// Joins the ring as a new incarnation.
pub(crate) async fn join(store: &Store, config: &Config, kind: Kind) -> Result<Identity> {
    let incarnation = Incarnation::random();
    let presence = config.presence && store.show_presence(incarnation).await?;
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let introduction = Introduction {
        incarnation,
        kind,
        lanes: config.concurrency,
        host: host.as_deref().unwrap_or("unknown"),
        lease: config.lease,
        presence,
        max_attempts: config.max_attempts,
        journal: config.journal,
    };
    let number: MemberId = store.join(&introduction).await?;
    Ok(Identity { number, incarnation })
}
