//! Findings of a drift run: differences between real infrastructure and the code of a branch, project by project.

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
