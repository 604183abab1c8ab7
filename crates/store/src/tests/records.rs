//! Contents, order and refusals of each kind of record.

use super::*;
use crate::Lane;
use crate::retention::Pruned;
use tidelock_core::domain::AutoApply;
use tidelock_core::domain::job_times::{JobTimes, StepKind, StepTime, TimeMark};

#[tokio::test]
async fn a_delivery_is_accepted_once_also_when_it_is_done() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            assert!(tx.accept_delivery(&delivery("a"))?);
            assert!(tx.accept_delivery(&delivery("b"))?);
            assert!(!tx.accept_delivery(&delivery("a"))?);
            tx.set_delivery_state(&"b".into(), DeliveryState::Running, "")?;
            let states: Vec<_> = tx.unfinished_deliveries()?;
            assert_eq!(
                states,
                [(delivery("a"), DeliveryState::Queued), (delivery("b"), DeliveryState::Running)],
                "oldest first, with their states"
            );
            tx.set_delivery_state(&"a".into(), DeliveryState::Done, "planned")?;
            assert!(!tx.accept_delivery(&delivery("a"))?);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(identities(&store).await, ["b"]);
}

#[tokio::test]
async fn a_done_delivery_never_runs_again() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.accept_delivery(&delivery("a"))?;
            tx.set_delivery_state(&"a".into(), DeliveryState::Done, "planned")
        })
        .await
        .unwrap();
    store.write(|tx| tx.set_delivery_state(&"a".into(), DeliveryState::Done, "superseded")).await.unwrap();
    let error = store.write(|tx| tx.set_delivery_state(&"a".into(), DeliveryState::Running, "")).await.unwrap_err();
    insta::assert_snapshot!(error, @"the delivery a cannot become running: it is unknown, or done already");
    assert!(store.write(|tx| tx.set_delivery_state(&"unknown".into(), DeliveryState::Done, "")).await.is_err());
}

#[tokio::test]
async fn a_lock_of_the_same_pull_request_is_taken_again_without_changing_since() {
    let (_dir, store) = open();
    let repo = repo("github.com", "infra");
    let first = project_lock(repo.clone(), project("net"), 1, 10);
    store
        .write(move |tx| {
            assert_eq!(tx.lock_project(&first)?, None);
            let again = project_lock(repo.clone(), project("net"), 1, 99);
            assert_eq!(tx.lock_project(&again)?, None);
            assert_eq!(tx.locks()?, std::slice::from_ref(&first));

            let other = project_lock(repo.clone(), project("net"), 2, 50);
            assert_eq!(tx.lock_project(&other)?, Some(first.holder.clone()));
            assert!(!tx.unlock_project(&project("net"), &other.holder.pull)?, "only its holder gives it back");
            assert!(tx.unlock_project(&project("net"), &first.holder.pull)?);
            assert!(!tx.unlock_project(&project("net"), &first.holder.pull)?);
            assert_eq!(tx.lock_project(&other)?, None);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn locks_differ_by_host_repository_directory_workspace_and_name() {
    let (_dir, store) = open();
    let home = repo("github.com", "infra");
    let named = |name: &str| ProjectId { name: Some(name.into()), ..project("net") };
    let locks = [
        project_lock(home.clone(), project("net"), 1, 0),
        project_lock(repo("ghe.example.com", "infra"), project("net"), 2, 1),
        project_lock(repo("github.com", "other"), project("net"), 3, 2),
        project_lock(home.clone(), project("app"), 4, 3),
        project_lock(home.clone(), ProjectId { workspace: "staging".into(), ..project("net") }, 5, 4),
        project_lock(home.clone(), named("x"), 1, 5),
        project_lock(home.clone(), named("y"), 1, 6),
    ];
    store
        .write(move |tx| {
            for lock in &locks {
                assert_eq!(tx.lock_project(lock)?, None, "{}", lock.key());
            }
            assert_eq!(tx.locks()?, locks);
            assert_eq!(tx.lock_by_key("acme/infra/net/default/x")?.as_ref(), Some(&locks[5]));
            assert_eq!(tx.lock_by_key("acme/infra/net/default/")?, None, "two hosts have it");
            for lock in &locks {
                assert_eq!(tx.lock_by_key(&lock.id())?.as_ref(), Some(lock));
            }
            assert_eq!(tx.lock_by_key("acme/infra/net/default")?, None);
            let other = project_lock(home.clone(), named("z"), 6, 7);
            assert!(tx.lock_project(&other)?.is_some(), "another pull request has the state under other names");
            assert_eq!(tx.unlock_pull(&pull_id(1))?, [locks[0].clone(), locks[5].clone(), locks[6].clone()]);
            assert_eq!(tx.locks_of(&pull_id(1))?, []);
            assert_eq!(tx.lock_by_key("acme/infra/net/default/")?.as_ref(), Some(&locks[1]));
            assert_eq!(tx.locks()?.len(), 4);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn the_apply_lock_is_set_and_lifted() {
    let (_dir, store) = open();
    let lock = ApplyLock { user: "alice".into(), reason: "freeze".into(), since: at(5) };
    let expected = lock.clone();
    store.write(move |tx| tx.set_apply_lock(Some(&lock))).await.unwrap();
    assert_eq!(store.read(|view| view.apply_lock()).await.unwrap(), Some(expected));
    store.write(|tx| tx.set_apply_lock(None)).await.unwrap();
    assert_eq!(store.read(|view| view.apply_lock()).await.unwrap(), None);
}

#[tokio::test]
async fn automatic_applies_are_cancelled_with_all_plans_of_the_head() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_pull(&pull_request(1))?;
            let head = pull_request(1).head.commit;
            tx.put_plan(&PlanRecord { auto_apply: AutoApply::Met, ..plan("p", 1, "a") })?;
            tx.put_plan(&plan("q", 1, "b"))?;
            assert_eq!(tx.auto_apply_cancelled(&pull_id(1))?, None);
            assert_eq!(tx.cancel_auto_apply(&pull_id(1), &head)?, [project("a").label()]);
            assert_eq!(tx.plans(&pull_id(1))?, [plan("p", 1, "a"), plan("q", 1, "b")]);
            assert!(!tx.end_auto_apply(&"p".into())?, "it has ended already");
            tx.put_pull(&pull_request(1))?;
            assert_eq!(tx.auto_apply_cancelled(&pull_id(1))?, Some(head.as_str().to_owned()));
            assert!(tx.known_pull(&pull_id(1))?.unwrap().watermark.is_some(), "the rest of the record stays");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_plan_is_used_at_most_once_and_replaced_by_the_next_one_of_its_project() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_plan(&plan("1", 1, "b"))?;
            tx.put_plan(&plan("2", 1, "a"))?;
            tx.put_plan(&plan("other", 2, "b"))?;
            tx.put_plan(&plan("3", 1, "b"))?;
            assert!(!tx.consume_plan("1", "job")?, "replaced");
            assert_eq!(tx.plans(&pull_id(1))?, [plan("2", 1, "a"), plan("3", 1, "b")]);
            assert!(tx.consume_plan("3", "job")?);
            assert!(!tx.consume_plan("3", "job")?);
            assert!(!tx.consume_plan("3", "another")?);
            assert!(!tx.discard_plan(&pull_id(1), &project("b"))?, "nothing to apply there any more");
            assert_eq!(tx.plans(&pull_id(1))?, [plan("2", 1, "a")]);
            assert_eq!(tx.discard_plans(&pull_id(1))?, [plan("2", 1, "a")]);
            assert_eq!(tx.discard_plans(&pull_id(1))?, []);
            assert!(tx.discard_plan(&pull_id(2), &project("b"))?);
            assert!(!tx.consume_plan("other", "job")?, "discarded");
            Ok(())
        })
        .await
        .unwrap();
    let again = store.write(|tx| tx.put_plan(&plan("3", 1, "b"))).await;
    assert!(again.is_err(), "a consumed plan does not come back by being recorded again");
}

#[tokio::test]
async fn project_statuses_keep_the_order_in_which_they_came() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_project_status(&pull_id(1), &status("b", ProjectState::Planned))?;
            tx.put_project_status(&pull_id(1), &status("a", ProjectState::PlanErrored))?;
            tx.put_project_status(&pull_id(2), &status("c", ProjectState::Planned))?;
            tx.put_project_status(&pull_id(1), &status("b", ProjectState::Applied))?;
            let expected = [status("b", ProjectState::Applied), status("a", ProjectState::PlanErrored)];
            assert_eq!(tx.project_statuses(&pull_id(1))?, expected);
            tx.clear_project_statuses(&pull_id(1))?;
            assert_eq!(tx.project_statuses(&pull_id(1))?, []);
            assert_eq!(tx.project_statuses(&pull_id(2))?.len(), 1);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn listed_pulls_have_a_status_or_a_lock_and_come_latest_activity_first() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let numbers = |tx: &Tx<'_>| -> Result<Vec<u64>> {
                Ok(tx.list_pulls(&window("", 0, 10))?.rows.into_iter().map(|listed| listed.pull.id.number).collect())
            };
            for number in 1..=4 {
                tx.put_pull(&pull_request(number))?;
            }
            assert_eq!(numbers(tx)?, [0; 0]);
            tx.put_project_status(&pull_id(1), &status("a", ProjectState::Planned))?;
            tx.lock_project(&project_lock(repo("github.com", "infra"), project("x"), 3, 0))?;
            tx.put_project_status(&pull_id(2), &status("b", ProjectState::Planned))?;
            assert_eq!(numbers(tx)?, [2, 1, 3]);
            tx.put_pull(&pull_request(3))?;
            assert_eq!(numbers(tx)?, [3, 2, 1]);
            let first = tx.list_pulls(&window("", 0, 1))?;
            assert_eq!((first.rows[0].pull.clone(), first.fitting, first.all), (pull_request(3), 3, 3));

            tx.put_plan(&plan("1", 2, "b"))?;
            tx.forget_pull(&pull_id(2))?;
            assert_eq!(numbers(tx)?, [3, 1]);
            assert_eq!(tx.plans(&pull_id(2))?, []);
            assert_eq!(tx.project_statuses(&pull_id(2))?, []);
            assert_eq!(tx.pull(&pull_id(2))?, Some(PullRequest { state: PullState::Closed, ..pull_request(2) }));
            tx.put_pull(&pull_request(2))?;
            assert_eq!(tx.pull(&pull_id(2))?, Some(pull_request(2)), "opened again");
            assert_eq!(tx.pull(&pull_id(9))?, None);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn runs_and_jobs_are_found_until_they_end_and_afterwards() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_run(&run("r1", None))?;
            tx.put_run(&run("r2", None))?;
            tx.put_run(&run("r1", Some(at(9))))?;
            assert_eq!(tx.unfinished_runs()?, [run("r2", None)]);
            assert_eq!(tx.run(&"r1".into())?, Some(run("r1", Some(at(9)))));
            tx.put_job(&job("j1", JobState::Running))?;
            tx.put_job(&job("j2", JobState::Running))?;
            tx.put_job(&job("j1", JobState::Interrupted))?;
            assert_eq!(tx.unfinished_jobs()?, [job("j2", JobState::Running)]);
            assert_eq!(tx.job(&"j1".into())?, Some(job("j1", JobState::Interrupted)));
            assert_eq!(tx.job(&"none".into())?, None);
            let running = tx.list_running_jobs(&window("", 0, 5))?;
            assert_eq!(running.rows, [(job("j2", JobState::Running), None)]);
            let ended = tx.list_ended_jobs(&window("", 0, 5))?;
            assert_eq!(ended.rows, [(job("j1", JobState::Interrupted), None)]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn effects_wait_in_order_and_leave_the_outbox_once() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let first = tx.enqueue(&comment(1, "one"))?;
            let second = tx.enqueue(&comment(2, "two"))?;
            let third = tx.enqueue(&comment(1, "three"))?;
            let bodies = |pull: Option<&PullId>, limit| -> Result<Vec<(i64, u32)>> {
                Ok(tx.pending_effects(pull, limit)?.into_iter().map(|effect| (effect.id, effect.attempts)).collect())
            };
            tx.effect_tried(third)?;
            assert_eq!(bodies(None, 10)?, [(first, 0), (second, 0), (third, 1)]);
            assert_eq!(bodies(Some(&pull_id(1)), 10)?, [(first, 0), (third, 1)]);
            assert_eq!(bodies(None, 1)?, [(first, 0)]);
            assert_eq!(tx.pending_effects(None, 1)?[0].effect, comment(1, "one").effect);
            tx.effect_done(third, "posted as 17")?;
            tx.effect_done(third, "posted as 18")?;
            assert_eq!(bodies(Some(&pull_id(1)), 10)?, [(first, 0)]);
            assert!(tx.effect_tried(third).is_err());
            let fourth = tx.enqueue(&comment(1, "four"))?;
            assert!(first < second && second < third && third < fourth);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn retention_drops_what_is_over_and_old_and_nothing_else() {
    let (_dir, store) = open();
    let id = |name: &str| name.repeat(32);
    let (done, running) = (id("a"), id("b"));
    store
        .write(move |tx| {
            for identity in ["done", "waiting"] {
                tx.accept_delivery(&delivery(identity))?;
            }
            tx.set_delivery_state(&"done".into(), DeliveryState::Done, "planned")?;
            let old = tx.enqueue(&comment(1, "posted"))?;
            tx.effect_done(old, "posted")?;
            tx.enqueue(&comment(1, "pending"))?;
            tx.put_run(&run("done", Some(at(1))))?;
            tx.put_run(&run("running", None))?;
            tx.put_job(&job(&done, JobState::Succeeded))?;
            tx.put_job(&job(&running, JobState::Running))?;
            for number in 1..=4 {
                let open = number == 4;
                tx.put_pull(&PullRequest {
                    state: if open { PullState::Open } else { PullState::Closed },
                    ..pull_request(number)
                })?;
            }
            tx.lock_project(&project_lock(repo("github.com", "infra"), project("x"), 2, 0))?;
            tx.put_plan(&plan("usable", 3, "a"))?;
            let entry = |act: &str| AuditEntry {
                at: at(0),
                who: "alice".into(),
                act: act.into(),
                subject: "x".into(),
                result: "done".into(),
                ..AuditEntry::default()
            };
            tx.audit(&entry("unlock"))?;
            tx.audit(&entry("apply"))?;
            assert_eq!(tx.audit_log(1)?, [entry("apply")], "the newest first");

            let now = Timestamp::now();
            let days = |days: i64| now + jiff::SignedDuration::from_hours(24 * days);
            tx.prune(days(34))?;
            assert!(!tx.accept_delivery(&delivery("done"))?, "a host may still deliver it again");
            assert_eq!(tx.job(&done.as_str().into())?, None);

            tx.put_job(&job(&done, JobState::Succeeded))?;
            let step = StepTime { kind: StepKind::Plan, millis: 5, began: 1, line: 2, lines: 3 };
            let times = JobTimes { steps: vec![step], marks: vec![TimeMark { line: 3, millis: 4 }] };
            tx.put_job_times(&done.as_str().into(), &times)?;
            tx.put_job_times(&"running".into(), &JobTimes::default())?;
            assert_eq!((tx.job_times(&done.as_str().into())?, projects::count(tx, "job_times")), (times, 1));
            assert_eq!(tx.prune(days(500))?, Pruned { jobs: vec![done.into()], errored: vec![], more: false });
            assert_eq!(tx.prune(days(500))?, Pruned::default());
            assert_eq!(projects::count(tx, "job_times"), 0);
            assert_eq!(tx.unfinished_deliveries()?.len(), 1);
            assert_eq!(tx.pending_effects(None, 9)?.len(), 1);
            assert_eq!((tx.run(&"done".into())?, tx.run(&"running".into())?), (None, Some(run("running", None))));
            assert_eq!(tx.unfinished_jobs()?.len(), 1);
            assert_eq!(tx.pull(&pull_id(1))?, None);
            assert!((2..=4).all(|number| tx.pull(&pull_id(number)).unwrap().is_some()), "locked, planned, open");
            assert_eq!(tx.audit_log(9)?, []);
            assert!(tx.accept_delivery(&delivery("done"))?, "forgotten at last");
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn retention_says_that_there_is_more_until_all_is_gone() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            for number in 0..10_001 {
                tx.accept_delivery(&delivery(&number.to_string()))?;
                tx.set_delivery_state(&DeliveryId::new(number.to_string()), DeliveryState::Done, "")?;
            }
            let later = Timestamp::now() + jiff::SignedDuration::from_hours(24 * 500);
            assert_eq!([tx.prune(later)?.more, tx.prune(later)?.more, tx.prune(later)?.more], [true, true, false]);
            assert!(!tx.knows_delivery(&"0".into())? && !tx.knows_delivery(&"10000".into())?);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_state_that_could_not_be_saved_is_kept_until_its_project_is_applied() {
    let (dir, store) = open();
    let ids = ["a", "b", "c", "d"].map(|letter| letter.repeat(32));
    let path = |id: &str| format!("errored/{id}.tfstate");
    std::fs::create_dir(dir.path().join("errored")).unwrap();
    for id in &ids[..2] {
        std::fs::write(dir.path().join(path(id)), "{}").unwrap();
    }
    let [one, other, later, elsewhere] = ids.clone();
    let files = ids[..2].iter().map(|id| KeptFile::read(dir.path(), &path(id)).unwrap().unwrap()).collect::<Vec<_>>();
    store
        .write(move |tx| {
            let apply = |id: &str, dir: &str, state| Job {
                kind: "apply".into(),
                project: Some(project(dir)),
                ..job(id, state)
            };
            tx.put_job(&apply(&one, "net", JobState::Failed))?;
            tx.put_job(&apply(&other, "app", JobState::Failed))?;
            files.iter().try_for_each(|file| tx.keep_file(file))?;
            // Neither an apply of another repository nor a plan nor a failed apply makes it unneeded.
            let of = PullId { repo: repo("github.com", "other"), number: 1 };
            tx.put_job(&Job { pull: of, ..apply(&elsewhere, "net", JobState::Succeeded) })?;
            tx.put_job(&Job { project: Some(project("net")), ..job(&"e".repeat(32), JobState::Succeeded) })?;
            tx.put_job(&apply(&"f".repeat(32), "net", JobState::Failed))?;
            tx.put_job(&apply(&later, "app", JobState::Succeeded))?;
            let days = Timestamp::now() + jiff::SignedDuration::from_hours(24 * 500);
            // If a job's row names no state, a file on the disk may be the only copy, so it stays.
            let gone = |tx: &Tx<'_>| -> Result<(Vec<JobId>, Vec<JobId>)> {
                let mut pruned = tx.prune(days)?;
                pruned.jobs.sort();
                Ok((pruned.jobs, pruned.errored))
            };
            let (jobs, errored) = gone(tx)?;
            assert_eq!(errored, [other.as_str()]);
            assert_eq!(jobs, [other, later, elsewhere, "e".repeat(32), "f".repeat(32)].map(JobId::from));
            assert_eq!(tx.kept_files("errored/")?, files[..1]);
            assert!(tx.job(&one.as_str().into())?.is_some());
            // Then the project is applied.
            tx.put_job(&apply(&"1".repeat(32), "net", JobState::Succeeded))?;
            assert_eq!(gone(tx)?, (vec!["1".repeat(32).into(), one.as_str().into()], vec![one.into()]));
            assert_eq!(tx.kept_files("errored/")?, []);
            Ok(())
        })
        .await
        .unwrap();
}

/// The comment on a closed pull request needs these jobs, however long it was open.
#[tokio::test]
async fn the_last_change_of_each_project_is_kept_while_its_pull_request_is_open() {
    let (_dir, store) = open();
    let ids = ["a", "b", "c", "d"].map(|letter| letter.repeat(32));
    store
        .write(move |tx| {
            let change = |id: &str, kind: &str, dir: &str| Job {
                run: format!("run {id}").as_str().into(),
                kind: kind.into(),
                project: Some(project(dir)),
                ..job(id, JobState::Succeeded)
            };
            let changes = [
                (&ids[0], "apply", "net"),
                (&ids[1], "import", "app"),
                (&ids[2], "plan", "app"),
                (&ids[3], "apply", "net"),
            ];
            for (id, kind, dir) in changes {
                let command = if kind == "import" { CommandName::Import } else { CommandName::Apply };
                let name = format!("run {id}");
                tx.put_run(&Run { command, ..run(&name, Some(at(1))) })?;
                tx.put_job(&change(id, kind, dir))?;
            }
            tx.put_pull(&pull_request(1))?;
            let later = Timestamp::now() + jiff::SignedDuration::from_hours(24 * 500);
            tx.prune(later)?;
            let known = |tx: &Tx<'_>| -> Result<Vec<JobId>> {
                Ok(tx.changes_by(&pull_id(1))?.into_iter().map(|job| job.id).collect())
            };
            assert_eq!(known(tx)?, [ids[1].as_str().into(), ids[3].as_str().into()] as [JobId; 2]);
            assert_eq!(tx.run(&format!("run {}", ids[0]).as_str().into())?, None);
            tx.forget_pull(&pull_id(1))?;
            tx.prune(later)?;
            assert!(known(tx)?.is_empty());
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn open_pull_requests_of_a_repository_are_all_found_and_no_others() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let many = 2_500;
            for number in 1..=many {
                tx.put_pull(&pull_request(number))?;
            }
            for name in ["infra-2", "infr", "infra$", "infra#2"] {
                let id = PullId { repo: repo("github.com", name), number: 1 };
                tx.put_pull(&PullRequest { id, ..pull_request(1) })?;
            }
            tx.forget_pull(&pull_id(7))?;
            for (name, id) in [("infra", "j1"), ("infra#2", "j2")] {
                let pull = PullId { repo: repo("github.com", name), number: 1 };
                tx.put_job(&Job { pull, ..job(id, JobState::Failed) })?;
            }
            let broken = tx.broken_jobs(&repo("github.com", "infra"), at(1), 10)?;
            assert_eq!(broken.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["j1"]);
            let found = tx.open_pulls_of(&repo("github.com", "infra"))?;
            let numbers: std::collections::BTreeSet<u64> = found.iter().map(|known| known.pull.id.number).collect();
            assert_eq!((found.len() as u64, numbers.len() as u64), (many - 1, many - 1));
            assert!(found.iter().all(|known| known.pull.id.repo.name == "infra" && known.open));
            assert_eq!(tx.repos_of_open_pulls()?.len(), 5);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_repository_is_served_since_it_was_met_first() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let known = repo("github.com", "infra");
            assert_eq!(tx.served_since(&known)?, None);
            tx.serve(&known, at(10) + std::time::Duration::from_millis(700))?;
            tx.serve(&known, at(20))?;
            tx.put_pull(&pull_request(1))?;
            assert_eq!(tx.served_since(&known)?, Some(at(10)));
            let other = PullId { repo: repo("github.com", "other"), number: 1 };
            tx.put_pull(&PullRequest { id: other.clone(), ..pull_request(1) })?;
            assert!(tx.served_since(&other.repo)?.is_some_and(|since| since > at(20)));
            assert_eq!(tx.served_repos()?, [known, other.repo]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn comments_and_marks_do_not_hide_each_other() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let mark =
                |id| NewEffect { pull: pull_id(1), effect: Effect::React { comment_id: id, reaction: "eyes".into() } };
            (0..300).try_for_each(|id| tx.enqueue(&mark(id)).map(drop))?;
            tx.enqueue(&comment(1, "one"))?;
            tx.enqueue(&comment(2, "two"))?;
            assert_eq!(tx.effects_of(&pull_id(1), Lane::Comments, 200)?.len(), 1);
            assert_eq!(tx.effects_of(&pull_id(1), Lane::Marks, 200)?.len(), 200);
            assert_eq!(tx.pulls_with_effects()?, [pull_id(1), pull_id(2)]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn only_a_job_that_locks_the_state_proves_that_it_is_free() {
    let (_dir, store) = open();
    store
        .write(move |tx| {
            let of_kind = |id: &str, kind: &str| Job { kind: kind.into(), ..job(id, JobState::Succeeded) };
            let killed = Job { kind: "apply".into(), ..job("killed", JobState::Interrupted) };
            tx.put_job(&killed)?;
            for kind in ["policy_check", "version", "drift", "pre_workflow_hook"] {
                tx.put_job(&of_kind(kind, kind))?;
                assert!(!tx.succeeded_since(&killed)?, "{kind}");
            }
            tx.put_job(&Job { project: Some(project("other")), ..of_kind("elsewhere", "plan") })?;
            assert!(!tx.succeeded_since(&killed)?, "another project");
            tx.put_job(&of_kind("after", "plan"))?;
            assert!(tx.succeeded_since(&killed)?);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_schedule_and_its_claims_last_as_long_as_their_run() {
    let (_dir, store) = open();
    let done = run("r", Some(at(9)));
    store
        .write(move |tx| {
            tx.put_run(&run("r", None))?;
            tx.put_schedule(&"r".into(), &["one"])?;
            tx.put_schedule(&"r".into(), &["two"])?;
            assert_eq!(tx.schedule::<Vec<String>>(&"r".into())?, Some(vec!["two".to_owned()]));
            assert_eq!(tx.schedule::<Vec<String>>(&"other".into())?, None);

            assert_eq!(tx.claim(&"r".into(), &project("net"), &"first".into(), CommandName::Plan)?, Some(Claim::First));
            tx.put_job(&job("first", JobState::Running))?;
            assert_eq!(
                tx.claim(&"r".into(), &project("net"), &"second".into(), CommandName::Plan)?,
                None,
                "the first one runs"
            );
            assert_eq!(
                tx.claim(&"r".into(), &project("app"), &"other".into(), CommandName::Apply)?,
                Some(Claim::First),
                "another project"
            );
            assert_eq!((tx.claims_of(&"r".into(), 9)?, tx.claims_of(&"r".into(), 1)?), (2, 1));
            tx.put_job(&job("first", JobState::Interrupted))?;
            assert_eq!(
                tx.claim(&"r".into(), &project("net"), &"second".into(), CommandName::Apply)?,
                None,
                "it must not be repeated"
            );
            assert_eq!(
                tx.claim(&"r".into(), &project("net"), &"second".into(), CommandName::Plan)?,
                Some(Claim::Again)
            );

            tx.put_run(&done)?;
            assert_eq!(tx.schedule::<Vec<String>>(&"r".into())?, None);
            assert_eq!(
                tx.claim(&"r".into(), &project("app"), &"again".into(), CommandName::Apply)?,
                Some(Claim::First),
                "the claims are gone"
            );
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_delivery_that_is_done_has_no_run_that_goes_on() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.accept_delivery(&delivery("a"))?;
            tx.put_run(&Run { cause: Cause::Delivery("a".into()), ..run("mine", None) })?;
            tx.put_run(&Run { cause: Cause::Delivery("b".into()), ..run("other", None) })?;
            tx.set_delivery_state(&"a".into(), DeliveryState::Running, "")?;
            assert_eq!(tx.unfinished_runs()?.len(), 2);
            tx.set_delivery_state(&"a".into(), DeliveryState::Done, "superseded")?;
            let left: Vec<RunId> = tx.unfinished_runs()?.into_iter().map(|run| run.id).collect();
            assert_eq!(left, ["other"]);
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_repository_whose_name_begins_alike_keeps_its_locks() {
    let (_dir, store) = open();
    let names = ["infra", "infra-2", "infr"];
    let locks = names.map(|name| project_lock(repo("github.com", name), project("net"), 1, 0));
    store
        .write(move |tx| {
            for lock in &locks {
                assert_eq!(tx.lock_project(lock)?, None, "{}", lock.key());
            }
            assert_eq!(tx.unlock_pull(&pull_id(1))?, [locks[0].clone()]);
            assert_eq!(tx.locks()?.len(), 2);
            Ok(())
        })
        .await
        .unwrap();
}

/// Returns a job on an executor, whose key repeats the digit.
fn on_executor(digit: &str, state: JobState, finished: Option<Timestamp>) -> Job {
    let remote = Some(RemoteJob { executor: "plans".into(), key: digit.repeat(32) });
    Job { finished, remote, ..job(digit, state) }
}

/// Returns a plan whose tree has a key of this digit.
fn with_tree(id: &str, digit: &str, consumed_by: Option<&str>) -> PlanRecord {
    let prefix = format!("jobs/plans/{}", digit.repeat(32));
    let tree = PlanTree { prefix, size: 1, sha256: String::new(), root: "/tmp/tree".into() };
    PlanRecord {
        tree: Some(tree),
        path: None,
        sha256: None,
        consumed_by: consumed_by.map(Into::into),
        ..plan(id, 1, id)
    }
}

#[tokio::test]
async fn the_objects_of_jobs_are_named_for_as_long_as_they_may_be_read() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            tx.put_job(&on_executor("1", JobState::Running, None))?;
            tx.put_job(&on_executor("2", JobState::Interrupted, Some(at(100))))?;
            tx.put_job(&on_executor("3", JobState::Interrupted, Some(at(99))))?;
            tx.put_job(&on_executor("4", JobState::Failed, Some(at(200))))?;
            tx.put_job(&Job { finished: Some(at(200)), ..job("5", JobState::Interrupted) })?;
            tx.put_plan(&plan("local", 1, "local"))?;
            for (id, digit, consumed_by) in [
                ("usable", "a", None),
                ("applied", "b", Some("4")),
                ("running", "c", Some("1")),
                ("lost", "d", Some("2")),
                ("long-lost", "e", Some("3")),
            ] {
                tx.put_plan(&with_tree(id, digit, consumed_by))?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let lost = store.read(|view| view.interrupted_on_executors(at(100))).await.unwrap();
    assert_eq!(lost, [on_executor("2", JobState::Interrupted, Some(at(100)))]);
    let named = store.read(|view| view.named_job_prefixes(at(100))).await.unwrap();
    let mut keys: Vec<_> = named.iter().map(|prefix| prefix.key()[..1].to_owned()).collect();
    keys.sort();
    assert_eq!(keys, ["1", "2", "a", "c", "d"]);
    assert!(named.iter().all(|prefix| prefix.executor() == "plans"));
}

#[tokio::test]
async fn a_head_is_planned_until_another_one_is() {
    let (_dir, store) = open();
    store
        .write(|tx| {
            let (pull, [a, b]) = (pull_id(1), ["a", "b"].map(|letter| CommitSha::from(letter.repeat(40))));
            let seen = |tx: &Tx<'_>| -> Result<(Option<CommitSha>, bool, bool)> {
                Ok((tx.last_planned_head(&pull)?, tx.is_planned_at(&pull, &a)?, tx.is_planned_at(&pull, &b)?))
            };
            assert_eq!(seen(tx)?, (None, false, false));
            let of = |id: &str, moment: i64, head: &CommitSha| Run {
                started: at(moment),
                head: head.clone(),
                answered: true,
                ..run(id, None)
            };
            tx.put_run(&of("whole", 1, &a))?;
            tx.put_run(&Run { everything: false, ..of("of a part", 2, &b) })?;
            tx.put_run(&Run { command: CommandName::Apply, ..of("apply", 3, &b) })?;
            assert_eq!(seen(tx)?, (Some(a.clone()), true, false));
            tx.put_run(&Run { answered: false, ..of("begun", 4, &b) })?;
            assert_eq!(seen(tx)?, (Some(b.clone()), false, false));
            tx.put_run(&of("begun", 4, &b))?;
            // The branch is pushed back, and only a part of it is planned.
            tx.put_run(&Run { everything: false, ..of("back", 5, &a) })?;
            assert_eq!(seen(tx)?, (Some(b.clone()), false, true));
            tx.put_run(&Run { answered: false, ..of("cancelled", 6, &b) })?;
            assert_eq!(seen(tx)?, (Some(b.clone()), false, true));
            Ok(())
        })
        .await
        .unwrap();
}
