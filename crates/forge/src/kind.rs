//! The hosts that a forge can speak as, their differences in addresses and settings, and small helpers.

use super::{BOT, Forge, bitbucket_data_center};
use anyhow::bail;
use secrecy::SecretString;

/// The host that a forge speaks as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostKind {
    /// GitHub, as GitHub Enterprise is addressed.
    #[default]
    Github,
    /// Azure DevOps Server: collections lie below `/tfs`.
    AzureDevOps,
    /// GitLab Self-Managed: projects lie in groups of any depth.
    Gitlab,
    /// Gitea: repositories as on GitHub.
    Gitea,
    /// Bitbucket Cloud: repositories lie in workspaces, and the API below `/2.0`.
    BitbucketCloud,
    /// Bitbucket Data Center: repositories lie in projects or are personal ones (`~user/slug`), and all of it below `/bitbucket`.
    BitbucketDataCenter,
}

/// Most levels of groups above a project (docs.gitlab.com/user/group/subgroups).
const MAX_GROUPS: usize = 20;

impl HostKind {
    /// All hosts, the default first.
    pub const ALL: [HostKind; 6] = [
        HostKind::Github,
        HostKind::AzureDevOps,
        HostKind::Gitlab,
        HostKind::Gitea,
        HostKind::BitbucketCloud,
        HostKind::BitbucketDataCenter,
    ];

    /// Name by which people choose it.
    pub fn name(self) -> &'static str {
        match self {
            HostKind::Github => "github",
            HostKind::AzureDevOps => "azure-devops",
            HostKind::Gitlab => "gitlab",
            HostKind::Gitea => "gitea",
            HostKind::BitbucketCloud => "bitbucket-cloud",
            HostKind::BitbucketDataCenter => "bitbucket-data-center",
        }
    }

    /// Full name of a repository in the form of the host, for examples.
    pub fn example_repository(self, name: &str) -> String {
        let owner = match self {
            HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud => "acme",
            HostKind::BitbucketDataCenter => "ACME",
            HostKind::AzureDevOps => "acme/Platform Team",
            HostKind::Gitlab => "acme/platform",
        };
        format!("{owner}/{name}")
    }

    /// Host name in the forge's address. The names differ, so that one server can have a forge of each kind.
    pub(super) fn hostname(self) -> &'static str {
        match self {
            HostKind::Github => "127.0.0.1",
            HostKind::AzureDevOps => "localhost",
            HostKind::Gitlab => "127.0.0.2",
            HostKind::Gitea => "127.0.0.3",
            HostKind::BitbucketCloud => "127.0.0.4",
            HostKind::BitbucketDataCenter => "127.0.0.5",
        }
    }

    /// Path of the address that a server's setting names.
    pub(super) fn root(self) -> &'static str {
        match self {
            HostKind::Github | HostKind::Gitlab | HostKind::Gitea => "",
            HostKind::AzureDevOps => "/tfs",
            HostKind::BitbucketCloud => "/2.0",
            HostKind::BitbucketDataCenter => bitbucket_data_center::ROOT,
        }
    }

    /// Splits a repository's full name into owner and name; fails if it is not valid.
    pub(super) fn owner_and_name(self, full_name: &str) -> anyhow::Result<(&str, &str)> {
        let found = full_name.rsplit_once('/').filter(|(owner, name)| self.is_owner(owner) && self.is_part(name));
        match (found, self) {
            (Some(found), _) => Ok(found),
            (None, HostKind::Github | HostKind::Gitea) => {
                bail!("not a repository's name: {full_name:?}, expected OWNER/NAME")
            }
            (None, HostKind::AzureDevOps) => {
                bail!("not a repository's name: {full_name:?}, expected COLLECTION/PROJECT/NAME")
            }
            (None, HostKind::Gitlab) => bail!("not a project's path: {full_name:?}, expected GROUP[/SUBGROUP…]/NAME"),
            (None, HostKind::BitbucketCloud) => {
                bail!("not a repository's name: {full_name:?}, expected WORKSPACE/NAME")
            }
            (None, HostKind::BitbucketDataCenter) => {
                bail!("not a repository's name: {full_name:?}, expected PROJECT/slug or ~user/slug")
            }
        }
    }

    /// Owner of an account's forks, and the login of the account.
    pub(super) fn fork_owner(self, account: &str) -> (String, &str) {
        match self {
            HostKind::BitbucketDataCenter => bitbucket_data_center::fork_owner(account),
            _ => (account.to_owned(), account),
        }
    }

    /// Returns true if a text can be the owner of a repository.
    pub(super) fn is_owner(self, text: &str) -> bool {
        let counts = match self {
            HostKind::BitbucketDataCenter => return bitbucket_data_center::is_key(text),
            HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud => 1..=1,
            HostKind::AzureDevOps => 2..=2,
            HostKind::Gitlab => 1..=MAX_GROUPS,
        };
        counts.contains(&text.split('/').count()) && text.split('/').all(|part| self.is_part(part))
    }

    /// Returns true if a text can be a part of a full name. Parts on Azure DevOps may have spaces inside.
    pub(super) fn is_part(self, text: &str) -> bool {
        match self {
            HostKind::Github | HostKind::Gitlab | HostKind::Gitea | HostKind::BitbucketCloud => is_name(text),
            HostKind::AzureDevOps => text.trim() == text && is_name(&text.replace(' ', "-")),
            HostKind::BitbucketDataCenter => is_name(text) && !text.contains(|c: char| c.is_ascii_uppercase()),
        }
    }

    /// Mark before the number of a pull request.
    pub fn pull_mark(self) -> char {
        match self {
            HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud | HostKind::BitbucketDataCenter => '#',
            HostKind::AzureDevOps | HostKind::Gitlab => '!',
        }
    }

    /// Path of a repository's page.
    pub(super) fn home(self, full_name: &str) -> String {
        if self == HostKind::BitbucketDataCenter {
            return bitbucket_data_center::home(full_name);
        }
        let parts: Vec<String> = full_name.split('/').map(encoded).collect();
        match (self, parts.as_slice()) {
            (HostKind::AzureDevOps, [collection, project, name]) => format!("/tfs/{collection}/{project}/_git/{name}"),
            _ => format!("/{}", parts.join("/")),
        }
    }

    /// Path of a repository for git.
    pub(super) fn clone_path(self, full_name: &str) -> String {
        match self {
            HostKind::AzureDevOps => self.home(full_name),
            HostKind::BitbucketDataCenter => bitbucket_data_center::clone_path(full_name),
            _ => format!("{}.git", self.home(full_name)),
        }
    }

    /// Prefix of the paths of a repository's other pages. On GitLab a `-` separates them from names of groups and projects.
    pub(super) fn pages(self, full_name: &str) -> String {
        let separator = if self == HostKind::Gitlab { "/-" } else { "" };
        format!("{}{separator}", self.home(full_name))
    }

    /// Path of a pull request's page.
    pub(super) fn pull_page(self, full_name: &str, number: u64) -> String {
        let word = match self {
            HostKind::Github => "pull",
            HostKind::AzureDevOps => "pullrequest",
            HostKind::Gitlab => "merge_requests",
            HostKind::Gitea => "pulls",
            HostKind::BitbucketCloud | HostKind::BitbucketDataCenter => "pull-requests",
        };
        format!("{}/{word}/{number}", self.pages(full_name))
    }

    /// Ref in the base repository that has the head of a pull request, also of one from a fork; absent on a host without such refs.
    pub(super) fn pull_ref(self, number: u64) -> Option<String> {
        match self {
            HostKind::Github | HostKind::AzureDevOps | HostKind::Gitea => Some(format!("refs/pull/{number}/head")),
            HostKind::Gitlab => Some(format!("refs/merge-requests/{number}/head")),
            HostKind::BitbucketDataCenter => Some(format!("refs/pull-requests/{number}/from")),
            HostKind::BitbucketCloud => None,
        }
    }

    /// Beginning of the account's tokens. Those of Gitea are 40 hexadecimal digits without a prefix.
    pub(super) fn token_prefix(self) -> &'static str {
        match self {
            HostKind::Github | HostKind::AzureDevOps => "ghp_",
            HostKind::Gitlab => "glpat-",
            HostKind::Gitea => "61746c6e",
            HostKind::BitbucketCloud => "ATATT3xFfGF0",
            HostKind::BitbucketDataCenter => "BBDC-",
        }
    }

    /// Returns the repository of a page's path, and the rest of the path; absent if the path names none.
    pub(super) fn split(self, segments: &[String]) -> Option<(String, Vec<&str>)> {
        if self == HostKind::BitbucketDataCenter {
            return bitbucket_data_center::split(segments);
        }
        let (owner, name, rest) = match (self, segments) {
            (HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud, [owner, name, rest @ ..]) => {
                (owner.clone(), name, rest)
            }
            (HostKind::AzureDevOps, [root, collection, project, git, name, rest @ ..])
                if root == "tfs" && git == "_git" =>
            {
                (format!("{collection}/{project}"), name, rest)
            }
            (HostKind::Gitlab, all) => {
                let names = all.iter().take_while(|segment| *segment != "-").count();
                let (name, groups) = all[..names].split_last()?;
                if groups.is_empty() {
                    return None;
                }
                (groups.join("/"), name, all.get(names + 1..).unwrap_or_default())
            }
            _ => return None,
        };
        Some((format!("{owner}/{name}"), rest.iter().map(String::as_str).collect()))
    }

    /// Login in the form of the host.
    pub(super) fn unique_name(self, login: &str) -> String {
        match self {
            HostKind::Github | HostKind::Gitlab | HostKind::Gitea | HostKind::BitbucketDataCenter => login.to_owned(),
            HostKind::AzureDevOps | HostKind::BitbucketCloud => format!("{login}@example.com"),
        }
    }
}

impl Forge {
    /// Settings of a server that uses this forge, by the names of its flags. None of them is a secret.
    pub fn server_settings(&self) -> Vec<(&'static str, String)> {
        let user = self.shared.kind.unique_name(BOT);
        match self.shared.kind {
            HostKind::Github => vec![("gh-hostname", self.hostname_setting()), ("gh-user", user)],
            HostKind::AzureDevOps => vec![
                ("azuredevops-hostname", self.hostname_setting()),
                ("azuredevops-user", user),
                ("azuredevops-webhook-user", super::hooks::BASIC_USER.to_owned()),
            ],
            HostKind::Gitlab => vec![("gitlab-hostname", self.hostname_setting()), ("gitlab-user", user)],
            HostKind::Gitea => vec![("gitea-base-url", self.hostname_setting()), ("gitea-user", user)],
            HostKind::BitbucketCloud => {
                vec![("bitbucket-base-url", self.hostname_setting()), ("bitbucket-user", self.bitbucket_cloud_user())]
            }
            HostKind::BitbucketDataCenter => {
                vec![("bitbucket-data-center-base-url", self.hostname_setting()), ("bitbucket-data-center-user", user)]
            }
        }
    }

    /// Secrets of such a server, by the names of variables.
    pub fn server_secrets(&self) -> [(&'static str, SecretString); 2] {
        let names = match self.shared.kind {
            HostKind::Github => ["TIDELOCK_GH_TOKEN", "TIDELOCK_GH_WEBHOOK_SECRET"],
            HostKind::AzureDevOps => ["TIDELOCK_AZUREDEVOPS_TOKEN", "TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD"],
            HostKind::Gitlab => ["TIDELOCK_GITLAB_TOKEN", "TIDELOCK_GITLAB_WEBHOOK_SECRET"],
            HostKind::Gitea => ["TIDELOCK_GITEA_TOKEN", "TIDELOCK_GITEA_WEBHOOK_SECRET"],
            HostKind::BitbucketCloud => ["TIDELOCK_BITBUCKET_TOKEN", "TIDELOCK_BITBUCKET_WEBHOOK_SECRET"],
            HostKind::BitbucketDataCenter => {
                ["TIDELOCK_BITBUCKET_DATA_CENTER_TOKEN", "TIDELOCK_BITBUCKET_DATA_CENTER_WEBHOOK_SECRET"]
            }
        };
        let [token, secret] = names;
        [(token, self.token()), (secret, self.webhook_secret())]
    }
}

/// Returns true for letters, digits, `-`, `_` and inner dots: GitHub allows them in names, and they are safe in paths.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 100
        && !text.starts_with(['.', '-'])
        && !text.ends_with(".git")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A segment of a path, percent-encoded.
fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// The segments of a path without their percent-encoding.
pub(super) fn segments(path: &str) -> Vec<String> {
    let plain = |segment: &str| {
        let text = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
        url::form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned()).unwrap_or_default()
    };
    path.trim_matches('/').split('/').map(plain).collect()
}

/// Returns 128 random bits, in hex.
pub(super) fn random_hex() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(hex::encode(bytes))
}

/// Writes a time in the form of the state. GitHub reports no fractions of a second; its shapes leave them out.
pub(super) fn written(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Returns the present time in the form of the state.
pub(super) fn timestamp() -> String {
    written(jiff::Timestamp::now())
}
