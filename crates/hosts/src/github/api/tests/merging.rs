//! Merging, the merge queue, and the source branch.

use super::*;
use crate::vcs::Merging;

/// Answers with the first of these whose text occurs in the request.
async fn answering(answers: Vec<(&'static str, u16, Value)>) -> Fake {
    fake(move |_, request| {
        let fits = answers.iter().find(|(part, ..)| request.contains(part));
        fits.map_or_else(
            || json_response(404, json!({"message": "Not Found"})),
            |(_, status, body)| json_response(*status, body.clone()),
        )
    })
    .await
}

fn repo() -> Value {
    json!({"name": "infra", "owner": {"login": "Acme"}, "allow_merge_commit": false, "default_branch": "main"})
}

fn pull_of_queue() -> Value {
    let mut pull = pull_json();
    pull["node_id"] = json!("PR_1");
    pull
}

#[tokio::test]
async fn merging_names_the_head_that_was_applied() {
    let done = json!({"merged": true, "sha": "c".repeat(40)});
    let fake = answering(vec![("/merge", 200, done), ("/pulls/7", 200, pull_json()), ("infra", 200, repo())]).await;
    let merged = fake.github.merge(&pull().await, None, SourceBranch::Keep).await.unwrap();
    assert_eq!(merged, Merging::Merged(CommitSha::parse(&"c".repeat(40)).ok()));
    let asked = ["GET /repos/acme/infra", "GET /repos/acme/infra/pulls/7", "PUT /repos/acme/infra/pulls/7/merge"];
    assert_eq!(fake.requests(), asked);
    assert_eq!(fake.body(2), json!({"merge_method": "rebase", "sha": "a".repeat(40)}));
}

#[tokio::test]
async fn a_branch_with_a_merge_queue_gets_the_pull_request_into_it() {
    let refused =
        json!({"message": "Repository rule violations found\n\nChanges must be made through the merge queue\n\n"});
    for (answer, queued) in [
        (json!({"data": {"enqueuePullRequest": {"clientMutationId": null}}}), true),
        (json!({"errors": [{"message": "Pull request is already in the merge queue"}]}), true),
        (json!({"errors": [{"message": "Pull request is in clean status"}]}), false),
    ] {
        let fake = answering(vec![
            ("/merge", 405, refused.clone()),
            ("/graphql", 200, answer),
            ("/pulls/7", 200, pull_of_queue()),
            ("infra", 200, repo()),
        ])
        .await;
        let merged = fake.github.merge(&pull().await, None, SourceBranch::Keep).await;
        match queued {
            true => assert_eq!(merged.unwrap(), Merging::Queued),
            false => assert!(merged.unwrap_err().to_string().contains("clean status")),
        }
        assert_eq!(fake.requests().last().unwrap(), "POST /graphql");
        assert_eq!(fake.body(3)["variables"], json!({"pull": "PR_1", "head": "a".repeat(40)}));
    }
    for (base, path) in [
        ("https://ghe.example.com/api/v3", "https://ghe.example.com/api/graphql"),
        ("https://api.github.com", "https://api.github.com/graphql"),
    ] {
        let joined = url::Url::parse(&format!("{base}{}", graphql::graphql_path(base))).unwrap();
        assert_eq!(joined.as_str(), path);
    }
}

#[tokio::test]
async fn a_refusal_is_final_unless_the_base_branch_moved_at_the_same_moment() {
    for (message, is_transient) in [
        ("Base branch was modified. Review and try the merge again.", true),
        ("At least 1 approving review is required by reviewers with write access.", false),
    ] {
        let refused = json!({"message": message});
        let fake =
            answering(vec![("/merge", 405, refused), ("/pulls/7", 200, pull_json()), ("infra", 200, repo())]).await;
        let error = fake.github.merge(&pull().await, None, SourceBranch::Keep).await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert!(error.to_string().contains(message));
    }
}

#[tokio::test]
async fn the_source_branch_goes_if_it_is_what_was_merged_and_neither_a_forks_nor_the_default_one() {
    let at = |sha: &str| json!({"ref": "refs/heads/topic/a b", "object": {"sha": sha.repeat(40)}});
    let named = |branch: &str| PullRequest { head: Head { branch: branch.into(), ..open_pull().head }, ..open_pull() };
    let of_fork = PullRequest { fork: true, ..named("topic/a b") };
    for (pull, tip, deleted) in [
        (named("topic/a b"), "a", true),
        (named("topic/a b"), "f", false),
        (named("main"), "a", false),
        (of_fork, "a", false),
    ] {
        let fake =
            answering(vec![("DELETE", 204, Value::Null), ("/git/ref/", 200, at(tip)), ("infra", 200, repo())]).await;
        fake.github.delete_source_branch(&pull).await.unwrap();
        let asked = fake.requests();
        let is_deleted = asked.iter().any(|request| request == "DELETE /repos/acme/infra/git/refs/heads/topic/a%20b");
        assert_eq!(is_deleted, deleted, "{asked:?}");
        assert_eq!(asked.iter().filter(|request| request.starts_with("DELETE")).count(), usize::from(deleted));
    }
}

fn open_pull() -> PullRequest {
    answers::pull_request(&id(), &pull_json()).unwrap()
}
