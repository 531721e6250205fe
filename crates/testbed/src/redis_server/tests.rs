use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use redis::{Commands, RedisResult};

use super::*;

fn is_alive(pid: u32) -> bool {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), None).is_ok()
}

#[test]
fn a_dropped_server_is_killed_and_its_directory_removed() {
    let server = RedisServer::start();
    let () = server.connect().set("key", "value").unwrap();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(is_alive(pid) && dir.exists());
    drop(server);
    assert!(!is_alive(pid) && !dir.exists());
}

#[test]
fn append_only_data_survives_a_kill() {
    let server = RedisServer::builder().append_only(Fsync::Always).start();
    let () = server.connect().set("key", "value").unwrap();
    let first = server.pid();
    server.kill();
    assert!(!is_alive(first));
    server.restart();
    assert_ne!(server.pid(), first);
    let value: String = server.connect().get("key").unwrap();
    assert_eq!(value, "value");
}

#[test]
fn without_persistence_a_restarted_server_is_empty() {
    let server = RedisServer::start();
    let () = server.connect().set("key", "value").unwrap();
    server.restart();
    let value: Option<String> = server.connect().get("key").unwrap();
    assert_eq!(value, None);
}

#[test]
fn a_password_is_required_and_is_part_of_the_urls() {
    let server = RedisServer::builder().tcp().password("p@ss w/rd?").start();
    for url in [server.url(), server.options.socket_url(&server.socket())] {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("PING").exec(&mut connection).unwrap();
    }
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let pong: RedisResult<String> = redis::Client::open(bare)
        .unwrap()
        .get_connection()
        .and_then(|mut c| redis::cmd("PING").query(&mut c));
    assert!(pong.unwrap_err().to_string().contains("NOAUTH"));
}

#[test]
fn a_restarted_server_keeps_its_port() {
    let server = RedisServer::builder().tcp().start();
    let port = server.port();
    // A client that stays connected leaves the port in TIME_WAIT when the server ends.
    let client = redis::Client::open(server.tcp_url()).unwrap().get_connection().unwrap();
    server.kill();
    server.restart();
    assert_eq!(server.port(), port);
    drop(client);
    redis::Client::open(server.url()).unwrap().get_connection().unwrap();
}

#[test]
fn a_start_reports_that_its_port_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = RedisServer::builder().tcp();
    let ports = Ports { client: Some(taken.local_addr().unwrap().port()), bus: None };
    let mut child = launch(dir.path(), &options, ports);
    assert!(matches!(wait_until_up(dir.path(), &options, &mut child), Startup::PortTaken));
}

#[test]
fn settings_of_the_test_override_the_defaults() {
    let server = RedisServer::builder().arg("--maxmemory", "5mb").arg("--appendonly", "yes").start();
    let mut connection = server.connect();
    let get = |connection: &mut redis::Connection, name: &str| -> Vec<String> {
        redis::cmd("CONFIG").arg("GET").arg(name).query(connection).unwrap()
    };
    assert_eq!(get(&mut connection, "maxmemory")[1], "5242880");
    assert_eq!(get(&mut connection, "appendonly")[1], "yes");
}

#[test]
fn users_have_the_rights_that_the_test_gave_them() {
    let server = RedisServer::builder().tcp().user("app", "p@ss", "~a* +get +set").start();
    let mut connection = redis::Client::open(server.url_as("app", "p@ss")).unwrap().get_connection().unwrap();
    let () = connection.set("a", "value").unwrap();
    let refused: RedisResult<()> = connection.set("b", "value");
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));
}

#[test]
fn a_variable_chooses_the_server_program() {
    let name = "redis_server::tests::a_variable_chooses_the_server_program";
    if crate::again::with_environment(name, &[("ESTAFETA_TEST_REDIS", "/no/such/redis")]) {
        let start = std::panic::catch_unwind(RedisServer::start);
        let message = *start.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("/no/such/redis"), "{message}");
    }
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_panics_with_its_log() {
    RedisServer::builder().arg("--no-such-setting", "1").start();
}

#[test]
fn a_frozen_server_does_not_answer_until_thawed() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    server.freeze();
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(redis::cmd("PING").exec(&mut connection).unwrap_err().is_timeout());
    server.thaw();
    redis::cmd("PING").exec(&mut server.connect()).unwrap();
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(RedisServer::start).join().unwrap();
    redis::cmd("PING").exec(&mut server.connect()).unwrap();
}
