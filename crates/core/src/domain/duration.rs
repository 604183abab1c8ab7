//! Durations as people write them in settings and configuration files.

use std::time::Duration;

/// Longest accepted duration, in seconds: a year.
const MAX_DURATION: u64 = 366 * 24 * 3600;

/// Parses `90s`, `10m`, `1h`, `1h30m`, or a number of seconds. Returns none if it is not a duration, or is longer than a year.
pub fn parse(text: &str) -> Option<Duration> {
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        let (factor, unit) = match rest[digits..].chars().next() {
            Some('h') => (3600, 1),
            Some('m') => (60, 1),
            Some('s') => (1, 1),
            None => (1, 0),
            Some(_) => return None,
        };
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = &rest[digits + unit..];
    }
    (!text.is_empty() && total <= MAX_DURATION).then(|| Duration::from_secs(total))
}

/// Formats a duration for people, in two units at most: `45 s`, `1 h 30 min`, `1 d 2 h`.
pub fn format(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = duration.as_secs();
    let first = UNITS.iter().position(|(size, _)| seconds >= *size).unwrap_or(UNITS.len() - 1);
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, unit) in UNITS.iter().skip(first).take(2) {
        let count = rest / size;
        rest %= size;
        if count > 0 || parts.is_empty() {
            parts.push(format!("{count} {unit}"));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (45, "45 s"),
            (90, "1 min 30 s"),
            (3600, "1 h"),
            (86_400 + 7200 + 60, "1 d 2 h"),
            (86_460, "1 d"),
        ] {
            assert_eq!(format(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn durations_are_read_in_go_style_or_in_seconds() {
        let cases = [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("45", 45), ("0", 0)];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "1d", "-1s", "1.5h", "99999999h", "18446744073709551615h", "1 h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
