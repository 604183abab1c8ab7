//! Compares shapes with examples of others: `examples.json` has the keys of go-scm's examples, with the types of their values. The forge
//! has to have each key, and a value that is there on both sides has to be of one type.

use super::{BitbucketForge, LIMIT};
use crate::tests::examples::compare;
use crate::tests::receiver::receiver;
use http::Method;
use serde_json::{Value, json};

/// Keys that are missing where the owner is no person, and on the last page.
const NOT_HERE: [&str; 3] = [".repository.owner.account_id", ".repository.owner.nickname", ".next"];

#[tokio::test]
async fn shapes_are_those_of_the_examples() {
    let examples: Value = serde_json::from_str(include_str!("examples.json")).unwrap();
    let bitbucket = BitbucketForge::new().await;
    let (address, _) = receiver().await;
    bitbucket.forge.set_webhook(&address);
    let pull = bitbucket.pull().await;
    let head = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let comment = pull.comment("bob", "Looks good.").unwrap();
    let build = json!({"key": "k", "state": "FAILED", "url": "http://x/y", "name": "n", "description": "d"});
    bitbucket.build(&head, build).await;
    let mut told = Vec::new();
    for (name, path) in [
        ("pr", "/pullrequests/1".to_owned()),
        ("prs", "/pullrequests".to_owned()),
        ("prcomment", format!("/pullrequests/1/comments/{comment}")),
        ("commit", format!("/commit/{head}")),
        ("status", format!("/commit/{head}/statuses/build/k")),
        ("statuses", format!("/commit/{head}/statuses")),
        ("hook", "/hooks/d53603cc-3f67-45ea-b310-aaa5ef6ec061".to_owned()),
        ("hooks", "/hooks".to_owned()),
        ("branch", "/refs/branches/main".to_owned()),
        ("repo", String::new()),
        ("content_list", "/src/main/net".to_owned()),
    ] {
        told.push((name, bitbucket.get(&path).await));
    }
    let stat = format!("{}/pullrequests/1/diffstat", super::REPO);
    let stat = bitbucket.request(Method::GET, &stat, "bob", Value::Null);
    let place = stat.await.headers["location"].to_str().unwrap().to_owned();
    told.push(("pr_diffstat", bitbucket.request(Method::GET, &place, "bob", Value::Null).await.body));
    let people = "/2.0/workspaces/acme/permissions/repositories/infra";
    told.push(("perms", bitbucket.request(Method::GET, people, "alice", Value::Null).await.body));
    told.push(("error", bitbucket.request(Method::GET, "/2.0/repositories/dev/null", "bob", Value::Null).await.body));
    pull.delete_comment("bob", comment).unwrap();
    pull.merge().await.unwrap();
    let second =
        bitbucket.repo.open_pull("two", "bob", "Two", &[("b.tf", Some("b"))], Default::default()).await.unwrap();
    second.close().unwrap();
    bitbucket.forge.wait_for_deliveries(LIMIT).await.unwrap();
    for (name, event) in [
        ("pr_created", "pullrequest:created"),
        ("pr_updated", "pullrequest:updated"),
        ("pr_fulfilled", "pullrequest:fulfilled"),
        ("pr_declined", "pullrequest:rejected"),
        ("pr_comment_created", "pullrequest:comment_created"),
        ("pr_comment_deleted", "pullrequest:comment_deleted"),
        ("push", "repo:push"),
    ] {
        let delivery = bitbucket.forge.deliveries().into_iter().find(|one| one.event == event);
        told.push((name, serde_json::from_str(&delivery.expect(event).body).unwrap()));
    }
    let mut wrong = Vec::new();
    for (name, ours) in &told {
        compare(name, "", &examples[name], ours, (&NOT_HERE, &mut wrong));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(told.len(), examples.as_object().unwrap().len(), "every example is compared");
}
