//! Execution of a job: builds the job spec for the runner, and converts the result into an outcome.

use super::super::cancel::CancelReason;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::guards;
use super::super::measured;
use super::super::requirements::PullFacts;
use super::super::secrets;
use super::super::state_locks::after_kill;
use super::{JobRun, Ready};
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::PlanId;
use crate::domain::command::CommandName;
use crate::domain::job_times::JobTimes;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::domain::state::PlanRecord;
use crate::locks::ConsumedPlan;
use crate::process::LINE_LIMIT;
use crate::runner::local::Io;
use crate::runner::local::state_lock::LockEvidence;
use crate::runner::result::{Ending, Ran, StepProblem};
use crate::runner::spec::{Answers, JobLimits, JobSpec, PlanReference, PlanUse, PolicySpec, Steps, ToolSpec};
use crate::wording::duration;
use anyhow::Result;
use std::convert::Infallible;
use std::sync::PoisonError;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum size of one step's output that is kept for the comment, in bytes; the log has more.
const OUTPUT_LIMIT: usize = 2 * 1024 * 1024;
/// Time between SIGINT and SIGKILL for commands that change nothing.
const GRACE: Duration = Duration::from_secs(10);
/// The same time for commands that change states: Terraform finishes the running operations and saves the state.
pub(in super::super) const APPLY_GRACE: Duration = Duration::from_secs(300);

/// Task of a job. An apply needs a plan that the commit of its beginning has consumed.
pub(in super::super) enum JobTask<'a> {
    /// Steps without a plan.
    Steps(Steps),
    /// Steps that make a plan. The other fields are as in [`PlanUse::Make`].
    Plan { steps: Steps, id: PlanId, dirs: Vec<String>, changes_key: Option<String> },
    /// Steps that check a plan against policies.
    Policies { steps: Steps, policies: PolicySpec, plan: &'a PlanRecord },
    /// Steps that apply a plan. `approved` is the text that its file must have, if that is compared.
    Apply { steps: Steps, plan: &'a ConsumedPlan, approved: Option<String> },
}

impl JobRun<'_> {
    /// Runs the job's steps. `turn` is released when the last one has ended.
    ///
    /// # Errors
    ///
    /// [`super::JobLeft`], if the job goes on without this server.
    pub(in super::super) async fn run<T: Send>(
        &mut self,
        config: &ProjectConfig,
        ready: &Ready,
        facts: &PullFacts,
        task: JobTask<'_>,
        turn: T,
    ) -> Result<Ran> {
        let (ctx, work, name) = (self.ctx, self.work, self.work.command.name);
        self.uses(&ready.place.tool);
        let (mut checked_with, mut read) = (None, None);
        let (steps, plan) = match task {
            JobTask::Steps(steps) => (steps, PlanUse::None),
            JobTask::Policies { steps, policies, plan } => {
                (checked_with, read) = (Some(policies), Some(plan));
                (steps, PlanUse::Check(PlanReference::from(plan)))
            }
            JobTask::Plan { steps, id, dirs, changes_key } => (steps, PlanUse::Make { id, dirs, changes_key }),
            JobTask::Apply { steps, plan, approved } => {
                read = Some(plan.record());
                (steps, PlanUse::Apply(PlanReference { approved, ..PlanReference::from(plan.record()) }))
            }
        };
        let is_verified = matches!(plan, PlanUse::Apply(_)) && work.rules.verify_applies && !work.pull.id.is_branch();
        let mut stages = match &steps {
            Steps::Stage { first, steps } => vec![first.as_slice(), steps],
            Steps::Version | Steps::ForceUnlock { .. } => Vec::new(),
        };
        stages.extend(is_verified.then_some(config.workflow.plan.as_slice()));
        let spec = JobSpec {
            job: self.record.id.clone(),
            run: work.run.id.clone(),
            started: self.record.started,
            tree: ready.tree.clone(),
            project: config.clone(),
            command: work.command.clone(),
            answers: answers(ctx, work, config, facts, &stages).await,
            steps,
            tool: ToolSpec {
                distribution: ready.place.tool.distribution,
                version: ready.place.tool.version.to_string(),
                terragrunt: ready.place.tool.terragrunt.as_ref().map(|by| by.version.to_string()),
            },
            limits: JobLimits {
                timeout: ctx.settings.step_limit(name),
                grace: if name.changes_state() { APPLY_GRACE } else { GRACE },
                output: OUTPUT_LIMIT,
            },
            secrets: ctx.settings.masked_variables.clone(),
            plan,
            policies: checked_with,
            keeps_no_files: self.record.remote.is_some(),
            verify: is_verified.then(|| ctx.settings.step_limit(CommandName::Plan)),
        };
        if let Some(remote) = self.record.remote.clone() {
            return self.run_remote(&remote, &spec, ready, read).await;
        }
        let (log, kill) = (|line: &str| self.output(line), CancellationToken::new());
        let io = Io { log: &log, stop: &work.cancel.token, kill: &kill };
        let started = tokio::time::Instant::now();
        let ran = tokio::select! {
            ran = ctx.runner.run(&spec, &ready.place, &io, turn) => ran,
            never = kill_at_shutdown(ctx, work, &kill) => match never {},
            never = self.note_long_apply(started) => match never {},
        };
        self.notes(&ran);
        Ok(ran)
    }

    /// Adds a line of its steps to the log.
    pub(super) fn output(&self, line: &str) {
        let numbers = self.log.numbered_line(line);
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).add(numbers);
    }

    /// Notes the times of its steps, and the traces of Terraform's lock on the state.
    pub(super) fn notes(&mut self, ran: &Ran) {
        let took = u64::try_from(measured::since(self.record.started).as_millis()).unwrap_or(u64::MAX);
        let sent = self.sent.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.times = JobTimes::checked(&ran.steps, &ran.marks, took, self.log.lines(), |line| sent.number_in_log(line));
        measured::steps(self.ctx, &self.work.run.id, &self.record.id, &self.times.steps);
        self.killed |= ran.state_lock.killed;
        self.record.state_lock.machine = Some(ran.state_lock.machine.clone());
        self.record.state_lock.met.clone_from(&ran.state_lock.met);
    }

    /// Logs once that an apply takes longer than other jobs may.
    pub(super) async fn note_long_apply(&self, started: tokio::time::Instant) -> Infallible {
        let (settings, name) = (&self.ctx.settings, self.work.command.name);
        if name.changes_state() && settings.apply_timeout.is_none() {
            tokio::time::sleep_until(started + settings.job_timeout).await;
            tracing::warn!(
                job = %self.record.id,
                pull = %self.work.pull.id,
                "`{}` has been running for {}, and goes on: without --job-timeout nothing interrupts it but `cancel --apply`",
                name.spoken(),
                crate::domain::duration::format(settings.job_timeout)
            );
        }
        std::future::pending().await
    }

    /// Returns the outcome of a job that was stopped or failed; `None` if it succeeded.
    pub(in super::super) fn failed(&self, config: &ProjectConfig, ran: &Ran) -> Option<Outcome> {
        match &ran.ending {
            Ending::Done => None,
            Ending::Stopped => Some(Outcome::Failed(Failure::Cancelled { by: self.work.cancel.by() })),
            Ending::Broken(problem) => Some(broken(self.ctx, self.work, config, problem, &ran.output)),
        }
    }
}

/// Returns the answers about the pull request for the steps of a job. The host is asked only if a step of the user could read them.
async fn answers(
    ctx: &Context,
    work: &CommandRun,
    config: &ProjectConfig,
    facts: &PullFacts,
    stages: &[&[Step]],
) -> Answers {
    let reads = |step: &Step| matches!(step, Step::Run { .. } | Step::Env { .. } | Step::Multienv { .. });
    let are_read = stages.iter().copied().flatten().any(reads);
    if !are_read || work.pull.id.is_branch() || !matches!(work.command.name, CommandName::Plan | CommandName::Apply) {
        return Answers::default();
    }
    let (approved, mergeable) = tokio::join!(facts.approved(ctx, work, config), facts.mergeable(ctx, work));
    Answers {
        approved: Some(approved.is_ok_and(|approval| approval.met)),
        mergeable: Some(mergeable.is_ok_and(|found| found.mergeable)),
    }
}

/// Returns the time for which a shutdown waits for interrupted steps; the rest is left to report how they ended.
fn until_killed(ctx: &Context) -> Duration {
    ctx.settings.interrupt_time() * 3 / 4
}

async fn kill_at_shutdown(ctx: &Context, work: &CommandRun, kill: &CancellationToken) -> Infallible {
    work.cancel.token.cancelled().await;
    if work.cancel.reason() == Some(&CancelReason::Shutdown) {
        tokio::time::sleep(until_killed(ctx)).await;
        kill.cancel();
    }
    std::future::pending().await
}

fn broken(ctx: &Context, work: &CommandRun, config: &ProjectConfig, problem: &StepProblem, output: &str) -> Outcome {
    let of_stage = work.command.name.spec().reason;
    let of_program = |init: bool| if init { Reason::Init } else { of_stage };
    let (reason, message) = match problem {
        StepProblem::NotStarted { program, error, init } => (of_program(*init), format!("{program}: {error}")),
        StepProblem::Exit { program, ending, init } => {
            (of_program(*init), format!("{program}: {ending}{}", confinement_hint(ctx, output)))
        }
        StepProblem::TimedOut { program, ending, millis } => {
            let time = duration(*millis);
            (Reason::Timeout, format!("{program}: interrupted after {time}, the limit set by --job-timeout ({ending})"))
        }
        StepProblem::Interrupted { program, ending, millis, killed } => {
            let (by, time) = (work.cancel.by(), duration(*millis));
            let lock = killed.then(|| format!(". {}", after_kill(ctx, &config.id, &LockEvidence::Unknown)));
            let message = format!(
                "{program}: interrupted by {by} after {time} ({ending}). Changes made until then remain; a new plan shows what \
                 is left{}",
                lock.unwrap_or_default()
            );
            (Reason::Interrupted, message)
        }
        StepProblem::Killed { program } => {
            let message = format!(
                "{program}: killed, because it did not end within {} s after the server began to stop. {}",
                until_killed(ctx).as_secs(),
                after_kill(ctx, &config.id, &LockEvidence::Unknown)
            );
            (Reason::Interrupted, message)
        }
        StepProblem::SecretNotRead { variable, reference, why } => {
            (Reason::Config, secrets::not_read(ctx, work, config, variable, (reference, why)))
        }
        StepProblem::Values { step, error } => (of_stage, format!("{step}: {error}")),
        StepProblem::OutputFilter { error } => (Reason::Config, format!("run.output: {error}")),
        StepProblem::DirectoryReplaced => {
            (Reason::Config, "a step removed the project directory or replaced it with a link; plan again".to_owned())
        }
        StepProblem::PlanFileGone => (Reason::NoPlan, "the plan file is gone; plan again".to_owned()),
        StepProblem::RemotePlan => (of_stage, REMOTE_PLAN.to_owned()),
        StepProblem::RemotePlanTooLong => (of_stage, remote_plan_too_long()),
        StepProblem::RemotePlanChanged => {
            let plan = command_for(&ctx.rendering.executable, CommandName::Plan, &config.id, &[]);
            let message =
                format!("The remote run now plans something else, so nothing was applied. To see it: `{plan}`");
            (Reason::StalePlan, message)
        }
        StepProblem::PlanTextDiffers | StepProblem::PlanCodeDiffers { .. } | StepProblem::PlanTextTooLong => {
            (Reason::StalePlan, not_approved(problem))
        }
        StepProblem::NoPlanFile => (Reason::Plan, NO_PLAN_FILE.to_owned()),
        StepProblem::Policies { set, error } => {
            let set = if set.is_empty() { String::new() } else { format!(" of the set `{set}`") };
            (Reason::Policy, format!("The policies{set} could not be evaluated: {error}"))
        }
        StepProblem::PlanNotKept { error } => {
            let message = format!("The plan file could not be kept: {error}");
            return Outcome::Errored(Fault { reason: Reason::Internal, message, output: String::new() });
        }
        StepProblem::NotStartedElsewhere { executor, why } => (of_stage, not_started(executor, why)),
        StepProblem::LostElsewhere { executor, why } => (Reason::Interrupted, lost(ctx, work, config, executor, why)),
        StepProblem::EndedElsewhere { executor, why } => (Reason::Interrupted, ended_elsewhere(executor, why)),
        StepProblem::LocalState => (Reason::Config, local_state(work, config)),
        StepProblem::Guarded { guards } => return Outcome::Failed(guards::refusal(ctx, work, config, guards)),
        StepProblem::OtherWorkspace { set } => return refused_outcome(Reason::Config, other_workspace(set, config)),
        StepProblem::TargetOfApply => return refused_outcome(Reason::NotPermitted, target_of_apply(ctx)),
    };
    Outcome::Errored(Fault { reason, message, output: output.to_owned() })
}

fn target_of_apply(ctx: &Context) -> String {
    format!(
        "`apply` does not accept `-target`, because it applies the saved plan. Plan with it: `{} plan -- -target=ADDRESS`",
        ctx.rendering.executable
    )
}

/// Returns a sentence to add to the message of a process that failed with this output, if the confinement of steps may have denied it
/// access to a file; else an empty text.
pub(in crate::execute) fn confinement_hint(ctx: &Context, output: &str) -> &'static str {
    if ctx.runner.confines() && (output.contains("Permission denied") || output.contains("permission denied")) {
        ". This server confines steps; its operator can let them write to more directories with `--step-writable`"
    } else {
        ""
    }
}

const NO_PLAN_FILE: &str = "The workflow's plan stage has the built-in `plan` step, but left no plan file";

const REMOTE_PLAN: &str = "The run of this plan is remote, and the plan has no file: `show` steps and policy checks need one. Let the \
                           workspace save plans (a `cloud` block, Terraform 1.6 or newer), or give it the execution mode local";

fn remote_plan_too_long() -> String {
    format!(
        "The remote plan's text is too long to compare with an apply (limits: {} MiB, {} KiB per line). Plan less at once, such as with \
         `-- -target=ADDRESS`, or let the workspace save plans (a `cloud` block, Terraform 1.6 or newer)",
        OUTPUT_LIMIT >> 20,
        LINE_LIMIT >> 10
    )
}

fn not_approved(problem: &StepProblem) -> String {
    match problem {
        StepProblem::PlanCodeDiffers { what } => format!(
            "The server cannot confirm that the plan file contains the checkout's code, so nothing was applied: {what}. A module without a \
             fixed version may have changed since; if none has, find out what this pull request runs in a plan before you plan again"
        ),
        StepProblem::PlanTextTooLong => format!(
            "The plan file was made at another executor, and the plan's text is too long to compare with it (limits: {} MiB, {} KiB per \
             line), so nothing was applied. Plan less at once, such as with `-- -target=ADDRESS`, or let one executor \
             plan and apply",
            OUTPUT_LIMIT >> 20,
            LINE_LIMIT >> 10
        ),
        _ => "The plan file differs from the approved text, so nothing was applied. The real changes are shown here. Find \
              out what this pull request runs in a plan before you plan again"
            .to_owned(),
    }
}

fn not_started(executor: &str, why: &str) -> String {
    format!("The executor `{executor}` has not run the job, and nothing was changed: {why}")
}

fn lost(ctx: &Context, work: &CommandRun, config: &ProjectConfig, executor: &str, why: &str) -> String {
    let lock = after_kill(ctx, &config.id, &LockEvidence::Unknown);
    let changed = match work.command.name.changes_state() {
        true => "Changes made until then remain; the server does not repeat it",
        false => "Nothing was changed",
    };
    format!("The executor `{executor}` has lost the job: {why}. {changed}. {lock}")
}

fn ended_elsewhere(executor: &str, why: &str) -> String {
    format!("The executor `{executor}` ended the job: {why}. Nothing was changed")
}

fn local_state(work: &CommandRun, config: &ProjectConfig) -> String {
    let stage = if work.command.name.changes_state() { "apply" } else { "plan" };
    format!(
        "The state of `{}` is a file in its checkout (the backend `local`), which would be lost with the job on its executor. Give it a \
         backend that is reached over the network, or let the server run it: in `repos.yaml`, a rule of `executor` with `{stage}: local`",
        config.id.label()
    )
}

fn refused_outcome(reason: Reason, because: String) -> Outcome {
    Outcome::Failed(Failure::Refused { reason, because })
}

fn other_workspace(set: &str, config: &ProjectConfig) -> String {
    format!(
        "The variable `TF_WORKSPACE` is `{set}`, and the workspace of this project is `{}`. Take the variable away from the \
         server's environment and the workflow's `env` steps, or give the project `workspace: {set}` in `atlantis.yaml`",
        config.id.workspace
    )
}
