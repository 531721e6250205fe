#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use estafeta_lab::redis_program;
use estafeta_testbed::{DataDir, eventually};
use redis::Commands;

use super::*;

const SOON: Duration = Duration::from_secs(20);

/// A private Redis that is not running yet. The `DataDir` stops the server when the test ends, however it ends.
fn new_private_redis() -> (DataDir, PrivateRedis) {
    let data = DataDir::new();
    let redis = PrivateRedis::at(data.path().join("redis")).unwrap();
    (data, redis)
}

fn client(redis: &PrivateRedis) -> redis::Connection {
    redis::Client::open(redis.url()).unwrap().get_connection().unwrap()
}

fn pid(redis: &PrivateRedis) -> u32 {
    redis.status().unwrap().unwrap().pid
}

#[test]
fn the_first_call_starts_the_server_and_the_next_finds_it() {
    let (data, redis) = new_private_redis();
    assert!(!redis.is_running());
    assert_eq!(redis.status().unwrap(), None);
    assert!(!data.path().join("redis").exists());

    assert_eq!(redis.ensure().unwrap(), Ensured::Started);
    assert_eq!(redis.ensure().unwrap(), Ensured::Found);
    assert!(redis.is_running());
    let status = redis.status().unwrap().unwrap();
    assert!(status.pid > 1 && status.used_memory > 0 && status.connected_clients > 0, "{status:?}");
    assert!(status.version.contains('.'));
    assert_eq!(status.directory, redis.directory());
    assert_eq!(redis.directory().metadata().unwrap().mode() & 0o777, 0o700);
    assert_eq!(redis.socket().metadata().unwrap().mode() & 0o777, 0o700);
    let server = nix::unistd::Pid::from_raw(status.pid.try_into().unwrap());
    assert_eq!(nix::unistd::getsid(Some(server)), Ok(server), "no signal from our terminal reaches it");
}

#[test]
fn the_server_listens_only_on_its_socket_and_logs_every_write_to_disk() {
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let setting = |name: &str| -> Vec<String> {
        redis::cmd("CONFIG").arg("GET").arg(name).query(&mut client(&redis)).unwrap()
    };
    let expected =
        [("port", "0"), ("tls-port", "0"), ("appendonly", "yes"), ("appendfsync", "everysec"), ("save", "")];
    for (name, value) in expected {
        assert_eq!(setting(name), [name, value]);
    }
    assert_eq!(setting("dir")[1], redis.directory().display().to_string());
}

#[test]
fn data_survives_a_stop() {
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let () = client(&redis).set("key", "value").unwrap();
    assert!(redis.stop().unwrap());
    assert!(!redis.is_running());
    assert!(!redis.stop().unwrap());
    assert_eq!(redis.ensure().unwrap(), Ensured::Started);
    let value: String = client(&redis).get("key").unwrap();
    assert_eq!(value, "value");
}

#[test]
fn half_a_transaction_at_the_end_of_the_file_is_never_applied() {
    let (_data, redis) = new_private_redis();
    let both = || {
        let mut pipe = redis::pipe();
        pipe.atomic().rpush("list", "x").ignore().incr("count", 1).ignore();
        pipe.exec(&mut client(&redis)).unwrap();
    };
    redis.ensure().unwrap();
    both();
    both();
    redis.stop().unwrap();
    // This is what a server leaves if it is killed while it writes the second transaction.
    let file = redis.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let written = std::fs::read(&file).unwrap();
    let torn = written.windows(5).rposition(|bytes| bytes.eq_ignore_ascii_case(b"count")).unwrap();
    std::fs::write(&file, &written[..torn]).unwrap();

    redis.ensure().unwrap();
    both();
    redis.stop().unwrap();
    redis.ensure().unwrap();
    let (list, count): (usize, usize) =
        (client(&redis).llen("list").unwrap(), client(&redis).get("count").unwrap());
    assert_eq!((list, count), (2, 2));
}

#[test]
fn the_torn_file_of_a_valkey_server_is_cut_by_valkeys_own_tool() {
    let tools = tempfile::tempdir().unwrap();
    let tool = tools.path().join("valkey-check-aof");
    // It does not matter which of the two tools does the work. The test needs to see that this one was called.
    std::fs::write(&tool, "#!/bin/sh\nexec redis-check-aof \"$@\"\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();

    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let mut pipe = redis::pipe();
    pipe.atomic().rpush("list", "x").ignore().incr("count", 1).exec(&mut client(&redis)).unwrap();
    redis.stop().unwrap();
    let file = redis.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let written = std::fs::read(&file).unwrap();
    std::fs::write(&file, &written[..written.len() - 10]).unwrap();
    redis_program::cut_torn_tail(&tools.path().join("valkey-server"), redis.directory());
    let left = std::fs::read(&file).unwrap();
    assert!(left.len() < written.len() - 10 && written.starts_with(&left), "{} bytes", left.len());
}

#[test]
fn a_file_that_is_damaged_in_the_middle_is_not_cut() {
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    for count in 0..20 {
        let mut pipe = redis::pipe();
        pipe.atomic().rpush("list", count).ignore().incr("count", 1).ignore();
        pipe.exec(&mut client(&redis)).unwrap();
    }
    // The test also covers a file that does not end with a transaction.
    let () = client(&redis).set("last", "value").unwrap();
    redis.stop().unwrap();
    let file = redis.directory().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut written = std::fs::read(&file).unwrap();
    let middle = written.len() / 2;
    let sign = written[middle..].iter().position(|byte| *byte == b'$').unwrap();
    written[middle + sign] = b'?';
    std::fs::write(&file, &written).unwrap();
    assert!(matches!(redis.ensure(), Err(PrivateRedisError::Died { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), written, "it is for its user to decide");
}

#[test]
fn a_server_leaves_data_only_if_it_holds_some_when_it_ends() {
    let (_data, redis) = new_private_redis();
    assert!(!redis.holds_data());
    redis.ensure().unwrap();
    assert!(redis.stop().unwrap() && redis.directory().join("appendonlydir").exists());
    assert!(!redis.holds_data());

    redis.ensure().unwrap();
    let () = client(&redis).set("k", 1).unwrap();
    redis.stop().unwrap();
    assert!(redis.holds_data(), "in the file with the commands");

    rewrite_file(&redis, 2);
    assert!(redis.holds_data(), "in the base file");

    redis.ensure().unwrap();
    redis::cmd("FLUSHALL").exec(&mut client(&redis)).unwrap();
    rewrite_file(&redis, 3);
    assert!(!redis.holds_data(), "all data was deleted");
}

/// Lets the server write all its data into a new base file, with this number, and stops it.
fn rewrite_file(redis: &PrivateRedis, number: u32) {
    redis.ensure().unwrap();
    redis::cmd("BGREWRITEAOF").exec(&mut client(redis)).unwrap();
    let rewritten = redis.directory().join(format!("appendonlydir/appendonly.aof.{number}.base.rdb"));
    eventually(SOON, "the file is rewritten", || rewritten.exists().then_some(()));
    redis.stop().unwrap();
}

#[test]
fn stop_without_a_server_creates_nothing() {
    let (_data, redis) = new_private_redis();
    assert!(!redis.stop().unwrap());
    assert!(!redis.directory().exists());
}

#[test]
fn exactly_one_of_eight_simultaneous_calls_starts_the_server_that_all_use() {
    let (_data, redis) = new_private_redis();
    for _ in 0..5 {
        let barrier = Barrier::new(8);
        let node = || {
            barrier.wait();
            (redis.ensure().unwrap(), pid(&redis))
        };
        let results: Vec<_> = thread::scope(|scope| {
            let nodes: Vec<_> = (0..8).map(|_| scope.spawn(node)).collect();
            nodes.into_iter().map(|node| node.join().unwrap()).collect()
        });
        assert_eq!(
            results.iter().filter(|(ensured, _)| *ensured == Ensured::Started).count(),
            1,
            "{results:?}"
        );
        assert!(results.iter().all(|(_, server)| *server == results[0].1), "{results:?}");
        assert!(redis.stop().unwrap());
    }
}

/// The environment variable that makes `body_of_a_node_process` act as a node. It holds the directory of the server.
const NODE_DIRECTORY: &str = "ESTAFETA_TEST_NODE_DIRECTORY";
/// A node creates this file once its server has answered.
const FOUND: &str = "a-node-found-it";

/// The body of a node that other tests start as a process, and kill. In an ordinary run of the tests it does nothing.
#[test]
fn body_of_a_node_process() {
    if let Some(directory) = std::env::var_os(NODE_DIRECTORY) {
        let redis = PrivateRedis::at(directory.into()).unwrap();
        redis.ensure().unwrap();
        std::fs::write(redis.directory().join(FOUND), "").unwrap();
        thread::sleep(Duration::from_secs(60));
    }
}

struct NodeProcess(Child);

impl NodeProcess {
    fn start(redis: &PrivateRedis) -> Self {
        // The test harness names tests without the crate, but `module_path!` begins with the crate.
        let name = module_path!().split_once("::").unwrap().1.to_owned() + "::body_of_a_node_process";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name]).env(NODE_DIRECTORY, redis.directory());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn the_server_and_its_lock_outlive_a_killed_node() {
    let (_data, redis) = new_private_redis();
    let mut node = NodeProcess::start(&redis);
    eventually(SOON, "the node starts the server", || redis.is_running().then_some(()));
    let server = pid(&redis);
    node.kill();
    assert_eq!(pid(&redis), server);
    assert!(redis.lock_is_held().unwrap());
    assert_eq!(redis.ensure().unwrap(), Ensured::Found);
}

#[test]
fn a_living_node_does_not_hold_the_lock_of_a_dead_server() {
    let (_data, redis) = new_private_redis();
    let mut node = NodeProcess::start(&redis);
    eventually(SOON, "the node starts the server", || redis.directory().join(FOUND).exists().then_some(()));
    let server = nix::unistd::Pid::from_raw(pid(&redis).try_into().unwrap());
    nix::sys::signal::kill(server, nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually(SOON, "the lock is free", || (!redis.lock_is_held().unwrap()).then_some(()));
    assert!(node.0.try_wait().unwrap().is_none());
    assert_eq!(redis.ensure().unwrap(), Ensured::Started);
}

#[test]
fn nodes_killed_at_any_moment_of_the_start_leave_at_most_one_server() {
    let (_data, redis) = new_private_redis();
    for delay in 0..20 {
        let mut nodes: Vec<NodeProcess> = (0..3).map(|_| NodeProcess::start(&redis)).collect();
        thread::sleep(Duration::from_millis(delay * 2));
        nodes.iter_mut().for_each(NodeProcess::kill);
        redis.ensure().unwrap();
        #[cfg(target_os = "linux")]
        assert_eq!(processes_in(redis.directory()), [pid(&redis)]);
        assert!(redis.stop().unwrap());
        assert!(!redis.is_running());
    }
}

/// All processes whose working directory is `directory`. Only its server works there.
#[cfg(target_os = "linux")]
fn processes_in(directory: &Path) -> Vec<u32> {
    let works_there =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
    let names =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).filter(works_there).collect()
}

#[test]
fn the_error_of_a_server_that_cannot_start_contains_the_reason() {
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let () = client(&redis).set("key", "value").unwrap();
    redis.stop().unwrap();
    let manifest = redis.directory().join("appendonlydir/appendonly.aof.manifest");
    std::fs::write(manifest, "nonsense\n").unwrap();
    let error = redis.ensure().unwrap_err();
    assert!(matches!(error, PrivateRedisError::Died { .. }), "{error:?}");
    assert!(error.to_string().contains("anifest"), "{error}");
}

#[test]
fn an_obstacle_in_place_of_the_lock_or_the_socket_is_named_in_the_error() {
    let (_data, redis) = new_private_redis();
    std::fs::create_dir(redis.directory()).unwrap();
    std::os::unix::fs::symlink(redis.lock_path(), redis.lock_path()).unwrap();
    let error = redis.stop().unwrap_err();
    assert_eq!(error.to_string(), format!("opening {}", redis.lock_path().display()));

    std::fs::remove_file(redis.lock_path()).unwrap();
    std::fs::create_dir(redis.socket()).unwrap();
    let error = redis.ensure().unwrap_err();
    assert_eq!(error.to_string(), format!("removing {}", redis.socket().display()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_that_ended_does_not_stay_as_a_zombie() {
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let process = PathBuf::from(format!("/proc/{}", pid(&redis)));
    assert!(process.exists() && redis.stop().unwrap());
    eventually(SOON, "its end is taken note of", || (!process.exists()).then_some(()));
}

/// Sends `answer` to the first client of a socket.
fn answer_at(socket: &Path, answer: &'static [u8]) -> thread::JoinHandle<()> {
    use std::io::{Read as _, Write as _};
    let _ = std::fs::remove_file(socket);
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 100]);
        stream.write_all(answer).unwrap();
    })
}

#[test]
fn a_server_that_is_still_loading_is_not_replaced_even_if_its_lock_is_gone() {
    let (_data, redis) = new_private_redis();
    let prepared = directory::prepare(redis.directory()).unwrap();
    let server = answer_at(&redis.socket(), b"-LOADING Redis is loading the dataset in memory\r\n");
    assert!(!redis.try_start(&prepared, Instant::now() + SOON).unwrap());
    server.join().unwrap();
    assert!(redis.socket().exists() && !redis.is_running());
}

#[test]
fn a_probe_distinguishes_a_server_that_serves_one_that_loads_and_none() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let found_behind = |answer: &'static [u8]| {
        let server = answer_at(&socket, answer);
        let found = probe::probe(&socket);
        server.join().unwrap();
        found
    };
    assert_eq!(found_behind(b"+PONG\r\n"), Probe::Ready);
    assert_eq!(found_behind(b"-LOADING Redis is loading the dataset in memory\r\n"), Probe::Loading);
    assert_eq!(found_behind(b"-MISCONF Errors writing to the AOF file\r\n"), Probe::Ready);
    assert_eq!(found_behind(b""), Probe::Nothing);
}

#[test]
fn a_directory_with_wrong_permissions_is_closed_and_a_foreign_one_is_refused() {
    let (data, redis) = new_private_redis();
    std::fs::create_dir(redis.directory()).unwrap();
    for lax in [0o755, 0o750, 0o770, 0o710, 0o701, 0o500] {
        std::fs::set_permissions(redis.directory(), std::fs::Permissions::from_mode(lax)).unwrap();
        directory::prepare(redis.directory()).unwrap();
        assert_eq!(redis.directory().metadata().unwrap().mode() & 0o777, 0o700, "it was {lax:o}");
    }

    let file = data.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(directory::prepare(&file), Err(PrivateRedisError::Io { .. })));

    // Only root can create a directory that belongs to another user.
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(redis.directory(), Some(12345), None).unwrap();
        let error = redis.ensure().unwrap_err();
        assert!(matches!(error, PrivateRedisError::NotOurs { owner: 12345, .. }), "{error:?}");
    }
}

#[test]
fn environment_variables_decide_where_the_directory_is() {
    let locate = |variables: &[(&str, &str)]| {
        let variables: Vec<(String, OsString)> =
            variables.iter().map(|(name, value)| (name.to_string(), value.into())).collect();
        directory::locate(|name| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()))
    };
    let home = ("HOME", "/home/me");
    let platform = if cfg!(target_os = "macos") {
        "/home/me/Library/Application Support"
    } else {
        "/home/me/.local/share"
    };
    let platform = Path::new(platform).join("estafeta/redis");
    assert_eq!(locate(&[home]).unwrap(), platform);
    assert_eq!(locate(&[home, ("XDG_DATA_HOME", "relative")]).unwrap(), platform);
    assert_eq!(locate(&[home, ("ESTAFETA_DATA", "")]).unwrap(), platform);
    assert_eq!(locate(&[home, ("XDG_DATA_HOME", "/data")]).unwrap(), Path::new("/data/estafeta/redis"));
    assert_eq!(locate(&[home, ("ESTAFETA_DATA", "/mine")]).unwrap(), Path::new("/mine/redis"));
    assert!(locate(&[("ESTAFETA_DATA", "mine")]).unwrap().is_absolute());
    assert!(matches!(locate(&[]), Err(PrivateRedisError::NoHome)));
}

#[test]
fn the_error_for_a_path_too_long_for_a_socket_suggests_a_remedy() {
    let longest = directory::MAX_SOCKET_PATH - "//redis.sock".len();
    PrivateRedis::at(Path::new("/").join("x".repeat(longest))).unwrap();
    let error = PrivateRedis::at(Path::new("/").join("x".repeat(longest + 1))).unwrap_err();
    assert!(error.to_string().contains("set ESTAFETA_DATA to a shorter"), "{error}");
}

#[test]
fn a_path_with_special_characters_becomes_a_url_that_works() {
    assert_eq!(socket_url(Path::new("/a-b_c.D~1/e f%")), "redis+unix:///a-b_c.D~1/e%20f%25");
    let data = DataDir::new();
    let redis = PrivateRedis::at(data.path().join("a b%?#ñ").join("redis")).unwrap();
    redis.ensure().unwrap();
    let () = client(&redis).set("key", "value").unwrap();
    assert!(redis.stop().unwrap());
}

#[test]
fn only_an_executable_server_program_on_the_path_is_found() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(redis_program::find_on(Some(empty.path().as_os_str())), None);
    let valkey = empty.path().join("valkey-server");
    std::fs::write(&valkey, "").unwrap();
    assert_eq!(redis_program::find_on(Some(empty.path().as_os_str())), None);
    std::fs::set_permissions(&valkey, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(redis_program::find_on(Some(empty.path().as_os_str())), Some(valkey));
    assert!(NotInstalled.to_string().contains("apt install redis-server"));
}

#[test]
fn a_frozen_server_does_not_block_its_clients() {
    use nix::sys::signal::{Signal, kill};
    let (_data, redis) = new_private_redis();
    redis.ensure().unwrap();
    let server = nix::unistd::Pid::from_raw(pid(&redis).try_into().unwrap());
    kill(server, Signal::SIGSTOP).unwrap();
    let asked = Instant::now();
    let running = redis.is_running();
    kill(server, Signal::SIGCONT).unwrap();
    let took = asked.elapsed();
    assert!(!running && took < SOON / 2, "it took {took:?}");
    assert_eq!(redis.ensure().unwrap(), Ensured::Found);
}
