//! Checks the receivers of notifications as far as that is possible without a message.

use super::report::Findings;
use crate::notifications::doctor::{ReceiverCheck, receivers};
use crate::settings::Settings;

const PUBSUB: &str = "pubsub";
const EMAIL: &str = "email";
const SLACK: &str = "slack";

pub(super) async fn check(settings: &Settings) -> Findings {
    let mut findings = Findings::default();
    for check in receivers(&settings.notifications).await {
        match check {
            ReceiverCheck::Slack(Ok(account)) => findings.fine(SLACK, format!("the token is that of {account}")),
            ReceiverCheck::Slack(Err(error)) => {
                findings.fault(SLACK, error, "give the token of a Slack app with the scope chat:write as slack-token");
            }
            ReceiverCheck::PubSub(topic, Ok(())) => findings.fine(PUBSUB, format!("the server may publish to {topic}")),
            ReceiverCheck::PubSub(topic, Err(error)) => {
                let mend = "give the server's account roles/pubsub.publisher on the topic (docs/notifications.md)";
                findings.fault(PUBSUB, format!("the server cannot publish to {topic}: {error}"), mend);
            }
            ReceiverCheck::Email(host, Ok(())) => findings.fine(EMAIL, format!("{host} takes mail of the server")),
            ReceiverCheck::Email(host, Err(error)) => {
                let mend = "look at smtp-host, smtp-port, smtp-tls, smtp-user and smtp-password";
                findings.fault(EMAIL, format!("no mail can be sent by {host}: {error}"), mend);
            }
            ReceiverCheck::Unchecked(count) => {
                let what = format!("{count} entries of webhooks for teams or google_chat are not checked");
                findings.unknown(
                    "chats",
                    what,
                    "the first message shows whether its webhook takes it: look at the log",
                );
            }
        }
    }
    findings
}
