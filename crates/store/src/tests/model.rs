//! Any sequence of changes gives the same result as a simple model, also if changes fail and the store is reopened in between.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tidelock_core::config::LockScope;
use tidelock_core::domain::ownership::{ChangedProject, ChangedProjects, InvalidationCause, ProjectOwner};
use tidelock_core::domain::waiting::{ReplanScope, WaitingPull};
use tidelock_core::locks::{self, MergedPull, World};

#[derive(Debug, Clone)]
enum Step {
    Accept(u8),
    Move(u8, DeliveryState),
    Event(Box<LockEvent>),
    PutPlan { pull: u64, dir: u8 },
    Forget(u64),
    PutChanged { pull: u64, dirs: Vec<u8> },
    Reopen,
}

/// Expected content of the store, in the order of insertion.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    deliveries: Vec<(DeliveryId, DeliveryState)>,
    locks: Vec<ProjectLock>,
    plans: Vec<PlanRecord>,
    statuses: Vec<(PullId, ProjectStatus)>,
    owners: Vec<ProjectOwner>,
    changed: Vec<ChangedProjects>,
    waiters: Vec<WaitingPull>,
    /// Turns that have not ended.
    turns: BTreeSet<(PullId, ProjectId)>,
    plans_made: usize,
}

fn lock_events() -> impl Strategy<Value = LockEvent> {
    let strict = [LockScope::Project, LockScope::PullRequest].map(LockMode::Strict);
    let modes = prop_oneof![
        Just(LockMode::OnPlan),
        Just(LockMode::OnApply),
        Just(LockMode::Disabled),
        prop::sample::select(strict.to_vec())
    ];
    let some = (0..2u8, 0..2u8, any::<bool>(), 1..4u64, modes).prop_map(|(host, dir, named, pull, mode)| {
        let project = ProjectId { name: named.then(|| "x".into()), ..project(&dir.to_string()) };
        wanted(
            &project_lock(repo(["github.com", "ghe.example.com"][usize::from(host)], "infra"), project, pull, 0),
            mode,
        )
    });
    let by = AuditEntry { at: at(9), who: "bob".into(), act: "unlock".into(), ..AuditEntry::default() };
    (some.clone(), prop::collection::vec(some, 0..3), 0..12u8, 0..8usize, any::<bool>()).prop_map(
        move |(one, more, which, plan, flag)| {
            let (pull, project, by) = (one.lock.holder.pull.clone(), one.lock.project.clone(), by.clone());
            match which {
                0..3 => {
                    let own = |other: &tidelock_core::locks::WantedLock| {
                        other.lock.holder.pull == pull && other.lock.project != project
                    };
                    let projects = more.into_iter().filter(own).take(1).chain([one.clone()]).collect();
                    LockEvent::PlanBegins { pull, projects, everything: flag }
                }
                3 if flag => LockEvent::PlanGoesOn { projects: vec![one] },
                3 if plan % 2 == 0 => LockEvent::ApplyFailed { pull, project, at: jiff::Timestamp::UNIX_EPOCH },
                3 => LockEvent::NotPlanned { pull, project },
                4 => LockEvent::ApplyBegins { plan: plan.to_string().into(), job: "job".into(), project: one },
                5 => LockEvent::StateChangeBegins { project: one, job: "job".into(), head: "head".into() },
                6 => LockEvent::StateChanged { pull, project, outputs: true, at: jiff::Timestamp::UNIX_EPOCH },
                7 if flag => LockEvent::Unlocked { pull, only: None, accept_drift: plan % 2 == 0, by },
                7 => {
                    let holder = one.lock.holder.clone();
                    let merged = MergedPull {
                        head: "head".into(),
                        commit: Some("merge".into()),
                        branch: "main".into(),
                        at: jiff::Timestamp::UNIX_EPOCH,
                        holder,
                        into: tidelock_core::locks::MergedInto::Applied,
                    };
                    let merged = Some(merged).filter(|_| plan % 2 == 0);
                    LockEvent::Closed { pull, remarks: Vec::new(), merged }
                }
                8 if flag && plan % 3 == 0 => LockEvent::TurnBegins { pull, projects: vec![project], at: at(9) },
                8 if flag && plan % 2 == 0 => LockEvent::Reopened { pull },
                8 if flag => LockEvent::TurnEnds { pull, projects: vec![project] },
                8 => LockEvent::Satisfied { pull, project, merges: vec!["merge".into()], alone: true },
                9 if flag => LockEvent::OwnershipTaken { holder: one.lock.holder, reason: "why".into() },
                9 => {
                    let cause = InvalidationCause::AppliedBy { pull };
                    LockEvent::PlansInvalidated {
                        plans: vec![plan.to_string().into()],
                        cause,
                        at: jiff::Timestamp::UNIX_EPOCH,
                    }
                }
                10 => LockEvent::ProjectsNamed { pull, projects: vec![project] },
                _ => {
                    let key = if flag { one.lock.id() } else { one.lock.key() };
                    LockEvent::LockDeleted { key, applying: (plan == 0).then(|| "job".into()), by }
                }
            }
        },
    )
}

fn steps() -> impl Strategy<Value = (Step, bool)> {
    let states = prop_oneof![Just(DeliveryState::Queued), Just(DeliveryState::Running), Just(DeliveryState::Done)];
    let step = prop_oneof![
        3 => (0..6u8).prop_map(Step::Accept),
        3 => (0..6u8, states).prop_map(|(delivery, state)| Step::Move(delivery, state)),
        12 => lock_events().prop_map(|event| Step::Event(Box::new(event))),
        4 => (1..4u64, 0..3u8).prop_map(|(pull, dir)| Step::PutPlan { pull, dir }),
        1 => (1..4u64).prop_map(Step::Forget),
        3 => (1..4u64, prop::collection::vec(0..2u8, 1..3)).prop_map(|(pull, dirs)| Step::PutChanged { pull, dirs }),
        1 => Just(Step::Reopen),
    ];
    (step, prop::bool::weighted(0.15))
}

impl Model {
    /// Does the step in the model. Returns the expected answer of the store, in words.
    fn step(&mut self, step: &Step) -> String {
        match step {
            Step::Accept(delivery) => {
                let identity = DeliveryId::new(delivery.to_string());
                let new = self.deliveries.iter().all(|(known, _)| *known != identity);
                if new {
                    self.deliveries.push((identity, DeliveryState::Queued));
                }
                format!("{new}")
            }
            Step::Move(delivery, to) => {
                let known = self.deliveries.iter_mut().find(|(known, _)| known.as_str() == delivery.to_string());
                match known.filter(|(_, state)| *state != DeliveryState::Done || *to == DeliveryState::Done) {
                    Some((_, state)) => {
                        *state = *to;
                        "moved".into()
                    }
                    None => "refused".into(),
                }
            }
            Step::Event(event) => self.lock_event(event),
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
            Step::PutChanged { pull, dirs } => {
                let new = changed_projects(*pull, dirs);
                self.changed.retain(|changed| changed.pull != new.pull);
                self.changed.push(new);
                "changed".into()
            }
            Step::Forget(pull) => {
                self.plans.retain(|plan| plan.pull.number != *pull);
                self.statuses.retain(|(of, _)| *of != pull_id(*pull));
                "forgotten".into()
            }
            _ => String::new(),
        }
    }

    /// Applies the rules to all rows, while the store loads only a few.
    fn lock_event(&mut self, event: &LockEvent) -> String {
        let usable = self.plans.iter().filter(|plan| plan.consumed_by.is_none());
        let (plans, statuses) = (usable.cloned().collect(), self.statuses.clone());
        let changed = self.changed.iter().find(|changed| Some(&changed.pull) == asking(event)).cloned();
        let (locks, owners, waiters) = (self.locks.clone(), self.owners.clone(), self.waiters.clone());
        let world = World { locks, plans, statuses, apply_lock: None, owners, changed, waiters, seen: Vec::new() };
        let (world, follows) = locks::step(world, event);
        (self.locks, self.statuses, self.owners) = (world.locks, world.statuses, world.owners);
        self.waiters = world.waiters;
        self.turns.extend(follows.turns.iter().cloned());
        for change in &follows.changes {
            match change {
                locks::LockChange::DropPlan(dropped) => self.plans.retain(|plan| plan.id != dropped.id),
                locks::LockChange::UsePlan(used) => {
                    self.plans
                        .iter_mut()
                        .filter(|plan| plan.id == used.record().id)
                        .for_each(|plan| plan.clone_from(used.record()));
                }
                _ => {}
            }
        }
        format!("{follows:?}")
    }
}

/// Returns the pull request whose changed projects an event is about.
fn asking(event: &LockEvent) -> Option<&PullId> {
    match event {
        LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
            Some(&project.lock.holder.pull)
        }
        LockEvent::OwnershipTaken { holder, .. } => Some(&holder.pull),
        LockEvent::Closed { pull, .. } => Some(pull),
        _ => None,
    }
}

fn changed_projects(number: u64, dirs: &[u8]) -> ChangedProjects {
    let mut dirs = dirs.to_vec();
    dirs.dedup();
    let projects = dirs.iter().map(|dir| ChangedProject {
        project: project(&dir.to_string()),
        strict: *dir == 0,
        reminder_interval: None,
    });
    ChangedProjects { pull: pull_id(number), head: "head".into(), projects: projects.collect() }
}

/// Does the step in the store. Returns its answer in the model's words.
fn apply(tx: &Tx<'_>, step: &Step, plans_made: usize) -> Result<String> {
    Ok(match step {
        Step::Accept(identity) => tx.accept_delivery(&delivery(&identity.to_string()))?.to_string(),
        Step::Move(identity, state) => {
            match tx.set_delivery_state(&DeliveryId::new(identity.to_string()), *state, "") {
                Ok(()) => "moved".into(),
                Err(_) => "refused".into(),
            }
        }
        Step::Event(event) => format!("{:?}", tx.record_lock_event(event)?),
        Step::PutPlan { pull, dir } => {
            tx.put_plan(&plan(&plans_made.to_string(), *pull, &dir.to_string()))?;
            "put".into()
        }
        Step::PutChanged { pull, dirs } => {
            tx.put_changed_projects(&changed_projects(*pull, dirs))?;
            "changed".into()
        }
        Step::Forget(pull) => {
            tx.forget_pull(&pull_id(*pull))?;
            "forgotten".into()
        }
        Step::Reopen => String::new(),
    })
}

/// Returns the content of the store in the form of the model. Consumed plans are read without its public functions.
fn held(view: &View<'_>, model: &Model) -> Result<Model> {
    let (done, waiting): (Vec<_>, Vec<_>) =
        model.deliveries.iter().cloned().partition(|(_, state)| *state == DeliveryState::Done);
    let unfinished = view.unfinished_deliveries()?.into_iter().map(|(delivery, state)| (delivery.identity, state));
    assert_eq!(unfinished.collect::<Vec<_>>(), waiting);
    let (mut turn_of, mut replanned) = (BTreeSet::new(), BTreeSet::new());
    for ReplanScope { pull, projects } in view.replans()?.into_iter().map(|replan| replan.scope) {
        turn_of.extend(projects.into_iter().map(|project| (pull.clone(), project)));
        assert!(replanned.insert(pull.clone()), "{pull} has two re-plans");
    }
    assert_eq!(turn_of, model.turns, "each turn is recorded");
    for (identity, _) in done {
        let state = "SELECT state FROM deliveries WHERE identity = ?1 AND record IS NULL";
        assert_eq!(view.connection.query_row(state, [identity.as_str()], |row| row.get::<_, String>(0))?, "done");
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
    let mut statuses = Vec::new();
    for (pull, status) in &model.statuses {
        let found = view.project_status(pull, &status.project)?;
        statuses.extend(found.map(|found| (pull.clone(), found)));
    }
    for changed in &model.changed {
        assert_eq!(view.changed_projects(&changed.pull)?.as_ref(), Some(changed));
    }
    let (locks, owners, waiters) = (view.locks()?, view.owners()?, view.waiters()?);
    Ok(Model { locks, owners, waiters, plans, statuses, ..model.clone() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_holds_what_the_model_holds(steps in prop::collection::vec(steps(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let mut model = Model::default();
        for (step, failing) in steps {
            if matches!(step, Step::Reopen) {
                // Closed, or dropped without closing.
                if failing { runtime.block_on(store.close()).unwrap() }
                drop(store);
                store = Store::open(dir.path()).unwrap();
            }
            let made = model.plans_made;
            let mut after = model.clone();
            let expected = after.step(&step);
            let answer = runtime.block_on(store.write(move |tx| {
                let answer = apply(tx, &step, made)?;
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
