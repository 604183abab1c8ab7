//! Mergeability and merges.

use super::*;

const BRANCH: &str = "/branches/main";
const RULE: &str = "/branch_protections/main";

fn branch() -> Value {
    json!({"name": "main", "commit": {"id": BASE}, "protected": true, "required_approvals": 0, "enable_status_check": false,
        "status_check_contexts": [], "user_can_push": true, "user_can_merge": true,
        "effective_branch_protection_name": "main"})
}

fn rule() -> Value {
    json!({"rule_name": "main", "ignore_stale_approvals": false, "block_on_rejected_reviews": false,
        "block_on_official_review_requests": false, "block_on_outdated_branch": false, "protected_file_patterns": ""})
}

fn review(user: &str, state: &str) -> Value {
    json!({"id": 1, "user": {"id": 5, "login": user}, "state": state, "official": true, "stale": false, "dismissed": false,
        "pull_request_url": "http://x/acme/infra/pulls/7"})
}

fn status(context: &str, state: &str, creator: &str) -> Value {
    json!({"id": 1, "context": context, "status": state, "creator": {"id": 5, "login": creator}})
}

/// Judges a pull request by the first answer whose text occurs in a request; without one, nothing is in its way.
async fn judged(mut answers: Vec<(&'static str, Value)>) -> Mergeability {
    answers.extend([
        ("/pulls/7/reviews", json!([])),
        ("/pulls/7/files", json!([{"filename": "A/main.tf"}])),
        ("/pulls/7", pull()),
        (BRANCH, branch()),
        (RULE, rule()),
        ("/dependencies", json!([{"number": 3, "state": "closed"}])),
    ]);
    answering(answers).await.host.mergeability(&known_pull()).await.unwrap()
}

async fn judged_statuses(contexts: Value, rows: Value) -> Mergeability {
    let branch = with(with(branch(), "/enable_status_check", true), "/status_check_contexts", contexts);
    let combined = json!({"repository": repository("acme/infra"), "statuses": rows});
    let none = json!({"repository": repository("acme/infra"), "statuses": null});
    judged(vec![(BRANCH, branch), ("/status?limit=50&page=1", combined), ("/status?", none)]).await
}

#[tokio::test]
async fn the_host_is_asked_again_while_it_may_be_checking() {
    let stage = stage(|count, request| match request {
        _ if request.ends_with("/pulls/7") && count < 2 => ok(with(pull(), "/mergeable", false)),
        _ if request.ends_with("/pulls/7") => ok(pull()),
        _ if request.contains(BRANCH) => ok(with(branch(), "/protected", false)),
        _ => refused(404, "The target couldn't be found."),
    })
    .await;
    assert!(stage.host.mergeability(&known_pull()).await.unwrap().mergeable);
    let never = answering(vec![("/pulls/7", with(pull(), "/mergeable", false))]).await;
    let judged = never.host.mergeability(&known_pull()).await.unwrap();
    assert!(!judged.mergeable && judged.detail.contains("conflicts with `main`, or"), "{judged:?}");
    assert_eq!(never.requests().len(), 6);
}

#[tokio::test]
async fn obstacles_are_worded() {
    assert_eq!(judged(Vec::new()).await.detail, "Gitea would merge it");
    let stale = with(review("bob", "APPROVED"), "/stale", true);
    let unofficial = with(review("bob", "APPROVED"), "/official", false);
    let rejected = json!([review("bob", "REQUEST_CHANGES")]);
    let requested = json!([with(review("bob", "REQUEST_REVIEW"), "/user", Value::Null)]);
    let needs_two = with(branch(), "/required_approvals", 2);
    let demands = |key: &str| with(rule(), key, true);
    let protects = with(rule(), "/protected_file_patterns", "*.md; a/*.TF");
    for (answers, words) in [
        (vec![("/pulls/7", with(pull(), "/state", "closed"))], "closed"),
        (vec![("/pulls/7", with(pull(), "/head/sha", OLD))], "moved on"),
        (vec![("/pulls/7", with(pull(), "/draft", true))], "draft"),
        (vec![(BRANCH, with(branch(), "/user_can_merge", false))], "may not merge into `main`"),
        (vec![(BRANCH, needs_two.clone())], "2 more approvals are required"),
        (vec![(BRANCH, needs_two.clone()), ("/reviews", json!([stale, unofficial]))], "1 more approval is required"),
        (vec![(RULE, demands("/block_on_rejected_reviews")), ("/reviews", rejected.clone())], "bob requested changes"),
        (vec![(RULE, demands("/block_on_official_review_requests")), ("/reviews", requested)], "requested review"),
        (vec![(RULE, protects), ("/files", json!([{"filename": "A/main.tf"}]))], "changes `A/main.tf`"),
        (vec![("/dependencies", json!([{"number": 3, "state": "open"}]))], "depends on #3"),
    ] {
        let mut all = answers;
        if all.iter().any(|(part, _)| *part == "/pulls/7") {
            all.push(("/reviews", json!([])));
        }
        let judged = judged(all).await;
        assert!(!judged.mergeable && judged.detail.contains(words), "{words}: {judged:?}");
    }
    assert!(judged(vec![("/reviews", rejected)]).await.mergeable, "the rule does not say that it blocks");
}

#[tokio::test]
async fn an_outdated_branch_is_an_obstacle_where_the_rule_says_so() {
    let behind = with(pull(), "/merge_base", OLD);
    let answers =
        |rule: Value| vec![("/reviews", json!([])), ("/files", json!([])), ("/pulls/7", behind.clone()), (RULE, rule)];
    let judged_by = judged(answers(with(rule(), "/block_on_outdated_branch", true))).await;
    assert!(judged_by.detail.contains("behind `main`"), "{judged_by:?}");
    assert!(judged(answers(rule())).await.mergeable);
}

#[tokio::test]
async fn a_rule_that_we_may_not_read_is_taken_to_be_strict() {
    let hidden = with(branch(), "/effective_branch_protection_name", "");
    let one = with(hidden.clone(), "/required_approvals", 1);
    let stale = json!([with(review("bob", "APPROVED"), "/stale", true)]);
    assert!(!judged(vec![(BRANCH, one.clone()), ("/reviews", stale)]).await.mergeable);
    assert!(
        !judged(vec![(BRANCH, hidden.clone()), ("/reviews", json!([review("bob", "REQUEST_CHANGES")]))])
            .await
            .mergeable
    );
    assert!(judged(vec![(BRANCH, one), ("/reviews", json!([review("bob", "APPROVED")]))]).await.mergeable);
    assert!(judged(vec![(BRANCH, hidden)]).await.mergeable);
}

#[tokio::test]
async fn required_statuses_are_judged_without_ours_that_are_still_to_come() {
    let ours = status("atlantis/apply", "pending", "tidelock");
    for (contexts, rows, words) in [
        (json!([]), json!([]), "no status is set"),
        (json!([]), json!([ours, status("build", "success", "ann")]), ""),
        (json!([]), json!([ours]), ""),
        (json!([]), json!([ours, status("build", "pending", "ann")]), "`build` is pending"),
        (
            json!(["ci/*", "atlantis/apply"]),
            json!([status("ci/a", "success", "ann"), status("ci/b", "failure", "ann")]),
            "`ci/b` is failure",
        ),
        (json!(["ci/*"]), json!([status("ci/a", "skipped", "ann"), status("build", "error", "ann")]), ""),
        (json!(["ci/*"]), json!([status("build", "success", "ann")]), "`ci/*` is not set"),
        (json!(["[ci"]), json!([status("[ci", "success", "ann")]), "`[ci` is not set"),
        (json!(["atlantis/*"]), json!([ours, status("atlantis/plan", "success", "tidelock")]), ""),
        (
            json!(["atlantis/*"]),
            json!([ours, status("atlantis/plan", "failure", "tidelock")]),
            "`atlantis/plan` is failure",
        ),
        // Somebody else's status with a name of ours.
        (json!(["atlantis/*"]), json!([status("atlantis/apply", "pending", "eve")]), "`atlantis/apply` is pending"),
        (json!(["a`b"]), json!([status("a`b", "warning", "eve")]), "`a'b` is warning"),
    ] {
        let judged = judged_statuses(contexts.clone(), rows).await;
        assert_eq!(judged.mergeable, words.is_empty(), "{contexts} {words}: {judged:?}");
        assert!(judged.detail.contains(words), "{contexts} {words}: {judged:?}");
    }
    let many: Vec<Value> = (0..9).map(|number| status(&format!("ci/{number}"), "error", "ann")).collect();
    let judged = judged_statuses(json!([]), json!(many)).await;
    assert!(judged.detail.ends_with("`ci/4` is error; and 4 more statuses"), "{judged:?}");
}

/// A host that answers a merge so, and shows this pull request afterwards.
async fn merging(answer: fn() -> Response, after: Value) -> Stage {
    let is_asked = Mutex::new(false);
    stage(move |_, request| match request {
        _ if request.starts_with("POST") => {
            *is_asked.lock().unwrap() = true;
            answer()
        }
        _ if request.ends_with("/pulls/7") && *is_asked.lock().unwrap() => ok(after.clone()),
        _ if request.ends_with("/pulls/7") => ok(pull()),
        _ if request.contains(BRANCH) => ok(with(branch(), "/protected", false)),
        _ if request.ends_with("/repos/acme/infra") => ok(repository("acme/infra")),
        _ => refused(404, "The target couldn't be found."),
    })
    .await
}

fn merged() -> Value {
    with(with(with(pull(), "/state", "closed"), "/merged", true), "/merge_commit_sha", OLD)
}

#[tokio::test]
async fn a_merge_names_the_head_and_returns_its_commit() {
    let stage = merging(|| StatusCode::OK.into_response(), merged()).await;
    let done = stage.host.merge(&known_pull(), Some("squash"), SourceBranch::Delete).await.unwrap();
    assert_eq!(done, Merging::Merged(CommitSha::parse(OLD).ok()));
    let want = json!({"Do": "squash", "head_commit_id": HEAD, "delete_branch_after_merge": true});
    assert_eq!(stage.body_of("POST"), want);
    let keeps = merging(|| StatusCode::OK.into_response(), merged()).await;
    keeps.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap();
    assert_eq!(keeps.body_of("POST"), json!({"Do": "merge", "head_commit_id": HEAD}));
    let fork = PullRequest { fork: true, ..known_pull() };
    keeps.host.merge(&fork, None, SourceBranch::Delete).await.unwrap();
    assert_eq!(keeps.body_of("POST"), json!({"Do": "merge", "head_commit_id": HEAD}));
}

#[tokio::test]
async fn a_method_that_the_repository_does_not_allow_is_not_asked_for() {
    let stage = merging(|| StatusCode::OK.into_response(), merged()).await;
    let error = stage.host.merge(&known_pull(), Some("fast-forward-only"), SourceBranch::Keep).await.unwrap_err();
    assert!(error.to_string().contains("allowed: merge, rebase, squash"), "{error}");
    assert_eq!(stage.count("POST"), 0);
}

#[tokio::test]
async fn a_merge_waits_for_the_check() {
    let unchecked = with(pull(), "/mergeable", false);
    let stage = answering(vec![("/pulls/7", unchecked), ("/repos/acme/infra", repository("acme/infra"))]).await;
    let error = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("conflicts with `main`, or"), "{error}");
    assert_eq!(stage.count("POST"), 0);
}

#[tokio::test]
async fn a_merge_that_was_done_counts_as_merged() {
    for answer in [|| refused(405, "The PR is already merged"), || refused(500, "")] {
        let stage = merging(answer, merged()).await;
        let done = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap();
        assert_eq!(done, Merging::Merged(CommitSha::parse(OLD).ok()));
    }
    let other = merging(|| refused(405, "The PR is already merged"), with(merged(), "/head/sha", BASE)).await;
    assert!(other.host.merge(&known_pull(), None, SourceBranch::Keep).await.is_err(), "another head was merged");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let unchecked = with(pull(), "/mergeable", false);
    for (answer, after, is_transient, words) in [
        ((|| refused(405, "Please try again later")) as fn() -> Response, pull(), true, "try again later"),
        (|| refused(405, "Please try again later"), unchecked.clone(), true, "conflicts with `main`, or"),
        (|| refused(409, "merge push out of date"), pull(), true, "out of date"),
        (|| refused(500, ""), pull(), true, "500"),
        (|| refused(409, "head out of date"), with(pull(), "/head/sha", OLD), false, "its head has moved on"),
        (|| refused(409, "head out of date"), pull(), false, "head out of date"),
        (|| refused(409, ""), pull(), false, "conflicts with `main`"),
        (|| refused(405, "User not allowed to merge PR"), pull(), false, "User not allowed"),
        (|| refused(404, "The target couldn't be found."), with(pull(), "/state", "closed"), false, "closed"),
        (|| refused(423, "Repo is archived"), pull(), false, "archived"),
    ] {
        let stage = merging(answer, after).await;
        let error = stage.host.merge(&known_pull(), None, SourceBranch::Keep).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{words}: {error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}
