//! Checks our own address as others see it: health, deliveries, pages.

use super::Asked;
use super::report::Findings;
use crate::app::{bucket, hosts};
use crate::settings::{BucketAddress, Settings};
use crate::vault::bucket::Bucket;
use crate::vault::directory::Directory;
use crate::vault::lease::{self, Record};
use crate::webhook::Door;
use reqwest::{Client, Method, Response, StatusCode, redirect};
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

const WEB: &str = "web";
/// Time limit of one response.
const LIMIT: Duration = Duration::from_secs(15);
/// Largest answer of `/status` that is read, in bytes.
const MAX_STATUS: usize = 64 * 1024;
/// Address to which Identity-Aware Proxy redirects people who are not signed in.
const SIGN_IN: &str = "https://accounts.google.com/";

pub(super) async fn check(settings: &Settings, events: &str, asked: &Asked) -> Findings {
    let mut findings = Findings::default();
    let url = &settings.atlantis_url;
    let client = match client(url) {
        Ok(client) => client,
        Err(error) => {
            findings.fault(WEB, format!("no TLS: {error}"), "install ca-certificates");
            return findings;
        }
    };
    if !ours(&client, settings, &mut findings).await {
        return findings;
    }
    health(&client, settings, asked, &mut findings).await;
    refusals(&client, url, &mut findings).await;
    let joined = if settings.poll.is_some() { Vec::new() } else { hosts::join(settings, &[]).unwrap_or_default() };
    for host in joined {
        deliveries(&client, &*host.door, events, &mut findings).await;
    }
    pages(&client, settings, asked, &mut findings).await;
    findings
}

fn client(url: &str) -> reqwest::Result<Client> {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().timeout(LIMIT).redirect(redirect::Policy::none());
    if is_loopback(url) { builder.no_proxy().build() } else { builder.build() }
}

fn is_loopback(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns false if another program answers at our address, or a Tidelock on another bucket. In both cases no further check says anything
/// about our server.
async fn ours(client: &Client, settings: &Settings, findings: &mut Findings) -> bool {
    let url = &settings.atlantis_url;
    let Some(status) = status(client, url).await else { return true };
    let mend = "stop it, or give this server an address and a port of its own: --atlantis-url, --port";
    let Some(role) = status["role"].as_str() else {
        findings.fault(WEB, format!("{url} is answered by another program, which is no Tidelock"), mend);
        return false;
    };
    // The leader may change between the two reads, so only a mismatch in two rounds is a fault.
    for last in [false, true] {
        let led_by = lease(settings).await.and_then(|record| record.holder).map(|holder| holder.machine);
        let seen = status["leader"]["machine"].as_str();
        let fits = match (&led_by, seen) {
            (Some(ours), Some(seen)) => ours == seen,
            (None, Some(_)) => role != "leading",
            _ => true,
        };
        if fits {
            return true;
        }
        if last {
            let ours = led_by.map_or_else(|| "nobody leads".to_owned(), |machine| format!("{machine} leads"));
            let text = format!(
                "{url} is answered by another Tidelock: it says that {} leads, and on --bucket {ours}",
                seen.unwrap_or("nobody")
            );
            findings.fault(WEB, text, mend);
        } else {
            tokio::time::sleep(settings.vault.lease_ttl / 10).await;
        }
    }
    false
}

/// Returns the response of `/status`: JSON, or `null` for anything else; absent if there is no response, or one with another status than
/// 200 and 404.
async fn status(client: &Client, url: &str) -> Option<serde_json::Value> {
    let mut answer = client.get(format!("{url}/status")).send().await.ok()?;
    if !matches!(answer.status(), StatusCode::OK | StatusCode::NOT_FOUND) {
        return None;
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_STATUS {
            return Some(serde_json::Value::Null);
        }
    }
    Some(serde_json::from_slice(&body).unwrap_or_default())
}

/// Returns the lease on the bucket of these settings, if any.
async fn lease(settings: &Settings) -> Option<Record> {
    let open: Arc<dyn Bucket> = match &settings.vault.bucket {
        BucketAddress::Directory(path) => Arc::new(Directory::existing(path).ok()?),
        address @ BucketAddress::CloudStorage { .. } => bucket::open(address).await.ok()?,
    };
    lease::read(&bucket::vault_on(settings, open).ok()?).await.ok()?
}

async fn health(client: &Client, settings: &Settings, asked: &Asked, findings: &mut Findings) {
    let url = &settings.atlantis_url;
    match client.get(format!("{url}/healthz")).send().await {
        Ok(answer) if answer.status() == StatusCode::OK => findings.fine(WEB, format!("{url}/healthz answers")),
        Ok(answer) if is_sign_in(&answer) => {
            findings.unknown(WEB, format!("{url}/healthz is behind Identity-Aware Proxy, as it should be"), "");
        }
        // Google itself answers this path at a service's own address.
        Ok(answer) if asked.expects_iap(settings) && answer.status() == StatusCode::NOT_FOUND => {
            findings.unknown(WEB, format!("{url}/healthz is not to be seen from outside"), "");
        }
        Ok(answer) => {
            let text = format!("{url}/healthz answers {}, not 200", answer.status().as_u16());
            findings.fault(
                WEB,
                text,
                "check that --atlantis-url leads to this server, with its path; then the server's log",
            );
        }
        Err(error) => findings.fault(WEB, format!("{url}/healthz: {}", explain(error)), UNREACHABLE),
    }
}

/// Reports posts that the host refuses and objects in the inbox that the leader cannot use, as its `/status` says. The caller has already
/// reported a server that cannot be reached.
async fn refusals(client: &Client, url: &str, findings: &mut Findings) {
    let Ok(mut answer) = client.get(format!("{url}/status")).send().await else { return };
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        if body.len() + chunk.len() > MAX_STATUS {
            return;
        }
        body.extend_from_slice(&chunk);
    }
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let refused = &status["refused_by_host"];
    if let (Some(waiting), Some(since)) = (refused["waiting"].as_u64(), refused["since"].as_str()) {
        let mend = "give the token its rights again (has it expired? single sign-on of the organization? a list of allowed \
                    addresses?): see the lines on the host here, and \"is refused\" in the server's log. Nothing is lost meanwhile";
        let text = format!("the host refuses what the server has to say since {since}: {waiting} posts wait");
        findings.fault(WEB, text, mend);
    }
    if let Some(count) = status["inbox_unusable"].as_u64() {
        let mend = "start every server with both webhook secrets, --gh-webhook-secret and --gh-previous-webhook-secret; \"is left there\" \
                    in the log of the server that leads says which one is missing. What cannot be verified stays for seven days";
        let text = format!("{count} objects in the bucket's inbox cannot be verified or read by the server that leads");
        findings.fault(WEB, text, mend);
    }
}

const UNREACHABLE: &str =
    "check --atlantis-url, its DNS record, certificate and load balancer, and that the server runs";

async fn deliveries(client: &Client, door: &dyn Door, events: &str, findings: &mut Findings) {
    let request = client.request(Method::POST, events).body("{}");
    let request = door.unproven_headers().iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let status = match request.send().await {
        Ok(answer) if is_sign_in(&answer) => {
            let mend = "give /events a backend without Identity-Aware Proxy: terraform/load_balancer.tf";
            findings.fault(WEB, format!("{events} asks the host to sign in"), mend);
            return;
        }
        Ok(answer) => answer.status().as_u16(),
        Err(error) => return findings.fault(WEB, format!("{events}: {}", explain(error)), UNREACHABLE),
    };
    match status {
        400 | 401 => findings.fine(WEB, format!("{events} refuses a delivery without a signature ({status})")),
        403 => {
            findings.fine(WEB, format!("{events} refuses this machine's address (403): only the host's may deliver"))
        }
        200..=299 => {
            let mend = "set --gh-webhook-secret: anybody who reaches this address can run commands, and code";
            findings.fault(WEB, format!("{events} takes a delivery without a signature"), mend);
        }
        404 | 405 | 301..=308 => {
            let mend = "the host has to deliver to the server's address and /events, without a redirect";
            findings.fault(WEB, format!("{events} answers {status}"), mend);
        }
        _ => {
            findings.fault(WEB, format!("{events} answers {status}"), "see the server's log, then the load balancer's")
        }
    }
}

async fn pages(client: &Client, settings: &Settings, asked: &Asked, findings: &mut Findings) {
    let url = format!("{}/", settings.atlantis_url);
    let answer = match client.get(&url).send().await {
        Ok(answer) => answer,
        // The check of `/healthz` has reported it.
        Err(_) => return,
    };
    let status = answer.status().as_u16();
    match (is_sign_in(&answer), status) {
        (true, _) => findings.fine(WEB, format!("{url} leads to Google's sign-in (Identity-Aware Proxy)")),
        (false, _) if asked.expects_iap(settings) => {
            let mend = "switch Identity-Aware Proxy on for the backend (or service) of the pages: terraform/iap.tf";
            findings.fault(
                WEB,
                format!("{url} answers {status} and not with the redirect of Identity-Aware Proxy"),
                mend,
            );
        }
        (false, 401 | 403) => findings.fine(WEB, format!("{url} asks who you are ({status})")),
        (false, 200) if is_loopback(&url) => findings.fine(WEB, format!("{url} answers this machine")),
        (false, 200) if settings.allow_unauthenticated_pages => {
            let mend = "leave --allow-unauthenticated-pages out, unless a proxy before it asks who people are";
            findings.warn(WEB, format!("{url} is open to everybody who reaches it"), mend);
        }
        (false, 200) => {
            let mend = "set --web-basic-auth, or put a proxy that asks who people are before it";
            findings.fault(WEB, format!("{url} is open to everybody who reaches it"), mend);
        }
        (false, _) => findings.warn(WEB, format!("{url} answers {status}"), "see the server's log"),
    }
}

fn is_sign_in(answer: &Response) -> bool {
    let location = answer.headers().get("location").and_then(|location| location.to_str().ok());
    answer.status().is_redirection() && location.is_some_and(|location| location.starts_with(SIGN_IN))
}

/// Returns the error's causes in one line, without the address.
fn explain(error: reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "timed out".to_owned() } else { "no answer".to_owned() };
    let error = error.without_url();
    let mut cause = std::error::Error::source(&error);
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}
