//! Whether a plan may be applied: what it is bound to, and the commit that uses it up.

use super::super::job::JobRun;
use super::super::plan;
use super::preconditions::ApplyPreconditions;
use super::{ApplyRun, Refused};
use crate::config::ProjectConfig;
use crate::domain::JobId;
use crate::domain::duration;
use crate::domain::outcome::{Failure, Outcome};
use crate::domain::state::{AuditEntry, PlanRecord};
use crate::execute::freeze::FreezeGuard;
use crate::execute::notices::NoticeWriter;
use crate::execute::{Cancel, merged, plan_limit};
use crate::locks::{Consequences, ConsumedPlan, LockEvent, WantedLock};
use crate::store::Tx;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

impl ApplyRun<'_> {
    /// Invariant 4: commit, base branch, configuration; the tool is looked at when it is known.
    pub(super) fn still_bound(&self, plan: &PlanRecord, config: &ProjectConfig) -> Result<(), Refused> {
        let pull = &self.work.pull;
        let because = if plan.head != pull.head.commit {
            format!("it was made for commit {}, and the head is now {}", plan.head.short(), pull.head.commit.short())
        } else if !plan.base_branch.is_empty() && plan.base_branch != pull.base.branch {
            format!(
                "it was made on top of `{}`, and the pull request is now for `{}`",
                plan.base_branch, pull.base.branch
            )
        } else if plan.config_digest != config.digest() {
            "the project's configuration (workflow, requirements or version) has changed since".to_owned()
        } else {
            let limit = plan_limit(self.ctx, config);
            return too_old(plan, limit, Timestamp::now()).map_or(Ok(()), |failure| Err(failure.into()));
        };
        Err(Failure::StalePlan { because }.into())
    }

    /// The commit that Terraform waits for: the plan is used, the job has begun, the lock is held, the apply lock is not set.
    pub(super) async fn consume(
        &self,
        config: &ProjectConfig,
        plan: &PlanRecord,
        frozen: FreezeGuard,
        preconditions: ApplyPreconditions,
    ) -> Result<(JobRun<'_>, ConsumedPlan), Refused> {
        let beginning = Beginning {
            plan: plan.clone(),
            max_age: plan_limit(self.ctx, config),
            project: plan::wanted_lock(self.ctx, self.work, config),
            cancel: self.work.cancel.clone(),
            frozen,
            guarded: merged::is_guarded(self.work),
            // Whatever becomes of this server, that it began is known.
            entry: self.audit_entry(config, plan, "begun"),
        };
        let notices = NoticeWriter::new(self.ctx);
        let writer = notices.clone();
        let begun = JobRun::begin(self.ctx, self.work, config, move |tx, job| {
            if let Some(failure) = preconditions.refusal(tx)? {
                return Ok(Err(failure));
            }
            beginning.record(tx, &job.id, |follows| writer.enqueue(tx, follows))
        });
        let begun = begun.await?.map_err(Refused::from);
        notices.after_commit(self.ctx).await;
        begun
    }
}

/// How far ahead of this server's clock a plan may be made, by another server.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// The refusal of a plan that is older than it may be, or whose age the clock does not tell. The plan stays: an operator may raise the limit, and a new plan replaces it.
fn too_old(plan: &PlanRecord, limit: Option<Duration>, now: Timestamp) -> Option<Failure> {
    let (age, limit) = (plan.age(now), limit?);
    let ahead = plan.made.duration_since(now);
    if ahead > CLOCKS_DIFFER {
        let because = format!(
            "by this server's clock it is made {} from now, so nobody knows whether it is older than plans of this project may be \
             (`plan_max_age`): the clock of this server or of the one that planned is wrong",
            duration::words(ahead.unsigned_abs())
        );
        return Some(Failure::StalePlan { because });
    }
    (age > limit).then(|| {
        let (age, limit) = (duration::words(age), duration::words(limit));
        let because =
            format!("it is {age} old, and plans of this project are applied for {limit} only (`plan_max_age`)");
        Failure::StalePlan { because }
    })
}

/// What Terraform says where the state is another one than the plan was made of.
const STATE_CHANGED: &str = "Saved plan is stale";

/// An apply that Terraform refused as the state was changed since the plan is told as a stale plan.
pub(super) fn told_stale(outcome: Outcome) -> Outcome {
    match &outcome {
        Outcome::Errored(fault) if fault.output.contains(STATE_CHANGED) => {
            let because =
                "somebody has changed the state by other means since it was planned, so Terraform refuses the plan";
            Outcome::Failed(Failure::StalePlan { because: because.to_owned() })
        }
        _ => outcome,
    }
}

/// What has to hold when an apply begins.
struct Beginning {
    /// The plan, which must be there still.
    plan: PlanRecord,
    /// How old it may be.
    max_age: Option<Duration>,
    /// Its project, with the lock that is needed.
    project: WantedLock,
    cancel: Cancel,
    /// What may stop applies of the project.
    frozen: FreezeGuard,
    /// It has to change the same as the plan before the merge.
    guarded: bool,
    entry: AuditEntry,
}

impl Beginning {
    /// Uses the plan up for this job. A refusal changes nothing.
    fn record(
        &self,
        tx: &Tx<'_>,
        job: &JobId,
        tell_others: impl FnOnce(&Consequences) -> Result<()>,
    ) -> Result<Result<ConsumedPlan, Failure>> {
        if self.cancel.token.is_cancelled() {
            return Ok(Err(Failure::Cancelled { by: self.cancel.by() }));
        }
        if let Some(failure) = self.frozen.refusal(tx, Timestamp::now())? {
            return Ok(Err(failure));
        }
        if let Some(failure) = too_old(&self.plan, self.max_age, Timestamp::now()) {
            return Ok(Err(failure));
        }
        if self.guarded
            && let Some(failure) = merged::guard(&self.plan, &tx.owners_of(&self.plan.pull)?)
        {
            return Ok(Err(failure));
        }
        let (plan, project) = (self.plan.id.clone(), self.project.clone());
        let event = LockEvent::ApplyBegins { plan, job: job.clone(), project };
        let follows = tx.record_lock_event(&event)?;
        let consumed = follows.consumed().cloned();
        if let Some(refusal) = follows.refusal {
            let place = follows.places.into_iter().next().map(|(_, place)| place);
            return Ok(Err(plan::lock_failure(refusal, place)));
        }
        tell_others(&follows)?;
        tx.audit(&self.entry)?;
        Ok(Ok(consumed.context("an apply begins without its plan")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LockMode;
    use crate::domain::freeze::Freeze;
    use crate::domain::outcome::{PlanSummary, Reason};
    use crate::domain::state::{ApplyLock, LockHolder, ProjectLock};
    use crate::domain::state_address::StateAddress;
    use crate::domain::{ProjectId, PullId, RepoId};
    use crate::execute::CancelReason;
    use crate::store::Store;

    fn pull(number: u64) -> PullId {
        PullId { repo: RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() }, number }
    }

    fn lock(number: u64) -> ProjectLock {
        let holder = LockHolder {
            pull: pull(number),
            title: String::new(),
            url: String::new(),
            user: "alice".into(),
            since: Timestamp::UNIX_EPOCH,
        };
        let project = ProjectId { dir: "net".into(), workspace: "default".into(), name: None };
        ProjectLock {
            repo: holder.pull.repo.clone(),
            project,
            holder,
            applied: false,
            why: None,
            address: StateAddress::default(),
        }
    }

    fn plan() -> PlanRecord {
        PlanRecord {
            id: "p".into(),
            pull: pull(1),
            project: lock(1).project,
            head: "a".repeat(40).into(),
            base: "b".repeat(40).into(),
            base_branch: "main".into(),
            config_digest: String::new(),
            tool: String::new(),
            path: None,
            sha256: None,
            summary: PlanSummary::default(),
            made: Timestamp::UNIX_EPOCH,
            job: "planned".into(),
            consumed_by: None,
            left: crate::domain::state::LeftFiles::default(),
            dependencies: Vec::new(),
            may_depend_on_more: false,
            max_age: None,
            inputs: None,
            changes: None,
            incomparable: None,
            part: None,
        }
    }

    /// A store with the plan, after `change`; what the beginning says, the plans that are left, and the locks.
    async fn begin(
        change: impl FnOnce(&Tx<'_>, &Cancel) -> Result<()> + Send + 'static,
    ) -> (Result<(), Failure>, usize, Vec<ProjectLock>) {
        begin_within(None, change).await
    }

    /// The same where plans have a limit.
    async fn begin_within(
        max_age: Option<Duration>,
        change: impl FnOnce(&Tx<'_>, &Cancel) -> Result<()> + Send + 'static,
    ) -> (Result<(), Failure>, usize, Vec<ProjectLock>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let cancel = Cancel::default();
        let project = WantedLock { lock: lock(1), mode: LockMode::OnPlan };
        let beginning = Beginning {
            plan: plan(),
            max_age,
            project,
            cancel: cancel.clone(),
            frozen: FreezeGuard::without_windows(pull(1).repo),
            guarded: false,
            entry: AuditEntry::default(),
        };
        let said = store.write(move |tx| {
            tx.put_plan(&plan())?;
            change(tx, &cancel)?;
            Ok(beginning.record(tx, &"job".into(), |_| Ok(()))?.map(drop))
        });
        let said = said.await.unwrap();
        let (plans, locks) = store.read(|view| Ok((view.plans(&pull(1))?.len(), view.locks()?))).await.unwrap();
        (said, plans, locks)
    }

    #[tokio::test]
    async fn an_apply_that_begins_uses_its_plan_up_and_keeps_its_lock() {
        let (said, plans, locks) = begin(|_, _| Ok(())).await;
        assert_eq!((said, plans, locks), (Ok(()), 0, vec![ProjectLock { applied: true, ..lock(1) }]));
    }

    #[tokio::test]
    async fn a_plan_that_is_gone_or_used_is_not_applied_and_no_lock_stays() {
        for used in [false, true] {
            let (said, _, locks) = begin(move |tx, _| match used {
                true => tx.consume_plan("p", "another job").map(drop),
                false => tx.discard_plan(&pull(1), &lock(1).project).map(drop),
            })
            .await;
            assert!(matches!(said, Err(Failure::NoPlan { .. })), "{said:?}");
            assert_eq!(locks, []);
        }
    }

    #[tokio::test]
    async fn a_refused_beginning_costs_nothing() {
        let freeze = Freeze {
            repo: pull(1).repo,
            user: "carol".into(),
            why: "release".into(),
            since: Timestamp::UNIX_EPOCH,
            pull: None,
        };
        let (said, plans, locks) = begin(move |tx, _| tx.freeze(&freeze).map(drop)).await;
        assert!(matches!(said, Err(Failure::Refused { reason: Reason::Frozen, .. })), "{said:?}");
        assert_eq!((plans, locks), (1, vec![]));
        let set = ApplyLock { user: "bob".into(), reason: "freeze".into(), since: Timestamp::UNIX_EPOCH };
        let (said, plans, locks) = begin(move |tx, _| tx.set_apply_lock(Some(&set))).await;
        assert!(matches!(said, Err(Failure::Refused { because, .. }) if because.contains("(freeze)")));
        assert_eq!((plans, locks), (1, vec![]));

        let (said, plans, locks) = begin(|tx, _| tx.lock_project(&lock(2)).map(drop)).await;
        assert!(matches!(said, Err(Failure::Locked(_))));
        assert_eq!((plans, locks), (1, vec![lock(2)]));

        let (said, plans, locks) = begin(|_, cancel| {
            cancel.cancel(CancelReason::Person("bob".into()));
            Ok(())
        })
        .await;
        assert_eq!((said, plans, locks), (Err(Failure::Cancelled { by: "bob".into() }), 1, vec![]));
    }

    #[tokio::test]
    async fn a_plan_that_is_older_than_it_may_be_is_not_applied_and_stays() {
        let (said, plans, locks) = begin_within(Some(Duration::from_secs(86_400)), |_, _| Ok(())).await;
        assert!(matches!(said, Err(Failure::StalePlan { because }) if because.contains("are applied for 1 d only")));
        assert_eq!((plans, locks), (1, vec![]));
        let (said, plans, _) = begin_within(Some(Duration::from_secs(1 << 36)), |_, _| Ok(())).await;
        assert_eq!((said, plans), (Ok(()), 0));
    }

    #[test]
    fn a_plan_is_too_old_once_it_is_older_than_the_limit() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let limit = Some(Duration::from_secs(60));
        for (now, limit, refused) in [
            (60, limit, false),
            (61, limit, true),
            (-5, limit, false),
            (61, None, false),
            (-300, limit, false),
            (-301, limit, true),
            (-301, None, false),
        ] {
            assert_eq!(too_old(&plan(), limit, at(now)).is_some(), refused, "{now} {limit:?}");
        }
        let said = too_old(&plan(), limit, at(-3600));
        assert!(
            matches!(said, Some(Failure::StalePlan { because }) if because.contains("clock") && because.contains("1 h"))
        );
    }
}
