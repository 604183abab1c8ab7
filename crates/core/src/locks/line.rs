//! The line of pull requests that wait for a project: joining it, leaving it, and the next one when the project is released.
//!
//! A pull request joins when a lock or an owner refuses it, or when its plan is invalidated. It leaves when it takes the project, plans one
//! that is free, is closed or unlocked, or no longer changes the project. Other rules release a project; here the first in line then gets
//! its turn and is planned again. A merged pull request never waits: a person starts its apply.

use super::rules::Transition;
use super::{LockChange, LockEvent, WantedLock};
use crate::domain::ownership::{InvalidationCause, OwnerState, ProjectOwner};
use crate::domain::reply::{Message, NextInLine};
use crate::domain::state::ProjectLock;
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::{PlaceInLine, PlannedAgain, WaitCause, WaitingPull};
use crate::domain::{ProjectId, PullId, RepoId};
use jiff::Timestamp;

/// Returns the oldest lock of another pull request that blocks this one from a project. It is for the same state, under any name, unless
/// both are known to have different states. None if the pull request has an older lock on the project itself.
pub fn lock_before<'a>(
    locks: impl IntoIterator<Item = &'a ProjectLock>,
    pull: &PullId,
    project: &ProjectId,
    address: &StateAddress,
) -> Option<&'a ProjectLock> {
    let mut of_state = locks.into_iter().filter(|lock| lock.is_about(&pull.repo, project, address));
    let first = of_state.find(|lock| lock.holder.pull != *pull || lock.project == *project)?;
    (first.holder.pull != *pull).then_some(first)
}

/// Returns the pull request that blocks another one from a project, by a lock or as an owner, from all rows of its state.
pub fn blocker<'a>(
    locks: &'a [ProjectLock],
    owners: &'a [ProjectOwner],
    pull: &PullId,
    project: &ProjectId,
    address: &StateAddress,
) -> Option<&'a PullId> {
    let lock = lock_before(locks, pull, project, address).map(|lock| &lock.holder.pull);
    lock.or_else(|| super::ownership::owner_before(owners, pull, project).map(|owner| &owner.holder.pull))
}

impl Transition {
    pub(super) fn blocker(&self, waiter: &WaitingPull) -> Option<&PullId> {
        blocker(&self.world.locks, &self.world.owners, &waiter.pull, &waiter.project, &waiter.address)
    }

    /// Returns the line for a state, under any name.
    fn line<'a>(&'a self, repo: &'a RepoId, project: &'a ProjectId) -> impl Iterator<Item = &'a WaitingPull> {
        let is_here = move |waiter: &&WaitingPull| waiter.project.is_same_state(project) && waiter.pull.repo == *repo;
        self.world.waiters.iter().filter(is_here)
    }

    /// Returns the row of a pull request that waits for a project.
    pub(super) fn row(&self, pull: &PullId, project: &ProjectId) -> Option<&WaitingPull> {
        self.world.waiters.iter().find(|waiter| waiter.pull == *pull && waiter.project == *project)
    }

    /// Adds a pull request to the line for a project, unless it is in it already. Merged pull requests and drift runs never wait.
    fn wait(&mut self, waiter: WaitingPull) {
        let pull = &waiter.pull;
        let is_merged = |owner: &ProjectOwner| owner.holder.pull == *pull && owner.state == OwnerState::MergedUnapplied;
        let waits = self.row(pull, &waiter.project).is_some();
        if waits || pull.is_branch() || self.world.owners.iter().any(is_merged) {
            return;
        }
        self.join(waiter);
    }

    /// Adds a row to the end of the line. Rows are only added here.
    pub(super) fn join(&mut self, waiter: WaitingPull) {
        self.world.waiters.push(waiter.clone());
        self.follows.changes.push(LockChange::Wait(waiter));
    }

    /// Adds a refused pull request to the line, and reports its position.
    pub(super) fn wait_refused(&mut self, wanted: &WantedLock, project: &ProjectId, cause: WaitCause) {
        let (holder, address) = (wanted.lock.holder.clone(), wanted.lock.address.clone());
        let (pull, since) = (holder.pull.clone(), holder.since);
        self.wait(WaitingPull { project: project.clone(), pull, since, cause, address });
        let place = self.place(&holder.pull, project);
        self.follows.places.extend(place.map(|place| (project.clone(), place)));
    }

    /// Returns the position of a pull request in the line. Those whose turn it is do not count.
    fn place(&self, pull: &PullId, project: &ProjectId) -> Option<PlaceInLine> {
        let row = self.row(pull, project)?;
        let holder = self.blocker(row)?.clone();
        let waits =
            |waiter: &&WaitingPull| self.blocker(waiter).is_some() && (waiter.pull == *pull || waiter.excludes(row));
        let mut line: Vec<&PullId> = Vec::new();
        for waiter in self.line(&pull.repo, project).filter(waits) {
            if !line.contains(&&waiter.pull) {
                line.push(&waiter.pull);
            }
        }
        let at = line.iter().position(|other| *other == pull)?;
        let behind = at.checked_sub(1).map_or(holder, |before| line[before].clone());
        Some(PlaceInLine { number: at + 1, behind })
    }

    /// Removes these rows from the line. Rows are only removed here.
    pub(super) fn leave(&mut self, is_named: impl Fn(&WaitingPull) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.world.waiters).into_iter().partition(is_named);
        self.world.waiters = kept;
        let gone: Vec<WaitingPull> = gone;
        self.follows.changes.extend(gone.into_iter().map(LockChange::Leave));
    }

    /// Removes the pull request from the lines for those of these projects that are free for it.
    pub(super) fn leave_free(&mut self, pull: &PullId, projects: &[ProjectId]) {
        let is_meant = |waiter: &&WaitingPull| waiter.pull == *pull && projects.contains(&waiter.project);
        let mut free: Vec<WaitingPull> = self.world.waiters.iter().filter(is_meant).cloned().collect();
        free.retain(|waiter| self.blocker(waiter).is_none());
        self.leave(|waiter| free.contains(waiter));
    }

    /// Removes the pull request from the lines for these projects, which it has taken, if they are free. Also handles old names of them.
    pub(super) fn leave_taken(&mut self, pull: &PullId, taken: &[ProjectId]) {
        let changed: Vec<&ProjectId> = self.world.changed.iter().flat_map(|changed| changed.strict()).collect();
        let is_old = |project: &ProjectId| {
            !changed.is_empty() && !changed.contains(&project) && taken.iter().any(|taken| taken.is_same_state(project))
        };
        let rows = self.world.waiters.iter().filter(|waiter| waiter.pull == *pull && is_old(&waiter.project));
        let all: Vec<ProjectId> = rows.map(|waiter| &waiter.project).chain(taken).cloned().collect();
        self.leave_free(pull, &all);
    }

    /// Does the same for a project whose configuration is known now.
    pub(super) fn leave_free_of(&mut self, wanted: &WantedLock) {
        let (pull, project) = (&wanted.lock.holder.pull, &wanted.lock.project);
        let address = &wanted.lock.address;
        if blocker(&self.world.locks, &self.world.owners, pull, project, address).is_none() {
            self.leave(|waiter| waiter.pull == *pull && waiter.project == *project);
        }
    }

    /// Ends the turn of a pull request, with any result. If the project is still free, the next one in line gets its turn.
    pub(super) fn turn_ends(&mut self, pull: &PullId, projects: &[ProjectId]) {
        self.leave_free(pull, projects);
        for project in projects {
            self.give_turns(&pull.repo, project);
        }
    }

    /// Ends every event: invalidated plans join the line, released projects go to the next in line, and messages name that one.
    pub(super) fn settle_lines(&mut self, event: &LockEvent) {
        self.line_up_invalidated(event);
        let of_all = |repo: &RepoId| {
            let waiting = self.world.waiters.iter().filter(|waiter| waiter.pull.repo == *repo);
            waiting.map(|waiter| (repo.clone(), waiter.project.clone())).collect::<Vec<_>>()
        };
        let freed = self.follows.changes.iter().flat_map(|change| match change {
            LockChange::Free(lock) => vec![(lock.repo.clone(), lock.project.clone())],
            LockChange::Disown(owner) if owner.is_unknown() => of_all(&owner.repo),
            LockChange::Disown(owner) => vec![(owner.repo.clone(), owner.project.clone())],
            LockChange::PassOn { owner, .. } => vec![(owner.repo.clone(), owner.project.clone())],
            _ => Vec::new(),
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

    /// Queues a re-plan of invalidated plans: of free projects at once, of others after their owner has released them.
    fn line_up_invalidated(&mut self, event: &LockEvent) {
        let at = match event {
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                project.lock.holder.since
            }
            LockEvent::StateChanged { at, .. } | LockEvent::PlansInvalidated { at, .. } => *at,
            LockEvent::Closed { merged: Some(merged), .. } | LockEvent::MergeKnown { merged, .. } => merged.at,
            _ => return,
        };
        let mut invalidated = std::mem::take(&mut self.follows.invalidated);
        // Plans that exceed their maximum age are not repeated automatically, as that would never end.
        for one in invalidated.iter_mut().filter(|one| !matches!(one.cause, InvalidationCause::TooOld { .. })) {
            let (pull, project) = (one.plan.pull.clone(), one.plan.project.clone());
            let address = StateAddress::default();
            self.wait(WaitingPull { project, pull, since: at, cause: WaitCause::Invalidated, address });
            let Some(row) = self.row(&one.plan.pull, &one.plan.project) else { continue };
            one.again = match self.blocker(row).cloned() {
                Some(other) => PlannedAgain::After(other),
                None => {
                    self.give_turn(&one.plan.pull, &one.plan.project);
                    PlannedAgain::Now
                }
            };
        }
        self.follows.invalidated = invalidated;
    }

    /// Queues a re-plan of a project whose apply has failed: at once, or after the pull request that has it meanwhile.
    pub(super) fn line_up_failed(&mut self, pull: &PullId, project: &ProjectId, at: Timestamp) {
        let (waiter, address) = (pull.clone(), StateAddress::default());
        let cause = WaitCause::ApplyFailed;
        self.wait(WaitingPull { project: project.clone(), pull: waiter, since: at, cause, address });
        if self.row(pull, project).is_some_and(|row| self.blocker(row).is_none()) {
            self.give_turn(pull, project);
        }
    }

    /// Gives turns to those in line for a state, in order, if it is free for them and no earlier plan will lock it.
    fn give_turns(&mut self, repo: &RepoId, project: &ProjectId) {
        let mut locking: Vec<WaitingPull> = Vec::new();
        for waiter in self.line(repo, project).cloned().collect::<Vec<_>>() {
            if self.blocker(&waiter).is_some() || locking.iter().any(|first| first.excludes(&waiter)) {
                continue;
            }
            self.give_turn(&waiter.pull, &waiter.project);
            if waiter.cause == WaitCause::Plan {
                locking.push(waiter);
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
