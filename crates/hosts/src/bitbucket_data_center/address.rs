//! Addresses on Bitbucket Data Center: `https://HOST[:PORT][/PATH]`, with the API at `/rest` and repositories at `/scm` below it.

use crate::vcs::HostError;
use crate::vcs::http::segment;
use tidelock_core::domain::RepoId;
use url::Url;

/// Path of the API below the address of an instance. Its version is the newest that the instance has.
const API: &str = "/rest/api/latest";
/// Longest key of a project and slug of a repository that is accepted, in bytes
/// (`RestProject` and `RestRepository`: columns of 128 characters), with the `~` of a person's own project.
const MAX_NAME: usize = 129;

/// Address of an instance, which may lie below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitbucketDataCenterAddress {
    hostname: String,
    base: String,
}

impl BitbucketDataCenterAddress {
    /// Reads the address of an instance, as people open it in a browser.
    ///
    /// # Errors
    ///
    /// Reason, as text that follows the setting's name.
    pub fn of_base_url(url: &str) -> Result<BitbucketDataCenterAddress, &'static str> {
        let Ok(parsed) = Url::parse(url) else { return Err("is no address") };
        let Some(host) = parsed.host_str().filter(|_| matches!(parsed.scheme(), "https" | "http")) else {
            return Err("does not begin with https://");
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("contains a user name or a password");
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err("has a query or a fragment");
        }
        if parsed.path_segments().is_some_and(|mut parts| parts.any(|part| part == "rest")) {
            return Err("leads to the API: leave out /rest and what follows it");
        }
        let base = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(BitbucketDataCenterAddress { hostname: host.to_ascii_lowercase(), base })
    }

    /// Host name, as in repository ids.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Prefix of every address, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the repository with the key of a project and a slug; absent if there can be none.
    pub fn repository(&self, key: &str, slug: &str) -> Option<RepoId> {
        let repo = RepoId { host: self.hostname.clone(), owner: key.to_owned(), name: slug.to_owned() };
        is_sound(&repo).then_some(repo)
    }

    /// Address from which git fetches a repository; absent if its names cannot be a repository's.
    pub fn clone_url(&self, repo: &RepoId) -> Option<String> {
        is_sound(repo).then(|| format!("{}/scm/{}/{}.git", self.base, repo.owner.to_ascii_lowercase(), repo.name))
    }

    /// Address of the page of a pull request.
    pub fn pull_url(&self, repo: &RepoId, number: u64) -> String {
        let owner = match repo.owner.strip_prefix('~') {
            Some(user) => format!("users/{}", segment(user)),
            None => format!("projects/{}", segment(&repo.owner)),
        };
        format!("{}/{owner}/repos/{}/pull-requests/{number}", self.base, segment(&repo.name))
    }

    /// Path of a repository below the API, such as `/projects/PRJ/repos/infra`.
    ///
    /// # Errors
    ///
    /// [`HostError::Rejected`] if the names cannot be a repository's.
    pub(super) fn path(repo: &RepoId) -> Result<String, HostError> {
        if is_sound(repo) {
            return Ok(format!("/projects/{}/repos/{}", segment(&repo.owner), segment(&repo.name)));
        }
        let message = "no such repository can exist".to_owned();
        Err(HostError::Rejected { what: repo.to_string(), status: 404, message })
    }

    /// Path of a repository with that of the API, such as `/rest/api/latest/projects/PRJ/repos/infra`.
    ///
    /// # Errors
    ///
    /// [`HostError::Rejected`] if the names cannot be a repository's.
    pub fn repo_path(&self, repo: &RepoId) -> Result<String, HostError> {
        Ok(format!("{API}{}", BitbucketDataCenterAddress::path(repo)?))
    }
}

/// Returns true if the names can be a repository's. The key of a project has letters, digits and `_`; that of a person's own one is `~` and
/// the slug of the person (`RestProject.key`). Slugs have letters, digits, `_`, `-` and `.`.
fn is_sound(repo: &RepoId) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char))
            && part.chars().any(|char| char != '.')
    };
    let is_short = repo.owner.len() <= MAX_NAME && repo.name.len() <= MAX_NAME;
    is_short
        && is_part(repo.owner.strip_prefix('~').unwrap_or(&repo.owner))
        && is_part(&repo.name)
        && !repo.name.to_ascii_lowercase().ends_with(".git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_may_have_a_port_and_a_path() {
        for (url, hostname, base) in [
            ("https://Git.example.com", "git.example.com", "https://git.example.com"),
            ("https://git.example.com/", "git.example.com", "https://git.example.com"),
            ("http://127.0.0.5:7990/bitbucket/", "127.0.0.5", "http://127.0.0.5:7990/bitbucket"),
            ("https://git.example.com:8443/a/b", "git.example.com", "https://git.example.com:8443/a/b"),
        ] {
            let address = BitbucketDataCenterAddress::of_base_url(url).unwrap();
            assert_eq!((address.hostname(), address.base()), (hostname, base), "{url}");
        }
        for (url, why) in [
            ("git.example.com", "no address"),
            ("ssh://git.example.com", "https://"),
            ("https://me:secret@git.example.com", "password"),
            ("https://git.example.com?a=b", "query"),
            ("https://git.example.com#a", "fragment"),
            ("https://git.example.com/bitbucket/rest/api/1.0", "/rest"),
        ] {
            let refused = BitbucketDataCenterAddress::of_base_url(url).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
    }

    #[test]
    fn a_repository_has_one_id_and_its_addresses() {
        let address = BitbucketDataCenterAddress::of_base_url("https://git.example.com:8443/bb").unwrap();
        for (key, slug, path, clone, page) in [
            ("PRJ", "my-repo", "PRJ/repos/my-repo", "prj/my-repo", "projects/PRJ/repos/my-repo"),
            ("A_1", "infra.v2", "A_1/repos/infra.v2", "a_1/infra.v2", "projects/A_1/repos/infra.v2"),
            ("~Ann.B", "x", "~Ann.B/repos/x", "~ann.b/x", "users/Ann.B/repos/x"),
        ] {
            let repo = address.repository(key, slug).unwrap();
            assert_eq!(repo.to_string(), format!("git.example.com/{key}/{slug}"));
            assert_eq!(address.repo_path(&repo).unwrap(), format!("/rest/api/latest/projects/{path}"));
            assert_eq!(address.clone_url(&repo).unwrap(), format!("https://git.example.com:8443/bb/scm/{clone}.git"));
            assert_eq!(address.pull_url(&repo, 7), format!("https://git.example.com:8443/bb/{page}/pull-requests/7"));
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_repository() {
        let address = BitbucketDataCenterAddress::of_base_url("https://git.example.com").unwrap();
        let long = "a".repeat(MAX_NAME + 1);
        for (key, slug) in [
            ("", "a"),
            ("A", ""),
            ("A", ".."),
            ("..", "a"),
            ("~", "a"),
            ("~..", "a"),
            ("~~a", "a"),
            ("A B", "a"),
            ("A/B", "a"),
            ("A", "a/b"),
            ("A", "a.GIT"),
            ("A", "a?b"),
            ("Ä", "a"),
            (&long, "a"),
            ("A", &long),
        ] {
            assert_eq!(address.repository(key, slug), None, "{key}/{slug}");
            let odd = RepoId { host: "git.example.com".into(), owner: key.into(), name: slug.into() };
            assert!(address.clone_url(&odd).is_none() && address.repo_path(&odd).is_err(), "{key}/{slug}");
        }
    }
}
