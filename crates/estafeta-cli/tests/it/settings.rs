//! A flag overrides the environment, and the environment overrides the file.

use estafeta_testbed::{NO_ENV, Process, RedisServer};

use crate::support::{ProgramRing, SOON, TextFile, run, start};

type Envs<'a> = &'a [(&'a str, &'a str)];

/// Starts a node and waits until it has joined, in any Redis and ring.
fn node(args: &[&str], envs: &[(&str, &str)]) -> Process {
    let node = start(&[&["run"], args].concat(), envs);
    node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    node
}

fn has_members(redis: &RedisServer, db: u16, ring: &str) -> bool {
    let mut connection = redis.connect();
    redis::cmd("SELECT").arg(db).exec(&mut connection).unwrap();
    redis::cmd("EXISTS").arg(format!("{{{ring}}}:members")).query(&mut connection).unwrap()
}

#[test]
fn for_redis_a_flag_overrides_the_environment_and_that_overrides_the_file() {
    let [by_file, by_env, by_flag] = [(); 3].map(|()| RedisServer::start());
    let file = TextFile::new(&format!("redis = {:?}\n", by_file.url()));
    let (env, flag) = (by_env.url(), by_flag.url());
    let joined = |args: &[&str], envs: &[(&str, &str)]| {
        let _node = node(args, envs);
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
    assert_eq!(joined(&config, &both), [false, true, false], "ESTAFETA_REDIS overrides REDIS_URL");
}

#[test]
fn for_the_ring_a_flag_overrides_the_environment_and_that_overrides_the_file() {
    let redis = RedisServer::start();
    let url = redis.url();
    let file = TextFile::new("ring = \"by-file\"\n");
    let joined = |args: &[&str], envs: &[(&str, &str)]| {
        let envs = [envs, &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", file.path())]].concat();
        let _node = node(args, &envs);
        ["by-file", "by-env", "by-flag"].map(|ring| has_members(&redis, 0, ring))
    };
    let env = [("ESTAFETA_RING", "by-env")];
    assert_eq!(joined(&[], &[]), [true, false, false]);
    assert_eq!(joined(&[], &env), [true, true, false]);
    assert_eq!(joined(&["--ring", "by-flag"], &env), [true; 3]);
}

#[test]
fn for_the_limit_a_flag_overrides_the_environment_and_that_overrides_the_file() {
    let file = TextFile::new("limit = 2\ninterval = \"0\"\n");
    let reached = |args: &[&str], envs: &[(&str, &str)]| {
        let ring = ProgramRing::new();
        let url = ring.redis.url();
        let envs = [envs, &[("REDIS_URL", &url), ("ESTAFETA_CONFIG", file.path())]].concat();
        let node = node(args, &envs);
        let line = node.wait_for_line(SOON, |line| line.starts_with("the limit of"));
        line.split(';').next().unwrap().to_owned()
    };
    let env = [("ESTAFETA_LIMIT", "3")];
    assert_eq!(reached(&[], &[]), "the limit of 2 messages is reached");
    assert_eq!(reached(&[], &env), "the limit of 3 messages is reached");
    assert_eq!(reached(&["--limit", "4"], &env), "the limit of 4 messages is reached");
}

#[test]
fn for_the_interval_a_flag_overrides_the_environment_and_that_overrides_the_file() {
    let file = TextFile::new("interval = \"1h\"\n");
    // The first message is published at once. The ring records when the second one is due.
    let interval_ms = |args: &[&str], envs: &[(&str, &str)]| {
        let ring = ProgramRing::new();
        let url = ring.redis.url();
        let _node = node(args, &[envs, &[("REDIS_URL", &url)]].concat());
        ring.eventually(SOON, "the first message", |status| status["published"] == 1);
        let field = |name| {
            let value = ring.redis_cli(&["HGET", "{estafeta}:ledger", name]);
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
fn host_port_and_database_select_a_redis() {
    let redis = RedisServer::builder().tcp().start();
    let port = redis.port().to_string();
    let _flags =
        node(&["--host", "localhost", "--port", &port, "--db", "3"], &[("REDIS_URL", "redis://127.0.0.1:1")]);
    assert_eq!([0, 3].map(|db| has_members(&redis, db, "estafeta")), [false, true]);
    let _env = node(&[], &[("ESTAFETA_HOST", "127.0.0.1"), ("ESTAFETA_PORT", &port), ("ESTAFETA_DB", "4")]);
    assert!(has_members(&redis, 4, "estafeta"));
    let file = TextFile::new(&format!("host = \"127.0.0.1\"\nport = {port}\ndb = 5\n"));
    let _file = node(&["--config", file.path()], &[]);
    assert!(has_members(&redis, 5, "estafeta"));
    let status = run(&["status", "--port", &port, "--db", "3", "--json"], &[]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["members"].as_array().unwrap().len(), 1);
}

#[test]
fn estafeta_variables_override_redis_url() {
    let redis = RedisServer::builder().tcp().start();
    let (port, elsewhere) = (redis.port().to_string(), ("REDIS_URL", "redis://127.0.0.1:1"));
    for ours in [("ESTAFETA_PORT", port.as_str()), ("ESTAFETA_REDIS", &redis.tcp_url())] {
        let output = run(&["rings"], &[ours, elsewhere]);
        assert!(output.status.success(), "{ours:?}: {output:?}");
    }
}

#[test]
fn a_database_in_the_file_does_not_change_a_url_from_a_flag_or_the_environment() {
    let redis = RedisServer::builder().tcp().start();
    let url = format!("{}/1", redis.tcp_url());
    let file = TextFile::new("db = 5\n");
    let config = ["--config", file.path()];
    for (args, envs) in [
        (config.to_vec(), vec![("REDIS_URL", url.as_str())]),
        (config.to_vec(), vec![("ESTAFETA_REDIS", url.as_str())]),
        ([&config[..], &["--redis", &url]].concat(), vec![]),
    ] {
        let _node = node(&args, &envs);
        assert_eq!([1, 5].map(|db| has_members(&redis, db, "estafeta")), [true, false], "{args:?} {envs:?}");
        redis::cmd("FLUSHALL").exec(&mut redis.connect()).unwrap();
    }
    let _node = node(&["--db", "2"], &[("REDIS_URL", &url)]);
    assert!(has_members(&redis, 2, "estafeta"), "a flag does change a URL of the environment");
}

#[test]
fn a_password_can_come_from_every_source() {
    let redis = RedisServer::builder().tcp().password("right word").start();
    let port = redis.port().to_string();
    let secret = TextFile::new("right word\n");
    let other = TextFile::new("wrong\n");
    let named = TextFile::new(&format!("port = {port}\npassword-file = {:?}\n", secret.path()));
    let written = TextFile::new(&format!("port = {port}\npassword = \"right word\"\n"));
    let bare = format!("redis://127.0.0.1:{port}");
    let with_password = format!("redis://:right%20word@127.0.0.1:{port}");
    let ways: [(&[&str], Envs<'_>); 14] = [
        (&["--redis", &bare, "--password", "right word"], &[]),
        (&["--redis", &bare, "--user", "default", "--password", "right word"], &[]),
        (
            &[],
            &[("ESTAFETA_REDIS", &bare), ("ESTAFETA_PASSWORD", "right word"), ("ESTAFETA_USER", "default")],
        ),
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
        let output = run(&[&["rings"], args].concat(), envs);
        assert!(output.status.success(), "{args:?} {envs:?}: {output:?}");
    }
}

#[test]
fn a_password_in_the_file_is_not_sent_to_a_redis_that_is_named_elsewhere() {
    let redis = RedisServer::builder().tcp().password("right").start();
    let file = TextFile::new("host = \"elsewhere.invalid\"\npassword = \"of another server\"\n");
    let output = run(&["rings", "--config", file.path()], &[("REDIS_URL", &redis.tcp_url())]);
    assert!(output.status.success(), "{output:?}");

    let bare = format!("redis://127.0.0.1:{}", redis.port());
    let output = run(&["status", "--config", file.path()], &[("REDIS_URL", &bare)]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    // If the program had sent the password, Redis would have called it wrong.
    assert!(stderr.contains("NOAUTH") && !stderr.contains("WRONGPASS"), "{stderr}");
}

#[test]
fn a_url_may_name_the_database_as_a_parameter() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().start());
    let mut connection = ring.redis.connect();
    redis::cmd("SELECT").arg(3).exec(&mut connection).unwrap();
    redis::cmd("SET").arg("{there}:schema").arg(4).exec(&mut connection).unwrap();
    for end in ["/3", "/3/", "?db=3", "/?db=3", "/3?db=3"] {
        let url = format!("redis://127.0.0.1:{}{end}", ring.redis.port());
        let output = run(&["rings", "--redis", &url], &NO_ENV);
        assert!(String::from_utf8_lossy(&output.stdout).contains("there "), "{end}: {output:?}");
    }
}
