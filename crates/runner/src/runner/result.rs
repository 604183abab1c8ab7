//! Result of a job that a runner returns. Plain facts: `execute` words them for people.

use serde::{Deserialize, Serialize};
use tidelock_core::config::workflow::{EnvValue, Step};
use tidelock_core::domain::JobId;
use tidelock_core::domain::guards::TrippedGuard;
use tidelock_core::domain::job_times::{StepKind, StepTime, TimeMark};
use tidelock_core::domain::outcome::Verification;
use tidelock_core::domain::plan_digest::ChangesDigest;
use tidelock_core::domain::state::{LeftFiles, StateLock};

/// One job that has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// ID of the job.
    pub job: JobId,
    /// Way in which it ended.
    pub ending: Ending,
    /// The part of its output that people may read. Secrets are masked.
    pub output: String,
    /// The plan that it made; absent if it made none.
    pub plan: Option<PlanMade>,
    /// The state that Terraform could not save.
    pub errored_state: Option<Artifact>,
    /// Traces of Terraform's lock on the state.
    pub state_lock: LockTrace,
    /// Number of lines that it sent to its log.
    pub log_lines: u64,
    /// Results of a policy check.
    #[serde(default)]
    pub policies: Option<PoliciesRan>,
    /// Result of the plan at the end of an apply; absent if the job made no such plan.
    #[serde(default)]
    pub verification: Option<Verification>,
    /// Time of each step that began, in order. Lines are counted as in [`Ran::log_lines`].
    #[serde(default)]
    pub steps: Vec<StepTime>,
    /// Times of lines of long steps.
    #[serde(default)]
    pub marks: Vec<TimeMark>,
}

/// Returns the kind of a step whose time is measured; absent if it runs nothing.
pub fn kind_of_step(step: &Step) -> Option<StepKind> {
    Some(match step {
        Step::Init { .. } => StepKind::Init,
        Step::Plan { .. } => StepKind::Plan,
        Step::Apply { .. } => StepKind::Apply,
        Step::Show { .. } => StepKind::Show,
        Step::Import { .. } => StepKind::Import,
        Step::StateRm { .. } => StepKind::StateRm,
        Step::PolicyCheck { .. } => StepKind::PolicyCheck,
        Step::Env { value: EnvValue::Value(_), .. } => return None,
        Step::Run { .. } | Step::Env { .. } | Step::Multienv { .. } => StepKind::Run,
    })
}

/// Results of a policy check.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoliciesRan {
    /// Results, one for each policy set.
    pub sets: Vec<PolicySetRan>,
    /// Output of the steps before the check.
    pub before: String,
    /// Output of the steps after it.
    pub after: String,
}

/// Result of one policy set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetRan {
    /// Name of the policy set.
    pub name: String,
    /// True if it found nothing.
    pub passed: bool,
    /// Output, without paths of this machine. Secrets are masked.
    pub output: String,
}

/// Way in which a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps succeeded.
    Done,
    /// It was stopped before it could change anything.
    Stopped,
    /// A step ended it.
    Broken(StepProblem),
}

/// Reason that a step ended its job. `program` is the program's name for people, such as `terraform plan`.
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
    /// The secret of a variable cannot be read. No step has run.
    SecretNotRead { variable: String, reference: String, why: String },
    /// The output of an `env` or `multienv` step cannot be used.
    Values { step: String, error: String },
    /// A filter of `run.output` cannot be applied.
    OutputFilter { error: String },
    /// `TF_WORKSPACE` names a workspace other than the project's.
    OtherWorkspace { set: String },
    /// The project's directory is missing, or the directory or one above it has become a link.
    DirectoryReplaced,
    /// `-target` was given to an apply.
    TargetOfApply,
    /// The plan file to apply is not in the project's directory.
    PlanFileGone,
    /// Guards of the project refuse it.
    Guarded { guards: Vec<TrippedGuard> },
    /// The plan is one of a remote run, and has no file that can be shown.
    RemotePlan,
    /// The plan of a remote run is no longer the approved one; nothing is applied.
    RemotePlanChanged,
    /// The text of a remote run's plan is longer than the part of an output that is kept, so an apply could not be compared with it.
    RemotePlanTooLong,
    /// The plan file of an apply does something else than the text that was approved; nothing is applied.
    PlanTextDiffers,
    /// The text that was approved, or that of the plan file, is not kept whole, so they cannot be compared.
    PlanTextTooLong,
    /// The code in the plan file of an apply is not that of the checkout. `what` says where they differ.
    PlanCodeDiffers { what: String },
    /// The built-in `plan` step left no plan file.
    NoPlanFile,
    /// The plan file could not be copied.
    PlanNotKept { error: String },
    /// Policies could not be evaluated. `set`: the policy set; empty if the error concerns all of them.
    Policies { set: String, error: String },
    /// The state is a file in the tree, which is gone after the job.
    LocalState,
    /// The executor has not started the job, and never will.
    NotStartedElsewhere { executor: String, why: String },
    /// The executor has lost the job after its start.
    LostElsewhere { executor: String, why: String },
    /// The job was stopped at its executor before it could change anything, and this server did not ask for it.
    EndedElsewhere { executor: String, why: String },
}

/// A plan that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanMade {
    /// The plan file; absent for workflows without a built-in `plan` step.
    pub file: Option<Artifact>,
    /// Files that its steps left in the tree.
    pub left: LeftFiles,
    /// Digest of its changes; absent if none is wanted, or it could not be computed.
    #[serde(default)]
    pub changes: Option<ChangesDigest>,
    /// Reason that the digest could not be computed, in words.
    #[serde(default)]
    pub incomparable: Option<String>,
    /// Flags that make it a plan of a part of the project, such as `-target`; absent for a plan of the whole project.
    #[serde(default)]
    pub part: Option<String>,
    /// Guards that it trips; absent if the job has not checked any.
    #[serde(default)]
    pub guards: Option<Vec<TrippedGuard>>,
}

/// A file that a job leaves for the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Path, relative to the data directory.
    pub path: String,
    /// SHA-256 of its content, hex.
    pub sha256: String,
}

/// Traces of Terraform's lock on the state that a job left or met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTrace {
    /// Host name of the machine that the job ran on, as Terraform writes it into a lock.
    pub machine: String,
    /// True if one of its processes ended by SIGKILL, or was left running: its lock may remain.
    pub killed: bool,
    /// Lock of somebody else that it met.
    pub met: Option<StateLock>,
}
