//! Tests against a small server on loopback that answers as Bitbucket Data Center does.

mod comments;
mod forge;
mod lists;
mod merging;
mod people;
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
const AT: &str = "/bb/rest/api/latest/projects/PRJ/repos/infra";
/// Path of the pull request in the API.
const PULL: &str = "/bb/rest/api/latest/projects/PRJ/repos/infra/pull-requests/7";

/// Requests that arrived: method and address, body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;
/// Answers a request by the number of requests before it, and its method and address.
type Part = Arc<dyn Fn(usize, &str) -> Response + Send + Sync>;

struct Stage {
    host: BitbucketDataCenter,
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
    stage_as("tidelock", part).await
}

/// Starts the server with this user name in the settings.
async fn stage_as(user: &str, part: impl Fn(usize, &str) -> Response + Send + Sync + 'static) -> Stage {
    async fn any(
        State((asked, part)): State<(Asked, Part)>,
        method: Method,
        uri: Uri,
        headers: Headers,
        body: Bytes,
    ) -> Response {
        assert_eq!(headers["authorization"], "Bearer t0ken");
        assert_eq!(headers["x-atlassian-token"], "no-check");
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
    let url = format!("http://{}/bb", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut host = BitbucketDataCenter::new(BitbucketDataCenterOptions {
        address: BitbucketDataCenterAddress::of_base_url(&url).unwrap(),
        user: user.into(),
        token: TokenSource::Value("t0ken".into()),
        status_name: "atlantis".into(),
        server_url: "https://tidelock.example.com".into(),
        serves: Arc::new(|repo| repo.owner == "PRJ"),
    });
    host.http = host.http.hasty();
    Stage { host, asked }
}

fn repo() -> RepoId {
    RepoId { host: "127.0.0.1".into(), owner: "PRJ".into(), name: "infra".into() }
}

fn id() -> PullId {
    PullId { repo: repo(), number: 7 }
}

fn person(name: &str) -> Value {
    json!({"name": name, "slug": name, "displayName": "Tide Lock", "emailAddress": format!("{name}@example.com"), "type": "NORMAL"})
}

/// A repository, whose project has the name of another one's key.
fn repository(key: &str, slug: &str) -> Value {
    json!({"id": 12, "slug": slug, "name": "Another name", "archived": false,
        "project": {"id": 3, "key": key, "name": "OTHER", "type": "NORMAL"}})
}

fn side(branch: &str, commit: &str, repository: Value) -> Value {
    json!({"id": format!("refs/heads/{branch}"), "displayId": branch, "latestCommit": commit, "repository": repository})
}

fn pull() -> Value {
    json!({
        "id": 7, "version": 3, "title": "Add a bucket", "state": "OPEN", "open": true, "closed": false, "draft": false,
        "createdDate": 1_793_523_600_250_i64, "updatedDate": 1_793_610_000_500_i64, "author": {"user": person("ann"), "role": "AUTHOR"},
        "reviewers": [], "participants": [], "fromRef": side("topic", HEAD, repository("PRJ", "infra")),
        "toRef": side("main", BASE, repository("PRJ", "infra")),
    })
}

/// A body with one value replaced; the last part of the place may be new.
fn with(mut body: Value, place: &str, value: impl Into<Value>) -> Value {
    let (parent, key) = place.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap_or_else(|| panic!("{place}"))[key] = value.into();
    body
}

fn merged_pull() -> Value {
    with(with(pull(), "/state", "MERGED"), "/properties", json!({"mergeCommit": {"id": OLD}}))
}

fn ok(body: Value) -> Response {
    ([("x-ausername", "tidelock%40example.com")], axum::Json(body)).into_response()
}

fn page(rows: &[Value]) -> Value {
    json!({"values": rows, "size": rows.len(), "limit": 100, "start": 0, "isLastPage": true, "nextPageStart": null})
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn refused(status: u16, message: &str) -> Response {
    let error = json!({"context": null, "message": message, "exceptionName": "com.atlassian.bitbucket.SomeException"});
    (StatusCode::from_u16(status).unwrap(), axum::Json(json!({"errors": [error]}))).into_response()
}

/// Answers from a list of parts of requests; a list is a page. What it does not have is answered as a mergeable pull request of a host without
/// checks.
fn usual(answers: &[(&str, Value)], request: &str) -> Response {
    let found = answers.iter().find(|(part, _)| request.contains(part)).map(|(_, body)| body.clone());
    let body = match found {
        Some(Value::Array(rows)) => page(&rows),
        Some(body) => body,
        None if request.contains("application-properties") => json!({"version": "9.4.3", "displayName": "Bitbucket"}),
        None if request == format!("GET {PULL}") => pull(),
        None if request == format!("GET {AT}") => repository("PRJ", "infra"),
        None if request == format!("GET {PULL}/merge") => {
            json!({"canMerge": true, "conflicted": false, "outcome": "CLEAN", "vetoes": []})
        }
        None if request.contains("/settings/pull-requests") => json!({"requiredSuccessfulBuilds": 0}),
        None if request.contains("/activities") || request.contains("/conditions") => page(&[]),
        None if request.contains("/build-status/") || request.contains("/users?") => page(&[]),
        None => return refused(404, "nothing here"),
    };
    ok(body)
}

async fn answering(answers: Vec<(&'static str, Value)>) -> Stage {
    stage(move |_, request| usual(&answers, request)).await
}

async fn read_pull(stage: &Stage) -> PullRequest {
    stage.host.pull_request(&id()).await.unwrap()
}

#[tokio::test]
async fn a_pull_request_is_read() {
    let stage = answering(Vec::new()).await;
    let read = read_pull(&stage).await;
    assert_eq!(stage.requests(), [format!("GET {PULL}")]);
    let base = stage.host.address.base().to_owned();
    assert_eq!(read.url, format!("{base}/projects/PRJ/repos/infra/pull-requests/7"));
    assert_eq!(read.clone_url, format!("{base}/scm/prj/infra.git"));
    assert_eq!(
        (read.author.as_str(), read.title.as_str(), read.draft, read.fork),
        ("ann", "Add a bucket", false, false)
    );
    assert_eq!((read.head.branch.as_str(), read.head.commit.as_str()), ("topic", HEAD));
    assert_eq!((read.base.branch.as_str(), read.base.commit.as_str()), ("main", BASE));
    assert_eq!((read.state, read.labels, read.repo_size_kib), (PullState::Open, Vec::<String>::new(), None));
    assert_eq!(stage.host.told_key(&repo()).as_deref(), Some("12"));
    let page = stage.host.profile().commit_address.as_ref().unwrap().url_of(&repo(), &HEAD.into()).unwrap();
    assert_eq!(page, format!("{base}/projects/PRJ/repos/infra/commits/{HEAD}"));
}

#[tokio::test]
async fn states_are_told_apart() {
    let read = async |told: Value| answering(vec![("/pull-requests/7", told)]).await.host.pull_request(&id()).await;
    assert_eq!(read(merged_pull()).await.unwrap().state, PullState::Merged { commit: CommitSha::parse(OLD).ok() });
    let untold = read(with(pull(), "/state", "MERGED")).await.unwrap();
    assert_eq!(untold.state, PullState::Merged { commit: None });
    assert_eq!(read(with(pull(), "/state", "DECLINED")).await.unwrap().state, PullState::Closed);
    assert!(read(with(pull(), "/draft", true)).await.unwrap().draft);
    assert!(read(with(pull(), "/author", Value::Null)).await.unwrap().author.is_unknown());
    let fork = read(with(pull(), "/fromRef/repository", repository("~ann", "infra"))).await.unwrap();
    assert!(fork.fork && fork.head.clone_url.is_none(), "the base repository has its commits");
    assert_eq!((fork.head.repo_owner.as_str(), fork.head.repo_name.as_str()), ("~ann", "infra"));
    let gone = read(with(pull(), "/fromRef/repository", Value::Null)).await.unwrap();
    assert!(gone.fork && gone.head.repo_owner.is_empty());
    for (pointer, value) in [
        ("/fromRef/latestCommit", json!(&HEAD[..12])),
        ("/fromRef/id", json!("refs/tags/v1")),
        ("/toRef/id", Value::Null),
        ("/title", json!("")),
        ("/state", json!("odd")),
        ("/id", json!(8)),
    ] {
        assert!(read(with(pull(), pointer, value)).await.unwrap_err().is_transient(), "{pointer}");
    }
}

#[tokio::test]
async fn another_repository_is_refused_and_names_of_projects_do_not_count() {
    for other in [repository("OTHER", "infra"), repository("PRJ", "other")] {
        let stage = answering(vec![("/pull-requests/7", with(pull(), "/toRef/repository", other))]).await;
        let error = stage.host.pull_request(&id()).await.unwrap_err();
        assert!(matches!(error, HostError::Moved { .. }), "{error}");
    }
    // The project's name is that of another key.
    let named = RepoId { owner: "OTHER".into(), ..repo() };
    let stage = stage(|_, _| ok(pull())).await;
    let error = stage.host.pull_request(&PullId { repo: named, number: 7 }).await.unwrap_err();
    assert!(matches!(&error, HostError::Moved { to, .. } if to == "PRJ/infra"), "{error}");
    let lower = RepoId { owner: "prj".into(), name: "Infra".into(), ..repo() };
    assert!(stage.host.pull_request(&PullId { repo: lower, number: 7 }).await.is_ok(), "case does not count");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let redirected =
        stage(|_, _| (StatusCode::MOVED_PERMANENTLY, [("location", "https://evil.example/x")]).into_response()).await;
    let error = redirected.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
    assert_eq!(redirected.requests().len(), 1);
}

#[tokio::test]
async fn git_gets_the_user_of_the_token() {
    let stage = answering(Vec::new()).await;
    let credentials = stage.host.git_credentials("PRJ").await.unwrap();
    assert_eq!((credentials.username.as_str(), credentials.password.expose_secret()), ("tidelock", "t0ken"));
    let of_repository = stage_as("", |_, _| no_content()).await;
    assert_eq!(of_repository.host.git_credentials("PRJ").await.unwrap().username, "x-token-auth");
    assert!(of_repository.host.bot_login().is_unknown());
    assert_eq!((stage.host.hostname(), stage.host.profile().api_type), ("127.0.0.1", "BitbucketServer"));
}

#[tokio::test]
async fn our_account_is_asked_for_once() {
    let stage = answering(Vec::new()).await;
    assert_eq!(stage.host.bot_login().as_str(), "tidelock", "that of the settings before");
    stage.host.prepare().await.unwrap();
    stage.host.learn_account().await.unwrap();
    stage.host.comments(&id(), None).await.unwrap();
    assert_eq!((stage.host.bot_login().as_str(), stage.count("application-properties")), ("tidelock@example.com", 1));
    let instance = stage.host.instance().await.unwrap();
    assert_eq!((instance.version.as_str(), instance.login.unwrap().as_str()), ("9.4.3", "tidelock@example.com"));
}

#[tokio::test]
async fn a_token_without_an_account_learns_it_from_its_first_comment() {
    let stage = stage_as("x-token-auth", |_, request| match request.starts_with("POST") {
        true => axum::Json(json!({"id": 5, "version": 0, "author": person("access-token-user/12")})).into_response(),
        false => axum::Json(json!({"version": "9.4.3"})).into_response(),
    })
    .await;
    for _ in 0..2 {
        stage.host.learn_account().await.unwrap();
    }
    assert!(stage.host.bot_login().is_unknown());
    assert_eq!(stage.count("application-properties"), 1);
    stage.host.create_comment(&id(), "hi").await.unwrap();
    assert_eq!(stage.host.bot_login().as_str(), "access-token-user/12");
}

#[tokio::test]
async fn limits_are_waited_for() {
    let stage = stage(|count, _| match count {
        0 => {
            let told = [
                ("x-ratelimit-limit", "60"),
                ("x-ratelimit-remaining", "3"),
                ("x-ratelimit-fillrate", "1"),
                ("x-ratelimit-interval-seconds", "1"),
            ];
            (told, axum::Json(pull())).into_response()
        }
        1 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]).into_response(),
        _ => refused(429, "You have been rate limited"),
    })
    .await;
    read_pull(&stage).await;
    assert!(stage.host.budget().unwrap().is_low());
    let mut waits = Vec::new();
    for _ in 0..2 {
        let HostError::RateLimited { wait, .. } = stage.host.pull_request(&id()).await.unwrap_err() else { panic!() };
        waits.push(wait.as_secs());
    }
    assert_eq!((waits, stage.requests().len()), (vec![7, 60], 3), "it is not tried again at once");
}

#[tokio::test]
async fn errors_are_told_by_their_kind() {
    for (status, is) in [
        (401, (|error| matches!(error, HostError::Denied { .. })) as fn(&HostError) -> bool),
        (403, |error| matches!(error, HostError::Denied { .. })),
        (404, |error| matches!(error, HostError::NotFound { .. })),
        (400, |error| matches!(error, HostError::Rejected { status: 400, .. })),
        (503, |error| matches!(error, HostError::Unavailable { .. })),
    ] {
        let stage = stage(move |_, _| refused(status, "You are not permitted to access this resource")).await;
        let error = stage.host.pull_request(&id()).await.unwrap_err();
        assert!(is(&error), "{status}: {error:?}");
        assert!(status == 404 || error.to_string().contains("You are not permitted"), "{error}");
        assert!(!error.to_string().contains("no reason given"), "{error}");
    }
}
