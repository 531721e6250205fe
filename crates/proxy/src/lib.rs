//! A TCP proxy that misbehaves when it is told to.
//!
//! It stands between one client and one server and passes bytes on. What it does to them is its [`Weather`], which can
//! be changed at any moment and holds for the connections that are open as well as for new ones:
//!
//! | weather  | open connections                            | new connections          |
//! |----------|---------------------------------------------|--------------------------|
//! | `Clear`  | work                                        | work                     |
//! | `Lag`    | every piece of data waits                   | the same                 |
//! | `Trickle`| data arrive a few bytes at a time           | the same                 |
//! | `Closed` | are closed                                  | are closed at once       |
//! | `Silent` | stay open for ever, and nothing comes through | are accepted, as dead  |
//!
//! A connection that was caught by `Silent` stays dead in better weather, too: that is what a half-open connection is, and
//! only its client can find out. Besides, one reply can be lost on its way with [`Proxy::lose_a_reply`]: the command was
//! carried out, and its sender will never know.

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

/// Where the server is.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// A host and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// What the proxy does to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Passes everything on.
    Clear,
    /// Holds every piece of data back for so long.
    Lag(Duration),
    /// Passes on a few bytes at a time.
    Trickle,
    /// Closes all connections.
    Closed,
    /// Keeps connections open and passes nothing on.
    Silent,
}

/// The way a piece of data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Is called with every piece of data before it is passed on. It may block, and the data with it.
pub type Tap = dyn Fn(Direction, &[u8]) + Send + Sync;

const TRICKLE_BYTES: usize = 7;
const TRICKLE_PAUSE: Duration = Duration::from_millis(5);

/// A proxy on a free port of the loopback interface. It ends, with all its connections, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: Upstream,
    weather: watch::Sender<Weather>,
    /// Replies that are still to be lost.
    to_lose: AtomicU32,
    lost: AtomicU64,
    tap: Option<Box<Tap>>,
}

impl Proxy {
    /// Starts one in clear weather. Needs a tokio runtime, on which it lives.
    pub async fn start(upstream: Upstream) -> io::Result<Self> {
        Self::launch(upstream, None).await
    }

    /// Starts one that shows all data to `tap` on their way.
    pub async fn tapped(
        upstream: Upstream,
        tap: impl Fn(Direction, &[u8]) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::launch(upstream, Some(Box::new(tap))).await
    }

    async fn launch(upstream: Upstream, tap: Option<Box<Tap>>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let weather = watch::Sender::new(Weather::Clear);
        let shared = Arc::new(Shared { upstream, weather, to_lose: 0.into(), lost: 0.into(), tap });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the weather, for all connections.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// The next reply of the server is lost, and its connection is closed.
    pub fn lose_a_reply(&self) {
        self.shared.to_lose.fetch_add(1, Ordering::Relaxed);
    }

    /// No more replies are lost than have been.
    pub fn lose_none(&self) {
        self.shared.to_lose.store(0, Ordering::Relaxed);
    }

    /// How many replies were lost so far.
    pub fn replies_lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Weather::Closed);
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(serve(client, Arc::clone(&shared)));
            }
            // Too many open files, say: the client sees a connection that nobody takes.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// However a connection ends, it ends on both sides.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut weather = shared.weather.subscribe();
    let _ = client.set_nodelay(true);
    let ended = async {
        let now = *shared.weather.borrow();
        match now {
            Weather::Closed => return Ok(()),
            Weather::Silent => return swallow(client).await,
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
        _ = weather.wait_for(|weather| *weather == Weather::Closed) => {}
    }
}

async fn connect(client: TcpStream, server: impl AsyncRead + AsyncWrite, shared: &Shared) -> io::Result<()> {
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
    shared: &Shared,
) -> io::Result<()> {
    let mut weather = shared.weather.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            // First, so that not one piece gets through. A connection on which nothing happens is caught as well.
            biased;
            _ = weather.wait_for(|weather| *weather == Weather::Silent) => None,
            read = from.read(&mut buffer) => Some(read?),
        };
        let Some(read) = read else {
            return match direction {
                Direction::Up => swallow(from).await,
                // That the server goes away is not heard either.
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
        if direction == Direction::Down && shared.takes_a_reply() {
            return Ok(());
        }
        pass_on(data, &mut to, &shared.weather).await?;
    }
}

/// Passes data on as fast as the weather lets them, which may change meanwhile.
async fn pass_on(
    mut data: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    weather: &watch::Sender<Weather>,
) -> io::Result<()> {
    let now = *weather.borrow();
    if let Weather::Lag(delay) = now {
        tokio::time::sleep(delay).await;
    }
    while !data.is_empty() {
        let now = *weather.borrow();
        let piece = match now {
            Weather::Silent => return Ok(()),
            Weather::Trickle => &data[..data.len().min(TRICKLE_BYTES)],
            _ => data,
        };
        to.write_all(piece).await?;
        to.flush().await?;
        data = &data[piece.len()..];
        if now == Weather::Trickle {
            tokio::time::sleep(TRICKLE_PAUSE).await;
        }
    }
    Ok(())
}

/// A half-open connection: whatever comes is taken, and nothing comes of it.
async fn swallow(mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    while from.read(&mut buffer).await? > 0 {}
    Ok(())
}

impl Shared {
    fn takes_a_reply(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let taken = self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
        self.lost.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}
