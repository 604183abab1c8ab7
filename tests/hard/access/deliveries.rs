//! Addresses from which deliveries are accepted, the server with `--events-only`, and the wait after too many failures.

use super::tokens::Published;
use super::{Open, Site, requests};
use crate::place::sign;
use serde_json::json;
use std::path::Path;

const PING: &str = "{}";

/// Sends a signed delivery that needs no work, with this chain of addresses.
async fn ping(site: &Site, chain: &[&str]) -> (u16, String) {
    let signature = sign(&site.forge, PING.as_bytes());
    let mut headers = vec![
        ("content-type", "application/json"),
        ("x-github-event", "ping"),
        ("x-hub-signature-256", signature.as_str()),
    ];
    headers.extend(chain.iter().map(|value| ("x-forwarded-for", *value)));
    site.request("POST /events", &headers, PING).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_chain_of_addresses_makes_a_stranger_the_host() {
    const HOST: &str = "198.51.100.7";
    // Chains as they arrive. True if the first, the last, or the one before it is the host's.
    let vectors: [(&[&str], [bool; 3]); 14] = [
        (&[], [false, false, false]),
        (&[HOST], [false, true, false]),
        (&["198.51.100.7, 203.0.113.9"], [false, false, true]),
        (&["203.0.113.9, 198.51.100.7"], [false, true, false]),
        (&["203.0.113.9, 198.51.100.7, 35.191.0.1"], [false, false, true]),
        (&["198.51.100.7, 203.0.113.9, 35.191.0.1"], [false, false, false]),
        (&["198.51.100.7, 198.51.100.7, 203.0.113.9, 35.191.0.1"], [false, false, false]),
        (&[HOST, "203.0.113.9, 35.191.0.1"], [false, false, false]),
        (&["203.0.113.9", HOST], [false, true, false]),
        (&[HOST, "35.191.0.1"], [false, false, true]),
        (&["198.51.100.7, "], [false, false, true]),
        (&["198.51.100.7:443"], [false, false, false]),
        (&["\"198.51.100.7\", for=198.51.100.7"], [false, false, false]),
        (&["::ffff:198.51.100.7"], [false, true, false]),
    ];
    for hops in 0..3 {
        let flag = format!("--trusted-proxy-hops={hops}");
        let site = Site::start(&["--webhook-allowlist=198.51.100.0/24", &flag]).await;
        for (chain, expected) in vectors {
            let (status, answer) = ping(&site, chain).await;
            let wanted = if expected[hops] { 200 } else { 403 };
            assert_eq!(status, wanted, "{hops} hops, {chain:?}: {answer}");
            let why = ["--webhook-allowlist", "--trusted-proxy-hops"].iter().any(|flag| answer.contains(flag));
            assert!(status == 200 || why, "{answer}");
        }
        let log = std::fs::read_to_string(&site.server.logs[0]).unwrap();
        assert!(log.contains("delivery turned away: "), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_allowlist_a_chain_that_is_too_short_is_refused_all_the_same() {
    let site = Site::start(&["--trusted-proxy-hops=2"]).await;
    assert_eq!(ping(&site, &["203.0.113.9, 35.191.0.1"]).await.0, 200);
    let (status, answer) = ping(&site, &["203.0.113.9"]).await;
    assert_eq!(status, 403);
    assert!(answer.contains("the client's address is unknown"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ranges_that_github_publishes_take_the_place_of_the_known_ones() {
    let meta = Published::start().await;
    meta.set(Some(json!({"hooks": ["198.51.100.0/24", "2001:db8::/32"], "web": ["203.0.113.0/24"]}).to_string()));
    let url = format!("--github-meta-url={}", meta.url);
    let site = Site::start(&["--webhook-allowlist=github,192.0.2.1", "--trusted-proxy-hops=1", &url]).await;
    let signature = sign(&site.forge, PING.as_bytes());
    let headers = [
        ("content-type", "application/json"),
        ("x-github-event", "ping"),
        ("x-hub-signature-256", signature.as_str()),
        ("x-forwarded-for", "198.51.100.7"),
    ];
    site.wait_for("POST /events", &headers, PING, 200).await;
    for (address, wanted) in [("2001:db8::7", 200), ("192.0.2.1", 200), ("203.0.113.7", 403), ("140.82.112.1", 403)] {
        assert_eq!(ping(&site, &[address]).await.0, wanted, "{address}");
    }
    // If nothing is published, the known addresses are in force.
    let site = Site::start(&["--webhook-allowlist=github", "--trusted-proxy-hops=1"]).await;
    assert_eq!(ping(&site, &["140.82.112.1"]).await.0, 200);
    assert_eq!(ping(&site, &["198.51.100.7"]).await.0, 403);
}

fn inbox(data: &Path) -> usize {
    std::fs::read_dir(data.join("vault/inbox/delivery")).map_or(0, |folder| folder.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_for_deliveries_alone_stores_them_and_has_nothing_else() {
    let site = Site::start(&["--events-only"]).await;
    for (_, request, open) in requests() {
        let (status, answer) = site.request(&request, &[], "").await;
        match open {
            // Tasks call the server that leads.
            Open::All(usual) if request != "POST /wake" => assert_eq!(status, usual, "{request}: {answer}"),
            _ => {
                assert_eq!(status, 404, "{request}: {answer}");
                assert!(answer.contains("--events-only"), "{request}: {answer}");
            }
        }
    }
    let body = include_str!("../../fixtures/webhooks/github/issue_comment_created.json");
    let body = &body.replace("https://github.example.com", site.forge.url().trim_end_matches('/'));
    let signature = sign(&site.forge, body.as_bytes());
    let headers = [
        ("content-type", "application/json"),
        ("x-github-event", "issue_comment"),
        ("x-hub-signature-256", signature.as_str()),
    ];
    assert_eq!(inbox(&site.dir.path().join("data")), 0);
    let (status, answer) = site.request("POST /events", &headers, body).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(inbox(&site.dir.path().join("data")), 1);
    assert!(!site.dir.path().join("data/vault/lease").exists(), "it never asked for the lead");
    site.server.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_has_to_wait_and_the_host_has_not() {
    let site = Site::start(&[
        "--web-basic-auth",
        "--web-username=tide",
        "--web-password=password-of-tide",
        "--api-secret=s3cret",
        "--trusted-proxy-hops=1",
    ])
    .await;
    let from = |address: &'static str| ("x-forwarded-for", address);
    let right = ("authorization", "Basic dGlkZTpwYXNzd29yZC1vZi10aWRl");
    assert_eq!(site.request("GET /", &[right, from("203.0.113.7")], "").await.0, 200);
    for guess in 0..20 {
        let wrong = [("authorization", "Basic dGlkZTp4"), ("x-atlantis-token", "s3cret-guess")][guess % 2];
        let (status, answer) = site.request("GET /api/locks", &[wrong, from("203.0.113.7")], "").await;
        assert_eq!(status, 401);
        assert!(!answer.contains("s3cret") && !answer.contains("dGlkZ"), "what is guessed is not repeated: {answer}");
    }
    let (status, answer) = site.request("GET /", &[right, from("203.0.113.7")], "").await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
    assert_eq!(site.request("GET /", &[right, from("203.0.113.8")], "").await.0, 200);
    assert_eq!(site.request("GET /", &[from("203.0.113.7")], "").await.0, 401, "who brings no password guesses none");

    let delivery = |signature: &'static str| {
        [
            ("content-type", "application/json"),
            ("x-github-event", "ping"),
            ("x-hub-signature-256", signature),
            from("203.0.113.7"),
        ]
    };
    for _ in 0..20 {
        assert_eq!(site.request("POST /events", &delivery("sha256=00"), PING).await.0, 401);
    }
    let (status, answer) = site.request("POST /events", &delivery("sha256=00"), PING).await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("\r\nretry-after: "), "{answer}");
    assert_eq!(ping(&site, &["203.0.113.7"]).await.0, 200, "a good signature is always taken");
}
