//! `/search`: pages of repositories, pull requests, projects and people that are called as somebody says.

use super::answer::{HttpProblem, Visit};
use super::filters::address;
use super::openapi::about;
use super::pages::{ProjectView, PullView, pull_address, shown};
use super::{Route, Site, Who, route};
use crate::domain::{PullId, RepoId};
use crate::store::{Search, View};
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, Uri};
use serde::Serialize;
use std::sync::Arc;
use url::{Url, form_urlencoded};

/// Longest search text, in characters.
const MAX_TEXT: usize = 300;

/// Maximum number of links in a group.
const MAX_GROUP: usize = 20;

/// Maximum number of parts of an address that may be the number of a pull request.
const MAX_NUMBERS: usize = 4;

/// Maximum number of repositories in which a pull request is looked for.
const MAX_REPOS: usize = 2_000;

/// Returns the route of the search.
pub(super) fn routes() -> Vec<Route> {
    let doc = about(
        "Pages of repositories, pull requests, projects and people; a redirect where exactly one pull request is meant.",
    );
    let doc = doc.optional_query("q", "A number, owner/name#12, the address of a pull request, or words.");
    vec![route(Method::GET, "/search", Who::People, page, doc.page().redirect())]
}

/// What a search text says of a pull request.
#[derive(Debug, PartialEq, Eq)]
enum NamedPull {
    /// A number alone.
    Number(u64),
    /// `owner/name#12`, or with a host.
    Whole { repo: String, number: u64 },
    /// The address of its page on the host, of which these may be the number.
    Address { url: Url, numbers: Vec<u64> },
}

impl NamedPull {
    fn parse(text: &str) -> Option<NamedPull> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
        if let Some(number) = number(text.trim_start_matches(['#', '!'])) {
            return Some(NamedPull::Number(number));
        }
        if let Ok(url) = Url::parse(text)
            && matches!(url.scheme(), "http" | "https")
        {
            let numbers = url.path_segments()?.filter_map(number).take(MAX_NUMBERS).collect();
            return Some(NamedPull::Address { url, numbers });
        }
        let (repo, digits) = text.rsplit_once(['#', '!'])?;
        Some(NamedPull::Whole { repo: repo.to_owned(), number: number(digits)? })
    }
}

/// Returns true if an address is that of a pull request's page on its host, or of a page below it.
fn is_page_of(url: &Url, page: &str) -> bool {
    let Ok(page) = Url::parse(page) else { return false };
    let same_place = url.host_str() == page.host_str() && url.port_or_known_default() == page.port_or_known_default();
    let (path, of_pull) = (url.path().to_ascii_lowercase(), page.path().trim_end_matches('/').to_ascii_lowercase());
    same_place && path.strip_prefix(&of_pull).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A person, with the addresses of runs and of audit entries.
#[derive(Serialize)]
struct PersonLink {
    name: String,
    runs: String,
    audit: String,
}

/// A repository, with the addresses of its projects, open pull requests, runs and audit entries.
#[derive(Serialize)]
struct RepoLink {
    name: String,
    projects: String,
    pulls: String,
    runs: String,
    audit: String,
}

/// A project, with the repository that it is in.
#[derive(Serialize)]
struct ProjectLink {
    repo: String,
    project: ProjectView,
}

/// What was found, a bounded number of each kind.
#[derive(Serialize)]
struct SearchPage {
    text: String,
    pulls: Vec<PullView>,
    repositories: Vec<RepoLink>,
    projects: Vec<ProjectLink>,
    people: Vec<PersonLink>,
    /// True if a group may have more.
    more: bool,
    /// The only pull request that the text names exactly.
    #[serde(skip)]
    exact: Option<PullId>,
}

impl SearchPage {
    fn load(view: &View<'_>, text: &str) -> anyhow::Result<SearchPage> {
        let mut page = SearchPage {
            text: text.to_owned(),
            pulls: Vec::new(),
            repositories: Vec::new(),
            projects: Vec::new(),
            people: Vec::new(),
            more: false,
            exact: None,
        };
        let words: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
        if words.is_empty() {
            return Ok(page);
        }
        let served = view.served_repos()?;
        let has_words = |name: &str| words.iter().all(|word| name.to_ascii_lowercase().contains(word));
        if let Some(named) = NamedPull::parse(text) {
            page.find_pulls(view, &named, &served)?;
        }
        let mut repos = served.iter().filter(|repo| has_words(&repo.to_string()));
        page.repositories = repos.by_ref().take(MAX_GROUP).map(repo_link).collect();
        page.more |= repos.next().is_some();
        let found = view.list_projects(&served, &Search::new(text), None, MAX_GROUP)?;
        page.more |= found.next.is_some();
        page.projects = (found.rows.iter())
            .map(|(repo, project)| ProjectLink {
                repo: shown(&repo.full_name()),
                project: ProjectView::of(repo, project),
            })
            .collect();
        let mut people = view.people()?.into_iter().filter(|name| has_words(name));
        page.people = people.by_ref().take(MAX_GROUP).map(|name| person_link(&name)).collect();
        page.more |= people.next().is_some();
        Ok(page)
    }

    fn find_pulls(&mut self, view: &View<'_>, named: &NamedPull, served: &[RepoId]) -> anyhow::Result<()> {
        let mut found = Vec::new();
        // A whole name is compared; anything else is looked for in the state.
        let is_cut = served.len() > MAX_REPOS && !matches!(named, NamedPull::Whole { .. });
        let most = if is_cut { MAX_REPOS } else { usize::MAX };
        for repo in served.iter().take(most) {
            let numbers: &[u64] = match named {
                NamedPull::Number(number) => std::slice::from_ref(number),
                NamedPull::Whole { repo: name, number } if repo.is_meant_by(name) => std::slice::from_ref(number),
                NamedPull::Whole { .. } => &[],
                NamedPull::Address { numbers, .. } => numbers,
            };
            for number in numbers {
                let pull = view.pull(&PullId { repo: repo.clone(), number: *number })?;
                found.extend(pull.filter(|pull| match named {
                    NamedPull::Address { url, .. } => is_page_of(url, &pull.url),
                    NamedPull::Number(_) | NamedPull::Whole { .. } => true,
                }));
            }
        }
        if let [only] = found.as_slice()
            && !is_cut
        {
            self.exact = Some(only.id.clone());
        }
        self.more |= found.len() > MAX_GROUP || is_cut;
        self.pulls = found.iter().take(MAX_GROUP).map(|pull| PullView::find(&pull.id, Some(pull))).collect();
        Ok(())
    }
}

fn repo_link(repo: &RepoId) -> RepoLink {
    let name = repo.to_string();
    let of = |path: &str| address(path, &[("repository", &name)]);
    RepoLink { projects: of("projects"), pulls: of("pulls"), runs: of("runs"), audit: of("audit"), name: shown(&name) }
}

fn person_link(name: &str) -> PersonLink {
    PersonLink {
        runs: address("runs", &[("person", name)]),
        audit: address("audit", &[("person", name)]),
        name: shown(name),
    }
}

/// Serves the search. A redirect leads only to a page of a known pull request here, never to an address of the text.
async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let query = uri.query().unwrap_or_default();
    let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "q").map(|(_, text)| text);
    let text = given.unwrap_or_default();
    let text: String = text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    let found = services.store.read(move |view| SearchPage::load(view, &text)).await?;
    if let Some(exact) = &found.exact {
        return Ok(Redirect::to(&format!("{}{}", visit.root, pull_address(exact))).into_response());
    }
    Ok(site.pages.page("search.html", &visit, &found)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_request_is_named_in_each_way() {
        let whole = |repo: &str, number| Some(NamedPull::Whole { repo: repo.to_owned(), number });
        assert_eq!(NamedPull::parse("#12"), Some(NamedPull::Number(12)));
        assert_eq!(NamedPull::parse("12"), Some(NamedPull::Number(12)));
        assert_eq!(NamedPull::parse("acme/in#fra#12"), whole("acme/in#fra", 12));
        assert_eq!(
            NamedPull::parse("dev.azure.com/acme/Two Words/infra!7"),
            whole("dev.azure.com/acme/Two Words/infra", 7)
        );
        for text in ["", "acme/infra", "acme/infra#0", "acme/infra#x", "javascript:12", "99999999999999999999"] {
            assert_eq!(NamedPull::parse(text), None, "{text}");
        }
        let url = "https://github.com/acme/infra2/pull/12/files?x=1#r7";
        let Some(NamedPull::Address { url, numbers }) = NamedPull::parse(url) else { panic!("{url}") };
        assert_eq!(numbers, [12]);
        for (page, expected) in [
            ("https://github.com/acme/infra2/pull/12", true),
            ("https://github.com/Acme/Infra2/pull/12/", true),
            ("https://github.com/acme/infra2/pull/1", false),
            ("https://github.com/acme/infra/pull/12", false),
            ("https://github.com:8443/acme/infra2/pull/12", false),
            ("https://other.example/acme/infra2/pull/12", false),
            ("", false),
        ] {
            assert_eq!(is_page_of(&url, page), expected, "{page}");
        }
    }
}
