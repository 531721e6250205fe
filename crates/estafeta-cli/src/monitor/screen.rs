//! The terminal: taken over for as long as the monitor draws, and given back however that ends.

use std::io::{self, Stdout, Write as _};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Buttons and the wheel, in the notation for large windows. The library's own command reports every movement as well,
/// and over a slow line that is a flood.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

const STOPS_WITHIN: Duration = Duration::from_millis(50);

/// Whether the terminal is ours at the moment: the panic hook must know it without a `Screen` at hand.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    /// Never dropped: its own farewell complains on stderr when the terminal is gone, and panics if that is gone, too.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    mouse: bool,
}

impl Screen {
    pub fn take() -> io::Result<Self> {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First the terminal, so that what is told can be read.
            let _ = give_back();
            tell(panic);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let mut screen = Self { terminal: ManuallyDrop::new(terminal), mouse: true };
        screen.enter()?;
        Ok(screen)
    }

    /// Also after somebody else had the terminal.
    pub fn enter(&mut self) -> io::Result<()> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.set_mouse(self.mouse)?;
        self.terminal.hide_cursor()?;
        // Clears as well, and unlike `clear` does not ask the terminal where its cursor is: some never answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    pub fn set_mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        execute!(io::stdout(), Print(if ours { MOUSE_ON } else { MOUSE_OFF }))
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("a part of the monitor panicked"));
        }
        self.terminal.draw(draw).map(drop)
    }

    /// Gives the terminal back and stops everybody in its foreground, as Ctrl-Z does with any program: `make`, say, that
    /// started us, must stop as well. The copies are in groups of their own and go on. Where nobody could continue us
    /// the kernel does not stop us.
    pub fn suspend(&mut self) -> io::Result<()> {
        // First the terminal: once the shell has it back, setting its modes would stop us at the wrong place.
        give_back()?;
        kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        // The signal may reach another thread, and this one goes on for a moment.
        std::thread::sleep(STOPS_WITHIN);
        self.enter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = give_back();
    }
}

fn give_back() -> io::Result<()> {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let shown = execute!(io::stdout(), Print(MOUSE_OFF), LeaveAlternateScreen, Show);
    disable_raw_mode()?;
    shown?;
    io::stdout().flush()
}

/// Keys, the mouse and new sizes, read on a thread of their own. It does not tell when the terminal is gone: the library
/// tries to read from it for as long as this process lives.
pub fn events() -> UnboundedReceiver<Event> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Whether the terminal is gone.
pub fn is_hung_up() -> bool {
    let stdout = io::stdout();
    let mut terminal = [PollFd::new(&stdout, PollFlags::empty())];
    let _ = rustix::event::poll(&mut terminal, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use estafeta_testbed::Terminal;

    use super::Screen;

    const ASKED: &str = "ESTAFETA_TEST_PANICS";

    /// Only for the test below, which runs it on a terminal.
    #[test]
    fn panics_while_it_draws() {
        if std::env::var_os(ASKED).is_some() {
            let mut screen = Screen::take().unwrap();
            screen.draw(|_| panic!("on purpose")).unwrap();
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_can_be_read() {
        let program = std::env::current_exe().unwrap();
        let args = ["--exact", "monitor::screen::tests::panics_while_it_draws", "--nocapture"];
        let terminal = Terminal::start(&program, args, [(ASKED, "1")], 24, 80);
        assert!(!terminal.wait(Duration::from_secs(30)).success());
        let raw = String::from_utf8_lossy(&terminal.raw_output()).into_owned();
        let (drawn, after) = raw.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{raw:?}"));
        assert!(drawn.contains("\u{1b}[?1049h") && after.contains("on purpose"), "{raw:?}");
        assert!(terminal.is_cooked() && !terminal.in_alternate_screen());
        assert!(!terminal.cursor_hidden() && !terminal.mouse_captured());
    }
}
