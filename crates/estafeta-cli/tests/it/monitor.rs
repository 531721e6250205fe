//! The monitor on a real terminal, with real nodes: the test types keys and reads the screen.

use std::path::Path;

use estafeta_lab::text::grouped;
use estafeta_testbed::vt100::Color;
use estafeta_testbed::{Signal, Terminal, eventually};

use crate::support::monitored::{Monitored, running, wait_until_none_runs};
use crate::support::{ProgramRing, SOON, command_away_from_the_usual_redis};

/// Messages come fast enough that a screen without them would be noticed.
const QUICK: [&str; 2] = ["--interval", "50ms"];

fn monitor(ring: &ProgramRing, args: &[&str]) -> Monitored {
    Monitored::start(&[&QUICK, args].concat(), &[("REDIS_URL", &ring.redis.url())])
}

#[test]
fn a_killed_and_a_frozen_generator_are_replaced_on_the_screen_and_q_leaves_nothing_behind() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &[]);
    let first = monitor.wait_for_ring(5);
    // A node may be visible in the ring before it has reported its number to its monitor.
    let nodes = monitor.wait_for_rows("all are ours", |rows| rows.iter().all(|row| row.is_mine));
    assert_eq!(nodes.len(), 5, "{nodes:?}");

    monitor.terminal.type_keys("k");
    let second = monitor.wait_for_successor(&first);
    monitor.wait_for_rows("the killed one", |rows| {
        rows.iter().any(|row| row.id == first.id && row.state == "dead")
    });
    assert!(!running(&nodes).contains(&first.pid));
    monitor.terminal.wait_for(SOON, "the story", |screen| {
        screen.contains(&format!("{} took over from {} in 0.", second.id, first.id))
    });

    monitor.terminal.type_keys("f");
    let third = monitor.wait_for_successor(&second);
    let frozen = monitor.rows().into_iter().find(|row| row.id == second.id).unwrap();
    assert_eq!(frozen.state, "frozen");
    // The same key thaws the node. It joins as another member, and does not publish as the old one.
    monitor.terminal.type_keys("f");
    monitor.wait_for_rows("the thawed one under a new number", |rows| {
        rows.iter().any(|row| row.pid == second.pid && row.id != second.id && row.state == "alive")
    });
    assert_eq!(monitor.wait_for_ring(4).id, third.id);

    monitor.quit();
    assert!(running(&nodes).is_empty());
    let left = ring.status();
    assert_eq!(left["members"].as_array().unwrap().len(), 0, "{left}");
}

#[test]
fn keys_add_and_remove_nodes_and_restart_a_dead_one() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "2"]);
    monitor.wait_for_ring(2);
    monitor.terminal.type_keys("+");
    monitor.wait_for_ring(3);
    monitor.terminal.type_keys("-");
    monitor.wait_for_ring(2);
    monitor.terminal.type_keys("k");
    monitor.wait_for_rows("a dead node", |rows| rows.iter().any(|row| row.state == "dead"));
    monitor.terminal.type_keys("r");
    monitor.wait_for_ring(2);
    monitor.quit();
}

#[test]
fn respawn_restarts_a_killed_node() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "3", "--respawn"]);
    let first = monitor.wait_for_ring(3);
    monitor.terminal.type_keys("k");
    monitor.wait_for_successor(&first);
    let rows = monitor.rows();
    monitor.wait_for_ring(3);
    monitor.quit();
    wait_until_none_runs(&rows, SOON);
}

#[test]
fn a_node_that_the_monitor_did_not_start_is_shown_and_cannot_be_killed() {
    let ring = ProgramRing::new();
    let foreign = ring.node(&QUICK);
    let monitor = monitor(&ring, &["-n", "2"]);
    let generator = monitor.wait_for_ring(3);
    assert_eq!(generator.pid, foreign.pid());
    assert!(!generator.is_mine);
    monitor.terminal.type_keys("k");
    monitor.terminal.wait_for(SOON, "a refusal", |screen| screen.contains("was not started here"));
    monitor.quit();
    assert!(foreign.is_running());
}

#[test]
fn an_attached_monitor_starts_no_node_and_ends_none() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(2, &QUICK);
    let monitor = Monitored::start(&["--attach"], &[("REDIS_URL", &ring.redis.url())]);
    let rows = {
        monitor.wait_for_ring(2);
        monitor.rows()
    };
    assert!(rows.iter().all(|row| !row.is_mine), "{rows:?}");
    monitor.terminal.type_keys("+");
    monitor.terminal.wait_for(SOON, "a refusal", |screen| screen.contains("this monitor only watches"));
    for key in ["k", "K", "f", "-", "r"] {
        monitor.terminal.type_keys(key);
    }
    monitor.quit();
    assert!(nodes.iter().all(|node| node.is_running()));
    // No node is frozen either.
    ring.await_progress();
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 2);
}

#[test]
fn no_node_outlives_a_monitor_that_is_killed() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &[]);
    monitor.wait_for_ring(5);
    // A frozen node cannot end by itself.
    monitor.terminal.type_keys("f");
    let nodes = monitor.wait_for_rows("a frozen node", |rows| rows.iter().any(|row| row.state == "frozen"));
    assert_eq!(nodes.len(), 5);
    monitor.terminal.signal(Signal::SIGKILL);
    wait_until_none_runs(&nodes, SOON);
}

#[test]
fn a_private_redis_that_the_monitor_started_ends_with_it() {
    let data = tempfile::tempdir().unwrap();
    let envs = [("ESTAFETA_DATA", data.path().to_str().unwrap())];
    let monitor = Monitored::start_by(&command_away_from_the_usual_redis(), &["-n", "1"], &envs);
    monitor.wait_for_ring(1);
    let socket = data.path().join("redis/redis.sock");
    assert!(socket.exists());
    assert!(data.path().join("monitor.log").exists(), "its log is there too");
    monitor.quit();
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_err(), "Redis still answers");
    assert!(monitor.terminal.screen().contains("stopped the private Redis"), "{:?}", monitor.terminal);
}

#[test]
fn the_screen_follows_the_size_of_the_window() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "2"]);
    monitor.wait_for_ring(2);
    monitor.terminal.resize(5, 20);
    monitor.terminal.wait_for(SOON, "the small picture", |screen| screen.contains("q quits, ? helps"));
    monitor.terminal.resize(1, 1);
    monitor.terminal.resize(60, 200);
    monitor.terminal.wait_for(SOON, "the large picture", |screen| {
        screen.contains("whose") && screen.contains("in the last 3 min")
    });
    monitor.terminal.resize(24, 80);
    monitor.wait_for_ring(2);
    monitor.quit();
}

#[test]
fn a_click_selects_a_row_and_keys_work_in_every_view() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "3", "--error-rate", "1"]);
    monitor.wait_for_ring(3);
    let screen = monitor.terminal.screen();
    let line = screen.lines().position(|line| line.contains("handler")).unwrap();
    monitor.terminal.type_keys(&format!("\x1b[<0;10;{}M\x1b[<0;10;{}m", line + 1, line + 1));
    monitor.terminal.wait_for(SOON, "the selection", |screen| {
        screen.lines().nth(line).is_some_and(|row| row.starts_with('>') && row.contains("handler"))
    });

    monitor.terminal.type_keys("?");
    monitor.terminal.wait_for(SOON, "help", |screen| screen.contains("log of the nodes: "));
    monitor.terminal.type_keys(" ");
    monitor.terminal.type_keys("e");
    // The view of the ring shows both as well, but not the order.
    monitor.terminal.wait_for(SOON, "errors", |screen| {
        screen.contains("newest first") && screen.contains("the message contains an error")
    });
    let kept = ring.status()["errorsKept"].as_u64().unwrap();
    assert!(kept > 0);
    monitor.terminal.type_keys("d");
    monitor.terminal.wait_for(SOON, "a question", |screen| screen.contains("drop 1 error for good? y/n"));
    monitor.terminal.type_keys("y");
    monitor.terminal.wait_for(SOON, "the answer", |screen| screen.contains("1 error dropped"));
    // Keys that come close together are all carried out.
    monitor.terminal.type_keys("r\u{1b}[Br\u{1b}[Br\u{1b}[B");
    ring.eventually(SOON, "three retried errors", |ring| ring["retried"] == 3);
    monitor.terminal.type_keys("/no such text");
    monitor.terminal.wait_for(SOON, "nothing found", |screen| screen.contains("no error contains this text"));
    monitor.terminal.type_keys("\x1b");
    monitor.terminal.wait_for(SOON, "all again", |screen| !screen.contains("no error contains this text"));
    monitor.quit();
    assert_eq!(ring.status()["dropped"], 1);
}

#[test]
fn the_screen_has_no_colours_if_no_color_is_set() {
    let ring = ProgramRing::new();
    let url = ring.redis.url();
    let is_coloured = |wanted: &[(&str, &str)]| {
        let monitor = Monitored::start(&["-n", "2"], &[&[("REDIS_URL", &url[..])], wanted].concat());
        monitor.wait_for_ring(2);
        let found = monitor.terminal.cells(|screen| {
            let (rows, cols) = screen.size();
            let cells = (0..rows.get()).flat_map(|row| (0..cols.get()).map(move |col| (row, col)));
            cells.filter_map(|(row, col)| screen.cell(row, col)).any(|cell| cell.fgcolor() != Color::Default)
        });
        monitor.quit();
        found
    };
    assert!(is_coloured(&[]));
    assert!(!is_coloured(&[("NO_COLOR", "1")]));
}

/// Work that takes so long that a monitor which does not wait for it would cut it off.
const SLOW: [&str; 4] = ["--work-per-char", "50ms", "--concurrency", "4"];

#[test]
fn ctrl_c_and_signals_end_the_monitor_and_its_nodes_in_good_order() {
    let ring = ProgramRing::new();
    let ends = [
        |monitor: &Monitored| monitor.terminal.type_keys("\x03"),
        |monitor: &Monitored| monitor.terminal.signal(Signal::SIGTERM),
        |monitor: &Monitored| {
            // Some programs signal both a process and its group.
            monitor.terminal.signal(Signal::SIGHUP);
            monitor.terminal.signal(Signal::SIGTERM);
        },
    ];
    for end in ends {
        let monitor = monitor(&ring, &[&["-n", "2"], &SLOW[..]].concat());
        monitor.wait_for_ring(2);
        let nodes = monitor.rows();
        end(&monitor);
        assert_eq!(monitor.terminal.wait(SOON).code(), Some(0));
        monitor.assert_restored();
        assert!(running(&nodes).is_empty());
        assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0, "they did not leave");
    }
}

#[test]
fn a_closed_window_ends_the_monitor_and_its_nodes_in_good_order() {
    let data = tempfile::tempdir().unwrap();
    let ring = ProgramRing::new();
    let envs = [("REDIS_URL", &ring.redis.url()[..]), ("ESTAFETA_DATA", data.path().to_str().unwrap())];
    let mut monitor = Monitored::start(&[&["-n", "3", "--interval", "50ms"], &SLOW[..]].concat(), &envs);
    monitor.wait_for_ring(3);
    let nodes = monitor.rows();
    monitor.terminal.hang_up();
    assert_eq!(monitor.terminal.wait(SOON).code(), Some(0));
    assert!(running(&nodes).is_empty());
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 0, "they did not leave");
}

#[test]
fn a_paused_screen_follows_the_size_of_the_window() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "2"]);
    monitor.wait_for_ring(2);
    monitor.terminal.type_keys("p");
    monitor.terminal.wait_for(SOON, "the pause", |screen| screen.contains("PAUSED"));
    assert!(!monitor.terminal.mouse_captured());
    monitor.terminal.resize(30, 100);
    // The wider window has room for more keys.
    monitor.terminal.wait_for(SOON, "the picture in its new size", |screen| {
        screen.contains("PAUSED") && screen.contains("r restart")
    });
    monitor.terminal.type_keys("p");
    monitor.terminal.wait_for(SOON, "the end of the pause", |screen| {
        !screen.contains("PAUSED") && screen.contains("r restart")
    });
    assert!(monitor.terminal.mouse_captured());
    monitor.quit();
}

#[test]
fn ctrl_z_restores_the_terminal_and_the_nodes_go_on() {
    let ring = ProgramRing::new();
    // Only a shell with job control can continue a stopped program.
    let envs = [("REDIS_URL", ring.redis.url()), ("PS1", "ready> ".to_owned())];
    let shell = Terminal::start(Path::new("/bin/bash"), ["--norc", "--noprofile", "-i"], envs, 24, 80);
    let monitor = Monitored { terminal: shell };
    monitor.terminal.wait_for(SOON, "a prompt", |screen| screen.ends_with("ready>"));
    let program = env!("CARGO_BIN_EXE_estafeta");
    // With another process between the shell and the monitor, as in `make run`.
    monitor.terminal.type_keys(&format!("sh -c '{program} monitor -n 2 --interval 50ms; true'\r"));
    monitor.wait_for_ring(2);
    let nodes = monitor.rows();
    for _ in 0..3 {
        monitor.terminal.type_keys("\x1a");
        monitor.terminal.wait_for(SOON, "the shell", |screen| screen.ends_with("ready>"));
        monitor.assert_restored_but_for_the_shell();
        assert_eq!(running(&nodes).len(), 2);
        let published = || ring.status()["published"].as_u64().unwrap();
        let before = published();
        eventually(SOON, "more messages", || (published() > before + 5).then_some(()));

        monitor.terminal.type_keys("fg\r");
        monitor.wait_for_ring(2);
    }
    monitor.terminal.type_keys("q");
    monitor.terminal.wait_for(SOON, "the shell again", |screen| {
        screen.trim_end().ends_with("ready>") && !screen.contains("generator")
    });
    assert!(running(&nodes).is_empty());
}

impl Monitored {
    /// A shell with line editing sets the terminal to raw mode itself.
    fn assert_restored_but_for_the_shell(&self) {
        assert!(!self.terminal.in_alternate_screen() && !self.terminal.cursor_hidden());
        assert!(!self.terminal.mouse_captured());
    }
}

#[test]
fn the_logs_of_the_nodes_go_to_a_file_and_never_onto_the_screen() {
    let ring = ProgramRing::new();
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("nodes.log");
    let monitor = monitor(&ring, &["-n", "2", "-vv", "--log", log.to_str().unwrap()]);
    monitor.wait_for_ring(2);
    let written = eventually(SOON, "a log", || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.contains("step=\"publish\"").then_some(text)
    });
    assert!(written.lines().count() > 3, "{written}");
    assert!(!String::from_utf8_lossy(&monitor.terminal.raw_output()).contains("TRACE"));
    monitor.quit();
}

#[test]
fn the_screen_shows_that_redis_is_lost_and_that_it_is_back() {
    let ring = ProgramRing::new();
    let monitor = monitor(&ring, &["-n", "2"]);
    monitor.wait_for_ring(2);
    ring.redis.kill();
    monitor.terminal.wait_for(SOON, "the loss", |screen| screen.contains("REDIS DOES NOT ANSWER"));
    ring.redis.restart();
    monitor.terminal.wait_for(SOON, "the return", |screen| screen.contains("Redis is back"));
    monitor.wait_for_ring(2);
    monitor.quit();
}

/// What the monitor printed after it left the screen.
fn summary(monitor: &Monitored) -> String {
    let raw = String::from_utf8_lossy(&monitor.terminal.raw_output()).into_owned();
    raw.rsplit("\u{1b}[?1049l").next().unwrap().to_owned()
}

#[test]
fn the_summary_after_q_shows_the_ring_as_the_nodes_left_it() {
    let ring = ProgramRing::new();
    // A thousand messages per second, of which most wait.
    let args = ["-n", "2", "--interval", "1ms", "--work-per-char", "1ms", "--error-rate", "1"];
    let monitor = Monitored::start(&args, &[("REDIS_URL", &ring.redis.url())]);
    monitor.wait_for_ring(2);
    ring.eventually(SOON, "some messages wait", |status| status["waiting"].as_u64() > Some(100));
    monitor.quit();
    let status = ring.status();
    let count = |name: &str| grouped(status[name].as_u64().unwrap());
    let expected = format!(
        "ring estafeta: {} published, {} done, {} waiting, {} in flight, ",
        count("published"),
        count("done"),
        count("waiting"),
        count("inFlight")
    );
    let summary = summary(&monitor);
    assert!(summary.contains(&expected), "{summary:?} instead of {expected:?}");
}

#[test]
fn the_summary_of_a_lost_redis_has_an_age() {
    let ring = ProgramRing::new();
    let _nodes = ring.nodes(2, &QUICK);
    let monitor = Monitored::start(&["--attach"], &[("REDIS_URL", &ring.redis.url())]);
    monitor.wait_for_ring(2);
    ring.redis.kill();
    monitor.terminal.wait_for(SOON, "old figures", |screen| screen.contains("last seen 1s ago"));
    monitor.quit();
    let summary = summary(&monitor);
    assert!(summary.contains("ring estafeta, last seen "), "{summary}");
    assert!(summary.contains(" ago: ") && summary.contains("cannot reach Redis at "), "{summary}");
}

#[test]
fn the_age_of_old_figures_grows_while_redis_is_silent() {
    let ring = ProgramRing::new();
    let _nodes = ring.nodes(2, &QUICK);
    let monitor = Monitored::start(&["--attach"], &[("REDIS_URL", &ring.redis.url())]);
    monitor.wait_for_ring(2);
    ring.redis.freeze();
    for age in 3..=6 {
        let shown = format!("last seen {age}s ago");
        monitor.terminal.wait_for(SOON, &shown, |screen| screen.contains(&shown));
    }
    ring.redis.thaw();
    monitor.terminal.wait_for(SOON, "current figures", |screen| screen.contains("balance adds up"));
    monitor.quit();
}
