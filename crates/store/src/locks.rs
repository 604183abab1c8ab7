//! Rows of project locks and of the apply lock. `locks` of the core crate decides about an event. This module loads the few rows that
//! the event is about, and writes the consequences in the same transaction.

use super::{Tx, View, json, micros, parse};
use anyhow::{Result, ensure};
use rusqlite::{Params, params};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use tidelock_core::domain::ownership::ProjectOwner;
use tidelock_core::domain::state::{ApplyLock, ProjectLock};
use tidelock_core::domain::waiting::WaitingPull;
use tidelock_core::domain::{ProjectId, PullId, RepoId};
use tidelock_core::locks::{self, Consequences, LockChange, LockEvent, WantedLock, World};

impl View<'_> {
    /// Returns all project locks, oldest first.
    pub fn locks(&self) -> Result<Vec<ProjectLock>> {
        self.records("SELECT record FROM locks ORDER BY seq", [])
    }

    /// Returns the project locks of a pull request, oldest first.
    pub fn locks_of(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        self.records("SELECT record FROM locks WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Returns the project lock that a link names: with the host ([`ProjectLock::id`]), or with Atlantis' key alone ([`ProjectLock::key`]),
    /// as earlier versions wrote links. `None` if several locks have that key, because the link is ambiguous then.
    pub fn lock_by_key(&self, key: &str) -> Result<Option<ProjectLock>> {
        if let Some((host, rest)) = key.split_once('/') {
            let mut found =
                self.records("SELECT record FROM locks WHERE host = ?1 AND key = ?2 LIMIT 2", [host, rest])?;
            if let Some(lock) = found.pop() {
                return Ok(Some(lock).filter(|_| found.is_empty()));
            }
        }
        let mut found = self.records("SELECT record FROM locks WHERE key = ?1 LIMIT 2", [key])?;
        Ok(found.pop().filter(|_| found.is_empty()))
    }

    /// Returns the apply lock, if it is set.
    pub fn apply_lock(&self) -> Result<Option<ApplyLock>> {
        self.record("SELECT record FROM apply_lock", [])
    }

    /// Returns the locks of a project's state, under any name and of any holder, oldest first.
    pub fn locks_of_state(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<ProjectLock>> {
        self.records(
            "SELECT record FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }

    /// Loads the rows that an event is about, each by an index. Locks, owners and waiters of other pull requests are loaded only if the
    /// event can affect them. So the cost does not depend on the number of pull requests in the repository.
    pub(super) fn world_of(&self, event: &LockEvent) -> Result<World> {
        let mut world = World::default();
        match event {
            LockEvent::PlanBegins { pull, projects, everything } => {
                self.add_planned(&mut world, pull, projects, *everything)?;
            }
            LockEvent::TurnBegins { pull, .. } => {
                let statuses = self.project_statuses(pull)?;
                world.statuses = statuses.into_iter().map(|status| (pull.clone(), status)).collect();
            }
            LockEvent::ApplyBegins { plan, project, .. } => {
                world.apply_lock = self.apply_lock()?;
                self.add_for_change(&mut world, project)?;
                if !world.plans.iter().any(|known| known.id == *plan) {
                    world.plans.extend(self.usable_plan(plan)?);
                }
            }
            LockEvent::StateChangeBegins { project, .. } => {
                self.add_for_change(&mut world, project)?;
                let (pull, project) = (&project.lock.holder.pull, &project.lock.project);
                world.plans.extend(self.plan_of(pull, project)?);
                world.statuses.extend(self.project_status(pull, project)?.map(|status| (pull.clone(), status)));
            }
            LockEvent::StateChanged { pull, project, outputs, .. } => {
                world.plans = self.plans(pull)?;
                world.plans.retain(|plan| plan.project == *project || *outputs && plan.may_depend_on(project));
                if *outputs {
                    world.plans.extend(self.plans_elsewhere_with_outputs_of(pull, project)?);
                }
                self.add_plans_of_changed(&mut world, pull, project)?;
            }
            LockEvent::PlansInvalidated { plans, .. } => {
                for plan in plans {
                    world.plans.extend(self.usable_plan(plan)?);
                }
            }
            LockEvent::OwnershipTaken { holder, .. } => world.changed = self.changed_projects(&holder.pull)?,
            LockEvent::Unlocked { pull, .. } => {
                world.locks = self.locks_of(pull)?;
                world.plans = self.plans(pull)?;
            }
            LockEvent::Closed { pull, merged, .. } => {
                world.locks = self.locks_of(pull)?;
                world.plans = self.plans(pull)?;
                self.add_of_closed(&mut world, pull, merged.is_some())?;
            }
            LockEvent::MergeKnown { pull, .. } => self.add_of_closed(&mut world, pull, true)?,
            LockEvent::LockDeleted { key, .. } => self.add_named(&mut world, key)?,
            LockEvent::ProjectsNamed { pull, .. } => {
                world.plans = self.plans(pull)?;
                let statuses = self.project_statuses(pull)?;
                world.statuses = statuses.into_iter().map(|status| (pull.clone(), status)).collect();
            }
            LockEvent::PlanGoesOn { .. }
            | LockEvent::NotPlanned { .. }
            | LockEvent::TurnEnds { .. }
            | LockEvent::Satisfied { .. }
            | LockEvent::Reopened { .. }
            | LockEvent::ReminderDue { .. } => {}
        }
        self.add_lines(&mut world, event)?;
        Ok(world)
    }

    /// Adds the lock that a link names, with the plan of its project.
    fn add_named(&self, world: &mut World, key: &str) -> Result<()> {
        let Some(lock) = self.lock_by_key(key)? else { return Ok(()) };
        let pull = &lock.holder.pull;
        world.plans.extend(self.plan_of(pull, &lock.project)?);
        world.locks.push(lock);
        Ok(())
    }

    fn add_planned(&self, world: &mut World, pull: &PullId, projects: &[WantedLock], everything: bool) -> Result<()> {
        if everything {
            world.locks = self.locks_of(pull)?;
            world.plans = self.plans(pull)?;
        }
        for wanted in projects.iter().filter(|_| !everything) {
            world.plans.extend(self.plan_of(pull, &wanted.lock.project)?);
        }
        Ok(())
    }

    /// Adds locks, owners and waiters of each project that the event can free, take or refuse, and everything that its pull request owns
    /// and waits for.
    fn add_lines(&self, world: &mut World, event: &LockEvent) -> Result<()> {
        let asking = pull_of(event);
        let mut projects = named_by(event);
        projects.extend(world.locks.iter().map(|lock| (lock.repo.clone(), lock.project.clone())));
        if let Some(changed) = &world.changed {
            projects.extend(changed.strict().map(|project| (changed.pull.repo.clone(), project.clone())));
        }
        let (mut owners, mut waiters) = (BTreeMap::new(), BTreeMap::new());
        if let Some(pull) = asking {
            self.add_owned_by(&mut owners, pull)?;
            let sql = "SELECT seq, record FROM waiters WHERE pull = ?1";
            self.add_numbered(&mut waiters, sql, [pull.to_string()])?;
            projects.extend(owners.values().filter(|_| concerns_owned(event)).map(key_of));
        }
        if let Some(pull) = asking {
            projects.extend(self.add_unknown_merges(&mut owners, pull, event)?);
        }
        // Only a change of the state invalidates plans of the pull request itself.
        let own_fall = matches!(event, LockEvent::StateChanged { .. });
        for plan in world.plans.iter().filter(|plan| own_fall || Some(&plan.pull) != asking) {
            projects.insert((plan.pull.repo.clone(), plan.project.clone()));
            self.add_owned_by(&mut owners, &plan.pull)?;
        }
        // A project's name does not matter. These rows include the locks that are loaded already.
        let states = projects.into_iter().map(|(repo, project)| (repo, project.dir, project.workspace));
        let (states, mut locks) = (states.collect::<BTreeSet<_>>(), BTreeMap::new());
        for (repo, dir, workspace) in states {
            let place = [&repo.host, &repo.full_name(), &dir, &workspace];
            let sql = "SELECT seq, record FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4";
            self.add_numbered(&mut locks, sql, place)?;
            let sql = "SELECT seq, record FROM owners WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4";
            self.add_numbered(&mut owners, sql, place)?;
            let sql = "SELECT seq, record FROM waiters WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4";
            self.add_numbered(&mut waiters, sql, place)?;
        }
        world.locks = locks.into_values().collect();
        world.owners = owners.into_values().collect();
        world.waiters = waiters.into_values().collect();
        Ok(())
    }

    /// Adds merges of the repository whose changed projects are not known yet. If the event may end one of its pull request, returns the
    /// projects that anybody waits for in the repository.
    fn add_unknown_merges(
        &self,
        owners: &mut BTreeMap<i64, ProjectOwner>,
        pull: &PullId,
        event: &LockEvent,
    ) -> Result<Vec<(RepoId, ProjectId)>> {
        let place = [&pull.repo.host, &pull.repo.full_name()];
        let sql = "SELECT seq, record FROM owners WHERE host = ?1 AND repo = ?2 AND dir = ''";
        self.add_numbered(owners, sql, place)?;
        let is_own = |owner: &ProjectOwner| owner.is_unknown() && owner.holder.pull == *pull;
        if !ends_owners(event) || !owners.values().any(is_own) {
            return Ok(Vec::new());
        }
        let waiting: Vec<WaitingPull> =
            self.records("SELECT record FROM waiters WHERE host = ?1 AND repo = ?2 ORDER BY seq", place)?;
        Ok(waiting.into_iter().map(|waiter| (pull.repo.clone(), waiter.project)).collect())
    }

    fn add_owned_by(&self, owners: &mut BTreeMap<i64, ProjectOwner>, pull: &PullId) -> Result<()> {
        self.add_numbered(owners, "SELECT seq, record FROM owners WHERE pull = ?1", [pull.to_string()])
    }

    /// Adds records by their numbers, so that each occurs once, the oldest first.
    fn add_numbered<T: DeserializeOwned>(
        &self,
        to: &mut BTreeMap<i64, T>,
        sql: &str,
        params: impl Params,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            to.insert(row.get(0)?, parse(row.get_ref(1)?.as_str()?)?);
        }
        Ok(())
    }
}

impl Tx<'_> {
    /// Decides about an event and writes the consequences: rows, audit entries, and automatic re-plans of pull requests whose turn it is.
    /// The caller enqueues the message.
    pub fn record_lock_event(&self, event: &LockEvent) -> Result<Consequences> {
        let (_, follows) = locks::step(self.world_of(event)?, event);
        follows.changes.iter().try_for_each(|change| self.write_change(change))?;
        follows.audit.iter().try_for_each(|entry| self.audit(entry))?;
        self.record_turns(&follows.turns)?;
        Ok(follows)
    }

    fn write_change(&self, change: &LockChange) -> Result<()> {
        match change {
            LockChange::Take(lock) => self.insert_lock(lock),
            LockChange::NoteApplied(lock) => {
                let (repo, project) = (&lock.repo, &lock.project);
                let changed = self.execute(
                    "UPDATE locks SET record = ?6
                     WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5",
                    params![repo.host, repo.full_name(), project.dir, project.workspace, name_of(project), json(lock)?],
                )?;
                ensure!(changed == 1, "the lock {} is there twice or not at all", lock.key());
                Ok(())
            }
            LockChange::Free(lock) => {
                let (repo, project) = (&lock.repo, &lock.project);
                let gone = self.execute(
                    "DELETE FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5",
                    params![repo.host, repo.full_name(), project.dir, project.workspace, name_of(project)],
                )?;
                ensure!(gone == 1, "the lock {} is there twice or not at all", lock.key());
                Ok(())
            }
            LockChange::DropPlan(plan) => self.drop_plan(&plan.id),
            LockChange::UsePlan(plan) => self.use_plan(plan.record()),
            LockChange::SetStatus(pull, status) => self.put_project_status(pull, status),
            LockChange::Own(owner) => {
                self.signals.replan_recorded.set(self.signals.replan_recorded.get() || owner.is_unknown());
                self.insert_owner(owner)
            }
            LockChange::ChangeOwner(owner) => {
                // The task that posts reminders has to compute its next time.
                self.signals.replan_recorded.set(self.signals.replan_recorded.get() || owner.is_owed());
                self.update_owner(owner)
            }
            LockChange::RenameOwner { from, owner } => self.rename_owner(from, owner),
            LockChange::PassOn { from, owner } => self.pass_owner(from, owner),
            LockChange::Disown(owner) => self.delete_owner(owner),
            LockChange::Wait(waiter) => self.insert_waiter(waiter),
            LockChange::Leave(waiter) => self.delete_waiter(waiter),
        }
    }

    /// Inserts a lock. Fails if the project has one already.
    fn insert_lock(&self, lock: &ProjectLock) -> Result<()> {
        self.execute(
            "INSERT INTO locks (host, repo, dir, workspace, name, key, pull, since, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                lock.repo.host,
                lock.repo.full_name(),
                lock.project.dir,
                lock.project.workspace,
                name_of(&lock.project),
                lock.key(),
                lock.holder.pull.to_string(),
                micros(lock.holder.since),
                json(lock)?
            ],
        )?;
        Ok(())
    }

    /// Sets or releases the apply lock.
    pub fn set_apply_lock(&self, lock: Option<&ApplyLock>) -> Result<()> {
        match lock {
            Some(lock) => self.execute(
                "INSERT INTO apply_lock (id, record) VALUES (1, ?1)
                 ON CONFLICT (id) DO UPDATE SET record = excluded.record",
                [json(lock)?],
            )?,
            None => self.execute("DELETE FROM apply_lock WHERE id = 1", [])?,
        };
        Ok(())
    }
}

/// Returns the pull request of an event, if the event itself names it.
fn pull_of(event: &LockEvent) -> Option<&PullId> {
    match event {
        LockEvent::PlanBegins { pull, .. }
        | LockEvent::NotPlanned { pull, .. }
        | LockEvent::StateChanged { pull, .. }
        | LockEvent::Satisfied { pull, .. }
        | LockEvent::Reopened { pull }
        | LockEvent::ReminderDue { pull, .. }
        | LockEvent::TurnBegins { pull, .. }
        | LockEvent::TurnEnds { pull, .. }
        | LockEvent::ProjectsNamed { pull, .. }
        | LockEvent::Unlocked { pull, .. }
        | LockEvent::MergeKnown { pull, .. }
        | LockEvent::Closed { pull, .. } => Some(pull),
        LockEvent::OwnershipTaken { holder, .. } => Some(&holder.pull),
        LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
            Some(&project.lock.holder.pull)
        }
        LockEvent::PlanGoesOn { projects } => projects.first().map(|wanted| &wanted.lock.holder.pull),
        LockEvent::PlansInvalidated { .. } | LockEvent::LockDeleted { .. } => None,
    }
}

/// Returns the projects that an event itself names.
fn named_by(event: &LockEvent) -> BTreeSet<(RepoId, ProjectId)> {
    let wanted = |wanted: &WantedLock| (wanted.lock.repo.clone(), wanted.lock.project.clone());
    match event {
        LockEvent::PlanBegins { projects, .. } | LockEvent::PlanGoesOn { projects } => {
            projects.iter().map(wanted).collect()
        }
        LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
            [wanted(project)].into()
        }
        LockEvent::NotPlanned { pull, project }
        | LockEvent::StateChanged { pull, project, .. }
        | LockEvent::Satisfied { pull, project, .. } => [(pull.repo.clone(), project.clone())].into(),
        LockEvent::TurnBegins { pull, projects, .. } | LockEvent::TurnEnds { pull, projects } => {
            projects.iter().map(|project| (pull.repo.clone(), project.clone())).collect()
        }
        LockEvent::PlansInvalidated { .. }
        | LockEvent::OwnershipTaken { .. }
        | LockEvent::ProjectsNamed { .. }
        | LockEvent::ReminderDue { .. }
        | LockEvent::Reopened { .. }
        | LockEvent::Unlocked { .. }
        | LockEvent::LockDeleted { .. }
        | LockEvent::MergeKnown { .. }
        | LockEvent::Closed { .. } => BTreeSet::new(),
    }
}

/// Returns true if the event takes all projects that its pull request owns, or ends its ownership, so that other pull requests with
/// these projects matter.
fn concerns_owned(event: &LockEvent) -> bool {
    matches!(
        event,
        LockEvent::ApplyBegins { .. }
            | LockEvent::StateChangeBegins { .. }
            | LockEvent::ProjectsNamed { .. }
            | LockEvent::Unlocked { .. }
            | LockEvent::Closed { .. }
            | LockEvent::MergeKnown { .. }
    )
}

/// Returns true if the event may end a merge whose changed projects are not known.
fn ends_owners(event: &LockEvent) -> bool {
    matches!(event, LockEvent::Unlocked { accept_drift: true, .. } | LockEvent::MergeKnown { .. })
}

fn key_of(owner: &ProjectOwner) -> (RepoId, ProjectId) {
    (owner.repo.clone(), owner.project.clone())
}

/// Returns a project's name as its column holds it: empty for none.
pub(super) fn name_of(project: &ProjectId) -> &str {
    project.name.as_deref().unwrap_or("")
}
