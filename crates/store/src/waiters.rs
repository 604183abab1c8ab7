//! Rows of pull requests that wait for projects, and automatic re-plans: an internal delivery for each pull request whose turn it is.

use super::locks::name_of;
use super::{Tx, View, json, micros};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::params;
use tidelock_core::domain::state::{Delivery, DeliveryState};
use tidelock_core::domain::waiting::{ReplanEvent, WaitingPull};
use tidelock_core::domain::{DeliveryId, Event, ProjectId, PullId, RepoId};
use tidelock_core::locks::{self, LockEvent, ReplanChange};

/// Prefix of the identities of automatic re-plans. Deliveries of hosts never have it.
const REPLAN: &str = "replan:";

impl View<'_> {
    /// Returns all waiters, oldest first.
    pub fn waiters(&self) -> Result<Vec<WaitingPull>> {
        self.records("SELECT record FROM waiters ORDER BY seq", [])
    }

    /// Returns the waits of a pull request, oldest first.
    pub fn waits_of(&self, pull: &PullId) -> Result<Vec<WaitingPull>> {
        self.records("SELECT record FROM waiters WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Returns the waiters for a project's state, under any name, the first in line first.
    pub fn line(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<WaitingPull>> {
        self.records(
            "SELECT record FROM waiters WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }

    /// Returns automatic re-plans that are not done, in the order in which they were recorded.
    pub fn replans(&self) -> Result<Vec<Delivery>> {
        let unfinished = self.unfinished_deliveries()?.into_iter().map(|(delivery, _)| delivery);
        Ok(unfinished.filter(|delivery| matches!(delivery.event, Event::Replan(_))).collect())
    }
}

impl Tx<'_> {
    pub(super) fn insert_waiter(&self, waiter: &WaitingPull) -> Result<()> {
        let (repo, project) = (&waiter.pull.repo, &waiter.project);
        self.execute(
            "INSERT INTO waiters (host, repo, dir, workspace, name, pull, since, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                waiter.pull.to_string(),
                micros(waiter.since),
                json(waiter)?
            ],
        )?;
        Ok(())
    }

    pub(super) fn delete_waiter(&self, waiter: &WaitingPull) -> Result<()> {
        let (repo, project) = (&waiter.pull.repo, &waiter.project);
        let gone = self.execute(
            "DELETE FROM waiters
             WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5 AND pull = ?6",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                waiter.pull.to_string()
            ],
        )?;
        ensure!(gone == 1, "{} does not wait for {}", waiter.pull, project.label());
        Ok(())
    }

    /// Queues automatic re-plans of these projects, one delivery for each pull request. Adds the projects to a queued delivery that has not
    /// begun.
    pub(super) fn record_turns(&self, turns: &[(PullId, ProjectId)]) -> Result<()> {
        for new in locks::replans_of(turns) {
            let start = format!("{REPLAN}{}:", new.pull);
            match locks::queue_replan(new, self.unfinished_replans(&start)?) {
                ReplanChange::Extend(delivery) => self.put_replan(&delivery)?,
                ReplanChange::Add(event) => self.insert_replan(&start, &event)?,
            }
            self.signals.replan_recorded.set(true);
        }
        Ok(())
    }

    /// Returns the unfinished re-plans whose identities begin with `start`. One that a shutdown has queued again counts as running: it goes on
    /// with the projects that it began with.
    fn unfinished_replans(&self, start: &str) -> Result<Vec<(Delivery, DeliveryState)>> {
        let mut replans = self.unfinished_beginning(start)?;
        for (delivery, state) in &mut replans {
            if self.has_unfinished_run(&delivery.identity)? {
                *state = DeliveryState::Running;
            }
        }
        Ok(replans)
    }

    fn has_unfinished_run(&self, delivery: &DeliveryId) -> Result<bool> {
        Ok(self.unfinished_runs()?.iter().any(|run| run.delivery.as_ref() == Some(delivery)))
    }

    /// Begins an automatic re-plan. Projects whose turn comes from now on get another delivery. Returns the projects that are due or, if an
    /// earlier run of it was interrupted, those that it began with.
    pub fn begin_replan(&self, identity: &DeliveryId) -> Result<Vec<ProjectId>> {
        let sql = "SELECT record FROM deliveries WHERE identity = ?1 AND finished IS NULL";
        let found: Option<Delivery> = self.record(sql, [identity.as_str()])?;
        let Some(Delivery { host_id, received, event: Event::Replan(event), identity }) = found else {
            return Ok(Vec::new());
        };
        let ReplanEvent { pull, projects } = event;
        let (due, passed) = match self.has_unfinished_run(&identity)? {
            true => (projects, Vec::new()),
            false => {
                let begins = LockEvent::TurnBegins { pull: pull.clone(), projects, at: Timestamp::now() };
                let follows = self.record_lock_event(&begins)?;
                (follows.due, follows.passed)
            }
        };
        let event = Event::Replan(ReplanEvent { pull: pull.clone(), projects: due.clone() });
        self.put_replan(&Delivery { identity: identity.clone(), host_id, received, event })?;
        self.set_delivery_state(&identity, DeliveryState::Running, "begun")?;
        if !passed.is_empty() {
            self.record_lock_event(&LockEvent::TurnEnds { pull, projects: passed })?;
        }
        Ok(due)
    }

    /// Returns the event for the end of this delivery if it was the turn of a pull request.
    pub(super) fn turn_of(&self, identity: &DeliveryId) -> Result<Option<LockEvent>> {
        if !identity.as_str().starts_with(REPLAN) {
            return Ok(None);
        }
        Ok(locks::replan_ends(identity, &self.replans()?))
    }

    fn insert_replan(&self, start: &str, event: &ReplanEvent) -> Result<()> {
        let received = Timestamp::now();
        let mut number = micros(received);
        loop {
            let identity = DeliveryId::new(format!("{start}{number}"));
            let host_id = REPLAN.trim_end_matches(':').to_owned();
            if self.accept_delivery(&Delivery { identity, host_id, received, event: Event::Replan(event.clone()) })? {
                return Ok(());
            }
            number += 1;
        }
    }

    fn put_replan(&self, delivery: &Delivery) -> Result<()> {
        let sql = "UPDATE deliveries SET record = ?2 WHERE identity = ?1";
        self.execute(sql, params![delivery.identity.as_str(), json(delivery)?])?;
        Ok(())
    }
}
