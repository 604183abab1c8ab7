//! Tests against a small server on loopback that plays GitHub's answers, good and bad.

mod issues;
mod merging;
mod teams;

use super::*;
use crate::vcs::ReviewVerdict;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use secrecy::ExposeSecret as _;
use std::sync::{Arc, Mutex};
use tidelock_core::domain::state::StatusState;
use tidelock_core::domain::{Head, PullVersion};

/// One request that arrived: method and address, Authorization, body.
type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;
/// Answers a request: its number so far, its method and address.
type Play = Arc<dyn Fn(usize, &str) -> Response + Send + Sync>;

struct Fake {
    github: Github,
    seen: Seen,
    url: String,
}

impl Fake {
    fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(request, ..)| request.clone()).collect()
    }

    fn body(&self, index: usize) -> Value {
        self.seen.lock().unwrap()[index].2.clone()
    }
}

async fn fake(play: impl Fn(usize, &str) -> Response + Send + Sync + 'static) -> Fake {
    async fn any(
        State((seen, play)): State<(Seen, Play)>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let request = format!("{method} {uri}");
        let token = headers.get("authorization").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
        assert_eq!(headers["x-github-api-version"], "2022-11-28");
        assert!(headers["user-agent"].to_str().unwrap().starts_with("tidelock/"));
        let request = match headers.get("if-none-match") {
            Some(etag) => format!("{request} unless {}", etag.to_str().unwrap()),
            None => request,
        };
        let count = {
            let mut seen = seen.lock().unwrap();
            seen.push((request.clone(), token, serde_json::from_slice(&body).unwrap_or(Value::Null)));
            seen.len() - 1
        };
        let response = play(count, &request);
        if response.extensions().get::<Slow>().is_some() {
            std::future::pending::<()>().await;
        }
        response
    }
    let seen = Seen::default();
    let app = Router::new().fallback(any).with_state((Arc::clone(&seen), Arc::new(play) as Play));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    Fake { github: github(&url, TokenSource::Value("t0ken".into())), seen, url }
}

/// Serves all of `acme`.
fn github(url: &str, token: TokenSource) -> Github {
    let options = GithubOptions {
        hostname: "localhost".into(),
        api_url: url.to_owned(),
        user: "Tidelock".into(),
        token,
        app: None,
        serves: Arc::new(|repo| repo.owner == "acme"),
        posts_per_hour: None,
        checks_of: None,
        bypassed: None,
    };
    let github = Github::new(options);
    Github { http: github.http.hasty(), ..github }
}

#[derive(Clone)]
struct Slow;

fn json_response(status: u16, body: Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

fn with(mut response: Response, name: &'static str, value: &str) -> Response {
    response.headers_mut().insert(name, value.parse().unwrap());
    response
}

fn id() -> PullId {
    PullId { repo: RepoId { host: "localhost".into(), owner: "acme".into(), name: "infra".into() }, number: 7 }
}

fn pull_json() -> Value {
    let repo = json!({"name": "infra", "owner": {"login": "acme"}, "clone_url": "https://localhost/acme/infra.git", "size": 12});
    json!({
        "number": 7, "title": "T", "html_url": "https://localhost/acme/infra/pull/7", "state": "open", "draft": false,
        "user": {"login": "ann"}, "labels": [{"name": "l"}], "mergeable": true, "mergeable_state": "clean",
        "head": {"ref": "topic", "sha": "a".repeat(40), "repo": repo}, "base": {"ref": "main", "sha": "b".repeat(40), "repo": repo},
    })
}

async fn pull() -> PullRequest {
    answers::pull_request(&id(), &pull_json()).unwrap()
}

#[tokio::test]
async fn a_pull_request_is_read_and_asked_for_again_while_it_is_not_there() {
    let fake =
        fake(
            |n, _| {
                if n < 2 {
                    json_response(404, json!({"message": "Not Found"}))
                } else {
                    json_response(200, pull_json())
                }
            },
        )
        .await;
    let pull = fake.github.pull_request(&id()).await.unwrap();
    assert_eq!(
        (pull.author.as_str(), pull.head.commit.as_str(), pull.repo_size_kib),
        ("ann", "a".repeat(40).as_str(), Some(12))
    );
    assert!(pull.is_open() && !pull.fork);
    assert_eq!(fake.requests(), ["GET /repos/acme/infra/pulls/7"; 3]);
    assert_eq!(fake.seen.lock().unwrap()[0].1, "Bearer t0ken");
}

#[tokio::test]
async fn a_deleted_fork_has_no_owner() {
    let mut json = pull_json();
    json["head"]["repo"] = Value::Null;
    json["user"] = Value::Null;
    let pull = answers::pull_request(&id(), &json).unwrap();
    assert!(pull.fork && pull.author.is_unknown());
}

fn told_apart(error: &HostError) -> String {
    match error {
        HostError::NotFound { .. } => "not found".to_owned(),
        HostError::Moved { to, .. } => format!("moved to {to}"),
        HostError::NotConfigured { host } => format!("{host} is not configured"),
        HostError::Denied { message, .. } => format!("denied: {message}"),
        HostError::RateLimited { wait, .. } => format!("wait {}", wait.as_secs()),
        HostError::Rejected { status, message, .. } => format!("{status}: {message}"),
        HostError::TooLong { message, .. } => format!("too long: {message}"),
        HostError::UnknownCommit { message, .. } => format!("unknown commit: {message}"),
        HostError::Unavailable { .. } => "unavailable".to_owned(),
    }
}

#[tokio::test]
async fn errors_are_told_apart_by_what_may_help() {
    let invalid = json!({"message": "Validation Failed", "errors": [
        {"field": "body", "code": "invalid"}, {"message": "body is too long"}, "odd",
    ]});
    let no_calls_left = || with(json_response(403, json!({})), "x-ratelimit-remaining", "0");
    let secondary = json!({"message": "You have exceeded a secondary rate limit"});
    let mut silence = json_response(200, json!({}));
    silence.extensions_mut().insert(Slow);
    for (response, want) in [
        (json_response(401, json!({"message": "Bad credentials"})), "denied: Bad credentials"),
        (json_response(403, json!({"message": "Resource not accessible"})), "denied: Resource not accessible"),
        (with(json_response(403, json!({})), "retry-after", "17"), "wait 17"),
        (with(no_calls_left(), "x-ratelimit-reset", "1"), "wait 1"),
        (no_calls_left(), "wait 60"),
        (with(json_response(403, json!({})), "retry-after", "99999999"), "wait 3900"),
        (json_response(403, secondary), "wait 60"),
        (json_response(429, json!({})), "wait 60"),
        (json_response(404, json!({})), "not found"),
        (json_response(410, json!({"message": "This issue was deleted"})), "410: This issue was deleted"),
        (
            json_response(403, json!({"message": "Unable to create comment because issue is locked."})),
            "403: Unable to create comment because issue is locked.",
        ),
        (
            json_response(422, json!({"message": "Validation Failed", "errors": ["was submitted too quickly"]})),
            "wait 60",
        ),
        (json_response(422, invalid), "too long: Validation Failed; body invalid; body is too long; odd"),
        (json_response(422, json!({"message": "body is invalid"})), "422: body is invalid"),
        (json_response(500, json!({"message": "oops"})), "unavailable"),
        ((StatusCode::BAD_GATEWAY, "<html>").into_response(), "unavailable"),
        ((StatusCode::CREATED, "{\"id\": ").into_response(), "unavailable"),
        (json_response(201, json!([1, 2])), "unavailable"),
        (silence, "unavailable"),
    ] {
        let response = Mutex::new(Some(response));
        let fake = fake(move |_, _| response.lock().unwrap().take().expect("a POST is tried once")).await;
        let error = fake.github.create_comment(&id(), "text").await.unwrap_err();
        assert_eq!(told_apart(&error), want, "{error}");
        assert_eq!(fake.requests().len(), 1, "a POST is tried once");
    }
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let resets = std::thread::spawn(move || listener.accept().map(drop));
    let github = github(&url, TokenSource::Value("t".into()));
    let error = github.create_comment(&id(), "x").await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    resets.join().unwrap().unwrap();
    let error = github.create_comment(&id(), "x").await.unwrap_err();
    assert!(error.is_transient(), "nobody listens any more: {error:?}");
}

#[tokio::test]
async fn a_get_is_tried_again_on_errors_that_may_pass() {
    let fake = fake(|n, _| if n < 2 { json_response(503, json!({})) } else { json_response(200, pull_json()) }).await;
    assert!(fake.github.pull_request(&id()).await.is_ok());
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn reviews_come_from_all_pages_with_permissions_of_those_who_count() {
    let review = |user: &str, state: &str| json!({"user": {"login": user}, "state": state, "commit_id": "aaa"});
    let fake = fake(move |_, request| match request.rsplit_once('/').unwrap().1 {
        "reviews?per_page=100&page=1" => {
            let page = json!([review("ann", "APPROVED"), review("eve", "COMMENTED")]);
            with(json_response(200, page), "link", "<http://x/repositories/1?page=2>; rel=\"next\"")
        }
        "reviews?per_page=100&page=2" => {
            json_response(200, json!([review("bob b", "CHANGES_REQUESTED"), review("cid", "APPROVED")]))
        }
        "permission" if request.contains("/ann/") => json_response(200, json!({"permission": "admin"})),
        "permission" if request.contains("/bob%20b/") => json_response(200, json!({"permission": "read"})),
        _ => json_response(404, json!({})),
    })
    .await;
    let got: Vec<_> = fake
        .github
        .reviews(&pull().await)
        .await
        .unwrap()
        .into_iter()
        .map(|r| (r.user, r.can_write, r.verdict))
        .collect();
    let want = [
        ("ann", true, ReviewVerdict::Approved),
        ("bob b", false, ReviewVerdict::ChangesRequested),
        ("cid", false, ReviewVerdict::Approved),
    ];
    assert_eq!(got, want.map(|(user, write, verdict)| (user.into(), write, verdict)));
    assert!(!fake.requests().iter().any(|request| request.contains("eve")));
}

#[tokio::test]
async fn more_reviews_than_are_read_refuse_a_verdict() {
    let fake = fake(|_, _| with(json_response(200, json!([])), "link", "<x>; rel=\"next\"")).await;
    let error = fake.github.reviews(&pull().await).await.unwrap_err();
    assert!(matches!(&error, HostError::Rejected { message, .. } if message == "more than 3000 entries"), "{error}");
}

#[tokio::test]
async fn mergeability_waits_until_the_host_knows() {
    let fake = fake(|n, _| {
        let mut json = pull_json();
        if n < 2 {
            json["mergeable"] = Value::Null;
            json["mergeable_state"] = json!("unknown");
        }
        json_response(200, json)
    })
    .await;
    assert!(fake.github.mergeability(&pull().await).await.unwrap().mergeable);
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn comments_are_listed_since_a_moment_and_deleted() {
    let fake = fake(|_, request| match request {
        r if r.starts_with("GET") => json_response(
            200,
            json!([{"id": 9, "user": {"login": "tidelock"}, "body": "b", "created_at": "2026-01-01T00:00:09Z",
                    "updated_at": "2026-01-01T00:00:09Z", "issue_url": "https://x/repos/Acme/infra/issues/7"},
                   {"id": 3, "user": {"login": "TIDELOCK"}, "body": "a", "created_at": "2026-01-01T00:00:03Z",
                    "updated_at": "2026-01-01T00:00:04Z"},
                   {"id": 5, "user": null, "created_at": "2026-01-01T00:00:05Z"}]),
        ),
        r if r.starts_with("DELETE") => json_response(404, json!({})),
        _ => json_response(201, json!({"id": 11})),
    })
    .await;
    let listed = fake.github.comments(&id(), Some("2026-01-01T00:00:01.5Z".parse().unwrap())).await.unwrap();
    let seen: Vec<_> =
        listed.list.iter().map(|c| (c.id, c.author.as_str(), c.body.as_str(), c.created.as_second() % 60)).collect();
    assert_eq!(seen, [(3, "TIDELOCK", "a", 3), (5, "", "", 5), (9, "tidelock", "b", 9)]);
    let edited: Vec<_> = listed.list.iter().map(|comment| comment.edited).collect();
    assert_eq!(edited, [true, true, false], "what the host does not tell may be edited");
    fake.github.delete_comment(&id(), 3).await.unwrap();
    assert_eq!(fake.github.create_comment(&id(), "text").await.unwrap(), 11);
    fake.github.react(&id(), 5, "eyes").await.unwrap();
    assert_eq!(
        fake.requests(),
        [
            "GET /repos/acme/infra/issues/7/comments?since=2026-01-01T00:00:01Z&per_page=50&page=1",
            "DELETE /repos/acme/infra/issues/comments/3",
            "POST /repos/acme/infra/issues/7/comments",
            "POST /repos/acme/infra/issues/comments/5/reactions",
        ]
    );
    assert_eq!(fake.body(2), json!({"body": "text"}));
}

#[tokio::test]
async fn statuses_fit_the_host() {
    let fake = fake(|_, _| json_response(201, json!({}))).await;
    let status = CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Failure,
        description: "é".repeat(200),
        url: String::new(),
        waits: false,
        details: None,
    };
    fake.github.set_status(&id(), &"aaa".into(), &status).await.unwrap();
    assert_eq!(fake.requests(), ["POST /repos/acme/infra/statuses/aaa"]);
    assert_eq!(fake.body(0), json!({"state": "failure", "context": "atlantis/plan", "description": "é".repeat(140)}));
}

#[tokio::test]
async fn a_token_file_is_read_on_every_use() {
    let fake = fake(|_, _| json_response(200, pull_json())).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let github = github(&fake.url, TokenSource::File(file.path().to_owned()));
    let error = github.create_comment(&id(), "x").await.unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    for token in ["one", "two"] {
        std::fs::write(file.path(), format!("{token}\n")).unwrap();
        github.pull_request(&id()).await.unwrap();
        assert_eq!(fake.seen.lock().unwrap().last().unwrap().1, format!("Bearer {token}"));
        let credentials = github.git_credentials("acme").await.unwrap();
        assert_eq!((credentials.username.as_str(), credentials.password.expose_secret()), ("Tidelock", token));
    }
}

#[tokio::test]
async fn names_cannot_leave_their_place_in_the_path() {
    let fake = fake(|_, _| json_response(200, json!({}))).await;
    let repo = RepoId { host: "h".into(), owner: "..".into(), name: "x".into() };
    assert!(fake.github.create_comment(&PullId { repo, number: 1 }, "x").await.is_err());
    let repo = RepoId { host: "h".into(), owner: "a/b?c".into(), name: "x".into() };
    let _ = fake.github.create_comment(&PullId { repo, number: 1 }, "x").await;
    assert_eq!(fake.requests(), ["POST /repos/a%2Fb%3Fc/x/issues/1/comments"]);
}

/// A pull request of another repository, or the repository itself.
fn elsewhere(owner: &str, name: &str) -> Value {
    let mut told = pull_json();
    let url = format!("https://localhost/{owner}/{name}.git");
    told["base"]["repo"] = json!({"name": name, "owner": {"login": owner}, "clone_url": url});
    (told["created_at"], told["updated_at"]) = (json!("2026-01-01T00:00:00Z"), json!("2026-01-01T00:00:00Z"));
    told
}

#[tokio::test]
async fn what_is_told_of_another_repository_is_not_taken() {
    let moved = |location: &'static str| {
        with(json_response(301, json!({"message": "Moved Permanently"})), "location", location)
    };
    let by_name = fake(move |_, _| moved("http://127.0.0.1:9/repos/other/vault/pulls/7")).await;
    let by_id = fake(move |_, _| moved("/repositories/1/pulls/7")).await;
    let silent = fake(|_, request| {
        let one = elsewhere("other", "vault");
        json_response(200, if request.contains("state=open") { json!([one]) } else { one })
    })
    .await;
    for fake in [&by_name, &by_id, &silent] {
        let is_moved = |error: HostError| assert!(matches!(error, HostError::Moved { .. }), "{error}");
        is_moved(fake.github.pull_request(&id()).await.unwrap_err());
        is_moved(fake.github.mergeability(&pull().await).await.unwrap_err());
        is_moved(fake.github.open_pulls(&id().repo).await.unwrap_err());
        assert!(fake.requests().iter().all(|request| request.starts_with("GET /repos/acme/infra/pulls")));
    }
    let rows = fake(|_, request| match request.contains("/reviews") {
        true => json_response(200, json!([{"pull_request_url": "https://x/repos/other/vault/pulls/7"}])),
        false => json_response(200, json!([{"issue_url": "https://x/repos/other/vault/issues/7"}])),
    })
    .await;
    assert!(matches!(rows.github.reviews(&pull().await).await, Err(HostError::Moved { .. })));
    // Requested under its present name, which the host does not report here.
    assert!(rows.github.comments(&id(), None).await.is_err());
    let merges = fake(|_, _| json_response(200, json!({"name": "vault", "owner": {"login": "other"}}))).await;
    assert!(matches!(merges.github.merge(&pull().await, None, SourceBranch::Keep).await, Err(HostError::Moved { .. })));
    assert_eq!(merges.requests().len(), 1);
}

#[tokio::test]
async fn a_pull_request_is_the_one_that_was_asked_for() {
    let answers = |change: fn(&mut Value)| {
        fake(move |_, _| {
            let mut told = pull_json();
            change(&mut told);
            json_response(200, told)
        })
    };
    let of_case = answers(|told| told["base"]["repo"]["owner"]["login"] = json!("ACME")).await;
    assert_eq!(of_case.github.pull_request(&id()).await.unwrap().id, id());
    let of_number = answers(|told| told["number"] = json!(8)).await;
    assert_eq!(told_apart(&of_number.github.pull_request(&id()).await.unwrap_err()), "unavailable");
    let of_address =
        answers(|told| told["base"]["repo"]["clone_url"] = json!("https://localhost/other/vault.git")).await;
    let error = of_address.github.pull_request(&id()).await.unwrap_err();
    assert!(error.to_string().contains("does not lead to /acme/infra.git"), "{error}");
}

#[tokio::test]
async fn what_is_said_follows_a_repository_to_a_name_that_is_served() {
    for (owner, url, said) in [
        ("acme", "https://localhost/acme/new.git", true),
        ("other", "https://localhost/other/new.git", false),
        ("acme", "https://evil.example/acme/new.git", false),
    ] {
        let address = Arc::new(Mutex::new(String::new()));
        let base = Arc::clone(&address);
        let fake = fake(move |_, request| match request {
            "POST /repos/acme/new/issues/7/comments" => json_response(201, json!({"id": 5})),
            "GET /repositories/1" => {
                json_response(200, json!({"name": "new", "owner": {"login": owner}, "clone_url": url}))
            }
            _ => {
                let location = format!("{}/repositories/1", base.lock().unwrap());
                with(json_response(307, json!({})), "location", &location)
            }
        })
        .await;
        address.lock().unwrap().clone_from(&fake.url);
        let answer = fake.github.create_comment(&id(), "text").await;
        assert_eq!(answer.is_ok(), said, "{answer:?}");
        let posted = fake.requests().iter().filter(|request| request.starts_with("POST /repos/acme/new")).count();
        assert_eq!(posted, usize::from(said));
    }
}

#[tokio::test]
async fn a_commit_is_on_a_branch_that_is_not_behind_it() {
    for (status, on) in [("identical", true), ("ahead", true), ("behind", false), ("diverged", false)] {
        let fake = fake(move |_, _| json_response(200, json!({"status": status}))).await;
        assert_eq!(fake.github.is_on_branch(&id().repo, &"aaa".into(), "release/1").await.unwrap(), on, "{status}");
        assert_eq!(fake.requests(), ["GET /repos/acme/infra/compare/aaa...release%2F1?per_page=1"]);
    }
    let fake = fake(|_, _| json_response(404, json!({}))).await;
    assert!(!fake.github.is_on_branch(&id().repo, &"aaa".into(), "main").await.unwrap());
}

#[tokio::test]
async fn a_list_that_has_not_changed_is_not_sent_again() {
    let listed = |updated: &str| {
        let mut row = pull_json();
        row["number"] = json!(7);
        row["created_at"] = json!("2026-01-01T00:00:00Z");
        row["updated_at"] = json!(updated);
        json!([row])
    };
    let fake = fake(move |n, _| match n {
        0 => with(with(json_response(200, listed("one")), "etag", "W/\"a\""), "link", "<x>; rel=\"next\""),
        1 => with(json_response(200, json!([])), "etag", "W/\"b\""),
        2 | 3 => StatusCode::NOT_MODIFIED.into_response(),
        4 => with(with(json_response(200, listed("two")), "etag", "W/\"c\""), "link", "<x>; rel=\"next\""),
        _ => StatusCode::NOT_MODIFIED.into_response(),
    })
    .await;
    for want in ["one", "one", "two", "two"] {
        let pulls = fake.github.open_pulls(&id().repo).await.unwrap();
        assert_eq!(pulls.iter().map(|one| one.version.clone()).collect::<Vec<_>>(), [PullVersion::new(want)]);
        assert_eq!(pulls[0].created, "2026-01-01T00:00:00Z".parse().unwrap());
    }
    let page = |number: u32, etag: &str| {
        let unless = if etag.is_empty() { String::new() } else { format!(" unless W/\"{etag}\"") };
        format!("GET /repos/acme/infra/pulls?state=open&per_page=100&page={number}{unless}")
    };
    let want = [(1, ""), (2, ""), (1, "a"), (2, "b"), (1, "a"), (2, "b"), (1, "c"), (2, "b")];
    assert_eq!(fake.requests(), want.map(|(number, etag)| page(number, etag)));
}

#[tokio::test]
async fn a_budget_is_what_an_answer_said_until_it_is_reset() {
    let limits = |response, left: &str, reset: &str| {
        let response = with(with(response, "x-ratelimit-limit", "5000"), "x-ratelimit-remaining", left);
        with(with(response, "date", "Thu, 01 Jan 2026 00:00:00 GMT"), "x-ratelimit-reset", reset)
    };
    // 2026-01-01 00:00:00 plus a second, and plus an hour.
    let (soon, later) = ("1767225601", "1767229200");
    let fake = fake(move |n, _| match n {
        0 => limits(json_response(200, json!({"login": "x"})), "4000", later),
        1 => limits(json_response(401, json!({})), "0", later),
        _ => limits(json_response(200, json!({"login": "x"})), "7", soon),
    })
    .await;
    assert_eq!(fake.github.budget(), None);
    fake.github.login().await.unwrap();
    assert_eq!(fake.github.budget(), Some(Budget { left: 4000, all: 5000 }));
    fake.github.login().await.unwrap_err();
    assert_eq!(
        fake.github.budget(),
        Some(Budget { left: 4000, all: 5000 }),
        "a refused request tells of another limit"
    );
    fake.github.login().await.unwrap();
    assert!(fake.github.budget().is_some_and(Budget::is_low));
    let forgotten = async {
        while fake.github.budget().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), forgotten).await.expect("it was reset");
}

#[tokio::test]
async fn a_pull_request_is_gone_where_its_repository_is_there() {
    let fake = fake(|n, _| match n {
        0 => json_response(404, json!({})),
        1 | 3 => json_response(200, json!({})),
        2 => json_response(404, json!({})),
        _ => json_response(200, pull_json()),
    })
    .await;
    let pull = id();
    let is_gone = || fake.github.is_gone(&pull);
    assert!(!is_gone().await.unwrap(), "the token may have lost its rights");
    assert!(is_gone().await.unwrap());
    assert!(!is_gone().await.unwrap());
    assert_eq!(fake.requests()[1..3], ["GET /repos/acme/infra", "GET /repos/acme/infra/pulls/7"]);
}

/// GitHub answers so for seconds after a push to a fork, with the status of an invalid request.
#[tokio::test]
async fn a_status_of_a_commit_that_is_not_known_yet_is_told_apart() {
    let status = CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Success,
        description: "fine".into(),
        url: String::new(),
        waits: false,
        details: None,
    };
    for (message, wanted) in [
        ("No commit found for SHA: aaaa", "unknown commit: No commit found for SHA: aaaa"),
        ("Validation Failed", "422: Validation Failed"),
    ] {
        let fake = fake(move |_, _| json_response(422, json!({"message": message, "status": "422"}))).await;
        let error = fake.github.set_status(&id(), &"a".repeat(40).as_str().into(), &status).await.unwrap_err();
        assert_eq!(told_apart(&error), wanted);
    }
}

/// Attempts of deliveries fill several pages; the failed one is on the last of them that is read.
#[tokio::test]
async fn deliveries_that_nobody_took_are_found_behind_a_hundred_attempts() {
    const PAGE: u64 = 100;
    let now = Timestamp::now();
    let url = Arc::new(Mutex::new(String::new()));
    let base = Arc::clone(&url);
    let fake = fake(move |_, request| {
        if request.starts_with("POST") {
            return json_response(202, json!({}));
        }
        let page: u64 = request.rsplit_once("cursor=").map_or(0, |(_, cursor)| cursor.parse().unwrap());
        let row = |index: u64| {
            let number = page * PAGE + index;
            // The first two pages are of the last hour; the third is days old.
            let age = if page < 2 { 60 + i64::try_from(number).unwrap() } else { 3 * 86_400 };
            let status = if number == 150 { 502 } else { 200 };
            json!({"id": 1000 - number, "guid": number.to_string(), "event": "pull_request", "status_code": status,
                "delivered_at": (now - jiff::SignedDuration::from_secs(age)).to_string()})
        };
        let rows: Vec<Value> = (0..PAGE).map(row).collect();
        let next =
            format!("<{}/app/hook/deliveries?per_page=100&cursor={}>; rel=\"next\"", base.lock().unwrap(), page + 1);
        with(json_response(200, Value::Array(rows)), "link", &next)
    })
    .await;
    (*url.lock().unwrap()).clone_from(&fake.url);
    assert_eq!(redeliver::missed(&fake.github.http).await.unwrap(), 1);
    let asked = fake.requests();
    assert_eq!(asked.len(), 4, "no page after one that is too old: {asked:?}");
    assert_eq!(asked[3], "POST /app/hook/deliveries/850/attempts");
}
