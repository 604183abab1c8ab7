//! Mergeability, reviews, rules of branches, and merges.

use super::super::super::{OpenOptions, Pull};
use super::super::BranchProtection;
use super::{GiteaForge, LIMIT, REPO, message};
use http::Method;
use serde_json::{Value, json};

impl GiteaForge {
    /// Asks for a merge until its mergeability is known, and returns the answer.
    async fn merge(&self, body: Value) -> (u16, String) {
        self.get("/pulls/1").await;
        let (status, told) = self.ask(Method::POST, "/pulls/1/merge", body).await;
        (status, message(&told).to_owned())
    }

    async fn mergeable(&self) -> [bool; 2] {
        let ask = async || self.get("/pulls/1").await["mergeable"].as_bool().unwrap();
        [ask().await, ask().await]
    }

    async fn review(&self, login: &str, event: &str) -> (u16, Value) {
        let body = json!({"event": event, "body": "It is so."});
        let answer = self.request(Method::POST, &format!("{REPO}/pulls/1/reviews"), login, body).await;
        (answer.status, answer.body)
    }

    /// State and marks of the reviews, oldest first.
    async fn marks(&self) -> Vec<(String, bool, bool, bool)> {
        let all = self.get("/pulls/1/reviews").await;
        let mark = |review: &Value, name: &str| review[name].as_bool().unwrap();
        let row = |review: &Value| {
            let state = review["state"].as_str().unwrap().to_owned();
            (state, mark(review, "official"), mark(review, "stale"), mark(review, "dismissed"))
        };
        all.as_array().unwrap().iter().map(row).collect()
    }
}

fn merged(pull: &Pull) -> bool {
    pull.is_merged().unwrap()
}

#[tokio::test]
async fn mergeability_is_known_to_the_second_request() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    assert_eq!(gitea.get("/pulls?state=open").await[0]["mergeable"], false);
    let (status, told) = gitea.ask(Method::POST, "/pulls/1/merge", json!({"Do": "merge"})).await;
    assert_eq!((status, message(&told)), (405, "Please try again later"), "nobody has asked");
    assert_eq!(gitea.mergeable().await, [true, true], "the merge has");
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert_eq!(gitea.mergeable().await, [false, true]);
    gitea.repo.push("main", &[("other.tf", Some("b = 1\n"))]).await.unwrap();
    assert_eq!(gitea.mergeable().await, [false, true]);
    let body = gitea.get("/pulls/1").await;
    assert_eq!(body["base"]["sha"], json!(gitea.repo.tip("main").await.unwrap()));
    assert_ne!(body["merge_base"], body["base"]["sha"]);
    assert_eq!((&body["additions"], &body["deletions"], &body["changed_files"]), (&json!(1), &json!(1), &json!(1)));
    gitea.repo.push("main", &[("main.tf", Some("a = 9\n"))]).await.unwrap();
    assert_eq!(gitea.mergeable().await, [false, false], "a conflict");
    assert_eq!(gitea.merge(json!({"Do": "merge"})).await, (405, "Please try again later".to_owned()));
}

#[tokio::test]
async fn a_title_makes_a_draft() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    let read = async || {
        let body = gitea.get("/pulls/1").await;
        (body["title"].as_str().unwrap().to_owned(), body["draft"].as_bool().unwrap())
    };
    assert_eq!(read().await, ("WIP: Change a".to_owned(), true));
    assert_eq!(gitea.mergeable().await, [false, false]);
    let draft = (405, "Work in progress PRs cannot be merged".to_owned());
    assert_eq!(gitea.merge(json!({"Do": "merge"})).await, draft);
    pull.ready().unwrap();
    assert_eq!(read().await, ("Change a".to_owned(), false));
    for (title, is_draft) in [("[wip] more", true), ("Draft: more", false), ("wip:more", true), ("WIPE", false)] {
        let (status, _) = gitea.ask(Method::PATCH, "/pulls/1", json!({"title": title})).await;
        assert_eq!((status, read().await), (201, (title.to_owned(), is_draft)));
    }
    pull.set_title("WIP: again").unwrap();
    pull.ready().unwrap();
    assert_eq!(read().await, ("again".to_owned(), false));
}

#[tokio::test]
async fn reviews_are_official_stale_and_dismissed() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let (status, told) = gitea.review("alice", "APPROVED").await;
    assert_eq!((status, message(&told)), (422, "approve your own pull is not allowed"));
    assert!(pull.approve("alice").is_err());
    let approved = |official, stale, dismissed| ("APPROVED".to_owned(), official, stale, dismissed);
    let rejected = |official, stale, dismissed| ("REQUEST_CHANGES".to_owned(), official, stale, dismissed);
    assert_eq!(gitea.review("bob", "APPROVED").await.0, 200);
    pull.request_changes("carol").unwrap();
    pull.approve("dave").unwrap();
    let fresh = [approved(true, false, false), rejected(true, false, false), approved(false, false, false)];
    assert_eq!(gitea.marks().await, fresh, "who may only read is not official");
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let stale = [approved(true, true, false), rejected(true, true, false), approved(false, true, false)];
    assert_eq!(gitea.marks().await, stale);
    pull.approve("carol").unwrap();
    let all = gitea.marks().await;
    assert_eq!((&all[1], &all[3]), (&rejected(false, true, true), &approved(true, false, false)));
    let first = gitea.get("/pulls/1/reviews").await[0]["id"].clone();
    let dismissal = format!("/pulls/1/reviews/{first}/dismissals");
    let refused = gitea.request(Method::POST, &format!("{REPO}{dismissal}"), "bob", json!({"message": "x"})).await;
    assert_eq!((refused.status, message(&refused.body)), (403, "Must be repo admin"));
    let (status, told) = gitea.ask(Method::POST, &dismissal, json!({"message": "x"})).await;
    assert_eq!((status, &told["state"], &told["dismissed"]), (200, &json!("APPROVED"), &json!(true)));
    assert_eq!(gitea.review("dave", "COMMENT").await.0, 200);
    let comment = gitea.get("/pulls/1/reviews").await[4]["id"].clone();
    let (status, _) = gitea.ask(Method::POST, &format!("/pulls/1/reviews/{comment}/dismissals"), json!({})).await;
    assert_eq!(status, 403, "no verdict");
    let (status, _) = gitea.ask(Method::POST, "/pulls/1/reviews/9/dismissals", json!({})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn a_push_that_keeps_the_diff_keeps_reviews_fresh() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let rules = BranchProtection { dismiss_stale_approvals: true, ..BranchProtection::default() };
    gitea.repo.protect("main", rules).unwrap();
    pull.approve("bob").unwrap();
    gitea.repo.push("main", &[("other.tf", Some("b = 1\n"))]).await.unwrap();
    // The base branch merged into the head: its files are those of both.
    let clone = gitea.repo.clone_url_for("alice").unwrap();
    for args in [
        ["clone", "-q", "-b", "change", clone.as_str(), "clone"].as_slice(),
        ["-C", "clone", "merge", "-q", "-m", "Merge main", "origin/main"].as_slice(),
        ["-C", "clone", "push", "-q"].as_slice(),
    ] {
        let done = gitea.git(args).await;
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(gitea.marks().await, [("APPROVED".to_owned(), true, false, false)]);
    pull.push(&[("main.tf", Some("a = 4\n"))]).await.unwrap();
    assert_eq!(gitea.marks().await, [("APPROVED".to_owned(), true, true, true)], "the rule dismisses it");
}

#[tokio::test]
async fn rules_of_the_branch_refuse_a_mergeable_pull_request() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    gitea.repo.push("main", &[("other.tf", Some("b = 1\n"))]).await.unwrap();
    let rules = BranchProtection {
        required_approvals: 1,
        status_contexts: Some(vec!["atlantis/*".to_owned()]),
        block_on_rejected_reviews: true,
        block_on_outdated_branch: true,
        ..BranchProtection::default()
    };
    assert_eq!(gitea.get("/branches/main").await["protected"], false);
    gitea.repo.protect("main", rules).unwrap();
    let branch = gitea.get("/branches/main").await;
    assert_eq!((&branch["required_approvals"], &branch["status_check_contexts"]), (&json!(1), &json!(["atlantis/*"])));
    assert!(branch.get("block_on_rejected_reviews").is_none() && branch["effective_branch_protection_name"] == "main");
    let protection = gitea.get("/branch_protections/main").await;
    assert_eq!((&protection["block_on_rejected_reviews"], &protection["enable_push"]), (&json!(true), &json!(false)));
    let refused = async |text: &str| {
        assert!(gitea.mergeable().await[1], "rules are not in it: {text}");
        assert_eq!(gitea.merge(json!({"Do": "merge"})).await, (405, text.to_owned()));
    };
    let status = format!("/statuses/{}", pull.head_commit().unwrap());
    let set = async |word: &str| {
        let body = json!({"state": word, "context": "atlantis/plan"});
        assert_eq!(gitea.ask(Method::POST, &status, body).await.0, 201);
    };
    refused("Not all required status checks successful").await;
    set("pending").await;
    refused("Not all required status checks successful").await;
    set("success").await;
    refused("Does not have enough approvals").await;
    pull.approve("dave").unwrap();
    refused("Does not have enough approvals").await;
    pull.approve("bob").unwrap();
    pull.request_changes("carol").unwrap();
    refused("There are requested changes").await;
    pull.approve("carol").unwrap();
    refused("The head branch is behind the base branch").await;
    pull.set_mergeable_state("clean").unwrap();
    assert_eq!(gitea.merge(json!({"Do": "merge"})).await.0, 200);
    assert!(merged(&pull));
}

#[tokio::test]
async fn merges_are_refused_in_the_order_of_the_host() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let head = pull.head_commit().unwrap();
    assert_eq!(gitea.merge(json!({})).await, (422, "[Do]: Required".to_owned()));
    assert_eq!(gitea.merge(json!({"Do": "octopus"})).await, (422, "[Do]: In".to_owned()));
    let reader = gitea.request(Method::POST, &format!("{REPO}/pulls/1/merge"), "dave", json!({"Do": "merge"})).await;
    assert_eq!((reader.status, message(&reader.body)), (405, "User not allowed to merge PR"));
    let text = "rebase is not allowed an allowed merge style for this repository";
    assert_eq!(gitea.merge(json!({"Do": "rebase"})).await, (405, text.to_owned()));
    let old = json!({"Do": "merge", "head_commit_id": gitea.repo.tip("main").await.unwrap()});
    assert_eq!(gitea.merge(old).await, (409, "head out of date".to_owned()));
    let (status, told) = gitea.ask(Method::POST, "/pulls/1/merge", json!({"Do": "merge"})).await;
    assert_eq!((status, message(&told)), (405, "Please try again later"), "after a refused merge");
    assert_eq!(gitea.ask(Method::GET, "/pulls/1/merge", Value::Null).await.0, 404);
    let merge = json!({"Do": "merge", "head_commit_id": head, "delete_branch_after_merge": true});
    assert_eq!(gitea.merge(merge.clone()).await, (200, String::new()));
    assert_eq!(gitea.merge(merge).await, (405, "The PR is already merged".to_owned()));
    assert_eq!(gitea.ask(Method::GET, "/pulls/1/merge", Value::Null).await.0, 204);
    let body = gitea.get("/pulls/1").await;
    let reference = (&body["head"]["ref"], &body["head"]["sha"], &body["merged_by"]["login"]);
    assert_eq!(reference, (&json!("refs/pull/1/head"), &json!(head), &json!("tidelock-bot")));
    assert_eq!(body["merge_commit_sha"], json!(gitea.repo.tip("main").await.unwrap()));
    let (status, told) = gitea.ask(Method::PATCH, "/pulls/1", json!({"state": "open"})).await;
    assert_eq!((status, message(&told)), (412, "cannot change state of this pull request, it was already merged"));
    assert_eq!(gitea.ask(Method::DELETE, "/branches/main", Value::Null).await.0, 403);
    assert_eq!(gitea.ask(Method::DELETE, "/branches/change", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_closed_pull_request_is_not_found_by_a_merge() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    assert_eq!(gitea.ask(Method::PATCH, "/pulls/1", json!({"state": "closed"})).await.0, 201);
    assert_eq!(gitea.merge(json!({"Do": "merge"})).await, (404, "not found".to_owned()));
    assert_eq!(gitea.ask(Method::PATCH, "/pulls/1", json!({"state": "open"})).await.0, 201);
    assert!(pull.is_open().unwrap());
    let refused = gitea.request(Method::PATCH, &format!("{REPO}/pulls/1"), "dave", json!({"state": "closed"})).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn every_method_of_merging_has_its_commits() {
    for (method, commits) in [("merge", 2), ("squash", 1), ("rebase", 1), ("rebase-merge", 2), ("fast-forward-only", 1)]
    {
        let gitea = GiteaForge::new().await;
        gitea.repo.allow_rebase_merges().unwrap();
        let pull = gitea.pull().await;
        let before = gitea.repo.tip("main").await.unwrap();
        assert_eq!(gitea.merge(json!({"Do": method})).await, (200, String::new()), "{method}");
        let tip = gitea.repo.tip("main").await.unwrap();
        assert_eq!(gitea.get(&format!("/compare/{before}...{tip}")).await["total_commits"], commits, "{method}");
        if method == "fast-forward-only" {
            assert_eq!(tip, pull.head_commit().unwrap());
        }
    }
}

#[tokio::test]
async fn a_scheduled_merge_waits_for_its_checks() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    gitea.repo.require_statuses(&["atlantis/apply"]).unwrap();
    let schedule = json!({"Do": "squash", "merge_when_checks_succeed": true});
    assert_eq!(gitea.merge(schedule.clone()).await, (201, String::new()));
    let (status, told) = gitea.merge(schedule.clone()).await;
    assert_eq!(status, 409);
    assert!(
        told.starts_with("pull request is already scheduled to auto merge when checks succeed [pull_id: "),
        "{told}"
    );
    assert_eq!(gitea.ask(Method::DELETE, "/pulls/1/merge", Value::Null).await.0, 204);
    assert_eq!(gitea.ask(Method::DELETE, "/pulls/1/merge", Value::Null).await.0, 404);
    assert_eq!(gitea.merge(schedule).await.0, 201);
    assert!(!merged(&pull));
    let status = format!("/statuses/{}", pull.head_commit().unwrap());
    let body = json!({"state": "success", "context": "atlantis/apply"});
    assert_eq!(gitea.ask(Method::POST, &status, body).await.0, 201);
    let mut follower = gitea.forge.follow();
    let merge = async {
        while !merged(&pull) {
            follower.next().await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, merge).await.unwrap();
    assert_eq!(gitea.get("/pulls/1").await["merged_by"]["login"], "tidelock-bot");
}

#[tokio::test]
async fn forced_states_are_rules_and_conflicts() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    pull.approve("bob").unwrap();
    for (word, mergeable, text) in [
        ("blocked", true, "Does not have enough approvals"),
        ("behind", true, "Does not have enough approvals"),
        ("dirty", false, "Please try again later"),
        ("unknown", false, "Please try again later"),
    ] {
        pull.set_mergeable_state(word).unwrap();
        assert_eq!(gitea.mergeable().await[1], mergeable, "{word}");
        assert_eq!(gitea.merge(json!({"Do": "merge"})).await, (405, text.to_owned()), "{word}");
    }
    pull.set_mergeable_state("clean").unwrap();
    assert_eq!(gitea.merge(json!({"Do": "merge"})).await.0, 200);
    assert!(pull.set_mergeable_state("mergeable").is_err(), "a word of another host");
}
