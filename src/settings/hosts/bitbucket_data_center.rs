//! Settings of Bitbucket Data Center: those of Atlantis, if `bitbucket-base-url` is its address, or else settings of ours, with which one
//! server serves both Bitbuckets.

use super::bitbucket_cloud::{self, BitbucketUrl};
use super::{HostSettings, ServedHost, webhook_secrets};
use crate::settings::typed::Reader;
use crate::settings::{TokenSetting, addresses, check};
use secrecy::SecretString;

rows! {
    static ROWS {
        Tidelock {
            /// Bitbucket Data Center beside Bitbucket Cloud: https://HOST[:PORT][/PATH], such as https://git.example.com/bitbucket, or
            /// http://LOOPBACK:PORT. Without Bitbucket Cloud, bitbucket-base-url is enough.
            bitbucket_data_center_base_url: Text,
            /// The previous secret, still accepted: for a change of secrets without a lost delivery.
            bitbucket_data_center_previous_webhook_secret: Secret,
            /// HTTP access token of the account, of a project or of a repository, with the permission to write to repositories.
            bitbucket_data_center_token: Secret,
            /// File with bitbucket-data-center-token, read again on every use.
            bitbucket_data_center_token_file: Path,
            /// User name of the server's account on Bitbucket Data Center, or x-token-auth for the token of a project or repository.
            bitbucket_data_center_user: Text,
            /// Secret with which Bitbucket Data Center signs deliveries, of 16 characters or more.
            bitbucket_data_center_webhook_secret: Secret,
        }
    }
}

/// Bitbucket Data Center among the hosts of the settings, by the settings of ours. Those of Atlantis are in `bitbucket_cloud`.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: OURS.base_url,
    naming: &[OURS.base_url, OURS.user, OURS.token, OURS.token_file, OURS.secret],
    account: &[OURS.user, OURS.token],
    secret_files: &[OURS.token_file],
    git_address: None,
};

/// Names of the settings that name Bitbucket Data Center, for messages.
#[expect(missing_docs, reason = "each field is the setting of that meaning")]
pub struct DataCenterNames {
    pub base_url: &'static str,
    pub user: &'static str,
    pub token: &'static str,
    pub token_file: &'static str,
    pub secret: &'static str,
    pub previous: &'static str,
}

/// Names of the settings of ours.
const OURS: DataCenterNames = DataCenterNames {
    base_url: "bitbucket-data-center-base-url",
    user: "bitbucket-data-center-user",
    token: "bitbucket-data-center-token",
    token_file: "bitbucket-data-center-token-file",
    secret: "bitbucket-data-center-webhook-secret",
    previous: "bitbucket-data-center-previous-webhook-secret",
};

/// Address of Bitbucket Data Center, our account there, and the proof of its deliveries.
pub struct BitbucketDataCenterSettings {
    /// Name as in repository ids: without scheme, port and path.
    pub hostname: String,
    /// Prefix of every address: `https://HOST`, `https://HOST/bitbucket`, without trailing slash.
    pub base_url: String,
    /// User name of the account; `x-token-auth` for the token of a project or repository.
    pub user: String,
    /// Absent only with `events-only`.
    pub token: Option<TokenSetting>,
    /// Absent only with `allow-unsigned-webhooks`.
    pub webhook_secret: Option<SecretString>,
    /// Setting of ours: the previous secret, which is still accepted.
    pub previous_webhook_secret: Option<SecretString>,
    /// Names of the settings that were read.
    pub names: &'static DataCenterNames,
}

impl ServedHost for BitbucketDataCenterSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (self.names.base_url, &self.hostname)
    }
}

/// Message about the permissions that the token needs.
const PERMISSIONS: &str = "An HTTP access token needs the permission to write to repositories, and its account the same right there (to \
     administer them, for approvals and for `tidelock doctor` to read webhooks)";

/// Reads address and account if they are set; reports everything that is missing.
pub(super) fn read(r: &mut Reader) -> Option<BitbucketDataCenterSettings> {
    // The settings of Cloud report an address that is none.
    let shared = BitbucketUrl::parse(&r.text(bitbucket_cloud::OF_DATA_CENTER.base_url)).ok();
    let shared = shared.filter(|address| address.is_of_data_center);
    match (shared, HOST.is_named(r)) {
        (Some(_), true) => {
            r.wrong(
                bitbucket_cloud::OF_DATA_CENTER.base_url,
                format!("is an address of Bitbucket Data Center, and so is {}: leave one of them out", OURS.base_url),
            );
            None
        }
        (Some(address), false) => {
            let account = bitbucket_cloud::HOST.is_named(r).then(|| account(r, &bitbucket_cloud::OF_DATA_CENTER))?;
            if r.is_given("bitbucket-api-user") {
                r.warn("bitbucket-api-user", "has no effect: it is for Bitbucket Cloud");
            }
            Some(BitbucketDataCenterSettings { hostname: address.hostname, base_url: address.base_url, ..account })
        }
        (None, true) => {
            let address = own_address(r);
            let account = account(r, &OURS);
            let BitbucketUrl { hostname, base_url, .. } = address?;
            Some(BitbucketDataCenterSettings { hostname, base_url, ..account })
        }
        (None, false) => None,
    }
}

/// Returns the address in the settings of ours.
fn own_address(r: &mut Reader) -> Option<BitbucketUrl> {
    const FORM: &str = "is not of the form https://HOST, https://HOST:PORT or https://HOST/PATH, such as https://git.example.com/bitbucket";
    let text = r.text(OURS.base_url);
    if text.is_empty() {
        r.wrong(
            OURS.base_url,
            "(TIDELOCK_BITBUCKET_DATA_CENTER_BASE_URL) is missing: the address of Bitbucket Data Center, such as https://git.example.com",
        );
        return None;
    }
    let read = addresses::host_and_base(&text, FORM).and_then(|_| {
        let address = BitbucketUrl::parse(&text).ok().filter(|address| address.is_of_data_center);
        address.ok_or("is an address of Bitbucket Cloud, which bitbucket-base-url names")
    });
    read.map_err(|what| r.wrong(OURS.base_url, what)).ok()
}

/// Reads all but the address from the settings of these names.
fn account(r: &mut Reader, names: &'static DataCenterNames) -> BitbucketDataCenterSettings {
    let variable = |name: &str| format!("ATLANTIS_{}", name.to_uppercase().replace('-', "_"));
    let user = r.text(names.user).trim().trim_start_matches('@').to_owned();
    if user.is_empty() {
        r.wrong(
            names.user,
            format!(
                "({}) is missing: the user name of the account that the token belongs to, or x-token-auth for the token of a project or \
                 repository",
                variable(names.user)
            ),
        );
    }
    let missing = format!("({}) is missing, and so is {}. {PERMISSIONS}", variable(names.token), names.token_file);
    let token = check::token(r, names.token, names.token_file, &missing);
    let (webhook_secret, previous_webhook_secret) = webhook_secrets(r, names.secret, names.previous);
    BitbucketDataCenterSettings {
        hostname: String::new(),
        base_url: String::new(),
        user,
        token,
        webhook_secret,
        previous_webhook_secret,
        names,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{invalid, loaded};
    use secrecy::ExposeSecret;

    const ATLANTIS: [(&str, &str); 4] = [
        ("ATLANTIS_BITBUCKET_BASE_URL", "https://git.example.com"),
        ("ATLANTIS_BITBUCKET_USER", "@tidelock"),
        ("ATLANTIS_BITBUCKET_TOKEN", "data_center_token\n"),
        ("ATLANTIS_BITBUCKET_WEBHOOK_SECRET", "a_secret_of_hooks"),
    ];
    const OWN: [(&str, &str); 4] = [
        ("TIDELOCK_BITBUCKET_DATA_CENTER_BASE_URL", "https://git.example.com"),
        ("TIDELOCK_BITBUCKET_DATA_CENTER_USER", "tidelock"),
        ("TIDELOCK_BITBUCKET_DATA_CENTER_TOKEN", "data_center_token"),
        ("TIDELOCK_BITBUCKET_DATA_CENTER_WEBHOOK_SECRET", "a_secret_of_hooks"),
    ];
    const CLOUD: [(&str, &str); 3] = [
        ("ATLANTIS_BITBUCKET_USER", "bot@example.com"),
        ("ATLANTIS_BITBUCKET_TOKEN", "cloud_token_value"),
        ("ATLANTIS_BITBUCKET_WEBHOOK_SECRET", "another_secret_of_hooks"),
    ];

    /// Returns variables with another value of the first one.
    fn with_first<'a>(all: &[(&'a str, &'a str)], value: &'a str) -> Vec<(&'a str, &'a str)> {
        [&[(all[0].0, value)], &all[1..]].concat()
    }

    #[test]
    fn every_form_of_the_base_url_leads_to_its_address() {
        for (text, hostname, base) in [
            ("https://Git.example.com/", "git.example.com", "https://git.example.com"),
            ("https://git.example.com:8443/bitbucket/", "git.example.com", "https://git.example.com:8443/bitbucket"),
            ("git.example.com", "git.example.com", "https://git.example.com"),
            ("http://127.0.0.5:7990/bitbucket", "127.0.0.5", "http://127.0.0.5:7990/bitbucket"),
        ] {
            for all in [&ATLANTIS, &OWN] {
                let settings = loaded(&[], &with_first(all, text));
                let read = settings.hosts.bitbucket_data_center.unwrap();
                assert_eq!((read.hostname.as_str(), read.base_url.as_str()), (hostname, base), "{text}");
                assert_eq!(read.user, "tidelock");
                assert!(settings.hosts.bitbucket_cloud.is_none());
            }
        }
        for text in ["http://git.example.com", "ftp://x", "a b", "https://u:p@host", "https://host?x"] {
            for all in [&ATLANTIS, &OWN] {
                let said = invalid(&[], &with_first(all, text));
                assert!(said.contains(&format!("{} ", all[0].0)) && !said.contains('\n'), "{text}: {said}");
            }
        }
        for text in ["https://api.bitbucket.org", "https://proxy.example.com/2.0"] {
            let said = invalid(&[], &with_first(&OWN, text));
            assert!(said.contains("BASE_URL is an address of Bitbucket Cloud"), "{said}");
        }
    }

    #[test]
    fn both_bitbuckets_are_served_by_one_server() {
        let both = loaded(&[], &[&CLOUD[..], &OWN].concat());
        let (cloud, data_center) = (both.hosts.bitbucket_cloud.unwrap(), both.hosts.bitbucket_data_center.unwrap());
        assert_eq!((cloud.hostname.as_str(), data_center.hostname.as_str()), ("bitbucket.org", "git.example.com"));
        assert_eq!(data_center.names.user, "bitbucket-data-center-user");
        for secret in ["data_center_token", "a_secret_of_hooks", "cloud_token_value"] {
            assert!(both.secrets.iter().any(|known| known.expose_secret() == secret), "{secret} is masked");
        }
        let without = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", ""), ("ATLANTIS_GH_WEBHOOK_SECRET", "")];
        for all in [&ATLANTIS, &OWN] {
            let alone = loaded(&[], &[&all[..], &without].concat());
            assert!(alone.hosts.github.is_none() && alone.hosts.bitbucket_data_center.is_some());
        }
        assert!(loaded(&["--bitbucket-base-url=https://git.example.com"], &[]).hosts.bitbucket_data_center.is_none());
        let said =
            invalid(&[], &[&CLOUD[..], &with_first(&OWN, "https://bitbucket.example.com"), &[ATLANTIS[0]]].concat());
        assert!(said.contains("BITBUCKET_BASE_URL is an address of Bitbucket Data Center, and so is"), "{said}");
    }

    #[test]
    fn two_hosts_with_one_name_are_refused_by_the_setting_that_was_read() {
        let gitea = [
            ("ATLANTIS_GITEA_BASE_URL", "https://git.example.com"),
            ("ATLANTIS_GITEA_USER", "bot"),
            ("ATLANTIS_GITEA_TOKEN", "gitea_token"),
            ("ATLANTIS_GITEA_WEBHOOK_SECRET", "a_secret_of_hooks"),
        ];
        for all in [&ATLANTIS, &OWN] {
            let said = invalid(&[], &[&gitea[..], all].concat());
            assert!(said.starts_with(&format!("{} is git.example.com, and so is gitea-base-url", all[0].0)), "{said}");
        }
    }

    #[test]
    fn a_secret_that_could_be_found_by_trying_is_refused() {
        for all in [&ATLANTIS, &OWN] {
            let with = |secret: &'static str| [&all[..3], &[(all[3].0, secret)]].concat();
            let said = invalid(&[], &with("fifteen_letters"));
            assert!(said.contains("WEBHOOK_SECRET is shorter than 16 characters"), "{said}");
            assert!(loaded(&[], &with("sixteen__letters")).hosts.bitbucket_data_center.is_some());
            let open = loaded(&["--allow-unsigned-webhooks"], &all[..3]);
            assert!(open.warnings.iter().any(|text| text.contains("everybody who reaches the port")));
            assert!(open.hosts.bitbucket_data_center.is_some_and(|read| read.webhook_secret.is_none()));
        }
        let said = invalid(&["--bitbucket-data-center-previous-webhook-secret=short"], &OWN);
        assert!(said.contains("shorter than 16 characters"), "{said}");
    }

    #[test]
    fn the_token_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token_of_the_file\n").unwrap();
        for (all, name) in [(&ATLANTIS, "bitbucket-token"), (&OWN, "bitbucket-data-center-token")] {
            let path = format!("--{name}-file={}", file.path().display());
            assert!(invalid(&[&path], all).contains(&format!("{name} are both given")));
            let read = loaded(&[&path], &[all[0], all[1], all[3]]);
            assert!(read.secrets.iter().any(|known| known.expose_secret() == "token_of_the_file"));
            let token = read.hosts.bitbucket_data_center.unwrap().token;
            assert!(matches!(token, Some(TokenSetting::File(path)) if path == file.path()));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for all in [&ATLANTIS[1..], &OWN[..]] {
            for (name, _) in all {
                let setting = name.split_once('_').unwrap().1.to_lowercase().replace('_', "-");
                let given = [&[ATLANTIS[0]][..usize::from(all.len() == 3)], all].concat();
                let env: Vec<_> = given.into_iter().filter(|(other, _)| other != name).collect();
                let said = invalid(&[], &env);
                assert!(said.contains(&format!("{setting} ")) && said.contains("is missing"), "{said}");
            }
        }
    }

    #[test]
    fn the_address_of_an_account_on_the_cloud_has_no_effect() {
        let said = loaded(&["--bitbucket-api-user=bot@example.com"], &ATLANTIS).warnings;
        assert!(said.iter().any(|text| text.starts_with("--bitbucket-api-user has no effect")), "{said:?}");
    }
}
