//! Automatic re-plans that have not ended. A pull request has at most one that has not begun: it takes up the pull request's later turns.

use super::{Tx, View, json, micros, parse, word};
use anyhow::{Result, bail};
use jiff::Timestamp;
use rusqlite::{Params, params};
use tidelock_core::domain::state::Cause;
use tidelock_core::domain::waiting::{Replan, ReplanId, ReplanScope, ReplanState};
use tidelock_core::domain::{ProjectId, PullId};
use tidelock_core::locks::{self, Consequences, LockEvent, ReplanChange};

impl View<'_> {
    /// Returns all automatic re-plans, in the order in which they were queued.
    pub fn replans(&self) -> Result<Vec<Replan>> {
        self.replans_by("SELECT id, state, queued, record FROM replans ORDER BY id", [])
    }

    /// Returns the automatic re-plans of a pull request, in the order in which they were queued.
    pub(super) fn replans_of(&self, pull: &PullId) -> Result<Vec<Replan>> {
        self.replans_by("SELECT id, state, queued, record FROM replans WHERE pull = ?1 ORDER BY id", [pull.to_string()])
    }

    /// Returns an automatic re-plan; absent once it has ended.
    pub fn replan(&self, id: ReplanId) -> Result<Option<Replan>> {
        Ok(self.replans_by("SELECT id, state, queued, record FROM replans WHERE id = ?1", [id.0])?.pop())
    }

    fn replans_by(&self, sql: &str, params: impl Params) -> Result<Vec<Replan>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut replans = Vec::new();
        while let Some(row) = rows.next()? {
            let state = match row.get_ref(1)?.as_str()? {
                "queued" => ReplanState::Queued,
                "running" => ReplanState::Running,
                other => bail!("a re-plan has the unknown state {other}"),
            };
            let (id, queued) = (ReplanId(row.get(0)?), Timestamp::from_microsecond(row.get(2)?)?);
            replans.push(Replan { id, state, queued, scope: parse(row.get_ref(3)?.as_str()?)? });
        }
        Ok(replans)
    }
}

impl Tx<'_> {
    /// Queues automatic re-plans of these projects, one for each pull request. Adds the projects to a re-plan that has not begun.
    pub(super) fn record_turns(&self, turns: &[(PullId, ProjectId)]) -> Result<()> {
        for new in locks::replans_of(turns) {
            let replans = self.replans_of(&new.pull)?;
            match locks::queue_replan(new, replans) {
                ReplanChange::Extend(id, scope) => self.update_replan(id, ReplanState::Queued, &scope)?,
                ReplanChange::Add(scope) => self.insert_replan(&scope)?,
            }
            self.signals.replan_recorded.set(true);
        }
        Ok(())
    }

    /// Begins an automatic re-plan of a pull request. Projects whose turn comes from now on get another one. Returns the projects that are due
    /// or, if an earlier run of it was interrupted, those that it began with. `None` if it has ended, or is one of another pull request since
    /// its repository was renamed.
    pub fn begin_replan(&self, id: ReplanId, of: &PullId) -> Result<Option<Vec<ProjectId>>> {
        let Some(ReplanScope { pull, projects }) = self.replan(id)?.map(|replan| replan.scope) else { return Ok(None) };
        if pull != *of {
            return Ok(None);
        }
        if !self.unfinished_runs_of(&Cause::Replan(id))?.is_empty() {
            return Ok(Some(projects));
        }
        let begins = LockEvent::TurnBegins { pull: pull.clone(), projects, at: Timestamp::now() };
        let Consequences { due, passed, .. } = self.record_lock_event(&begins)?;
        let scope = ReplanScope { pull: pull.clone(), projects: due.clone() };
        self.update_replan(id, ReplanState::Running, &scope)?;
        if !passed.is_empty() {
            self.record_lock_event(&LockEvent::TurnEnds { pull, projects: passed })?;
        }
        Ok(Some(due))
    }

    /// Ends an automatic re-plan and its runs, and gives the next turns. No effect on one that has ended.
    pub fn end_replan(&self, id: ReplanId) -> Result<()> {
        let ends = locks::replan_ends(id, &self.replans()?);
        self.execute("DELETE FROM replans WHERE id = ?1", [id.0])?;
        self.end_runs_of(&Cause::Replan(id))?;
        ends.iter().try_for_each(|ends| self.record_lock_event(ends).map(drop))
    }

    fn insert_replan(&self, scope: &ReplanScope) -> Result<()> {
        self.execute(
            "INSERT INTO replans (pull, state, queued, record) VALUES (?1, ?2, ?3, ?4)",
            params![scope.pull.to_string(), word(&ReplanState::Queued)?, micros(Timestamp::now()), json(scope)?],
        )?;
        Ok(())
    }

    fn update_replan(&self, id: ReplanId, state: ReplanState, scope: &ReplanScope) -> Result<()> {
        let sql = "UPDATE replans SET state = ?2, record = ?3 WHERE id = ?1";
        self.execute(sql, params![id.0, word(&state)?, json(scope)?])?;
        Ok(())
    }
}
