//! Remarks about other pull requests that change the same projects, in mode `strict`.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::notices::changes;
use super::wanted_lock;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::duration;
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::state::{PlanRecord, ProjectState};
use crate::schedule::Schedule;
use anyhow::Result;
use jiff::Timestamp;

/// Maximum number of pull requests that are named for one project.
const MAX_NAMED: usize = 5;

/// Overlaps of a plan with other pull requests.
#[derive(Default)]
pub(super) struct Overlaps {
    /// Remarks on projects that others have planned or own, on those that this pull request does not change, on drafts and on dependencies.
    pub(super) remarks: Vec<String>,
    /// Projects that other pull requests own.
    pub(super) owned: Vec<ProjectId>,
}

/// Finds the overlaps of a plan.
pub(super) async fn find(ctx: &Context, work: &CommandRun, schedule: &Schedule) -> Result<Overlaps> {
    let strict = schedule.groups.iter().flatten().filter(|config| wanted_lock(ctx, work, config).is_strict());
    let strict: Vec<&ProjectConfig> = strict.collect();
    let projects: Vec<ProjectId> = strict.iter().map(|config| config.id.clone()).collect();
    let Overlaps { mut remarks, mut owned } = Overlaps::default();
    if projects.is_empty() {
        return Ok(Overlaps { remarks, owned });
    }
    if work.pull.draft && work.after_merge.is_none() {
        remarks.push("This pull request is a draft: it can be applied once it is ready for review.".to_owned());
    }
    remarks.extend(waiting(ctx, work, &strict).await?);
    let (pull, asked) = (work.pull.id.clone(), projects.clone());
    let known = ctx.store.read(move |view| {
        let mut known = Vec::new();
        for project in asked {
            let mut owners = view.owners_of_state(&pull.repo, &project)?;
            let mut plans = view.plans_of_state(&pull.repo, &project)?;
            let is_own = owners.iter().any(|owner| owner.holder.pull == pull);
            owners.retain(|owner| owner.holder.pull != pull);
            plans.retain(|plan| plan.pull != pull && owners.iter().all(|owner| owner.holder.pull != plan.pull));
            // A plan of a project that its pull request does not change is a preview.
            let mut changing = Vec::new();
            for plan in plans {
                if changes(view, &plan.pull, &project)? {
                    changing.push(plan);
                }
            }
            known.push((project, is_own, owners, changing));
        }
        Ok(known)
    });
    for (project, is_own, owners, plans) in known.await? {
        let label = project.label();
        if !is_own && schedule.changed.iter().all(|changed| changed.project != project) {
            remarks.push(format!(
                "This pull request does not change `{label}`, so its plan is a preview and cannot be applied."
            ));
        }
        remarks.extend(owners.first().map(|owner| preview(ctx, &label, owner)));
        remarks.extend(planned(ctx, &label, &plans));
        if !owners.is_empty() {
            owned.push(project);
        }
    }
    Ok(Overlaps { remarks, owned })
}

/// Returns a remark for each project whose dependency is planned here and not applied, such as: `b` waits for `net`.
async fn waiting(ctx: &Context, work: &CommandRun, strict: &[&ProjectConfig]) -> Result<Vec<String>> {
    if strict.iter().all(|config| config.depends_on.is_empty()) {
        return Ok(Vec::new());
    }
    let (pull, head) = (work.pull.id.clone(), &work.pull.head.commit);
    let statuses = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let is_open = |name: &&String| {
        let mut of_name = statuses.iter().filter(|status| status.project.name.as_ref() == Some(name));
        of_name.any(|status| {
            status.head == *head && matches!(status.state, ProjectState::Planned | ProjectState::PlannedInPart)
        })
    };
    let is_deferred = |config: &ProjectConfig| {
        let mut of_project = statuses.iter().filter(|status| status.project == config.id);
        of_project.any(|status| status.state == ProjectState::Deferred)
    };
    let remark = |config: &&ProjectConfig| {
        if is_deferred(config) {
            return None;
        }
        let on: Vec<String> = config.depends_on.iter().filter(is_open).map(|name| format!("`{name}`")).collect();
        let label = config.id.label();
        (!on.is_empty()).then(|| {
            let follows = if config.deleted { "is destroyed after" } else { "depends on" };
            format!(
                "`{label}` {follows} {}. This plan is a preview. The server discards it when that project is applied.",
                on.join(", ")
            )
        })
    };
    Ok(strict.iter().filter_map(remark).collect())
}

fn preview(ctx: &Context, label: &str, owner: &ProjectOwner) -> String {
    let other = ctx.hosts.pull_name(&owner.holder.pull);
    let first = match owner.state {
        OwnerState::Planned => "must be applied and merged first",
        OwnerState::AppliedUnmerged => "must be merged first",
        OwnerState::MergedUnapplied => "must be applied first",
        OwnerState::ClosedApplied => "was applied and never merged",
        OwnerState::MergedUnknown => "was merged, and its changes are not known yet",
    };
    format!("The plan of `{label}` is a preview: {other} {first}.")
}

/// Returns a remark such as: `net/default` is also changed by #41, which planned it 1 h ago.
fn planned(ctx: &Context, label: &str, plans: &[PlanRecord]) -> Option<String> {
    let now = Timestamp::now();
    let told = |plan: &PlanRecord| {
        let name = ctx.hosts.pull_name(&plan.pull);
        match plan.age(now) {
            age if age.as_secs() < 60 => format!("{name}, which planned it just now"),
            age => format!("{name}, which planned it {} ago", duration::format(age)),
        }
    };
    let mut named: Vec<String> = plans.iter().take(MAX_NAMED).map(told).collect();
    if plans.len() > MAX_NAMED {
        named.push(format!("{} more", plans.len() - MAX_NAMED));
    }
    (!named.is_empty()).then(|| format!("`{label}` is also changed by {}.", named.join(", and by ")))
}
