//! Times, which the host writes alike in deliveries and answers of the API: milliseconds since 1970.

use jiff::{SignedDuration, Timestamp};

/// Numbers of changes that a version tells apart: the nanoseconds below a millisecond.
const COUNTS: u64 = 1_000_000;

/// Reads a time.
pub(super) fn moment(milliseconds: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(milliseconds).ok()
}

/// Returns the version of a pull request: the time of its last change in milliseconds, with the host's own count of changes below them. A
/// push moves the time alone (github.com/drone/go-scm, `pr_from_ref_updated.json`). It is a time in UTC, so that versions have an order.
pub(super) fn version(updated: i64, changes: u64) -> Option<String> {
    let count = i64::try_from(changes % COUNTS).ok()?;
    moment(updated)?.checked_add(SignedDuration::from_nanos(count)).ok().map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_core::domain::PullVersion;

    #[test]
    fn a_version_is_the_time_of_the_last_change_and_the_number_of_changes() {
        assert_eq!(version(1_530_819_200_099, 0).as_deref(), Some("2018-07-05T19:33:20.099Z"));
        assert_eq!(version(1_530_819_200_099, 2).as_deref(), Some("2018-07-05T19:33:20.099000002Z"));
        assert_eq!(version(1_530_819_200_099, COUNTS + 2), version(1_530_819_200_099, 2));
        let at = |time, changes| PullVersion::new(version(time, changes).unwrap());
        assert!(at(1_530_819_200_099, 999_999).is_before(&at(1_530_819_200_100, 0)));
        assert!(at(1_530_819_200_099, 2).moment().is_some());
        assert_eq!((version(i64::MAX, 0), version(i64::MIN, 0)), (None, None));
    }
}
