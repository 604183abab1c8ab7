//! Special merges: into the head branch of another pull request, and those whose changes are not known yet.

use super::rules::Transition;
use super::{LockChange, MergedInto, MergedPull};
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::reply::Message;
use crate::domain::state::LockHolder;
use crate::domain::{ProjectId, PullId};

impl Transition {
    /// Handles a merge into the head branch of another pull request. Its changes belong to that one from now on, so that it has no
    /// unapplied changes. Projects that were applied in it stay owned, by the other one.
    pub(super) fn owners_of_stacked(&mut self, pull: &PullId, merged: &MergedPull, onto: &LockHolder) {
        let changed = self.world.changed.clone().filter(|changed| changed.pull == *pull && changed.head == merged.head);
        let changed: Vec<ProjectId> = changed.iter().flat_map(|changed| changed.strict()).cloned().collect();
        self.base_moved(pull, merged, changed.iter());
        let gone = self.disown(|owner| owner.holder.pull == *pull && (owner.applied.is_none() || owner.is_unknown()));
        let applied = self.known_of(pull);
        for project in &applied {
            self.pass_on(pull, project, onto);
        }
        if !gone.is_empty() || !changed.is_empty() || !applied.is_empty() {
            let told = Message::MergedOnto { onto: onto.pull.clone(), projects: applied };
            self.follows.others.push((pull.clone(), told));
        }
    }

    /// Passes the ownership of an applied project to the other pull request. The row keeps its position: an owner that is not merged is the
    /// oldest.
    fn pass_on(&mut self, pull: &PullId, project: &ProjectId, onto: &LockHolder) {
        let is_of =
            |owner: &ProjectOwner, pull: &PullId| owner.holder.pull == *pull && owner.is_of(&pull.repo, project);
        if self.world.owners.iter().any(|owner| is_of(owner, &onto.pull)) {
            let gone = self.disown(|owner| is_of(owner, pull));
            return self.change_owners(
                |owner| is_of(owner, &onto.pull),
                |owner| {
                    owner.state = OwnerState::AppliedUnmerged;
                    owner.applied = gone.first().and_then(|gone| gone.applied.clone());
                },
            );
        }
        for owner in self.world.owners.iter_mut().filter(|owner| is_of(owner, pull)) {
            owner.holder = onto.clone();
            owner.state = OwnerState::AppliedUnmerged;
            (owner.merged, owner.told, owner.approved) = (None, None, None);
            self.follows.changes.push(LockChange::PassOn { from: pull.clone(), owner: owner.clone() });
        }
    }

    /// Records a merge whose changes are not known yet: until they are, no other pull request can apply.
    pub(super) fn merge_unknown(&mut self, merged: &MergedPull, because: &str) {
        let pull = &merged.holder.pull;
        self.owners_of_merged(pull, merged);
        if self.world.owners.iter().any(|owner| owner.holder.pull == *pull && owner.is_unknown()) {
            return;
        }
        let owner = ProjectOwner::unknown(&merged.holder, merged.commit.clone(), because);
        self.world.owners.push(owner.clone());
        self.follows.changes.push(LockChange::Own(owner));
        let told = Message::MergeUnknown { because: because.to_owned(), again: false };
        self.follows.others.push((pull.clone(), told));
    }

    /// Records the changes of such a merge. No effect if a person has ended it meanwhile.
    pub(super) fn merge_known(&mut self, pull: &PullId, merged: &MergedPull) {
        if matches!(merged.into, MergedInto::Unknown { .. }) {
            return;
        }
        if self.disown(|owner| owner.holder.pull == *pull && owner.is_unknown()).is_empty() {
            return;
        }
        self.owners_of_closed(pull, Some(merged));
        if !self.follows.others.is_empty() {
            return;
        }
        let projects = self.known_of(pull);
        let told = match projects.is_empty() {
            true => Message::MergeKnown,
            false => Message::Owes { state: OwnerState::MergedUnapplied, projects, again: false },
        };
        self.follows.others.push((pull.clone(), told));
    }
}
