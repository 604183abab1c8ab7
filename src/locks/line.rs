//! The line of those who wait for a project: who joins it, who leaves it, and whose turn it is when the project gets free.
//!
//! A pull request joins when a lock or an owner refuses it, or when its plan fell. It leaves when it takes the project, plans what is free,
//! is closed or unlocked, or changes the project no more. The rest of the rules says what frees a project; here that ends with the turn of
//! the first in line, which is planned again. Who is merged waits for nobody: its apply is asked for by a person.

use super::rules::Transition;
use super::{LockChange, LockEvent, WantedLock};
use crate::domain::ownership::{FallCause, OwnerState, ProjectOwner};
use crate::domain::reply::{Message, NextInLine};
use crate::domain::state::ProjectLock;
use crate::domain::waiting::{PlaceInLine, PlannedAgain, WaitCause, WaitingPull};
use crate::domain::{ProjectId, PullId, RepoId};
use jiff::Timestamp;

/// Who keeps a pull request from a project, by all that is known of the project: its lock, or an owner.
pub fn blocker<'a>(
    locks: &'a [ProjectLock],
    owners: &'a [ProjectOwner],
    pull: &PullId,
    project: &ProjectId,
) -> Option<&'a PullId> {
    let of_other =
        |lock: &&ProjectLock| lock.project == *project && lock.repo == pull.repo && lock.holder.pull != *pull;
    let lock = locks.iter().find(of_other).map(|lock| &lock.holder.pull);
    lock.or_else(|| super::ownership::owner_before(owners, pull, project).map(|owner| &owner.holder.pull))
}

impl Transition {
    fn blocker(&self, pull: &PullId, project: &ProjectId) -> Option<&PullId> {
        blocker(&self.world.locks, &self.world.owners, pull, project)
    }

    fn line<'a>(&'a self, repo: &'a RepoId, project: &'a ProjectId) -> impl Iterator<Item = &'a WaitingPull> {
        self.world.waiters.iter().filter(move |waiter| waiter.project == *project && waiter.pull.repo == *repo)
    }

    /// The pull request waits for a project from now on, unless it does already. Nobody waits who is merged, and no drift run does.
    pub(super) fn wait(&mut self, pull: &PullId, project: &ProjectId, since: Timestamp, cause: WaitCause) {
        let is_merged = |owner: &ProjectOwner| owner.holder.pull == *pull && owner.state == OwnerState::MergedUnapplied;
        let waits = self.line(&pull.repo, project).any(|waiter| waiter.pull == *pull);
        if waits || pull.is_branch() || self.world.owners.iter().any(is_merged) {
            return;
        }
        let waiter = WaitingPull { project: project.clone(), pull: pull.clone(), since, cause };
        self.world.waiters.push(waiter.clone());
        self.follows.changes.push(LockChange::Wait(waiter));
    }

    /// Waits for what has refused it, and is told its place.
    pub(super) fn wait_refused(&mut self, wanted: &WantedLock, project: &ProjectId, cause: WaitCause) {
        let holder = wanted.lock.holder.clone();
        self.wait(&holder.pull, project, holder.since, cause);
        let place = self.place(&holder.pull, project);
        self.follows.places.extend(place.map(|place| (project.clone(), place)));
    }

    /// The place of a pull request in the line. Those whose turn it is do not count.
    fn place(&self, pull: &PullId, project: &ProjectId) -> Option<PlaceInLine> {
        let holder = self.blocker(pull, project)?.clone();
        let waits = |waiter: &&WaitingPull| self.blocker(&waiter.pull, project).is_some();
        let line: Vec<&PullId> = self.line(&pull.repo, project).filter(waits).map(|waiter| &waiter.pull).collect();
        let at = line.iter().position(|other| *other == pull)?;
        let behind = at.checked_sub(1).map_or(holder, |before| line[before].clone());
        Some(PlaceInLine { number: at + 1, behind })
    }

    /// These rows go; the only way in which one does.
    pub(super) fn leave(&mut self, is_named: impl Fn(&WaitingPull) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.world.waiters).into_iter().partition(is_named);
        self.world.waiters = kept;
        let gone: Vec<WaitingPull> = gone;
        self.follows.changes.extend(gone.into_iter().map(LockChange::Leave));
    }

    /// The pull request waits no more for those of these projects that are free for it.
    pub(super) fn leave_free(&mut self, pull: &PullId, projects: &[ProjectId]) {
        let free = projects.iter().filter(|project| self.blocker(pull, project).is_none());
        let free: Vec<ProjectId> = free.cloned().collect();
        self.leave(|waiter| waiter.pull == *pull && free.contains(&waiter.project));
    }

    /// A pull request has had its turn, whatever became of it: where the project is free still, it is the next one's.
    pub(super) fn turn_ends(&mut self, pull: &PullId, projects: &[ProjectId]) {
        self.leave_free(pull, projects);
        for project in projects {
            self.give_turns(&pull.repo, project);
        }
    }

    /// What ends every event: who fell waits, what got free has a next one, and who reads of it reads who that is.
    pub(super) fn settle_lines(&mut self, event: &LockEvent) {
        self.line_up_fallen(event);
        let freed = self.follows.changes.iter().filter_map(|change| match change {
            LockChange::Free(lock) => Some((lock.repo.clone(), lock.project.clone())),
            LockChange::Disown(owner) => Some((owner.repo.clone(), owner.project.clone())),
            _ => None,
        });
        for (repo, project) in freed.collect::<Vec<_>>() {
            self.give_turns(&repo, &project);
        }
        let next = |(pull, project): &(PullId, ProjectId)| NextInLine { project: project.clone(), number: pull.number };
        let turns: Vec<NextInLine> = self.follows.turns.iter().map(next).collect();
        if let Some(Message::Unlocked { next, .. } | Message::Cleanup { next, .. } | Message::Discarded { next, .. }) =
            &mut self.follows.message
        {
            *next = turns;
        }
    }

    /// Plans that fell are made again: those of projects that are free at once, the others when their owner is done.
    fn line_up_fallen(&mut self, event: &LockEvent) {
        let at = match event {
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                project.lock.holder.since
            }
            LockEvent::StateChanged { at, .. } | LockEvent::PlansFall { at, .. } => *at,
            LockEvent::Closed { merged: Some(merged), .. } => merged.at,
            _ => return,
        };
        let mut fallen = std::mem::take(&mut self.follows.fallen);
        // What is too old is planned when somebody wants it: else it would be planned again and again.
        for one in fallen.iter_mut().filter(|one| !matches!(one.cause, FallCause::TooOld { .. })) {
            let (pull, project) = (&one.plan.pull, &one.plan.project);
            self.wait(pull, project, at, WaitCause::Fall);
            if !self.line(&pull.repo, project).any(|waiter| waiter.pull == *pull) {
                continue;
            }
            one.again = match self.blocker(pull, project).cloned() {
                Some(other) => PlannedAgain::After(other),
                None => {
                    self.give_turn(pull, project);
                    PlannedAgain::Now
                }
            };
        }
        self.follows.fallen = fallen;
    }

    /// The turn of those in line for a project, in order, as far as it is free for them; up to the first one whose plan locks it.
    fn give_turns(&mut self, repo: &RepoId, project: &ProjectId) {
        for waiter in self.line(repo, project).cloned().collect::<Vec<_>>() {
            if self.blocker(&waiter.pull, project).is_some() {
                continue;
            }
            self.give_turn(&waiter.pull, project);
            if waiter.cause == WaitCause::Plan {
                break;
            }
        }
    }

    fn give_turn(&mut self, pull: &PullId, project: &ProjectId) {
        let turn = (pull.clone(), project.clone());
        if !self.follows.turns.contains(&turn) {
            self.follows.turns.push(turn);
        }
    }
}
