//! Reasons for a missing plan of a project: the end of the last plan, the pull request that blocks it, and the next command.

use super::super::context::Context;
use super::ApplicablePlans;
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::Failure;
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::state::{LockHolder, ProjectState, ProjectStatus, lock_id};
use crate::domain::{CommitSha, ProjectId, PullId};
use crate::store::View;
use anyhow::Result;

/// Maximum number of projects for which an apply of everything gives the reason of a missing plan.
const MAX_TOLD: usize = 10;

/// Another pull request that has a project.
pub(super) enum Blocker {
    /// It owns the project.
    Owner(Box<ProjectOwner>),
    /// It holds the project's lock.
    Holder(LockHolder),
}

/// Returns the other pull requests that have the projects of which this one has no plan.
pub(super) fn blockers(view: &View<'_>, pull: &PullId, plans: &ApplicablePlans) -> Result<Vec<(ProjectId, Blocker)>> {
    let mut found = Vec::new();
    for status in plans.statuses.iter().filter(|status| plans.plan(&status.project).is_none()) {
        let project = &status.project;
        let mut owners = view.owners_of_state(&pull.repo, project)?.into_iter();
        if let Some(owner) = owners.find(|owner| owner.holder.pull != *pull) {
            found.push((project.clone(), Blocker::Owner(Box::new(owner))));
        } else if let Some(lock) = view.lock_by_key(&lock_id(&pull.repo, project))?
            && lock.holder.pull != *pull
        {
            found.push((project.clone(), Blocker::Holder(lock.holder)));
        }
    }
    Ok(found)
}

impl ApplicablePlans {
    /// Returns the failure for a project without a plan to apply.
    pub(in super::super) fn no_plan(&self, ctx: &Context, id: &ProjectId, head: &CommitSha) -> Failure {
        let status = self.statuses.iter().find(|status| status.project == *id);
        let because = match status {
            Some(status) => self.why(ctx, status, head),
            None => "it has not been planned in this pull request".to_owned(),
        };
        Failure::NoPlan { because }
    }

    /// Returns the reasons for each of these projects, in one text.
    pub(super) fn why_each(&self, ctx: &Context, of: &[&ProjectStatus], head: &CommitSha) -> String {
        let told = of.iter().take(MAX_TOLD);
        let mut told: Vec<String> =
            told.map(|status| format!("`{}`: {}", status.project.label(), self.why(ctx, status, head))).collect();
        if of.len() > MAX_TOLD {
            told.push(format!("{} more without a plan", of.len() - MAX_TOLD));
        }
        told.join(". ")
    }

    /// Describes the end of the project's plan. Names a command if planning again is not enough.
    fn why(&self, ctx: &Context, status: &ProjectStatus, head: &CommitSha) -> String {
        let log = || status.job.as_ref().map(|job| format!(": {}/jobs/{job}", ctx.settings.atlantis_url));
        let log = || log().unwrap_or_default();
        let blocker = self.blockers.iter().find(|(project, _)| *project == status.project).map(|(_, blocker)| blocker);
        let what = match status.state {
            _ if status.head != *head => "it was planned for an earlier commit".to_owned(),
            ProjectState::Applied => return "its plan is applied already".to_owned(),
            ProjectState::PlannedNoChanges => return "its plan has no changes".to_owned(),
            ProjectState::Deferred => return self.deferred(ctx, status),
            ProjectState::PlanErrored if status.was_not_planned() && blocker.is_some() => {
                "it is not planned".to_owned()
            }
            ProjectState::PlanErrored if status.was_not_planned() => {
                return "it was not planned; the plan's comment gives the reason".to_owned();
            }
            ProjectState::PlanErrored => format!("its plan failed{}", log()),
            ProjectState::PlanInvalidated => "its plan is out of date".to_owned(),
            ProjectState::PlanDiscarded => "its plan was discarded".to_owned(),
            ProjectState::ApplyErrored => format!("its plan was used by the apply that failed{}", log()),
            ProjectState::AppliedInPart => {
                let executable = &ctx.rendering.executable;
                return format!(
                    "a part of it is applied. For all of it: `{executable} plan`, then `{executable} apply`"
                );
            }
            ProjectState::Planned | ProjectState::PlannedInPart => {
                "its plan was used or discarded meanwhile".to_owned()
            }
        };
        match blocker {
            Some(Blocker::Owner(owner)) => owned(ctx, &what, status, owner),
            Some(Blocker::Holder(holder)) => held(ctx, &what, &status.project, holder),
            None if status.state == ProjectState::PlanInvalidated => what + " (see the comment that announced it)",
            None => what,
        }
    }

    fn deferred(&self, ctx: &Context, status: &ProjectStatus) -> String {
        let first = status.waits_for.first();
        let apply = first.map(|on| command_for(&ctx.rendering.executable, CommandName::Apply, on, &[]));
        let on: Vec<String> = status.waits_for.iter().map(|on| format!("`{}`", on.label())).collect();
        let on = on.join(", ");
        let first = apply.map(|apply| format!(". First: `{apply}`")).unwrap_or_default();
        format!("it waits for {on}; the server plans it after that apply{first}")
    }
}

/// Returns a text such as: its plan is out of date since #12 started to apply; #12 owns `x` until it is merged.
fn owned(ctx: &Context, what: &str, status: &ProjectStatus, owner: &ProjectOwner) -> String {
    let (name, label) = (ctx.hosts.pull_name(&owner.holder.pull), owner.project.label());
    let (since, until) = match owner.state {
        OwnerState::Planned => (" since {} started to apply", "it is applied and merged"),
        OwnerState::AppliedUnmerged => (" since {} started to apply", "it is merged"),
        OwnerState::MergedUnapplied => (" since {} was merged", "that is applied"),
        OwnerState::ClosedApplied => (" since {} applied it", "it is reopened and merged"),
        OwnerState::MergedUnknown => (" since {} was merged", "the server knows its changes"),
    };
    let since = if status.state == ProjectState::PlanInvalidated { since.replace("{}", &name) } else { String::new() };
    let plan = command_for(&ctx.rendering.executable, CommandName::Plan, &owner.project, &[]);
    let way_out = owner.state.way_out(&ctx.rendering.executable);
    format!("{what}{since}; {name} owns `{label}` until {until}, or `{way_out}` there. For a preview now: `{plan}`")
}

fn held(ctx: &Context, what: &str, project: &ProjectId, holder: &LockHolder) -> String {
    let label = project.label();
    if holder.pull.is_branch() {
        return format!("{what}; a drift run has locked `{label}` until it ends");
    }
    let name = ctx.hosts.pull_name(&holder.pull);
    let unlock = format!("{} unlock", ctx.rendering.executable);
    format!(
        "{what}; {name} has locked `{label}`. It is released when {name} is merged or closed, or by `{unlock}` there"
    )
}
