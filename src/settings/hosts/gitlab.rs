//! Settings of GitLab: `gitlab-hostname`, the account there, and the proof of its deliveries.

use super::{HostSettings, ServedHost};
use crate::settings::check::{self, SHORTEST_PROOF};
use crate::settings::typed::Reader;
use crate::settings::{Settings, TokenSetting, addresses, poll};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};

rows! {
    static ROWS {
        Atlantis {
            /// Which groups may use which commands in repositories on GitLab, GROUP:COMMAND, such as acme/sre:apply; * stands for any. Members
            /// of a group are those that it inherits as well. By default everybody may. More is said in repos.yaml (docs/permissions.md).
            gitlab_group_allowlist: List,
            /// GitLab: gitlab.com, HOST[:PORT][/PATH] of an instance, such as git.example.com/gitlab, or http://LOOPBACK:PORT.
            gitlab_hostname: Text = "gitlab.com",
            /// Token of gitlab-user: a personal, project or group access token with the scope api.
            gitlab_token: Secret,
            /// User name of the server's account on GitLab.
            gitlab_user: Text,
            /// Secret token that deliveries from GitLab carry, of 16 characters or more.
            gitlab_webhook_secret: Secret,
        }
        Tidelock {
            /// The previous secret token, still accepted: for a change of tokens without a lost delivery.
            gitlab_previous_webhook_secret: Secret,
            /// File with gitlab-token, read again on every use.
            gitlab_token_file: Path,
            /// Signing token of GitLab's webhooks, whsec_ and a key in base64, instead of gitlab-webhook-secret or beside it. A delivery with a
            /// signature must be signed with it.
            gitlab_webhook_signing_token: Secret,
        }
    }
}

/// GitLab among the hosts of the settings.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: HOSTNAME,
    naming: &["gitlab-user", "gitlab-token", "gitlab-token-file", SECRET, SIGNING],
    account: &["gitlab-user", "gitlab-token"],
    secret_files: &["gitlab-token-file"],
    git_address: None,
};

/// Address of GitLab, our account there, and the proof of its deliveries.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GitlabSettings {
    /// Name as in repository ids: without scheme, port and path.
    pub hostname: String,
    /// Prefix of every address: `https://gitlab.com`, `https://HOST/gitlab`, without trailing slash.
    pub base_url: String,
    pub user: String,
    /// Absent only with `events-only`.
    pub token: Option<TokenSetting>,
    /// Absent only if there is a signing token, or with `allow-unsigned-webhooks`.
    pub webhook_secret: Option<SecretString>,
    /// Setting of ours: the previous secret, which is still accepted.
    pub previous_webhook_secret: Option<SecretString>,
    /// Setting of ours: the key of signatures.
    pub webhook_signing_token: Option<SecretString>,
    pub group_allowlist: Vec<String>,
}

impl ServedHost for GitlabSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (HOSTNAME, &self.hostname)
    }

    fn team_rules<'a>(&'a self, _: &'a Settings) -> Option<(&'static str, &'a [String])> {
        Some((GROUPS, &self.group_allowlist))
    }
}

const HOSTNAME: &str = "gitlab-hostname";
/// Name of the setting with rules of groups.
const GROUPS: &str = "gitlab-group-allowlist";
const SECRET: &str = "gitlab-webhook-secret";
const PREVIOUS: &str = "gitlab-previous-webhook-secret";
const SIGNING: &str = "gitlab-webhook-signing-token";
/// Prefix of a signing token, before its key.
const SIGNING_PREFIX: &str = "whsec_";
/// Message about the scope and role that the token needs.
const SCOPES: &str = "A personal, project or group access token needs the scope api, and its account the role Developer (Maintainer for \
     `tidelock doctor` to read webhooks)";

/// Reads host and account if they are set; reports everything that is missing.
pub(super) fn read(r: &mut Reader) -> Option<GitlabSettings> {
    const FORM: &str = "is not of the form HOST, HOST:PORT or HOST/PATH, such as git.example.com/gitlab";
    let host = addresses::host_and_base(&r.text(HOSTNAME), FORM).map_err(|what| r.wrong(HOSTNAME, what)).ok();
    let group_allowlist = check::team_allowlist(r, GROUPS);
    if !HOST.is_named(r) {
        return None;
    }
    let user = r.text("gitlab-user").trim().trim_start_matches('@').to_owned();
    if user.is_empty() {
        r.wrong(
            "gitlab-user",
            "(ATLANTIS_GITLAB_USER) is missing: the user name of the account that the token belongs to. The user of a project's or \
             group's token is in its list of members",
        );
    }
    let missing = format!("(ATLANTIS_GITLAB_TOKEN) is missing, and so is gitlab-token-file. {SCOPES}");
    let token = check::token(r, "gitlab-token", "gitlab-token-file", &missing);
    let (webhook_secret, webhook_signing_token) = (r.secret(SECRET), r.secret(SIGNING));
    let previous_webhook_secret = r.secret(PREVIOUS);
    check_proof(r, webhook_secret.as_ref(), webhook_signing_token.as_ref());
    if previous_webhook_secret.as_ref().is_some_and(check::is_guessable) {
        r.wrong(PREVIOUS, format!("is shorter than {SHORTEST_PROOF} characters: leave it out, and lose deliveries"));
    }
    let (hostname, base_url) = host?;
    Some(GitlabSettings {
        hostname,
        base_url,
        user,
        token,
        webhook_secret,
        previous_webhook_secret,
        webhook_signing_token,
        group_allowlist,
    })
}

/// Checks that deliveries have a proof that cannot be guessed.
fn check_proof(r: &mut Reader, secret: Option<&SecretString>, signing: Option<&SecretString>) {
    if secret.is_some_and(check::is_guessable) {
        r.wrong(
            SECRET,
            format!(
                "is shorter than {SHORTEST_PROOF} characters: it could be found by trying. Make one with `openssl rand -hex 20`, and \
                 set it here and in the webhooks"
            ),
        );
    }
    if signing.is_some_and(|token| !is_signing_token(token)) {
        r.wrong(SIGNING, "is no signing token: whsec_ and a key of 16 bytes or more in base64");
    }
    match (secret.or(signing), r.switch("allow-unsigned-webhooks")) {
        (Some(_), _) => {}
        (None, _) if poll::is_on(r) => {}
        (None, true) => r.warn(SECRET, "is missing: everybody who reaches the port can run commands here"),
        (None, false) => r.wrong(
            SECRET,
            "(ATLANTIS_GITLAB_WEBHOOK_SECRET) is missing, and so is gitlab-webhook-signing-token: without them everybody who reaches \
             the port can run commands here. Set the same text here and in the webhooks on GitLab",
        ),
    }
}

/// Returns true if the text has the form of a signing token with a key that cannot be guessed.
fn is_signing_token(token: &SecretString) -> bool {
    let key = token.expose_secret().trim().strip_prefix(SIGNING_PREFIX).map(|key| STANDARD.decode(key));
    key.is_some_and(|key| key.is_ok_and(|key| key.len() >= SHORTEST_PROOF))
}

impl GitlabSettings {
    /// Returns the secret that proves deliveries: the secret token, or the signing token where that is the only one.
    pub fn present_secret(&self) -> Option<&SecretString> {
        self.webhook_secret.as_ref().or(self.webhook_signing_token.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{invalid, loaded};

    const SIGNING_TOKEN: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    const ACCOUNT: [(&str, &str); 3] = [
        ("ATLANTIS_GITLAB_USER", "@tidelock"),
        ("ATLANTIS_GITLAB_TOKEN", "glpat_token_value\n"),
        ("ATLANTIS_GITLAB_WEBHOOK_SECRET", "a_secret_of_hooks"),
    ];

    #[test]
    fn every_form_of_the_host_name_leads_to_its_address() {
        for (text, hostname, base) in [
            ("", "gitlab.com", "https://gitlab.com"),
            ("https://GitLab.com/", "gitlab.com", "https://gitlab.com"),
            ("git.example.com:8443/gitlab/", "git.example.com", "https://git.example.com:8443/gitlab"),
            ("http://127.0.0.1:4000", "127.0.0.1", "http://127.0.0.1:4000"),
        ] {
            let read = loaded(&[&format!("--gitlab-hostname={text}")], &ACCOUNT).hosts.gitlab.unwrap();
            assert_eq!((read.hostname.as_str(), read.base_url.as_str()), (hostname, base), "{text}");
        }
        for text in ["http://git.example.com", "ftp://x", "a b", "u:p@host", "host?x"] {
            assert!(invalid(&[&format!("--gitlab-hostname={text}")], &ACCOUNT).contains("gitlab-hostname"), "{text}");
        }
    }

    #[test]
    fn it_is_served_beside_another_host_or_alone() {
        let both = loaded(&["--gitlab-group-allowlist=acme/sre:apply,*:version"], &ACCOUNT);
        let gitlab = both.hosts.gitlab.unwrap();
        assert!(both.hosts.github.is_some() && gitlab.user == "tidelock");
        assert_eq!(gitlab.group_allowlist, ["acme/sre:apply", "*:version"]);
        assert!(
            matches!(gitlab.token.unwrap(), TokenSetting::Value(token) if token.expose_secret() == "glpat_token_value")
        );
        for secret in ["glpat_token_value", "a_secret_of_hooks"] {
            assert!(both.secrets.iter().any(|known| known.expose_secret() == secret), "{secret} is masked");
        }
        let without = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")];
        let alone = loaded(&[], &[&ACCOUNT[..], &without].concat());
        assert!(alone.hosts.github.is_none() && alone.hosts.gitlab.is_some());
        assert!(loaded(&[], &[]).hosts.gitlab.is_none());
        assert!(invalid(&["--gitlab-group-allowlist=sre"], &ACCOUNT).contains("has no command in sre"));
    }

    #[test]
    fn settings_of_statuses_have_no_effect() {
        for name in ["--pending-apply-status", "--gitlab-status-retry-enabled"] {
            let said = loaded(&[name], &ACCOUNT).warnings;
            assert!(said.iter().any(|text| text.starts_with(&format!("{name} has no effect"))), "{said:?}");
        }
    }

    #[test]
    fn a_proof_that_could_be_found_by_trying_is_refused() {
        let with = |secret: &'static str| [&ACCOUNT[..2], &[(ACCOUNT[2].0, secret)]].concat();
        let said = invalid(&[], &with("fifteen_letters"));
        assert!(said.contains("GITLAB_WEBHOOK_SECRET is shorter than 16 characters"), "{said}");
        assert!(loaded(&[], &with("sixteen__letters")).hosts.gitlab.is_some());
        let said = invalid(&["--gitlab-previous-webhook-secret=short"], &ACCOUNT);
        assert!(said.contains("shorter than 16 characters"), "{said}");
        for token in ["no_prefix_of_a_signing_token", "whsec_", "whsec_%%%", "whsec_c2hvcnQ="] {
            let said = invalid(&[], &[&ACCOUNT[..], &[("TIDELOCK_GITLAB_WEBHOOK_SIGNING_TOKEN", token)]].concat());
            assert!(said.contains("SIGNING_TOKEN is no signing token"), "{said}");
        }
    }

    #[test]
    fn a_signing_token_is_proof_enough() {
        let signing = ("TIDELOCK_GITLAB_WEBHOOK_SIGNING_TOKEN", SIGNING_TOKEN);
        let read = loaded(&[], &[&ACCOUNT[..2], &[signing]].concat()).hosts.gitlab.unwrap();
        assert!(read.webhook_secret.is_none());
        assert_eq!(read.present_secret().unwrap().expose_secret(), SIGNING_TOKEN);
        let both = loaded(&[], &[&ACCOUNT[..], &[signing]].concat()).hosts.gitlab.unwrap();
        assert_eq!(both.present_secret().unwrap().expose_secret(), "a_secret_of_hooks");
        let open = loaded(&["--allow-unsigned-webhooks"], &ACCOUNT[..2]);
        assert!(
            open.hosts.gitlab.is_some()
                && open.warnings.iter().any(|text| text.contains("everybody who reaches the port"))
        );
    }

    #[test]
    fn the_token_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token_of_the_file\n").unwrap();
        let path = format!("--gitlab-token-file={}", file.path().display());
        assert!(invalid(&[&path], &ACCOUNT).contains("gitlab-token are both given"));
        let read = loaded(&[&path], &[ACCOUNT[0], ACCOUNT[2]]);
        assert!(read.secrets.iter().any(|known| known.expose_secret() == "token_of_the_file"));
        assert!(matches!(read.hosts.gitlab.unwrap().token, Some(TokenSetting::File(path)) if path == file.path()));
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
