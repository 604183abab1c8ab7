//! Runs the order groups of a schedule one after another: the same for plans, applies and drift runs.

use super::command_run::CommandRun;
use super::context::Context;
use super::job;
use super::not_run::NotRun;
use super::permissions::RefusedProjects;
use crate::config::{LockMode, ProjectConfig};
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, JobOutcome, Outcome, Reason};
use crate::schedule::Schedule;
use anyhow::Result;
use futures::StreamExt;

/// Operation of a command on each project.
pub(super) trait Projects {
    /// Result of a project.
    type Done: Done;
    /// Participle of the operation, such as `planned`.
    const DONE: &'static str;

    /// Runs one project. `succeeded`: projects that succeeded before it began.
    fn attempt(
        &self,
        config: &ProjectConfig,
        succeeded: &[ProjectId],
    ) -> impl Future<Output = Result<Self::Done, NotRun>> + Send;

    /// Records a project that did not run. An error means that this server does not lead any more.
    fn refused(&self, outcome: JobOutcome) -> impl Future<Output = Result<Self::Done>> + Send;

    /// Records a project that does not start because an earlier group or one of its dependencies failed.
    fn skip(&self, outcome: JobOutcome) -> impl Future<Output = Result<Self::Done>> + Send {
        self.refused(outcome)
    }
}

/// Result of a project.
pub(super) trait Done: Send {
    fn project(&self) -> &ProjectId;

    /// Returns true if projects that depend on it may go on.
    fn is_success(&self) -> bool;
}

impl Done for JobOutcome {
    fn project(&self) -> &ProjectId {
        &self.project
    }

    fn is_success(&self) -> bool {
        self.outcome.is_success()
    }
}

/// Order groups and the options of their run.
pub(super) struct Groups<'a> {
    pub(super) schedule: &'a Schedule,
    /// Projects that were removed from the schedule. Projects that depend on them do not start.
    pub(super) refused: &'a RefusedProjects,
    /// Maximum number of projects of one group that run at the same time.
    pub(super) at_once: usize,
}

impl Groups<'_> {
    /// Runs all projects, and returns their results in the order of the schedule. An error means that this server does not lead any more.
    pub(super) async fn run<P: Projects>(
        &self,
        ctx: &Context,
        work: &CommandRun,
        projects: &P,
    ) -> Result<Vec<P::Done>> {
        let mut outcomes: Vec<P::Done> = Vec::new();
        let (mut order, mut earlier_failed) = (None, false);
        for group in &self.schedule.groups {
            // One `execution_order_group` may consist of several layers.
            let own = group.first().map(|config| (config.deleted, config.execution_order_group));
            if own != order {
                let failed = outcomes.iter().any(|outcome| !outcome.is_success());
                let is_after_refused =
                    self.refused.first_group.is_some_and(|first| own.is_some_and(|(_, own)| first < own));
                earlier_failed = failed || is_after_refused;
                order = own;
            }
            let aborted = self.schedule.abort_on_execution_order_fail && earlier_failed;
            let skipped = |config: &ProjectConfig, outcomes: &[P::Done]| {
                let failure = self.failed_dependency(work, P::DONE, config, outcomes);
                let failure = failure.or_else(|| self.held_destroy(work, config, outcomes));
                let failure = failure.or(aborted.then_some(Failure::EarlierGroupFailed))?;
                Some(job::refused_outcome(work, config, Outcome::Failed(failure)))
            };
            let run_or_skip = async |config: &ProjectConfig, skipped: Option<JobOutcome>, before: &[ProjectId]| {
                if let Some(outcome) = skipped {
                    return projects.skip(outcome).await;
                }
                // Much of a run is in it: boxed, it takes no part of each caller's stack.
                match Box::pin(projects.attempt(config, before)).await {
                    Ok(done) => Ok(done),
                    Err(reason) => {
                        let outcome = reason.outcome(ctx, work)?;
                        projects.refused(job::refused_outcome(work, config, outcome)).await
                    }
                }
            };
            if self.at_once <= 1 {
                for config in group {
                    let before = succeeded(&outcomes);
                    outcomes.push(run_or_skip(config, skipped(config, &outcomes), &before).await?);
                }
            } else {
                let before = succeeded(&outcomes);
                let jobs = group.iter().map(|config| run_or_skip(config, skipped(config, &outcomes), &before));
                let jobs: Vec<_> = jobs.collect();
                let results: Vec<_> = futures::stream::iter(jobs).buffered(self.at_once).collect().await;
                for result in results {
                    outcomes.push(result?);
                }
            }
        }
        Ok(outcomes)
    }

    /// Returns the failure of the destroy of a deleted project if anything before it was not applied: that may still use its resources.
    fn held_destroy(&self, work: &CommandRun, config: &ProjectConfig, outcomes: &[impl Done]) -> Option<Failure> {
        if !config.deleted || work.command.name != CommandName::Apply {
            return None;
        }
        let before = unsuccessful(outcomes).chain(unsuccessful(&self.refused.outcomes));
        named(before).map(|before| {
            let because = format!(
                "it would be destroyed after {before}, which could not be applied and may still use it. So it was not run"
            );
            Failure::Refused { reason: Reason::Dependency, because }
        })
    }

    /// Returns the failure of a project that depends on one that failed; `None` if it does not.
    fn failed_dependency(
        &self,
        work: &CommandRun,
        done: &str,
        config: &ProjectConfig,
        outcomes: &[impl Done],
    ) -> Option<Failure> {
        let on = self.schedule.dependencies.get(&config.id)?;
        // A plan in mode `strict` waits for a project that this person may not plan, as that may be planned or applied already.
        let waits = work.command.name == CommandName::Plan && matches!(config.repo_locks, LockMode::Strict(_));
        let refused: &[JobOutcome] = if waits { &[] } else { &self.refused.outcomes };
        let failed = unsuccessful(outcomes).chain(unsuccessful(refused)).filter(|project| on.contains(*project));
        named(failed).map(|failed| {
            let because = format!("it depends on {failed}, which could not be {done}, so it was not run");
            Failure::Refused { reason: Reason::Dependency, because }
        })
    }
}

/// Maximum number of projects that a refusal names.
pub(super) const MAX_NAMED: usize = 5;

fn succeeded(outcomes: &[impl Done]) -> Vec<ProjectId> {
    outcomes.iter().filter(|outcome| outcome.is_success()).map(|outcome| outcome.project().clone()).collect()
}

fn unsuccessful<D: Done>(outcomes: &[D]) -> impl Iterator<Item = &ProjectId> {
    outcomes.iter().filter(|outcome| !outcome.is_success()).map(Done::project)
}

/// Returns the first projects in words; `None` if there is none.
pub(super) fn named<'p>(projects: impl Iterator<Item = &'p ProjectId>) -> Option<String> {
    let labels: Vec<String> = projects.take(MAX_NAMED).map(|project| format!("`{}`", project.label())).collect();
    (!labels.is_empty()).then(|| labels.join(", "))
}
