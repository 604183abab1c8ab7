//! Turns of waiting pull requests: turns without a plan, and repeated ones, are not lost.

use super::*;
use tidelock_core::domain::ownership::InvalidationCause;

fn lock(number: u64) -> ProjectLock {
    project_lock(repo("github.com", "infra"), project("net"), number, 0)
}

fn whose(tx: &Tx<'_>) -> Result<Vec<u64>> {
    Ok(tx.replans()?.iter().filter_map(|delivery| delivery.event.pull_id()).map(|pull| pull.number).collect())
}

#[tokio::test]
async fn a_turn_that_nobody_takes_is_the_next_ones() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in [1, 2, 3] {
                tx.lock_project(&lock(number))?;
            }
            tx.close_pull(&pull_id(1))?;
            assert_eq!(whose(tx)?, [2]);
            let turn = tx.replans()?.remove(0).identity;
            // The pull request is closed before its plan begins, which frees nothing.
            tx.close_pull(&pull_id(2))?;
            assert_eq!(tx.begin_replan(&turn)?, []);
            assert_eq!(whose(tx)?, [2, 3]);
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
            let turn = tx.replans()?.remove(0).identity;
            assert_eq!(tx.begin_replan(&turn)?, [project("net")]);
            tx.lock_project(&lock(2))?;
            tx.put_plan(&plan("p", 2, "net"))?;
            let cause = InvalidationCause::BaseMoved { branch: "main".into(), commit: "f".repeat(40).into() };
            tx.record_lock_event(&LockEvent::PlansInvalidated { plans: vec!["p".into()], cause, at: at(9) })?;
            tx.set_delivery_state(&turn, DeliveryState::Done, "planned")?;
            let again = tx.replans()?.remove(0).identity;
            assert_eq!(tx.begin_replan(&again)?, [project("net")]);
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
            let turn = tx.replans()?.remove(0).identity;
            assert_eq!(tx.begin_replan(&turn)?, [project("net")]);
            tx.put_run(&Run { pull: pull_id(2), delivery: Some(turn.clone()), ..run("cut", None) })?;
            tx.set_delivery_state(&turn, DeliveryState::Queued, "the server stops")?;
            tx.close_pull(&pull_id(3))?;
            let again = tx.replans()?.remove(1).identity;
            assert_eq!(tx.begin_replan(&turn)?, [project("net")], "it goes on");
            tx.set_delivery_state(&turn, DeliveryState::Done, "planned")?;
            assert_eq!(tx.begin_replan(&again)?, [project("db")]);
            Ok(())
        })
        .await
        .unwrap();
}
