//! The wall clock of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the current time in microseconds since 1970.
pub fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_counted_in_milliseconds_since_1970() {
        let since_1970 = || UNIX_EPOCH.elapsed().unwrap().as_millis();
        let (before, now, after) = (since_1970(), u128::from(now_ms()), since_1970());
        assert!((before..=after).contains(&now), "{now}");
    }

    #[test]
    fn microseconds_are_counted_by_the_same_clock() {
        let (before, now, after) = (now_ms(), now_us() / 1000, now_ms());
        assert!((before..=after).contains(&now), "{now}");
    }
}
