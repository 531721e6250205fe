//! A Redis that is down, too old, closed to us, or used by another program. Each is reported in one line, and Redis
//! stays as it is.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use estafeta_testbed::RedisServer;

use crate::bad_input::{refuses_in_one_line, ring_with_errors};
use crate::support::ProgramRing;

/// Every command that talks to Redis, in its simplest form.
const COMMANDS: [&[&str]; 14] = [
    &["run"],
    &["getErrors"],
    &["status"],
    &["errors", "list"],
    &["errors", "count"],
    &["errors", "drop", "--all"],
    &["errors", "retry", "--all"],
    &["monitor", "--attach", "--for", "1s"],
    &["cleanTemp"],
    &["pause", "--for", "1m"],
    &["resume"],
    &["limit", "--rate", "5/s"],
    &["upgrade"],
    &["reset", "--yes"],
];

#[test]
fn an_unreachable_redis_is_reported_with_its_address() {
    let ring = ProgramRing::new();
    for command in COMMANDS {
        refuses_in_one_line(
            &ring,
            command,
            &[("REDIS_URL", "redis://127.0.0.1:1")],
            3,
            &["cannot reach Redis at redis://127.0.0.1:1/0"],
        );
    }
    let nowhere = "cannot reach Redis at redis://nowhere.invalid:6379/0";
    refuses_in_one_line(&ring, &["run", "--host", "nowhere.invalid"], &[], 3, &[nowhere]);
    let socket = [("REDIS_URL", "redis+unix:///no/such/socket")];
    refuses_in_one_line(&ring, &["status"], &socket, 3, &["cannot reach Redis at /no/such/socket"]);
}

#[test]
fn a_wrong_or_missing_password_is_reported() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().password("right").start());
    let port = ring.redis.port();
    let wrong = format!("redis://:wrong@127.0.0.1:{port}");
    let none = format!("redis://127.0.0.1:{port}");
    for command in COMMANDS {
        refuses_in_one_line(
            &ring,
            command,
            &[("REDIS_URL", &wrong)],
            3,
            &["refuses", "WRONGPASS invalid username-password pair"],
        );
        refuses_in_one_line(&ring, command, &[("REDIS_URL", &none)], 3, &["refuses", "NOAUTH"]);
    }
}

#[test]
fn a_redis_older_than_seven_is_refused_with_its_version() {
    let ring = ProgramRing::new();
    let old = old_redis();
    for command in COMMANDS {
        refuses_in_one_line(
            &ring,
            command,
            &[("REDIS_URL", &old)],
            3,
            &["expected Redis 7.0 or newer, got 6.2.0"],
        );
    }
}

/// A server that does not know HELLO and reports that it is Redis 6.2. It lives as long as the test process.
fn old_redis() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            std::thread::spawn(move || answer_as_old_redis(client.unwrap()));
        }
    });
    url
}

fn answer_as_old_redis(client: TcpStream) -> Option<()> {
    let mut requests = BufReader::new(client.try_clone().ok()?);
    let mut answers = client;
    loop {
        let mut line = String::new();
        requests.read_line(&mut line).ok()?;
        let words: usize = line.strip_prefix('*')?.trim().parse().ok()?;
        let mut request = Vec::new();
        for _ in 0..words {
            line.clear();
            requests.read_line(&mut line).ok()?;
            let mut word = vec![0; line.strip_prefix('$')?.trim().parse::<usize>().ok()? + 2];
            requests.read_exact(&mut word).ok()?;
            request.push(String::from_utf8(word).ok()?.trim().to_uppercase());
        }
        let answer = match request[0].as_str() {
            "INFO" => {
                let info = "# Server\r\nredis_version:6.2.0\r\nuptime_in_seconds:100\r\n";
                format!("${}\r\n{info}\r\n", info.len())
            }
            "PING" | "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
            other => format!("-ERR unknown command `{other}`, with args beginning with:\r\n"),
        };
        answers.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn a_ring_with_an_unknown_layout_is_left_alone() {
    let ring = ring_with_errors();
    let url = ring.redis.url();
    let releases = [
        ("999", "has layout 999, this program knows layout 4: use the newer release"),
        ("2", "has layout 2, this program knows layout 4: empty it with the release that made it"),
    ];
    for (layout, refusal) in releases {
        ring.redis_cli(&["SET", "{estafeta}:schema", layout]);
        for command in COMMANDS {
            refuses_in_one_line(&ring, command, &[("REDIS_URL", &url)], 1, &[refusal]);
        }
    }
    assert!(ring.success(&["reset", "--yes", "--force"]).contains("is gone"), "only this deletes it");
}

#[test]
fn a_foreign_value_at_a_key_of_the_ring_is_reported_with_the_key() {
    const KEYS: [(&str, &str); 9] = [
        ("schema", "string"),
        ("members", "zset"),
        ("succession", "zset"),
        ("epoch", "string"),
        ("ready", "list"),
        ("errors", "list"),
        ("ledger", "hash"),
        ("events", "stream"),
        ("journal", "stream"),
    ];
    let ring = ProgramRing::new();
    let url = ring.redis.url();
    for (name, expected) in KEYS {
        let key = format!("{{estafeta}}:{name}");
        ring.redis_cli(&["FLUSHALL"]);
        ring.redis_cli(&["SADD", &key, "foreign"]);
        let message = format!("key {key} is a set, expected a {expected}");
        for command in [&["run"][..], &["getErrors"]] {
            refuses_in_one_line(&ring, command, &[("REDIS_URL", &url)], 1, &[&message]);
        }
    }
}

/// Commands that do not join find the foreign value in a different way.
#[test]
fn every_command_that_reads_errors_reports_a_foreign_value_at_their_key() {
    let ring = ProgramRing::new();
    let url = ring.redis.url();
    ring.redis_cli(&["SET", "{estafeta}:errors", "foreign"]);
    let message = "key {estafeta}:errors is a string, expected a list";
    let commands: [&[&str]; 5] = [
        &["status"],
        &["errors", "list"],
        &["errors", "count"],
        &["errors", "retry", "--all"],
        &["errors", "drop", "--all"],
    ];
    for command in commands {
        refuses_in_one_line(&ring, command, &[("REDIS_URL", &url)], 1, &[message]);
    }
}

#[test]
fn a_redis_user_that_may_not_run_scripts_is_reported() {
    let ring = ProgramRing::on(RedisServer::builder().tcp().start());
    ring.plant_errors(1..=1, |_| b"body".to_vec());
    ring.redis_cli(&["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-@scripting"]);
    let url = format!("redis://poor:pw@127.0.0.1:{}", ring.redis.port());
    for command in [&["run"][..], &["getErrors"], &["status"]] {
        refuses_in_one_line(&ring, command, &[("REDIS_URL", &url)], 3, &["refuses", "NOPERM"]);
    }
}
