//! Runs the order groups of a schedule one after another: the same for plans and applies.

use super::{CommandRun, job};
use crate::config::ProjectConfig;
use crate::domain::ProjectId;
use crate::domain::outcome::{Failure, JobOutcome, Outcome};
use anyhow::Result;
use futures::StreamExt;

/// What a command does with each project.
pub(super) trait Projects {
    /// Runs one. `succeeded`: projects whose jobs went well before it could begin. An error: this server does not lead any more.
    fn run(&self, config: &ProjectConfig, succeeded: &[ProjectId]) -> impl Future<Output = Result<JobOutcome>> + Send;

    /// Takes note of one that does not start because an earlier group failed.
    fn skip(&self, outcome: JobOutcome) -> impl Future<Output = Result<JobOutcome>> + Send;
}

/// Order groups and how they run.
pub(super) struct Groups<'a> {
    pub(super) groups: &'a [Vec<ProjectConfig>],
    /// After a failed group the later ones do not start.
    pub(super) abort: bool,
    /// Projects of one group that are under way at the same time.
    pub(super) at_once: usize,
}

impl Groups<'_> {
    /// Outcomes of all projects, in the order of the schedule.
    pub(super) async fn run(&self, work: &CommandRun, projects: &impl Projects) -> Result<Vec<JobOutcome>> {
        let mut outcomes: Vec<JobOutcome> = Vec::new();
        for group in self.groups {
            if self.abort && outcomes.iter().any(|outcome| !outcome.outcome.is_success()) {
                for config in group {
                    let outcome = job::refused(work, config, Outcome::Failed(Failure::EarlierGroupFailed));
                    outcomes.push(projects.skip(outcome).await?);
                }
            } else if self.at_once <= 1 {
                for config in group {
                    let before = succeeded(&outcomes);
                    outcomes.push(projects.run(config, &before).await?);
                }
            } else {
                let before = succeeded(&outcomes);
                let jobs: Vec<_> = group.iter().map(|config| projects.run(config, &before)).collect();
                let results: Vec<_> = futures::stream::iter(jobs).buffered(self.at_once).collect().await;
                for result in results {
                    outcomes.push(result?);
                }
            }
        }
        Ok(outcomes)
    }
}

fn succeeded(outcomes: &[JobOutcome]) -> Vec<ProjectId> {
    outcomes.iter().filter(|outcome| outcome.outcome.is_success()).map(|outcome| outcome.project.clone()).collect()
}
