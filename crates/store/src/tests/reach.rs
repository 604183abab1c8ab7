//! Rows that are read for a lock event: only those that it is about, however many locks and waiters other pull requests have.

use super::*;
use std::time::Duration;
use tidelock_core::config::LockScope;
use tidelock_core::domain::ownership::{ChangedProject, ChangedProjects, InvalidationCause, OwnerState, ProjectOwner};
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::waiting::{WaitCause, WaitingPull};
use tidelock_core::locks::{MergedInto, MergedPull};

/// Number of unrelated pull requests, each with a project of its own.
const OTHERS: u64 = 30;

fn lock(number: u64, dir: &str) -> ProjectLock {
    project_lock(repo("github.com", "infra"), project(dir), number, 0)
}

fn owner(number: u64, dir: &str) -> ProjectOwner {
    let ProjectLock { repo, project, holder, .. } = lock(number, dir);
    ProjectOwner {
        repo,
        project,
        holder,
        state: OwnerState::Planned,
        applied: None,
        merged: None,
        told: None,
        reminder_interval: None,
        approved: None,
        reason: String::new(),
    }
}

fn waits(number: u64, dir: &str) -> WaitingPull {
    WaitingPull {
        project: project(dir),
        pull: pull_id(number),
        since: at(0),
        cause: WaitCause::Apply,
        address: StateAddress::default(),
    }
}

/// Returns each event about pull request 1 and the project `net`, in mode `strict`.
fn events() -> Vec<LockEvent> {
    let (pull, project) = (pull_id(1), project("net"));
    let strict = wanted(&lock(1, "net"), LockMode::Strict(LockScope::PullRequest));
    let by = AuditEntry { at: at(9), who: "bob".into(), act: "unlock".into(), ..AuditEntry::default() };
    let holder = strict.lock.holder.clone();
    let merged = MergedPull {
        head: "head".into(),
        commit: None,
        branch: "main".into(),
        at: at(9),
        holder: holder.clone(),
        into: MergedInto::Applied,
    };
    let (id, job, head) = ("own", "job", "head");
    vec![
        LockEvent::PlanBegins { pull: pull.clone(), projects: vec![strict.clone()], everything: true },
        LockEvent::PlanGoesOn { projects: vec![strict.clone()] },
        LockEvent::NotPlanned { pull: pull.clone(), project: project.clone() },
        LockEvent::ApplyBegins { plan: id.into(), job: job.into(), project: strict.clone() },
        LockEvent::StateChangeBegins { project: strict, job: job.into(), head: head.into() },
        LockEvent::StateChanged { pull: pull.clone(), project: project.clone(), outputs: true, at: at(9) },
        LockEvent::ApplyFailed { pull: pull.clone(), project: project.clone(), at: at(9) },
        LockEvent::Satisfied { pull: pull.clone(), project: project.clone(), merges: Vec::new(), alone: true },
        LockEvent::PlansInvalidated {
            plans: vec![id.into()],
            cause: InvalidationCause::AppliedBy { pull: pull_id(2) },
            at: at(9),
        },
        LockEvent::OwnershipTaken { holder, reason: String::new() },
        LockEvent::ReminderDue { pull: pull.clone(), usual: Duration::from_secs(1), at: at(9) },
        LockEvent::TurnBegins { pull: pull.clone(), projects: vec![project.clone()], at: at(9) },
        LockEvent::TurnEnds { pull: pull.clone(), projects: vec![project] },
        LockEvent::ProjectsNamed { pull: pull.clone(), projects: Vec::new() },
        LockEvent::Reopened { pull: pull.clone() },
        LockEvent::Unlocked { pull: pull.clone(), only: None, accept_drift: true, by: by.clone() },
        LockEvent::LockDeleted { key: lock(2, "net").id(), applying: None, by },
        LockEvent::Closed { pull: pull.clone(), remarks: Vec::new(), merged: None },
        LockEvent::MergeKnown { pull: pull.clone(), merged: merged.clone() },
        LockEvent::Closed { pull, remarks: Vec::new(), merged: Some(merged) },
    ]
}

#[tokio::test]
async fn an_event_reads_nothing_that_is_between_other_pull_requests() {
    let (_dir, store) = open();
    let fill = |tx: &Tx<'_>| {
        let changed = [ChangedProject { project: project("net"), strict: true, reminder_interval: None }];
        tx.put_changed_projects(&ChangedProjects { pull: pull_id(1), head: "head".into(), projects: changed.into() })?;
        tx.put_plan(&plan("own", 1, "net"))?;
        tx.insert_owner(&owner(2, "net"))?;
        tx.insert_owner(&owner(1, "app"))?;
        tx.insert_waiter(&waits(1, "net"))?;
        tx.insert_waiter(&waits(3, "net"))?;
        tx.lock_project(&lock(2, "net"))?;
        for number in 10..10 + OTHERS {
            let dir = format!("other{number}");
            tx.insert_owner(&owner(number, &dir))?;
            tx.insert_waiter(&waits(number + OTHERS, &dir))?;
            tx.lock_project(&lock(number, &dir))?;
            tx.put_plan(&plan(&dir, number, &dir))?;
        }
        Ok(())
    };
    store.write(fill).await.unwrap();
    let read = |view: &View<'_>| {
        for event in events() {
            let world = view.world_of(&event)?;
            let is_near = |pull: &PullId| pull.number < 10;
            assert!(world.owners.iter().all(|owner| is_near(&owner.holder.pull)), "{event:?}: {:#?}", world.owners);
            assert!(world.waiters.iter().all(|waiter| is_near(&waiter.pull)), "{event:?}: {:#?}", world.waiters);
            assert!(world.locks.iter().all(|lock| is_near(&lock.holder.pull)), "{event:?}: {:#?}", world.locks);
            assert!(world.plans.iter().all(|plan| is_near(&plan.pull)), "{event:?}: {:#?}", world.plans);
            // All related waiters are loaded, the oldest first.
            let is_of_pull_alone = matches!(event, LockEvent::ReminderDue { .. } | LockEvent::Reopened { .. });
            if matches!(event, LockEvent::ProjectsNamed { .. }) {
                continue;
            }
            let line: Vec<u64> = world.waiters.iter().map(|waiter| waiter.pull.number).collect();
            let expected: &[u64] = match &event {
                LockEvent::Unlocked { .. } | LockEvent::Closed { merged: None, .. } => continue,
                _ if is_of_pull_alone => &[1],
                _ => &[1, 3],
            };
            assert_eq!(line, expected, "{event:?}");
        }
        Ok(())
    };
    store.read(read).await.unwrap();
}

#[tokio::test]
async fn a_plan_that_an_event_concerns_under_two_names_is_invalidated_once() {
    let (_dir, store) = open();
    let merge = |tx: &Tx<'_>| {
        let named = |name: &str| ProjectId { name: Some(name.into()), ..project("net") };
        let changed = |name| ChangedProject { project: named(name), strict: true, reminder_interval: None };
        let projects = ["one", "two"].map(changed).into();
        tx.put_changed_projects(&ChangedProjects { pull: pull_id(1), head: "head".into(), projects })?;
        tx.put_plan(&PlanRecord { project: named("one"), ..plan("other", 2, "net") })?;
        tx.record_lock_event(&events().pop().unwrap())
    };
    let follows = store.write(merge).await.unwrap();
    assert_eq!(
        follows.invalidated.iter().map(|invalidated| invalidated.plan.id.as_str()).collect::<Vec<_>>(),
        ["other"]
    );
}
