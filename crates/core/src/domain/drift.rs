//! What a drift run finds: whether what is real is what the code of a branch says, project by project.

use super::outcome::PlanSummary;
use super::ownership::OwnerState;
use super::{CommitSha, JobId, ProjectId, PullId, RepoId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kind of the jobs that look for drift. They neither take nor meet Terraform's lock on a state. Those that apply are of the kind `apply`.
pub const DRIFT_JOB: &str = "drift";

/// The last that is known of a project on a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectDrift {
    /// The detection that found it.
    pub detection: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch.
    pub branch: String,
    /// The branch, or a commit of it, as it was asked for.
    pub reference: String,
    /// The commit that was planned.
    pub commit: CommitSha,
    /// The project.
    pub project: ProjectId,
    /// When it was looked at.
    pub checked: Timestamp,
    /// The job that planned it; absent where none began.
    pub job: Option<JobId>,
    /// What was found.
    pub finding: DriftFinding,
}

/// What was found of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftFinding {
    /// It was planned.
    Planned(PlanSummary),
    /// It was left alone, as a pull request holds it: nobody knows whether it has drifted.
    Skipped {
        /// Which, and how.
        block: DriftBlock,
        /// The same for people, with what leads out.
        because: String,
    },
    /// It could not be planned; the text is for people.
    Failed(String),
}

impl DriftFinding {
    /// Totals of its plan, where it was planned.
    pub fn summary(&self) -> Option<&PlanSummary> {
        match self {
            DriftFinding::Planned(summary) => Some(summary),
            DriftFinding::Skipped { .. } | DriftFinding::Failed(_) => None,
        }
    }

    /// Whether what is real differs from the code, as far as that is known.
    pub fn has_drift(&self) -> bool {
        matches!(self, DriftFinding::Planned(summary) if !summary.no_changes || summary.changes_outside)
    }
}

/// A pull request that keeps drift runs off a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftBlock {
    /// The pull request.
    pub pull: PullId,
    /// How it holds the project.
    pub how: DriftHold,
}

/// How a pull request holds a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriftHold {
    /// Its lock; `applied`: something was applied under it.
    Locked {
        /// Something was applied under it.
        applied: bool,
    },
    /// It owns the project, in mode `strict`.
    Owned(OwnerState),
    /// A command of it changes the project's state now.
    AtWork,
}

/// A drift run that has ended.
#[derive(Debug, Clone)]
pub struct DriftDetection {
    /// Its id, which is that of its run.
    pub id: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch.
    pub branch: String,
    /// The branch, or a commit of it, as it was asked for.
    pub reference: String,
    /// The commit that was planned.
    pub commit: CommitSha,
    /// When it ended.
    pub at: Timestamp,
    /// Each project, and the text of its plan.
    pub projects: Vec<(ProjectDrift, Option<String>)>,
}

/// Plans that were asked for to see what would put things right, and applies of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remediation {
    /// Its id, which is that of its run.
    pub id: RunId,
    /// The repository.
    pub repo: RepoId,
    /// The branch, or a commit of it, as it was asked for.
    pub reference: String,
    /// When it began.
    pub started: Timestamp,
    /// It applies the plans that it makes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applies: bool,
    /// While it runs, and where the server ended before: projects whose apply has begun, without texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<RemediatedProject>,
    /// How it ended; absent while it runs, or where the server ended before.
    pub ended: Option<RemediationEnd>,
}

/// How a remediation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemediationEnd {
    /// When.
    pub at: Timestamp,
    /// Its projects; where it was refused or broke as a whole, those whose apply had begun.
    pub projects: Vec<RemediatedProject>,
    /// Why it was refused as a whole, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Remediation {
    /// Its projects, as far as they are known.
    pub fn projects(&self) -> &[RemediatedProject] {
        self.ended.as_ref().map_or(&self.begun, |end| &end.projects)
    }

    /// The project that this job applies.
    pub fn applied_by(&mut self, job: &JobId) -> Option<&mut RemediatedProject> {
        let projects = self.ended.as_mut().map_or(&mut self.begun, |end| &mut end.projects);
        projects.iter_mut().find(|one| one.apply.as_ref().is_some_and(|apply| apply.job == *job))
    }
}

/// A project of a remediation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemediatedProject {
    /// What its plan has found; once it is applied, what is known since.
    pub found: ProjectDrift,
    /// What was known of it before, at the same commit.
    pub before: Option<PlanSummary>,
    /// The text of its plan; empty where there is none, or it is too long to be kept.
    pub output: String,
    /// Its apply; absent where none began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<DriftApply>,
}

impl RemediatedProject {
    /// Its apply has ended: where it was a good end, what is real is what the branch says; else nobody knows.
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
    /// How it ended; absent while it runs, or where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DriftApplyEnd>,
}

/// How the apply of a project ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftApplyEnd {
    /// What Terraform printed; empty where that is too long to be kept.
    pub output: String,
    /// Why it failed, for people; absent where it did not.
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
