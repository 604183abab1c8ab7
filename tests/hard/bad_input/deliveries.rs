//! Bad requests of strangers to `/events`.

use crate::place::{CODE, Place, answer, sign};
use secrecy::ExposeSecret as _;
use serde_json::json;

/// A comment as GitHub would deliver it, by bob.
fn comment(place: &Place, number: u64, id: u64, body: &str) -> Vec<u8> {
    let url = format!("{}/acme/infra", place.forge.url());
    let payload = json!({
        "action": "created",
        "issue": {"number": number, "pull_request": {"url": format!("{url}/pull/{number}")}},
        "comment": {"id": id, "body": body, "user": {"login": "bob"}},
        "repository": {"full_name": "acme/infra", "html_url": url, "clone_url": format!("{url}.git")},
        "sender": {"login": "bob"},
    });
    payload.to_string().into_bytes()
}

#[tokio::test]
async fn what_is_not_signed_right_is_turned_away_and_runs_nothing() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let body = comment(&place, pull.number(), 900_001, "atlantis plan");
    let right = sign(&place.forge, &body);
    let other_body = sign(&place.forge, b"{}");
    let sha1_name = right.replacen("sha256=", "sha1=", 1);
    let signatures = [
        None,
        Some(""),
        Some("sha256="),
        Some("sha256=zz"),
        Some("sha256=00"),
        Some(&right[7..]),
        Some(&right[..right.len() - 2]),
        Some(&other_body),
        Some(&sha1_name),
    ];
    for signature in signatures {
        let mut headers = vec![("x-github-event", "issue_comment")];
        headers.extend(signature.map(|signature| ("x-hub-signature-256", signature)));
        let (status, text) = place.post(&headers, body.clone()).await;
        assert_eq!(status, 401, "{signature:?}: {text}");
        assert!(text.to_lowercase().contains("sign"), "{text}");
        assert!(!text.contains(&right[7..]), "the right signature is told");
    }
    // A right signature of the weak kind beside a wrong strong one does not help.
    let secret = place.forge.webhook_secret();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose_secret().as_bytes());
    let weak = format!("sha1={}", hex::encode(ring::hmac::sign(&key, &body)));
    let both =
        [("x-github-event", "issue_comment"), ("x-hub-signature-256", "sha256=00"), ("x-hub-signature", weak.as_str())];
    assert_eq!(place.post(&both, body.clone()).await.0, 401);
    place.still_works().await;
    assert_eq!(pull.bot_comments().unwrap().len(), 1, "an unsigned comment was answered");
    assert_eq!(place.deliver("issue_comment", &body).await.0, 200);
    assert!(answer(&pull, 1).await.body.contains("1 to add"));
    place.stop().await;
}

#[tokio::test]
async fn bodies_that_are_no_payload_are_refused_by_name() {
    let place = Place::new(&[]).await;
    let good = comment(&place, 1, 1, "atlantis plan");
    let deep = [b"{\"comment\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
    let arrays = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let huge_number = br#"{"action":"created","issue":{"number":99999999999999999999999,"pull_request":{}}}"#;
    let wrong_types = br#"{"action":["created"],"issue":"x","comment":7}"#;
    let bodies: [(&str, &[u8]); 9] = [
        ("truncated", &good[..good.len() / 2]),
        ("empty", b""),
        ("deep objects", &deep),
        ("deep arrays", &arrays),
        ("a huge number", huge_number),
        ("wrong types", wrong_types),
        ("not UTF-8", b"{\"action\":\"\xff\xfe\"}"),
        ("nothing in it", b"{}"),
        ("more behind the end", &[&good[..], b"}"].concat()),
    ];
    for (what, body) in bodies {
        for event in ["issue_comment", "pull_request"] {
            let (status, text) = place.deliver(event, body).await;
            assert!((400..500).contains(&status), "{what} as {event}: {status} {text}");
            assert!(!text.is_empty() && text.len() < 1000, "{what}: {text}");
        }
    }
    // Bodies of events that cause nothing are not parsed.
    assert_eq!(place.deliver("star", b"{").await.0, 200);
    assert_eq!(place.deliver("\u{61}".repeat(5000).as_str(), b"{}").await.0, 200);
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn a_body_over_the_cap_is_refused_and_a_large_one_below_it_is_taken() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let over = vec![b' '; tidelock_max() + 1];
    let (status, text) = place.deliver("issue_comment", &over).await;
    assert_eq!((status, text.contains("larger than 26214400 bytes")), (413, true), "{text}");
    let mut large = comment(&place, pull.number(), 900_002, "atlantis plan");
    large.resize(20 << 20, b' ');
    assert_eq!(place.deliver("issue_comment", &large).await.0, 200);
    answer(&pull, 1).await;
    place.stop().await;
}

fn tidelock_max() -> usize {
    tidelock_hosts::webhook::MAX_BODY
}

#[tokio::test]
async fn a_form_is_taken_when_its_payload_is_signed_and_refused_without_one() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let post = async |body: &str| {
        let signature = sign(&place.forge, body.as_bytes());
        let headers = [
            ("x-github-event", "issue_comment"),
            ("x-hub-signature-256", signature.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        place.post(&headers, body.as_bytes().to_vec()).await
    };
    for bad in ["", "payload=", "payload=%7B", "other=1", "%zz", "payload=%FF%FE"] {
        let (status, text) = post(bad).await;
        assert_eq!(status, 400, "{bad}: {text}");
    }
    let json = String::from_utf8(comment(&place, pull.number(), 900_003, "atlantis plan")).unwrap();
    let form: String = url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &json).finish();
    assert_eq!(post(&form).await.0, 200);
    answer(&pull, 1).await;
    let headers = [("x-github-event", "issue_comment"), ("content-type", "text/plain")];
    assert_eq!(place.post(&headers, json.into_bytes()).await.0, 415);
    place.stop().await;
}

#[tokio::test]
async fn the_longest_comments_are_taken_and_answered_within_their_limit() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    let filled = |start: &str, with: &str| {
        let room = 65_536 - start.chars().count();
        start.to_owned() + &with.repeat(room / with.chars().count())
    };
    // Each is answered: a usage text, a suggestion, or a plan.
    let comments = [
        filled("atlantis plan -- ", "-var=a=b "),
        filled("atlantis plan -d ", "a/"),
        filled("atlantis plan -w ", "w"),
        filled("atlantis plan -p ", "\u{1f600}"),
        filled("atlantis plan --", "\""),
    ];
    for (at, body) in comments.iter().enumerate() {
        pull.comment("bob", body).unwrap();
        let answer = answer(&pull, at + 1).await;
        assert!(answer.body.chars().count() <= 65_536, "comment {at}: {} characters", answer.body.chars().count());
    }
    // A comment of many lines is a conversation, not a command.
    let before = pull.bot_comments().unwrap().len();
    pull.comment("bob", &filled("atlantis plan\n", "x\n")).unwrap();
    place.still_works().await;
    let comments = pull.bot_comments().unwrap();
    let starts: Vec<String> = comments.iter().map(|comment| comment.body.chars().take(200).collect()).collect();
    assert_eq!(comments.len(), before, "{starts:#?}");
    place.stop().await;
}
