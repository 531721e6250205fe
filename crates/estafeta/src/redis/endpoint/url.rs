//! Reads the URL of an endpoint.
//!
//! The client library reads URLs with one host. A URL with several hosts is taken apart here, and each host is read as a
//! separate URL.

use std::str::FromStr;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::{Door, Endpoint, Way, absolute};
use crate::error::Error;

/// The port of a sentinel whose URL names none.
const SENTINEL_PORT: u16 = 26379;

/// The parameters that name files of TLS.
const TLS_PARAMETERS: [&str; 3] = ["tls-ca", "tls-cert", "tls-key"];

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        let schemes = ["redis", "rediss", "redis+unix", "unix", "valkey", "valkeys"];
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        match scheme.split_once('+') {
            Some((scheme @ ("redis" | "rediss"), "sentinel")) => with_sentinels(scheme, rest),
            Some((scheme @ ("redis" | "rediss"), "cluster")) => with_cluster(scheme, rest),
            _ if schemes.contains(&scheme) => with_one_server(url),
            // Anything else in front of `://` may be a password.
            _ if scheme.is_empty() || !scheme.bytes().all(is_of_scheme) => Err(wrong("one without a scheme")),
            _ => Err(wrong(&format!("one with the scheme {scheme}"))),
        }
    }
}

fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// The error about a URL. The given text may contain a password, so the error does not repeat it.
fn wrong(why: &str) -> Error {
    const EXPECTED: &str = "a URL such as redis://[user:password@]host:6379/0, rediss://host, \
                            redis+unix:///path/to/redis.sock, redis+sentinel://host:26379,host/name or \
                            redis+cluster://host:6379,host";
    Error::Expected { what: "Redis URL", expected: EXPECTED.into(), got: why.into() }
}

fn connection_info(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info();
    let info = info.map_err(|error| wrong(&format!("one that cannot be read ({})", error.category())))?;
    match info.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if !Endpoint::is_host(host) => {
            Err(wrong("one whose host is no host name and no IP address"))
        }
        _ => Ok(info),
    }
}

/// `redis://`, `rediss://`, `redis+unix://` and their other names.
fn with_one_server(url: &str) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::direct(connection_info(url)?);
    let known = match endpoint.info.addr() {
        ConnectionAddr::Unix(_) => &["db", "user", "pass", "protocol"][..],
        ConnectionAddr::TcpTls { .. } => &["db", "protocol", "tls-ca", "tls-cert", "tls-key"],
        _ => &["db", "protocol"],
    };
    let (mut endpoint, mut db) = (endpoint, None);
    for (name, value) in redis::parse_redis_url(url).iter().flat_map(|url| url.query_pairs()) {
        if !known.contains(&name.as_ref()) {
            return Err(wrong(&format!("one with a parameter other than {}", known.join(", "))));
        }
        if name == "db" {
            db = Some(value.parse().map_err(|_| wrong("one whose database is no number"))?);
        }
        endpoint = with_tls_parameter(endpoint, &name, &value);
    }
    // For a TCP port, the client library reads the database only from the path.
    let in_path = endpoint.info.redis_settings().db();
    match db.unwrap_or(in_path) {
        ..0 => Err(wrong("one whose database is below 0")),
        db if db != in_path && in_path != 0 => Err(wrong("one with two databases")),
        db => Ok(endpoint.with_db(db)),
    }
}

fn with_tls_parameter(mut endpoint: Endpoint, name: &str, value: &str) -> Endpoint {
    match name {
        "tls-ca" => endpoint.tls.ca = Some(absolute(value.into())),
        "tls-cert" => endpoint.tls.cert = Some(absolute(value.into())),
        "tls-key" => endpoint.tls.key = Some(absolute(value.into())),
        _ => {}
    }
    endpoint
}

/// `redis+sentinel://[user:password@]host:26379,host/name[/db][?parameters]`
fn with_sentinels(scheme: &str, rest: &str) -> Result<Endpoint, Error> {
    let parts = UrlParts::of(rest)?;
    let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    let name = percent_decode_str(name).decode_utf8().map_err(|_| wrong("one whose name is no text"))?;
    if name.is_empty() {
        return Err(wrong("one without the name of a master"));
    }
    let db = match db {
        "" => 0,
        db => db.parse().map_err(|_| wrong("one whose database is no number"))?,
    };
    if db < 0 {
        return Err(wrong("one whose database is below 0"));
    }
    let (info, doors) = parts.doors(scheme, Some(SENTINEL_PORT))?;
    let way = Way::Sentinel(name.into_owned());
    let endpoint = Endpoint { way, doors, ..Endpoint::direct(info) }.with_db(db);
    parts.with_parameters(endpoint, &["sentinel-user", "sentinel-password-file"])
}

/// `redis+cluster://[user:password@]host:6379,host[?parameters]`
fn with_cluster(scheme: &str, rest: &str) -> Result<Endpoint, Error> {
    let parts = UrlParts::of(rest)?;
    if !matches!(parts.path, "" | "0") {
        return Err(wrong("one with a path: a cluster has only database 0"));
    }
    let (info, doors) = parts.doors(scheme, None)?;
    parts.with_parameters(Endpoint { way: Way::Cluster, doors, ..Endpoint::direct(info) }, &[])
}

/// The parts of a URL with several hosts, as they are written.
struct UrlParts<'a> {
    credentials: &'a str,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> UrlParts<'a> {
    fn of(rest: &'a str) -> Result<Self, Error> {
        if rest.contains('#') {
            return Err(wrong("one that cannot be read (it has a #)"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (credentials, hosts) = authority.split_at(at);
        Ok(Self { credentials, hosts, path: path.strip_suffix('/').unwrap_or(path), query })
    }

    /// The connection to the first host, and all hosts.
    fn doors(&self, scheme: &str, port: Option<u16>) -> Result<(ConnectionInfo, Vec<Door>), Error> {
        let mut infos = Vec::new();
        for host in self.hosts.split(',') {
            // The last colon of an IPv6 address belongs to the address, unless a bracket stands before it.
            let has_port =
                host.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
            let port = port.filter(|_| !has_port).map(|port| format!(":{port}")).unwrap_or_default();
            infos.push(connection_info(&format!("{scheme}://{}{host}{port}", self.credentials))?);
        }
        let doors = infos.iter().filter_map(|info| Endpoint::direct(info.clone()).given_door()).collect();
        infos.into_iter().next().map(|first| (first, doors)).ok_or_else(|| wrong("one without a host"))
    }

    fn with_parameters(&self, mut endpoint: Endpoint, own: &[&str]) -> Result<Endpoint, Error> {
        let tls = if endpoint.uses_tls() { &TLS_PARAMETERS[..] } else { &[] };
        let known: Vec<&str> = own.iter().chain(tls).copied().collect();
        let parsed = redis::parse_redis_url(&format!("redis://host/?{}", self.query));
        for (name, value) in parsed.iter().flat_map(|url| url.query_pairs()) {
            if !known.contains(&name.as_ref()) {
                return Err(wrong(&match known.is_empty() {
                    true => "one with a parameter, and none is known".to_owned(),
                    false => format!("one with a parameter other than {}", known.join(", ")),
                }));
            }
            match name.as_ref() {
                "sentinel-user" => endpoint.sentinel_user = Some(value.into_owned()),
                "sentinel-password-file" => {
                    endpoint.sentinel_password_file = Some(absolute(value.as_ref().into()))
                }
                _ => endpoint = with_tls_parameter(endpoint, &name, &value),
            }
        }
        Ok(endpoint)
    }
}
