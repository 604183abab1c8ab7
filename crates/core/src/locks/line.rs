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
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::{PlaceInLine, PlannedAgain, WaitCause, WaitingPull};
use crate::domain::{ProjectId, PullId, RepoId};

/// The lock, of all of a state oldest first, that keeps a pull request from a project: another one's, under whatever name, unless both are
/// known to have different states. A pull request that has locked the project itself before that goes first.
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

/// Who keeps a pull request from a project, by all that is known of its state: a lock, or an owner.
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
    fn blocker(&self, waiter: &WaitingPull) -> Option<&PullId> {
        blocker(&self.world.locks, &self.world.owners, &waiter.pull, &waiter.project, &waiter.address)
    }

    /// Who waits for a state, under whatever name.
    fn line<'a>(&'a self, repo: &'a RepoId, project: &'a ProjectId) -> impl Iterator<Item = &'a WaitingPull> {
        let is_here = move |waiter: &&WaitingPull| waiter.project.is_same_state(project) && waiter.pull.repo == *repo;
        self.world.waiters.iter().filter(is_here)
    }

    /// The row of a pull request that waits for a project.
    fn row(&self, pull: &PullId, project: &ProjectId) -> Option<&WaitingPull> {
        self.world.waiters.iter().find(|waiter| waiter.pull == *pull && waiter.project == *project)
    }

    /// The pull request waits for a project from now on, unless it does already. Nobody waits who is merged, and no drift run does.
    fn wait(&mut self, waiter: WaitingPull) {
        let pull = &waiter.pull;
        let is_merged = |owner: &ProjectOwner| owner.holder.pull == *pull && owner.state == OwnerState::MergedUnapplied;
        let waits = self.row(pull, &waiter.project).is_some();
        if waits || pull.is_branch() || self.world.owners.iter().any(is_merged) {
            return;
        }
        self.world.waiters.push(waiter.clone());
        self.follows.changes.push(LockChange::Wait(waiter));
    }

    /// Waits for what has refused it, and is told its place.
    pub(super) fn wait_refused(&mut self, wanted: &WantedLock, project: &ProjectId, cause: WaitCause) {
        let (holder, address) = (wanted.lock.holder.clone(), wanted.lock.address.clone());
        let (pull, since) = (holder.pull.clone(), holder.since);
        self.wait(WaitingPull { project: project.clone(), pull, since, cause, address });
        let place = self.place(&holder.pull, project);
        self.follows.places.extend(place.map(|place| (project.clone(), place)));
    }

    /// The place of a pull request in the line. Those whose turn it is do not count.
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

    /// These rows go; the only way in which one does.
    pub(super) fn leave(&mut self, is_named: impl Fn(&WaitingPull) -> bool) {
        let (gone, kept) = std::mem::take(&mut self.world.waiters).into_iter().partition(is_named);
        self.world.waiters = kept;
        let gone: Vec<WaitingPull> = gone;
        self.follows.changes.extend(gone.into_iter().map(LockChange::Leave));
    }

    /// The pull request waits no more for those of these projects that are free for it.
    pub(super) fn leave_free(&mut self, pull: &PullId, projects: &[ProjectId]) {
        let is_meant = |waiter: &&WaitingPull| waiter.pull == *pull && projects.contains(&waiter.project);
        let mut free: Vec<WaitingPull> = self.world.waiters.iter().filter(is_meant).cloned().collect();
        free.retain(|waiter| self.blocker(waiter).is_none());
        self.leave(|waiter| free.contains(waiter));
    }

    /// The pull request has these projects now. It waits no more for those that are free, also under names that they have no more.
    pub(super) fn leave_taken(&mut self, pull: &PullId, taken: &[ProjectId]) {
        let changed: Vec<&ProjectId> = self.world.changed.iter().flat_map(|changed| changed.strict()).collect();
        let is_old = |project: &ProjectId| {
            !changed.is_empty() && !changed.contains(&project) && taken.iter().any(|taken| taken.is_same_state(project))
        };
        let rows = self.world.waiters.iter().filter(|waiter| waiter.pull == *pull && is_old(&waiter.project));
        let all: Vec<ProjectId> = rows.map(|waiter| &waiter.project).chain(taken).cloned().collect();
        self.leave_free(pull, &all);
    }

    /// The same for a project whose configuration is known now.
    pub(super) fn leave_free_of(&mut self, wanted: &WantedLock) {
        let (pull, project) = (&wanted.lock.holder.pull, &wanted.lock.project);
        let address = &wanted.lock.address;
        if blocker(&self.world.locks, &self.world.owners, pull, project, address).is_none() {
            self.leave(|waiter| waiter.pull == *pull && waiter.project == *project);
        }
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

    /// Plans that fell are made again: those of projects that are free at once, the others when their owner is done.
    fn line_up_fallen(&mut self, event: &LockEvent) {
        let at = match event {
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                project.lock.holder.since
            }
            LockEvent::StateChanged { at, .. } | LockEvent::PlansInvalidated { at, .. } => *at,
            LockEvent::Closed { merged: Some(merged), .. } | LockEvent::MergeKnown { merged, .. } => merged.at,
            _ => return,
        };
        let mut fallen = std::mem::take(&mut self.follows.fallen);
        // What is too old is planned when somebody wants it: else it would be planned again and again.
        for one in fallen.iter_mut().filter(|one| !matches!(one.cause, FallCause::TooOld { .. })) {
            let (pull, project) = (one.plan.pull.clone(), one.plan.project.clone());
            let address = StateAddress::default();
            self.wait(WaitingPull { project, pull, since: at, cause: WaitCause::Fall, address });
            let Some(row) = self.row(&one.plan.pull, &one.plan.project) else { continue };
            one.again = match self.blocker(row).cloned() {
                Some(other) => PlannedAgain::After(other),
                None => {
                    self.give_turn(&one.plan.pull, &one.plan.project);
                    PlannedAgain::Now
                }
            };
        }
        self.follows.fallen = fallen;
    }

    /// The turn of those in line for a state, in order, as far as it is free for them, and no plan that goes first locks it.
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
