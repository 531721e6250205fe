//! Accepts connections, and ends them: streams first, then what is being answered.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use estafeta::{Durability, Endpoint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Layer as _, ServiceExt as _};

use crate::access::Logins;
use crate::api;
use crate::guard;
use crate::registry::{Registry, ShownRings};

/// How many connections may be open at once. A page has one, and a second one while it fetches.
const MOST_CONNECTIONS: usize = 256;
/// How long a client may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a stop waits for requests that are being answered.
const STOP_TIME: Duration = Duration::from_secs(5);
/// The answer to a connection that is one too many.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 106\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections are open\"}";
/// How long such a connection stays open, and how much of what it sends is read.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const MOST_UNREAD: u64 = 64 * 1024;

/// What a web server needs.
pub struct WebOptions {
    pub endpoint: Endpoint,
    pub rings: ShownRings,
    /// Where Redis must have stored a retry or a drop before it is reported.
    pub durability: Durability,
    pub listen: SocketAddr,
    pub read_only: bool,
    pub logins: Logins,
    pub allowed_hosts: Vec<String>,
}

/// The options would let strangers change the ring.
#[derive(Debug, thiserror::Error)]
#[error(
    "--listen {0}: expected an address of this machine alone, such as 127.0.0.1:7070, or a login (--admin-file, \
     --viewer-file)"
)]
pub struct Unsafe(SocketAddr);

/// What all requests share.
pub struct Web {
    pub registry: Registry,
    pub logins: Logins,
    pub read_only: bool,
    /// The names of this server.
    pub hosts: Vec<String>,
    /// Ends all streams.
    pub stop: CancellationToken,
}

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub local: IpAddr,
}

/// A server that listens, and serves when told so.
pub struct WebServer {
    listener: TcpListener,
    web: Arc<Web>,
}

impl WebServer {
    /// Connects to Redis and listens. Refuses to listen to strangers without a login.
    pub async fn bind(options: WebOptions) -> Result<Self> {
        if !options.listen.ip().is_loopback() && options.logins.is_empty() {
            return Err(Unsafe(options.listen).into());
        }
        let registry = Registry::open(options.endpoint, options.rings, options.durability).await?;
        let listener = TcpListener::bind(options.listen)
            .await
            .with_context(|| format!("--listen: cannot listen on {}", options.listen))?;
        let own = ["localhost", "127.0.0.1", "[::1]"].map(ToOwned::to_owned);
        let web = Web {
            registry,
            logins: options.logins,
            read_only: options.read_only,
            hosts: own.into_iter().chain(options.allowed_hosts).collect(),
            stop: CancellationToken::new(),
        };
        Ok(Self { listener, web: Arc::new(web) })
    }

    /// The address of the page, for a browser on this machine.
    pub fn url(&self) -> Result<String> {
        let mut address = self.listener.local_addr()?;
        if address.ip().is_unspecified() {
            address.set_ip(match address.is_ipv4() {
                true => IpAddr::from([127, 0, 0, 1]),
                false => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            });
        }
        Ok(format!("http://{address}/"))
    }

    /// Serves until `stop` is cancelled. Streams end first, and then the requests that are being answered.
    pub async fn serve(self, stop: CancellationToken) {
        let Self { listener, web } = self;
        let app = api::router(Arc::clone(&web));
        let (permits, connections) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), TaskTracker::new());
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Too few file descriptors, perhaps. They come back when connections end.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let (app, web) = (app.clone(), Arc::clone(&web));
                    connections.spawn(async move {
                        answer(stream, app, web).await;
                        drop(permit);
                    });
                }
                Err(_) => drop(connections.spawn(refuse(stream))),
            }
        }
        drop(listener);
        web.stop.cancel();
        connections.close();
        if tokio::time::timeout(STOP_TIME, connections.wait()).await.is_err() {
            tracing::warn!("some requests were still being answered");
        }
    }
}

async fn refuse(mut stream: TcpStream) {
    let answered = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        // What the client has sent must be read. Otherwise the end of the connection would destroy the answer.
        tokio::io::copy(&mut stream.take(MOST_UNREAD), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, answered).await;
}

async fn answer(stream: TcpStream, app: Router, web: Arc<Web>) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let peer = Peer { local: local.ip() };
    let stop = web.stop.clone();
    let guarded = axum::middleware::from_fn_with_state(web, guard::guard).layer(app);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        guarded.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error}");
    }
}
