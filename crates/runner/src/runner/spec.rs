//! Specification of one job for a runner. Plain data: it names secrets and contains none.

use crate::checkout::Fetched;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tidelock_core::config::ProjectConfig;
use tidelock_core::config::policies::PolicyEngine;
use tidelock_core::config::workflow::Step;
use tidelock_core::domain::command::Command;
use tidelock_core::domain::guards::TrippedGuard;
use tidelock_core::domain::state::{LeftFiles, PlanRecord};
use tidelock_core::domain::{CommitSha, Distribution, JobId, PlanId, PullRequest, RunId};

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// ID of the job, which names the files that it leaves for the server.
    pub job: JobId,
    /// The run that it is part of. Jobs of a run share a home directory.
    pub run: RunId,
    /// Start of the job. An older `errored.tfstate` belongs to an earlier job.
    pub started: Timestamp,
    /// The tree that its steps run in.
    pub tree: TreeSpec,
    /// Effective configuration of the project.
    pub project: ProjectConfig,
    /// The command that it is part of, with its arguments.
    pub command: Command,
    /// Steps that it runs.
    pub steps: Steps,
    /// Tool that its built-in steps run.
    pub tool: ToolSpec,
    /// Facts about the pull request for its steps, requested before the job.
    pub answers: Answers,
    /// Its limits.
    pub limits: JobLimits,
    /// Names of variables that no step gets, wherever the job runs.
    pub secrets: Vec<String>,
    /// Use of a plan.
    pub plan: PlanUse,
    /// Policies of a policy check; absent for other jobs.
    #[serde(default)]
    pub policies: Option<PolicySpec>,
    /// True if the tree is gone after the job, so that no state may be a file in it.
    #[serde(default)]
    pub keeps_no_files: bool,
    /// Time limit of each step of the plan at the end of an apply; absent if there is no such plan.
    #[serde(default)]
    pub verify: Option<Duration>,
}

impl JobSpec {
    /// Returns true if a built-in step of it runs `init`.
    pub fn runs_init(&self) -> bool {
        let has_init = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Init { .. }));
        let verifies = self.verify.is_some() && has_init(&self.project.workflow.plan);
        verifies
            || match &self.steps {
                Steps::Stage { first, steps } => has_init(first) || has_init(steps),
                Steps::ForceUnlock { before, .. } => has_init(before),
                Steps::Version => false,
            }
    }
}

/// Policies that a plan is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicySpec {
    /// Policy engine: built in, or conftest.
    pub engine: PolicyEngine,
    /// Version of conftest; any if absent.
    pub conftest_version: Option<String>,
    /// True if `run` steps print the results, one for each set.
    pub custom: bool,
    /// The policy sets.
    pub sets: Vec<PolicySetSpec>,
}

/// One policy set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetSpec {
    /// Name of the policy set.
    pub name: String,
    /// File or directory, relative to the project's directory unless absolute.
    pub path: Option<String>,
}

/// A tree at a commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeSpec {
    /// The pull request.
    pub pull: PullRequest,
    /// The workspace, which has a tree of its own.
    pub workspace: String,
    /// Head commit.
    pub head: CommitSha,
    /// Commit of the base branch that a merged tree has.
    pub base: CommitSha,
    /// The directories of a sparse tree; absent for all.
    pub dirs: Option<Vec<String>>,
    /// True if the workspace's tree may be moved to these commits. If not, another tree is made beside it.
    pub movable: bool,
    /// True if it is a tree of its base commit alone, which no job of the head uses. The head is the same commit.
    #[serde(default)]
    pub of_base: bool,
    /// True if commands of the workflow may ask git for history.
    pub history: bool,
}

impl TreeSpec {
    /// Returns its commits, as the checkout names them.
    pub fn commits(&self) -> Fetched {
        Fetched { head: self.head.clone(), base_tip: self.base.clone() }
    }
}

/// Steps of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steps {
    /// A stage of the workflow.
    Stage {
        /// Steps that restore parts missing in a tree that was made again. They have their own environment, and their output is not kept.
        first: Vec<Step>,
        /// The steps of the stage.
        steps: Vec<Step>,
    },
    /// `terraform version`.
    Version,
    /// `terraform force-unlock`.
    ForceUnlock {
        /// Steps that Terraform needs before it can reach its state. Their output is not kept.
        before: Vec<Step>,
        /// ID of the state lock.
        lock: String,
    },
}

impl Steps {
    /// Returns true if a built-in step makes a plan file.
    pub fn make_a_plan_file(&self) -> bool {
        matches!(self, Steps::Stage { steps, .. } if steps.iter().any(|step| matches!(step, Step::Plan { .. })))
    }
}

/// Exact version of the tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Terraform or OpenTofu.
    pub distribution: Distribution,
    /// Its version, such as `1.11.4`.
    pub version: String,
    /// Version of the Terragrunt that runs it; absent without Terragrunt.
    #[serde(default)]
    pub terragrunt: Option<String>,
}

impl fmt::Display for ToolSpec {
    /// Formats as the tool itself, such as `terraform 1.11.4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.distribution.binary(), self.version)?;
        self.terragrunt.iter().try_for_each(|version| write!(f, " by terragrunt {version}"))
    }
}

/// Values of `ATLANTIS_PR_APPROVED` and `ATLANTIS_PR_MERGEABLE`; absent if no step can read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after their variables")]
pub struct Answers {
    pub approved: Option<bool>,
    pub mergeable: Option<bool>,
}

/// Limits of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// Time limit of one step.
    pub timeout: Duration,
    /// Time between SIGINT and SIGKILL.
    pub grace: Duration,
    /// Bytes of one step's output that are kept for the comment.
    pub output: usize,
}

/// Use of a plan by a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanUse {
    /// The job uses no plan.
    None,
    /// The job makes a plan.
    Make {
        /// ID of the plan, which names its files.
        id: PlanId,
        /// Directories of all projects that are or were planned with it. Files there belong to their plans.
        dirs: Vec<String>,
        /// Key of the digest of its changes; absent if no digest is wanted.
        #[serde(default)]
        changes_key: Option<String>,
    },
    /// The job checks this plan against policies.
    Check(PlanReference),
    /// The job applies this plan.
    Apply(PlanReference),
}

impl PlanUse {
    /// Returns the id of the plan that its steps make.
    pub fn makes(&self) -> Option<&PlanId> {
        match self {
            PlanUse::Make { id, .. } => Some(id),
            PlanUse::None | PlanUse::Check(_) | PlanUse::Apply(_) => None,
        }
    }

    /// Returns the text that the plan of an apply must have; absent if it is not compared.
    pub fn approved(&self) -> Option<&str> {
        match self {
            PlanUse::Apply(plan) => plan.approved.as_deref(),
            PlanUse::None | PlanUse::Make { .. } | PlanUse::Check(_) => None,
        }
    }

    /// Returns the plan that its steps read.
    pub fn reads(&self) -> Option<&PlanReference> {
        match self {
            PlanUse::Check(plan) | PlanUse::Apply(plan) => Some(plan),
            PlanUse::None | PlanUse::Make { .. } => None,
        }
    }
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanReference {
    /// ID of the plan.
    pub id: PlanId,
    /// Path of the plan file, relative to the data directory; absent for workflows without a built-in `plan` step.
    pub path: Option<String>,
    /// SHA-256 of the plan file, hex.
    pub sha256: Option<String>,
    /// Files that its steps left in the tree.
    pub left: LeftFiles,
    /// The text that people have approved, if a job that could have lied made the plan. Then an apply checks that the plan file has this
    /// text, and puts back only files that change nothing else.
    #[serde(default)]
    pub approved: Option<String>,
    /// Guards that it trips, by the server's record.
    #[serde(default)]
    pub guards: Vec<TrippedGuard>,
    /// Arguments for Terraform that it was made with.
    #[serde(default)]
    pub arguments: Vec<String>,
}

impl From<&PlanRecord> for PlanReference {
    fn from(plan: &PlanRecord) -> PlanReference {
        let PlanRecord { id, path, sha256, left, guards, arguments, .. } = plan.clone();
        PlanReference { id, path, sha256, left, approved: None, guards, arguments }
    }
}
