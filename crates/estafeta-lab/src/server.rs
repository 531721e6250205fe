//! What a Redis server reports about itself: its `INFO`, read before and after a measurement.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::Endpoint;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, InfoDict};

/// How long the server may take. It may be busy with a measurement, or write everything to disk first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often to check whether the server has finished a task.
const POLL: Duration = Duration::from_millis(10);

/// Opens a connection of the kind that members have.
pub async fn connect(endpoint: &Endpoint) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    connect_with(endpoint, &config).await
}

async fn connect_with(endpoint: &Endpoint, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(endpoint.secret_url()).context("cannot read the address of Redis")?;
    let connection = client.get_multiplexed_async_connection_with_config(config).await;
    connection.context("cannot connect to Redis")
}

/// Opens a connection on which a command may wait as long as it likes.
pub async fn connect_to_wait(endpoint: &Endpoint) -> Result<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(None);
    connect_with(endpoint, &config).await
}

/// Waits until the server ends the connection, and returns why. It sends nothing meanwhile, so it does not affect the
/// measurements.
pub async fn until_gone(endpoint: &Endpoint, unused_key: &str) -> Result<Infallible> {
    let mut connection = connect_to_wait(endpoint).await?;
    loop {
        redis::cmd("BLPOP").arg(unused_key).arg(0).exec_async(&mut connection).await?;
    }
}

#[derive(Clone)]
pub struct Server(MultiplexedConnection);

impl Server {
    pub async fn connect(endpoint: &Endpoint) -> Result<Self> {
        Ok(Self(connect(endpoint).await?))
    }

    pub async fn reading(&self) -> Result<ServerReading> {
        let info = self.info(&ServerReading::SECTIONS).await?;
        Ok(ServerReading::of(&info, Instant::now()))
    }

    /// Returns the name and version of the server, such as `Redis 7.0.15`.
    pub async fn product(&self) -> Result<String> {
        Ok(product(&self.info(&["server"]).await?))
    }

    /// Whether the server keeps an append-only file.
    pub async fn keeps_file(&self) -> Result<bool> {
        let info = self.info(&["persistence"]).await?;
        Ok(info.get("aof_enabled").unwrap_or(false))
    }

    /// Turns the append-only file on with this kind of sync, or off. Returns when the server has finished the change.
    pub async fn append_only(&self, sync: Option<&str>) -> Result<()> {
        if let Some(sync) = sync {
            self.set("appendfsync", sync).await?;
        }
        self.set("appendonly", if sync.is_some() { "yes" } else { "no" }).await?;
        loop {
            let info = self.info(&["persistence"]).await?;
            let busy = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
            if !busy.iter().any(|name| info.get(name).unwrap_or(false)) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The memory of one key. The memory of the whole server would include what it has not freed yet.
    pub async fn memory_of(&self, key: &str) -> Result<f64> {
        let mut call = redis::cmd("MEMORY");
        let taken = call.arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(&mut self.0.clone()).await;
        Ok(taken.context("cannot read the memory usage of a key").map(Option::<u64>::unwrap_or_default)?
            as f64)
    }

    /// Writes a key that expires at once. Returns why that is not possible, if so.
    pub async fn try_to_write(&self, key: &str) -> Result<(), String> {
        let written =
            redis::cmd("SET").arg(key).arg(1).arg("PX").arg(1).exec_async(&mut self.0.clone()).await;
        written.map_err(|error| error.to_string())
    }

    pub async fn delete(&self, key: &str) -> Result<()> {
        let deleted = redis::cmd("UNLINK").arg(key).exec_async(&mut self.0.clone()).await;
        deleted.context("cannot delete the list of the floor")
    }

    /// Names this connection. Other clients see the name as long as the connection lasts.
    pub async fn set_name(&self, name: &str) -> Result<()> {
        let named = redis::cmd("CLIENT").arg("SETNAME").arg(name).exec_async(&mut self.0.clone()).await;
        named.context("cannot name the connection")
    }

    /// The names of all connections that have one.
    pub async fn names(&self) -> Result<HashSet<String>> {
        let list = redis::cmd("CLIENT").arg("LIST").query_async(&mut self.0.clone()).await;
        let list: String = list.context("cannot list the connections")?;
        let names = list.split_ascii_whitespace().filter_map(|field| field.strip_prefix("name="));
        Ok(names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect())
    }

    /// All keys that match this pattern.
    pub async fn keys(&self, pattern: &str) -> Result<Vec<String>> {
        let (mut found, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
            let (next, keys): (u64, Vec<Vec<u8>>) =
                scan.query_async(&mut self.0.clone()).await.context("cannot list the keys")?;
            found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }

    async fn set(&self, name: &str, value: &str) -> Result<()> {
        let set = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut self.0.clone()).await;
        set.with_context(|| format!("cannot set {name} of Redis"))
    }

    async fn info(&self, sections: &[&str]) -> Result<InfoDict> {
        let info = redis::cmd("INFO").arg(sections).query_async(&mut self.0.clone()).await;
        info.context("cannot read INFO of Redis")
    }
}

/// Reads the name and version of a server from its `INFO`. Valkey also reports the version of Redis that it imitates.
pub fn product(info: &InfoDict) -> String {
    let version = |name: &str| info.get::<String>(name);
    match version("valkey_version") {
        Some(valkey) => format!("Valkey {valkey}"),
        None => {
            format!("Redis {}", version("redis_version").unwrap_or_else(|| "of unknown version".to_owned()))
        }
    }
}

/// What the server had used and done at one moment.
#[derive(Clone, Debug)]
pub struct ServerReading {
    pub at: Instant,
    pub cpu: Duration,
    /// Executed commands, including those inside scripts.
    pub commands: u64,
    /// How often the server read from a client. For a client that waits for each answer, this is a round trip.
    pub reads: u64,
    /// Bytes in use, except for the buffers of connections, which depend on the clients and not on the data. None if
    /// the server does not report them.
    pub memory: Option<u64>,
}

impl ServerReading {
    /// The sections of `INFO` that a reading needs.
    const SECTIONS: [&str; 4] = ["cpu", "memory", "stats", "commandstats"];

    /// Takes a reading over a blocking connection.
    pub fn take(connection: &mut redis::Connection) -> Result<Self> {
        let info = redis::cmd("INFO").arg(&Self::SECTIONS).query(connection);
        Ok(Self::of(&info.context("cannot read INFO of Redis")?, Instant::now()))
    }

    fn of(info: &InfoDict, at: Instant) -> Self {
        let seconds = |name: &str| info.get(name).unwrap_or(0.0);
        let commands = info.keys().filter(|name| name.starts_with("cmdstat_"));
        let calls = commands.filter_map(|name| {
            let stats: String = info.get(name)?;
            stats.split(',').next()?.strip_prefix("calls=")?.parse::<u64>().ok()
        });
        let cpu: f64 = seconds("used_cpu_user") + seconds("used_cpu_sys");
        Self {
            at,
            cpu: Duration::from_secs_f64(cpu.max(0.0)),
            commands: calls.sum(),
            reads: info.get("total_reads_processed").unwrap_or(0),
            memory: info
                .get::<u64>("used_memory")
                .zip(info.get("mem_clients_normal"))
                .map(|(used, clients)| used.saturating_sub(clients)),
        }
    }

    /// What happened between an earlier reading and this one.
    pub fn since(&self, before: &Self) -> ServerUsage {
        // The reading itself is one command and one round trip.
        ServerUsage {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            cpu: self.cpu.saturating_sub(before.cpu).as_secs_f64(),
            commands: self.commands.saturating_sub(before.commands).saturating_sub(1) as f64,
            round_trips: self.reads.saturating_sub(before.reads).saturating_sub(1) as f64,
        }
    }
}

/// What a server used and did over some time.
#[derive(Clone, Copy, Debug)]
pub struct ServerUsage {
    pub seconds: f64,
    /// In seconds.
    pub cpu: f64,
    pub commands: f64,
    pub round_trips: f64,
}

impl ServerUsage {
    /// Adds up two measurements.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            cpu: self.cpu + other.cpu,
            commands: self.commands + other.commands,
            round_trips: self.round_trips + other.round_trips,
        }
    }

    /// Subtracts the time that an idle server uses meanwhile.
    #[must_use]
    pub fn without_idle(&self, idle: &Self) -> Self {
        let idle = idle.cpu / idle.seconds * self.seconds;
        Self { cpu: (self.cpu - idle).max(0.0), ..*self }
    }

    /// Server time per message, in microseconds.
    pub fn cpu_us(&self, messages: u64) -> f64 {
        self.cpu * 1e6 / messages as f64
    }

    /// The share of one core, in per cent.
    pub fn cpu_share(&self) -> f64 {
        self.cpu * 100.0 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_adds_up_the_figures_of_info() {
        let info = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:2.250000\r\nused_cpu_sys_children:9\r\n\
                    total_reads_processed:70\r\nused_memory:5000\r\nmem_clients_normal:1800\r\n\
                    cmdstat_evalsha:calls=10,usec=500,usec_per_call=50.00\r\ncmdstat_client|id:calls=2,usec=1\r\n";
        let start = Instant::now();
        let reading = ServerReading::of(&InfoDict::new(info), start + Duration::from_secs(2));
        assert_eq!(reading.cpu, Duration::from_millis(3750));
        assert_eq!((reading.commands, reading.reads, reading.memory), (12, 70, Some(3200)));
        let (cpu, commands) = (Duration::from_millis(3250), 1);
        let before = ServerReading { at: start, cpu, commands, reads: 9, memory: None };
        let span = reading.since(&before);
        assert_eq!((span.commands, span.round_trips, span.seconds), (10.0, 60.0, 2.0));
        assert_eq!((span.cpu_share(), span.cpu_us(5)), (25.0, 100_000.0));
        let idle = ServerUsage { seconds: 1.0, cpu: 0.05, commands: 0.0, round_trips: 0.0 };
        assert_eq!((span.without_idle(&idle).cpu, span.without_idle(&span).cpu), (0.4, 0.0));
        let both = span.and(&span);
        assert_eq!((both.seconds, both.cpu, both.commands, both.round_trips), (4.0, 1.0, 20.0, 120.0));
    }

    #[test]
    fn a_server_is_called_by_its_own_name_and_not_by_the_one_it_imitates() {
        let name = |info: &str| product(&InfoDict::new(info));
        assert_eq!(name("redis_version:7.0.15\r\n"), "Redis 7.0.15");
        assert_eq!(
            name("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n"),
            "Valkey 8.1.0"
        );
        assert_eq!(name(""), "Redis of unknown version");
    }
}
