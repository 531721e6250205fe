//! Bounds what clients of a small HTTP server can hold: the number of connections, and the life of each.

use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// The most connections at one time. Others wait.
const MOST: usize = 32;
/// How long a connection may last, even if its client is slow.
const LIFE: Duration = Duration::from_secs(30);

/// A listener that accepts few connections at a time.
pub struct FewConnections {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

impl FewConnections {
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(MOST)) }
    }
}

impl axum::serve::Listener for FewConnections {
    type Io = ShortConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (ShortConnection, SocketAddr) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("it is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let deadline = Box::pin(tokio::time::sleep(LIFE));
                    return (ShortConnection { stream, deadline, _permit: permit }, address);
                }
                // Such as too many open files. It may be over soon.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is over.
pub struct ShortConnection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl ShortConnection {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for ShortConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ShortConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
