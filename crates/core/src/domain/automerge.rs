//! Automerge: the server asks the host to merge a pull request once all of it is applied. Decides when a merge is due, and if it is
//! allowed. Pure.

use super::state::{ProjectState, ProjectStatus};
use super::{CommitSha, PullRequest};
use serde::{Deserialize, Serialize};

/// Ways to merge that settings and comments may ask for.
pub const MERGE_METHODS: [&str; 3] = ["merge", "rebase", "squash"];

/// Ways to merge that `repos.yaml` may name. Each host has some of them.
pub const HOST_MERGE_METHODS: [&str; 5] = ["merge", "rebase", "squash", "rebase-merge", "fast-forward-only"];

/// Options of the merge of a pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Automerge {
    /// The base branch that it was applied for.
    pub base_branch: String,
    /// One of [`HOST_MERGE_METHODS`]; absent for a method that the repository allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// True if the source branch is deleted with the merge.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delete_branch: bool,
    /// Label that prevents the merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless_label: Option<String>,
    /// Reason to refuse it before the host is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impossible: Option<String>,
}

/// Prefix of the note on a merge that the host refused.
const REFUSED: &str = "refused: ";
/// The same for a merge that the server repeated by itself after a refusal.
const REFUSED_AGAIN: &str = "refused again: ";

/// A merge that the server asked the host for, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeAttempt {
    /// The head that was to be merged.
    pub head: CommitSha,
    /// Options of the merge.
    pub how: Automerge,
    /// Result; empty while it is pending.
    pub note: String,
}

impl MergeAttempt {
    /// Returns the note on a merge that was refused.
    pub fn refusal_note(because: &str) -> String {
        format!("{REFUSED}{because}")
    }

    /// Returns the note on a merge that the server repeated by itself and that was refused again.
    pub fn repeated_refusal_note(because: &str) -> String {
        format!("{REFUSED_AGAIN}{because}")
    }

    /// Returns the reason of the refusal, if it was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.note.strip_prefix(REFUSED).or_else(|| self.note.strip_prefix(REFUSED_AGAIN))
    }

    /// Returns true if the server had repeated it by itself and it was refused again.
    pub fn is_repeated(&self) -> bool {
        self.note.starts_with(REFUSED_AGAIN)
    }
}

impl Automerge {
    /// Returns true if an open pull request is to be merged: at least one project is applied, and each is applied or has no changes at its
    /// head. Drafts and pull requests with the label are not merged.
    pub fn is_due(&self, pull: &PullRequest, statuses: &[ProjectStatus]) -> bool {
        let is_done = |status: &ProjectStatus| status.head == pull.head.commit && status.state.is_done();
        pull.is_open()
            && !pull.draft
            && !self.has_label(pull)
            && statuses.iter().any(|status| status.state == ProjectState::Applied)
            && statuses.iter().all(is_done)
    }

    /// Returns the reason not to merge an open pull request, if it differs from the one that was applied at this head. `now` is its present
    /// state on the host.
    pub fn refusal(&self, now: &PullRequest, applied: &CommitSha) -> Option<String> {
        if now.head.commit != *applied {
            let (now, applied) = (now.head.commit.short(), applied.short());
            return Some(format!("commit {applied} was applied, and the pull request is at {now} now"));
        }
        if now.base.branch != self.base_branch {
            let (now, before) = (&now.base.branch, &self.base_branch);
            return Some(format!("it was applied for `{before}`, and is to be merged into `{now}` now"));
        }
        if now.draft {
            return Some("it is a draft".to_owned());
        }
        if let Some(label) = self.unless_label.as_ref().filter(|_| self.has_label(now)) {
            return Some(format!("the label `{label}` forbids it"));
        }
        self.impossible.clone()
    }

    /// Returns the same with the method of a command, if that names one.
    #[must_use]
    pub fn by(self, method: Option<&String>) -> Automerge {
        match method {
            Some(method) => Automerge { method: Some(method.clone()), impossible: None, ..self },
            None => self,
        }
    }

    fn has_label(&self, pull: &PullRequest) -> bool {
        self.unless_label.as_ref().is_some_and(|label| pull.labels.contains(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Base, Head, ProjectId, PullId, PullState, RepoId};
    use jiff::Timestamp;
    use proptest::prelude::*;

    fn pull() -> PullRequest {
        let repo = RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() };
        PullRequest {
            id: PullId { repo, number: 7 },
            title: "t".into(),
            url: "u".into(),
            author: "ann".into(),
            head: Head {
                branch: "topic".into(),
                commit: "aaaa".into(),
                repo_owner: "acme".into(),
                repo_name: "infra".into(),
                clone_url: None,
            },
            base: Base { branch: "main".into(), commit: "bbbb".into() },
            draft: false,
            state: PullState::Open,
            fork: false,
            labels: Vec::new(),
            repo_size_kib: None,
            clone_url: "x".into(),
        }
    }

    fn status(dir: usize, state: ProjectState, head: &str) -> ProjectStatus {
        let project = ProjectId { dir: dir.to_string(), workspace: "default".into(), name: None };
        ProjectStatus {
            project,
            state,
            head: head.into(),
            summary: None,
            job: None,
            updated: Timestamp::UNIX_EPOCH,
            waits_for: Vec::new(),
        }
    }

    fn order() -> Automerge {
        Automerge { base_branch: "main".into(), unless_label: Some("wait".into()), ..Automerge::default() }
    }

    proptest! {
        #[test]
        fn it_is_due_when_something_is_applied_and_nothing_is_left(
            states in proptest::collection::vec((0..6_usize, any::<bool>()), 0..6), draft: bool, label: bool, open: bool,
        ) {
            use ProjectState::{Applied, ApplyErrored, PlanDiscarded, PlanErrored, Planned, PlannedNoChanges};
            const ALL: [ProjectState; 6] = [Applied, PlannedNoChanges, PlanErrored, Planned, ApplyErrored, PlanDiscarded];
            let of = |(dir, (state, at_head)): (usize, &(usize, bool))| {
                status(dir, ALL[*state], if *at_head { "aaaa" } else { "old" })
            };
            let statuses: Vec<_> = states.iter().enumerate().map(of).collect();
            let state = if open { PullState::Open } else { PullState::Closed };
            let labels = if label { vec!["wait".to_owned()] } else { Vec::new() };
            let pull = PullRequest { draft, state, labels, ..pull() };
            let left = states.iter().any(|(state, at_head)| *state > 1 || !at_head);
            let applied = states.iter().any(|(state, _)| *state == 0);
            prop_assert_eq!(order().is_due(&pull, &statuses), applied && !left && open && !draft && !label);
        }
    }

    #[test]
    fn what_has_changed_since_is_named() {
        let now = pull();
        assert_eq!(order().refusal(&now, &"aaaa".into()), None);
        for (now, applied, words) in [
            (now.clone(), "cccc", "commit cccc was applied, and the pull request is at aaaa now"),
            (PullRequest { base: Base { branch: "prod".into(), ..now.base.clone() }, ..now.clone() }, "aaaa", "`prod`"),
            (PullRequest { draft: true, ..now.clone() }, "aaaa", "draft"),
            (PullRequest { labels: vec!["wait".into()], ..now }, "aaaa", "the label `wait` forbids it"),
        ] {
            let said = order().refusal(&now, &applied.into()).unwrap();
            assert!(said.contains(words), "{said}");
        }
    }
}
