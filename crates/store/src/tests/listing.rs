//! Lists for the dashboard: counts, pages, failures first, and search.

use super::*;
use tidelock_core::domain::ownership::ProjectOwner;
use tidelock_core::domain::policies::{PolicyApproval, PolicyCheckRecord, PolicySetRecord};
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::waiting::{WaitCause, WaitingPull};

fn failed(dir: &str) -> ProjectStatus {
    ProjectStatus { job: Some("e".repeat(32).into()), ..status(dir, ProjectState::PlanErrored) }
}

fn numbers(found: &Found<ListedPull>) -> Vec<u64> {
    found.rows.iter().map(|listed| listed.pull.id.number).collect()
}

#[tokio::test]
async fn pulls_come_in_pages_with_failures_first_and_counts_of_all() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in 1..=7 {
                tx.put_pull(&pull_request(number))?;
                tx.put_project_status(&pull_id(number), &status("a", ProjectState::Planned))?;
            }
            tx.put_project_status(&pull_id(2), &failed("b"))?;
            tx.put_pull(&pull_request(8))?;
            tx.put_pull(&pull_request(9))?;
            tx.set_fault(&pull_id(8), Some("`atlantis.yaml` is broken"))?;
            // A lock of another pull request is not a failure.
            tx.put_project_status(&pull_id(1), &status("c", ProjectState::PlanErrored))?;
            let first = tx.list_pulls(&window("", 0, 4))?;
            assert_eq!((first.fitting, first.all), (8, 8));
            assert_eq!(numbers(&first), [8, 2, 1, 7]);
            assert_eq!(first.rows[0].fault.as_deref(), Some("`atlantis.yaml` is broken"));
            assert_eq!(numbers(&tx.list_pulls(&window("", 4, 4))?), [6, 5, 4, 3]);
            assert_eq!(tx.failures()?, 2);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_fault_stays_until_a_plan_is_answered_or_the_pull_request_is_closed() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_pull(&pull_request(1))?;
            tx.set_fault(&pull_id(1), Some("broken"))?;
            tx.put_pull(&pull_request(1))?;
            assert_eq!(tx.fault(&pull_id(1))?.as_deref(), Some("broken"));
            assert!(tx.known_pull(&pull_id(1))?.unwrap().watermark.is_some(), "the rest of the record stays");
            tx.set_fault(&pull_id(1), None)?;
            assert_eq!(tx.fault(&pull_id(1))?, None);
            tx.set_fault(&pull_id(1), Some("broken"))?;
            tx.forget_pull(&pull_id(1))?;
            assert_eq!(tx.failures()?, 0);
            tx.put_pull(&pull_request(1))?;
            assert_eq!(tx.fault(&pull_id(1))?, None, "opened again");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_search_finds_all_words_wherever_they_are_read() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for (number, title) in [(1, "Open SSH"), (2, "Rotate 100% of keys"), (3, "Drop \"x\" table")] {
                tx.put_pull(&PullRequest { title: title.into(), ..pull_request(number) })?;
                tx.put_project_status(&pull_id(number), &status(&format!("dir{number}"), ProjectState::Planned))?;
            }
            tx.put_project_status(&pull_id(3), &failed("net"))?;
            let found = |words: &str| Ok::<_, anyhow::Error>(numbers(&tx.list_pulls(&window(words, 0, 10))?));
            assert_eq!(found("ssh OPEN")?, [1]);
            assert_eq!(found("plan failed")?, [3]);
            assert_eq!(found("infra#2")?, [2]);
            assert_eq!(found("dir1/default")?, [1]);
            assert_eq!(found("100%")?, [2], "no sign stands for others");
            assert_eq!(found("a_ice")?, [0; 0]);
            assert_eq!(found("\"x\"")?, [3]);
            assert_eq!(found("plan_errored title watermark")?, [0; 0], "only what is read, not how it is kept");
            let none = tx.list_pulls(&window("nobody", 0, 10))?;
            assert_eq!((none.fitting, none.all), (0, 3));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn locks_and_jobs_are_searched_and_paged_too() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_pull(&pull_request(1))?;
            for number in 0..5 {
                let held = project_lock(repo("github.com", "infra"), project(&format!("d{number}")), 1, number);
                tx.lock_project(&held)?;
                let ended =
                    Job { summary: format!("{number} to add"), ..job(&format!("j{number}"), JobState::Succeeded) };
                tx.put_job(&ended)?;
            }
            tx.put_job(&job("running", JobState::Running))?;
            tx.put_project_status(&pull_id(1), &failed("d3"))?;
            let locks = tx.list_locks(&window("", 1, 2))?;
            let dirs: Vec<_> = locks.rows.iter().map(|(lock, _)| lock.project.dir.as_str()).collect();
            assert_eq!((dirs, locks.fitting), (vec!["d3", "d2"], 5));
            assert_eq!(locks.rows[0].1.as_ref().map(|status| status.state), Some(ProjectState::PlanErrored));
            assert_eq!(tx.list_locks(&window("plan failed", 0, 9))?.fitting, 1);
            let jobs = tx.list_ended_jobs(&window("", 0, 2))?;
            let ids: Vec<_> = jobs.rows.iter().map(|(job, _)| job.id.as_str()).collect();
            assert_eq!((ids, jobs.fitting), (vec!["j4", "j3"], 5));
            assert_eq!(jobs.rows[0].1, Some(pull_request(1)));
            assert_eq!(tx.list_ended_jobs(&window("3 add succeeded subnet", 0, 9))?.rows[0].0.id, "j3");
            assert_eq!(tx.list_running_jobs(&window("running", 0, 9))?.fitting, 1);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_search_looks_at_the_newest_jobs_alone() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_job(&Job { summary: "7 to add".into(), ..job("first", JobState::Succeeded) })?;
            tx.put_job(&Job { summary: "7 to add".into(), ..job("second", JobState::Succeeded) })?;
            let fill = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2999)
                INSERT INTO jobs (id, run, pull, state, started, record) SELECT n, run, pull, state, started, ?1 FROM n, jobs WHERE id = 'first'";
            assert_eq!(tx.execute(fill, [json(&job("later", JobState::Succeeded))?])?, 2_999);
            let found = tx.list_ended_jobs(&window("7 add", 0, 9))?;
            let ids: Vec<_> = found.rows.iter().map(|(job, _)| job.id.as_str()).collect();
            assert_eq!((ids, found.fitting, found.all), (vec!["second"], 1, 3_000));
            assert_eq!(tx.list_ended_jobs(&window("", 0, 1))?.all, 3_001);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_project_that_waits_names_the_lock_that_it_waits_for() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_pull(&pull_request(1))?;
            let held = project_lock(repo("github.com", "infra"), project("net"), 7, 0);
            tx.lock_project(&held)?;
            tx.put_project_status(&pull_id(1), &status("net", ProjectState::PlanErrored))?;
            assert_eq!(tx.list_pulls(&window("", 0, 9))?.rows[0].blocked_by, std::slice::from_ref(&held));
            tx.unlock_pull(&pull_id(7))?;
            assert_eq!(tx.list_pulls(&window("", 0, 9))?.rows[0].blocked_by, []);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn what_waits_for_a_person_has_failures_of_open_pulls_and_locks_that_others_wait_for() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in 1..=4 {
                tx.put_pull(&pull_request(number))?;
                tx.put_project_status(&pull_id(number), &failed("a"))?;
            }
            tx.put_project_status(&pull_id(4), &status("b", ProjectState::Planned))?;
            tx.forget_pull(&pull_id(3))?;
            tx.set_fault(&pull_id(2), Some("broken"))?;
            let owner = |number| {
                let lock =
                    project_lock(repo("github.com", "infra"), project("net"), number, i64::try_from(number).unwrap());
                ProjectOwner::unknown(&lock.holder, None, "no list")
            };
            tx.insert_owner(&owner(9))?;
            tx.insert_owner(&owner(8))?;
            for (number, dir) in [(5, "free"), (6, "late"), (7, "early")] {
                tx.lock_project(&project_lock(
                    repo("github.com", "infra"),
                    project(dir),
                    number,
                    20 - i64::try_from(number)?,
                ))?;
            }
            for (number, dir) in [(1, "late"), (2, "early"), (5, "free")] {
                let address = StateAddress::default();
                let (project, pull, since) = (project(dir), pull_id(number), at(0));
                tx.insert_waiter(&WaitingPull { project, pull, since, cause: WaitCause::Plan, address })?;
            }
            let all = tx.attention(9)?;
            let number = |pull: &PullId| pull.number;
            assert_eq!(all.owed.iter().map(|owner| number(&owner.holder.pull)).collect::<Vec<_>>(), [8, 9]);
            assert_eq!(all.failed.iter().map(|(pull, _)| number(&pull.id)).collect::<Vec<_>>(), [4, 2, 1]);
            assert_eq!(
                all.faults.iter().map(|(pull, why)| (number(&pull.id), &**why)).collect::<Vec<_>>(),
                [(2, "broken")]
            );
            assert_eq!(all.contested.iter().map(|lock| number(&lock.holder.pull)).collect::<Vec<_>>(), [7, 6]);
            let first = tx.attention(1)?;
            assert_eq!((first.owed.len(), first.failed.len(), first.contested.len()), (1, 1, 1));
            assert_eq!(first.contested, all.contested[..1]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn policies_wait_for_approval_until_it_is_given_or_their_plan_is_gone() {
    let (_dir, store) = open();
    let check = |number: u64, plan_id: &str, passed: bool, approvals: usize| {
        let approval = PolicyApproval { by: "olga".into(), at: at(0), items: Vec::new() };
        let set = PolicySetRecord {
            name: "gate".into(),
            passed,
            items: Vec::new(),
            item_regex: None,
            approvals: vec![approval; approvals],
            required: 2,
        };
        PolicyCheckRecord {
            pull: pull_id(number),
            project: project("net"),
            plan: plan_id.into(),
            head: "a".repeat(40).into(),
            policies_digest: String::new(),
            sets: vec![set],
            checked: at(0),
        }
    };
    store
        .write(move |tx| {
            let rows =
                [("none", false, 0), ("one", false, 1), ("both", false, 2), ("passed", true, 0), ("closed", false, 0)];
            for (number, (id, passed, approvals)) in (1..).zip(rows) {
                tx.put_pull(&pull_request(number))?;
                tx.put_plan(&plan(id, number, "net"))?;
                tx.put_policy_check(&check(number, id, passed, approvals))?;
            }
            tx.put_pull(&pull_request(9))?;
            tx.put_policy_check(&check(9, "without its plan", false, 0))?;
            tx.forget_pull(&pull_id(5))?;
            let numbers = |limit| -> anyhow::Result<Vec<u64>> {
                Ok(tx.attention(limit)?.unapproved.iter().map(|(pull, _)| pull.id.number).collect())
            };
            assert_eq!((numbers(9)?, numbers(1)?), (vec![2, 1], vec![2]));
            Ok(())
        })
        .await
        .unwrap();
}
