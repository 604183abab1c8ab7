//! The history of runs for pages: filters, pages by cursor, and what a page shows of one pull request.

use super::{View, parse, rows};
use anyhow::{Context, Result};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, ToSql, params_from_iter};
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::state::Run;
use tidelock_core::domain::{ProjectId, PullId, PullRequest, RepoId, RunId};

/// Result of a run, as in the index `runs_history`.
const RESULT: &str = "CASE WHEN finished IS NULL THEN 'running'
    ELSE coalesce(json_extract(record, '$.end'), iif(json_extract(record, '$.answered'), 'ended', 'stopped')) END";

/// Runs of a person, whose login may be followed by the name that people see. The values are the login in small letters, and what names follow
/// and precede. The expression is in the index `runs_history`.
const OF_PERSON: &str = "(lower(json_extract(record, '$.user')) = ?
    OR (lower(json_extract(record, '$.user')) > ? AND lower(json_extract(record, '$.user')) < ?))";

/// Runs with a job of a project, or that have refused it: by directory, name, directory and workspace, or all three.
const WITH_PROJECT: &str = "seq IN (SELECT runs.seq FROM jobs INDEXED BY jobs_projects JOIN runs ON runs.id = jobs.run
     WHERE {pull} AND (json_extract(jobs.record, '$.project.dir') = ?
       OR json_extract(jobs.record, '$.project.name') = ?
       OR json_extract(jobs.record, '$.project.dir') || '/' || json_extract(jobs.record, '$.project.workspace') = ?
       OR json_extract(jobs.record, '$.project.dir') || '/' || json_extract(jobs.record, '$.project.workspace') || '/'
          || coalesce(json_extract(jobs.record, '$.project.name'), '') = ?)
     UNION ALL SELECT runs.seq FROM refused_projects INDEXED BY refused_projects_run JOIN runs ON runs.id = refused_projects.run
     WHERE dir = ? OR name = ? OR dir || '/' || workspace = ? OR dir || '/' || workspace || '/' || name = ?)";

/// Runs with a job on a state of a repository, or that have refused it.
const ON_STATE: &str = "seq IN (SELECT runs.seq FROM jobs INDEXED BY jobs_states JOIN runs ON runs.id = jobs.run
     WHERE rtrim(jobs.pull, '0123456789') = ? AND json_extract(jobs.record, '$.project.dir') = ?
       AND json_extract(jobs.record, '$.project.workspace') = ?
     UNION ALL SELECT runs.seq FROM refused_projects JOIN runs ON runs.id = refused_projects.run
     WHERE rtrim(runs.pull, '0123456789') = ? AND dir = ? AND workspace = ?)";

/// Results of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// It has not ended.
    Running,
    /// It was answered, and nothing of it failed.
    Succeeded,
    /// Something of it failed or was refused.
    Failed,
    /// It was refused only where other pull requests had the projects.
    Locked,
    /// It was cancelled, superseded or interrupted.
    Stopped,
    /// An earlier version has not recorded how it ended.
    Ended,
}

impl RunResult {
    /// All of them.
    pub const ALL: [RunResult; 6] = [
        RunResult::Running,
        RunResult::Succeeded,
        RunResult::Failed,
        RunResult::Locked,
        RunResult::Stopped,
        RunResult::Ended,
    ];

    /// Returns the word in addresses and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            RunResult::Running => "running",
            RunResult::Succeeded => "succeeded",
            RunResult::Failed => "failed",
            RunResult::Locked => "locked",
            RunResult::Stopped => "stopped",
            RunResult::Ended => "ended",
        }
    }

    /// Returns the result with this word.
    pub fn of_word(word: &str) -> Option<RunResult> {
        RunResult::ALL.into_iter().find(|result| result.as_str() == word)
    }
}

/// Conditions that a listed run must all meet.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// It is of one of these repositories; empty for all.
    pub repos: Vec<RepoId>,
    /// Number of its pull request in these repositories; no run has one without repositories.
    pub number: Option<u64>,
    /// It has a job of this project, or has refused it: `dir`, `name`, `dir/workspace` or `dir/workspace/name`.
    pub project: Option<String>,
    /// It has a job on this state of a repository, or has refused it, whatever the name.
    pub state: Option<(RepoId, ProjectId)>,
    /// The person who asked; case is ignored.
    pub person: Option<String>,
    /// Its command.
    pub command: Option<CommandName>,
    /// Its result.
    pub result: Option<RunResult>,
}

/// Position of a page in the list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunCursor {
    /// The newest runs.
    #[default]
    Newest,
    /// Runs that are older than this one.
    After(i64),
    /// Runs that are newer than this one.
    Before(i64),
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedRun {
    /// The run.
    pub run: Run,
    /// Its result.
    pub result: RunResult,
    /// Its pull request as last recorded.
    pub pull: Option<PullRequest>,
}

/// A page of the list of runs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct RunsFound {
    /// The runs.
    pub rows: Vec<ListedRun>,
    /// Cursor of the page of newer runs, if there are any.
    pub newer: Option<RunCursor>,
    /// Cursor of the page of older runs, if there are any.
    pub older: Option<RunCursor>,
}

impl RunFilter {
    /// Returns the index for this filter, its SQL condition, and the values of that.
    fn condition(&self) -> (&'static str, String, Vec<Value>) {
        let (mut parts, mut values) = (vec!["1".to_owned()], Vec::new());
        let mut index = "runs_history";
        let text = |text: String| Value::Text(text);
        let places = |count: usize| vec!["?"; count].join(", ");
        let pulls = |number: u64| -> Vec<Value> {
            self.repos.iter().map(|repo| text(PullId { repo: repo.clone(), number }.to_string())).collect()
        };
        if let Some(number) = self.number {
            index = "runs_pull";
            parts.push(format!("pull IN ({})", places(self.repos.len())));
            values.extend(pulls(number));
        } else if !self.repos.is_empty() {
            parts.push(format!("({})", vec!["pull > ? AND pull < ?"; self.repos.len()].join(" OR ")));
            values.extend(self.repos.iter().flat_map(|repo| [text(format!("{repo}#")), text(format!("{repo}$"))]));
        }
        if let Some(person) = &self.person {
            let login = person.to_ascii_lowercase();
            // Shown names begin with this character, and no login has it.
            let shown = ['\u{1f}', '\u{20}'].map(|end| text(format!("{login}{end}")));
            parts.push(OF_PERSON.to_owned());
            values.push(text(login));
            values.extend(shown);
        }
        if let Some(command) = self.command {
            parts.push("json_extract(record, '$.command') = ?".to_owned());
            values.push(text(command.as_str().to_owned()));
        }
        if let Some(result) = self.result {
            parts.push(format!("{RESULT} = ?"));
            values.push(text(result.as_str().to_owned()));
        }
        if let Some(project) = &self.project {
            let of_pulls = match self.number {
                Some(number) => {
                    values.extend(pulls(number));
                    format!("jobs.pull IN ({})", places(self.repos.len()))
                }
                None => "1".to_owned(),
            };
            parts.push(WITH_PROJECT.replace("{pull}", &of_pulls));
            values.extend(std::iter::repeat_n(text(project.clone()), 8));
        }
        if let Some((repo, project)) = &self.state {
            parts.push(ON_STATE.to_owned());
            let state = [format!("{repo}#"), project.dir.clone(), project.workspace.clone()];
            values.extend(state.iter().chain(&state).cloned().map(Value::Text));
        }
        if self.number.is_none() && !self.repos.is_empty() {
            // Names of repositories may contain a `#` themselves. The check is slow, so it comes last.
            parts.push(format!("rtrim(pull, '0123456789') IN ({})", places(self.repos.len())));
            values.extend(self.repos.iter().map(|repo| text(format!("{repo}#"))));
        }
        (index, parts.join(" AND "), values)
    }

    /// Returns the SQL of the numbers of matching runs on one side of a cursor, nearest first. The last two parameters are the cursor and
    /// the maximum number of rows.
    pub(super) fn numbers(&self, is_newer: bool) -> (String, Vec<Value>) {
        let (index, condition, values) = self.condition();
        let (side, order) = if is_newer { (">", "ASC") } else { ("<", "DESC") };
        let sql = format!(
            "SELECT seq FROM runs INDEXED BY {index} WHERE {condition} AND seq {side} ? ORDER BY seq {order} LIMIT ?"
        );
        (sql, values)
    }
}

impl View<'_> {
    /// Lists a page of matching runs.
    pub fn list_runs(&self, filter: &RunFilter, cursor: RunCursor, limit: usize) -> Result<RunsFound> {
        let (from, is_newer) = match cursor {
            RunCursor::Newest => (i64::MAX, false),
            RunCursor::After(seq) => (seq, false),
            RunCursor::Before(seq) => (seq, true),
        };
        let mut numbers = self.run_numbers(filter, from, is_newer, limit.saturating_add(1))?;
        let has_more = numbers.len() > limit;
        numbers.truncate(limit);
        if is_newer {
            numbers.reverse();
        }
        let (first, last) = match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) => (*first, *last),
            // A page that is past an end leads back.
            _ if is_newer => (from, from.saturating_add(1)),
            _ => (from.saturating_sub(1), from),
        };
        let beyond = |seq, newer| -> Result<bool> { Ok(!self.run_numbers(filter, seq, newer, 1)?.is_empty()) };
        let has_newer = if is_newer { has_more } else { cursor != RunCursor::Newest && beyond(first, true)? };
        let has_older = if is_newer { beyond(last, false)? } else { has_more };
        Ok(RunsFound {
            rows: numbers
                .into_iter()
                .map(|seq| self.listed_run("seq = ?1", &seq))
                .filter_map(Result::transpose)
                .collect::<Result<_>>()?,
            newer: has_newer.then_some(RunCursor::Before(first)),
            older: has_older.then_some(RunCursor::After(last)),
        })
    }

    fn run_numbers(&self, filter: &RunFilter, from: i64, is_newer: bool, limit: usize) -> Result<Vec<i64>> {
        let (sql, mut values) = filter.numbers(is_newer);
        values.extend([from, rows(limit)].map(Value::Integer));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let numbers = statement.query_map(params_from_iter(values), |row| row.get(0))?;
        Ok(numbers.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns a run with its result.
    pub fn run_with_result(&self, id: &RunId) -> Result<Option<ListedRun>> {
        self.listed_run("id = ?1", &id.as_str())
    }

    fn listed_run(&self, condition: &str, key: &dyn ToSql) -> Result<Option<ListedRun>> {
        let sql = format!("SELECT record, {RESULT} FROM runs WHERE {condition}");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found: Option<(String, String)> =
            statement.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((record, result)) = found else { return Ok(None) };
        let run: Run = parse(&record)?;
        let pull = self.pull(&run.pull)?;
        Ok(Some(ListedRun { run, result: result_of(&result)?, pull }))
    }

    /// Returns the latest runs of a pull request, newest first.
    pub fn runs_of_pull(&self, pull: &PullId, limit: usize) -> Result<Vec<ListedRun>> {
        let filter = RunFilter { repos: vec![pull.repo.clone()], number: Some(pull.number), ..RunFilter::default() };
        Ok(self.list_runs(&filter, RunCursor::Newest, limit)?.rows)
    }
}

fn result_of(word: &str) -> Result<RunResult> {
    RunResult::of_word(word).with_context(|| format!("{word:?} is no result of a run"))
}
