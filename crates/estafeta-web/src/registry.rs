//! The rings that the page shows: those that were named, or all that the Redis has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use estafeta::{Durability, Endpoint, Ring, RingName};
use estafeta_lab::partitions::whole_names;
use tokio::sync::Mutex;

use crate::feed::LiveFeed;
use crate::problem::Problem;

/// How long a call to Redis may take until the page shows that Redis is away.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a list of the rings of this Redis is good.
const LIST_AGE: Duration = Duration::from_secs(10);

/// Which rings to show.
pub enum ShownRings {
    /// These, and no others.
    Named(Vec<RingName>),
    /// All rings of the Redis. While there is none, the page shows this one.
    All { or: RingName },
}

pub struct Registry {
    endpoint: Endpoint,
    shown: ShownRings,
    /// Where Redis must have stored a retry or a drop before it is reported.
    durability: Durability,
    /// Its connection lists the rings.
    first: Ring,
    known: Mutex<KnownRings>,
}

struct KnownRings {
    names: Vec<RingName>,
    listed: Instant,
    feeds: BTreeMap<RingName, Arc<LiveFeed>>,
}

impl Registry {
    /// Connects to Redis, once. The rings connect when they are first looked at.
    pub async fn open(
        endpoint: Endpoint,
        shown: ShownRings,
        durability: Durability,
    ) -> estafeta::Result<Self> {
        let name = match &shown {
            ShownRings::Named(names) => names.first().cloned(),
            ShownRings::All { or } => Some(or.clone()),
        };
        let name = name.ok_or_else(|| estafeta::Error::Expected {
            what: "ring",
            expected: "at least one ring".to_owned(),
            got: "none".to_owned(),
        })?;
        let first = Ring::connect_with(endpoint.clone(), name, PATIENCE).await?.with_durability(durability);
        let names = match &shown {
            ShownRings::Named(names) => names.clone(),
            ShownRings::All { or } => found_or(&first, or).await?,
        };
        let known = KnownRings { names, listed: Instant::now(), feeds: BTreeMap::new() };
        Ok(Self { endpoint, shown, durability, first, known: Mutex::new(known) })
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Fails if Redis does not answer.
    pub async fn check(&self) -> estafeta::Result<()> {
        self.first.exists().await.map(drop)
    }

    /// The names of the rings. While Redis is away, those that were found before.
    pub async fn names(&self) -> Vec<RingName> {
        let mut known = self.known.lock().await;
        if let ShownRings::All { or } = &self.shown
            && known.listed.elapsed() > LIST_AGE
        {
            if let Ok(names) = found_or(&self.first, or).await {
                known.names = names;
            }
            known.listed = Instant::now();
        }
        known.names.clone()
    }

    /// The feed of a ring, or of one partition of a ring. What is not shown looks like what does not exist.
    pub async fn feed(&self, name: &str) -> Result<Arc<LiveFeed>, Problem> {
        let unknown = || Problem::not_found("this page shows no ring of that name");
        let name: RingName = name.parse().map_err(|_| unknown())?;
        let names = self.names().await;
        if names.contains(&name) {
            return Ok(self.open_feed(name).await?);
        }
        // One partition of a ring that is shown.
        let whole = name.whole().filter(|whole| names.contains(whole)).ok_or_else(unknown)?;
        let rings = self.open_feed(whole).await?.rings().await?;
        if !rings.all.iter().any(|ring| *ring.name() == name) {
            return Err(unknown());
        }
        Ok(self.open_feed(name).await?)
    }

    async fn open_feed(&self, name: RingName) -> estafeta::Result<Arc<LiveFeed>> {
        if let Some(feed) = self.known.lock().await.feeds.get(&name) {
            return Ok(Arc::clone(feed));
        }
        let ring = match name == *self.first.name() {
            true => self.first.clone(),
            false => {
                let ring = Ring::connect_with(self.endpoint.clone(), name.clone(), PATIENCE).await?;
                ring.with_durability(self.durability)
            }
        };
        let mut known = self.known.lock().await;
        let feed = known.feeds.entry(name).or_insert_with(|| Arc::new(LiveFeed::new(ring)));
        Ok(Arc::clone(feed))
    }
}

async fn found_or(ring: &Ring, or: &RingName) -> estafeta::Result<Vec<RingName>> {
    let names = whole_names(ring.names().await?.0);
    Ok(if names.is_empty() { vec![or.clone()] } else { names })
}
