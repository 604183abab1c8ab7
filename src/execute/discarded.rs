//! Commit statuses of discarded plans: by `unlock`, by the page, or by a command that has changed their state. A discarded plan does not
//! count, so `atlantis/plan` fails until there is another one.

use crate::domain::PullId;
use crate::domain::state::{Effect, PlanRecord, ProjectState, ProjectStatus};
use crate::render::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;

/// Project statuses of a pull request before plans are discarded.
pub(crate) struct Discards {
    pull: PullId,
    before: Vec<ProjectStatus>,
}

impl Discards {
    /// Reads the present statuses.
    pub(crate) fn before(tx: &Tx<'_>, pull: &PullId) -> Result<Discards> {
        Ok(Discards { pull: pull.clone(), before: tx.project_statuses(pull)? })
    }

    /// Enqueues the statuses of the plans that were discarded since.
    pub(crate) fn post(&self, tx: &Tx<'_>, statuses: &Statuses, because: &str) -> Result<()> {
        let now = tx.project_statuses(&self.pull)?;
        let is_new =
            |status: &&ProjectStatus| status.state == ProjectState::PlanDiscarded && !self.before.contains(status);
        let gone: Vec<&ProjectStatus> = now.iter().filter(is_new).collect();
        let Some(first) = gone.first() else { return Ok(()) };
        for status in &gone {
            let told = statuses.discarded(Some(&status.project), because);
            tx.post(&self.pull, [Effect::Status { commit: status.head.clone(), status: told }])?;
        }
        let mut all = vec![statuses.discarded(None, because)];
        // If all projects were done before, something is left to apply again.
        if self.before.iter().all(|status| status.state.is_done()) {
            all.push(statuses.apply(&now));
        }
        let commit = &first.head;
        tx.post(&self.pull, all.into_iter().map(|status| Effect::Status { commit: commit.clone(), status }))
    }
}

/// Enqueues the statuses of plans of other pull requests that are discarded.
pub(super) fn post_elsewhere(
    tx: &Tx<'_>,
    statuses: &Statuses,
    pull: &PullId,
    gone: &[PlanRecord],
    because: &str,
) -> Result<()> {
    for plan in gone.iter().filter(|plan| plan.pull != *pull) {
        let told = [Some(&plan.project), None].map(|project| statuses.discarded(project, because));
        tx.post(&plan.pull, told.map(|status| Effect::Status { commit: plan.head.clone(), status }))?;
    }
    Ok(())
}
