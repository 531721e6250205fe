//! An address that an operator can point at another server, as a virtual IP or a balancer does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use estafeta_testbed::RedisServer;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::AbortHandle;

/// A TCP port that leads to a server. Connections that exist stay where they are when the port leads elsewhere.
pub struct MovingAddress {
    port: u16,
    socket: Arc<Mutex<PathBuf>>,
    task: AbortHandle,
}

impl MovingAddress {
    pub async fn of(redis: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = Arc::new(Mutex::new(redis.socket()));
        let target = Arc::clone(&socket);
        let task = tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let socket = target.lock().unwrap().clone();
                tokio::spawn(async move {
                    // A server that is down refuses: the client sees its connection end.
                    if let Ok(mut server) = UnixStream::connect(socket).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, socket, task: task.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Lets new connections lead to another server.
    pub fn move_to(&self, redis: &RedisServer) {
        *self.socket.lock().unwrap() = redis.socket();
    }
}

impl Drop for MovingAddress {
    fn drop(&mut self) {
        self.task.abort();
    }
}
