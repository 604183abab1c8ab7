//! Tests against a small server on loopback that answers as the API is documented. Shapes are those of `testdata` in
//! gitlab.com/gitlab-org/api/client-go.

mod comments;
mod forge;
mod merging;
mod people;
mod statuses;

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap as Headers, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use secrecy::ExposeSecret as _;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tidelock_core::domain::{PullState, PullVersion};

const HEAD: &str = "8e0b45049b6253b8984cde9241830d2851168142";
const FIRST: &str = "1111eeee455ff5aaaaabb66ccccccccc7777cccc";
const BASE: &str = "5555ffff566aa6bbbbbcc77ddddddd888888dddd";
/// Path of the project in the API.
const AT: &str = "/gitlab/api/v4/projects/acme%2Fplatform%2Finfra";

/// Requests that arrived: method and address, body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;
/// Answers a request by the number of requests before it, and its method and address.
type Part = Arc<dyn Fn(usize, &str) -> Response + Send + Sync>;

struct Stage {
    host: Gitlab,
    asked: Asked,
}

impl Stage {
    fn requests(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
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
    let url = format!("http://{}/gitlab", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut host = Gitlab::new(GitlabOptions {
        address: GitlabAddress::new("127.0.0.1", &url),
        user: None,
        token: TokenSource::Value("t0ken".into()),
        status_name: "atlantis".into(),
        groups: vec!["acme/platform".into(), "acme/others".into()],
        events_url: "https://t.example.com/events".into(),
    });
    host.http = host.http.hasty();
    Stage { host, asked }
}

fn id() -> PullId {
    let repo = RepoId { host: "127.0.0.1".into(), owner: "acme/platform".into(), name: "infra".into() };
    PullId { repo, number: 7 }
}

/// As in `get_merge_request.json`.
fn merge_request() -> Value {
    json!({
        "id": 33092005, "iid": 7, "project_id": 278964, "title": "Add deletion support", "state": "opened",
        "created_at": "2019-07-11T22:34:43.500Z", "updated_at": "2019-08-20T09:09:56.690Z",
        "target_branch": "main", "source_branch": "topic", "author": {"id": 3614858, "username": "ann", "state": "active"},
        "source_project_id": 278964, "target_project_id": 278964, "labels": ["backend", "group::knowledge"],
        "draft": false, "work_in_progress": false, "merge_when_pipeline_succeeds": false,
        "detailed_merge_status": "mergeable", "sha": HEAD, "merge_commit_sha": null, "squash_commit_sha": null,
        "references": {"short": "!7", "relative": "!7", "full": "acme/platform/infra!7"},
        "has_conflicts": false, "blocking_discussions_resolved": true,
        "head_pipeline": {"id": 77056819, "project_id": 278964, "sha": HEAD, "ref": "topic", "status": "running"},
        "diff_refs": {"base_sha": BASE, "head_sha": HEAD, "start_sha": BASE},
    })
}

fn with(mut value: Value, key: &str, to: impl Into<Value>) -> Value {
    value[key] = to.into();
    value
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}

fn refused(status: u16, body: Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

fn me() -> Value {
    // As in `get_user_bot.json`.
    json!({"id": 2, "username": "project_1_bot_3cca1d02", "state": "active", "bot": true})
}

/// Answers with the first of these whose text occurs in the request.
async fn answering(answers: Vec<(&'static str, u16, Value)>) -> Stage {
    stage(move |_, request| match answers.iter().find(|(part, ..)| request.contains(part)) {
        Some((_, status, body)) => refused(*status, body.clone()),
        None if request.ends_with("/api/v4/user") => ok(me()),
        None => refused(404, json!({"message": "404 Not Found"})),
    })
    .await
}

fn known_pull() -> PullRequest {
    let address = GitlabAddress::new("127.0.0.1", "http://127.0.0.1/gitlab");
    answers::pull_request(&address, &id(), &merge_request()).unwrap()
}

#[tokio::test]
async fn a_merge_request_is_read_below_its_path_and_groups() {
    let stage = answering(vec![("merge_requests/7", 200, merge_request())]).await;
    let read = stage.host.pull_request(&id()).await.unwrap();
    assert_eq!((read.head.branch.as_str(), read.head.commit.as_str(), &read.state), ("topic", HEAD, &PullState::Open));
    assert_eq!((read.base.branch.as_str(), read.base.commit.as_str()), ("main", BASE));
    assert_eq!((read.author.as_str(), read.draft, read.fork), ("ann", false, false));
    assert_eq!(read.labels, ["backend", "group::knowledge"]);
    assert!(read.clone_url.ends_with("/gitlab/acme/platform/infra.git"), "{}", read.clone_url);
    assert!(read.url.ends_with("/gitlab/acme/platform/infra/-/merge_requests/7"), "{}", read.url);
    assert_eq!(stage.requests(), [format!("GET {AT}/merge_requests/7")]);
    assert_eq!(stage.host.told_key(&id().repo).as_deref(), Some("278964"));
    let other = PullId { number: 8, ..id() };
    assert!(matches!(stage.host.pull_request(&other).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn an_answer_about_another_project_is_not_taken() {
    let moved = with(merge_request(), "references", json!({"full": "acme/platform/network!7"}));
    let stage = answering(vec![("merge_requests/7", 200, moved), ("merge_requests/8", 200, merge_request())]).await;
    let error = stage.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(&error, HostError::Moved { to, .. } if to == "acme/platform/network"), "{error}");
    let error = stage.host.pull_request(&PullId { number: 8, ..id() }).await.unwrap_err();
    assert!(error.to_string().contains("another number"), "{error}");
}

#[tokio::test]
async fn a_change_under_a_former_name_is_refused_as_moved() {
    let refusal = json!({"message": "Non GET methods are not allowed for moved projects"});
    let stage = answering(vec![("POST", 405, refusal)]).await;
    let error = stage.host.create_comment(&id(), "text").await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
}

#[tokio::test]
async fn a_fork_is_told_by_its_project_and_may_be_gone() {
    let fork = with(merge_request(), "source_project_id", 99);
    let stage = answering(vec![
        ("merge_requests/7", 200, fork),
        ("/projects/99", 200, json!({"id": 99, "path_with_namespace": "bob/infra"})),
        (
            "merge_requests/8",
            200,
            with(
                with(with(merge_request(), "source_project_id", 100), "iid", 8),
                "references",
                json!({"full": "acme/platform/infra!8"}),
            ),
        ),
        (
            "merge_requests/9",
            200,
            with(
                with(with(merge_request(), "source_project_id", Value::Null), "iid", 9),
                "references",
                json!({"full": "acme/platform/infra!9"}),
            ),
        ),
    ])
    .await;
    let read = stage.host.pull_request(&id()).await.unwrap();
    assert!(read.fork && read.head.repo_owner == "bob" && read.head.repo_name == "infra");
    for number in [8, 9] {
        let read = stage.host.pull_request(&PullId { number, ..id() }).await.unwrap();
        assert!(read.fork && read.head.repo_owner.is_empty(), "{number}");
    }
}

#[test]
fn a_merge_is_known_by_its_commit_however_the_project_merges() {
    let address = GitlabAddress::new("127.0.0.1", "http://127.0.0.1");
    let merged = with(merge_request(), "state", "merged");
    for (told, commit) in [
        (with(merged.clone(), "merge_commit_sha", FIRST), FIRST),
        (with(with(merged.clone(), "merge_commit_sha", FIRST), "squash_commit_sha", BASE), FIRST),
        (with(merged.clone(), "squash_commit_sha", BASE), BASE),
        (merged, HEAD),
    ] {
        let read = answers::pull_request(&address, &id(), &told).unwrap();
        assert_eq!(read.state, PullState::Merged { commit: Some(commit.into()) });
    }
    for (state, want) in [("closed", PullState::Closed), ("locked", PullState::Open)] {
        assert_eq!(answers::pull_request(&address, &id(), &with(merge_request(), "state", state)).unwrap().state, want);
    }
    assert!(answers::pull_request(&address, &id(), &with(merge_request(), "draft", true)).unwrap().draft);
    assert!(answers::pull_request(&address, &id(), &with(merge_request(), "sha", "8e0b45049b62")).is_err());
}

#[tokio::test]
async fn open_merge_requests_come_from_all_pages_and_none_hides_the_others() {
    let row = |iid: u64| {
        let told = with(
            with(merge_request(), "iid", iid),
            "references",
            json!({"full": format!("Acme/platform/infra!{iid}")}),
        );
        with(told, "diff_refs", Value::Null)
    };
    let stage = stage(move |_, request| match request {
        _ if request.ends_with("page=1") => {
            let mut first = ok(json!([row(7), with(row(8), "sha", Value::Null)]));
            let link = "<http://127.0.0.1/gitlab/api/v4/x?page=2>; rel=\"next\"";
            first.headers_mut().insert("link", link.parse().unwrap());
            first
        }
        _ if request.ends_with("/events?action=commented&per_page=100") => {
            // As in `events_test.go`.
            let said = |kind: &str, iid: u64, at: &str| {
                json!({"action_name": "commented on", "created_at": at, "note": {"noteable_type": kind, "noteable_iid": iid}})
            };
            ok(json!([
                said("Issue", 7, "2030-01-01T00:00:00.000Z"),
                said("MergeRequest", 9, "2019-08-20T09:10:30.100Z"),
                said("MergeRequest", 9, "2019-08-20T09:10:00.000Z"),
                said("MergeRequest", 7, "2019-08-20T09:09:00.000Z"),
            ]))
        }
        _ => ok(json!([row(9)])),
    })
    .await;
    let open = stage.host.open_pulls(&id().repo).await.unwrap();
    assert_eq!(open.iter().map(|open| open.pull.id.number).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(open[0].version, PullVersion::new("2019-08-20T09:09:56Z"));
    assert_eq!(open[1].version, PullVersion::new("2019-08-20T09:10:30Z"), "its last comment is later than its change");
    assert_eq!(open[0].created.to_string(), "2019-07-11T22:34:43.5Z");
    assert!(stage.requests()[0].starts_with(&format!("GET {AT}/merge_requests?state=opened&scope=all&")));
}

#[tokio::test]
async fn projects_are_listed_by_pages_that_stay_on_the_host() {
    let project =
        |path: &str| json!({"id": 1, "path_with_namespace": path, "archived": false, "namespace": {"kind": "group"}});
    let next = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&next);
    let stage = stage(move |count, _| {
        let mut page = ok(json!([project("acme/infra"), project("odd")]));
        if count % 2 == 0 {
            let link = format!("<{}>; rel=\"next\"", told.lock().unwrap());
            page.headers_mut().insert("link", link.parse().unwrap());
        }
        page
    })
    .await;
    let base = stage.host.http.base().to_owned();
    *next.lock().unwrap() = format!("{base}/projects?id_after=1");
    let found = stage.host.repositories().await.unwrap();
    assert!(found.len() == 2 && found[0].of_organization && found[0].can_write && found[0].repo.name == "infra");
    assert_eq!(stage.requests()[1], "GET /gitlab/api/v4/projects?id_after=1");
    for elsewhere in
        ["https://evil.example/api/v4/projects".to_owned(), base.replace("/api/v4", "/api/v4.evil/x"), String::new()]
    {
        stage.asked.lock().unwrap().clear();
        *next.lock().unwrap() = elsewhere.clone();
        let error = stage.host.repositories().await.unwrap_err();
        assert!(error.to_string().contains("another address"), "{elsewhere}: {error}");
        assert_eq!(stage.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_commit_is_on_a_branch_if_it_is_their_merge_base() {
    for (status, body, want) in [
        (200, json!({"id": HEAD}), true),
        (200, json!({"id": BASE}), false),
        (400, json!({"message": "Could not find ref: refs/heads/main"}), false),
        (404, json!({"message": "404 Merge Base Not Found"}), false),
    ] {
        let stage = answering(vec![("merge_base", status, body)]).await;
        assert_eq!(stage.host.is_on_branch(&id().repo, &HEAD.into(), "main").await.unwrap(), want);
        let asked = format!("GET {AT}/repository/merge_base?refs%5B%5D={HEAD}&refs%5B%5D=refs%2Fheads%2Fmain");
        assert_eq!(stage.requests(), [asked]);
    }
    let stage = answering(vec![("merge_base", 500, Value::Null)]).await;
    assert!(stage.host.is_on_branch(&id().repo, &HEAD.into(), "main").await.is_err());
}

#[tokio::test]
async fn a_project_is_found_by_its_number_and_a_merge_request_may_be_gone() {
    let stage = answering(vec![
        ("/projects/5", 200, json!({"id": 5, "path_with_namespace": "acme/new/infra"})),
        ("/projects/6", 200, json!({"id": 5, "path_with_namespace": "acme/new/infra"})),
        ("merge_requests", 404, Value::Null),
        ("infra", 200, json!({"id": 278964, "path_with_namespace": "acme/platform/infra"})),
    ])
    .await;
    let named = stage.host.present_name(&id().repo, "5").await.unwrap().unwrap();
    assert_eq!(named.to_string(), "127.0.0.1/acme/new/infra");
    assert!(stage.host.present_name(&id().repo, "6").await.is_err());
    assert_eq!(stage.host.present_name(&id().repo, "7").await.unwrap(), None);
    assert!(stage.host.is_gone(&id()).await.unwrap());
    let hidden = answering(vec![]).await;
    assert!(!hidden.host.is_gone(&id()).await.unwrap());
}

#[tokio::test]
async fn the_doctor_reads_token_role_and_hooks() {
    // As in `project_hooks_test.go` and `list_personal_access_tokens_single.json`.
    let hook = json!({
        "id": 1, "url": "https://t.example.com/events", "push_events": true, "merge_requests_events": true, "note_events": true,
        "enable_ssl_verification": true, "alert_status": "temporarily_disabled", "disabled_until": "2026-10-13T13:37:00Z",
        "custom_webhook_template": "mine", "token_present": true, "signing_token_present": false,
    });
    let stage = answering(vec![
        ("personal_access_tokens/self", 200, json!({"scopes": ["api"], "expires_at": "2027-01-31", "active": true})),
        ("members/all/2", 200, json!({"id": 2, "state": "active", "access_level": 40})),
        (
            "/hooks/1/events?per_page=1",
            200,
            json!([{"id": 9, "response_status": "500", "response_body": "oops\n\u{7}!", "trigger": "note_hooks"}]),
        ),
        ("/hooks/2/events", 200, json!([])),
        ("/groups/acme%2Fplatform/hooks?", 200, json!([with(hook.clone(), "id", 3)])),
        ("/groups/acme/hooks?", 403, json!({"message": "403 Forbidden"})),
        ("/hooks?", 200, json!([hook])),
        ("/version", 200, json!({"version": "18.6.0-ee\n", "revision": "x"})),
    ])
    .await;
    let token = stage.host.access_token().await.unwrap();
    assert_eq!((token.scopes, token.expires.unwrap().to_string().as_str()), (vec!["api".to_owned()], "2027-01-31"));
    assert_eq!(stage.host.own_access_level(&id().repo).await.unwrap(), 40);
    assert_eq!(stage.host.version().await.unwrap(), "18.6.0-ee");
    let hooks = stage.host.project_hooks(&id().repo).await.unwrap();
    let hook = &hooks[0];
    assert!(hook.merge_requests && hook.notes && hook.pushes && hook.verifies_tls && hook.has_template);
    assert_eq!((hook.alert_status.as_str(), hook.has_secret), ("temporarily_disabled", Some(true)));
    assert!(hook.disabled_until.is_some());
    let last = stage.host.last_hook_answer(&id().repo, hook.id).await.unwrap().unwrap();
    assert_eq!(last, HookAnswer { status: "500".to_owned(), body: "oops !".to_owned() });
    assert_eq!(stage.host.last_hook_answer(&id().repo, 2).await.unwrap(), None);
    let of_group = stage.host.group_hooks("acme/platform").await.unwrap();
    assert_eq!((of_group.len(), of_group[0].id, &of_group[0].url), (1, 3, &hook.url));
    assert!(matches!(stage.host.group_hooks("acme").await, Err(HostError::Denied { .. })));
}

#[tokio::test]
async fn failed_deliveries_to_us_are_requested_again_once_an_hour() {
    let event = |id: u64, key: &str, trigger: &str, status: &str| json!({"id": id, "trigger": trigger, "response_status": status, "request_headers": {"Idempotency-Key": key}});
    let events = json!([
        event(5, "a", "merge_request_hooks", "200"),
        event(4, "b", "note_hooks", "internal error"),
        event(3, "c", "push_hooks", "500"),
        event(2, "a", "merge_request_hooks", "503"),
        with(event(1, "d", "note_hooks", "500"), "request_headers", Value::Null),
    ]);
    let hooks = json!([
        {"id": 1, "url": "https://jenkins.example.com/"},
        {"id": 2, "url": "https://t.example.com/events"},
    ]);
    let stage = answering(vec![
        ("/resend", 201, json!({"response_status": 200})),
        ("/hooks/2/events?", 200, events),
        ("/hooks?", 200, hooks),
        ("merge_requests/7", 200, merge_request()),
    ])
    .await;
    assert_eq!(stage.host.redeliver_missed().await.unwrap(), 0, "no project is known yet");
    stage.host.pull_request(&id()).await.unwrap();
    assert_eq!(stage.host.redeliver_missed().await.unwrap(), 1);
    assert_eq!(stage.requests().last().unwrap(), &format!("POST {AT}/hooks/2/events/4/resend"));
    assert_eq!(stage.host.redeliver_missed().await.unwrap(), 0);
    assert_eq!(stage.requests().len(), 4, "{:?}", stage.requests());
    let member = answering(vec![
        ("/hooks", 403, json!({"message": "403 Forbidden"})),
        ("merge_requests/7", 200, merge_request()),
    ])
    .await;
    member.host.pull_request(&id()).await.unwrap();
    assert_eq!(member.host.redeliver_missed().await.unwrap(), 0);
}

#[tokio::test]
async fn comments_are_limited_on_gitlab_com_alone() {
    let Stage { mut host, .. } = answering(vec![]).await;
    assert_eq!(host.post_limit(), None);
    host.address = GitlabAddress::new("GitLab.com", "https://gitlab.com");
    assert_eq!(host.post_limit(), Some(PostLimit::CommentsPerMinute(60)));
}

#[test]
fn code_owners_are_read_in_its_own_language() {
    let profile = profile(&GitlabAddress::default());
    assert_eq!(profile.owner_language, OwnersLanguage::Sections);
    assert_eq!(profile.owner_files, ["CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"]);
}

#[tokio::test]
async fn git_gets_the_token_and_a_name() {
    let stage = answering(vec![]).await;
    let before = stage.host.git_credentials("acme").await.unwrap();
    assert_eq!((before.username.as_str(), before.password.expose_secret()), ("oauth2", "t0ken"));
    stage.host.prepare().await.unwrap();
    assert_eq!(stage.host.git_credentials("acme").await.unwrap().username, "project_1_bot_3cca1d02");
    assert_eq!(stage.host.bot_login().as_str(), "project_1_bot_3cca1d02");
}

#[tokio::test]
async fn the_rate_limit_is_known_without_its_x() {
    let stage = stage(|_, _| {
        let mut answer = ok(me());
        for (name, value) in
            [("ratelimit-limit", "2000"), ("ratelimit-remaining", "1999"), ("ratelimit-reset", "4102444830")]
        {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        answer
    })
    .await;
    stage.host.account().await.unwrap();
    assert_eq!(stage.host.budget(), Some(Budget { left: 1999, all: 2000 }));
}
