//! Compares shapes with examples of others: `examples.json` has the keys of examples of go-scm (`scm/driver/stash/testdata`) and
//! go-playground (`testdata/bitbucket-server`), with the types of their values. The forge has to have each key, and a value that is there
//! on both sides has to be of one type.

use super::{API, DataCenterForge, LIMIT};
use crate::tests::examples::compare;
use crate::tests::receiver::receiver;
use http::Method;
use serde_json::Value;

/// Keys that are missing: descriptions that nobody has written, counts that nobody has asked for, and what git knows of a changed file.
const NOT_HERE: [&str; 11] = [
    ".repository.project.description",
    ".authorCount",
    ".totalCount",
    ".fromHash",
    ".toHash",
    ".properties",
    ".values[0].contentId",
    ".values[0].fromContentId",
    ".values[0].percentUnchanged",
    ".values[0].links",
    ".values[0].properties",
];

#[tokio::test]
async fn shapes_are_those_of_the_examples() {
    let examples: Value = serde_json::from_str(include_str!("examples.json")).unwrap();
    let host = DataCenterForge::new().await;
    let (address, _) = receiver().await;
    host.forge.set_webhook(&address);
    let pull = host.open(options_with_text()).await;
    let head = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.set_title("Another title").unwrap();
    let comment = pull.comment("bob", "Looks good.").unwrap();
    let mut told = answers(&host, &head, comment).await;
    pull.merge().await.unwrap();
    let second = host.repo.open_pull("two", "bob", "Two", &[("b.tf", Some("b"))], options_with_text()).await.unwrap();
    second.close().unwrap();
    let options = crate::OpenOptions { fork: Some("mallory".to_owned()), ..options_with_text() };
    let third = host.repo.open_pull("three", "mallory", "Three", &[("c.tf", Some("c"))], options).await.unwrap();
    third.set_title("Another title").unwrap();
    let own = host.forge.create_repo("~bob/notes", &[("a.tf", "a")]).await.unwrap();
    let own = own.open_pull("mine", "bob", "Mine", &[("a.tf", Some("b"))], options_with_text()).await.unwrap();
    let first = own.comment("bob", "one").unwrap();
    own.edit_comment("bob", first, "three").unwrap();
    let reply = own.reply("bob", first, "two").unwrap();
    own.delete_comment("bob", reply).unwrap();
    own.add_reviewer("carol").unwrap();
    own.approve("carol").unwrap();
    own.vote("carol", 0).unwrap();
    own.request_changes("carol").unwrap();
    host.forge.wait_for_deliveries(LIMIT).await.unwrap();
    told.extend(delivered(&host));
    let mut wrong = Vec::new();
    for (name, ours) in &told {
        compare(name, "", &examples[name], ours, (&NOT_HERE, &mut wrong));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(told.len(), examples.as_object().unwrap().len(), "every example is compared");
}

fn options_with_text() -> crate::OpenOptions {
    crate::OpenOptions { body: "Why.".to_owned(), ..Default::default() }
}

/// Answers of the API, by the name of the example.
async fn answers(host: &DataCenterForge, head: &str, comment: u64) -> Vec<(&'static str, Value)> {
    let mut told = Vec::new();
    for (name, path) in [
        ("pr", "/pull-requests/1".to_owned()),
        ("prs", "/pull-requests".to_owned()),
        ("pr_comment", format!("/pull-requests/1/comments/{comment}")),
        ("activities", "/pull-requests/1/activities".to_owned()),
        ("pr_change", "/pull-requests/1/changes".to_owned()),
        ("commit", format!("/commits/{head}")),
        ("commits", "/commits?until=refs/heads/change".to_owned()),
        ("branches", "/branches".to_owned()),
        ("default_branch", "/branches/default".to_owned()),
        ("webhook", "/webhooks/10".to_owned()),
        ("webhooks", "/webhooks".to_owned()),
        ("repo", String::new()),
    ] {
        told.push((name, host.get(&path).await));
    }
    for (name, path) in [
        ("repos", format!("{API}/projects/ACME/repos")),
        ("user", format!("{API}/users/bob")),
        ("error", format!("{API}/projects/dev")),
    ] {
        told.push((name, host.request(Method::GET, &path, "bob", Value::Null).await.body));
    }
    told
}

/// Payloads of deliveries, by the name of the example.
fn delivered(host: &DataCenterForge) -> Vec<(&'static str, Value)> {
    let mut told = Vec::new();
    let deliveries = host.forge.deliveries();
    for (name, event) in [
        ("pr_open", "pr:opened"),
        ("personal_opened", "pr:opened"),
        ("pr_from_ref_updated", "pr:from_ref_updated"),
        ("pr_modified", "pr:modified"),
        ("pr_merged", "pr:merged"),
        ("pr_declined", "pr:declined"),
        ("push", "repo:refs_changed"),
        ("push_v5", "repo:refs_changed"),
        ("comment_added", "pr:comment:added"),
        ("comment_edited", "pr:comment:edited"),
        ("comment_deleted", "pr:comment:deleted"),
        ("approved", "pr:reviewer:approved"),
        ("needs_work", "pr:reviewer:needs_work"),
        ("unapproved", "pr:reviewer:unapproved"),
        ("reviewer_updated", "pr:reviewer:updated"),
    ] {
        // Most latest ones are about the personal repository, as those of go-playground.
        let is_it = |one: &&crate::Delivery| one.event == event;
        let delivery = match name {
            "pr_open" => deliveries.iter().find(is_it),
            _ => deliveries.iter().rfind(is_it),
        };
        let delivery = delivery.expect(event);
        told.push((name, serde_json::from_str(&delivery.body).unwrap()));
    }
    told
}
