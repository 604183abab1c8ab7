//! Automerge by the settings, the repo config and the command: the record of the run, and the effects once all projects are applied.

use super::answer::reply_without_run;
use super::command_run::CommandRun;
use super::context::Context;
use super::ids::random_bits;
use crate::domain::automerge::Automerge;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::outcome::JobOutcome;
use crate::domain::reply::Message;
use crate::domain::state::{Effect, JobState, Run};
use crate::domain::{PullId, RunId};
use crate::render::RenderOptions;
use crate::reply::comments;
use crate::schedule::Schedule;
use crate::store::{Tx, View};
use crate::vcs::Hosts;
use anyhow::Result;

/// Returns the way to merge the pull request of an apply; `None` if it is not merged.
pub(super) fn wanted(ctx: &Context, work: &CommandRun, schedule: &Schedule) -> Option<Automerge> {
    let (settings, command, rules) = (&ctx.settings, &work.command, &work.rules);
    if work.after_merge.is_some()
        || command.auto_merge_disabled
        || !rules.automerges(schedule.automerge, settings.automerge)
    {
        return None;
    }
    let (method, impossible) = method(ctx, work);
    let mut projects = schedule.groups.iter().flatten().peekable();
    let how = Automerge {
        base_branch: work.pull.base.branch.clone(),
        method,
        impossible,
        delete_branch: projects.peek().is_some() && projects.all(|project| project.delete_source_branch_on_merge),
        unless_label: settings.disable_automerge_label.clone(),
    };
    Some(how.by(command.auto_merge_method.as_ref()))
}

/// Returns the method of the server's configuration, and the reason for which it is impossible.
fn method(ctx: &Context, work: &CommandRun) -> (Option<String>, Option<String>) {
    let of_rules = work.rules.merge_method.as_ref().map(|method| method.name.clone());
    let impossible = of_rules.as_deref().and_then(|method| impossible(ctx, work, method));
    (of_rules.or_else(|| ctx.settings.automerge_method.clone()), impossible)
}

/// Returns the reason for which the method of `repos.yaml` is impossible on the host of the pull request. An entry with a pattern may be
/// about several hosts.
fn impossible(ctx: &Context, work: &CommandRun, method: &str) -> Option<String> {
    let repo = &work.pull.id.repo;
    let known = &ctx.hosts.for_repo(repo).ok()?.profile().merge_methods;
    (!known.contains(&method)).then(|| {
        format!(
            "`merge_method: {method}` of the server's `repos.yaml` is not possible on {}, which has: {}. To merge it \
             by another method: `{} apply --auto-merge-method METHOD`",
            repo.host,
            known.join(", "),
            ctx.rendering.executable
        )
    })
}

/// Returns the way to merge a pull request whose projects are all applied, as the apply of the last of them requested. `None` if it
/// requested no merge, if a merge is under way, or if this command or something else forbids it.
pub(super) async fn pending_merge(ctx: &Context, work: &CommandRun) -> Result<Option<Automerge>> {
    let command = &work.command;
    let is_off = command.auto_merge_disabled || work.rules.automerge == Some(false);
    if !command.target.is_all() || work.after_merge.is_some() || is_off {
        return Ok(None);
    }
    let pull = work.pull.clone();
    let read = move |view: &View<'_>| {
        let (id, head) = (&pull.id, &pull.head.commit);
        let is_under_way = view.last_merge(id)?.is_some_and(|merge| merge.note.is_empty());
        let Some(how) = view.last_apply(id, head)?.and_then(|(run, _)| run.automerge) else { return Ok(None) };
        let is_due = !is_under_way
            && view.fault(id)?.is_none()
            && view.is_planned_at(id, head)?
            && how.is_due(&pull, &view.project_statuses(id)?);
        Ok(is_due.then_some(how))
    };
    let mut how = ctx.store.read(read).await?;
    // An operator may have corrected the method since.
    if let Some(how) = how.as_mut().filter(|how| how.impossible.is_some()) {
        (how.method, how.impossible) = method(ctx, work);
    }
    Ok(how.map(|how| how.by(command.auto_merge_method.as_ref())))
}

/// Enqueues merges and their comments where there is no context, as in a transaction.
#[derive(Clone)]
pub(crate) struct Automerger {
    hosts: Hosts,
    rendering: RenderOptions,
}

impl Automerger {
    /// Creates it with the wording of the server.
    pub(crate) fn new(ctx: &Context) -> Automerger {
        Automerger { hosts: ctx.hosts.clone(), rendering: ctx.rendering.clone() }
    }

    /// Enqueues the merge that follows an apply, with its comment; returns true if there is one. An apply that failed in part merges
    /// nothing. A pull request is not merged either if its last plan of everything failed as a whole or was of another head. The plan of a
    /// last layer merges if it has no changes, as the last apply requested.
    pub(crate) fn record(&self, tx: &Tx<'_>, run: &Run, outcomes: &[JobOutcome]) -> Result<bool> {
        let how = match run.trigger {
            Trigger::Replan => after_layer(tx, run, outcomes)?,
            _ => run.automerge.clone(),
        };
        let Some(how) = how else { return Ok(false) };
        // An apply of everything that finds all of it applied requests the refused merge again.
        let is_without_work = outcomes.is_empty() && !(run.command == CommandName::Apply && run.everything);
        if is_without_work || outcomes.iter().any(|outcome| !outcome.outcome.is_success()) {
            return Ok(false);
        }
        let Some(pull) = tx.pull(&run.pull)?.filter(|pull| pull.head.commit == run.head) else { return Ok(false) };
        if tx.fault(&run.pull)?.is_some() || !how.is_due(&pull, &tx.project_statuses(&run.pull)?) {
            return Ok(false);
        }
        // Otherwise some projects that no command named were never planned.
        if !tx.is_planned_at(&run.pull, &run.head)? {
            tracing::info!(pull = %run.pull, "automerge: not all of it was planned at this head");
            return Ok(false);
        }
        let refusal = RunId::from_bits(random_bits());
        let merge = Effect::Merge { head: run.head.clone(), how, refusal, again: false };
        tx.post(&run.pull, self.told(&run.pull).into_iter().chain([merge]))?;
        Ok(true)
    }

    fn told(&self, pull: &PullId) -> Vec<Effect> {
        comments::effects_on(&self.hosts, &self.rendering, &reply_without_run(pull, Message::Automerging))
    }
}

/// Returns the merge that the last apply requested, for an automatic re-plan. `None` unless all of that apply succeeded, and its projects
/// are planned for the first time. No apply has waited for a plan that was invalidated or that waited for another pull request.
fn after_layer(tx: &Tx<'_>, run: &Run, outcomes: &[JobOutcome]) -> Result<Option<Automerge>> {
    let Some((apply, jobs)) = tx.last_apply(&run.pull, &run.head)? else { return Ok(None) };
    let is_good =
        |row: &String| serde_json::from_str(row).is_ok_and(|row: serde_json::Value| row["outcome"] == "success");
    if !jobs.iter().all(|job| job.state == JobState::Succeeded) || !apply.results.iter().all(is_good) {
        return Ok(None);
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.command == CommandName::Plan) {
        let seen = tx.seen_plans(&run.pull, &outcome.project)?;
        let of_head = seen.iter().flat_map(|seen| &seen.plans).filter(|plan| plan.head == run.head);
        if of_head.count() != 1 {
            return Ok(None);
        }
    }
    Ok(apply.automerge)
}
