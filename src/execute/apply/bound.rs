//! Checks that a plan still matches the pull request, and commits the beginning of its apply.

use super::super::job::JobRun;
use super::super::not_run::NotRun;
use super::super::plan;
use super::ApplyRun;
use super::preconditions::ApplyPreconditions;
use crate::config::ProjectConfig;
use crate::domain::JobId;
use crate::domain::outcome::{Failure, Outcome};
use crate::domain::state::{AuditEntry, PlanRecord};
use crate::execute::notices::NoticeWriter;
use crate::locks::{Consequences, ConsumedPlan, LockEvent, WantedLock};
use crate::store::Tx;
use anyhow::{Context as _, Result};

impl ApplyRun<'_> {
    /// Checks invariant 4: commit, base branch and configuration. The tool is checked once it is known.
    pub(super) fn still_bound(&self, plan: &PlanRecord, config: &ProjectConfig) -> Result<(), NotRun> {
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
            return Ok(());
        };
        Err(Failure::StalePlan { because }.into())
    }

    /// Commits the beginning of an apply before Terraform starts: plan consumed, job begun, lock held, apply lock not set.
    pub(super) async fn consume(
        &self,
        config: &ProjectConfig,
        preconditions: ApplyPreconditions,
    ) -> Result<(JobRun<'_>, ConsumedPlan), NotRun> {
        let project = plan::wanted_lock(self.ctx, self.work, config);
        let entry = self.audit_entry(config, &preconditions.plan, "begun");
        let start = ApplyStart { preconditions, project, entry };
        let notices = NoticeWriter::new(self.ctx);
        let writer = notices.clone();
        let begun = JobRun::begin(self.ctx, self.work, config, move |tx, job| {
            start.record(tx, &job.id, |follows| writer.enqueue(tx, follows))
        });
        let begun = begun.await?;
        notices.after_commit(self.ctx).await;
        Ok(begun)
    }
}

/// Terraform's message for a state that has changed since the plan.
const STATE_CHANGED: &str = "Saved plan is stale";

/// Reports an apply that Terraform refused, because the state has changed since the plan, as a stale plan.
pub(super) fn as_stale_plan(outcome: Outcome) -> Outcome {
    match &outcome {
        Outcome::Errored(fault) if fault.output.contains(STATE_CHANGED) => {
            let because =
                "somebody has changed the state by other means since it was planned, so Terraform refuses the plan";
            Outcome::Failed(Failure::StalePlan { because: because.to_owned() })
        }
        _ => outcome,
    }
}

/// The commit that an apply begins with.
pub(in super::super) struct ApplyStart {
    pub(in super::super) preconditions: ApplyPreconditions,
    /// Its project, with the lock that is needed.
    pub(in super::super) project: WantedLock,
    /// Audit entry of the beginning, which stays known even if this server dies.
    pub(in super::super) entry: AuditEntry,
}

impl ApplyStart {
    /// Consumes the plan for this job, if its preconditions are met. `enqueue` enqueues the notices to others.
    pub(in super::super) fn record(
        &self,
        tx: &Tx<'_>,
        job: &JobId,
        enqueue: impl FnOnce(&Consequences) -> Result<()>,
    ) -> Result<ConsumedPlan, NotRun> {
        if let Some(failure) = self.preconditions.refusal(tx)? {
            return Err(failure.into());
        }
        self.use_up(tx, job, enqueue)
    }

    /// Does the same after the preconditions were checked in this transaction.
    pub(in super::super) fn use_up(
        &self,
        tx: &Tx<'_>,
        job: &JobId,
        enqueue: impl FnOnce(&Consequences) -> Result<()>,
    ) -> Result<ConsumedPlan, NotRun> {
        let (plan, project) = (self.preconditions.plan.id.clone(), self.project.clone());
        let event = LockEvent::ApplyBegins { plan, job: job.clone(), project };
        let follows = tx.record_lock_event(&event)?;
        let consumed = follows.consumed().cloned();
        if let Some(refusal) = follows.refusal {
            let place = follows.places.into_iter().next().map(|(_, place)| place);
            return Err(plan::lock_failure(refusal, place).into());
        }
        enqueue(&follows)?;
        tx.audit(&self.entry)?;
        Ok(consumed.context("an apply begins without its plan")?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::cancel::{Cancel, CancelReason};
    use super::super::preconditions::ApplyGate;
    use super::*;
    use crate::config::LockMode;
    use crate::domain::freeze::Freeze;
    use crate::domain::outcome::{PlanSummary, Reason};
    use crate::domain::state::{ApplyLock, LockHolder, ProjectLock};
    use crate::domain::state_address::StateAddress;
    use crate::domain::{ProjectId, PullId, RepoId};
    use crate::execute::freeze::FreezeGuard;
    use crate::store::Store;
    use jiff::Timestamp;
    use std::time::Duration;

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

    pub(in super::super) fn plan() -> PlanRecord {
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

    /// Begins an apply in a store with the plan, after `change`. Returns the result, the number of plans left, and the locks.
    async fn begin(
        change: impl FnOnce(&Tx<'_>, &Cancel) -> Result<()> + Send + 'static,
    ) -> (Result<(), Failure>, usize, Vec<ProjectLock>) {
        begin_within(None, change).await
    }

    /// Does the same with a maximum age of plans.
    async fn begin_within(
        max_age: Option<Duration>,
        change: impl FnOnce(&Tx<'_>, &Cancel) -> Result<()> + Send + 'static,
    ) -> (Result<(), Failure>, usize, Vec<ProjectLock>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let cancel = Cancel::default();
        let project = WantedLock { lock: lock(1), mode: LockMode::OnPlan };
        let gate = ApplyGate { cancel: cancel.clone(), frozen: FreezeGuard::without_windows(pull(1).repo) };
        let preconditions = ApplyPreconditions { gate, plan: plan(), max_age, of_pull: None };
        let start = ApplyStart { preconditions, project, entry: AuditEntry::default() };
        let said = store.write(move |tx| {
            tx.put_plan(&plan())?;
            change(tx, &cancel)?;
            match start.record(tx, &"job".into(), |_| Ok(())) {
                Ok(_) => Ok(Ok(())),
                Err(NotRun::Failure(failure)) => Ok(Err(failure)),
                Err(NotRun::Stop(_)) => panic!("something broke"),
            }
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
}
