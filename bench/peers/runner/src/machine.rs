//! What the figures were measured on.

use std::time::SystemTime;

use anyhow::Result;
use serde::Serialize;

use crate::measure::Stage;
use crate::server::{field, server_info};

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub date: String,
    pub cores: usize,
    pub cpu: String,
    pub redis: String,
}

impl Machine {
    pub fn look(stage: &Stage<'_>) -> Result<Machine> {
        let info = server_info(&mut stage.connect()?)?;
        let redis = match field(&info, "valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field(&info, "redis_version").unwrap_or("of unknown version")),
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let date = now.split('T').next().unwrap_or_default().to_owned();
        Ok(Machine { date, cores: std::thread::available_parallelism()?.get(), cpu: cpu(), redis })
    }
}

fn cpu() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
