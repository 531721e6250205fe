//! The program as users meet it: real processes, real signals, and one real Redis per test.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

mod bad_input;
mod bad_lines;
mod bad_redis;
mod bench;
mod chaos;
mod children;
mod clean_temp;
mod clock_jumps;
mod disk_full;
mod duties;
mod errors;
mod exactly_once;
mod foreign_data;
mod freezes;
mod get_errors;
mod get_errors_cut_short;
mod golden;
mod hostile_text;
mod kill_points;
mod lost_redis;
mod missing_ring;
mod monitor;
mod monitor_plain;
mod named_values;
mod output;
mod private_redis;
mod publish;
mod record;
mod redis_forgets;
mod redis_refuses;
mod reset;
mod safety;
mod scarce;
mod settings;
mod status;
mod stopping;
mod takeover;
mod terminal;
mod tls;
