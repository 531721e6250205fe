//! The view of the kept errors: scroll, search, retry, drop.

use estafeta::DeadLetter;

use super::act::{Command, Step};
use super::state::Errand;
use crate::output::counted;

/// What was fetched of the errors.
#[derive(Default)]
pub struct Page {
    /// What they were searched for.
    pub text: String,
    /// Newest first.
    pub errors: Vec<DeadLetter>,
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
    /// The selected error has the whole window.
    pub wide: bool,
}

impl ErrorsView {
    /// None where the command is not for this view.
    pub fn command(&mut self, command: Command, only_watching: bool) -> Option<Errand> {
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
            Command::Enter => self.wide = !self.wide,
            Command::Retry { .. } | Command::Drop { .. } if only_watching => {
                self.answer = Some("only watching (--attach): `estafeta errors` works on them".to_owned());
            }
            Command::Retry { all: false } => return self.chosen(false).map(Errand::Retry),
            Command::Retry { all: true } => self.question = self.chosen(true).map(Errand::Retry),
            Command::Drop { all } => self.question = self.chosen(all).map(Errand::Drop),
            Command::Back if self.wide => self.wide = false,
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
        self.typing || self.wide || self.question.is_some() || !self.text.is_empty()
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

    /// The ids of the selected error or of all that are shown; none while the page is not what was searched for.
    fn chosen(&self, all: bool) -> Option<Vec<u64>> {
        let page = self.page.as_ref().filter(|page| page.text == self.text)?;
        let errors = if all { &page.errors[..] } else { page.errors.get(self.at..=self.at)? };
        let ids: Vec<u64> = errors.iter().map(|error| error.id).collect();
        (!ids.is_empty()).then_some(ids)
    }

    fn go(&mut self, step: Step) {
        self.at = step.from(self.at, self.count());
    }

    pub fn count(&self) -> usize {
        self.page.as_ref().map_or(0, |page| page.errors.len())
    }

    pub fn selected(&self) -> Option<&DeadLetter> {
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
