//! Turns of waiting pull requests: turns without a plan, and repeated ones, are not lost, and their re-plans survive an end of the server at
//! any moment.

use super::*;
use tidelock_core::domain::ownership::InvalidationCause;
use tidelock_core::domain::waiting::{ReplanId, ReplanState};

fn lock(number: u64) -> ProjectLock {
    project_lock(repo("github.com", "infra"), project("net"), number, 0)
}

fn whose(tx: &Tx<'_>) -> Result<Vec<u64>> {
    Ok(tx.replans()?.iter().map(|replan| replan.scope.pull.number).collect())
}

/// Has pull request 2 get its turn for `net`, for which 3 waits as well. Returns the re-plan.
fn turn_of_second(tx: &Tx<'_>) -> Result<ReplanId> {
    for number in [1, 2, 3] {
        tx.lock_project(&lock(number))?;
    }
    tx.close_pull(&pull_id(1))?;
    assert_eq!(whose(tx)?, [2]);
    Ok(tx.replans()?[0].id)
}

/// Begins a re-plan of its pull request. Returns the projects that are due, or none if it has ended.
pub(super) fn begin(tx: &Tx<'_>, replan: ReplanId) -> Result<Vec<ProjectId>> {
    let Some(known) = tx.replan(replan)? else { return Ok(Vec::new()) };
    Ok(tx.begin_replan(replan, &known.scope.pull)?.expect("it is one of this pull request"))
}

/// Records the beginning of a run of this re-plan, as a command does.
fn begin_run(tx: &Tx<'_>, id: &str, replan: ReplanId) -> Result<()> {
    let run = Run { pull: pull_id(2), cause: Cause::Replan(replan), ..run(id, None) };
    tx.put_run(&run)?;
    tx.begin_cause(&run.cause, &run.id)
}

#[tokio::test]
async fn a_turn_that_nobody_takes_is_the_next_ones() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let turn = turn_of_second(tx)?;
            // The pull request is closed before its plan begins, which frees nothing.
            tx.close_pull(&pull_id(2))?;
            assert_eq!(begin(tx, turn)?, []);
            assert_eq!(whose(tx)?, [2, 3]);
            tx.end_replan(turn)?;
            assert_eq!(whose(tx)?, [3]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_plan_invalidated_during_its_turn_has_another_one() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in [1, 2] {
                tx.lock_project(&lock(number))?;
            }
            tx.close_pull(&pull_id(1))?;
            let turn = tx.replans()?[0].id;
            assert_eq!(begin(tx, turn)?, [project("net")]);
            tx.lock_project(&lock(2))?;
            tx.put_plan(&plan("p", 2, "net"))?;
            let cause = InvalidationCause::BaseMoved { branch: "main".into(), commit: "f".repeat(40).into() };
            tx.record_lock_event(&LockEvent::PlansInvalidated { plans: vec!["p".into()], cause, at: at(9) })?;
            tx.end_replan(turn)?;
            let again = tx.replans()?[0].id;
            assert_eq!(begin(tx, again)?, [project("net")]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_turn_after_a_shutdown_during_a_replan_has_another_one() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let name = |number: u64| if number == 3 { "db" } else { "net" };
            let lock = |number| project_lock(repo("github.com", "infra"), project(name(number)), number, 0);
            for number in [1, 2, 3] {
                tx.lock_project(&lock(number))?;
            }
            tx.lock_project(&ProjectLock { project: project("db"), ..lock(2) })?;
            tx.close_pull(&pull_id(1))?;
            let turn = tx.replans()?[0].id;
            assert_eq!(begin(tx, turn)?, [project("net")]);
            begin_run(tx, "cut", turn)?;
            tx.close_pull(&pull_id(3))?;
            let states: Vec<_> = tx.replans()?.into_iter().map(|replan| replan.state).collect();
            assert_eq!(states, [ReplanState::Running, ReplanState::Queued]);
            let again = tx.replans()?[1].id;
            assert_eq!(begin(tx, turn)?, [project("net")], "it goes on");
            tx.end_replan(turn)?;
            assert_eq!(begin(tx, again)?, [project("db")]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_replan_without_a_run_begins_anew_and_passes_a_turn_on_once() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let turn = turn_of_second(tx)?;
            assert_eq!(begin(tx, turn)?, [project("net")]);
            assert_eq!(begin(tx, turn)?, [project("net")], "the server ended before its run");
            // The pull request is closed before the server comes back.
            tx.close_pull(&pull_id(2))?;
            for _ in 0..2 {
                assert_eq!(begin(tx, turn)?, []);
                assert_eq!(whose(tx)?, [2, 3]);
                assert_eq!(tx.replans()?[1].scope.projects, [project("net")]);
            }
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn the_end_of_a_replan_and_the_next_turn_are_one_change() {
    let (_dir, store) = open();
    let turn = store
        .write(|tx| {
            let turn = turn_of_second(tx)?;
            begin(tx, turn)?;
            begin_run(tx, "planning", turn)?;
            Ok(turn)
        })
        .await
        .unwrap();
    // Its plan took no lock, so the turn is the next one's.
    let end = move |tx: &Tx<'_>| -> Result<(Vec<u64>, usize)> {
        tx.unlock_pull(&pull_id(2))?;
        tx.end_cause(&Cause::Replan(turn), "answered")?;
        let unfinished = tx.unfinished_runs()?.len();
        Ok((whose(tx)?, unfinished))
    };
    let failed = store.write(move |tx| end(tx).and_then(|_| -> Result<()> { bail!("another server leads") })).await;
    assert_eq!(failed.unwrap_err().to_string(), "another server leads");
    let before = store.read(|view| Ok((view.replans()?, view.unfinished_runs()?.len()))).await.unwrap();
    assert_eq!((before.0.len(), before.0[0].id, before.0[0].state, before.1), (1, turn, ReplanState::Running, 1));
    assert_eq!(store.write(end).await.unwrap(), (vec![3], 0));
    assert_eq!(store.write(end).await.unwrap(), (vec![3], 0), "it ends once");
    let begun = store.write(move |tx| begin_run(tx, "late", turn)).await.unwrap_err().to_string();
    insta::assert_snapshot!(begun, @"the run late cannot begin: its replan:1 has ended already");
}

#[tokio::test]
async fn the_id_of_a_replan_is_not_given_to_another_one() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let turn = turn_of_second(tx)?;
            tx.close_pull(&pull_id(2))?;
            tx.end_replan(turn)?;
            let next = tx.replans()?[0].id;
            assert_ne!(next, turn);
            tx.close_pull(&pull_id(3))?;
            tx.end_replan(next)?;
            assert!(whose(tx)?.is_empty());
            for number in [4, 5] {
                tx.lock_project(&lock(number))?;
            }
            tx.close_pull(&pull_id(4))?;
            assert!(tx.replans()?.iter().all(|replan| ![turn, next].contains(&replan.id)));
            assert_eq!(whose(tx)?, [5]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_replan_follows_its_repository_and_ends_with_it() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let turn = turn_of_second(tx)?;
            begin(tx, turn)?;
            begin_run(tx, "cut", turn)?;
            let now = repo("github.com", "net");
            let pull = PullId { repo: now.clone(), number: 2 };
            let sight = Sighting { repo: now.clone(), key: "7".into() };
            let polled = Timestamp::from_second(1_700_000_000)?;
            tx.begin_polling(&pull_id(2).repo, polled)?;
            tx.rename_repo(&pull_id(2).repo, &sight, &[None, None])?;
            assert_eq!((tx.polled_since(&now)?, tx.polled_since(&pull_id(2).repo)?), (Some(polled), None));
            let moved: Vec<_> =
                tx.replans_of(&pull)?.into_iter().map(|replan| (replan.id, replan.scope.pull)).collect();
            assert_eq!(moved, [(turn, pull.clone())]);
            assert_eq!(tx.begin_replan(turn, &pull_id(2))?, None, "it was enqueued before the rename");
            assert!(tx.has_unfinished_work(&pull)? && !tx.has_unfinished_work(&pull_id(2))?);
            assert_eq!(begin(tx, turn)?, [project("net")], "its run goes on");
            tx.end_repo(&now, "7", "it is gone")?;
            assert!(whose(tx)?.is_empty() && tx.unfinished_runs()?.is_empty());
            Ok(())
        })
        .await
        .unwrap();
}
