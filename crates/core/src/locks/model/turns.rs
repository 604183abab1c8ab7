//! Re-plans in histories: recorded with the event that gives turns, begun, and ended. Other actions can come between these.

use super::super::*;
use super::faults::Fault;
use super::history::{Simulation, pull_id};
use super::judge::{is_free, must};
use super::names::number_of;
use crate::domain::waiting::{Replan, ReplanId, ReplanScope, ReplanState};
use std::collections::BTreeSet;

/// The re-plans that the rules record, and the turns that they have to be for.
#[derive(Debug, Clone, Default)]
pub(super) struct Replans {
    /// Unfinished re-plans, in the order in which they were recorded.
    rows: Vec<Replan>,
    /// Number of re-plans that were recorded.
    recorded: i64,
    /// Turns that were given, and did not begin yet.
    given: BTreeSet<(PullId, ProjectId)>,
    /// Turns that have begun.
    begun: BTreeSet<(PullId, ProjectId)>,
}

/// Selects the change that records a re-plan, by the rules or the fault.
fn queue(fault: Option<Fault>, new: ReplanScope, mut unfinished: Vec<Replan>) -> ReplanChange {
    if fault == Some(Fault::BegunReplansTakeTurns) {
        unfinished.iter_mut().for_each(|replan| replan.state = ReplanState::Queued);
    }
    let projects = new.projects.clone();
    let mut change = queue_replan(new, unfinished);
    if fault == Some(Fault::QueuedReplansForget)
        && let ReplanChange::Extend(_, scope) = &mut change
    {
        scope.projects = projects;
    }
    change
}

/// Returns the event for the end of a pull request's re-plan, by the rules or the fault.
fn ends(fault: Option<Fault>, id: ReplanId, pull: &PullId, mut unfinished: Vec<Replan>) -> LockEvent {
    match fault {
        Some(Fault::RepeatedTurnsEnd) => unfinished.retain(|replan| replan.id == id),
        Some(Fault::TurnsOfOthersKeepTheWait) => {
            unfinished.iter_mut().for_each(|replan| replan.scope.pull = pull.clone());
        }
        _ => {}
    }
    replan_ends(id, &unfinished).unwrap()
}

impl Simulation {
    /// Returns true if a re-plan of the pull request is for this project.
    pub(super) fn has_turn(&self, pull: &PullId, project: &ProjectId) -> bool {
        let mut scopes = self.replans.rows.iter().map(|replan| &replan.scope);
        scopes.any(|scope| scope.pull == *pull && scope.projects.contains(project))
    }

    /// Records the turns that an event gives.
    pub(super) fn give_turns(&mut self, turns: &[(PullId, ProjectId)]) {
        let replans = &mut self.replans;
        replans.given.extend(turns.iter().cloned());
        for new in replans_of(turns) {
            let own = |row: &&Replan| row.scope.pull == new.pull;
            let unfinished = replans.rows.iter().filter(own).cloned().collect();
            match queue(self.fault, new, unfinished) {
                ReplanChange::Add(scope) => {
                    replans.recorded += 1;
                    let (id, queued) = (ReplanId(replans.recorded), Timestamp::UNIX_EPOCH);
                    replans.rows.push(Replan { id, state: ReplanState::Queued, queued, scope });
                }
                ReplanChange::Extend(id, scope) => {
                    let its = replans.rows.iter_mut().filter(|row| row.id == id);
                    its.for_each(|row| row.scope.clone_from(&scope));
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
        let find =
            |wanted: ReplanState| self.replans.rows.iter().position(|row| row.state == wanted && row.scope.pull == of);
        match (find(ReplanState::Running), find(ReplanState::Queued)) {
            (Some(at), _) => self.turn_ends(pull, at),
            (None, Some(at)) => self.turn_begins(pull, at),
            (None, None) => Ok(()),
        }
    }

    fn turn_begins(&mut self, pull: u64, at: usize) -> Result<(), String> {
        let of = pull_id(pull);
        let projects = self.replans.rows[at].scope.projects.clone();
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
        let row = &mut self.replans.rows[at];
        row.scope.projects = due;
        row.state = ReplanState::Running;
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
        let event = ends(self.fault, self.replans.rows[at].id, &of, self.replans.rows.clone());
        self.replans.rows.remove(at);
        self.replans.begun.retain(|(pull, _)| *pull != of);
        self.event(pull, &event)?;
        self.leaves_free(pull, |project| over.contains(&project));
        self.judge()
    }
}
