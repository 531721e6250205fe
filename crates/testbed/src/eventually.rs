use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

/// Asks `condition` until it answers `Some`, and panics with `what` when `timeout` has passed without that.
///
/// For conditions that nothing announces, such as a key in Redis; a line of a process is better awaited with
/// [`Process::wait_for_line`](crate::Process::wait_for_line). The condition is asked once more after the
/// deadline, so a machine that stalls for the whole timeout does not fail a test whose condition did come
/// true.
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
    fn answers_as_soon_as_the_condition_does() {
        let mut asked = 0;
        let value = eventually(Duration::from_secs(5), "third time", || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(value, 3);
    }

    #[test]
    #[should_panic(expected = "the moon is blue")]
    fn names_what_did_not_happen() {
        eventually(Duration::from_millis(20), "the moon is blue", || None::<()>);
    }
}
