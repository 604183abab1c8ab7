//! Invalidates plans in mode `strict` without a command on their pull request: when their inputs change on the base branch, and when they exceed
//! `plan_max_age`. After a push to the pull request itself, `queues.rs` cancels the running plan and `execute/apply/bound.rs` refuses the
//! recorded one.
//!
//! A push only says where to look, and is not recorded: the host knows the tip of the branch. Branches that are not checked before the end
//! of this server are checked by the next one: its reconciliation checks every branch that such plans were made for.

use super::actor::fetch_pull;
use super::decide::NOT_ALLOWLISTED;
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::recorder;
use crate::domain::ownership::InvalidationCause;
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, PlanId, PullId, PullRequest, PushEvent, RepoId};
use crate::execute::base_moves;
use crate::execute::notices::NoticeWriter;
use crate::locks::LockEvent;
use crate::store::is_deposed;
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Interval of the check for plans that are too old.
const ROUND: Duration = Duration::from_secs(10);
/// Pushes within this time are handled together.
const COALESCE_DELAY: Duration = Duration::from_millis(500);
/// Branches that are checked at the same time.
const MAX_CONCURRENT: usize = 4;
/// Pull requests through which a branch is fetched before it counts as unreachable: the head of one may be deleted.
const MAX_ATTEMPTS: usize = 3;

/// A branch of a repository.
type BranchOf = (RepoId, String);

/// Branches to check, and the results for those that were checked.
#[derive(Default)]
pub(super) struct BaseBranches {
    known: Mutex<KnownBranches>,
    wanted: Notify,
}

#[derive(Default)]
struct KnownBranches {
    waiting: BTreeSet<BranchOf>,
    /// True while some are checked.
    checking: bool,
    /// Branches with plans: the tip that was seen last, and the plans that it does not invalidate.
    seen: HashMap<BranchOf, (CommitSha, HashSet<PlanId>)>,
}

impl BaseBranches {
    fn lock(&self) -> MutexGuard<'_, KnownBranches> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if no check runs or is queued.
    pub(super) fn is_empty(&self) -> bool {
        let known = self.lock();
        known.waiting.is_empty() && !known.checking
    }

    /// Queues a check of a branch.
    pub(super) fn look_at(&self, repo: &RepoId, branch: &str) {
        self.lock().waiting.insert((repo.clone(), branch.to_owned()));
        self.wanted.notify_one();
    }
}

/// Handles a push: queues a check of every branch of it that a plan depends on.
pub(super) async fn on_push(inner: &Inner, push: &PushEvent) -> DeliveryOutcome {
    if !inner.allowlist.allows(&push.repo) {
        return DeliveryOutcome::Ignored(NOT_ALLOWLISTED);
    }
    match branches_with_plans(inner, &push.repo).await {
        Ok(branches) => {
            let mut moved = push.branches.iter().filter(|branch| branches.contains(branch)).peekable();
            if moved.peek().is_none() {
                return DeliveryOutcome::Ignored("No plan has to be looked at for this push.");
            }
            moved.for_each(|branch| inner.bases.look_at(&push.repo, branch));
            DeliveryOutcome::Queued
        }
        Err(error) => DeliveryOutcome::unrecorded(&error, &push.repo, "plans could not be read"),
    }
}

/// Queues a check of every branch of a repository for which there are plans.
pub(super) async fn look_at_all(inner: &Inner, repo: &RepoId) -> Result<()> {
    let branches = branches_with_plans(inner, repo).await?;
    branches.iter().for_each(|branch| inner.bases.look_at(repo, branch));
    Ok(())
}

async fn branches_with_plans(inner: &Inner, repo: &RepoId) -> Result<Vec<String>> {
    let repo = repo.clone();
    inner.ctx.store.read(move |view| view.branches_of_strict_plans(&repo)).await
}

/// Queues a check of the base branch after a plan: it may have moved meanwhile.
pub(super) async fn note_planned(inner: &Inner, pull: &PullRequest) -> Result<()> {
    let id = pull.id.clone();
    let plans = inner.ctx.store.read(move |view| view.plans(&id)).await?;
    if plans.iter().any(|plan| plan.inputs.is_some()) {
        inner.bases.look_at(&pull.id.repo, &pull.base.branch);
    }
    Ok(())
}

/// Checks queued branches and the age of plans, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    loop {
        if tokio::time::timeout(ROUND, inner.bases.wanted.notified()).await.is_ok() {
            tokio::time::sleep(COALESCE_DELAY).await;
        }
        if inner.actors.draining() {
            return;
        }
        let inner = inner.now();
        let waiting = {
            let mut known = inner.bases.lock();
            known.checking = true;
            std::mem::take(&mut known.waiting)
        };
        let looks = futures::stream::iter(waiting).map(|branch| {
            let inner = Arc::clone(&inner);
            async move { (check_branch(&inner, &branch).await, branch) }
        });
        let mut looks = looks.buffer_unordered(MAX_CONCURRENT);
        while let Some((looked, (repo, branch))) = looks.next().await {
            match looked {
                Ok(()) => {}
                Err(error) if is_deposed(&error) => return,
                // Reconciliation checks it again.
                Err(error) => {
                    tracing::warn!(%repo, branch, "whether it makes plans stale could not be found: {error:#}")
                }
            }
        }
        inner.bases.lock().checking = false;
        match drop_old(&inner).await {
            Err(error) if is_deposed(&error) => return,
            Err(error) => tracing::warn!("plans that are too old could not be looked for: {error:#}"),
            Ok(()) => {}
        }
    }
}

/// Invalidates the plans that a branch has made stale.
async fn check_branch(inner: &Inner, branch: &BranchOf) -> Result<()> {
    let (repo, name) = branch.clone();
    let read = inner.ctx.store.read(move |view| {
        let plans = view.strict_plans_for(&repo, &name)?;
        let ids: BTreeSet<&PullId> = plans.iter().map(|plan| &plan.pull).collect();
        let pulls: Result<Vec<_>> = ids.into_iter().map(|id| view.pull(id)).collect();
        Ok((plans, pulls?))
    });
    let (mut plans, pulls) = read.await?;
    let pulls: Vec<PullRequest> = pulls.into_iter().flatten().filter(|pull| pull.base.branch == branch.1).collect();
    if plans.is_empty() || pulls.is_empty() {
        inner.bases.lock().seen.remove(branch);
        return Ok(());
    }
    let (on, tip) = tip(inner, &pulls).await?;
    let kept = match inner.bases.lock().seen.get(branch) {
        Some((seen, kept)) if *seen == tip => kept.clone(),
        _ => HashSet::new(),
    };
    plans.retain(|plan| plan.base != tip && !kept.contains(&plan.id));
    let stale = base_moves::find_stale(&inner.ctx, on, &plans, &tip).await?;
    let (stale, current): (Vec<_>, Vec<_>) = plans.into_iter().partition(|plan| stale.contains(&plan.id));
    let kept = kept.into_iter().chain(current.into_iter().map(|plan| plan.id)).collect();
    inner.bases.lock().seen.insert(branch.clone(), (tip.clone(), kept));
    let cause = InvalidationCause::BaseMoved { branch: branch.1.clone(), commit: tip };
    invalidate(inner, still_open(inner, stale).await, cause).await
}

/// Returns the tip of the base branch that these pull requests share, and the one through which it was fetched.
async fn tip<'a>(inner: &Inner, pulls: &'a [PullRequest]) -> Result<(&'a PullRequest, CommitSha)> {
    let mut last = None;
    for pull in pulls.iter().take(MAX_ATTEMPTS) {
        match base_moves::tip(&inner.ctx, pull).await {
            Ok(tip) => return Ok((pull, tip)),
            Err(error) => last = Some(error),
        }
    }
    let error = last.context("no pull request is known")?;
    Err(error).context("the base branch could not be fetched")
}

/// Returns the plans whose pull request is open at the planned head. A merge moves the branch as well, and is reported on its own.
async fn still_open(inner: &Inner, plans: Vec<PlanRecord>) -> Vec<PlanRecord> {
    let mut by_pull: BTreeMap<PullId, Vec<PlanRecord>> = BTreeMap::new();
    for plan in plans {
        by_pull.entry(plan.pull.clone()).or_default().push(plan);
    }
    let mut open = Vec::new();
    for (id, plans) in by_pull {
        match fetch_pull(inner, &id).await {
            Ok(now) if now.is_open() => open.extend(plans.into_iter().filter(|plan| plan.head == now.head.commit)),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(pull = %id, "its plans are stale, and the host does not tell how it stands: {error}")
            }
        }
    }
    open
}

/// Invalidates plans that exceed their maximum age.
async fn drop_old(inner: &Inner) -> Result<()> {
    let old = inner.ctx.store.read(|view| view.strict_plans_too_old(Timestamp::now())).await?;
    let mut by_limit: BTreeMap<Duration, Vec<PlanRecord>> = BTreeMap::new();
    for plan in old {
        by_limit.entry(plan.max_age.unwrap_or_default()).or_default().push(plan);
    }
    for (limit, plans) in by_limit {
        invalidate(inner, plans, InvalidationCause::TooOld { limit }).await?;
    }
    Ok(())
}

/// Invalidates these plans and notifies their pull requests, in one commit.
async fn invalidate(inner: &Inner, plans: Vec<PlanRecord>, cause: InvalidationCause) -> Result<()> {
    if plans.is_empty() {
        return Ok(());
    }
    tracing::info!(count = plans.len(), ?cause, "plans are invalidated");
    let plans = plans.into_iter().map(|plan| plan.id).collect();
    let event = LockEvent::PlansInvalidated { plans, cause, at: Timestamp::now() };
    let notices = NoticeWriter::new(&inner.ctx);
    let writer = notices.clone();
    recorder::transaction(inner, move |tx| writer.record(tx, &event).map(drop)).await?;
    notices.after_commit(&inner.ctx).await;
    Ok(())
}
