//! Several names of one directory and workspace.

use super::*;
use crate::config::LockScope;
use crate::domain::ownership::{AppliedCommit, OwnerState, ProjectOwner};
use crate::domain::state_address::StateAddress;

fn called(name: &str) -> ProjectId {
    ProjectId { name: Some(name.to_owned()), ..project(0) }
}

fn at(backend: &str) -> StateAddress {
    StateAddress { backend: [backend.to_owned()].into(), data_dir: None }
}

fn wants(pull: u64, name: &str, address: StateAddress) -> WantedLock {
    let lock = ProjectLock { project: called(name), address, ..lock(pull, 0) };
    WantedLock { lock, mode: LockMode::OnPlan }
}

fn plans(world: World, wanted: &WantedLock) -> (World, Consequences) {
    let pull = wanted.lock.holder.pull.clone();
    step(world, &LockEvent::PlanBegins { pull, projects: vec![wanted.clone()], everything: false })
}

#[test]
fn another_name_is_free_only_where_both_say_that_their_state_is_another_one() {
    for (one, other, is_free) in [
        (StateAddress::default(), StateAddress::default(), false),
        (at("dev"), StateAddress::default(), false),
        (at("dev"), at("dev"), false),
        (at("dev"), at("prod"), true),
    ] {
        let (world, _) = plans(World::default(), &wants(1, "dev", one));
        let (world, follows) = plans(world, &wants(2, "prod", other));
        assert_eq!((follows.held.is_empty(), world.locks.len()), (is_free, 1 + usize::from(is_free)));
        assert_eq!(world.waiters.len(), usize::from(!is_free));
    }
}

#[test]
fn who_waits_under_another_name_has_the_turn_and_those_who_are_apart_from_it_too() {
    let (world, _) = plans(World::default(), &wants(1, "any", StateAddress::default()));
    let (world, _) = plans(world, &wants(2, "dev", at("dev")));
    let (world, _) = plans(world, &wants(3, "second", at("dev")));
    let (world, follows) = plans(world, &wants(4, "prod", at("prod")));
    assert_eq!(follows.place(&called("prod")).map(|place| place.number), Some(1), "it waits for the first alone");
    let closed = LockEvent::Closed { pull: pull_id(1), remarks: Vec::new(), merged: None };
    let (_, follows) = step(world, &closed);
    assert_eq!(follows.turns, [(pull_id(2), called("dev")), (pull_id(4), called("prod"))]);
}

#[test]
fn of_two_locks_that_an_earlier_version_gave_the_older_one_goes_first() {
    let locks = vec![wants(1, "dev", StateAddress::default()).lock, wants(2, "prod", StateAddress::default()).lock];
    let world = World { locks, ..World::default() };
    let refused = |world: &World, pull: u64, name: &str| {
        let (_, follows) = plans(world.clone(), &wants(pull, name, StateAddress::default()));
        follows.held.into_iter().map(|(_, holder)| holder.pull.number).next()
    };
    assert_eq!(refused(&world, 1, "dev"), None);
    assert_eq!(refused(&world, 2, "prod"), Some(1));
}

fn owner(name: &str, state: OwnerState, is_applied: bool) -> ProjectOwner {
    let job = || AppliedCommit { commit: "a".into(), at: Timestamp::UNIX_EPOCH, ended: None, job: "job".into() };
    ProjectOwner {
        repo: repo(),
        project: called(name),
        holder: lock(1, 0).holder,
        state,
        applied: is_applied.then(job),
        merged: None,
        told: None,
        reminder_interval: None,
        approved: None,
        reason: String::new(),
    }
}

/// Returns `name state` of all rows, after the projects got these names.
fn renamed(owners: Vec<ProjectOwner>, names: &[&str]) -> Vec<String> {
    let projects = names.iter().map(|name| called(name)).collect();
    let world = World { owners, ..World::default() };
    let (after, _) = step(world, &LockEvent::ProjectsNamed { pull: pull_id(1), projects });
    let row = |owner: &ProjectOwner| format!("{} {}", owner.project.label(), owner.state.as_str());
    after.owners.iter().map(row).collect()
}

#[test]
fn what_is_owned_follows_new_names_and_nothing_is_lost() {
    use OwnerState::{AppliedUnmerged, MergedUnapplied, Planned};
    let applied = |name| owner(name, AppliedUnmerged, true);
    assert_eq!(renamed(vec![applied("a")], &["b"]), ["b applied_unmerged"]);
    assert_eq!(renamed(vec![applied("a")], &["a", "b"]), ["a applied_unmerged"]);
    assert_eq!(renamed(vec![applied("a")], &["b", "c"]), ["b applied_unmerged", "c applied_unmerged"]);
    // Both were applied: they are two projects.
    assert_eq!(renamed(vec![applied("a"), applied("b")], &["b"]), ["a applied_unmerged", "b applied_unmerged"]);
    assert_eq!(renamed(vec![owner("b", Planned, false), applied("a")], &["b"]), ["b applied_unmerged"]);
    let owed = |name| owner(name, MergedUnapplied, false);
    assert_eq!(renamed(vec![owed("a"), owed("b")], &["b"]), ["a merged_unapplied", "b merged_unapplied"]);
    let elsewhere = ProjectOwner { project: project(1), ..applied("a") };
    assert_eq!(renamed(vec![elsewhere], &["b"]).len(), 1);
}

#[test]
fn a_plan_under_an_old_name_goes() {
    let under = |name| PlanRecord { project: called(name), ..plan(1, 0, 0) };
    let other = PlanRecord { project: project(1), ..plan(1, 0, 0) };
    let world = World { plans: vec![under("a"), under("b"), other.clone(), plan(2, 0, 0)], ..World::default() };
    let named = LockEvent::ProjectsNamed { pull: pull_id(1), projects: vec![called("b")] };
    let (after, follows) = step(world, &named);
    assert_eq!(after.plans, [under("b"), other, plan(2, 0, 0)]);
    assert_eq!(follows.dropped(), [under("a")]);
}

#[test]
fn of_several_projects_with_one_state_an_apply_satisfies_its_own_name() {
    let merged = |name| ProjectOwner { merged: Some("m".into()), ..owner(name, OwnerState::MergedUnapplied, false) };
    for (alone, left) in [(true, 0), (false, 1)] {
        let world = World { owners: vec![merged("a"), merged("b")], ..World::default() };
        let (pull, project, merges) = (pull_id(2), called("b"), vec!["m".into()]);
        let (after, _) = step(world, &LockEvent::Satisfied { pull, project, merges, alone });
        assert_eq!(after.owners.len(), left);
    }
}

#[test]
fn an_owner_keeps_others_out_under_every_name_and_invalidates_their_plans() {
    let strict = |pull, name| {
        let wanted = wants(pull, name, StateAddress::default());
        WantedLock { mode: LockMode::Strict(LockScope::Project), ..wanted }
    };
    let changes = |pull, name| LockEvent::StateChangeBegins {
        project: strict(pull, name),
        job: "job".into(),
        head: "head".into(),
    };
    let theirs = PlanRecord { project: called("b"), ..plan(2, 0, 0) };
    let world = World { plans: vec![theirs], ..World::default() };
    let (world, follows) = step(world, &changes(1, "a"));
    assert_eq!((world.plans.len(), follows.invalidated.len(), world.owners.len()), (0, 1, 1));
    let (after, follows) = step(world, &changes(2, "b"));
    assert!(matches!(follows.refusal, Some(LockRefusal::OwnedBy(owner)) if owner.holder.pull == pull_id(1)));
    assert_eq!(after.owners.len(), 1);
}
