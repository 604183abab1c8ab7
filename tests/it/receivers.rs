//! Receivers of notifications that refuse what the services refuse: Teams, Google Chat and Pub/Sub on one port, and a mail server
//! (`mail`). Limits are those that the services document.

pub(crate) mod mail;

use axum::body::Bytes;
use axum::extract::State;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Microsoft, "Limits and specifications for Microsoft Teams", messages: about 28 KB.
const TEAMS_MAX: usize = 28 * 1024;
/// Google Chat API, `spaces.messages.create`: "The maximum message size, including text and cards, is 32,000 bytes."
const CHAT_MAX: usize = 32_000;
/// The same, `thread.threadKey`: up to 4000 characters.
const THREAD_KEY_MAX: usize = 4000;
/// Pub/Sub, "Quotas and limits", resource limits: size of a publish request, attributes of a message, and bytes of a key and of a value.
const PUBLISH_MAX: usize = 10_000_000;
const ATTRIBUTES_MAX: (usize, usize, usize) = (100, 256, 1024);

/// One message that a service has taken.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) service: &'static str,
    pub(crate) body: Value,
    pub(crate) query: BTreeMap<String, String>,
}

/// The services. Each refusal is kept for the test.
#[derive(Clone, Default)]
pub(crate) struct Services {
    taken: Arc<Mutex<Vec<Taken>>>,
    refused: Arc<Mutex<Vec<String>>>,
    /// Status of every answer from now on; 0 for the usual ones.
    answer: Arc<Mutex<u16>>,
    seen: Arc<Mutex<usize>>,
}

impl Services {
    pub(crate) fn serve(&self, listener: std::net::TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = axum::Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }

    pub(crate) fn answers(&self, status: u16) {
        *self.answer.lock().unwrap() = status;
    }

    /// Number of requests so far.
    pub(crate) fn seen(&self) -> usize {
        *self.seen.lock().unwrap()
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }

    /// Returns the messages that this service has taken; fails if any service has refused one.
    pub(crate) fn by(&self, service: &str) -> Vec<Taken> {
        assert_eq!(*self.refused.lock().unwrap(), Vec::<String>::new());
        self.taken().into_iter().filter(|taken| taken.service == service).collect()
    }
}

async fn take(
    State(services): State<Services>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, axum::Json<Value>) {
    *services.seen.lock().unwrap() += 1;
    let forced = *services.answer.lock().unwrap();
    if forced > 0 {
        return (StatusCode::from_u16(forced).unwrap(), axum::Json(json!({"error": {"message": "forced"}})));
    }
    let url = url::Url::parse(&format!("http://host{uri}")).unwrap();
    let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    let path = uri.path().to_owned();
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (service, judged) = if path == "/workflows/SECRET" {
        ("teams", teams(&headers, &body, &json))
    } else if path == "/v1/spaces/AAA/messages" {
        ("google_chat", google_chat(&query, &body, &json))
    } else if path.ends_with(":publish") {
        ("pubsub", publish(&path, &body, &json))
    } else if path.ends_with(":testIamPermissions") {
        return (StatusCode::OK, axum::Json(json!({"permissions": json["permissions"]})));
    } else if path.ends_with("/auth.test") {
        return (StatusCode::OK, axum::Json(json!({"ok": true, "user": "tidelock", "team": "acme"})));
    } else if path.ends_with("/chat.postMessage") {
        ("slack", Ok((200, json!({"ok": true}))))
    } else {
        ("http", Ok((200, json!({}))))
    };
    match judged {
        Ok((status, answer)) => {
            let mut taken = services.taken.lock().unwrap();
            // "Specifying an existing request ID returns the message created with that ID instead of creating a new message."
            let is_known =
                |known: &Taken| service == "google_chat" && known.query.get("requestId") == query.get("requestId");
            if !taken.iter().any(is_known) {
                taken.push(Taken { service, body: json, query });
            }
            (StatusCode::from_u16(status).unwrap(), axum::Json(answer))
        }
        Err((status, why)) => {
            services.refused.lock().unwrap().push(format!("{service}: {why}"));
            (StatusCode::from_u16(status).unwrap(), axum::Json(json!({"error": {"code": status, "message": why}})))
        }
    }
}

type Judged = Result<(u16, Value), (u16, String)>;

fn refused<T>(status: u16, why: impl Into<String>) -> Result<T, (u16, String)> {
    Err((status, why.into()))
}

/// A workflow "Post to a channel when a webhook request is received": takes a message with adaptive cards, and answers 202.
fn teams(headers: &HeaderMap, body: &[u8], json: &Value) -> Judged {
    let charset = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Without a charset, the service counts two bytes for each character.
    let size = if charset.contains("charset=utf-8") { body.len() } else { body.len() * 2 };
    if size > TEAMS_MAX {
        return refused(413, "the message is too large");
    }
    if json["type"] != "message" {
        return refused(400, "not a message");
    }
    for attachment in json["attachments"].as_array().into_iter().flatten() {
        let card = &attachment["content"];
        if attachment["contentType"] != "application/vnd.microsoft.card.adaptive" || card["type"] != "AdaptiveCard" {
            return refused(400, "not an adaptive card");
        }
        for block in card["body"].as_array().into_iter().flatten() {
            let runs = block["inlines"].as_array().cloned().unwrap_or_default();
            if block["type"] != "RichTextBlock" || runs.iter().any(|run| !run["text"].is_string()) {
                return refused(400, format!("a block is none of this test: {block}"));
            }
        }
        if card["body"].as_array().is_none_or(Vec::is_empty) || !card["msteams"].is_null() {
            return refused(400, "a card is empty, or has entities");
        }
    }
    Ok((202, Value::Null))
}

/// `spaces.messages.create` with the key and the token of a webhook.
fn google_chat(query: &BTreeMap<String, String>, body: &[u8], json: &Value) -> Judged {
    if !(query.contains_key("key") && query.contains_key("token")) {
        return refused(401, "no key or token");
    }
    if body.len() > CHAT_MAX {
        return refused(400, "the message is too long");
    }
    let known = ["text", "fallbackText", "cardsV2", "thread"];
    if let Some(other) =
        json.as_object().into_iter().flat_map(|all| all.keys()).find(|key| !known.contains(&key.as_str()))
    {
        return refused(400, format!("Unknown name {other:?}"));
    }
    let card = &json["cardsV2"][0]["card"];
    let widgets = card["sections"][0]["widgets"].as_array().cloned().unwrap_or_default();
    if widgets.is_empty() || widgets.len() > 100 || !card["header"]["title"].is_string() {
        return refused(400, "a card needs a title and 1 to 100 widgets");
    }
    if json["thread"]["threadKey"].as_str().is_some_and(|key| key.chars().count() > THREAD_KEY_MAX) {
        return refused(400, "the thread key is too long");
    }
    Ok((200, json!({"name": "spaces/AAA/messages/1"})))
}

/// `projects.topics.publish`.
fn publish(path: &str, body: &[u8], json: &Value) -> Judged {
    if path != "/v1/projects/acme-infra/topics/tide:publish" {
        return refused(404, "Resource not found");
    }
    let messages = json["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() || body.len() > PUBLISH_MAX {
        return refused(400, "no message, or more than 10 MB");
    }
    for message in messages {
        let data = BASE64_STANDARD.decode(message["data"].as_str().unwrap_or_default());
        let attributes = message["attributes"].as_object().cloned().unwrap_or_default();
        if data.is_err() || (data.is_ok_and(|data| data.is_empty()) && attributes.is_empty()) {
            return refused(400, "data is no base64, or there is nothing in it");
        }
        let (most, key_max, value_max) = ATTRIBUTES_MAX;
        let is_sound = |key: &str, value: &Value| {
            (1..=key_max).contains(&key.len()) && value.as_str().is_some_and(|text| text.len() <= value_max)
        };
        if attributes.len() > most || attributes.iter().any(|(key, value)| !is_sound(key, value)) {
            return refused(400, "an attribute is too long, or no text");
        }
    }
    Ok((200, json!({"messageIds": ["1"]})))
}
