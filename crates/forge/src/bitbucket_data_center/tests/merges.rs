//! Versions, reviews, merge checks and merges.

use super::super::super::OpenOptions;
use super::{DataCenterForge, LIMIT, error};
use http::Method;
use serde_json::{Value, json};

const PULL: &str = "/pull-requests/1";
const MERGE: &str = "/pull-requests/1/merge";

impl DataCenterForge {
    /// Merges with these fields and the present version.
    async fn merge(&self, mut body: Value) -> (u16, Value) {
        body["version"] = self.get(PULL).await["version"].clone();
        self.ask(Method::POST, MERGE, body).await
    }

    /// Details of the vetoes, if it can be merged, and its outcome.
    async fn mergeability(&self) -> (Vec<String>, bool, String) {
        let told = self.get(MERGE).await;
        let detail = |veto: &Value| veto["detailedMessage"].as_str().unwrap().to_owned();
        let vetoes = told["vetoes"].as_array().unwrap().iter().map(detail).collect();
        (vetoes, told["canMerge"].as_bool().unwrap(), told["outcome"].as_str().unwrap().to_owned())
    }

    async fn set_status(&self, login: &str, slug: &str, body: Value) -> (u16, Value) {
        self.ask_as(login, Method::PUT, &format!("{PULL}/participants/{slug}"), body).await
    }
}

fn clean() -> (Vec<String>, bool, String) {
    (Vec::new(), true, "CLEAN".to_owned())
}

fn vetoed(details: &[&str]) -> (Vec<String>, bool, String) {
    (details.iter().map(|one| (*one).to_owned()).collect(), false, "CLEAN".to_owned())
}

#[tokio::test]
async fn a_change_names_the_present_version() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let text = "You are attempting to modify a pull request based on out-of-date information.";
    for path in ["merge", "decline"] {
        for (query, expected) in [("", -1), ("?version=3", 3)] {
            let (status, told) = host.ask(Method::POST, &format!("{PULL}/{path}{query}"), Value::Null).await;
            assert_eq!((status, error(&told)), (409, (text, "PullRequestOutOfDateException")), "{path}");
            let known = &told["errors"][0];
            assert_eq!((&known["currentVersion"], &known["expectedVersion"]), (&json!(0), &json!(expected)));
            assert_eq!(known["pullRequest"]["id"], 1);
        }
    }
    let edit = async |body: Value| host.ask(Method::PUT, PULL, body).await;
    let (status, told) = edit(json!({"title": "x"})).await;
    assert_eq!((status, &told["errors"][0]["context"]), (400, &json!("version")));
    assert_eq!(edit(json!({"title": "x", "version": 4})).await.0, 409);
    assert_eq!(edit(json!({"title": "x", "version": 0, "author": {}})).await.0, 400);
    assert_eq!(edit(json!({"toRef": {"id": "refs/heads/none"}, "version": 0})).await.0, 404);
    let reviewers = json!([{"user": {"name": "bob"}}]);
    let (status, told) = edit(json!({"title": "x", "version": 0, "reviewers": reviewers, "draft": true})).await;
    assert_eq!((status, &told["version"], &told["draft"]), (200, &json!(1), &json!(true)));
    assert_eq!(told["reviewers"][0]["user"]["name"], "bob");
    let (_, told) = edit(json!({"draft": false, "version": 1})).await;
    assert_eq!((&told["title"], &told["reviewers"]), (&json!("x"), &json!([])), "absent reviewers are removed");
    let updated = host.get(PULL).await["updatedDate"].clone();
    pull.approve("bob").unwrap();
    assert_eq!(host.get(PULL).await["updatedDate"], updated, "a review is no change");
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let told = host.get(PULL).await;
    assert_eq!(told["version"], 2, "a push to the head leaves it");
    assert_ne!(told["updatedDate"], updated);
    assert_eq!(pull.version().unwrap(), 2);
    host.repo.push("main", &[("other.tf", Some("o"))]).await.unwrap();
    assert_eq!(pull.version().unwrap(), 3, "a push to the target raises it");
    pull.touch_version().unwrap();
    assert_eq!(host.ask(Method::POST, &format!("{MERGE}?version=3"), Value::Null).await.0, 409);
    assert_eq!(host.ask(Method::POST, &format!("{MERGE}?version=4"), Value::Null).await.0, 200);
    assert!(pull.is_merged().unwrap());
}

#[tokio::test]
async fn a_declined_one_is_reopened() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let act = async |word: &str, version: i64| {
        let (status, told) = host.ask(Method::POST, &format!("{PULL}/{word}?version={version}"), Value::Null).await;
        (status, told["state"].as_str().map(str::to_owned), error(&told).1.to_owned())
    };
    let state = |word: &str| (200, Some(word.to_owned()), String::new());
    let refused = (409, None, "IllegalPullRequestStateException".to_owned());
    let already = "This pull request has already been declined.";
    assert_eq!(act("reopen", 0).await, refused, "it is open");
    assert_eq!(act("decline", 0).await, state("DECLINED"));
    assert_eq!(host.get("/pull-requests").await["size"], 0);
    assert_eq!(host.get("/pull-requests?state=DECLINED").await["size"], 1);
    assert_eq!(host.ask(Method::GET, "/pull-requests?state=closed", Value::Null).await.0, 400);
    for word in ["merge", "decline"] {
        assert_eq!(act(word, 2).await, refused, "{word}");
    }
    let asked = host.ask(Method::GET, MERGE, Value::Null).await;
    assert_eq!((asked.0, error(&asked.1)), (409, (already, "IllegalPullRequestStateException")));
    assert_eq!(act("reopen", 0).await.0, 409, "the version has grown");
    assert_eq!(act("reopen", 2).await, state("OPEN"));
    assert_eq!(act("merge", 3).await, state("MERGED"));
    assert_eq!(act("reopen", 5).await, refused, "for good");
    assert!(pull.is_merged().unwrap());
    let second =
        host.repo.open_pull("two", "bob", "Two", &[("b.tf", Some("b"))], OpenOptions::default()).await.unwrap();
    host.repo.delete_branch("two").await.unwrap();
    assert!(!second.is_open().unwrap());
    let again = host.ask(Method::POST, "/pull-requests/2/reopen?version=2", Value::Null).await;
    assert_eq!(again.0, 409, "its branch is gone");
}

#[tokio::test]
async fn everybody_reviews_for_oneself_and_not_ones_own() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let first = pull.head_commit().unwrap();
    let word = |status: &str| json!({"status": status});
    assert_eq!(host.set_status("alice", "alice", word("APPROVED")).await.0, 400, "the author");
    assert!(pull.approve("alice").is_err());
    assert_eq!(host.set_status("tidelock-bot", "bob", word("UNAPPROVED")).await.0, 401, "another's");
    assert_eq!(host.set_status("bob", "bob", word("approved")).await.0, 400);
    pull.add_reviewer("bob").unwrap();
    assert_eq!(host.set_status("bob", "bob", word("APPROVED")).await.0, 200);
    assert_eq!(host.set_status("carol", "carol", word("NEEDS_WORK")).await.0, 200);
    pull.comment("dave", "Hm.").unwrap();
    let lists = async || {
        let told = host.get(PULL).await;
        let row = |one: &Value| {
            let commit = one["lastReviewedCommit"].as_str().unwrap_or_default().to_owned();
            format!("{} {} {} {commit}", one["user"]["name"], one["role"], one["status"]).replace('"', "")
        };
        let list = |name: &str| told[name].as_array().unwrap().iter().map(row).collect::<Vec<_>>();
        (list("reviewers"), list("participants"))
    };
    let (reviewers, participants) = lists().await;
    assert_eq!(reviewers, [format!("bob REVIEWER APPROVED {first}")]);
    assert_eq!(
        participants,
        [format!("carol PARTICIPANT NEEDS_WORK {first}"), "dave PARTICIPANT UNAPPROVED ".to_owned()]
    );
    let second = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert_eq!(lists().await.0, reviewers, "a push keeps it, with its commit");
    let late = json!({"status": "APPROVED", "lastReviewedCommit": first});
    assert_eq!(host.set_status("bob", "bob", late).await.0, 409);
    assert_eq!(host.set_status("bob", "bob", word("APPROVED")).await.0, 200);
    assert_eq!(lists().await.0, [format!("bob REVIEWER APPROVED {second}")]);
    host.repo.unapprove_on_push().unwrap();
    pull.push(&[("main.tf", Some("a = 4\n"))]).await.unwrap();
    assert_eq!(lists().await.0, ["bob REVIEWER UNAPPROVED "]);
    pull.close().unwrap();
    assert_eq!(host.set_status("bob", "bob", word("APPROVED")).await.0, 409);
    assert!(pull.approve("bob").is_err());
}

#[tokio::test]
async fn merge_checks_veto() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let head = pull.head_commit().unwrap();
    assert_eq!(host.mergeability().await, clean());
    host.repo.require_successful_builds(1).unwrap();
    host.repo.require_done_tasks().unwrap();
    host.repo.require_no_needed_work().unwrap();
    host.repo.require_approvals(1).unwrap();
    pull.request_changes("carol").unwrap();
    let task = pull.add_task("carol", "Do it.").unwrap();
    let none = "You still need a minimum of one successful build before this pull request can be merged.";
    let approval = "You need 1 more approval before this pull request can be merged.";
    let work = "PR marked as Needs Work from reviewer(s)";
    let tasks = "You still have 1 open task(s) to complete before this pull request can be merged.";
    assert_eq!(host.mergeability().await, vetoed(&[none, approval, work, tasks]));
    let (status, told) = host.merge(json!({})).await;
    let text = "Merging the pull request has been vetoed.";
    assert_eq!((status, error(&told)), (409, (text, "PullRequestMergeVetoedException")));
    assert_eq!(
        (&told["errors"][0]["conflicted"], told["errors"][0]["vetoes"].as_array().unwrap().len()),
        (&json!(false), 4)
    );
    let set = async |key: &str, word: &str| {
        assert_eq!(host.build(&head, json!({"key": key, "state": word, "url": "http://x/y"})).await.0, 204);
    };
    set("one", "SUCCESSFUL").await;
    set("ours", "INPROGRESS").await;
    let running = "You cannot merge this pull request while it has in-progress builds.";
    assert_eq!(host.mergeability().await, vetoed(&[running, approval, work, tasks]));
    set("ours", "FAILED").await;
    let failed = "You cannot merge this pull request while it has failed builds.";
    assert_eq!(host.mergeability().await, vetoed(&[failed, approval, work, tasks]));
    set("ours", "SUCCESSFUL").await;
    pull.finish_task(task).unwrap();
    pull.approve("carol").unwrap();
    assert_eq!(host.mergeability().await, clean());
    host.repo.veto_merges("Not today", "It is Friday.").unwrap();
    assert_eq!(host.mergeability().await, vetoed(&["It is Friday."]));
    host.repo.veto_merges("", "").unwrap();
    host.repo.restrict_branch("main", &["alice"]).unwrap();
    assert_eq!(host.merge(json!({})).await.0, 409, "it may not change the branch");
    let rules = "/bitbucket/rest/branch-permissions/latest/projects/ACME/repos/infra/restrictions";
    assert_eq!(host.request(Method::GET, rules, "bob", Value::Null).await.status, 401);
    let told = host.request(Method::GET, rules, "alice", Value::Null).await.body;
    assert_eq!(told["values"][0]["users"][0]["name"], "alice");
    let reader = host.ask_as("dave", Method::GET, MERGE, Value::Null).await;
    assert_eq!((reader.0, &reader.1["canMerge"]), (200, &json!(false)), "a reader");
    let merged = host.ask_as("alice", Method::POST, &format!("{MERGE}?version=0"), Value::Null).await;
    assert_eq!(merged.0, 200, "{}", merged.1);
}

#[tokio::test]
async fn required_builds_name_the_branch() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let head = pull.head_commit().unwrap();
    host.repo.require_build_parents(&["atlantis/apply"]).unwrap();
    let set = async |fields: Value| {
        let mut body = json!({"key": "k", "state": "SUCCESSFUL", "url": "http://x/y"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(host.build(&head, body).await.0, 204);
        host.mergeability().await.1
    };
    assert!(!host.mergeability().await.1);
    assert!(!set(json!({"parent": "atlantis/apply"})).await, "of which branch");
    assert!(!set(json!({"key": "atlantis/apply", "ref": "refs/heads/main"})).await);
    assert!(set(json!({"key": "atlantis/apply", "ref": "refs/heads/change"})).await, "the key of one without a parent");
    let conditions = "/bitbucket/rest/required-builds/latest/projects/ACME/repos/infra/conditions";
    let told = host.request(Method::GET, conditions, "dave", Value::Null).await.body;
    assert_eq!(told["values"][0]["buildParentKeys"], json!(["atlantis/apply"]));
    host.repo.require_statuses(&["atlantis/plan"]).unwrap();
    assert!(!host.mergeability().await.1);
    let plan = json!({"key": "p", "name": "atlantis/plan", "ref": "refs/heads/change"});
    assert!(set(plan).await, "the name");
    host.repo.require_all_reviewers().unwrap();
    pull.add_reviewer("bob").unwrap();
    assert!(!host.mergeability().await.1);
    pull.approve("bob").unwrap();
    assert!(host.mergeability().await.1);
}

#[tokio::test]
async fn conflicts_and_drafts_are_refused() {
    let host = DataCenterForge::new().await;
    let pull = host.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    assert_eq!(host.mergeability().await, vetoed(&["You cannot merge a draft pull request."]));
    assert_eq!(host.merge(json!({})).await.0, 409);
    assert!(pull.merge().await.is_err());
    pull.ready().unwrap();
    host.repo.push("main", &[("main.tf", Some("a = 9\n"))]).await.unwrap();
    assert_eq!(host.mergeability().await, (Vec::new(), false, "CONFLICTED".to_owned()));
    assert_eq!(host.get(PULL).await["properties"]["mergeResult"]["outcome"], "CONFLICTED");
    let (status, told) = host.merge(json!({})).await;
    let text = "The pull request has conflicts and cannot be merged.";
    assert_eq!((status, error(&told)), (409, (text, "PullRequestMergeVetoedException")));
    assert_eq!((&told["errors"][0]["conflicted"], &told["errors"][0]["vetoes"]), (&json!(true), &json!([])));
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    for (word, outcome) in [("dirty", "CONFLICTED"), ("blocked", "CLEAN"), ("draft", "CLEAN")] {
        pull.set_mergeable_state(word).unwrap();
        let (_, can_merge, told) = host.mergeability().await;
        assert_eq!((can_merge, told.as_str()), (false, outcome), "{word}");
        pull.set_mergeable_state("clean").unwrap();
    }
    pull.ready().unwrap();
    assert_eq!(host.mergeability().await, clean());
    assert!(pull.set_mergeable_state("behind").is_err());
}

#[tokio::test]
async fn every_strategy_has_its_commits() {
    for (strategy, commits) in [
        ("no-ff", 2),
        ("ff", 1),
        ("ff-only", 1),
        ("squash", 1),
        ("squash-ff-only", 1),
        ("rebase-no-ff", 2),
        ("rebase-ff-only", 1),
    ] {
        let host = DataCenterForge::new().await;
        host.repo.allow_rebase_merges().unwrap();
        host.pull().await;
        let before = host.repo.tip("main").await.unwrap();
        let (status, told) = host.merge(json!({"strategyId": strategy, "message": "Ours"})).await;
        assert_eq!(status, 200, "{strategy}: {told}");
        let tip = host.repo.tip("main").await.unwrap();
        assert_eq!(told["properties"]["mergeCommit"]["id"], json!(tip), "{strategy}");
        let git = host.forge.shared.git(super::NAME).unwrap();
        assert_eq!(git.distance(&before, "main").await.unwrap(), (commits, 0), "{strategy}");
    }
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let settings = host.get("/settings/pull-requests").await["mergeConfig"].clone();
    let enabled = settings["strategies"].as_array().unwrap().iter().filter(|one| one["enabled"] == true);
    let enabled: Vec<&str> = enabled.map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(enabled, ["no-ff", "squash", "squash-ff-only"]);
    assert_eq!(settings["defaultStrategy"]["id"], "no-ff");
    for strategy in ["rebase-no-ff", "ff-only", "octopus"] {
        let (status, told) = host.merge(json!({"strategyId": strategy})).await;
        assert_eq!((status, &told["errors"][0]["context"]), (400, &json!("strategyId")));
    }
    host.repo.push("main", &[("other.tf", Some("o"))]).await.unwrap();
    let (status, told) = host.merge(json!({"strategyId": "squash-ff-only"})).await;
    assert_eq!(status, 409, "{told}");
    host.repo.set_merge_methods(false, true).unwrap();
    assert_eq!(host.get("/settings/pull-requests").await["mergeConfig"]["defaultStrategy"]["id"], "squash");
    assert_eq!(host.merge(json!({})).await.0, 200, "the usual one");
    assert!(pull.is_merged().unwrap());
}

#[tokio::test]
async fn an_automatic_merge_waits_for_the_checks() {
    let host = DataCenterForge::new().await;
    let (address, _) = crate::tests::receiver::receiver().await;
    let pull = host.pull().await;
    let auto = format!("{PULL}/auto-merge");
    host.repo.require_approvals(1).unwrap();
    let ask = async || host.merge(json!({"autoMerge": true, "strategyId": "squash", "message": "Ours"})).await;
    assert_eq!(ask().await.0, 403, "the repository has not switched it on");
    host.repo.enable_auto_merge().unwrap();
    assert_eq!(host.get("/settings/auto-merge").await["enabled"], true);
    assert_eq!(host.ask(Method::GET, &auto, Value::Null).await.0, 404);
    assert_eq!(host.ask(Method::POST, &auto, Value::Null).await.0, 400);
    let (status, told) = ask().await;
    assert_eq!((status, &told["state"]), (200, &json!("OPEN")));
    let order = host.get(&auto).await;
    let head = pull.head_commit().unwrap();
    assert_eq!(
        (&order["fromHash"], &order["strategyId"], &order["toRefId"]),
        (&json!(head), &json!("squash"), &json!("refs/heads/main"))
    );
    let (_, tried) = host.ask(Method::POST, &auto, Value::Null).await;
    assert_eq!(tried["autoMergeProcessingStatus"], "VETOED");
    assert_eq!(host.ask_as("dave", Method::DELETE, &auto, Value::Null).await.0, 401);
    assert_eq!(host.ask(Method::DELETE, &auto, Value::Null).await.0, 204);
    assert!(!pull.waits_for_merge().unwrap());
    assert_eq!(ask().await.0, 200);
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let waits = |state: &crate::state::State| {
        let id = state.pull(super::NAME, 1).ok()?.id;
        state.bitbucket_data_center.pulls[&id].auto_merge.is_none().then_some(())
    };
    host.forge.shared.wait_for(LIMIT, waits).await.unwrap();
    assert!(!pull.is_merged().unwrap(), "a push cancels it");
    assert_eq!(ask().await.0, 200);
    host.forge.set_webhook(&address);
    pull.approve("bob").unwrap();
    let merged = |state: &crate::state::State| state.pull(super::NAME, 1).ok()?.merged.clone();
    let (_, by) = host.forge.shared.wait_for(LIMIT, merged).await.unwrap();
    assert_eq!(by, "tidelock-bot");
    host.forge.wait_for_deliveries(LIMIT).await.unwrap();
    assert!(host.forge.deliveries().iter().any(|one| one.event == "pr:merged"));
    let actions = host.get(&format!("{PULL}/activities")).await;
    let count = |word: &str| actions["values"].as_array().unwrap().iter().filter(|row| row["action"] == word).count();
    assert_eq!((count("AUTO_MERGE_REQUESTED"), count("AUTO_MERGE_CANCELLED"), count("MERGED")), (3, 2, 1));
}
