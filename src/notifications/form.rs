//! The forms of a notice: what each kind of receiver takes. Pure functions. Untrusted text is escaped for the form, or is in a place where
//! the receiver shows it as it is.

use super::message;
use super::notice::{EventNotice, Tone};
use crate::settings::NotificationAddress;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Largest value of an attribute of Pub/Sub, in bytes.
const MAX_ATTRIBUTE: usize = 1024;

/// Returns the message to a receiver, as it is recorded.
pub(super) fn of(address: &NotificationAddress, notice: &EventNotice<'_>) -> Value {
    match address {
        NotificationAddress::Slack { channel } => slack(channel, notice),
        NotificationAddress::Http { .. } => notice.json.clone(),
        NotificationAddress::Teams { .. } => teams(notice),
        NotificationAddress::GoogleChat { .. } => google_chat(notice),
        NotificationAddress::PubSub { .. } => pubsub(notice),
        NotificationAddress::Email { .. } => email(notice),
    }
}

fn slack(channel: &str, notice: &EventNotice<'_>) -> Value {
    let attachment = notice.attachment.clone().unwrap_or_else(|| {
        let color = match notice.tone {
            Tone::Good => "good",
            Tone::Neutral => "warning",
            Tone::Bad => "danger",
        };
        let title = message::escaped(&notice.title);
        let link = notice.link().map(|link| format!("<{}|{title}>", message::escaped(link)));
        let field = |title: &str, text: &str| json!({"title": title, "value": message::escaped(text), "short": false});
        let fields: Vec<Value> = notice.facts().map(|fact| field(fact.title, &fact.text)).collect();
        json!({"color": color, "text": link.unwrap_or(title), "fields": fields})
    });
    json!({"channel": channel, "as_user": true, "text": "", "attachments": [attachment]})
}

/// Returns an Adaptive Card. All text is in text runs, in which Teams reads neither Markdown nor mentions; a mention would need an entity in
/// the card besides.
fn teams(notice: &EventNotice<'_>) -> Value {
    let color = match notice.tone {
        Tone::Good => "good",
        Tone::Neutral => "warning",
        Tone::Bad => "attention",
    };
    let run = |text: &str| json!({"type": "TextRun", "text": text});
    let block = |runs: Vec<Value>| json!({"type": "RichTextBlock", "inlines": runs});
    let headline = json!({
        "type": "TextRun", "text": notice.title, "weight": "bolder", "size": "medium", "color": color,
    });
    let mut body = vec![block(vec![headline])];
    body.extend(notice.facts().map(|fact| {
        let title = json!({"type": "TextRun", "text": format!("{}: ", fact.title), "weight": "bolder"});
        block(vec![title, run(&fact.text)])
    }));
    let link = |url: &str| json!([{"type": "Action.OpenUrl", "title": "Open the pull request", "url": url}]);
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "actions": notice.link().map_or_else(|| json!([]), link),
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

/// Returns a card in the thread of the pull request. Texts of cards have HTML's syntax. Headline and fallback text have nothing that could
/// be a link or a mention.
fn google_chat(notice: &EventNotice<'_>) -> Value {
    let plain = |text: &str| text.replace(['<', '>'], " ");
    let html = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut widgets: Vec<Value> = notice
        .facts()
        .map(|fact| json!({"decoratedText": {"topLabel": fact.title, "text": html(&fact.text), "wrapText": true}}))
        .collect();
    widgets.extend(notice.link().map(|url| {
        let button = json!({"text": "Open the pull request", "onClick": {"openLink": {"url": url}}});
        json!({"buttonList": {"buttons": [button]}})
    }));
    let title = plain(&notice.title);
    let mut message = json!({
        "fallbackText": title,
        "cardsV2": [{
            "cardId": "tidelock",
            "card": {"header": {"title": title}, "sections": [{"widgets": widgets}]},
        }],
    });
    if let Some(thread) = notice.thread() {
        message["thread"] = json!({"threadKey": thread});
    }
    message
}

/// Returns the request that publishes what an HTTP address gets, with attributes for filters.
fn pubsub(notice: &EventNotice<'_>) -> Value {
    let data = BASE64_STANDARD.encode(notice.json.to_string());
    let mut attributes = json!({
        "event": notice.event.word(),
        "id": attribute(&format!("{}-{}", notice.event.word(), notice.id)),
        "host": attribute(&notice.repo.host),
        "repository": attribute(&notice.repo.full_name()),
        "base_branch": attribute(notice.base_branch),
    });
    if let Some(pull) = notice.pull {
        attributes["pull_request"] = pull.id.number.to_string().into();
    }
    json!({"messages": [{"data": data, "attributes": attributes}]})
}

/// Returns the beginning of a text that an attribute can hold.
fn attribute(text: &str) -> String {
    let end = (0..=MAX_ATTRIBUTE.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].to_owned()
}

/// Returns subject, text and thread of an e-mail. The header fields are made of them when it is sent.
fn email(notice: &EventNotice<'_>) -> Value {
    let facts = notice.facts().map(|fact| format!("{}: {}", fact.title, fact.text));
    let mut parts = vec![notice.title.clone(), facts.collect::<Vec<_>>().join("\n")];
    parts.extend(notice.link().map(str::to_owned));
    json!({"subject": notice.title, "text": parts.join("\n\n"), "thread": notice.thread()})
}
