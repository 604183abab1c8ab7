//! Times, which Gitea writes alike in deliveries and answers of the API: RFC 3339 at whole seconds, with the offset of the server.

use jiff::Timestamp;

/// Reads a time.
pub(super) fn moment(text: &str) -> Option<Timestamp> {
    text.trim().parse().ok()
}

/// Returns the version that a time of the last change stands for: RFC 3339 in UTC at whole seconds.
pub(super) fn version(text: &str) -> Option<String> {
    Some(Timestamp::from_second(moment(text)?.as_second()).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_change_has_one_version_in_every_offset() {
        for text in ["2026-01-01T00:30:00Z", "2026-01-01T01:30:00+01:00", "2025-12-31T19:30:00-05:00"] {
            assert_eq!(version(text).as_deref(), Some("2026-01-01T00:30:00Z"), "{text}");
        }
        for odd in ["", "yesterday", "2026-01-01", "2026-01-01T00:30:00"] {
            assert_eq!(version(odd), None, "{odd}");
        }
    }
}
