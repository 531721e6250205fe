//! A flag beats the environment beats the file.

use estafeta_testbed::{Process, RedisServer};

use crate::support::{SOON, TestRing, run, start};

type Envs<'a> = &'a [(&'a str, &'a str)];

struct Settings(tempfile::NamedTempFile);

impl Settings {
    fn new(text: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// Starts a copy and waits until it has joined, wherever that is.
fn copy(args: &[&str], envs: &[(&str, &str)]) -> Process {
    let copy = start(&[&["run"], args].concat(), envs);
    copy.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    copy
}

fn has_members(redis: &RedisServer, db: u16, ring: &str) -> bool {
    let mut connection = redis.connect();
    redis::cmd("SELECT").arg(db).exec(&mut connection).unwrap();
    redis::cmd("EXISTS").arg(format!("{{{ring}}}:members")).query(&mut connection).unwrap()
}

#[test]
fn redis_by_flag_beats_environment_beats_file() {
    let [by_file, by_env, by_flag] = [(); 3].map(|()| RedisServer::start());
    let file = Settings::new(&format!("redis = {:?}\n", by_file.url()));
    let (env, flag) = (by_env.url(), by_flag.url());
    let joined = |args: &[&str], envs: &[(&str, &str)]| {
        let _copy = copy(args, envs);
        [&by_file, &by_env, &by_flag].map(|redis| has_members(redis, 0, "estafeta"))
    };
    let config = ["--config", file.path()];
    assert_eq!(joined(&config, &[]), [true, false, false]);
    assert_eq!(joined(&config, &[("REDIS_URL", &env)]), [true, true, false]);
    assert_eq!(joined(&[&config[..], &["--redis", &flag]].concat(), &[("REDIS_URL", &env)]), [true; 3]);
    for redis in [&by_file, &by_env, &by_flag] {
        let mut connection = redis.connect();
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    }
    let both = [("ESTAFETA_REDIS", env.as_str()), ("REDIS_URL", flag.as_str())];
    assert_eq!(joined(&config, &both), [false, true, false], "the variable of our own is the stronger one");
}

#[test]
fn the_ring_by_flag_beats_environment_beats_file() {
    let redis = RedisServer::start();
    let url = redis.url();
    let file = Settings::new("ring = \"by-file\"\n");
    let joined = |args: &[&str], envs: &[(&str, &str)]| {
        let envs = [envs, &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", file.path())]].concat();
        let _copy = copy(args, &envs);
        ["by-file", "by-env", "by-flag"].map(|ring| has_members(&redis, 0, ring))
    };
    let env = [("ESTAFETA_RING", "by-env")];
    assert_eq!(joined(&[], &[]), [true, false, false]);
    assert_eq!(joined(&[], &env), [true, true, false]);
    assert_eq!(joined(&["--ring", "by-flag"], &env), [true; 3]);
}

#[test]
fn the_limit_by_flag_beats_environment_beats_file() {
    let file = Settings::new("limit = 2\ninterval = \"0\"\n");
    let reached = |args: &[&str], envs: &[(&str, &str)]| {
        let ring = TestRing::new();
        let url = ring.redis.url();
        let envs = [envs, &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", file.path())]].concat();
        let copy = copy(args, &envs);
        let line = copy.wait_for_line(SOON, |line| line.starts_with("the limit of"));
        line.split(';').next().unwrap().to_owned()
    };
    let env = [("ESTAFETA_LIMIT", "3")];
    assert_eq!(reached(&[], &[]), "the limit of 2 messages is reached");
    assert_eq!(reached(&[], &env), "the limit of 3 messages is reached");
    assert_eq!(reached(&["--limit", "4"], &env), "the limit of 4 messages is reached");
}

#[test]
fn the_interval_by_flag_beats_environment_beats_file() {
    let file = Settings::new("interval = \"1h\"\n");
    // The first message goes out at once; when the second one is due is written in the ring.
    let interval_ms = |args: &[&str], envs: &[(&str, &str)]| {
        let ring = TestRing::new();
        let url = ring.redis.url();
        let _copy = copy(args, &[envs, &[("REDIS_URL", &url)]].concat());
        ring.eventually(SOON, "the first message", |status| status["published"] == 1);
        let field = |name| {
            let value = ring.redis_cli(&["HGET", "{estafeta}:leader", name]);
            redis::from_redis_value::<u64>(value).unwrap()
        };
        field("due") - field("since")
    };
    const HOUR: u64 = 3_600_000;
    let config = ["--config", file.path()];
    let env = [("ESTAFETA_INTERVAL", "2h")];
    assert_eq!(interval_ms(&config, &[]), HOUR);
    assert_eq!(interval_ms(&config, &env), 2 * HOUR);
    assert_eq!(interval_ms(&[&config[..], &["--interval", "3h"]].concat(), &env), 3 * HOUR);
}

#[test]
fn host_port_and_database_name_a_redis() {
    let redis = RedisServer::builder().tcp().start();
    let port = redis.port().to_string();
    let _flags =
        copy(&["--host", "localhost", "--port", &port, "--db", "3"], &[("REDIS_URL", "redis://127.0.0.1:1")]);
    assert_eq!([0, 3].map(|db| has_members(&redis, db, "estafeta")), [false, true]);
    let _env = copy(&[], &[("ESTAFETA_HOST", "127.0.0.1"), ("ESTAFETA_PORT", &port), ("ESTAFETA_DB", "4")]);
    assert!(has_members(&redis, 4, "estafeta"));
    let file = Settings::new(&format!("host = \"127.0.0.1\"\nport = {port}\ndb = 5\n"));
    let _file = copy(&["--config", file.path()], &[]);
    assert!(has_members(&redis, 5, "estafeta"));
    let status = run(&["status", "--port", &port, "--db", "3", "--json"], &[]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["members"].as_array().unwrap().len(), 1);
}

#[test]
fn variables_of_our_own_beat_the_usual_one() {
    let redis = RedisServer::builder().tcp().start();
    let (port, elsewhere) = (redis.port().to_string(), ("REDIS_URL", "redis://127.0.0.1:1"));
    for ours in [("ESTAFETA_PORT", port.as_str()), ("ESTAFETA_REDIS", &redis.tcp_url())] {
        let output = run(&["status"], &[ours, elsewhere]);
        assert!(output.status.success(), "{ours:?}: {output:?}");
    }
}

#[test]
fn a_database_in_the_file_does_not_change_a_url_from_above() {
    let redis = RedisServer::builder().tcp().start();
    let url = format!("{}/1", redis.tcp_url());
    let file = Settings::new("db = 5\n");
    let config = ["--config", file.path()];
    for (args, envs) in [
        (config.to_vec(), vec![("REDIS_URL", url.as_str())]),
        (config.to_vec(), vec![("ESTAFETA_REDIS", url.as_str())]),
        ([&config[..], &["--redis", &url]].concat(), vec![]),
    ] {
        let _copy = copy(&args, &envs);
        assert_eq!([1, 5].map(|db| has_members(&redis, db, "estafeta")), [true, false], "{args:?} {envs:?}");
        redis::cmd("FLUSHALL").exec(&mut redis.connect()).unwrap();
    }
    let _copy = copy(&["--db", "2"], &[("REDIS_URL", &url)]);
    assert!(has_members(&redis, 2, "estafeta"), "a flag does change a URL of the environment");
}

#[test]
fn a_password_may_come_from_anywhere() {
    let redis = RedisServer::builder().tcp().password("right word").start();
    let port = redis.port().to_string();
    let secret = Settings::new("right word\n");
    let other = Settings::new("wrong\n");
    let named = Settings::new(&format!("port = {port}\npassword-file = {:?}\n", secret.path()));
    let written = Settings::new(&format!("port = {port}\npassword = \"right word\"\n"));
    let bare = format!("redis://127.0.0.1:{port}");
    let with_password = format!("redis://:right%20word@127.0.0.1:{port}");
    let ways: [(&[&str], Envs<'_>); 11] = [
        (&["--redis", &with_password], &[("ESTAFETA_PASSWORD", "wrong")]),
        (&["--port", &port, "--password", "right word"], &[("ESTAFETA_PASSWORD", "wrong")]),
        (&["--port", &port, "--password-file", secret.path()], &[("ESTAFETA_PASSWORD", "wrong")]),
        (&["--port", &port], &[("ESTAFETA_PASSWORD", "right word")]),
        (&["--port", &port], &[("ESTAFETA_PASSWORD_FILE", secret.path())]),
        (&[], &[("REDIS_URL", &bare), ("ESTAFETA_PASSWORD", "right word")]),
        (&["--redis", &bare, "--password-file", secret.path()], &[]),
        (&["--redis", &bare], &[("ESTAFETA_PASSWORD", "right word")]),
        (&["--config", named.path()], &[]),
        (&["--config", written.path()], &[]),
        (
            &["--config", written.path(), "--password-file", secret.path()],
            &[("ESTAFETA_PASSWORD_FILE", other.path())],
        ),
    ];
    for (args, envs) in ways {
        let output = run(&[&["status"], args].concat(), envs);
        assert!(output.status.success(), "{args:?} {envs:?}: {output:?}");
    }
}

#[test]
fn a_password_in_the_file_does_not_go_to_a_redis_named_elsewhere() {
    let redis = RedisServer::builder().tcp().password("right").start();
    let file = Settings::new("host = \"elsewhere.invalid\"\npassword = \"of another server\"\n");
    let output = run(&["status", "--config", file.path()], &[("REDIS_URL", &redis.tcp_url())]);
    assert!(output.status.success(), "{output:?}");

    let bare = format!("redis://127.0.0.1:{}", redis.port());
    let output = run(&["status", "--config", file.path()], &[("REDIS_URL", &bare)]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    // Had it been sent, it would have been called wrong.
    assert!(told.contains("NOAUTH") && !told.contains("WRONGPASS"), "{told}");
}
