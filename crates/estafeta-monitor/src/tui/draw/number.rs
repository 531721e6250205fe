//! Formats numbers so that they fit into narrow columns.

use estafeta_lab::text::grouped;

/// A count below a trillion in at most six characters: `99,999`, `123k`, `1.23M`.
pub fn short(number: u64) -> String {
    let scaled = |unit: f64, letter: char| {
        let value = number as f64 / unit;
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        format!("{value:.digits$}{letter}")
    };
    match number {
        0..100_000 => grouped(number),
        100_000..1_000_000 => format!("{}k", number / 1000),
        1_000_000..1_000_000_000 => scaled(1e6, 'M'),
        1_000_000_000..1_000_000_000_000 => scaled(1e9, 'G'),
        _ => scaled(1e12, 'T'),
    }
}

/// A count below a billion in at most four characters: `9999`, `12k`, `3M`.
pub fn tiny(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// A rate below a trillion in at most six characters.
pub fn rate(rate: f64) -> String {
    if rate <= 0.0 {
        "0".to_owned()
    } else if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        short(rate.round() as u64)
    }
}

/// The time of day in UTC: hours, minutes and seconds.
pub fn clock(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_trillion_fit_into_six_characters() {
        let shown =
            [0, 99_999, 100_000, 999_999, 1_234_567, 12_345_678, 999_999_999, 1_500_000_000].map(short);
        assert_eq!(shown, ["0", "99,999", "100k", "999k", "1.23M", "12.3M", "1000M", "1.50G"]);
        assert_eq!([0.0, 0.04, 2.0, 9.96, 1234.4].map(rate), ["0", "0.0", "2.0", "10.0", "1,234"]);
        assert_eq!([0, 9999, 12_345, 3_999_999].map(tiny), ["0", "9999", "12k", "3M"]);
        for digits in 1..=12 {
            for number in [10_u64.pow(digits) - 1, 10_u64.pow(digits - 1), 10_u64.pow(digits) / 2] {
                assert!(short(number).len() <= 6, "{}", short(number));
                assert!(rate(number as f64).len() <= 6, "{}", rate(number as f64));
            }
        }
        assert!(short(u64::MAX).len() <= 9);
    }

    #[test]
    fn the_clock_shows_the_time_of_day_in_utc() {
        assert_eq!(clock(1_794_776_990_426), "21:09:50");
    }
}
