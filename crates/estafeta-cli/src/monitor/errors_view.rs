//! The view of the kept errors: scroll, search, retry, drop.

use estafeta::FailedMessage;

use super::act::{Command, Step};
use super::state::Errand;
use crate::output::counted;

/// What was fetched of the errors.
#[derive(Default)]
pub struct Page {
    /// Newest first.
    pub errors: Vec<FailedMessage>,
    /// How many are kept in all.
    pub kept: u64,
    /// How many of them, from the newest on, were looked at.
    pub searched: u64,
}

#[derive(Default)]
pub struct ErrorsView {
    /// None until the first page has come.
    pub page: Option<Page>,
    /// The selected error, by its index in the page.
    pub at: usize,
    /// What is searched for.
    pub text: String,
    /// Whether it is being typed.
    pub typing: bool,
    /// What was asked of the user.
    pub question: Option<Errand>,
    /// What came of the last errand.
    pub answer: Option<String>,
}

impl ErrorsView {
    /// None where the command is not for this view.
    pub fn command(&mut self, command: Command) -> Option<Errand> {
        if let Some(errand) = self.question.take() {
            return (command == Command::Confirm(true)).then_some(errand);
        }
        self.answer = None;
        if self.typing {
            return self.type_text(command);
        }
        match command {
            Command::Move(step) => self.go(step),
            Command::Choose(index) => self.at = index.min(self.count().saturating_sub(1)),
            Command::Search => self.typing = true,
            Command::Retry { all } => return self.ask(all, Errand::Retry),
            Command::Drop { all } => return self.ask(all, Errand::Drop),
            Command::Back if !self.text.is_empty() => {
                self.text.clear();
                return Some(self.list());
            }
            _ => return None,
        }
        None
    }

    /// Whether Esc and the like are still for this view.
    pub fn is_busy(&self) -> bool {
        self.typing || self.question.is_some() || !self.text.is_empty()
    }

    fn type_text(&mut self, command: Command) -> Option<Errand> {
        match command {
            Command::Type(letter) => self.text.push(letter),
            Command::Erase => drop(self.text.pop()),
            Command::Enter => self.typing = false,
            Command::Back => {
                self.typing = false;
                self.text.clear();
            }
            Command::Move(step) => {
                self.go(step);
                return None;
            }
            _ => return None,
        }
        Some(self.list())
    }

    pub fn list(&self) -> Errand {
        Errand::List(self.text.clone())
    }

    /// One error is worked on at once; for all of them there is a question first.
    fn ask(&mut self, all: bool, errand: fn(Vec<u64>) -> Errand) -> Option<Errand> {
        let errors = &self.page.as_ref()?.errors;
        if all {
            let ids: Vec<u64> = errors.iter().map(|error| error.id).collect();
            self.question = (!ids.is_empty()).then(|| errand(ids));
            return None;
        }
        errors.get(self.at).map(|error| errand(vec![error.id]))
    }

    fn go(&mut self, step: Step) {
        self.at = step.from(self.at, self.count());
    }

    pub fn count(&self) -> usize {
        self.page.as_ref().map_or(0, |page| page.errors.len())
    }

    pub fn selected(&self) -> Option<&FailedMessage> {
        self.page.as_ref()?.errors.get(self.at)
    }

    /// A page has come. The selection stays with its error.
    pub fn show(&mut self, page: Page) {
        let selected = self.selected().map(|error| (error.id, error.failed_ms));
        let found = page.errors.iter().position(|error| Some((error.id, error.failed_ms)) == selected);
        self.at = found.unwrap_or(self.at).min(page.errors.len().saturating_sub(1));
        self.page = Some(page);
    }

    /// What is asked, in words.
    pub fn question(&self) -> Option<String> {
        Some(match self.question.as_ref()? {
            Errand::Retry(ids) => format!("retry {}? y/n", counted(ids.len() as u64, "error")),
            Errand::Drop(ids) => format!("drop {} for good? y/n", counted(ids.len() as u64, "error")),
            Errand::List(_) => return None,
        })
    }
}
