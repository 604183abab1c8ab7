//! What plans of a project change, as digests: they tell whether two plans change the same, and nothing else.

use super::{CommitSha, PlanId, ProjectId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most plans of a project that are remembered for one pull request. An approval of an earlier one counts no more.
const MAX_SEEN: usize = 50;

/// The plans that a pull request had of a project. Kept as long as the pull request is open or owns the project: approvals of a plan count
/// for later ones that change the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlans {
    /// The project.
    pub project: ProjectId,
    /// Key of the digests, random. So nobody finds a value of a plan by trying, who has a digest alone; whoever reads the state has both.
    pub key: String,
    /// The plans, oldest first.
    pub plans: Vec<SeenPlan>,
    /// Numbers of the pull requests that change the project too, as far as this one was told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<u64>,
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlan {
    /// Its id.
    pub id: PlanId,
    /// The head that it was made of.
    pub head: CommitSha,
    /// The base branch as it was then.
    pub base: CommitSha,
    /// When; from the end of its command on, when people were told of it.
    pub made: Timestamp,
    /// What it changes; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesDigest>,
    /// Why nobody knows, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomparable: Option<String>,
    /// The project is applied when the pull request is merged, as it was configured then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_merge: bool,
}

/// What a plan changes, and what it was made of: one digest for each of [`PARTS_OF_DIGEST`], hex, with dots between. It compares with
/// other digests of the same key only, which are those of one project of one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangesDigest(pub String);

/// What a [`ChangesDigest`] has a part for, in this order, for people.
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
    /// In which parts two digests differ, for people. Nothing where one was made by a version without parts.
    pub fn differing(&self, other: &ChangesDigest) -> Vec<&'static str> {
        let [one, other] = [self, other].map(|digest| digest.0.split('.').collect::<Vec<_>>());
        if [&one, &other].iter().any(|parts| parts.len() != PARTS_OF_DIGEST.len()) {
            return Vec::new();
        }
        let named = one.iter().zip(&other).zip(PARTS_OF_DIGEST);
        named.filter(|((one, other), _)| one != other).map(|(_, name)| name).collect()
    }

    /// Whether both are known and the same.
    pub fn is_same(one: Option<&ChangesDigest>, other: Option<&ChangesDigest>) -> bool {
        one.is_some() && one == other
    }
}

impl SeenPlans {
    /// Notes one more plan.
    pub fn note(&mut self, plan: SeenPlan) {
        self.plans.push(plan);
        let too_many = self.plans.len().saturating_sub(MAX_SEEN);
        self.plans.drain(..too_many);
    }

    /// The last plan of a head.
    pub fn last_of(&self, head: &CommitSha) -> Option<&SeenPlan> {
        self.plans.iter().rev().find(|plan| plan.head == *head)
    }

    /// The plan that was there at this moment, which hosts tell in whole seconds.
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
            seen.note(SeenPlan {
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
