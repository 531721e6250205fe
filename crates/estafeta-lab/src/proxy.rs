//! A TCP proxy that misbehaves on request.
//!
//! It sits between one client and one server and passes bytes on. Its [`LinkCondition`] decides what happens to them.
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

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The address of the server.
#[derive(Clone, Debug)]
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

/// A proxy on a free port of the loopback interface. Dropping it closes all its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    accepting: JoinHandle<()>,
}

struct ProxyState {
    upstream: Upstream,
    condition: watch::Sender<LinkCondition>,
    /// How many replies are still to be lost.
    to_lose: AtomicU32,
    lost: AtomicU64,
    tap: Option<Box<Tap>>,
}

impl Proxy {
    /// Starts a proxy with a clear link. It runs on the current tokio runtime.
    pub async fn start(upstream: Upstream) -> io::Result<Self> {
        Self::launch(upstream, None).await
    }

    /// Starts a proxy that shows all data to `tap` before it passes the data on.
    pub async fn tapped(
        upstream: Upstream,
        tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::launch(upstream, Some(Box::new(tap))).await
    }

    async fn launch(upstream: Upstream, tap: Option<Box<Tap>>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let condition = watch::Sender::new(LinkCondition::Clear);
        let shared = Arc::new(ProxyState { upstream, condition, to_lose: 0.into(), lost: 0.into(), tap });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// The port to which clients connect.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the condition of all connections.
    pub fn set(&self, condition: LinkCondition) {
        self.shared.condition.send_replace(condition);
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
        self.set(LinkCondition::Closed);
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(serve(client, Arc::clone(&shared)));
            }
            // For example, too many files are open. The client then waits until its connection is accepted.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. However it ends, it ends on both sides.
async fn serve(client: TcpStream, shared: Arc<ProxyState>) {
    let mut condition = shared.condition.subscribe();
    let _ = client.set_nodelay(true);
    let ended = async {
        let now = *shared.condition.borrow();
        match now {
            LinkCondition::Closed => return Ok(()),
            LinkCondition::Silent => return swallow(client).await,
            _ => {}
        }
        match &shared.upstream {
            Upstream::Tcp(host, port) => {
                let server = TcpStream::connect((host.as_str(), *port)).await?;
                server.set_nodelay(true)?;
                connect(client, server, &shared).await
            }
            Upstream::Unix(path) => connect(client, UnixStream::connect(path).await?, &shared).await,
        }
    };
    tokio::select! {
        _ = ended => {}
        _ = condition.wait_for(|condition| *condition == LinkCondition::Closed) => {}
    }
}

async fn connect(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite,
    shared: &ProxyState,
) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        ended = pump(Direction::Up, from_client, to_server, shared) => ended,
        ended = pump(Direction::Down, from_server, to_client, shared) => ended,
    }
}

async fn pump(
    direction: Direction,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &ProxyState,
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
        pass_on(data, &mut to, &shared.condition).await?;
    }
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
    fn loses_this_reply(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let taken = self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        self.lost.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}
