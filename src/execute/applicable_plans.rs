//! Plans of a pull request that could be applied, and the reasons if there are none.

mod why;

use super::answer::CommandAnswer;
use super::command_run::CommandRun;
use super::context::Context;
use super::merged;
use super::status_update::StatusUpdate;
use crate::config::ProjectConfig;
use crate::domain::outcome::{Fault, Reason};
use crate::domain::ownership::ChangedProjects;
use crate::domain::reply::Message;
use crate::domain::state::{PlanRecord, ProjectState, ProjectStatus};
use crate::domain::{CommitSha, ProjectId, PullId};
use crate::store::View;
use anyhow::Result;
use why::Blocker;

/// Plans that could be applied, with the records that explain missing ones.
pub(super) struct ApplicablePlans {
    plans: Vec<PlanRecord>,
    statuses: Vec<ProjectStatus>,
    changed: Option<ChangedProjects>,
    /// After the merge: projects that the pull request has not applied yet.
    owed: Vec<ProjectId>,
    /// Other pull requests that have projects without a plan here.
    blockers: Vec<(ProjectId, Blocker)>,
}

impl ApplicablePlans {
    pub(super) async fn load(ctx: &Context, work: &CommandRun) -> Result<ApplicablePlans> {
        let (pull, after_merge) = (work.pull.id.clone(), work.after_merge.is_some());
        let loaded = ctx.store.read(move |view| {
            let mut loaded = ApplicablePlans::read(view, &pull, after_merge)?;
            loaded.blockers = why::blockers(view, &pull, &loaded)?;
            Ok((loaded, view.owners_of(&pull)?))
        });
        let (mut loaded, owners) = loaded.await?;
        if merged::is_guarded(work) {
            loaded.plans.retain(|plan| merged::guard(plan, &owners).is_none());
            loaded.plans.retain(|plan| work.after_merge.iter().any(|after| after.owed.contains(&plan.project)));
        }
        Ok(loaded)
    }

    /// Reads the current records, without `blockers`.
    pub(super) fn read(view: &View<'_>, pull: &PullId, after_merge: bool) -> Result<ApplicablePlans> {
        let (mut plans, statuses, mut owed) = (view.plans(pull)?, view.project_statuses(pull)?, Vec::new());
        if after_merge {
            owed = view.owed_projects(pull)?;
            plans.retain(|plan| owed.contains(&plan.project));
        }
        Ok(ApplicablePlans { plans, statuses, changed: view.changed_projects(pull)?, owed, blockers: Vec::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    pub(super) fn projects(&self) -> Vec<ProjectId> {
        self.plans.iter().map(|plan| plan.project.clone()).collect()
    }

    /// Returns the base commit of the newest plan of this head, on which the command's own tree is made.
    pub(super) fn base(&self, head: &CommitSha) -> Option<&CommitSha> {
        let of_head = self.plans.iter().filter(|plan| plan.head == *head);
        of_head.max_by_key(|plan| plan.made).map(|plan| &plan.base)
    }

    /// Returns the directories of all projects with a plan.
    pub(super) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|plan| plan.project.dir.as_str())
    }

    pub(super) fn plan(&self, id: &ProjectId) -> Option<&PlanRecord> {
        self.plans.iter().find(|plan| plan.project == *id)
    }

    /// Returns the refusal of an apply that names no project: if there is nothing to apply, or, of everything without `--only`, if a
    /// project could not be planned.
    pub(super) fn refusal(&self, ctx: &Context, work: &CommandRun) -> Option<CommandAnswer> {
        let target = &work.command.target;
        if target.names_some() {
            return None;
        }
        let head = &work.pull.head.commit;
        let without: Vec<&ProjectStatus> = (self.statuses.iter())
            .filter(|status| status.head == *head && status.state == ProjectState::PlanErrored)
            .collect();
        let fault = |because: String| {
            CommandAnswer::error(Fault { reason: Reason::NoPlan, message: because, output: String::new() })
        };
        if !without.is_empty() && !self.plans.is_empty() && !work.command.only && target.is_all() {
            return Some(fault(format!(
                "Nothing was applied: {}. Fix the cause and plan again, or apply the other projects with `{} apply --only`",
                what_failed(&without),
                ctx.rendering.executable
            )));
        }
        if !self.plans.is_empty() {
            return None;
        }
        if self.statuses.is_empty() {
            return Some(fault("There is no plan to apply: nothing is planned in this pull request".into()));
        }
        let open: Vec<&ProjectStatus> =
            self.statuses.iter().filter(|status| !(status.state.is_done() && status.head == *head)).collect();
        if open.is_empty() {
            let because = "Everything that was planned is applied already.".to_owned();
            let answer = CommandAnswer::message(Message::NoProjects { because });
            return Some(CommandAnswer { statuses: StatusUpdate::AfterApply { failed: None }, ..answer });
        }
        let why = self.why_each(ctx, &open, head);
        if !without.is_empty() {
            return Some(fault(format!("There is no plan to apply. {why}")));
        }
        let answer = CommandAnswer::message(Message::NoProjects { because: why });
        let in_part = open.iter().any(|status| status.state == ProjectState::AppliedInPart);
        let statuses = match in_part {
            true => StatusUpdate::AfterApply { failed: None },
            false => StatusUpdate::Failed("No project has a plan that could be applied.".into()),
        };
        Some(CommandAnswer { statuses, ..answer })
    }

    /// Returns the projects that this head changes and of which it has no plan, so that nobody has seen their changes.
    pub(super) fn not_planned(&self, head: &CommitSha) -> Vec<ProjectId> {
        let is_planned = |project: &ProjectId| {
            let without = [ProjectState::PlanErrored, ProjectState::PlanDiscarded, ProjectState::PlanInvalidated];
            let mut of_project = self.statuses.iter().filter(|status| status.project == *project);
            of_project.any(|status| status.head == *head && !without.contains(&status.state))
        };
        let changed = self.changed.iter().filter(|changed| changed.head == *head).flat_map(|changed| &changed.projects);
        changed.map(|changed| &changed.project).filter(|project| !is_planned(project)).cloned().collect()
    }

    /// Returns the labels of projects in `depends_on` that are planned here, or merged, and not applied.
    pub(super) fn missing(&self, config: &ProjectConfig, applied: &[ProjectId]) -> Vec<String> {
        let is_named = |project: &&ProjectId| config.depends_on.iter().any(|name| project.name.as_ref() == Some(name));
        let owed = self.owed.iter().filter(is_named).filter(|project| !applied.contains(project));
        let named = |name: &String| self.statuses.iter().find(|s| s.project.name.as_deref() == Some(name));
        let waits = config
            .depends_on
            .iter()
            .filter_map(named)
            .filter(|status| !status.state.is_done() && !applied.contains(&status.project));
        let mut labels: Vec<String> = waits.map(|status| &status.project).chain(owed).map(ProjectId::label).collect();
        labels.sort();
        labels.dedup();
        labels
    }

    /// Returns the projects that have to be applied before a deleted project is destroyed: all that are not applied, except those that
    /// have the plan of a destroy themselves. An apply of a part of a project leaves it open.
    pub(super) fn open_before_destroys(&self, applied: &[ProjectId]) -> Vec<&ProjectId> {
        let open = self.statuses.iter().filter(|status| !status.state.is_done()).map(|status| &status.project);
        let is_destroy = |project: &ProjectId| self.plan(project).is_some_and(|plan| plan.deleted);
        let is_whole = |project: &ProjectId| self.plan(project).is_some_and(|plan| plan.part.is_none());
        let is_applied = |project: &ProjectId| applied.contains(project) && is_whole(project);
        open.filter(|project| !is_applied(project) && !is_destroy(project)).collect()
    }

    /// Returns the projects whose outputs a plan was made with, and that are planned here and not applied.
    pub(super) fn waits_for<'a>(&'a self, plan: &PlanRecord, applied: &'a [ProjectId]) -> Vec<&'a ProjectId> {
        let named = self.statuses.iter().filter(|status| plan.dependencies.contains(&status.project.dir));
        let waits = named.filter(|status| {
            !status.state.is_done() && status.project != plan.project && !applied.contains(&status.project)
        });
        waits.map(|status| &status.project).collect()
    }

    /// Returns the projects that a deferred project waits for: it is planned when they are applied.
    pub(super) fn deferred_for(&self, id: &ProjectId, head: &CommitSha) -> Vec<&ProjectId> {
        let is_deferred = |status: &&ProjectStatus| status.state == ProjectState::Deferred && status.head == *head;
        let of_project = self.statuses.iter().filter(is_deferred).filter(|status| status.project == *id);
        of_project.flat_map(|status| &status.waits_for).collect()
    }

    /// Returns the plans that may have been made with outputs of this project.
    pub(super) fn made_with(&self, project: &ProjectId) -> Vec<&PlanRecord> {
        self.plans.iter().filter(|plan| plan.may_depend_on(project)).collect()
    }
}

/// Returns the text about projects whose plan failed or was not made.
fn what_failed(without: &[&ProjectStatus]) -> String {
    let named = |not_planned: bool| {
        let of_kind = without.iter().filter(|status| status.was_not_planned() == not_planned);
        let labels: Vec<String> = of_kind.map(|status| format!("`{}`", status.project.label())).collect();
        Some(labels.join(", ")).filter(|labels| !labels.is_empty())
    };
    let failed = named(false).map(|labels| format!("the plan of {labels} failed"));
    let not_planned = named(true).map(|labels| format!("{labels} could not be planned"));
    failed.into_iter().chain(not_planned).collect::<Vec<String>>().join(", and ")
}
