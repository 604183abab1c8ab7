//! Mergeability and merges.

use super::*;

async fn protect(instance: &Instance, rule: Value) {
    let mut body = json!({"rule_name": "main"});
    body.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    instance.root("POST", &instance.at("/branch_protections"), body).await;
}

async fn set(instance: &Instance, pull: &PullRequest, context: &str, state: &str) {
    let status = json!({"state": state, "context": context});
    instance.by("ann", "POST", &instance.at(&format!("/statuses/{}", pull.head.commit)), status).await;
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn the_rule_of_a_branch_is_judged_as_the_host_judges_it() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let pull = bot.pull_request(&id).await.unwrap();
    assert!(bot.mergeability(&pull).await.unwrap().mergeable);
    let rule = json!({"required_approvals": 1, "enable_status_check": true, "status_check_contexts": ["ci/*", "atlantis/apply"],
        "block_on_rejected_reviews": true, "block_on_outdated_branch": true, "enable_merge_whitelist": false});
    protect(&instance, rule).await;
    let judged = bot.mergeability(&pull).await.unwrap();
    assert_eq!(judged.detail, "`ci/*` is not set; 1 more approval is required");
    let error = bot.merge(&pull, None, SourceBranch::Keep).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("1 more approval is required"), "{error}");
    set(&instance, &pull, "ci/build", "pending").await;
    instance.review("bob", &id, "REQUEST_CHANGES").await;
    let judged = bot.mergeability(&pull).await.unwrap();
    let bob = instance.login("bob");
    let want = format!("`ci/build` is pending; 1 more approval is required; {bob} requested changes");
    assert_eq!(judged.detail, want);
    instance.review("bob", &id, "APPROVED").await;
    set(&instance, &pull, "ci/build", "success").await;
    assert_eq!(bot.mergeability(&pull).await.unwrap().detail, "Gitea would merge it");
    // The rule names our status of the apply, which is not set yet: the host still refuses.
    let error = bot.merge(&pull, None, SourceBranch::Keep).await.unwrap_err();
    assert!(error.to_string().contains("Not all required status checks successful"), "{error}");
    let apply = CommitStatus {
        context: "atlantis/apply".into(),
        state: StatusState::Success,
        description: String::new(),
        url: String::new(),
        waits: false,
        details: None,
    };
    bot.set_status(&id, &pull.head.commit, &apply).await.unwrap();
    assert!(matches!(bot.merge(&pull, None, SourceBranch::Keep).await.unwrap(), Merging::Merged(Some(_))));
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn outdated_branches_and_protected_files_are_obstacles() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let (first, second) = (instance.open("one", "a.tf").await, instance.open("two", "b.txt").await);
    protect(&instance, json!({"block_on_outdated_branch": true, "protected_file_patterns": "*.txt"})).await;
    let pull = bot.pull_request(&second).await.unwrap();
    assert_eq!(bot.mergeability(&pull).await.unwrap().detail, "it changes `b.txt`, which is protected");
    let pull = bot.pull_request(&first).await.unwrap();
    bot.merge(&pull, None, SourceBranch::Keep).await.unwrap();
    let pull = bot.pull_request(&second).await.unwrap();
    until("the other one to be checked again", async || {
        bot.mergeability(&pull).await.unwrap().detail.contains("behind `main`")
    })
    .await;
    let blind = instance.host("ann", &["write:repository", "write:issue", "read:user"]).await;
    assert_eq!(blind.mergeability(&pull).await.unwrap().detail, "Gitea would merge it", "these two are hidden");
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn a_merge_is_of_the_known_head() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic/one", "main.tf").await;
    let stale = bot.pull_request(&id).await.unwrap();
    let pull = instance.push("ann", &bot, &id, "more.tf").await;
    let judged = bot.mergeability(&stale).await.unwrap();
    assert!(!judged.mergeable && judged.detail.contains("moved on"), "{judged:?}");
    let error = bot.merge(&stale, None, SourceBranch::Delete).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("its head has moved on"), "{error}");
    let error = bot.merge(&pull, Some("octopus"), SourceBranch::Delete).await.unwrap_err();
    assert!(error.to_string().contains("allowed: merge, "), "{error}");
    let Merging::Merged(Some(commit)) = bot.merge(&pull, Some("squash"), SourceBranch::Delete).await.unwrap() else {
        panic!("not merged")
    };
    assert!(bot.is_on_branch(&id.repo, &commit, "main").await.unwrap());
    let after = bot.pull_request(&id).await.unwrap();
    assert_eq!(after.state, PullState::Merged { commit: Some(commit.clone()) });
    assert_eq!((after.head.branch.as_str(), &after.head.commit), ("topic/one", &pull.head.commit));
    assert!(matches!(bot.branch(&id.repo, "topic/one").await, Err(HostError::NotFound { .. })));
    let again = bot.merge(&pull, None, SourceBranch::Delete).await.unwrap();
    assert_eq!(again, Merging::Merged(Some(commit)));
    assert_eq!(bot.mergeability(&pull).await.unwrap().detail, "the pull request is closed");
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn conflicts_drafts_and_dependencies_are_told() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let (first, second) = (instance.open("one", "main.tf").await, instance.open("two", "main.tf").await);
    // The second file differs.
    let path = instance.at("/contents/main.tf");
    let known = instance.root("GET", &format!("{path}?ref=two"), Value::Null).await;
    let other = json!({"content": "YmFy", "message": "Differ", "branch": "two", "sha": known["sha"]});
    instance.by("ann", "PUT", &path, other).await;
    let pull = bot.pull_request(&first).await.unwrap();
    let issue = instance.by("ann", "POST", &instance.at("/issues"), json!({"title": "First"})).await["number"].clone();
    let blocker = json!({"owner": instance.org(), "repo": "infra", "index": issue});
    let dependencies = instance.at(&format!("/issues/{}/dependencies", first.number));
    instance.root("POST", &dependencies, blocker.clone()).await;
    assert_eq!(bot.mergeability(&pull).await.unwrap().detail, format!("it depends on #{issue}, which is open"));
    let error = bot.merge(&pull, None, SourceBranch::Keep).await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("depends on"), "{error}");
    instance.root("DELETE", &dependencies, blocker).await;
    let title = |title: &str| json!({"title": title});
    instance.root("PATCH", &instance.at(&format!("/pulls/{}", first.number)), title("WIP: x")).await;
    assert_eq!(bot.mergeability(&pull).await.unwrap().detail, "it is a draft");
    instance.root("PATCH", &instance.at(&format!("/pulls/{}", first.number)), title("x")).await;
    bot.merge(&pull, None, SourceBranch::Keep).await.unwrap();
    let pull = bot.pull_request(&second).await.unwrap();
    until("the conflict", async || bot.pull(&second).await.unwrap()["mergeable"] == false).await;
    let error = bot.merge(&pull, None, SourceBranch::Keep).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("conflicts with `main`, or"), "{error}");
}
