//! Opens sessions: finds the server that keeps the ring, greets it, and shows it the presence of the member.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, RedisError, Value};
use tokio::sync::mpsc;

use super::{FIRST, ManagedConnection, pauses};
use crate::redis::call_error::CallError;
use crate::redis::endpoint::Door;
use crate::redis::server_info::ServerInfo;
use crate::redis::session::{Greeted, Session, SessionOwner};
use crate::redis::topology::{HOPS, RingPlace};

impl ManagedConnection {
    /// Opens the first session. Where several servers may keep the ring, this waits for the one that will, but not if
    /// none of them answers.
    pub(super) async fn connect_first(
        &self,
    ) -> Result<(Session, mpsc::UnboundedReceiver<PushInfo>), CallError> {
        let patience = FIRST.max(self.response_timeout);
        let (start, mut pauses) = (Instant::now(), pauses());
        let mut attempts = 0;
        loop {
            let limit = self.topology.attempt_limit(attempts, patience);
            attempts += 1;
            let error = match self.connect(1, limit).await {
                Ok(first) => return Ok(first),
                Err(error) => error,
            };
            let may_pass = match &error {
                CallError::Elsewhere(_) => true,
                CallError::Broken(_) => self.topology.may_appear(attempts),
                other => other.is_passing(),
            };
            if self.topology.is_fixed() || !may_pass || start.elapsed() > patience {
                return Err(error);
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Opens a session at the server that keeps the ring. `limit` is the time for each server that is tried.
    pub(super) async fn connect(
        &self,
        generation: u64,
        limit: Duration,
    ) -> Result<(Session, mpsc::UnboundedReceiver<PushInfo>), CallError> {
        let moves = self.topology.moves();
        let door = self.topology.next().await?;
        let attempt = async {
            match self.connect_with(generation, moves, door.clone(), ProtocolVersion::RESP3).await {
                Err(ConnectError::NoResp3) => {
                    self.connect_with(generation, moves, door, ProtocolVersion::RESP2).await
                }
                other => other,
            }
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(ConnectError::NoResp3)) => {
                Err(CallError::Refused("it speaks neither RESP3 nor RESP2".into()))
            }
            Ok(Err(ConnectError::Failed(error))) => Err(error),
            Err(_) if self.topology.endpoint().uses_tls() => Err(CallError::Broken(format!(
                "no answer to a TLS greeting for {limit:?}; perhaps this port expects redis:// without TLS"
            ))),
            Err(_) => Err(CallError::Broken(format!("no answer for {limit:?}"))),
        }
    }

    /// Opens a session at the server behind `door`, or where that server redirects.
    async fn connect_with(
        &self,
        generation: u64,
        moves: u64,
        mut door: Option<Door>,
        protocol: ProtocolVersion,
    ) -> Result<(Session, mpsc::UnboundedReceiver<PushInfo>), ConnectError> {
        for _ in 0..=HOPS {
            let (mut greeted, pushes) = self.greet(door, protocol).await?;
            let connection = &mut greeted.connection;
            let server = read_server(connection).await?;
            server.check_version()?;
            self.topology.check_server(&server)?;
            // A server that is still loading its data answers the greeting and `INFO`, but does not serve yet.
            let exists = redis::cmd("EXISTS").arg(&self.topology.key).query_async(connection).await;
            match self.topology.place(exists, greeted.door.as_ref())? {
                RingPlace::Here => {
                    let (topology, reports) = (Arc::clone(&self.topology), self.reports.clone());
                    let owner = SessionOwner { topology, moves, reports };
                    return Ok((Session::new(greeted, server, generation, owner), pushes));
                }
                RingPlace::At(next) => door = Some(next),
            }
        }
        Err(CallError::Elsewhere(format!("redirected more than {HOPS} times")).into())
    }

    /// Connects to a server and subscribes to the channel of the member.
    async fn greet(
        &self,
        door: Option<Door>,
        protocol: ProtocolVersion,
    ) -> Result<(Greeted, mpsc::UnboundedReceiver<PushInfo>), ConnectError> {
        let (push_sender, pushes) = mpsc::unbounded_channel();
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let speaks_resp3 = protocol == ProtocolVersion::RESP3;
        let mut silent = None;
        if speaks_resp3 {
            config = config.set_push_sender(push_sender);
        } else {
            silent = Some(push_sender);
        }
        let client = self.topology.endpoint().client(door.as_ref(), protocol)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| ConnectError::of_greeting(error, protocol))?;
        // The subscription comes first, because until then the ring considers this member absent.
        let channel = self.channel.lock().expect("no panic while held").clone();
        if let Some(channel) = channel.filter(|_| speaks_resp3) {
            connection.subscribe(channel).await?;
        }
        Ok((Greeted { connection, door, silent }, pushes))
    }
}

/// Asks a server what it is. A user who may not read about replication learns nothing of it.
async fn read_server(connection: &mut MultiplexedConnection) -> Result<ServerInfo, RedisError> {
    let mut asking = redis::Pipeline::with_capacity(2);
    asking.cmd("INFO").arg("server").cmd("INFO").arg("replication");
    let mut answers = connection.send_packed_commands(&asking, 0, 2).await?.into_iter();
    let mut next = || answers.next().unwrap_or(Value::Nil).extract_error();
    let server: String = redis::from_redis_value(next()?)?;
    let replication = next().ok().and_then(|answer| redis::from_redis_value(answer).ok());
    Ok(ServerInfo::read(&server, &replication.unwrap_or_else(String::new)))
}

enum ConnectError {
    NoResp3,
    Failed(CallError),
}

impl ConnectError {
    /// A server or proxy that answers the greeting with an error may still speak the older protocol, unless the error
    /// is about the password.
    fn of_greeting(error: RedisError, protocol: ProtocolVersion) -> Self {
        let about_password = error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"));
        let answered = error.kind() == ErrorKind::RESP3NotSupported || error.code().is_some();
        if protocol == ProtocolVersion::RESP3 && answered && !about_password {
            return Self::NoResp3;
        }
        Self::Failed(error.into())
    }
}

impl From<RedisError> for ConnectError {
    fn from(error: RedisError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CallError> for ConnectError {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::keys::RingName;
    use crate::redis::topology::Topology;

    #[test]
    fn the_older_protocol_is_tried_where_a_server_refuses_the_greeting_for_another_reason_than_the_password()
    {
        let refusal = |line: &str| {
            let value = redis::parse_redis_value(line.as_bytes()).unwrap();
            value.extract_error().expect_err("a refusal")
        };
        let refusals = [
            ("-ERR unknown command 'HELLO'\r\n", true),
            ("-NOPROTO unsupported protocol version\r\n", true),
            ("-NOAUTH Authentication required.\r\n", false),
            ("-WRONGPASS invalid username-password pair\r\n", false),
        ];
        let tries_again =
            |error, protocol| matches!(ConnectError::of_greeting(error, protocol), ConnectError::NoResp3);
        for (line, expected) in refusals {
            assert_eq!(tries_again(refusal(line), ProtocolVersion::RESP3), expected, "{line}");
            assert!(!tries_again(refusal(line), ProtocolVersion::RESP2), "{line}: there is no older one");
        }
        let unreachable = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(!tries_again(unreachable.into(), ProtocolVersion::RESP3));
        let unspoken = RedisError::from((ErrorKind::RESP3NotSupported, "a client that knows"));
        assert!(tries_again(unspoken, ProtocolVersion::RESP3));
    }

    /// A server that answers like a node of a cluster, and redirects to itself.
    async fn redirect_to_itself() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(size @ 1..) = client.read(&mut bytes).await {
                        let text = String::from_utf8_lossy(&bytes[..size]).into_owned();
                        let words = text.split("\r\n").filter_map(|word| match word {
                            "HELLO" => Some("%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_owned()),
                            "INFO" => Some("$39\r\nredis_version:7.0.0\r\nredis_mode:cluster\r\n".to_owned()),
                            "EXISTS" => Some(format!("-MOVED 1 127.0.0.1:{port}\r\n")),
                            _ => None,
                        });
                        client.write_all(words.collect::<String>().as_bytes()).await.unwrap();
                    }
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn redirections_that_never_end_are_given_up() {
        let url = format!("redis+cluster://127.0.0.1:{}", redirect_to_itself().await);
        let topology = Arc::new(Topology::new(url.parse().unwrap(), &RingName::sample()));
        let error = ManagedConnection::open(topology, Duration::from_secs(1)).await.err().expect("a loop");
        assert!(error.to_string().ends_with("redirected more than 5 times"), "{error}");
    }
}
