//! A web server on a private Redis, and requests to it, byte by byte.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use estafeta_testbed::{Output, Process, RedisServer};
use serde_json::{Value, json};

/// A generous limit for events that must happen.
pub const SOON: Duration = Duration::from_secs(30);

/// Starts the program with its Redis.
pub fn start(redis: &RedisServer, args: &[&str], env: &[(&str, &str)]) -> Process {
    let url = redis.url();
    let env = [&[("REDIS_URL", url.as_str())], env].concat();
    Process::spawn(Path::new(env!("CARGO_BIN_EXE_estafeta")), args, env)
}

pub fn run(redis: &RedisServer, args: &[&str]) -> Output {
    start(redis, args, &[]).output(SOON)
}

/// Finds a program: in the PATH, or in this place under `target/tools`, where `make test` puts what no package manager
/// should install.
pub fn find_tool(names: &[&str], place: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("tools").join(place);
    let mut places: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    places.push(tools);
    names.iter().flat_map(|name| places.iter().map(move |place| place.join(name))).find(|file| file.is_file())
}

/// Reports that a test was skipped.
pub fn skip(test: &str, why: &str) {
    // Not by a macro: the test harness would swallow it.
    std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes()).unwrap();
}

/// Sends these bytes and reads until the server closes the connection.
pub fn send(address: &str, request: &str) -> RawAnswer {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    RawAnswer::parse(&bytes)
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// `headers` ends with a line break, unless it is empty.
pub fn get(address: &str, path: &str, headers: &str) -> RawAnswer {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n"))
}

/// A web server, and where it listens.
pub struct WebServer {
    pub process: Process,
    /// `127.0.0.1:4711`
    pub address: String,
}

impl WebServer {
    pub fn start(redis: &RedisServer, args: &[&str]) -> Self {
        Self::start_with(redis, args, &[])
    }

    pub fn start_with(redis: &RedisServer, args: &[&str], env: &[(&str, &str)]) -> Self {
        let args = [&["web", "--listen", "127.0.0.1:0"], args].concat();
        let process = start(redis, &args, env);
        let line = process.wait_for_line(SOON, |line| line.starts_with("estafeta web: http://"));
        let address = line.trim_start_matches("estafeta web: http://").trim_end_matches('/').to_owned();
        Self { process, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Sends these bytes and reads until the server closes the connection.
    pub fn send(&self, request: &str) -> RawAnswer {
        send(&self.address, request)
    }

    pub fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    pub fn get(&self, path: &str) -> RawAnswer {
        self.get_with(path, "")
    }

    /// `headers` ends with a line break, unless it is empty.
    pub fn get_with(&self, path: &str, headers: &str) -> RawAnswer {
        get(&self.address, path, headers)
    }

    /// A change as the page sends it.
    pub fn post(&self, path: &str, body: &Value) -> RawAnswer {
        let headers = "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n";
        self.post_with(path, headers, &body.to_string())
    }

    pub fn post_with(&self, path: &str, headers: &str, body: &str) -> RawAnswer {
        let (host, length) = (&self.address, body.len());
        let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n");
        self.send(&format!("{head}Connection: close\r\n\r\n{body}"))
    }

    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }
}

/// An answer of the server.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    /// The lines of its head, in lower case.
    pub head: Vec<String>,
    pub body: String,
}

impl RawAnswer {
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let head: Vec<String> = head.lines().map(str::to_lowercase).collect();
        let is_chunked = head.iter().any(|line| line == "transfer-encoding: chunked");
        let body = if is_chunked { without_chunks(body) } else { body.to_owned() };
        Self { status, head, body }
    }

    /// How many answers came on the connection.
    pub fn count(&self) -> usize {
        1 + self.body.matches("HTTP/1.1 ").count()
    }

    pub fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        self.head.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What is wrong, of an answer that must be a problem with this status.
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, "application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

fn without_chunks(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    text
}

/// Adds errors to the ring `orders`, with these ids, and counts them as published.
pub fn add_errors(redis: &RedisServer, errors: &[(u64, &str, &str)]) {
    let mut connection = redis.connect();
    redis::cmd("SETNX").arg("{orders}:schema").arg(4).exec(&mut connection).unwrap();
    for chunk in errors.chunks(1000) {
        let mut push = redis::cmd("RPUSH");
        push.arg("{orders}:errors");
        for (id, reason, body) in chunk {
            push.arg(format!(
                "!1794000000000 3 {} {reason} {id} 7 1793999999000 1 1 0 0 0 {body}",
                reason.len()
            ));
        }
        push.exec(&mut connection).unwrap();
    }
    let count = errors.len();
    redis::cmd("HINCRBY").arg("{orders}:ledger").arg("published").arg(count).exec(&mut connection).unwrap();
    redis::cmd("HINCRBY").arg("{orders}:ledger").arg("failed").arg(count).exec(&mut connection).unwrap();
}

pub fn add_many_errors(redis: &RedisServer, count: u64) {
    let bodies: Vec<String> = (1..=count).map(|id| format!("body {id}")).collect();
    let errors: Vec<_> = (1..=count).zip(&bodies).map(|(id, body)| (id, "no", body.as_str())).collect();
    add_errors(redis, &errors);
}

/// The events of the ring `orders` about its errors: kind, count and actor.
pub fn changes(server: &WebServer) -> Vec<Value> {
    let events = server.json("/api/rings/orders/events");
    let about_errors = |event: &&Value| !event["count"].is_null();
    let short = |event: &Value| json!([event["kind"], event["count"], event["by"]]);
    events.as_array().unwrap().iter().filter(about_errors).map(short).collect()
}
