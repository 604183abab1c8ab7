//! Addresses on GitLab: `https://HOST[/BASE]/GROUP[/SUBGROUP…]/PROJECT`. A repository's owner is all but the last part of its path.

use crate::vcs::HostError;
use crate::vcs::http::segment;
use tidelock_core::domain::RepoId;

/// Most parts of a project's path: twenty levels of groups (docs.gitlab.com/user/group/subgroups), and the project.
const MAX_PARTS: usize = 21;
/// Longest part of a path, in bytes (docs.gitlab.com/user/reserved_names).
const MAX_PART: usize = 255;

/// Address of an instance: GitLab.com or a self-managed one, which may lie below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitlabAddress {
    hostname: String,
    base: String,
}

impl GitlabAddress {
    /// Takes the host name of repository ids, and the prefix of every address, with the path of an instance below one.
    pub fn new(hostname: &str, base: &str) -> GitlabAddress {
        GitlabAddress { hostname: hostname.to_ascii_lowercase(), base: base.trim_end_matches('/').to_owned() }
    }

    /// Host name, as in repository ids.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Prefix of every address, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the repository of a project's path (`path_with_namespace`); absent if it cannot be one.
    pub fn repository(&self, path: &str) -> Option<RepoId> {
        let (owner, name) = path.rsplit_once('/')?;
        let repo = RepoId { host: self.hostname.clone(), owner: owner.to_owned(), name: name.to_owned() };
        is_sound(&repo).then_some(repo)
    }

    /// Address from which git fetches a repository; absent if its names cannot be a project's.
    pub fn clone_url(&self, repo: &RepoId) -> Option<String> {
        is_sound(repo).then(|| format!("{}/{}.git", self.base, repo.full_name()))
    }

    /// Page of a merge request; absent if the repository's names cannot be a project's.
    pub fn merge_request_page(&self, repo: &RepoId, number: u64) -> Option<String> {
        is_sound(repo).then(|| format!("{}/{}/-/merge_requests/{number}", self.base, repo.full_name()))
    }

    /// Path of a project in the API, such as `/projects/acme%2Finfra`.
    ///
    /// # Errors
    ///
    /// [`HostError::Rejected`] if the repository's names cannot be a project's.
    pub fn project_path(&self, repo: &RepoId) -> Result<String, HostError> {
        if is_sound(repo) {
            return Ok(format!("/projects/{}", segment(&repo.full_name())));
        }
        let message = "no such project can exist".to_owned();
        Err(HostError::Rejected { what: repo.to_string(), status: 404, message })
    }
}

/// Returns true if the names can be a project's: letters, digits, `_`, `-` and `.`, which neither begin with a hyphen or dot nor end with
/// a dot, `.git` or `.atom` (docs.gitlab.com/user/reserved_names).
fn is_sound(repo: &RepoId) -> bool {
    let full_name = repo.full_name();
    let mut parts = full_name.split('/');
    let is_part = |part: &str| {
        !part.is_empty()
            && part.len() <= MAX_PART
            && !part.starts_with(['-', '.'])
            && ![".", ".git", ".atom"].iter().any(|end| part.ends_with(end))
            && part.chars().all(|char| char.is_ascii_alphanumeric() || "_-.".contains(char))
    };
    full_name.split('/').count() <= MAX_PARTS && parts.all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_one_id_and_one_address_at_any_depth() {
        let address = GitlabAddress::new("Git.example.com", "https://git.example.com:8443/gitlab/");
        let deep = vec!["g"; 20].join("/");
        for path in ["acme/infra", "acme/platform/infra.v2", &format!("{deep}/infra")] {
            let repo = address.repository(path).unwrap();
            assert_eq!(repo.to_string(), format!("git.example.com/{path}"));
            assert_eq!(address.clone_url(&repo).unwrap(), format!("https://git.example.com:8443/gitlab/{path}.git"));
            assert_eq!(address.project_path(&repo).unwrap(), format!("/projects/{}", path.replace('/', "%2F")));
            let page = address.merge_request_page(&repo, 7).unwrap();
            assert_eq!(page, format!("https://git.example.com:8443/gitlab/{path}/-/merge_requests/7"));
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_no_project() {
        let address = GitlabAddress::new("gitlab.com", "https://gitlab.com");
        let deep = vec!["g"; 22].join("/");
        for path in
            ["infra", "/infra", "acme/", "acme//infra", "acme/../infra", "acme/-/infra", "a b/infra", "acme/infra.git"]
        {
            assert_eq!(address.repository(path), None, "{path}");
        }
        assert_eq!(address.repository(&deep), None);
        let odd = RepoId { host: "gitlab.com".into(), owner: "acme".into(), name: "a?b".into() };
        assert!(address.clone_url(&odd).is_none() && address.project_path(&odd).is_err());
    }
}
