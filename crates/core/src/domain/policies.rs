//! Records of the policy check of a project's plan, and of the approvals of its findings.

use super::outcome::{PolicyReport, PolicySetReport};
use super::{CommitSha, Login, PlanId, ProjectId, PullId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The latest policy check of a project. It is valid only for the plan that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyCheckRecord {
    /// The pull request.
    pub pull: PullId,
    /// The project.
    pub project: ProjectId,
    /// The plan that was checked.
    pub plan: PlanId,
    /// Head commit of the plan.
    pub head: CommitSha,
    /// SHA-256 of the policies used, hex. A check with other policy sets is not valid.
    pub policies_digest: String,
    /// The policy sets.
    pub sets: Vec<PolicySetRecord>,
    /// Time of the check.
    pub checked: Timestamp,
}

/// Findings of one policy set, and their approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetRecord {
    /// Its name.
    pub name: String,
    /// True if it found nothing.
    pub passed: bool,
    /// SHA-256 of each finding, hex.
    pub items: Vec<String>,
    /// Pattern of the items in the output; absent if the whole output is one item.
    #[serde(default)]
    pub item_regex: Option<String>,
    /// Approvals, oldest first.
    pub approvals: Vec<PolicyApproval>,
    /// Number of approvals that it needed at the time of the check, for lists: what holds an apply up is the configured [`ApprovalRule`].
    #[serde(default = "one_approval")]
    pub required: u32,
}

/// Returns the number of approvals that a record of an older version, which has no such field, is taken to need.
fn one_approval() -> u32 {
    1
}

/// An owner's approval of the findings of a policy set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyApproval {
    /// The owner.
    pub by: Login,
    /// Time of approval.
    pub at: Timestamp,
    /// The items at that time.
    pub items: Vec<String>,
}

/// An approval of a policy set that does not count any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapsedApproval {
    /// Name of the set.
    pub set: String,
    /// The owner who had given it.
    pub by: Login,
}

/// Configuration of a policy set's approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRule {
    /// Number of approvals that it needs.
    pub required: u32,
    /// The people who may approve, in words.
    pub owners: String,
}

impl PolicySetRecord {
    /// Returns the approvals that cover all its findings.
    pub fn valid_approvals(&self) -> impl Iterator<Item = &PolicyApproval> {
        self.approvals.iter().filter(|approval| {
            let covered: HashSet<&String> = approval.items.iter().collect();
            self.items.iter().all(|item| covered.contains(item))
        })
    }

    /// Returns true if it found something and lacks approvals.
    pub fn lacks_approvals(&self) -> bool {
        !self.passed && self.valid_approvals().take(self.required as usize).count() < self.required as usize
    }

    /// Returns the number of its items that any approval covers.
    pub fn known_items(&self) -> usize {
        let covered: HashSet<&String> = self.approvals.iter().flat_map(|approval| &approval.items).collect();
        self.items.iter().filter(|item| covered.contains(item)).count()
    }

    /// Returns its status under this rule.
    pub fn report(&self, rule: &ApprovalRule, output: String) -> PolicySetReport {
        PolicySetReport {
            name: self.name.clone(),
            passed: self.passed,
            approvals: u32::try_from(self.valid_approvals().count()).unwrap_or(u32::MAX),
            required: rule.required,
            known_items: if self.passed { 0 } else { self.known_items() },
            output,
            owners: rule.owners.clone(),
            note: String::new(),
        }
    }
}

impl PolicyCheckRecord {
    /// Returns its status under these rules, one for each set, without outputs.
    pub fn report(&self, rules: &[ApprovalRule]) -> PolicyReport {
        let sets = self.sets.iter().zip(rules).map(|(set, rule)| set.report(rule, String::new())).collect();
        PolicyReport { sets, ..PolicyReport::default() }
    }

    /// Returns the approvals of an earlier check that do not count any more, although its set still has findings.
    pub fn lapsed_since(&self, earlier: &PolicyCheckRecord) -> Vec<LapsedApproval> {
        let mut lapsed = Vec::new();
        for set in self.sets.iter().filter(|set| !set.passed) {
            let still: Vec<&Login> = set.valid_approvals().map(|approval| &approval.by).collect();
            let before = earlier.sets.iter().filter(|before| before.name == set.name && !before.passed);
            let gone = before.flat_map(PolicySetRecord::valid_approvals).filter(|given| !still.contains(&&given.by));
            lapsed.extend(gone.map(|given| LapsedApproval { set: set.name.clone(), by: given.by.clone() }));
        }
        lapsed
    }

    /// Copies the approvals of an earlier check for the sets that `keeps` accepts and whose pattern of items is the same.
    pub fn take_approvals(&mut self, earlier: &PolicyCheckRecord, keeps: impl Fn(&str) -> bool) {
        for set in self.sets.iter_mut().filter(|set| keeps(&set.name)) {
            let before = earlier.sets.iter().find(|other| other.name == set.name && other.item_regex == set.item_regex);
            set.approvals = before.map(|other| other.approvals.clone()).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(by: &str, items: &[&str]) -> PolicyApproval {
        let items = items.iter().map(|item| (*item).to_owned()).collect();
        PolicyApproval { by: by.into(), at: Timestamp::UNIX_EPOCH, items }
    }

    fn set(items: &[&str], approvals: &[PolicyApproval]) -> PolicySetRecord {
        let items = items.iter().map(|item| (*item).to_owned()).collect();
        PolicySetRecord {
            name: "s".into(),
            passed: false,
            items,
            item_regex: None,
            approvals: approvals.to_vec(),
            required: 2,
        }
    }

    #[test]
    fn an_approval_counts_only_where_it_covers_everything() {
        let given = [approval("ann", &["a", "b"]), approval("bob", &["a"])];
        for (items, valid, known) in [(&["a"][..], 2, 1), (&["a", "b"], 1, 2), (&["a", "c"], 0, 1), (&["c"], 0, 0)] {
            let set = set(items, &given);
            assert_eq!((set.valid_approvals().count(), set.known_items()), (valid, known), "{items:?}");
            assert_eq!(set.lacks_approvals(), valid < 2, "{items:?}");
        }
        let rule = ApprovalRule { required: 2, owners: String::new() };
        assert!(set(&["a"], &given).report(&rule, String::new()).is_met());
        assert!(!set(&["a", "b"], &given).report(&rule, String::new()).is_met());
    }

    #[test]
    fn an_approval_lapses_where_its_set_has_findings_that_it_does_not_cover() {
        let check = |sets: Vec<PolicySetRecord>| PolicyCheckRecord {
            pull: crate::domain::PullId {
                repo: crate::domain::RepoId { host: "h".into(), owner: "o".into(), name: "n".into() },
                number: 1,
            },
            project: crate::domain::ProjectId { dir: ".".into(), workspace: "default".into(), name: None },
            plan: "p".into(),
            head: "a".repeat(40).into(),
            policies_digest: String::new(),
            sets,
            checked: Timestamp::UNIX_EPOCH,
        };
        let lapsed = |now: PolicySetRecord| {
            let earlier = check(vec![set(&["a"], &[approval("ann", &["a", "b"]), approval("bob", &["a"])])]);
            let lapsed = check(vec![now]).lapsed_since(&earlier);
            lapsed.into_iter().map(|lapsed| lapsed.by.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(lapsed(set(&["a"], &[])), ["ann", "bob"]);
        let kept = [approval("ann", &["a", "b"]), approval("bob", &["a"])];
        assert_eq!(lapsed(set(&["b"], &kept)), ["bob"]);
        assert!(lapsed(PolicySetRecord { passed: true, ..set(&[], &[]) }).is_empty());
        assert!(lapsed(PolicySetRecord { name: "another".into(), ..set(&["a"], &[]) }).is_empty());
    }
}
