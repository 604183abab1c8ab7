//! Drift runs: plan the projects of a branch from its own code, independent of pull requests. A run posts nothing on pull requests, takes
//! neither project locks nor Terraform's locks on states, and skips projects that a pull request holds. A remediation may apply its plans
//! (`applies`); it then holds each project for that time.

mod applies;
mod apply_end;
mod issues;
mod plans;
mod remedy;
mod scheduled;
mod taken_up;

use super::cancel::Cancel;
use super::command_run::{CommandRun, new_run};
use super::context::Context;
use super::permissions::RefusedProjects;
use super::prepare::{self, Need, Prepared, ScheduleScope, Stop};
use super::request_refused::RequestRefused;
use super::requirements::PullFacts;
use super::{hooks, make_room, measured, recorder};
use crate::config::ProjectConfig;
use crate::domain::command::{BranchTargets, Command, CommandName, Trigger};
use crate::domain::drift::{DriftBlock, DriftDetection, DriftHold, Remediation};
use crate::domain::outcome::RunEnd;
use crate::domain::state::Run;
use crate::domain::{Base, CommitSha, Head, Login, ProjectId, PullId, PullRequest, PullState, RepoId};
use crate::schedule::Schedule;
use anyhow::anyhow;
use applies::DriftApplies;
pub(super) use apply_end::of_taken_up as end_of_taken_up;
use issues::DetectionIssues;
pub(crate) use issues::switch_off as switch_off_issue;
use jiff::Timestamp;
use plans::{DriftPlans, OfBranch};
pub(crate) use remedy::Remedy;
use remedy::{RemedyRun, end_of_run};
pub(crate) use scheduled::{ScheduledDetection, default_branch};
use scheduled::{drop_of_gone, end_of_check};
pub(crate) use taken_up::follow;
use tokio::sync::Semaphore;

/// Maximum number of projects of one run.
pub(crate) const MAX_PROJECTS: usize = 300;
/// Argument of each plan, which only reads: it neither waits for a command that changes the state nor leaves a lock when killed.
const WITHOUT_LOCK: &str = "-lock=false";

/// Request for a drift run.
#[derive(Debug, Clone)]
pub(crate) struct DriftRequest {
    pub repo: RepoId,
    pub branch: String,
    /// A commit of the branch; absent for its tip.
    pub commit: Option<CommitSha>,
    /// A tag in place of the commit.
    pub tag: Option<String>,
    /// The branch, the commit or the tag, as it was requested.
    pub reference: String,
    /// Projects to plan.
    pub wanted: BranchTargets,
    /// Person who made the request.
    pub user: Login,
    /// Set if the server begins it by itself.
    pub scheduled: Option<ScheduledDetection>,
}

/// Plans the projects, records the result of each, and only then notifies receivers. One run at a time in a repository: all of them use the
/// same trees.
///
/// # Errors
///
/// The reason for which there is no result. Earlier results stay recorded.
pub(crate) async fn detect(
    ctx: &Context,
    request: &DriftRequest,
    cancel: &Cancel,
) -> Result<DriftDetection, RequestRefused> {
    run(ctx, request, None, cancel).await.map(|(found, _)| found)
}

/// Plans the projects to show the changes that would remove drift, or also applies them. The result is recorded with its texts, and
/// receivers are not notified. The second part of `remedy` interrupts a running apply; `cancel` lets it finish.
///
/// # Errors
///
/// The reason for which nothing was planned, or the error that ended the whole run.
pub(crate) async fn remediate(
    ctx: &Context,
    request: &DriftRequest,
    remedy: (&Remedy, &Cancel),
    cancel: &Cancel,
) -> Result<Remediation, RequestRefused> {
    let (_, remediation) = run(ctx, request, Some(remedy), cancel).await?;
    remediation.ok_or_else(|| RequestRefused::Broken(anyhow!("a remediation was not recorded")))
}

async fn run(
    ctx: &Context,
    request: &DriftRequest,
    remedy: Option<(&Remedy, &Cancel)>,
    cancel: &Cancel,
) -> Result<(DriftDetection, Option<Remediation>), RequestRefused> {
    let pull = PullId::of_branches(request.repo.clone());
    let tree = ctx.checkouts.tree_path(&pull, "branches");
    let beginning = async {
        let one_at_a_time = ctx.runner.directories.lock(&tree).await;
        if let Some((remedy, _)) = remedy {
            remedy.refuse_early(ctx, request).await?;
        }
        let remedy = remedy.map(|(remedy, _)| remedy);
        Ok::<_, RequestRefused>((one_at_a_time, begin(ctx, request, remedy, cancel).await?))
    };
    let (_one_at_a_time, work) = tokio::select! {
        biased;
        () = cancel.token.cancelled() => return Err(RequestRefused::Stopped),
        begun = beginning => begun?,
    };
    let _room = match make_room(ctx, &work).await {
        Err(Stop::Fault(fault)) => return Err(RequestRefused::Broken(anyhow!(fault.message))),
        room => room?,
    };
    recorder::begin(ctx, &work).await?;
    let remedy = match remedy {
        Some((remedy, interrupt)) => Some(RemedyRun::begin(ctx, &work, request, remedy, interrupt).await?),
        None => None,
    };
    let found = plan_projects(ctx, request, &work, remedy.as_ref()).await;
    // What goes on without this server is ended by the next one.
    let ending = remedy.as_ref().filter(|remedy| !remedy.has_left());
    let remediation = ending.map(|remedy| remedy.ended(ctx, &found));
    let ends_applies = ending.and_then(|remedy| remedy.applies.as_ref()).map(end_of_run);
    let fault = found.as_ref().err().map(|refused| ctx.redactor.redact(&refused.describe()));
    let (finished, answered, end) = (Some(Timestamp::now()), found.is_ok(), end_of_plans(&found));
    let run = Run { finished, answered, end, fault, ..work.run.clone() };
    let ends_check = end_of_check(request, &run, &found);
    let rows: Vec<_> = found.iter().flat_map(|found| &found.projects).map(|(row, _)| row.clone()).collect();
    let drops_gone = found.as_ref().ok().filter(|_| remedy.is_none()).and_then(|_| drop_of_gone(request, &rows));
    let issues = found.iter().find(|_| remedy.is_none()).and_then(|found| DetectionIssues::of(ctx, request, found));
    let keeps_issues = issues.is_some();
    let told = found.iter().filter(|_| remedy.is_none() && request.notifies());
    let told = told.flat_map(|found| ctx.notifier.of_drift(found));
    let told: Vec<_> = told.collect();
    // Ends that are recorded now have an earlier progress.
    let recorded = remediation.clone().or_else(|| remedy.as_ref().map(RemedyRun::recorded));
    recorder::ends_with(ctx, remedy.as_ref().and_then(|remedy| remedy.applies.as_ref()), move |tx| {
        ends_applies.map_or(Ok(()), |end| end(tx))?;
        rows.iter().try_for_each(|row| tx.put_drift(row))?;
        drops_gone.map_or(Ok(()), |drop_gone| drop_gone(tx))?;
        ends_check(tx)?;
        issues.map_or(Ok(()), |issues| issues.record(tx))?;
        recorded.iter().try_for_each(|remediation| tx.put_remediation(remediation))?;
        told.iter().try_for_each(|one| tx.notify(one))?;
        tx.put_run(&run)
    })
    .await?;
    if keeps_issues {
        ctx.outbox.wake(&pull);
    }
    measured::run_ended(ctx, &work, measured::of_drift(found.as_ref()));
    Ok((found?, remediation))
}

/// Returns the end of the run of the plans; `None` if it was stopped.
fn end_of_plans(found: &Result<DriftDetection, RequestRefused>) -> Option<RunEnd> {
    let has_failed = match found {
        Ok(found) => found.projects.iter().any(|(row, _)| plans::is_error(row)),
        Err(RequestRefused::Stopped) => return None,
        Err(_) => true,
    };
    Some(if has_failed { RunEnd::Failed } else { RunEnd::Succeeded })
}

/// Creates the run on the commit to plan. Records nothing yet.
async fn begin(
    ctx: &Context,
    request: &DriftRequest,
    remedy: Option<&Remedy>,
    cancel: &Cancel,
) -> Result<CommandRun, RequestRefused> {
    let DriftRequest { repo, branch, commit, tag, reference, .. } = request;
    let rules = ctx.global.rules(repo, branch);
    let applies = remedy.is_some_and(|remedy| remedy.apply);
    if !rules.branch_allowed {
        let text = format!("the branch {branch:?} is not served: `branch` in `repos.yaml` does not match it");
        return Err(RequestRefused::Forbidden(text));
    }
    if applies && !ctx.global.names_branch(repo, branch) {
        let text = format!(
            "remediations apply only branches that `repos.yaml` names, so that no unreviewed branch is applied: set `branch: /^{}$/` \
             for the repository there",
            regex::escape(branch)
        );
        return Err(RequestRefused::Forbidden(text));
    }
    let address = clone_url(ctx, repo)?;
    let credentials = prepare::credentials_of(ctx, repo).await;
    let tip = ctx.checkouts.branch_tip(repo, &address, branch, credentials.as_ref()).await?;
    let tip = tip.ok_or_else(|| RequestRefused::NotFound(format!("there is no branch {branch:?} in {repo}")))?;
    let tagged = match tag {
        Some(tag) => {
            let found = ctx.checkouts.tag_commit(repo, &address, tag, credentials.as_ref()).await?;
            Some(found.ok_or_else(|| RequestRefused::NotFound(format!("there is no tag {tag:?} in {repo}")))?)
        }
        None => None,
    };
    let commit = match tagged.as_ref().or(commit.as_ref()) {
        Some(commit) if !ctx.checkouts.contains(repo, &tip, commit).await? => {
            return Err(RequestRefused::NotFound(format!("{reference} is no commit of the branch {branch:?}")));
        }
        Some(commit) if applies && *commit != tip => {
            let text = format!(
                "{reference} is not the tip of {branch:?}, which is {tip}: an apply would undo the commits merged since"
            );
            return Err(RequestRefused::Conflict(text));
        }
        Some(commit) => commit.clone(),
        None => tip,
    };
    let command = Command {
        extra_args: vec![WITHOUT_LOCK.to_owned()],
        at: Some(commit.clone()),
        ..Command::new(CommandName::Plan, Trigger::Drift, request.user.clone())
    };
    let pull = stand_in(repo, branch.clone(), &request.user, commit, address);
    let run = Run { everything: request.is_of_all(), ..new_run(&pull, &command) };
    Ok(CommandRun::new(run, pull, command, rules, cancel.clone()))
}

/// Returns the address of a repository for git.
fn clone_url(ctx: &Context, repo: &RepoId) -> Result<String, RequestRefused> {
    let host = ctx.hosts.for_repo(repo).map_err(|error| RequestRefused::Host(error.to_string()))?;
    host.clone_url(repo).ok_or_else(|| RequestRefused::Wrong(format!("{repo} cannot be a repository")))
}

/// Returns a stand-in for a pull request, for checkout, steps and hooks: head and base are the same commit of the branch.
fn stand_in(repo: &RepoId, branch: String, user: &Login, commit: CommitSha, clone_url: String) -> PullRequest {
    let RepoId { owner, name, .. } = repo.clone();
    PullRequest {
        id: PullId::of_branches(repo.clone()),
        title: String::new(),
        url: String::new(),
        author: user.clone(),
        head: Head {
            branch: branch.clone(),
            commit: commit.clone(),
            repo_owner: owner,
            repo_name: name,
            clone_url: None,
        },
        base: Base { branch, commit },
        draft: false,
        state: PullState::Open,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url,
    }
}

/// Plans the projects; for a remediation, only those that it selects.
async fn plan_projects(
    ctx: &Context,
    request: &DriftRequest,
    work: &CommandRun,
    remedy: Option<&RemedyRun>,
) -> Result<DriftDetection, RequestRefused> {
    let prepared = prepare::check_out(ctx, work, Need::Branch).await?;
    if hooks::before(ctx, work, &prepared.tree).await?.is_some() {
        let text = "a pre-workflow hook failed, and the server stops then (--fail-on-pre-workflow-hook-error)";
        return Err(RequestRefused::Wrong(text.to_owned()));
    }
    let (schedule, applies) = schedule(ctx, request, work, &prepared, remedy).await?;
    let facts = PullFacts::default();
    // Each plan is applied before the next project is planned. Nobody waits for a scheduled detection.
    let in_parallel = schedule.parallel_plan && applies.is_none() && request.scheduled.is_none();
    let plans = DriftPlans {
        ctx,
        work,
        prepared: &prepared,
        facts: &facts,
        schedule: &schedule,
        slots: Semaphore::new(if in_parallel { ctx.settings.parallel_pool_size.max(1) } else { 1 }),
        of: OfBranch { request, applies },
    };
    let projects = plans.run_all(&RefusedProjects::default()).await;
    let has_errors = projects.as_ref().map_or(true, |all| all.iter().any(|(row, _)| plans::is_error(row)));
    hooks::after(ctx, work, &prepared.tree, has_errors).await;
    if work.cancel.token.is_cancelled() {
        return Err(RequestRefused::Stopped);
    }
    Ok(DriftDetection {
        id: work.run.id.clone(),
        repo: request.repo.clone(),
        branch: request.branch.clone(),
        reference: request.reference.clone(),
        commit: work.pull.head.commit.clone(),
        at: Timestamp::now(),
        projects: projects?,
    })
}

/// Returns the schedule of a run, and the applies of its plans, if there are any.
async fn schedule<'a>(
    ctx: &Context,
    request: &DriftRequest,
    work: &CommandRun,
    prepared: &Prepared,
    remedy: Option<&'a RemedyRun>,
) -> Result<(Schedule, Option<DriftApplies<'a>>), RequestRefused> {
    let mut schedule = prepare::schedule(ctx, work, prepared, ScheduleScope::Branch(&request.wanted)).await?;
    request.leave_out(&mut schedule)?;
    let count: usize = schedule.groups.iter().map(Vec::len).sum();
    if count > MAX_PROJECTS {
        let text =
            format!("these are {count} projects, and {MAX_PROJECTS} are looked at in one call: name some of them");
        return Err(RequestRefused::Wrong(text));
    }
    let is_meant = |config: &ProjectConfig| remedy.is_none_or(|remedy| remedy.means(config));
    schedule.groups.iter_mut().for_each(|group| group.retain(is_meant));
    schedule.groups.retain(|group| !group.is_empty());
    let applies = remedy.and_then(|remedy| Some(DriftApplies { remedy, work: remedy.applies.as_ref()? }));
    schedule.abort_on_execution_order_fail = applies.is_some();
    match applies {
        Some(_) => add_dependencies(&mut schedule),
        None => {
            // Plans that are not applied need not wait for each other.
            schedule.groups = vec![schedule.groups.concat()];
            schedule.dependencies.clear();
        }
    }
    if applies.is_some() && schedule.groups.iter().all(Vec::is_empty) {
        let text = "no drift is known for these projects at this ref and commit, so nothing is applied: call /api/drift/detect first";
        return Err(RequestRefused::Conflict(text.to_owned()));
    }
    Ok((schedule, applies))
}

/// Adds what a project waits for in a drift run besides its known units: in every lock mode, the projects that `depends_on` names. A unit
/// whose files do not name all its dependencies waits for all units. No later check looks for dependencies that are not applied.
fn add_dependencies(schedule: &mut Schedule) {
    let Schedule { groups, dependencies, units, .. } = schedule;
    let all: Vec<&ProjectConfig> = groups.iter().flatten().collect();
    for config in &all {
        let is_named = |on: &ProjectId| on.name.as_ref().is_some_and(|name| config.depends_on.contains(name));
        let is_unclear = units.get(&config.id).is_some_and(|of| of.may_be_more);
        let on = all.iter().map(|on| &on.id).filter(|on| is_named(on) || (is_unclear && units.contains_key(on)));
        dependencies.entry(config.id.clone()).or_default().extend(on.cloned());
    }
}

/// Returns the reason for which a project is skipped, and the way to release it.
fn skip_reason(ctx: &Context, block: &DriftBlock) -> String {
    let (name, executable) = (ctx.hosts.pull_name(&block.pull), &ctx.rendering.executable);
    match block.how {
        _ if block.pull.is_branch() => {
            format!("{name} still holds it. It is released when its apply ends, or at the next start of the server")
        }
        DriftHold::Locked { applied: false } => format!(
            "{name} has locked it, and may have caused the difference. It is released when {name} is merged or closed, or by \
             `{executable} unlock` there"
        ),
        DriftHold::Locked { applied: true } => format!(
            "{name} has locked it and applied something that is not merged. It is released when {name} is merged or closed, or by \
             `{executable} unlock` there"
        ),
        DriftHold::Owned(state) => {
            format!("{name} owns it ({}). To release it, comment there: `{}`", state.title(), state.way_out(executable))
        }
        DriftHold::AtWork => format!(
            "a command of {name} plans it or changes its state now. It is released when the command ends; `{executable} cancel --apply` \
             there interrupts the command"
        ),
    }
}
