//! `force-unlock ID`: releases Terraform's lock on a state if one of our own dead runs left it. Refuses for somebody else's lock, and for
//! one that a run of ours may still hold.

use super::answer::CommandAnswer;
use super::command_run::{CommandRun, audit_entry};
use super::context::Context;
use super::job::{self, ExecutorSlot, JobRun, JobTask};
use super::job_end::JobChange;
use super::not_run::NotRun;
use super::permissions;
use super::prepare::{self, Prepared, ScheduleScope, Stop};
use super::requirements::PullFacts;
use super::state_locks::{LOOKED_AT, foreign, holder, same_state};
use super::status_update::StatusUpdate;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::config::workflow::Step;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{Job as JobRecord, StateLock};
use crate::domain::{ProjectId, RepoId};
use crate::runner::spec::Steps;
use crate::store::View;
use crate::store::logs::Logs;
use crate::terraform::state_lock;
use anyhow::Result;
use jiff::Timestamp;

/// Releases the lock of the project that it belongs to. [`super::state_commands::run`] calls this between the hooks.
pub(super) async fn answer(ctx: &Context, work: &CommandRun, prepared: &Prepared) -> Result<CommandAnswer, Stop> {
    let id = work.command.positional.first().cloned().unwrap_or_default();
    let named = id.clone();
    let naming = ctx.store.read(move |view| view.ended_jobs_naming(&named, LOOKED_AT)).await?;
    let schedule = prepare::schedule(ctx, work, prepared, ScheduleScope::Plan).await?;
    let mut configs: Vec<&ProjectConfig> = schedule.groups.iter().flatten().collect();
    if configs.len() > 1 {
        let seen = |config: &ProjectConfig| naming.iter().any(|job| seen_at(job, &id, &work.pull.id.repo, &config.id));
        configs.retain(|config| seen(config));
    }
    let [config] = configs.as_slice() else {
        return Err(Stop::Fault(Fault {
            reason: Reason::Config,
            message: format!(
                "A state lock belongs to one project: choose it with `-d`, `-w` or `-p`, such as `{} force-unlock -d DIR {id}`",
                ctx.rendering.executable
            ),
            output: String::new(),
        }));
    };
    let outcome = match project(ctx, work, prepared, config, &id, &naming).await {
        Ok(outcome) => outcome,
        Err(reason) => job::refused_outcome(work, config, reason.outcome(ctx, work)?),
    };
    Ok(CommandAnswer::results(work, vec![outcome], Vec::new(), StatusUpdate::Nothing))
}

/// Returns true if this job found or left the lock, on this project.
fn seen_at(job: &JobRecord, id: &str, repo: &RepoId, project: &ProjectId) -> bool {
    let trace = &job.state_lock;
    let known = trace.met.iter().chain(&trace.left).any(|lock| lock.id == id);
    known && job.pull.repo == *repo && same_state(job, project)
}

async fn project(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    config: &ProjectConfig,
    id: &str,
    naming: &[JobRecord],
) -> Result<JobOutcome, NotRun> {
    let repo = work.pull.id.repo.clone();
    if let Some(failure) = permissions::denial(ctx, work, config).await? {
        return Err(failure.into());
    }
    let known = naming.iter().filter(|job| seen_at(job, id, &repo, &config.id));
    let Some(lock) =
        known.flat_map(|job| job.state_lock.met.iter().chain(&job.state_lock.left)).find(|lock| lock.id == id)
    else {
        return Err(unseen(ctx, &config.id, id).into());
    };
    let dead = ctx.store.read(move |view| view.broken_jobs(&repo, Timestamp::now(), LOOKED_AT)).await?;
    if holder(lock, &config.id, &dead).is_none() {
        return Err(not_ours(lock).into());
    }
    let slot = ExecutorSlot::wait(ctx, work, config).await?;
    let _permit = job::enter(ctx, work, slot.as_ref()).await;
    let (repo, project, url) = (work.pull.id.repo.clone(), config.id.clone(), ctx.settings.atlantis_url.clone());
    let logs = ctx.logs.clone();
    let hosts = ctx.hosts.clone();
    let begun = JobRun::begin(ctx, work, config, slot, move |tx, _| match alive(tx, &logs, &repo, &project)? {
        Some(job) => Err(still_runs(&job, &hosts.pull_name(&job.pull), &url).into()),
        None => Ok(()),
    });
    let (mut job, ()) = begun.await?;
    let outcome = without_local(ctx, config, steps(&mut job, prepared, config, id).await?);
    let outcome = job.outcome(outcome);
    let done = if outcome.outcome.is_success() { "freed" } else { "not freed" };
    let entry = audit_entry(work, &config.id, format!("state lock {id} {done}"));
    Ok(job.end(outcome, JobChange::Audited(entry)).await?)
}

fn unseen(ctx: &Context, project: &ProjectId, id: &str) -> Failure {
    let plan = command_for(&ctx.rendering.executable, CommandName::Plan, project, &[]);
    let because = format!(
        "no run of this project has seen the state lock `{id}`, so its holder is unknown. `{plan}` shows the present lock and its ID"
    );
    Failure::Refused { reason: Reason::NotPermitted, because }
}

fn not_ours(lock: &StateLock) -> Failure {
    let because = format!("the state lock `{}` {}", lock.id, foreign(lock));
    Failure::Refused { reason: Reason::NotPermitted, because }
}

/// Returns the running job of ours that could hold the lock.
fn alive(view: &View<'_>, logs: &Logs, repo: &RepoId, project: &ProjectId) -> Result<Option<JobRecord>> {
    let jobs = view.unfinished_jobs()?;
    // Also a drift run or a policy check: their `run` steps may run anything.
    let may_lock = |job: &JobRecord| job.kind != CommandName::Version.as_str();
    let may_hold =
        |job: &&JobRecord| job.pull.repo == *repo && same_state(job, project) && may_lock(job) && logs.may_run(job);
    Ok(jobs.into_iter().find(|job| may_hold(&job)))
}

/// Returns the refusal while that job could hold the lock.
fn still_runs(job: &JobRecord, pull: &str, url: &str) -> Failure {
    let (kind, id) = (job.kind.replace('_', " "), &job.id);
    let because = format!(
        "the {kind} of {pull} runs on this project and may hold the state lock: {url}/jobs/{id} . Wait until it ends, then plan again to \
         see if the lock remains"
    );
    Failure::Refused { reason: Reason::NotPermitted, because }
}

/// Replaces the error for a local state file, whose lock ends with its process: there is nothing to release.
fn without_local(ctx: &Context, config: &ProjectConfig, outcome: Outcome) -> Outcome {
    match &outcome {
        Outcome::Errored(fault) if state_lock::is_local(&fault.output) => {
            let plan = command_for(&ctx.rendering.executable, CommandName::Plan, &config.id, &[]);
            let because = format!(
                "the state is a local file, whose lock ended with the process that held it: the next `{plan}` takes it over"
            );
            Outcome::Failed(Failure::Refused { reason: Reason::NotPermitted, because })
        }
        _ => outcome,
    }
}

/// Returns the steps of the plan stage before Terraform needs its state: environment, generated files, `init`.
fn preparation(config: &ProjectConfig) -> Vec<Step> {
    let plan = &config.workflow.plan;
    let mut steps: Vec<Step> = match plan.iter().position(|step| matches!(step, Step::Plan { .. })) {
        Some(at) => plan[..at].to_vec(),
        None => plan
            .iter()
            .filter(|step| matches!(step, Step::Init { .. } | Step::Env { .. } | Step::Multienv { .. }))
            .cloned()
            .collect(),
    };
    if !steps.iter().any(|step| matches!(step, Step::Init { .. } | Step::Run { .. })) {
        steps.push(Step::Init { extra_args: Vec::new() });
    }
    steps
}

/// Runs the steps.
async fn steps(job: &mut JobRun<'_>, prepared: &Prepared, config: &ProjectConfig, id: &str) -> Result<Outcome> {
    let (ready, _directory) = match job.ready(prepared, config).await {
        Ok(ready) => ready,
        Err(outcome) => return Ok(outcome),
    };
    let steps = Steps::ForceUnlock { before: preparation(config), lock: id.to_owned() };
    let ran = job.run(config, &ready, &PullFacts::default(), JobTask::Steps(steps), ()).await?;
    Ok(job.failed(config, &ran).unwrap_or(Outcome::Ran { output: ran.output }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::PullId;
    use crate::domain::state::{JobState, StateLockTrace};
    use crate::store::Store;

    #[tokio::test]
    async fn only_a_job_that_this_process_has_may_hold_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (store, logs) = (Store::open(dir.path()).unwrap(), Logs::new(dir.path()));
        let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        let project = ProjectId { dir: ".".into(), workspace: "default".into(), name: None };
        let job = JobRecord {
            id: "a".repeat(32).into(),
            run: "r".into(),
            pull: PullId { repo: repo.clone(), number: 1 },
            kind: "apply".into(),
            project: Some(project.clone()),
            user: "alice".into(),
            head: "h".into(),
            state: JobState::Running,
            summary: String::new(),
            outcome: None,
            started: Timestamp::now(),
            finished: None,
            state_lock: StateLockTrace::default(),
            remote: None,
        };
        let (recorded, writing) = (job.clone(), logs.create(&job.id).unwrap());
        store.write(move |tx| tx.put_job(&recorded)).await.unwrap();
        let asked = logs.clone();
        let refused = async || {
            let (logs, repo, project) = (asked.clone(), repo.clone(), project.clone());
            store.read(move |view| alive(view, &logs, &repo, &project)).await.unwrap()
        };
        assert_eq!(refused().await.map(|found| found.id), Some(job.id));
        // Its end could not be recorded, or its process was killed.
        drop(writing);
        assert_eq!(refused().await, None);
    }
}
