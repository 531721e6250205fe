//! What each weather does to connections, seen from a client of an echo server.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use estafeta_proxy::{Direction, Proxy, Upstream, Weather};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

/// Says back what it hears, and counts the bytes it has heard.
async fn echo_server() -> (Upstream, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Tcp("127.0.0.1".into(), listener.local_addr().unwrap().port());
    let heard = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&heard);
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
    (upstream, heard)
}

async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
}

/// What comes back within the time limit; None if the connection ended.
async fn ask(client: &mut TcpStream, text: &str) -> Option<String> {
    client.write_all(text.as_bytes()).await.ok()?;
    let mut answer = vec![0; text.len()];
    timeout(SOON, client.read_exact(&mut answer)).await.unwrap().ok()?;
    Some(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn in_clear_weather_everything_passes() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut client = client(&proxy).await;
    assert_eq!(ask(&mut client, "hello").await.unwrap(), "hello");
    let long = "x".repeat(300_000);
    assert_eq!(ask(&mut client, &long).await.unwrap(), long);
}

#[tokio::test]
async fn a_lag_delays_and_a_trickle_divides() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut client = client(&proxy).await;
    assert_eq!(ask(&mut client, "a").await.unwrap(), "a");
    proxy.set(Weather::Lag(Duration::from_millis(30)));
    let start = Instant::now();
    assert_eq!(ask(&mut client, "b").await.unwrap(), "b");
    assert!(start.elapsed() >= Duration::from_millis(60), "there and back: {:?}", start.elapsed());
    proxy.set(Weather::Trickle);
    client.write_all(&[b'c'; 20]).await.unwrap();
    let mut piece = [0; 100];
    assert!(timeout(SOON, client.read(&mut piece)).await.unwrap().unwrap() < 20);
}

#[tokio::test]
async fn closed_ends_what_is_open_and_what_comes_and_clears_up() {
    let (upstream, _) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut open = client(&proxy).await;
    assert_eq!(ask(&mut open, "a").await.unwrap(), "a");
    proxy.set(Weather::Closed);
    assert_eq!(timeout(SOON, open.read(&mut [0; 9])).await.unwrap().unwrap_or(0), 0);
    assert_eq!(ask(&mut client(&proxy).await, "b").await, None);
    proxy.set(Weather::Clear);
    assert_eq!(ask(&mut client(&proxy).await, "c").await.unwrap(), "c");
}

#[tokio::test]
async fn silence_keeps_connections_open_and_dead_for_ever() {
    let (upstream, heard) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut open = client(&proxy).await;
    assert_eq!(ask(&mut open, "a").await.unwrap(), "a");
    proxy.set(Weather::Silent);
    let mut new = client(&proxy).await;
    open.write_all(b"b").await.unwrap();
    new.write_all(b"b").await.unwrap();
    let quiet = Duration::from_millis(100);
    assert!(timeout(quiet, open.read(&mut [0; 9])).await.is_err());
    proxy.set(Weather::Clear);
    open.write_all(b"c").await.unwrap();
    assert!(timeout(quiet, open.read(&mut [0; 9])).await.is_err(), "still dead");
    assert!(timeout(quiet, new.read(&mut [0; 9])).await.is_err(), "still dead");
    assert_eq!(ask(&mut client(&proxy).await, "d").await.unwrap(), "d");
    assert_eq!(heard.load(Ordering::SeqCst), 2, "the server has heard a and d");
}

#[tokio::test]
async fn a_lost_reply_belongs_to_a_command_that_arrived() {
    let (upstream, heard) = echo_server().await;
    let proxy = Proxy::start(upstream).await.unwrap();
    let mut unlucky = client(&proxy).await;
    proxy.lose_a_reply();
    assert_eq!(ask(&mut unlucky, "a").await, None);
    assert_eq!((heard.load(Ordering::SeqCst), proxy.replies_lost()), (1, 1));
    assert_eq!(ask(&mut client(&proxy).await, "b").await.unwrap(), "b");
}

#[tokio::test]
async fn a_tap_sees_all_data_before_they_go_on() {
    let (upstream, heard) = echo_server().await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (notes, counter) = (Arc::clone(&seen), Arc::clone(&heard));
    let tap = move |direction, data: &[u8]| {
        notes.lock().unwrap().push((direction, data.to_vec(), counter.load(Ordering::SeqCst)));
    };
    let proxy = Proxy::tapped(upstream, tap).await.unwrap();
    assert_eq!(ask(&mut client(&proxy).await, "a").await.unwrap(), "a");
    let expected = [(Direction::Up, b"a".to_vec(), 0), (Direction::Down, b"a".to_vec(), 1)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn weather_that_changes_holds_for_what_is_on_its_way() {
    let (upstream, heard) = echo_server().await;
    let (passing, mut passed) = tokio::sync::mpsc::unbounded_channel();
    let tap = move |_: Direction, data: &[u8]| passing.send(data.to_vec()).unwrap_or_default();
    let proxy = Proxy::tapped(upstream, tap).await.unwrap();
    let mut trickling = client(&proxy).await;
    assert_eq!(ask(&mut trickling, "a").await.unwrap(), "a");
    proxy.set(Weather::Trickle);
    // At a few bytes each time it would take minutes.
    let long = "x".repeat(200_000);
    trickling.write_all(long.as_bytes()).await.unwrap();
    proxy.set(Weather::Clear);
    timeout(SOON, trickling.read_exact(&mut vec![0; long.len()])).await.unwrap().unwrap();

    let before = heard.load(Ordering::SeqCst);
    let lag = Duration::from_secs(1);
    proxy.set(Weather::Lag(lag));
    trickling.write_all(b"late").await.unwrap();
    while timeout(SOON, passed.recv()).await.unwrap().unwrap() != b"late" {}
    proxy.set(Weather::Silent);
    // That nothing comes can only be seen by waiting for longer than it would take.
    assert!(timeout(lag + lag / 2, trickling.read(&mut [0; 9])).await.is_err());
    assert_eq!(heard.load(Ordering::SeqCst), before, "what was held back is lost");
}
