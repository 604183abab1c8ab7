//! Filters and cursor of the audit log, in the query of its address.

use crate::domain::state::{Cause, Run};
use crate::domain::{ProjectId, PullId, RepoId};
use crate::store::{AuditCursor, AuditFilter};
use crate::web::filters::{self, GivenFilter};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;

/// Parsed query of the address. An empty text means no filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(in crate::web) struct AuditQuery {
    person: String,
    act: String,
    repository: String,
    pull: Option<u64>,
    project: String,
    result: String,
    request: String,
    /// As it was given, and the time.
    from: (String, Option<Timestamp>),
    until: (String, Option<Timestamp>),
    #[serde(skip)]
    pub(super) after: Option<AuditCursor>,
}

/// Parses a time in UTC: a date, or a date and a time.
fn time(given: &GivenFilter<'_>) -> Result<(String, Option<Timestamp>), String> {
    let text = given.value.as_str();
    let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let time = text.parse::<Timestamp>().ok().or_else(in_utc);
    let time = time.ok_or_else(|| given.unusable("it is a date, or a date and a time, in UTC: 2026-11-28 05:41."))?;
    Ok((text.to_owned(), Some(time)))
}

/// Parses a cursor, which is the time of an entry in microseconds and its number.
fn cursor(text: &str) -> Option<AuditCursor> {
    let (at, seq) = text.split_once('.')?;
    Some(AuditCursor { at: at.parse().ok()?, seq: seq.parse().ok()? })
}

impl AuditQuery {
    /// Parses a query. The error names the filter and the reason.
    pub(super) fn parse(query: &str) -> Result<AuditQuery, String> {
        let mut parsed = AuditQuery::default();
        for given in GivenFilter::all(query)? {
            let value = given.value.clone();
            match &*given.name {
                "person" => parsed.person = value,
                "act" => parsed.act = value,
                "repository" => parsed.repository = value,
                "pull" => parsed.pull = Some(given.pull_number()?),
                "project" => parsed.project = value,
                "result" => parsed.result = value,
                "request" => parsed.request = value,
                "from" => parsed.from = time(&given)?,
                "until" => parsed.until = time(&given)?,
                "after" => {
                    let place = cursor(&value);
                    parsed.after = Some(place.ok_or_else(|| given.unusable("it comes from a link to another page."))?);
                }
                _ => {
                    return Err(given.unusable(
                        "the filters are person, act, repository, pull, project, result, request, from and until.",
                    ));
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the query for the entries of a pull request.
    pub(in crate::web) fn of_pull(pull: &PullId) -> AuditQuery {
        let pull_number = Some(pull.number).filter(|_| !pull.is_branch());
        AuditQuery { pull: pull_number, ..AuditQuery::of_repo(&pull.repo) }
    }

    /// Returns the query for the entries of a run: those of a drift run, which have its id and are looked for since it began; those with its
    /// cause; else those of its pull request since it began.
    pub(in crate::web) fn of_run(run: &Run) -> AuditQuery {
        let from = (run.started.to_string(), Some(run.started));
        if run.pull.is_branch() {
            return AuditQuery { request: run.id.to_string(), from, ..AuditQuery::of_repo(&run.pull.repo) };
        }
        let of_pull = AuditQuery::of_pull(&run.pull);
        if run.cause != Cause::None {
            return AuditQuery { request: run.cause.to_string(), ..of_pull };
        }
        AuditQuery { from, person: run.user.as_str().to_owned(), ..of_pull }
    }

    /// Returns the query for the entries of a project.
    pub(in crate::web) fn of_project(repo: &RepoId, project: &ProjectId) -> AuditQuery {
        AuditQuery { project: project.label(), ..AuditQuery::of_repo(repo) }
    }

    fn of_repo(repo: &RepoId) -> AuditQuery {
        AuditQuery { repository: repo.to_string(), ..AuditQuery::default() }
    }

    pub(super) fn has_filter(&self) -> bool {
        *self != AuditQuery { after: self.after, ..AuditQuery::default() }
    }

    /// Returns the filter for the state. The error names the repository that is not among those that are served.
    pub(super) fn filter(&self, served: &[RepoId]) -> Result<AuditFilter, String> {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Ok(AuditFilter {
            repos: filters::repositories(&self.repository, served)?,
            number: self.pull,
            project: given(&self.project),
            who: given(&self.person),
            act: given(&self.act),
            result: given(&self.result),
            request: given(&self.request),
            from: self.from.1,
            until: self.until.1,
        })
    }

    /// Returns the address of a page with the same filters, relative to `/`. `path` is one of the addresses of the log.
    pub(in crate::web) fn address(&self, path: &str, after: Option<AuditCursor>) -> String {
        let pull = self.pull.map(|number| number.to_string()).unwrap_or_default();
        let after = after.map(|AuditCursor { at, seq }| format!("{at}.{seq}")).unwrap_or_default();
        let parameters = [
            ("person", self.person.as_str()),
            ("act", &self.act),
            ("repository", &self.repository),
            ("pull", &pull),
            ("project", &self.project),
            ("result", &self.result),
            ("request", &self.request),
            ("from", &self.from.0),
            ("until", &self.until.0),
            ("after", &after),
        ];
        filters::address(path, &parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::command::{CommandName, Trigger};

    #[test]
    fn an_address_is_parsed_and_written_again() {
        let address = "person=bob&act=apply&repository=acme%2Finfra&pull=7&project=a+b%2Fdefault&result=failed&request=x\
                       &from=2026-11-28&until=2026-11-28+05%3A41";
        let query = AuditQuery::parse(&format!("{address}&after=12.3")).unwrap();
        assert_eq!(query.address("audit", query.after), format!("audit?{address}&after=12.3"));
        assert_eq!(query.from.1.unwrap().to_string(), "2026-11-28T00:00:00Z");
        assert_eq!(query.until.1.unwrap().to_string(), "2026-11-28T05:41:00Z");
        let zoned = AuditQuery::parse("from=2026-11-28T05:41:07%2B01:00").unwrap();
        assert_eq!(zoned.from.1.unwrap().to_string(), "2026-11-28T04:41:07Z");
        let empty = AuditQuery::parse("person=&pull=&from=+").unwrap();
        assert_eq!((empty.has_filter(), empty.address("audit.csv", None)), (false, "audit.csv".to_owned()));
    }

    #[test]
    fn the_entries_of_a_drift_run_have_its_id() {
        let run = Run {
            id: "f".repeat(32).into(),
            pull: PullId::of_branches(RepoId { host: "h".into(), owner: "o".into(), name: "r".into() }),
            command: CommandName::Apply,
            typed: String::new(),
            trigger: Trigger::Drift,
            user: "api".into(),
            head: "a".repeat(40).into(),
            cause: Cause::None,
            everything: false,
            received: None,
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            answered: false,
            end: None,
            fault: None,
            results: Vec::new(),
            automerge: None,
        };
        let address = AuditQuery::of_run(&run).address("audit", None);
        let from = "1970-01-01T00%3A00%3A00Z";
        assert_eq!(address, format!("audit?repository=h%2Fo%2Fr&request={}&from={from}", run.id));
    }

    #[test]
    fn an_unusable_filter_is_named_with_the_reason() {
        for (query, reason) in [
            ("pull=x", "pull=x: it is the number of a pull request"),
            ("from=yesterday", "from=yesterday: it is a date, or a date and a time, in UTC"),
            ("until=2026-13-01", "until=2026-13-01: it is a date"),
            ("after=7", "after=7: it comes from a link"),
            ("after=7.%3Cb%3E", "after=7.<b>: it comes from a link"),
            (
                "persn=bob",
                "persn=bob: the filters are person, act, repository, pull, project, result, request, from and until.",
            ),
            ("act=a%00b", "act=ab: a value has at most 300 characters"),
        ] {
            let error = AuditQuery::parse(query).unwrap_err();
            assert!(error.starts_with(reason), "{query}: {error}");
        }
    }
}
