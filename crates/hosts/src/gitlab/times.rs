//! Times, which GitLab writes in several ways: `2013-12-03T17:23:34Z` and `2017-09-15 16:50:55 UTC` in deliveries,
//! `2026-01-01T00:00:00.123Z` in answers of the API.

use jiff::Timestamp;

/// Reads a time.
pub(super) fn moment(text: &str) -> Option<Timestamp> {
    match text.trim().rsplit_once(' ') {
        Some((bare, "UTC")) => format!("{bare}Z").parse().ok(),
        Some((bare, offset)) if offset.starts_with(['+', '-']) => format!("{bare}{offset}").parse().ok(),
        _ => text.trim().parse().ok(),
    }
}

/// Returns the version that a time of the last change stands for: RFC 3339 in UTC at whole seconds. Deliveries write whole seconds and the
/// API milliseconds, and the same change has one version in both.
pub(super) fn version(text: &str) -> Option<String> {
    Some(Timestamp::from_second(moment(text)?.as_second()).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::domain::PullVersion;

    #[test]
    fn the_same_change_has_one_version_in_every_notation() {
        for (text, want) in [
            ("2013-12-03T17:23:34Z", "2013-12-03T17:23:34Z"),
            ("2017-09-15 16:50:55 UTC", "2017-09-15T16:50:55Z"),
            ("2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00.999Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T02:30:00.5+02:30", "2026-01-01T00:00:00Z"),
            ("2017-09-15 16:50:55 +0200", "2017-09-15T14:50:55Z"),
        ] {
            assert_eq!(version(text).as_deref(), Some(want), "{text}");
            assert_eq!(PullVersion::new(want).moment(), moment(want));
        }
        for odd in [
            "",
            " UTC",
            "yesterday",
            "2017-09-15",
            "2017-09-15 16:50:55",
            "9999999-01-01T00:00:00Z",
            "2017-09-15 16:50:55 CET",
        ] {
            assert_eq!(version(odd), None, "{odd}");
        }
    }

    #[test]
    fn versions_have_the_order_of_their_times() {
        let at = |text: &str| PullVersion::new(version(text).unwrap());
        assert!(at("2017-09-15 16:50:55 UTC").is_before(&at("2017-09-15T16:50:56.001Z")));
        assert!(!at("2017-09-15 16:50:55 UTC").may_be_before(&at("2017-09-15T16:50:55.900Z")));
    }
}
