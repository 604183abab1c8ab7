//! Invariants, stated about the truth and independent of the rules.

use super::super::near::rows_near;
use super::super::*;
use super::faults::{self, Fault};
use super::history::{PROJECTS, PULLS, Place, PlanTruth, Simulation, pull_id, state_of};
use super::names::number_of;
use crate::domain::ownership::OwnerState;

type Verdict = Result<(), String>;

pub(super) fn must(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks after each event: one owner, no obligation lost and none added, no plan out of date.
pub(super) fn of_state(simulation: &Simulation) -> Verdict {
    let (world, truth) = (&simulation.world, &simulation.truth);
    for project in 0..PROJECTS {
        let owners: Vec<&ProjectOwner> =
            world.owners.iter().filter(|owner| number_of(&owner.project) == project).collect();
        let open: Vec<usize> =
            (0..owners.len()).filter(|at| owners[*at].state != OwnerState::MergedUnapplied).collect();
        must(open.is_empty() || open == [0], || format!("the one owner of {project} is the oldest: {owners:?}"))?;
        for pull in 1..=PULLS {
            let rows: Vec<_> = owners.iter().filter(|owner| owner.holder.pull == pull_id(pull)).collect();
            must(rows.len() < 2, || format!("#{pull} owns {project} twice"))?;
            let (is, wanted) = (rows.first().map(|owner| owner.state), state_of(truth, pull, project));
            let fits = match (is, wanted) {
                (Some(OwnerState::Planned), None) => truth.pulls[&pull].place == Place::Open,
                _ => is == wanted,
            };
            must(fits, || format!("#{pull} is {is:?} for {project}, and has to be {wanted:?}"))?;
        }
    }
    for pull in 1..=PULLS {
        let is = world.owners.iter().any(|owner| owner.is_unknown() && owner.holder.pull == pull_id(pull));
        let wanted = truth.unknown.contains_key(&pull);
        must(is == wanted, || format!("what #{pull} has merged counts as {}known", if is { "un" } else { "" }))?;
    }
    of_lines(simulation)?;
    for plan in &world.plans {
        let project = number_of(&plan.project);
        must(!truth.used.contains(&plan.id), || format!("{} is used, and can be applied again", plan.id))?;
        // Under an old name it is a plan of an old head, which cannot be applied.
        if plan.project != simulation.named(plan.pull.number, project) {
            continue;
        }
        // Commands of one pull request run one after the other: its own plan is dropped when the change of the state ends.
        if truth.pulls[&plan.pull.number].running.is_some_and(|(running, _)| running == project) {
            continue;
        }
        let known = truth.plans.get(&(plan.pull.number, project)).filter(|known| known.id == plan.id);
        let is_stale = known.is_none_or(|known| match known.late {
            _ if known.beside && truth.is_being_changed(project) => false,
            true => known.state != truth.state[&project],
            false => truth.plan_is_stale(project, known),
        });
        must(!is_stale, || format!("{} of {} for {project} is stale and can be applied", plan.id, plan.pull))?;
    }
    Ok(())
}

/// Checks the lines. A pull request that was refused, or whose plan was invalidated, waits in order. It leaves when it plans a free
/// project, takes it, or is closed; it has its turn when the project is free.
fn of_lines(simulation: &Simulation) -> Verdict {
    let (world, truth) = (&simulation.world, &simulation.truth);
    for (project, line) in &truth.lines {
        let of_project = world.waiters.iter().filter(|waiter| number_of(&waiter.project) == *project);
        let mut waiting: Vec<u64> = Vec::new();
        for waiter in of_project {
            // A pull request with two names is in line once.
            if !waiting.contains(&waiter.pull.number) {
                waiting.push(waiter.pull.number);
            }
        }
        must(waiting == *line, || format!("{waiting:?} wait for {project}, and it has to be {line:?}"))?;
    }
    for WaitingPull { pull, project, .. } in &world.waiters {
        let has_turn = simulation.has_turn(pull, project);
        must(has_turn || !is_free(simulation, pull.number, number_of(project)), || {
            format!("{pull} waits for {}, which is free", project.label())
        })?;
    }
    Ok(())
}

/// Returns true if no other pull request has a project, or if this one has it first.
pub(super) fn is_free(simulation: &Simulation, pull: u64, project: u8) -> bool {
    let mut owners = simulation.world.owners.iter().filter(|owner| number_of(&owner.project) == project);
    let is_own =
        |owner: &ProjectOwner| owner.holder.pull == pull_id(pull) && owner.state != OwnerState::MergedUnapplied;
    owners.clone().any(is_own) || (owners.next().is_none() && !simulation.others_are_unknown(pull))
}

/// Checks that the rules decide the same from the rows that they ask for as from all rows.
pub(super) fn needs_no_more(all: &World, event: &LockEvent, fault: Option<Fault>) -> Verdict {
    // Faults are decisions from all rows.
    if fault.is_some() {
        return Ok(());
    }
    let mut all = all.clone();
    // Merges whose changes are not known are read for the pull request of an event only.
    all.owners.retain(|owner| event.pull().is_some() || !owner.is_unknown());
    let (near, far) = (step(rows_near(&all, event), event).1, step(all, event).1);
    must(near == far, || format!("{event:?} has read too little: {near:#?} instead of {far:#?}"))
}

/// Checks that an event only changes rows that it may change.
pub(super) fn of_step(
    before: &World,
    after: &World,
    follows: &Consequences,
    event: &LockEvent,
    fault: Option<Fault>,
) -> Verdict {
    if follows.refusal.is_some() {
        let same = (&before.owners, &before.plans) == (&after.owners, &after.plans);
        let waits = |change: &LockChange| matches!(change, LockChange::Wait(_));
        must(same && follows.changes.iter().all(waits), || "a refusal changes nothing but who waits".into())?;
    }
    if matches!(event, LockEvent::PlanBegins { .. }) {
        must(before.owners == after.owners, || "a plan owns nothing".into())?;
    }
    for invalidated in &follows.invalidated {
        let told = after.statuses.iter().any(|(pull, status)| {
            let state = crate::domain::state::ProjectState::PlanInvalidated;
            *pull == invalidated.plan.pull && status.project == invalidated.plan.project && status.state == state
        });
        must(told, || "the status of a plan that fell says so".into())?;
    }
    let unique = |follows: &Consequences| {
        let gone = follows.changes.iter().filter(|change| matches!(change, LockChange::Disown(_))).count();
        let owned = follows.changes.iter().filter(|change| matches!(change, LockChange::Own(_))).count();
        after.owners.len() + gone == before.owners.len() + owned
    };
    // Faults change the rows without the rules.
    must(fault.is_some() || unique(follows), || "the changes are all that changes".into())
}

/// Checks that an apply only begins if no other pull request has an applied or half-merged change, and with a plan that is up to date.
pub(super) fn may_apply(simulation: &Simulation, pull: u64, project: u8, plan: Option<&PlanTruth>) -> Verdict {
    let truth = &simulation.truth;
    let others = || (1..=PULLS).filter(|other| *other != pull);
    for other in others() {
        let applied = truth.applied.contains(&(other, project));
        let running = truth.pulls[&other].running.is_some_and(|(running, _)| running == project);
        must(!running, || format!("#{pull} changes {project} while #{other} does"))?;
        must(!applied, || format!("#{pull} changes {project}, which #{other} has changed and not merged"))?;
    }
    let owns = truth.applied.contains(&(pull, project)) || truth.owed.contains(&(pull, project));
    let held = simulation.world.owners.iter().any(|owner| {
        number_of(&owner.project) == project && owner.holder.pull == pull_id(pull) && owner.state != OwnerState::Planned
    });
    let took_before = owns || held_before(simulation, pull, project);
    let owed = others().any(|other| truth.owed.contains(&(other, project)));
    must(took_before || !owed, || format!("#{pull} changes {project}, which was merged and not applied ({held})"))?;
    let owns_open = truth.pulls[&pull].place == Place::Open && held_before(simulation, pull, project);
    must(owns_open || !simulation.others_are_unknown(pull), || {
        format!("#{pull} changes {project}, and it is not known what others have merged")
    })?;
    if let Some(plan) = plan {
        must(!truth.plan_is_stale(project, plan), || format!("{} is stale", plan.id))?;
        must(!truth.used.contains(&plan.id), || format!("{} is used twice", plan.id))?;
    }
    Ok(())
}

/// Checks that a merged and unapplied change is compared later with the last plan of the merged head, and with no other.
pub(super) fn approves_what_was_merged(simulation: &Simulation, pull: u64, head: u64) -> Verdict {
    for owner in simulation.world.owners.iter().filter(|owner| owner.holder.pull == pull_id(pull)) {
        let last = simulation.truth.of_heads.get(&(head, pull, number_of(&owner.project)));
        let approved = owner.approved.as_ref().map(|approved| &approved.id);
        must(approved == last, || format!("#{pull} was merged with {last:?}, and {approved:?} counts as approved"))?;
    }
    Ok(())
}

/// Returns true if the pull request owned the project before a change of it was merged: then its row is the oldest.
fn held_before(simulation: &Simulation, pull: u64, project: u8) -> bool {
    let mut owners = simulation.world.owners.iter().filter(|owner| number_of(&owner.project) == project);
    owners.next().is_some_and(|owner| owner.holder.pull == pull_id(pull))
}

/// Checks that, with the scope of the pull request, it owns all projects that it changes from its first apply on.
pub(super) fn owns_all(simulation: &Simulation, pull: u64, alone: bool) -> Verdict {
    let of = &simulation.truth.pulls[&pull];
    if alone || of.place != Place::Open || of.planned != Some(of.head) {
        return Ok(());
    }
    for project in &of.changes {
        let owns = |owner: &ProjectOwner| owner.holder.pull == pull_id(pull) && number_of(&owner.project) == *project;
        must(simulation.world.owners.iter().any(owns), || format!("#{pull} applies, and does not own {project}"))?;
    }
    Ok(())
}

/// Checks that a refusal names an owner that can be ended: by its own apply if it is merged, and by `unlock` in any case.
pub(super) fn leads_out(simulation: &Simulation, refusal: &LockRefusal, pull: u64) -> Verdict {
    let LockRefusal::OwnedBy(owner) = refusal else { return Ok(()) };
    let world = &simulation.world;
    let named = owner.holder.pull.number;
    must(named != pull, || "it waits for itself".into())?;
    must(world.owners.contains(owner), || "a refusal names an owner that is there".into())?;
    let by = AuditEntry::default();
    let accept_drift = owner.state != OwnerState::Planned;
    let event = LockEvent::Unlocked { pull: owner.holder.pull.clone(), only: None, accept_drift, by };
    let (after, _) = faults::step(simulation.fault(), world.clone(), &event);
    must(!after.owners.contains(owner), || format!("`unlock` on #{named} does not end what it owns"))?;
    // Unknown changes are found by the server.
    if owner.is_unknown() {
        return Ok(());
    }
    // Following the named owners leads to one that can go on.
    let (mut seen, mut at, mut project) = (vec![pull], named, number_of(&owner.project));
    loop {
        must(!seen.contains(&at), || format!("they wait for each other: {seen:?}, then #{at}"))?;
        seen.push(at);
        match simulation.refused_alone(at, project) {
            Some(next) if next.is_unknown() => return Ok(()),
            Some(next) => (at, project) = (next.holder.pull.number, number_of(&next.project)),
            None => return Ok(()),
        }
    }
}
