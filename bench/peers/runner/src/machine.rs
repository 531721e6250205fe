//! The machine on which the figures were measured.

use anyhow::Result;
use estafeta_lab::clock::now_ms;
use estafeta_lab::server::product;
use estafeta_lab::text::moment;
use serde::Serialize;

use crate::measure::PeerRunner;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub date: String,
    pub cores: usize,
    pub cpu: String,
    pub redis: String,
}

impl Machine {
    pub fn of(runner: &PeerRunner<'_>) -> Result<Machine> {
        let redis = product(&redis::cmd("INFO").arg("server").query(&mut runner.connect()?)?);
        let date = moment(now_ms()).split('T').next().unwrap_or_default().to_owned();
        Ok(Machine { date, cores: std::thread::available_parallelism()?.get(), cpu: cpu(), redis })
    }
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
