//! Option `of_plan`: an approval is for one plan, and counts for later ones with the same changes.

use crate::domain::plan_digest::{ChangesDigest, SeenPlans};
use crate::vcs::{Review, is_since};
use jiff::Timestamp;

/// A plan, and the plans of its project that the pull request has had.
pub(super) struct OfPlan {
    /// Time at which it was posted.
    pub(super) made: Timestamp,
    pub(super) changes: Option<ChangesDigest>,
    /// Reason for which its changes are unknown.
    pub(super) incomparable: Option<String>,
    pub(super) seen: Option<SeenPlans>,
}

impl OfPlan {
    /// Returns true if the review was given after this plan was made.
    pub(super) fn precedes(&self, review: &Review) -> bool {
        review.at.is_some_and(|at| is_since(at, self.made))
    }

    /// Returns true if the review was given for the plan at that time, and that has the same changes.
    pub(super) fn is_same_as_at(&self, review: &Review) -> bool {
        let then = review.at.and_then(|at| self.seen.as_ref()?.at(at));
        then.is_some_and(|then| {
            review.commit.as_ref() == Some(&then.head)
                && ChangesDigest::is_same(then.changes.as_ref(), self.changes.as_ref())
        })
    }

    /// Returns the difference from the plan that this review approved, as far as it is known.
    pub(super) fn difference(&self, review: &Review) -> String {
        let then = review.at.and_then(|at| self.seen.as_ref()?.at(at));
        let Some(then) = then.filter(|then| review.commit.as_ref() == Some(&then.head)) else { return String::new() };
        let unknown =
            |because: Option<&String>| because.map(|because| format!(" (they cannot be compared, because {because})"));
        match (&self.changes, &then.changes) {
            (Some(now), Some(before)) => match before.differing(now) {
                parts if parts.is_empty() => String::new(),
                parts => format!(" (they differ: {})", parts.join(", ")),
            },
            (None, _) => unknown(self.incomparable.as_ref()).unwrap_or_default(),
            (_, None) => unknown(then.incomparable.as_ref()).unwrap_or_default(),
        }
    }
}
