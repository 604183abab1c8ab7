//! What a runner gives back of one job. Plain facts: `execute` finds the words for people.

use serde::{Deserialize, Serialize};
use tidelock_core::domain::JobId;
use tidelock_core::domain::plan_digest::ChangesDigest;
use tidelock_core::domain::state::{LeftFiles, StateLock};

/// One job that has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Id of the job.
    pub job: JobId,
    /// How it ended.
    pub ending: Ending,
    /// What people may read of its output. Secrets are masked.
    pub output: String,
    /// The plan that it made; absent when it made none.
    pub plan: Option<PlanMade>,
    /// The state that Terraform could not save.
    pub errored_state: Option<Artifact>,
    /// What it had to do with Terraform's lock on the state.
    pub state_lock: LockTrace,
    /// Lines that it sent to its log.
    pub log_lines: u64,
    /// What a policy check has found.
    #[serde(default)]
    pub policies: Option<PoliciesRan>,
}

/// What a policy check has found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoliciesRan {
    /// One for each policy set.
    pub sets: Vec<PolicySetRan>,
    /// What steps before the check printed.
    pub before: String,
    /// What steps after it printed.
    pub after: String,
}

/// What one policy set has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetRan {
    /// Its name.
    pub name: String,
    /// It found nothing.
    pub passed: bool,
    /// What was printed, without paths of this machine. Secrets are masked.
    pub output: String,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps did what they should.
    Done,
    /// It was stopped before it could change anything.
    Stopped,
    /// A step ended it.
    Broken(StepProblem),
}

/// Why a step ended its job. `program` is its name for people, such as `terraform plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are explained above and by their names")]
pub enum StepProblem {
    /// A program did not start, or could not be waited for. `init`: during the `init` step.
    NotStarted { program: String, error: String, init: bool },
    /// A program ended with anything but exit status 0. `init`: during the `init` step.
    Exit { program: String, ending: String, init: bool },
    /// A program reached the time limit of a step.
    TimedOut { program: String, ending: String, millis: u64 },
    /// A program that changes something was interrupted. `killed`: a process of the job ended by SIGKILL.
    Interrupted { program: String, ending: String, millis: u64, killed: bool },
    /// A program that changes something was interrupted, did not end in time, and was killed.
    Killed { program: String },
    /// The output of an `env` or `multienv` step cannot be used.
    Values { step: String, error: String },
    /// A filter of `run.output` cannot be applied.
    OutputFilter { error: String },
    /// `TF_WORKSPACE` names another workspace than the project's.
    OtherWorkspace { set: String },
    /// The project's directory is a link now, or one on the way to it is, or it is gone.
    DirectoryReplaced,
    /// `-target` was given to an apply.
    TargetOfApply,
    /// The plan file that is to be applied is not in the project's directory.
    PlanFileGone,
    /// The plan is one of a remote run, and has no file that could be shown.
    RemotePlan,
    /// The plan of a remote run is not the one that was approved any more; nothing is applied.
    RemotePlanChanged,
    /// The text of a remote run's plan is longer than what is kept of an output, so an apply could not be held against it.
    RemotePlanTooLong,
    /// The built-in `plan` step left no plan file.
    NoPlanFile,
    /// The plan file could not be copied.
    PlanNotKept { error: String },
    /// Policies could not be evaluated. `set`: the policy set; empty where it is about all of them.
    Policies { set: String, error: String },
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanMade {
    /// The plan file; absent for workflows without a built-in `plan` step.
    pub file: Option<Artifact>,
    /// What its steps left in the tree.
    pub left: LeftFiles,
    /// What it changes; absent where nobody asked for that, or it could not be found.
    #[serde(default)]
    pub changes: Option<ChangesDigest>,
    /// Why that could not be found, in words.
    #[serde(default)]
    pub incomparable: Option<String>,
    /// The flags that make it a plan of a part of the project, such as `-target`; absent for a plan of all of it.
    #[serde(default)]
    pub part: Option<String>,
}

/// A file that a job leaves for us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Relative to the data directory.
    pub path: String,
    /// SHA-256 of its content, hex.
    pub sha256: String,
}

/// What a job had to do with Terraform's lock on the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTrace {
    /// Host name of the machine that it ran on, as Terraform writes it into a lock.
    pub machine: String,
    /// A process of it ended by SIGKILL, or was left running: its lock may be left.
    pub killed: bool,
    /// The lock of somebody else that it met.
    pub met: Option<StateLock>,
}
