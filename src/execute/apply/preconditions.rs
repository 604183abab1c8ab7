//! Preconditions of an apply. They are checked before it waits for its turn, and again in the commit that it begins with: meanwhile the events of
//! other pull requests are recorded.

use super::super::applicable_plans::ApplicablePlans;
use super::ApplyRun;
use crate::config::{ProjectConfig, Requirement};
use crate::domain::outcome::Failure;
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, ProjectId, PullId};
use crate::store::View;
use anyhow::Result;

/// What the commit that an apply begins with checks again.
pub(super) struct ApplyPreconditions {
    pull: PullId,
    head: CommitSha,
    config: ProjectConfig,
    /// It applies what was owed after the merge.
    after_merge: bool,
    /// `undiverged` is among its requirements.
    wants_undiverged: bool,
    /// All that the pull request changes has to be planned, but for the project itself, and what this command has outdated.
    all_planned_but: Option<Vec<ProjectId>>,
    /// Projects that the same command has applied.
    applied: Vec<ProjectId>,
    /// The last activity before the requirements were asked for.
    activity: i64,
}

impl ApplyRun<'_> {
    /// Whether all that the pull request changes has to be planned before this is applied.
    pub(super) fn wants_all_planned(&self, config: &ProjectConfig) -> bool {
        config.wants_all_planned() && !self.work.command.only && self.work.after_merge.is_none()
    }

    /// Those of one project. `activity` is the last activity before its requirements were checked.
    pub(super) fn preconditions(
        &self,
        config: &ProjectConfig,
        plan: &PlanRecord,
        applied: &[ProjectId],
        activity: i64,
    ) -> ApplyPreconditions {
        let after_merge = self.work.after_merge.is_some();
        let mut but = self.outdated_here();
        but.push(config.id.clone());
        ApplyPreconditions {
            pull: self.work.pull.id.clone(),
            head: self.work.pull.head.commit.clone(),
            config: config.clone(),
            after_merge,
            wants_undiverged: !after_merge && self.wanted(config, plan).contains(&Requirement::Undiverged),
            all_planned_but: self.wants_all_planned(config).then_some(but),
            applied: applied.to_vec(),
            activity,
        }
    }
}

impl ApplyPreconditions {
    /// What does not hold any more.
    pub(super) fn refusal(&self, view: &View<'_>) -> Result<Option<Failure>> {
        let now = ApplicablePlans::read(view, &self.pull, self.after_merge)?;
        if let Some(but) = &self.all_planned_but {
            let mut missing = now.not_planned(&self.head);
            missing.retain(|project| !but.contains(project));
            if !missing.is_empty() {
                return Ok(Some(Failure::NotPlanned { missing }));
            }
        }
        let missing = now.missing(&self.config, &self.applied);
        if !missing.is_empty() {
            return Ok(Some(Failure::Dependency { missing }));
        }
        if self.wants_undiverged && view.closed_since(&self.pull.repo, self.activity)? {
            let because = "another pull request was merged or closed in the moment in which it was to begin, and `undiverged` was met before that"
                .to_owned();
            return Ok(Some(Failure::StalePlan { because }));
        }
        Ok(None)
    }
}
