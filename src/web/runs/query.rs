//! Filters and cursor of the list of runs, in the query of its address.

use crate::domain::command::CommandName;
use crate::domain::{PullId, RepoId};
use crate::store::{RunCursor, RunFilter, RunResult};
use crate::web::filters::{self, GivenFilter, one_of};
use serde::Serialize;

/// Parsed query of the address. An empty text means no filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(in crate::web) struct RunQuery {
    repository: String,
    pull: Option<u64>,
    project: String,
    person: String,
    command: Option<CommandName>,
    result: &'static str,
    #[serde(skip)]
    pub(super) cursor: RunCursor,
}

/// Value of the filter by pull request that finds drift runs.
const OF_DRIFT: &str = "drift";

/// Number of drift runs, which are for a branch ([`PullId::of_branches`]).
const NO_PULL: u64 = 0;

/// Returns the commands that make a run.
pub(super) fn commands_with_run() -> impl Iterator<Item = CommandName> {
    CommandName::ALL.into_iter().filter(|name| name.spec().makes_run)
}

/// Parses a cursor, whose name says on which side of a run the page is.
pub(in crate::web) fn parse_run_cursor(given: &GivenFilter<'_>) -> Result<RunCursor, String> {
    let place = given.value.parse::<i64>().ok().filter(|place| *place > 0);
    let place = place.ok_or_else(|| given.unusable("it comes from a link to another page."))?;
    Ok(if given.name == "after" { RunCursor::After(place) } else { RunCursor::Before(place) })
}

/// Returns name and value of a cursor in an address; the value of the first page is empty.
pub(in crate::web) fn run_cursor(cursor: RunCursor) -> (&'static str, String) {
    match cursor {
        RunCursor::Newest => ("after", String::new()),
        RunCursor::After(place) => ("after", place.to_string()),
        RunCursor::Before(place) => ("before", place.to_string()),
    }
}

impl RunQuery {
    /// Returns true if it asks for drift runs.
    pub(super) fn is_of_drift_runs(&self) -> bool {
        self.pull == Some(NO_PULL)
    }

    /// Parses a query. The error names the filter and the reason.
    pub(super) fn parse(query: &str) -> Result<RunQuery, String> {
        let mut parsed = RunQuery::default();
        for given in GivenFilter::all(query)? {
            let wrong = |because: &str| given.unusable(because);
            let value = given.value.as_str();
            match &*given.name {
                "repository" => parsed.repository = value.to_owned(),
                "project" => parsed.project = value.to_owned(),
                "person" => parsed.person = value.to_owned(),
                "pull" if value == OF_DRIFT => parsed.pull = Some(NO_PULL),
                "pull" => parsed.pull = Some(given.pull_number()?),
                "command" => {
                    let command = commands_with_run().find(|name| name.as_str() == value);
                    let all = || one_of(commands_with_run().map(CommandName::as_str));
                    parsed.command = Some(command.ok_or_else(|| wrong(&all()))?);
                }
                "result" => {
                    let all = || one_of(RunResult::ALL.iter().map(|result| result.as_str()));
                    parsed.result = RunResult::of_word(value).ok_or_else(|| wrong(&all()))?.as_str();
                }
                "after" | "before" => {
                    let cursor = parse_run_cursor(&given)?;
                    if parsed.cursor != RunCursor::Newest {
                        return Err(wrong("a page is either after a run or before one."));
                    }
                    parsed.cursor = cursor;
                }
                _ => return Err(wrong("the filters are repository, pull, project, person, command and result.")),
            }
        }
        Ok(parsed)
    }

    /// Returns the query for all runs of a pull request.
    pub(in crate::web) fn of_pull(pull: &PullId) -> RunQuery {
        RunQuery { repository: pull.repo.to_string(), pull: Some(pull.number), ..RunQuery::default() }
    }

    pub(super) fn has_filter(&self) -> bool {
        *self != RunQuery { cursor: self.cursor, ..RunQuery::default() }
    }

    /// Returns the filter for the state. The error names the repository that is not among those that are served.
    pub(super) fn filter(&self, served: &[RepoId]) -> Result<RunFilter, String> {
        let mut repos = filters::repositories(&self.repository, served)?;
        if self.repository.is_empty() && self.pull.is_some() {
            repos = served.to_vec();
        }
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Ok(RunFilter {
            repos,
            number: self.pull,
            project: given(&self.project),
            state: None,
            person: given(&self.person),
            command: self.command,
            result: RunResult::of_word(self.result),
        })
    }

    /// Returns the address of a page with the same filters, relative to `/`.
    pub(in crate::web) fn address(&self, cursor: RunCursor) -> String {
        self.address_of("runs", cursor)
    }

    /// Returns the address of another list with the same filters.
    pub(super) fn address_of(&self, list: &str, cursor: RunCursor) -> String {
        let of_pull = |number: u64| if number == NO_PULL { OF_DRIFT.to_owned() } else { number.to_string() };
        let pull = self.pull.map(of_pull).unwrap_or_default();
        let command = self.command.map(CommandName::as_str).unwrap_or_default();
        let (side, place) = run_cursor(cursor);
        let parameters = [
            ("repository", self.repository.as_str()),
            ("pull", &pull),
            ("project", &self.project),
            ("person", &self.person),
            ("command", command),
            ("result", self.result),
            (side, &place),
        ];
        filters::address(list, &parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_parsed_and_written_again() {
        let address = "repository=acme%2Finfra&pull=7&project=a+b%2Fdefault&person=bob&command=apply&result=failed";
        let query = RunQuery::parse(&format!("{address}&after=12")).unwrap();
        assert_eq!(query.address(query.cursor), format!("runs?{address}&after=12"));
        assert_eq!(query.address(RunCursor::Before(40)), format!("runs?{address}&before=40"));
        let empty = RunQuery::parse("repository=&pull=&command=&person=+").unwrap();
        assert_eq!((empty.has_filter(), empty.address(RunCursor::Newest)), (false, "runs".to_owned()));
        assert_eq!(RunQuery::parse("pull=%237").unwrap().pull, Some(7), "#7");
        let repo = RepoId { host: "h".into(), owner: "o".into(), name: "r".into() };
        let of_drift = RunQuery::of_pull(&PullId::of_branches(repo));
        let address = of_drift.address(RunCursor::Newest);
        assert_eq!(address, "runs?repository=h%2Fo%2Fr&pull=drift");
        assert_eq!(RunQuery::parse(address.strip_prefix("runs?").unwrap()), Ok(of_drift));
    }

    #[test]
    fn an_unusable_filter_is_named_with_the_reason() {
        for (query, reason) in [
            ("pull=x", "pull=x: it is the number of a pull request"),
            ("pull=0", "pull=0: it is the number of a pull request"),
            ("command=aply", "command=aply: it is one of plan, apply, "),
            ("result=ok", "result=ok: it is one of running, succeeded, failed, locked, stopped, ended."),
            ("after=%3Cb%3E", "after=<b>: it comes from a link"),
            ("after=1&before=2", "before=2: a page is either after a run or before one."),
            ("persn=bob", "persn=bob: the filters are repository, pull, project, person, command and result."),
            ("person=a%00b", "person=ab: a value has at most 300 characters"),
        ] {
            let error = RunQuery::parse(query).unwrap_err();
            assert!(error.starts_with(reason), "{query}: {error}");
        }
        assert!(RunQuery::parse(&format!("person={}", "x".repeat(301))).unwrap_err().len() < 200);
    }

    #[test]
    fn a_number_without_a_repository_may_be_of_any_of_them() {
        let repo = |host: &str| RepoId { host: host.into(), owner: "acme".into(), name: "infra".into() };
        let served = [repo("github.com"), repo("dev.azure.com")];
        let numbered = RunQuery { pull: Some(7), ..RunQuery::default() };
        assert_eq!(numbered.filter(&served).map(|filter| filter.repos.len()), Ok(2));
        assert_eq!(RunQuery::default().filter(&served).map(|filter| filter.repos.len()), Ok(0));
    }
}
