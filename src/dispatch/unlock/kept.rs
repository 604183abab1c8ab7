//! `unlock --accept-drift` of projects that the pull request deletes: a person keeps their resources. The plan of the destroy counts no more,
//! so that the pull request can be merged.

use crate::domain::command::Command;
use crate::domain::state::{CommitStatus, Effect};
use crate::domain::{CommitSha, ProjectId, PullId};
use crate::render::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;

/// Deleted projects whose resources are kept.
pub(super) struct KeptProjects {
    pull: PullId,
    projects: Vec<(ProjectId, CommitSha)>,
}

impl KeptProjects {
    /// Reads those that the command is for, before their plans are dropped. `only`: projects of the command; absent for all.
    pub(super) fn before(
        tx: &Tx<'_>,
        pull: &PullId,
        command: &Command,
        only: Option<&[ProjectId]>,
    ) -> Result<KeptProjects> {
        let mut plans = tx.plans(pull)?;
        let is_meant = |project: &ProjectId| only.is_none_or(|only| only.contains(project));
        plans.retain(|plan| command.accept_drift && plan.deleted && is_meant(&plan.project));
        let projects = plans.into_iter().map(|plan| (plan.project, plan.head)).collect();
        Ok(KeptProjects { pull: pull.clone(), projects })
    }

    /// Drops their statuses, and enqueues the statuses of their commit.
    pub(super) fn record(&self, tx: &Tx<'_>, statuses: &Statuses, by: &str) -> Result<()> {
        let Some((_, head)) = self.projects.first() else { return Ok(()) };
        if let Some(mut changed) = tx.changed_projects(&self.pull)? {
            changed.projects.retain(|changed| self.projects.iter().all(|(project, _)| *project != changed.project));
            tx.put_changed_projects(&changed)?;
        }
        let mut all: Vec<CommitStatus> = Vec::new();
        for (project, _) in &self.projects {
            tx.forget_project_status(&self.pull, project)?;
            all.extend(statuses.kept(project, by));
        }
        let left = tx.project_statuses(&self.pull)?;
        all.extend([statuses.plan(&left), statuses.apply(&left)]);
        tx.post(&self.pull, all.into_iter().map(|status| Effect::Status { commit: head.clone(), status }))
    }
}
