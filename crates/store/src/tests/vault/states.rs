//! After any changes, the state restored at any position is the one that was committed there.

use super::buckets::fresh;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Accept(u8),
    Move(u8, DeliveryState),
    Lock(u8, u64),
    UnlockPull(u64),
    ApplyLock(bool),
    Plan { pull: u64, dir: u8, content: Vec<u8> },
    Consume(u8),
    Discard(u64),
    Forget(u64),
    Pull(u64),
    Status(u64, u8),
    Enqueue(u64),
    Done(i64),
    Log { job: u8, lines: u8, end: bool },
    Prune,
}

#[derive(Debug, Clone)]
enum Act {
    /// Concurrent changes; true for those that fail after their effects.
    Write(Vec<(Step, bool)>),
    Sync,
    Base,
    /// Stopped or killed, then started on the same disk or an empty one.
    Again {
        killed: bool,
        disk_lost: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let states = prop_oneof![Just(DeliveryState::Queued), Just(DeliveryState::Running), Just(DeliveryState::Done)];
    prop_oneof![
        3 => (0..9u8).prop_map(Step::Accept),
        2 => (0..9u8, states).prop_map(|(delivery, state)| Step::Move(delivery, state)),
        3 => (0..3u8, 1..4u64).prop_map(|(dir, pull)| Step::Lock(dir, pull)),
        1 => (1..4u64).prop_map(Step::UnlockPull),
        1 => any::<bool>().prop_map(Step::ApplyLock),
        4 => (1..4u64, 0..3u8, prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(pull, dir, content)| Step::Plan { pull, dir, content }),
        2 => (0..6u8).prop_map(Step::Consume),
        1 => (1..4u64).prop_map(Step::Discard),
        1 => (1..4u64).prop_map(Step::Forget),
        2 => (1..4u64).prop_map(Step::Pull),
        2 => (1..4u64, 0..3u8).prop_map(|(pull, dir)| Step::Status(pull, dir)),
        2 => (1..4u64).prop_map(Step::Enqueue),
        2 => (1..9i64).prop_map(Step::Done),
        4 => (0..3u8, 0..4u8, any::<bool>()).prop_map(|(job, lines, end)| Step::Log { job, lines, end }),
        1 => Just(Step::Prune),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => prop::collection::vec((step(), prop::bool::weighted(0.15)), 1..5).prop_map(Act::Write),
        3 => Just(Act::Sync),
        2 => Just(Act::Base),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(killed, disk_lost)| Act::Again { killed, disk_lost }),
    ]
}

/// Writes the files that a change needs to the disk. A log grows only with the records of its job: nobody writes to it after its end.
fn prepare(server: &Server, step: &Step, number: usize, failing: bool) -> Option<PlanRecord> {
    match step {
        Step::Plan { pull, dir, content } => {
            Some(plan_with_file(server, &format!("{number}"), *pull, &dir.to_string(), content))
        }
        Step::Log { job, lines, .. } if !failing => {
            let path = server.dir.path().join(files::log_path(&job_id(*job).into()));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            for line in 0..*lines {
                std::io::Write::write_all(&mut file, format!("line {line} of {number}\n").as_bytes()).unwrap();
            }
            None
        }
        _ => None,
    }
}

fn job_id(job: u8) -> String {
    format!("{job:032x}")
}

fn change(tx: &Tx<'_>, step: &Step, plan: Option<&PlanRecord>) -> Result<()> {
    match step {
        Step::Accept(identity) => tx.accept_delivery(&delivery(&identity.to_string())).map(drop),
        Step::Move(identity, state) => tx.set_delivery_state(&DeliveryId::new(identity.to_string()), *state, "moved"),
        Step::Lock(dir, pull) => {
            tx.lock_project(&project_lock(repo("github.com", "infra"), project(&dir.to_string()), *pull, 0)).map(drop)
        }
        Step::UnlockPull(pull) => tx.unlock_pull(&pull_id(*pull)).map(drop),
        Step::ApplyLock(set) => {
            let lock = ApplyLock { user: "alice".into(), reason: String::new(), since: at(0) };
            tx.set_apply_lock(set.then_some(&lock))
        }
        Step::Plan { .. } => tx.put_plan(plan.unwrap()),
        Step::Consume(choice) => {
            let usable: Vec<PlanRecord> = tx.records("SELECT record FROM plans WHERE consumed_by IS NULL", [])?;
            match usable.get(usize::from(*choice) % usable.len().max(1)) {
                Some(plan) => tx.consume_plan(plan.id.as_str(), "job").map(drop),
                None => Ok(()),
            }
        }
        Step::Discard(pull) => tx.discard_plans(&pull_id(*pull)).map(drop),
        Step::Forget(pull) => tx.forget_pull(&pull_id(*pull)),
        Step::Pull(pull) => tx.put_pull(&pull_request(*pull)),
        Step::Status(pull, dir) => {
            tx.put_project_status(&pull_id(*pull), &status(&dir.to_string(), ProjectState::Planned))
        }
        Step::Enqueue(pull) => tx.enqueue(&comment(*pull, "text")).map(drop),
        Step::Done(effect) => tx.effect_done(*effect, "done"),
        Step::Log { job: id, end, .. } => {
            tx.put_job(&job(&job_id(*id), if *end { JobState::Succeeded } else { JobState::Running }))
        }
        Step::Prune => tx.prune(Timestamp::now() + std::time::Duration::from_secs(400 * 24 * 3600)).map(drop),
    }
}

async fn write(server: &Server, number: usize, steps: Vec<(Step, bool)>) {
    let writes = steps.into_iter().enumerate().map(|(place, (step, failing))| {
        let plan = prepare(server, &step, number * 10 + place, failing);
        server.store.write(move |tx| {
            change(tx, &step, plan.as_ref())?;
            if failing { bail!("no, after all") } else { Ok(()) }
        })
    });
    for result in futures::future::join_all(writes).await {
        if let Err(error) = result {
            assert!(!is_deposed(&error) && !format!("{error:#}").contains("was undone"), "{error:#}");
        }
    }
}

async fn lived(acts: Vec<Act>) {
    let bucket = fresh();
    let mut server = Server::start(&bucket).await;
    let mut states = BTreeMap::new();
    for (number, act) in acts.into_iter().enumerate() {
        match act {
            Act::Write(steps) => write(&server, number, steps).await,
            Act::Sync => server.store.sync().await.unwrap(),
            Act::Base => {
                server.store.shared.vault.as_ref().unwrap().base_wanted.store(true, Ordering::Relaxed);
                server.store.write_base_if_due().await.unwrap();
            }
            Act::Again { killed, disk_lost } => {
                let before = server.digest();
                let dir = if killed { server.die().await } else { server.stop().await };
                let dir = if disk_lost { empty_disk() } else { dir };
                server = Server::start_in(dir, &bucket).await;
                if killed {
                    assert_eq!(server.digest(), before);
                }
                assert_files(server.dir.path());
            }
        }
        states.insert(server.leader.position().seq, server.digest());
    }
    let last = restored(&bucket, None).await;
    assert_eq!(digest_in(&last), server.digest());
    for (seq, state) in states {
        let dir = restored(&bucket, Some(seq)).await;
        assert_eq!(digest_in(&dir), state, "state {seq}");
        assert_files(dir.path());
    }
    server.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_state_restored_at_any_position_is_the_one_committed_there(acts in prop::collection::vec(act(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(lived(acts));
    }
}
