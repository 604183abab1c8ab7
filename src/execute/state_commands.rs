//! `version`, `import`, `state rm` and `force-unlock`: commands that run Terraform without a plan of their own. Also `approve_policies` and
//! `lock`.

use super::answer::CommandAnswer;
use super::command_run::{CommandRun, Ended, audit_entry};
use super::context::Context;
use super::current::Current;
use super::job::{self, ExecutorSlot, JobRun, JobTask};
use super::job_end::{JobChange, StateChangeEnd};
use super::not_run::NotRun;
use super::notices::NoticeWriter;
use super::plan::{answer_stop, answer_stop_with_hooks, lock_failure, wanted_lock};
use super::preconditions::Preconditions;
use super::prepare::{self, Need, Prepared, ScheduleScope, Stop};
use super::requirements::{self, PullFacts};
use super::status_update::StatusUpdate;
use super::{force_unlock, hooks, lock, names, parts, permissions, policies, recorder, state_locks};
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::reply::Message;
use crate::locks::{LockChange, LockEvent};
use crate::runner::spec::Steps;
use anyhow::Result;

/// Runs one of these commands.
pub(super) async fn run(ctx: &Context, work: &CommandRun) -> Result<Ended> {
    recorder::begin(ctx, work).await?;
    let prepared = match prepare::check_out(ctx, work, Need::Files).await {
        Ok(prepared) => prepared,
        Err(stop) => return answer_stop(ctx, work, stop).await,
    };
    if let Some(answer) = hooks::before(ctx, work, &prepared.tree).await? {
        return recorder::answer(ctx, work, answer).await;
    }
    let answered = match work.command.name {
        CommandName::ApprovePolicies => policies::approve::answer(ctx, work, &prepared).await,
        CommandName::ForceUnlock => force_unlock::answer(ctx, work, &prepared).await,
        CommandName::Lock => lock::answer(ctx, work, &prepared).await,
        _ => projects(ctx, work, &prepared).await,
    };
    let answer = match answered {
        Ok(answer) => answer,
        Err(stop) => return answer_stop_with_hooks(ctx, work, &prepared, stop).await,
    };
    hooks::answer_before(ctx, work, &prepared.tree, answer).await
}

async fn projects(ctx: &Context, work: &CommandRun, prepared: &Prepared) -> Result<CommandAnswer, Stop> {
    let pull = work.pull.id.clone();
    let planned: Vec<_> = ctx
        .store
        .read(move |view| Ok(view.project_statuses(&pull)?.into_iter().map(|status| status.project).collect()))
        .await?;
    let wanted =
        if work.command.name == CommandName::Version { ScheduleScope::Planned(&planned) } else { ScheduleScope::Plan };
    let schedule = prepare::schedule(ctx, work, prepared, wanted).await?;
    let configs: Vec<&ProjectConfig> = schedule.groups.iter().flatten().collect();
    if configs.is_empty() {
        let because = "No project of this pull request is planned.".into();
        let mut answer = CommandAnswer::message(Message::NoProjects { because });
        if ctx.settings.silence_no_projects {
            answer.body = None;
        }
        return Ok(answer);
    }
    if work.command.name == CommandName::Import && configs.len() > 1 {
        return Err(Stop::Fault(Fault {
            reason: Reason::Config,
            message: "import runs on one project: choose it with `-d`, `-w` or `-p`".into(),
            output: String::new(),
        }));
    }
    let (facts, current) = (PullFacts::default(), Current::new(work));
    let mut outcomes = Vec::new();
    let mut remarks = Vec::new();
    for config in configs {
        let outcome = match project(ctx, work, prepared, config, &facts, &current).await {
            Ok(outcome) => outcome,
            Err(reason) => job::refused_outcome(work, config, reason.outcome(ctx, work)?),
        };
        remarks.extend(state_locks::remark(ctx, &work.pull.id, &outcome).await);
        outcomes.push(outcome);
    }
    Ok(CommandAnswer::results(work, outcomes, remarks, StatusUpdate::Nothing))
}

async fn project(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
    facts: &PullFacts,
    current: &Current,
) -> Result<JobOutcome, NotRun> {
    if let Some(failure) = permissions::denial(ctx, work, config).await? {
        return Err(failure.into());
    }
    let changes_state = work.command.name.changes_state();
    let mut preconditions = match changes_state {
        true => Some(checked(ctx, work, prepared, config, facts, current).await?),
        false => None,
    };
    let (wanted, head) = (wanted_lock(ctx, work, config), work.pull.head.commit.clone());
    let (is_strict, shares_state, notices) = (wanted.is_strict(), config.shares_state, NoticeWriter::new(ctx));
    let at_beginning = notices.clone();
    let slot = ExecutorSlot::wait(ctx, work, config).await?;
    let _permit = job::enter(ctx, work, slot.as_ref()).await;
    if let Some(preconditions) = &mut preconditions {
        if let Some(failure) = current.refusal(ctx, work).await {
            return Err(failure.into());
        }
        preconditions.draft = current.draft(ctx, work, config).await;
    }
    let statuses = ctx.statuses.clone();
    let begun = JobRun::begin(ctx, work, config, slot, move |tx, job| {
        let Some(preconditions) = preconditions else { return Ok(false) };
        if let Some(failure) = preconditions.refusal(tx)? {
            return Err(failure.into());
        }
        // Otherwise the next plan finds which of the projects with this state had an old name.
        if !shares_state {
            names::record(tx, &wanted.lock.holder.pull, vec![wanted.lock.project.clone()])?;
        }
        let beginning = LockEvent::StateChangeBegins { project: wanted, job: job.id.clone(), head };
        let follows = at_beginning.record(tx, &beginning)?;
        if let Some(refusal) = follows.refusal {
            return Err(lock_failure(refusal, None).into());
        }
        let is_own = |change: &LockChange| matches!(change, LockChange::SetStatus(of, _) if *of == job.pull);
        let was_done = follows.changes.iter().any(is_own);
        if was_done {
            parts::post_overall_statuses(tx, &statuses, job)?;
        }
        Ok(was_done)
    });
    let (mut job, was_done) = begun.await?;
    notices.after_commit(ctx).await;
    let outcome = steps(&mut job, prepared, config, facts).await?;
    work.cancel.note_change();
    let outcome = job.outcome(outcome);
    let change = match changes_state {
        true => match state_changed(work, config, &outcome, is_strict) {
            JobChange::StateChanged(change) => {
                JobChange::StateChanged(Box::new(StateChangeEnd { resets_applied: was_done, ..*change }))
            }
            other => other,
        },
        false => JobChange::Nothing,
    };
    Ok(job.end(outcome, change).await?)
}

/// Returns the change that comes with the end of an import or `state rm`.
pub(super) fn state_changed(
    work: &CommandRun,
    config: &ProjectConfig,
    outcome: &JobOutcome,
    is_strict: bool,
) -> JobChange {
    let success = outcome.outcome.is_success();
    JobChange::StateChanged(Box::new(StateChangeEnd {
        // Plans that others made meanwhile may be of an intermediate state.
        invalidates_plans: success || is_strict,
        outputs: true,
        because: format!("{} of {} changed the state", work.command.name.spoken(), config.id.label()),
        audit: audit_entry(work, &config.id, if success { "done" } else { "failed" }.into()),
        ..StateChangeEnd::default()
    }))
}

/// Returns the preconditions of a change of the project's state. They are met now, as are its requirements.
async fn checked(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
    facts: &PullFacts,
    current: &Current,
) -> Result<Preconditions, NotRun> {
    let mut preconditions = Preconditions::load(ctx, work, config, &work.cancel).await?;
    preconditions.draft = current.draft(ctx, work, config).await;
    preconditions.check(ctx).await?;
    let wanted = &config.import_requirements;
    let (checks, _) = requirements::check(ctx, work, config, wanted, facts, prepared, None).await?;
    match checks.iter().all(|check| check.met) {
        true => Ok(preconditions),
        false => Err(Failure::Requirements(checks).into()),
    }
}

/// Runs the steps.
async fn steps(
    job: &mut JobRun<'_>,
    prepared: &Prepared,
    config: &ProjectConfig,
    facts: &PullFacts,
) -> Result<Outcome> {
    let (ready, _directory) = match job.ready(prepared, config).await {
        Ok(ready) => ready,
        Err(outcome) => return Ok(outcome),
    };
    let stage = |steps: &[Step]| Steps::Stage { first: Vec::new(), steps: steps.to_vec() };
    let steps = match job.work.command.name {
        CommandName::Version => Steps::Version,
        CommandName::Import => stage(&config.workflow.import),
        CommandName::StateRm => stage(&config.workflow.state_rm),
        other => {
            let message = format!("`{}` has no steps", other.spoken());
            return Ok(Outcome::Errored(Fault { reason: Reason::Internal, message, output: String::new() }));
        }
    };
    let ran = job.run(config, &ready, facts, JobTask::Steps(steps), ()).await?;
    Ok(job.failed(config, &ran).unwrap_or(Outcome::Ran { output: ran.output }))
}
