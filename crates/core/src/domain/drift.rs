//! Findings of a drift run: differences between real infrastructure and the code of a branch, project by project.

use super::drift_issue::MissingIssues;
use super::outcome::PlanSummary;
use super::ownership::OwnerState;
use super::{CommitSha, JobId, ProjectId, PullId, RepoId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kind of the jobs that detect drift. They neither take nor wait for Terraform's lock on a state. Jobs that apply have the kind `apply`.
pub const DRIFT_JOB: &str = "drift";

/// Latest finding on a project of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectDrift {
    /// The detection that made the finding.
    pub detection: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch.
    pub branch: String,
    /// The branch, or a commit of it, as it was requested.
    pub reference: String,
    /// Commit that was planned.
    pub commit: CommitSha,
    /// The project.
    pub project: ProjectId,
    /// Time of the check.
    pub checked: Timestamp,
    /// The job that planned it; absent if none began.
    pub job: Option<JobId>,
    /// The finding.
    pub finding: DriftFinding,
    /// Time of the first of the successive checks with a finding of this kind; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Time of the last check that has planned it; absent if there is none, or none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<Timestamp>,
}

impl ProjectDrift {
    /// Returns this finding with the times that depend on the one before it.
    #[must_use]
    pub fn after(mut self, earlier: Option<&ProjectDrift>) -> ProjectDrift {
        let same = earlier.filter(|earlier| earlier.finding.kind() == self.finding.kind());
        self.since = Some(same.map_or(self.checked, |same| same.since.unwrap_or(same.checked)));
        self.planned = match self.finding {
            DriftFinding::Planned(_) => Some(self.checked),
            _ => earlier.and_then(|earlier| earlier.planned.or(earlier.finding.summary().map(|_| earlier.checked))),
        };
        self
    }
}

/// Kinds of findings, as the drift page shows and filters them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what they are")]
pub enum DriftKind {
    Drifted,
    Failed,
    Skipped,
    Clean,
}

impl DriftKind {
    /// All kinds, those that need a person first.
    pub const ALL: [DriftKind; 4] = [DriftKind::Drifted, DriftKind::Failed, DriftKind::Skipped, DriftKind::Clean];

    /// Returns its word.
    pub fn as_str(self) -> &'static str {
        match self {
            DriftKind::Drifted => "drifted",
            DriftKind::Failed => "failed",
            DriftKind::Skipped => "skipped",
            DriftKind::Clean => "clean",
        }
    }

    /// Returns the kind with this word.
    pub fn of_word(word: &str) -> Option<DriftKind> {
        DriftKind::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The latest scheduled detection of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCheck {
    /// The repository.
    pub repo: RepoId,
    /// The scheduled time that it is for.
    pub due: Timestamp,
    /// Time at which it began, or began again.
    pub began: Timestamp,
    /// Number of times that it has begun.
    pub attempts: u32,
    /// Its end; absent while it runs, or if the server ended before.
    pub end: Option<DriftCheckEnd>,
    /// Drift without an issue, where the schedule asks for issues.
    #[serde(default)]
    pub issues: MissingIssues,
}

/// End of a scheduled detection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCheckEnd {
    /// Time it ended.
    pub at: Timestamp,
    /// Its run; absent if none began.
    pub run: Option<RunId>,
    /// Reason for which there is no result, for people.
    pub refused: Option<String>,
}

/// Finding on one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftFinding {
    /// The project was planned.
    Planned(PlanSummary),
    /// The project was skipped because a pull request holds it; its drift is unknown.
    Skipped {
        /// The pull request, and the way it holds the project.
        block: DriftBlock,
        /// The same for people, with the way to resolve it.
        because: String,
    },
    /// The plan failed; the text is for people.
    Failed(String),
}

impl DriftFinding {
    /// Returns the totals of the plan, if there is one.
    pub fn summary(&self) -> Option<&PlanSummary> {
        match self {
            DriftFinding::Planned(summary) => Some(summary),
            DriftFinding::Skipped { .. } | DriftFinding::Failed(_) => None,
        }
    }

    /// Returns its kind.
    pub fn kind(&self) -> DriftKind {
        match self {
            DriftFinding::Planned(_) if self.has_drift() => DriftKind::Drifted,
            DriftFinding::Planned(_) => DriftKind::Clean,
            DriftFinding::Skipped { .. } => DriftKind::Skipped,
            DriftFinding::Failed(_) => DriftKind::Failed,
        }
    }

    /// Returns true if the plan shows that real infrastructure differs from the code.
    pub fn has_drift(&self) -> bool {
        matches!(self, DriftFinding::Planned(summary) if !summary.no_changes || summary.changes_outside)
    }
}

/// A pull request because of which drift runs skip a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftBlock {
    /// The pull request.
    pub pull: PullId,
    /// The way it holds the project.
    pub how: DriftHold,
}

/// Ways in which a pull request holds a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftHold {
    /// By its lock.
    Locked {
        /// True if something was applied under the lock.
        applied: bool,
    },
    /// By ownership, in mode `strict`.
    Owned(OwnerState),
    /// By a command that changes the project's state now.
    AtWork,
}

/// A drift run that has finished.
#[derive(Debug, Clone)]
pub struct DriftDetection {
    /// Its id, which is that of its run.
    pub id: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch.
    pub branch: String,
    /// The branch, or a commit of it, as it was requested.
    pub reference: String,
    /// Commit that was planned.
    pub commit: CommitSha,
    /// Time it finished.
    pub at: Timestamp,
    /// Each project, and the text of its plan.
    pub projects: Vec<(ProjectDrift, Option<String>)>,
}

/// Plans that would correct drift, made on request, and applies of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remediation {
    /// Its id, which is that of its run.
    pub id: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch, or a commit of it, as it was requested.
    pub reference: String,
    /// Start time.
    pub started: Timestamp,
    /// True if it applies the plans that it makes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applies: bool,
    /// Projects whose apply has begun, without texts. Set while it runs, and if the server stopped before its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<RemediatedProject>,
    /// Its end; absent while it runs, or if the server stopped before it.
    pub ended: Option<RemediationEnd>,
}

/// End of a remediation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemediationEnd {
    /// Time it ended.
    pub at: Timestamp,
    /// Its projects. If it was refused or failed as a whole, those whose apply had begun.
    pub projects: Vec<RemediatedProject>,
    /// Reason for which it was refused as a whole, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Remediation {
    /// Returns its projects, as far as they are known.
    pub fn projects(&self) -> &[RemediatedProject] {
        self.ended.as_ref().map_or(&self.begun, |end| &end.projects)
    }

    /// Returns the project that this job applies.
    pub fn applied_by(&mut self, job: &JobId) -> Option<&mut RemediatedProject> {
        let projects = self.ended.as_mut().map_or(&mut self.begun, |end| &mut end.projects);
        projects.iter_mut().find(|one| one.apply.as_ref().is_some_and(|apply| apply.job == *job))
    }
}

/// A project of a remediation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemediatedProject {
    /// Finding of its plan; once it is applied, the finding after the apply.
    pub found: ProjectDrift,
    /// Totals of its latest plan before, at the same commit.
    pub before: Option<PlanSummary>,
    /// Text of its plan; empty if there is none, or if it is too long to be kept.
    pub output: String,
    /// Its apply; absent if none began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<DriftApply>,
}

impl RemediatedProject {
    /// Records the end of its apply. After a success there is no drift; after a failure, the drift is unknown.
    pub fn end_apply(&mut self, end: DriftApplyEnd) {
        self.found.finding = match &end.error {
            None => DriftFinding::Planned(PlanSummary { no_changes: true, ..PlanSummary::default() }),
            Some(error) => DriftFinding::Failed(error.clone()),
        };
        if let Some(apply) = &mut self.apply {
            apply.end = Some(end);
        }
    }
}

/// The apply of the plan of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftApply {
    /// Its job.
    pub job: JobId,
    /// Its end; absent while it runs, or if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DriftApplyEnd>,
}

/// End of the apply of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftApplyEnd {
    /// Output of Terraform; empty if it is too long to be kept.
    pub output: String,
    /// Reason for the failure, for people; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_outside_alone_are_drift_and_what_is_skipped_is_not_known() {
        let planned = |no_changes, changes_outside| {
            DriftFinding::Planned(PlanSummary { no_changes, changes_outside, ..PlanSummary::default() }).has_drift()
        };
        assert_eq!([planned(true, false), planned(true, true), planned(false, false)], [false, true, true]);
        assert!(!DriftFinding::Failed(String::new()).has_drift());
    }
}
