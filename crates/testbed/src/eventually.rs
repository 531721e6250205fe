use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Calls `condition` until it returns `Some`. Panics with `what` if that does not happen within `timeout`.
///
/// This is for conditions that send no notification, such as a key in Redis. To wait for a line of a process, use
/// [`Process::wait_for_line`](crate::Process::wait_for_line). The condition is checked once more after the deadline. So
/// a machine that stalls for the whole timeout does not fail a test whose condition came true.
#[track_caller]
pub fn eventually<T>(timeout: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        let late = Instant::now() >= deadline;
        if let Some(value) = condition() {
            return value;
        }
        assert!(!late, "not within {timeout:?}: {what}");
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_returned_as_soon_as_the_condition_has_one() {
        let mut calls = 0;
        let value = eventually(Duration::from_secs(5), "third time", || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(value, 3);
    }

    #[test]
    #[should_panic(expected = "the moon is blue")]
    fn a_timeout_panics_with_what_did_not_happen() {
        eventually(Duration::from_millis(20), "the moon is blue", || None::<()>);
    }
}
