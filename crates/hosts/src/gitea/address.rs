//! Addresses on Gitea and Forgejo: `https://HOST[/BASE]/OWNER/NAME`. The API lies at `/api/v1` below the base.

use crate::vcs::HostError;
use crate::vcs::http::segment;
use tidelock_core::domain::RepoId;

/// Longest name of an owner, in bytes (modules/validation, "MaxSize(40)" of services/forms/user_form.go).
const MAX_OWNER: usize = 40;
/// Longest name of a repository, in bytes (services/forms/repo_form.go, "MaxSize(100)").
const MAX_NAME: usize = 100;
/// Ends of names that no repository can have (models/repo/repo.go, `reservedRepoPatterns`).
const RESERVED_ENDS: [&str; 4] = [".wiki", ".git", ".rss", ".atom"];

/// Address of an instance, which may lie below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GiteaAddress {
    hostname: String,
    base: String,
}

impl GiteaAddress {
    /// Takes the host name of repository ids, and the prefix of every address, with the path of an instance below one.
    pub fn new(hostname: &str, base: &str) -> GiteaAddress {
        GiteaAddress { hostname: hostname.to_ascii_lowercase(), base: base.trim_end_matches('/').to_owned() }
    }

    /// Host name, as in repository ids.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Prefix of every address, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the repository of a full name; absent if it cannot be one.
    pub fn repository(&self, full_name: &str) -> Option<RepoId> {
        let (owner, name) = full_name.split_once('/')?;
        let repo = RepoId { host: self.hostname.clone(), owner: owner.to_owned(), name: name.to_owned() };
        is_sound(&repo).then_some(repo)
    }

    /// Address from which git fetches a repository; absent if its names cannot be a repository's.
    pub fn clone_url(&self, repo: &RepoId) -> Option<String> {
        is_sound(repo).then(|| format!("{}/{}.git", self.base, repo.full_name()))
    }

    /// Path of a repository in the API, such as `/repos/acme/infra`.
    ///
    /// # Errors
    ///
    /// [`HostError::Rejected`] if the names cannot be a repository's.
    pub fn repo_path(&self, repo: &RepoId) -> Result<String, HostError> {
        if is_sound(repo) {
            return Ok(format!("/repos/{}/{}", segment(&repo.owner), segment(&repo.name)));
        }
        let message = "no such repository can exist".to_owned();
        Err(HostError::Rejected { what: repo.to_string(), status: 404, message })
    }
}

/// Returns true if the names can be a repository's: letters, digits, `_`, `-` and `.`. Those of owners neither begin nor end with another
/// character than a letter or digit (modules/validation/helpers.go, `IsValidUsername`), but names that older versions permitted exist.
fn is_sound(repo: &RepoId) -> bool {
    let is_part = |part: &str, longest: usize| {
        !part.is_empty()
            && part.len() <= longest
            && part.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char))
            && part.chars().any(|char| char != '.')
    };
    let lower = repo.name.to_ascii_lowercase();
    is_part(&repo.owner, MAX_OWNER)
        && is_part(&repo.name, MAX_NAME)
        && !RESERVED_ENDS.iter().any(|end| lower.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_one_id_and_one_address() {
        let address = GiteaAddress::new("Git.example.com", "https://git.example.com:8443/gitea/");
        for name in ["acme/infra", "a_b.c/infra.v2", "acme/-"] {
            let repo = address.repository(name).unwrap();
            assert_eq!(repo.to_string(), format!("git.example.com/{name}"));
            assert_eq!(address.clone_url(&repo).unwrap(), format!("https://git.example.com:8443/gitea/{name}.git"));
            assert_eq!(address.repo_path(&repo).unwrap(), format!("/repos/{name}"));
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_repository() {
        let address = GiteaAddress::new("gitea.com", "https://gitea.com");
        for name in [
            "infra",
            "/infra",
            "acme/",
            "acme//infra",
            "acme/..",
            "../infra",
            "a b/infra",
            "acme/a.git",
            "acme/a/b",
            "acme/a.Wiki",
        ] {
            assert_eq!(address.repository(name), None, "{name}");
        }
        let odd = RepoId { host: "gitea.com".into(), owner: "acme".into(), name: "a?b".into() };
        assert!(address.clone_url(&odd).is_none() && address.repo_path(&odd).is_err());
    }
}
