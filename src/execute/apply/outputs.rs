//! Outputs of Terragrunt units, which others read when they are planned: finds the units to apply first, and the plans that an apply makes
//! out of date.

use super::super::not_run::NotRun;
use super::ApplyRun;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Reason};
use crate::domain::state::PlanRecord;
use anyhow::Result;
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

    /// Notes that a project's outputs may have changed, and adds a remark on the plans that are out of date now: the job's end drops them.
    pub(super) fn outputs_changed(&self, config: &ProjectConfig) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plans = self.plans_to_apply.made_with(&config.id);
        // Plans in mode `strict` get their own notice when they are invalidated.
        plans.retain(|plan| plan.inputs.is_none() && !changed.contains(&plan.project));
        changed.push(config.id.clone());
        if plans.is_empty() {
            return;
        }
        let remark = format!(
            "Plans discarded: {}. They used the outputs of `{}` from before its apply. Plan again: {}.",
            named(plans.iter().map(|plan| plan.project.label())),
            config.id.label(),
            self.commands(CommandName::Plan, plans.iter().map(|plan| &plan.project))
        );
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).push(remark);
    }

    /// Returns the projects whose plans were made with outputs that this command has changed since.
    pub(super) fn made_with_old_outputs(&self) -> Vec<ProjectId> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let made_with = changed.iter().flat_map(|project| self.plans_to_apply.made_with(project));
        made_with.map(|plan| plan.project.clone()).collect()
    }

    fn commands<'a>(&self, name: CommandName, projects: impl Iterator<Item = &'a ProjectId>) -> String {
        let executable = &self.ctx.rendering.executable;
        named(projects.map(|project| command_for(executable, name, project, &[])))
    }
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
