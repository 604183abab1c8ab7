//! Re-plans in histories: recorded with the event that gives turns, begun, and ended. Other actions can come between these.

use super::super::*;
use super::faults::Fault;
use super::history::{Simulation, pull_id};
use super::judge::{is_free, must};
use super::names::number_of;
use crate::domain::state::{Delivery, DeliveryState};
use crate::domain::waiting::ReplanEvent;
use crate::domain::{DeliveryId, Event};
use std::collections::BTreeSet;

/// The re-plans that the rules record, and the turns that they have to be for.
#[derive(Debug, Clone, Default)]
pub(super) struct Replans {
    /// Unfinished re-plans, in the order in which they were recorded.
    rows: Vec<(Delivery, DeliveryState)>,
    /// Number of re-plans that were recorded.
    recorded: u64,
    /// Turns that were given, and did not begin yet.
    given: BTreeSet<(PullId, ProjectId)>,
    /// Turns that have begun.
    begun: BTreeSet<(PullId, ProjectId)>,
}

/// Selects the change that records a re-plan, by the rules or the fault.
fn queue(fault: Option<Fault>, new: ReplanEvent, mut unfinished: Vec<(Delivery, DeliveryState)>) -> ReplanChange {
    if fault == Some(Fault::BegunReplansTakeTurns) {
        unfinished.iter_mut().for_each(|(_, state)| *state = DeliveryState::Queued);
    }
    let projects = new.projects.clone();
    let mut change = queue_replan(new, unfinished);
    if fault == Some(Fault::QueuedReplansForget)
        && let ReplanChange::Extend(delivery) = &mut change
        && let Event::Replan(event) = &mut delivery.event
    {
        event.projects = projects;
    }
    change
}

/// Returns the event for the end of a pull request's re-plan, by the rules or the fault.
fn ends(fault: Option<Fault>, identity: &DeliveryId, pull: &PullId, mut unfinished: Vec<Delivery>) -> LockEvent {
    match fault {
        Some(Fault::RepeatedTurnsEnd) => unfinished.retain(|delivery| delivery.identity == *identity),
        Some(Fault::TurnsOfOthersKeepTheWait) => {
            for delivery in &mut unfinished {
                if let Event::Replan(event) = &mut delivery.event {
                    event.pull = pull.clone();
                }
            }
        }
        _ => {}
    }
    replan_ends(identity, &unfinished).unwrap()
}

impl Simulation {
    /// Returns true if a re-plan of the pull request is for this project.
    pub(super) fn has_turn(&self, pull: &PullId, project: &ProjectId) -> bool {
        let mut events = self.replans.rows.iter().map(|(delivery, _)| &delivery.event);
        events.any(
            |event| matches!(event, Event::Replan(event) if event.pull == *pull && event.projects.contains(project)),
        )
    }

    /// Records the turns that an event gives.
    pub(super) fn give_turns(&mut self, turns: &[(PullId, ProjectId)]) {
        let replans = &mut self.replans;
        replans.given.extend(turns.iter().cloned());
        for new in replans_of(turns) {
            let own = |row: &&(Delivery, DeliveryState)| row.0.event.pull_id() == Some(&new.pull);
            let unfinished = replans.rows.iter().filter(own).cloned().collect();
            match queue(self.fault, new, unfinished) {
                ReplanChange::Add(event) => {
                    replans.recorded += 1;
                    let identity = DeliveryId::new(format!("replan-{}", replans.recorded));
                    let (host_id, received, event) = (String::new(), Timestamp::UNIX_EPOCH, Event::Replan(event));
                    replans.rows.push((Delivery { identity, host_id, received, event }, DeliveryState::Queued));
                }
                ReplanChange::Extend(changed) => {
                    let is_it = |row: &&mut (Delivery, DeliveryState)| row.0.identity == changed.identity;
                    replans.rows.iter_mut().filter(is_it).for_each(|(row, _)| row.clone_from(&*changed));
                }
            }
        }
    }

    /// Ends the begun re-plan of a pull request, or begins the one that it has.
    pub(super) fn turn(&mut self, pull: u64) -> Result<(), String> {
        if !self.truth.pulls[&pull].is_idle() {
            return Ok(());
        }
        let of = pull_id(pull);
        let find = |wanted: DeliveryState| {
            let mut rows = self.replans.rows.iter();
            rows.position(|(row, state)| *state == wanted && row.event.pull_id() == Some(&of))
        };
        match (find(DeliveryState::Running), find(DeliveryState::Queued)) {
            (Some(at), _) => self.turn_ends(pull, at),
            (None, Some(at)) => self.turn_begins(pull, at),
            (None, None) => Ok(()),
        }
    }

    fn turn_begins(&mut self, pull: u64, at: usize) -> Result<(), String> {
        let of = pull_id(pull);
        let Event::Replan(ReplanEvent { projects, .. }) = self.replans.rows[at].0.event.clone() else { return Ok(()) };
        let recorded: BTreeSet<_> = projects.iter().map(|project| (of.clone(), project.clone())).collect();
        let given = self.replans.given.iter().filter(|(pull, _)| *pull == of).cloned().collect::<BTreeSet<_>>();
        must(recorded == given, || format!("the turns {given:?} are recorded as {recorded:?}"))?;
        let is_due = |project: &&ProjectId| {
            let waits = |waiter: &WaitingPull| waiter.pull == of && waiter.project == **project;
            self.world.waiters.iter().any(waits) && is_free(self, pull, number_of(project))
        };
        let wanted: Vec<ProjectId> = projects.iter().filter(is_due).cloned().collect();
        let begins = LockEvent::TurnBegins { pull: of.clone(), projects, at: Timestamp::UNIX_EPOCH };
        let Consequences { due, passed, .. } = self.event(pull, &begins)?;
        must(due == wanted, || format!("{due:?} are due, and it has to be {wanted:?}"))?;
        self.replans.given.retain(|turn| !recorded.contains(turn));
        self.replans.begun.extend(due.iter().map(|project| (of.clone(), project.clone())));
        let (row, state) = &mut self.replans.rows[at];
        row.event = Event::Replan(ReplanEvent { pull: of.clone(), projects: due });
        *state = DeliveryState::Running;
        if !passed.is_empty() {
            self.event(pull, &LockEvent::TurnEnds { pull: of, projects: passed })?;
        }
        self.judge()
    }

    fn turn_ends(&mut self, pull: u64, at: usize) -> Result<(), String> {
        let of = pull_id(pull);
        let is_over = |project: &ProjectId| {
            let turn = (of.clone(), project.clone());
            self.replans.begun.contains(&turn) && !self.replans.given.contains(&turn)
        };
        let own = || self.world.waiters.iter().filter(|waiter| waiter.pull == of).map(|waiter| &waiter.project);
        let over: BTreeSet<u8> = own().filter(|project| is_over(project)).map(number_of).collect();
        // In the truth, a pull request has one place in line for all names of a project.
        if own().any(|project| over.contains(&number_of(project)) && !is_over(project)) {
            return Ok(());
        }
        let rows = self.replans.rows.iter().map(|(row, _)| row.clone()).collect();
        let event = ends(self.fault, &self.replans.rows[at].0.identity, &of, rows);
        self.replans.rows.remove(at);
        self.replans.begun.retain(|(pull, _)| *pull != of);
        self.event(pull, &event)?;
        self.leaves_free(pull, |project| over.contains(&project));
        self.judge()
    }
}
