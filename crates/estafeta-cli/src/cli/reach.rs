//! The options that name the ring and its Redis. Each may also come from the environment or the settings file.

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::ShowDefault as _;

pub const DEFAULT_RING: &str = "estafeta";
pub const DEFAULT_HOST: &str = "127.0.0.1";
pub const DEFAULT_PORT: u16 = 6379;
/// Redis has fewer databases than this.
pub const DATABASES: u16 = 16384;

/// Where the ring is. Most commands accept these options.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Ring and Redis")]
pub struct ReachArgs {
    /// Name of the ring
    #[arg(long, global = true, value_name = "NAME", env = "ESTAFETA_RING", show_default = DEFAULT_RING)]
    pub ring: Option<String>,

    /// URL of Redis: redis://, rediss://, redis+unix:///path, redis+sentinel://host,host/name or
    /// redis+cluster://host,host [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL", env = "ESTAFETA_REDIS", hide_env_values = true)]
    pub redis: Option<String>,

    /// Host of Redis
    #[arg(long, global = true, env = "ESTAFETA_HOST", value_parser = NonEmptyStringValueParser::new(),
          show_default = DEFAULT_HOST)]
    pub host: Option<String>,

    /// Port of Redis
    #[arg(long, global = true, env = "ESTAFETA_PORT", show_default = DEFAULT_PORT)]
    pub port: Option<u16>,

    /// Database number [default: 0]
    #[arg(long, global = true, value_name = "N", env = "ESTAFETA_DB", value_parser = clap::value_parser!(u16).range(..i64::from(DATABASES)))]
    pub db: Option<u16>,

    /// User name for Redis
    #[arg(long, global = true, env = "ESTAFETA_USER")]
    pub user: Option<String>,

    /// Password for Redis. The environment or a file is a safer place for it
    #[arg(long, global = true, env = "ESTAFETA_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// File that holds the password for Redis
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,

    /// PEM file with the certificates to trust, instead of those of the system
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_TLS_CA")]
    pub tls_ca: Option<PathBuf>,

    /// PEM file with the certificate that this side shows to Redis
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the key of that certificate
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Never use a private Redis
    #[arg(long, global = true, env = "ESTAFETA_NO_PRIVATE_REDIS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub no_private_redis: Option<bool>,

    /// TOML file with any of these options and those of run
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Log more on stderr; -vv logs every step
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[serde(skip)]
    pub verbose: u8,

    /// Format of the log on stderr
    #[arg(long, global = true, value_enum, env = "ESTAFETA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}
