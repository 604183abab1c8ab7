//! Settings of Gitea and Forgejo: `gitea-base-url`, the account there, and the proof of its deliveries.

use super::{HostSettings, ServedHost, webhook_secrets};
use crate::settings::typed::Reader;
use crate::settings::{TokenSetting, addresses, check};
use secrecy::SecretString;

rows! {
    static ROWS {
        Atlantis {
            /// Gitea or Forgejo: https://gitea.com, https://HOST[:PORT][/PATH] of an instance, such as https://git.example.com/gitea, or
            /// http://LOOPBACK:PORT.
            gitea_base_url: Text = "https://gitea.com",
            /// Access token of gitea-user, with the scopes write:repository, write:issue, read:user and read:organization.
            gitea_token: Secret,
            /// User name of the server's account on Gitea.
            gitea_user: Text,
            /// Secret with which Gitea signs deliveries, of 16 characters or more.
            gitea_webhook_secret: Secret,
        }
        Tidelock {
            /// The previous secret, still accepted: for a change of secrets without a lost delivery.
            gitea_previous_webhook_secret: Secret,
            /// File with gitea-token, read again on every use.
            gitea_token_file: Path,
        }
    }
}

/// Gitea among the hosts of the settings.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: BASE_URL,
    naming: &["gitea-user", "gitea-token", "gitea-token-file", SECRET],
    account: &["gitea-user", "gitea-token"],
    secret_files: &["gitea-token-file"],
    git_address: None,
};

/// Address of Gitea or Forgejo, our account there, and the proof of its deliveries.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GiteaSettings {
    /// Name as in repository ids: without scheme, port and path.
    pub hostname: String,
    /// Prefix of every address: `https://gitea.com`, `https://HOST/gitea`, without trailing slash.
    pub base_url: String,
    pub user: String,
    /// Absent only with `events-only`.
    pub token: Option<TokenSetting>,
    /// Absent only with `allow-unsigned-webhooks`.
    pub webhook_secret: Option<SecretString>,
    /// Setting of ours: the previous secret, which is still accepted.
    pub previous_webhook_secret: Option<SecretString>,
}

impl ServedHost for GiteaSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (BASE_URL, &self.hostname)
    }
}

const BASE_URL: &str = "gitea-base-url";
const SECRET: &str = "gitea-webhook-secret";
const PREVIOUS: &str = "gitea-previous-webhook-secret";
/// Message about the scopes and rights that the token needs.
const SCOPES: &str = "An access token needs the scopes write:repository, write:issue, read:user and read:organization, and its account \
     the right to write to the repositories (to administer them, for `tidelock doctor` to read webhooks)";

/// Reads address and account if they are set; reports everything that is missing.
pub(super) fn read(r: &mut Reader) -> Option<GiteaSettings> {
    const FORM: &str = "is not of the form https://HOST, https://HOST:PORT or https://HOST/PATH, such as https://git.example.com/gitea";
    let host = addresses::host_and_base(&r.text(BASE_URL), FORM).map_err(|what| r.wrong(BASE_URL, what)).ok();
    if !HOST.is_named(r) {
        return None;
    }
    let user = r.text("gitea-user").trim().trim_start_matches('@').to_owned();
    if user.is_empty() {
        r.wrong(
            "gitea-user",
            "(ATLANTIS_GITEA_USER) is missing: the user name of the account that the token belongs to",
        );
    }
    let missing = format!("(ATLANTIS_GITEA_TOKEN) is missing, and so is gitea-token-file. {SCOPES}");
    let token = check::token(r, "gitea-token", "gitea-token-file", &missing);
    let (webhook_secret, previous_webhook_secret) = webhook_secrets(r, SECRET, PREVIOUS);
    let (hostname, base_url) = host?;
    Some(GiteaSettings { hostname, base_url, user, token, webhook_secret, previous_webhook_secret })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{invalid, loaded};
    use secrecy::ExposeSecret;

    const ACCOUNT: [(&str, &str); 3] = [
        ("ATLANTIS_GITEA_USER", "@tidelock"),
        ("ATLANTIS_GITEA_TOKEN", "gitea_token_value\n"),
        ("ATLANTIS_GITEA_WEBHOOK_SECRET", "a_secret_of_hooks"),
    ];

    #[test]
    fn every_form_of_the_base_url_leads_to_its_address() {
        for (text, hostname, base) in [
            ("", "gitea.com", "https://gitea.com"),
            ("https://Gitea.com/", "gitea.com", "https://gitea.com"),
            ("https://git.example.com:8443/gitea/", "git.example.com", "https://git.example.com:8443/gitea"),
            ("codeberg.org", "codeberg.org", "https://codeberg.org"),
            ("http://127.0.0.1:3000", "127.0.0.1", "http://127.0.0.1:3000"),
        ] {
            let read = loaded(&[&format!("--gitea-base-url={text}")], &ACCOUNT).hosts.gitea.unwrap();
            assert_eq!((read.hostname.as_str(), read.base_url.as_str()), (hostname, base), "{text}");
        }
        for text in ["http://git.example.com", "ftp://x", "a b", "https://u:p@host", "https://host?x"] {
            assert!(invalid(&[&format!("--gitea-base-url={text}")], &ACCOUNT).contains("gitea-base-url"), "{text}");
        }
    }

    #[test]
    fn it_is_served_beside_another_host_or_alone() {
        let both = loaded(&[], &ACCOUNT);
        let gitea = both.hosts.gitea.unwrap();
        assert!(both.hosts.github.is_some() && gitea.user == "tidelock");
        assert!(
            matches!(gitea.token.unwrap(), TokenSetting::Value(token) if token.expose_secret() == "gitea_token_value")
        );
        for secret in ["gitea_token_value", "a_secret_of_hooks"] {
            assert!(both.secrets.iter().any(|known| known.expose_secret() == secret), "{secret} is masked");
        }
        let without = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")];
        let alone = loaded(&[], &[&ACCOUNT[..], &without].concat());
        assert!(alone.hosts.github.is_none() && alone.hosts.gitea.is_some());
        assert!(loaded(&["--gitea-base-url=https://git.example.com"], &[]).hosts.gitea.is_none());
    }

    #[test]
    fn the_size_of_pages_has_no_effect() {
        let said = loaded(&["--gitea-page-size=50"], &ACCOUNT).warnings;
        assert!(said.iter().any(|text| text.starts_with("--gitea-page-size has no effect")), "{said:?}");
    }

    #[test]
    fn a_secret_that_could_be_found_by_trying_is_refused() {
        let with = |secret: &'static str| [&ACCOUNT[..2], &[(ACCOUNT[2].0, secret)]].concat();
        let said = invalid(&[], &with("fifteen_letters"));
        assert!(said.contains("GITEA_WEBHOOK_SECRET is shorter than 16 characters"), "{said}");
        assert!(loaded(&[], &with("sixteen__letters")).hosts.gitea.is_some());
        let said = invalid(&["--gitea-previous-webhook-secret=short"], &ACCOUNT);
        assert!(said.contains("shorter than 16 characters"), "{said}");
        let open = loaded(&["--allow-unsigned-webhooks"], &ACCOUNT[..2]);
        assert!(
            open.hosts.gitea.is_some()
                && open.warnings.iter().any(|text| text.contains("everybody who reaches the port"))
        );
    }

    #[test]
    fn the_token_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token_of_the_file\n").unwrap();
        let path = format!("--gitea-token-file={}", file.path().display());
        assert!(invalid(&[&path], &ACCOUNT).contains("gitea-token are both given"));
        let read = loaded(&[&path], &[ACCOUNT[0], ACCOUNT[2]]);
        assert!(read.secrets.iter().any(|known| known.expose_secret() == "token_of_the_file"));
        assert!(matches!(read.hosts.gitea.unwrap().token, Some(TokenSetting::File(path)) if path == file.path()));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (name, _) in ACCOUNT {
            let setting = name.trim_start_matches("ATLANTIS_").to_lowercase().replace('_', "-");
            let env: Vec<_> = ACCOUNT.iter().copied().filter(|(other, _)| *other != name).collect();
            let said = invalid(&[], &env);
            assert!(said.contains(&format!("{setting} ")) && said.contains("is missing"), "{said}");
        }
    }
}
