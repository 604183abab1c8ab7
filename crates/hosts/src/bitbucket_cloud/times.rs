//! Times, which the host writes alike in deliveries and answers of the API: RFC 3339 with microseconds.

use jiff::{SignedDuration, Timestamp};

/// Longest time between the creation of a comment and its last writing for which it counts as not edited: the two times of a new comment
/// differ by up to some milliseconds (github.com/drone/go-scm, `pr_comment_created.json`).
const AT_ONCE: SignedDuration = SignedDuration::from_millis(500);
/// Numbers of comments that a version tells apart.
const COUNTS: i32 = 1000;

/// Reads a time.
pub(super) fn moment(text: &str) -> Option<Timestamp> {
    text.trim().parse().ok()
}

/// Returns the version of a pull request: the time of its last change in microseconds, with its number of comments below them. It is a time
/// in UTC, so that versions have an order, and another comment makes another version also if the host did not change the time.
pub(super) fn version(updated: &str, comments: u64) -> Option<String> {
    let at = moment(updated)?;
    let count = i32::try_from(comments % u64::from(COUNTS.unsigned_abs())).ok()?;
    let below = at.subsec_nanosecond().rem_euclid(COUNTS);
    let shift = i64::from(count - below);
    at.checked_add(SignedDuration::from_nanos(shift)).ok().map(|at| at.to_string())
}

/// Returns true if a comment was edited, or if the times do not tell.
pub(super) fn is_edited(created: Option<Timestamp>, updated: Option<Timestamp>) -> bool {
    created.zip(updated).is_none_or(|(created, updated)| updated.duration_since(created) > AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::domain::PullVersion;

    #[test]
    fn a_version_is_the_time_of_the_last_change_and_the_number_of_comments() {
        for (text, comments, want) in [
            ("2018-07-02T21:51:39.532546+00:00", 0, "2018-07-02T21:51:39.532546Z"),
            ("2018-07-02T21:51:39.532546+00:00", 7, "2018-07-02T21:51:39.532546007Z"),
            ("2018-07-02T23:51:39.532546+02:00", 1007, "2018-07-02T21:51:39.532546007Z"),
            ("2018-07-02T21:51:39+00:00", 12, "2018-07-02T21:51:39.000000012Z"),
            ("2018-07-02T21:51:39.532546999Z", 2, "2018-07-02T21:51:39.532546002Z"),
        ] {
            assert_eq!(version(text, comments).as_deref(), Some(want));
            assert!(PullVersion::new(want).moment().is_some());
        }
        let at = |text: &str, comments| PullVersion::new(version(text, comments).unwrap());
        assert!(at("2018-07-02T21:51:39.532546Z", 999).is_before(&at("2018-07-02T21:51:39.532547Z", 0)));
        for odd in ["", "yesterday", "2018-07-02", "2018-07-02T21:51:39"] {
            assert_eq!(version(odd, 0), None, "{odd}");
        }
    }

    #[test]
    fn a_new_comment_has_two_times() {
        let edited = |created: &str, updated: &str| is_edited(moment(created), moment(updated));
        assert!(!edited("2022-06-23T22:10:09.939925+00:00", "2022-06-23T22:10:09.939978+00:00"));
        assert!(!edited("2015-04-06T16:52:29.982346+00:00", "2015-04-06T16:52:29.983730+00:00"));
        assert!(edited("2022-06-23T22:10:09.939925+00:00", "2022-06-23T22:10:10.539925+00:00"));
        assert!(edited("2022-06-23T22:10:09.939925+00:00", "") && edited("", ""));
    }
}
