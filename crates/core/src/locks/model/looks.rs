//! Automatic applies in histories: a look reads which plans are due, and each apply begins later, after whatever came between.

use super::super::*;
use super::faults::Fault;
use super::history::{Place, PlanTruth, Simulation, plan_record, wanted};
use super::judge::must;

/// A plan that a look found.
#[derive(Debug, Clone)]
pub(super) struct DuePlan {
    project: u8,
    plan: PlanTruth,
}

impl Simulation {
    /// Reads the plans of the present head that no apply has used.
    pub(super) fn look(&mut self, pull: u64) -> Result<(), String> {
        let of = &self.truth.pulls[&pull];
        let due = |project: &u8| {
            let plan = self.truth.plans.get(&(pull, *project))?;
            let is_due = plan.head == of.head && !self.truth.used.contains(&plan.id);
            is_due.then(|| DuePlan { project: *project, plan: plan.clone() })
        };
        let found = of.changes.iter().filter_map(due).collect();
        if of.place == Place::Open {
            self.looks.insert(pull, found);
        }
        Ok(())
    }

    /// The apply of a plan that the last look found begins. Commands of one pull request run one after the other, and a command is for one
    /// head.
    pub(super) fn due(&mut self, pull: u64, alone: bool) -> Result<(), String> {
        let of = &self.truth.pulls[&pull];
        if of.place != Place::Open || !of.is_idle() {
            return Ok(());
        }
        let Some(DuePlan { project, plan }) = self.looks.get_mut(&pull).and_then(Vec::pop) else { return Ok(()) };
        if plan.head != self.truth.pulls[&pull].head {
            return Ok(());
        }
        let is_last = self.truth.plans.get(&(pull, project)).is_some_and(|last| last.id == plan.id);
        if is_last {
            return self.apply_begins(pull, project, alone);
        }
        if self.fault == Some(Fault::LooksOutlivePlans) {
            let record = PlanRecord { project: self.named(pull, project), ..plan_record(pull, project, &plan) };
            self.world.plans.push(record);
        }
        let project = wanted(pull, project, alone);
        let event = LockEvent::ApplyBegins { plan: plan.id.clone(), job: "job".into(), project };
        let follows = self.event(pull, &event)?;
        must(follows.refusal.is_some(), || {
            format!("an automatic apply uses {}, which is no longer the plan", plan.id)
        })?;
        self.judge()
    }
}
