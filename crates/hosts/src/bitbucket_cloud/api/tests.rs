//! Tests against a small server on loopback that answers as Bitbucket Cloud does.

mod comments;
mod commits;
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
use std::sync::atomic::{AtomicUsize, Ordering};
use tidelock_core::domain::{PullState, PullVersion};

const HEAD: &str = "8e0b45049b6253b8984cde9241830d2851168142";
const OLD: &str = "1111eeee455ff5aaaaabb66ccccccccc7777cccc";
const BASE: &str = "5555ffff566aa6bbbbbcc77ddddddd888888dddd";
/// Path of the repository in the API.
const AT: &str = "/2.0/repositories/acme/infra";
/// Path of the pull request in the API.
const PULL: &str = "/2.0/repositories/acme/infra/pullrequests/7";
const KEY: &str = "{bc771cbf-829e-4c4b-b71f-a0eb3ac2b860}";
const ANN: &str = "557058:2a6349dc-4346-4805-bd84-3abdd0812d17";

/// Requests that arrived: method and address, body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;
/// Answers a request by the number of requests before it, and its method and address.
type Part = Arc<dyn Fn(usize, &str) -> Response + Send + Sync>;

struct Stage {
    host: BitbucketCloud,
    asked: Asked,
    url: String,
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

/// Starts the server with an account's API token.
async fn stage(part: impl Fn(usize, &str) -> Response + Send + Sync + 'static) -> Stage {
    let credentials = BitbucketCloudCredentials::of_settings("tidelock@example.com", "");
    stage_as(credentials, "Basic dGlkZWxvY2tAZXhhbXBsZS5jb206dDBrZW4=", part).await
}

/// Starts the server with an access token.
async fn stage_with_access_token(part: impl Fn(usize, &str) -> Response + Send + Sync + 'static) -> Stage {
    stage_as(BitbucketCloudCredentials::AccessToken, "Bearer t0ken", part).await
}

async fn stage_as(
    credentials: BitbucketCloudCredentials,
    proof: &'static str,
    part: impl Fn(usize, &str) -> Response + Send + Sync + 'static,
) -> Stage {
    type Seen = (Asked, Part, &'static str);
    async fn any(
        State((asked, part, proof)): State<Seen>,
        method: Method,
        uri: Uri,
        headers: Headers,
        body: Bytes,
    ) -> Response {
        assert_eq!(headers["authorization"], proof);
        let request = format!("{method} {uri}");
        let count = {
            let mut asked = asked.lock().unwrap();
            asked.push((request.clone(), serde_json::from_slice(&body).unwrap_or(Value::Null)));
            asked.len() - 1
        };
        part(count, &request)
    }
    let asked = Asked::default();
    let app = Router::new().fallback(any).with_state((Arc::clone(&asked), Arc::new(part) as Part, proof));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/2.0", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut host = BitbucketCloud::new(BitbucketCloudOptions {
        address: BitbucketCloudAddress::of_base_url(&url).unwrap(),
        credentials,
        token: TokenSource::Value("t0ken".into()),
        status_name: "atlantis".into(),
        server_url: "https://tidelock.example.com".into(),
        serves: Arc::new(|repo| repo.owner == "acme"),
    });
    host.http = host.http.hasty();
    Stage { host, asked, url }
}

fn repo() -> RepoId {
    RepoId { host: "127.0.0.1".into(), owner: "acme".into(), name: "infra".into() }
}

fn id() -> PullId {
    PullId { repo: repo(), number: 7 }
}

fn repository(name: &str) -> Value {
    json!({"type": "repository", "full_name": name, "uuid": KEY, "is_private": true})
}

/// A person, whose account id and UUID have this digit.
fn person(digit: &str) -> Value {
    json!({"type": "user", "display_name": "Some Body", "nickname": ANN, "account_id": format!("712020:{}", digit.repeat(8)),
        "uuid": format!("{{{}}}", digit.repeat(8))})
}

fn tidelock() -> Value {
    person("0")
}

fn side(branch: &str, commit: &str, repository: Value) -> Value {
    json!({"branch": {"name": branch}, "commit": {"type": "commit", "hash": &commit[..12]}, "repository": repository})
}

fn pull() -> Value {
    json!({
        "type": "pullrequest", "id": 7, "title": "Add a bucket", "state": "OPEN", "draft": false, "queued": false,
        "author": {"account_id": ANN, "uuid": "{87bb15eb-47c1-49b3-9f16-ca824a2979a4}", "display_name": "Ann"},
        "created_on": "2026-11-01T09:00:00.250000+00:00", "updated_on": "2026-11-02T09:00:00.500000+00:00",
        "comment_count": 3, "task_count": 0, "merge_commit": null, "participants": [], "close_source_branch": false,
        "links": {"html": {"href": "https://elsewhere.example.com/acme/infra/pull-requests/7"}},
        "source": side("topic", HEAD, repository("acme/infra")),
        "destination": side("main", BASE, repository("acme/infra")),
    })
}

fn with(mut value: Value, pointer: &str, to: impl Into<Value>) -> Value {
    *value.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = to.into();
    value
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}

fn commit(hash: &str) -> Value {
    json!({"type": "commit", "hash": hash, "repository": repository("acme/infra")})
}

fn branch(name: &str, tip: &str) -> Value {
    json!({"type": "branch", "name": name, "target": commit(tip)})
}

fn page(rows: &[Value]) -> Value {
    json!({"values": rows, "pagelen": 50, "page": 1, "size": rows.len()})
}

fn refused(status: u16, message: &str) -> Response {
    let error = json!({"type": "error", "error": {"message": message}});
    (StatusCode::from_u16(status).unwrap(), axum::Json(error)).into_response()
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn moved(to: &str) -> Response {
    (StatusCode::FOUND, [("location", to.to_owned())]).into_response()
}

/// Answers with the first of these whose text occurs in the request; else as a host does on which nothing is special.
fn usual(answers: &[(&'static str, Value)], request: &str) -> Response {
    if let Some((_, body)) = answers.iter().find(|(part, _)| request.contains(part)) {
        return match body {
            Value::Array(rows) => ok(page(rows)),
            body => ok(body.clone()),
        };
    }
    let of_commit = request.rsplit_once("/commit/").map(|(_, start)| start);
    match of_commit.and_then(|start| [HEAD, OLD, BASE].into_iter().find(|whole| whole.starts_with(start))) {
        Some(whole) => ok(commit(whole)),
        None if request.ends_with("/2.0/user") => ok(tidelock()),
        None if request.ends_with(&format!("GET {AT}/refs/branches/topic")) => ok(branch("topic", HEAD)),
        None if is_of_pull(request) => ok(pull()),
        None => refused(404, "Resource not found"),
    }
}

/// Returns true if a request reads the pull request itself.
fn is_of_pull(request: &str) -> bool {
    request.split('?').next().is_some_and(|path| path == format!("GET {PULL}"))
}

async fn answering(answers: Vec<(&'static str, Value)>) -> Stage {
    stage(move |_, request| usual(&answers, request)).await
}

fn known_pull() -> PullRequest {
    let address = BitbucketCloudAddress::of_base_url("http://127.0.0.1/2.0").unwrap();
    let [head, base] = [HEAD, BASE].map(|hash| CommitSha::parse(hash).unwrap());
    answers::pull_request(&address, &id(), &pull(), answers::PullCommits { head, base, merge: None }).unwrap()
}

#[tokio::test]
async fn a_pull_request_is_read() {
    let stage = answering(Vec::new()).await;
    assert_eq!(stage.host.told_key(&repo()), None);
    let read = stage.host.pull_request(&id()).await.unwrap();
    assert_eq!(stage.host.told_key(&repo()).as_deref(), Some(KEY));
    let short = |hash: &str| format!("GET {AT}/commit/{}", &hash[..12]);
    assert_eq!(stage.requests(), [format!("GET {PULL}"), format!("GET {AT}/refs/branches/topic"), short(BASE)]);
    let site = stage.url.trim_end_matches("/2.0");
    assert_eq!(read.url, format!("{site}/acme/infra/pull-requests/7"));
    assert_eq!(read.clone_url, format!("{site}/acme/infra.git"));
    assert_eq!((read.author.shown(), read.author.is(&Login::new("Ann"))), ("Ann", false));
    assert_eq!((read.author.as_str(), read.title.as_str(), read.draft, read.fork), (ANN, "Add a bucket", false, false));
    assert_eq!((read.head.branch.as_str(), read.head.commit.as_str()), ("topic", HEAD));
    assert_eq!((read.base.branch.as_str(), read.base.commit.as_str()), ("main", BASE));
    assert_eq!((read.state, read.labels, read.repo_size_kib), (PullState::Open, Vec::<String>::new(), None));
}

#[tokio::test]
async fn states_are_told_apart() {
    let read = async |told: Value| answering(vec![("/pullrequests/7", told)]).await.host.pull_request(&id()).await;
    let merge = json!({"hash": &OLD[..12]});
    let merged = read(with(with(pull(), "/state", "MERGED"), "/merge_commit", merge)).await.unwrap();
    assert_eq!(merged.state, PullState::Merged { commit: CommitSha::parse(OLD).ok() });
    let gone =
        read(with(with(pull(), "/state", "MERGED"), "/merge_commit", json!({"hash": "aaaaaaaaaaaa"}))).await.unwrap();
    assert_eq!(gone.state, PullState::Merged { commit: None });
    for state in ["DECLINED", "SUPERSEDED"] {
        assert_eq!(read(with(pull(), "/state", state)).await.unwrap().state, PullState::Closed);
    }
    assert!(read(with(pull(), "/draft", true)).await.unwrap().draft);
    assert!(read(with(pull(), "/author", Value::Null)).await.unwrap().author.is_unknown());
    let named = read(with(pull(), "/author", json!({"nickname": "ann", "display_name": "ann"}))).await.unwrap();
    assert!(named.author.is_unknown(), "a name is no id");
    for (pointer, value) in [
        ("/source/commit/hash", json!("x")),
        ("/source/branch/name", Value::Null),
        ("/title", json!("")),
        ("/state", json!("odd")),
        ("/id", json!(8)),
    ] {
        assert!(read(with(pull(), pointer, value)).await.unwrap_err().is_transient(), "{pointer}");
    }
}

#[tokio::test]
async fn questions_that_come_together_cost_one_request() {
    let stage = stage(|_, request| match request {
        _ if request.contains("/diffstat") || request.contains("/branch-restrictions") => ok(page(&[])),
        _ if request.contains("/refs/branches/topic") => ok(branch("topic", HEAD)),
        _ if request.contains("/commit/") => ok(json!({"hash": BASE})),
        _ => ok(pull()),
    })
    .await;
    let host = &stage.host;
    let count = || stage.requests().iter().filter(|request| **request == format!("GET {PULL}")).count();
    let known = host.pull_request(&id()).await.unwrap();
    let (reviews, stands) = tokio::join!(host.reviews(&known), host.mergeability(&known));
    assert_eq!((reviews.unwrap().len(), stands.unwrap().mergeable, count()), (0, true, 1));
    host.pull_request(&id()).await.unwrap();
    assert_eq!(count(), 2, "a command reads it again");
}

#[tokio::test]
async fn another_repository_is_refused() {
    let other =
        answering(vec![("/pullrequests/7", with(pull(), "/destination/repository", repository("acme/other")))]).await;
    let error = other.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(&error, HostError::Moved { to, .. } if to == "acme/other"), "{error}");
    let redirected = stage(|_, _| moved("https://evil.example/2.0/repositories/acme/infra/pullrequests/7")).await;
    let error = redirected.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
    assert_eq!(redirected.requests().len(), 1);
}

#[tokio::test]
async fn open_pull_requests_are_listed_with_their_versions() {
    let listed = |pull: Value| vec![("/pullrequests?state=OPEN&sort=created_on&pagelen=50", json!([pull]))];
    let stage = answering(listed(pull())).await;
    for _ in 0..2 {
        let open = stage.host.open_pulls(&repo()).await.unwrap();
        assert_eq!((open.len(), &open[0].pull.id), (1, &id()));
        assert_eq!(open[0].created, "2026-11-01T09:00:00.25Z".parse().unwrap());
        assert_eq!(open[0].version, PullVersion::new("2026-11-02T09:00:00.500000003Z"));
        assert_eq!((open[0].pull.head.commit.as_str(), open[0].pull.base.commit.as_str()), (HEAD, HEAD));
    }
    assert_eq!(stage.requests().len(), 3, "a known head is not asked for again");
    assert_eq!(stage.host.told_key(&repo()).as_deref(), Some(KEY));
    let other = answering(listed(with(pull(), "/destination/repository", repository("acme/other")))).await;
    assert!(matches!(other.host.open_pulls(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn a_push_of_a_commit_with_the_same_first_digits_is_seen() {
    let twin = format!("{}{}", &HEAD[..12], &OLD[12..]);
    let (pushed, tips) = (AtomicUsize::new(0), [HEAD.to_owned(), twin.clone()]);
    let stage = stage(move |_, request| match request {
        _ if request.contains("/pullrequests?") => {
            let at = format!("2026-11-02T09:00:0{}+00:00", pushed.load(Ordering::SeqCst));
            ok(page(&[with(pull(), "/updated_on", at)]))
        }
        _ if request.contains("/refs/branches/topic") => {
            let tip = pushed.fetch_add(1, Ordering::SeqCst);
            ok(branch("topic", &tips[tip]))
        }
        _ => usual(&[], request),
    })
    .await;
    let mut heads = Vec::new();
    for _ in 0..2 {
        heads.push(stage.host.open_pulls(&repo()).await.unwrap()[0].pull.head.commit.to_string());
    }
    assert_eq!(heads, [HEAD.to_owned(), twin], "another commit with the same first digits is a push");
}

#[tokio::test]
async fn a_pull_request_that_cannot_be_read_does_not_hide_the_others() {
    let moved = with(with(pull(), "/id", 8), "/source/commit/hash", "aaaaaaaaaaaa");
    let stage = answering(vec![("/pullrequests?", json!([moved, pull()]))]).await;
    let open = stage.host.open_pulls(&repo()).await.unwrap();
    assert_eq!(open.iter().map(|one| one.pull.id.number).collect::<Vec<_>>(), [7]);
    let broken: Vec<Value> = (8..20).map(|number| with(moved.clone(), "/id", number)).collect();
    let stage = answering(vec![("/pullrequests?", json!(broken)), ("/refs/branches?", json!([]))]).await;
    assert!(stage.host.open_pulls(&repo()).await.unwrap_err().is_transient());
    assert_eq!(stage.requests().len(), 4, "two errors in a row end a round");
    let limited = stage_of_limit().await;
    assert!(matches!(limited.host.open_pulls(&repo()).await, Err(HostError::RateLimited { .. })));
}

/// A host that has a list of one pull request, and then no requests left.
async fn stage_of_limit() -> Stage {
    stage(
        |count, _| {
            if count == 0 {
                ok(page(&[pull()]))
            } else {
                refused(429, "Rate limit for this resource has been exceeded")
            }
        },
    )
    .await
}

#[tokio::test]
async fn many_heads_are_read_at_once() {
    let hash = |number: u64| format!("{:0>40}", format!("{number}{}", "a".repeat(30)));
    let row = |number: u64| {
        let topic = side(&format!("topic{number}"), &hash(number), repository("acme/infra"));
        with(with(pull(), "/id", number), "/source", topic)
    };
    let rows: Vec<Value> = (1..=9).map(row).collect();
    let tips = (1..=9).map(|number| json!({"name": format!("topic{number}"), "target": {"hash": hash(number)}}));
    let stage = answering(vec![
        ("/pullrequests?", json!(rows)),
        ("/refs/branches?sort=-target.date&pagelen=100", json!(tips.collect::<Vec<_>>())),
    ])
    .await;
    let open = stage.host.open_pulls(&repo()).await.unwrap();
    assert_eq!((open.len(), stage.requests().len()), (9, 2));
    assert_eq!(open[4].pull.head.commit.as_str(), hash(5));
}

#[tokio::test]
async fn lists_go_on_below_the_api_only() {
    let reading = async |next: &'static str| {
        let stage = stage(move |count, request| match request.contains("/hooks") && count == 0 {
            true => {
                let mut first = page(&[json!({"url": "https://a", "uuid": KEY})]);
                first["next"] = json!(next);
                ok(first)
            }
            false => ok(page(&[])),
        })
        .await;
        (stage.host.repository_hooks(&repo()).await.map(|hooks| hooks.len()), stage.requests().len())
    };
    for next in [
        "https://evil.example/2.0/repositories/acme/infra/hooks?page=2",
        "http://127.0.0.1:1/2.0/repositories/acme/infra/hooks?page=2",
        "//evil.example/2.0/x",
        "/2.0/repositories/acme/infra/hooks?page=2",
        "page=2",
    ] {
        let (read, requests) = reading(next).await;
        let error = read.unwrap_err();
        assert!(error.to_string().contains("at another address"), "{next}: {error}");
        assert_eq!(requests, 1);
    }
}

#[tokio::test]
async fn a_next_page_of_the_same_api_is_read_and_one_above_it_is_not() {
    let stage = stage(|count, request| match request {
        _ if count == 0 => refused(500, "learns the address"),
        _ if request.contains("page=2") => ok(page(&[json!({"url": "https://b", "uuid": KEY})])),
        _ => refused(404, "gone"),
    })
    .await;
    let below = |tail: &str| format!("{}{tail}", stage.url);
    assert_eq!(stage.host.http.path_below(&below("/a?page=2")), Some("/a?page=2"));
    for tail in ["/../1.0/a", "/a/%2e%2E/b", "/a/./b", "/a\\..\\b", "x/a"] {
        assert_eq!(stage.host.http.path_below(&below(tail)), None, "{tail}");
    }
    assert_eq!(stage.host.http.path_below(&below("/a?q=../b")), Some("/a?q=../b"));
}

#[tokio::test]
async fn an_endless_list_is_an_error() {
    let url = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&url);
    let stage = stage(move |_, _| {
        let mut endless = page(&[json!({"url": "https://a", "uuid": KEY})]);
        endless["next"] = json!(format!("{}/repositories/acme/infra/hooks?page=2", told.lock().unwrap()));
        ok(endless)
    })
    .await;
    url.lock().unwrap().clone_from(&stage.url);
    let error = stage.host.repository_hooks(&repo()).await.unwrap_err();
    assert!(matches!(&error, HostError::Rejected { message, .. } if message.contains("more than 10 pages")), "{error}");
    assert_eq!(stage.requests().len(), 10);
}

#[tokio::test]
async fn repositories_are_listed_with_our_rights() {
    let row = |name: &str, permission: &str| json!({"permission": permission, "repository": repository(name)});
    let rows = json!([row("acme/infra", "admin"), row("acme/notes", "read"), row("odd name", "admin")]);
    let of = |slug: &str| json!({"type": "workspace_access", "workspace": {"slug": slug}, "administrator": false});
    let stage = answering(vec![
        ("/user/workspaces?", json!([of("closed"), of("acme")])),
        ("/user/workspaces/acme/permissions/repositories", rows),
    ])
    .await;
    let listed = stage.host.repositories().await.unwrap();
    let facts: Vec<_> = listed.iter().map(|one| (one.repo.full_name(), one.archived, one.can_write)).collect();
    assert_eq!(facts, [("acme/infra".to_owned(), false, true), ("acme/notes".to_owned(), false, false)]);
    let token = stage_with_access_token(|_, _| refused(403, "no")).await;
    assert!(token.host.repositories().await.unwrap().is_empty() && token.requests().is_empty());
}

#[tokio::test]
async fn a_commit_is_compared_with_a_branch() {
    let branch = json!({"name": "release/1", "type": "branch", "target": {"hash": BASE}});
    let stage = stage(move |_, request| match request {
        _ if request.contains("branches/release%2F1") => ok(branch.clone()),
        _ if request.contains(&format!("/commits/{HEAD}?exclude={BASE}&")) => ok(page(&[commit(HEAD)])),
        _ if request.contains(&format!("/commits/{OLD}?exclude={BASE}&")) => ok(page(&[])),
        _ => refused(404, "Commit not found"),
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
    let there =
        stage(|_, request| if request.ends_with(AT) { ok(repository("acme/infra")) } else { usual(&[], request) })
            .await;
    assert!(!there.host.is_gone(&id()).await.unwrap(), "it is there");
    let deleted = stage(|_, request| match request.ends_with(AT) {
        true => ok(repository("acme/infra")),
        false => refused(404, "gone"),
    })
    .await;
    assert!(deleted.host.is_gone(&id()).await.unwrap());
    let hidden = stage(|_, _| refused(404, "gone")).await;
    assert!(!hidden.host.is_gone(&id()).await.unwrap());
}

#[tokio::test]
async fn a_repository_is_found_by_its_id() {
    let stage = answering(vec![("/repositories/acme/%7Bbc771cbf", repository("acme/now"))]).await;
    let now = stage.host.present_name(&repo(), KEY).await.unwrap();
    assert_eq!(now.map(|repo| repo.to_string()).as_deref(), Some("127.0.0.1/acme/now"));
    assert_eq!(stage.host.present_name(&repo(), "{00000000}").await.unwrap(), None);
    assert_eq!(stage.host.present_name(&repo(), "../x").await.unwrap(), None);
    let other = answering(vec![("/repositories/acme/%7B0000", repository("acme/now"))]).await;
    assert!(other.host.present_name(&repo(), "{00000000}").await.is_err());
}

#[tokio::test]
async fn git_gets_the_user_of_the_token() {
    let stage = answering(Vec::new()).await;
    let credentials = stage.host.git_credentials("acme").await.unwrap();
    assert_eq!(credentials.username, "x-bitbucket-api-token-auth");
    assert_eq!(credentials.password.expose_secret(), "t0ken");
    let token = stage_with_access_token(|_, _| no_content()).await;
    assert_eq!(token.host.git_credentials("acme").await.unwrap().username, "x-token-auth");
    assert_eq!(stage.host.hostname(), "127.0.0.1");
    let profile = stage.host.profile();
    assert_eq!((profile.api_type, profile.folds, profile.owner_files.len()), ("BitbucketCloud", false, 0));
    let page = profile.commit_address.as_ref().unwrap().url_of(&repo(), &HEAD.into()).unwrap();
    assert!(page.ends_with(&format!("/acme/infra/commits/{HEAD}")), "{page}");
}

#[tokio::test]
async fn limits_are_noted_and_waited_for() {
    let stage = stage(|count, _| match count {
        0 => {
            ([("x-ratelimit-limit", "1000"), ("x-ratelimit-nearlimit", "true")], axum::Json(tidelock())).into_response()
        }
        1 => refused(429, "Rate limit for this resource has been exceeded"),
        _ => ([("x-ratelimit-limit", "1000")], axum::Json(page(&[]))).into_response(),
    })
    .await;
    stage.host.prepare().await.unwrap();
    assert!(stage.host.budget().unwrap().is_low());
    let error = stage.host.repository_hooks(&repo()).await.unwrap_err();
    let HostError::RateLimited { wait, .. } = error else { panic!("{error}") };
    assert_eq!(wait.as_secs(), 60, "no time is told");
    assert_eq!(stage.requests().len(), 2, "it is not tried again at once");
    stage.host.repository_hooks(&repo()).await.unwrap();
    assert_eq!(stage.host.budget(), None);
}

/// A missing repository may be answered by a web page with the reader's profile and a token for the web (github.com/khipu/khbb, "HTML
/// error pages").
#[tokio::test]
async fn an_answer_that_is_a_web_page_is_not_repeated() {
    for status in [404, 403, 400, 500] {
        let stage = stage(move |_, _| {
            let page = "<!DOCTYPE html><meta name=\"token\" content=\"s3cret-of-the-web\">Ann Smith";
            (StatusCode::from_u16(status).unwrap(), [("content-type", "text/html")], page).into_response()
        })
        .await;
        let error = stage.host.repository_hooks(&repo()).await.unwrap_err();
        let words = format!("{error} {error:?}");
        assert!(!words.contains("s3cret") && !words.contains("Ann") && !words.contains("<!DOC"), "{status}: {words}");
    }
}
