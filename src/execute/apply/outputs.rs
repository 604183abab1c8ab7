//! Outputs of Terragrunt units, which others read when they are planned: finds the units to apply first, and the plans that an apply makes
//! out of date.

use super::super::ids::random_bits;
use super::super::not_run::NotRun;
use super::ApplyRun;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Reason};
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::state::{Effect, PlanRecord};
use crate::domain::{ProjectId, PullId, RunId};
use crate::store::Tx;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Maximum number of projects that a sentence names.
const MAX_NAMED: usize = 10;

impl ApplyRun<'_> {
    /// Refuses a plan that was made with outputs that do not exist yet or have changed since.
    pub(super) fn outputs_are_there(&self, plan: &PlanRecord, applied: &[ProjectId]) -> Result<(), NotRun> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(on) = changed.iter().find(|project| plan.may_depend_on(project)) {
            let because = format!("`{}`, which it depends on, was applied after it was planned", on.label());
            return Err(Failure::StalePlan { because }.into());
        }
        let waits = self.plans_to_apply.waits_for(plan, applied);
        if waits.is_empty() {
            return Ok(());
        }
        Err(self.waiting(&waits).into())
    }

    /// Returns the failure of a project without a plan, which may wait for others.
    pub(super) fn no_plan(&self, config: &ProjectConfig) -> Failure {
        let head = &self.work.pull.head.commit;
        match self.plans_to_apply.deferred_for(&config.id, head).as_slice() {
            [] => self.plans_to_apply.no_plan(self.ctx, &config.id, head),
            waits => self.waiting(waits),
        }
    }

    fn waiting(&self, waits: &[&ProjectId]) -> Failure {
        let because = format!(
            "it waits for {}, which it depends on and which is not applied. Apply that first: {}",
            named(waits.iter().map(|project| project.label())),
            self.commands(CommandName::Apply, waits.iter().copied())
        );
        Failure::Refused { reason: Reason::Dependency, because }
    }

    /// Notes that a project's outputs may have changed. Returns the plans that are out of date now: their records are removed with the
    /// job's end, and their files after it.
    pub(super) fn outputs_changed(&self, config: &ProjectConfig) -> Vec<PlanRecord> {
        let plans: Vec<PlanRecord> = self.plans_to_apply.made_with(&config.id).into_iter().cloned().collect();
        let applied =
            |plan: &PlanRecord| self.changed.lock().unwrap_or_else(PoisonError::into_inner).contains(&plan.project);
        let plans: Vec<PlanRecord> = plans.into_iter().filter(|plan| !applied(plan)).collect();
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).push(config.id.clone());
        // Plans in mode `strict` get their own notice when they are invalidated.
        let mut told = plans.iter().filter(|plan| plan.inputs.is_none()).peekable();
        if told.peek().is_none() {
            return plans;
        }
        let remark = format!(
            "The plans of {} are dropped: they were made with the outputs of `{}` from before it was applied. Plan again: {}.",
            named(told.clone().map(|plan| plan.project.label())),
            config.id.label(),
            self.commands(CommandName::Plan, told.map(|plan| &plan.project))
        );
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).push(remark);
        plans
    }

    /// Returns the projects whose plans this command has made out of date.
    pub(super) fn outdated_here(&self) -> Vec<ProjectId> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let made_with = changed.iter().flat_map(|project| self.plans_to_apply.made_with(project));
        made_with.map(|plan| plan.project.clone()).collect()
    }

    /// Returns the plans of other pull requests that become out of date as well.
    pub(super) async fn plans_elsewhere(&self, config: &ProjectConfig) -> Result<Vec<PlanRecord>> {
        let (pull, project) = (self.work.pull.id.clone(), config.id.clone());
        self.ctx.store.read(move |view| view.plans_elsewhere_with_outputs_of(&pull, &project)).await
    }

    fn commands<'a>(&self, name: CommandName, projects: impl Iterator<Item = &'a ProjectId>) -> String {
        let executable = &self.ctx.rendering.executable;
        named(projects.map(|project| command_for(executable, name, project, &[])))
    }
}

/// Notifies other pull requests in the transaction that drops their plans, which were made with outputs of `on`.
pub(super) fn tell_others(
    tx: &Tx<'_>,
    pull: &PullId,
    on: &ProjectId,
    gone: &[PlanRecord],
    say: impl Fn(&Reply) -> Vec<Effect>,
) -> Result<()> {
    let mut others: BTreeMap<u64, Vec<&PlanRecord>> = BTreeMap::new();
    for plan in gone.iter().filter(|plan| plan.pull != *pull) {
        others.entry(plan.pull.number).or_default().push(plan);
    }
    for (number, plans) in others {
        let projects = plans.into_iter().map(|plan| plan.project.clone()).collect();
        let message = Message::OutdatedPlans { projects, on: on.clone(), number: pull.number };
        let other = PullId { repo: pull.repo.clone(), number };
        let run = RunId::of(random_bits());
        let reply = Reply { run, pull: other.clone(), command: None, head: None, body: ReplyBody::Message(message) };
        tx.post(&other, say(&reply))?;
    }
    Ok(())
}

/// Returns the texts between backticks, at most [`MAX_NAMED`] of them.
fn named(texts: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = texts.map(|text| format!("`{}`", text.replace('`', "'"))).collect();
    let shown = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
