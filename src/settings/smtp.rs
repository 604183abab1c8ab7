//! Reads the settings of the mail server that takes notifications by e-mail.

use super::typed::Reader;
use lettre::message::Mailbox;
use secrecy::SecretString;
use std::net::IpAddr;

rows! {
    static SMTP {
        Tidelock {
            /// Sender of notifications by e-mail: tidelock@acme.com, or Tidelock <tidelock@acme.com>.
            smtp_from: Text,
            /// Mail server that takes notifications by e-mail; docs/notifications.md.
            smtp_host: Text,
            /// Password of smtp-user.
            smtp_password: Secret,
            /// Port of the mail server; the default is 587, or 465 with smtp-tls=tls.
            smtp_port: Text,
            /// Encryption of the connection to the mail server: starttls, tls (from the first byte), or none, which is for loopback addresses
            /// and for servers without a password.
            smtp_tls: Text = "starttls",
            /// User at the mail server; by default the server does not sign in.
            smtp_user: Text,
        }
    }
}

/// Settings without an effect if no receiver is a mailbox.
pub(super) const NAMES: [&str; 5] = ["smtp-from", "smtp-host", "smtp-password", "smtp-port", "smtp-user"];

/// The mail server.
#[derive(Debug, Clone)]
pub struct SmtpSettings {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Encryption of the connection.
    pub encryption: SmtpEncryption,
    /// User and password; absent if the server does not sign in.
    pub credentials: Option<(String, SecretString)>,
    /// Sender of all messages.
    pub from: Mailbox,
}

/// Encryption of a connection to a mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpEncryption {
    /// It begins with the command STARTTLS, without which nothing is sent.
    StartTls,
    /// It begins with the connection.
    Tls,
    /// There is none.
    None,
}

/// Reads the mail server; absent without `smtp-host`.
pub(super) fn read(r: &mut Reader) -> Option<SmtpSettings> {
    let host = r.optional("smtp-host")?;
    let is_host = host.len() <= 253 && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    if !is_host {
        r.wrong("smtp-host", "is no name or address of a server; the port is smtp-port");
    }
    let encryption = match r.text("smtp-tls").as_str() {
        "starttls" => SmtpEncryption::StartTls,
        "tls" => SmtpEncryption::Tls,
        "none" => SmtpEncryption::None,
        _ => {
            r.wrong("smtp-tls", "is none of starttls, tls and none");
            SmtpEncryption::StartTls
        }
    };
    let port = port(r, encryption);
    let credentials = credentials(r);
    if encryption == SmtpEncryption::None && credentials.is_some() && !is_loopback(&host) {
        r.wrong("smtp-tls", "is none, so that everybody on the way could read smtp-password: use starttls or tls");
    }
    let from = r.optional("smtp-from").map(|text| text.parse());
    let from = match from {
        Some(Ok(from)) => from,
        Some(Err(_)) => {
            r.wrong("smtp-from", "is no e-mail address such as tidelock@acme.com or Tidelock <tidelock@acme.com>");
            return None;
        }
        None => {
            r.wrong("smtp-from", "is missing: with smtp-host, messages need a sender");
            return None;
        }
    };
    Some(SmtpSettings { host, port, encryption, credentials, from })
}

fn port(r: &mut Reader, encryption: SmtpEncryption) -> u16 {
    let usual = if encryption == SmtpEncryption::Tls { 465 } else { 587 };
    let Some(text) = r.optional("smtp-port") else { return usual };
    text.parse().ok().filter(|port| *port > 0).unwrap_or_else(|| {
        r.wrong("smtp-port", "is no number from 1 to 65535");
        usual
    })
}

fn credentials(r: &mut Reader) -> Option<(String, SecretString)> {
    match (r.optional("smtp-user"), r.secret("smtp-password")) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        (Some(_), None) => {
            r.wrong("smtp-password", "is missing: smtp-user has one");
            None
        }
        (None, Some(_)) => {
            r.wrong("smtp-user", "is missing: smtp-password is that of a user");
            None
        }
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{invalid, loaded};
    use super::*;
    use secrecy::ExposeSecret as _;

    const FROM: (&str, &str) = ("ATLANTIS_SMTP_FROM", "Tidelock <tidelock@acme.com>");

    #[test]
    fn the_port_follows_the_encryption() {
        let of = |flags: &[&str]| loaded(flags, &[FROM]).notifications.smtp.clone();
        let smtp = of(&["--smtp-host=mail.acme.com"]).unwrap();
        assert_eq!((smtp.port, smtp.encryption), (587, SmtpEncryption::StartTls));
        assert_eq!((smtp.from.email.to_string().as_str(), smtp.credentials.is_none()), ("tidelock@acme.com", true));
        assert_eq!(of(&["--smtp-host=mail", "--smtp-tls=tls"]).unwrap().port, 465);
        assert_eq!(of(&["--smtp-host=mail", "--smtp-port=2525"]).unwrap().port, 2525);
        assert!(of(&[]).is_none());
        let user = ["--smtp-host=::1", "--smtp-tls=none", "--smtp-user=u", "--smtp-password=pass-word"];
        let settings = loaded(&user, &[FROM]);
        let (user, password) = settings.notifications.smtp.clone().unwrap().credentials.unwrap();
        assert_eq!((user.as_str(), password.expose_secret()), ("u", "pass-word"));
        assert!(settings.secrets.iter().any(|secret| secret.expose_secret() == "pass-word"));
    }

    #[test]
    fn mistakes_name_their_setting() {
        for (flags, said) in [
            (&["--smtp-host=mail:/"][..], "--smtp-host is no name"),
            (&["--smtp-host=mail", "--smtp-tls=yes"], "--smtp-tls is none of"),
            (&["--smtp-host=mail", "--smtp-port=0"], "--smtp-port is no number"),
            (&["--smtp-host=mail", "--smtp-user=u"], "smtp-user has one"),
            (&["--smtp-host=mail", "--smtp-password=p"], "that of a user"),
            (
                &["--smtp-host=mail", "--smtp-tls=none", "--smtp-user=u", "--smtp-password=p"],
                "could read smtp-password",
            ),
            (&["--smtp-host=mail", "--smtp-from=a\r\nBcc: b@c.d"], "--smtp-from is no e-mail address"),
        ] {
            let from = [FROM];
            let error = invalid(flags, if said.contains("smtp-from") { &[] } else { &from });
            assert!(error.contains(said), "{flags:?}: {error}");
        }
        let missing = invalid(&["--smtp-host=mail"], &[]);
        assert!(missing.contains("messages need a sender"), "{missing}");
    }
}
