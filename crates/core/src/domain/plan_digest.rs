//! Digests of the changes in a project's plans. They only show if two plans have the same changes.

use super::{CommitSha, PlanId, ProjectId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most plans of a project that are remembered for one pull request. Approvals of earlier ones no longer count.
const MAX_SEEN: usize = 50;

/// The plans that a pull request had of a project. Kept while the pull request is open or owns the project: approvals of a plan count for
/// later ones with the same changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlans {
    /// The project.
    pub project: ProjectId,
    /// Random key of the digests. It prevents finding a plan's value by trial from a digest alone; the state holds both digest and key.
    pub key: String,
    /// The plans, oldest first.
    pub plans: Vec<SeenPlan>,
    /// Numbers of other pull requests that change the project, as far as this one was notified of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u64>,
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlan {
    /// Its id.
    pub id: PlanId,
    /// The head that was planned.
    pub head: CommitSha,
    /// The base branch at that time.
    pub base: CommitSha,
    /// Time it was made. Once its command has ended, the time when the result was posted.
    pub made: Timestamp,
    /// Its changes; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesDigest>,
    /// Reason for which the changes are unknown, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomparable: Option<String>,
    /// True if the project was configured, at that time, to be applied when the pull request is merged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_merge: bool,
}

/// Changes of a plan and its inputs: one digest for each of [`PARTS_OF_DIGEST`], hex, separated by dots. Only digests of the same key are
/// comparable, which are those of one project of one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangesDigest(pub String);

/// Names for people of the parts of a [`ChangesDigest`], in order.
pub const PARTS_OF_DIGEST: [&str; 9] = [
    "what it changes",
    "the values of its variables",
    "its code",
    "its configuration",
    "its tool",
    "its arguments",
    "the files that its arguments name",
    "the environment that steps set",
    "its backend",
];

impl ChangesDigest {
    /// Returns the parts in which two digests differ, for people. Empty if one was made by a version without parts.
    pub fn differing(&self, other: &ChangesDigest) -> Vec<&'static str> {
        let [one, other] = [self, other].map(|digest| digest.0.split('.').collect::<Vec<_>>());
        if [&one, &other].iter().any(|parts| parts.len() != PARTS_OF_DIGEST.len()) {
            return Vec::new();
        }
        let named = one.iter().zip(&other).zip(PARTS_OF_DIGEST);
        named.filter(|((one, other), _)| one != other).map(|(_, name)| name).collect()
    }

    /// Returns true if both are known and the same.
    pub fn is_same(one: Option<&ChangesDigest>, other: Option<&ChangesDigest>) -> bool {
        one.is_some() && one == other
    }
}

impl SeenPlans {
    /// Adds a plan, and drops the oldest if there are too many.
    pub fn add(&mut self, plan: SeenPlan) {
        self.plans.push(plan);
        let too_many = self.plans.len().saturating_sub(MAX_SEEN);
        self.plans.drain(..too_many);
    }

    /// Returns the last plan of a head.
    pub fn last_of(&self, head: &CommitSha) -> Option<&SeenPlan> {
        self.plans.iter().rev().find(|plan| plan.head == *head)
    }

    /// Returns the latest plan at this moment. It compares whole seconds, as hosts report.
    pub fn at(&self, moment: Timestamp) -> Option<&SeenPlan> {
        self.plans.iter().rev().find(|plan| plan.made.as_second() <= moment.as_second())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_digest_is_the_same_as_none() {
        let known = |text: &str| Some(ChangesDigest(text.to_owned()));
        assert!(ChangesDigest::is_same(known("a").as_ref(), known("a").as_ref()));
        assert!(!ChangesDigest::is_same(known("a").as_ref(), known("b").as_ref()));
        assert!(!ChangesDigest::is_same(known("a").as_ref(), None));
        assert!(!ChangesDigest::is_same(None, None));
    }

    #[test]
    fn digests_tell_in_which_parts_they_differ() {
        let digest = |text: &str| ChangesDigest(text.to_owned());
        let one = digest("1.2.3.4.5.6.7.8.9");
        assert!(one.differing(&one).is_empty());
        assert_eq!(one.differing(&digest("1.x.3.4.5.6.7.8.y")), ["the values of its variables", "its backend"]);
        assert!(one.differing(&digest("of an earlier version")).is_empty());
    }

    #[test]
    fn a_moment_has_the_last_plan_before_it_and_the_oldest_are_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let project = ProjectId { dir: ".".into(), workspace: "default".into(), name: None };
        let mut seen = SeenPlans { project, key: String::new(), plans: Vec::new(), others: Vec::new() };
        for second in 1..=60 {
            let head = format!("head-{}", second % 2).into();
            seen.add(SeenPlan {
                id: second.to_string().into(),
                head,
                base: "base".into(),
                made: at(second * 10),
                changes: None,
                incomparable: None,
                on_merge: false,
            });
        }
        assert_eq!(seen.plans.len(), MAX_SEEN);
        assert_eq!(seen.at(at(209)).map(|plan| plan.made), Some(at(200)));
        assert_eq!(seen.at(at(210)).map(|plan| plan.made), Some(at(210)));
        assert_eq!(seen.at(at(100)), None);
        assert_eq!(seen.last_of(&"head-1".into()).map(|plan| plan.made), Some(at(590)));
    }
}
