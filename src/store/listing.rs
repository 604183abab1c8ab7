//! Lists for people: which rows fit the words that were looked for, how many there are, and one page of them.

use super::{View, parse, rows, word};
use crate::domain::state::{Job, ProjectLock, ProjectState, ProjectStatus};
use crate::domain::{ProjectId, PullId, PullRequest};
use crate::locks::waits_for;
use anyhow::Result;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};
use serde::de::DeserializeOwned;

/// Most words that are looked for; the others are left out.
const MAX_WORDS: usize = 8;

/// Longest word that is looked for, in characters.
const MAX_WORD: usize = 100;

/// All states of a project, for the words that a search knows them by.
const STATES: [ProjectState; 6] = [
    ProjectState::PlanErrored,
    ProjectState::Planned,
    ProjectState::PlannedNoChanges,
    ProjectState::ApplyErrored,
    ProjectState::Applied,
    ProjectState::PlanDiscarded,
];

/// A project that failed: one that was not planned at all, because of another pull request's lock, did not.
const FAILED: &str =
    "(state = 'apply_errored' OR (state = 'plan_errored' AND json_extract(record, '$.job') IS NOT NULL))";

/// Open pull requests that are listed: with a project, a lock, or a plan that failed as a whole.
const LISTED_PULLS: &str =
    "p.open AND (p.pull IN (SELECT pull FROM project_statuses) OR p.pull IN (SELECT pull FROM locks)
     OR json_extract(p.record, '$.fault') IS NOT NULL)";

/// Words that have to occur, all of them; capital letters of ASCII count as small ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    words: Vec<String>,
}

impl Search {
    /// The words of a text; none: everything fits. No more than eight words of a hundred characters are looked for.
    pub fn new(text: &str) -> Search {
        let cut = |word: &str| word.chars().take(MAX_WORD).collect::<String>().to_ascii_lowercase();
        Search { words: text.split_whitespace().take(MAX_WORDS).map(cut).collect() }
    }

    /// The condition that `text`, an SQL expression, has all the words; their places are filled with [`Search::values`].
    fn condition(&self, text: &str) -> String {
        let one = |number: usize| format!(" AND instr(lower({text}), ?{number}) > 0");
        (1..=self.words.len()).map(one).collect()
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        self.words.iter().map(|word| Value::Text(word.clone()))
    }
}

/// Which rows of a list are shown.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// What they have to say.
    pub search: Search,
    /// How many that fit are passed over.
    pub offset: usize,
    /// Most rows.
    pub limit: usize,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// How many rows fit, on all pages.
    pub fitting: usize,
    /// How many rows there are, also those that do not fit.
    pub all: usize,
}

/// An open pull request in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedPull {
    /// As it was last recorded.
    pub pull: PullRequest,
    /// Where its projects stand.
    pub statuses: Vec<ProjectStatus>,
    /// Why its last plan of everything failed as a whole, in one line; absent when it did not.
    pub fault: Option<String>,
    /// Locks of others that keep its projects from being planned.
    pub blocked_by: Vec<ProjectLock>,
}

/// What a list is made of, in SQL.
struct ListQuery {
    /// Table with its letter, and what is joined to it.
    from: String,
    /// Which rows are listed at all.
    wanted: &'static str,
    /// What a search looks through.
    text: String,
    order: String,
}

impl View<'_> {
    /// Open pull requests that have a project, a lock or a plan that failed as a whole; those with a failure come first, then the
    /// one with the latest activity.
    pub fn list_pulls(&self, window: &Window) -> Result<Found<ListedPull>> {
        let list = ListQuery {
            from: "pulls p".into(),
            wanted: LISTED_PULLS,
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

    /// Project locks, the newest first, each with the status of its project on the pull request that holds it.
    pub fn list_locks(&self, window: &Window) -> Result<Found<(ProjectLock, Option<ProjectStatus>)>> {
        let list = ListQuery {
            from: "locks l".into(),
            wanted: "1",
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

    /// Jobs that have ended, the newest first, each with its pull request.
    pub fn list_ended_jobs(&self, window: &Window) -> Result<Found<(Job, Option<PullRequest>)>> {
        let list = ListQuery {
            from: "jobs j LEFT JOIN pulls p ON p.pull = j.pull".into(),
            wanted: "j.state <> 'running'",
            text: format!("{JOB_TEXT} || ' ' || j.state || ' ' || json_extract(j.record, '$.summary')"),
            order: "j.seq DESC".into(),
        };
        self.list(&list, window)?.map(|job: Job| self.with_pull(job))
    }

    /// Jobs that are running, in the order they were recorded, each with its pull request.
    pub fn list_running_jobs(&self, window: &Window) -> Result<Found<(Job, Option<PullRequest>)>> {
        let list = ListQuery {
            from: "jobs j LEFT JOIN pulls p ON p.pull = j.pull".into(),
            wanted: "j.state = 'running'",
            text: format!("{JOB_TEXT} || ' running'"),
            order: "j.seq".into(),
        };
        self.list(&list, window)?.map(|job: Job| self.with_pull(job))
    }

    /// How many projects of open pull requests failed, and plans that failed as a whole.
    pub fn failures(&self) -> Result<usize> {
        let sql = format!(
            "SELECT (SELECT count(*) FROM project_statuses WHERE {FAILED} AND pull IN (SELECT pull FROM pulls WHERE open))
                  + (SELECT count(*) FROM pulls WHERE open AND json_extract(record, '$.fault') IS NOT NULL)"
        );
        self.count(&sql, Vec::new())
    }

    fn listed(&self, pull: PullRequest) -> Result<ListedPull> {
        let id = pull.id.clone();
        let statuses = self.project_statuses(&id)?;
        let mut blocked_by = Vec::new();
        for status in statuses.iter().filter(|status| status.was_not_planned()) {
            let lock = self.project_lock(&id.repo, &status.project)?;
            blocked_by.extend(lock.filter(|lock| waits_for(&id, status, lock)));
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

    fn list<T: DeserializeOwned>(&self, list: &ListQuery, window: &Window) -> Result<Found<T>> {
        let ListQuery { from, wanted, text, order } = list;
        let fits = window.search.condition(text);
        let all = self.count(&format!("SELECT count(*) FROM {from} WHERE {wanted}"), Vec::new())?;
        let fitting = match window.search.words.is_empty() {
            true => all,
            false => self.count(
                &format!("SELECT count(*) FROM {from} WHERE {wanted}{fits}"),
                window.search.values().collect(),
            )?,
        };
        // The first table named is the one that is listed.
        let letter = from.split(' ').nth(1).unwrap_or_default();
        let bounds = window.search.words.len();
        let sql = format!(
            "SELECT {letter}.record FROM {from} WHERE {wanted}{fits} ORDER BY {order} LIMIT ?{} OFFSET ?{}",
            bounds + 1,
            bounds + 2
        );
        let numbers = [window.limit, window.offset].map(|number| Value::Integer(rows(number)));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(window.search.values().chain(numbers)))?;
        let mut records = Vec::new();
        while let Some(row) = found.next()? {
            records.push(parse(row.get_ref(0)?.as_str()?)?);
        }
        Ok(Found { rows: records, fitting, all })
    }

    fn count(&self, sql: &str, values: Vec<Value>) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let count: Option<i64> = statement.query_row(params_from_iter(values), |row| row.get(0)).optional()?;
        Ok(usize::try_from(count.unwrap_or_default())?)
    }
}

/// What a search of jobs looks through, but for their results.
const JOB_TEXT: &str = "j.pull || ' ' || replace(json_extract(j.record, '$.kind'), '_', ' ') || ' ' || json_extract(j.record, '$.user')
     || ' ' || coalesce(json_extract(j.record, '$.project.dir') || '/' || json_extract(j.record, '$.project.workspace'), '')
     || ' ' || coalesce(json_extract(j.record, '$.project.name'), '') || ' ' || coalesce(json_extract(p.record, '$.title'), '')";

/// The SQL expression that turns the column `state` into the words that people read.
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
