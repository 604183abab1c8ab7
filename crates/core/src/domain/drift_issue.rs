//! Issues on the host about drifted projects: one for each project and branch, which a scheduled detection opens, updates and closes.

use super::drift::ProjectDrift;
use super::outcome::PlanSummary;
use super::{ProjectId, RepoId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of the digests of a subject and of a drift.
const DIGEST_BYTES: usize = 16;

/// An issue about the drift of a project on a branch. Its record ends when the issue is closed because the drift is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftIssue {
    /// Its id, which is in the marker of its closing comment.
    pub id: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch.
    pub branch: String,
    /// The project.
    pub project: ProjectId,
    /// Time of the first check that found the drift.
    pub since: Timestamp,
    /// Digest of the drift that its text shows: [`drift_digest`].
    pub shows: String,
    /// Its place on the host; absent until it is opened.
    pub place: Option<IssuePlace>,
    /// True once the drift is gone and the closing is queued.
    pub closing: bool,
}

impl DriftIssue {
    /// Creates the record of an issue that is to be opened.
    pub fn new(id: RunId, found: &ProjectDrift, shows: String) -> DriftIssue {
        DriftIssue {
            id,
            repo: found.repo.clone(),
            branch: found.branch.clone(),
            project: found.project.clone(),
            since: found.checked,
            shows,
            place: None,
            closing: false,
        }
    }

    /// Returns true if it is about this project on this branch, and is to stay open.
    pub fn is_about(&self, branch: &str, project: &ProjectId) -> bool {
        !self.closing && self.branch == branch && self.project == *project
    }

    /// Returns the key of its subject: [`subject_key`].
    pub fn subject(&self) -> String {
        subject_key(&self.branch, &self.project)
    }
}

/// The place of an issue on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuePlace {
    /// Its number.
    pub number: u64,
    /// Address of its page; empty if the host has reported none.
    pub url: String,
}

/// Drift without an issue after the last scheduled detection of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingIssues {
    /// Number of drifted projects whose issues wait for the next detection.
    pub waiting: usize,
    /// Reason for which the host refuses issues, for people; absent since it has accepted one.
    pub refused: Option<String>,
}

/// Returns the key by which an issue about a project on a branch is found again: 32 hexadecimal digits.
pub fn subject_key(branch: &str, project: &ProjectId) -> String {
    digest(&(branch, &project.dir, &project.workspace, &project.name))
}

/// Returns a digest of a drift, by the totals and the text of its plan. Two checks of the same drift have the same.
pub fn drift_digest(summary: &PlanSummary, output: &str) -> String {
    digest(&(summary, output.trim()))
}

fn digest(parts: &impl Serialize) -> String {
    // Texts and numbers can always be written as JSON.
    let text = serde_json::to_vec(parts).unwrap_or_default();
    hex::encode(Sha256::digest(text).get(..DIGEST_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_of_each_branch_has_a_key_of_its_own() {
        let project = |dir: &str, workspace: &str, name: Option<&str>| ProjectId {
            dir: dir.into(),
            workspace: workspace.into(),
            name: name.map(str::to_owned),
        };
        let all = [
            ("main", project("a", "b", None)),
            ("mai", project("na", "b", None)),
            ("main", project("ab", "", None)),
            ("main", project("a", "b", Some(""))),
            ("main", project("a", "b", Some("c"))),
        ];
        let keys: std::collections::BTreeSet<String> =
            all.iter().map(|(branch, project)| subject_key(branch, project)).collect();
        assert_eq!(keys.len(), all.len());
        assert!(keys.iter().all(|key| key.len() == 2 * DIGEST_BYTES));
    }

    #[test]
    fn the_digest_of_a_drift_changes_with_its_text_and_totals() {
        let one = PlanSummary { change: 1, ..PlanSummary::default() };
        assert_eq!(drift_digest(&one, "~ a\n"), drift_digest(&one, "~ a"));
        assert_ne!(drift_digest(&one, "~ a"), drift_digest(&one, "~ b"));
        assert_ne!(drift_digest(&one, "~ a"), drift_digest(&PlanSummary { change: 2, ..one }, "~ a"));
    }
}
