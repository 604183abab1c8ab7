//! What a runner is told of one job. Plain data: it names secrets and contains none.

use crate::checkout::Fetched;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidelock_core::config::ProjectConfig;
use tidelock_core::config::policies::PolicyEngine;
use tidelock_core::config::workflow::Step;
use tidelock_core::domain::command::Command;
use tidelock_core::domain::state::{LeftFiles, PlanRecord};
use tidelock_core::domain::{CommitSha, Distribution, JobId, PlanId, PullRequest, RunId};

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Id of the job; files that it leaves for us are named by it.
    pub job: JobId,
    /// The run that it is part of, whose jobs share a home directory.
    pub run: RunId,
    /// When it began. An `errored.tfstate` that is older belongs to an earlier job.
    pub started: Timestamp,
    /// The tree that its steps run in.
    pub tree: TreeSpec,
    /// Effective configuration of the project.
    pub project: ProjectConfig,
    /// The command that it is part of, with its arguments.
    pub command: Command,
    /// What it runs.
    pub steps: Steps,
    /// What its built-in steps run.
    pub tool: ToolSpec,
    /// What steps are told of the pull request, asked before the job.
    pub answers: Answers,
    /// Its limits.
    pub limits: JobLimits,
    /// Names of variables that no step gets, wherever the job runs.
    pub secrets: Vec<String>,
    /// What it has to do with a plan.
    pub plan: PlanUse,
    /// What a policy check checks with; absent for other jobs.
    #[serde(default)]
    pub policies: Option<PolicySpec>,
}

/// What a plan is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicySpec {
    /// What evaluates the policies.
    pub engine: PolicyEngine,
    /// Version of conftest; any if absent.
    pub conftest_version: Option<String>,
    /// What `run` steps print are the results, one for each set.
    pub custom: bool,
    /// The policy sets.
    pub sets: Vec<PolicySetSpec>,
}

/// One policy set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetSpec {
    /// Its name.
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
    /// The directories of a sparse tree; absent: all.
    pub dirs: Option<Vec<String>>,
    /// Whether the workspace's tree may be moved to these commits. If not, another tree is made beside it.
    pub movable: bool,
    /// Commands of the workflow may ask git for history.
    pub history: bool,
}

impl TreeSpec {
    /// Its commits, as the checkout names them.
    pub fn commits(&self) -> Fetched {
        Fetched { head: self.head.clone(), base_tip: self.base.clone() }
    }
}

/// What a job runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steps {
    /// A stage of the workflow.
    Stage {
        /// What a tree that was made again lacks. These steps have an environment of their own, and nothing of their output is kept.
        first: Vec<Step>,
        /// The steps of the stage.
        steps: Vec<Step>,
    },
    /// `terraform version`.
    Version,
    /// `terraform force-unlock`.
    ForceUnlock {
        /// What Terraform needs before it can reach its state. Nothing of their output is kept.
        before: Vec<Step>,
        /// Id of the state lock.
        lock: String,
    },
}

/// The exact tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Which.
    pub distribution: Distribution,
    /// Its version, such as `1.11.4`.
    pub version: String,
    /// Version of the Terragrunt that runs it.
    #[serde(default)]
    pub terragrunt: Option<String>,
}

/// Values of `ATLANTIS_PR_APPROVED` and `ATLANTIS_PR_MERGEABLE`; absent where no step can read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after their variables")]
pub struct Answers {
    pub approved: Option<bool>,
    pub mergeable: Option<bool>,
}

/// Limits of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// How long one step may run.
    pub timeout: Duration,
    /// Between SIGINT and SIGKILL.
    pub grace: Duration,
    /// Bytes of one step's output that are kept for the comment.
    pub output: usize,
}

/// What a job has to do with a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanUse {
    /// Nothing.
    None,
    /// It makes one.
    Make {
        /// The plan's id; its files are named by it.
        id: PlanId,
        /// Directories of all projects that are or were planned with it: what lies there belongs to their plans.
        dirs: Vec<String>,
        /// Key of the digest of what it changes; absent where nobody asks for that.
        #[serde(default)]
        changes_key: Option<String>,
    },
    /// It checks this one against policies.
    Check(PlanReference),
    /// It applies this one.
    Apply(PlanReference),
}

impl PlanUse {
    /// The plan that its steps read.
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
    /// Its id.
    pub id: PlanId,
    /// Where the plan file lies, relative to the data directory; absent for workflows without a built-in `plan` step.
    pub path: Option<String>,
    /// SHA-256 of the plan file, hex.
    pub sha256: Option<String>,
    /// What its steps left in the tree.
    pub left: LeftFiles,
}

impl From<&PlanRecord> for PlanReference {
    fn from(plan: &PlanRecord) -> PlanReference {
        let PlanRecord { id, path, sha256, left, .. } = plan.clone();
        PlanReference { id, path, sha256, left }
    }
}
