//! The body of a schedule does not implement `Serialize`.

use std::time::Duration;

use estafeta::{Error, Schedule};

#[derive(Clone)]
struct Report {
    shop: String,
}

fn main() -> Result<(), Error> {
    let report = Report { shop: "berlin".to_owned() };
    let hourly = Schedule::every("hourly", Duration::from_secs(3600))?.body(report);
    let daily = Schedule::cron("daily", "0 6 * * *", "UTC")?.each(|_| [Report { shop: "all".to_owned() }]);
    let _ = hourly.and(daily);
    Ok(())
}
