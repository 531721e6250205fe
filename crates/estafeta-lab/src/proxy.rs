//! A TCP proxy that misbehaves on request.
//!
//! It sits between one client and its servers and passes bytes on. Its [`LinkCondition`] decides what happens to them.
//! The condition can change at any moment, and applies to open connections as well as to new ones:
//!
//! | condition | open connections                       | new connections            |
//! |-----------|----------------------------------------|----------------------------|
//! | `Clear`   | work                                   | work                       |
//! | `Lag`     | every piece of data is delayed         | the same                   |
//! | `Trickle` | data arrives a few bytes at a time     | the same                   |
//! | `Closed`  | are closed                             | are closed at once         |
//! | `Silent`  | stay open, but no data passes any more | are accepted, but are dead |
//!
//! A connection that was open during `Silent` stays dead even if the condition improves. This is a half-open
//! connection, and only its client can find out. In addition, [`Proxy::lose_a_reply`] loses a single reply: the server
//! executed the command, but its sender never learns that.
//!
//! Sentinels and nodes of a cluster name other servers. The proxy replaces each of these addresses with one on which the
//! proxy itself listens, so the client cannot get past it. The proxy changes only two answers: that of a sentinel to
//! `get-master-addr-by-name`, and the redirection `MOVED` of a node.

use std::borrow::Cow;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use estafeta::{Address, Endpoint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// A host and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// What the proxy does to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCondition {
    /// Passes everything on.
    Clear,
    /// Delays every piece of data by this time.
    Lag(Duration),
    /// Passes on a few bytes at a time.
    Trickle,
    /// Closes all connections.
    Closed,
    /// Keeps connections open and passes nothing on.
    Silent,
}

/// The direction of a piece of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Called with every piece of data before it is passed on. It may block, which delays the data.
pub type Tap = dyn Fn(Direction, &[u8]) + Send + Sync;

const TRICKLE_BYTES: usize = 7;
const TRICKLE_PAUSE: Duration = Duration::from_millis(5);

/// A proxy on free ports of the loopback interface, one for each server. Dropping it closes all its connections.
pub struct Proxy {
    ports: Vec<u16>,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    condition: watch::Sender<LinkCondition>,
    /// How many replies are still to be lost.
    to_lose: AtomicU32,
    lost: AtomicU64,
    tap: Option<Box<Tap>>,
    routes: Mutex<Vec<Route>>,
    /// How often all open connections were closed.
    closings: watch::Sender<u64>,
    /// Set at the end. No more routes are opened then.
    closed: AtomicBool,
}

/// The way from one port of the proxy to a server.
struct Route {
    upstream: Upstream,
    port: u16,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy with a clear link. It runs on the current tokio runtime.
    pub async fn start(upstream: Upstream) -> io::Result<Self> {
        Self::launch(vec![upstream], None, false)
    }

    /// Starts a proxy with one port for each address of this endpoint. Returns None if the endpoint uses TLS, which a
    /// proxy cannot look into.
    pub async fn to_endpoint(endpoint: &Endpoint) -> io::Result<Option<Self>> {
        let upstream = |address| match address {
            Address::Tcp(host, port) => Some(Upstream::Tcp(host, port)),
            Address::Unix(path) => Some(Upstream::Unix(path)),
            _ => None,
        };
        let upstreams: Vec<Upstream> = endpoint.addresses().into_iter().filter_map(upstream).collect();
        if upstreams.is_empty() {
            return Ok(None);
        }
        Self::launch(upstreams, None, endpoint.names_sentinels()).map(Some)
    }

    /// Starts a proxy that shows all data to `tap` before it passes the data on.
    pub async fn tapped(
        upstream: Upstream,
        tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::launch(vec![upstream], Some(Box::new(tap)), false)
    }

    fn launch(upstreams: Vec<Upstream>, tap: Option<Box<Tap>>, are_sentinels: bool) -> io::Result<Self> {
        let condition = watch::Sender::new(LinkCondition::Clear);
        let (routes, closed, closings) = (Mutex::default(), false.into(), watch::Sender::new(0));
        let (to_lose, lost) = (0.into(), 0.into());
        let shared = Arc::new(ProxyState { condition, to_lose, lost, tap, routes, closings, closed });
        let mut ports = Vec::new();
        for upstream in upstreams {
            ports.push(shared.port_to(upstream, are_sentinels)?);
        }
        Ok(Self { ports, shared })
    }

    /// The port to which clients of the first server connect.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The ports to which clients connect, one for each server with which the proxy was started.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Leads new connections to the first port to another server. Open ones stay where they are.
    pub fn lead_to(&self, upstream: Upstream) {
        self.shared.routes.lock().expect("no panic while held")[0].upstream = upstream;
    }

    /// Changes the condition of all connections.
    pub fn set(&self, condition: LinkCondition) {
        self.shared.condition.send_replace(condition);
    }

    /// Closes all open connections. New ones work as before.
    pub fn close_connections(&self) {
        self.shared.closings.send_modify(|closings| *closings += 1);
    }

    /// Loses the next reply of the server, and closes its connection.
    pub fn lose_a_reply(&self) {
        self.shared.to_lose.fetch_add(1, Ordering::Relaxed);
    }

    /// Cancels the losses that have not happened yet.
    pub fn cancel_losses(&self) {
        self.shared.to_lose.store(0, Ordering::Relaxed);
    }

    /// How many replies were lost so far.
    pub fn replies_lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.set(LinkCondition::Closed);
        let routes = self.shared.routes.lock().expect("no panic while held");
        routes.iter().for_each(|route| route.accepting.abort());
    }
}

async fn accept(listener: TcpListener, index: usize, is_sentinel: bool, shared: Arc<ProxyState>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(serve(client, index, is_sentinel, Arc::clone(&shared)));
            }
            // For example, too many files are open. The client then waits until its connection is accepted.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. However it ends, it ends on both sides.
async fn serve(client: TcpStream, index: usize, is_sentinel: bool, shared: Arc<ProxyState>) {
    let (mut condition, mut closings) = (shared.condition.subscribe(), shared.closings.subscribe());
    let _ = client.set_nodelay(true);
    let ended = async {
        let now = *shared.condition.borrow();
        match now {
            LinkCondition::Closed => return Ok(()),
            LinkCondition::Silent => return swallow(client).await,
            _ => {}
        }
        let upstream = shared.routes.lock().expect("no panic while held")[index].upstream.clone();
        let names = match &upstream {
            Upstream::Tcp(host, _) => AnswerNames { host: host.clone(), is_sentinel },
            Upstream::Unix(_) => AnswerNames { host: Ipv4Addr::LOCALHOST.to_string(), is_sentinel },
        };
        match upstream {
            Upstream::Tcp(host, port) => {
                let server = TcpStream::connect((host.as_str(), port)).await?;
                server.set_nodelay(true)?;
                connect(client, server, &names, &shared).await
            }
            Upstream::Unix(path) => connect(client, UnixStream::connect(path).await?, &names, &shared).await,
        }
    };
    tokio::select! {
        _ = ended => {}
        _ = condition.wait_for(|condition| *condition == LinkCondition::Closed) => {}
        _ = closings.changed() => {}
    }
}

async fn connect(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    names: &AnswerNames,
    shared: &Arc<ProxyState>,
) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        ended = pump(Direction::Up, from_client, to_server, names, shared) => ended,
        ended = pump(Direction::Down, from_server, to_client, names, shared) => ended,
    }
}

async fn pump(
    direction: Direction,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    names: &AnswerNames,
    shared: &Arc<ProxyState>,
) -> io::Result<()> {
    let mut condition = shared.condition.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            // Checked first, so that no more data passes. Idle connections are caught as well.
            biased;
            _ = condition.wait_for(|condition| *condition == LinkCondition::Silent) => None,
            read = from.read(&mut buffer) => Some(read?),
        };
        let Some(read) = read else {
            return match direction {
                Direction::Up => swallow(from).await,
                // The client does not learn either that the server went away.
                Direction::Down => std::future::pending().await,
            };
        };
        if read == 0 {
            return Ok(());
        }
        let data = &buffer[..read];
        if let Some(tap) = &shared.tap {
            tap(direction, data);
        }
        if direction == Direction::Down && shared.loses_this_reply() {
            return Ok(());
        }
        let data = match direction {
            Direction::Up => Cow::Borrowed(data),
            Direction::Down => names.replaced(data, |host, port| shared.port_to_server(host, port)),
        };
        pass_on(&data, &mut to, &shared.condition).await?;
    }
}

/// How the servers behind one connection name other servers.
struct AnswerNames {
    /// The host that an answer without a host means.
    host: String,
    is_sentinel: bool,
}

impl AnswerNames {
    /// The same data, in which each address that a server names is replaced. `through` returns the port of the proxy that
    /// leads to an address. Such an answer is short, so it arrives in one piece. If it does not, it is passed on as it is.
    fn replaced<'a>(
        &self,
        data: &'a [u8],
        mut through: impl FnMut(&str, u16) -> Option<u16>,
    ) -> Cow<'a, [u8]> {
        const MOVED: &[u8] = b"-MOVED ";
        const PAIR: &[u8] = b"*2\r\n$";
        let is_named =
            |at: usize, word: &[u8]| data[at..].starts_with(word) && (at == 0 || data[at - 1] == b'\n');
        let (mut out, mut copied) = (Vec::new(), 0);
        for at in 0..data.len() {
            if at < copied || !matches!(data[at], b'-' | b'*') {
                continue;
            }
            let found = if is_named(at, MOVED) {
                self.redirection(&data[at..])
            } else if self.is_sentinel && is_named(at, PAIR) {
                named_master(&data[at..])
            } else {
                None
            };
            let Some(NamedServer { host, port, length, write }) = found else { continue };
            if let Some(port) = through(&host, port) {
                out.extend_from_slice(&data[copied..at]);
                out.extend_from_slice(write(port).as_bytes());
                copied = at + length;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(data);
        }
        out.extend_from_slice(&data[copied..]);
        Cow::Owned(out)
    }

    /// Reads `-MOVED slot host:port`.
    fn redirection(&self, data: &[u8]) -> Option<NamedServer> {
        let (line, length) = line(data)?;
        let mut words = line.split(' ').skip(1);
        let (slot, address) = (words.next()?.to_owned(), words.next()?);
        let (host, port) = address.rsplit_once(':')?;
        let host = match host {
            "" => self.host.clone(),
            // The node does not know the name of the other one.
            "?" => return None,
            host => host.trim_matches(['[', ']']).to_owned(),
        };
        let write = Box::new(move |port| format!("-MOVED {slot} {}:{port}\r\n", Ipv4Addr::LOCALHOST));
        Some(NamedServer { host, port: port.parse().ok()?, length, write })
    }
}

/// A server that an answer names.
struct NamedServer {
    host: String,
    port: u16,
    /// How many bytes the answer has.
    length: usize,
    /// Writes the same answer with this port of the proxy.
    write: Box<dyn Fn(u16) -> String>,
}

/// Reads the answer of a sentinel that names a master: a host and a port.
fn named_master(data: &[u8]) -> Option<NamedServer> {
    let mut length = 0;
    let mut next = || {
        let (text, size) = line(&data[length..])?;
        length += size;
        Some(text)
    };
    let (_pair, _size, host, _digits, port) = (next()?, next()?, next()?, next()?, next()?);
    let (host, port) = (host.to_owned(), port.parse().ok()?);
    let write = Box::new(|port: u16| {
        let (host, port) = (Ipv4Addr::LOCALHOST.to_string(), port.to_string());
        format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len())
    });
    Some(NamedServer { host, port, length, write })
}

/// The first line, and its length with its end.
fn line(data: &[u8]) -> Option<(&str, usize)> {
    let end = data.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(&data[..end]).ok()?, end + 2))
}

/// Passes data on as fast as the condition allows. The condition may change meanwhile.
async fn pass_on(
    mut data: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    condition: &watch::Sender<LinkCondition>,
) -> io::Result<()> {
    let now = *condition.borrow();
    if let LinkCondition::Lag(delay) = now {
        tokio::time::sleep(delay).await;
    }
    while !data.is_empty() {
        let now = *condition.borrow();
        let piece = match now {
            LinkCondition::Silent => return Ok(()),
            LinkCondition::Trickle => &data[..data.len().min(TRICKLE_BYTES)],
            _ => data,
        };
        to.write_all(piece).await?;
        to.flush().await?;
        data = &data[piece.len()..];
        if now == LinkCondition::Trickle {
            tokio::time::sleep(TRICKLE_PAUSE).await;
        }
    }
    Ok(())
}

/// One side of a half-open connection: takes all data and answers nothing.
async fn swallow(mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    while from.read(&mut buffer).await? > 0 {}
    Ok(())
}

impl ProxyState {
    /// The port that leads to this server. None if the proxy has ended, or has no port left.
    fn port_to_server(self: &Arc<Self>, host: &str, port: u16) -> Option<u16> {
        self.port_to(Upstream::Tcp(host.to_owned(), port), false).ok()
    }

    /// The port that leads to this server. It is opened if there is none yet.
    fn port_to(self: &Arc<Self>, upstream: Upstream, is_sentinel: bool) -> io::Result<u16> {
        let mut routes = self.routes.lock().expect("no panic while held");
        if let Some(route) = routes.iter().find(|route| route.upstream == upstream) {
            return Ok(route.port);
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(io::Error::other("the proxy has ended"));
        }
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let accepting = tokio::spawn(accept(listener, routes.len(), is_sentinel, Arc::clone(self)));
        routes.push(Route { upstream, port, accepting });
        Ok(port)
    }

    fn loses_this_reply(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let taken = self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        self.lost.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(is_sentinel: bool, data: &str) -> (String, Vec<(String, u16)>) {
        let (names, mut named) = (AnswerNames { host: "h0".into(), is_sentinel }, Vec::new());
        let new = names.replaced(data.as_bytes(), |host, port| {
            named.push((host.to_owned(), port));
            Some(50_000 + port)
        });
        (String::from_utf8(new.into_owned()).unwrap(), named)
    }

    #[test]
    fn a_client_is_led_through_the_proxy_to_every_server_that_an_answer_names() {
        let (text, named) =
            replaced(false, "+OK\r\n-MOVED 93 10.0.0.7:7001\r\n-MOVED 93 :7002\r\n$1\r\na\r\n");
        assert_eq!(text, "+OK\r\n-MOVED 93 127.0.0.1:57001\r\n-MOVED 93 127.0.0.1:57002\r\n$1\r\na\r\n");
        assert_eq!(named, [("10.0.0.7".to_owned(), 7001), ("h0".to_owned(), 7002)]);
        let master = "+OK\r\n*2\r\n$8\r\n10.0.0.7\r\n$4\r\n6379\r\n:1\r\n";
        let (text, named) = replaced(true, master);
        assert_eq!(text, "+OK\r\n*2\r\n$9\r\n127.0.0.1\r\n$5\r\n56379\r\n:1\r\n");
        assert_eq!(named, [("10.0.0.7".to_owned(), 6379)]);
        let (text, named) = replaced(false, "-MOVED 93 ::1:7001\r\n");
        assert_eq!((&text[..], &named[0].0[..]), ("-MOVED 93 127.0.0.1:57001\r\n", "::1"));
    }

    #[test]
    fn what_names_no_server_is_passed_on_as_it_is() {
        let pair = "*2\r\n$3\r\n123\r\n$3\r\n456\r\n";
        assert_eq!(replaced(false, pair), (pair.to_owned(), vec![]), "only sentinels name masters");
        for data in [
            "$9\r\n-MOVED 1 \r\n",
            "-MOVED 93 10.0.0.7:70",
            "-MOVED 93 ?:7001\r\n",
            "-MOVED 93\r\n",
            "*2\r\n$4\r\nhost\r\n$1\r\nx\r\n",
            "*2\r\n$4\r\nhost\r\n",
            "x -MOVED 93 10.0.0.7:7001\r\n",
            "",
        ] {
            assert_eq!(replaced(true, data), (data.to_owned(), vec![]), "{data}");
        }
    }
}
