//! The runner of this machine: trees below the data directory, binaries of the installer, child processes.

mod approved;
mod artifacts;
mod changes;
mod code;
mod directories;
pub mod environment;
mod files;
mod filters;
mod guards;
mod home;
mod made_of;
mod modules;
mod pairs;
mod planned_code;
mod policies;
mod remote;
mod repeats;
mod sealed;
mod secrets;
mod separation;
mod stage;
pub mod state_lock;
mod steps;
mod terragrunt;
#[cfg(test)]
mod tests;
mod timeline;
mod verification;
mod ways_out;

pub use artifacts::{PlanGone, archive_path, missing_preparation, plan_path, write_private};
pub use directories::DirectoryLocks;
pub use home::RunFolder;
pub use modules::{ModuleOrigin, ModuleOrigins};
pub use policies::EXTRA_POLICY_SET;
pub use sealed::{FOLDER as SEALED_FOLDER, has_commands};
pub use secrets::masking;
pub use separation::{Separation, SeparationSettings, Surroundings, folder_of_runs};

use super::result::{Artifact, Ending, LockTrace, PlanMade, PoliciesRan, Ran, StepProblem};
use super::spec::{JobSpec, PlanUse, Steps, TreeSpec};
use crate::checkout::folder::Folder;
use crate::checkout::{CheckoutError, Checkouts, Credentials, WorkingTree, inside};
use crate::process::{LineSink, MASK, Redactor};
use crate::terraform::install::{Installer, Tool};
use crate::terraform::parts::in_output;
use crate::terraform::state_lock::find_lock;
use changes::PlanChanges;
use guards::CodeCheck;
use secrecy::SecretString;
use secrets::JobSecrets;
use stage::{Broken, Stage, StageJob};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidelock_core::config::workflow::Step;
use tidelock_core::domain::ProjectId;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::guards::TrippedGuard;
use tidelock_core::domain::job_times::JobTimes;
use tidelock_secrets::SecretReader;
use timeline::Timeline;
use tokio_util::sync::CancellationToken;

/// Runs jobs on this machine.
pub struct Local {
    /// Working trees.
    pub checkouts: Checkouts,
    /// Terraform binaries.
    pub installer: Arc<Installer>,
    /// Locks that allow one job at a time in one directory of one tree.
    pub directories: DirectoryLocks,
    /// Masks secrets in all output.
    pub redactor: Redactor,
    /// Data directory, absolute or relative to the server's working directory.
    pub data_dir: PathBuf,
    /// The environment that steps begin with: the server's, without secrets.
    pub env: Vec<(String, String)>,
    /// Keeps steps away from files of the server and of other runs.
    pub separation: Separation,
    /// True if providers are kept below the data directory for all jobs.
    pub use_plugin_cache: bool,
    /// This program, which is the built-in policy engine as well.
    pub own_program: PathBuf,
    /// Sources of modules for which `init` gets credentials.
    pub module_origins: ModuleOrigins,
    /// Reads the secrets of projects.
    pub secret_reader: Arc<SecretReader>,
    /// Variable and token for Terraform Cloud or Enterprise.
    pub tfe_token: Option<(String, SecretString)>,
}

/// Place in which the steps of a job run, with its tool.
pub struct Place {
    /// The tree.
    pub tree: WorkingTree,
    /// Project directory.
    pub dir: PathBuf,
    /// The binary.
    pub tool: Tool,
    /// Path at which the steps expect the plan file.
    pub plan_file: PathBuf,
}

/// Reason that a project's directory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDirectory {
    /// The directory does not exist.
    Missing,
    /// The directory cannot be used, for this reason.
    Unusable(String),
}

/// Connections of a running job to its caller.
pub struct Io<'a> {
    /// Called with each line of its log.
    pub log: LineSink<'a>,
    /// Interrupts it.
    pub stop: &'a CancellationToken,
    /// Ends it without waiting any longer for its processes.
    pub kill: &'a CancellationToken,
}

/// Data that all steps of a job share.
struct JobSteps<'a> {
    /// Set if a process of them was killed.
    killed: &'a AtomicBool,
    /// Their times.
    timeline: &'a Timeline,
    /// The project's secrets.
    secrets: &'a JobSecrets,
}

/// Results of the steps of a job.
struct StepsRan {
    /// The texts for people.
    output: String,
    /// Results of a policy check.
    policies: Option<PoliciesRan>,
    /// The plan's changes; empty if they are not wanted.
    changes: PlanChanges,
    /// Guards that the plan trips.
    guards: Vec<TrippedGuard>,
    /// The flags that make it a plan of a part of the project.
    part: Option<String>,
    /// The plan file, if it made one.
    file: Option<Artifact>,
    /// Masks the secrets of the job, and those in the plan that it has read.
    redactor: Redactor,
}

impl Local {
    /// Returns the tree of a job, made or moved to its commits. Call it for one tree at a time.
    pub async fn tree(&self, spec: &TreeSpec, credentials: Option<&Credentials>) -> Result<WorkingTree, CheckoutError> {
        let (pull, workspace, commits) = (&spec.pull, &spec.workspace, spec.commits());
        let one_at_a_time = self.directories.lock(&self.checkouts.tree_path(&pull.id, workspace)).await;
        let dirs = spec.dirs.as_deref();
        let tree = match spec.movable {
            _ if spec.of_base => self.checkouts.tree_of_base(pull, workspace, &spec.base, credentials).await?,
            true => self.checkouts.tree(pull, workspace, &commits, dirs, credentials).await?,
            false => self.checkouts.tree_of_plan(pull, workspace, &commits, dirs, credentials).await?,
        };
        drop(one_at_a_time);
        self.with_history(spec, tree, credentials).await
    }

    /// Returns the tree with the history that commands may ask git for, if the job has any such commands.
    pub async fn with_history(
        &self,
        spec: &TreeSpec,
        tree: WorkingTree,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        if spec.history {
            self.checkouts.bring_history(&spec.pull, &tree, credentials).await?;
        }
        Ok(tree)
    }

    /// Runs the steps of a job at its place. The caller holds the lock of the project's directory ([`DirectoryLocks::lock`]). `turn` is
    /// dropped when the last step has ended, before files are kept.
    pub async fn run<T: Send>(&self, spec: &JobSpec, place: &Place, io: &Io<'_>, turn: T) -> Ran {
        let (killed, timeline) = (AtomicBool::new(false), Timeline::new(spec.started));
        let counting = |line: &str| {
            timeline.line();
            (io.log)(line);
        };
        let io = Io { log: &counting, ..*io };
        if matches!(spec.plan, PlanUse::Make { .. }) {
            self.remove_plan_file(place).await;
        }
        let (ran, verification) = match self.secrets(spec, &io).await {
            Ok(secrets) => {
                let steps = JobSteps { killed: &killed, timeline: &timeline, secrets: &secrets };
                let ran = self.steps(spec, place, &io, &steps).await;
                let verification = match &ran {
                    Ok(ran) => self.verify(spec, place, &io, &steps, &ran.redactor).await,
                    Err(_) => None,
                };
                (ran, verification)
            }
            Err(broken) => (Err(broken), None),
        };
        drop(turn);
        let (mut plan, mut policies) = (None, None);
        let (ending, output) = match ran {
            Ok(StepsRan { output, policies: checked, changes, guards, part, file, .. }) => {
                let made = self.plan_made(spec, place, file).await;
                let PlanChanges { digest, incomparable } = changes;
                let whole = |made| PlanMade { changes: digest, incomparable, part, guards: Some(guards), ..made };
                (plan, policies) = (made.map(whole), checked);
                (Ending::Done, output)
            }
            Err(Broken::Stopped) => (Ending::Stopped, String::new()),
            Err(Broken::Problem(problem, output)) => (Ending::Broken(problem), output),
        };
        let mut errored_state = None;
        if spec.command.name == CommandName::Apply {
            self.remove_plan_file(place).await;
            let dir = &spec.project.id.dir;
            errored_state = self.errored_state_or_none(&spec.job, dir, spec.started, &place.tree.root).await;
        }
        let is_broken = matches!(ending, Ending::Broken(_));
        let state_lock = LockTrace {
            machine: state_lock::machine(),
            killed: killed.load(Ordering::Relaxed),
            // An ID that is masked unlocks nothing.
            met: find_lock(&output).filter(|lock| is_broken && !lock.id.contains(MASK)),
        };
        let (log_lines, JobTimes { steps, marks }) = timeline.into_times();
        let job = spec.job.clone();
        Ran { job, ending, output, plan, errored_state, state_lock, log_lines, policies, verification, steps, marks }
    }

    /// Runs the steps.
    async fn steps(
        &self,
        spec: &JobSpec,
        place: &Place,
        io: &Io<'_>,
        &JobSteps { killed, timeline, secrets }: &JobSteps<'_>,
    ) -> Result<StepsRan, Broken> {
        // Steps of other projects may have run in the tree since the job was prepared.
        if place.in_dir(|_| Ok(())).await.is_err() {
            return Err(Broken::Problem(StepProblem::DirectoryReplaced, String::new()));
        }
        let gone = |error: anyhow::Error| {
            tracing::warn!(job = spec.job.as_str(), error = format!("{error:#}"), "a plan cannot be read");
            Broken::Problem(StepProblem::PlanFileGone, String::new())
        };
        let folder = self.made_folder(&spec.run, &spec.tree.pull.id).await.map_err(|error| {
            let error = format!("{error:#}");
            tracing::warn!(job = spec.job.as_str(), error, "steps have no home directory");
            let problem = StepProblem::NotStarted { program: "the first step".into(), error, init: false };
            Broken::Problem(problem, String::new())
        })?;
        let (copies, plan) = sealed::of_job(self, spec, place).await.map_err(gone)?;
        let (plan, folder) = (plan.as_ref(), folder.as_ref());
        let job = StageJob { local: self, spec, place, io, killed, timeline, copies: &copies, plan, folder, secrets };
        let masked;
        let stage = || Stage::new(&job);
        let mut stage = match &spec.steps {
            Steps::Stage { first, steps } => {
                masked = self.before_stage(&job, first).await?;
                let mut stage = Stage::new(&StageJob { secrets: &masked, ..job });
                stage.guard_code(CodeCheck::BeforeSteps).await?;
                stage.run(steps).await?;
                stage
            }
            Steps::Version => {
                let mut stage = stage();
                stage.version().await?;
                stage
            }
            Steps::ForceUnlock { before, lock } => {
                let mut stage = stage();
                stage.guard_code(CodeCheck::BeforeSteps).await?;
                stage.run(before).await?;
                stage.shown.clear();
                stage.force_unlock(lock).await?;
                stage
            }
        };
        let policies = stage.policies_ran()?;
        let output = std::mem::take(&mut stage.shown).join("\n");
        let taken = self.take_plan(spec, place, &copies).await;
        let (file, made) = taken.map_err(|problem| Broken::Problem(problem, output.clone()))?.unzip();
        let (mut changes, mut guards) = (PlanChanges::default(), Vec::new());
        if let PlanUse::Make { changes_key, .. } = &spec.plan {
            let needs_guards = guards::need_json(&spec.project.guards, made.as_ref());
            guards = std::mem::take(&mut stage.code_guards);
            if changes_key.is_some() || needs_guards {
                let shown = Arc::new(stage.shown_json(made).await?);
                if let Some(key) = changes_key {
                    changes = stage.changes(key, &shown).await;
                }
                if needs_guards {
                    guards = stage.plan_guards(guards, &shown).await;
                }
            }
        }
        stage.made_of.note_part(in_output(&output));
        let (part, redactor) = (stage.made_of.part(), stage.redactor.clone());
        Ok(StepsRan { output, policies, changes, guards, part, file, redactor })
    }

    /// Runs the steps before a stage, and checks the plan that the stage reads. Returns the secrets of the stage.
    async fn before_stage(&self, job: &StageJob<'_>, first: &[Step]) -> Result<JobSecrets, Broken> {
        let StageJob { spec, place, plan, secrets, .. } = *job;
        if spec.plan.approved().is_some() && plan.is_none() {
            // Whatever has its name in the checkout is not what was approved.
            self.remove_plan_file(place).await;
        }
        let mut before = Stage::new(job);
        before.run(first).await?;
        if let (Some(approved), Some(code)) = (spec.plan.approved(), plan.and_then(|plan| plan.code.as_ref())) {
            before.check_approved(approved, code).await?;
            before.guard_approved().await?;
        }
        secrets.with_those_of_plan(&before).await
    }
}

impl Place {
    /// Returns the place of a project in a tree.
    pub fn new(tree: WorkingTree, dir: PathBuf, project: &ProjectId, tool: Tool) -> Place {
        let plan_file = dir.join(plan_file_name(project));
        Place { tree, dir, tool, plan_file }
    }
}

/// Returns the project's directory in a tree, or the reason that it cannot be used.
pub fn project_dir(root: &Path, dir: &str) -> Result<PathBuf, NoDirectory> {
    if matches!(Folder::open(root).and_then(|root| root.kind(Path::new(dir))), Ok(None)) {
        return Err(NoDirectory::Missing);
    }
    let path = inside(root, dir).map_err(|error| NoDirectory::Unusable(format!("{error:#}")))?;
    let real = root.canonicalize().ok().and_then(|root| path.strip_prefix(root).ok().map(Path::to_owned));
    if let Some(real) = real.filter(|real| *real != Path::new(dir).components().collect::<PathBuf>() && dir != ".") {
        // Rules, locks and owners apply to the path.
        let real = real.display();
        return Err(NoDirectory::Unusable(format!(
            "a link leads from it to `{real}`, which is another project; choose that one"
        )));
    }
    if path.is_dir() { Ok(path) } else { Err(NoDirectory::Missing) }
}

/// Returns Atlantis' name of a project's plan file: `<workspace>.tfplan`, or with the project's name in front.
fn plan_file_name(id: &ProjectId) -> String {
    match &id.name {
        Some(name) => format!("{}-{}.tfplan", name.replace('/', "::"), id.workspace),
        None => format!("{}.tfplan", id.workspace),
    }
}
