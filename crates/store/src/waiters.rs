//! Rows of pull requests that wait for projects, and automatic re-plans: an internal delivery for each pull request whose turn it is.

use super::locks::name_of;
use super::{Tx, View, json, micros};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::params;
use std::collections::BTreeMap;
use tidelock_core::domain::state::{Delivery, DeliveryState, due_of_deferred};
use tidelock_core::domain::state_address::StateAddress;
use tidelock_core::domain::waiting::{ReplanEvent, WaitCause, WaitingPull};
use tidelock_core::domain::{DeliveryId, Event, ProjectId, PullId, RepoId};
use tidelock_core::locks::{self, LockEvent};

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

    /// Returns the row of a pull request that waits for a project.
    fn wait_for(&self, pull: &PullId, project: &ProjectId) -> Result<Option<WaitingPull>> {
        let is_it = |waiter: &WaitingPull| waiter.pull == *pull && waiter.project == *project;
        Ok(self.line(&pull.repo, project)?.into_iter().find(is_it))
    }

    /// Returns automatic re-plans that are not done, in the order in which they were recorded.
    pub fn replans(&self) -> Result<Vec<Delivery>> {
        let unfinished = self.unfinished_deliveries()?.into_iter().map(|(delivery, _)| delivery);
        Ok(unfinished.filter(|delivery| matches!(delivery.event, Event::Replan(_))).collect())
    }

    /// Returns true if it is still a pull request's turn: it waits, and no other pull request blocks the project.
    fn is_due(&self, pull: &PullId, project: &ProjectId) -> Result<bool> {
        let Some(row) = self.wait_for(pull, project)? else { return Ok(false) };
        let locks = self.locks_of_state(&pull.repo, project)?;
        let owners = self.owners_of_state(&pull.repo, project)?;
        Ok(locks::blocker(&locks, &owners, pull, project, &row.address).is_none())
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
        let mut by_pull: BTreeMap<&PullId, Vec<ProjectId>> = BTreeMap::new();
        for (pull, project) in turns {
            by_pull.entry(pull).or_default().push(project.clone());
        }
        for (pull, more) in by_pull {
            let start = format!("{REPLAN}{pull}:");
            let waiting: Option<Delivery> = self.record(
                "SELECT record FROM deliveries
                 WHERE identity > ?1 AND identity < ?1 || '~' AND finished IS NULL AND state = 'queued' LIMIT 1",
                [&start],
            )?;
            match waiting {
                Some(Delivery {
                    identity,
                    host_id,
                    received,
                    event: Event::Replan(ReplanEvent { pull, mut projects }),
                }) => {
                    projects.extend(more);
                    projects.sort();
                    projects.dedup();
                    let event = Event::Replan(ReplanEvent { pull, projects });
                    let known = Delivery { identity, host_id, received, event };
                    let sql = "UPDATE deliveries SET record = ?2 WHERE identity = ?1";
                    self.execute(sql, params![known.identity.as_str(), json(&known)?])?;
                }
                _ => self.insert_replan(&start, ReplanEvent { pull: pull.clone(), projects: more })?,
            }
            self.signals.replan_recorded.set(true);
        }
        Ok(())
    }

    /// Begins an automatic re-plan. Projects whose turn comes from now on get another delivery. Returns the projects that are due or, if an
    /// earlier run of it was interrupted, those that it began with.
    pub fn begin_replan(&self, identity: &DeliveryId) -> Result<Vec<ProjectId>> {
        let sql = "SELECT record FROM deliveries WHERE identity = ?1 AND finished IS NULL";
        let found: Option<Delivery> = self.record(sql, [identity.as_str()])?;
        let Some(mut delivery) = found else { return Ok(Vec::new()) };
        let Event::Replan(ReplanEvent { pull, projects }) = &mut delivery.event else { return Ok(Vec::new()) };
        let is_cut = self.unfinished_runs()?.iter().any(|run| run.delivery.as_ref() == Some(identity));
        let mut not_due = Vec::new();
        if !is_cut {
            let mut due = Vec::new();
            self.line_up_deferred(pull, projects)?;
            for project in projects.drain(..) {
                let list = if self.is_due(pull, &project)? { &mut due } else { &mut not_due };
                list.push(project);
            }
            *projects = due;
        }
        let (pull, projects) = (pull.clone(), projects.clone());
        let sql = "UPDATE deliveries SET record = ?2 WHERE identity = ?1";
        self.execute(sql, params![identity.as_str(), json(&delivery)?])?;
        self.set_delivery_state(identity, DeliveryState::Running, "begun")?;
        // Ends the turn of projects that are not due any more.
        if !not_due.is_empty() {
            self.record_lock_event(&LockEvent::TurnEnds { pull, projects: not_due })?;
        }
        Ok(projects)
    }

    /// Inserts waiters for those of these projects that were deferred and no longer wait for a project of their own pull request.
    fn line_up_deferred(&self, pull: &PullId, projects: &[ProjectId]) -> Result<()> {
        let due = due_of_deferred(&self.project_statuses(pull)?);
        for project in projects.iter().filter(|project| due.contains(project)) {
            if self.wait_for(pull, project)?.is_none() {
                let (pull, project, address) = (pull.clone(), project.clone(), StateAddress::default());
                let (since, cause) = (Timestamp::now(), WaitCause::Fall);
                self.insert_waiter(&WaitingPull { project, pull, since, cause, address })?;
            }
        }
        Ok(())
    }

    /// Returns the event for the end of this delivery if it was the turn of a pull request. Leaves out projects whose turn has come again
    /// in another delivery.
    pub(super) fn turn_of(&self, identity: &DeliveryId) -> Result<Option<LockEvent>> {
        if !identity.as_str().starts_with(REPLAN) {
            return Ok(None);
        }
        let sql = "SELECT record FROM deliveries WHERE identity = ?1 AND finished IS NULL";
        let delivery: Option<Delivery> = self.record(sql, [identity.as_str()])?;
        let Some(Event::Replan(ReplanEvent { pull, mut projects })) = delivery.map(|delivery| delivery.event) else {
            return Ok(None);
        };
        for other in self.replans()?.into_iter().filter(|other| other.identity != *identity) {
            if let Event::Replan(again) = other.event
                && again.pull == pull
            {
                projects.retain(|project| !again.projects.contains(project));
            }
        }
        Ok(Some(LockEvent::TurnEnds { pull, projects }))
    }

    fn insert_replan(&self, start: &str, event: ReplanEvent) -> Result<()> {
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
}
