//! `version`, `import`, `state rm` and `force-unlock`: commands that run Terraform without a plan of their own; and `approve_policies`.

use super::current::Current;
use super::freeze::FreezeGuard;
use super::job::{self, JobRun, JobTask};
use super::others::Teller;
use super::plan::{answer_stop, answer_stop_with_hooks, lock_failure, wanted_lock};
use super::prepare::{self, Need, Prepared, ScheduleScope, Stop};
use super::requirements::{self, PullFacts};
use super::{
    CommandAnswer, CommandRun, Context, Ended, StatusUpdate, force_unlock, hooks, lock, permissions, policies,
    recorder, state_locks,
};
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::reply::Message;
use crate::domain::state::{Job, ProjectState, ProjectStatus};
use crate::locks::LockEvent;
use crate::runner::spec::Steps;
use anyhow::Result;
use jiff::Timestamp;

/// Runs it.
pub(super) async fn run(ctx: &Context, work: &CommandRun) -> Result<Ended> {
    recorder::begin(ctx, work).await?;
    let prepared = match prepare::check_out(ctx, work, Need::Files).await {
        Ok(prepared) => prepared,
        Err(stop) => return answer_stop(ctx, work, stop).await,
    };
    if let Some(answer) = hooks::before(ctx, work, &prepared.tree).await? {
        recorder::answer(ctx, work, answer).await?;
        return Ok(Ended::Answered);
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
        let outcome = match project(ctx, work, prepared, config, (&facts, &current)).await {
            Ok(outcome) => outcome,
            Err(stop) => job::refused(work, config, job::stop_outcome(ctx, work, stop)?),
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
    (facts, current): (&PullFacts, &Current),
) -> Result<JobOutcome, Stop> {
    if let Some(failure) = permissions::refused(ctx, work, config).await? {
        return Ok(job::refused(work, config, Outcome::Failed(failure)));
    }
    let changes_state = work.command.name.changes_state();
    if changes_state {
        let wanted = &config.import_requirements;
        let (checks, _) = requirements::check(ctx, work, config, wanted, facts, prepared, None).await?;
        if checks.iter().any(|check| !check.met) {
            return Ok(job::refused(work, config, Outcome::Failed(Failure::Requirements(checks))));
        }
    }
    let frozen = FreezeGuard::of(ctx, work, config).await?;
    let (wanted, head) = (wanted_lock(ctx, work, config), work.pull.head.commit.clone());
    let (is_strict, teller) = (wanted.is_strict(), Teller::new(ctx));
    let (at_beginning, at_end) = (teller.clone(), teller.clone());
    let _permit = ctx.admission.enter_when_free().await;
    if changes_state && let Some(failure) = current.refusal(ctx, work).await {
        return Ok(job::refused(work, config, Outcome::Failed(failure)));
    }
    let begun = JobRun::begin(ctx, work, config, move |tx, job| {
        if !changes_state {
            return Ok(Ok(()));
        }
        if let Some(failure) = frozen.refusal(tx, Timestamp::now())? {
            return Ok(Err(failure));
        }
        let beginning = LockEvent::StateChangeBegins { project: wanted, job: job.id.clone(), head };
        Ok(at_beginning.record(tx, &beginning)?.refusal.map_or(Ok(()), |refusal| Err(lock_failure(refusal, None))))
    });
    let begun = begun.await?;
    teller.committed(ctx).await;
    let mut job = match begun {
        Ok((job, ())) => job,
        Err(failure) => return Ok(job::refused(work, config, Outcome::Failed(failure))),
    };
    let outcome = match steps(&mut job, prepared, config, facts).await {
        Ok(output) => Outcome::Ran { output },
        Err(outcome) => outcome,
    };
    work.cancel.note_change();
    let outcome = job.outcome(outcome);
    let success = outcome.outcome.is_success();
    let pull = work.pull.id.clone();
    let entry = super::audit_entry(work, &config.id, if success { "done" } else { "failed" }.into());
    let project = config.id.clone();
    let ended = job.end(outcome, move |tx, record| {
        if !changes_state {
            return Ok(());
        }
        tx.audit(&entry)?;
        // What others have planned meanwhile may be of a state in between.
        if !success && !is_strict {
            return Ok(());
        }
        let changed = LockEvent::StateChanged {
            pull: pull.clone(),
            project: project.clone(),
            outputs: true,
            at: Timestamp::now(),
        };
        match at_end.record(tx, &changed)?.dropped().iter().any(|plan| plan.project == project && plan.pull == pull) {
            true => tx.put_project_status(&pull, &discarded(&project, record)),
            false => Ok(()),
        }
    });
    let ended = ended.await?;
    teller.committed(ctx).await;
    Ok(ended)
}

/// The project's plan is worth nothing since this job.
fn discarded(project: &ProjectId, job: &Job) -> ProjectStatus {
    ProjectStatus {
        project: project.clone(),
        state: ProjectState::PlanDiscarded,
        head: job.head.clone(),
        summary: None,
        job: Some(job.id.clone()),
        updated: Timestamp::now(),
        waits_for: Vec::new(),
    }
}

/// What Terraform printed, or how it broke.
async fn steps(
    job: &mut JobRun<'_>,
    prepared: &Prepared,
    config: &ProjectConfig,
    facts: &PullFacts,
) -> Result<String, Outcome> {
    let (ready, _directory) = job.ready(prepared, config).await?;
    let stage = |steps: &[Step]| Steps::Stage { first: Vec::new(), steps: steps.to_vec() };
    let steps = match job.work.command.name {
        CommandName::Version => Steps::Version,
        CommandName::Import => stage(&config.workflow.import),
        _ => stage(&config.workflow.state_rm),
    };
    let ran = job.run(config, &ready, facts, JobTask::Steps(steps), ()).await;
    job.failed(config, &ran).map_or(Ok(ran.output), Err)
}
