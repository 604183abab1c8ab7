//! Settings of Azure DevOps: `azuredevops-hostname`, and the account there.

use super::{HostSettings, ServedHost};
use crate::settings::check::{self, SHORTEST_PROOF};
use crate::settings::typed::Reader;
use crate::settings::{TokenSetting, addresses, poll};
use secrecy::SecretString;

rows! {
    static ROWS {
        Atlantis {
            /// Azure DevOps: dev.azure.com, or HOST[:PORT][/PATH] of a server, such as tfs.example.com/tfs.
            azuredevops_hostname: Text = "dev.azure.com",
            /// Personal access token of azuredevops-user.
            azuredevops_token: Secret,
            /// Account on Azure DevOps: its email address; on a server, its domain and name.
            azuredevops_user: Text,
            /// Password of deliveries from Azure DevOps, of 16 characters or more.
            azuredevops_webhook_password: Secret,
            /// User of deliveries from Azure DevOps.
            azuredevops_webhook_user: Text,
        }
        Tidelock {
            /// The previous password of deliveries, still accepted: for a change of passwords without a lost delivery.
            azuredevops_previous_webhook_password: Secret,
            /// File with azuredevops-token, read again on every use.
            azuredevops_token_file: Path,
        }
    }
}

/// Azure DevOps among the hosts of the settings.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: HOSTNAME,
    naming: &[
        "azuredevops-user",
        "azuredevops-token",
        "azuredevops-token-file",
        "azuredevops-webhook-user",
        "azuredevops-webhook-password",
    ],
    account: &["azuredevops-user", "azuredevops-token"],
    secret_files: &["azuredevops-token-file"],
    git_address: None,
};

/// Address of Azure DevOps, and our account there.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct AzureDevOpsSettings {
    /// Name as in repository ids: without scheme, port and path.
    pub hostname: String,
    /// Prefix of every address: `https://dev.azure.com`, `https://HOST/tfs`, without trailing slash.
    pub base_url: String,
    pub user: String,
    /// Absent only with `events-only`.
    pub token: Option<TokenSetting>,
    pub webhook_user: String,
    /// Absent only with `allow-unsigned-webhooks`.
    pub webhook_password: Option<SecretString>,
    /// Setting of ours: the previous password, which is still accepted.
    pub previous_webhook_password: Option<SecretString>,
}

impl ServedHost for AzureDevOpsSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (HOSTNAME, &self.hostname)
    }
}

const HOSTNAME: &str = "azuredevops-hostname";
/// Host name of Azure DevOps Services.
const SERVICES: &str = "dev.azure.com";
/// Suffix of the former host name of an organization.
const FORMER: &str = ".visualstudio.com";
/// Name of the setting of the previous password.
const PREVIOUS: &str = "azuredevops-previous-webhook-password";
/// Message about the scopes that the token needs.
const SCOPES: &str = "A personal access token needs the scopes Code (read & write), Code (status) and Pull Request Threads (read & \
     write)";

/// Reads host and account if they are set; reports everything that is missing.
pub(super) fn read(r: &mut Reader) -> Option<AzureDevOpsSettings> {
    let host = address(&r.text(HOSTNAME)).map_err(|what| r.wrong(HOSTNAME, what)).ok();
    if !HOST.is_named(r) {
        return None;
    }
    let user = r.text("azuredevops-user").trim().trim_start_matches('@').to_owned();
    if user.is_empty() {
        r.wrong(
            "azuredevops-user",
            "(ATLANTIS_AZUREDEVOPS_USER) is missing: the account that the token belongs to, as its email address",
        );
    }
    let missing = format!("(ATLANTIS_AZUREDEVOPS_TOKEN) is missing, and so is azuredevops-token-file. {SCOPES}");
    let token = check::token(r, "azuredevops-token", "azuredevops-token-file", &missing);
    let webhook_user = r.text("azuredevops-webhook-user");
    let webhook_password = r.secret("azuredevops-webhook-password");
    let previous_webhook_password = r.secret(PREVIOUS);
    if previous_webhook_password.as_ref().is_some_and(check::is_guessable) {
        r.wrong(PREVIOUS, format!("is shorter than {SHORTEST_PROOF} characters: leave it out, and lose deliveries"));
    }
    match (&webhook_password, webhook_user.is_empty()) {
        (Some(password), false) if check::is_guessable(password) => r.wrong(
            "azuredevops-webhook-password",
            format!(
                "is shorter than {SHORTEST_PROOF} characters: it could be found by trying. Make one with \
                 `openssl rand -hex 20`, and set it here and in the service hooks"
            ),
        ),
        (Some(_), false) => {}
        (None, true) if r.switch("allow-unsigned-webhooks") || poll::is_on(r) => {}
        (Some(_), true) => r.wrong("azuredevops-webhook-user", "is missing: both it and the password are compared"),
        (None, _) => r.wrong(
            "azuredevops-webhook-password",
            "(ATLANTIS_AZUREDEVOPS_WEBHOOK_PASSWORD) is missing: without it everybody who reaches the port can run commands \
             here. Set user and password here and in the service hooks",
        ),
    }
    let (hostname, base_url) = host?;
    Some(AzureDevOpsSettings {
        hostname,
        base_url,
        user,
        token,
        webhook_user,
        webhook_password,
        previous_webhook_password,
    })
}

/// Parses the host name for repository ids and the prefix of every address: `dev.azure.com`, `ORGANIZATION.visualstudio.com` (its former
/// name), `HOST[:PORT][/PATH]`, or `http://LOOPBACK:PORT[/PATH]`.
fn address(text: &str) -> Result<(String, String), &'static str> {
    const FORM: &str = "is not of the form HOST, HOST:PORT or HOST/PATH, such as tfs.example.com/tfs";
    let (hostname, base) = addresses::host_and_base(text, FORM)?;
    if hostname == SERVICES || hostname.ends_with(FORMER) {
        return Ok((SERVICES.to_owned(), format!("https://{SERVICES}")));
    }
    Ok((hostname, base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{invalid, loaded};
    use secrecy::ExposeSecret;

    #[test]
    fn every_form_of_the_host_name_leads_to_its_address() {
        for (text, hostname, base) in [
            ("dev.azure.com", "dev.azure.com", "https://dev.azure.com"),
            ("https://dev.azure.com/acme", "dev.azure.com", "https://dev.azure.com"),
            ("acme.visualstudio.com", "dev.azure.com", "https://dev.azure.com"),
            ("tfs.example.com", "tfs.example.com", "https://tfs.example.com"),
            ("tfs.example.com:8443/tfs/", "tfs.example.com", "https://tfs.example.com:8443/tfs"),
            ("http://127.0.0.1:4000/tfs", "127.0.0.1", "http://127.0.0.1:4000/tfs"),
        ] {
            assert_eq!(address(text), Ok((hostname.to_owned(), base.to_owned())), "{text}");
        }
        for text in ["http://tfs.example.com", "ftp://x", "", "a b", "u:p@host", "host?x"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    const ACCOUNT: [(&str, &str); 4] = [
        ("ATLANTIS_AZUREDEVOPS_USER", "tidelock@example.com"),
        ("ATLANTIS_AZUREDEVOPS_TOKEN", "pat_token_value\n"),
        ("ATLANTIS_AZUREDEVOPS_WEBHOOK_USER", "hooks"),
        ("ATLANTIS_AZUREDEVOPS_WEBHOOK_PASSWORD", "a_password_of_hooks"),
    ];

    #[test]
    fn it_is_served_beside_the_other_host_or_alone() {
        let both = loaded(&[], &ACCOUNT);
        let azure = both.hosts.azure_devops.unwrap();
        assert!(both.hosts.github.is_some() && azure.hostname == "dev.azure.com");
        assert!(
            matches!(azure.token.unwrap(), TokenSetting::Value(token) if token.expose_secret() == "pat_token_value")
        );
        assert!(both.secrets.iter().any(|secret| secret.expose_secret() == "a_password_of_hooks"));
        let without = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")];
        let alone = loaded(&["--azuredevops-hostname=tfs.example.com/tfs"], &[&ACCOUNT[..], &without].concat());
        assert!(alone.hosts.github.is_none());
        assert_eq!(alone.hosts.azure_devops.unwrap().base_url, "https://tfs.example.com/tfs");
        assert!(loaded(&[], &[]).hosts.azure_devops.is_none());
    }

    #[test]
    fn a_password_that_could_be_found_by_trying_is_refused() {
        let with = |password: &'static str| [&ACCOUNT[..3], &[(ACCOUNT[3].0, password)]].concat();
        let said = invalid(&[], &with("fifteen_letters"));
        assert!(said.contains("AZUREDEVOPS_WEBHOOK_PASSWORD is shorter than 16 characters"), "{said}");
        assert!(loaded(&[], &with("sixteen__letters")).hosts.azure_devops.is_some());
    }

    #[test]
    fn the_token_may_lie_in_a_file_and_the_password_before_is_taken_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "pat_of_the_file\n").unwrap();
        let path = format!("--azuredevops-token-file={}", file.path().display());
        let mut env = ACCOUNT.to_vec();
        env.push(("TIDELOCK_AZUREDEVOPS_PREVIOUS_WEBHOOK_PASSWORD", "the_password_before"));
        assert!(invalid(&[&path], &env).contains("azuredevops-token are both given"));
        env.retain(|(name, _)| *name != "ATLANTIS_AZUREDEVOPS_TOKEN");
        let read = loaded(&[&path], &env);
        for secret in ["pat_of_the_file", "the_password_before"] {
            assert!(read.secrets.iter().any(|known| known.expose_secret() == secret), "{secret} is masked");
        }
        let azure = read.hosts.azure_devops.unwrap();
        assert!(matches!(azure.token, Some(TokenSetting::File(path)) if path == file.path()));
        assert_eq!(azure.previous_webhook_password.unwrap().expose_secret(), "the_password_before");
        let short = invalid(&["--azuredevops-previous-webhook-password=short"], &ACCOUNT);
        assert!(short.contains("shorter than 16 characters"), "{short}");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (name, _) in ACCOUNT {
            let setting = name.trim_start_matches("ATLANTIS_").to_lowercase().replace('_', "-");
            let env: Vec<_> = ACCOUNT.iter().copied().filter(|(other, _)| *other != name).collect();
            let said = invalid(&[], &env);
            assert!(said.contains(&format!("{setting} ")) && said.contains("is missing"), "{said}");
        }
        assert!(invalid(&["--azuredevops-user=x"], &[]).contains("Pull Request Threads (read & write)"));
    }
}
