//! Addresses of the pages of commits on a host.

use super::{CommitSha, RepoId};
use url::Url;

/// Pages of commits: `BASE/OWNER/NAME/commit/COMMIT`, on some hosts with a folder before the name or the owner, or with another word for
/// `commit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAddress {
    base: String,
    folder: Option<&'static str>,
    page: &'static str,
    /// True if projects and people have folders of their own. The name of a person begins with `~`.
    is_by_kind: bool,
}

impl CommitAddress {
    /// Creates addresses of repositories at `OWNER/NAME` below this one.
    pub fn below(base: impl Into<String>) -> CommitAddress {
        CommitAddress { base: base.into(), folder: None, page: "commit", is_by_kind: false }
    }

    /// Uses this word instead of `commit`.
    pub fn at(self, page: &'static str) -> CommitAddress {
        CommitAddress { page, ..self }
    }

    /// Puts repositories in a folder of their owner: `OWNER/FOLDER/NAME`.
    pub fn in_folder(self, folder: &'static str) -> CommitAddress {
        CommitAddress { folder: Some(folder), ..self }
    }

    /// Puts repositories in folders of projects and of people: `projects/OWNER/repos/NAME`, and `users/PERSON/repos/NAME` for the owner
    /// `~PERSON`.
    pub fn of_projects_and_people(self) -> CommitAddress {
        CommitAddress { folder: Some("repos"), is_by_kind: true, ..self }
    }

    /// Returns the page of a commit; absent if the base is not a URL.
    pub fn url_of(&self, repo: &RepoId, commit: &CommitSha) -> Option<String> {
        let mut url = Url::parse(&self.base).ok()?;
        let (kind, owner) = match repo.owner.strip_prefix('~').filter(|_| self.is_by_kind) {
            Some(person) => (Some("users"), person),
            None => (self.is_by_kind.then_some("projects"), repo.owner.as_str()),
        };
        let owner = kind.into_iter().chain(owner.split('/')).chain(self.folder);
        url.path_segments_mut().ok()?.pop_if_empty().extend(owner).extend([&repo.name, self.page, commit.as_str()]);
        Some(url.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_stay_where_they_are_put() {
        let repo = |owner: &str, name: &str| RepoId { host: "h".into(), owner: owner.into(), name: name.into() };
        let (plain, folder) = (
            CommitAddress::below("https://github.com"),
            CommitAddress::below("https://tfs.example.com/tfs").in_folder("_git"),
        );
        assert_eq!(
            plain.url_of(&repo("acme", "infra"), &"c0ffee".into()).unwrap(),
            "https://github.com/acme/infra/commit/c0ffee"
        );
        assert_eq!(
            folder.url_of(&repo("acme/Cloud Infra", "live?"), &"c0ffee".into()).unwrap(),
            "https://tfs.example.com/tfs/acme/Cloud%20Infra/_git/live%3F/commit/c0ffee"
        );
        assert_eq!(
            plain.at("commits").url_of(&repo("acme", "infra"), &"c0ffee".into()).unwrap(),
            "https://github.com/acme/infra/commits/c0ffee"
        );
        let by_kind = CommitAddress::below("https://git.example.com/bb").of_projects_and_people().at("commits");
        for (owner, page) in [("PRJ", "projects/PRJ"), ("~ann", "users/ann")] {
            assert_eq!(
                by_kind.url_of(&repo(owner, "infra"), &"c0ffee".into()).unwrap(),
                format!("https://git.example.com/bb/{page}/repos/infra/commits/c0ffee")
            );
        }
        assert_eq!(CommitAddress::below("no address").url_of(&repo("a", "b"), &"c".into()), None);
    }
}
