//! The options about commands of the user, checked together.

use std::time::Duration;

use anyhow::Result;
use estafeta::{Missed, Overlap, Schedule, ScheduleEntry};
use estafeta_exec::{CommandLine, LineForm};

use super::wrong;
use crate::cli::{DEFAULT_ZONE, MissedTicks, OverlapRule, PrintedLines, RunArgs};
use crate::work::{HandlerCommand, SourceCommand, WorkSettings};

/// The most messages that one process may have in hand.
const MOST_IN_HAND: usize = 1024;
/// The longest time for which Redis keeps a result.
const LONGEST_RESULT: Duration = Duration::from_secs(315_576_000);
/// The name of the only entry of a schedule that a command makes.
const ENTRY: &str = "generate";

impl RunArgs {
    /// The commands of the user. None if this is a node of the demo.
    pub fn work(&self) -> Result<Option<WorkSettings>> {
        let (handler, source) = (self.handler()?, self.source()?);
        if handler.is_none() && source.is_none() {
            let needless = [
                ("results", self.results.is_some()),
                ("retry", self.retry.is_some()),
                ("app", self.app.is_some()),
            ];
            refuse(&needless, "a command with it, such as --handle", "none")?;
            return Ok(None);
        }
        // Such a command would never run.
        let idle = [
            ("never-handle", self.never_handle == Some(true) && handler.is_some()),
            ("never-generate", self.never_generate == Some(true) && source.is_some()),
        ];
        refuse(&idle[..1], "neither --handle nor --handle-lines with it", "one of them")?;
        refuse(&idle[1..], "none of --generate, --feed and --feed-plain with it", "one of them")?;
        let of_demo = [
            ("error-rate", self.error_rate.is_some()),
            ("work-per-char", self.work_per_char.is_some()),
            ("seed", self.seed.is_some()),
            ("interval", self.interval.is_some()),
        ];
        refuse(&of_demo, "it only in the demo", "a command of your own")?;
        let results = self.results.map(|time| time.0);
        if let Some(time) = results.filter(|time| time.is_zero() || *time > LONGEST_RESULT) {
            let got = format!("'{}'", crate::duration::HumanDuration(time));
            return Err(wrong("results", "1ms to 10 years", &got));
        }
        Ok(Some(WorkSettings { handler, source, results }))
    }

    fn handler(&self) -> Result<Option<HandlerCommand>> {
        let handler = match (parse("handle", &self.handle)?, parse("handle-lines", &self.handle_lines)?) {
            (Some(_), Some(_)) => return Err(wrong("handle-lines", "--handle or --handle-lines", "both")),
            (Some(command), None) => Some(HandlerCommand::PerMessage(command)),
            (None, Some(command)) => {
                let in_hand = self.in_hand.unwrap_or(1);
                if !(1..=MOST_IN_HAND).contains(&in_hand) {
                    return Err(wrong("in-hand", &format!("1 to {MOST_IN_HAND}"), &format!("'{in_hand}'")));
                }
                Some(HandlerCommand::Lines { command, in_hand })
            }
            (None, None) => None,
        };
        if !matches!(handler, Some(HandlerCommand::Lines { .. })) {
            refuse(&[("in-hand", self.in_hand.is_some())], "--handle-lines with it", "none")?;
        }
        Ok(handler)
    }

    fn source(&self) -> Result<Option<SourceCommand>> {
        let sources = [("generate", &self.generate), ("feed", &self.feed), ("feed-plain", &self.feed_plain)];
        let mut given = sources.into_iter().filter(|(_, text)| text.is_some());
        let source = match (given.next(), given.next()) {
            (_, Some((name, _))) => {
                return Err(wrong(name, "one of --generate, --feed and --feed-plain", "several"));
            }
            (Some((name, text)), None) => parse(name, text)?.map(|command| (name, command)),
            (None, None) => None,
        };
        let is_generate = source.as_ref().is_some_and(|(name, _)| *name == "generate");
        if !is_generate {
            let needless = [
                ("every", self.every.is_some()),
                ("cron", self.cron.is_some()),
                ("lines", self.lines.is_some()),
                ("overlap", self.overlap.is_some()),
            ];
            refuse(&needless, "--generate with it", "none")?;
        }
        if self.cron.is_none() {
            refuse(&[("tz", self.tz.is_some())], "--cron with it", "none")?;
        }
        Ok(match source {
            None => None,
            Some(("feed", command)) => Some(SourceCommand::Feed { command, has_checkpoints: true }),
            Some(("feed-plain", command)) => Some(SourceCommand::Feed { command, has_checkpoints: false }),
            Some((_, command)) => {
                let form = match self.lines.unwrap_or(PrintedLines::Plain) {
                    PrintedLines::Plain => LineForm::Plain,
                    PrintedLines::Json => LineForm::Json,
                };
                // The entry cannot be kept, because it belongs to one node.
                let _ = self.entry()?;
                Some(SourceCommand::Tick { command, form, times: Box::new(self.clone()) })
            }
        })
    }

    /// The times of a command that runs once per tick.
    pub fn entry(&self) -> Result<ScheduleEntry> {
        let entry = match (&self.every, &self.cron) {
            (Some(every), None) => Schedule::every(ENTRY, every.0),
            (None, Some(cron)) => Schedule::cron(ENTRY, cron, self.tz.as_deref().unwrap_or(DEFAULT_ZONE)),
            (None, None) => return Err(wrong("generate", "--every or --cron with it", "neither")),
            (Some(_), Some(_)) => return Err(wrong("cron", "--every or --cron", "both")),
        };
        let entry = entry.map_err(|error| match error {
            estafeta::Error::Expected { what: "interval", expected, got } => {
                estafeta::Error::Expected { what: "every", expected, got }
            }
            estafeta::Error::Expected { what: "time zone", expected, got } => {
                estafeta::Error::Expected { what: "tz", expected, got }
            }
            estafeta::Error::Expected { expected, got, .. } => {
                estafeta::Error::Expected { what: "cron", expected, got }
            }
            other => other,
        })?;
        let entry = match self.missed {
            None => entry,
            Some(MissedTicks::Skip) => entry.missed(Missed::Skip),
            Some(MissedTicks::CatchUp) => entry.missed(Missed::All),
        };
        Ok(match self.overlap.unwrap_or(OverlapRule::Queue) {
            OverlapRule::Queue => entry,
            OverlapRule::Skip => entry.overlap(Overlap::Skip),
        })
    }
}

fn parse(name: &'static str, text: &Option<String>) -> Result<Option<CommandLine>> {
    let parse = |text: &String| {
        CommandLine::parse(text).map_err(|expected| wrong(name, &expected, &format!("'{text}'")))
    };
    text.as_ref().map(parse).transpose()
}

/// Fails if one of these options was given.
fn refuse(options: &[(&'static str, bool)], expected: &str, got: &str) -> Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(wrong(name, expected, got)),
        None => Ok(()),
    }
}
