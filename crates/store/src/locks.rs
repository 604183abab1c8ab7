//! Rows of project locks and of the apply lock. `locks` of the core crate decides about an event. This module loads the few rows that
//! the event is about, and writes the consequences in the same transaction.

use super::{Tx, View, json, micros, parse};
use anyhow::{Result, ensure};
use rusqlite::{Params, params};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use tidelock_core::domain::ownership::ProjectOwner;
use tidelock_core::domain::state::{ApplyLock, PlanRecord, ProjectLock};
use tidelock_core::domain::waiting::WaitingPull;
use tidelock_core::domain::{ProjectId, PullId, RepoId};
use tidelock_core::locks::{self, Consequences, LockChange, LockEvent, NeededRows, World};

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
        let (mut world, mut owners) = (World::default(), BTreeMap::new());
        if let Some(pull) = event.pull() {
            self.add_owned_by(&mut owners, pull)?;
        }
        world.owners = owners.values().cloned().collect();
        for rows in event.rows() {
            self.add_rows(&mut world, rows)?;
        }
        for rows in event.further_rows(&world) {
            self.add_rows(&mut world, rows)?;
        }
        world.plans.retain(|plan| event.concerns(plan));
        self.add_lines(&mut world, owners, event)?;
        Ok(world)
    }

    fn add_rows(&self, world: &mut World, rows: NeededRows) -> Result<()> {
        let of = |pull: &PullId, status| (pull.clone(), status);
        match rows {
            NeededRows::ApplyLock => world.apply_lock = self.apply_lock()?,
            NeededRows::NamedLock(key) => {
                let Some(lock) = self.lock_by_key(&key)? else { return Ok(()) };
                world.plans.extend(self.plan_of(&lock.holder.pull, &lock.project)?);
                world.locks.push(lock);
            }
            NeededRows::Locks(pull) => world.locks = self.locks_of(&pull)?,
            NeededRows::Plan(id) => add_plans(world, self.usable_plan(&id)?),
            NeededRows::PlanOf(pull, project) => add_plans(world, self.plan_of(&pull, &project)?),
            NeededRows::Plans(pull) => add_plans(world, self.plans(&pull)?),
            NeededRows::PlansOfState(repo, project) => add_plans(world, self.plans_of_state(&repo, &project)?),
            NeededRows::PlansOfOthers(pull, project) => {
                let plans = self.plans_of_state(&pull.repo, &project)?.into_iter();
                add_plans(world, plans.filter(|plan| plan.pull != pull));
            }
            NeededRows::PlansWithOutputs(pull, project) => {
                add_plans(world, self.plans_elsewhere_with_outputs_of(&pull, &project)?);
            }
            NeededRows::Statuses(pull) => {
                world.statuses.extend(self.project_statuses(&pull)?.into_iter().map(|status| of(&pull, status)));
            }
            NeededRows::Status(pull, project) => {
                world.statuses.extend(self.project_status(&pull, &project)?.map(|status| of(&pull, status)));
            }
            NeededRows::Changed(pull) => world.changed = self.changed_projects(&pull)?,
            NeededRows::Seen(pull) => world.seen = self.all_seen_plans(&pull)?,
        }
        Ok(())
    }

    /// Adds locks, owners and waiters of each project that the event can free, take or refuse, and everything that its pull request owns
    /// and waits for. `owners`: those of its pull request, by number.
    fn add_lines(&self, world: &mut World, mut owners: BTreeMap<i64, ProjectOwner>, event: &LockEvent) -> Result<()> {
        let (mut waiters, mut locks) = (BTreeMap::new(), BTreeMap::new());
        let mut waiting: Vec<WaitingPull> = Vec::new();
        if let Some(pull) = event.pull() {
            let sql = "SELECT seq, record FROM waiters WHERE pull = ?1";
            self.add_numbered(&mut waiters, sql, [pull.to_string()])?;
            // Merges whose changed projects are not known yet.
            let place = [&pull.repo.host, &pull.repo.full_name()];
            let sql = "SELECT seq, record FROM owners WHERE host = ?1 AND repo = ?2 AND dir = ''";
            self.add_numbered(&mut owners, sql, place)?;
            world.owners = owners.values().cloned().collect();
            if event.may_free_all(&world.owners) {
                let sql = "SELECT record FROM waiters WHERE host = ?1 AND repo = ?2 ORDER BY seq";
                waiting = self.records(sql, place)?;
            }
        }
        for plan in world.plans.iter().filter(|plan| event.may_invalidate(plan)) {
            self.add_owned_by(&mut owners, &plan.pull)?;
        }
        // A project's name does not matter. These rows include the locks that are loaded already.
        let projects = event.projects(world, &waiting).into_iter();
        let states: BTreeSet<_> = projects.map(|(repo, project)| (repo, project.dir, project.workspace)).collect();
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

/// Adds plans, each once.
fn add_plans(world: &mut World, plans: impl IntoIterator<Item = PlanRecord>) {
    for plan in plans {
        if world.plans.iter().all(|known| known.id != plan.id) {
            world.plans.push(plan);
        }
    }
}

/// Returns a project's name as its column holds it: empty for none.
pub(super) fn name_of(project: &ProjectId) -> &str {
    project.name.as_deref().unwrap_or("")
}
