//! Runs and their jobs, running and finished.

use super::{Tx, View, json, micros, rows, word};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use rusqlite::params;
use serde::Deserialize;
use tidelock_core::domain::command::{CommandName, Trigger};
use tidelock_core::domain::state::{Cause, DeliveryState, Job, JobState, Run};
use tidelock_core::domain::{CommitSha, DeliveryId, JobId, Login, ProjectId, PullId, RepoId, RunId};

/// Maximum number of persons that [`View::planners`] returns.
const MAX_PLANNERS: usize = 10;

/// A result in the record of a run, as far as it names a project that was refused.
#[derive(Deserialize)]
struct RefusedProject {
    dir: Option<String>,
    #[serde(default)]
    workspace: String,
    project: Option<String>,
    #[serde(default)]
    outcome: String,
}

impl View<'_> {
    /// Returns runs that have not ended, in the order they were recorded. At a start, they are those of an earlier process.
    pub fn unfinished_runs(&self) -> Result<Vec<Run>> {
        self.records("SELECT record FROM runs WHERE finished IS NULL ORDER BY seq", [])
    }

    /// Returns the runs of this cause that have not ended, in the order they were recorded.
    pub fn unfinished_runs_of(&self, cause: &Cause) -> Result<Vec<Run>> {
        Ok(self.unfinished_runs()?.into_iter().filter(|run| run.cause == *cause).collect())
    }

    /// Returns jobs that are running, in the order they were recorded.
    pub fn unfinished_jobs(&self) -> Result<Vec<Job>> {
        self.records("SELECT record FROM jobs WHERE state = 'running' ORDER BY seq", [])
    }

    /// Returns one job.
    pub fn job(&self, id: &JobId) -> Result<Option<Job>> {
        self.record("SELECT record FROM jobs WHERE id = ?1", [id.as_str()])
    }

    /// Returns one run.
    pub fn run(&self, id: &RunId) -> Result<Option<Run>> {
        self.record("SELECT record FROM runs WHERE id = ?1", [id.as_str()])
    }

    /// Returns the last run of a delivery that was accepted for a pull request at this time.
    pub fn last_run_of(&self, pull: &PullId, delivery: &DeliveryId, accepted: Timestamp) -> Result<Option<Run>> {
        let runs: Vec<Run> = self.records(
            "SELECT record FROM runs WHERE pull = ?1 AND started >= ?2 ORDER BY seq DESC",
            params![pull.to_string(), micros(accepted)],
        )?;
        Ok(runs.into_iter().find(|run| run.cause.delivery() == Some(delivery)))
    }

    /// Returns the jobs of a run, in the order they were recorded.
    pub fn jobs_of(&self, run: &RunId) -> Result<Vec<Job>> {
        self.records("SELECT record FROM jobs WHERE run = ?1 ORDER BY seq", [run.as_str()])
    }

    /// Returns the first jobs of a run without their outcomes, in the order they were recorded.
    pub fn first_jobs_of(&self, run: &RunId, limit: usize) -> Result<Vec<Job>> {
        self.records(
            "SELECT json_remove(record, '$.outcome') FROM jobs WHERE run = ?1 ORDER BY seq LIMIT ?2",
            params![run.as_str(), rows(limit)],
        )
    }

    /// Returns the last job of this kind on a project of a pull request, without its outcome.
    pub fn last_job_of(&self, pull: &PullId, project: &ProjectId, kind: &str) -> Result<Option<Job>> {
        self.record(
            "SELECT json_remove(record, '$.outcome') FROM jobs WHERE pull = ?1 AND json_extract(record, '$.project.dir') = ?2
               AND json_extract(record, '$.project.workspace') = ?3 AND json_extract(record, '$.project.name') IS ?4
               AND json_extract(record, '$.kind') = ?5
             ORDER BY seq DESC LIMIT 1",
            params![pull.to_string(), project.dir, project.workspace, project.name, kind],
        )
    }

    /// Returns the run of the same pull request that was recorded just before a run.
    pub fn run_before(&self, run: &Run) -> Result<Option<RunId>> {
        self.record(
            "SELECT json_quote(id) FROM runs WHERE pull = ?1 AND started <= ?2 AND seq < (SELECT seq FROM runs WHERE id = ?3)
             ORDER BY started DESC, seq DESC LIMIT 1",
            params![run.pull.to_string(), micros(run.started), run.id.as_str()],
        )
    }

    /// Returns the run of the same pull request that was recorded just after a run.
    pub fn run_after(&self, run: &Run) -> Result<Option<RunId>> {
        self.record(
            "SELECT json_quote(id) FROM runs WHERE pull = ?1 AND started >= ?2 AND seq > (SELECT seq FROM runs WHERE id = ?3)
             ORDER BY started, seq LIMIT 1",
            params![run.pull.to_string(), micros(run.started), run.id.as_str()],
        )
    }

    /// Returns the trigger of the latest plan of all projects at this head that began at or after `since` and was answered.
    pub fn planned_since(&self, pull: &PullId, head: &CommitSha, since: Timestamp) -> Result<Option<Trigger>> {
        let runs: Vec<Run> = self.records(
            "SELECT record FROM runs WHERE pull = ?1 AND started >= ?2 ORDER BY seq DESC",
            params![pull.to_string(), micros(since)],
        )?;
        let answers =
            |run: &&Run| run.command == CommandName::Plan && run.everything && run.answered && run.head == *head;
        Ok(runs.iter().find(answers).map(|run| run.trigger))
    }

    /// Returns the runs that planned everything of a pull request, the latest first.
    fn whole_plans(&self, pull: &PullId) -> Result<impl Iterator<Item = Run>> {
        let runs: Vec<Run> = self
            .records("SELECT record FROM runs WHERE pull = ?1 ORDER BY started DESC, seq DESC", [pull.to_string()])?;
        Ok(runs.into_iter().filter(|run| run.command == CommandName::Plan && run.everything))
    }

    /// Returns the head of the latest run that planned, or was to plan, everything of a pull request.
    pub fn last_planned_head(&self, pull: &PullId) -> Result<Option<CommitSha>> {
        Ok(self.whole_plans(pull)?.next().map(|run| run.head))
    }

    /// Returns true if everything of a pull request was planned at this head, and nothing at another head since.
    pub fn is_planned_at(&self, pull: &PullId, head: &CommitSha) -> Result<bool> {
        Ok(self.whole_plans(pull)?.take_while(|run| run.head == *head).any(|run| run.answered))
    }

    /// Returns the persons whose push or comment caused a plan of a pull request at this head, the latest first.
    pub fn planners(&self, pull: &PullId, head: &CommitSha) -> Result<Vec<Login>> {
        self.planners_by(pull, head, &[Trigger::Autoplan, Trigger::Comment])
    }

    /// Returns the persons who changed a pull request so that it was planned automatically at this head, by a push or by opening it, the
    /// latest first.
    pub fn pushers(&self, pull: &PullId, head: &CommitSha) -> Result<Vec<Login>> {
        self.planners_by(pull, head, &[Trigger::Autoplan])
    }

    fn planners_by(&self, pull: &PullId, head: &CommitSha, triggers: &[Trigger]) -> Result<Vec<Login>> {
        let runs: Vec<Run> = self
            .records("SELECT record FROM runs WHERE pull = ?1 ORDER BY started DESC, seq DESC", [pull.to_string()])?;
        let is_of_person = |run: &Run| triggers.contains(&run.trigger) && !run.user.is_unknown();
        let mut planners = Vec::new();
        for run in runs.into_iter().filter(|run| run.command == CommandName::Plan && run.head == *head) {
            if is_of_person(&run) && !planners.contains(&run.user) && planners.len() < MAX_PLANNERS {
                planners.push(run.user);
            }
        }
        Ok(planners)
    }

    /// Returns the last apply of a pull request at this head that has begun with any project, and its jobs.
    pub fn last_apply(&self, pull: &PullId, head: &CommitSha) -> Result<Option<(Run, Vec<Job>)>> {
        let runs: Vec<Run> = self
            .records("SELECT record FROM runs WHERE pull = ?1 ORDER BY started DESC, seq DESC", [pull.to_string()])?;
        for run in runs.into_iter().filter(|run| run.command == CommandName::Apply && run.head == *head) {
            let mut jobs = self.jobs_of(&run.id)?;
            // Leaves out jobs of hooks, which have no project.
            jobs.retain(|job| job.project.is_some());
            if !jobs.is_empty() {
                return Ok(Some((run, jobs)));
            }
        }
        Ok(None)
    }

    /// Returns jobs of a pull request that were begun to change a state, oldest first. [`Tx::prune`] keeps the last one of each project as
    /// long as the pull request is open.
    pub fn changes_by(&self, pull: &PullId) -> Result<Vec<Job>> {
        let runs: Vec<Run> =
            self.records("SELECT record FROM runs WHERE pull = ?1 ORDER BY started, seq", [pull.to_string()])?;
        let mut changes = Vec::new();
        for run in runs.into_iter().filter(|run| run.command.changes_state()) {
            let jobs = self.jobs_of(&run.id)?;
            changes.extend(jobs.into_iter().filter(|job| job.changes_state() && job.project.is_some()));
        }
        Ok(changes)
    }

    /// Returns the pull request, or the branch of a drift run, of the last apply by another one that has succeeded with a job's project
    /// since that job began.
    pub fn applied_by_another_since(&self, job: &Job) -> Result<Option<PullId>> {
        let later: Vec<Job> = self.records(
            "SELECT later.record FROM jobs AS old, jobs AS later
             WHERE old.id = ?1 AND later.started >= old.started AND later.pull <> old.pull AND later.state = 'succeeded'
               AND json_extract(later.record, '$.kind') = 'apply'
               AND json_extract(later.record, '$.project') = json_extract(old.record, '$.project')
               AND json_extract(later.record, '$.pull.repo') = json_extract(old.record, '$.pull.repo')
             ORDER BY later.started DESC, later.seq DESC LIMIT 1",
            [job.id.as_str()],
        )?;
        Ok(later.into_iter().next().map(|job| job.pull))
    }

    /// Returns jobs that were begun at or after `since` to change a state and have ended.
    pub fn changes_ended_since(&self, since: Timestamp) -> Result<Vec<Job>> {
        let jobs: Vec<Job> = self.records(
            "SELECT record FROM jobs WHERE started >= ?1 AND state <> 'running' ORDER BY started",
            [micros(since)],
        )?;
        Ok(jobs.into_iter().filter(Job::changes_state).collect())
    }

    /// Returns jobs whose Terraform was killed while it may have held a lock on its state, and that were not reported to anybody yet.
    pub fn untold_jobs(&self) -> Result<Vec<Job>> {
        self.records(
            "SELECT record FROM jobs WHERE state IN ('interrupted', 'failed') AND json_extract(record, '$.state_lock.untold')
             ORDER BY seq",
            [],
        )
    }

    /// Returns jobs on executors that were recorded as interrupted at or after `since`, in the order they were recorded. Some of them may
    /// still end there.
    pub fn interrupted_on_executors(&self, since: Timestamp) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = self.records(
            "SELECT record FROM jobs WHERE state = 'interrupted' AND json_extract(record, '$.remote') IS NOT NULL ORDER BY seq",
            [],
        )?;
        jobs.retain(|job| job.finished.is_none_or(|finished| finished >= since));
        Ok(jobs)
    }

    /// Returns true if Terraform succeeded on the same project after this job, on any pull request, so that its state is not locked.
    pub fn succeeded_since(&self, job: &Job) -> Result<bool> {
        let later: Vec<Job> = self.records(
            "SELECT record FROM jobs WHERE seq > (SELECT seq FROM jobs WHERE id = ?1) AND state = 'succeeded' ORDER BY seq",
            [job.id.as_str()],
        )?;
        Ok(later.iter().any(|l| l.project == job.project && l.pull.repo == job.pull.repo && l.locks_state()))
    }

    /// Returns the latest interrupted or failed jobs with this text in their record.
    pub fn ended_jobs_naming(&self, text: &str, limit: usize) -> Result<Vec<Job>> {
        self.records(
            "SELECT record FROM jobs WHERE state IN ('interrupted', 'failed') AND instr(record, ?1) > 0
             ORDER BY seq DESC LIMIT ?2",
            params![text, rows(limit)],
        )
    }

    /// Returns the latest interrupted or failed jobs of this repository that were begun at or before `until`.
    pub fn broken_jobs(&self, repo: &RepoId, until: Timestamp, limit: usize) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = self.records(
            "SELECT record FROM jobs WHERE state IN ('interrupted', 'failed') AND started <= ?1 AND substr(pull, 1, length(?2) + 1) = ?2 || '#'
             ORDER BY seq DESC LIMIT ?3",
            params![micros(until), repo.to_string(), rows(limit)],
        )?;
        // Names of repositories may contain a `#` themselves.
        jobs.retain(|job| job.pull.repo == *repo);
        Ok(jobs)
    }
}

impl Tx<'_> {
    /// Records that a run of this cause begins. Fails if the cause has ended already.
    pub fn begin_cause(&self, cause: &Cause, run: &RunId) -> Result<()> {
        match cause {
            Cause::Delivery(identity) => self.set_delivery_state(identity, DeliveryState::Running, run.as_str()),
            Cause::Replan(id) => {
                ensure!(self.replan(*id)?.is_some(), "the run {run} cannot begin: its {cause} has ended already");
                Ok(())
            }
            Cause::None => Ok(()),
        }
    }

    /// Ends a cause and its runs, with the outcome of a delivery.
    pub fn end_cause(&self, cause: &Cause, outcome: &str) -> Result<()> {
        match cause {
            Cause::Delivery(identity) => self.set_delivery_state(identity, DeliveryState::Done, outcome),
            Cause::Replan(id) => self.end_replan(*id),
            Cause::None => Ok(()),
        }
    }

    /// Ends the runs of a cause that has ended.
    pub(super) fn end_runs_of(&self, cause: &Cause) -> Result<()> {
        for run in self.unfinished_runs_of(cause)? {
            self.put_run(&Run { finished: Some(Timestamp::now()), ..run })?;
        }
        Ok(())
    }

    /// Records a run or its new state. Drops the schedule of a run that has ended.
    pub fn put_run(&self, run: &Run) -> Result<()> {
        self.execute(
            "INSERT INTO runs (id, pull, started, finished, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET finished = excluded.finished, record = excluded.record",
            params![run.id.as_str(), run.pull.to_string(), micros(run.started), run.finished.map(micros), json(run)?],
        )?;
        if run.finished.is_some() {
            self.put_refused_projects(run)?;
            self.drop_schedule(&run.id)?;
        }
        Ok(())
    }

    /// Records the projects that a run has refused, so that it is found by them without a job.
    fn put_refused_projects(&self, run: &Run) -> Result<()> {
        for result in &run.results {
            let Ok(RefusedProject { dir: Some(dir), workspace, project, outcome }) = serde_json::from_str(result)
            else {
                continue;
            };
            if outcome == "failure" {
                self.execute(
                    "INSERT INTO refused_projects (run, dir, workspace, name) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (run, dir, workspace, name) DO NOTHING",
                    params![run.id.as_str(), dir, workspace, project.unwrap_or_default()],
                )?;
            }
        }
        Ok(())
    }

    /// Records a job or its new state. Keeps the log of a job that has ended; nothing may be written to it any more.
    pub fn put_job(&self, job: &Job) -> Result<()> {
        self.execute(
            "INSERT INTO jobs (id, run, pull, state, started, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
            params![
                job.id.as_str(),
                job.run.as_str(),
                job.pull.to_string(),
                word(&job.state)?,
                micros(job.started),
                json(job)?
            ],
        )?;
        if job.state == JobState::Running { Ok(()) } else { self.keep_log(&job.id) }
    }
}
