//! The feature `testing`, used as the tests of another program would.

mod handling;
mod nodes;
mod server;
mod time;

use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
