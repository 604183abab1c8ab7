//! Settings of Bitbucket Cloud: `bitbucket-base-url`, the account there, and the proof of its deliveries. With the address of Bitbucket Data
//! Center, they are its settings (`bitbucket_data_center`).

use super::bitbucket_data_center::DataCenterNames;
use super::{HostSettings, ServedHost, webhook_secrets};
use crate::settings::typed::Reader;
use crate::settings::{TokenSetting, addresses, check};
use secrecy::SecretString;

rows! {
    static ROWS {
        Atlantis {
            /// E-mail address of the account on Bitbucket Cloud, with which the API takes an API token. Not needed for access tokens.
            bitbucket_api_user: Text,
            /// Bitbucket Cloud, https://HOST[:PORT][/PATH]/2.0 of a proxy before it, or any other address for Bitbucket Data Center:
            /// https://HOST[:PORT][/PATH], such as https://git.example.com/bitbucket, or http://LOOPBACK:PORT.
            bitbucket_base_url: Text = "https://api.bitbucket.org",
            /// On Bitbucket Cloud, API token of the account, with the scopes of docs/bitbucket-cloud.md, or access token of a repository,
            /// project or workspace. On Data Center, HTTP access token of the account, of a project or of a repository.
            bitbucket_token: Secret,
            /// On Bitbucket Cloud, e-mail address of the account with an API token; on Data Center, user name of the account. On both,
            /// x-token-auth for the access token of a project or repository, and on Cloud for that of a workspace.
            bitbucket_user: Text,
            /// Secret with which Bitbucket signs deliveries, of 16 characters or more.
            bitbucket_webhook_secret: Secret,
        }
        Tidelock {
            /// The previous secret, still accepted: for a change of secrets without a lost delivery.
            bitbucket_previous_webhook_secret: Secret,
            /// File with bitbucket-token, read again on every use.
            bitbucket_token_file: Path,
        }
    }
}

/// Bitbucket Cloud among the hosts of the settings.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: BASE_URL,
    naming: &[USER, API_USER, "bitbucket-token", "bitbucket-token-file", SECRET],
    account: &[USER, API_USER, "bitbucket-token"],
    secret_files: &["bitbucket-token-file"],
    git_address: Some(|text| Some(BitbucketUrl::parse(text).ok()?.site())),
};

/// Address of Bitbucket Cloud, our account there, and the proof of its deliveries.
pub struct BitbucketCloudSettings {
    /// Name as in repository ids: without scheme, port and path.
    pub hostname: String,
    /// Address of the API: `https://api.bitbucket.org/2.0`, or `https://HOST/PATH/2.0`.
    pub base_url: String,
    /// Empty if only `api_user` is set.
    pub user: String,
    /// Empty if it is not set.
    pub api_user: String,
    /// Absent only with `events-only`.
    pub token: Option<TokenSetting>,
    /// Absent only with `allow-unsigned-webhooks`.
    pub webhook_secret: Option<SecretString>,
    /// Setting of ours: the previous secret, which is still accepted.
    pub previous_webhook_secret: Option<SecretString>,
}

impl BitbucketCloudSettings {
    /// Returns the name of the account in the settings: the e-mail address, if there is one.
    pub fn account(&self) -> &str {
        if self.api_user.is_empty() { &self.user } else { &self.api_user }
    }
}

impl ServedHost for BitbucketCloudSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (BASE_URL, &self.hostname)
    }
}

const BASE_URL: &str = "bitbucket-base-url";
const USER: &str = "bitbucket-user";
const API_USER: &str = "bitbucket-api-user";
const SECRET: &str = "bitbucket-webhook-secret";
const PREVIOUS: &str = "bitbucket-previous-webhook-secret";
/// Names of the settings, if they are those of Bitbucket Data Center.
pub(super) const OF_DATA_CENTER: DataCenterNames = DataCenterNames {
    base_url: BASE_URL,
    user: USER,
    token: "bitbucket-token",
    token_file: "bitbucket-token-file",
    secret: SECRET,
    previous: PREVIOUS,
};
/// User of access tokens.
const ACCESS_TOKEN: &str = "x-token-auth";
/// Name of the host, and that of its API.
const OWN_HOSTS: [&str; 2] = ["bitbucket.org", "api.bitbucket.org"];
/// Path of the API.
const API: &str = "/2.0";
/// Message about the scopes and rights that the token needs.
const SCOPES: &str = "An API token needs the scopes of docs/bitbucket-cloud.md, and its account the right to write to the repositories (to \
     administer them, for approvals, for `mergeable` and for `tidelock doctor` to read webhooks)";

/// Reads address and account if they are set and not those of Data Center; reports everything that is missing.
pub(super) fn read(r: &mut Reader) -> Option<BitbucketCloudSettings> {
    let address = BitbucketUrl::parse(&r.text(BASE_URL)).map_err(|what| r.wrong(BASE_URL, what)).ok();
    let is_of_cloud = address.as_ref().is_none_or(|address| !address.is_of_data_center);
    if !is_of_cloud || !HOST.is_named(r) {
        return None;
    }
    let [user, api_user] = [USER, API_USER].map(|name| r.text(name).trim().to_owned());
    if user.is_empty() && api_user.is_empty() {
        r.wrong(
            USER,
            "(ATLANTIS_BITBUCKET_USER) is missing: the e-mail address of the account that the API token belongs to, or x-token-auth for \
             an access token",
        );
    }
    match (user.as_str(), api_user.as_str()) {
        (ACCESS_TOKEN, "") => {}
        (ACCESS_TOKEN, _) => {
            r.wrong(API_USER, "is for API tokens, and bitbucket-user is that of access tokens: leave one of them out")
        }
        (name, "") if !name.is_empty() && !name.contains('@') => {
            r.warn(USER, "is no e-mail address, which the API takes with API tokens: set bitbucket-api-user to it");
        }
        _ => {}
    }
    let missing = format!("(ATLANTIS_BITBUCKET_TOKEN) is missing, and so is bitbucket-token-file. {SCOPES}");
    let token = check::token(r, "bitbucket-token", "bitbucket-token-file", &missing);
    let (webhook_secret, previous_webhook_secret) = webhook_secrets(r, SECRET, PREVIOUS);
    let BitbucketUrl { hostname, base_url, .. } = address?;
    Some(BitbucketCloudSettings { hostname, base_url, user, api_user, token, webhook_secret, previous_webhook_secret })
}

/// Address of one of the two Bitbuckets.
pub(super) struct BitbucketUrl {
    /// Name of the host as in repository ids.
    pub(super) hostname: String,
    /// Address of the API of Cloud, or prefix of every address of Data Center.
    pub(super) base_url: String,
    pub(super) is_of_data_center: bool,
}

impl BitbucketUrl {
    /// Returns the prefix of the addresses for people and for git.
    pub(super) fn site(&self) -> String {
        let [own, api] = OWN_HOSTS;
        let base = self.base_url.strip_suffix(API).unwrap_or(&self.base_url);
        base.replace(&format!("https://{api}"), &format!("https://{own}"))
    }

    /// Parses an address. Every address of another host whose path does not end with that of the API of Cloud is one of Data Center, as in
    /// Atlantis.
    pub(super) fn parse(text: &str) -> Result<BitbucketUrl, &'static str> {
        const FORM: &str = "is neither https://api.bitbucket.org, nor of the form https://HOST/2.0 for a proxy before it, nor \
             https://HOST[:PORT][/PATH] of Bitbucket Data Center";
        let (hostname, base_url) = addresses::host_and_base(text, FORM)?;
        let [own, api] = OWN_HOSTS;
        if OWN_HOSTS.contains(&hostname.as_str()) {
            let of_host = |name: &str| [format!("https://{name}"), format!("https://{name}{API}")];
            let is_known = of_host(own).contains(&base_url) || of_host(api).contains(&base_url);
            let (hostname, base_url) = (own.to_owned(), format!("https://{api}{API}"));
            return if is_known {
                Ok(BitbucketUrl { hostname, base_url, is_of_data_center: false })
            } else {
                Err(FORM)
            };
        }
        let is_of_data_center = !base_url.ends_with(API);
        Ok(BitbucketUrl { hostname, base_url, is_of_data_center })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{invalid, loaded};
    use secrecy::ExposeSecret;

    const ACCOUNT: [(&str, &str); 3] = [
        ("ATLANTIS_BITBUCKET_USER", "bot@example.com"),
        ("ATLANTIS_BITBUCKET_TOKEN", "bitbucket_token_value\n"),
        ("ATLANTIS_BITBUCKET_WEBHOOK_SECRET", "a_secret_of_hooks"),
    ];

    #[test]
    fn the_base_url_is_that_of_the_cloud_or_of_a_proxy() {
        let api = "https://api.bitbucket.org/2.0";
        for (text, hostname, base) in [
            ("", "bitbucket.org", api),
            ("https://api.bitbucket.org", "bitbucket.org", api),
            ("https://API.bitbucket.org/", "bitbucket.org", api),
            ("https://api.bitbucket.org/2.0/", "bitbucket.org", api),
            ("https://bitbucket.org", "bitbucket.org", api),
            ("api.bitbucket.org", "bitbucket.org", api),
            ("https://proxy.example.com:8443/bb/2.0", "proxy.example.com", "https://proxy.example.com:8443/bb/2.0"),
            ("http://127.0.0.4:3000/2.0", "127.0.0.4", "http://127.0.0.4:3000/2.0"),
        ] {
            let read = loaded(&[&format!("--bitbucket-base-url={text}")], &ACCOUNT).hosts.bitbucket_cloud.unwrap();
            assert_eq!((read.hostname.as_str(), read.base_url.as_str()), (hostname, base), "{text}");
        }
        for text in ["https://git.example.com", "https://git.example.com/2.0/x", "https://bitbucket.org.example.com"] {
            assert!(
                loaded(&[&format!("--bitbucket-base-url={text}")], &ACCOUNT).hosts.bitbucket_cloud.is_none(),
                "{text} is one of Data Center"
            );
        }
        for text in [
            "http://proxy.example.com/2.0",
            "ftp://x/2.0",
            "a b",
            "https://u:p@host/2.0",
            "https://host/2.0?x",
            "https://api.bitbucket.org/1.0",
            "https://api.bitbucket.org:8443",
        ] {
            assert!(
                invalid(&[&format!("--bitbucket-base-url={text}")], &ACCOUNT).contains("bitbucket-base-url"),
                "{text}"
            );
        }
    }

    #[test]
    fn it_is_served_beside_another_host_or_alone() {
        let both = loaded(&[], &ACCOUNT);
        let cloud = both.hosts.bitbucket_cloud.unwrap();
        assert!(both.hosts.github.is_some() && cloud.user == "bot@example.com" && cloud.account() == "bot@example.com");
        assert!(
            matches!(cloud.token.unwrap(), TokenSetting::Value(token) if token.expose_secret() == "bitbucket_token_value")
        );
        for secret in ["bitbucket_token_value", "a_secret_of_hooks"] {
            assert!(both.secrets.iter().any(|known| known.expose_secret() == secret), "{secret} is masked");
        }
        let without = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")];
        let alone = loaded(&[], &[&ACCOUNT[..], &without].concat());
        assert!(alone.hosts.github.is_none() && alone.hosts.bitbucket_cloud.is_some());
        assert!(loaded(&["--bitbucket-base-url=https://p.example.com/2.0"], &[]).hosts.bitbucket_cloud.is_none());
    }

    #[test]
    fn modules_come_from_the_address_of_git() {
        for (text, origin) in [
            ("", "https://bitbucket.org"),
            ("https://proxy.example.com/bb/2.0", "https://proxy.example.com/bb"),
            ("https://git.example.com/bitbucket", "https://git.example.com/bitbucket"),
        ] {
            let read = loaded(&["--write-git-creds", &format!("--bitbucket-base-url={text}")], &ACCOUNT);
            assert!(read.module_credentials.iter().any(|one| one == origin), "{:?}", read.module_credentials);
        }
    }

    #[test]
    fn the_account_is_an_address_or_the_name_of_access_tokens() {
        let with = |user: &'static str| [&[("ATLANTIS_BITBUCKET_USER", user)], &ACCOUNT[1..]].concat();
        let read = loaded(&["--bitbucket-api-user=bot@example.com"], &with("bot")).hosts.bitbucket_cloud.unwrap();
        assert_eq!((read.user.as_str(), read.account()), ("bot", "bot@example.com"));
        let read = loaded(&["--bitbucket-api-user=bot@example.com"], &ACCOUNT[1..]).hosts.bitbucket_cloud.unwrap();
        assert_eq!((read.user.as_str(), read.account()), ("", "bot@example.com"));
        assert_eq!(loaded(&[], &with("x-token-auth")).hosts.bitbucket_cloud.unwrap().account(), "x-token-auth");
        let said = invalid(&["--bitbucket-api-user=bot@example.com"], &with("x-token-auth"));
        assert!(said.contains("bitbucket-api-user is for API tokens"), "{said}");
        let warned = loaded(&[], &with("bot")).warnings;
        assert!(warned.iter().any(|text| text.contains("set bitbucket-api-user to it")), "{warned:?}");
    }

    #[test]
    fn a_secret_that_could_be_found_by_trying_is_refused() {
        let with = |secret: &'static str| [&ACCOUNT[..2], &[(ACCOUNT[2].0, secret)]].concat();
        let said = invalid(&[], &with("fifteen_letters"));
        assert!(said.contains("BITBUCKET_WEBHOOK_SECRET is shorter than 16 characters"), "{said}");
        assert!(loaded(&[], &with("sixteen__letters")).hosts.bitbucket_cloud.is_some());
        let said = invalid(&["--bitbucket-previous-webhook-secret=short"], &ACCOUNT);
        assert!(said.contains("shorter than 16 characters"), "{said}");
        let open = loaded(&["--allow-unsigned-webhooks"], &ACCOUNT[..2]);
        assert!(
            open.hosts.bitbucket_cloud.is_some()
                && open.warnings.iter().any(|text| text.contains("everybody who reaches the port"))
        );
    }

    #[test]
    fn the_token_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token_of_the_file\n").unwrap();
        let path = format!("--bitbucket-token-file={}", file.path().display());
        assert!(invalid(&[&path], &ACCOUNT).contains("bitbucket-token are both given"));
        let read = loaded(&[&path], &[ACCOUNT[0], ACCOUNT[2]]);
        assert!(read.secrets.iter().any(|known| known.expose_secret() == "token_of_the_file"));
        assert!(
            matches!(read.hosts.bitbucket_cloud.unwrap().token, Some(TokenSetting::File(path)) if path == file.path())
        );
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
