//! Approvals, merge checks and merges.

use super::super::super::OpenOptions;
use super::{BitbucketForge, REPO, message};
use http::Method;
use serde_json::{Value, json};

const MERGE: &str = "/pullrequests/1/merge";

impl BitbucketForge {
    async fn merge(&self, body: Value) -> (u16, String) {
        let (status, told) = self.ask(Method::POST, MERGE, body).await;
        (status, message(&told).to_owned())
    }

    async fn act(&self, method: Method, login: &str, path: &str) -> (u16, Value) {
        let answer = self.request(method, &format!("{REPO}/pullrequests/1/{path}"), login, Value::Null).await;
        (answer.status, answer.body)
    }

    /// Nickname, approval and state of each participant.
    async fn participants(&self) -> Vec<(String, bool, Value)> {
        let body = self.get("/pullrequests/1").await;
        let row = |one: &Value| {
            let name = one["user"]["nickname"].as_str().unwrap().to_owned();
            (name, one["approved"].as_bool().unwrap(), one["state"].clone())
        };
        body["participants"].as_array().unwrap().iter().map(row).collect()
    }

    /// Follows the redirect to the differences of the pull request. Returns path and status of each file.
    async fn diffstat(&self) -> Vec<(String, String)> {
        let answer = self.request(Method::GET, &format!("{REPO}/pullrequests/1/diffstat"), "bob", Value::Null).await;
        assert_eq!(answer.status, 302);
        let place = answer.headers["location"].to_str().unwrap();
        assert!(place.contains("%0D") && place.contains("from_pullrequest_id=1"), "{place}");
        let body = self.request(Method::GET, place, "bob", Value::Null).await.body;
        let row = |one: &Value| {
            let side = if one["new"].is_null() { &one["old"] } else { &one["new"] };
            (side["path"].as_str().unwrap().to_owned(), one["status"].as_str().unwrap().to_owned())
        };
        body["values"].as_array().unwrap().iter().map(row).collect()
    }
}

fn unmet(what: &str) -> (u16, String) {
    (400, format!("Unresolved merge checks: {what}"))
}

#[tokio::test]
async fn everybody_reviews_for_oneself() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let (status, told) = bitbucket.act(Method::POST, "bob", "approve").await;
    assert_eq!((status, &told["approved"], &told["state"]), (200, &json!(true), &json!("approved")));
    let (status, told) = bitbucket.act(Method::POST, "bob", "approve").await;
    assert_eq!((status, message(&told)), (409, "You already approved this pull request."));
    assert_eq!(bitbucket.act(Method::POST, "alice", "approve").await.0, 200, "authors may");
    assert_eq!(bitbucket.act(Method::POST, "carol", "request-changes").await.0, 200);
    pull.comment("dave", "Hm.").unwrap();
    let named = |name: &str, approved: bool, state: Value| (name.to_owned(), approved, state);
    let all = [
        named("alice", true, json!("approved")),
        named("bob", true, json!("approved")),
        named("carol", false, json!("changes_requested")),
        named("dave", false, Value::Null),
    ];
    assert_eq!(bitbucket.participants().await, all);
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert_eq!(bitbucket.participants().await, all, "a push keeps them");
    assert_eq!(bitbucket.act(Method::DELETE, "tidelock-bot", "approve").await.0, 404, "not another's");
    assert_eq!(bitbucket.act(Method::DELETE, "bob", "approve").await.0, 204);
    assert_eq!(bitbucket.act(Method::DELETE, "carol", "request-changes").await.0, 204);
    let left: Vec<String> = bitbucket.participants().await.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(left, ["alice", "dave"]);
    bitbucket.repo.reset_reviews_on_push().unwrap();
    pull.push(&[("main.tf", Some("a = 4\n"))]).await.unwrap();
    assert_eq!(bitbucket.participants().await, [named("dave", false, Value::Null)]);
    pull.close().unwrap();
    assert_eq!(bitbucket.act(Method::POST, "bob", "approve").await.0, 400);
    assert!(pull.approve("bob").is_err());
}

#[tokio::test]
async fn the_log_tells_approvals_and_pushes_in_their_order() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    pull.approve("bob").unwrap();
    let head = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.set_title("Another title").unwrap();
    pull.request_changes("carol").unwrap();
    let log = bitbucket.get("/pullrequests/1/activity").await;
    let kind = |row: &Value| row.as_object().unwrap().keys().find(|key| *key != "pull_request").unwrap().clone();
    let kinds: Vec<String> = log["values"].as_array().unwrap().iter().map(kind).collect();
    assert_eq!(kinds, ["changes_requested", "update", "update", "approval", "update"]);
    let update = |place: usize| log["values"][place]["update"].clone();
    assert_eq!((update(1)["title"].clone(), update(2)["title"].clone()), (json!("Another title"), json!("Change a")));
    assert_eq!(update(2)["source"]["commit"]["hash"], head[..12]);
    assert_ne!(update(4)["source"]["commit"]["hash"], head[..12]);
    assert_eq!(log["values"][3]["approval"]["user"]["nickname"], "bob");
}

#[tokio::test]
async fn checks_refuse_only_where_they_are_enforced() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let head = pull.head_commit().unwrap();
    bitbucket.repo.require_builds(2).unwrap();
    bitbucket.repo.require_tasks().unwrap();
    bitbucket.repo.require_no_changes_requested().unwrap();
    pull.set_open_tasks(1).unwrap();
    pull.request_changes("carol").unwrap();
    bitbucket.repo.enforce_merge_checks().unwrap();
    let rules = bitbucket.get("/branch-restrictions?pagelen=100").await;
    let kinds: Vec<&str> =
        rules["values"].as_array().unwrap().iter().map(|rule| rule["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.len(), 4);
    assert_eq!(bitbucket.get("/branch-restrictions?kind=enforce_merge_checks").await["size"], 1);
    let refused = bitbucket.request(Method::GET, &format!("{REPO}/branch-restrictions"), "bob", Value::Null).await;
    assert_eq!(refused.status, 403, "administrators alone");
    let builds = unmet("at least 2 successful build(s) and none that failed or is in progress");
    let set = async |key: &str, word: &str| {
        assert_eq!(bitbucket.build(&head, json!({"key": key, "state": word, "url": "http://x/y"})).await.0, 201);
    };
    assert_eq!(bitbucket.merge(json!({})).await, builds);
    set("one", "SUCCESSFUL").await;
    set("two", "SUCCESSFUL").await;
    set("ours", "INPROGRESS").await;
    assert_eq!(bitbucket.merge(json!({})).await, builds, "one is in progress");
    set("ours", "STOPPED").await;
    assert_eq!(bitbucket.get("/pullrequests/1").await["task_count"], 1);
    assert_eq!(bitbucket.merge(json!({})).await, unmet("no unresolved task"));
    pull.set_open_tasks(0).unwrap();
    assert_eq!(bitbucket.merge(json!({})).await, unmet("no requested changes"));
    pull.approve("carol").unwrap();
    pull.set_mergeable_state("blocked").unwrap();
    assert_eq!(bitbucket.merge(json!({})).await, unmet("at least 2 approval(s)"));
    pull.approve("alice").unwrap();
    assert_eq!(bitbucket.merge(json!({})).await, unmet("at least 2 approval(s)"), "the author's does not count");
    pull.approve("bob").unwrap();
    assert_eq!(bitbucket.merge(json!({})).await.0, 200);
    let second = BitbucketForge::new().await;
    second.pull().await;
    second.repo.require_builds(1).unwrap();
    assert_eq!(second.merge(json!({})).await.0, 200, "a check without Premium warns");
}

#[tokio::test]
async fn differences_tell_conflicts() {
    let bitbucket = BitbucketForge::new().await;
    let changes = [("main.tf", Some("a = 2\n")), ("net/main.tf", Some("b = 2\n")), ("new.tf", Some("n"))];
    let pull = bitbucket.repo.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap();
    let row = |path: &str, word: &str| (path.to_owned(), word.to_owned());
    let clean = [row("main.tf", "modified"), row("net/main.tf", "modified"), row("new.tf", "added")];
    assert_eq!(bitbucket.diffstat().await, clean);
    bitbucket.repo.push("main", &[("main.tf", Some("a = 9\n")), ("net/main.tf", None)]).await.unwrap();
    let conflicts = [row("main.tf", "merge conflict"), row("net/main.tf", "local deleted"), row("new.tf", "added")];
    assert_eq!(bitbucket.diffstat().await, conflicts);
    let text = "You can't merge until you resolve all merge conflicts.".to_owned();
    assert_eq!(bitbucket.merge(json!({})).await, (400, text));
    assert!(pull.merge().await.is_err());
    let (base, head) = (bitbucket.repo.tip("main").await.unwrap(), pull.head_commit().unwrap());
    let range = bitbucket.get(&format!("/diffstat/{head}..{base}")).await;
    assert_eq!(range["size"], 3);
}

#[tokio::test]
async fn merges_are_refused_with_a_reason() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    assert_eq!(bitbucket.merge(json!({})).await, (400, "You can't merge a draft pull request.".to_owned()));
    let (status, told) = bitbucket.ask(Method::PUT, "/pullrequests/1", json!({"draft": false})).await;
    assert_eq!((status, &told["draft"], &told["title"]), (200, &json!(false), &json!("Change a")));
    let reader = bitbucket.request(Method::POST, &format!("{REPO}{MERGE}"), "dave", json!({})).await;
    assert_eq!(reader.status, 403);
    let (status, told) = bitbucket.ask(Method::POST, MERGE, json!({"merge_strategy": "octopus"})).await;
    assert_eq!((status, told["error"]["fields"]["merge_strategy"].is_array()), (400, true));
    assert_eq!(bitbucket.merge(json!({"merge_strategy": "fast_forward"})).await.0, 400, "not allowed here");
    bitbucket.repo.allow_rebase_merges().unwrap();
    let path = "/pullrequests/1?fields=%2Bdestination.branch.merge_strategies";
    let branch = bitbucket.get(path).await["destination"]["branch"].clone();
    assert_eq!(
        (&branch["default_merge_strategy"], branch["merge_strategies"].as_array().unwrap().len()),
        (&json!("merge_commit"), 6)
    );
    bitbucket.repo.push("main", &[("other.tf", Some("o"))]).await.unwrap();
    let text = "Unable to fast forward due to changes in the destination branch.".to_owned();
    assert_eq!(bitbucket.merge(json!({"merge_strategy": "fast_forward"})).await, (400, text));
    let body = json!({"merge_strategy": "squash", "close_source_branch": true, "message": "All of it"});
    let (status, merged) = bitbucket.ask(Method::POST, MERGE, body).await;
    let tip = bitbucket.repo.tip("main").await.unwrap();
    assert_eq!((status, &merged["state"], &merged["merge_commit"]["hash"]), (200, &json!("MERGED"), &json!(tip)));
    assert!(bitbucket.repo.tip("change").await.is_err() && pull.is_merged().unwrap());
    assert_eq!(bitbucket.get("/pullrequests/1").await["merge_commit"]["hash"], tip[..12]);
    let (status, told) = bitbucket.ask(Method::POST, MERGE, json!({})).await;
    assert_eq!(
        (status, &told["error"]["fields"]["newstatus"][0]),
        (400, &json!("This pull request is already closed."))
    );
}

#[tokio::test]
async fn a_declined_pull_request_stays_declined() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let decline = "/pullrequests/1/decline";
    let refused = bitbucket.request(Method::POST, &format!("{REPO}{decline}"), "dave", Value::Null).await;
    assert_eq!(refused.status, 403);
    let (status, told) = bitbucket.ask(Method::POST, decline, json!({"message": "Not now."})).await;
    assert_eq!((status, &told["state"], &told["reason"]), (200, &json!("DECLINED"), &json!("Not now.")));
    assert_eq!(bitbucket.ask(Method::POST, decline, Value::Null).await.0, 400);
    let (status, told) = bitbucket.ask(Method::PUT, "/pullrequests/1", json!({"state": "OPEN"})).await;
    assert_eq!((status, message(&told)), (400, "Can only update an open pull request."));
    assert!(pull.reopen().is_err() && !pull.is_open().unwrap());
}

#[tokio::test]
async fn a_slow_merge_is_a_task() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    pull.close_source_branch().unwrap();
    bitbucket.forge.slow_merges_down(2);
    let asked = json!({"close_source_branch": false});
    let asked = bitbucket.request(Method::POST, &format!("{REPO}{MERGE}"), "tidelock-bot", asked).await;
    assert_eq!((asked.status, &asked.body), (202, &json!("")));
    let place = asked.headers["location"].to_str().unwrap().to_owned();
    let mut words = Vec::new();
    for _ in 0..4 {
        let told = bitbucket.request(Method::GET, &place, "tidelock-bot", Value::Null).await;
        words.push(told.body["task_status"].as_str().unwrap().to_owned());
    }
    assert_eq!(words, ["PENDING", "PENDING", "SUCCESS", "SUCCESS"]);
    assert!(pull.is_merged().unwrap() && bitbucket.repo.tip("change").await.is_ok());
    let unknown = format!("{place}x");
    let told = bitbucket.request(Method::GET, &unknown, "tidelock-bot", Value::Null).await;
    assert_eq!((told.status, &told.body["task_status"]), (200, &json!("PENDING")), "for ever");
}

#[tokio::test]
async fn a_task_that_fails_tells_the_reason() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let ask = async || {
        let path = format!("{REPO}{MERGE}?async=true");
        let asked = bitbucket.request(Method::POST, &path, "tidelock-bot", json!({})).await;
        assert_eq!(asked.status, 202);
        asked.headers["location"].to_str().unwrap().to_owned()
    };
    let end = async |place: &str| {
        let told = bitbucket.request(Method::GET, place, "tidelock-bot", Value::Null).await;
        (told.status, message(&told.body).to_owned())
    };
    let changed = "Unable to merge because one of the refs involved changed while attempting to merge".to_owned();
    let place = ask().await;
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert_eq!(end(&place).await, (409, changed.clone()));
    let place = ask().await;
    bitbucket.repo.push("main", &[("main.tf", Some("a = 9\n"))]).await.unwrap();
    assert_eq!(end(&place).await, (409, changed));
    let text = "You can't merge until you resolve all merge conflicts.".to_owned();
    assert_eq!(end(&ask().await).await, (400, text));
    assert!(!pull.is_merged().unwrap());
}

#[tokio::test]
async fn a_queue_keeps_it_open() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    pull.close_source_branch().unwrap();
    assert_eq!(bitbucket.get("/pullrequests/1").await["close_source_branch"], true);
    bitbucket.repo.enable_merge_queue().unwrap();
    let (status, told) = bitbucket.ask(Method::POST, MERGE, json!({})).await;
    assert_eq!((status, &told["queued"], &told["state"]), (200, &json!(true), &json!("OPEN")));
    pull.merge().await.unwrap();
    let body = bitbucket.get("/pullrequests/1").await;
    assert_eq!((&body["queued"], &body["state"]), (&json!(false), &json!("MERGED")));
}

#[tokio::test]
async fn every_strategy_has_its_commits() {
    for (strategy, commits) in [
        ("merge_commit", 2),
        ("squash", 1),
        ("fast_forward", 1),
        ("squash_fast_forward", 1),
        ("rebase_fast_forward", 1),
        ("rebase_merge", 2),
    ] {
        let bitbucket = BitbucketForge::new().await;
        bitbucket.repo.allow_rebase_merges().unwrap();
        bitbucket.pull().await;
        let before = bitbucket.repo.tip("main").await.unwrap();
        assert_eq!(bitbucket.merge(json!({"merge_strategy": strategy})).await.0, 200, "{strategy}");
        let git = bitbucket.forge.shared.git(super::NAME).unwrap();
        let (ahead, behind) = git.distance(&before, "main").await.unwrap();
        assert_eq!((ahead, behind), (commits, 0), "{strategy}");
    }
}

#[tokio::test]
async fn a_merge_without_a_word_about_the_branch_does_what_its_opening_said() {
    for (body, stays) in [
        (json!({}), false),
        (json!({"close_source_branch": false}), true),
        (json!({"close_source_branch": true}), false),
    ] {
        let bitbucket = BitbucketForge::new().await;
        bitbucket.pull().await.close_source_branch().unwrap();
        let (status, told) = bitbucket.merge(body.clone()).await;
        assert_eq!(status, 200, "{told}");
        let branch = bitbucket.ask(Method::GET, "/refs/branches/change", Value::Null).await;
        assert_eq!(branch.0 == 200, stays, "{body}");
    }
}

#[tokio::test]
async fn the_parents_of_a_merge_are_whole() {
    let bitbucket = BitbucketForge::new().await;
    let head = bitbucket.pull().await.head_commit().unwrap();
    let base = bitbucket.repo.tip("main").await.unwrap();
    assert_eq!(bitbucket.merge(json!({})).await.0, 200);
    let made = bitbucket.get("/pullrequests/1").await["merge_commit"]["hash"].as_str().unwrap().to_owned();
    let made = bitbucket.get(&format!("/commit/{made}")).await;
    let parents: Vec<&str> =
        made["parents"].as_array().unwrap().iter().map(|one| one["hash"].as_str().unwrap()).collect();
    assert_eq!(parents, [base, head]);
}

#[tokio::test]
async fn a_condition_that_the_forge_does_not_know_is_not_met() {
    let bitbucket = BitbucketForge::new().await;
    bitbucket.pull().await;
    bitbucket.repo.require_resolved_comments().unwrap();
    bitbucket.repo.enforce_merge_checks().unwrap();
    assert_eq!(bitbucket.merge(json!({})).await, unmet("the condition require_all_comments_resolved"));
}
