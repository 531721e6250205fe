//! Decides which ring and which Redis to use.
//!
//! The command line, the environment and the settings file are three layers. A flag overrides the environment, which
//! overrides the file. The address of Redis is a URL, or a host and a port. One layer may not name both.
//!
//! The highest layer that names a server decides which server is used. That layer and those above it may refine the
//! address by database, user, password and files of TLS, even if the address is a URL. Lower layers describe another
//! server, so their refinements are ignored: a password must not reach the wrong server. There is one exception. The
//! environment is the place for secrets, so its credentials apply to a server that a flag names, if no other password is
//! given. So do its files of TLS, if that server is reached by TLS.

use std::path::PathBuf;

use anyhow::Result;
use clap::parser::ValueSource;
use estafeta::{Endpoint, RingName};

use super::origin::{Origins, Place, refused};
use super::read_file;
use crate::cli::{DATABASES, DEFAULT_HOST, DEFAULT_PORT, DEFAULT_RING, ReachArgs};
use crate::failure::usage;

/// The largest file with a password, in KiB.
const MOST_KIB: u64 = 64;

/// Where the ring is.
pub struct Reach {
    pub ring: RingName,
    pub redis: Where,
}

/// Which Redis to use.
pub enum Where {
    Given(Box<Endpoint>),
    /// No layer names a server: use the one at the usual port, or else a private one. The database applies to both, the
    /// credentials only to the former. If `private` is false, the user forbids a private one.
    Unspecified {
        refinement: Refinement,
        private: bool,
    },
}

/// What can be added to an address of Redis without naming a server.
#[derive(Default)]
pub struct Refinement {
    pub db: Option<u16>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub tls: TlsOptions,
}

/// The files of a TLS connection.
#[derive(Clone, Default)]
pub struct TlsOptions {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl TlsOptions {
    /// These files, and for those that are missing, those of `other`.
    fn or(&self, other: &Self) -> Self {
        let first = |one: &Option<PathBuf>, other: &Option<PathBuf>| one.clone().or_else(|| other.clone());
        // A certificate and its key belong together.
        let pair = if self.cert.is_some() || self.key.is_some() { self } else { other };
        Self { ca: first(&self.ca, &other.ca), cert: pair.cert.clone(), key: pair.key.clone() }
    }
}

impl Refinement {
    pub fn without_credentials(&self) -> Self {
        Self { db: self.db, ..Self::default() }
    }

    pub fn apply(&self, mut endpoint: Endpoint) -> Endpoint {
        if let Some(db) = self.db {
            endpoint = endpoint.with_db(db.into());
        }
        if let Some(user) = &self.user {
            endpoint = endpoint.with_user(user);
        }
        if let Some(password) = &self.password {
            endpoint = endpoint.with_password(password);
        }
        if let Some(file) = &self.tls.ca {
            endpoint = endpoint.with_tls_ca(file);
        }
        if let Some(file) = &self.tls.cert {
            endpoint = endpoint.with_tls_cert(file);
        }
        if let Some(file) = &self.tls.key {
            endpoint = endpoint.with_tls_key(file);
        }
        endpoint
    }
}

impl Reach {
    pub fn resolve(given: &ReachArgs, origins: &Origins<'_>) -> Result<Self> {
        Ok(Self { ring: ring(given, origins)?, redis: Self::redis(given, origins)? })
    }

    /// Which Redis to use, whatever the ring.
    pub fn redis(given: &ReachArgs, origins: &Origins<'_>) -> Result<Where> {
        let file = &origins.file.reach;
        let no_private = given.no_private_redis.or(file.no_private_redis) == Some(true);
        let from = |source| move |id: &str| origins.matches.value_source(id) == Some(source);
        let flags = Layer::of(given, from(ValueSource::CommandLine), Place::CommandLine)?;
        let mut environment = Layer::of(given, from(ValueSource::EnvVariable), Place::Environment)?;
        if !environment.names_server() {
            let url = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
            environment.url = url.map(|url| NamedUrl { name: "variable REDIS_URL".to_owned(), url });
        }
        let file = Layer::of(file, |_| true, Place::File(origins.file.path()))?;
        Where::resolve([flags, environment, file], !no_private)
    }

    /// The rings that are named, for a command that shows several: `A,B`. None if no layer names one.
    pub fn rings(given: &ReachArgs, origins: &Origins<'_>) -> Result<Option<Vec<RingName>>> {
        let Some(names) = given.ring.as_ref().or(origins.file.reach.ring.as_ref()) else { return Ok(None) };
        let shown = || origins.place("ring").map_or_else(String::new, |place| place.name("ring"));
        let parsed = names.split(',').map(|name| name.trim().parse());
        parsed.collect::<Result<_, _>>().map(Some).map_err(|error| refused(&shown(), error))
    }

    /// The ring alone, for a command that starts its own Redis.
    pub fn without_redis(given: &ReachArgs, origins: &Origins<'_>) -> Result<Self> {
        let redis = Where::Unspecified { refinement: Refinement::default(), private: false };
        Ok(Self { ring: ring(given, origins)?, redis })
    }
}

fn ring(given: &ReachArgs, origins: &Origins<'_>) -> Result<RingName> {
    let name = given.ring.as_ref().or(origins.file.reach.ring.as_ref());
    let parsed = name.map_or(DEFAULT_RING, String::as_str).parse();
    let shown = || origins.place("ring").map_or_else(String::new, |place| place.name("ring"));
    parsed.map_err(|error| refused(&shown(), error))
}

impl Where {
    /// Picks the server and its refinements from the layers, highest first. The documentation of this module has the
    /// rules.
    fn resolve(layers: [Layer; 3], private: bool) -> Result<Self> {
        let deciding = layers.iter().position(Layer::names_server);
        let applicable = &layers[..=deciding.unwrap_or(layers.len() - 1)];
        let mut refinement = Refinement {
            db: applicable.iter().find_map(|layer| layer.db),
            user: applicable.iter().find_map(|layer| layer.user.clone()),
            password: None,
            tls: applicable.iter().fold(TlsOptions::default(), |tls, layer| tls.or(&layer.tls)),
        };
        let mut password = applicable.iter().find_map(|layer| layer.password.as_ref());
        let Some(layer) = deciding.map(|deciding| &layers[deciding]) else {
            refinement.password = password.map(Password::read).transpose()?;
            return Ok(Self::Unspecified { refinement, private });
        };
        let endpoint: Endpoint = match &layer.url {
            Some(NamedUrl { name, url }) => url.parse().map_err(|error| refused(name, error))?,
            None => Endpoint::tcp(
                layer.host.as_deref().unwrap_or(DEFAULT_HOST),
                layer.port.unwrap_or(DEFAULT_PORT),
            ),
        };
        // Credentials in the environment apply even if a flag names the server.
        if password.is_none() && deciding == Some(0) && !endpoint.has_password() {
            password = layers[1].password.as_ref();
            if refinement.user.is_none() && !endpoint.has_user() {
                refinement.user.clone_from(&layers[1].user);
            }
        }
        if deciding == Some(0) && endpoint.uses_tls() {
            refinement.tls = refinement.tls.or(&layers[1].tls);
        }
        refinement.password = password.map(Password::read).transpose()?;
        Ok(Self::Given(Box::new(refinement.apply(endpoint))))
    }
}

/// What one layer contains about Redis.
struct Layer {
    url: Option<NamedUrl>,
    host: Option<String>,
    port: Option<u16>,
    db: Option<u16>,
    user: Option<String>,
    password: Option<Password>,
    tls: TlsOptions,
}

/// A password, or the file that holds it and the name of its option. The file is read only if the password is used.
enum Password {
    Text(String),
    File { path: PathBuf, name: String },
}

impl Password {
    fn read(&self) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File { path, name } => {
                Ok(read_file(path, name, MOST_KIB)?.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

/// A URL, and the name of its option or variable for an error about it.
struct NamedUrl {
    name: String,
    url: String,
}

impl Layer {
    /// The options that came from this layer.
    fn of(args: &ReachArgs, from_here: impl Fn(&str) -> bool, place: Place<'_>) -> Result<Self> {
        let url = args.redis.clone().filter(|_| from_here("redis"));
        let mut layer = Self {
            url: url.map(|url| NamedUrl { name: place.name("redis"), url }),
            host: args.host.clone().filter(|_| from_here("host")),
            port: args.port.filter(|_| from_here("port")),
            db: args.db.filter(|_| from_here("db")),
            user: args.user.clone().filter(|_| from_here("user")),
            password: args.password.clone().filter(|_| from_here("password")).map(Password::Text),
            tls: TlsOptions {
                ca: args.tls_ca.clone().filter(|_| from_here("tls_ca")),
                cert: args.tls_cert.clone().filter(|_| from_here("tls_cert")),
                key: args.tls_key.clone().filter(|_| from_here("tls_key")),
            },
        };
        if layer.url.is_some() && (layer.host.is_some() || layer.port.is_some()) {
            return Err(usage(format!("{place}: expected a Redis URL or host and port, not both")));
        }
        // clap checks flags and variables. Nothing else checks what comes from the file.
        if let Some(db) = layer.db.filter(|db| *db >= DATABASES) {
            let name = place.name("db");
            return Err(usage(format!("{name}: expected a number below {DATABASES}, got {db}")));
        }
        if let Some(host) = layer.host.as_ref().filter(|host| !Endpoint::is_host(host)) {
            let name = place.name("host");
            return Err(usage(format!("{name}: expected a host name or an IP address, got '{host}'")));
        }
        if let Some(path) = args.password_file.clone().filter(|_| from_here("password_file")) {
            if layer.password.is_some() {
                return Err(usage(format!("{place}: expected password or password-file, not both")));
            }
            layer.password = Some(Password::File { path, name: place.name("password-file") });
        }
        Ok(layer)
    }

    fn names_server(&self) -> bool {
        self.url.is_some() || self.host.is_some() || self.port.is_some()
    }
}
