//! State locks that Terraform may have left because it was killed. They are settled by a later run that succeeds, or reported, so that
//! nobody finds out only by the next plan.

use super::inner::Inner;
use super::recorder::Commit;
use crate::domain::PullId;
use crate::domain::reply::{LeftLock, Message};
use crate::domain::state::Job;
use crate::execute::state_locks::after_kill;
use crate::runner::local::state_lock::LockEvidence;
use anyhow::Result;

/// Reports state locks that no later run has settled, once. Called when nothing else is left to do for a pull request.
pub(super) async fn settle(inner: &Inner, pull: &PullId) {
    let jobs = inner.ctx.orphaned_locks.take(pull);
    if let Err(error) = report_jobs(inner, pull, jobs).await {
        tracing::error!(%pull, error = format!("{error:#}"), "that a state lock may be left could not be told; the next start does");
    }
}

async fn report_jobs(inner: &Inner, pull: &PullId, mut jobs: Vec<Job>) -> Result<()> {
    let asked = jobs.clone();
    let settled =
        inner.ctx.store.read(move |view| asked.iter().map(|job| view.succeeded_since(job)).collect::<Result<Vec<_>>>());
    let settled = settled.await?;
    let mut left: Vec<LeftLock> = Vec::new();
    for (job, settled) in jobs.iter_mut().zip(settled) {
        job.state_lock.untold = false;
        let Some(project) = job.project.clone().filter(|_| !settled) else { continue };
        let found = match (inner.ctx.runner.left_lock(job).await, job.state_lock.left.clone()) {
            // Its tree was deleted meanwhile.
            (LockEvidence::Unknown, Some(lock)) => LockEvidence::Local(lock),
            (found, _) => found,
        };
        if found == LockEvidence::Nothing || left.iter().any(|told| told.project == project) {
            continue;
        }
        let because = after_kill(&inner.ctx, &project, &found);
        left.push(LeftLock { project, kind: job.kind.replace('_', " "), job: job.id.clone(), because });
    }
    let effects = if left.is_empty() { Vec::new() } else { inner.answer(pull, None, Message::StateLocks { left }) };
    let told = Commit::about(pull).posts(effects);
    told.record_with(inner, move |tx| jobs.iter().try_for_each(|job| tx.put_job(job))).await
}
