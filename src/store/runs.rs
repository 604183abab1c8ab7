//! Runs and their jobs: what is at work, what came of it.

use super::{Tx, View, json, micros, rows, word};
use crate::domain::PullId;
use crate::domain::command::CommandName;
use crate::domain::state::{Job, JobState, Run};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::params;

impl View<'_> {
    /// Runs that have not ended, in the order they were recorded: at start, what an earlier process left behind.
    pub fn unfinished_runs(&self) -> Result<Vec<Run>> {
        self.records("SELECT record FROM runs WHERE finished IS NULL ORDER BY seq", [])
    }

    /// Jobs that are running, in the order they were recorded.
    pub fn unfinished_jobs(&self) -> Result<Vec<Job>> {
        self.records("SELECT record FROM jobs WHERE state = 'running' ORDER BY seq", [])
    }

    /// One job.
    pub fn job(&self, id: &str) -> Result<Option<Job>> {
        self.record("SELECT record FROM jobs WHERE id = ?1", [id])
    }

    /// One run.
    pub fn run(&self, id: &str) -> Result<Option<Run>> {
        self.record("SELECT record FROM runs WHERE id = ?1", [id])
    }

    /// Jobs of a run, in the order they were recorded.
    pub fn jobs_of(&self, run: &str) -> Result<Vec<Job>> {
        self.records("SELECT record FROM jobs WHERE run = ?1 ORDER BY seq", [run])
    }

    /// Whether a plan of everything at this head began at or after `since`, and was answered.
    pub fn planned_since(&self, pull: &PullId, head: &str, since: Timestamp) -> Result<bool> {
        let runs: Vec<Run> = self.records(
            "SELECT record FROM runs WHERE pull = ?1 AND started >= ?2 ORDER BY seq",
            params![pull.to_string(), micros(since)],
        )?;
        Ok(runs
            .iter()
            .any(|run| run.command == CommandName::Plan && run.everything && run.answered && run.head == head))
    }

    /// Jobs, the newest first.
    pub fn recent_jobs(&self, limit: usize) -> Result<Vec<Job>> {
        self.records("SELECT record FROM jobs ORDER BY seq DESC LIMIT ?1", [rows(limit)])
    }
}

impl Tx<'_> {
    /// Records a run, or how it stands now.
    pub fn put_run(&self, run: &Run) -> Result<()> {
        self.execute(
            "INSERT INTO runs (id, pull, started, finished, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET finished = excluded.finished, record = excluded.record",
            params![run.id, run.pull.to_string(), micros(run.started), run.finished.map(micros), json(run)?],
        )?;
        Ok(())
    }

    /// Records a job, or how it stands now. The log of one that has ended is kept with it: nothing may be written to that any more.
    pub fn put_job(&self, job: &Job) -> Result<()> {
        self.execute(
            "INSERT INTO jobs (id, run, pull, state, started, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
            params![job.id, job.run, job.pull.to_string(), word(&job.state)?, micros(job.started), json(job)?],
        )?;
        if job.state == JobState::Running { Ok(()) } else { self.keep_log(&job.id) }
    }
}
