//! Deliveries, as a receiver gets them.

use super::super::super::OpenOptions;
use super::{BitbucketForge, LIMIT, REPO};
use crate::tests::receiver::receiver;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::Sha256;

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

impl BitbucketForge {
    /// Event and payload of each delivery so far.
    async fn delivered(&self) -> Vec<(String, Value)> {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let row = |one: crate::Delivery| (one.event, serde_json::from_str(&one.body).unwrap());
        self.forge.deliveries().into_iter().map(row).collect()
    }
}

#[tokio::test]
async fn deliveries_are_signed_over_the_body() {
    let bitbucket = BitbucketForge::new().await;
    let (address, received) = receiver().await;
    bitbucket.forge.set_webhook(&address);
    let pull = bitbucket.pull().await;
    bitbucket.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let first = bitbucket.forge.deliveries().remove(0);
    bitbucket.forge.redeliver(first.id).unwrap();
    bitbucket.forge.wait_for_deliveries(LIMIT).await.unwrap();
    bitbucket.forge.unsign_deliveries();
    pull.comment("bob", "x").unwrap();
    bitbucket.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let all = received.lock().unwrap().clone();
    let secret = bitbucket.forge.webhook_secret();
    let (headers, body) = &all[0];
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signed = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    assert_eq!(header(headers, "x-hub-signature"), signed);
    assert_eq!(header(headers, "x-event-key"), "pullrequest:created");
    assert_eq!(header(headers, "x-hook-uuid"), "d53603cc-3f67-45ea-b310-aaa5ef6ec061");
    assert_eq!(header(headers, "content-type"), "application/json");
    let identity = |place: usize, name: &str| header(&all[place].0, name).to_owned();
    assert_eq!(identity(0, "x-request-uuid"), identity(1, "x-request-uuid"));
    assert_eq!((identity(0, "x-attempt-number"), identity(1, "x-attempt-number")), ("1".to_owned(), "2".to_owned()));
    assert_eq!(all[0].1, all[1].1);
    assert!(!all[2].0.contains_key("x-hub-signature"), "no secret, no signature");
}

#[tokio::test]
async fn each_change_has_its_event() {
    let bitbucket = BitbucketForge::new().await;
    let (address, _) = receiver().await;
    bitbucket.forge.set_webhook(&address);
    let pull = bitbucket.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    let comment = pull.comment("bob", "atlantis plan").unwrap();
    pull.edit_comment("bob", comment, "atlantis apply").unwrap();
    pull.delete_comment("bob", comment).unwrap();
    pull.ready().unwrap();
    pull.set_title("Another title").unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.approve("bob").unwrap();
    pull.vote("bob", 0).unwrap();
    pull.request_changes("carol").unwrap();
    pull.vote("carol", 0).unwrap();
    let head = pull.head_commit().unwrap();
    let tip = pull.merge().await.unwrap();
    let second = bitbucket.repo.open_pull("two", "bob", "Two", &[("b.tf", Some("b"))], OpenOptions::default()).await;
    second.unwrap().close().unwrap();
    let all = bitbucket.delivered().await;
    let events: Vec<&str> = all.iter().map(|(event, _)| event.as_str()).collect();
    let expected = [
        "pullrequest:created",
        "pullrequest:comment_created",
        "pullrequest:comment_updated",
        "pullrequest:comment_deleted",
        "pullrequest:updated",
        "pullrequest:updated",
        "repo:push",
        "pullrequest:updated",
        "pullrequest:approved",
        "pullrequest:unapproved",
        "pullrequest:changes_request_created",
        "pullrequest:changes_request_removed",
        "pullrequest:fulfilled",
        "pullrequest:created",
        "pullrequest:rejected",
    ];
    assert_eq!(events, expected);
    let of = |place: usize| &all[place].1;
    assert_eq!((&of(0)["pullrequest"]["draft"], &of(4)["pullrequest"]["draft"]), (&json!(true), &json!(false)));
    assert_eq!(of(1)["comment"]["content"]["raw"], "atlantis plan");
    assert_eq!((&of(3)["comment"]["deleted"], &of(3)["comment"]["content"]["raw"]), (&json!(true), &json!("")));
    assert_eq!(of(1)["actor"]["account_id"], bitbucket.forge.account_id("bob"));
    assert_eq!(of(6)["push"]["changes"][0]["new"]["target"]["hash"], json!(head), "pushes have whole commits");
    assert_eq!(of(7)["pullrequest"]["source"]["commit"]["hash"], head[..12]);
    assert_eq!(of(8)["approval"]["user"]["nickname"], "bob");
    assert_eq!(of(8)["pullrequest"]["participants"][0]["state"], "approved");
    assert_eq!(of(10)["changes_request"]["user"]["nickname"], "carol");
    assert_eq!(of(12)["pullrequest"]["merge_commit"]["hash"], tip[..12]);
    assert_eq!(
        (&of(12)["pullrequest"]["state"], &of(14)["pullrequest"]["state"]),
        (&json!("MERGED"), &json!("DECLINED"))
    );
    assert_eq!(of(12)["pullrequest"]["closed_by"]["nickname"], "alice");
}

#[tokio::test]
async fn a_large_payload_is_lost_without_a_word() {
    let bitbucket = BitbucketForge::new().await;
    let (address, _) = receiver().await;
    bitbucket.forge.set_webhook(&address);
    let body = "x".repeat(100 << 10);
    let pull = bitbucket.open(OpenOptions { body, ..OpenOptions::default() }).await;
    assert!(bitbucket.delivered().await.is_empty());
    assert!(pull.is_open().unwrap());
}

#[tokio::test]
async fn a_webhook_of_the_api_sends_the_chosen_events() {
    let bitbucket = BitbucketForge::new().await;
    let (address, received) = receiver().await;
    let hook = |url: &str, events: &[&str]| json!({"url": url, "active": true, "events": events, "description": "d", "secret": "s"});
    for (body, name) in [
        (json!({"events": ["repo:push"]}), "url"),
        (hook("x", &["repo:push"]), "url"),
        (hook(&address, &[]), "events"),
        (hook(&address, &["pull_request"]), "events"),
    ] {
        let (status, told) = bitbucket.ask(Method::POST, "/hooks", body).await;
        assert_eq!((status, told["error"]["fields"][name].is_array()), (400, true), "{told}");
    }
    assert_eq!(bitbucket.get("/hooks").await["size"], 0);
    let (status, told) = bitbucket.ask(Method::POST, "/hooks", hook(&address, &["pullrequest:comment_created"])).await;
    assert_eq!((status, &told["secret_set"], &told["active"]), (201, &json!(true), &json!(true)));
    assert!(told.get("secret").is_none());
    let pull = bitbucket.pull().await;
    pull.comment("bob", "atlantis plan").unwrap();
    let events: Vec<String> = bitbucket.delivered().await.into_iter().map(|(event, _)| event).collect();
    assert_eq!((events, received.lock().unwrap().len()), (vec!["pullrequest:comment_created".to_owned()], 1));
    let own = format!("/hooks/{}", told["uuid"].as_str().unwrap().replace('{', "%7B").replace('}', "%7D"));
    let body = json!({"url": address, "active": false, "events": ["repo:push"]});
    let (status, told) = bitbucket.ask(Method::PUT, &own, body).await;
    assert_eq!((status, &told["active"], &told["secret_set"]), (200, &json!(false), &json!(true)), "the secret stays");
    let body = json!({"url": address, "active": true, "events": ["repo:push"], "secret": ""});
    assert_eq!(bitbucket.ask(Method::PUT, &own, body).await.1["secret_set"], false);
    assert_eq!(bitbucket.ask(Method::DELETE, &own, Value::Null).await.0, 204);
    assert_eq!(bitbucket.ask(Method::GET, &own, Value::Null).await.0, 404);
    let refused = bitbucket.request(Method::GET, &format!("{REPO}/hooks"), "bob", Value::Null).await;
    assert_eq!(refused.status, 403);
}
