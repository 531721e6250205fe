//! Numbers and times in a form that people can read.

use estafeta::{Pause, Snapshot};

/// Formats a count with its noun: `1 error`, `2 errors`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats a number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    group_digits(&number.to_string())
}

/// Formats a measured number with this many decimals, and with commas between its thousands.
pub fn figure(number: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", number.abs());
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}{fraction}", group_digits(whole))
}

fn group_digits(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time of Redis' clock, given in milliseconds since 1970.
pub fn moment(ms: u64) -> String {
    // The format ends with the year 9999. Only foreign data holds a later time.
    const LAST: u64 = 253_402_300_799_999;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

/// Formats a length of time in at most two units, such as `1m05s`.
pub fn age(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// What is paused in a ring and for how long, such as `handling paused for 4m10s more`. None if nothing is.
pub fn paused(snapshot: &Snapshot) -> Option<String> {
    let left = |pause: Pause| match pause.left_ms {
        Some(ms) => format!("paused for {} more", age(ms)),
        None => "paused until resumed".to_owned(),
    };
    Some(match (snapshot.producing_pause, snapshot.handling_pause) {
        (None, None) => return None,
        (Some(producing), None) => format!("producing {}", left(producing)),
        (None, Some(handling)) => format!("handling {}", left(handling)),
        (Some(one), Some(other)) if one == other => format!("producing and handling {}", left(one)),
        (Some(producing), Some(handling)) => {
            format!("producing {}, handling {}", left(producing), left(handling))
        }
    })
}

/// The limits of a ring, such as `limited to 100 in flight and 50/s`. None if it has none.
pub fn limits(snapshot: &Snapshot) -> Option<String> {
    let in_flight = snapshot.in_flight_limit.map(|most| format!("{} in flight", grouped(most)));
    let rate = snapshot.rate_limit.map(|rate| rate.to_string());
    let limits: Vec<String> = in_flight.into_iter().chain(rate).collect();
    (!limits.is_empty()).then(|| format!("limited to {}", limits.join(" and ")))
}

/// What is paused in a ring, in two words. None if nothing is.
pub fn paused_briefly(snapshot: &Snapshot) -> Option<&'static str> {
    match (snapshot.producing_pause, snapshot.handling_pause) {
        (None, None) => None,
        (Some(_), None) => Some("producing paused"),
        (None, Some(_)) => Some("handling paused"),
        (Some(_), Some(_)) => Some("all paused"),
    }
}

/// Breaks a text into lines between its words. Only a word that is longer than `width` makes a longer line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_thousands() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let figures = [(0.756, 2), (999.99, 0), (1864.318, 2), (-12_345.6, 1), (2_483_300.0, 0)];
        let figures = figures.map(|(number, decimals)| figure(number, decimals));
        assert_eq!(figures, ["0.76", "1,000", "1,864.32", "-12,345.6", "2,483,300"]);
    }

    #[test]
    fn lines_are_broken_between_words_and_no_word_is_lost() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a unbreakable b", 5), ["a", "unbreakable", "b"]);
        assert_eq!(wrapped("", 5), [""; 0]);
    }

    #[test]
    fn a_time_after_the_year_9999_is_shown_as_the_last_moment_of_that_year() {
        assert_eq!(moment(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
