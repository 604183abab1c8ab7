//! Tests against a small server on loopback that answers as the API is documented.

use super::*;
use crate::vcs::ReviewVerdict;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap as Headers, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use tidelock_core::domain::PullState;
use tidelock_core::domain::state::StatusState;

const HEAD: &str = "4444eeee455ff5aaaaabb66ccccccccc7777cccc";
const FIRST: &str = "1111eeee455ff5aaaaabb66ccccccccc7777cccc";
const BASE: &str = "5555ffff566aa6bbbbbcc77ddddddd888888dddd";
const BOT: &str = "b0b0b0b0-0000-0000-0000-000000000000";

/// Requests that arrived: method and address, body.
type Arrived = Arc<Mutex<Vec<(String, Value)>>>;
/// Answers a request by its method and address.
type Script = Arc<dyn Fn(&str) -> Response + Send + Sync>;

struct Played {
    host: AzureDevOps,
    arrived: Arrived,
}

impl Played {
    fn requests(&self) -> Vec<String> {
        self.arrived.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    fn body_of(&self, method: &str) -> Value {
        let arrived = self.arrived.lock().unwrap();
        arrived.iter().rfind(|(request, _)| request.starts_with(method)).unwrap().1.clone()
    }
}

async fn play(script: impl Fn(&str) -> Response + Send + Sync + 'static) -> Played {
    async fn any(
        State((arrived, script)): State<(Arrived, Script)>,
        method: Method,
        uri: Uri,
        headers: Headers,
        body: Bytes,
    ) -> Response {
        // base64 of `:t0ken`.
        assert_eq!(headers["authorization"], "Basic OnQwa2Vu");
        assert_eq!(headers["x-tfs-fedauthredirect"], "Suppress");
        let request = format!("{method} {uri}");
        arrived.lock().unwrap().push((request.clone(), serde_json::from_slice(&body).unwrap_or(Value::Null)));
        script(&request)
    }
    let arrived = Arrived::default();
    let app = Router::new().fallback(any).with_state((Arc::clone(&arrived), Arc::new(script) as Script));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tfs", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut host = AzureDevOps::new(AzureDevOpsOptions {
        address: AzureDevOpsAddress::new("127.0.0.1", &url),
        user: "tidelock@example.com".into(),
        token: TokenSource::Value("t0ken".into()),
        organizations: vec!["acme".into()],
        status_name: "atlantis".into(),
    });
    host.http = host.http.hasty();
    Played { host, arrived }
}

fn id() -> PullId {
    let repo = RepoId { host: "127.0.0.1".into(), owner: "acme/Cloud Infra".into(), name: "live".into() };
    PullId { repo, number: 7 }
}

/// Path of the repository in the API.
const AT: &str = "/tfs/acme/Cloud%20Infra/_apis/git/repositories/live";

fn pull() -> Value {
    json!({
        "repository": {"id": "c2c2", "name": "live", "project": {"id": "d3d3", "name": "Cloud Infra"}},
        "pullRequestId": 7, "status": "active", "isDraft": false, "mergeStatus": "succeeded", "title": "A topic",
        "createdBy": {"id": "11bb", "uniqueName": "ann@example.com"}, "creationDate": "2026-11-17T11:22:33.45Z",
        "sourceRefName": "refs/heads/topic", "targetRefName": "refs/heads/main",
        "lastMergeSourceCommit": {"commitId": HEAD}, "lastMergeTargetCommit": {"commitId": BASE},
        "reviewers": []
    })
}

fn rows(rows: Value) -> Value {
    json!({ "count": rows.as_array().map(Vec::len), "value": rows })
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}

/// Answers with the first of these whose text occurs in the request.
async fn answering(answers: Vec<(&'static str, Value)>) -> Played {
    play(move |request| match answers.iter().find(|(part, _)| request.contains(part)) {
        Some((_, body)) => ok(body.clone()),
        None => (StatusCode::NOT_FOUND, axum::Json(json!({"message": "TF401180: not found"}))).into_response(),
    })
    .await
}

async fn known_pull(played: &Played) -> PullRequest {
    shapes::pull_request(&played.host.address, &id(), &pull()).unwrap()
}

fn iterations_of() -> Value {
    rows(json!([
        {"id": 1, "createdDate": "2026-11-17T11:00:00Z", "sourceRefCommit": {"commitId": FIRST}},
        {"id": 2, "createdDate": "2026-11-17T12:00:00Z", "sourceRefCommit": {"commitId": HEAD}},
    ]))
}

/// A vote as Services report it: a comment of the voter's own.
fn vote(by: &str, result: &str, at: &str) -> Value {
    json!({
        "id": 3, "publishedDate": at, "isDeleted": false,
        "comments": [{"id": 1, "commentType": "system", "content": "voted", "publishedDate": at, "author": {"id": by}}],
        "properties": {
            "CodeReviewThreadType": {"$type": "System.String", "$value": "VoteUpdate"},
            "CodeReviewVoteResult": {"$type": "System.String", "$value": result},
            "CodeReviewVotedByIdentity": {"$type": "System.String", "$value": "1"},
        },
        "identities": {"1": {"id": by, "uniqueName": format!("{by}@example.com")}},
    })
}

#[tokio::test]
async fn a_pull_request_is_read_below_its_collection_and_its_project_with_a_space() {
    let played = answering(vec![("pullRequests/7?", pull())]).await;
    let read = played.host.pull_request(&id()).await.unwrap();
    assert_eq!((read.head.branch.as_str(), read.head.commit.as_str(), &read.state), ("topic", HEAD, &PullState::Open));
    assert_eq!(played.requests(), [format!("GET {AT}/pullRequests/7?api-version=7.0")]);
    let other = PullId { number: 8, ..id() };
    assert!(matches!(played.host.pull_request(&other).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn what_is_about_another_repository_is_not_taken() {
    let mut moved = pull();
    moved["repository"]["name"] = json!("elsewhere");
    let played = answering(vec![("pullRequests/7?", moved)]).await;
    let error = played.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(&error, HostError::Moved { to, .. } if to.ends_with("/elsewhere")), "{error}");
}

#[tokio::test]
async fn commits_that_are_not_told_yet_are_the_tips_of_the_branches() {
    let mut fresh = pull();
    fresh["lastMergeSourceCommit"] = Value::Null;
    fresh["sourceRefName"] = json!("refs/heads/feature/50%+more&#1");
    let tips = rows(json!([
        {"name": "refs/heads/feature/50%+more&#1-2", "objectId": BASE},
        {"name": "refs/heads/feature/50%+more&#1", "objectId": FIRST},
    ]));
    let played = answering(vec![("pullRequests/7?", fresh), ("refs?", tips)]).await;
    assert_eq!(played.host.pull_request(&id()).await.unwrap().head.commit, FIRST);
    assert!(played.requests()[1].contains("filter=heads%2Ffeature%2F50%25%2Bmore%26%231&"), "{:?}", played.requests());
}

#[tokio::test]
async fn each_person_has_a_vote_for_the_head_of_its_moment_and_groups_have_none() {
    let mut reviewed = pull();
    reviewed["reviewers"] = json!([
        {"id": "ann", "uniqueName": "ann@example.com", "vote": 10},
        {"id": "bob", "uniqueName": "bob@example.com", "vote": 5},
        {"id": "cid", "uniqueName": "cid@example.com", "vote": -5},
        {"id": "dan", "uniqueName": "dan@example.com", "vote": 0},
        {"id": "eve", "uniqueName": "eve@example.com", "vote": -10},
        {"id": "team", "uniqueName": "vstfs:///x\\Team", "vote": 10, "isContainer": true, "votedFor": []},
    ]);
    let threads = rows(json!([
        vote("ann", "10", "2026-11-17T11:30:00Z"),
        vote("bob", "10", "2026-11-17T11:40:00Z"),
        vote("bob", "5", "2026-11-17T12:30:00Z"),
        vote("cid", "-5", "2026-11-17T12:31:00Z"),
    ]));
    let played =
        answering(vec![("pullRequests/7?", reviewed), ("/threads", threads), ("/iterations", iterations_of())]).await;
    let reviews = played.host.reviews(&known_pull(&played).await).await.unwrap();
    let read: Vec<_> = reviews.iter().map(|r| (r.user.to_string(), r.verdict, r.commit.clone().unwrap())).collect();
    let [approved, rejected] = [ReviewVerdict::Approved, ReviewVerdict::ChangesRequested];
    // The host reports no time for eve's vote, so it counts for the earliest push.
    let wanted = [("ann", approved, FIRST), ("bob", approved, HEAD), ("cid", rejected, HEAD), ("eve", rejected, FIRST)];
    assert_eq!(read, wanted.map(|(who, verdict, commit)| (format!("{who}@example.com"), verdict, commit.into())));
}

/// Everybody who may comment can create a thread with these properties, with a comment of the type `system`.
#[tokio::test]
async fn a_thread_that_somebody_else_wrote_tells_of_no_vote() {
    let mut reviewed = pull();
    reviewed["reviewers"] = json!([{"id": "bob", "uniqueName": "bob@example.com", "vote": 10}]);
    let told = vote("bob", "10", "2026-11-17T11:30:00Z");
    let later = || vote("bob", "10", "2026-11-17T12:30:00Z");
    let (mut by_another, mut as_text, mut by_nobody) = (later(), later(), later());
    by_another["comments"][0]["author"]["id"] = json!("11bb");
    as_text["comments"][0]["commentType"] = json!("text");
    by_nobody["comments"][0]["author"] = Value::Null;
    for (forged, wanted) in [(by_another, FIRST), (as_text, FIRST), (by_nobody, FIRST), (later(), HEAD)] {
        let threads = rows(json!([told, forged]));
        let answers =
            vec![("pullRequests/7?", reviewed.clone()), ("/threads", threads), ("/iterations", iterations_of())];
        let played = answering(answers).await;
        let reviews = played.host.reviews(&known_pull(&played).await).await.unwrap();
        assert_eq!(reviews[0].commit.clone().unwrap(), wanted, "{forged}");
    }
}

#[tokio::test]
async fn every_page_of_policies_is_read_and_our_own_statuses_do_not_block() {
    let policy = |name: &str, blocking: bool, status: &str, settings: Value| {
        json!({
            "status": status,
            "configuration": {"isEnabled": true, "isBlocking": blocking, "type": {"displayName": name}, "settings": settings},
        })
    };
    let own = json!({"statusGenre": "Atlantis Bot/atlantis", "statusName": "apply"});
    let first = rows(json!([
        policy("Status", true, "rejected", own.clone()),
        policy("Work item linking", false, "rejected", json!({})),
        policy("Build", true, "approved", json!({})),
        policy("Comment requirements", true, "notApplicable", json!({})),
    ]));
    let foreign = json!({"statusGenre": "Other", "statusName": "apply"});
    let second = rows(json!([
        policy("Minimum number of reviewers", true, "queued", json!({})),
        policy("Status", true, "rejected", foreign),
    ]));
    let answers = vec![
        ("$skip=0", first.clone()),
        ("$skip=4", second),
        ("$skip=6", rows(json!([]))),
        ("pullRequests/7?", pull()),
    ];
    let played = answering(answers).await;
    let pull = known_pull(&played).await;
    let found = played.host.mergeability(&pull).await.unwrap();
    assert!(!found.mergeable);
    assert_eq!(
        found.detail,
        "blocked by policies of the branch: Minimum number of reviewers is queued, Status (apply) is rejected"
    );
    assert!(played.requests()[1].contains("artifactId=vstfs%3A%2F%2F%2FCodeReview%2FCodeReviewId%2Fd3d3%2F7&"));
    let played =
        answering(vec![("$skip=0", first), ("$skip=4", rows(json!([]))), ("pullRequests/7?", super::tests::pull())])
            .await;
    assert!(played.host.mergeability(&pull).await.unwrap().mergeable);
}

#[tokio::test]
async fn what_cannot_be_merged_says_why() {
    for (key, value, wanted) in [
        ("mergeStatus", "conflicts", "conflicts with `main`"),
        ("mergeStatus", "queued", "has not found out"),
        ("mergeStatus", "failure", "could not merge it"),
        ("status", "abandoned", "is closed"),
    ] {
        let mut body = pull();
        body[key] = json!(value);
        let played = answering(vec![("pullRequests/7?", body)]).await;
        let found = played.host.mergeability(&known_pull(&played).await).await.unwrap();
        assert!(!found.mergeable && found.detail.contains(wanted), "{found:?}");
    }
    let mut draft = pull();
    draft["isDraft"] = json!(true);
    let played = answering(vec![("pullRequests/7?", draft)]).await;
    assert_eq!(played.host.mergeability(&known_pull(&played).await).await.unwrap().detail, "it is a draft");
}

#[tokio::test]
async fn a_status_is_set_on_the_iteration_of_its_commit_and_read_back() {
    let row = |id: u64, iteration: u64, by: &str, state: &str| {
        json!({
            "id": id, "iterationId": iteration, "state": state, "description": "d", "targetUrl": "u",
            "context": {"genre": "Atlantis Bot/atlantis", "name": "plan"}, "createdBy": {"id": by},
        })
    };
    let listed = rows(json!([row(1, 2, BOT, "pending"), row(3, 2, BOT, "succeeded"), row(2, 1, BOT, "failed")]));
    let data = json!({"authenticatedUser": {"id": BOT, "properties": {"Account": {"$value": "tidelock@example.com"}}}});
    let played = answering(vec![
        ("/iterations", iterations_of()),
        ("/statuses", listed),
        ("connectionData", data),
        ("pullRequests/7?", pull()),
    ])
    .await;
    let status = CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Success,
        description: "d".into(),
        url: "u".into(),
        waits: false,
        details: None,
    };
    played.host.set_status(&id(), &HEAD.into(), &status).await.unwrap();
    let body = played.body_of("POST");
    assert_eq!((&body["iterationId"], &body["state"]), (&json!(2), &json!("succeeded")));
    assert_eq!(body["context"], json!({"genre": "Atlantis Bot/atlantis", "name": "plan"}));
    assert_eq!(played.host.own_statuses(&id(), &HEAD.into()).await.unwrap(), std::slice::from_ref(&status));
    let error = played.host.set_status(&id(), &BASE.into(), &status).await.unwrap_err();
    assert!(matches!(&error, HostError::Rejected { status: 404, .. }), "{error}");
}

#[tokio::test]
async fn after_the_merge_a_status_of_another_commit_is_set_on_the_commit_itself() {
    let mut merged = pull();
    merged["status"] = json!("completed");
    let played =
        answering(vec![("/iterations", iterations_of()), ("pullRequests/7?", merged), ("POST", json!({}))]).await;
    let status = CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Success,
        description: "d".into(),
        url: "u".into(),
        waits: false,
        details: None,
    };
    played.host.set_status(&id(), &BASE.into(), &status).await.unwrap();
    let posted = played.requests().into_iter().find(|request| request.starts_with("POST")).unwrap();
    assert_eq!(posted, format!("POST {AT}/commits/{BASE}/statuses?api-version=7.0"));
    let body = played.body_of("POST");
    assert_eq!(body["context"], json!({"genre": "Atlantis Bot/atlantis", "name": "plan"}));
    assert_eq!((&body["iterationId"], &body["state"]), (&Value::Null, &json!("succeeded")));
}

#[tokio::test]
async fn after_a_push_back_a_status_is_set_on_the_latest_iteration() {
    let iterations = Arc::new(Mutex::new(iterations_of()));
    let told = Arc::clone(&iterations);
    let played = play(move |request| match request.contains("/iterations") {
        true => ok(told.lock().unwrap().clone()),
        false => ok(json!({})),
    })
    .await;
    let status = CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Pending,
        description: "d".into(),
        url: "".into(),
        waits: false,
        details: None,
    };
    played.host.set_status(&id(), &FIRST.into(), &status).await.unwrap();
    assert_eq!(played.body_of("POST")["iterationId"], 1);
    let back = json!({"id": 3, "createdDate": "2026-11-17T13:00:00Z", "sourceRefCommit": {"commitId": FIRST}});
    iterations.lock().unwrap()["value"].as_array_mut().unwrap().push(back);
    played.host.set_status(&id(), &FIRST.into(), &status).await.unwrap();
    assert_eq!(played.body_of("POST")["iterationId"], 3);
}

#[tokio::test]
async fn comments_are_those_of_people_and_ours_are_told_by_the_account() {
    let comment = |id: u64, by: &str, kind: &str, at: &str| {
        json!({
            "id": id, "author": {"id": by, "uniqueName": format!("{by}@example.com")}, "content": "a <b> & \"c\"",
            "commentType": kind, "publishedDate": at, "lastContentUpdatedDate": at,
        })
    };
    let mut edited = comment(2, "bob", "text", "2026-11-17T11:00:02Z");
    edited["lastContentUpdatedDate"] = json!("2026-11-17T13:00:00Z");
    let threads = rows(json!([
        {"id": 5, "comments": [comment(1, "bob", "text", "2026-11-17T11:00:00Z"), edited]},
        {"id": 6, "comments": [comment(1, "bob", "system", "2026-11-17T11:00:00Z")]},
        {"id": 7, "isDeleted": true, "comments": [comment(1, "bob", "text", "2026-11-17T11:00:00Z")]},
        {"id": 8, "comments": [comment(1, BOT, "text", "2026-11-17T10:00:00Z")]},
    ]));
    let data = json!({"authenticatedUser": {"id": BOT}});
    let played = answering(vec![("/threads", threads), ("connectionData", data)]).await;
    let read = played.host.comments(&id(), None).await.unwrap().list;
    let brief: Vec<_> = read.iter().map(|c| (c.id >> 16, c.id & 0xffff, c.author.to_string(), c.edited)).collect();
    let bob = "bob@example.com".to_owned();
    assert_eq!(
        brief,
        [(8, 1, "tidelock@example.com".to_owned(), false), (5, 1, bob.clone(), false), (5, 2, bob, true)]
    );
    assert_eq!(read[1].body, "a <b> & \"c\"");
    let since = "2026-11-17T12:00:00Z".parse().ok();
    assert_eq!(played.host.comments(&id(), since).await.unwrap().list.len(), 1, "what was changed since");
}

#[tokio::test]
async fn a_comment_begins_a_thread_and_is_deleted_in_it() {
    let played = answering(vec![("POST", json!({"id": 9, "comments": [{"id": 1}]})), ("DELETE", Value::Null)]).await;
    let made = played.host.create_comment(&id(), "text").await.unwrap();
    assert_eq!(made, (9 << 16) + 1);
    let body = played.body_of("POST");
    assert!(
        body["comments"][0]["content"] == "text" && body["status"].is_null(),
        "an active thread would block: {body}"
    );
    played.host.delete_comment(&id(), made).await.unwrap();
    assert_eq!(played.requests()[1], format!("DELETE {AT}/pullRequests/7/threads/9/comments/1?api-version=7.0"));
}

#[tokio::test]
async fn a_merge_names_the_head_and_keeps_what_its_author_chose() {
    let mut chosen = pull();
    chosen["completionOptions"] = json!({"mergeStrategy": "squash", "deleteSourceBranch": true, "bypassPolicy": true});
    let mut done = chosen.clone();
    done["status"] = json!("completed");
    done["lastMergeCommit"] = json!({"commitId": BASE});
    let played =
        answering(vec![("PATCH", done), ("policy/configurations", rows(json!([]))), ("pullRequests/7?", chosen)]).await;
    let merged = played.host.merge(&known_pull(&played).await, None, SourceBranch::Keep).await.unwrap();
    assert_eq!(merged, Merging::Merged(Some(BASE.into())));
    let body = played.body_of("PATCH");
    assert_eq!((&body["status"], &body["lastMergeSourceCommit"]["commitId"]), (&json!("completed"), &json!(HEAD)));
    let options = json!({"mergeStrategy": "squash", "deleteSourceBranch": true, "bypassPolicy": false});
    assert_eq!(body["completionOptions"], options);
    assert!(played.requests().iter().all(|request| request.contains("/tfs/acme/")), "never another host's address");
}

#[tokio::test]
async fn the_source_branch_goes_with_the_merge_unless_it_is_a_forks_or_the_default_one() {
    for (default, fork, deleted) in
        [("refs/heads/main", false, true), ("refs/heads/topic", false, false), ("refs/heads/main", true, false)]
    {
        let mut done = pull();
        done["status"] = json!("completed");
        done["sourceRefName"] = json!("refs/heads/topic");
        let mut open = done.clone();
        open["status"] = json!("active");
        let played = answering(vec![
            ("PATCH", done),
            ("policy/configurations", rows(json!([]))),
            ("pullRequests/7?", open),
            ("", json!({"defaultBranch": default})),
        ])
        .await;
        let known = PullRequest { fork, ..known_pull(&played).await };
        played.host.merge(&known, Some("squash"), SourceBranch::Delete).await.unwrap();
        let options = &played.body_of("PATCH")["completionOptions"];
        assert_eq!((&options["mergeStrategy"], &options["deleteSourceBranch"] == true), (&json!("squash"), deleted));
    }
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let sign_in = || (StatusCode::NON_AUTHORITATIVE_INFORMATION, "<html>Sign In</html>").into_response();
    let played = play(move |_| sign_in()).await;
    let error = played.host.pull_request(&id()).await.unwrap_err();
    assert!(matches!(&error, HostError::Denied { message, .. } if message.contains("sign in")), "{error}");
    assert_eq!(played.requests().len(), 1);
    let played = play(|_| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "5")], "{}").into_response()).await;
    let error = played.host.create_comment(&id(), "x").await.unwrap_err();
    assert!(matches!(&error, HostError::RateLimited { wait, .. } if wait.as_secs() == 5), "{error}");
    let limits = [("x-ratelimit-limit", "200"), ("x-ratelimit-remaining", "20"), ("x-ratelimit-resource", "Core")];
    let played = play(move |_| (limits, axum::Json(pull())).into_response()).await;
    played.host.pull_request(&id()).await.unwrap();
    assert!(played.host.budget().unwrap().is_low());
}

#[tokio::test]
async fn open_pull_requests_are_read_by_pages() {
    let page = |from: u64, count: u64| {
        let row = |number: u64| {
            let mut row = pull();
            row["pullRequestId"] = json!(number);
            row
        };
        rows((from..from + count).map(row).collect())
    };
    let played = answering(vec![("$skip=0", page(1, 100)), ("$skip=100", page(101, 2))]).await;
    let open = played.host.open_pulls(&id().repo).await.unwrap();
    assert_eq!((open.len(), open[101].pull.id.number), (102, 102));
    assert_eq!(open[0].version, shapes::version(&open[0].pull));
}

#[tokio::test]
async fn a_commit_is_on_a_branch_where_their_merge_base_is_itself() {
    let tip = rows(json!([{"name": "refs/heads/main", "objectId": HEAD}]));
    let base = rows(json!([{"commitId": FIRST}]));
    let played = answering(vec![("/refs?", tip), ("mergebases?otherCommitId=", base)]).await;
    let repo = id().repo;
    for (commit, wanted) in [(HEAD, true), (FIRST, true), (BASE, false)] {
        assert_eq!(played.host.is_on_branch(&repo, &commit.into(), "main").await.unwrap(), wanted, "{commit}");
    }
    assert!(!played.host.is_on_branch(&repo, &HEAD.into(), "other").await.unwrap(), "there is no such branch");
}

#[tokio::test]
async fn a_list_goes_on_where_its_token_says() {
    let row = |name: &str| json!({"name": name, "project": {"name": "Cloud Infra"}});
    let played = play(move |request| match request.contains("continuationToken=a%2Bb") {
        true => ok(rows(json!([row("two")]))),
        false => ([("x-ms-continuationtoken", "a+b")], axum::Json(rows(json!([row("one")])))).into_response(),
    })
    .await;
    let seen = played.host.repositories().await.unwrap();
    assert_eq!(seen.iter().map(|access| access.repo.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    // The organization's case in the allowlist does not matter: the ids are those of deliveries.
    let shouted = played.host.repositories_of("ACME").await.unwrap();
    assert_eq!(shouted[0].repo.to_string(), "127.0.0.1/acme/Cloud Infra/one");
}

#[tokio::test]
async fn a_scope_that_is_missing_is_found_without_a_change() {
    let played = play(|request| match request {
        request if request.contains("/statuses") => (StatusCode::UNAUTHORIZED, "").into_response(),
        request if request.contains("/pullRequests/0/") => (StatusCode::NOT_FOUND, "{}").into_response(),
        _ => ok(json!({})),
    })
    .await;
    let missing = played.host.missing_scopes(&id().repo).await.unwrap();
    assert_eq!(missing.iter().map(|scope| scope.name).collect::<Vec<_>>(), ["Code (status)"]);
}
