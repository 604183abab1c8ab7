//! Issues about the drift of projects, which the server keeps on hosts.

use super::locks::name_of;
use super::{Tx, View, json};
use anyhow::Result;
use rusqlite::params;
use std::collections::HashSet;
use tidelock_core::domain::drift::{DriftCheck, ProjectDrift};
use tidelock_core::domain::drift_issue::{DriftIssue, IssuePlace, MissingIssues};
use tidelock_core::domain::state::{Effect, IssueChange, NewEffect};
use tidelock_core::domain::{PullId, RepoId, RunId};

impl View<'_> {
    /// Returns the issues of all repositories.
    pub fn drift_issues(&self) -> Result<Vec<DriftIssue>> {
        self.records("SELECT record FROM drift_issues ORDER BY seq", [])
    }

    /// Returns the issues of a repository.
    pub fn drift_issues_in(&self, repo: &RepoId) -> Result<Vec<DriftIssue>> {
        self.records(
            "SELECT record FROM drift_issues WHERE host = ?1 AND repo = ?2 ORDER BY seq",
            [&repo.host, &repo.full_name()],
        )
    }

    /// Returns an issue by its id.
    pub fn drift_issue(&self, id: &RunId) -> Result<Option<DriftIssue>> {
        self.record("SELECT record FROM drift_issues WHERE id = ?1", [id.as_str()])
    }

    /// Returns the place of the latest issue about the project and branch of a finding; absent if none is open there.
    pub fn issue_of_drift(&self, found: &ProjectDrift) -> Result<Option<IssuePlace>> {
        let (repo, project) = (&found.repo, &found.project);
        let latest: Option<DriftIssue> = self.record(
            "SELECT record FROM drift_issues
             WHERE host = ?1 AND repo = ?2 AND branch = ?3 AND dir = ?4 AND workspace = ?5 AND name = ?6
             ORDER BY seq DESC LIMIT 1",
            params![repo.host, repo.full_name(), found.branch, project.dir, project.workspace, name_of(project)],
        )?;
        Ok(latest.filter(|issue| !issue.closing).and_then(|issue| issue.place))
    }

    /// Returns the ids of the issues of a repository that have a pending change.
    pub fn issues_with_effects(&self, repo: &RepoId) -> Result<HashSet<RunId>> {
        let sql = "SELECT json_extract(record, '$.effect.id') FROM effects
                   WHERE done IS NULL AND pull = ?1 AND json_extract(record, '$.effect.kind') = 'issue'";
        let mut statement = self.connection.prepare_cached(sql)?;
        let ids =
            statement.query_map([PullId::of_branches(repo.clone()).to_string()], |row| row.get::<_, String>(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<String>>>()?;
        Ok(ids.iter().filter_map(|id| RunId::parse(id)).collect())
    }
}

impl Tx<'_> {
    /// Records an issue, and a change of it for the outbox.
    pub fn change_drift_issue(&self, issue: &DriftIssue, change: IssueChange) -> Result<()> {
        self.put_drift_issue(issue)?;
        let effect = Effect::Issue { id: issue.id.clone(), change };
        self.enqueue(&NewEffect { pull: PullId::of_branches(issue.repo.clone()), effect }).map(drop)
    }

    /// Records an issue or its new state.
    pub fn put_drift_issue(&self, issue: &DriftIssue) -> Result<()> {
        let (repo, project) = (&issue.repo, &issue.project);
        self.execute(
            "INSERT INTO drift_issues (id, host, repo, branch, dir, workspace, name, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            params![
                issue.id.as_str(),
                repo.host,
                repo.full_name(),
                issue.branch,
                project.dir,
                project.workspace,
                name_of(project),
                json(issue)?
            ],
        )?;
        Ok(())
    }

    /// Records the place of an issue that was opened. The host accepts issues, so an earlier refusal is over.
    /// Other changes of the record since the request are kept.
    pub fn drift_issue_opened(&self, id: &RunId, place: IssuePlace) -> Result<()> {
        let Some(issue) = self.drift_issue(id)? else { return Ok(()) };
        self.put_drift_issue(&DriftIssue { place: Some(place), ..issue.clone() })?;
        self.change_missing_issues(&issue.repo, |missing| missing.refused = None)
    }

    /// Records that an issue does not show its drift: the next detection updates it.
    pub fn drift_issue_not_updated(&self, id: &RunId) -> Result<()> {
        let Some(issue) = self.drift_issue(id)? else { return Ok(()) };
        self.put_drift_issue(&DriftIssue { shows: String::new(), ..issue })
    }

    /// Drops the record of an issue.
    pub fn forget_drift_issue(&self, id: &RunId) -> Result<()> {
        self.execute("DELETE FROM drift_issues WHERE id = ?1", [id.as_str()])?;
        Ok(())
    }

    /// Changes what the last scheduled detection says of missing issues. No effect without one.
    pub fn change_missing_issues(&self, repo: &RepoId, change: impl FnOnce(&mut MissingIssues)) -> Result<()> {
        let Some(mut check) = self.drift_check(repo)? else { return Ok(()) };
        let before: DriftCheck = check.clone();
        change(&mut check.issues);
        if check == before { Ok(()) } else { self.put_drift_check(&check) }
    }
}
