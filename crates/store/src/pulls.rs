//! Pull requests as last recorded, and the statuses of their projects.

use super::{Tx, View, json, micros, parse, word};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};
use tidelock_core::domain::state::{ProjectStatus, Watermark};
use tidelock_core::domain::{CommitSha, ProjectId, PullId, PullRequest, PullState, RepoId};
use tidelock_core::locks;

/// A pull request as its row holds it.
#[derive(Serialize, Deserialize)]
struct StoredPull<T> {
    #[serde(flatten)]
    pull: T,
    /// Absent in rows of the first format.
    #[serde(default)]
    watermark: Option<Watermark>,
    /// Reason why the last plan of all projects failed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Head at which somebody cancelled automatic applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auto_apply_cancelled: Option<String>,
}

/// A recorded pull request with its watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPull {
    /// The pull request as last recorded.
    pub pull: PullRequest,
    /// True if it was open when last recorded.
    pub open: bool,
    /// Progress of its comparison with the host; absent if it was never compared.
    pub watermark: Option<Watermark>,
}

impl View<'_> {
    /// Returns a pull request with its watermark.
    pub fn known_pull(&self, pull: &PullId) -> Result<Option<KnownPull>> {
        let found: Option<(String, bool)> = (self.connection)
            .prepare_cached("SELECT record, open FROM pulls WHERE pull = ?1")?
            .query_row([pull.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let known = |(record, open): (String, bool)| -> Result<KnownPull> {
            let StoredPull { pull, watermark, .. } = parse(&record)?;
            Ok(KnownPull { pull, open, watermark })
        };
        found.map(known).transpose()
    }

    /// Returns open pull requests of a repository, latest activity first.
    pub fn open_pulls_of(&self, repo: &RepoId) -> Result<Vec<KnownPull>> {
        // A range of the index: `$` follows `#`. Names of repositories may contain a `#` themselves.
        let kept: Vec<StoredPull<PullRequest>> = self.records(
            "SELECT record FROM pulls WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND open ORDER BY activity DESC",
            [repo.to_string()],
        )?;
        Ok(kept
            .into_iter()
            .filter(|kept| kept.pull.id.repo == *repo)
            .map(|StoredPull { pull, watermark, .. }| KnownPull { pull, open: true, watermark })
            .collect())
    }

    /// Returns pull requests that were merged into a branch of a repository and whose merge commit is known, latest activity first, at most
    /// `most`.
    pub fn merged_pulls_of(&self, repo: &RepoId, branch: &str, most: usize) -> Result<Vec<PullRequest>> {
        let mut merged: Vec<PullRequest> = self.records(
            "SELECT record FROM pulls WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND NOT open
               AND json_extract(record, '$.state.merged.commit') IS NOT NULL AND json_extract(record, '$.base.branch') = ?2
             ORDER BY activity DESC LIMIT ?3",
            params![repo.to_string(), branch, i64::try_from(most)?],
        )?;
        merged.retain(|pull| pull.id.repo == *repo);
        Ok(merged)
    }

    /// Returns repositories with open pull requests.
    pub fn repos_of_open_pulls(&self) -> Result<Vec<RepoId>> {
        self.records("SELECT DISTINCT json_extract(record, '$.id.repo') FROM pulls WHERE open", [])
    }

    /// Returns all repositories that were ever served with this state.
    pub fn served_repos(&self) -> Result<Vec<RepoId>> {
        self.records("SELECT record FROM repos ORDER BY seq", [])
    }

    /// Returns the time since which a repository is served with this state; `None` if never.
    pub fn served_since(&self, repo: &RepoId) -> Result<Option<Timestamp>> {
        let found: Option<i64> = (self.connection)
            .prepare_cached("SELECT served FROM repos WHERE repo = ?1")?
            .query_row([repo.to_string()], |row| row.get(0))
            .optional()?;
        Ok(found.map(Timestamp::from_microsecond).transpose()?)
    }

    /// Returns the time of the first look of polling at a repository, by the host's clock; `None` before it.
    pub fn polled_since(&self, repo: &RepoId) -> Result<Option<Timestamp>> {
        let found: Option<Option<i64>> = (self.connection)
            .prepare_cached("SELECT json_extract(record, '$.polled') FROM repos WHERE repo = ?1")?
            .query_row([repo.to_string()], |row| row.get(0))
            .optional()?;
        Ok(found.flatten().map(Timestamp::from_microsecond).transpose()?)
    }

    /// Returns a pull request as last recorded; not open once it was forgotten.
    pub fn pull(&self, pull: &PullId) -> Result<Option<PullRequest>> {
        let found: Option<(String, bool)> = (self.connection)
            .prepare_cached("SELECT record, open FROM pulls WHERE pull = ?1")?
            .query_row([pull.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let known = |(record, open): (String, bool)| -> Result<PullRequest> {
            let pull: PullRequest = parse(&record)?;
            let state = if open || !pull.is_open() { pull.state.clone() } else { PullState::Closed };
            Ok(PullRequest { state, ..pull })
        };
        found.map(known).transpose()
    }

    /// Returns the reason why the last plan of all projects of an open pull request failed as a whole, in one line; absent if it did not.
    pub fn fault(&self, pull: &PullId) -> Result<Option<String>> {
        let fault: Option<Option<String>> = (self.connection)
            .prepare_cached("SELECT json_extract(record, '$.fault') FROM pulls WHERE pull = ?1 AND open")?
            .query_row([pull.to_string()], |row| row.get(0))
            .optional()?;
        Ok(fault.flatten())
    }

    /// Returns the head at which somebody cancelled automatic applies of a pull request; absent if nobody did.
    pub fn auto_apply_cancelled(&self, pull: &PullId) -> Result<Option<String>> {
        let head: Option<Option<String>> = (self.connection)
            .prepare_cached("SELECT json_extract(record, '$.auto_apply_cancelled') FROM pulls WHERE pull = ?1")?
            .query_row([pull.to_string()], |row| row.get(0))
            .optional()?;
        Ok(head.flatten())
    }

    /// Returns the last activity of all pull requests, to ask later for changes after it.
    pub fn last_activity(&self) -> Result<i64> {
        let last: Option<i64> =
            (self.connection).prepare_cached("SELECT max(activity) FROM pulls")?.query_row([], |row| row.get(0))?;
        Ok(last.unwrap_or(i64::MIN))
    }

    /// Returns true if a pull request of a repository was closed or merged after this activity.
    pub fn closed_since(&self, repo: &RepoId, activity: i64) -> Result<bool> {
        let sql =
            "SELECT 1 FROM pulls WHERE activity > ?2 AND NOT open AND pull > ?1 || '#' AND pull < ?1 || '$' LIMIT 1";
        Ok((self.connection).prepare_cached(sql)?.exists(params![repo.to_string(), activity])?)
    }

    /// Returns the project statuses of a pull request, in the order in which they were first recorded.
    pub fn project_statuses(&self, pull: &PullId) -> Result<Vec<ProjectStatus>> {
        self.records("SELECT record FROM project_statuses WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }
}

impl Tx<'_> {
    /// Records a pull request as the host describes it, open or not. The watermark of a new or reopened one starts now.
    pub fn put_pull(&self, pull: &PullRequest) -> Result<()> {
        let known = self.known_pull(&pull.id)?;
        let (fault, auto_apply_cancelled) = (self.fault(&pull.id)?, self.auto_apply_cancelled(&pull.id)?);
        let watermark = known.filter(|known| known.open).and_then(|known| known.watermark);
        let watermark = watermark.unwrap_or_else(|| Watermark::at(Timestamp::now()));
        self.execute(
            "INSERT INTO pulls (pull, open, activity, record) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (pull) DO UPDATE SET open = excluded.open, activity = excluded.activity, record = excluded.record",
            params![
                pull.id.to_string(),
                pull.is_open(),
                self.next_activity()?,
                json(&StoredPull { pull, watermark: Some(watermark), fault, auto_apply_cancelled })?
            ],
        )?;
        self.serve(&pull.id.repo, Timestamp::now())
    }

    /// Records that a repository is served from now on, in whole seconds like the times of hosts. No effect if it is
    /// recorded already.
    pub fn serve(&self, repo: &RepoId, now: Timestamp) -> Result<()> {
        let now = Timestamp::from_second(now.as_second())?;
        self.execute(
            "INSERT INTO repos (repo, served, record) VALUES (?1, ?2, ?3) ON CONFLICT (repo) DO NOTHING",
            params![repo.to_string(), micros(now), json(repo)?],
        )?;
        Ok(())
    }

    /// Records the first look of polling at a repository, by the host's clock.
    pub fn begin_polling(&self, repo: &RepoId, at: Timestamp) -> Result<()> {
        self.serve(repo, Timestamp::now())?;
        self.execute(
            "UPDATE repos SET record = json_set(record, '$.polled', ?2) WHERE repo = ?1",
            params![repo.to_string(), micros(at)],
        )?;
        Ok(())
    }

    /// Records the watermark of a known pull request; no effect for an unknown one.
    pub fn set_watermark(&self, pull: &PullId, watermark: &Watermark) -> Result<()> {
        self.execute(
            "UPDATE pulls SET record = json_set(record, '$.watermark', json(?2)) WHERE pull = ?1",
            params![pull.to_string(), json(watermark)?],
        )?;
        Ok(())
    }

    /// Records the reason why the plan of all projects of a known pull request failed as a whole, or that it did not fail.
    pub fn set_fault(&self, pull: &PullId, fault: Option<&str>) -> Result<()> {
        if self.fault(pull)?.as_deref() == fault {
            return Ok(());
        }
        self.execute(
            "UPDATE pulls SET record = iif(?2 IS NULL, json_remove(record, '$.fault'), json_set(record, '$.fault', ?2))
             WHERE pull = ?1",
            params![pull.to_string(), fault],
        )?;
        Ok(())
    }

    /// Records that nothing of a known pull request is applied automatically at this head. Returns the labels of the projects that would
    /// have been.
    pub fn cancel_auto_apply(&self, pull: &PullId, head: &CommitSha) -> Result<Vec<String>> {
        self.execute(
            "UPDATE pulls SET record = json_set(record, '$.auto_apply_cancelled', ?2) WHERE pull = ?1",
            params![pull.to_string(), head.as_str()],
        )?;
        let mut labels = Vec::new();
        for plan in self.plans(pull)? {
            if self.end_auto_apply(&plan.id)? {
                labels.push(plan.project.label());
            }
        }
        Ok(labels)
    }

    /// Records the status of a project in place of the earlier one. Queues a re-plan of deferred projects that waited for it and now wait
    /// for nothing else.
    pub fn put_project_status(&self, pull: &PullId, status: &ProjectStatus) -> Result<()> {
        let name = status.project.name.as_deref().unwrap_or("");
        self.execute(
            "INSERT INTO project_statuses (pull, dir, workspace, name, state, updated, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (pull, dir, workspace, name)
             DO UPDATE SET state = excluded.state, updated = excluded.updated, record = excluded.record",
            params![
                pull.to_string(),
                status.project.dir,
                status.project.workspace,
                name,
                word(&status.state)?,
                micros(status.updated),
                json(status)?
            ],
        )?;
        self.execute(
            "UPDATE pulls SET activity = ?2 WHERE pull = ?1",
            params![pull.to_string(), self.next_activity()?],
        )?;
        if !status.state.is_done() {
            return Ok(());
        }
        let due = locks::due_after(status, &self.project_statuses(pull)?);
        self.record_turns(&due.into_iter().map(|project| (pull.clone(), project)).collect::<Vec<_>>())
    }

    /// Drops the status of a project that no longer counts.
    pub fn forget_project_status(&self, pull: &PullId, project: &ProjectId) -> Result<()> {
        let name = project.name.as_deref().unwrap_or("");
        self.execute(
            "DELETE FROM project_statuses WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
            params![pull.to_string(), project.dir, project.workspace, name],
        )?;
        self.execute(
            "UPDATE pulls SET activity = ?2 WHERE pull = ?1",
            params![pull.to_string(), self.next_activity()?],
        )?;
        Ok(())
    }

    /// Drops all project statuses of a pull request before a new head is planned.
    pub fn clear_project_statuses(&self, pull: &PullId) -> Result<()> {
        self.execute("DELETE FROM project_statuses WHERE pull = ?1", [pull.to_string()])?;
        Ok(())
    }

    /// Drops statuses, plans and policy checks of a pull request and marks it as not open. `LockEvent::Closed` releases its locks.
    pub fn forget_pull(&self, pull: &PullId) -> Result<()> {
        let key = pull.to_string();
        self.clear_project_statuses(pull)?;
        self.drop_policy_checks(pull)?;
        self.drop_plans("DELETE FROM plans WHERE pull = ?1 RETURNING record", [&key])?;
        self.execute("UPDATE pulls SET open = 0, activity = ?2 WHERE pull = ?1", params![key, self.next_activity()?])?;
        Ok(())
    }

    /// Returns the current time, but later than every recorded activity, so that the order survives clock changes.
    fn next_activity(&self) -> Result<i64> {
        Ok(self.last_activity()?.saturating_add(1).max(micros(Timestamp::now())))
    }
}
