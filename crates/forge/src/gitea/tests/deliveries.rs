//! Deliveries, as a receiver gets them.

use super::super::super::OpenOptions;
use super::{GiteaForge, LIMIT, REPO};
use crate::tests::receiver::receiver;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::Sha256;

/// Signature of a body without a prefix.
pub(super) fn signed(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

impl GiteaForge {
    /// Fine and coarse event, action and payload of each delivery so far.
    async fn delivered(&self) -> Vec<(String, String, Value)> {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let row = |delivery: crate::Delivery| {
            let payload: Value = serde_json::from_str(&delivery.body).unwrap();
            (delivery.event, delivery.action.unwrap_or_default(), payload)
        };
        self.forge.deliveries().into_iter().map(row).collect()
    }
}

#[tokio::test]
async fn deliveries_are_signed_over_the_json_text() {
    let gitea = GiteaForge::new().await;
    let (address, received) = receiver().await;
    gitea.forge.set_webhook(&address);
    let pull = gitea.pull().await;
    pull.comment("bob", "atlantis plan").unwrap();
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    gitea.forge.set_webhook_form(true);
    pull.approve("bob").unwrap();
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    gitea.forge.unsign_deliveries();
    pull.close().unwrap();
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let (all, secret) = (received.lock().unwrap().clone(), gitea.forge.webhook_secret());
    let events = [
        ("pull_request", "pull_request"),
        ("pull_request", "pull_request_sync"),
        ("issue_comment", "pull_request_comment"),
        ("pull_request_approved", "pull_request_review_approved"),
        ("pull_request", "pull_request"),
    ];
    assert_eq!(all.len(), events.len());
    for (place, ((headers, body), (event, fine))) in all.iter().zip(events).enumerate() {
        let is_form = place > 2;
        let text = match is_form {
            true => url::form_urlencoded::parse(body.as_bytes()).next().unwrap().1.into_owned(),
            false => body.clone(),
        };
        let signature = if place < 4 { signed(secret.expose_secret(), &text) } else { String::new() };
        for vendor in ["gitea", "gogs", "github"] {
            assert_eq!(header(headers, &format!("x-{vendor}-event")), event);
            assert_eq!(header(headers, &format!("x-{vendor}-event-type")), fine);
            assert_eq!(header(headers, &format!("x-{vendor}-delivery")), header(headers, "x-gitea-delivery"));
        }
        assert_eq!(header(headers, "x-gitea-signature"), signature);
        assert_eq!(header(headers, "x-hub-signature-256"), format!("sha256={signature}"));
        assert_eq!(header(headers, "x-hub-signature").len(), if place < 4 { 45 } else { 5 });
        let kind = if is_form { "application/x-www-form-urlencoded" } else { "application/json" };
        assert_eq!(header(headers, "content-type"), kind);
        assert!(text.starts_with("{\n  \""), "indented: {text:.40}");
    }
}

#[tokio::test]
async fn each_change_has_its_event() {
    let gitea = GiteaForge::new().await;
    let (address, _) = receiver().await;
    gitea.forge.set_webhook(&address);
    let pull = gitea.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    let comment = pull.comment("bob", "atlantis plan").unwrap();
    pull.edit_comment("bob", comment, "atlantis apply").unwrap();
    let (status, _) = gitea.ask(Method::DELETE, &format!("/issues/comments/{comment}"), Value::Null).await;
    assert_eq!(status, 204);
    pull.ready().unwrap();
    pull.set_labels(&["ops"]).unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.request_changes("bob").unwrap();
    pull.close().unwrap();
    pull.reopen().unwrap();
    pull.merge().await.unwrap();
    let all = gitea.delivered().await;
    let events: Vec<(&str, &str)> = all.iter().map(|(event, action, _)| (event.as_str(), action.as_str())).collect();
    let expected = [
        ("pull_request", "opened"),
        ("pull_request_sync", "synchronized"),
        ("pull_request_comment", "created"),
        ("pull_request_comment", "edited"),
        ("pull_request_comment", "deleted"),
        ("pull_request", "edited"),
        ("pull_request_label", "label_updated"),
        ("push", ""),
        ("pull_request_sync", "synchronized"),
        ("pull_request_review_rejected", "reviewed"),
        ("pull_request", "closed"),
        ("pull_request", "reopened"),
        ("pull_request", "closed"),
    ];
    assert_eq!(events, expected);
    let of = |place: usize| &all[place].2;
    assert_eq!((&of(0)["pull_request"]["draft"], &of(0)["number"]), (&json!(true), &json!(1)));
    assert_eq!((&of(2)["is_pull"], &of(2)["issue"]["number"]), (&json!(true), &json!(1)));
    assert_eq!(of(3)["changes"]["body"]["from"], "atlantis plan");
    assert_eq!((&of(4)["comment"]["body"], &of(4)["issue"]["comments"]), (&json!("atlantis apply"), &json!(0)));
    assert_eq!(of(5)["changes"]["title"]["from"], "WIP: Change a");
    assert_eq!(of(6)["pull_request"]["labels"][0]["name"], "ops");
    assert_eq!(of(7)["ref"], "refs/heads/change");
    assert_eq!(
        (&of(7)["after"], &of(8)["pull_request"]["head"]["sha"]),
        (&json!(pull.head_commit().unwrap()), &of(7)["after"])
    );
    let review = json!({"type": "pull_request_review_rejected", "content": "Not like this."});
    assert_eq!((&of(9)["review"], &of(9)["sender"]["login"]), (&review, &json!("bob")));
    assert_eq!((&of(10)["pull_request"]["merged"], &of(12)["pull_request"]["merged"]), (&json!(false), &json!(true)));
    assert_eq!(of(12)["pull_request"]["merged_by"]["login"], "alice");
}

#[tokio::test]
async fn a_delivery_is_tried_once_and_replayed_under_another_id() {
    let gitea = GiteaForge::new().await;
    gitea.forge.set_webhook("http://127.0.0.1:1/events");
    gitea.pull().await;
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let first = gitea.forge.deliveries().remove(0);
    assert!(first.done && !first.succeeded());
    gitea.forge.redeliver(first.id).unwrap();
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let all = gitea.forge.deliveries();
    assert_eq!((all.len(), &all[2].body), (3, &first.body));
    assert_ne!(all[2].guid, first.guid);
    assert_eq!(gitea.ask(Method::GET, "/hooks/1/deliveries", Value::Null).await.0, 404, "the API has no list");
}

#[tokio::test]
async fn a_webhook_of_the_api_sends_the_chosen_events() {
    let gitea = GiteaForge::new().await;
    let (address, received) = receiver().await;
    let config = json!({"url": address, "content_type": "json", "secret": "s"});
    for (body, text) in [
        (json!({"type": "gitea"}), "[Config]: Required"),
        (json!({"type": "gitea", "config": {"url": address}}), "Missing config option: content_type"),
        (json!({"type": "gitea", "config": {"url": "x", "content_type": "json"}}), "Invalid url"),
        (json!({"type": "gitea", "config": {"url": address, "content_type": "x"}}), "Invalid content type"),
        (json!({"type": "nope", "config": config}), "Invalid hook type: nope"),
    ] {
        let (status, told) = gitea.ask(Method::POST, "/hooks", body).await;
        assert_eq!((status, super::message(&told)), (422, text));
    }
    let hook = json!({"type": "gitea", "active": true, "events": ["pull_request_comment"], "config": config});
    let (status, told) = gitea.ask(Method::POST, "/hooks", hook).await;
    assert_eq!((status, &told["events"], &told["active"]), (201, &json!(["pull_request_comment"]), &json!(true)));
    assert!(told["config"].get("secret").is_none());
    let pull = gitea.pull().await;
    pull.comment("bob", "atlantis plan").unwrap();
    assert_eq!(gitea.delivered().await.len(), 1, "the pull request was not announced");
    assert_eq!(received.lock().unwrap()[0].0["x-gitea-event"], "issue_comment");
    let refused = gitea.request(Method::POST, &format!("{REPO}/hooks"), "bob", json!({})).await;
    assert_eq!(refused.status, 403);
    let hook = json!({"type": "gitea", "active": true, "config": {"url": address, "content_type": "json"}});
    assert_eq!(gitea.ask(Method::POST, "/hooks", hook).await.1["events"], json!(["push"]));
    assert_eq!(gitea.ask(Method::POST, "/hooks/1/tests", Value::Null).await.0, 204);
    gitea.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let (headers, body) = received.lock().unwrap()[1].clone();
    assert_eq!(
        (&headers["x-gitea-event"], &headers["x-gitea-signature"]),
        (&"push".parse().unwrap(), &"".parse().unwrap())
    );
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["after"], json!(gitea.repo.tip("main").await.unwrap()));
}
