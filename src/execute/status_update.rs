//! Combined statuses of a pull request that an answer sets, and the fault that pages show from then on.

use super::command_run::CommandRun;
use crate::domain::command::CommandName;
use crate::domain::state::CommitStatus;
use crate::domain::{CommitSha, PullId};
use crate::render::statuses::{ApplyFailures, Statuses};
use crate::store::Tx;
use anyhow::Result;

/// Combined statuses that an answer sets.
#[derive(Clone)]
pub(super) enum StatusUpdate {
    /// No status.
    Nothing,
    /// `plan`, and `apply` if it follows, from the pull request's project statuses.
    AfterPlan,
    /// `apply` from the pull request's project statuses; failure if something of this command failed.
    AfterApply {
        /// Numbers of failed and refused projects; absent if all succeeded.
        failed: Option<ApplyFailures>,
    },
    /// These statuses.
    These(Vec<CommitStatus>),
    /// Failure of the command as a whole, with the reason.
    Failed(String),
    /// The statuses from before, as nothing was done; failure with this reason if this head has none.
    AsBefore(String),
}

impl StatusUpdate {
    /// Returns the fault that pages show from now on: the reason for which all of it could not be planned, or `Some(None)` for none. `None`
    /// if this command decides neither: a plan of one project may fail for a target that does not exist.
    pub(super) fn fault_of_pull(&self, work: &CommandRun) -> Option<Option<String>> {
        match self {
            StatusUpdate::AsBefore(_) => None,
            _ if work.command.name != CommandName::Plan => None,
            StatusUpdate::Failed(because) => work.run.everything.then(|| Some(because.clone())),
            _ => work.run.everything.then_some(None),
        }
    }

    /// Returns the statuses, from the pull request's present project statuses.
    pub(super) fn resolve(
        self,
        tx: &Tx<'_>,
        statuses: &Statuses,
        pull: &PullId,
        head: &CommitSha,
        name: CommandName,
    ) -> Result<Vec<CommitStatus>> {
        Ok(match self {
            StatusUpdate::AsBefore(because) => {
                let projects = tx.project_statuses(pull)?;
                let known = !projects.is_empty() && projects.iter().all(|status| status.head == *head);
                match name {
                    CommandName::Plan if known => vec![statuses.plan(&projects)],
                    CommandName::Apply if known => vec![statuses.apply(&projects)],
                    name if name.spec().has_status => vec![statuses.failed(name, &because)],
                    _ => Vec::new(),
                }
            }
            StatusUpdate::Nothing => Vec::new(),
            StatusUpdate::These(list) => list,
            StatusUpdate::Failed(because) if name.spec().has_status => vec![statuses.failed(name, &because)],
            StatusUpdate::Failed(_) => Vec::new(),
            StatusUpdate::AfterPlan => {
                let projects = tx.project_statuses(pull)?;
                let mut list = vec![statuses.plan(&projects)];
                list.extend(statuses.apply_after_plan(&projects));
                list
            }
            StatusUpdate::AfterApply { failed: Some(failed) } => vec![statuses.apply_failed(&failed)],
            StatusUpdate::AfterApply { failed: None } => {
                vec![statuses.apply(&tx.project_statuses(pull)?)]
            }
        })
    }
}
