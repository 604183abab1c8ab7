//! What is special to detections that the server begins by itself: their projects, who is told, and their record.

use super::DriftRequest;
use crate::config::ProjectConfig;
use crate::config::drift::ProjectPatterns;
use crate::domain::RepoId;
use crate::domain::drift::{DriftCheck, DriftCheckEnd, DriftDetection};
use crate::domain::state::Run;
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
}

impl DriftRequest {
    /// Returns true if all projects are meant.
    pub(super) fn is_of_all(&self) -> bool {
        let has_patterns = self.scheduled.as_ref().is_some_and(|scheduled| scheduled.projects.is_some());
        self.wanted.is_empty() && !has_patterns
    }

    /// Returns true if all projects at the tip of the branch are meant.
    pub(super) fn is_whole(&self) -> bool {
        self.is_of_all() && self.commit.is_none() && self.tag.is_none()
    }

    /// Returns true if receivers are notified of drift.
    pub(super) fn notifies(&self) -> bool {
        self.scheduled.as_ref().is_none_or(|scheduled| scheduled.notifies)
    }

    /// Drops the projects that the schedule leaves out.
    pub(super) fn leave_out(&self, schedule: &mut Schedule) -> Result<(), RequestRefused> {
        let Some(patterns) = self.scheduled.as_ref().and_then(|scheduled| scheduled.projects.as_ref()) else {
            return Ok(());
        };
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
