//! Turns: which re-plan is for them, which of its projects are due when it begins, and which its end covers.

use super::*;
use crate::domain::state::ProjectStatus;
use crate::domain::waiting::{Replan, ReplanId, ReplanScope, ReplanState, WaitCause, WaitingPull};

fn scope(pull: u64, projects: &[u8]) -> ReplanScope {
    ReplanScope { pull: pull_id(pull), projects: projects.iter().map(|number| project(*number)).collect() }
}

fn replan(id: i64, state: ReplanState, scope: ReplanScope) -> Replan {
    Replan { id: ReplanId(id), state, queued: Timestamp::UNIX_EPOCH, scope }
}

fn waits(pull: u64, number: u8) -> WaitingPull {
    WaitingPull {
        project: project(number),
        pull: pull_id(pull),
        since: Timestamp::UNIX_EPOCH,
        cause: WaitCause::Plan,
        address: StateAddress::default(),
    }
}

fn status(number: u8, state: ProjectState, waits_for: &[u8]) -> ProjectStatus {
    let waits_for = waits_for.iter().map(|number| project(*number)).collect();
    let status = ProjectStatus::without_job(project(number), state, "head".into());
    ProjectStatus { waits_for, updated: Timestamp::UNIX_EPOCH, ..status }
}

fn begins(pull: u64, projects: &[u8]) -> LockEvent {
    let ReplanScope { pull, projects } = scope(pull, projects);
    LockEvent::TurnBegins { pull, projects, at: Timestamp::UNIX_EPOCH }
}

#[test]
fn turns_of_a_pull_request_are_one_replan() {
    let turns = [(2, 1), (1, 0), (2, 0)].map(|(pull, number)| (pull_id(pull), project(number)));
    assert_eq!(replans_of(&turns), [scope(1, &[0]), scope(2, &[1, 0])]);
}

#[test]
fn later_turns_go_to_a_replan_that_has_not_begun() {
    let begun = || replan(1, ReplanState::Running, scope(1, &[0]));
    let queued = || replan(2, ReplanState::Queued, scope(1, &[2, 1]));
    let later = scope(1, &[0, 1]);
    let extended = ReplanChange::Extend(ReplanId(2), scope(1, &[0, 1, 2]));
    assert_eq!(queue_replan(later.clone(), vec![begun(), queued()]), extended);
    assert_eq!(queue_replan(later.clone(), vec![begun()]), ReplanChange::Add(later.clone()));
    assert_eq!(queue_replan(later.clone(), Vec::new()), ReplanChange::Add(later));
}

#[test]
fn the_end_of_a_replan_leaves_out_what_another_one_of_its_pull_request_is_for() {
    let replans = [(1, scope(1, &[0, 1, 2])), (2, scope(2, &[0])), (3, scope(1, &[1]))]
        .map(|(id, scope)| replan(id, ReplanState::Running, scope));
    let ReplanScope { pull, projects } = scope(1, &[0, 2]);
    assert_eq!(replan_ends(ReplanId(1), &replans), Some(LockEvent::TurnEnds { pull, projects }));
    assert_eq!(replan_ends(ReplanId(4), &replans), None);
}

#[test]
fn a_replan_is_for_free_projects_that_are_still_waited_for_and_passes_the_other_turns_on() {
    // Somebody has locked 0 meanwhile, and nobody waits for 1 any more but the next one in line.
    let world = World {
        locks: vec![lock(3, 0)],
        waiters: vec![waits(1, 0), waits(2, 0), waits(2, 1), waits(1, 2)],
        ..World::default()
    };
    let (after, follows) = step(world.clone(), &begins(1, &[0, 1, 2]));
    assert_eq!((&follows.due, &follows.passed), (&vec![project(2)], &vec![project(0), project(1)]));
    assert_eq!((follows.changes, after.waiters.clone()), (vec![], world.waiters));
    let (after, follows) = step(after, &LockEvent::TurnEnds { pull: pull_id(1), projects: follows.passed });
    assert_eq!(follows.turns, [(pull_id(2), project(1))]);
    assert_eq!(after.waiters.len(), 4, "whoever waits behind a lock stays in line");
}

#[test]
fn a_project_whose_apply_failed_is_planned_again_once_nobody_else_has_it() {
    let failed = LockEvent::ApplyFailed { pull: pull_id(1), project: project(0), at: Timestamp::UNIX_EPOCH };
    let row = WaitingPull { cause: WaitCause::ApplyFailed, ..waits(1, 0) };
    let (after, follows) = step(World { locks: vec![lock(1, 0)], ..World::default() }, &failed);
    assert_eq!((follows.turns, &after.waiters), (vec![(pull_id(1), project(0))], &vec![row.clone()]));
    let (after, follows) = step(after, &begins(1, &[0]));
    assert_eq!(follows.due, [project(0)]);
    let (after, follows) = step(after, &LockEvent::TurnEnds { pull: pull_id(1), projects: vec![project(0)] });
    assert_eq!((follows.turns, after.waiters), (vec![], vec![]));
    let (after, follows) = step(World { locks: vec![lock(2, 0)], ..World::default() }, &failed);
    assert_eq!((follows.turns, after.waiters), (vec![], vec![row]));
}

#[test]
fn a_deferred_project_joins_the_line_when_its_turn_begins() {
    let statuses = [
        status(0, ProjectState::Applied, &[]),
        status(1, ProjectState::Deferred, &[0]),
        status(2, ProjectState::Deferred, &[0, 1]),
    ];
    assert_eq!(due_after(&statuses[0], &statuses), [project(1)]);
    assert_eq!(due_after(&status(3, ProjectState::Applied, &[]), &statuses), [], "nothing waits for it");
    assert_eq!(due_after(&status(0, ProjectState::ApplyErrored, &[]), &statuses), [], "it is not done");
    let statuses: Vec<_> = statuses.into_iter().map(|status| (pull_id(1), status)).collect();
    let (after, follows) = step(World { statuses, ..World::default() }, &begins(1, &[1, 2]));
    assert_eq!((follows.due, follows.passed), (vec![project(1)], vec![project(2)]));
    let row = WaitingPull { cause: WaitCause::Invalidated, ..waits(1, 1) };
    assert_eq!((follows.changes, after.waiters), (vec![LockChange::Wait(row.clone())], vec![row]));
}

fn statuses() -> impl Strategy<Value = Vec<ProjectStatus>> {
    let states = [ProjectState::Deferred, ProjectState::Applied, ProjectState::PlannedNoChanges, ProjectState::Planned];
    let states = prop_oneof![2 => Just(ProjectState::Deferred), 3 => prop::sample::select(states.to_vec())];
    let one = (states, prop::collection::btree_set(0..4u8, 0..3), prop::bool::weighted(0.2));
    prop::collection::vec(one, 1..=4).prop_map(|all| {
        let numbered = (0..).zip(all).map(|(number, (state, waits_for, is_old))| {
            let waits_for: Vec<u8> = waits_for.into_iter().collect();
            let head = if is_old { "old" } else { "head" };
            ProjectStatus { head: head.into(), ..status(number, state, &waits_for) }
        });
        numbered.collect()
    })
}

/// Returns true if all dependencies of a deferred project are done at its head.
fn is_ready(statuses: &[ProjectStatus], number: u8) -> bool {
    let of = |project: &ProjectId| statuses.iter().find(|status| status.project == *project);
    let Some(own) = of(&project(number)).filter(|own| own.state == ProjectState::Deferred) else { return false };
    own.waits_for.iter().all(|on| of(on).is_some_and(|on| on.state.is_done() && on.head == own.head))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replan_that_begins_has_each_project_once_and_lines_up_only_ready_ones(
        statuses in statuses(),
        locked in prop::collection::btree_set(0..4u8, 0..3),
        waiting in prop::collection::btree_set(0..4u8, 0..3),
        projects in prop::collection::btree_set(0..4u8, 0..=4),
        done in 0..4u8,
    ) {
        let world = World {
            locks: locked.iter().map(|number| lock(2, *number)).collect(),
            waiters: waiting.iter().map(|number| waits(1, *number)).collect(),
            statuses: statuses.iter().map(|status| (pull_id(1), status.clone())).collect(),
            ..World::default()
        };
        let projects: Vec<u8> = projects.into_iter().collect();
        let (after, follows) = step(world.clone(), &begins(1, &projects));
        let is_due = |number: &u8| !locked.contains(number) && (waiting.contains(number) || is_ready(&statuses, *number));
        let (due, passed): (Vec<u8>, Vec<u8>) = projects.iter().copied().partition(is_due);
        prop_assert_eq!((&follows.due, &follows.passed), (&scope(1, &due).projects, &scope(1, &passed).projects));
        let joins = |number: &u8| !waiting.contains(number) && is_ready(&statuses, *number);
        let joined: Vec<_> = projects.iter().copied().filter(joins).map(project).collect();
        let new: Vec<_> = after.waiters[world.waiters.len()..].iter().map(|waiter| waiter.project.clone()).collect();
        prop_assert_eq!((&new, follows.changes.len()), (&joined, joined.len()));
        // Begun again, after a crash before its run, it is for the same.
        let (again, second) = step(after.clone(), &begins(1, &projects));
        prop_assert_eq!((again, second.changes, second.due), (after, vec![], follows.due));

        let ready = (0..4u8).filter(|number| is_ready(&statuses, *number));
        let Some(last) = statuses.iter().find(|status| status.project == project(done)) else { return Ok(()) };
        let waited = |number: &u8| last.state.is_done() && statuses[usize::from(*number)].waits_for.contains(&project(done));
        prop_assert_eq!(due_after(last, &statuses), scope(1, &ready.filter(waited).collect::<Vec<_>>()).projects);
    }
}
