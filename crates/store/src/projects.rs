//! Projects for pages. A project is a state of a repository: a directory and a workspace, whatever names select it.

use super::listing::Search;
use super::{View, rows};
use anyhow::Result;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};
use tidelock_core::domain::drift::ProjectDrift;
use tidelock_core::domain::state::Job;
use tidelock_core::domain::{ProjectId, RepoId};

/// Maximum number of repositories in which one query looks for projects.
const MAX_REPOS: usize = 200;

/// Places of a repository with a trace of a project: jobs, statuses, locks, owners and findings of drift runs. `{text}` is a condition on what
/// they are called.
const KNOWN: &str = "SELECT DISTINCT dir, workspace FROM (
    SELECT json_extract(record, '$.project.dir') AS dir, json_extract(record, '$.project.workspace') AS workspace,
        coalesce(json_extract(record, '$.project.name'), '') AS name
      FROM jobs INDEXED BY jobs_projects
      WHERE pull > {repo} || '#' AND pull < {repo} || '$' AND rtrim(pull, '0123456789') = {repo} || '#'
        AND json_extract(record, '$.project.dir') IS NOT NULL
    UNION ALL SELECT dir, workspace, name FROM project_statuses
      WHERE pull > {repo} || '#' AND pull < {repo} || '$' AND rtrim(pull, '0123456789') = {repo} || '#'
    UNION ALL SELECT dir, workspace, name FROM locks WHERE host = {host} AND repo = {full}
    UNION ALL SELECT dir, workspace, name FROM owners WHERE host = {host} AND repo = {full} AND dir <> ''
    UNION ALL SELECT dir, workspace, name FROM drift WHERE host = {host} AND repo = {full})
  WHERE (dir, workspace) > ({dir}, {workspace}){text} ORDER BY dir, workspace LIMIT {limit}";

/// A state of a repository: what a project is, without a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownProject {
    /// The repository.
    pub repo: RepoId,
    /// Directory and workspace; without them, a position after all projects of the repository.
    pub place: Option<(String, String)>,
}

/// A page of the list of projects, by repository, directory and workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectsFound {
    /// The repository of each, and the project without a name.
    pub rows: Vec<(RepoId, ProjectId)>,
    /// Position after which there may be more.
    pub next: Option<KnownProject>,
    /// Number of repositories that were looked at, where that ended the search.
    pub looked: Option<usize>,
}

impl View<'_> {
    /// Lists known projects after a position whose directory, workspace or name has all words, in one of these repositories.
    pub fn list_projects(
        &self,
        repos: &[RepoId],
        search: &Search,
        after: Option<&KnownProject>,
        limit: usize,
    ) -> Result<ProjectsFound> {
        let mut repos: Vec<&RepoId> = repos.iter().collect();
        repos.sort();
        repos.dedup();
        repos.retain(|repo| {
            after.is_none_or(|after| **repo > after.repo || **repo == after.repo && after.place.is_some())
        });
        let mut found = Vec::new();
        for (looked, repo) in repos.iter().enumerate() {
            if looked == MAX_REPOS {
                let next = KnownProject { repo: (*repos[looked - 1]).clone(), place: None };
                return Ok(ProjectsFound { rows: found, next: Some(next), looked: Some(MAX_REPOS) });
            }
            let from = after.filter(|after| after.repo == **repo).and_then(|after| after.place.as_ref());
            for (dir, workspace) in self.places_of(repo, search, from, limit - found.len() + 1)? {
                if found.len() == limit {
                    let last: Option<&(RepoId, ProjectId)> = found.last();
                    let next = last.map(|(repo, project)| KnownProject {
                        repo: repo.clone(),
                        place: Some((project.dir.clone(), project.workspace.clone())),
                    });
                    return Ok(ProjectsFound { rows: found, next, looked: None });
                }
                found.push(((*repo).clone(), ProjectId { dir, workspace, name: None }));
            }
        }
        Ok(ProjectsFound { rows: found, next: None, looked: None })
    }

    fn places_of(
        &self,
        repo: &RepoId,
        search: &Search,
        after: Option<&(String, String)>,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        let text = search.condition("dir || '/' || workspace || ' ' || name");
        let mut sql = KNOWN.replace("{text}", &text);
        let (dir, workspace) = after.cloned().unwrap_or_default();
        let mut values: Vec<Value> = search.values().collect();
        for (name, value) in [
            ("{repo}", Value::Text(repo.to_string())),
            ("{host}", Value::Text(repo.host.clone())),
            ("{full}", Value::Text(repo.full_name())),
            ("{dir}", Value::Text(dir)),
            ("{workspace}", Value::Text(workspace)),
            ("{limit}", Value::Integer(rows(limit))),
        ] {
            values.push(value);
            sql = sql.replace(name, &format!("?{}", values.len()));
        }
        let mut statement = self.connection.prepare_cached(&sql)?;
        let places = statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(places.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns repositories that drift runs have checked.
    pub fn repos_with_drift(&self) -> Result<Vec<RepoId>> {
        self.records("SELECT json_extract(record, '$.repo') FROM drift GROUP BY host, repo", [])
    }

    /// Returns the last job of this kind on a state of a repository, under any name, without its outcome.
    pub fn last_job_on(&self, repo: &RepoId, project: &ProjectId, kind: &str) -> Result<Option<Job>> {
        self.record(
            "SELECT json_remove(record, '$.outcome') FROM jobs INDEXED BY jobs_states
             WHERE rtrim(pull, '0123456789') = ?1 || '#' AND json_extract(record, '$.project.dir') = ?2
               AND json_extract(record, '$.project.workspace') = ?3 AND json_extract(record, '$.kind') = ?4
             ORDER BY seq DESC LIMIT 1",
            params![repo.to_string(), project.dir, project.workspace, kind],
        )
    }

    /// Returns the names that a state of a repository has, up to `limit`, with none among them if it is known without one. It is known from
    /// what [`View::list_projects`] knows it from.
    pub fn names_of_state(&self, repo: &RepoId, project: &ProjectId, limit: usize) -> Result<Vec<Option<String>>> {
        self.records(
            "SELECT json_quote(nullif(name, '')) FROM (
               SELECT coalesce(json_extract(record, '$.project.name'), '') AS name FROM jobs INDEXED BY jobs_projects
                 WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND rtrim(pull, '0123456789') = ?1 || '#'
                   AND json_extract(record, '$.project.dir') = ?4 AND json_extract(record, '$.project.workspace') = ?5
               UNION SELECT name FROM project_statuses
                 WHERE pull > ?1 || '#' AND pull < ?1 || '$' AND rtrim(pull, '0123456789') = ?1 || '#'
                   AND dir = ?4 AND workspace = ?5
               UNION SELECT name FROM locks WHERE host = ?2 AND repo = ?3 AND dir = ?4 AND workspace = ?5
               UNION SELECT name FROM owners WHERE host = ?2 AND repo = ?3 AND dir = ?4 AND dir <> '' AND workspace = ?5
               UNION SELECT name FROM drift WHERE host = ?2 AND repo = ?3 AND dir = ?4 AND workspace = ?5)
             ORDER BY name LIMIT ?6",
            params![repo.to_string(), repo.host, repo.full_name(), project.dir, project.workspace, rows(limit)],
        )
    }

    /// Returns the latest finding of drift runs on a state of a repository, on any branch.
    pub fn latest_drift_on(&self, repo: &RepoId, project: &ProjectId) -> Result<Option<ProjectDrift>> {
        self.record(
            "SELECT record FROM drift INDEXED BY drift_states WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4
             ORDER BY checked DESC LIMIT 1",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }
}
