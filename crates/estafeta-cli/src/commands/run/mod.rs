//! `estafeta run`: one copy of the ring, until it is told to stop.

mod control;
mod human;
mod json;
mod totals;
mod work;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Failure, Handler, Message, Node, Notice, Observer};
use tokio_util::sync::CancellationToken;

use super::is_closed_pipe;
use crate::cli::RunArgs;
use crate::find_redis;
use crate::output::{Paint, colour_for};
use crate::printer::Printer;
use crate::record::Recorder;
use crate::settings::{Reach, Speech};
use crate::signals::{self, told_to_stop};
use human::Human;
use json::Json;
use work::{FaultFinder, RandomText};

pub fn run(reach: &Reach, args: RunArgs) -> Result<ExitCode> {
    let (work, speech) = (args.work()?, args.speech()?);
    // Checked before Redis is looked for: a wrong option is told first, and nothing is started for it.
    args.config("redis://127.0.0.1".parse()?, reach.ring.clone())?;
    let endpoint = find_redis::endpoint(&reach.redis)?;
    let config = args.config(endpoint, reach.ring.clone())?;

    let stop = CancellationToken::new();
    let printer = Printer::start(std::io::stdout(), stop.clone());
    let voice = Arc::new(match speech {
        Speech::Json { brief } => Voice::Json(Json::new(printer.clone(), brief)),
        Speech::Human => Voice::Human(Human::new(printer.clone(), Paint(colour_for(&std::io::stdout())))),
    });
    let recorder = args.record.as_deref().map(|path| {
        let recorder = Recorder::open(path, stop.clone());
        recorder.with_context(|| format!("cannot write the record {}", path.display()))
    });
    let recorder = recorder.transpose()?.map(Arc::new);
    let handler = Recorded { inner: FaultFinder::new(&work), recorder: recorder.clone() };
    let observer = Recorded { inner: Shared(Arc::clone(&voice)), recorder: recorder.clone() };
    let member = Node::new(config, RandomText::new(&work), handler, observer);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(obey_signals(stop.clone()));
        tokio::spawn(tick(Arc::clone(&voice)));
        if args.control == Some(true) {
            control::listen(stop.clone());
        }
        member.run(stop.cancelled_owned()).await
    });
    if let Voice::Json(json) = &*voice {
        json.say_last_totals();
    }
    let printed = printer.finish();
    // A handler that does not end is not waited for: its message went back to the queue.
    runtime.shutdown_background();
    outcome?;
    if let Some(recorder) = recorder {
        recorder.finish().context("cannot write the record, so the copy stopped")?;
    }
    match printed {
        Err(error) if !is_closed_pipe(&error) => {
            Err(error).context("cannot write to stdout, so the copy stopped")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

enum Voice {
    Human(Human),
    Json(Json),
}

struct Shared(Arc<Voice>);

impl Observer for Shared {
    fn notice(&self, notice: Notice<'_>) {
        match &*self.0 {
            Voice::Human(human) => human.notice(notice),
            Voice::Json(json) => json.notice(notice),
        }
    }
}

/// Something whose steps are recorded, if that was asked for.
struct Recorded<T> {
    inner: T,
    recorder: Option<Arc<Recorder>>,
}

impl<O: Observer> Observer for Recorded<O> {
    fn notice(&self, notice: Notice<'_>) {
        if let Some(recorder) = &self.recorder {
            recorder.notice(&notice);
        }
        self.inner.notice(notice);
    }
}

impl<H: Handler> Handler for Recorded<H> {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        if let Some(recorder) = &self.recorder {
            recorder.begins(message);
        }
        self.inner.handle(message).await
    }
}

async fn tick(voice: Arc<Voice>) {
    match &*voice {
        Voice::Human(human) => loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            human.tick();
        },
        Voice::Json(json) => json.say_late_totals().await,
    }
}

/// Signals that come as close together as this are one.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// The first signal stops the copy in stages, the second one at once.
async fn obey_signals(stop: CancellationToken) {
    told_to_stop().await;
    stop.cancel();
    // Some senders, `timeout` among them, signal both the process and its group: that is one request, not two.
    tokio::time::sleep(SAME_SIGNAL).await;
    let signal = told_to_stop().await;
    std::process::exit(signals::exit_code(signal).into());
}
