//! The commits that were added to a branch since another commit, and those of them that belong to a pull request.

use super::git::Git;
use super::mirror::Mirror;
use super::{CheckoutError, Checkouts, Credentials, unquoted};
use anyhow::Context as _;
use std::path::Path;
use tidelock_core::domain::{CommitSha, PullRequest, RepoId};

/// Most commits that are examined.
const MAX_COMMITS: usize = 500;

/// A commit of a branch, along its first parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchCommit {
    /// Commit ID.
    pub id: CommitSha,
    /// Author, as the commit names it; untrusted text.
    pub author: String,
    /// First line of its message; untrusted text.
    pub subject: String,
    /// Files in which it differs from its first parent.
    pub files: Vec<String>,
}

impl Checkouts {
    /// Returns the commits that were added to a branch after `from`, along first parents, the newest first. `None` if the branch does not
    /// continue from that commit, or has more new commits than are examined. The mirror must have both commits.
    pub async fn commits_since(
        &self,
        repo: &RepoId,
        from: &CommitSha,
        tip: &CommitSha,
    ) -> Result<Option<Vec<BranchCommit>>, CheckoutError> {
        if !self.contains(repo, tip, from).await? {
            return Ok(None);
        }
        let (most, range) = (format!("--max-count={}", MAX_COMMITS + 1), format!("{from}..{tip}"));
        let args = [
            "log",
            "--first-parent",
            "--diff-merges=first-parent",
            "--name-only",
            "--no-renames",
            "--no-ext-diff",
            "--format=%x00%H%x00%an%x00%s",
            &most,
            &range,
            "--",
        ];
        let told = Git::new(self, &self.mirror_path(repo), &args).with_short_timeout().output().await?;
        let commits = parse(&told)?;
        Ok(Some(commits).filter(|commits| commits.len() <= MAX_COMMITS))
    }

    /// Returns the number of commits on the base branch that a pull request added and that contain nothing else, along first parents and
    /// ending with the commit of its merge. One for a merge commit or a squash, several for a rebase or a fast-forward to its head. Zero if
    /// the commit of the merge contains more or less than its head. The mirror must have both commits.
    pub async fn brought(
        &self,
        pull: &PullRequest,
        merge: &CommitSha,
        credentials: Option<&Credentials>,
    ) -> Result<usize, CheckoutError> {
        let mirror = Mirror::of(self, pull)?;
        let (path, head) = (mirror.path.as_path(), &pull.head.commit);
        if merge == head {
            // The host's view of the pull request begins after the commit that the host names as its base.
            let own = format!("{}..{head}", pull.base.commit);
            return Ok(self.count(path, &["--first-parent", &own]).await.unwrap_or(0).min(MAX_COMMITS));
        }
        let before = self.parent(&pull.id.repo, merge).await?;
        let Some(fork) = self.forked_at(&pull.id.repo, &before, head).await? else { return Ok(0) };
        let own = self.count(path, &["--no-merges", &format!("{fork}..{head}")]).await?.clamp(1, MAX_COMMITS);
        let wanted = self.named(path, &format!("{merge}^{{tree}}")).await?;
        for count in [own, 1] {
            let Ok(base) = self.named(path, &format!("{merge}~{count}")).await else { continue };
            let Ok(base) = CommitSha::parse(&base) else { continue };
            // From a base before the fork point, commits of the base branch would count as the pull request's.
            if self.forked_at(&pull.id.repo, &base, head).await?.as_ref() != Some(&fork) {
                continue;
            }
            let args = ["merge-tree", "--write-tree", "--no-messages", base.as_str(), head.as_str()];
            let done = Git::new(self, path, &args).credentials(&mirror.url, credentials).finish().await?;
            if done.success() && done.read_text()?.trim() == wanted {
                return Ok(count);
            }
        }
        Ok(0)
    }

    async fn count(&self, mirror: &Path, range: &[&str]) -> Result<usize, CheckoutError> {
        let args = [&["rev-list", "--count"], range, &["--"]].concat();
        let told = Git::new(self, mirror, &args).with_short_timeout().output().await?;
        Ok(told.trim().parse().context("git rev-list printed no number")?)
    }

    /// Returns the full ID of the object that a revision names.
    async fn named(&self, mirror: &Path, revision: &str) -> Result<String, CheckoutError> {
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", revision];
        Ok(Git::new(self, mirror, &args).with_short_timeout().output().await?.trim().to_owned())
    }
}

/// Parses the output of `git log`: a NUL before each of three fields, then the files, one per line.
fn parse(told: &str) -> Result<Vec<BranchCommit>, CheckoutError> {
    let fields: Vec<&str> = told.split('\0').skip(1).collect();
    let commit = |fields: &[&str]| -> Result<BranchCommit, CheckoutError> {
        let [id, author, rest] = fields else {
            return Err(CheckoutError::Git("git log printed something else".to_owned()));
        };
        let id = CommitSha::parse(id).map_err(|error| CheckoutError::Git(error.to_string()))?;
        let mut lines = rest.lines();
        let subject = lines.next().unwrap_or_default().to_owned();
        let files = lines.filter(|line| !line.is_empty()).map(unquoted).collect();
        Ok(BranchCommit { id, author: (*author).to_owned(), subject, files })
    };
    fields.chunks(3).map(commit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read_with_their_files() {
        let (one, two) = ("a".repeat(40), "b".repeat(40));
        let told = format!("\0{one}\0Alice A\0Tune it\n\na/main.tf\n\"b/\\303\\244.tf\"\n\0{two}\0\0\n");
        let read = parse(&told).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].author.as_str(), read[0].subject.as_str()), ("Alice A", "Tune it"));
        assert_eq!(read[0].files, ["a/main.tf", "b/ä.tf"]);
        assert_eq!((read[1].id.as_str(), read[1].files.len()), (two.as_str(), 0));
        assert!(parse("\0x\0y\0z").is_err() && parse("").unwrap().is_empty());
    }
}
