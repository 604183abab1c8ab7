//! Heads that the host cuts, and forks.

use super::*;
use std::sync::atomic::AtomicBool;

fn fork(repository: Value) -> Value {
    with(pull(), "/source/repository", repository)
}

/// Answers where the branch of the head is gone.
fn without_branch(request: &str) -> Response {
    if request.contains("/refs/branches/") { refused(404, "no") } else { usual(&[], request) }
}

#[tokio::test]
async fn a_head_is_asked_for_each_time_and_a_base_once() {
    let stage = answering(Vec::new()).await;
    stage.host.pull_request(&id()).await.unwrap();
    stage.host.pull_request(&id()).await.unwrap();
    assert_eq!((stage.count("/refs/branches/topic"), stage.count(&BASE[..12])), (2, 1));
}

#[tokio::test]
async fn a_head_is_the_tip_of_its_branch_also_if_another_commit_begins_so() {
    let twin = format!("{}{}", &HEAD[..12], &OLD[12..]);
    let stage = answering(vec![("/commit/8e0b", commit(&twin))]).await;
    assert_eq!(stage.host.pull_request(&id()).await.unwrap().head.commit.as_str(), HEAD);
    let stage = answering(vec![("/refs/branches/topic", branch("topic", &twin))]).await;
    assert_eq!(stage.host.pull_request(&id()).await.unwrap().head.commit.as_str(), twin);
    for told in [branch("topic", OLD), branch("other", HEAD), json!({"name": "topic", "target": null})] {
        let stage = answering(vec![("/refs/branches/topic", told)]).await;
        assert!(stage.host.pull_request(&id()).await.unwrap_err().is_transient());
        assert_eq!(stage.count("/commit/"), 0);
    }
    let stage = stage_of(without_branch).await;
    assert_eq!(stage.host.pull_request(&id()).await.unwrap().head.commit.as_str(), HEAD);
}

async fn stage_of(part: impl Fn(&str) -> Response + Send + Sync + 'static) -> Stage {
    stage(move |_, request| part(request)).await
}

#[tokio::test]
async fn a_head_that_two_commits_share_is_unknown_without_its_branch() {
    for status in [404, 400] {
        let stage = stage_of(move |request| match request.contains("/commit/") {
            true => refused(status, "Commit not found"),
            false => without_branch(request),
        })
        .await;
        let error = stage.host.pull_request(&id()).await.unwrap_err();
        assert!(
            matches!(error, HostError::UnknownCommit { .. }) && error.to_string().contains("or several"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_answer_about_another_commit_is_refused() {
    for body in [commit(OLD), commit(&HEAD[..12]), json!({}), commit("8E0B45049B6253B8984CDE9241830D2851168142")] {
        let stage = stage_of(move |request| match request.contains("/commit/8e0b") {
            true => ok(body.clone()),
            false => without_branch(request),
        })
        .await;
        assert!(stage.host.pull_request(&id()).await.unwrap_err().is_transient());
    }
}

#[tokio::test]
async fn the_head_of_a_fork_is_in_the_fork() {
    let stage = answering(vec![
        ("/pullrequests/7", fork(repository("eve/infra"))),
        ("/eve/infra/refs/branches/topic", branch("topic", HEAD)),
        ("/acme/infra/refs/branches/topic", branch("topic", OLD)),
        ("/acme/infra/commit/8e0b", json!({})),
    ])
    .await;
    let read = stage.host.pull_request(&id()).await.unwrap();
    assert!(read.fork && read.head.repo_owner == "eve" && read.head.repo_name == "infra");
    assert_eq!(read.head.commit.as_str(), HEAD);
    let site = stage.host.address.site();
    assert_eq!(read.head.clone_url, Some(format!("{site}/eve/infra.git")), "there are no refs of pull requests");
    assert_eq!(answering(Vec::new()).await.host.pull_request(&id()).await.unwrap().head.clone_url, None);
}

#[tokio::test]
async fn a_fork_that_is_gone_or_hidden_leaves_its_commits_in_the_base() {
    let gone = answering(vec![("/pullrequests/7", fork(Value::Null))]).await;
    let read = gone.host.pull_request(&id()).await.unwrap();
    assert!(read.fork && read.head.repo_owner.is_empty() && read.head.repo_name.is_empty());
    assert_eq!(read.head.clone_url, None);
    assert_eq!((read.head.commit.as_str(), read.head.branch.as_str()), (HEAD, "topic"));
    for status in [404, 403] {
        let hidden = stage_of(move |request| match request {
            _ if request.contains("/eve/") => refused(status, "You may not access this repository"),
            _ if is_of_pull(request) => ok(fork(repository("eve/infra"))),
            _ => usual(&[], request),
        })
        .await;
        assert_eq!(hidden.host.pull_request(&id()).await.unwrap().head.commit.as_str(), HEAD);
    }
}

/// A pull request whose fork is gone, in both forms that the host has for it
/// (github.com/jenkinsci/bitbucket-branch-source-plugin/issues/322).
fn gone_forks() -> [Value; 2] {
    [fork(Value::Null), with(fork(Value::Null), "/source/commit", Value::Null)]
}

#[tokio::test]
async fn a_head_that_nobody_has_is_unknown_and_the_pull_request_stays_open() {
    for told in gone_forks() {
        let stage = stage_of(move |request| match request {
            _ if is_of_pull(request) => ok(told.clone()),
            _ if request.contains("/pullrequests?") => ok(page(std::slice::from_ref(&told))),
            _ => refused(404, "Commit not found"),
        })
        .await;
        let error = stage.host.pull_request(&id()).await.unwrap_err();
        assert!(matches!(error, HostError::UnknownCommit { .. }) && !error.is_transient(), "{error}");
        for _ in 0..2 {
            let open = stage.host.open_pulls(&repo()).await.unwrap();
            assert_eq!(open.iter().map(|one| one.pull.id.number).collect::<Vec<_>>(), [7]);
        }
        assert!(stage.count("/commit/") <= 2, "it is not asked for in each round: {:?}", stage.requests());
    }
}

#[tokio::test]
async fn a_closed_pull_request_is_read_without_its_head() {
    for state in ["DECLINED", "MERGED"] {
        for told in gone_forks() {
            let is_gone = AtomicBool::new(false);
            let stage = stage_of(move |request| match request {
                _ if is_of_pull(request) && is_gone.swap(true, Ordering::SeqCst) => {
                    ok(with(told.clone(), "/state", state))
                }
                _ if is_gone.load(Ordering::SeqCst) && request.contains(&HEAD[..12]) => {
                    refused(404, "Commit not found")
                }
                _ => usual(&[], request),
            })
            .await;
            stage.host.pull_request(&id()).await.unwrap();
            let read = stage.host.pull_request(&id()).await.unwrap();
            assert!(!read.is_open() && read.head.commit.as_str() == HEAD, "{read:?}");
        }
        let told = with(with(pull(), "/source/commit", Value::Null), "/state", state);
        let read = answering(vec![("/pullrequests/7", told)]).await.host.pull_request(&id()).await.unwrap();
        assert_eq!(read.head.commit.as_str(), "0".repeat(40));
    }
}

#[tokio::test]
async fn a_base_branch_without_a_commit_is_as_far_as_the_head() {
    let stage = answering(vec![("/pullrequests/7", with(pull(), "/destination/commit", Value::Null))]).await;
    assert_eq!(stage.host.pull_request(&id()).await.unwrap().base.commit.as_str(), HEAD);
}
