//! Judges what a server reports about itself. Pure functions.

use super::facts::{ReplicaLine, ServerFacts};
use super::trial::Rights;
use super::{ServerFinding, Severity};

/// Sentinels subscribe to this channel on each server that they watch.
pub(super) const SENTINEL_CHANNEL: &str = "__sentinel__:hello";

/// A replica that is further behind than this would lose much in a failover.
const FAR_BEHIND_BYTES: u64 = 1024 * 1024;
const LONG_LAG_S: u64 = 10;
/// The share of the memory limit from which on a queue that grows is a danger.
const NEARLY_FULL: f64 = 0.8;

/// The findings that a node warns of when it starts.
pub(super) fn warnings(facts: &ServerFacts) -> Vec<String> {
    let only = |finding: ServerFinding, least: Severity| (finding.severity >= least).then_some(finding);
    let findings = [
        only(eviction(facts), Severity::Warning),
        only(persistence(facts), Severity::Broken),
        facts.is_replica().then(|| replica(facts)),
    ];
    findings.iter().flatten().map(ServerFinding::sentence).collect()
}

pub(super) fn version(facts: &ServerFacts) -> ServerFinding {
    let redis = facts.text("redis_version").unwrap_or_else(|| "of an unknown version".into());
    let found = match (facts.text("server_name").as_deref(), facts.text("valkey_version")) {
        (Some("valkey"), Some(valkey)) => format!("Valkey {valkey}, compatible with Redis {redis}"),
        _ => format!("Redis {redis}"),
    };
    // A connection refuses older servers, so there is nothing left to judge.
    ServerFinding::good("version", found, "the scripts of estafeta run on it")
}

/// `other` is what a second connection to the same address reports.
pub(super) fn topology(
    facts: &ServerFacts,
    other: &ServerFacts,
    sentinels: u64,
    through_sentinels: bool,
) -> ServerFinding {
    let topology = "topology";
    let (one, two) = (facts.text("run_id"), other.text("run_id"));
    if one.is_some() && two.is_some() && one != two {
        let found = "two connections to this address reached two servers";
        return ServerFinding::broken(topology, found, "a ring must be on one server at a time")
            .remedy("connect to the master itself, not through a balancer");
    }
    if facts.is_replica() {
        return replica(facts);
    }
    if facts.number("cluster_enabled") == Some(1) {
        return ServerFinding::good(
            topology,
            "a node of a cluster",
            "a ring is on one node of the cluster at a time",
        );
    }
    if sentinels > 0 {
        let found = format!("a master that {sentinels} sentinels watch");
        return match through_sentinels {
            true => ServerFinding::good(topology, found, "nodes follow a failover"),
            false => {
                let meaning = "after a failover, nodes stay with the old master";
                let remedy = "name the sentinels: redis+sentinel://host:26379,host:26379/name";
                ServerFinding::warning(topology, found, meaning).remedy(remedy)
            }
        };
    }
    match facts.number("connected_slaves") {
        None => ServerFinding::unknown(topology, "not shown", "this may be a proxy"),
        Some(0) => ServerFinding::good(topology, "a single server", "if it fails, the ring stands still"),
        Some(replicas) => ServerFinding::good(
            topology,
            format!("a master with {}", counted(replicas, "replica")),
            "if it fails, an operator must promote a replica",
        ),
    }
}

fn replica(facts: &ServerFacts) -> ServerFinding {
    let host = facts.text("master_host").unwrap_or_else(|| "unknown".into());
    let port = facts.text("master_port").unwrap_or_default();
    let found = format!("a replica of {host}:{port}");
    ServerFinding::broken("topology", found, "this Redis is a replica and accepts no writes")
        .remedy("connect to its master")
}

pub(super) fn persistence(facts: &ServerFacts) -> ServerFinding {
    let persistence = "persistence";
    let failed = |field: &str| facts.text(field).as_deref() == Some("err");
    let stands = "Redis refuses writes, so the ring stands still";
    if failed("aof_last_write_status") {
        return ServerFinding::broken(persistence, "the append-only file cannot be written", stands)
            .remedy("free disk space, and read the log of the server");
    }
    let stops = facts.setting("stop-writes-on-bgsave-error") != Some("no");
    if failed("rdb_last_bgsave_status") && stops {
        return ServerFinding::broken(persistence, "the last snapshot failed", stands)
            .remedy("free disk space and memory, and read the log of the server");
    }
    match (facts.number("aof_enabled"), facts.setting("save"), facts.setting("appendfsync")) {
        (Some(1), _, Some("always")) => ServerFinding::good(
            persistence,
            "append-only file, appendfsync always",
            "every answer is on disk before a node sees it",
        ),
        (Some(1), _, Some("no")) => ServerFinding::warning(
            persistence,
            "append-only file, appendfsync no",
            "a power cut may lose half a minute, and the ring counts it as lost",
        )
        .remedy("set appendfsync everysec, or always"),
        (Some(1), ..) => ServerFinding::good(
            persistence,
            "append-only file",
            "a crash of Redis loses nothing; a power cut may lose the last second",
        ),
        (Some(_), Some(""), _) => ServerFinding::broken(
            persistence,
            "neither an append-only file nor snapshots",
            "a restart of Redis loses the ring",
        )
        .remedy("set appendonly yes, or save"),
        (Some(_), Some(save), _) => ServerFinding::warning(
            persistence,
            format!("snapshots only (save {save})"),
            "a crash of Redis loses what came after the last snapshot",
        )
        .remedy("set appendonly yes"),
        (Some(_), None, _) => ServerFinding::unknown(
            persistence,
            "no append-only file; CONFIG GET is refused, so snapshots are not known",
            "a crash of Redis may lose the ring",
        )
        .remedy("set appendonly yes"),
        (None, ..) => ServerFinding::unknown(
            persistence,
            "not shown",
            "what a restart of Redis loses cannot be seen from here",
        ),
    }
}

pub(super) fn eviction(facts: &ServerFacts) -> ServerFinding {
    let Some(policy) = facts.text("maxmemory_policy") else {
        return ServerFinding::unknown("eviction", "not shown", "Redis might evict keys of the ring");
    };
    let found = format!("maxmemory-policy {policy}");
    if policy == "noeviction" {
        return ServerFinding::good("eviction", found, "Redis never evicts a key of the ring");
    }
    let victims =
        if policy.starts_with("volatile") { "publish keys and results" } else { "keys of the ring" };
    let meaning = format!("Redis may evict {victims} when its memory is full");
    let finding = match facts.number("maxmemory") {
        // Without a limit it is never full.
        Some(0) => ServerFinding::warning("eviction", found, meaning),
        _ => ServerFinding::broken("eviction", found, meaning),
    };
    finding.remedy("set maxmemory-policy noeviction")
}

pub(super) fn memory(facts: &ServerFacts) -> ServerFinding {
    let Some(used) = facts.number("used_memory") else {
        return ServerFinding::unknown("memory", "not shown", "publishing stops when memory is full");
    };
    let limit = facts.number("maxmemory").unwrap_or(0);
    let machine = facts.number("total_system_memory").filter(|total| *total > 0);
    let mut figures = vec![("usedBytes", used as f64), ("limitBytes", limit as f64)];
    figures.extend(machine.map(|total| ("machineBytes", total as f64)));
    let finding = match (limit, machine) {
        (0, Some(machine)) if used as f64 > machine as f64 * NEARLY_FULL => ServerFinding::warning(
            "memory",
            format!("{} of {} of the machine in use, without a limit", mib(used), mib(machine)),
            "the operating system may kill Redis",
        )
        .remedy("set maxmemory below the memory of the machine"),
        (0, _) => ServerFinding::good(
            "memory",
            format!("{} in use, without a limit", mib(used)),
            "the machine is the limit; bound the queue with --max-waiting",
        ),
        (limit, _) if used >= limit => ServerFinding::broken(
            "memory",
            format!("{} in use, and the limit is {}", mib(used), mib(limit)),
            "nothing can be published until handlers have emptied the queue",
        )
        .remedy("take the errors, or raise maxmemory"),
        (limit, _) if used as f64 > limit as f64 * NEARLY_FULL => ServerFinding::warning(
            "memory",
            format!("{} of {} in use", mib(used), mib(limit)),
            "publishing stops soon if the queue grows",
        )
        .remedy("take the errors, or raise maxmemory"),
        (limit, _) => ServerFinding::good(
            "memory",
            format!("{} of {} in use", mib(used), mib(limit)),
            "there is room for messages to wait",
        ),
    };
    finding.figures(figures)
}

pub(super) fn replicas(facts: &ServerFacts) -> ServerFinding {
    let Some(count) = facts.number("connected_slaves").filter(|_| !facts.is_replica()) else {
        return ServerFinding::unknown("replicas", "not shown", "only a master shows its replicas");
    };
    let replicas = facts.replicas();
    let lag = replicas.iter().map(|replica| replica.lag_s).max().unwrap_or(0);
    let behind = replicas.iter().map(|replica| replica.behind_bytes).max().unwrap_or(0);
    let figures = [("count", count as f64), ("lagS", lag as f64), ("behindBytes", behind as f64)];
    let bad = |replica: &&ReplicaLine| {
        !replica.is_online || replica.lag_s > LONG_LAG_S || replica.behind_bytes > FAR_BEHIND_BYTES
    };
    let bad: Vec<&str> = replicas.iter().filter(bad).map(|replica| replica.address.as_str()).collect();
    let finding = match (count, bad.is_empty()) {
        (0, _) => ServerFinding::good("replicas", "none", "only the disk of this server keeps the ring"),
        (_, true) => ServerFinding::good(
            "replicas",
            format!("{}, at most {lag} s and {behind} bytes behind", counted(count, "replica")),
            "a failover loses at most what they do not have yet, and the ring counts it as lost",
        ),
        (_, false) => ServerFinding::warning(
            "replicas",
            format!("{}, of which {} lag behind", counted(count, "replica"), bad.join(" and ")),
            "a failover to one of them would lose much",
        )
        .remedy("look at the network and the load of these replicas"),
    };
    finding.figures(figures)
}

pub(super) fn min_replicas(facts: &ServerFacts, rights: &Rights) -> ServerFinding {
    let subject = "minReplicas";
    let wanted = facts.setting("min-replicas-to-write").and_then(|wanted| wanted.parse::<u64>().ok());
    let good = facts.number("min_slaves_good_slaves");
    let is_unmet = wanted.zip(good).is_some_and(|(wanted, good)| good < wanted);
    if is_unmet || rights.obstacle().is_some_and(|reason| reason.starts_with("NOREPLICAS")) {
        let found = "fewer good replicas than min-replicas-to-write asks for";
        return ServerFinding::broken(subject, found, "Redis refuses writes, so the ring stands still")
            .remedy("bring the replicas back, or lower min-replicas-to-write");
    }
    let isolated = "a master that is cut off from its replicas stops accepting writes";
    match (wanted, good, facts.number("connected_slaves").unwrap_or(0)) {
        (Some(wanted), ..) if wanted > 0 => {
            ServerFinding::good(subject, format!("min-replicas-to-write {wanted}"), isolated)
        }
        (None, Some(_), _) => ServerFinding::good(subject, "min-replicas-to-write is set", isolated),
        (_, _, 0) => ServerFinding::good(subject, "not set", "there is no replica that could wait for it"),
        (Some(_), ..) => ServerFinding::warning(
            subject,
            "not set",
            "a master that is cut off goes on accepting writes, which a failover then loses",
        )
        .remedy("set min-replicas-to-write 1"),
        (None, ..) => ServerFinding::unknown(
            subject,
            "not shown",
            "a master that is cut off may go on accepting writes, which a failover then loses",
        )
        .remedy("set min-replicas-to-write 1"),
    }
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

#[cfg(test)]
mod tests;
