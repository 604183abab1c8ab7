//! Results: one [`JobOutcome`] per job. A *failure* was refused by a rule and names it; an *error* means that something broke.

use super::command::CommandName;
use super::guards::{TrippedGuard, are_passed};
use super::ownership::ProjectOwner;
use super::state::LockHolder;
use super::waiting::Blocked;
use super::{CommitSha, JobId, ProjectId};
use serde::{Deserialize, Serialize};

/// Result of one command on one project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The command that ran.
    pub command: CommandName,
    /// The project it ran on.
    pub project: ProjectId,
    /// Id of the job; absent if it was refused before a job began.
    pub job: Option<JobId>,
    /// Duration in milliseconds.
    pub millis: u64,
    /// Version and distribution of the tool that ran, for people (`Terraform 1.11.4`).
    pub tool: Option<String>,
    /// True if `silence_pr_comments` names this command: no comment reports it.
    pub silenced: bool,
    /// The result.
    pub outcome: Outcome,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// A plan was made.
    Planned(Planned),
    /// Not planned yet: it depends on projects of the same pull request that have to be applied first (mode `strict`).
    Deferred {
        /// Those projects.
        on: Vec<ProjectId>,
    },
    /// A plan was applied.
    Applied(Applied),
    /// `import`, `state rm` or `version` ran.
    Ran {
        /// Output of the command.
        output: String,
    },
    /// A plan was checked against the policy sets.
    PoliciesChecked(PolicyReport),
    /// Approvals of policy findings were given or withdrawn.
    PoliciesApproved(PolicyReport),
    /// Refused by a rule.
    Failed(Failure),
    /// Something broke.
    Errored(Fault),
}

impl Outcome {
    /// Returns true unless it failed or errored. A policy check succeeds if all sets have passed or are approved.
    pub fn is_success(&self) -> bool {
        match self {
            Outcome::PoliciesChecked(report) => report.is_met(),
            Outcome::Failed(_) | Outcome::Errored(_) => false,
            _ => true,
        }
    }

    /// Returns the flags that limit it to a part of a project, for a plan or the apply of one.
    pub fn part(&self) -> Option<&str> {
        match self {
            Outcome::Planned(planned) => planned.part.as_deref(),
            Outcome::Applied(applied) => applied.part.as_deref(),
            _ => None,
        }
    }

    /// Returns true if it did not start because an earlier group failed, or because a dependency is not applied yet.
    pub fn is_held(&self) -> bool {
        matches!(self, Outcome::Failed(Failure::EarlierGroupFailed) | Outcome::Deferred { .. })
    }
}

/// End of a run with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Nothing of it failed.
    Succeeded,
    /// Something of it failed or was refused.
    Failed,
    /// It was refused only where other pull requests had the projects.
    Locked,
    /// A person cancelled what was left of it.
    Stopped,
}

impl RunEnd {
    /// Returns the end of a run with these outcomes of its projects.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a JobOutcome>) -> RunEnd {
        let mut end = RunEnd::Succeeded;
        for outcome in outcomes {
            let own = match &outcome.outcome {
                one if one.is_success() => continue,
                Outcome::Failed(failure) if failure.reason() == Reason::Locked => RunEnd::Locked,
                Outcome::Failed(Failure::Cancelled { .. }) => RunEnd::Stopped,
                _ => return RunEnd::Failed,
            };
            match end {
                RunEnd::Succeeded => end = own,
                _ if end == own => {}
                _ => return RunEnd::Failed,
            }
        }
        end
    }
}

/// Status of a project's plan under the policy sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// One for each set.
    pub sets: Vec<PolicySetReport>,
    /// Output of the steps before the check.
    pub before: String,
    /// Output of the steps after it.
    pub after: String,
}

impl PolicyReport {
    /// Returns true if every set has passed or is approved.
    pub fn is_met(&self) -> bool {
        self.sets.iter().all(PolicySetReport::is_met)
    }
}

/// Status of a plan under one policy set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicySetReport {
    /// Its name.
    pub name: String,
    /// True if its policies found nothing.
    pub passed: bool,
    /// Number of approvals of its findings.
    pub approvals: u32,
    /// Number of approvals that it needs.
    pub required: u32,
    /// Items of its output that approvals of earlier plans cover.
    pub known_items: usize,
    /// Its output.
    pub output: String,
    /// The people who may approve, in words.
    pub owners: String,
    /// Remark on changes of its approvals, in words; empty for none.
    pub note: String,
}

impl PolicySetReport {
    /// Returns true if it has passed or is approved.
    pub fn is_met(&self) -> bool {
        self.passed || self.approvals >= self.required
    }
}

/// A plan that was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Its totals.
    pub summary: PlanSummary,
    /// Its resources, in the order of Terraform's output.
    pub resources: Vec<ResourceChange>,
    /// Text for people: the plan and the output of `run` steps.
    pub output: String,
    /// False if the workflow's plan stage has no built-in `plan` step, so that no plan file exists.
    pub saved: bool,
    /// True if the base branch moved and the merge was repeated.
    pub merged_again: bool,
    /// Arguments after `--` to repeat in the command that plans again.
    pub extra_args: Vec<String>,
    /// Commit of the base branch that the head was planned on top of, if known.
    pub base_commit: Option<CommitSha>,
    /// True if the project's mode takes no lock for a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlocked: bool,
    /// True if nobody can apply it, in mode `strict`: the pull request does not change the project, or is a draft.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
    /// The flags that limit the plan to a part of the project, such as `-target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Guards that it trips.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<TrippedGuard>,
    /// True if the pull request deletes the project's directory: the plan destroys it, with the code of the base branch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Reason for which an apply would be refused now, as far as the plan's run knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<PlanHold>,
}

impl Planned {
    /// Returns true if an apply of it would have an effect and would not be refused at once.
    pub fn can_be_applied(&self) -> bool {
        !self.summary.no_changes && !self.preview && self.held.is_none() && are_passed(&self.guards)
    }
}

/// Reason for which a plan cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanHold {
    /// Another pull request owns the project.
    Owned,
    /// It trips a guard.
    Guards,
    /// Its policies did not pass.
    Policies,
    /// A dependency has a plan of the same pull request, and has to be applied first.
    Dependency,
}

/// Totals of a plan, from Terraform's own `Plan:` lines (summed if there are several).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Terraform's")]
pub struct PlanSummary {
    pub add: u64,
    pub change: u64,
    pub destroy: u64,
    pub import: u64,
    pub forget: u64,
    /// Terraform reported that there is nothing to do.
    pub no_changes: bool,
    /// Objects changed outside of Terraform.
    pub changes_outside: bool,
    /// Only output values change.
    pub outputs_only: bool,
}

/// Change of one resource in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// Kind of change.
    pub action: ResourceAction,
    /// Address, such as `module.a.google_compute_network.main["x"]`.
    pub address: String,
    /// Attributes that force a replacement, or that change, as far as Terraform's output shows them.
    pub attributes: Vec<String>,
}

/// Kinds of change, most dangerous first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are Terraform's")]
pub enum ResourceAction {
    Destroy,
    Replace,
    Update,
    Create,
    Import,
    Move,
    Forget,
    Read,
}

/// A plan that was applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Resources added.
    pub added: u64,
    /// Resources changed.
    pub changed: u64,
    /// Resources destroyed.
    pub destroyed: u64,
    /// Output of Terraform and the steps.
    pub output: String,
    /// The flags that limited its plan to a part of the project, such as `-target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Result of the plan at the end of the apply; absent without `verify_applies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

/// A plan at the end of an apply, which shows whether the apply has left anything to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The totals of the plan; absent if its steps print none.
    Planned(Option<PlanSummary>),
    /// It failed, or was stopped. The log has the reason.
    Failed,
}

impl Verification {
    /// Returns true if the plan has no changes.
    pub fn is_clean(&self) -> bool {
        matches!(self, Verification::Planned(Some(summary)) if summary.no_changes)
    }
}

/// Reason for a refusal, with the facts that its wording needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// Another pull request holds the project's lock.
    Locked(Box<Blocked<LockHolder>>),
    /// Another pull request owns the project, or a project that has to be owned with it.
    Owned(Box<Blocked<ProjectOwner>>),
    /// Requirements were checked; at least one is not met.
    Requirements(Vec<RequirementCheck>),
    /// `depends_on` names projects that are not applied yet.
    Dependency {
        /// Labels of the projects that have to be applied first.
        missing: Vec<String>,
    },
    /// A plan exists, but for another commit, configuration or tool.
    StalePlan {
        /// The difference, in words.
        because: String,
    },
    /// There is no plan to apply.
    NoPlan {
        /// Details in words; may be empty.
        because: String,
    },
    /// Projects that the pull request changes have no plan, and all of them need one before any is applied.
    NotPlanned {
        /// Projects without a plan.
        missing: Vec<ProjectId>,
    },
    /// The plan of this project failed, or it has not been planned since the last push, so that `apply` of everything is refused.
    Unplanned {
        /// Details in words.
        because: String,
    },
    /// Cancelled before it began, or interrupted.
    Cancelled {
        /// The person or cause, in words.
        by: String,
    },
    /// An earlier group failed, so this job did not start.
    EarlierGroupFailed,
    /// A rule without more structure; the text is for people.
    Refused {
        /// Reason for the comment marker.
        reason: Reason,
        /// The blocker and the next command, in words.
        because: String,
    },
}

impl Failure {
    /// Returns the reason for the comment marker.
    pub fn reason(&self) -> Reason {
        match self {
            Failure::Locked(_) | Failure::Owned(_) => Reason::Locked,
            Failure::Requirements(_) => Reason::Requirement,
            Failure::Dependency { .. } | Failure::EarlierGroupFailed => Reason::Dependency,
            Failure::StalePlan { .. } => Reason::StalePlan,
            Failure::NoPlan { .. } | Failure::Unplanned { .. } => Reason::NoPlan,
            Failure::NotPlanned { .. } => Reason::NotPlanned,
            Failure::Cancelled { .. } => Reason::Cancelled,
            Failure::Refused { reason, .. } => *reason,
        }
    }
}

/// Result of the check of one requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementCheck {
    /// `approved`, `mergeable`, `undiverged`.
    pub name: String,
    /// True if it is met.
    pub met: bool,
    /// Facts that were checked, for people: `0 of 1 review; alice's own does not count`.
    pub detail: String,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Reason for the comment marker.
    pub reason: Reason,
    /// One sentence with the attempted action and its end (`terraform plan: exit status 1`).
    pub message: String,
    /// Output until then, if any.
    pub output: String,
}

/// The comment marker's `reason` (docs/comment-marker.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the reference's")]
pub enum Reason {
    Locked,
    Frozen,
    Requirement,
    Dependency,
    Policy,
    StalePlan,
    NoPlan,
    NotPlanned,
    NotPermitted,
    Config,
    Init,
    Plan,
    Apply,
    Import,
    StateRm,
    Version,
    ForceUnlock,
    Timeout,
    Cancelled,
    Interrupted,
    Internal,
}
