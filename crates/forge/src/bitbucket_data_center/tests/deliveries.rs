//! Deliveries, as a receiver gets them.

use super::super::super::OpenOptions;
use super::{API, DataCenterForge, LIMIT, REPO};
use crate::tests::receiver::receiver;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::Sha256;

/// Address on which nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/events";

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

impl DataCenterForge {
    /// Event and payload of each delivery so far.
    async fn delivered(&self) -> Vec<(String, Value)> {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let row = |one: crate::Delivery| (one.event, serde_json::from_str(&one.body).unwrap());
        self.forge.deliveries().into_iter().map(row).collect()
    }
}

#[tokio::test]
async fn deliveries_are_signed_over_the_body_but_pings_are_not() {
    let host = DataCenterForge::new().await;
    let (address, received) = receiver().await;
    host.forge.set_webhook(&address);
    let pull = host.pull().await;
    host.forge.ping_webhook();
    host.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let first = host.forge.deliveries().remove(0);
    host.forge.redeliver(first.id).unwrap();
    host.forge.wait_for_deliveries(LIMIT).await.unwrap();
    host.forge.unsign_deliveries();
    pull.comment("bob", "x").unwrap();
    host.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let all = received.lock().unwrap().clone();
    let secret = host.forge.webhook_secret();
    let (headers, body) = &all[0];
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let signed = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    assert_eq!(header(headers, "x-hub-signature"), signed);
    assert_eq!(header(headers, "x-event-key"), "pr:opened");
    assert_eq!(header(headers, "content-type"), "application/json; charset=utf-8");
    assert!(!headers.contains_key("x-hook-uuid"), "that is the other Bitbucket");
    let (headers, body) = &all[1];
    assert_eq!((header(headers, "x-event-key"), body.as_str()), ("diagnostics:ping", "{\"test\":true}"));
    assert!(!headers.contains_key("x-hub-signature"), "also with a secret");
    assert_eq!(header(&all[0].0, "x-request-id"), header(&all[2].0, "x-request-id"));
    assert_eq!(all[0].1, all[2].1);
    assert!(!all[3].0.contains_key("x-hub-signature"), "no secret, no signature");
}

#[tokio::test]
async fn each_change_has_its_event() {
    let host = DataCenterForge::new().await;
    let (address, _) = receiver().await;
    host.forge.set_webhook(&address);
    let pull = host.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    let before = pull.head_commit().unwrap();
    let comment = pull.comment("bob", "atlantis plan").unwrap();
    pull.edit_comment("bob", comment, "atlantis apply").unwrap();
    let reply = pull.reply("carol", comment, "no").unwrap();
    pull.delete_comment("carol", reply).unwrap();
    pull.ready().unwrap();
    pull.set_title("Another title").unwrap();
    let head = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.add_reviewer("bob").unwrap();
    pull.approve("bob").unwrap();
    pull.approve("bob").unwrap();
    pull.vote("bob", 0).unwrap();
    pull.request_changes("carol").unwrap();
    pull.close().unwrap();
    pull.reopen().unwrap();
    let tip = pull.merge().await.unwrap();
    let all = host.delivered().await;
    let events: Vec<&str> = all.iter().map(|(event, _)| event.as_str()).collect();
    let expected = [
        "pr:opened",
        "pr:comment:added",
        "pr:comment:edited",
        "pr:comment:added",
        "pr:comment:deleted",
        "pr:modified",
        "pr:modified",
        "repo:refs_changed",
        "pr:from_ref_updated",
        "pr:reviewer:updated",
        "pr:reviewer:approved",
        "pr:reviewer:unapproved",
        "pr:reviewer:needs_work",
        "pr:declined",
        "pr:merged",
    ];
    assert_eq!(events, expected, "a reopening tells nobody");
    let of = |place: usize| &all[place].1;
    assert!(all.iter().all(|(event, payload)| payload["eventKey"] == *event));
    let drafts = [0, 5].map(|place| of(place)["pullRequest"]["draft"].clone());
    assert_eq!((drafts, &of(5)["previousDraft"]), ([json!(true), json!(false)], &json!(true)));
    assert_eq!(
        (&of(6)["previousTitle"], &of(6)["pullRequest"]["title"]),
        (&json!("Change a"), &json!("Another title"))
    );
    assert_eq!((&of(1)["comment"]["text"], &of(1)["actor"]["name"]), (&json!("atlantis plan"), &json!("bob")));
    assert_eq!((&of(2)["previousComment"], &of(2)["comment"]["version"]), (&json!("atlantis plan"), &json!(1)));
    assert_eq!((&of(3)["commentParentId"], &of(4)["comment"]["text"]), (&json!(comment), &json!("no")));
    assert_eq!((&of(7)["changes"][0]["toHash"], &of(7)["repository"]["slug"]), (&json!(head), &json!("infra")));
    assert_eq!(
        (&of(8)["previousFromHash"], &of(8)["pullRequest"]["fromRef"]["latestCommit"]),
        (&json!(before), &json!(head))
    );
    assert_eq!(of(9)["addedReviewers"][0]["name"], "bob");
    let vote = &of(10)["participant"];
    assert_eq!((&vote["role"], &vote["lastReviewedCommit"]), (&json!("REVIEWER"), &json!(head)));
    assert_eq!((&of(10)["previousStatus"], &of(11)["previousStatus"]), (&json!("UNAPPROVED"), &json!("APPROVED")));
    assert_eq!(
        (&of(12)["participant"]["status"], &of(12)["participant"]["role"]),
        (&json!("NEEDS_WORK"), &json!("PARTICIPANT"))
    );
    assert_eq!((&of(13)["pullRequest"]["state"], &of(13)["pullRequest"]["closed"]), (&json!("DECLINED"), &json!(true)));
    assert_eq!(of(14)["pullRequest"]["properties"]["mergeCommit"]["id"], json!(tip));
    let versions: Vec<i64> =
        [0, 5, 6, 8, 9, 10, 13, 14].map(|place| of(place)["pullRequest"]["version"].as_i64().unwrap()).to_vec();
    assert_eq!(versions, [0, 1, 2, 2, 3, 3, 5, 8], "pushes and reviews leave it");
}

#[tokio::test]
async fn after_five_failures_deliveries_are_lost() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    host.forge.set_webhook(NOWHERE);
    let comment = async || {
        pull.comment("bob", "x").unwrap();
        host.forge.wait_for_deliveries(LIMIT).await.unwrap();
        host.forge.deliveries().len()
    };
    for count in 1..=5 {
        assert_eq!(comment().await, count);
    }
    assert_eq!((comment().await, comment().await), (5, 5), "skipped, and never sent");
    let statistics = host.get("/webhooks/10/statistics").await;
    assert_eq!(statistics["counts"]["errors"], 5);
    assert_eq!(statistics["lastError"]["result"]["outcome"], "ERROR");
    assert!(statistics["lastSuccess"].is_null());
    host.forge.set_clock_ahead(jiff::SignedDuration::from_secs(11));
    assert_eq!((comment().await, comment().await), (6, 6), "one attempt, and a longer pause");
    host.forge.set_clock_ahead(jiff::SignedDuration::from_secs(11 + 11));
    assert_eq!(comment().await, 6);
    let (address, received) = receiver().await;
    host.forge.set_webhook(&address);
    assert_eq!((comment().await, received.lock().unwrap().len()), (7, 1), "another webhook");
    let latest = host.get("/webhooks/10/latest").await;
    assert_eq!((&latest["result"]["outcome"], &latest["event"]), (&json!("SUCCESS"), &json!("pr:comment:added")));
    let none = host.ask(Method::GET, "/webhooks/10/latest?outcome=FAILURE", Value::Null).await;
    assert_eq!(none.0, 204, "there is no list of them");
    host.forge.set_webhook_auto_disabling(false);
    host.forge.set_webhook(NOWHERE);
    for count in 8..=14 {
        assert_eq!(comment().await, count, "it is switched off");
    }
}

#[tokio::test]
async fn a_webhook_of_the_api_sends_the_chosen_events() {
    let host = DataCenterForge::new().await;
    let (address, received) = receiver().await;
    let hook = |name: &str, url: &str, events: &[&str]| {
        json!({
            "name": name, "url": url, "active": true, "events": events, "configuration": {"secret": "s"},
        })
    };
    for (body, field) in [
        (hook("", &address, &["pr:opened"]), "name"),
        (hook("x", "x", &["pr:opened"]), "url"),
        (hook("x", &address, &[]), "events"),
        (hook("x", &address, &["pullrequest:created"]), "events"),
        (hook("x", &address, &["pr:to_ref_updated"]), "events"),
        (hook("x", &address, &["pr:reviewer:changes_requested"]), "events"),
    ] {
        let (status, told) = host.ask(Method::POST, "/webhooks", body).await;
        assert_eq!((status, &told["errors"][0]["context"]), (400, &json!(field)), "{told}");
    }
    assert_eq!(host.get("/webhooks").await["size"], 0);
    let (status, told) = host.ask(Method::POST, "/webhooks", hook("x", &address, &["pr:comment:added"])).await;
    assert_eq!((status, &told["id"], &told["active"]), (201, &json!(10), &json!(true)));
    assert_eq!(told["configuration"]["secret"], "******", "not the secret");
    let pull = host.pull().await;
    pull.comment("bob", "atlantis plan").unwrap();
    let events: Vec<String> = host.delivered().await.into_iter().map(|(event, _)| event).collect();
    assert_eq!((events, received.lock().unwrap().len()), (vec!["pr:comment:added".to_owned()], 1));
    let mut off = hook("x", &address, &["pr:opened"]);
    (off["active"], off["configuration"]) = (json!(false), Value::Null);
    let (status, told) = host.ask(Method::PUT, "/webhooks/10", off).await;
    assert_eq!((status, &told["active"], &told["configuration"]["secret"]), (200, &json!(false), &json!("******")));
    let mut open = hook("x", &address, &["pr:opened"]);
    open["configuration"] = json!({"secret": ""});
    assert_eq!(host.ask(Method::PUT, "/webhooks/10", open).await.1["configuration"], json!({}));
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("url", &address).finish();
    let tested = host.ask(Method::POST, &format!("/webhooks/test?{query}"), Value::Null).await;
    assert_eq!((tested.0, &tested.1["response"]["statusCode"]), (200, &json!(200)));
    let (headers, body) = received.lock().unwrap().last().unwrap().clone();
    assert_eq!((header(&headers, "x-event-key"), body.as_str()), ("diagnostics:ping", "{\"test\":true}"));
    assert!(!headers.contains_key("x-hub-signature"));
    assert_eq!(host.ask(Method::POST, "/webhooks/test?webhookId=10", Value::Null).await.0, 500, "where to");
    assert_eq!(host.ask(Method::DELETE, "/webhooks/10", Value::Null).await.0, 204);
    assert_eq!(host.ask(Method::GET, "/webhooks/10", Value::Null).await.0, 404);
    let refused = host.request(Method::GET, &format!("{REPO}/webhooks/11"), "tidelock-bot", Value::Null).await;
    assert_eq!(refused.status, 404);
    let other = format!("{API}/projects/ACME/repos/none/webhooks");
    assert_eq!(host.request(Method::GET, &other, "tidelock-bot", Value::Null).await.status, 404);
}
