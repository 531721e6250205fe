//! The whole program on sentinels and on a cluster, over TLS and as a user with no more rights than a ring needs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use estafeta_testbed::{Output, Process, RedisCluster, RedisSentinels, RedisServer, TlsFiles, eventually};
use serde_json::Value;

use crate::support::{SOON, TextFile, run, start};

const KEYSPACE: &str = include_str!("../../../../docs/keyspace.md");

/// Servers that speak TLS, demand a certificate of their clients, and know a user with the documented rights.
fn strict_servers(files: &TlsFiles) -> estafeta_testbed::Builder {
    let rule = KEYSPACE.lines().find_map(|line| line.strip_prefix("ACL SETUSER estafeta on ><password> "));
    let rule = rule.expect("the page has a rule").replace("{ring}", "{estafeta}");
    RedisServer::builder().tls(files).user("app", "s3cret", &rule).arg("--tls-auth-clients", "yes")
}

/// The settings file by which the program reaches a Redis.
fn settings(url: &str, files: &TlsFiles) -> TextFile {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let lines = [
        format!("redis = {url:?}"),
        format!("tls-ca = {}", quoted(&files.ca())),
        format!("tls-cert = {}", quoted(&files.client_certificate())),
        format!("tls-key = {}", quoted(&files.client_key())),
    ];
    TextFile::new(&lines.join("\n"))
}

/// The program with one settings file.
struct Program<'a>(&'a str);

impl Program<'_> {
    fn start(&self, args: &[&str]) -> Process {
        start(args, &[("ESTAFETA_CONFIG", self.0)])
    }

    fn output(&self, args: &[&str]) -> Output {
        run(args, &[("ESTAFETA_CONFIG", self.0)])
    }

    fn success(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.success(&["status", "--json"])).unwrap()
    }

    fn progress(&self) {
        let done = |status: &Value| status["done"].as_u64().unwrap() + status["errorsKept"].as_u64().unwrap();
        let before = done(&self.status());
        eventually(SOON, "messages are handled", || (done(&self.status()) > before + 10).then_some(()));
    }

    /// Runs each of these commands, all of them at the same time, until another server has taken over the ring.
    fn succeed_during(&self, switch: impl Fn() + Sync, commands: &[&[&str]]) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for command in commands {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        self.success(command);
                    }
                });
            }
            switch();
            is_over.store(true, Ordering::Relaxed);
        });
    }

    /// Runs every command that works on a ring. `switch` makes another server keep it.
    fn try_every_command(&self, switch: impl Fn() + Sync) {
        let busy = ["--interval", "20ms", "--error-rate", "0.3", "--journal"];
        let nodes = [0, 1, 2].map(|_| self.start(&[&["run"], &busy[..]].concat()));
        for node in &nodes {
            node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
        }
        self.progress();
        for round in 0..2 {
            self.success(&["publish", "hello"]);
            self.success(&["pause", "--producing", "--for", "50ms"]);
            self.success(&["limit", "--in-flight", "100"]);
            assert!(!self.success(&["errors", "list"]).is_empty());
            self.success(&["errors", "retry", "--all"]);
            eventually(SOON, "errors", || (!self.success(&["getErrors"]).is_empty()).then_some(()));
            self.success(&["cleanTemp"]);
            self.success(&["results"]);
            self.success(&["upgrade"]);
            let delayed: Value =
                serde_json::from_str(&self.success(&["publish", "--delay", "1h", "later"])).unwrap();
            self.success(&["cancel", &delayed["id"].to_string()]);
            assert!(self.success(&["rings"]).contains("estafeta"));
            let monitor = self.success(&["monitor", "-n", "1", "--for", "2s"]);
            assert!(monitor.contains(" ring estafeta "), "{monitor}");
            self.progress();
            if round == 0 {
                let monitor = ["monitor", "-n", "1", "--for", "1s"];
                self.succeed_during(&switch, &[&["status"], &["getErrors"], &monitor]);
                self.progress();
            }
        }
        let status = self.status();
        assert_eq!(status["balanced"], true, "{status}");
        for node in &nodes {
            assert!(node.is_running());
            node.signal(estafeta_testbed::Signal::SIGTERM);
            assert_eq!(node.wait(SOON).code(), Some(0));
        }
        thread::scope(|scope| {
            scope.spawn(&switch);
            self.success(&["reset", "--yes"]);
        });
    }
}

#[test]
fn every_command_works_through_sentinels_with_tls_and_few_rights() {
    let files = TlsFiles::new();
    let redis = RedisSentinels::builder().servers(strict_servers(&files)).start();
    let file = settings(&redis.url_as("app", "s3cret"), &files);
    Program(file.path()).try_every_command(|| {
        redis.wait_until_healthy();
        redis.failover();
    });
}

#[test]
fn every_command_works_through_a_cluster_with_tls_and_few_rights() {
    let files = TlsFiles::new();
    let redis = RedisCluster::builder().servers(strict_servers(&files)).start();
    let file = settings(&redis.url_as("app", "s3cret"), &files);
    Program(file.path()).try_every_command(|| {
        redis.wait_until_healthy();
        redis.failover("estafeta");
    });
}

/// The only line that a failed call prints.
fn refusal(args: &[&str], envs: &[(&str, &str)], code: i32) -> String {
    let output = run(args, envs);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn files_of_tls_that_do_not_fit_are_refused_in_one_line() {
    let (files, foreign) = (TlsFiles::new(), TlsFiles::new());
    let redis = RedisServer::builder().tls(&files).arg("--tls-auth-clients", "yes").start();
    let url = redis.url();
    let text = |path: std::path::PathBuf| path.display().to_string();
    let (ca, cert, key) = (text(files.ca()), text(files.client_certificate()), text(files.client_key()));
    let other = text(foreign.ca());
    let status = |rest: &[&str], code| refusal(&[&["status", "--redis", &url], rest].concat(), &[], code);

    let missing = status(&["--tls-ca", "/no/such/file"], 3);
    assert!(missing.contains("tls-ca: cannot read /no/such/file"), "{missing}");
    let untrusted = status(&["--tls-ca", &other, "--tls-cert", &cert, "--tls-key", &key], 3);
    assert!(untrusted.contains("certificate"), "{untrusted}");
    // The certificate is for localhost.
    let other_host = format!("rediss://127.0.0.1:{}", redis.port());
    let args = ["status", "--redis", &other_host, "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let other_host = refusal(&args, &[], 3);
    assert!(other_host.contains("certificate not valid for name"), "{other_host}");
    let anonymous = status(&["--tls-ca", &ca], 3);
    assert!(anonymous.contains("ertificate"), "{anonymous}");
    let no_key = status(&["--tls-ca", &ca, "--tls-cert", &cert], 2);
    assert!(no_key.contains("--tls-cert: expected tls-key beside it"), "{no_key}");
    let not_pem = status(&["--tls-ca", &ca, "--tls-cert", "/dev/null", "--tls-key", &key], 3);
    assert!(!not_pem.is_empty());
    let plain = refusal(&["status", "--redis", "redis://localhost", "--tls-ca", &ca], &[], 2);
    assert!(plain.contains("--tls-ca: expected a URL with rediss beside it"), "{plain}");

    let envs = [("ESTAFETA_TLS_CA", &ca), ("ESTAFETA_TLS_CERT", &cert), ("ESTAFETA_TLS_KEY", &key)];
    let envs = envs.map(|(name, value)| (name, value.as_str()));
    let reached = run(&["status", "--redis", &url], &envs);
    let stderr = String::from_utf8(reached.stderr).unwrap();
    assert!(stderr.contains("there is no ring"), "the server was reached: {stderr}");
}

#[test]
fn urls_that_do_not_fit_are_refused_in_one_line() {
    let redis = RedisServer::builder().tcp().start();
    let port = redis.port();
    let status = |url: &str, code| refusal(&["status", "--redis", url], &[], code);
    let db = status("redis+cluster://127.0.0.1:1/1", 2);
    assert!(db.contains("--redis: expected") && db.contains("a cluster has only database 0"), "{db}");
    let db = refusal(&["status", "--redis", "redis+cluster://127.0.0.1:1", "--db", "1"], &[], 2);
    assert!(db.contains("--db: expected 0, because a cluster has no other database"), "{db}");
    let none = status("redis+sentinel://127.0.0.1:1,127.0.0.1:2/m", 3);
    assert!(none.contains("the sentinel at 127.0.0.1:"), "{none}");
    let alone = status(&format!("redis+cluster://127.0.0.1:{port}"), 3);
    assert!(alone.contains("it is no node of a cluster"), "{alone}");
    let no_sentinel = status(&format!("redis+sentinel://127.0.0.1:{port}/m"), 3);
    assert!(no_sentinel.contains("is no sentinel"), "{no_sentinel}");
}

#[test]
fn sentinels_that_do_not_fit_are_refused_in_one_line() {
    let redis = RedisSentinels::start();
    let sentinel = redis.sentinels()[0].port();
    for command in [&["status"][..], &["run"], &["getErrors"], &["monitor", "--attach", "--for", "1s"]] {
        let refused = |url: &str| refusal(command, &[("REDIS_URL", url)], 3);
        let unknown = refused(&format!("redis+sentinel://127.0.0.1:{sentinel}/nobody"));
        assert!(unknown.ends_with("refuses: no sentinel knows a master named nobody\n"), "{unknown}");
        let as_server = refused(&format!("redis://127.0.0.1:{sentinel}"));
        let hint = "it is a sentinel: name it in redis+sentinel://host:port/name\n";
        assert!(as_server.ends_with(hint), "{as_server}");
    }
    // There are two replicas.
    assert!(run(&["publish", "x"], &[("REDIS_URL", &redis.url())]).status.success());
    for command in [&["run"][..], &["getErrors"], &["publish", "x"]] {
        let args = [command, &["--durability", "replicas=3"]].concat();
        let code = if command[0] == "publish" { 75 } else { 3 };
        let few = refusal(&args, &[("REDIS_URL", &redis.url())], code);
        assert!(few.contains("only 2 of 3 replicas"), "{few}");
    }
}
