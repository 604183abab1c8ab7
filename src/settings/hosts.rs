//! The hosts of repositories that settings can name. Each has a file of its own, and its line in the list below.

pub mod azure_devops;
pub mod bitbucket_cloud;
pub mod bitbucket_data_center;
pub mod gitea;
pub mod github;
pub mod gitlab;

use super::Settings;
use super::check::{self, SHORTEST_PROOF};
use super::modules::host_of_origin;
use super::poll;
use super::table::Setting;
use super::typed::Reader;
use crate::config::permissions::Allowed;
use secrecy::SecretString;

/// All hosts: the module of each with its settings.
macro_rules! known_hosts {
    ($($host:ident: $settings:ident,)*) => {
        pub(super) static ALL: &[&HostSettings] = &[$(&$host::HOST),*];

        /// Address and account of each host that is served.
        #[expect(missing_docs, reason = "each field is the host of that name")]
        pub struct HostsSettings {
            $(pub $host: Option<$host::$settings>,)*
        }

        impl HostsSettings {
            /// Reads the settings of all hosts; reports everything that is missing, and hosts that have one name.
            pub(super) fn read(r: &mut Reader) -> HostsSettings {
                let hosts = HostsSettings { $($host: $host::read(r),)* };
                check_names(&hosts.served(), r);
                hosts
            }

            /// Returns the hosts that are served.
            fn served(&self) -> Vec<&dyn ServedHost> {
                let all = [$(self.$host.as_ref().map(|host| host as &dyn ServedHost)),*];
                all.into_iter().flatten().collect()
            }
        }
    };
}

known_hosts! {
    github: GithubSettings,
    azure_devops: AzureDevOpsSettings,
    gitlab: GitlabSettings,
    gitea: GiteaSettings,
    bitbucket_cloud: BitbucketCloudSettings,
    bitbucket_data_center: BitbucketDataCenterSettings,
}

/// The settings of one host, by name.
pub(super) struct HostSettings {
    /// All of them that are read one by one.
    pub(super) rows: &'static [Setting],
    /// The host's name or address.
    pub(super) hostname: &'static str,
    /// Those that show that the host is used.
    pub(super) naming: &'static [&'static str],
    /// Those that show that the server has an account there.
    pub(super) account: &'static [&'static str],
    /// Those that name files with secrets.
    pub(super) secret_files: &'static [&'static str],
    /// Makes the address from which git fetches of the text of `hostname`, where it is another.
    pub(super) git_address: Option<fn(&str) -> Option<String>>,
}

/// A host that is served.
trait ServedHost {
    /// Returns its name as in repository ids, with the setting that has it.
    fn hostname(&self) -> (&'static str, &str);

    /// Returns the setting with rules of teams for repositories there, and the rules; absent if the host has no such setting.
    fn team_rules<'a>(&'a self, _settings: &'a Settings) -> Option<(&'static str, &'a [String])> {
        None
    }

    /// Returns true if it issues us tokens that can only read code.
    fn issues_reading_tokens(&self) -> bool {
        false
    }
}

/// Returns true if a setting is about one of the hosts.
pub(crate) fn is_of_a_host(name: &str) -> bool {
    ALL.iter().flat_map(|host| host.rows).any(|row| row.name == name)
}

impl HostSettings {
    /// Returns true if a setting shows that the host is used.
    pub(super) fn is_named(&self, r: &Reader) -> bool {
        self.naming.iter().any(|name| r.is_given(name))
    }

    /// Returns the address from which git fetches there.
    pub(super) fn git_address(&self, r: &Reader) -> String {
        let text = r.text(self.hostname);
        self.git_address.and_then(|address| address(&text)).unwrap_or(text)
    }

    /// Returns true if a setting shows that the server has an account there.
    pub(super) fn has_account(&self, r: &Reader) -> bool {
        self.account.iter().any(|name| r.is_given(name))
    }
}

impl Settings {
    /// Returns the rules of a setting that apply to repositories on this host, with the name of the setting; absent if it has none.
    pub fn team_rules(&self, host: &str) -> Option<(&'static str, Allowed)> {
        let served = self.hosts.served();
        let (name, rules) = served.iter().find(|served| served.hostname().1 == host)?.team_rules(self)?;
        (!rules.is_empty()).then(|| (name, Allowed { users: Vec::new(), teams: rules.to_vec() }))
    }

    /// Returns the first address of `module-credentials` whose host issues no tokens that can only read code.
    pub fn without_reading_token(&self) -> Option<&str> {
        let served = self.hosts.served();
        let issues = |address: &str| {
            let name = host_of_origin(address);
            let of_name = served.iter().find(|served| served.hostname().1.eq_ignore_ascii_case(&name));
            of_name.is_some_and(|served| served.issues_reading_tokens())
        };
        self.module_credentials.iter().map(String::as_str).find(|address| !issues(address))
    }
}

/// Reads the present and the previous secret of webhooks from the settings of these names; reports one that can be guessed.
pub(super) fn webhook_secrets(
    r: &mut Reader,
    present: &'static str,
    previous: &'static str,
) -> (Option<SecretString>, Option<SecretString>) {
    let secrets = (r.secret(present), r.secret(previous));
    check_secret(r, present, secrets.0.as_ref());
    if secrets.1.as_ref().is_some_and(check::is_guessable) {
        r.wrong(previous, format!("is shorter than {SHORTEST_PROOF} characters: leave it out, and lose deliveries"));
    }
    secrets
}

/// Checks that deliveries are signed with a secret that cannot be guessed. `setting` has the secret.
pub(super) fn check_secret(r: &mut Reader, setting: &'static str, secret: Option<&SecretString>) {
    match (secret, r.switch("allow-unsigned-webhooks")) {
        (Some(secret), _) if check::is_guessable(secret) => r.wrong(
            setting,
            format!(
                "is shorter than {SHORTEST_PROOF} characters: it could be found by trying. Make one with `openssl rand -hex 20`, and \
                 set it here and in the webhooks"
            ),
        ),
        (Some(_), _) => {}
        (None, _) if poll::is_on(r) => {}
        (None, true) => r.warn(setting, "is missing: everybody who reaches the port can run commands here"),
        (None, false) => {
            let variable = setting.to_uppercase().replace('-', "_");
            r.wrong(
                setting,
                format!(
                    "(ATLANTIS_{variable}) is missing: without it everybody who reaches the port can run commands here. Set the same \
                     text here and in the webhooks on the host"
                ),
            );
        }
    }
}

/// Refuses two hosts with one name: repositories are known by the name of their host.
fn check_names(served: &[&dyn ServedHost], r: &mut Reader) {
    for (at, (setting, name)) in served.iter().map(|host| host.hostname()).enumerate() {
        let mut before = served[..at].iter().map(|host| host.hostname());
        if let Some((other, _)) = before.find(|(_, known)| known.eq_ignore_ascii_case(name)) {
            let what = format!(
                "is {name}, and so is {other}: repositories are known by the name of their host, so give each a name of its own"
            );
            r.wrong(setting, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::ValueKind;
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn every_file_of_a_host_is_hidden_from_steps() {
        for host in ALL {
            let files = host.rows.iter().filter(|row| row.kind == ValueKind::Path).map(|row| row.name);
            let (mut files, mut hidden): (Vec<&str>, Vec<&str>) = (files.collect(), host.secret_files.to_vec());
            files.sort_unstable();
            hidden.sort_unstable();
            assert_eq!(files, hidden);
        }
    }

    #[test]
    fn the_rules_of_a_setting_are_for_repositories_on_its_host() {
        let flags = [
            "--gh-user=bot",
            "--gh-token=t",
            "--gh-team-allowlist=sre:apply",
            "--gitlab-user=bot",
            "--gitlab-token=t",
            "--gitlab-group-allowlist=acme/platform:plan",
            "--allow-unsigned-webhooks",
            "--repo-allowlist=*",
        ];
        let settings = Settings::load(flags.map(OsString::from), [("HOME".into(), "/home/tide".into())]);
        let settings = settings.unwrap_or_else(|error| panic!("{error}"));
        let rules = |host| settings.team_rules(host).map(|(name, allowed)| (name, allowed.teams.join(",")));
        assert_eq!(rules("github.com"), Some(("gh-team-allowlist", "sre:apply".to_owned())));
        assert_eq!(rules("gitlab.com"), Some(("gitlab-group-allowlist", "acme/platform:plan".to_owned())));
        assert_eq!(rules("dev.azure.com"), None);
    }

    #[test]
    fn two_hosts_with_one_name_are_refused() {
        let account = ["--gh-user=bot", "--gh-token=t", "--azuredevops-user=bot", "--azuredevops-token=t"];
        let common = ["--allow-unsigned-webhooks", "--repo-allowlist=git.example.com/acme/*"];
        let both = |first: &str, second: &str| {
            let hosts = [format!("--gh-hostname={first}"), format!("--azuredevops-hostname={second}")];
            let flags = account.iter().chain(&common).map(OsString::from).chain(hosts.map(OsString::from));
            Settings::load(flags, [("HOME".into(), "/home/tide".into())]).err().map(|error| error.to_string())
        };
        assert_eq!(both("github.com", "dev.azure.com"), None);
        let refused = both("git.example.com", "GIT.example.com:8443/tfs").unwrap();
        assert!(refused.starts_with("--azuredevops-hostname is git.example.com, and so is gh-hostname"), "{refused}");
    }
}
