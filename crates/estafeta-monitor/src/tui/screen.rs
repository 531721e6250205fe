//! The terminal. The monitor takes it over while it draws, and restores it when it stops drawing, even by a panic.
//!
//! [`Screen`] restores the terminal when it is dropped, before the monitor is suspended, and in the panic hook. After a
//! panic, [`Screen::draw`] returns an error.

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

/// Requests reports of the buttons and the wheel, in the encoding that works in large windows. The command of crossterm
/// also requests every movement, which floods a slow line.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// How long the kernel may take to stop this process.
const STOP_DELAY: Duration = Duration::from_millis(50);

/// Whether the monitor uses the terminal at the moment. It is static because the panic hook has no `Screen`.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    /// Never dropped. Its destructor prints to stderr if the terminal is gone, and panics if stderr is gone too.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// Whether the monitor captures the mouse.
    mouse: bool,
}

impl Screen {
    /// Takes over the terminal, and makes every later panic restore it.
    pub fn take() -> io::Result<Self> {
        let print_panic = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The terminal comes first, so that the message stays readable.
            let _ = restore();
            print_panic(panic);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let mut screen = Self { terminal: ManuallyDrop::new(terminal), mouse: true };
        screen.enter()?;
        Ok(screen)
    }

    /// Enters the screen, at the start or after another program used the terminal.
    pub fn enter(&mut self) -> io::Result<()> {
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.set_mouse(self.mouse)?;
        self.terminal.hide_cursor()?;
        // `resize` clears the screen too. Unlike `clear`, it does not query the cursor's position, which some terminals
        // never answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    pub fn set_mouse(&mut self, captured: bool) -> io::Result<()> {
        self.mouse = captured;
        execute!(io::stdout(), Print(if captured { MOUSE_ON } else { MOUSE_OFF }))
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("a thread of the monitor panicked"));
        }
        self.terminal.draw(draw).map(drop)
    }

    /// Restores the terminal and stops the whole process group, as Ctrl-Z does with any program. For example, a `make`
    /// that started the monitor must stop too. The nodes are in other process groups and keep running. If no shell
    /// could continue the monitor, the kernel does not stop it.
    pub fn suspend(&mut self) -> io::Result<()> {
        // The terminal comes first. Once the shell owns it, setting its modes would stop the monitor at the wrong
        // place.
        restore()?;
        kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        // Another thread may receive the signal, and then this one continues for a moment.
        std::thread::sleep(STOP_DELAY);
        self.enter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = restore();
    }
}

/// Restores the terminal, unless that is done already.
fn restore() -> io::Result<()> {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let shown = execute!(io::stdout(), Print(MOUSE_OFF), LeaveAlternateScreen, Show);
    disable_raw_mode()?;
    shown?;
    io::stdout().flush()
}

/// Reads keys, the mouse and new window sizes, on a separate thread. The thread does not notice that the terminal is
/// gone, because the library retries its reads for as long as this process lives. [`is_hung_up`] notices it.
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

    /// The environment variable that makes the helper test panic.
    const PANIC_VARIABLE: &str = "ESTAFETA_TEST_PANICS";

    /// A helper of the test below, which runs it on a terminal.
    #[test]
    fn panics_while_it_draws() {
        if std::env::var_os(PANIC_VARIABLE).is_some() {
            let mut screen = Screen::take().unwrap();
            screen.draw(|_| panic!("on purpose")).unwrap();
        }
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message_is_printed() {
        let program = std::env::current_exe().unwrap();
        let args = ["--exact", "tui::screen::tests::panics_while_it_draws", "--nocapture"];
        let terminal = Terminal::start(&program, args, [(PANIC_VARIABLE, "1")], 24, 80);
        assert!(!terminal.wait(Duration::from_secs(30)).success());
        let raw = String::from_utf8_lossy(&terminal.raw_output()).into_owned();
        let (drawn, after) = raw.split_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("{raw:?}"));
        assert!(drawn.contains("\u{1b}[?1049h") && after.contains("on purpose"), "{raw:?}");
        assert!(terminal.is_cooked() && !terminal.in_alternate_screen());
        assert!(!terminal.cursor_hidden() && !terminal.mouse_captured());
    }
}
