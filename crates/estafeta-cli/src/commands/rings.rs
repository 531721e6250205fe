//! `estafeta rings`: lists the rings in a Redis.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use estafeta::{Endpoint, Error, Health, Ring, RingName, Role, Snapshot};
use estafeta_lab::partitions::{Partitions, whole_names};
use estafeta_lab::report::json_line;
use estafeta_lab::text::grouped;
use serde_json::json;

use super::is_closed_pipe;
use crate::find_redis;
use crate::settings::Reach;

/// One line of the list.
struct RingRow {
    ring: String,
    partitions: usize,
    application: Option<String>,
    /// The ring, or why it cannot be read.
    snapshot: Result<Snapshot, &'static str>,
}

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let endpoint = find_redis::existing(&reach.redis)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (rows, complete) = runtime.block_on(async {
        let (names, complete) = Ring::connect(endpoint.clone(), reach.ring.clone()).await?.names().await?;
        let mut rows = Vec::new();
        for name in whole_names(names) {
            rows.push(RingRow::read(endpoint.clone(), name).await?);
        }
        Ok::<_, Error>((rows, complete))
    })?;
    match print(&rows, as_json) {
        Err(error) if !is_closed_pipe(&error) => return Err(error.into()),
        _ => {}
    }
    if !complete {
        let _ = writeln!(
            io::stderr(),
            "estafeta: this Redis has very many keys, so the list may lack some rings"
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl RingRow {
    /// Fails if Redis does not answer.
    async fn read(endpoint: Endpoint, name: RingName) -> estafeta::Result<Self> {
        let (mut partitions, mut application) = (1, None);
        let read = async {
            let rings = Partitions::of_damaged(Ring::connect(endpoint, name.clone()).await?).await?;
            partitions = rings.all.len();
            application = rings.all[0].application().await.ok().flatten();
            rings.snapshot().await
        };
        let snapshot = match read.await {
            Ok(snapshot) => Ok(snapshot),
            Err(Error::Layout { .. }) => Err("belongs to another version of estafeta"),
            Err(error @ Error::Unreachable { .. }) => return Err(error),
            Err(_) => Err("cannot be read"),
        };
        Ok(Self { ring: name.to_string(), partitions, application, snapshot })
    }

    /// How many nodes are alive. Readers do not count. A node is a member of each partition, so the partition with the
    /// most members shows how many there are.
    fn nodes(&self) -> usize {
        let members = self.snapshot.iter().flat_map(|snapshot| &snapshot.members);
        let alive = members.filter(|member| member.role != Role::Reader && member.state == Health::Alive);
        let mut nodes = BTreeMap::<Option<u32>, usize>::new();
        alive.for_each(|member| *nodes.entry(member.id.partition()).or_default() += 1);
        nodes.into_values().max().unwrap_or(0)
    }
}

fn print(rows: &[RingRow], as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        for row in rows {
            let count = |of: fn(&Snapshot) -> u64| row.snapshot.as_ref().ok().map(of);
            let object = json!({
                "ring": row.ring,
                "partitions": row.partitions,
                "application": row.application,
                "nodes": row.snapshot.as_ref().ok().map(|_| row.nodes()),
                "published": count(|snapshot| snapshot.published),
                "waiting": count(|snapshot| snapshot.waiting),
                "later": count(|snapshot| snapshot.later),
                "inFlight": count(|snapshot| snapshot.in_flight),
                "errorsKept": count(|snapshot| snapshot.errors_kept),
            });
            writeln!(out, "{}", json_line(&object))?;
        }
        return out.flush();
    }
    if rows.is_empty() {
        return writeln!(out, "no rings");
    }
    let width = rows.iter().map(|row| row.ring.len()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{:<width$}  {:>6}  {:>12}  {:>10}  {:>10}  {:>10}  application",
        "ring", "nodes", "published", "waiting", "later", "errors"
    )?;
    for row in rows {
        let application = estafeta_lab::escape::escape(row.application.as_deref().unwrap_or("-").as_bytes());
        match &row.snapshot {
            Ok(snapshot) => writeln!(
                out,
                "{:<width$}  {:>6}  {:>12}  {:>10}  {:>10}  {:>10}  {application}",
                row.ring,
                row.nodes(),
                grouped(snapshot.published),
                grouped(snapshot.waiting),
                grouped(snapshot.later),
                grouped(snapshot.errors_kept),
            )?,
            Err(why) => writeln!(out, "{:<width$}  {why}", row.ring)?,
        }
    }
    out.flush()
}
