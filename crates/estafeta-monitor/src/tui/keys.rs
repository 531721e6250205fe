//! Maps keys to commands. On a Russian keyboard layout, the keys in the same places give the same commands.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::command::{MonitorCommand, Movement};
use crate::model::{Model, View};

/// The command of a key in the current view, if it has one.
pub fn command(model: &Model, key: KeyEvent) -> Option<MonitorCommand> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(MonitorCommand::Quit),
            KeyCode::Char('z') => Some(MonitorCommand::Suspend),
            _ => None,
        };
    }
    if model.help.is_some() {
        return match anywhere(key.code) {
            Some(command @ (MonitorCommand::Quit | MonitorCommand::Move(_))) => Some(command),
            // Any other key closes the help.
            _ => Some(MonitorCommand::Back),
        };
    }
    match &model.view {
        View::Errors(view) if view.question.is_some() => {
            Some(MonitorCommand::Confirm(matches!(key.code, KeyCode::Char('y' | 'Y' | 'н' | 'Н'))))
        }
        View::Errors(view) if view.typing => typing(key.code),
        View::Errors(_) => errors(key.code),
        View::Ring => ring(key.code),
    }
}

fn ring(code: KeyCode) -> Option<MonitorCommand> {
    Some(match code {
        KeyCode::Char('k' | 'л') => MonitorCommand::KillGenerator,
        KeyCode::Char('K' | 'Л') => MonitorCommand::KillSelected,
        KeyCode::Char('f' | 'а') => MonitorCommand::Freeze,
        KeyCode::Char('+' | '=') => MonitorCommand::Add,
        KeyCode::Char('-' | '_') => MonitorCommand::Stop,
        KeyCode::Char('r' | 'к') => MonitorCommand::Restart,
        code => return anywhere(code),
    })
}

fn errors(code: KeyCode) -> Option<MonitorCommand> {
    Some(match code {
        KeyCode::Char('/' | '.') => MonitorCommand::Search,
        KeyCode::Enter => MonitorCommand::Enter,
        KeyCode::Char('r' | 'к') => MonitorCommand::Retry { all: false },
        KeyCode::Char('R' | 'К') => MonitorCommand::Retry { all: true },
        KeyCode::Char('d' | 'в') => MonitorCommand::Drop { all: false },
        KeyCode::Char('D' | 'В') => MonitorCommand::Drop { all: true },
        code => return anywhere(code),
    })
}

fn typing(code: KeyCode) -> Option<MonitorCommand> {
    Some(match code {
        KeyCode::Char(letter) => MonitorCommand::Type(letter),
        KeyCode::Backspace => MonitorCommand::Erase,
        KeyCode::Enter => MonitorCommand::Enter,
        code => return steps(code),
    })
}

fn anywhere(code: KeyCode) -> Option<MonitorCommand> {
    Some(match code {
        KeyCode::Char('q' | 'й' | 'Q' | 'Й') => MonitorCommand::Quit,
        KeyCode::Char('e' | 'у') => MonitorCommand::Errors,
        KeyCode::Char('p' | 'з') => MonitorCommand::Pause,
        KeyCode::Char('?' | 'h' | 'р') | KeyCode::F(1) => MonitorCommand::Help,
        code => return steps(code),
    })
}

fn steps(code: KeyCode) -> Option<MonitorCommand> {
    Some(match code {
        KeyCode::Esc => MonitorCommand::Back,
        KeyCode::Up => MonitorCommand::Move(Movement::Up),
        KeyCode::Down => MonitorCommand::Move(Movement::Down),
        KeyCode::PageUp => MonitorCommand::Move(Movement::PageUp),
        KeyCode::PageDown => MonitorCommand::Move(Movement::PageDown),
        KeyCode::Home => MonitorCommand::Move(Movement::First),
        KeyCode::End => MonitorCommand::Move(Movement::Last),
        _ => return None,
    })
}
