//! Tests of the invariants: with random histories, and with all short ones.

use super::*;
use crate::domain::outcome::PlanSummary;
use crate::domain::ownership::OwnerState;
use crate::domain::plan_digest::{ChangesDigest, SeenPlan};
use crate::domain::state::{LeftFiles, ProjectState};
use crate::domain::state_address::StateAddress;
use crate::domain::{PlanId, PullId, RepoId};
use jiff::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Actions; pull requests and projects by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Plan {
        pull: u64,
        projects: Vec<u8>,
        everything: bool,
    },
    /// A plan was made: recorded in place of the project's earlier one.
    MakePlan {
        pull: u64,
        project: u8,
    },
    NotPlanned {
        pull: u64,
        project: u8,
    },
    GoOn {
        pull: u64,
        project: u8,
    },
    /// Apply of the nth plan of the project, in any state.
    Apply {
        pull: u64,
        project: u8,
        nth: u8,
    },
    Import {
        pull: u64,
        project: u8,
    },
    Changed {
        pull: u64,
        project: u8,
    },
    ApplyFailed {
        pull: u64,
        project: u8,
    },
    Unlock {
        pull: u64,
    },
    Delete {
        project: u8,
        applying: bool,
    },
    Close {
        pull: u64,
    },
    /// An automatic re-plan has ended, with or without a turn.
    TurnEnds {
        pull: u64,
        project: u8,
    },
    StopApplies(bool),
}

fn repo() -> RepoId {
    RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() }
}

fn pull_id(number: u64) -> PullId {
    PullId { repo: repo(), number }
}

fn project(number: u8) -> ProjectId {
    ProjectId { dir: number.to_string(), workspace: "default".into(), name: None }
}

fn lock(pull: u64, number: u8) -> ProjectLock {
    let (title, url, user) = (String::new(), String::new(), "alice".into());
    let holder = LockHolder { pull: pull_id(pull), title, url, user, since: Timestamp::UNIX_EPOCH, overdue: None };
    ProjectLock {
        repo: repo(),
        project: project(number),
        holder,
        applied: false,
        why: None,
        address: StateAddress::default(),
    }
}

fn plan(pull: u64, number: u8, nth: u8) -> PlanRecord {
    PlanRecord {
        id: format!("{pull}-{number}-{nth}").into(),
        pull: pull_id(pull),
        project: project(number),
        head: "head".into(),
        base: "base".into(),
        base_branch: String::new(),
        config_digest: String::new(),
        tool: String::new(),
        path: None,
        sha256: None,
        summary: PlanSummary::default(),
        made: Timestamp::UNIX_EPOCH,
        job: "planned".into(),
        consumed_by: None,
        left: LeftFiles::default(),
        dependencies: Vec::new(),
        may_depend_on_more: false,
        max_age: None,
        inputs: None,
        changes: None,
        incomparable: None,
        part: None,
        guards: Vec::new(),
        tree: None,
        auto_apply: crate::domain::AutoApply::Never,
        arguments: Vec::new(),
        deleted: false,
    }
}

/// A history so far: the rows, and the fate of plans.
#[derive(Debug, Clone, Default)]
struct History {
    world: World,
    /// Pull request and project of each plan that was made.
    made: Vec<(u64, u8)>,
    /// Plans that were used, dropped or replaced.
    over: BTreeSet<PlanId>,
    /// Turns that have not ended.
    turns: BTreeSet<(PullId, ProjectId)>,
}

impl History {
    fn event(&self, action: &Action, modes: &[LockMode]) -> Option<LockEvent> {
        let wanted = |pull: u64, number: u8| WantedLock { lock: lock(pull, number), mode: modes[usize::from(number)] };
        let by = AuditEntry { who: "bob".into(), act: "unlock".into(), ..AuditEntry::default() };
        Some(match action.clone() {
            Action::Plan { pull, projects, everything } => LockEvent::PlanBegins {
                pull: pull_id(pull),
                projects: projects.into_iter().map(|number| wanted(pull, number)).collect(),
                everything,
            },
            Action::NotPlanned { pull, project: number } => {
                LockEvent::NotPlanned { pull: pull_id(pull), project: project(number) }
            }
            Action::GoOn { pull, project } => LockEvent::PlanGoesOn { projects: vec![wanted(pull, project)] },
            Action::Apply { pull, project, nth } => LockEvent::ApplyBegins {
                plan: plan(pull, project, nth).id,
                job: "job".into(),
                project: wanted(pull, project),
            },
            Action::Import { pull, project } => {
                LockEvent::StateChangeBegins { project: wanted(pull, project), job: "job".into(), head: "head".into() }
            }
            Action::Changed { pull, project: number } => LockEvent::StateChanged {
                pull: pull_id(pull),
                project: project(number),
                outputs: true,
                at: Timestamp::UNIX_EPOCH,
            },
            Action::ApplyFailed { pull, project: number } => {
                LockEvent::ApplyFailed { pull: pull_id(pull), project: project(number), at: Timestamp::UNIX_EPOCH }
            }
            Action::Unlock { pull } => LockEvent::Unlocked { pull: pull_id(pull), only: None, accept_drift: false, by },
            Action::Delete { project, applying } => {
                LockEvent::LockDeleted { key: lock(0, project).key(), applying: applying.then(|| "job".into()), by }
            }
            Action::Close { pull } => LockEvent::Closed { pull: pull_id(pull), remarks: Vec::new(), merged: None },
            Action::TurnEnds { pull, project: number } => {
                LockEvent::TurnEnds { pull: pull_id(pull), projects: vec![project(number)] }
            }
            Action::MakePlan { .. } | Action::StopApplies(_) => return None,
        })
    }

    /// Performs an action, and checks all invariants.
    fn act(&mut self, action: &Action, modes: &[LockMode]) {
        match self.event(action, modes) {
            Some(event) => self.observe(&event, modes),
            None => match action {
                Action::MakePlan { pull, project: number } => {
                    let nth = self.made.iter().filter(|made| **made == (*pull, *number)).count();
                    self.made.push((*pull, *number));
                    let new = plan(*pull, *number, nth as u8);
                    let replaced = |old: &PlanRecord| old.pull == new.pull && old.project == new.project;
                    self.over.extend(self.world.plans.iter().filter(|old| replaced(old)).map(|old| old.id.clone()));
                    self.world.plans.retain(|old| !replaced(old));
                    self.world.plans.push(new);
                }
                Action::StopApplies(stop) => {
                    let lock = ApplyLock { user: "bob".into(), reason: "freeze".into(), since: Timestamp::UNIX_EPOCH };
                    self.world.apply_lock = stop.then_some(lock);
                }
                _ => unreachable!(),
            },
        }
    }

    fn observe(&mut self, event: &LockEvent, modes: &[LockMode]) {
        let before = self.world.clone();
        let (after, follows) = step(before.clone(), event);
        assert_eq!(step(near::rows_near(&before, event), event).1, follows, "the rules ask for all rows that matter");

        let keys: BTreeSet<String> = after.locks.iter().map(ProjectLock::key).collect();
        assert_eq!(keys.len(), after.locks.len(), "one holder of a project");
        assert_eq!(written(&before, &follows), after, "the changes are all that changes");
        if follows.refusal.is_some() {
            let same = World { waiters: before.waiters.clone(), ..after.clone() };
            assert_eq!(before, same, "a refusal changes nothing but who waits");
            assert!(follows.changes.iter().all(|change| matches!(change, LockChange::Wait(_))));
        }
        let freed: Vec<&ProjectLock> = follows.freed().collect();
        assert_eq!(freed, names(&before, event), "a release frees what it names, and nothing else");
        for (project, holder) in &follows.held {
            let holds = before.locks.iter().find(|lock| lock.project == *project);
            assert_eq!(holds.map(|lock| &lock.holder), Some(&**holder), "who is refused is told of who holds it");
            let told = follows.held.iter().filter(|(other, _)| other == project).count();
            assert!(told == 1 && holder.pull != *pull_of(event, &before), "once, and of somebody else");
        }
        match event {
            LockEvent::PlanBegins { projects, .. } | LockEvent::PlanGoesOn { projects } => {
                for wanted in projects.iter().filter(|wanted| wanted.mode == LockMode::OnPlan) {
                    let holds = after.locks.iter().find(|lock| lock.project == wanted.lock.project).unwrap();
                    let refused = follows.held.iter().any(|(project, _)| *project == wanted.lock.project);
                    assert_eq!(holds.holder.pull != wanted.lock.holder.pull, refused, "held by us, or refused");
                }
            }
            LockEvent::ApplyBegins { plan, project, .. } if follows.refusal.is_none() => {
                assert!(self.over.insert(plan.clone()), "a plan is used once, and not when it was dropped");
                assert_eq!(before.apply_lock, None);
                assert!(before.plans.iter().any(|known| known.id == *plan));
                is_held_for_change(&after, project);
            }
            LockEvent::StateChangeBegins { project, .. } if follows.refusal.is_none() => {
                is_held_for_change(&after, project);
            }
            LockEvent::Closed { pull, .. } | LockEvent::Unlocked { pull, .. } => {
                assert!(after.locks.iter().all(|lock| lock.holder.pull != *pull), "nothing of it stays");
                assert!(after.plans.iter().all(|plan| plan.pull != *pull));
            }
            _ => {}
        }
        for dropped in follows.dropped() {
            assert!(self.over.insert(dropped.id), "a plan is dropped once");
        }
        if !matches!(event, LockEvent::ApplyBegins { .. }) {
            let (again, second) = step(after.clone(), event);
            let changed: Vec<&LockChange> =
                second.changes.iter().filter(|change| !matches!(change, LockChange::SetStatus(..))).collect();
            assert!(changed.is_empty(), "the same again changes nothing: {changed:?}");
            assert_eq!((again.locks, again.plans), (after.locks.clone(), after.plans.clone()));
        }
        self.lines(&before, &after, &follows, event);
        for lock in &before.locks {
            let mode = modes[usize::from(lock.project.dir.parse::<u8>().unwrap())];
            assert!(mode == LockMode::OnPlan || lock.applied, "only a plan takes a lock for nothing but a plan");
        }
        self.world = after;
    }

    /// Checks that a waiting pull request keeps its position, and is not forgotten at its turn.
    fn lines(&mut self, before: &World, after: &World, follows: &Consequences, event: &LockEvent) {
        let kept: Vec<_> = before.waiters.iter().filter(|waiter| after.waiters.contains(waiter)).collect();
        let first: Vec<_> = after.waiters.iter().take(kept.len()).collect();
        assert_eq!(kept, first, "the order of the line is kept");
        let pull = match event {
            LockEvent::LockDeleted { .. } => None,
            event => Some(pull_of(event, before).clone()),
        };
        for (project, _) in &follows.held {
            let waits = |waiter: &WaitingPull| Some(&waiter.pull) == pull.as_ref() && waiter.project == *project;
            assert!(after.waiters.iter().any(waits), "who is refused waits");
            let place = follows.place(project).expect("and is told its place");
            assert!(place.number > 0 && Some(&place.behind) != pull.as_ref());
        }
        if let LockEvent::Closed { pull, .. } | LockEvent::Unlocked { pull, .. } = event {
            assert!(after.waiters.iter().all(|waiter| waiter.pull != *pull), "who is gone does not wait");
        }
        if let LockEvent::TurnEnds { pull, projects } = event {
            self.turns.retain(|(of, project)| of != pull || !projects.contains(project));
        }
        self.turns.extend(follows.turns.iter().cloned());
        for project in after.waiters.iter().map(|waiter| &waiter.project).collect::<BTreeSet<_>>() {
            let is_free = |waiter: &&WaitingPull| {
                blocker(&after.locks, &after.owners, &waiter.pull, &waiter.project, &waiter.address).is_none()
            };
            let mut line = after.waiters.iter().filter(|waiter| waiter.project == *project).filter(is_free);
            // The end of a turn passes it on.
            let has_turn = self.turns.iter().any(|(_, of)| of == project);
            assert!(line.next().is_none() || has_turn, "somebody in line of a free project has the turn");
        }
    }
}

fn is_held_for_change(world: &World, project: &WantedLock) {
    let lock = world.locks.iter().find(|lock| lock.project == project.lock.project);
    match lock {
        Some(lock) if project.mode != LockMode::Disabled => {
            assert!(lock.applied && lock.holder == project.lock.holder, "it holds the project whose state it changes");
        }
        _ => assert_eq!(project.mode, LockMode::Disabled),
    }
}

/// Returns the rows after the changes, written one by one.
fn written(before: &World, follows: &Consequences) -> World {
    let mut world = before.clone();
    for change in &follows.changes {
        match change {
            LockChange::Take(lock) => world.locks.push(lock.clone()),
            LockChange::NoteApplied(lock) => {
                let row = world.locks.iter_mut().find(|row| row.key() == lock.key()).unwrap();
                row.clone_from(lock);
            }
            LockChange::Free(lock) => {
                let at = world.locks.iter().position(|row| row == lock).unwrap();
                world.locks.remove(at);
            }
            LockChange::DropPlan(plan) => {
                let at = world.plans.iter().position(|row| row == plan).unwrap();
                world.plans.remove(at);
            }
            LockChange::UsePlan(plan) => {
                let plan = plan.record();
                assert!(plan.consumed_by.is_some());
                let at = world.plans.iter().position(|row| row.id == plan.id).unwrap();
                world.plans.remove(at);
            }
            LockChange::SetStatus(pull, status) => {
                assert!(matches!(status.state, ProjectState::PlanDiscarded | ProjectState::PlanInvalidated));
                world.statuses.retain(|(of, known)| of != pull || known.project != status.project);
                world.statuses.push((pull.clone(), status.clone()));
            }
            LockChange::Wait(waiter) => world.waiters.push(waiter.clone()),
            LockChange::Leave(waiter) => {
                let at = world.waiters.iter().position(|row| row == waiter).unwrap();
                world.waiters.remove(at);
            }
            LockChange::Own(_)
            | LockChange::ChangeOwner(_)
            | LockChange::RenameOwner { .. }
            | LockChange::PassOn { .. }
            | LockChange::Disown(_) => panic!("nothing here is strict"),
        }
    }
    world
}

fn pull_of<'a>(event: &'a LockEvent, world: &'a World) -> &'a PullId {
    match event {
        LockEvent::PlanBegins { pull, .. }
        | LockEvent::NotPlanned { pull, .. }
        | LockEvent::StateChanged { pull, .. }
        | LockEvent::ApplyFailed { pull, .. }
        | LockEvent::Unlocked { pull, .. }
        | LockEvent::TurnBegins { pull, .. }
        | LockEvent::TurnEnds { pull, .. }
        | LockEvent::Closed { pull, .. } => pull,
        LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
            &project.lock.holder.pull
        }
        LockEvent::PlanGoesOn { projects } => &projects[0].lock.holder.pull,
        LockEvent::Satisfied { .. }
        | LockEvent::ProjectsNamed { .. }
        | LockEvent::MergeKnown { .. }
        | LockEvent::PlansInvalidated { .. }
        | LockEvent::OwnershipTaken { .. }
        | LockEvent::ReminderDue { .. }
        | LockEvent::Reopened { .. } => unreachable!("only of mode `strict`"),
        LockEvent::LockDeleted { key, .. } => &world.locks.iter().find(|lock| lock.key() == *key).unwrap().holder.pull,
    }
}

/// Returns the locks that an event has to release.
fn names<'a>(world: &'a World, event: &LockEvent) -> Vec<&'a ProjectLock> {
    let is_named = |lock: &&ProjectLock| match event {
        LockEvent::PlanBegins { pull, projects, everything } => {
            let planned = projects.iter().any(|wanted| wanted.lock.project == lock.project);
            *everything && lock.holder.pull == *pull && !planned && !lock.applied
        }
        LockEvent::NotPlanned { pull, project } => {
            lock.holder.pull == *pull && lock.project == *project && !lock.applied
        }
        LockEvent::Unlocked { pull, .. } | LockEvent::Closed { pull, .. } => lock.holder.pull == *pull,
        LockEvent::LockDeleted { key, applying, .. } => lock.key() == *key && applying.is_none(),
        LockEvent::ApplyBegins { .. }
        | LockEvent::PlanGoesOn { .. }
        | LockEvent::StateChangeBegins { .. }
        | LockEvent::TurnBegins { .. }
        | LockEvent::TurnEnds { .. }
        | LockEvent::ApplyFailed { .. }
        | LockEvent::StateChanged { .. } => false,
        _ => unreachable!("only of mode `strict`"),
    };
    world.locks.iter().filter(is_named).collect()
}

/// Returns all actions of two pull requests on two projects.
fn alphabet() -> Vec<Action> {
    let mut all = Vec::new();
    for pull in 1..=2 {
        for (projects, everything) in [(vec![0], false), (vec![0], true), (vec![0, 1], true), (vec![], true)] {
            all.push(Action::Plan { pull, projects, everything });
        }
        for project in 0..2 {
            all.push(Action::MakePlan { pull, project });
            all.push(Action::NotPlanned { pull, project });
            all.push(Action::GoOn { pull, project });
            all.push(Action::Apply { pull, project, nth: 0 });
            all.push(Action::Apply { pull, project, nth: 1 });
            all.push(Action::Import { pull, project });
            all.push(Action::TurnEnds { pull, project });
        }
        all.extend([Action::Changed { pull, project: 0 }, Action::Unlock { pull }, Action::Close { pull }]);
    }
    let deletions = [(0, false), (0, true), (1, false)];
    all.extend(deletions.map(|(project, applying)| Action::Delete { project, applying }));
    all.extend([true, false].map(Action::StopApplies));
    all
}

/// Returns all that later steps depend on, in short. The times of locks and the order in which plans were recorded do not matter.
fn key(history: &History) -> String {
    let mut rows: Vec<String> = history.world.plans.iter().map(|plan| plan.id.to_string()).collect();
    rows.extend(
        history
            .world
            .locks
            .iter()
            .map(|lock| format!("{} {} {}", lock.project.dir, lock.holder.pull.number, lock.applied)),
    );
    rows.sort();
    rows.extend(history.world.waiters.iter().map(|waiter| format!("{} waits for {}", waiter.pull, waiter.project.dir)));
    rows.extend(history.turns.iter().map(|(pull, project)| format!("{pull} has {}", project.dir)));
    let mut made = history.made.clone();
    made.sort_unstable();
    format!("{rows:?} {made:?} {:?} {}", history.over, history.world.apply_lock.is_some())
}

#[test]
fn no_short_history_of_two_pull_requests_and_two_projects_breaks_a_rule() {
    const LENGTH: usize = 5;
    let alphabet = alphabet();
    for mode in [LockMode::OnPlan, LockMode::OnApply, LockMode::Disabled] {
        let (mut seen, mut now) = (BTreeSet::new(), vec![History::default()]);
        for _ in 0..LENGTH {
            let mut next = Vec::new();
            for (history, action) in now.iter().flat_map(|history| alphabet.iter().map(move |action| (history, action)))
            {
                let mut history = history.clone();
                history.act(action, &[mode; 2]);
                if seen.insert(key(&history)) {
                    next.push(history);
                }
            }
            now = next;
        }
        assert!(seen.len() > 400, "{mode:?}: {}", seen.len());
    }
}

fn actions() -> impl Strategy<Value = Action> {
    let (pull, project) = (1..=4u64, 0..3u8);
    let one = (pull.clone(), project.clone());
    prop_oneof![
        4 => (pull.clone(), prop::collection::btree_set(project.clone(), 0..=3), any::<bool>()).prop_map(
            |(pull, projects, everything)| Action::Plan { pull, projects: projects.into_iter().collect(), everything }
        ),
        4 => one.clone().prop_map(|(pull, project)| Action::MakePlan { pull, project }),
        1 => one.clone().prop_map(|(pull, project)| Action::NotPlanned { pull, project }),
        4 => (one.clone(), 0..4u8).prop_map(|((pull, project), nth)| Action::Apply { pull, project, nth }),
        1 => one.clone().prop_map(|(pull, project)| Action::GoOn { pull, project }),
        1 => one.clone().prop_map(|(pull, project)| Action::Import { pull, project }),
        1 => one.clone().prop_map(|(pull, project)| Action::TurnEnds { pull, project }),
        1 => one.clone().prop_map(|(pull, project)| Action::Changed { pull, project }),
        1 => one.prop_map(|(pull, project)| Action::ApplyFailed { pull, project }),
        1 => pull.clone().prop_map(|pull| Action::Unlock { pull }),
        1 => (project, any::<bool>()).prop_map(|(project, applying)| Action::Delete { project, applying }),
        1 => pull.prop_map(|pull| Action::Close { pull }),
        1 => any::<bool>().prop_map(Action::StopApplies),
    ]
}

fn modes() -> impl Strategy<Value = LockMode> {
    prop_oneof![3 => Just(LockMode::OnPlan), 1 => Just(LockMode::OnApply), 1 => Just(LockMode::Disabled)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_random_history_breaks_a_rule(
        modes in prop::collection::vec(modes(), 3),
        actions in prop::collection::vec(actions(), 1..60),
    ) {
        let mut history = History::default();
        for action in &actions {
            history.act(action, &modes);
        }
    }
}

#[test]
fn an_unlock_tells_of_locked_projects_first_and_then_of_planned_ones() {
    let world = World {
        locks: vec![lock(1, 2), lock(2, 0), lock(1, 1)],
        plans: vec![plan(1, 0, 0), plan(1, 1, 0), plan(2, 0, 0)],
        ..World::default()
    };
    let by = AuditEntry { who: "bob".into(), why: Some("done by hand".into()), ..AuditEntry::default() };
    let event = LockEvent::Unlocked { pull: pull_id(1), only: None, accept_drift: false, by: by.clone() };
    let (after, follows) = step(world, &event);
    assert_eq!(
        follows.message,
        Some(Message::Unlocked {
            projects: vec![project(2), project(1), project(0)],
            kept: Vec::new(),
            why: "done by hand".into(),
            next: Vec::new()
        })
    );
    assert_eq!(follows.audit, Some(by));
    assert_eq!((after.locks, after.plans), (vec![lock(2, 0)], vec![plan(2, 0, 0)]));
}

#[test]
fn who_deletes_a_lock_is_named_to_its_holder_and_in_the_audit_log() {
    let by = AuditEntry { who: "bob".into(), act: "unlock".into(), ..AuditEntry::default() };
    let delete = |applying: Option<&str>| {
        let world = World { locks: vec![lock(1, 0), lock(1, 1)], plans: vec![plan(1, 0, 0)], ..World::default() };
        let applying = applying.map(JobId::from);
        step(world, &LockEvent::LockDeleted { key: lock(1, 0).key(), applying, by: by.clone() })
    };
    let (after, follows) = delete(None);
    assert_eq!((after.locks, after.plans), (vec![lock(1, 1)], vec![]));
    assert_eq!(
        follows.message,
        Some(Message::Discarded { project: project(0), user: "bob".into(), why: String::new(), next: Vec::new() })
    );
    let entry = follows.audit.unwrap();
    assert_eq!(
        (entry.result.as_str(), entry.project.as_deref()),
        ("deleted; h/acme/infra#1 had it", Some("0/default"))
    );

    let (after, follows) = delete(Some("j"));
    assert_eq!((after.locks.len(), after.plans.len(), follows.message), (2, 1, None));
    assert_eq!(follows.audit.unwrap().result, "refused: job j applies");
}

#[test]
fn a_lock_is_named_with_its_host_or_by_a_key_that_only_one_host_has() {
    let mut other = lock(2, 0);
    other.repo.host = "other".into();
    other.holder.pull.repo.host = "other".into();
    let freed = |locks: Vec<ProjectLock>, key: String| {
        let world = World { locks, ..World::default() };
        let (_, follows) = step(world, &LockEvent::LockDeleted { key, applying: None, by: AuditEntry::default() });
        follows.freed().cloned().collect::<Vec<_>>()
    };
    assert_eq!(freed(vec![lock(1, 0), other.clone()], other.id()), std::slice::from_ref(&other));
    assert_eq!(freed(vec![lock(1, 0), other.clone()], other.key()), []);
    assert_eq!(freed(vec![other.clone()], other.key()), [other]);
}

#[test]
fn plans_that_were_made_with_outputs_of_a_project_go_when_they_may_have_changed() {
    let made_with = |number: u8, on: &[&str], more: bool| PlanRecord {
        dependencies: on.iter().map(|dir| (*dir).to_owned()).collect(),
        may_depend_on_more: more,
        ..plan(1, number, 0)
    };
    let plans = vec![made_with(1, &["0"], false), made_with(2, &["1"], false), made_with(3, &[], true)];
    let changed = |outputs: bool| {
        let world = World { plans: plans.clone(), ..World::default() };
        let event =
            LockEvent::StateChanged { pull: pull_id(1), project: project(0), outputs, at: Timestamp::UNIX_EPOCH };
        step(world, &event)
    };
    let (after, follows) = changed(true);
    assert_eq!((after.plans, follows.dropped()), (vec![plans[1].clone()], vec![plans[0].clone(), plans[2].clone()]));
    assert!(after.statuses.iter().all(|(_, status)| status.state == ProjectState::PlanDiscarded));
    assert_eq!(after.statuses.len(), 2);
    assert_eq!(changed(false).0.plans, plans);
}

#[test]
fn of_other_pull_requests_go_the_plans_that_are_known_to_be_made_with_them() {
    let mut other_repo = plan(2, 4, 0);
    other_repo.pull.repo.name = "another".into();
    let made_with = |plan: PlanRecord, on: &[&str], more: bool| PlanRecord {
        dependencies: on.iter().map(|dir| (*dir).to_owned()).collect(),
        may_depend_on_more: more,
        ..plan
    };
    let plans = vec![
        made_with(plan(2, 1, 1), &["0"], false),
        made_with(plan(2, 2, 2), &[], true),
        plan(2, 3, 0),
        made_with(other_repo, &["0"], false),
    ];
    let event =
        LockEvent::StateChanged { pull: pull_id(1), project: project(0), outputs: true, at: Timestamp::UNIX_EPOCH };
    let (after, follows) = step(World { plans: plans.clone(), ..World::default() }, &event);
    assert_eq!((after.plans.as_slice(), follows.dropped()), (&plans[1..], vec![plans[0].clone()]));
    let statuses: Vec<_> = after.statuses.iter().map(|(pull, status)| (pull, &status.project)).collect();
    assert_eq!(statuses, [(&pull_id(2), &plans[0].project)]);
}

/// Plans this project by a pull request, and returns its position in line.
fn plans(world: World, pull: u64) -> (World, Option<(usize, u64)>) {
    let wanted = WantedLock { lock: lock(pull, 0), mode: LockMode::OnPlan };
    let event = LockEvent::PlanBegins { pull: pull_id(pull), projects: vec![wanted], everything: true };
    let (world, follows) = step(world, &event);
    let place = follows.place(&project(0)).map(|place| (place.number, place.behind.number));
    (world, place)
}

#[test]
fn who_is_refused_waits_in_line_and_has_its_turn_when_the_first_one_is_done() {
    let mut world = World::default();
    let mut told = Vec::new();
    for pull in [1, 2, 3, 2] {
        let place;
        (world, place) = plans(world, pull);
        told.push(place);
    }
    assert_eq!(told, [None, Some((1, 1)), Some((2, 2)), Some((1, 1))]);
    let closed = LockEvent::Closed { pull: pull_id(1), remarks: Vec::new(), merged: None };
    let (world, follows) = step(world, &closed);
    assert_eq!(follows.turns, [(pull_id(2), project(0))]);
    let next = vec![crate::domain::reply::NextInLine { project: project(0), number: 2 }];
    assert!(matches!(follows.message, Some(Message::Cleanup { next: told, .. }) if told == next));
    // Its plan does not begin: the next one has its turn.
    let ends = LockEvent::TurnEnds { pull: pull_id(2), projects: vec![project(0)] };
    let (after, follows) = step(world.clone(), &ends);
    assert_eq!((follows.turns, after.waiters.len()), (vec![(pull_id(3), project(0))], 1));
    // It begins, and another one comes between: the others keep their places.
    let (world, place) = plans(world, 4);
    assert_eq!(place, None);
    let (world, place) = plans(world, 2);
    assert_eq!(place, Some((1, 4)));
    let (_, place) = plans(world, 3);
    assert_eq!(place, Some((2, 2)));
}

#[test]
fn a_plan_that_fails_passes_the_turn_on() {
    let world = [1, 2, 3].into_iter().fold(World::default(), |world, pull| plans(world, pull).0);
    let by = AuditEntry::default();
    let unlocked = LockEvent::Unlocked { pull: pull_id(1), only: None, accept_drift: false, by };
    let (world, _) = plans(step(world, &unlocked).0, 2);
    let (world, follows) = step(world, &LockEvent::NotPlanned { pull: pull_id(2), project: project(0) });
    assert_eq!((follows.turns, world.waiters.len()), (vec![(pull_id(3), project(0))], 1));
}

#[test]
fn who_owes_is_told_again_when_that_is_due_for_any_of_it() {
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    let owner = |number: u8, state: OwnerState, seconds: Option<u64>| ProjectOwner {
        repo: repo(),
        project: project(number),
        holder: lock(1, number).holder,
        state,
        applied: None,
        merged: None,
        approved: None,
        told: None,
        reminder_interval: seconds.map(Duration::from_secs),
        reason: String::new(),
    };
    let owners = vec![owner(0, OwnerState::ClosedApplied, None), owner(1, OwnerState::ClosedApplied, Some(0)), {
        let mut other = owner(2, OwnerState::AppliedUnmerged, None);
        other.holder = lock(2, 2).holder;
        other
    }];
    let mut world = World { owners, ..World::default() };
    let mut told = Vec::new();
    for seconds in [0, 59, 60, 61, 119, 120] {
        let event = LockEvent::ReminderDue { pull: pull_id(1), usual: Duration::from_secs(60), at: at(seconds) };
        let (after, follows) = step(world, &event);
        world = after;
        told.extend(follows.others.into_iter().map(|(_, message)| (seconds, message)));
    }
    let state = OwnerState::ClosedApplied;
    let message = Message::Owes { state, projects: vec![project(0), project(1)], again: true };
    assert_eq!(told, [(60, message.clone()), (120, message)]);
    assert_eq!(world.owners[2].told, None);
    // No reminders, if each project has that setting.
    world.owners.remove(0);
    let event = LockEvent::ReminderDue { pull: pull_id(1), usual: Duration::from_secs(60), at: at(9999) };
    assert_eq!(step(world, &event).1.others, []);
}

#[test]
fn what_was_approved_is_the_last_plan_of_the_merged_head_however_often_the_merge_is_told() {
    let seen = |id: &str, head: &str, changes: Option<&str>| SeenPlan {
        id: id.into(),
        head: head.into(),
        base: "base".into(),
        made: Timestamp::UNIX_EPOCH,
        changes: changes.map(|text| ChangesDigest(text.to_owned())),
        incomparable: None,
        on_merge: false,
    };
    let mut plans = vec![seen("1", "old", Some("a")), seen("2", "head", Some("b")), seen("3", "head", Some("c"))];
    let changed = ChangedProjects {
        pull: pull_id(1),
        head: "head".into(),
        projects: vec![crate::domain::ownership::ChangedProject {
            project: project(0),
            strict: true,
            reminder_interval: None,
        }],
    };
    let closed = LockEvent::Closed {
        pull: pull_id(1),
        remarks: Vec::new(),
        merged: Some(MergedPull {
            head: "head".into(),
            commit: None,
            branch: "main".into(),
            at: Timestamp::UNIX_EPOCH,
            holder: lock(1, 0).holder,
            into: MergedInto::Applied,
        }),
    };
    let of = |plans: &[SeenPlan]| {
        vec![SeenPlans { project: project(0), key: String::new(), plans: plans.to_vec(), others: Vec::new() }]
    };
    let world = World { changed: Some(changed), seen: of(&plans), ..World::default() };
    let (merged, _) = step(world, &closed);
    assert_eq!(merged.owners[0].approved.as_ref(), plans.last());
    let changing =
        |text: Option<&str>| PlanRecord { changes: text.map(|text| ChangesDigest(text.to_owned())), ..plan(1, 0, 0) };
    let approves = |owner: &ProjectOwner| [Some("c"), Some("b"), None].map(|text| owner.approves(&changing(text)));
    assert_eq!(approves(&merged.owners[0]), [true, false, false]);
    assert!(!merged.owners[0].approves(&PlanRecord { pull: pull_id(2), ..changing(Some("c")) }));
    assert!(!merged.owners[0].approves(&PlanRecord { project: project(1), ..changing(Some("c")) }));
    // The base branch is at the very head, and is planned there.
    plans.push(seen("4", "head", None));
    let (again, follows) = step(World { seen: of(&plans), ..merged.clone() }, &closed);
    assert_eq!((again.owners.clone(), follows.changes), (merged.owners, vec![]));
    // An unknown digest is the same as no other, unknown ones included.
    let mut unknown = again.owners[0].clone();
    unknown.approved = Some(seen("5", "head", None));
    assert_eq!(approves(&unknown), [false, false, false]);
}

mod names;
mod turns;
