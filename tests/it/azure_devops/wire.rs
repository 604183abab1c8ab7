//! The fake's answers, in the shapes of the REST API 7.0 (learn.microsoft.com/rest/api/azure/devops/git). Each refusal says where it is
//! documented.

use super::fake::{AzureFake, COLLECTION, KeptPull, NAME, PROJECT, id, is_token, person};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Longest comment (learn.microsoft.com, "Work tracking, process, and project limits").
const LONGEST_COMMENT: usize = 150_000;
const MAX_BODY: usize = 32 << 20;

pub(super) async fn serve(listener: std::net::TcpListener, fake: AzureFake) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    axum::serve(listener, Router::new().fallback(answer).with_state(fake)).await.unwrap();
}

async fn answer(State(fake): State<AzureFake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY).await.unwrap();
    let path = decoded(parts.uri.path());
    let named = format!("{} {path}", parts.method);
    let fault = {
        let mut state = fake.look();
        state.requests.push(format!("{} {}", parts.method, parts.uri));
        let due = state.faults.iter().position(|(part, _)| named.contains(part.as_str()));
        due.and_then(|place| state.faults.remove(place)).map(|(_, status)| status).or(state.is_down.then_some(503))
    };
    if let Some(status) = fault {
        return refused(status, "VS800075", "a fault of the test");
    }
    let proof = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_known = is_token(proof) && !fake.look().is_expired;
    // learn.microsoft.com/azure/devops/organizations/settings/naming-restrictions: names have no case.
    let root = format!("/tfs/{COLLECTION}/");
    let is_below = path.get(..root.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(&root));
    let Some(rest) = path.get(root.len()..).filter(|_| is_below) else {
        // learn.microsoft.com/azure/devops/server/admin/websitesettings: collections lie below the server's virtual directory.
        return refused(404, "TF400898", "no such collection");
    };
    if let Some(service) = rest.strip_prefix(&format!("{PROJECT}/_git/{NAME}/")) {
        // learn.microsoft.com/azure/devops/repos/git/auth-overview.
        if !is_known {
            let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"tfs\"")];
            return (StatusCode::UNAUTHORIZED, ask, "sign in").into_response();
        }
        let repo = fake.look().repo.clone().unwrap();
        return match repo.serve_fetch(service, &parts, body).await {
            Ok(response) => response,
            Err(error) => refused(500, "git", &format!("{error:#}")),
        };
    }
    if !is_known {
        // learn.microsoft.com/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate: a page to sign in.
        let page = "<html>Azure DevOps Services | Sign In</html>";
        return (StatusCode::NON_AUTHORITATIVE_INFORMATION, [(header::CONTENT_TYPE, "text/html")], page)
            .into_response();
    }
    let query: HashMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    if !query.contains_key("api-version") {
        // learn.microsoft.com/azure/devops/integrate/concepts/rest-api-versioning.
        return refused(400, "VssVersionNotSpecifiedException", "no api-version");
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    api(&fake, &parts.method, rest, &query, &body).await
}

async fn api(fake: &AzureFake, method: &Method, path: &str, query: &HashMap<String, String>, body: &Value) -> Response {
    let repository = format!("{PROJECT}/_apis/git/repositories/{NAME}");
    if path == "_apis/connectionData" {
        let account = json!({"Account": {"$type": "System.String", "$value": super::fake::BOT}});
        return ok(json!({"authenticatedUser": {"id": id("tidelock"), "properties": account}}));
    }
    if path == "_apis/git/repositories" {
        return rows(vec![repository_of(fake)]);
    }
    if path == format!("{PROJECT}/_apis/policy/evaluations") {
        // $top and $skip: learn.microsoft.com/rest/api/azure/devops/policy/evaluations/list. This server sends two at most.
        let (skip, all) = (number(query, "$skip"), fake.look().policies.clone());
        return rows(all.into_iter().skip(skip).take(2).collect());
    }
    if path == format!("{PROJECT}/_apis/git/policy/configurations") {
        return rows(Vec::new());
    }
    let Some(rest) = path.strip_prefix(&repository) else {
        // learn.microsoft.com/rest/api/azure/devops/git/repositories/get-repository.
        return refused(404, "GitRepositoryNotFoundException", "TF401019: no such repository");
    };
    let segments: Vec<&str> = rest.split('/').skip(1).collect();
    match (method.as_str(), segments.as_slice()) {
        ("GET", []) => ok(repository_of(fake)),
        ("GET", ["refs"]) => refs(fake, &query["filter"]).await,
        ("GET", ["pullrequests"]) => {
            let count = fake.look().pulls.len() as u64;
            let wanted = query.get("searchCriteria.status").cloned().unwrap_or_default();
            let all =
                (1..=count).map(|number| described(fake, number)).filter(|pull| pull["status"] == wanted.as_str());
            rows(all.skip(number(query, "$skip")).take(number(query, "$top")).collect())
        }
        (method, ["pullRequests", pull, tail @ ..]) => match pull.parse::<u64>() {
            Ok(pull) if (1..=fake.look().pulls.len() as u64).contains(&pull) => {
                of_pull(fake, method, pull, tail, body).await
            }
            // learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-request.
            _ => refused(404, "GitPullRequestNotFoundException", "TF401180: The requested pull request was not found"),
        },
        _ => refused(404, "VssResourceNotFoundException", path),
    }
}

async fn of_pull(fake: &AzureFake, method: &str, number: u64, tail: &[&str], body: &Value) -> Response {
    let pull = fake.pull(number);
    match (method, tail) {
        ("GET", []) => ok(described(fake, number)),
        ("PATCH", []) => complete(fake, number, &pull, body).await,
        ("GET", ["iterations"]) => {
            let row = |(place, (commit, at, who)): (usize, &(String, Timestamp, String))| json!({"id": place + 1, "createdDate": at.to_string(), "author": person(who), "sourceRefCommit": {"commitId": commit}});
            rows(pull.iterations.iter().enumerate().map(row).collect())
        }
        ("GET", ["threads"]) => rows(pull.threads),
        ("POST", ["threads"]) => {
            let text = body["comments"][0]["content"].as_str().unwrap_or_default();
            if text.is_empty() || text.chars().count() > LONGEST_COMMENT {
                return refused(400, "InvalidArgumentValueException", "A comment has from 1 to 150000 characters");
            }
            let thread = fake.look().put(number, "tidelock", text);
            ok(json!({"id": thread, "comments": [{"id": 1}]}))
        }
        ("DELETE", ["threads", thread, "comments", _]) => {
            fake.look().kept(number).threads.retain(|one| one["id"].as_u64() != thread.parse().ok());
            StatusCode::OK.into_response()
        }
        ("GET", ["statuses"]) => rows(pull.statuses),
        ("POST", ["statuses"]) => set_status(fake, number, &pull, body),
        _ => refused(404, "VssResourceNotFoundException", &tail.join("/")),
    }
}

/// learn.microsoft.com/rest/api/azure/devops/git/pull-request-statuses/create: a name, and an iteration that is there.
fn set_status(fake: &AzureFake, number: u64, pull: &KeptPull, body: &Value) -> Response {
    let iteration = body["iterationId"].as_u64().unwrap_or_default();
    let states = ["pending", "succeeded", "failed", "error", "notSet", "notApplicable"];
    let is_state = body["state"].as_str().is_some_and(|state| states.contains(&state));
    if !(1..=pull.iterations.len() as u64).contains(&iteration) || !body["context"]["name"].is_string() || !is_state {
        return refused(400, "InvalidArgumentValueException", "a status needs a name, a state and an iteration");
    }
    let mut status = body.clone();
    status["id"] = json!(pull.statuses.len() + 1);
    status["createdBy"] = person("tidelock");
    fake.look().kept(number).statuses.push(status.clone());
    ok(status)
}

/// learn.microsoft.com/rest/api/azure/devops/git/pull-requests/update.
async fn complete(fake: &AzureFake, number: u64, pull: &KeptPull, body: &Value) -> Response {
    if body["status"] != "completed" || pull.status != "active" {
        return refused(400, "InvalidArgumentValueException", "TF401181: The pull request cannot be edited");
    }
    if body["lastMergeSourceCommit"]["commitId"] != pull.head.as_str() {
        return refused(409, "GitPullRequestStaleException", "TF401192: The source branch has been modified");
    }
    if fake.look().rejects_merges {
        // learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-request, PullRequestAsyncStatus.
        let mut rejected = described(fake, number);
        rejected["mergeStatus"] = json!("rejectedByPolicy");
        return ok(rejected);
    }
    let repo = fake.look().repo.clone().unwrap();
    match repo.merge_branch(&pull.branch).await {
        Ok(merged) => fake.look().kept(number).complete(merged),
        Err(error) => return refused(409, "GitPullRequestConflictException", &format!("{error:#}")),
    }
    if body["completionOptions"]["deleteSourceBranch"] == true {
        repo.delete_branch(&pull.branch).await.unwrap();
    }
    // Deliveries are sent beside the answer.
    let told = fake.clone();
    tokio::spawn(async move { told.tell_completed(number).await });
    ok(described(fake, number))
}

async fn refs(fake: &AzureFake, filter: &str) -> Response {
    let repo = fake.look().repo.clone().unwrap();
    let name = filter.trim_start_matches("heads/");
    let row = |tip: String| json!({"name": format!("refs/heads/{name}"), "objectId": tip});
    rows(repo.tip(name).await.ok().map(row).into_iter().collect())
}

/// A pull request as the API and the deliveries describe it.
pub(super) fn described(fake: &AzureFake, number: u64) -> Value {
    let pull = fake.pull(number);
    let commit = |id: &str| json!({"commitId": id});
    let mut body = json!({
        "repository": repository_of(fake), "pullRequestId": number, "codeReviewId": number, "status": pull.status,
        "createdBy": person(&pull.author), "creationDate": pull.created.to_string(), "title": pull.title,
        "sourceRefName": format!("refs/heads/{}", pull.branch), "targetRefName": "refs/heads/main",
        "mergeStatus": "succeeded", "isDraft": pull.draft, "mergeId": "e4e4", "reviewers": pull.reviewers,
        "lastMergeSourceCommit": commit(&pull.head), "lastMergeTargetCommit": commit(&pull.base),
        "supportsIterations": true,
    });
    if pull.fork {
        let project = json!({"id": "f0f0", "name": "Elsewhere"});
        body["forkSource"] =
            json!({"name": body["sourceRefName"], "repository": {"id": "f1f1", "name": NAME, "project": project}});
    }
    if let Some(closed) = pull.closed {
        body["closedDate"] = json!(closed.to_string());
    }
    if let Some(merged) = pull.merged {
        body["lastMergeCommit"] = commit(&merged);
    }
    body
}

fn repository_of(fake: &AzureFake) -> Value {
    let at = format!("{}/{COLLECTION}", fake.base());
    json!({
        "id": "c2c2", "name": NAME, "url": format!("{at}/_apis/git/repositories/c2c2"),
        "project": {"id": "d3d3", "name": PROJECT, "state": "wellFormed"}, "defaultBranch": "refs/heads/main",
        "remoteUrl": format!("{at}/Cloud%20Infra/_git/{NAME}"), "isDisabled": false,
    })
}

fn number(query: &HashMap<String, String>, name: &str) -> usize {
    query.get(name).and_then(|text| text.parse().ok()).unwrap_or(usize::from(name == "$top") * 100)
}

fn ok(body: Value) -> Response {
    axum::Json(body).into_response()
}

fn rows(rows: Vec<Value>) -> Response {
    ok(json!({"count": rows.len(), "value": rows}))
}

/// learn.microsoft.com/azure/devops/integrate/concepts/rate-limits for 429; the body is as every refusal's.
fn refused(status: u16, key: &str, message: &str) -> Response {
    let body = json!({"$id": "1", "message": message, "typeKey": key, "errorCode": 0, "eventId": 3000});
    let mut response = Response::new(Body::from(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    if status == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

fn decoded(path: &str) -> String {
    let plain = path.replace('+', "%2B");
    url::form_urlencoded::parse(plain.as_bytes()).next().map(|(text, _)| text.into_owned()).unwrap_or_default()
}
