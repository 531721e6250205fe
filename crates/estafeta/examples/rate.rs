#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]
use estafeta::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
struct Fixed(Vec<u8>);
impl Source for Fixed {
    async fn next(&mut self) -> Vec<u8> {
        self.0.clone()
    }
}
struct Count(Arc<AtomicU64>);
impl Handler for Count {
    async fn handle(&self, _: &Message) -> std::result::Result<(), Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
fn cpu(con: &mut redis::Connection) -> f64 {
    let info: redis::InfoDict = redis::cmd("INFO").arg("cpu").query(con).unwrap();
    info.get::<f64>("used_cpu_user").unwrap() + info.get::<f64>("used_cpu_sys").unwrap()
}
fn own() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) / 100.0
}
fn main() {
    let url = std::env::args().nth(1).unwrap();
    let secs: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let mode = std::env::args().nth(3).unwrap();
    let mut con = redis::Client::open(url.clone()).unwrap().get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut con).unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut con).unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let start = |interval: u64, limit: Option<u64>| {
        let (url, done) = (url.clone(), done.clone());
        let stop = tokio_util::sync::CancellationToken::new();
        let token = stop.clone();
        let thread = std::thread::spawn(move || {
            let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut config = Config::new(url.parse().unwrap(), RingName::default());
            config.interval = Duration::from_millis(interval);
            config.max_waiting = if limit.is_some() { 2_000_000 } else { std::env::var("ROOM").map_or(20_000, |room| room.parse().unwrap()) };
            config.limit = limit;
            rt.block_on(
                Member::new(config, Fixed(vec![b'x'; 64]), Count(done), ()).run(token.cancelled_owned()),
            )
            .unwrap();
        });
        (stop, thread)
    };
    let waiting = |con: &mut redis::Connection| -> u64 {
        redis::cmd("LLEN").arg("{estafeta}:ready").query(con).unwrap()
    };
    if mode == "e2e" {
        let a = start(0, None);
        std::thread::sleep(Duration::from_millis(200));
        let b = start(0, None);
        std::thread::sleep(Duration::from_millis(500));
        let o0 = own();
        let (c0, d0, t0) = (cpu(&mut con), done.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(secs));
        let (c1, d1, t) = (cpu(&mut con), done.load(Ordering::Relaxed), t0.elapsed().as_secs_f64());
        println!(
            "e2e {:.0}/s  server {:.3} us/msg  client {:.3} us/msg waiting {}",
            (d1 - d0) as f64 / t,
            (c1 - c0) * 1e6 / (d1 - d0) as f64,
            (own() - o0) * 1e6 / (d1 - d0) as f64,
            waiting(&mut con)
        );
        b.0.cancel();
        a.0.cancel();
        a.1.join().unwrap();
        b.1.join().unwrap();
    } else {
        let n = 1_000_000;
        let a = start(0, Some(n));
        let t0 = Instant::now();
        let c0 = cpu(&mut con);
        while waiting(&mut con) < n {
            std::thread::sleep(Duration::from_millis(20));
        }
        println!(
            "publish {:.0}/s server {:.3} us/msg",
            n as f64 / t0.elapsed().as_secs_f64(),
            (cpu(&mut con) - c0) * 1e6 / n as f64
        );
        let (c0, t0) = (cpu(&mut con), Instant::now());
        let b = start(0, Some(n));
        while done.load(Ordering::Relaxed) < n {
            std::thread::sleep(Duration::from_millis(5));
        }
        println!(
            "consume {:.0}/s server {:.3} us/msg",
            n as f64 / t0.elapsed().as_secs_f64(),
            (cpu(&mut con) - c0) * 1e6 / n as f64
        );
        b.0.cancel();
        a.0.cancel();
        a.1.join().unwrap();
        b.1.join().unwrap();
    }
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut con).unwrap();
    for line in info.lines() {
        if ["evalsha", "lrange", "rpush", "lpop", "sort", "hmget", "ltrim"].iter().any(|c| line.contains(c)) {
            println!("  {line}");
        }
    }
}
