//! The errors view: scrolls, searches, retries and drops the kept errors.
//!
//! The view never changes the errors itself. It returns a request, and the page that answers it arrives later. Until
//! then the view shows the old page. A retry or a drop works only on a page that matches the current search text, so it
//! never touches errors that the user did not mean. Every drop, and a retry of all shown errors, asks the user first.

use estafeta::DeadLetter;

use crate::model::command::{MonitorCommand, Movement};
use crate::model::effect::ErrorsRequest;
use estafeta_lab::text::counted;

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
    pub answer: Option<String>,
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
                self.answer =
                    Some("this monitor only watches; `estafeta errors` retries and drops".to_owned());
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
    fn chosen(&self, all: bool) -> Option<Vec<u64>> {
        let page = self.page.as_ref().filter(|page| page.text == self.text)?;
        let errors = if all { &page.errors[..] } else { page.errors.get(self.at..=self.at)? };
        let ids: Vec<u64> = errors.iter().map(|error| error.id).collect();
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

    /// Shows a new page. The selection stays on the same error if the page still has it.
    pub fn show(&mut self, page: Page) {
        let selected = self.selected().map(|error| (error.id, error.failed_ms));
        let found = page.errors.iter().position(|error| Some((error.id, error.failed_ms)) == selected);
        self.at = found.unwrap_or(self.at).min(page.errors.len().saturating_sub(1));
        self.page = Some(page);
    }

    /// The question to the user, in words.
    pub fn question(&self) -> Option<String> {
        Some(match self.question.as_ref()? {
            ErrorsRequest::Retry(ids) => format!("retry {}? y/n", counted(ids.len() as u64, "error")),
            ErrorsRequest::Drop(ids) => format!("drop {} for good? y/n", counted(ids.len() as u64, "error")),
            ErrorsRequest::List(_) => return None,
        })
    }
}
