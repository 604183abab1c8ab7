//! Applied changes of a pull request that is closed without a merge: in every mode they are reported, and its status fails. Keeping others
//! out depends on the mode.

use super::inner::Inner;
use crate::domain::command::CommandName;
use crate::domain::reply::{Message, UnmergedChange};
use crate::domain::state::{Effect, Job, JobState};
use crate::domain::{ProjectId, PullRequest};
use crate::locks::Consequences;
use crate::render::statuses::Statuses;
use crate::store::{Tx, View};
use crate::vcs::Hosts;
use anyhow::Result;
use std::collections::BTreeMap;

/// Reports the changes of a pull request that was closed after an apply, in the transaction of its closing.
pub(super) struct UnmergedNoticeWriter {
    statuses: Statuses,
    hosts: Hosts,
}

impl UnmergedNoticeWriter {
    pub(super) fn new(inner: &Inner) -> UnmergedNoticeWriter {
        UnmergedNoticeWriter { statuses: inner.ctx.statuses.clone(), hosts: inner.ctx.hosts.clone() }
    }

    /// Returns the changes that the pull request, which is not merged, has applied; absent if its closing was recorded before.
    pub(super) fn changes(&self, view: &View<'_>, pull: &PullRequest) -> Result<Option<Vec<UnmergedChange>>> {
        if !view.known_pull(&pull.id)?.is_some_and(|known| known.open) {
            return Ok(None);
        }
        let mut last: BTreeMap<ProjectId, Job> = BTreeMap::new();
        for job in view.changes_by(&pull.id)? {
            if let Some(project) = job.project.clone() {
                last.insert(project, job);
            }
        }
        last.into_iter().map(|(project, job)| self.change(view, project, job)).collect::<Result<_>>().map(Some)
    }

    fn change(&self, view: &View<'_>, project: ProjectId, job: Job) -> Result<UnmergedChange> {
        let since = match view.applied_by_another_since(&job)? {
            Some(pull) if pull.is_branch() => "a drift run".to_owned(),
            Some(pull) => self.hosts.pull_name(&pull),
            None => String::new(),
        };
        let command = CommandName::of_word(&job.kind).unwrap_or(CommandName::Apply);
        Ok(UnmergedChange {
            project,
            command: command.spoken().to_owned(),
            head: job.head,
            job: job.id,
            partial: job.state != JobState::Succeeded,
            since,
        })
    }

    /// Adds the changes that no owner keeps to the comment of the closing, and fails the status.
    pub(super) fn report(
        &self,
        tx: &Tx<'_>,
        pull: &PullRequest,
        changes: Option<Vec<UnmergedChange>>,
        follows: &mut Consequences,
    ) -> Result<()> {
        let Some(changes) = changes else { return Ok(()) };
        let owned: Vec<ProjectId> = tx.owners_of(&pull.id)?.into_iter().map(|owner| owner.project).collect();
        let left: Vec<_> = changes.into_iter().filter(|change| !owned.contains(&change.project)).collect();
        let projects = owned.len() + left.len();
        if projects > 0 {
            let status = self.statuses.owes(projects);
            tx.post(&pull.id, [Effect::Status { commit: pull.head.commit.clone(), status }])?;
        }
        if left.is_empty() {
            return Ok(());
        }
        let empty =
            || Message::Cleanup { locks: Vec::new(), unmerged: Vec::new(), remarks: Vec::new(), next: Vec::new() };
        if let Message::Cleanup { unmerged, .. } = follows.message.get_or_insert_with(empty) {
            *unmerged = left;
        }
        Ok(())
    }
}
