//! Checks of receivers for the doctor. Nothing is sent to them.

use super::send::Sender;
use super::smtp;
use crate::settings::{NotificationAddress, NotificationSettings};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Result of the check of one receiver, or of a service for several.
pub(crate) enum ReceiverCheck {
    /// Slack: the account of the token, or the error.
    Slack(Result<String, String>),
    /// A topic of Pub/Sub, to which the server may publish or not.
    PubSub(String, Result<(), String>),
    /// The mail server, to which it could connect or not.
    Email(String, Result<(), String>),
    /// Webhooks of chats, of which only a message would show whether they work.
    Unchecked(usize),
}

/// Checks all receivers.
pub(crate) async fn receivers(settings: &Arc<NotificationSettings>) -> Vec<ReceiverCheck> {
    let sender = Sender::new(Arc::clone(settings));
    let (mut checks, mut topics, mut unchecked) = (Vec::new(), BTreeSet::new(), 0);
    let (mut has_slack, mut has_email) = (false, false);
    for receiver in &settings.receivers {
        match &receiver.address {
            NotificationAddress::Slack { .. } => has_slack = true,
            NotificationAddress::PubSub { topic } => drop(topics.insert(topic)),
            NotificationAddress::Email { .. } => has_email = true,
            NotificationAddress::Teams { .. } | NotificationAddress::GoogleChat { .. } => unchecked += 1,
            NotificationAddress::Http { .. } => {}
        }
    }
    if has_slack {
        checks.push(ReceiverCheck::Slack(sender.slack_account().await));
    }
    for topic in topics {
        checks.push(ReceiverCheck::PubSub(topic.clone(), sender.may_publish(topic).await));
    }
    if let Some(smtp) = settings.smtp.as_ref().filter(|_| has_email) {
        checks.push(ReceiverCheck::Email(smtp.host.clone(), smtp::check(smtp).await));
    }
    if unchecked > 0 {
        checks.push(ReceiverCheck::Unchecked(unchecked));
    }
    checks
}
