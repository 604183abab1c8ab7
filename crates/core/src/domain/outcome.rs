//! Results: one [`JobOutcome`] per job. A *failure* was refused by a rule and says which; an *error* is something that broke.

use super::command::CommandName;
use super::ownership::ProjectOwner;
use super::state::LockHolder;
use super::waiting::Blocked;
use super::{CommitSha, JobId, ProjectId};
use serde::{Deserialize, Serialize};

/// What one command on one project came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The command that ran.
    pub command: CommandName,
    /// The project it ran on.
    pub project: ProjectId,
    /// Id of the job; absent where it was refused before a job began.
    pub job: Option<JobId>,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// Version and distribution of the tool that ran, for people (`Terraform 1.11.4`).
    pub tool: Option<String>,
    /// `silence_pr_comments` names this command: no comment tells it.
    pub silenced: bool,
    /// The result.
    pub outcome: Outcome,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// A plan was made.
    Planned(Planned),
    /// Not planned yet: projects of its pull request that it depends on have to be applied first (mode `strict`).
    Deferred {
        /// Those projects.
        on: Vec<ProjectId>,
    },
    /// A plan was applied.
    Applied(Applied),
    /// `import`, `state rm` or `version` ran; its output.
    Ran {
        /// What it printed.
        output: String,
    },
    /// A plan was checked against the policy sets.
    PoliciesChecked(PolicyReport),
    /// Approvals of what policies found were given, or taken back.
    PoliciesApproved(PolicyReport),
    /// Refused by a rule.
    Failed(Failure),
    /// Something broke.
    Errored(Fault),
}

impl Outcome {
    /// Neither failed nor errored; policies have passed or are approved.
    pub fn is_success(&self) -> bool {
        match self {
            Outcome::PoliciesChecked(report) => report.is_met(),
            Outcome::Failed(_) | Outcome::Errored(_) => false,
            _ => true,
        }
    }

    /// The flags that make it one of a part of a project: a plan, or the apply of one.
    pub fn part(&self) -> Option<&str> {
        match self {
            Outcome::Planned(planned) => planned.part.as_deref(),
            Outcome::Applied(applied) => applied.part.as_deref(),
            _ => None,
        }
    }

    /// It did not start because an earlier group failed, or what it depends on is not applied yet.
    pub fn is_held(&self) -> bool {
        matches!(self, Outcome::Failed(Failure::EarlierGroupFailed) | Outcome::Deferred { .. })
    }
}

/// How the plan of a project stands with the policy sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// One for each set.
    pub sets: Vec<PolicySetReport>,
    /// What steps before the check printed.
    pub before: String,
    /// What steps after it printed.
    pub after: String,
}

impl PolicyReport {
    /// Whether every set has passed or is approved.
    pub fn is_met(&self) -> bool {
        self.sets.iter().all(PolicySetReport::is_met)
    }
}

/// How a plan stands with one policy set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicySetReport {
    /// Its name.
    pub name: String,
    /// Its policies found nothing.
    pub passed: bool,
    /// How many have approved what it found.
    pub approvals: u32,
    /// How many have to.
    pub required: u32,
    /// Items of its output that approvals of earlier plans cover.
    pub known_items: usize,
    /// What it printed.
    pub output: String,
    /// Who may approve, in words.
    pub owners: String,
    /// What was done, or not, with the approvals of it, in words; empty for nothing.
    pub note: String,
}

impl PolicySetReport {
    /// Whether it has passed or is approved.
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
    /// What people read: the plan's text and the output of `run` steps.
    pub output: String,
    /// False where the workflow's plan stage has no built-in `plan` step, so that no plan file exists.
    pub saved: bool,
    /// The base branch moved and the merge was done again.
    pub merged_again: bool,
    /// Arguments after `--` to repeat in the command that plans again.
    pub extra_args: Vec<String>,
    /// Commit of the base branch that the head was planned on top of, where known.
    pub base_commit: Option<CommitSha>,
    /// The project's mode takes no lock for a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlocked: bool,
    /// In mode `strict`: the pull request does not change the project, so nobody applies its plan, or it is a draft, so nobody does yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preview: bool,
    /// The flags that make it a plan of a part of the project, such as `-target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Why an apply of it would be refused now, as far as the plan's run knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<PlanHold>,
}

impl Planned {
    /// Whether an apply of it would do something, and not be refused at once.
    pub fn can_be_applied(&self) -> bool {
        !self.summary.no_changes && !self.preview && self.held.is_none()
    }
}

/// What keeps a plan from being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanHold {
    /// Another pull request owns the project.
    Owned,
    /// Its policies did not pass.
    Policies,
    /// What it depends on has a plan of the same pull request, and is applied first.
    Dependency,
}

/// Totals of a plan, from Terraform's own `Plan:` lines (summed where there are several).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are Terraform's")]
pub struct PlanSummary {
    pub add: u64,
    pub change: u64,
    pub destroy: u64,
    pub import: u64,
    pub forget: u64,
    /// Terraform said that nothing is to be done.
    pub no_changes: bool,
    /// Objects changed outside of Terraform.
    pub changes_outside: bool,
    /// Only output values change.
    pub outputs_only: bool,
}

/// What a plan does to one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// What is done.
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
    /// What Terraform and the steps printed.
    pub output: String,
    /// The flags that made its plan one of a part of the project, such as `-target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Why something was refused, with the facts that its wording needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// Another pull request holds the project's lock.
    Locked(Box<Blocked<LockHolder>>),
    /// Another pull request owns the project, or one that has to be owned with it.
    Owned(Box<Blocked<ProjectOwner>>),
    /// Requirements were checked; at least one is not met.
    Requirements(Vec<RequirementCheck>),
    /// `depends_on` names projects that are not applied yet.
    Dependency {
        /// Labels of the projects that have to be applied first.
        missing: Vec<String>,
    },
    /// A plan exists but is not for this commit, configuration or tool any more.
    StalePlan {
        /// What differs, in words.
        because: String,
    },
    /// There is no plan to apply.
    NoPlan {
        /// More about it, in words; may be empty.
        because: String,
    },
    /// Projects that the pull request changes have no plan, and all of them have to before one is applied.
    NotPlanned {
        /// Those without a plan.
        missing: Vec<ProjectId>,
    },
    /// The plan of this project failed, or it has not been planned since the last push, so that `apply` of everything is refused.
    Unplanned {
        /// More about it, in words.
        because: String,
    },
    /// Cancelled before it began, or interrupted.
    Cancelled {
        /// Who or what cancelled it, in words.
        by: String,
    },
    /// An earlier group failed, so this one did not start.
    EarlierGroupFailed,
    /// A rule without more structure; the text is for people.
    Refused {
        /// Reason for the comment marker.
        reason: Reason,
        /// What blocks and what to do, in words.
        because: String,
    },
}

impl Failure {
    /// The marker's word for it.
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

/// One requirement, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementCheck {
    /// `approved`, `mergeable`, `undiverged`.
    pub name: String,
    /// Whether it holds.
    pub met: bool,
    /// What was seen, for people: `0 of 1 review; alice's own does not count`.
    pub detail: String,
}

/// Something broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Reason for the comment marker.
    pub reason: Reason,
    /// One sentence: what was being done, and how it ended (`terraform plan: exit status 1`).
    pub message: String,
    /// Output up to there, if any.
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
