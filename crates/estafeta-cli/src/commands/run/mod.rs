//! `estafeta run`: runs one node until it is asked to stop. Its work is that of the demo, or commands of the user.

mod control;
mod human;
mod json;
mod totals;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::{Endpoint, Node, Notice, Partition, Ring, RingName, Role};
use tokio_util::sync::CancellationToken;

use super::is_closed_pipe;
use crate::cli::RunArgs;
use crate::demo;
use crate::find_redis::{self, Creation};
use crate::settings::{OutputForm, Reach, wrong};
use crate::signals::{self, stop_signal};
use crate::telemetry;
use crate::work::WorkSettings;
use estafeta_lab::paint::{Paint, colour_for};
use estafeta_lab::printer::Printer;
use estafeta_lab::record::Recorder;
use human::HumanObserver;
use json::JsonObserver;

pub fn run(reach: &Reach, args: RunArgs) -> Result<ExitCode> {
    let (demo_settings, work, form) = (args.demo()?, args.work()?, args.output_form()?);
    work.as_ref().map_or(Ok(()), WorkSettings::check)?;
    // The options are checked before the search for Redis, because a wrong option must not start one.
    let checked = args.config("redis://127.0.0.1".parse()?, reach.ring.clone())?;
    if checked.partitions > 1 && args.record.is_some() {
        // A record names messages by their ids, which are those of one partition.
        return Err(wrong("record", "a ring with one partition", &format!("{}", checked.partitions)));
    }
    let endpoint = find_redis::find(&reach.redis, Creation::Allowed)?.endpoint;
    let config = args.config(endpoint.clone(), reach.ring.clone())?;
    let idle_work = match (config.never_generate, config.never_handle, config.generator_handles) {
        // A ring with the user's commands may well have publishers instead of a generator.
        _ if work.is_some() => None,
        (true, ..) => Some("generated"),
        (_, true, _) | (.., false) => Some("handled"),
        _ => None,
    };

    let stop = CancellationToken::new();
    let printer = Printer::start(std::io::stdout(), stop.clone());
    let output = Arc::new(match form {
        OutputForm::Json { brief } => NodeOutput::Json(JsonObserver::new(printer.clone(), brief)),
        OutputForm::Human => {
            let paint = Paint(colour_for(&std::io::stdout()));
            NodeOutput::Human(HumanObserver::new(printer.clone(), paint, &endpoint))
        }
    });
    let recorder = args.record.as_deref().map(|path| {
        let recorder = Recorder::open(path, stop.clone());
        recorder.with_context(|| format!("cannot write the record {}", path.display()))
    });
    let recorder = recorder.transpose()?.map(Arc::new);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(obey_signals(stop.clone()));
        tokio::spawn(tick(Arc::clone(&output)));
        if form == OutputForm::Human {
            tokio::spawn(hint(endpoint, reach.ring.clone(), Arc::clone(&output), idle_work));
        }
        if args.control == Some(true) {
            control::listen(stop.clone());
        }
        let settings = config.clone();
        let (node, running) = match work {
            None => (demo::node(config, demo_settings), None),
            Some(work) => work.node(config).map(|(node, running)| (node, Some(running)))?,
        };
        let node = telemetry::attach(node, &settings, args.metrics.as_deref())?;
        let node = observed(node, recorder.clone(), Arc::clone(&output));
        let mut stopping = None;
        let asked = async {
            stop.cancelled().await;
            stopping = Some(Instant::now());
        };
        let outcome = node.until(asked).await;
        if let Some(running) = running {
            running.stop(stopping.map_or(Duration::ZERO, |since| since.elapsed())).await;
        }
        outcome.map_err(anyhow::Error::from)
    });
    if let NodeOutput::Json(json) = &*output {
        json.report_last_totals();
    }
    let printed = printer.finish();
    // The program does not wait for a handler that does not end. Its message is back in the queue.
    runtime.shutdown_background();
    outcome?;
    if let Some(recorder) = recorder {
        recorder.finish().context("cannot write the record, so the node stopped")?;
    }
    match printed {
        Err(error) if !is_closed_pipe(&error) => {
            Err(error).context("cannot write to stdout, so the node stopped")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Where a node reports its events.
enum NodeOutput {
    Human(HumanObserver),
    Json(JsonObserver),
}

impl NodeOutput {
    fn notice(&self, partition: Partition, notice: &Notice<'_>) {
        let partition = (partition.count > 1).then_some(partition.index);
        match self {
            Self::Human(human) => human.notice(partition, notice),
            Self::Json(json) => json.notice(partition, notice),
        }
    }
}

/// The node with its output. Its steps are recorded before they are printed, if the user asked for a record.
fn observed(mut node: Node, recorder: Option<Arc<Recorder>>, output: Arc<NodeOutput>) -> Node {
    if let Some(recorder) = recorder {
        let handling = Arc::clone(&recorder);
        node = node.observe(move |notice| recorder.notice(notice)).wrap(move |job, next| {
            handling.begins(job.message());
            next.run(job)
        });
    }
    node.observe_each(move |partition, notice| output.notice(partition, notice))
}

async fn tick(output: Arc<NodeOutput>) {
    match &*output {
        NodeOutput::Human(human) => loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            human.tick();
        },
        NodeOutput::Json(json) => json.report_late_totals().await,
    }
}

/// How long a node may be alone in its ring before the user gets a hint.
const ALONE: Duration = Duration::from_secs(5);

/// Warns of dangerous settings of Redis, and later of a ring without other nodes. If something cannot be read, there is
/// no warning: the node itself reports a Redis that does not serve it. `idle_work` is what nobody does if the node is
/// alone.
async fn hint(endpoint: Endpoint, name: RingName, output: Arc<NodeOutput>, idle_work: Option<&str>) {
    let Ok(ring) = Ring::connect(endpoint, name).await else { return };
    for warning in ring.server_warnings().await.unwrap_or_default() {
        tracing::warn!("{warning}");
    }
    let Some(idle_work) = idle_work else { return };
    tokio::time::sleep(ALONE).await;
    // The nodes of a ring join all its partitions.
    let Ok(partitions) = ring.partitions().await else { return };
    let Ok(snapshot) = partitions[0].snapshot(0).await else { return };
    let nodes = snapshot.members.iter().filter(|member| member.role != Role::Reader).count();
    if let (NodeOutput::Human(human), 1) = (&*output, nodes) {
        human.hint_alone(idle_work);
    }
}

/// Two signals within this time count as one.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// The first signal stops the node in stages. The second one ends the process at once.
async fn obey_signals(stop: CancellationToken) {
    stop_signal().await;
    stop.cancel();
    // Some programs, such as `timeout`, signal both the process and its group. That is one request, not two.
    tokio::time::sleep(SAME_SIGNAL).await;
    let signal = stop_signal().await;
    std::process::exit(signals::exit_code(signal).into());
}
