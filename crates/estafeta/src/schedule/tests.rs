use jiff::Timestamp;

use super::due::NextTick;
use super::timing::LATE_MS;
use super::*;

fn ms(time: &str) -> u64 {
    u64::try_from(time.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}

/// The next runs of a cron entry, as UTC.
fn runs(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::cron("x", expression, zone).unwrap().body(());
    let from = SystemTime::UNIX_EPOCH + Duration::from_millis(ms(from));
    let [(_, times)] = &schedule.upcoming(from, count)[..] else { panic!("one entry") };
    times.iter().map(|time| Timestamp::try_from(*time).unwrap().to_string()).collect()
}

#[test]
fn a_fixed_time_in_a_gap_comes_right_after_it() {
    let berlin = runs("30 2 * * *", "Europe/Berlin", "2027-03-27T00:00:00Z", 3);
    assert_eq!(berlin, ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]);
    let new_york = runs("30 2 * * *", "America/New_York", "2027-03-13T00:00:00Z", 3);
    assert_eq!(new_york, ["2027-03-13T07:30:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]);
}

#[test]
fn a_fixed_time_in_an_overlap_comes_once_and_a_repeated_time_follows_the_clock() {
    let berlin = runs("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00:00Z", 2);
    assert_eq!(berlin, ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]);
    let new_york = runs("30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", 2);
    assert_eq!(new_york, ["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"]);
    let half_hours = runs("*/30 * * * *", "Europe/Berlin", "2027-10-30T23:59:00Z", 5);
    let expected = ["00:00", "00:30", "01:00", "01:30", "02:00"];
    assert_eq!(half_hours, expected.map(|time| format!("2027-10-31T{time}:00Z")));
}

#[test]
fn cron_expressions_have_the_dialect_of_the_guide() {
    let days = |expression: &str, from: &str| {
        let times = runs(expression, "UTC", &format!("{from}T00:00:00Z"), 3);
        times.iter().map(|time| time[..10].to_owned()).collect::<Vec<_>>()
    };
    // 2027-08-01 is a Sunday.
    let sundays = ["2027-08-08", "2027-08-15", "2027-08-22"];
    for sunday in ["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "@weekly"] {
        assert_eq!(days(sunday, "2027-08-01"), sundays, "{sunday}");
    }
    let cases = [
        ("@daily", ["2027-08-02", "2027-08-03", "2027-08-04"]),
        ("@monthly", ["2027-09-01", "2027-10-01", "2027-11-01"]),
        ("@yearly", ["2028-01-01", "2029-01-01", "2030-01-01"]),
        ("0 0 * JAN,FEB MON", ["2028-01-03", "2028-01-10", "2028-01-17"]),
        ("0 0 L * *", ["2027-08-31", "2027-09-30", "2027-10-31"]),
        // The 15th of August is a Sunday.
        ("0 0 15W * *", ["2027-08-16", "2027-09-15", "2027-10-15"]),
        ("0 0 * * MON#2", ["2027-08-09", "2027-09-13", "2027-10-11"]),
        ("0 0 4 * MON", ["2027-08-02", "2027-08-04", "2027-08-09"]),
        ("0 0 2-8/3 * *", ["2027-08-02", "2027-08-05", "2027-08-08"]),
    ];
    for (expression, expected) in cases {
        assert_eq!(days(expression, "2027-08-01"), expected, "{expression}");
    }
    let hourly = runs("@hourly", "UTC", "2027-08-01T00:00:00Z", 2);
    assert_eq!(hourly, ["2027-08-01T01:00:00Z", "2027-08-01T02:00:00Z"]);
    assert!(Schedule::cron("x", "5/15 * * * *", "UTC").is_err());
}

#[test]
fn seconds_may_come_first() {
    let runs = runs("*/20 * * * * *", "UTC", "2027-01-01T00:00:00Z", 3);
    assert_eq!(runs, ["00:20", "00:40", "01:00"].map(|time| format!("2027-01-01T00:{time}Z")));
}

#[test]
fn missed_ticks_are_skipped_or_made_up_for_until_they_are_too_old() {
    const HOUR: u64 = 3_600_000;
    let (last, now) = (ms("2027-01-01T12:00:00Z"), ms("2027-01-01T15:30:00Z"));
    let hourly = || Schedule::cron("x", "0 * * * *", "UTC").unwrap();
    let every = || Schedule::every("x", Duration::from_secs(3600)).unwrap();
    let next = |entry: ScheduleEntry, now| entry.0.next(last, now).map(|tick| tick - last);
    for missed in [Missed::Skip, Missed::Last, Missed::All] {
        for entry in [hourly(), every()] {
            let late = next(entry.missed(missed), last + HOUR + LATE_MS);
            assert_eq!(late, Some(HOUR), "{missed:?}: late, but not missed");
        }
    }
    for entry in [hourly, every] {
        assert_eq!(next(entry().missed(Missed::Skip), now), Some(4 * HOUR));
        assert_eq!(next(entry().missed(Missed::Last), now), Some(3 * HOUR));
        assert_eq!(next(entry().missed(Missed::All), now), Some(HOUR));
        let two_hours = Duration::from_secs(2 * 3600);
        assert_eq!(next(entry().missed(Missed::All).max_age(two_hours), now), Some(2 * HOUR));
        let minute = Duration::from_secs(60);
        assert_eq!(next(entry().missed(Missed::Last).max_age(minute), now), Some(4 * HOUR));
    }
    assert_eq!(next(hourly(), now), Some(3 * HOUR), "cron makes up for the last one");
    assert_eq!(next(every(), now), Some(4 * HOUR), "every skips");
}

#[test]
fn a_tick_in_time_comes_before_the_missed_ticks_of_another_entry() {
    let now = ms("2027-01-01T15:30:00Z");
    let seconds = Schedule::every("seconds", Duration::from_secs(1)).unwrap().missed(Missed::All);
    let minutes = Schedule::every("minutes", Duration::from_secs(60)).unwrap();
    let mut schedule = seconds.body(()).and(minutes.body(()));
    schedule.entries[0].timing.last = Some(now - 3_600_000);
    schedule.entries[1].timing.last = Some(now - 60_000);
    assert_eq!(schedule.next_tick(now), Some(NextTick { due: now, tick: now, index: 1 }));
    schedule.entries[1].timing.last = Some(now);
    let missed = now - 3_599_000;
    assert_eq!(schedule.next_tick(now), Some(NextTick { due: missed, tick: missed, index: 0 }));
}

#[test]
fn an_interval_goes_on_after_a_clock_that_was_ahead_is_set_right() {
    let now = ms("2027-01-01T15:30:00Z");
    let every = Schedule::every("x", Duration::from_secs(60)).unwrap();
    assert_eq!(every.0.next(now + 3_600_000, now), Some(now + 60_000));
    assert_eq!(every.0.next(now + 60_000, now), Some(now + 120_000), "one interval may be ahead");
}

#[tokio::test]
async fn an_entry_with_more_messages_than_may_wait_fails_alone_and_by_its_name() {
    let mut crowd = Schedule::every("crowd", Duration::from_secs(1)).unwrap().each(|_| [1, 2, 3]);
    let failure = crowd.entries[0].publish(1, None, 2).await.unwrap_err();
    assert!(failure.reason().starts_with("schedule entry 'crowd': "), "{failure}");
    assert!(crowd.entries[0].publish(1, None, 3).await.is_ok());
}

#[test]
fn what_can_never_come_is_refused_with_one_clear_error() {
    let error = |entry: Result<ScheduleEntry>| entry.expect_err("an error").to_string();
    let second = Duration::from_secs(1);
    let cases = [
        (
            Schedule::cron("x", "61 * * * *", "UTC"),
            "cron expression: expected fields like '30 2 * * *' (Component error: Number out of bounds.), got \
             '61 * * * *'",
        ),
        (
            Schedule::cron("x", "0 0 30 2 *", "UTC"),
            "cron expression: expected times that come some day, got '0 0 30 2 *'",
        ),
        (
            Schedule::cron("x", "0 0 * * *", "Europe/Atlantis"),
            "time zone: expected an IANA name such as Europe/Berlin, got 'Europe/Atlantis'",
        ),
        (Schedule::every("", second), "name of a schedule entry: expected 1 to 512 bytes, got '0 bytes'"),
        (
            Schedule::every("x".repeat(513), second),
            "name of a schedule entry: expected 1 to 512 bytes, got '513 bytes'",
        ),
        (Schedule::every("x", Duration::ZERO), "interval: expected 10ms to 10 years, got '0ns'"),
    ];
    for (entry, expected) in cases {
        assert_eq!(error(entry), expected);
    }
    let entry = |name: &str| Schedule::every(name, second).unwrap().body(1);
    assert!(entry("a").and(entry("b")).check().is_ok());
    let twice = entry("a").and(entry("b")).and(entry("a")).check().unwrap_err();
    assert_eq!(twice.to_string(), "schedule: expected entries with different names, got 'a, a'");
    let many = |count: usize| {
        let all = (1..count).map(|n| entry(&n.to_string()));
        all.fold(entry("0"), Schedule::and).check()
    };
    assert!(many(1000).is_ok());
    assert_eq!(many(1001).unwrap_err().to_string(), "schedule: expected at most 1000 entries, got '1001'");
}
