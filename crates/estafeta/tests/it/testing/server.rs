//! The Redis of a test ring, and its end.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use estafeta::testing::TestRing;
use estafeta::{Address, Failure, Job};
use estafeta_testbed::{Process, RedisServer, eventually};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::support::SOON;

const HOLD: &str = "TESTING_TEST_HOLD";

/// The process of a ring's server, and the directory of its socket.
fn server_of(ring: &TestRing) -> (u32, PathBuf) {
    let mut connection = redis::Client::open(ring.url()).unwrap().get_connection().unwrap();
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
    let Some(Address::Unix(socket)) = ring.ring().endpoint().address() else { panic!("no socket") };
    (info.get("process_id").unwrap(), socket.parent().unwrap().to_owned())
}

fn exists(pid: u32) -> bool {
    kill(Pid::from_raw(pid.try_into().unwrap()), None).is_ok()
}

#[tokio::test]
async fn two_rings_have_two_servers_which_end_with_them() {
    let (one, other) = tokio::try_join!(TestRing::start(), TestRing::start()).unwrap();
    one.publish(&1).await.unwrap();
    assert_eq!(other.published::<u32>().await.unwrap(), [0; 0]);
    let servers = [&one, &other].map(server_of);
    assert_ne!(servers[0], servers[1]);
    drop(one);
    let alive = servers.clone().map(|(pid, directory)| (exists(pid), directory.exists()));
    assert_eq!(alive, [(false, false), (true, true)]);
    drop(other);
    let (pid, directory) = &servers[1];
    assert!(!exists(*pid) && !directory.exists());
}

#[tokio::test]
async fn a_server_ends_with_the_last_ring_on_it() {
    let ring = TestRing::start().await.unwrap();
    let beside = ring.beside("other").await.unwrap();
    let (pid, _) = server_of(&ring);
    drop(ring);
    beside.publish(&1).await.unwrap();
    drop(beside);
    assert!(!exists(pid));
}

#[tokio::test]
async fn a_server_ends_when_its_test_panics() {
    let (sender, server) = tokio::sync::oneshot::channel();
    let test = tokio::spawn(async {
        let ring = TestRing::start().await.unwrap();
        sender.send(server_of(&ring)).unwrap();
        panic!("as it should");
    });
    assert!(test.await.unwrap_err().is_panic());
    let (pid, directory) = server.await.unwrap();
    assert!(!exists(pid) && !directory.exists());
}

/// Holds a ring, in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test]
#[allow(clippy::print_stdout)]
async fn hold_a_ring_for_the_other_tests() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    match TestRing::start().await {
        Ok(ring) => {
            let (pid, directory) = server_of(&ring);
            println!("\nserver {pid} {}", directory.display());
            std::future::pending::<()>().await;
        }
        Err(error) => println!("\n{error}"),
    }
}

/// Starts a child process that holds a ring, with this search path or with that of the test.
fn hold_a_ring(path: Option<&Path>) -> Process {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "testing::server::hold_a_ring_for_the_other_tests", "--nocapture"];
    let path = path.map(|path| ("PATH", path.to_str().unwrap().to_owned()));
    Process::spawn(&program, arguments, [(HOLD, "1".to_owned())].into_iter().chain(path))
}

fn server_in(process: &Process) -> (u32, PathBuf) {
    let line = process.wait_for_line(SOON, |line| line.starts_with("server "));
    let (pid, directory) = line.strip_prefix("server ").unwrap().split_once(' ').unwrap();
    (pid.parse().unwrap(), directory.into())
}

#[test]
fn a_killed_test_leaves_neither_its_server_nor_its_directory_behind() {
    let test = hold_a_ring(None);
    let (pid, directory) = server_in(&test);
    assert!(exists(pid) && directory.exists());
    test.kill();
    eventually(SOON, "the server is gone", || (!exists(pid) && !directory.exists()).then_some(()));
}

/// Where the first of these programs is installed.
fn installed(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places =
        std::env::split_paths(&path).flat_map(|place| names.iter().map(move |name| place.join(name)));
    places.find(|file| file.exists()).unwrap()
}

#[test]
fn valkey_will_do() {
    let path = tempfile::tempdir().unwrap();
    symlink(installed(&["redis-server", "valkey-server"]), path.path().join("valkey-server")).unwrap();
    symlink(installed(&["rm"]), path.path().join("rm")).unwrap();
    let test = hold_a_ring(Some(path.path()));
    let (pid, directory) = server_in(&test);
    test.kill();
    eventually(SOON, "the server is gone", || (!exists(pid) && !directory.exists()).then_some(()));
}

#[test]
fn a_machine_without_a_server_gets_one_error_that_says_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let output = String::from_utf8(hold_a_ring(Some(empty.path())).output(SOON).stdout).unwrap();
    let error = "test ring: redis-server is not installed: install it with `apt install redis-server` (Debian, \
                 Ubuntu), `brew install redis` (macOS) or `dnf install redis` (Fedora), or use a running one with \
                 `TestRing::on`";
    assert!(output.lines().any(|line| line == error), "{output}");
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let script = "#!/bin/sh\nfor line in 1 2 3 4 5 6 7 8 9 10 11; do echo \"line $line\"; done\nexit 1\n";
    let broken = tempfile::tempdir().unwrap();
    let program = broken.path().join("redis-server");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = String::from_utf8(hold_a_ring(Some(broken.path())).output(SOON).stdout).unwrap();
    let shown = output.split_once("test ring: its Redis ended at once:\n").expect(&output).1;
    assert!(shown.starts_with("line 2\n") && shown.contains("line 11\n"), "{output}");
}

#[tokio::test]
async fn a_ring_in_a_redis_of_the_test_stays_there() {
    let redis = RedisServer::start();
    let ring = TestRing::on(&redis.url(), "orders").await.unwrap();
    ring.publish(&1).await.unwrap();
    assert_eq!(format!("{ring:?}"), format!("test ring orders in {}", ring.ring().endpoint()));
    drop(ring);
    let ring = TestRing::on(&redis.url(), "orders").await.unwrap();
    let handled = ring.work_one(async |_: Job<u32>| Ok::<(), Failure>(())).await.unwrap();
    assert_eq!(handled.unwrap().message.id, 1);
    assert!(TestRing::on("redis://127.0.0.1:1", "orders").await.is_err());
    assert!(TestRing::on(&redis.url(), "not a name").await.is_err());
}
