//! The commit that the beginning of an apply is.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job::{ExecutorSlot, JobRun};
use super::super::not_run::NotRun;
use super::super::notices::NoticeWriter;
use super::super::plan::lock_failure;
use super::super::preconditions::{ApplyPreconditions, PlanOwner, Preconditions};
use crate::config::ProjectConfig;
use crate::domain::JobId;
use crate::domain::outcome::{Failure, Outcome};
use crate::domain::state::{AuditEntry, Job};
use crate::locks::{Consequences, ConsumedPlan, LockEvent, WantedLock};
use crate::store::Tx;
use anyhow::{Context as _, Result, anyhow};

/// Terraform's message for a state that has changed since the plan.
const STATE_CHANGED: &str = "Saved plan is stale";

/// Reports an apply that Terraform refused, because the state has changed since the plan, as a stale plan.
pub(super) fn as_stale_plan(outcome: Outcome) -> Outcome {
    match &outcome {
        Outcome::Errored(fault) if fault.output.contains(STATE_CHANGED) => {
            let because = "the state changed outside of this server after the plan, so Terraform refuses it";
            Outcome::Failed(Failure::StalePlan { because: because.to_owned() })
        }
        _ => outcome,
    }
}

/// The commit that an apply begins with.
pub(in super::super) struct ApplyStart {
    pub(in super::super) preconditions: Preconditions,
    /// Its project, with the lock that is needed.
    pub(in super::super) project: WantedLock,
    /// Audit entry of the beginning, which stays known even if this server dies.
    pub(in super::super) entry: AuditEntry,
    /// Its place at an executor; absent if the server applies it.
    pub(in super::super) slot: Option<ExecutorSlot>,
}

impl ApplyStart {
    /// Commits the beginning of an apply before Terraform starts: preconditions met, plan consumed, job begun, lock held. `first` adds to
    /// the commit, if the preconditions are met.
    pub(in super::super) async fn commit<'a>(
        mut self,
        ctx: &'a Context,
        work: &'a CommandRun,
        config: &ProjectConfig,
        first: impl FnOnce(&mut ApplyStart, &Tx<'_>, &Job) -> Result<()> + Send + 'static,
    ) -> Result<(JobRun<'a>, ConsumedPlan), NotRun> {
        let (notices, slot) = (NoticeWriter::new(ctx), self.slot.take());
        let writer = notices.clone();
        let begun = JobRun::begin(ctx, work, config, slot, move |tx, job| {
            self.record(tx, &job.id, |start| first(start, tx, job), |follows| writer.enqueue(tx, follows))
        });
        let begun = begun.await?;
        notices.after_commit(ctx).await;
        Ok(begun)
    }

    /// Consumes the plan for this job, if its preconditions are met. `enqueue` enqueues the notices to others.
    fn record(
        &mut self,
        tx: &Tx<'_>,
        job: &JobId,
        first: impl FnOnce(&mut ApplyStart) -> Result<()>,
        enqueue: impl FnOnce(&Consequences) -> Result<()>,
    ) -> Result<ConsumedPlan, NotRun> {
        if let Some(failure) = self.preconditions.refusal(tx)? {
            return Err(failure.into());
        }
        first(self)?;
        let ApplyPreconditions { plan, of } =
            self.preconditions.apply.as_ref().context("an apply begins without a plan")?;
        let is_new = matches!(of, PlanOwner::DriftRun);
        if is_new {
            tx.put_plan(plan)?;
        }
        let event = LockEvent::ApplyBegins { plan: plan.id.clone(), job: job.clone(), project: self.project.clone() };
        let follows = tx.record_lock_event(&event)?;
        let consumed = follows.consumed().cloned();
        match follows.refusal {
            // The plan is recorded in this transaction, which must not be committed.
            Some(refusal) if is_new => Err(anyhow!("a project that nobody has was refused: {refusal:?}").into()),
            Some(refusal) => {
                let place = follows.places.into_iter().next().map(|(_, place)| place);
                Err(lock_failure(refusal, place).into())
            }
            None => {
                enqueue(&follows)?;
                tx.audit(&self.entry)?;
                Ok(consumed.context("an apply begins without its plan")?)
            }
        }
    }
}

#[cfg(test)]
pub(in super::super) mod tests {
    use super::super::super::cancel::{Cancel, CancelReason};
    use super::super::super::preconditions::PullPreconditions;
    use super::*;
    use crate::config::LockMode;
    use crate::config::global::GlobalConfig;
    use crate::domain::freeze::Freeze;
    use crate::domain::outcome::{PlanSummary, Reason};
    use crate::domain::state::{ApplyLock, LockHolder, PlanRecord, ProjectLock};
    use crate::domain::state_address::StateAddress;
    use crate::domain::{AutoApply, ProjectId, PullId, RepoId};
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
            overdue: None,
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

    fn config() -> ProjectConfig {
        ProjectConfig::from_rules(lock(1).project, &GlobalConfig::without_file().rules(&pull(1).repo, "main"))
    }

    pub(in super::super::super) fn plan() -> PlanRecord {
        PlanRecord {
            id: "p".into(),
            pull: pull(1),
            project: lock(1).project,
            head: "a".repeat(40).into(),
            base: "b".repeat(40).into(),
            base_branch: "main".into(),
            config_digest: config().digest(),
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
            guards: Vec::new(),
            tree: None,
            auto_apply: AutoApply::Never,
            arguments: Vec::new(),
            deleted: false,
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
        begin_of(PlanOwner::Pull(Box::new(of_pull(max_age))), change).await
    }

    fn of_pull(max_age: Option<Duration>) -> PullPreconditions {
        PullPreconditions {
            head: plan().head,
            base_branch: plan().base_branch,
            config: config(),
            max_age,
            after_merge: false,
            is_automatic: false,
            guarded: false,
            wants_undiverged: false,
            all_planned_but: None,
            applied: Vec::new(),
            activity: None,
        }
    }

    /// Does the same for this owner of the plan.
    async fn begin_of(
        of: PlanOwner,
        change: impl FnOnce(&Tx<'_>, &Cancel) -> Result<()> + Send + 'static,
    ) -> (Result<(), Failure>, usize, Vec<ProjectLock>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let cancel = Cancel::default();
        let project = WantedLock { lock: lock(1), mode: LockMode::OnPlan };
        let is_recorded = matches!(of, PlanOwner::Pull(_));
        let preconditions = Preconditions::of_apply(&cancel, ApplyPreconditions { plan: plan(), of });
        let mut start = ApplyStart { preconditions, project, entry: AuditEntry::default(), slot: None };
        let said = store.write(move |tx| {
            if is_recorded {
                tx.put_plan(&plan())?;
            }
            change(tx, &cancel)?;
            match start.record(tx, &"job".into(), |_| Ok(()), |_| Ok(())) {
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
    async fn an_automatic_apply_does_not_begin_once_it_is_cancelled() {
        for (when, is_cancelled) in [(AutoApply::Met, false), (AutoApply::Met, true), (AutoApply::Never, false)] {
            let of_pull = PullPreconditions { is_automatic: true, ..of_pull(None) };
            let begun = begin_of(PlanOwner::Pull(Box::new(of_pull)), move |tx, _| {
                tx.discard_plan(&pull(1), &lock(1).project)?;
                tx.put_plan(&PlanRecord { auto_apply: when, ..plan() })?;
                if is_cancelled {
                    assert_eq!(tx.cancel_auto_apply(&pull(1), &plan().head)?, [lock(1).project.label()]);
                }
                Ok(())
            });
            let (said, plans, locks) = begun.await;
            if when == AutoApply::Met && !is_cancelled {
                assert_eq!((said, plans, locks.len()), (Ok(()), 0, 1));
            } else {
                assert!(matches!(said, Err(Failure::Cancelled { .. })), "{said:?}");
                assert_eq!((plans, locks), (1, vec![]));
            }
        }
    }

    #[tokio::test]
    async fn a_drift_run_begins_only_where_no_pull_request_holds_the_project() {
        let (said, plans, locks) = begin_of(PlanOwner::DriftRun, |_, _| Ok(())).await;
        assert_eq!((said, plans, locks), (Ok(()), 0, vec![ProjectLock { applied: true, ..lock(1) }]));
        let (said, plans, locks) = begin_of(PlanOwner::DriftRun, |tx, _| tx.lock_project(&lock(2)).map(drop)).await;
        assert!(matches!(said, Err(Failure::Refused { reason: Reason::Locked, .. })), "{said:?}");
        assert_eq!((plans, locks), (0, vec![lock(2)]));
        let set = ApplyLock { user: "bob".into(), reason: String::new(), since: Timestamp::UNIX_EPOCH };
        let (said, plans, locks) = begin_of(PlanOwner::DriftRun, move |tx, _| tx.set_apply_lock(Some(&set))).await;
        assert!(matches!(said, Err(Failure::Refused { reason: Reason::NotPermitted, .. })), "{said:?}");
        assert_eq!((plans, locks), (0, vec![]));
    }

    #[tokio::test]
    async fn a_plan_that_is_older_than_it_may_be_is_not_applied_and_stays() {
        let (said, plans, locks) = begin_within(Some(Duration::from_secs(86_400)), |_, _| Ok(())).await;
        assert!(matches!(said, Err(Failure::StalePlan { because }) if because.contains("the limit is 1 d")));
        assert_eq!((plans, locks), (1, vec![]));
        let (said, plans, _) = begin_within(Some(Duration::from_secs(1 << 36)), |_, _| Ok(())).await;
        assert_eq!((said, plans), (Ok(()), 0));
    }
}
