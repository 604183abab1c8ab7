//! Plans in histories: one begins, others continue while it is made, and then it is recorded.

use super::super::*;
use super::faults::Fault;
use super::history::{Done, PROJECTS, Place, PlanTruth, Simulation, head, plan_record, project_id, pull_id, wanted};
use crate::domain::ownership::ChangedProject;
use crate::domain::plan_digest::SeenPlan;
use crate::domain::state::ProjectState;
use crate::domain::state_address::StateAddress;

/// A plan that is being made.
#[derive(Debug, Clone)]
pub(super) struct Planning {
    /// Projects without changes, one bit each.
    empty: u8,
    /// Projects that are planned in part, one bit each.
    parts: u8,
    /// Its projects, each with the number of changes of its state, and of its code on the base branch, before it began.
    projects: Vec<(u8, u64, u64)>,
    /// Changes of states that have ended since it began: pull request and project.
    pub(super) meanwhile: Vec<(u64, u8)>,
}

impl Simulation {
    pub(super) fn plan(&mut self, pull: u64, (empty, parts): (u8, u8), ends_later: bool) -> Result<(), String> {
        let projects = self.plannable(pull);
        if !self.truth.pulls[&pull].is_idle() || projects.is_empty() {
            return Ok(());
        }
        self.tell_names(pull, &projects)?;
        let locks = projects.iter().map(|project| wanted(pull, *project, false)).collect();
        self.event(pull, &LockEvent::PlanBegins { pull: pull_id(pull), projects: locks, everything: true })?;
        self.leaves(pull, |project| !projects.contains(&project));
        self.leaves_free(pull, |_| true);
        self.world.statuses.retain(|(of, _)| *of != pull_id(pull));
        let of = self.truth.pulls.get_mut(&pull).unwrap();
        if of.place == Place::Open {
            of.planned = Some(of.head);
            let (head, changes) = (head(of.head), of.changes.clone());
            let changed = |project: u8| ChangedProject {
                project: self.named(pull, project),
                strict: true,
                reminder_interval: None,
            };
            let projects = changes.into_iter().map(changed).collect();
            self.changed.insert(pull, ChangedProjects { pull: pull_id(pull), head, projects });
        }
        for project in 0..PROJECTS {
            self.truth.done.remove(&(pull, project));
            self.truth.plans.remove(&(pull, project));
        }
        let truth = &mut self.truth;
        let read = projects.into_iter().map(|project| (project, truth.state[&project], truth.base[&project]));
        let planning = Planning { empty, parts, projects: read.collect(), meanwhile: Vec::new() };
        truth.pulls.get_mut(&pull).unwrap().planning = Some(planning);
        if ends_later { self.judge() } else { self.planned(pull) }
    }

    /// Records the plan that was made.
    pub(super) fn planned(&mut self, pull: u64) -> Result<(), String> {
        let of = self.truth.pulls.get_mut(&pull).unwrap();
        let (at_head, Some(planning)) = (of.head, of.planning.take()) else { return Ok(()) };
        for (project, state, base) in planning.projects {
            // Another apply may have satisfied the change that it was for.
            if !self.plannable(pull).contains(&project) {
                continue;
            }
            self.made += 1;
            let late = base != self.truth.base[&project];
            let id: PlanId = format!("plan-{}", self.made).as_str().into();
            let beside = self.truth.is_being_changed(project);
            let is_part = planning.parts & (1 << project) != 0;
            let plan = PlanTruth { id, head: at_head, state, base, late, beside, is_part };
            let record = PlanRecord { project: self.named(pull, project), ..plan_record(pull, project, &plan) };
            self.world.plans.push(record.clone());
            self.truth.plans.insert((pull, project), plan);
            let mut wanted = wanted(pull, project, false);
            wanted.lock.project = record.project.clone();
            let mut ended = planning.meanwhile.iter();
            let cause = ended.find_map(|(by, of)| {
                overtaken_by(&record, &wanted, &pull_id(*by), &project_id(*of), &StateAddress::default())
            });
            if let Some(cause) = cause.filter(|_| self.fault != Some(Fault::PlansOutliveWhatEndedMeanwhile)) {
                self.truth.done.insert((pull, project), (at_head, Done::Not));
                let (plans, at) = (vec![record.id], Timestamp::UNIX_EPOCH);
                self.event(pull, &LockEvent::PlansInvalidated { plans, cause, at })?;
                continue;
            }
            self.record(pull, project, record, planning.empty & (1 << project) != 0);
        }
        self.judge()
    }

    /// Records a plan that is not invalidated.
    fn record(&mut self, pull: u64, project: u8, record: PlanRecord, is_empty: bool) {
        let at_head = self.truth.pulls[&pull].head;
        let named = self.named(pull, project);
        let none = || SeenPlans { project: named.clone(), key: String::new(), plans: Vec::new(), others: Vec::new() };
        let seen = SeenPlan {
            id: record.id.clone(),
            head: record.head,
            base: record.base,
            made: record.made,
            changes: None,
            incomparable: None,
            on_merge: false,
        };
        let known = self.seen.entry((pull, project)).or_insert_with(&none);
        if known.project != named {
            *known = none();
        }
        known.add(seen);
        self.truth.of_heads.insert((at_head, pull, project), record.id);
        let (state, done) = match (record.part, is_empty) {
            (Some(_), _) => (ProjectState::PlannedInPart, Done::Not),
            (None, true) => (ProjectState::PlannedNoChanges, Done::Empty),
            (None, false) => (ProjectState::Planned, Done::Not),
        };
        self.set_status(pull, project, state);
        self.truth.done.insert((pull, project), (at_head, done));
    }

    /// Stops the plan of a pull request that ends: nothing of it is recorded.
    pub(super) fn stop_plan(&mut self, pull: u64) {
        self.truth.pulls.get_mut(&pull).unwrap().planning = None;
    }
}
