use std::os::unix::process::ExitStatusExt as _;

use super::*;
use crate::again::with_environment;
use crate::process::NO_ENV;

const SOON: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Terminal {
    Terminal::start(Path::new("/bin/sh"), ["-c", script], NO_ENV, 24, 80)
}

#[test]
fn the_screen_has_the_text_and_the_colours_that_a_person_would_see() {
    let terminal = shell(r"printf 'old  \n\n  middle\033[1;1Hnew\033[3;9H\033[31mred'; exec sleep 60");
    let screen = terminal.wait_for(SOON, "the last word", |screen| screen.contains("red"));
    assert_eq!(screen, "new\n\n  middlered");
    assert_eq!(terminal.screen(), screen);
    let colour = |row, col| terminal.cells(|screen| screen.cell(row, col).unwrap().fgcolor());
    assert_eq!((colour(2, 7), colour(2, 8)), (vt100::Color::Default, vt100::Color::Idx(1)));
    assert!(terminal.raw_output().ends_with(b"\x1b[31mred"));
}

#[test]
fn typed_keys_reach_the_program_and_are_echoed() {
    let terminal = shell("read word; echo \"got $word\"");
    terminal.type_keys("hello\r");
    assert!(terminal.wait(SOON).success());
    assert_eq!(terminal.screen(), "hello\ngot hello");
}

#[test]
fn ctrl_c_sends_a_signal_to_the_program() {
    // Tests that run in the background of a script ignore SIGINT, and a shell cannot trap a signal that it inherits as
    // ignored.
    let wait = "trap \"echo caught; exit 5\" INT; echo up; while :; do sleep 0.01; done";
    let terminal = shell(&format!("exec env --default-signal=INT sh -c '{wait}'"));
    terminal.wait_for(SOON, "its start", |screen| screen == "up");
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait(SOON).code(), Some(5));
    assert!(terminal.screen().contains("caught"));
}

#[test]
fn the_program_knows_the_size_and_gets_a_signal_when_it_changes() {
    let terminal = shell("trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done");
    terminal.wait_for(SOON, "the size", |screen| screen == "24 80");
    terminal.resize(10, 33);
    terminal.wait_for(SOON, "the new size", |screen| screen == "24 80\n10 33");
    assert_eq!(terminal.cells(|screen| screen.size()), (at_least_one(10), at_least_one(33)));
}

#[test]
fn a_terminal_shows_the_modes_that_its_program_has_set() {
    let terminal = shell(
        r"stty raw -echo; printf '\033[?1049h\033[?25l\033[?1000hup'; read x
          printf '\033[?1000l\033[?25h\033[?1049l'; stty sane; echo bye",
    );
    let modes = || {
        [
            terminal.is_cooked(),
            terminal.in_alternate_screen(),
            terminal.cursor_hidden(),
            terminal.mouse_captured(),
        ]
    };
    terminal.wait_for(SOON, "its start", |screen| screen == "up");
    assert_eq!(modes(), [false, true, true, true]);
    terminal.type_keys("\n");
    assert!(terminal.wait(SOON).success());
    assert_eq!(modes(), [true, false, false, false]);
    assert_eq!(terminal.screen(), "bye");
}

#[test]
fn a_terminal_that_its_program_left_raw_is_not_cooked() {
    for end in ["exit 0", "kill -9 $$"] {
        let terminal = shell(&format!("stty raw -echo; {end}"));
        terminal.wait(SOON);
        assert!(!terminal.is_cooked(), "after {end}");
    }
}

#[test]
fn the_last_output_of_a_program_is_not_lost() {
    for _ in 0..20 {
        let terminal = shell("head -c 100000 /dev/zero | tr '\\0' x");
        assert!(terminal.wait(SOON).success());
        assert_eq!(terminal.raw_output().len(), 100_000);
    }
}

#[test]
fn wait_returns_the_exit_code_or_the_signal() {
    assert_eq!(shell("exit 7").wait(SOON).code(), Some(7));
    let terminal = shell("exec sleep 60");
    assert!(terminal.is_running());
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.wait(SOON).signal(), Some(15));
    assert!(!terminal.is_running());
    terminal.signal(Signal::SIGTERM);
}

#[test]
fn a_program_sees_a_colour_terminal_and_no_user_settings() {
    let users = [("TERM", "dumb"), ("REDIS_URL", "redis://theirs"), ("NO_COLOR", "1")];
    if !with_environment("terminal::tests::a_program_sees_a_colour_terminal_and_no_user_settings", &users) {
        return;
    }
    let report = "echo \"$TERM ${REDIS_URL-none} ${NO_COLOR-none} $EXTRA\"; tty";
    let envs = [("EXTRA", "more")];
    let terminal = Terminal::start(Path::new("/bin/sh"), ["-c", report], envs, 24, 80);
    assert!(terminal.wait(SOON).success());
    let screen = terminal.screen();
    assert!(screen.starts_with("xterm-256color none none more\n/dev/"), "{screen}");
}

#[test]
fn a_dropped_terminal_kills_its_program() {
    let terminal = shell("trap '' HUP INT TERM; echo up; while :; do sleep 0.01; done");
    terminal.wait_for(SOON, "its start", |screen| screen == "up");
    let pid = nix::unistd::Pid::from_raw(terminal.pid().try_into().unwrap());
    drop(terminal);
    assert!(nix::sys::signal::kill(pid, None).is_err(), "it is gone, and reaped");
}

#[test]
#[should_panic(expected = "what it did show")]
fn a_screen_that_does_not_come_panics_with_the_current_one() {
    let terminal = shell("echo what it did show; exec sleep 60");
    terminal.wait_for(SOON, "its start", |screen| !screen.is_empty());
    terminal.wait_for(Duration::from_millis(20), "something else", |screen| screen == "something else");
}

#[test]
fn waiting_for_a_screen_ends_when_the_program_ends() {
    let start = Instant::now();
    let waiting = || shell("echo bye").wait_for(2 * SOON, "the moon", |screen| screen == "moon");
    let panic = std::panic::catch_unwind(waiting).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("did not show the moon"));
    assert!(start.elapsed() < 2 * SOON, "it waited for {:?}", start.elapsed());
}

#[test]
#[should_panic(expected = "still runs after")]
fn waiting_for_the_end_panics_after_the_limit() {
    shell("exec sleep 60").wait(Duration::from_millis(20));
}
