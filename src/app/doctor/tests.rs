//! Findings of the doctor about addresses that lead to Google's sign-in, and its flags. The rest is in `tests/it/doctor.rs`.

use super::report::Findings;
use super::*;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::any;
use insta::assert_snapshot;

#[test]
fn its_own_flags_are_taken_from_among_the_servers() {
    let take = |args: &[&str]| Asked::parse(args.iter().map(Into::into).collect());
    let (asked, rest) = take(&["--bucket=gs://b/p", "--json", "--events-url", "https://x/events", "--gh-user", "bot"]);
    assert_eq!(rest, ["--bucket=gs://b/p", "--gh-user", "bot"]);
    assert_eq!(asked, Asked { json: true, events_url: Some("https://x/events".into()), ..Asked::default() });
    let (asked, rest) = take(&["--expect-iap", "--from-outside", "--events-url=https://x/events", "--help"]);
    assert!(rest.is_empty() && asked.expect_iap && asked.from_outside && asked.help && asked.events_url.is_some());
}

/// Starts a load balancer as the Terraform module makes it, or with a backend that lacks Identity-Aware Proxy.
async fn balancer(pages: bool, events: bool) -> String {
    let sign_in = || -> Response {
        let mut answer =
            Redirect::temporary("https://accounts.google.com/o/oauth2/v2/auth?client_id=x").into_response();
        *answer.status_mut() = StatusCode::FOUND;
        answer
    };
    let answer = move |signs_in: bool, status: u16| async move {
        if signs_in { sign_in() } else { StatusCode::from_u16(status).unwrap().into_response() }
    };
    let status = move || async move { if pages { sign_in() } else { STANDS_BY.into_response() } };
    let router = Router::new()
        .route("/events", any(move || answer(events, 401)))
        .route("/status", any(status))
        .fallback(any(move || answer(pages, 200)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

const STANDS_BY: &str = r#"{"role":"standby","version":"0.1.0","leader":{"machine":"other (process 1)"}}"#;

#[tokio::test]
async fn another_program_on_the_port_is_not_taken_for_ours() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // As Atlantis answers.
    let router = Router::new().fallback(any(|| async { r#"{"status":"ok","shutting_down":false}"# }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let findings: Findings = web::check(&settings(&url), &format!("{url}/events"), &Asked::default()).await;
    let text = findings.text().replace(&url, "URL");
    assert!(text.contains("FAULT    web        URL is answered by another program, which is no Tidelock"), "{text}");
    assert!(!text.contains("URL/healthz answers"), "{text}");
}

fn settings(url: &str) -> Settings {
    let flags = ["--gh-user=bot", "--gh-token=t", "--gh-webhook-secret=s", "--repo-allowlist=github.com/acme/*"];
    let flags = flags.iter().map(OsString::from).chain([format!("--atlantis-url={url}").into()]);
    Settings::load(flags, [("HOME".into(), "/root".into())]).ok().unwrap()
}

#[tokio::test]
async fn a_host_that_speaks_http_is_named_as_such() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, Router::new()).await });
    let flags = ["--gh-user=bot", "--gh-token=t", "--gh-webhook-secret=s", &format!("--repo-allowlist={host}/acme/*")];
    let flags = flags.iter().map(OsString::from).chain([format!("--gh-hostname={host}").into()]);
    let settings = Settings::load(flags, [("HOME".into(), "/root".into())]).ok().unwrap();
    let text = hosts::check(&settings, "https://x/events").await.text().replace(&host, "HOST");
    assert!(text.contains("GET /user: the host does not speak HTTPS there"), "{text}");
}

async fn web(pages: bool, events: bool, expect_iap: bool) -> String {
    let url = balancer(pages, events).await;
    let asked = Asked { expect_iap, ..Asked::default() };
    let findings: Findings = web::check(&settings(&url), &format!("{url}/events"), &asked).await;
    findings.text().replace(&url, "URL")
}

#[tokio::test]
async fn behind_identity_aware_proxy_only_deliveries_come_through() {
    assert_snapshot!(web(true, false, true).await, @"
    ?        web        URL/healthz is behind Identity-Aware Proxy, as it should be
    ok       web        URL/events refuses a delivery without a signature (401)
    ok       web        URL/ leads to Google's sign-in (Identity-Aware Proxy)

    0 faults, 0 warnings, 1 not known
    ");
    assert_snapshot!(web(false, true, true).await, @"
    ok       web        URL/healthz answers
    FAULT    web        URL/events asks the host to sign in
                        mend: give /events a backend without Identity-Aware Proxy: terraform/load_balancer.tf
    FAULT    web        URL/ answers 200 and not with the redirect of Identity-Aware Proxy
                        mend: switch Identity-Aware Proxy on for the backend (or service) of the pages: terraform/iap.tf

    2 faults, 0 warnings, 0 not known
    ");
}

#[tokio::test]
async fn settings_that_a_server_would_refuse_are_faults() {
    let looked = run_checks(Settings::load(["--port=x".into(), "--data-dir=/d".into()], []), &Asked::default()).await;
    assert!(!looked.well());
    assert_snapshot!(looked.text(), @"
    FAULT    settings   --gh-token (ATLANTIS_GH_TOKEN) is missing, and so is gh-token-file. A fine-grained token needs, on the repositories: Contents read (and write for automerge), Pull requests read and write, Commit statuses read and write, Issues read and write (reactions); Webhooks read is for `tidelock doctor`. A classic one needs the scope repo (and admin:repo_hook for the doctor)
    FAULT    settings   --gh-user (ATLANTIS_GH_USER) is missing: the login of the account that the token belongs to. A GitHub App is named by gh-app-id instead
    FAULT    settings   --gh-webhook-secret (ATLANTIS_GH_WEBHOOK_SECRET) is missing: without it everybody who reaches the port can run commands here. Set the same text here and in the webhook on GitHub; or say --allow-unsigned-webhooks, which is unsafe
    FAULT    settings   --port is no number from 1 to 65535
    FAULT    settings   --repo-allowlist is missing: name the repositories to serve, such as github.com/acme/*
                        mend: `tidelock server --help` and docs/settings.md say what each one takes

    5 faults, 0 warnings, 0 not known
    ");
}
