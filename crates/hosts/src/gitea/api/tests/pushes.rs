//! Pushes, as the activity of a repository reports them.

use super::*;

/// Activities, newest first: a branch that two people pushed to.
fn feed() -> Vec<Value> {
    vec![
        push("bob", OLD, HEAD, "2026-11-03T10:00:00Z"),
        json!({"op_type": "comment_pull", "ref_name": "", "content": "7|x", "act_user": {"id": 9, "login": "eve"},
            "created": "2026-11-02T11:00:00Z"}),
        // Another branch.
        with(push("cid", OLD, HEAD, "2026-11-02T10:30:00Z"), "/ref_name", "refs/heads/other"),
        push("ann", BASE, OLD, "2026-11-02T10:00:00Z"),
        with(push("ann", "", "", "2026-11-02T10:00:00Z"), "/content", ""),
        // An earlier branch of this name.
        push("old", BASE, BASE, "2026-11-01T10:00:00Z"),
    ]
}

fn push(login: &str, before: &str, after: &str, at: &str) -> Value {
    let content = json!({"Commits": [], "HeadCommit": {"Sha1": after}, "Len": 1,
        "CompareURL": format!("acme/infra/compare/{before}...{after}")});
    json!({"op_type": "commit_repo", "ref_name": "refs/heads/topic", "content": content.to_string(),
        "act_user": {"id": 5, "login": login}, "created": at})
}

fn commits() -> Value {
    json!([{"sha": HEAD, "author": {"id": 6, "login": "dan"}, "committer": null}, {"sha": OLD, "author": null, "committer": null}])
}

async fn told(feed: Vec<Value>) -> Stage {
    answering(vec![("/activities/feeds", json!(feed)), ("/pulls/7/commits", commits())]).await
}

async fn contributors(feed: Vec<Value>) -> Vec<String> {
    let all = told(feed).await.host.contributors(&known_pull()).await.unwrap();
    all.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn everybody_who_pushed_since_the_branch_began_is_a_contributor() {
    assert_eq!(contributors(feed()).await, ["bob", "ann", "dan"]);
    assert_eq!(told(feed()).await.host.pusher(&known_pull()).await.unwrap().as_str(), "bob");
    // The order within a second is any.
    let mut swapped = feed();
    swapped.swap(3, 4);
    assert_eq!(contributors(swapped).await, ["bob", "ann", "dan"]);
}

#[tokio::test]
async fn pushes_that_the_host_does_not_report_are_of_somebody_unknown() {
    // The last push, one between, and the beginning.
    let without = |index: usize| {
        let mut feed = feed();
        feed.remove(index);
        feed
    };
    assert_eq!(contributors(without(0)).await, ["ann", "dan", ""]);
    assert!(told(without(0)).await.host.pusher(&known_pull()).await.unwrap().is_unknown());
    assert_eq!(contributors(without(4)).await, ["bob", "ann", "old", "dan", ""]);
    let between = vec![push("bob", "2222222222222222222222222222222222222222", HEAD, "2026-11-03T10:00:00Z")];
    let between: Vec<Value> = between.into_iter().chain(without(0)).collect();
    assert_eq!(contributors(between).await, ["bob", "ann", "dan", ""]);
    // A push whose list of commits was too long to keep.
    let mut cut = feed();
    cut[3]["content"] = json!("{}");
    assert_eq!(contributors(cut).await, ["bob", "ann", "dan", ""]);
}

#[tokio::test]
async fn the_main_branch_of_a_fork_begins_with_the_fork() {
    let mut feed = feed();
    feed.truncate(4);
    feed.push(json!({"op_type": "create_repo", "ref_name": "", "content": "", "act_user": {"id": 5, "login": "ann"},
        "created": "2026-11-01T10:00:00Z"}));
    assert_eq!(
        contributors(feed.clone()).await,
        ["bob", "ann", "dan", ""],
        "a branch of the base repository has its own beginning"
    );
    let forked = PullRequest { fork: true, ..known_pull() };
    let found = told(feed).await.host.contributors(&forked).await.unwrap();
    assert_eq!(found.iter().map(Login::as_str).collect::<Vec<_>>(), ["bob", "ann", "dan"]);
}

#[tokio::test]
async fn a_source_that_is_hidden_reports_nobody() {
    let mut hidden = known_pull();
    hidden.head.repo_owner.clear();
    let stage = told(feed()).await;
    assert!(stage.host.pusher(&hidden).await.unwrap().is_unknown());
    assert_eq!(stage.host.contributors(&hidden).await.unwrap().last(), Some(&Login::unknown()));
    assert_eq!(stage.count("feeds"), 0);
    let mut fork = known_pull();
    fork.head.repo_owner = "eve".into();
    assert!(answering(Vec::new()).await.host.pusher(&fork).await.unwrap().is_unknown());
}
