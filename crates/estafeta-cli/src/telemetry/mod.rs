//! What a node shows to those that supervise it: metrics, health, messages to systemd, and traces.
//!
//! All of it is about this node only. The totals of a ring come from one place, because every dashboard would add up
//! what each node reports.

mod connection_limit;
mod health;
mod metrics;
mod server;
mod systemd;
#[cfg(feature = "otel")]
pub mod traces;

use std::sync::Arc;

use anyhow::Result;
use estafeta::{Config, Node};

use health::NodeHealth;
use metrics::NodeMetrics;
use systemd::ServiceManager;

/// Watches a node for its supervisors. If `address` is given, it serves metrics and health there.
pub fn attach(mut node: Node, config: &Config, address: Option<&str>) -> Result<Node> {
    if let Some(manager) = ServiceManager::from_environment(config.ring.to_string()) {
        node = node.observe_each(move |partition, notice| manager.notice(partition, notice));
    }
    let Some(address) = address else { return Ok(node) };
    let health = Arc::new(NodeHealth::new(config.lease, config.partitions));
    let metrics = Arc::new(NodeMetrics::new(config));
    server::start(address, Arc::clone(&health), Arc::clone(&metrics))?;
    let handling = Arc::clone(&metrics);
    Ok(node
        .wrap(move |job, next| {
            let busy = handling.lane_begins();
            async move {
                let outcome = next.run(job).await;
                drop(busy);
                outcome
            }
        })
        .observe_each(move |partition, notice| {
            health.notice(partition.index, notice);
            metrics.notice(partition.index, notice);
        }))
}
