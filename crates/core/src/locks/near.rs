//! Reads the rows that an event needs from all rows, as the store does from its tables.

use super::{LockEvent, NeededRows, World};
use crate::domain::state::{PlanRecord, ProjectStatus};
use crate::domain::waiting::WaitingPull;
use crate::domain::{ProjectId, PullId, RepoId};

/// Returns those of all rows that the event needs.
pub(super) fn rows_near(all: &World, event: &LockEvent) -> World {
    let mut near = World::default();
    let own = all.owners.iter().filter(|owner| Some(&owner.holder.pull) == event.pull());
    near.owners = own.cloned().collect();
    event.rows().into_iter().for_each(|rows| read(all, &mut near, rows));
    event.further_rows(&near).into_iter().for_each(|rows| read(all, &mut near, rows));
    near.plans.retain(|plan| event.concerns(plan));
    // The order of rows has no meaning. So that decisions can be compared, it is that of all rows.
    near.plans.sort_by_key(|plan| all.plans.iter().position(|known| known.id == plan.id));
    let pulls: Vec<&PullId> =
        near.plans.iter().filter(|plan| event.may_invalidate(plan)).map(|plan| &plan.pull).collect();
    let of_fallen: Vec<_> = all.owners.iter().filter(|owner| pulls.contains(&&owner.holder.pull)).cloned().collect();
    let is_unknown_here = |pull: &PullId| {
        all.owners.iter().filter(|owner| owner.is_unknown() && owner.repo == pull.repo).cloned().collect::<Vec<_>>()
    };
    let unknown = event.pull().map(is_unknown_here).unwrap_or_default();
    let extra: Vec<_> = of_fallen.into_iter().chain(unknown).collect();
    let first = World { owners: near.owners.iter().cloned().chain(extra.clone()).collect(), ..near.clone() };
    let here = |waiter: &&WaitingPull| event.pull().is_some_and(|pull| pull.repo == waiter.pull.repo);
    let waiting: Vec<_> = match event.may_free_all(&first.owners) {
        true => all.waiters.iter().filter(here).cloned().collect(),
        false => Vec::new(),
    };
    let projects = event.projects(&first, &waiting);
    let is_near = |repo: &RepoId, project: &ProjectId| {
        projects.iter().any(|(of, near)| of == repo && near.is_same_state(project))
    };
    near.locks = all.locks.iter().filter(|lock| is_near(&lock.repo, &lock.project)).cloned().collect();
    let owners = all.owners.iter().filter(|owner| first.owners.contains(owner) || is_near(&owner.repo, &owner.project));
    near.owners = owners.cloned().collect();
    let waits =
        |waiter: &&WaitingPull| Some(&waiter.pull) == event.pull() || is_near(&waiter.pull.repo, &waiter.project);
    near.waiters = all.waiters.iter().filter(waits).cloned().collect();
    near
}

fn read(all: &World, near: &mut World, rows: NeededRows) {
    let mut plans = |is_meant: &dyn Fn(&PlanRecord) -> bool| {
        for plan in all.plans.iter().filter(|plan| is_meant(plan)) {
            if near.plans.iter().all(|known| known.id != plan.id) {
                near.plans.push(plan.clone());
            }
        }
    };
    let is_of_state = |plan: &PlanRecord, repo: &RepoId, project: &ProjectId| {
        plan.pull.repo == *repo && plan.project.is_same_state(project)
    };
    match rows {
        NeededRows::Plan(id) => plans(&|plan| plan.id == id),
        NeededRows::PlanOf(pull, project) => plans(&|plan| plan.pull == pull && plan.project == project),
        NeededRows::Plans(pull) => plans(&|plan| plan.pull == pull),
        NeededRows::PlansOfState(repo, project) => plans(&|plan| is_of_state(plan, &repo, &project)),
        NeededRows::PlansOfOthers(pull, project) => {
            plans(&|plan| plan.pull != pull && is_of_state(plan, &pull.repo, &project));
        }
        NeededRows::PlansWithOutputs(pull, project) => {
            plans(&|plan| plan.pull != pull && plan.pull.repo == pull.repo && plan.depends_on(&project));
        }
        NeededRows::ApplyLock => near.apply_lock.clone_from(&all.apply_lock),
        NeededRows::NamedLock(key) => {
            let id = all.locks.iter().filter(|lock| lock.id() == key);
            let named: Vec<_> = match id.clone().count() {
                0 => all.locks.iter().filter(|lock| lock.key() == key).collect(),
                _ => id.collect(),
            };
            if let [lock] = named.as_slice() {
                near.locks.push((*lock).clone());
                read(all, near, NeededRows::PlanOf(lock.holder.pull.clone(), lock.project.clone()));
            }
        }
        NeededRows::Locks(pull) => {
            near.locks.extend(all.locks.iter().filter(|lock| lock.holder.pull == pull).cloned());
        }
        NeededRows::Statuses(pull) => {
            near.statuses.extend(all.statuses.iter().filter(|(of, _)| *of == pull).cloned());
        }
        NeededRows::Status(pull, project) => {
            let is_it = |row: &&(PullId, ProjectStatus)| row.0 == pull && row.1.project == project;
            near.statuses.extend(all.statuses.iter().filter(is_it).cloned());
        }
        NeededRows::Changed(pull) => near.changed = all.changed.clone().filter(|changed| changed.pull == pull),
        // Those of other pull requests are not among all rows either.
        NeededRows::Seen(_) => near.seen.clone_from(&all.seen),
    }
}
