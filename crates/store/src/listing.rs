//! Lists for the dashboard: search, number of matches, and one page of rows.

use super::{View, rows, word};
use anyhow::Result;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};
use serde::de::DeserializeOwned;
use tidelock_core::domain::ownership::ProjectOwner;
use tidelock_core::domain::state::{Job, ProjectLock, ProjectState, ProjectStatus};
use tidelock_core::domain::{ProjectId, PullId, PullRequest, RepoId};
use tidelock_core::locks::waits_for;

/// Maximum number of words in a search; further ones are ignored.
const MAX_WORDS: usize = 8;

/// Longest word of a search, in characters.
const MAX_WORD: usize = 100;

/// Maximum number of finished jobs, the newest ones, among which a search looks.
const MAX_SEARCHED: usize = 3_000;

/// All project states, for the words under which a search finds them.
const STATES: [ProjectState; 10] = [
    ProjectState::PlanErrored,
    ProjectState::Planned,
    ProjectState::PlannedNoChanges,
    ProjectState::ApplyErrored,
    ProjectState::Applied,
    ProjectState::PlanDiscarded,
    ProjectState::PlanInvalidated,
    ProjectState::Deferred,
    ProjectState::PlannedInPart,
    ProjectState::AppliedInPart,
];

/// [`ProjectStatus::has_failed`] as a condition in SQL.
pub(super) const FAILED: &str =
    "(state = 'apply_errored' OR (state = 'plan_errored' AND json_extract(record, '$.job') IS NOT NULL))";

/// SQL condition of a listed pull request: open, with a project, a lock, or a plan that failed as a whole.
const LISTED_PULLS: &str =
    "p.open AND (p.pull IN (SELECT pull FROM project_statuses) OR p.pull IN (SELECT pull FROM locks)
     OR json_extract(p.record, '$.fault') IS NOT NULL)";

/// Words that a row must all contain, ignoring the case of ASCII letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    words: Vec<String>,
}

impl Search {
    /// Takes the first eight words of a text, each cut to a hundred characters. A search without words matches everything.
    pub fn new(text: &str) -> Search {
        let cut = |word: &str| word.chars().take(MAX_WORD).collect::<String>().to_ascii_lowercase();
        Search { words: text.split_whitespace().take(MAX_WORDS).map(cut).collect() }
    }

    /// Returns the SQL condition that the expression `text` contains all words, with parameters for [`Search::values`].
    pub(super) fn condition(&self, text: &str) -> String {
        let one = |number: usize| format!(" AND instr(lower({text}), ?{number}) > 0");
        (1..=self.words.len()).map(one).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        self.words.iter().map(|word| Value::Text(word.clone()))
    }
}

/// A page of a list to load.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// The search.
    pub search: Search,
    /// Number of matching rows to skip.
    pub offset: usize,
    /// Maximum number of rows.
    pub limit: usize,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Number of matching rows on all pages.
    pub fitting: usize,
    /// Number of all rows, matching or not.
    pub all: usize,
}

/// An open pull request in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedPull {
    /// The pull request as last recorded.
    pub pull: PullRequest,
    /// Statuses of its projects.
    pub statuses: Vec<ProjectStatus>,
    /// Reason why its last plan of all projects failed as a whole, in one line; absent if it did not.
    pub fault: Option<String>,
    /// Locks of other pull requests that block its projects.
    pub blocked_by: Vec<ProjectLock>,
}

/// The SQL of a list.
struct ListQuery {
    /// Table with its alias, and joins.
    from: String,
    /// Condition of the listed rows.
    wanted: String,
    /// SQL expression of the text that is searched.
    text: String,
    order: String,
}

impl View<'_> {
    /// Lists open pull requests with a project, a lock or a plan that failed as a whole; failed ones first, then by latest
    /// activity.
    pub fn list_pulls(&self, window: &Window) -> Result<Found<ListedPull>> {
        let list = ListQuery {
            from: "pulls p".into(),
            wanted: LISTED_PULLS.into(),
            text: format!(
                "p.pull || ' ' || json_extract(p.record, '$.title') || ' ' || json_extract(p.record, '$.author') || ' ' ||
                 json_extract(p.record, '$.head.branch') || ' ' || iif(json_extract(p.record, '$.draft'), 'draft ', '') ||
                 iif(json_extract(p.record, '$.fault') IS NULL, '', 'plan failed ' || json_extract(p.record, '$.fault')) ||
                 coalesce((SELECT group_concat(' ' || dir || '/' || workspace || ' ' || name || ' ' || {})
                           FROM project_statuses WHERE pull = p.pull), '')",
                state_words()?
            ),
            order: format!(
                "(json_extract(p.record, '$.fault') IS NOT NULL
                  OR EXISTS (SELECT 1 FROM project_statuses WHERE pull = p.pull AND {FAILED})) DESC, p.activity DESC"
            ),
        };
        self.list(&list, window)?.map(|pull: PullRequest| self.listed(pull))
    }

    /// Lists project locks, the newest first, each with the status of its project on the pull request that holds it.
    pub fn list_locks(&self, window: &Window) -> Result<Found<(ProjectLock, Option<ProjectStatus>)>> {
        let list = ListQuery {
            from: "locks l".into(),
            wanted: "1".into(),
            text: format!(
                "l.pull || ' ' || l.dir || '/' || l.workspace || ' ' || l.name || ' ' || json_extract(l.record, '$.holder.title')
                 || ' ' || json_extract(l.record, '$.holder.user') || ' ' ||
                 coalesce((SELECT {} FROM project_statuses s WHERE s.pull = l.pull AND s.dir = l.dir
                           AND s.workspace = l.workspace AND s.name = l.name), '')",
                state_words()?
            ),
            order: "l.since DESC, l.seq DESC".into(),
        };
        self.list(&list, window)?.map(|lock: ProjectLock| {
            let status = self.project_status(&lock.holder.pull, &lock.project)?;
            Ok((lock, status))
        })
    }

    /// Lists owners of projects in mode `strict`. Owners whose pull request is merged or closed are first.
    pub fn list_owners(&self, window: &Window) -> Result<Found<ProjectOwner>> {
        let list = ListQuery {
            from: "owners o".into(),
            wanted: "1".into(),
            text: "o.pull || ' ' || o.dir || '/' || o.workspace || ' ' || o.name || ' ' || replace(o.state, '_', ' ') || ' ' ||
                   json_extract(o.record, '$.holder.title') || ' ' || json_extract(o.record, '$.holder.user')"
                .into(),
            order: "o.state IN ('closed_applied', 'merged_unapplied', 'merged_unknown') DESC, o.seq DESC".into(),
        };
        self.list(&list, window)
    }

    /// Lists finished jobs, newest first, each with its pull request. A search looks at a bounded number of them, which is then that of all.
    pub fn list_ended_jobs(&self, window: &Window) -> Result<Found<(Job, Option<PullRequest>)>> {
        let mut wanted = "j.state <> 'running'".to_owned();
        if !window.search.words.is_empty() {
            wanted += &format!(
                " AND j.seq >= coalesce((SELECT seq FROM jobs WHERE state <> 'running' ORDER BY seq DESC LIMIT 1 OFFSET {}), 0)",
                MAX_SEARCHED - 1
            );
        }
        let list = ListQuery {
            from: "jobs j LEFT JOIN pulls p ON p.pull = j.pull".into(),
            wanted,
            text: format!("{JOB_TEXT} || ' ' || j.state || ' ' || json_extract(j.record, '$.summary')"),
            order: "j.seq DESC".into(),
        };
        self.list(&list, window)?.map(|job: Job| self.with_pull(job))
    }

    /// Lists running jobs in the order in which they were recorded, each with its pull request.
    pub fn list_running_jobs(&self, window: &Window) -> Result<Found<(Job, Option<PullRequest>)>> {
        let list = ListQuery {
            from: "jobs j LEFT JOIN pulls p ON p.pull = j.pull".into(),
            wanted: "j.state = 'running'".into(),
            text: format!("{JOB_TEXT} || ' running'"),
            order: "j.seq".into(),
        };
        self.list(&list, window)?.map(|job: Job| self.with_pull(job))
    }

    /// Counts failed projects of open pull requests, and plans that failed as a whole.
    pub fn failures(&self) -> Result<usize> {
        let sql = format!(
            "SELECT (SELECT count(*) FROM project_statuses WHERE {FAILED} AND pull IN (SELECT pull FROM pulls WHERE open))
                  + (SELECT count(*) FROM pulls WHERE open AND json_extract(record, '$.fault') IS NOT NULL)"
        );
        self.count(&sql, Vec::new())
    }

    /// Lists open pull requests of these repositories, or of all if there are none, from the latest activity on, and at most `limit`. `after` is
    /// the activity of the last one before. The second value is that of the last one here, if there may be more.
    pub fn list_open_pulls(
        &self,
        repos: &[RepoId],
        after: Option<i64>,
        limit: usize,
    ) -> Result<(Vec<ListedPull>, Option<i64>)> {
        let of_repos = match repos.len() {
            0 => String::new(),
            many => format!(" AND rtrim(pull, '0123456789') IN ({})", vec!["?"; many].join(", ")),
        };
        let sql = format!(
            "SELECT activity, pull FROM pulls INDEXED BY pulls_open
             WHERE open AND activity < ?{of_repos} ORDER BY activity DESC LIMIT ?"
        );
        let names = repos.iter().map(|repo| Value::Text(format!("{repo}#")));
        let after = Value::Integer(after.unwrap_or(i64::MAX));
        let values = std::iter::once(after).chain(names).chain([Value::Integer(rows(limit.saturating_add(1)))]);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut found: Vec<(i64, String)> = found.collect::<rusqlite::Result<_>>()?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().map(|(activity, _)| *activity).filter(|_| has_more);
        let mut listed = Vec::new();
        for (_, pull) in &found {
            let pull = self.record("SELECT record FROM pulls WHERE pull = ?1", [pull])?;
            listed.extend(pull.map(|pull: PullRequest| self.listed(pull)).transpose()?);
        }
        Ok((listed, last))
    }

    fn listed(&self, pull: PullRequest) -> Result<ListedPull> {
        let id = pull.id.clone();
        let statuses = self.project_statuses(&id)?;
        let mut blocked_by = Vec::new();
        for status in statuses.iter().filter(|status| status.was_not_planned()) {
            let locks = self.locks_of_state(&id.repo, &status.project)?;
            blocked_by.extend(locks.into_iter().find(|lock| waits_for(&id, status, lock)));
        }
        Ok(ListedPull { fault: self.fault(&id)?, pull, statuses, blocked_by })
    }

    fn with_pull(&self, job: Job) -> Result<(Job, Option<PullRequest>)> {
        let pull = self.pull(&job.pull)?;
        Ok((job, pull))
    }

    pub(super) fn project_status(&self, pull: &PullId, project: &ProjectId) -> Result<Option<ProjectStatus>> {
        let name = project.name.as_deref().unwrap_or("");
        self.record(
            "SELECT record FROM project_statuses WHERE pull = ?1 AND dir = ?2 AND workspace = ?3 AND name = ?4",
            [&pull.to_string(), &project.dir, &project.workspace, name],
        )
    }

    /// Loads one page of a list. A search reads the searched texts once, and the records of the page by their numbers.
    fn list<T: DeserializeOwned>(&self, list: &ListQuery, window: &Window) -> Result<Found<T>> {
        let ListQuery { from, wanted, text, order } = list;
        let all = self.count(&format!("SELECT count(*) FROM {from} WHERE {wanted}"), Vec::new())?;
        // The first table is the listed one.
        let mut words = from.split(' ');
        let (table, letter) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if window.search.words.is_empty() {
            let sql = format!("SELECT {letter}.record FROM {from} WHERE {wanted} ORDER BY {order} LIMIT ?1 OFFSET ?2");
            return Ok(Found {
                rows: self.records(&sql, [rows(window.limit), rows(window.offset)])?,
                fitting: all,
                all,
            });
        }
        let fits = window.search.condition(text);
        let sql = format!("SELECT {letter}.seq FROM {from} WHERE {wanted}{fits} ORDER BY {order}");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let fitting = statement.query_map(params_from_iter(window.search.values()), |row| row.get(0))?;
        let fitting: Vec<i64> = fitting.collect::<rusqlite::Result<_>>()?;
        let record = format!("SELECT record FROM {table} WHERE seq = ?1");
        let page = fitting.iter().skip(window.offset).take(window.limit);
        let found = page.map(|seq| self.record(&record, [seq]));
        let records = found.filter_map(Result::transpose).collect::<Result<_>>()?;
        Ok(Found { rows: records, fitting: fitting.len(), all })
    }

    fn count(&self, sql: &str, values: Vec<Value>) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let count: Option<i64> = statement.query_row(params_from_iter(values), |row| row.get(0)).optional()?;
        Ok(usize::try_from(count.unwrap_or_default())?)
    }
}

/// SQL expression of the text of a job that is searched, without its result.
const JOB_TEXT: &str = "j.pull || ' ' || replace(json_extract(j.record, '$.kind'), '_', ' ') || ' ' || json_extract(j.record, '$.user')
     || ' ' || coalesce(json_extract(j.record, '$.project.dir') || '/' || json_extract(j.record, '$.project.workspace'), '')
     || ' ' || coalesce(json_extract(j.record, '$.project.name'), '') || ' ' || coalesce(json_extract(p.record, '$.title'), '')";

/// Returns the SQL expression that converts the column `state` to the words of the pages.
fn state_words() -> Result<String> {
    let cases = STATES.iter().map(|state| Ok(format!("WHEN '{}' THEN '{}'", word(state)?, state.title())));
    Ok(format!("CASE state {} ELSE state END", cases.collect::<Result<Vec<_>>>()?.join(" ")))
}

impl<T> Found<T> {
    fn map<U>(self, make: impl FnMut(T) -> Result<U>) -> Result<Found<U>> {
        let rows = self.rows.into_iter().map(make).collect::<Result<Vec<_>>>()?;
        Ok(Found { rows, fitting: self.fitting, all: self.all })
    }
}
