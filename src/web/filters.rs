//! Filters in the query of an address, as all lists read them.

use super::answer::HttpProblem;
use crate::domain::RepoId;
use http::StatusCode;
use std::borrow::Cow;
use url::form_urlencoded;

/// Longest value of a filter, in characters; of one that names a directory, which may have a long path; and of a cursor, which may have both.
const MAX_VALUE: usize = 300;
const MAX_PATH: usize = 4_200;
const MAX_CURSOR: usize = 10_000;

/// Maximum number of repositories that a form suggests.
pub(super) const MAX_OFFERED: usize = 200;

/// Longest part of an unusable value that an answer repeats, in characters.
const MAX_REPEATED: usize = 60;

/// A filter with a value.
pub(super) struct GivenFilter<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) value: String,
}

impl GivenFilter<'_> {
    /// Returns the filters of a query that have a value. The error names one whose value no filter can have.
    pub(super) fn all(query: &str) -> Result<Vec<GivenFilter<'_>>, String> {
        let mut all = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let given = GivenFilter { name, value: value.trim().to_owned() };
            let (most, is_text) = match &*given.name {
                "after" | "before" => (MAX_CURSOR, false),
                "project" => (MAX_PATH, true),
                _ => (MAX_VALUE, true),
            };
            if given.value.chars().count() > most || is_text && given.value.chars().any(char::is_control) {
                let because = format!("a value has at most {most} characters, and no control characters.");
                return Err(given.unusable(&because));
            }
            if !given.value.is_empty() {
                all.push(given);
            }
        }
        Ok(all)
    }

    /// Returns the reason for which it cannot be used.
    pub(super) fn unusable(&self, because: &str) -> String {
        unusable(&self.name, &self.value, because)
    }

    /// Parses the number of a pull request.
    pub(super) fn pull_number(&self) -> Result<u64, String> {
        let number = self.value.trim_start_matches(['#', '!']).parse::<i64>().ok();
        let number = number.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| self.unusable("it is the number of a pull request, from 1."))
    }
}

/// Returns the reason for which a filter cannot be used.
fn unusable(name: &str, value: &str, because: &str) -> String {
    let repeated = |text: &str| text.chars().filter(|c| !c.is_control()).take(MAX_REPEATED).collect::<String>();
    format!("{}={}: {because}", repeated(name), repeated(value))
}

/// Returns the reason for which a value is none of some words.
pub(super) fn one_of(words: impl Iterator<Item = &'static str>) -> String {
    format!("it is one of {}.", words.collect::<Vec<_>>().join(", "))
}

/// Returns the answer to a filter that cannot be used.
pub(super) fn unusable_filter(why: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "This filter cannot be used", why)
}

/// Returns the repositories that a filter means; none for an empty one. One that is not served any more, or that drift runs alone know, is
/// found by its whole name.
pub(super) fn repositories(asked: &str, served: &[RepoId]) -> Result<Vec<RepoId>, String> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let found: Vec<RepoId> = served.iter().filter(|repo| repo.is_meant_by(asked)).cloned().collect();
    match (found.is_empty(), RepoId::of_whole_name(asked)) {
        (false, _) => Ok(found),
        (true, Some(repo)) => Ok(vec![repo]),
        (true, None) => {
            let because = "this server has served no such repository. It is owner/name, or host/owner/name.";
            Err(unusable("repository", asked, because))
        }
    }
}

/// Returns the names of repositories that a form suggests.
pub(super) fn suggested(served: &[RepoId]) -> Vec<String> {
    served.iter().take(MAX_OFFERED).map(RepoId::to_string).collect()
}

/// Returns an address with these parameters, but for empty ones.
pub(super) fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        all if all.is_empty() => path.to_owned(),
        some => format!("{path}?{some}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_has_a_host_an_owner_of_any_depth_and_a_name() {
        let found = |text: &str| RepoId::of_whole_name(text).map(|repo| (repo.host, repo.owner, repo.name));
        let parts = |host: &str, owner: &str, name: &str| Some((host.to_owned(), owner.to_owned(), name.to_owned()));
        assert_eq!(found("github.com/acme/infra"), parts("github.com", "acme", "infra"));
        assert_eq!(found("dev.azure.com/acme/Two Words/in fra"), parts("dev.azure.com", "acme/Two Words", "in fra"));
        for text in ["", "h", "h/o", "/o/n", "h//n", "h/o/"] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn values_have_limits_that_fit_what_they_name() {
        let is_taken = |name: &str, length: usize| GivenFilter::all(&format!("{name}={}", "x".repeat(length))).is_ok();
        for (name, most) in [("person", MAX_VALUE), ("project", MAX_PATH), ("after", MAX_CURSOR)] {
            assert!(is_taken(name, most) && !is_taken(name, most + 1), "{name}");
        }
        assert!(GivenFilter::all("person=a%0Ab").is_err());
        assert!(GivenFilter::all("after=[\"a%C2%85b\"]").is_ok(), "the name of a directory may have it");
    }

    #[test]
    fn a_repository_is_found_with_and_without_its_host() {
        let repo = |host: &str| RepoId { host: host.into(), owner: "acme".into(), name: "infra".into() };
        let served = [repo("github.com"), repo("dev.azure.com")];
        let found = |text: &str| repositories(text, &served).map(|repos| repos.len());
        assert_eq!((found(""), found("Acme/infra"), found("github.com/acme/infra")), (Ok(0), Ok(2), Ok(1)));
        assert_eq!(found("github.com/acme/infra (id 7)"), Ok(1), "it was renamed");
        assert!(found("acme/other").unwrap_err().starts_with("repository=acme/other: this server has served no such"));
    }
}
