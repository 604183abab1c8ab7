//! Merges into the head branch of another pull request, and those whose changes are not known yet.

use super::super::*;
use super::history::{PROJECTS, Place, Simulation, head, holder, merge_commit, project_id, pull_id};
use super::names::number_of;
use crate::domain::ownership::ChangedProject;
use std::collections::BTreeSet;

/// A merge whose changes are unknown.
#[derive(Debug, Clone)]
pub(super) struct UnknownMerge {
    head: u64,
    changes: BTreeSet<u8>,
    /// Projects that were applied in it before.
    applied: BTreeSet<u8>,
}

/// Deletes rows that were passed on to another pull request.
pub(super) fn forget_passed(after: &mut World, follows: &Consequences) {
    let passed = |change: &LockChange, owner: &ProjectOwner| match change {
        LockChange::PassOn { owner: passed, .. } => passed == owner,
        _ => false,
    };
    after.owners.retain(|owner| !follows.changes.iter().any(|change| passed(change, owner)));
}

impl Simulation {
    /// Merges it into the head branch of another open one, which has its changes from now on.
    pub(super) fn stack(&mut self, pull: u64, onto: u64) -> Result<(), String> {
        self.stop_plan(pull);
        if pull == onto || !self.idle(pull, Place::Open) || !self.idle(onto, Place::Open) {
            return Ok(());
        }
        let of = self.truth.pulls[&pull].clone();
        let merged = self.merged_as(pull, of.head, MergedInto::HeadOf(Box::new(holder(onto))));
        self.event(pull, &LockEvent::Closed { pull: pull_id(pull), remarks: Vec::new(), merged: Some(merged) })?;
        for project in
            (0..PROJECTS).filter(|project| self.truth.applied.contains(&(pull, *project))).collect::<Vec<_>>()
        {
            self.truth.applied.insert((onto, project));
        }
        self.closed(pull, Place::Merged);
        let other = self.truth.pulls.get_mut(&onto).unwrap();
        other.head += 1;
        other.changes.extend(&of.changes);
        other.contains.extend(&of.contains);
        self.judge()
    }

    /// Merges it unplanned, so that its changes cannot be found.
    pub(super) fn merge_unseen(&mut self, pull: u64) -> Result<(), String> {
        self.stop_plan(pull);
        let of = self.truth.pulls[&pull].clone();
        if !self.idle(pull, Place::Open) || of.planned == Some(of.head) {
            return Ok(());
        }
        let applied: BTreeSet<u8> =
            (0..PROJECTS).filter(|project| self.truth.applied.contains(&(pull, *project))).collect();
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull));
        let owed: Vec<u8> = own.map(|owner| number_of(&owner.project)).collect();
        let merged = self.merged_as(pull, of.head, MergedInto::Unknown { because: "git".into() });
        self.event(pull, &LockEvent::Closed { pull: pull_id(pull), remarks: Vec::new(), merged: Some(merged) })?;
        self.closed(pull, Place::Merged);
        self.truth.merges.insert(pull);
        self.truth.owed.extend(owed.into_iter().map(|project| (pull, project)));
        let (head, changes) = (of.head, of.changes.clone());
        self.truth.unknown.insert(pull, UnknownMerge { head, changes, applied });
        self.base_moves(pull, of.changes)
    }

    /// Makes the changes of such a merge known.
    pub(super) fn learn_changes(&mut self, pull: u64) -> Result<(), String> {
        let Some(UnknownMerge { head: at, changes, applied }) = self.truth.unknown.remove(&pull) else { return Ok(()) };
        let changed = changes.iter().map(|project| ChangedProject {
            project: project_id(*project),
            strict: true,
            reminder_interval: None,
        });
        let projects = changed.collect();
        self.changed.insert(pull, ChangedProjects { pull: pull_id(pull), head: head(at), projects });
        let merged = self.merged_as(pull, at, MergedInto::Applied);
        self.event(pull, &LockEvent::MergeKnown { pull: pull_id(pull), merged })?;
        self.changed.remove(&pull);
        self.truth.owed.retain(|(of, project)| *of != pull || applied.contains(project) || changes.contains(project));
        self.truth.owed.extend(changes.iter().map(|project| (pull, *project)));
        for project in changes {
            self.truth.invalidate_plans(project, pull);
        }
        self.judge()
    }

    pub(super) fn merged_as(&self, pull: u64, at: u64, into: MergedInto) -> MergedPull {
        let branch = match into {
            MergedInto::HeadOf(_) => "feature",
            _ => "main",
        };
        let (commit, at, head) = (Some(merge_commit(pull)), Timestamp::UNIX_EPOCH, head(at));
        MergedPull { head, commit, branch: branch.into(), at, holder: holder(pull), into }
    }

    /// Returns true if the changes that another pull request has merged are unknown.
    pub(super) fn others_are_unknown(&self, pull: u64) -> bool {
        self.truth.unknown.keys().any(|other| *other != pull)
    }
}
