//! The effect of each link condition on connections, as a client of an echo server sees it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta_lab::proxy::{Direction, LinkCondition, Proxy, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

/// Starts a server that echoes what it receives, and counts the bytes it has received.
async fn echo_server() -> (Upstream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = client.read(&mut buffer).await {
                    counter.fetch_add(read, Ordering::SeqCst);
                    if client.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (upstream, received)
}

async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
}

/// Sends a text and returns the echo. None if the connection ended. Panics after the time limit.
async fn ask(client: &mut TcpStream, text: &str) -> Option<String> {
    client.write_all(text.as_bytes()).await.ok()?;
    let mut answer = vec![0; text.len()];
    timeout(SOON, client.read_exact(&mut answer)).await.unwrap().ok()?;
    Some(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn a_clear_link_passes_everything_on() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut client = client(&proxy).await;
    assert_eq!(ask(&mut client, "hello").await.unwrap(), "hello");
    let long = "x".repeat(300_000);
    assert_eq!(ask(&mut client, &long).await.unwrap(), long);
}

#[tokio::test]
async fn a_lag_delays_data_and_a_trickle_splits_it() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut client = client(&proxy).await;
    assert_eq!(ask(&mut client, "a").await.unwrap(), "a");
    proxy.set(LinkCondition::Lag(Duration::from_millis(30)));
    let start = Instant::now();
    assert_eq!(ask(&mut client, "b").await.unwrap(), "b");
    assert!(start.elapsed() >= Duration::from_millis(60), "there and back: {:?}", start.elapsed());
    proxy.set(LinkCondition::Trickle);
    client.write_all(&[b'c'; 20]).await.unwrap();
    let mut piece = [0; 100];
    assert!(timeout(SOON, client.read(&mut piece)).await.unwrap().unwrap() < 20);
}

#[tokio::test]
async fn a_closed_link_ends_open_and_new_connections_until_it_is_clear_again() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut open = client(&proxy).await;
    assert_eq!(ask(&mut open, "a").await.unwrap(), "a");
    proxy.set(LinkCondition::Closed);
    assert_eq!(timeout(SOON, open.read(&mut [0; 9])).await.unwrap().unwrap_or(0), 0);
    assert_eq!(ask(&mut client(&proxy).await, "b").await, None);
    proxy.set(LinkCondition::Clear);
    assert_eq!(ask(&mut client(&proxy).await, "c").await.unwrap(), "c");
}

#[tokio::test]
async fn a_silent_link_keeps_connections_open_but_dead_even_when_it_is_clear_again() {
    let (upstream, received) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut open = client(&proxy).await;
    assert_eq!(ask(&mut open, "a").await.unwrap(), "a");
    proxy.set(LinkCondition::Silent);
    let mut new = client(&proxy).await;
    open.write_all(b"b").await.unwrap();
    new.write_all(b"b").await.unwrap();
    let quiet = Duration::from_millis(100);
    assert!(timeout(quiet, open.read(&mut [0; 9])).await.is_err());
    proxy.set(LinkCondition::Clear);
    open.write_all(b"c").await.unwrap();
    assert!(timeout(quiet, open.read(&mut [0; 9])).await.is_err(), "still dead");
    assert!(timeout(quiet, new.read(&mut [0; 9])).await.is_err(), "still dead");
    assert_eq!(ask(&mut client(&proxy).await, "d").await.unwrap(), "d");
    assert_eq!(received.load(Ordering::SeqCst), 2, "the server has received a and d");
}

#[tokio::test]
async fn a_lost_reply_belongs_to_a_command_that_the_server_received() {
    let (upstream, received) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut unlucky = client(&proxy).await;
    proxy.lose_a_reply();
    assert_eq!(ask(&mut unlucky, "a").await, None);
    assert_eq!((received.load(Ordering::SeqCst), proxy.replies_lost()), (1, 1));
    assert_eq!(ask(&mut client(&proxy).await, "b").await.unwrap(), "b");
}

#[tokio::test]
async fn a_tap_sees_all_data_before_it_is_passed_on() {
    let (upstream, received) = echo_server().await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (notes, counter) = (Arc::clone(&seen), Arc::clone(&received));
    let tap = move |direction, data: &[u8]| {
        notes.lock().unwrap().push((direction, data.to_vec(), counter.load(Ordering::SeqCst)));
    };
    let proxy = Proxy::tapped(upstream, tap).await.unwrap();
    assert_eq!(ask(&mut client(&proxy).await, "a").await.unwrap(), "a");
    let expected = [(Direction::Up, b"a".to_vec(), 0), (Direction::Down, b"a".to_vec(), 1)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_changed_condition_applies_to_data_that_is_already_on_its_way() {
    let (upstream, received) = echo_server().await;
    let (passing, mut passed) = tokio::sync::mpsc::unbounded_channel();
    let tap = move |_: Direction, data: &[u8]| passing.send(data.to_vec()).unwrap_or_default();
    let proxy = Proxy::tapped(upstream, tap).await.unwrap();
    let mut trickling = client(&proxy).await;
    assert_eq!(ask(&mut trickling, "a").await.unwrap(), "a");
    proxy.set(LinkCondition::Trickle);
    // At a few bytes at a time, this would take minutes.
    let long = "x".repeat(200_000);
    trickling.write_all(long.as_bytes()).await.unwrap();
    proxy.set(LinkCondition::Clear);
    timeout(SOON, trickling.read_exact(&mut vec![0; long.len()])).await.unwrap().unwrap();

    let before = received.load(Ordering::SeqCst);
    let lag = Duration::from_secs(1);
    proxy.set(LinkCondition::Lag(lag));
    trickling.write_all(b"late").await.unwrap();
    while timeout(SOON, passed.recv()).await.unwrap().unwrap() != b"late" {}
    proxy.set(LinkCondition::Silent);
    // Only a wait that is longer than the lag shows that nothing arrives.
    assert!(timeout(lag + lag / 2, trickling.read(&mut [0; 9])).await.is_err());
    assert_eq!(received.load(Ordering::SeqCst), before, "what was held back is lost");
}
