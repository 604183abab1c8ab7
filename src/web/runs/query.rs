//! Filters and cursor of the list of runs, in the query of its address.

use crate::domain::command::CommandName;
use crate::domain::{PullId, RepoId};
use crate::store::{RunCursor, RunFilter, RunResult};
use serde::Serialize;
use url::form_urlencoded;

/// Longest value of a filter, in characters.
const MAX_VALUE: usize = 300;

/// Maximum number of repositories that the form suggests.
pub(super) const MAX_OFFERED: usize = 200;

/// Longest part of an unusable value that an answer repeats, in characters.
const MAX_REPEATED: usize = 60;

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

/// Returns the reason for which a filter cannot be used.
fn unusable(name: &str, value: &str, because: &str) -> String {
    let repeated: String = value.chars().filter(|c| !c.is_control()).take(MAX_REPEATED).collect();
    format!("{name}={repeated}: {because}")
}

fn one_of(words: impl Iterator<Item = &'static str>) -> String {
    format!("it is one of {}.", words.collect::<Vec<_>>().join(", "))
}

/// Parses `host/owner/name`, where the owner may have several parts.
fn whole_name(text: &str) -> Option<RepoId> {
    let (host, rest) = text.split_once('/')?;
    let (owner, name) = rest.rsplit_once('/')?;
    let is_whole = [host, owner, name].iter().all(|part| !part.is_empty());
    is_whole.then(|| RepoId { host: host.into(), owner: owner.into(), name: name.into() })
}

impl RunQuery {
    /// Parses a query. The error names the filter and the reason.
    pub(super) fn parse(query: &str) -> Result<RunQuery, String> {
        let mut parsed = RunQuery::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            let wrong = |because: &str| unusable(&name.chars().take(MAX_REPEATED).collect::<String>(), value, because);
            if value.chars().count() > MAX_VALUE || value.chars().any(char::is_control) {
                return Err(wrong(&format!("a value has at most {MAX_VALUE} characters, and no control characters.")));
            }
            let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number > 0);
            match &*name {
                "repository" => parsed.repository = value.to_owned(),
                "project" => parsed.project = value.to_owned(),
                "person" => parsed.person = value.to_owned(),
                "pull" => {
                    let digits = value.trim_start_matches(['#', '!']);
                    let pull = number(digits).and_then(|number| u64::try_from(number).ok());
                    parsed.pull = Some(pull.ok_or_else(|| wrong("it is the number of a pull request, from 1."))?);
                }
                "command" => {
                    let command = CommandName::of_word(value);
                    let all = || one_of(CommandName::ALL.iter().map(|name| name.as_str()));
                    parsed.command = Some(command.ok_or_else(|| wrong(&all()))?);
                }
                "result" => {
                    let all = || one_of(RunResult::ALL.iter().map(|result| result.as_str()));
                    parsed.result = RunResult::of_word(value).ok_or_else(|| wrong(&all()))?.as_str();
                }
                "after" | "before" => {
                    let place = number(value).ok_or_else(|| wrong("it comes from a link to another page."))?;
                    if parsed.cursor != RunCursor::Newest {
                        return Err(wrong("a page is either after a run or before one."));
                    }
                    parsed.cursor = if name == "after" { RunCursor::After(place) } else { RunCursor::Before(place) };
                }
                _ => return Err(wrong("the filters are repository, pull, project, person, command and result.")),
            }
        }
        Ok(parsed)
    }

    /// Returns the query for all runs of a pull request.
    pub(in crate::web) fn of_pull(pull: &PullId) -> RunQuery {
        let number = Some(pull.number).filter(|_| !pull.is_branch());
        RunQuery { repository: pull.repo.to_string(), pull: number, ..RunQuery::default() }
    }

    pub(super) fn has_filter(&self) -> bool {
        *self != RunQuery { cursor: self.cursor, ..RunQuery::default() }
    }

    /// Returns the filter for the state. The error names the repository that is not among those that are served.
    pub(super) fn filter(&self, served: &[RepoId]) -> Result<RunFilter, String> {
        let asked = self.repository.as_str();
        let is_asked = |repo: &&RepoId| {
            repo.full_name().eq_ignore_ascii_case(asked) || repo.to_string().eq_ignore_ascii_case(asked)
        };
        let repos: Vec<RepoId> = match (asked, self.pull) {
            ("", None) => Vec::new(),
            ("", Some(_)) => served.to_vec(),
            // Runs of a repository that is not served any more, or that drift runs alone know.
            _ => match served.iter().filter(is_asked).cloned().collect::<Vec<_>>() {
                none if none.is_empty() => whole_name(asked).into_iter().collect(),
                some => some,
            },
        };
        if repos.is_empty() && !asked.is_empty() {
            let because = "this server has served no such repository. It is owner/name, or host/owner/name.";
            return Err(unusable("repository", asked, because));
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
        let mut query = form_urlencoded::Serializer::new(String::new());
        let pull = self.pull.map(|number| number.to_string()).unwrap_or_default();
        let command = self.command.map(CommandName::as_str).unwrap_or_default();
        let (after, before) = match cursor {
            RunCursor::Newest => (String::new(), String::new()),
            RunCursor::After(place) => (place.to_string(), String::new()),
            RunCursor::Before(place) => (String::new(), place.to_string()),
        };
        for (name, value) in [
            ("repository", self.repository.as_str()),
            ("pull", &pull),
            ("project", &self.project),
            ("person", &self.person),
            ("command", command),
            ("result", self.result),
            ("after", &after),
            ("before", &before),
        ] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        match query.finish() {
            all if all.is_empty() => "runs".to_owned(),
            some => format!("runs?{some}"),
        }
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
    fn a_repository_is_found_with_and_without_its_host() {
        let repo = |host: &str| RepoId { host: host.into(), owner: "acme".into(), name: "infra".into() };
        let served = [repo("github.com"), repo("dev.azure.com")];
        let found = |text: &str| {
            let query = RunQuery { repository: text.into(), ..RunQuery::default() };
            query.filter(&served).map(|filter| filter.repos.len())
        };
        let numbered = RunQuery { pull: Some(7), ..RunQuery::default() };
        assert_eq!(numbered.filter(&served).map(|filter| filter.repos.len()), Ok(2), "a number may be of any of them");
        assert_eq!((found(""), found("Acme/infra"), found("github.com/acme/infra")), (Ok(0), Ok(2), Ok(1)));
        assert_eq!(found("github.com/acme/infra (id 7)"), Ok(1), "it was renamed");
        assert!(found("acme/other").unwrap_err().starts_with("repository=acme/other: this server has served no such"));
    }
}
