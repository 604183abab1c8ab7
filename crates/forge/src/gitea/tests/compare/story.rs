//! The chapters of the story. Each uses the pull requests that it opens.

use super::super::LIMIT;
use super::super::deliveries::signed;
use super::difference::Comparison;
use super::{Both, BranchProtection, Side};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const BOT: &str = "tidelock-bot";

/// Opens the same pull request on both and returns its path and number.
async fn opened(both: &mut Both, branch: &str, text: &str) -> (String, u64) {
    let number = both.forge.open(branch, "Change a", text).await;
    assert_eq!(both.real.open(branch, "Change a", text).await, number, "the numbers went apart");
    let path = format!("{{R}}/pulls/{number}");
    both.settle(&path).await;
    (path, number)
}

async fn write(both: &Both, branch: &str, path: &str, text: &str) {
    both.forge.write(branch, branch, path, text, "alice").await;
    both.real.write(branch, branch, path, text, "alice").await;
}

/// Takes the head of a pull request as `{head}`.
async fn keep_head(both: &mut Both, pull: &str) {
    both.keep("head", "/head/sha", Method::GET, pull, BOT, Value::Null).await;
}

pub(super) async fn of_access(both: &mut Both) {
    both.keep("id", "/id", Method::GET, "{R}", BOT, Value::Null).await;
    for (path, who) in [
        ("/api/v1/version", "nobody"),
        ("/api/v1/user", BOT),
        ("/api/v1/user", "nobody"),
        ("{R}", "nobody"),
        ("{R}", "dave"),
        ("{R}", "bob"),
        ("/api/v1/repositories/{id}", BOT),
        ("/api/v1/repositories/999999", BOT),
        ("/api/v1/repos/{O}/nothing", BOT),
        ("/api/v1/nothing", BOT),
        ("{R}/collaborators/bob/permission", BOT),
        ("{R}/collaborators/bob/permission", "bob"),
        ("{R}/collaborators/bob/permission", "carol"),
        ("{R}/collaborators/nobody/permission", BOT),
        ("{R}/branches/main", BOT),
        ("{R}/branches/main", "dave"),
        ("{R}/branches/nothing", BOT),
        ("{R}/branch_protections", BOT),
        ("{R}/branch_protections/main", BOT),
        ("{R}/branch_protections", "bob"),
        ("{R}/hooks", BOT),
        ("{R}/hooks", "bob"),
        ("{R}/pulls?state=all", BOT),
        ("{R}/pulls/99", BOT),
        ("{R}/pulls/99/merge", BOT),
        ("{R}/pulls/99/reviews", BOT),
        ("{R}/contents/main.tf", BOT),
        ("{R}/raw/main.tf", BOT),
    ] {
        both.get(path, who).await;
    }
    both.forge.use_token("mallory", "0".repeat(40));
    both.real.use_token("mallory", "0".repeat(40));
    both.get("{R}", "mallory").await;
    for body in [
        json!({"type": "gitea"}),
        json!({"type": "gitea", "config": {"url": "http://127.0.0.1:1/"}}),
        json!({"type": "gitea", "config": {"url": "x", "content_type": "json"}}),
        json!({"type": "gitea", "config": {"url": "http://127.0.0.1:1/", "content_type": "x"}}),
        json!({"type": "nope", "config": {"url": "http://127.0.0.1:1/", "content_type": "json"}}),
    ] {
        both.post("{R}/hooks", BOT, body).await;
    }
}

pub(super) async fn of_comments(both: &mut Both) {
    let (pull, number) = opened(both, "comments", "a = 2\n").await;
    let comments = format!("{{R}}/issues/{number}/comments");
    both.get(&pull, BOT).await;
    both.get(&pull, "alice").await;
    both.get(&format!("{{R}}/issues/{number}"), BOT).await;
    both.get("{R}/pulls?state=open&sort=recentupdate", BOT).await;
    both.get(&format!("{pull}/files"), BOT).await;
    both.get(&format!("{pull}/commits"), BOT).await;
    both.get("{R}/compare/main...comments", BOT).await;
    both.get("{R}/compare/comments...main", BOT).await;
    both.keep("comment", "/id", Method::POST, &comments, "bob", json!({"body": "atlantis plan"})).await;
    for (method, path, who, body) in [
        (Method::POST, comments.as_str(), "dave", json!({"body": " "})),
        (Method::POST, comments.as_str(), "bob", json!({"body": ""})),
        (Method::POST, comments.as_str(), "bob", json!({})),
        (Method::POST, "{R}/issues/99/comments", "bob", json!({"body": "x"})),
        (Method::GET, "{R}/issues/99/comments", "bob", Value::Null),
        (Method::GET, "{R}/issues/99", "bob", Value::Null),
        (Method::GET, "{R}/issues/comments/{comment}", BOT, Value::Null),
        (Method::GET, "{R}/issues/comments/999999", BOT, Value::Null),
        (Method::GET, "{R}/issues/comments/{comment}/reactions", BOT, Value::Null),
        (Method::POST, "{R}/issues/comments/{comment}/reactions", BOT, json!({"content": "eyes"})),
        (Method::POST, "{R}/issues/comments/{comment}/reactions", BOT, json!({"content": "eyes"})),
        (Method::POST, "{R}/issues/comments/{comment}/reactions", BOT, json!({"content": "nope"})),
        (Method::GET, "{R}/issues/comments/{comment}/reactions", "bob", Value::Null),
        (Method::DELETE, "{R}/issues/comments/{comment}/reactions", BOT, json!({"content": "eyes"})),
        (Method::PATCH, "{R}/issues/comments/{comment}", "dave", json!({"body": "x"})),
        (Method::PATCH, "{R}/issues/comments/{comment}", "bob", json!({"body": "atlantis apply"})),
        (Method::PATCH, "{R}/issues/comments/{comment}", "bob", json!({})),
        (Method::PATCH, "{R}/issues/comments/999999", "bob", json!({"body": "x"})),
        (Method::GET, comments.as_str(), BOT, Value::Null),
        (Method::DELETE, "{R}/issues/comments/{comment}", "dave", Value::Null),
        (Method::DELETE, "{R}/issues/comments/{comment}", BOT, Value::Null),
        (Method::DELETE, "{R}/issues/comments/{comment}", BOT, Value::Null),
    ] {
        both.ask(method, path, who, body).await;
    }
    both.get(&format!("{comments}?limit=1&since=2020-01-01T00:00:00Z"), BOT).await;
    both.get(&format!("{comments}?since=2090-01-01T00:00:00Z"), BOT).await;
}

pub(super) async fn of_statuses(both: &mut Both) {
    let (pull, _) = opened(both, "statuses", "a = 3\n").await;
    keep_head(both, &pull).await;
    both.get("{R}/commits/{head}/status", BOT).await;
    for (word, context) in
        [("pending", "atlantis/plan"), ("success", "atlantis/plan"), ("warning", "x"), ("skipped", "y")]
    {
        let body = json!({"state": word, "context": context, "target_url": "http://x/y", "description": "d"});
        both.post("{R}/statuses/{head}", BOT, body).await;
    }
    both.post("{R}/statuses/{head}", BOT, json!({"state": "bogus"})).await;
    both.post("{R}/statuses/{head}", "dave", json!({"state": "success"})).await;
    both.post(&format!("{{R}}/statuses/{}", "1".repeat(40)), BOT, json!({"state": "success"})).await;
    for path in ["status", "statuses", "statuses?limit=2", "statuses?limit=2&page=2", "statuses?limit=2&page=3"] {
        // Within a second the order is that of the ids, and a second may end between any two of them.
        let method = Method::GET;
        let path = format!("{{R}}/commits/{{head}}/{path}");
        let (forge, real) = (
            both.forge.request(&method, &path, BOT, &Value::Null).await,
            both.real.request(&method, &path, BOT, &Value::Null).await,
        );
        let mut comparison =
            Comparison::new(format!("GET {path}")).loosen(&["status", "context", "target_url", "description"]);
        comparison.answers((&forge, &both.forge.url), (&real, &both.real.url));
        both.wrong.extend(comparison.wrong);
    }
    both.get(&format!("{{R}}/commits/{}/statuses", "1".repeat(40)), BOT).await;
    both.get(&format!("{{R}}/statuses/{}", "1".repeat(40)), BOT).await;
}

pub(super) async fn of_reviews(both: &mut Both) {
    let (pull, _) = opened(both, "reviews", "a = 4\n").await;
    let reviews = format!("{pull}/reviews");
    both.post(&reviews, "alice", json!({"event": "APPROVED"})).await;
    both.post(&reviews, "alice", json!({"event": "REQUEST_CHANGES", "body": "no"})).await;
    both.keep("review", "/id", Method::POST, &reviews, "bob", json!({"event": "APPROVED"})).await;
    both.post(&reviews, "carol", json!({"event": "REQUEST_CHANGES", "body": "no"})).await;
    both.post(&reviews, "dave", json!({"event": "APPROVED", "body": "fine"})).await;
    both.post(&reviews, "bob", json!({"event": "REQUEST_CHANGES"})).await;
    both.post(&reviews, "bob", json!({"event": "COMMENT"})).await;
    both.keep("remark", "/id", Method::POST, &reviews, "bob", json!({"event": "COMMENT", "body": "hm"})).await;
    both.get(&reviews, BOT).await;
    both.get(&format!("{reviews}?limit=1&page=2"), "carol").await;
    write(both, "reviews", "main.tf", "a = 5\n").await;
    for side in [&both.forge, &both.real] {
        side.wait_for(&reviews, "/0/stale", &json!(true)).await;
    }
    both.settle(&pull).await;
    both.get(&reviews, BOT).await;
    both.post(&reviews, "carol", json!({"event": "APPROVED"})).await;
    both.get(&reviews, BOT).await;
    for (review, who) in [("{review}", "bob"), ("{review}", BOT), ("999999", BOT), ("{remark}", BOT), ("{review}", BOT)]
    {
        both.post(&format!("{reviews}/{review}/dismissals"), who, json!({"message": "x"})).await;
    }
    both.get(&format!("{reviews}/{{review}}"), BOT).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"state": "closed"})).await;
    both.post(&reviews, "bob", json!({"event": "APPROVED"})).await;
    both.post(&format!("{reviews}/{{review}}/dismissals"), BOT, json!({"message": "x"})).await;
    both.get(&pull, BOT).await;
}

pub(super) async fn of_rules(both: &mut Both) {
    let (pull, _) = opened(both, "rules", "a = 6\n").await;
    keep_head(both, &pull).await;
    let merge = format!("{pull}/merge");
    let rules = BranchProtection {
        required_approvals: 1,
        status_contexts: Some(vec!["atlantis/*".to_owned()]),
        block_on_rejected_reviews: true,
        block_on_outdated_branch: true,
        ..BranchProtection::default()
    };
    both.forge.protect(Some(&rules)).await;
    both.real.protect(Some(&rules)).await;
    both.settle(&pull).await;
    for who in [BOT, "bob", "dave"] {
        both.get("{R}/branches/main", who).await;
    }
    both.get("{R}/branch_protections/main", BOT).await;
    both.get("{R}/branch_protections", BOT).await;
    both.merge(&pull, json!({"Do": "merge"})).await;
    both.post("{R}/statuses/{head}", BOT, json!({"state": "success", "context": "atlantis/apply"})).await;
    both.merge(&pull, json!({"Do": "merge"})).await;
    both.post(&format!("{pull}/reviews"), "bob", json!({"event": "APPROVED"})).await;
    both.post(&format!("{pull}/reviews"), "carol", json!({"event": "REQUEST_CHANGES", "body": "no"})).await;
    both.merge(&pull, json!({"Do": "merge"})).await;
    let schedule = json!({"Do": "merge", "merge_when_checks_succeed": true});
    both.post(&merge, BOT, schedule.clone()).await;
    both.post(&merge, BOT, schedule).await;
    both.ask(Method::DELETE, &merge, "dave", Value::Null).await;
    both.ask(Method::DELETE, &merge, BOT, Value::Null).await;
    both.ask(Method::DELETE, &merge, BOT, Value::Null).await;
    // Once nothing is in its way any more, a scheduled merge happens by itself.
    both.post(&merge, BOT, json!({"Do": "squash", "merge_when_checks_succeed": true})).await;
    both.post(&format!("{pull}/reviews"), "carol", json!({"event": "APPROVED"})).await;
    for side in [&both.forge, &both.real] {
        side.wait_for(&pull, "/merged", &json!(true)).await;
    }
    both.get(&pull, BOT).await;
    both.forge.protect(None).await;
    both.real.protect(None).await;
}

/// A draft by its title, and another base branch.
pub(super) async fn of_titles_and_bases(both: &mut Both) {
    let number = both.forge.open("draft", "[wip] Change a", "a = 11\n").await;
    assert_eq!(both.real.open("draft", "[wip] Change a", "a = 11\n").await, number);
    let pull = format!("{{R}}/pulls/{number}");
    both.get(&pull, BOT).await;
    for side in [&both.forge, &both.real] {
        let title = json!({"title": "Draft: Change a"});
        assert_eq!(side.request(&Method::PATCH, &pull, "alice", &title).await.status, 201);
    }
    both.settle(&pull).await;
    both.get(&pull, BOT).await;
    for side in [&both.forge, &both.real] {
        side.write("main", "release", "release.tf", "r = 1\n", "alice").await;
        side.retarget(number, "release").await;
        side.wait_for(&pull, "/base/ref", &json!("release")).await;
    }
    both.settle(&pull).await;
    both.get(&pull, BOT).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"state": "closed"})).await;
}

pub(super) async fn of_merges(both: &mut Both) {
    let (pull, _) = opened(both, "merges", "a = 7\n").await;
    let merge = format!("{pull}/merge");
    both.get(&merge, BOT).await;
    both.post(&merge, BOT, json!({})).await;
    both.post(&merge, BOT, json!({"Do": "octopus"})).await;
    both.post(&merge, "dave", json!({"Do": "merge"})).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"title": "WIP: Change a"})).await;
    both.get(&pull, BOT).await;
    both.post(&merge, BOT, json!({"Do": "merge"})).await;
    both.ask(Method::PATCH, &pull, "dave", json!({"title": "x"})).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"title": "Change b", "body": "Why"})).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"state": "closed"})).await;
    both.post(&merge, BOT, json!({"Do": "merge"})).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"state": "open"})).await;
    both.settle(&pull).await;
    both.merge(&pull, json!({"Do": "merge", "head_commit_id": "0".repeat(40)})).await;
    both.settle(&pull).await;
    keep_head(both, &pull).await;
    let now = json!({"Do": "squash", "head_commit_id": "{head}", "delete_branch_after_merge": true});
    both.merge(&pull, now.clone()).await;
    both.get(&pull, BOT).await;
    both.get(&merge, BOT).await;
    both.post(&merge, BOT, now).await;
    both.ask(Method::PATCH, &pull, "alice", json!({"state": "open"})).await;
    both.get("{R}/pulls?state=closed&sort=oldest&limit=1", BOT).await;
    both.get("{R}/pulls?state=all&sort=oldest&limit=2&page=2", BOT).await;
    for branch in ["main", "merges"] {
        both.ask(Method::DELETE, &format!("{{R}}/branches/{branch}"), BOT, Value::Null).await;
    }
    both.ask(Method::DELETE, "{R}/branches/reviews", "dave", Value::Null).await;
    both.ask(Method::DELETE, "{R}/branches/reviews", BOT, Value::Null).await;
}

/// A pull request from a fork, and one that conflicts with its base.
pub(super) async fn of_forks_and_conflicts(both: &mut Both) {
    let number = both.forge.open_from_fork("theirs", "From a fork").await;
    assert_eq!(both.real.open_from_fork("theirs", "From a fork").await, number);
    let pull = format!("{{R}}/pulls/{number}");
    both.settle(&pull).await;
    both.get(&pull, BOT).await;
    both.get(&pull, "bob").await;
    both.get(&format!("{pull}/files"), BOT).await;
    for side in [&both.forge, &both.real] {
        side.delete_fork().await;
        side.wait_for(&pull, "/head/repo", &Value::Null).await;
    }
    both.get(&pull, BOT).await;
    let (pull, _) = opened(both, "conflicts", "a = 8\n").await;
    write(both, "main", "main.tf", "a = 9\n").await;
    for side in [&both.forge, &both.real] {
        side.wait_for(&pull, "/mergeable", &json!(false)).await;
    }
    both.post(&format!("{pull}/merge"), BOT, json!({"Do": "merge"})).await;
    both.get(&format!("{pull}/commits"), BOT).await;
    let (pull, _) = opened(both, "diverged", "a = 10\n").await;
    write(both, "main", "other.tf", "b = 1\n").await;
    both.keep("tip", "/commit/id", Method::GET, "{R}/branches/main", BOT, Value::Null).await;
    for side in [&both.forge, &both.real] {
        let tip = json!(side.kept("tip"));
        side.wait_for(&pull, "/base/sha", &tip).await;
    }
    both.settle(&pull).await;
    both.merge(&pull, json!({"Do": "fast-forward-only"})).await;
}

pub(super) async fn of_issues(both: &mut Both) {
    both.keep("issue", "/number", Method::POST, "{R}/issues", BOT, json!({"title": "Drift", "body": "x"})).await;
    both.post("{R}/issues", BOT, json!({"body": "x"})).await;
    both.get("{R}/issues/{issue}", "bob").await;
    both.post("{R}/issues/{issue}/comments", BOT, json!({"body": "x"})).await;
    both.get("{R}/issues?type=issues&created_by=tidelock-bot&state=open", BOT).await;
    both.get("{R}/issues?type=issues&created_by=bob", BOT).await;
    both.get("{R}/issues?created_by=nobody-is-it", BOT).await;
    both.get("{R}/issues?type=pulls&state=all&limit=2", BOT).await;
    both.ask(Method::PATCH, "{R}/issues/{issue}", "dave", json!({"state": "closed"})).await;
    both.ask(Method::PATCH, "{R}/issues/{issue}", BOT, json!({"state": "closed", "body": "y"})).await;
    both.get("{R}/issues?type=issues&state=closed", BOT).await;
    both.forge.disable_issues().await;
    both.real.disable_issues().await;
    both.get("{R}", BOT).await;
    both.get("{R}/issues?type=issues", BOT).await;
    both.get("{R}/issues/{issue}", BOT).await;
    both.get("{R}/issues/{issue}/comments", BOT).await;
    both.post("{R}/issues", "bob", json!({"title": "More"})).await;
    both.post("{R}/issues", BOT, json!({"title": "More"})).await;
    both.get("{R}/issues/1/comments", BOT).await;
}

pub(super) async fn of_teams(both: &mut Both) {
    for side in [&both.forge, &both.real] {
        side.team("ops", &["bob"]).await;
    }
    both.get("/api/v1/orgs/{O}/teams", BOT).await;
    both.get("/api/v1/orgs/{O}/teams/search?q=op", BOT).await;
    both.get("/api/v1/orgs/nobody-is-it/teams", BOT).await;
    both.get("/api/v1/orgs/{O}/teams/search?q=op", "bob").await;
    both.keep("team", "/data/0/id", Method::GET, "/api/v1/orgs/{O}/teams/search?q=op", "bob", Value::Null).await;
    for (path, who) in [
        ("/api/v1/teams/{team}/members/bob", "bob"),
        ("/api/v1/teams/{team}/members/carol", "bob"),
        ("/api/v1/teams/{team}/members/nobody-is-it", "bob"),
        ("/api/v1/teams/{team}/members/bob", BOT),
        ("/api/v1/teams/999999/members/bob", BOT),
    ] {
        both.get(path, who).await;
    }
    for side in [&both.forge, &both.real] {
        side.team("net", &[BOT]).await;
    }
    both.get("/api/v1/teams/{team}/members/bob", BOT).await;
    both.get("/api/v1/orgs/{O}/teams/search?q=op", BOT).await;
    both.get("/api/v1/orgs/{O}/teams/search?q=net", BOT).await;
}

/// Former names and scopes come last: the requests of the other chapters would be refused.
pub(super) async fn of_names_and_scopes(both: &mut Both) {
    for side in [&mut both.forge, &mut both.real] {
        let token = side.token(BOT, &["read:repository", "write:issue"]).await;
        side.use_token(BOT, token);
    }
    both.get("/api/v1/user", BOT).await;
    both.get("/api/v1/user/repos", BOT).await;
    both.get("/api/v1/orgs/{O}/teams", BOT).await;
    both.get("/api/v1/admin/cron?limit=1", BOT).await;
    both.post("{R}/statuses/{head}", BOT, json!({"state": "success"})).await;
    both.get("{R}/issues/1/comments", BOT).await;
    both.get("{R}", BOT).await;
    for side in [&both.forge, &both.real] {
        side.rename("cloud").await;
    }
    both.get("{R}/pulls?state=all&limit=1", BOT).await;
    both.post("{R}/issues/1/comments", BOT, json!({"body": "x"})).await;
}

/// Compares all deliveries so far: each of the forge must have its like, and of all but pushes there are as many.
pub(super) async fn of_deliveries(both: &mut Both) {
    let (pull, number) = opened(both, "deliveries", "a = 8\n").await;
    for side in [&both.forge, &both.real] {
        side.label(number, "ops").await;
    }
    both.settle(&pull).await;
    let events = |side: &Side| {
        let all = side.received.lock().unwrap();
        let parsed = all.iter().map(|(headers, body)| {
            let payload: Value = serde_json::from_str(body).unwrap();
            let action = payload["action"].as_str().or(payload["ref"].as_str()).unwrap_or_default();
            let (event, sender) = (headers["x-gitea-event-type"].to_str().unwrap(), &payload["sender"]["login"]);
            let kind = format!("{event} {action} {} by {sender}", payload["number"]);
            (kind, headers.clone(), body.clone(), payload)
        });
        parsed.collect::<Vec<_>>()
    };
    let is_told = |side: &Side| events(side).iter().any(|(kind, ..)| kind.starts_with("pull_request_label"));
    let both_told = async {
        while !is_told(&both.forge) || !is_told(&both.real) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, both_told).await.expect("the last deliveries are missing");
    let (forge, mut real) = (events(&both.forge), events(&both.real));
    for (kind, headers, body, payload) in &forge {
        let Some(place) = real.iter().position(|(other, ..)| other == kind) else {
            // Of an opening Gitea sends it only if it has not worked on the push before.
            if kind.starts_with("pull_request_sync ") {
                continue;
            }
            both.wrong.push(format!("delivery {kind}: Gitea sends none"));
            continue;
        };
        let (_, their_headers, their_body, theirs) = real.remove(place);
        let mut comparison =
            Comparison::new(format!("delivery {kind}")).loosen(&["mergeable", "open_pr_counter", "compare_url"]);
        comparison.values("", payload, &theirs);
        for name in headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-")) {
            let value = |headers: &http::HeaderMap| {
                headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_else(|| "none".to_owned())
            };
            let is_own = name.ends_with("-delivery") || name.contains("signature");
            if value(headers) != value(&their_headers) && !is_own {
                comparison.say(name, &value(headers), &value(&their_headers));
            }
        }
        for (name, _) in their_headers.iter().filter(|(name, _)| !headers.contains_key(*name)) {
            comparison.say(name.as_str(), "none", "a header");
        }
        for (headers, body, side) in [(headers, body, &both.forge), (&their_headers, &their_body, &both.real)] {
            assert_eq!(headers["x-gitea-signature"], signed(&side.secret, body), "{kind}");
        }
        both.wrong.extend(comparison.wrong);
    }
    let rest = real.iter().filter(|(kind, ..)| !kind.starts_with("push "));
    both.wrong.extend(rest.map(|(kind, ..)| format!("delivery {kind}: the forge sends none")));
}
