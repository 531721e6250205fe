//! Reports what a node does to a program: one JSON object per line on stdout, as [`Report`] defines it.

use std::sync::atomic::{AtomicU64, Ordering};

use estafeta::{Message, Notice};
use estafeta_lab::printer::Printer;
use estafeta_lab::report::Report;

use super::totals::{ReportPace, RunningTotals, Total};

pub struct JsonObserver {
    printer: Printer,
    /// Whether to report nothing about single messages. This is for a program that follows many nodes at once.
    brief: bool,
    totals: RunningTotals,
    skipped: AtomicU64,
}

impl JsonObserver {
    pub fn new(printer: Printer, brief: bool) -> Self {
        let pace = if brief { ReportPace::TenPerSecond } else { ReportPace::EachStep };
        Self { printer, brief, totals: RunningTotals::new(pace), skipped: 0.into() }
    }

    /// Reports each pending total once its time has come, even if nothing more happens. Never returns.
    pub async fn report_late_totals(&self) {
        self.totals.report_late(|total| self.report_total(total)).await;
    }

    /// Reports the pending totals now. Called when nothing more can happen.
    pub fn report_last_totals(&self) {
        self.totals.report_rest(|total| self.report(None, total));
    }

    fn report(&self, partition: Option<u32>, report: &Report) {
        self.printer.print(report.line_in(partition));
    }

    /// Reports something that may be very frequent. If the reader is too slow, this skips reports, and later reports
    /// how many.
    fn report_if_room(&self, partition: Option<u32>, report: &Report) {
        if !self.printer.has_room() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        if skipped > 0 {
            self.report(None, &Report::Skipped { objects: skipped });
        }
        self.report(partition, report);
    }

    /// Returns false if the total must be reported later. A brief node keeps a total until there is room, because no
    /// other report shows its reader what is missing.
    fn report_total(&self, total: &Report) -> bool {
        if self.brief && !self.printer.has_room() {
            return false;
        }
        self.report_if_room(None, total);
        true
    }

    fn generated(&self, partition: Option<u32>, messages: &[Message]) {
        if !self.brief {
            let report = |message| self.report_if_room(partition, &Report::generated(message));
            messages.iter().for_each(report);
        }
        self.totals.add(Total::Generated, messages.len(), 0, |total| self.report_total(total));
    }

    fn settled(&self, partition: Option<u32>, messages: &[Message], failures: &[(usize, String)]) {
        if !self.brief {
            let mut failures = failures.iter().peekable();
            for (index, message) in messages.iter().enumerate() {
                let error =
                    failures.next_if(|(failed, _)| *failed == index).map(|(_, reason)| reason.clone());
                self.report_if_room(partition, &Report::handled(message, error));
            }
        }
        let (new, failed) = (messages.len(), failures.len());
        self.totals.add(Total::Processed, new, failed, |total| self.report_total(total));
    }
}

impl JsonObserver {
    /// Reports a notice, and its partition if the ring has several.
    pub fn notice(&self, partition: Option<u32>, notice: &Notice<'_>) {
        let report = |report: &Report| self.report(partition, report);
        match *notice {
            Notice::Joined { member } => report(&Report::CreatedTaskId { task_id: member }),
            Notice::DeclaredDead => report(&Report::DeclaredDead),
            Notice::BecameGenerator { epoch, from, silence } => {
                report(&Report::SwitchedToGeneratorMode);
                let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
                report(&Report::TookOffice { epoch, from, silence_ms });
            }
            Notice::BecameHandler => report(&Report::BecameHandler),
            Notice::Generated { messages } => self.generated(partition, messages),
            Notice::Settled { messages, failures, .. } => self.settled(partition, messages, failures),
            Notice::HandlerSlow { message, .. } => report(&Report::HandlerSlow { id: message.id }),
            Notice::HandlerStuck { message, stuck } => {
                report(&Report::HandlerStuck { id: message.id, stuck });
            }
            Notice::HandlerBroken { message, reason, rest } => {
                let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
                report(&Report::HandlerBroken { id: message.id, rest_ms, reason: reason.to_owned() });
            }
            Notice::Buried { member, returned, gave_up } => {
                report(&Report::Buried { member, returned, gave_up });
            }
            Notice::SourceFailed { reason, in_a_row, .. } => {
                report(&Report::SourceFailed { in_a_row, reason: reason.to_owned() });
            }
            Notice::LimitReached { limit } => report(&Report::LimitReached { limit }),
            Notice::RedisLost { reason } => report(&Report::RedisLost { reason: reason.to_owned() }),
            Notice::RedisBack => report(&Report::RedisBack),
            Notice::Stopping => report(&Report::Stopping),
            Notice::Left { returned } => {
                self.report_last_totals();
                report(&Report::Left { returned });
            }
            _ => {}
        }
    }
}
