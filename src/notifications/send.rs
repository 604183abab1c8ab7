//! Sends one notification. It follows no redirect: a configured address must lead nowhere else, such as to a metadata server.

use crate::domain::notification::Notification;
use crate::settings::{NotificationAddress, NotificationSettings};
use http::StatusCode;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use url::{Host, Url};

/// Time limit of one attempt, including the response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of a response.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum number of characters of a response that are logged.
const MAX_SAID: usize = 200;
/// Longest wait that a receiver may ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Header with the id of a message, which is the same in every attempt.
const ID: &str = "idempotency-key";
/// Temporary errors of Slack, ...
const PASSING: [&str; 6] =
    ["ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"];
/// ... and errors that no change of the token or the channel corrects.
const HOPELESS: [&str; 4] = ["msg_too_long", "no_text", "invalid_attachments", "too_many_attachments"];

/// Result of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The receiver accepted it.
    Taken,
    /// The receiver will never accept it.
    Refused(String),
    /// The receiver may accept it later, after this wait at least.
    Later(String, Duration),
}

/// Sends to all receivers.
pub(super) struct Sender {
    settings: Arc<NotificationSettings>,
    /// One client for the proxies of the environment, and one without proxies for this machine.
    clients: [OnceCell<Client>; 2],
}

impl Sender {
    pub(super) fn new(settings: Arc<NotificationSettings>) -> Sender {
        Sender { settings, clients: Default::default() }
    }

    /// Makes one attempt to send one notification.
    pub(super) async fn send(&self, address: &NotificationAddress, notification: &Notification) -> Sent {
        match address {
            NotificationAddress::Http { url } => match self.post(url.expose_secret()).await {
                Ok(request) => {
                    let headers = self.settings.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
                    let request = headers.fold(request, |request, (name, value)| request.header(name, value));
                    tried(request.header(ID, &notification.id).json(&notification.body), over_http).await
                }
                Err(why) => Sent::Later(why, Duration::ZERO),
            },
            NotificationAddress::Slack { .. } => {
                let url = format!("{}/chat.postMessage", self.settings.slack_api_url);
                let token = self.settings.slack_token.as_ref().map(|token| token.expose_secret().trim());
                match self.post(&url).await {
                    Ok(request) => {
                        tried(request.bearer_auth(token.unwrap_or_default()).json(&notification.body), over_slack).await
                    }
                    Err(why) => Sent::Later(why, Duration::ZERO),
                }
            }
        }
    }

    /// Checks the token; returns the name of its account at Slack, or Slack's error.
    pub(super) async fn slack_account(&self) -> Result<String, String> {
        let token = self.settings.slack_token.as_ref().map(|token| token.expose_secret().trim()).unwrap_or_default();
        let request = self.post(&format!("{}/auth.test", self.settings.slack_api_url)).await?;
        let ReceiverAnswer { status, body, .. } = exchange(request.bearer_auth(token)).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |key: &str| response_excerpt(answer[key].as_str().unwrap_or_default().as_bytes());
        match answer["ok"] == true {
            true => Ok(format!("{} of {}", text("user"), text("team"))),
            false => Err(format!("Slack answers {status} {}", text("error"))),
        }
    }

    async fn post(&self, url: &str) -> Result<RequestBuilder, String> {
        let direct = is_loopback(url);
        let make = || async move {
            let build = move || if direct { builder().no_proxy().build() } else { builder().build() };
            let built = tokio::task::spawn_blocking(build).await;
            built.map_err(|error| error.to_string())?.map_err(|error| error.without_url().to_string())
        };
        let client = self.clients[usize::from(direct)].get_or_try_init(make).await?;
        Ok(client.post(url).timeout(TIMEOUT))
    }
}

fn builder() -> ClientBuilder {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
}

fn is_loopback(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Response of a receiver.
struct ReceiverAnswer {
    status: StatusCode,
    /// Shortest wait before the next attempt.
    wait: Duration,
    /// Beginning of the body.
    body: Vec<u8>,
}

async fn tried(request: RequestBuilder, judge: impl FnOnce(ReceiverAnswer) -> Sent) -> Sent {
    match exchange(request).await {
        Ok(answered) => judge(answered),
        Err(why) => Sent::Later(why, Duration::ZERO),
    }
}

/// Judges the response of an HTTP address: any 2xx is a success.
fn over_http(ReceiverAnswer { status, wait, body }: ReceiverAnswer) -> Sent {
    let why = format!("{status}: {}", response_excerpt(&body));
    match status.as_u16() {
        200..=299 => Sent::Taken,
        300..=399 => Sent::Later(format!("{status}: redirects are not followed"), wait),
        // Errors that the operator can correct.
        401 | 403 | 404 | 408 | 425 | 429 | 500..=599 => Sent::Later(why, wait),
        _ => Sent::Refused(why),
    }
}

/// Judges the response of Slack, whose JSON says whether it accepted the message.
fn over_slack(ReceiverAnswer { status, wait, body }: ReceiverAnswer) -> Sent {
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() && answer["ok"] == true {
        return Sent::Taken;
    }
    match answer["error"].as_str().unwrap_or_default() {
        "" => Sent::Later(format!("Slack answers {status}"), wait),
        error if HOPELESS.contains(&error) => Sent::Refused(format!("Slack says {error}")),
        error if PASSING.contains(&error) => Sent::Later(format!("Slack says {error}"), wait),
        error => {
            let error = response_excerpt(error.as_bytes());
            Sent::Later(format!("Slack says {error}: look at slack-token, and whether its app is in the channel"), wait)
        }
    }
}

async fn exchange(request: RequestBuilder) -> Result<ReceiverAnswer, String> {
    let broke = |error: reqwest::Error| {
        let error = error.without_url();
        match error.is_timeout() {
            true => "it did not answer in time".to_owned(),
            false => format!("no answer: {:#}", anyhow::Error::new(error)),
        }
    };
    let mut response = request.send().await.map_err(broke)?;
    let (status, wait) = (response.status(), wait(&response));
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broke)? {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - body.len())]);
        if body.len() == MAX_ANSWER {
            break;
        }
    }
    Ok(ReceiverAnswer { status, wait, body })
}

fn wait(response: &Response) -> Duration {
    let named = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    named.map_or(Duration::ZERO, Duration::from_secs).min(MAX_WAIT)
}

/// Returns the beginning of a response in one line.
fn response_excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> ReceiverAnswer {
        let (status, wait) = (StatusCode::from_u16(status).unwrap(), Duration::from_secs(7));
        ReceiverAnswer { status, wait, body: body.into() }
    }

    #[test]
    fn what_may_be_mended_is_tried_again() {
        for status in [200, 202, 204] {
            assert_eq!(over_http(answered(status, "")), Sent::Taken, "{status}");
        }
        for status in [301, 307, 401, 403, 404, 429, 500, 503] {
            assert!(matches!(over_http(answered(status, "")), Sent::Later(_, wait) if wait.as_secs() == 7), "{status}");
        }
        for status in [400, 410, 413, 422] {
            assert_eq!(
                over_http(answered(status, "a\n b\u{7}")),
                Sent::Refused(format!("{}: a b", StatusCode::from_u16(status).unwrap()))
            );
        }
    }

    #[test]
    fn slack_is_believed_by_what_it_says() {
        assert_eq!(over_slack(answered(200, r#"{"ok": true}"#)), Sent::Taken);
        let later = |body: &str| match over_slack(answered(200, body)) {
            Sent::Later(why, _) => why,
            other => panic!("{body}: {other:?}"),
        };
        assert_eq!(later(r#"{"ok": false, "error": "ratelimited"}"#), "Slack says ratelimited");
        assert!(later(r#"{"ok": false, "error": "invalid_auth"}"#).contains("slack-token"));
        assert_eq!(later("<html>"), "Slack answers 200 OK");
        let hopeless = over_slack(answered(200, r#"{"ok": false, "error": "msg_too_long"}"#));
        assert_eq!(hopeless, Sent::Refused("Slack says msg_too_long".into()));
    }
}
