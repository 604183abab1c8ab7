//! Any sequence of changes leaves what a simple model says, also when changes fail and the store is opened again in between.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Accept(u8),
    Move(u8, DeliveryState),
    Lock { host: u8, dir: u8, named: bool, pull: u64 },
    Unlock { host: u8, dir: u8, named: bool, pull: u64 },
    UnlockPull(u64),
    PutPlan { pull: u64, dir: u8 },
    Consume(usize),
    Discard { pull: u64, dir: u8 },
    DiscardAll(u64),
    Forget(u64),
    Reopen,
}

/// What the store should hold, in the order of insertion.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    deliveries: Vec<(String, DeliveryState)>,
    locks: Vec<ProjectLock>,
    plans: Vec<PlanRecord>,
    plans_made: usize,
}

fn steps() -> impl Strategy<Value = (Step, bool)> {
    let states = prop_oneof![Just(DeliveryState::Queued), Just(DeliveryState::Running), Just(DeliveryState::Done)];
    let lock = (0..2u8, 0..2u8, any::<bool>(), 1..4u64);
    let step = prop_oneof![
        3 => (0..6u8).prop_map(Step::Accept),
        3 => (0..6u8, states).prop_map(|(delivery, state)| Step::Move(delivery, state)),
        4 => lock.clone().prop_map(|(host, dir, named, pull)| Step::Lock { host, dir, named, pull }),
        2 => lock.prop_map(|(host, dir, named, pull)| Step::Unlock { host, dir, named, pull }),
        1 => (1..4u64).prop_map(Step::UnlockPull),
        4 => (1..4u64, 0..3u8).prop_map(|(pull, dir)| Step::PutPlan { pull, dir }),
        3 => (0..8usize).prop_map(Step::Consume),
        1 => (1..4u64, 0..3u8).prop_map(|(pull, dir)| Step::Discard { pull, dir }),
        1 => (1..4u64).prop_map(Step::DiscardAll),
        1 => (1..4u64).prop_map(Step::Forget),
        1 => Just(Step::Reopen),
    ];
    (step, prop::bool::weighted(0.15))
}

fn locked(host: u8, dir: u8, named: bool, pull: u64, since: usize) -> ProjectLock {
    let project = ProjectId { name: named.then(|| "x".into()), ..project(&dir.to_string()) };
    project_lock(repo(["github.com", "ghe.example.com"][usize::from(host)], "infra"), project, pull, since as i64)
}

impl Model {
    /// Does the step here; what the store should answer, in words.
    fn step(&mut self, step: &Step, since: usize) -> String {
        match step {
            Step::Accept(delivery) => {
                let identity = delivery.to_string();
                let new = self.deliveries.iter().all(|(known, _)| *known != identity);
                if new {
                    self.deliveries.push((identity, DeliveryState::Queued));
                }
                format!("{new}")
            }
            Step::Move(delivery, to) => {
                let known = self.deliveries.iter_mut().find(|(known, _)| *known == delivery.to_string());
                match known.filter(|(_, state)| *state != DeliveryState::Done || *to == DeliveryState::Done) {
                    Some((_, state)) => {
                        *state = *to;
                        "moved".into()
                    }
                    None => "refused".into(),
                }
            }
            Step::Lock { host, dir, named, pull } => {
                let lock = locked(*host, *dir, *named, *pull, since);
                let held = self.locks.iter().find(|held| held.repo == lock.repo && held.project == lock.project);
                match held {
                    None => {
                        self.locks.push(lock);
                        "new".into()
                    }
                    Some(held) if held.holder.pull == lock.holder.pull => "again".into(),
                    Some(held) => format!("{} since {}", held.holder.pull, held.holder.since),
                }
            }
            Step::Unlock { host, dir, named, pull } => {
                let lock = locked(*host, *dir, *named, *pull, 0);
                let before = self.locks.len();
                self.locks.retain(|held| {
                    held.repo != lock.repo || held.project != lock.project || held.holder.pull != lock.holder.pull
                });
                format!("{}", self.locks.len() < before)
            }
            Step::UnlockPull(pull) => {
                let gone = |lock: &ProjectLock| lock.holder.pull == pull_id(*pull);
                let keys: Vec<_> = self.locks.iter().filter(|lock| gone(lock)).map(ProjectLock::key).collect();
                self.locks.retain(|lock| !gone(lock));
                keys.join(" ")
            }
            plans => self.step_plans(plans),
        }
    }

    fn step_plans(&mut self, step: &Step) -> String {
        match step {
            Step::PutPlan { pull, dir } => {
                let new = plan(&self.plans_made.to_string(), *pull, &dir.to_string());
                self.plans.retain(|plan| plan.pull != new.pull || plan.project != new.project);
                self.plans.push(new);
                self.plans_made += 1;
                "put".into()
            }
            Step::Consume(id) => {
                let free = |plan: &&mut PlanRecord| plan.id == id.to_string() && plan.consumed_by.is_none();
                let found = self.plans.iter_mut().find(free).map(|plan| plan.consumed_by = Some("job".into()));
                format!("{}", found.is_some())
            }
            Step::Discard { pull, dir } => {
                let before = self.plans.len();
                self.plans.retain(|plan| {
                    plan.pull.number != *pull || plan.project.dir != dir.to_string() || plan.consumed_by.is_some()
                });
                format!("{}", self.plans.len() < before)
            }
            Step::DiscardAll(pull) => {
                let usable = |plan: &PlanRecord| plan.pull.number == *pull && plan.consumed_by.is_none();
                let ids: Vec<_> = self.plans.iter().filter(|plan| usable(plan)).map(|plan| plan.id.clone()).collect();
                self.plans.retain(|plan| !usable(plan));
                ids.join(" ")
            }
            Step::Forget(pull) => {
                self.plans.retain(|plan| plan.pull.number != *pull);
                "forgotten".into()
            }
            _ => String::new(),
        }
    }
}

/// Does the step in the store; its answer in the model's words.
fn apply(tx: &Tx<'_>, step: &Step, since: usize, plans_made: usize) -> Result<String> {
    Ok(match step {
        Step::Accept(identity) => tx.accept_delivery(&delivery(&identity.to_string()))?.to_string(),
        Step::Move(identity, state) => match tx.set_delivery_state(&identity.to_string(), *state, "") {
            Ok(()) => "moved".into(),
            Err(_) => "refused".into(),
        },
        Step::Lock { host, dir, named, pull } => match tx.lock_project(&locked(*host, *dir, *named, *pull, since))? {
            LockAttempt::Acquired { new: true } => "new".into(),
            LockAttempt::Acquired { new: false } => "again".into(),
            LockAttempt::HeldBy(holder) => format!("{} since {}", holder.pull, holder.since),
        },
        Step::Unlock { host, dir, named, pull } => {
            let lock = locked(*host, *dir, *named, *pull, 0);
            tx.unlock_project(&lock.repo, &lock.project, &lock.holder.pull)?.to_string()
        }
        Step::UnlockPull(pull) => {
            tx.unlock_pull(&pull_id(*pull))?.iter().map(ProjectLock::key).collect::<Vec<_>>().join(" ")
        }
        Step::PutPlan { pull, dir } => {
            tx.put_plan(&plan(&plans_made.to_string(), *pull, &dir.to_string()))?;
            "put".into()
        }
        Step::Consume(id) => tx.consume_plan(&id.to_string(), "job")?.to_string(),
        Step::Discard { pull, dir } => tx.discard_plan(&pull_id(*pull), &project(&dir.to_string()))?.to_string(),
        Step::DiscardAll(pull) => {
            tx.discard_plans(&pull_id(*pull))?.into_iter().map(|plan| plan.id).collect::<Vec<_>>().join(" ")
        }
        Step::Forget(pull) => {
            tx.forget_pull(&pull_id(*pull))?;
            "forgotten".into()
        }
        Step::Reopen => String::new(),
    })
}

/// Everything the store says, as the model would hold it; consumed plans are read past the front door.
fn held(view: &View<'_>, model: &Model) -> Result<Model> {
    let (done, waiting): (Vec<_>, Vec<_>) =
        model.deliveries.iter().cloned().partition(|(_, state)| *state == DeliveryState::Done);
    let unfinished = view.unfinished_deliveries()?.into_iter().map(|(delivery, state)| (delivery.identity, state));
    assert_eq!(unfinished.collect::<Vec<_>>(), waiting);
    for (identity, _) in done {
        let state = "SELECT state FROM deliveries WHERE identity = ?1 AND record IS NULL";
        assert_eq!(view.connection.query_row(state, [identity], |row| row.get::<_, String>(0))?, "done");
    }
    let plans = view.records("SELECT record FROM plans ORDER BY seq", [])?;
    for number in 1..4 {
        let usable: Vec<_> = (model.plans.iter())
            .filter(|plan| plan.pull.number == number && plan.consumed_by.is_none())
            .cloned()
            .collect();
        assert_eq!(view.plans(&pull_id(number))?, usable);
        let of_pull: Vec<_> = model.locks.iter().filter(|lock| lock.holder.pull == pull_id(number)).cloned().collect();
        assert_eq!(view.locks_of(&pull_id(number))?, of_pull);
    }
    for lock in &model.locks {
        let alone = model.locks.iter().filter(|other| other.key() == lock.key()).count() == 1;
        assert_eq!(view.lock_by_key(&lock.key())?.as_ref(), alone.then_some(lock));
        assert_eq!(view.lock_by_key(&lock.id())?.as_ref(), Some(lock));
    }
    Ok(Model { deliveries: model.deliveries.clone(), locks: view.locks()?, plans, plans_made: model.plans_made })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_holds_what_the_model_holds(steps in prop::collection::vec(steps(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let mut model = Model::default();
        for (number, (step, failing)) in steps.into_iter().enumerate() {
            if matches!(step, Step::Reopen) {
                // Closed, or just gone.
                if failing { runtime.block_on(store.close()).unwrap() }
                drop(store);
                store = Store::open(dir.path()).unwrap();
            }
            let made = model.plans_made;
            let mut after = model.clone();
            let expected = after.step(&step, number);
            let answer = runtime.block_on(store.write(move |tx| {
                let answer = apply(tx, &step, number, made)?;
                if failing { bail!("failed after: {answer}") }
                Ok(answer)
            }));
            if failing {
                prop_assert_eq!(answer.unwrap_err().to_string(), format!("failed after: {expected}"));
            } else {
                prop_assert_eq!(answer.unwrap(), expected);
                model = after;
            }
            let compared = model.clone();
            let held = runtime.block_on(store.read(move |view| held(view, &compared))).unwrap();
            prop_assert_eq!(&held, &model);
        }
    }
}
