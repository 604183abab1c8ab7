//! Which statuses of a whole pull request an answer sets, and what pages say of the pull request from then on.

use super::command_run::CommandRun;
use crate::domain::command::CommandName;
use crate::domain::state::CommitStatus;
use crate::domain::{CommitSha, PullId};
use crate::reply::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;

/// Which combined statuses an answer sets.
#[derive(Clone)]
pub(super) enum StatusUpdate {
    /// None.
    Nothing,
    /// `plan`, and `apply` where it follows, from the pull request's project statuses.
    AfterPlan,
    /// `apply` from the pull request's project statuses; failure if something of this command failed.
    AfterApply {
        /// Projects that failed, of how many.
        failed: Option<(usize, usize)>,
    },
    /// These.
    These(Vec<CommitStatus>),
    /// The command as a whole failed, with a word on why.
    Failed(String),
    /// Those from before, as nothing was done; failed with this word where this head has none.
    AsBefore(String),
}

impl StatusUpdate {
    /// What pages say of the pull request from now on: why all of it could not be planned, or that nothing is wrong as a whole.
    /// Absent where this command says neither: a plan of one project may fail for a target that does not exist.
    pub(super) fn fault_of_pull(&self, work: &CommandRun) -> Option<Option<String>> {
        match self {
            StatusUpdate::AsBefore(_) => None,
            _ if work.command.name != CommandName::Plan => None,
            StatusUpdate::Failed(because) => work.run.everything.then(|| Some(because.clone())),
            _ => work.run.everything.then_some(None),
        }
    }

    /// The statuses, from the pull request's project statuses as they are now.
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
                    CommandName::Apply if known => statuses.apply(&projects, true).into_iter().collect(),
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
                list.extend(statuses.apply(&projects, false));
                list
            }
            StatusUpdate::AfterApply { failed: Some((failed, all)) } => {
                vec![statuses.failed(name, &format!("{failed} of {all} failed"))]
            }
            StatusUpdate::AfterApply { failed: None } => {
                let projects = tx.project_statuses(pull)?;
                statuses.apply(&projects, true).into_iter().collect()
            }
        })
    }
}
