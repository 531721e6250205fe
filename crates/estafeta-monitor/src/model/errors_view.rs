//! The errors view: scrolls, searches, retries and drops the kept errors.
//!
//! The view never changes the errors itself. It returns a request, and the page that answers it arrives later. Until
//! then the view shows the old page. A retry or a drop works only on a page that matches the current search text, so it
//! never touches errors that the user did not mean. Every drop, and a retry of all shown errors, asks the user first.

use estafeta::DeadLetter;
use estafeta_lab::message_id::MessageId;

use crate::model::command::{MonitorCommand, Movement};
use crate::model::request::ErrorsRequest;

/// The errors that one request fetched.
#[derive(Default)]
pub struct Page {
    /// The search text of the request.
    pub text: String,
    /// The errors that contain the text, newest first.
    pub errors: Vec<DeadLetter>,
    /// How many errors Redis keeps in all.
    pub kept: u64,
    /// How many of them the search read, newest first.
    pub searched: u64,
}

/// The result of a request to retry or drop errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorsAnswer {
    /// How many errors went back into the queue.
    Retried(u64),
    /// How many errors were deleted.
    Dropped(u64),
    Failed {
        reason: String,
    },
    /// The monitor only watches, so it made no request.
    OnlyWatching,
}

#[derive(Default)]
pub struct ErrorsView {
    /// None until the first page arrives.
    pub page: Option<Page>,
    /// The index of the selected error in the page.
    pub at: usize,
    /// The current search text.
    pub text: String,
    /// Whether the user is typing it.
    pub typing: bool,
    /// The request that the user must confirm.
    pub question: Option<ErrorsRequest>,
    /// The result of the last request.
    pub answer: Option<ErrorsAnswer>,
    /// Whether the selected error fills the whole window.
    pub wide: bool,
}

impl ErrorsView {
    /// Executes a command. Returns the request that it causes, if any.
    pub fn command(&mut self, command: MonitorCommand, only_watching: bool) -> Option<ErrorsRequest> {
        if let Some(request) = self.question.take() {
            return (command == MonitorCommand::Confirm(true)).then_some(request);
        }
        self.answer = None;
        if self.typing {
            return self.type_text(command);
        }
        match command {
            MonitorCommand::Move(step) => self.go(step),
            MonitorCommand::Choose(index) => self.at = index.min(self.count().saturating_sub(1)),
            MonitorCommand::Search => self.typing = true,
            MonitorCommand::Enter => self.wide = !self.wide,
            MonitorCommand::Retry { .. } | MonitorCommand::Drop { .. } if only_watching => {
                self.answer = Some(ErrorsAnswer::OnlyWatching);
            }
            MonitorCommand::Retry { all: false } => return self.chosen(false).map(ErrorsRequest::Retry),
            MonitorCommand::Retry { all: true } => {
                self.question = self.chosen(true).map(ErrorsRequest::Retry)
            }
            MonitorCommand::Drop { all } => self.question = self.chosen(all).map(ErrorsRequest::Drop),
            MonitorCommand::Back if self.wide => self.wide = false,
            MonitorCommand::Back if !self.text.is_empty() => {
                self.text.clear();
                return Some(self.list());
            }
            _ => return None,
        }
        None
    }

    /// Whether the view is in the middle of something, so that Esc and `e` do not close it.
    pub fn is_busy(&self) -> bool {
        self.typing || self.wide || self.question.is_some() || !self.text.is_empty()
    }

    fn type_text(&mut self, command: MonitorCommand) -> Option<ErrorsRequest> {
        match command {
            MonitorCommand::Type(letter) => self.text.push(letter),
            MonitorCommand::Erase => drop(self.text.pop()),
            MonitorCommand::Enter => self.typing = false,
            MonitorCommand::Back => {
                self.typing = false;
                self.text.clear();
            }
            MonitorCommand::Move(step) => {
                self.go(step);
                return None;
            }
            _ => return None,
        }
        Some(self.list())
    }

    /// The request for a new page.
    pub fn list(&self) -> ErrorsRequest {
        ErrorsRequest::List(self.text.clone())
    }

    /// The ids of the selected error or of all shown errors. None while the page does not match the search text.
    fn chosen(&self, all: bool) -> Option<Vec<MessageId>> {
        let page = self.page.as_ref().filter(|page| page.text == self.text)?;
        let errors = if all { &page.errors[..] } else { page.errors.get(self.at..=self.at)? };
        let ids: Vec<MessageId> = errors.iter().map(|error| MessageId::from(&error.message)).collect();
        (!ids.is_empty()).then_some(ids)
    }

    fn go(&mut self, step: Movement) {
        self.at = step.from(self.at, self.count());
    }

    pub fn count(&self) -> usize {
        self.page.as_ref().map_or(0, |page| page.errors.len())
    }

    pub fn selected(&self) -> Option<&DeadLetter> {
        self.page.as_ref()?.errors.get(self.at)
    }

    /// Shows the result of a request. Returns the request for a new page if the errors changed.
    pub fn show_answer(&mut self, answer: ErrorsAnswer) -> Option<ErrorsRequest> {
        let changed = matches!(answer, ErrorsAnswer::Retried(_) | ErrorsAnswer::Dropped(_));
        self.answer = Some(answer);
        changed.then(|| self.list())
    }

    /// Shows a new page. The selection stays on the same error if the page still has it.
    pub fn show(&mut self, page: Page) {
        let key = |error: &DeadLetter| (MessageId::from(&error.message), error.failed_ms);
        let selected = self.selected().map(key);
        let found = page.errors.iter().position(|error| Some(key(error)) == selected);
        self.at = found.unwrap_or(self.at).min(page.errors.len().saturating_sub(1));
        self.page = Some(page);
    }
}
