//! Addresses of the pages of commits on a host.

use super::{CommitSha, RepoId};
use url::Url;

/// Pages of commits: `BASE/OWNER/NAME/commit/COMMIT`, on some hosts with a folder before the name, or with another word for `commit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAddress {
    base: String,
    folder: Option<&'static str>,
    page: &'static str,
}

impl CommitAddress {
    /// Creates addresses of repositories at `OWNER/NAME` below this one.
    pub fn below(base: impl Into<String>) -> CommitAddress {
        CommitAddress { base: base.into(), folder: None, page: "commit" }
    }

    /// Uses this word instead of `commit`.
    pub fn at(self, page: &'static str) -> CommitAddress {
        CommitAddress { page, ..self }
    }

    /// Puts repositories in a folder of their owner: `OWNER/FOLDER/NAME`.
    pub fn in_folder(self, folder: &'static str) -> CommitAddress {
        CommitAddress { folder: Some(folder), ..self }
    }

    /// Returns the page of a commit; absent if the base is not a URL.
    pub fn url_of(&self, repo: &RepoId, commit: &CommitSha) -> Option<String> {
        let mut url = Url::parse(&self.base).ok()?;
        let owner = repo.owner.split('/').chain(self.folder);
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
        assert_eq!(CommitAddress::below("no address").url_of(&repo("a", "b"), &"c".into()), None);
    }
}
