//! The measured addresses: each page and filter alone, then what is hard to find: nothing, the oldest record alone, words that match nothing.

use crate::records::{
    FIRST_ACT, FIRST_PERSON, OPEN, REPOS, Sizes, delivery_id, job_id, person, project, projects_of, pull_id, repo,
    run_id,
};
use jiff::SignedDuration;
use tidelock_core::domain::state::lock_id;
use tidelock_core::domain::{ProjectId, PullId, RepoId};
use url::form_urlencoded;

/// An address to measure.
pub(crate) struct MeasuredAddress {
    pub(crate) path: String,
    /// Number of links to the next page that are followed first.
    pub(crate) follow: usize,
    /// True if it is for programs, and has as many rows as it may.
    pub(crate) is_export: bool,
}

/// Names and values of a query.
type AddressQuery<'a> = Vec<(&'a str, &'a str)>;

/// Pages between the first one and a deep one.
const DEEP: usize = 5;

fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn part(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn pull_page(pull: &PullId) -> String {
    let PullId { repo: RepoId { host, owner, name }, number } = pull;
    format!("/pulls/{}/{}/{}/{number}", part(host), part(owner), part(name))
}

fn project_page(repo: &RepoId, project: &ProjectId) -> String {
    let RepoId { host, owner, name } = repo;
    let path = format!("/projects/{}/{}/{}", part(host), part(owner), part(name));
    address(&path, &[("dir", &project.dir), ("workspace", &project.workspace)])
}

/// Returns the link to the next page of a list.
pub(crate) fn next(page: &str) -> Option<String> {
    let (before, _) = [">Older</a>", ">Next</a>", ">Continue</a>"].iter().find_map(|end| page.split_once(end))?;
    let (_, link) = before.rsplit_once("href=\"")?;
    let (link, _) = link.split_once('"')?;
    Some(link.trim_start_matches("./").replace("&amp;", "&").replace("&#x2f;", "/"))
}

/// Returns all of them.
pub(crate) fn all(sizes: &Sizes) -> Vec<MeasuredAddress> {
    let mut all = Vec::new();
    let first = |path: String| MeasuredAddress { path, follow: 0, is_export: false };
    for list in ["/", "/runs", "/pulls", "/projects", "/audit", "/drift"] {
        all.push(first(list.to_owned()));
        all.push(MeasuredAddress { path: list.to_owned(), follow: DEEP, is_export: false });
    }
    all.extend(["/status", "/metrics", "/search"].map(|path| first(path.to_owned())));
    all.extend(single(sizes).into_iter().map(first));
    all.extend(filtered(sizes).into_iter().map(first));
    all.push(MeasuredAddress { path: "/api/locks".to_owned(), follow: 0, is_export: true });
    for form in ["/audit.csv", "/audit.json"] {
        let apply = address(form, &[("act", "apply"), ("person", &person(7))]);
        all.extend([form.to_owned(), apply].map(|path| MeasuredAddress { path, follow: 0, is_export: true }));
    }
    all
}

/// Returns pages of one thing: a project, pull request, run, job and lock.
fn single(sizes: &Sizes) -> Vec<String> {
    let (new, wide, old) = (sizes.pulls - OPEN.min(sizes.pulls), sizes.pulls - 2, 0);
    let mut pages: Vec<String> = [old, new, wide].map(|pull| pull_page(&pull_id(pull))).into();
    let platform = repo(0);
    pages.extend([0, 1].map(|workspace| project_page(&platform, &project(5, workspace))));
    pages.push(project_page(&repo(7), &project(3, 0)));
    pages.extend([0, sizes.runs - 1].map(|run| format!("/runs/{}", run_id(run))));
    pages.push(format!("/jobs/{}", job_id(sizes.jobs - 1)));
    pages.extend(projects_of(new).next().map(|held| address("/lock", &[("id", &lock_id(&platform, &held))])));
    pages
}

/// Returns lists with filters.
fn filtered(sizes: &Sizes) -> Vec<String> {
    let (platform, last) = (repo(0).to_string(), repo(REPOS - 1).to_string());
    let (somebody, number) = (person(7), format!("#{}", pull_id(sizes.pulls / 2).number));
    let web = format!("https://github.example.com/acme/none/pull/{}", pull_id(sizes.pulls / 2).number);
    let searches = ["platform", "service-199", &somebody, "no such words", &number, &web, "acme", "e", "acme/none#1"];
    let others: [(&str, Vec<AddressQuery<'_>>); 4] = [
        (
            "/projects",
            vec![
                vec![("repository", &platform)],
                vec![("repository", &last)],
                vec![("q", "service-199")],
                vec![("q", "no such words")],
                vec![("repository", &platform), ("q", "no such words")],
                vec![("repository", &last), ("q", "service-199 staging")],
            ],
        ),
        (
            "/drift",
            vec![
                vec![("repository", &last)],
                vec![("state", "clean")],
                vec![("state", "skipped")],
                vec![("repository", "no/repository"), ("state", "failed")],
            ],
        ),
        (
            "/",
            vec![
                vec![("q", "platform")],
                vec![("q", "no such words at all")],
                vec![("runs", "200")],
                vec![("locks", "5")],
                vec![("pulls", "5")],
            ],
        ),
        ("/pulls", vec![vec![("repository", &platform)], vec![("repository", &last)]]),
    ];
    let others = others.iter().flat_map(|(list, queries)| queries.iter().map(|query| address(list, query)));
    let searches = searches.iter().map(|text| address("/search", &[("q", *text)]));
    of_runs(sizes).into_iter().chain(of_audit(sizes)).chain(others).chain(searches).collect()
}

fn of_runs(sizes: &Sizes) -> Vec<String> {
    let (platform, last) = (repo(0).to_string(), repo(REPOS - 1).to_string());
    let (somebody, dir) = (person(7), project(5, 0).dir);
    let middle = pull_id(sizes.pulls / 2).number.to_string();
    let queries: [&[(&str, &str)]; 18] = [
        &[("repository", &platform)],
        &[("repository", &last)],
        &[("pull", &middle)],
        &[("project", &dir)],
        &[("person", &somebody)],
        &[("command", "apply")],
        &[("result", "stopped")],
        &[("person", "nobody")],
        &[("command", "import")],
        &[("result", "running")],
        &[("project", "no/such/directory")],
        &[("repository", &platform), ("project", "no/such/directory"), ("person", &somebody), ("result", "failed")],
        &[("repository", &last), ("person", "nobody"), ("command", "plan")],
        &[("pull", "999999"), ("project", &dir)],
        &[("project", &dir), ("command", "apply"), ("result", "failed"), ("person", &somebody)],
        &[("after", "1000")],
        &[("before", "1000")],
        &[("repository", &last), ("after", "2000")],
    ];
    queries.iter().map(|query| address("/runs", query)).collect()
}

fn of_audit(sizes: &Sizes) -> Vec<String> {
    let (platform, last) = (repo(0).to_string(), repo(REPOS - 1).to_string());
    let (somebody, middle) = (person(7), pull_id(sizes.pulls / 2).number.to_string());
    let day = |days: i64| {
        let then = sizes.now.checked_sub(SignedDuration::from_hours(days * 24)).unwrap_or(sizes.now);
        then.strftime("%Y-%m-%d").to_string()
    };
    let (day, next) = (day(200), day(199));
    let (label, request) = (project(5, 1).label(), delivery_id(sizes.runs / 2));
    let queries: [&[(&str, &str)]; 18] = [
        &[("person", &somebody)],
        &[("act", "unlock")],
        &[("repository", &platform)],
        &[("repository", &last)],
        &[("pull", &middle)],
        &[("project", &label)],
        &[("result", "failed")],
        &[("request", &request)],
        &[("from", &day), ("until", &next)],
        &[("person", "nobody")],
        &[("person", FIRST_PERSON)],
        &[("act", FIRST_ACT)],
        &[("act", "apply"), ("result", "approved")],
        &[("act", "apply"), ("repository", &platform), ("result", "approved"), ("person", &somebody)],
        &[("repository", "acme/platform"), ("act", "apply"), ("result", "done")],
        &[("person", FIRST_PERSON), ("act", "apply")],
        &[("project", "none/default"), ("act", "apply")],
        &[("person", &somebody), ("until", &day)],
    ];
    queries.iter().map(|query| address("/audit", query)).collect()
}
