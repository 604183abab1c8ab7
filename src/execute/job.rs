//! One job: its record and its log, the tree and the tool that it needs. Its execution and the texts about it are in [`run`].

mod remote;
mod run;
mod sent_lines;
mod trees;

pub(super) use remote::{ExecutorSlot, JobLeft, enter, executor, follow, is_left};
pub(super) use run::{APPLY_GRACE, JobTask, confinement_hint};
pub(super) use trees::{base_tree, tree, tree_of_plan};

use super::command_run::{CommandRun, job_state, plan_limit};
use super::context::Context;
use super::ids::random_bits;
use super::job_end::{JobChange, JobEnd, JobFacts};
use super::not_run::NotRun;
use super::prepare::Prepared;
use super::{measured, recorder, secrets};
use crate::checkout::WorkingTree;
use crate::config::ProjectConfig;
use crate::domain::drift::DRIFT_JOB;
use crate::domain::job_times::JobTimes;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{CommitStatus, Job as JobRecord, JobState, PlanRecord, PlanTree, StateLockTrace};
use crate::domain::{AutoApply, CommitSha, Distribution, JobId, PlanId, ProjectId};
use crate::executors::plan_tree;
use crate::executors::spec::RemoteSpec;
use crate::render::statuses::Statuses;
use crate::runner::local::state_lock::machine;
use crate::runner::local::{self, NoDirectory, Place};
use crate::runner::result::PlanMade;
use crate::runner::spec::{ToolSpec, TreeSpec};
use crate::store::Tx;
use crate::store::logs::LogWriter;
use crate::terraform::install::{Tool, ToolRequest};
use crate::terraform::summary::plan_summary;
use anyhow::Result;
use jiff::Timestamp;
use sent_lines::SentLines;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

/// Reason that the changes of a plan are not compared with those of others.
const OTHER_EXECUTOR: &str = "it was made at another executor than that of its apply, and the server does not trust the changes that \
                              this executor reports";

/// Place where the steps of a project can run.
pub(super) struct Ready {
    /// The tree that it lies in.
    pub(super) tree: TreeSpec,
    /// The tree, the directory and the tool on this machine.
    pub(super) place: Place,
}

/// A job that began: its record is committed.
pub(super) struct JobRun<'a> {
    pub(super) ctx: &'a Context,
    pub(super) work: &'a CommandRun,
    pub(super) record: JobRecord,
    pub(super) log: LogWriter,
    /// True if a process of it ended by SIGKILL or was left running.
    killed: bool,
    began: Instant,
    /// The lines of its steps in the log.
    sent: Mutex<SentLines>,
    /// Times of its steps, after they have run.
    times: JobTimes,
    tool: Option<String>,
    silenced: bool,
    /// The packed tree of a plan that is made on an executor.
    plan_tree: Option<PlanTree>,
    /// Its place on the executor.
    _slot: Option<OwnedSemaphorePermit>,
}

impl<'a> JobRun<'a> {
    /// Commits the job's beginning, with `change` (such as a plan's consumption) in the same transaction. Returns the job and the result of
    /// `change`, which may refuse the beginning. With a slot, the job runs at its executor.
    pub(super) async fn begin<C: Send + 'static>(
        ctx: &'a Context,
        work: &'a CommandRun,
        config: &ProjectConfig,
        slot: Option<ExecutorSlot>,
        change: impl FnOnce(&Tx<'_>, &JobRecord) -> Result<C, NotRun> + Send + 'static,
    ) -> Result<(JobRun<'a>, C), NotRun> {
        let (change, spec) = (secrets::audited(work, config, change), work.command.name.spec());
        let kind = if work.looks_for_drift() { DRIFT_JOB } else { spec.word };
        let remote = slot.as_ref().map(|slot| slot.remote.clone());
        let record = JobRecord { remote, ..new_record(work, kind, Some(config.id.clone())) };
        let pending = spec.has_status.then(|| ctx.statuses.project_pending(work.command.name, &config.id, &record.id));
        // Before the job is recorded: without room for its log it does not begin, and consumes no plan.
        let log = ctx.logs.create(&record.id)?;
        let begun = recorder::begin_job(ctx, work, record.clone(), config.id.clone(), pending, change).await;
        match begun {
            Ok(changed) => {
                let silenced = config.silence_pr_comments.contains(&work.command.name);
                let (tool, plan_tree, _slot) = (None, None, slot.map(|slot| slot.permit));
                let (began, sent, times) = (Instant::now(), Mutex::default(), JobTimes::default());
                let job = JobRun {
                    ctx,
                    work,
                    record,
                    log,
                    killed: false,
                    began,
                    sent,
                    times,
                    tool,
                    silenced,
                    plan_tree,
                    _slot,
                };
                Ok((job, changed))
            }
            Err(reason) => {
                drop(log);
                ctx.logs.remove(&record.id);
                Err(reason)
            }
        }
    }

    /// Returns a job that an earlier server has begun, and that went on at its executor.
    pub(super) fn taken_up(
        ctx: &'a Context,
        work: &'a CommandRun,
        record: JobRecord,
        spec: &RemoteSpec,
    ) -> Result<JobRun<'a>> {
        let log = ctx.logs.create(&record.id)?;
        let silenced = spec.job.project.silence_pr_comments.contains(&work.command.name);
        let ago = Duration::try_from(Timestamp::now().duration_since(record.started)).unwrap_or_default();
        let began = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
        let ToolSpec { distribution, version, terragrunt } = &spec.job.tool;
        let tool = Some(tool_title(*distribution, version, terragrunt.as_deref()));
        let plan_tree = Some(plan_tree(&spec.tree));
        let _slot = record.remote.as_ref().and_then(|remote| ctx.executors.free_slot(&remote.executor));
        let (sent, times) = (Mutex::default(), JobTimes::default());
        Ok(JobRun { ctx, work, record, log, killed: false, began, sent, times, tool, silenced, plan_tree, _slot })
    }

    /// Prepares the tree, directory and tool of a job that needs no plan. The job has the project's directory for itself until the guard is
    /// dropped. The error is the outcome of the job.
    pub(super) async fn ready(
        &self,
        prepared: &Prepared,
        config: &ProjectConfig,
    ) -> Result<(Ready, OwnedMutexGuard<()>), Outcome> {
        let (ctx, work) = (self.ctx, self.work);
        let internal = |error: anyhow::Error| {
            Outcome::Errored(Fault { reason: Reason::Internal, message: format!("{error:#}"), output: String::new() })
        };
        let ready = match ready(ctx, work, prepared, config).await {
            Ok(ready) => ready,
            Err(reason) => return Err(reason.outcome(ctx, work).unwrap_or_else(internal)),
        };
        let guard = ctx.runner.directories.lock(&ready.place.dir).await;
        Ok((ready, guard))
    }

    /// Sets the tool that the outcome names.
    fn uses(&mut self, tool: &Tool) {
        let terragrunt = tool.terragrunt.as_ref().map(|by| by.version.to_string());
        self.tool = Some(tool_title(tool.distribution, &tool.version.to_string(), terragrunt.as_deref()));
    }

    /// Returns the outcome, and writes it as the log's last line.
    pub(super) fn outcome(&self, outcome: Outcome) -> JobOutcome {
        let last = match &outcome {
            Outcome::Errored(fault) => fault.message.clone(),
            Outcome::Failed(failure) => format!("Refused: {}", one_line(self.ctx, failure)),
            Outcome::PoliciesChecked(report) => Statuses::policy_line(report),
            _ => "Done.".to_owned(),
        };
        self.log.line(&last);
        let project = self.record.project.clone().unwrap_or(ProjectId {
            dir: ".".into(),
            workspace: "default".into(),
            name: None,
        });
        JobOutcome {
            command: self.work.command.name,
            project,
            job: Some(self.record.id.clone()),
            millis: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            tool: self.tool.clone(),
            silenced: self.silenced,
            outcome,
        }
    }

    /// Returns the record of a plan that it made, bound to all its inputs except other projects.
    pub(super) fn bound_plan(
        &self,
        config: &ProjectConfig,
        id: PlanId,
        base: CommitSha,
        tool: String,
        made: PlanMade,
        output: &str,
    ) -> PlanRecord {
        let (path, sha256) = made.file.map(|file| (file.path, file.sha256)).unzip();
        // By this digest approvals of an earlier plan count: a job with fewer rights than the apply must not choose it.
        let is_claimed = self.plan_tree.is_some() && config.executors.plan != config.executors.apply;
        let (changes, incomparable) = match made.changes {
            Some(_) if is_claimed => (None, Some(OTHER_EXECUTOR.to_owned())),
            changes => (changes, made.incomparable),
        };
        PlanRecord {
            id,
            pull: self.work.pull.id.clone(),
            project: config.id.clone(),
            head: self.work.pull.head.commit.clone(),
            base,
            base_branch: self.work.pull.base.branch.clone(),
            config_digest: config.digest(),
            tool,
            path,
            sha256,
            summary: plan_summary(output).unwrap_or_default(),
            made: Timestamp::now(),
            job: self.record.id.clone(),
            consumed_by: None,
            left: made.left,
            dependencies: Vec::new(),
            may_depend_on_more: false,
            max_age: plan_limit(self.ctx, config),
            inputs: None,
            changes,
            incomparable,
            part: made.part,
            guards: super::guards::recorded(self.work, config, made.guards),
            tree: self.plan_tree.clone(),
            auto_apply: AutoApply::Never,
            arguments: self.work.command.extra_args.clone(),
            deleted: config.deleted,
        }
    }

    /// Commits the job's end with its change.
    pub(super) async fn end(self, outcome: JobOutcome, change: JobChange) -> Result<JobOutcome> {
        let (ctx, work) = (self.ctx, self.work);
        recorder::end_job(ctx, work, self.ended(outcome, change)).await
    }

    /// Returns true if a process of the job was killed, so that its lock on the state may be left.
    pub(super) fn was_killed(&self) -> bool {
        self.killed
    }

    /// Returns the job's end with its change, for a caller that commits it together with more.
    pub(super) fn ended(self, outcome: JobOutcome, change: JobChange) -> JobEnd {
        measured::job_ended(self.ctx, self.work, self.record.started, &outcome);
        self.ended_again(outcome, change)
    }

    /// Does the same for a job whose end was counted before.
    pub(super) fn ended_again(self, outcome: JobOutcome, change: JobChange) -> JobEnd {
        let status = self.work.command.name.spec().has_status.then(|| self.ctx.statuses.project(&outcome));
        let mut record = self.record;
        record.state = job_state(&outcome);
        record.finished = Some(Timestamp::now());
        record.summary = summary(self.ctx, &outcome, status.as_ref());
        record.outcome = Some(outcome.clone());
        let may_lock = record.locks_state();
        record.state_lock.untold = self.killed && may_lock && !tells_of_locks(&outcome);
        self.ctx.orphaned_locks.add(&record);
        JobEnd::new(outcome, JobFacts { job: record, times: self.times, status, change }, self.log)
    }
}

/// Returns the name of a tool for people, such as `Terraform 1.11.4`.
fn tool_title(distribution: Distribution, version: &str, terragrunt: Option<&str>) -> String {
    let by = terragrunt.map(|by| format!(" by Terragrunt {by}")).unwrap_or_default();
    format!("{} {version}{by}", distribution.title())
}

/// Returns true if its comment mentions the state lock that a killed command may have left, as that of an interrupted apply does.
fn tells_of_locks(outcome: &JobOutcome) -> bool {
    matches!(&outcome.outcome, Outcome::Errored(fault) if fault.reason == Reason::Interrupted)
}

/// Returns the record of a job that runs from now on.
pub(super) fn new_record(work: &CommandRun, kind: &str, project: Option<ProjectId>) -> JobRecord {
    JobRecord {
        id: JobId::from_bits(random_bits()),
        run: work.run.id.clone(),
        pull: work.pull.id.clone(),
        kind: kind.to_owned(),
        project,
        user: work.command.user.clone(),
        head: work.pull.head.commit.clone(),
        state: JobState::Running,
        summary: String::new(),
        outcome: None,
        started: Timestamp::now(),
        finished: None,
        state_lock: StateLockTrace { machine: Some(machine()), ..StateLockTrace::default() },
        remote: None,
    }
}

/// Returns an outcome that was decided before a job began; its status is still posted.
pub(super) fn refused_outcome(work: &CommandRun, config: &ProjectConfig, outcome: Outcome) -> JobOutcome {
    JobOutcome {
        command: work.command.name,
        project: config.id.clone(),
        job: None,
        millis: 0,
        tool: None,
        silenced: config.silence_pr_comments.contains(&work.command.name),
        outcome,
    }
}

fn summary(ctx: &Context, outcome: &JobOutcome, status: Option<&CommitStatus>) -> String {
    match (&outcome.outcome, status) {
        (_, Some(status)) => status.description.clone(),
        (Outcome::Errored(fault), None) => fault.message.lines().next().unwrap_or_default().to_owned(),
        (Outcome::Failed(failure), None) => one_line(ctx, failure),
        (Outcome::PoliciesChecked(report), None) => Statuses::policy_line(report),
        _ => "done".to_owned(),
    }
}

fn one_line(ctx: &Context, failure: &Failure) -> String {
    match failure {
        Failure::Locked(holder) => format!("locked by {}", ctx.hosts.pull_name(&holder.pull)),
        Failure::Owned(owner) => format!("owned by {}", ctx.hosts.pull_name(&owner.holder.pull)),
        Failure::Requirements(checks) => {
            let unmet = checks.iter().filter(|check| !check.met).map(|check| crate::wording::unmet(&check.name));
            unmet.collect::<Vec<_>>().join(", ")
        }
        Failure::Dependency { missing } => format!("waits for {}", missing.join(", ")),
        Failure::NotPlanned { missing } => {
            format!("no plan of {}", missing.iter().map(ProjectId::label).collect::<Vec<_>>().join(", "))
        }
        Failure::StalePlan { because } | Failure::NoPlan { because } | Failure::Unplanned { because } => {
            because.clone()
        }
        Failure::Cancelled { by } => format!("cancelled by {by}"),
        Failure::EarlierGroupFailed => "an earlier group failed".into(),
        Failure::Refused { because, .. } => because.clone(),
    }
}

/// Prepares the tree, directory and tool of a project that needs no plan.
pub(super) async fn ready(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
) -> Result<Ready, NotRun> {
    let (spec, tree) = tree(ctx, work, prepared, config).await?;
    let dir = project_dir(&tree.root, &config.id.dir)?;
    let tool = resolve_tool(ctx, config, &tree).await?;
    Ok(Ready { tree: spec, place: Place::new(tree, dir, &config.id, tool) })
}

/// Returns the project's directory in a tree, or the fault if it cannot be used.
pub(super) fn project_dir(root: &Path, dir: &str) -> Result<PathBuf, Fault> {
    local::project_dir(root, dir).map_err(|error| {
        let message = match error {
            NoDirectory::Missing => {
                format!("The directory `{dir}` does not exist at this commit. Was it deleted or renamed?")
            }
            NoDirectory::Unusable(error) => format!("The directory `{dir}` cannot be used: {error}"),
        };
        Fault { reason: Reason::Config, message, output: String::new() }
    })
}

/// Waits for the directory of a project, and for those of the units that it depends on: Terragrunt asks them there for their outputs.
pub(super) async fn lock_directories(
    ctx: &Context,
    root: &Path,
    dir: &Path,
    on: &[String],
) -> Vec<OwnedMutexGuard<()>> {
    let on = on.iter().filter_map(|on| project_dir(root, on).ok());
    ctx.runner.directories.lock_all(on.chain([dir.to_owned()]).collect()).await
}

/// Returns the distribution that reads a project's files.
fn distribution(ctx: &Context, config: &ProjectConfig) -> Distribution {
    config.distribution.unwrap_or(ctx.settings.default_tf_distribution)
}

/// Returns the binary for a project. The error is worded for people.
pub(super) async fn resolve_tool(ctx: &Context, config: &ProjectConfig, tree: &WorkingTree) -> Result<Tool, Fault> {
    let required = match config.terraform_version {
        Some(_) => Vec::new(),
        None => {
            super::prepare::required_versions(&tree.root, config, distribution(ctx, config)).await.unwrap_or_default()
        }
    };
    let wanted = ToolRequest {
        version: config.terraform_version.clone(),
        distribution: config.distribution,
        required,
        terragrunt: config.terragrunt,
        terragrunt_version: config.terragrunt_version.clone(),
    };
    ctx.installer.resolve(&wanted).await.map_err(|error| {
        let message = ctx.redactor.redact(&format!("{error:#}"));
        Fault { reason: Reason::Init, message, output: String::new() }
    })
}
