//! Which key asks for what. The keys of a Russian keyboard that lie in the same places do the same.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::act::{Command, Step};
use super::state::{State, View};

pub fn command(state: &State, key: KeyEvent) -> Option<Command> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Command::Quit),
            KeyCode::Char('z') => Some(Command::Suspend),
            _ => None,
        };
    }
    if state.help {
        // Any other key closes it.
        return anywhere(key.code).filter(|command| *command == Command::Quit).or(Some(Command::Back));
    }
    match &state.view {
        View::Errors(view) if view.question.is_some() => {
            Some(Command::Confirm(matches!(key.code, KeyCode::Char('y' | 'Y' | 'н' | 'Н'))))
        }
        View::Errors(view) if view.typing => typing(key.code),
        View::Errors(_) => errors(key.code),
        View::Ring => ring(key.code),
    }
}

fn ring(code: KeyCode) -> Option<Command> {
    Some(match code {
        KeyCode::Char('k' | 'л') => Command::KillGenerator,
        KeyCode::Char('K' | 'Л') => Command::KillSelected,
        KeyCode::Char('f' | 'а') => Command::Freeze,
        KeyCode::Char('+' | '=') => Command::Add,
        KeyCode::Char('-' | '_') => Command::Stop,
        KeyCode::Char('r' | 'к') => Command::Restart,
        KeyCode::Char('j' | 'о') => Command::Move(Step::Down),
        code => return anywhere(code),
    })
}

fn errors(code: KeyCode) -> Option<Command> {
    Some(match code {
        KeyCode::Char('/' | '.') => Command::Search,
        KeyCode::Enter => Command::Enter,
        KeyCode::Char('r' | 'к') => Command::Retry { all: false },
        KeyCode::Char('R' | 'К') => Command::Retry { all: true },
        KeyCode::Char('d' | 'в') => Command::Drop { all: false },
        KeyCode::Char('D' | 'В') => Command::Drop { all: true },
        KeyCode::Char('j' | 'о') => Command::Move(Step::Down),
        KeyCode::Char('k' | 'л') => Command::Move(Step::Up),
        code => return anywhere(code),
    })
}

fn typing(code: KeyCode) -> Option<Command> {
    Some(match code {
        KeyCode::Char(letter) => Command::Type(letter),
        KeyCode::Backspace => Command::Erase,
        KeyCode::Enter => Command::Enter,
        code => return steps(code),
    })
}

fn anywhere(code: KeyCode) -> Option<Command> {
    Some(match code {
        KeyCode::Char('q' | 'й' | 'Q' | 'Й') => Command::Quit,
        KeyCode::Char('e' | 'у') => Command::Errors,
        KeyCode::Char('p' | 'з') => Command::Pause,
        KeyCode::Char('?' | 'h' | 'р') | KeyCode::F(1) => Command::Help,
        code => return steps(code),
    })
}

fn steps(code: KeyCode) -> Option<Command> {
    Some(match code {
        KeyCode::Esc => Command::Back,
        KeyCode::Up => Command::Move(Step::Up),
        KeyCode::Down => Command::Move(Step::Down),
        KeyCode::PageUp => Command::Move(Step::PageUp),
        KeyCode::PageDown => Command::Move(Step::PageDown),
        KeyCode::Home => Command::Move(Step::First),
        KeyCode::End => Command::Move(Step::Last),
        _ => return None,
    })
}
