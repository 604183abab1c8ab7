//! Reads `webhooks` of the config file and the related settings: the receivers of notifications besides the pull request.

use super::addresses;
use super::bucket::double;
use super::read::{WEBHOOKS, WebhookEntry};
use super::smtp::{self, SmtpSettings};
use super::typed::Reader;
use http::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Mailboxes};
use regex::Regex;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Keys that an entry may have.
const KEYS: [&str; 8] = ["event", "kind", "channel", "url", "topic", "to", "workspace-regex", "branch-regex"];
/// Kinds of receivers, for messages.
const KINDS: &str = "slack, http, teams, google_chat, pubsub and email";
/// Maximum number of entries.
const MOST: usize = 100;
/// Maximum number of e-mail addresses of one entry.
const MOST_ADDRESSES: usize = 20;

rows! {
    static NOTIFICATIONS {
        Tidelock {
            /// Age of a project lock after which receivers of event: lock_overdue are notified; docs/notifications.md.
            lock_overdue_after: Duration = "168h",
            /// For tests: http://LOOPBACK:PORT of a double of Pub/Sub.
            pubsub_endpoint: Text,
        }
    }
}

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
    /// Mail server for e-mail.
    pub smtp: Option<SmtpSettings>,
    /// Address of a double of Pub/Sub, in tests.
    pub pubsub_endpoint: Option<String>,
    /// `lock-overdue-after`.
    pub lock_overdue_after: Duration,
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
    /// A pull request that waited for projects has its turn.
    Turn,
    /// A plan or an apply failed.
    Failure,
    /// Approvals that were given do not count any more.
    ApprovalLapsed,
    /// A project is locked for a long time.
    LockOverdue,
}

impl NotificationEvent {
    /// All events.
    pub const ALL: [NotificationEvent; 6] = [
        NotificationEvent::Apply,
        NotificationEvent::Drift,
        NotificationEvent::Turn,
        NotificationEvent::Failure,
        NotificationEvent::ApprovalLapsed,
        NotificationEvent::LockOverdue,
    ];

    /// Returns the word for it in the config file and in messages.
    pub fn word(self) -> &'static str {
        match self {
            NotificationEvent::Apply => "apply",
            NotificationEvent::Drift => "drift",
            NotificationEvent::Turn => "turn",
            NotificationEvent::Failure => "failure",
            NotificationEvent::ApprovalLapsed => "approval_lapsed",
            NotificationEvent::LockOverdue => "lock_overdue",
        }
    }
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
    /// A workflow of Microsoft Teams.
    Teams {
        /// URL of its trigger, which is a secret.
        url: SecretString,
    },
    /// A space of Google Chat.
    GoogleChat {
        /// URL of its webhook, which is a secret.
        url: SecretString,
    },
    /// A topic of Pub/Sub.
    PubSub {
        /// `projects/PROJECT/topics/TOPIC`.
        topic: String,
    },
    /// E-mail.
    Email {
        /// The addresses.
        to: Vec<Mailbox>,
    },
}

impl NotificationAddress {
    /// Returns its URL, if it has one.
    pub fn url(&self) -> Option<&SecretString> {
        match self {
            NotificationAddress::Http { url }
            | NotificationAddress::Teams { url }
            | NotificationAddress::GoogleChat { url } => Some(url),
            NotificationAddress::Slack { .. }
            | NotificationAddress::PubSub { .. }
            | NotificationAddress::Email { .. } => None,
        }
    }
}

/// Reads all entries, and reports their mistakes.
pub(super) fn read(r: &mut Reader) -> Arc<NotificationSettings> {
    let slack_token = r.secret("slack-token");
    let slack_api_url = addresses::address(&r.text("slack-api-url")).map_err(|what| r.wrong("slack-api-url", what));
    let headers = headers(r, "webhook-http-headers");
    let smtp = smtp::read(r);
    let (pubsub_endpoint, lock_overdue_after) = (double(r, "pubsub-endpoint"), r.duration("lock-overdue-after"));
    let entries = std::mem::take(&mut r.values.webhooks);
    if entries.len() > MOST {
        r.wrong(WEBHOOKS, format!("has more than {MOST} entries"));
    }
    let mut receivers = Vec::new();
    for (number, entry) in entries.iter().take(MOST).enumerate() {
        let others = OtherSettings { has_slack_token: slack_token.is_some(), has_smtp: r.is_given("smtp-host") };
        match receiver(entry, others) {
            Ok(receiver) => receivers.push(receiver),
            Err(what) => r.wrong(WEBHOOKS, format!("has an entry, number {}, that {what}", number + 1)),
        }
    }
    r.environment.secrets.extend(receivers.iter().filter_map(|receiver| receiver.address.url().cloned()));
    warn_of_effectless(r, &receivers);
    Arc::new(NotificationSettings {
        receivers,
        slack_token,
        slack_api_url: slack_api_url.unwrap_or_default(),
        headers,
        smtp,
        pubsub_endpoint,
        lock_overdue_after,
    })
}

fn warn_of_effectless(r: &mut Reader, receivers: &[NotificationReceiver]) {
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
    if !receivers.iter().any(|receiver| matches!(receiver.address, NotificationAddress::Email { .. })) {
        for name in smtp::NAMES.into_iter().filter(|name| r.is_given(name)).collect::<Vec<_>>() {
            r.warn(name, "has no effect: it matters for an entry of webhooks with kind: email");
        }
    }
    let is_overdue = |receiver: &NotificationReceiver| receiver.event == NotificationEvent::LockOverdue;
    if r.is_given("lock-overdue-after") && !receivers.iter().any(is_overdue) {
        r.warn("lock-overdue-after", "has no effect: it matters for an entry of webhooks with event: lock_overdue");
    }
}

/// Other settings that entries need.
#[derive(Clone, Copy)]
struct OtherSettings {
    has_slack_token: bool,
    has_smtp: bool,
}

/// Parses an entry; the error follows "has an entry that".
fn receiver(entry: &WebhookEntry, others: OtherSettings) -> Result<NotificationReceiver, String> {
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
    let Some(event) = NotificationEvent::ALL.into_iter().find(|known| known.word() == event) else {
        let words = NotificationEvent::ALL.map(NotificationEvent::word).join(", ");
        return Err(format!("has an unknown event: events are {words}"));
    };
    let address = address(&kind, text, others)?;
    Ok(NotificationReceiver { event, address, workspace: regex("workspace-regex")?, branch: regex("branch-regex")? })
}

/// Reads the address of an entry of this kind.
fn address(
    kind: &str,
    text: impl Fn(&str) -> Option<String>,
    others: OtherSettings,
) -> Result<NotificationAddress, String> {
    let needed = |key: &str| text(key).ok_or_else(|| format!("is of kind {kind}, and has no {key}"));
    match kind {
        "slack" if !others.has_slack_token => Err("is of kind slack, and there is no slack-token".to_owned()),
        "slack" => Ok(NotificationAddress::Slack { channel: needed("channel")? }),
        "http" => {
            let url = needed("url")?;
            addresses::address(&url).map_err(|_| "has a url that does not begin with http:// or https://")?;
            Ok(NotificationAddress::Http { url: url.into() })
        }
        "teams" => Ok(NotificationAddress::Teams { url: webhook(&needed("url")?)? }),
        "google_chat" => Ok(NotificationAddress::GoogleChat { url: webhook(&needed("url")?)? }),
        "pubsub" => {
            let topic = needed("topic")?;
            match is_topic(&topic) {
                true => Ok(NotificationAddress::PubSub { topic }),
                false => Err("has a topic that is not of the form projects/PROJECT/topics/TOPIC".to_owned()),
            }
        }
        "email" if !others.has_smtp => Err("is of kind email, and there is no smtp-host".to_owned()),
        "email" => {
            let mailboxes: Option<Mailboxes> = needed("to")?.parse().ok();
            let to: Vec<Mailbox> = mailboxes.into_iter().flatten().collect();
            match (1..=MOST_ADDRESSES).contains(&to.len()) {
                true => Ok(NotificationAddress::Email { to }),
                false => Err(format!("has a to that is no list of 1 to {MOST_ADDRESSES} e-mail addresses with commas")),
            }
        }
        _ => Err(format!("has an unknown kind: kinds are {KINDS}")),
    }
}

/// Reads the secret URL of a chat's webhook. It is an `https` address, or one of this machine for tests.
fn webhook(text: &str) -> Result<SecretString, String> {
    let url = Url::parse(text).ok().filter(Url::has_host);
    match url.is_some_and(|url| url.scheme() == "https" || (url.scheme() == "http" && addresses::is_loopback(&url))) {
        true => Ok(text.into()),
        false => Err("has a url that does not begin with https://".to_owned()),
    }
}

/// Returns true for `projects/PROJECT/topics/TOPIC`, with characters that Google allows in them.
fn is_topic(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let is_id = |id: &str, allowed: &[u8]| {
        (3..=255).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || allowed.contains(&byte))
    };
    matches!(parts[..], ["projects", project, "topics", topic] if is_id(project, b"-.:") && is_id(topic, b"-_.~+%"))
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
            ("{kind: msteams, event: apply, url: x}", "has an unknown kind: kinds are slack, http, teams, google_chat"),
            ("{kind: http, event: plan, url: x}", "has an unknown event: events are apply, drift, turn, failure"),
            ("{kind: teams, event: apply}", "is of kind teams, and has no url"),
            ("{kind: teams, event: apply, url: 'http://secret.example'}", "does not begin with https://"),
            ("{kind: google_chat, event: turn, url: secret}", "does not begin with https://"),
            ("{kind: pubsub, event: turn}", "is of kind pubsub, and has no topic"),
            ("{kind: pubsub, event: turn, topic: projects/secret}", "not of the form projects/PROJECT/topics/TOPIC"),
            ("{kind: pubsub, event: turn, topic: 'projects/abc/topics/a?secret'}", "not of the form"),
            ("{kind: email, event: turn, to: a@b.c}", "there is no smtp-host"),
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
    fn each_kind_and_event_is_read() {
        let urls = "https://prod.example/workflows/TEAMSSECRET";
        let chat = "https://chat.googleapis.com/v1/spaces/A/messages?key=K&token=CHATSECRET";
        let settings = loaded_file(&format!(
            "smtp-host: mail.acme.com\nsmtp-from: tidelock@acme.com\nlock-overdue-after: 72h\nwebhooks:\n\
             - {{event: turn, kind: teams, url: '{urls}'}}\n- {{event: failure, kind: google_chat, url: '{chat}'}}\n\
             - {{event: approval_lapsed, kind: pubsub, topic: projects/acme-infra/topics/tide}}\n\
             - {{event: lock_overdue, kind: email, to: 'Ops <ops@acme.com>, b@acme.com'}}\n"
        ));
        let all = &settings.notifications.receivers;
        let words: Vec<&str> = all.iter().map(|receiver| receiver.event.word()).collect();
        assert_eq!(words, ["turn", "failure", "approval_lapsed", "lock_overdue"]);
        assert!(matches!(&all[2].address, NotificationAddress::PubSub { topic } if topic.ends_with("/tide")));
        assert!(matches!(&all[3].address, NotificationAddress::Email { to } if to.len() == 2));
        for secret in ["TEAMSSECRET", "CHATSECRET"] {
            assert!(settings.secrets.iter().any(|known| known.expose_secret().contains(secret)), "{secret}");
        }
        assert_eq!(settings.notifications.lock_overdue_after, Duration::from_secs(72 * 3600));
        assert!(settings.warnings.iter().all(|warning| !warning.contains("no effect")), "{:?}", settings.warnings);
        let idle = loaded(&["--smtp-host=mail", "--smtp-from=a@b.c", "--lock-overdue-after=1h"], &[]);
        let warnings = idle.warnings.iter().filter(|warning| warning.contains("has no effect")).count();
        assert_eq!(warnings, 3, "{:?}", idle.warnings);
        let smtp = "smtp-host: mail\nsmtp-from: a@b.c\n";
        let error = invalid_file(&format!("{smtp}webhooks: [{{event: turn, kind: email, to: 'secret, '}}]\n"));
        assert!(error.contains("no list of 1 to 20 e-mail addresses") && !error.contains("secret"), "{error}");
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
