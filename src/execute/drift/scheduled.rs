//! What is special to detections that the server begins by itself: their projects, who is told, and their record.

use super::DriftRequest;
use crate::config::ProjectConfig;
use crate::config::drift::{IssueRule, ProjectPatterns};
use crate::domain::drift::{DriftCheck, DriftCheckEnd, DriftDetection, ProjectDrift};
use crate::domain::state::Run;
use crate::domain::{ProjectId, RepoId};
use crate::execute::cancel::Cancel;
use crate::execute::context::Context;
use crate::execute::prepare;
use crate::execute::request_refused::RequestRefused;
use crate::schedule::Schedule;
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;

/// A detection that the server begins by itself.
#[derive(Debug, Clone)]
pub(crate) struct ScheduledDetection {
    /// Its record, which says that it has begun.
    pub check: DriftCheck,
    /// Projects to plan; all if absent.
    pub projects: Option<ProjectPatterns>,
    /// Receivers are notified of drift.
    pub notifies: bool,
    /// Issues that are kept; absent for none.
    pub issue: Option<IssueRule>,
}

impl DriftRequest {
    /// Returns the patterns of the projects that the schedule means; absent for all.
    fn patterns(&self) -> Option<&ProjectPatterns> {
        self.scheduled.as_ref().and_then(|scheduled| scheduled.projects.as_ref())
    }

    /// Returns true if all projects are meant.
    pub(super) fn is_of_all(&self) -> bool {
        self.wanted.is_all() && self.patterns().is_none()
    }

    /// Returns true if receivers are notified of drift.
    pub(super) fn notifies(&self) -> bool {
        self.scheduled.as_ref().is_none_or(|scheduled| scheduled.notifies)
    }

    /// Drops the projects that the schedule leaves out.
    pub(super) fn leave_out(&self, schedule: &mut Schedule) -> Result<(), RequestRefused> {
        let Some(patterns) = self.patterns() else { return Ok(()) };
        let is_meant = |config: &ProjectConfig| patterns.matches(&config.id);
        schedule.groups.iter_mut().for_each(|group| group.retain(is_meant));
        if schedule.groups.iter().all(Vec::is_empty) {
            let text = format!(
                "`drift.projects` in `repos.yaml` matches no project of the branch {:?}: {}",
                self.branch,
                patterns.describe()
            );
            return Err(RequestRefused::Wrong(text));
        }
        Ok(())
    }
}

/// Returns the change that records the end of a scheduled detection, with its run; it does nothing for other requests. One that was stopped
/// has no end: the next leader begins it again.
pub(super) fn end_of_check(
    request: &DriftRequest,
    run: &Run,
    found: &Result<DriftDetection, RequestRefused>,
) -> impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static {
    let ended = request.scheduled.as_ref().filter(|_| !matches!(found, Err(RequestRefused::Stopped)));
    let ended = ended.map(|scheduled| {
        let end = DriftCheckEnd { at: Timestamp::now(), run: Some(run.id.clone()), refused: run.fault.clone() };
        (scheduled.check.clone(), end)
    });
    move |tx| ended.map_or(Ok(()), |(check, end)| tx.end_drift_check(&check, end))
}

/// Returns the change that drops findings on projects that the tip of the branch does not have any more; absent if the request
/// means some projects or a commit. These are the findings of the request.
pub(super) fn drop_of_gone(
    request: &DriftRequest,
    found: &[ProjectDrift],
) -> Option<impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static> {
    let is_at_tip = request.wanted.is_all() && request.commit.is_none() && request.tag.is_none();
    let (repo, branch, patterns) = (request.repo.clone(), request.branch.clone(), request.patterns().cloned());
    let there: Vec<ProjectId> = found.iter().map(|found| found.project.clone()).collect();
    is_at_tip.then_some(move |tx: &Tx<'_>| {
        let is_meant = |project: &ProjectId| patterns.as_ref().is_none_or(|patterns| patterns.matches(project));
        tx.drop_drift_of(&repo, &branch, |project| is_meant(project) && !there.contains(project))
    })
}

/// Returns the default branch of a repository, as its host names it.
///
/// # Errors
///
/// The reason for which it is not known.
pub(crate) async fn default_branch(ctx: &Context, repo: &RepoId, cancel: &Cancel) -> Result<String, RequestRefused> {
    let asking = async {
        let address = super::clone_url(ctx, repo)?;
        let credentials = prepare::credentials_of(ctx, repo).await;
        let named = ctx.checkouts.default_branch(repo, &address, credentials.as_ref()).await?;
        named.ok_or_else(|| {
            let text = format!("the host names no default branch of {repo}: set `drift.branch` in `repos.yaml`");
            RequestRefused::NotFound(text)
        })
    };
    tokio::select! {
        biased;
        () = cancel.token.cancelled() => Err(RequestRefused::Stopped),
        named = asking => named,
    }
}
