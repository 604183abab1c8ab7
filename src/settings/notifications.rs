//! Reads `webhooks` of the config file and the related settings: the receivers of notifications besides the pull request.

use super::addresses;
use super::read::{WEBHOOKS, WebhookEntry};
use super::typed::Reader;
use http::{HeaderName, HeaderValue};
use regex::Regex;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::sync::Arc;

/// Keys that an entry may have.
const KEYS: [&str; 6] = ["event", "kind", "channel", "url", "workspace-regex", "branch-regex"];
/// Maximum number of entries.
const MOST: usize = 100;

/// Receivers of notifications.
#[derive(Default)]
pub struct NotificationSettings {
    /// Receivers in the order of the file.
    pub receivers: Vec<NotificationReceiver>,
    /// `slack-token`.
    pub slack_token: Option<SecretString>,
    /// `slack-api-url`, without a trailing slash.
    pub slack_api_url: String,
    /// `webhook-http-headers`, on every HTTP notification.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// One entry of `webhooks`.
#[derive(Debug, Clone)]
pub struct NotificationReceiver {
    /// Event that it is notified of.
    pub event: NotificationEvent,
    /// Address of its notifications.
    pub address: NotificationAddress,
    /// Workspaces that it is notified of.
    pub workspace: Regex,
    /// Base branches that it is notified of.
    pub branch: Regex,
}

/// Event that causes a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationEvent {
    /// End of the apply of a project.
    Apply,
    /// Drift that a detection found.
    Drift,
}

/// Address of a receiver.
#[derive(Debug, Clone)]
pub enum NotificationAddress {
    /// A channel of Slack.
    Slack {
        /// Its name or ID.
        channel: String,
    },
    /// An address that takes JSON.
    Http {
        /// URL, which may contain a secret.
        url: SecretString,
    },
}

/// Reads all entries, and reports their mistakes.
pub(super) fn read(r: &mut Reader) -> Arc<NotificationSettings> {
    let slack_token = r.secret("slack-token");
    let slack_api_url = addresses::address(&r.text("slack-api-url")).map_err(|what| r.wrong("slack-api-url", what));
    let headers = headers(r, "webhook-http-headers");
    let entries = std::mem::take(&mut r.values.webhooks);
    if entries.len() > MOST {
        r.wrong(WEBHOOKS, format!("has more than {MOST} entries"));
    }
    let mut receivers = Vec::new();
    for (number, entry) in entries.iter().take(MOST).enumerate() {
        match receiver(entry, slack_token.as_ref()) {
            Ok(receiver) => receivers.push(receiver),
            Err(what) => r.wrong(WEBHOOKS, format!("has an entry, number {}, that {what}", number + 1)),
        }
    }
    for receiver in &receivers {
        if let NotificationAddress::Http { url } = &receiver.address {
            r.environment.secrets.push(url.clone());
        }
    }
    let wants_drift = receivers.iter().any(|receiver| receiver.event == NotificationEvent::Drift);
    // A repos.yaml may have a schedule of detections.
    let may_look = ["repo-config", "repo-config-json"].iter().any(|name| r.is_given(name));
    if wants_drift && !r.switch("enable-drift-detection") && !may_look {
        r.warn(WEBHOOKS, "has an entry with event: drift, which has no effect without enable-drift-detection");
    }
    if receivers.is_empty() {
        for name in
            ["slack-token", "webhook-http-headers"].into_iter().filter(|name| r.is_given(name)).collect::<Vec<_>>()
        {
            r.warn(name, "has no effect: it matters with webhooks in the config file alone");
        }
    }
    Arc::new(NotificationSettings { receivers, slack_token, slack_api_url: slack_api_url.unwrap_or_default(), headers })
}

/// Parses an entry; the error follows "has an entry that".
fn receiver(entry: &WebhookEntry, slack_token: Option<&SecretString>) -> Result<NotificationReceiver, String> {
    if let Some((key, _)) = entry.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        let shown: String = key.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(format!("has the key {shown:?}: keys are {}", KEYS.join(", ")));
    }
    let text = |key: &str| {
        let found = entry.iter().find(|(known, _)| known == key).and_then(|(_, value)| value.clone());
        found.filter(|value| !value.is_empty())
    };
    let regex = |key: &str| {
        Regex::new(&text(key).unwrap_or_default()).map_err(|_| format!("has a {key} that is no regular expression"))
    };
    let (Some(kind), Some(event)) = (text("kind"), text("event")) else {
        return Err("lacks \"kind\" or \"event\": each entry has to have both".to_owned());
    };
    let event = match event.as_str() {
        "apply" => NotificationEvent::Apply,
        "drift" => NotificationEvent::Drift,
        _ => return Err("has another event than apply and drift".to_owned()),
    };
    let address = match (kind.as_str(), text("channel"), text("url")) {
        ("slack", ..) if slack_token.is_none() => {
            return Err("is of kind slack, and there is no slack-token".to_owned());
        }
        ("slack", Some(channel), _) => NotificationAddress::Slack { channel },
        ("slack", None, _) => return Err("is of kind slack, and has no channel".to_owned()),
        ("http", _, Some(url)) if addresses::address(&url).is_err() => {
            return Err("has a url that does not begin with http:// or https://".to_owned());
        }
        ("http", _, Some(url)) => NotificationAddress::Http { url: url.into() },
        ("http", _, None) => return Err("is of kind http, and has no url".to_owned()),
        _ => return Err("has another kind than slack and http".to_owned()),
    };
    Ok(NotificationReceiver { event, address, workspace: regex("workspace-regex")?, branch: regex("branch-regex")? })
}

/// Reads headers from a JSON object: each value is a text, or a list of texts.
pub(super) fn headers(r: &mut Reader, setting: &str) -> Vec<(HeaderName, HeaderValue)> {
    let Some(text) = r.secret(setting) else { return Vec::new() };
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text.expose_secret()) else {
        r.wrong(setting, "is no JSON object such as {\"Authorization\": \"Bearer TOKEN\"}");
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, value) in object {
        let values = match value {
            Value::Array(values) => values,
            value => vec![value],
        };
        let Ok(name) = name.parse::<HeaderName>() else {
            r.wrong(setting, "has a name that is no header's");
            continue;
        };
        for value in values {
            let Some(text) = value.as_str() else {
                r.wrong(setting, format!("has a value of {name} that is neither a text nor a list of texts"));
                continue;
            };
            match HeaderValue::from_str(text) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    r.environment.secrets.push(text.into());
                    all.push((name.clone(), value));
                }
                Err(_) => r.wrong(setting, format!("has a value of {name} with a character that headers cannot have")),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::{invalid, invalid_file, loaded, loaded_file};
    use super::*;

    const SLACK: &str = "slack-token: xoxb-secret\nwebhooks:\n  - event: apply\n    kind: slack\n    channel: ops\n";

    #[test]
    fn each_form_of_an_entry_is_read() {
        let http = "  - {event: apply, kind: http, url: 'https://example.com/SECRETPATH', workspace-regex: '^prod', branch-regex: main}\n";
        let settings = loaded_file(&format!("{SLACK}{http}"));
        let receivers = &settings.notifications.receivers;
        assert!(matches!(&receivers[0].address, NotificationAddress::Slack { channel } if channel == "ops"));
        assert!(receivers[0].workspace.is_match("anything") && receivers[0].branch.is_match(""));
        assert!(receivers[1].workspace.is_match("production") && !receivers[1].workspace.is_match("dev"));
        assert!(settings.secrets.iter().any(|secret| secret.expose_secret().contains("SECRETPATH")));
        assert_eq!(settings.notifications.slack_api_url, "https://slack.com/api");
        assert!(loaded(&[], &[]).notifications.receivers.is_empty());
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_said_without_its_values() {
        let entry = |text: &str| invalid_file(&format!("slack-token: xoxb\nwebhooks: [{text}]\n"));
        for (text, said) in [
            ("{kind: slack}", "number 1, that lacks \"kind\" or \"event\""),
            ("{kind: slack, event: apply}", "has no channel"),
            ("{kind: http, event: apply}", "has no url"),
            ("{kind: http, event: apply, url: secret.example}", "does not begin with http://"),
            ("{kind: msteams, event: apply, url: x}", "another kind than slack and http"),
            ("{kind: http, event: plan, url: x}", "another event than apply and drift"),
            (
                "{kind: http, event: apply, url: 'http://x', workspace-regex: '('}",
                "workspace-regex that is no regular expression",
            ),
            ("{kind: http, event: apply, uri: secret}", "has the key \"uri\": keys are event, kind"),
        ] {
            let error = entry(text);
            assert!(
                error.contains(said) && error.contains("webhooks in ") && !error.contains("secret"),
                "{text}: {error}"
            );
        }
        assert!(
            invalid_file("webhooks: [{kind: slack, event: apply, channel: x}]\n").contains("there is no slack-token")
        );
        assert!(invalid_file("webhooks: {a: b}\n").contains("is not YAML of the form"));
    }

    #[test]
    fn headers_are_texts_or_lists_of_texts() {
        let of = |json: &str| loaded(&[], &[("ATLANTIS_WEBHOOK_HTTP_HEADERS", json)]).notifications;
        let all = of(r#"{"Authorization": "Bearer x", "X-Many": ["a", "b"]}"#);
        let all: Vec<_> =
            all.headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(all, ["authorization=Bearer x", "x-many=a", "x-many=b"]);
        for json in [r#"["a"]"#, r#"{"a": 1}"#, r#"{"a b": "x"}"#, r#"{"a": [true]}"#, "{", r#"{"a": "x\ny"}"#] {
            let error = invalid(&[], &[("ATLANTIS_WEBHOOK_HTTP_HEADERS", json)]);
            assert!(error.contains("WEBHOOK_HTTP_HEADERS"), "{json}: {error}");
        }
    }
}
