//! Sends one notification. It follows no redirect: a configured address must lead nowhere else, such as to a metadata server.

use super::smtp;
use crate::google_api::{GoogleApi, GoogleApiError};
use crate::settings::{NotificationAddress, NotificationSettings};
use crate::store::notifications::PendingNotification;
use http::StatusCode;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use url::{Host, Url};

/// Time limit of one attempt, including the response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
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

/// Address of Pub/Sub.
const PUBSUB: &str = "https://pubsub.googleapis.com";
/// Permission that a publisher needs on its topic.
const PUBLISH: &str = "pubsub.topics.publish";
/// Text in an answer 200 of Teams' older webhooks about a message that was not delivered.
const UNDELIVERED: &str = "Microsoft Teams endpoint returned HTTP error";

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
    pubsub: GoogleApi,
}

/// Published messages.
#[derive(Deserialize)]
struct PublishedMessages {}

/// Permissions that this machine's account has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AccountPermissions {
    permissions: Vec<String>,
}

impl Sender {
    pub(super) fn new(settings: Arc<NotificationSettings>) -> Sender {
        let pubsub = GoogleApi::new("Pub/Sub", PUBSUB, settings.pubsub_endpoint.clone());
        Sender { settings, clients: Default::default(), pubsub }
    }

    /// Makes one attempt to send one notification.
    pub(super) async fn send(&self, address: &NotificationAddress, pending: &PendingNotification) -> Sent {
        match address {
            NotificationAddress::PubSub { topic } => self.publish(topic, &pending.notification.body).await,
            NotificationAddress::Email { to } => match &self.settings.smtp {
                Some(smtp) => smtp::send(smtp, to, pending).await,
                None => Sent::Later("there is no smtp-host".to_owned(), Duration::ZERO),
            },
            _ => match self.request(address, pending).await {
                Ok(request) => match address {
                    NotificationAddress::Slack { .. } => tried(request, over_slack).await,
                    NotificationAddress::Teams { .. } => tried(request, over_teams).await,
                    _ => tried(request, over_http).await,
                },
                Err(why) => Sent::Later(why, Duration::ZERO),
            },
        }
    }

    /// Returns the request to a receiver with a URL.
    async fn request(
        &self,
        address: &NotificationAddress,
        pending: &PendingNotification,
    ) -> Result<RequestBuilder, String> {
        let (id, body) = (&pending.notification.id, &pending.notification.body);
        let empty = SecretString::default();
        let url = address.url().unwrap_or(&empty).expose_secret();
        match address {
            NotificationAddress::Slack { .. } => {
                let request = self.post(&format!("{}/chat.postMessage", self.settings.slack_api_url)).await?;
                let token = self.settings.slack_token.as_ref().map(|token| token.expose_secret().trim());
                Ok(request.bearer_auth(token.unwrap_or_default()).json(body))
            }
            // Without a charset, Teams counts two bytes for each character.
            NotificationAddress::Teams { .. } => {
                let request = self.post(url).await?.header(CONTENT_TYPE, "application/json; charset=utf-8");
                Ok(request.body(body.to_string()))
            }
            NotificationAddress::GoogleChat { .. } => Ok(self.post(&in_thread(url, id)?).await?.json(body)),
            _ => {
                let headers = self.settings.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
                let request = self.post(url).await?;
                let request = headers.fold(request, |request, (name, value)| request.header(name, value));
                Ok(request.header(ID, id).json(body))
            }
        }
    }

    async fn publish(&self, topic: &str, body: &Value) -> Sent {
        match self
            .pubsub
            .call::<PublishedMessages, _>(Method::POST, &format!("v1/{topic}:publish"), &[], Some(body))
            .await
        {
            Ok(_) => Sent::Taken,
            Err(GoogleApiError::Refused { status, message, .. }) => match status.as_u16() {
                // Errors that the operator can correct.
                401 | 403 | 404 => Sent::Later(format!("{status}: {message}"), Duration::ZERO),
                _ => Sent::Refused(format!("{status}: {message}")),
            },
            Err(error) => Sent::Later(error.to_string(), Duration::ZERO),
        }
    }

    /// Returns an error unless this machine's account may publish to the topic.
    pub(super) async fn may_publish(&self, topic: &str) -> Result<(), String> {
        let (path, body) = (format!("v1/{topic}:testIamPermissions"), json!({"permissions": [PUBLISH]}));
        let asked = self.pubsub.call::<AccountPermissions, _>(Method::POST, &path, &[], Some(&body)).await;
        match asked.map_err(|error| error.to_string())?.permissions.iter().any(|known| known == PUBLISH) {
            true => Ok(()),
            false => Err(format!("this server's account lacks {PUBLISH} there")),
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

/// Judges the response of Teams, whose older webhooks answer 200 for messages that they could not deliver.
fn over_teams(answer: ReceiverAnswer) -> Sent {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    match text.split_once(UNDELIVERED) {
        Some((_, error)) if answer.status.is_success() && error.trim_start().starts_with("413") => {
            Sent::Refused("Teams answers that the message is too large".to_owned())
        }
        Some(_) if answer.status.is_success() => {
            Sent::Later(format!("Teams answers: {}", response_excerpt(text.as_bytes())), answer.wait)
        }
        _ => over_http(answer),
    }
}

/// Returns the URL of a webhook of Google Chat with the parameters that answer in the thread and that make the message unique.
fn in_thread(url: &str, id: &str) -> Result<String, String> {
    let mut url = Url::parse(url).map_err(|_| "its url is none".to_owned())?;
    for (name, value) in [("messageReplyOption", "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"), ("requestId", id)] {
        if !url.query_pairs().any(|(known, _)| known == name) {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    Ok(url.into())
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
pub(super) fn response_excerpt(body: &[u8]) -> String {
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
    fn teams_is_not_believed_where_it_answers_200_for_an_error() {
        assert_eq!(over_teams(answered(202, "")), Sent::Taken);
        assert_eq!(over_teams(answered(200, "1")), Sent::Taken);
        let said = |status: u16| {
            format!("Webhook message delivery failed with error: {UNDELIVERED} {status} with ContextId x")
        };
        assert!(matches!(over_teams(answered(200, &said(429))), Sent::Later(..)));
        assert!(matches!(over_teams(answered(200, &said(413))), Sent::Refused(_)));
        assert!(matches!(over_teams(answered(400, "bad card")), Sent::Refused(_)));
    }

    #[test]
    fn a_message_of_google_chat_is_unique_and_in_its_thread() {
        let url = in_thread("https://chat.googleapis.com/v1/spaces/A/messages?key=K&token=T", "turn-1").unwrap();
        let expected = "https://chat.googleapis.com/v1/spaces/A/messages?key=K&token=T\
            &messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD&requestId=turn-1";
        assert_eq!(url, expected);
        let own = in_thread("https://chat.example/?messageReplyOption=REPLY_MESSAGE_OR_FAIL", "a").unwrap();
        assert_eq!(own, "https://chat.example/?messageReplyOption=REPLY_MESSAGE_OR_FAIL&requestId=a");
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
