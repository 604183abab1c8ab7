//! Tests against a small server on loopback that answers as Gitea 1.26 does, and against a real one (`real`).

mod comments;
mod issues;
mod merging;
mod people;
mod pushes;
mod real;
mod setup;
mod statuses;

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap as Headers, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::sync::Mutex;
use tidelock_core::domain::{PullState, PullVersion};

const HEAD: &str = "8e0b45049b6253b8984cde9241830d2851168142";
const OLD: &str = "1111eeee455ff5aaaaabb66ccccccccc7777cccc";
const BASE: &str = "5555ffff566aa6bbbbbcc77ddddddd888888dddd";
/// Path of the repository in the API.
const AT: &str = "/gitea/api/v1/repos/acme/infra";

/// Requests that arrived: method and address, body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;
/// Answers a request by the number of requests before it, and its method and address.
type Part = Arc<dyn Fn(usize, &str) -> Response + Send + Sync>;

struct Stage {
    host: Gitea,
    asked: Asked,
}

impl Stage {
    fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    fn count(&self, part: &str) -> usize {
        self.requests().iter().filter(|request| request.contains(part)).count()
    }

    fn body_of(&self, method: &str) -> Value {
        let asked = self.asked.lock().unwrap();
        asked.iter().rfind(|(request, _)| request.starts_with(method)).unwrap().1.clone()
    }
}

async fn stage(part: impl Fn(usize, &str) -> Response + Send + Sync + 'static) -> Stage {
    async fn any(
        State((asked, part)): State<(Asked, Part)>,
        method: Method,
        uri: Uri,
        headers: Headers,
        body: Bytes,
    ) -> Response {
        assert_eq!(headers["authorization"], "Bearer t0ken");
        let request = format!("{method} {uri}");
        let count = {
            let mut asked = asked.lock().unwrap();
            asked.push((request.clone(), serde_json::from_slice(&body).unwrap_or(Value::Null)));
            asked.len() - 1
        };
        part(count, &request)
    }
    let asked = Asked::default();
    let app = Router::new().fallback(any).with_state((Arc::clone(&asked), Arc::new(part) as Part));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/gitea", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut host = Gitea::new(GiteaOptions {
        address: GiteaAddress::new("127.0.0.1", &url),
        user: Login::new("tidelock"),
        token: TokenSource::Value("t0ken".into()),
        status_name: "atlantis".into(),
        serves: Arc::new(|repo| repo.owner == "acme"),
    });
    host.http = host.http.hasty();
    Stage { host, asked }
}

fn repo() -> RepoId {
    RepoId { host: "127.0.0.1".into(), owner: "acme".into(), name: "infra".into() }
}

fn id() -> PullId {
    PullId { repo: repo(), number: 7 }
}

fn repository(name: &str) -> Value {
    json!({
        "id": 12, "full_name": name, "owner": {"id": 3, "login": name.split('/').next()}, "archived": false, "size": 27,
        "has_issues": true, "has_pull_requests": true, "default_branch": "main", "default_merge_style": "merge",
        "allow_merge_commits": true, "allow_rebase": true, "allow_rebase_explicit": false, "allow_squash_merge": true,
        "allow_fast_forward_only_merge": false, "permissions": {"admin": true, "push": true, "pull": true},
        "clone_url": format!("http://127.0.0.1/gitea/{name}.git"),
    })
}

fn pull() -> Value {
    json!({
        "id": 91, "number": 7, "title": "Add a bucket", "state": "open", "draft": false, "merged": false, "mergeable": true,
        "merge_commit_sha": null, "merge_base": BASE, "user": {"id": 5, "login": "ann"},
        "labels": [{"id": 1, "name": "infra"}], "created_at": "2026-11-01T10:00:00+01:00", "updated_at": "2026-11-02T10:00:00+01:00",
        "html_url": "http://elsewhere.example.com/acme/infra/pulls/7",
        "head": {"label": "topic", "ref": "topic", "sha": HEAD, "repo_id": 12, "repo": repository("acme/infra")},
        "base": {"label": "main", "ref": "main", "sha": BASE, "repo_id": 12, "repo": repository("acme/infra")},
    })
}

fn with(mut value: Value, pointer: &str, to: impl Into<Value>) -> Value {
    *value.pointer_mut(pointer).unwrap() = to.into();
    value
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}

/// A page of a list with so many rows in all.
fn page(rows: Value, total: usize) -> Response {
    ([("x-total-count", total.to_string())], axum::Json(rows)).into_response()
}

fn refused(status: u16, message: &str) -> Response {
    (StatusCode::from_u16(status).unwrap(), axum::Json(json!({"message": message, "url": "/api/swagger"})))
        .into_response()
}

fn moved(to: &str) -> Response {
    (StatusCode::MOVED_PERMANENTLY, [("location", to.to_owned())]).into_response()
}

/// Answers with the first of these whose text occurs in the request; with 404 where there is none. Lists say how long they are.
async fn answering(answers: Vec<(&'static str, Value)>) -> Stage {
    stage(move |_, request| match answers.iter().find(|(part, _)| request.contains(part)) {
        Some((_, Value::Array(rows))) => page(json!(rows), rows.len()),
        Some((_, body)) => ok(body.clone()),
        None => refused(404, "The target couldn't be found."),
    })
    .await
}

fn known_pull() -> PullRequest {
    answers::pull_request(&GiteaAddress::new("127.0.0.1", "http://127.0.0.1/gitea"), &id(), &pull()).unwrap()
}

#[tokio::test]
async fn a_pull_request_is_read() {
    let stage = answering(vec![("/pulls/7", pull())]).await;
    assert_eq!(stage.host.told_key(&repo()), None);
    let read = stage.host.pull_request(&id()).await.unwrap();
    assert_eq!(stage.host.told_key(&repo()).as_deref(), Some("12"));
    assert_eq!(stage.requests(), [format!("GET {AT}/pulls/7")]);
    let base = stage.host.address.base().to_owned();
    assert_eq!(read.url, format!("{base}/acme/infra/pulls/7"));
    assert_eq!(read.clone_url, format!("{base}/acme/infra.git"));
    assert_eq!(
        (read.author.as_str(), read.title.as_str(), read.draft, read.fork),
        ("ann", "Add a bucket", false, false)
    );
    assert_eq!((read.head.branch.as_str(), read.head.commit.as_str()), ("topic", HEAD));
    assert_eq!((read.base.branch.as_str(), read.base.commit.as_str()), ("main", BASE));
    assert_eq!((read.state, read.labels, read.repo_size_kib), (PullState::Open, vec!["infra".to_owned()], Some(27)));
}

#[tokio::test]
async fn states_and_sources_are_told_apart() {
    let read = |told: Value| answers::pull_request(&GiteaAddress::new("127.0.0.1", "http://x"), &id(), &told).unwrap();
    let merged = with(with(with(pull(), "/state", "closed"), "/merged", true), "/merge_commit_sha", OLD);
    assert_eq!(read(merged).state, PullState::Merged { commit: CommitSha::parse(OLD).ok() });
    assert_eq!(read(with(pull(), "/state", "closed")).state, PullState::Closed);
    assert!(read(with(pull(), "/draft", true)).draft);
    let fork = read(with(pull(), "/head/repo", repository("eve/infra")));
    assert!(fork.fork && fork.head.repo_owner == "eve" && fork.head.repo_name == "infra");
    let gone = read(with(pull(), "/head/repo", Value::Null));
    assert!(gone.fork && gone.head.repo_owner.is_empty());
    // The branch was deleted.
    assert_eq!(read(with(pull(), "/head/ref", "refs/pull/7/head")).head.branch, "topic");
    assert_eq!(read(with(pull(), "/base/sha", "")).base.commit.as_str(), BASE);
    // Pushed to `refs/for/main` by somebody who may only read.
    let agit = read(with(with(pull(), "/head/ref", "refs/pull/7/head"), "/head/label", ""));
    assert!(agit.fork && agit.head.repo_owner.is_empty() && agit.head.branch == "refs/pull/7/head");
    assert!(read(with(pull(), "/user", json!({"id": -1, "login": "Ghost"}))).author.is_unknown());
    for (pointer, value) in [("/head/sha", json!("x")), ("/title", json!("")), ("/state", json!("odd"))] {
        let told = with(pull(), pointer, value);
        assert!(answers::pull_request(&GiteaAddress::new("127.0.0.1", "http://x"), &id(), &told).is_err(), "{pointer}");
    }
}

#[tokio::test]
async fn another_repository_or_number_is_refused() {
    let other = answering(vec![("/pulls/7", with(pull(), "/base/repo", repository("acme/other")))]).await;
    let error = other.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(&error, HostError::Moved { to, .. } if to == "acme/other"), "{error}");
    let number = answering(vec![("/pulls/7", with(pull(), "/number", 8))]).await;
    assert!(number.host.pull_request(&id()).await.unwrap_err().is_transient());
    let redirected = stage(|_, _| moved("/gitea/api/v1/repos/acme/renamed/pulls/7")).await;
    let error = redirected.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
    assert_eq!(redirected.requests().len(), 1);
}

#[tokio::test]
async fn lists_end_where_their_rows_do_whatever_the_limit() {
    // The instance allows two rows on a page, and has no `Link` header for this list. One page is a row short.
    let reviews = |number: usize| {
        let row = |user: &str| {
            json!({"id": number, "state": "APPROVED", "user": {"id": 1, "login": user}, "official": true,
            "pull_request_url": "http://x/acme/infra/pulls/7"})
        };
        match number {
            1 => json!([row("bob")]),
            2 => json!([row("cid"), row("dan")]),
            3 => json!([row("eve")]),
            _ => json!([]),
        }
    };
    let stage = stage(move |count, _| page(reviews(count + 1), 5)).await;
    let users: Vec<String> =
        stage.host.reviews(&known_pull()).await.unwrap().into_iter().map(|review| review.user.to_string()).collect();
    assert_eq!(users, ["bob", "cid", "dan", "eve"]);
    assert_eq!(stage.count("limit=50&page="), 3);
}

#[tokio::test]
async fn a_link_to_another_host_is_not_followed() {
    let row = |id: u64| {
        json!({"id": id, "state": "APPROVED", "user": {"id": id, "login": format!("u{id}")}, "official": true,
            "pull_request_url": "http://x/acme/infra/pulls/7"})
    };
    let stage = stage(move |count, _| {
        let mut answer = page(json!([row(count as u64 + 1)]), 2);
        if count == 0 {
            let link = "<https://evil.example/api/v1/reviews?page=2>; rel=\"next\"";
            answer.headers_mut().insert("link", link.parse().unwrap());
        }
        answer
    })
    .await;
    assert_eq!(stage.host.reviews(&known_pull()).await.unwrap().len(), 2);
    assert_eq!(stage.requests(), [1, 2].map(|page| format!("GET {AT}/pulls/7/reviews?limit=50&page={page}")));
}

#[tokio::test]
async fn a_limit_that_names_no_time_is_waited_for() {
    let stage = stage(|_, _| refused(429, "too many requests")).await;
    let error = stage.host.create_comment(&id(), "text").await.unwrap_err();
    assert!(matches!(error, HostError::RateLimited { wait, .. } if wait.as_secs() == 60), "{error}");
}

#[tokio::test]
async fn an_endless_list_is_an_error() {
    let row = json!({"id": 1, "state": "COMMENT", "pull_request_url": "http://x/acme/infra/pulls/7"});
    let stage = stage(move |_, _| page(json!([row]), 1_000_000)).await;
    let error = stage.host.reviews(&known_pull()).await.unwrap_err();
    assert!(matches!(error, HostError::Rejected { .. }), "{error}");
}

#[tokio::test]
async fn open_pull_requests_are_listed_with_their_versions() {
    let broken = with(with(pull(), "/number", 8), "/head/sha", "");
    let stage = answering(vec![("/pulls?state=open&sort=oldest", json!([pull(), broken]))]).await;
    let open = stage.host.open_pulls(&repo()).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].pull.id, id());
    assert_eq!(open[0].created, "2026-11-01T09:00:00Z".parse().unwrap());
    assert_eq!(open[0].version, PullVersion::new("2026-11-02T09:00:00Z"));
    assert_eq!(stage.host.told_key(&repo()).as_deref(), Some("12"));
    let other = answering(vec![("/pulls?", json!([with(pull(), "/base/repo", repository("acme/other"))]))]).await;
    assert!(matches!(other.host.open_pulls(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn repositories_are_listed_with_our_rights() {
    let mine = with(repository("tidelock/notes"), "/permissions/push", false);
    let all = json!([repository("acme/infra"), mine, repository("odd name")]);
    let stage = answering(vec![("/user/repos", all), ("/user/orgs", json!([{"username": "Acme"}]))]).await;
    let listed = stage.host.repositories().await.unwrap();
    let facts: Vec<_> =
        listed.iter().map(|one| (one.repo.full_name(), one.of_organization, one.archived, one.can_write)).collect();
    assert_eq!(
        facts,
        [("acme/infra".to_owned(), true, false, true), ("tidelock/notes".to_owned(), false, false, false)]
    );
}

#[tokio::test]
async fn a_commit_is_compared_with_a_branch() {
    let branch = json!({"name": "release/1", "commit": {"id": BASE}});
    let stage = stage(move |_, request| match request {
        _ if request.contains("branches/release%2F1") => ok(branch.clone()),
        _ if request.contains(&format!("sha={HEAD}&not={BASE}")) => page(json!([{"sha": HEAD}]), 1),
        _ if request.contains(&format!("sha={OLD}&not={BASE}")) => page(json!([]), 0),
        _ => refused(404, "The target couldn't be found."),
    })
    .await;
    let is_on = async |commit: &str, branch: &str| {
        stage.host.is_on_branch(&repo(), &CommitSha::parse(commit).unwrap(), branch).await.unwrap()
    };
    assert!(is_on(BASE, "release/1").await && is_on(OLD, "release/1").await);
    assert!(!is_on(HEAD, "release/1").await && !is_on(HEAD, "gone").await);
    assert!(!is_on(&"0".repeat(40), "release/1").await, "the host does not know it");
}

#[tokio::test]
async fn a_deleted_pull_request_is_told_from_a_hidden_repository() {
    let gone = answering(vec![("/pulls/7", Value::Null), ("/repos/acme/infra", repository("acme/infra"))]).await;
    assert!(!gone.host.is_gone(&id()).await.unwrap(), "it is there");
    let deleted = stage(|_, request| match request.ends_with("/repos/acme/infra") {
        true => ok(repository("acme/infra")),
        false => refused(404, "The target couldn't be found."),
    })
    .await;
    assert!(deleted.host.is_gone(&id()).await.unwrap());
    assert!(!answering(Vec::new()).await.host.is_gone(&id()).await.unwrap());
}

#[tokio::test]
async fn a_repository_is_found_by_its_id() {
    let stage = answering(vec![("/repositories/12", repository("acme/now"))]).await;
    let now = stage.host.present_name(&repo(), "12").await.unwrap();
    assert_eq!(now.map(|repo| repo.to_string()).as_deref(), Some("127.0.0.1/acme/now"));
    assert_eq!(stage.host.present_name(&repo(), "13").await.unwrap(), None);
    assert_eq!(stage.host.present_name(&repo(), "../x").await.unwrap(), None);
    let other = answering(vec![("/repositories/13", repository("acme/now"))]).await;
    assert!(other.host.present_name(&repo(), "13").await.is_err());
}

#[test]
fn code_owners_are_read_in_its_own_language() {
    let profile = profile(&GiteaAddress::default());
    assert_eq!(profile.owner_language, OwnersLanguage::EveryRule);
    assert_eq!(profile.owner_files, ["CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS", ".forgejo/CODEOWNERS"]);
}

#[tokio::test]
async fn git_gets_our_login_and_the_token() {
    let stage = answering(Vec::new()).await;
    let credentials = stage.host.git_credentials("acme").await.unwrap();
    assert_eq!((credentials.username.as_str(), credentials.password.expose_secret()), ("tidelock", "t0ken"));
    assert_eq!(stage.host.clone_url(&repo()).unwrap(), format!("{}/acme/infra.git", stage.host.address.base()));
    assert_eq!(stage.host.hostname(), "127.0.0.1");
    assert_eq!((stage.host.profile().api_type, stage.host.budget()), ("Gitea", None));
}
