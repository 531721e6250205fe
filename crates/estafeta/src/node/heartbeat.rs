//! Keeps a node in its ring: joins, beats, tries for the office, and joins again after the ring declared it dead.
//!
//! Only the heartbeat decides what the node is. All other parts await what it writes into [`MemberState`]. It runs on
//! the control thread, where no handler can starve it. It notifies the observer before it changes the state, so a
//! node's role is always reported before any action in that role. These are the states and what ends them:
//!
//! - *away*: the node is not a member. It calls `join`, as a new incarnation, until Redis accepts it.
//! - *handler*: the node calls `beat` at the pace of its rank. `lost` leads to *away*: the member was buried while
//!   frozen or cut off, the ring was wiped, or the member's hash was deleted. A vacancy and a successful `lead` lead to
//!   *generator*.
//! - *generator*: the node calls `beat` every quarter of a lease. Another member in office leads to *handler*. `lost`
//!   leads to *away*. Three signs show that Redis was rolled back: fewer messages are published than this node saw
//!   acknowledged, the epoch is older than one it saw, or Redis refused a publish although the node still holds the
//!   office. The node then takes a new epoch.
//!
//! A turn can get `lost` although the beat does not, because the member's cursor was rolled back with the rest of
//! Redis. That ends the membership too. However a membership ends, the node leaves, which hands back what it may still
//! hold, and joins again.
//!
//! How long a belief is trusted: a node believes that it is the generator until a beat reports otherwise. That is safe,
//! because no step relies on the belief. Redis checks the epoch in the step itself.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::election::{Election, Vacancy};
use super::latency_log::{LatencyGroups, LatencyLog};
use super::refusals::Refusals;
use super::state::{MemberState, ServerClock};
use crate::config::Config;
use crate::error::Result;
use crate::identity::{Epoch, Identity, Incarnation, MemberId};
use crate::layout::Layouts;
use crate::observer::{Notice, Observers};
use crate::redis::Store;
use crate::steps::{Beat, BeatReport, Candidacy, Health, Introduction, Known, Lead, MemberKind, Office};

/// The longest pause between two beats of a node that never generates. No member may be in line to take over from a dead
/// generator, and such nodes then bury it. They learn of its death from their beats, however long the lease is.
const BEAT_OF_HANDLERS: Duration = Duration::from_millis(500);

pub(crate) struct Heartbeat {
    pub store: Store,
    pub config: Arc<Config>,
    pub observers: Arc<Observers>,
    pub state: watch::Sender<MemberState>,
    /// The number of members while the ring has no living generator, and None otherwise.
    pub unguarded: watch::Sender<Option<u64>>,
    /// Redis' clock.
    pub clock: Arc<watch::Sender<ServerClock>>,
    /// Where other parts report that Redis does not agree with what they believe.
    pub refusals: Arc<Refusals>,
    /// What this node knows to be published.
    pub known: Arc<Mutex<Known>>,
    /// What the clerk has counted and the heartbeat hands over.
    pub latencies: Arc<LatencyLog>,
    /// Cancelled when the node begins to stop. The node stays a member but no longer takes office.
    pub quiet: CancellationToken,
    /// Cancelled by the heartbeat when the limit is reached and every message has its outcome.
    pub done: CancellationToken,
}

impl Heartbeat {
    pub async fn run(self, mut me: Identity, end: CancellationToken) -> Result<()> {
        let mut groups = LatencyGroups::default();
        loop {
            self.beat_until_lost(me, &mut groups, &end).await?;
            groups.let_go();
            self.state.send_replace(MemberState::Away);
            // A stopping node is lost because it has left, or it has nothing to come back for.
            if self.quiet.is_cancelled() {
                return Ok(());
            }
            self.observers.notice(Notice::DeclaredDead);
            me = join(&self.store, &self.config, MemberKind::Node).await?;
            if self.quiet.is_cancelled() {
                return self.store.leave(me.incarnation).await.map(drop);
            }
            self.observers.notice(Notice::Joined { member: me.number });
            self.state.send_replace(MemberState::Handler(me));
        }
    }

    async fn beat_until_lost(
        &self,
        me: Identity,
        groups: &mut LatencyGroups,
        end: &CancellationToken,
    ) -> Result<()> {
        let mut election = Election::new();
        let mut pace = Duration::ZERO;
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = tokio::time::sleep(pace) => {}
                () = self.refusals.reported() => {}
                () = self.store.connection().called() => {}
            }
            // Read before the beat is sent: a message published while the beat travels is no sign of a rollback.
            let known = *self.known_mut();
            let group = groups.next(&self.latencies, Instant::now());
            let on_its_way = self.store.connection().send_beat(self.config.beat());
            let beat = self.store.beat_with(me.incarnation, self.config.lease, known, group).await?;
            drop(on_its_way);
            let report = match beat {
                Beat::Stands(report) => report,
                Beat::Lost => return self.let_go(me).await,
            };
            groups.let_go();
            self.clock.send_replace(ServerClock::new(report.now_ms));
            if self.refusals.has_member(me.incarnation) {
                return self.let_go(me).await;
            }
            if report.overslept {
                self.store.connection().distrust();
            }
            self.check_done(&report);
            let unguarded = (!report.has_living_generator()).then_some(report.members);
            self.unguarded.send_if_modified(|before| std::mem::replace(before, unguarded) != unguarded);
            self.known_mut().meet(report.born, report.epoch, report.published);
            let is_same_ring = report.born == known.born;
            let rolled_back =
                is_same_ring && (report.published < known.published || report.epoch < known.epoch);
            if !self.follow(me, &report, rolled_back, &mut election).await? {
                return self.let_go(me).await;
            }
            pace = match self.config.never_generate {
                true => self.config.beat().min(BEAT_OF_HANDLERS),
                false => election.pace(&report, self.config.look, self.config.beat(), self.config.grace),
            };
        }
    }

    /// Hands back what is left of a lost membership. A buried member has nothing left. But if the member's record was
    /// deleted, or a rollback removed its cursors, no other node knows what it holds.
    async fn let_go(&self, me: Identity) -> Result<()> {
        self.store.leave(me.incarnation).await.map(drop)
    }

    /// Acts on the report of a beat. Returns false if the node turns out to be no longer a member.
    async fn follow(
        &self,
        me: Identity,
        report: &BeatReport,
        rolled_back: bool,
        election: &mut Election,
    ) -> Result<bool> {
        let believed = self.state.borrow().epoch();
        // An epoch of this node to replace, and whether this node holds the office without having known it.
        let (replaces, is_news) = match report.office {
            Office::Mine(epoch) => (
                Some(epoch).filter(|_| rolled_back || self.refusals.has_epoch(epoch)),
                believed != Some(epoch),
            ),
            _ => (None, false),
        };
        if believed.is_some() && !matches!(report.office, Office::Mine(_)) {
            // A stopping node has resigned and will handle nothing.
            if !self.quiet.is_cancelled() {
                self.observers.notice(Notice::BecameHandler);
            }
            self.state.send_replace(MemberState::Handler(me));
        }
        if let Office::Held { by, health: Health::Ahead } = report.office {
            self.cut_lease(me, by).await?;
        }
        if let Office::Mine(epoch) = report.office
            && self.quiet.is_cancelled()
        {
            // The node took office while it began to stop, and its generator has already ended.
            self.store.resign(me.incarnation, epoch).await?;
        }
        let is_trusted = self.store.connection().is_trusted(self.config.trust_delay());
        let vacancy =
            election.consider(report, is_trusted, self.config.grace).filter(|_| !self.config.never_generate);
        let again = Vacancy { absent_since_ms: 0, silence: Duration::ZERO };
        match vacancy.or((replaces.is_some() || is_news).then_some(again)) {
            Some(vacancy) if !self.quiet.is_cancelled() => self.lead(me, vacancy, replaces).await,
            _ => Ok(true),
        }
    }

    fn known_mut(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }

    async fn lead(&self, me: Identity, vacancy: Vacancy, replaces: Option<Epoch>) -> Result<bool> {
        let candidacy = Candidacy {
            absent_since_ms: vacancy.absent_since_ms,
            grace: self.config.grace,
            interval: self.config.interval,
            silence: vacancy.silence,
            known: *self.known_mut(),
            replaces,
        };
        match self.store.lead(me.incarnation, self.config.lease, &candidacy).await? {
            Lead::Leads(term) => {
                self.known_mut().learn(term.epoch, term.published);
                let (epoch, silence) = (term.epoch, term.silence);
                let from = term.predecessor.filter(|from| *from != me.number);
                let clock = ServerClock::new(term.now_ms);
                self.observers.notice(Notice::BecameGenerator { epoch, from, silence });
                self.state.send_replace(MemberState::Generator(me, term, clock));
                Ok(true)
            }
            Lead::Follows => Ok(true),
            Lead::Lost => Ok(false),
        }
    }

    /// Cuts the incumbent's lease with `bury`. Redis' clock jumped back, so the lease would last longer by the width of
    /// the jump.
    async fn cut_lease(&self, me: Identity, incumbent: Incarnation) -> Result<()> {
        self.store.bury(incumbent, 0, self.config.grace, Some(me.incarnation)).await.map(drop)
    }

    fn check_done(&self, report: &BeatReport) {
        let reached = self.config.limit.is_some_and(|limit| report.published >= limit);
        if self.config.until_done && reached && report.outstanding == 0 {
            self.done.cancel();
        }
    }
}

/// Joins the ring as a new incarnation.
pub(crate) async fn join(store: &Store, config: &Config, kind: MemberKind) -> Result<Identity> {
    let incarnation = Incarnation::random();
    let presence = config.presence && store.show_presence(incarnation).await?;
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let introduction = Introduction {
        layouts: Layouts::KNOWN,
        application: if kind == MemberKind::Reader { "" } else { &config.application },
        incarnation,
        kind,
        lanes: config.concurrency,
        host: host.as_deref().unwrap_or("unknown"),
        lease: config.lease,
        presence,
        max_deaths: config.max_deaths,
        journal: config.journal,
        duties: config.duties(),
        durability: config.durability,
        partitions: config.partitions,
    };
    let number: MemberId = store.join(&introduction).await?;
    Ok(Identity { number, incarnation })
}
