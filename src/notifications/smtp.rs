//! Sends notifications by e-mail. lettre encodes what header fields cannot hold, and breaks long lines; a header field is never made of
//! unbounded or multi-line text.

use super::send::{Sent, TIMEOUT, response_excerpt};
use crate::settings::{SmtpEncryption, SmtpSettings};
use crate::store::notifications::PendingNotification;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::{AsyncSmtpTransport, Error};
use lettre::{AsyncTransport as _, Tokio1Executor};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

/// Prefix of all subjects.
const PREFIX: &str = "[Tidelock]";
/// Longest subject, in characters.
const MAX_SUBJECT: usize = 150;
/// Time limit of a whole session, which has several commands.
const SESSION: Duration = Duration::from_secs(30);
/// Replies of a mail server to a wrong or missing sign-in: the operator can correct them. 550 is the reply to a message that a filter does
/// not like as well: its text comes from a pull request, and must not stop the messages behind it.
const CORRECTABLE: [u16; 5] = [421, 530, 534, 535, 538];

/// Header field that stops automatic answers, such as those of people on holiday.
#[derive(Clone)]
struct AutoSubmitted;

impl Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn StdError + Send + Sync>> {
        Ok(AutoSubmitted)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

/// Makes one attempt to send one message to all addresses of an entry.
pub(super) async fn send(smtp: &SmtpSettings, to: &[Mailbox], pending: &PendingNotification) -> Sent {
    let message = match message(smtp, to, pending) {
        Ok(message) => message,
        Err(why) => return Sent::Refused(why),
    };
    let transport = match transport(smtp) {
        Ok(transport) => transport,
        Err(why) => return Sent::Later(why, Duration::ZERO),
    };
    match tokio::time::timeout(SESSION, transport.send(message)).await {
        Ok(Ok(_)) => Sent::Taken,
        Ok(Err(error)) => judged(&error),
        Err(_) => Sent::Later("the mail server did not answer in time".to_owned(), Duration::ZERO),
    }
}

/// Connects and signs in, without sending anything.
pub(super) async fn check(smtp: &SmtpSettings) -> Result<(), String> {
    let transport = transport(smtp)?;
    match tokio::time::timeout(SESSION, transport.test_connection()).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err("the mail server ended the connection".to_owned()),
        Ok(Err(error)) => Err(told(&error)),
        Err(_) => Err("the mail server did not answer in time".to_owned()),
    }
}

fn transport(smtp: &SmtpSettings) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let tls = || TlsParameters::new(smtp.host.clone()).map_err(|error| format!("no TLS: {error}"));
    let tls = match smtp.encryption {
        SmtpEncryption::StartTls => Tls::Required(tls()?),
        SmtpEncryption::Tls => Tls::Wrapper(tls()?),
        SmtpEncryption::None => Tls::None,
    };
    let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&smtp.host);
    let builder = builder.port(smtp.port).tls(tls).timeout(Some(TIMEOUT));
    Ok(match &smtp.credentials {
        Some((user, password)) => {
            builder.credentials(Credentials::new(user.clone(), password.expose_secret().to_owned())).build()
        }
        None => builder.build(),
    })
}

/// Returns the message. Its id stays the same in every attempt, and messages about one pull request are in one conversation.
fn message(smtp: &SmtpSettings, to: &[Mailbox], pending: &PendingNotification) -> Result<Message, String> {
    let body = &pending.notification.body;
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    let subject: String = format!("{PREFIX} {}", text("subject")).chars().filter(|c| !c.is_control()).collect();
    let subject: String = subject.chars().take(MAX_SUBJECT).collect();
    let domain = smtp.from.email.domain();
    let id = |text: &str| format!("<{}@{domain}>", hex::encode(&Sha256::digest(text)[..16]));
    let mut builder = Message::builder()
        .from(smtp.from.clone())
        .subject(subject)
        .date(SystemTime::from(pending.at))
        .message_id(Some(id(&pending.notification.id)))
        .header(AutoSubmitted)
        .header(ContentType::TEXT_PLAIN);
    if let Value::String(thread) = &body["thread"] {
        builder = builder.in_reply_to(id(thread)).references(id(thread));
    }
    let builder = to.iter().fold(builder, |builder, address| builder.to(address.clone()));
    builder.body(text("text").to_owned()).map_err(|error| format!("no message: {error}"))
}

/// Judges an error: a reply 5xx is final, unless the operator can correct its cause.
fn judged(error: &Error) -> Sent {
    let code = error.status().map(u16::from);
    match code {
        Some(code) if error.is_permanent() && !CORRECTABLE.contains(&code) => Sent::Refused(told(error)),
        _ => Sent::Later(told(error), Duration::ZERO),
    }
}

fn told(error: &Error) -> String {
    format!("the mail server: {}", response_excerpt(error.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::notification::Notification;
    use serde_json::json;

    fn formatted(subject: &str, text: &str) -> String {
        let smtp = SmtpSettings {
            host: "mail".into(),
            port: 25,
            encryption: SmtpEncryption::None,
            credentials: None,
            from: "Tidelock <tidelock@acme.com>".parse().unwrap(),
        };
        let to: Vec<Mailbox> = vec!["a@acme.com".parse().unwrap(), "Ops <b@acme.com>".parse().unwrap()];
        let body = json!({"subject": subject, "text": text, "thread": "github.com/acme/infra#1"});
        let notification = Notification { id: "failure-1".into(), receiver: "email:1".into(), body };
        let at = jiff::Timestamp::UNIX_EPOCH;
        let message = message(&smtp, &to, &PendingNotification { row: 1, at, notification }).unwrap();
        String::from_utf8(message.formatted()).unwrap()
    }

    #[test]
    fn a_subject_adds_no_header_field_and_lines_are_short() {
        let hostile = "Apply failed\r\nBcc: all@acme.com\r\n\r\nin acme/ï\u{202e}nfra";
        let text = formatted(hostile, &format!("{}\r\n.\r\nQUIT\r\n", "long ".repeat(500)));
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        assert_eq!(head.lines().filter(|line| line.starts_with("To: ")).count(), 1, "{head}");
        // RFC 5321, 4.5.3.1.6: 1000 octets with the line's end.
        assert!(text.split("\r\n").all(|line| line.len() <= 998), "{text}");
        assert!(body.len() > 2500);
        let long = formatted(&"ä".repeat(5000), "");
        assert!(long.lines().all(|line| line.len() <= 998), "{long}");
    }

    #[test]
    fn a_message_has_the_same_id_in_every_attempt() {
        let text = formatted("Apply failed in acme/infra", "Apply failed\n\nProject: net").replace('\r', "");
        insta::assert_snapshot!(text, @r"
        From: Tidelock <tidelock@acme.com>
        Subject: [Tidelock] Apply failed in acme/infra
        Date: Thu, 01 Jan 1970 00:00:00 +0000
        Message-ID: <61338c2721c59f70f6f14683d766b020@acme.com>
        Auto-Submitted: auto-generated
        Content-Type: text/plain; charset=utf-8
        In-Reply-To: <e56724fa21861702c9183fa212e2ac76@acme.com>
        References: <e56724fa21861702c9183fa212e2ac76@acme.com>
        To: a@acme.com, Ops <b@acme.com>
        Content-Transfer-Encoding: 7bit

        Apply failed

        Project: net
        ");
    }
}
