//! Fetches the parts of git's history that steps and hooks read, before they run: they have no credentials. The mirror of a large
//! repository has all commits and directories, but only the file contents that a checkout needed.

use super::git::{Git, failure};
use super::mirror::Mirror;
use super::{CheckoutError, Checkouts, Credentials, LONGEST_LIST, WorkingTree, unquoted, write_whole};
use anyhow::Context;
use std::path::Path;
use tidelock_core::domain::{CommitSha, PullRequest, RepoId};

/// File in the server's git directory of the tree, with the commits whose contents are available.
const FILE: &str = "tidelock-history";

impl Checkouts {
    /// Makes the contents available offline that differ between the tree's commit, the tip of the base branch and their merge base: for
    /// `git diff origin/main...HEAD` and `git show origin/main:FILE`. Files that are the same in all of them came with the checkout. Sends
    /// one request to the host for each pair of commits, none if nothing is missing.
    pub async fn bring_history(
        &self,
        pull: &PullRequest,
        tree: &WorkingTree,
        credentials: Option<&Credentials>,
    ) -> Result<(), CheckoutError> {
        let commit = std::fs::read_to_string(tree.git_dir.join("HEAD")).context("a checkout has no commit")?;
        let commit = CommitSha::parse(commit.trim()).context("a checkout has no commit")?;
        let wanted = format!("{commit} {}\n", tree.base);
        let note = tree.git_dir.join(FILE);
        let is_there = || std::fs::read_to_string(&note).is_ok_and(|noted| noted == wanted);
        if is_there() {
            return Ok(());
        }
        let mirror = Mirror::of(self, pull)?;
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        if is_there() {
            return Ok(());
        }
        let fork = self.fork(&mirror.path, &tree.base, &tree.head).await?;
        // Every content of these commits is in the checkout, or on one side of a difference.
        let (base, head) = (&tree.base, &tree.head);
        let mut pairs = vec![(base, &commit), (head, &commit)];
        pairs.extend(fork.as_ref().map(|fork| (fork, head)));
        pairs.retain(|(from, to)| from != to);
        pairs.dedup();
        for (from, to) in pairs {
            // Counting lines needs the contents of both sides; git fetches the missing ones in one batch.
            let args = [
                "diff-tree",
                "-r",
                "--shortstat",
                "--no-renames",
                "--no-ext-diff",
                "--no-textconv",
                from.as_str(),
                to.as_str(),
                "--",
            ];
            Git::new(self, &mirror.path, &args).credentials(&mirror.url, credentials).output().await?;
        }
        Ok(write_whole(&note, &wanted)?)
    }

    /// Returns the files that differ between two commits, with both names of renamed ones. `None` if the mirror does not have the first
    /// commit (any more), or more files differ than can be listed.
    pub async fn differing_files(
        &self,
        repo: &RepoId,
        from: &CommitSha,
        to: &CommitSha,
    ) -> Result<Option<Vec<String>>, CheckoutError> {
        let mirror = self.mirror_path(repo);
        let is_there = Git::new(self, &mirror, &["cat-file", "-e", &format!("{from}^{{commit}}")]);
        if !is_there.env("GIT_NO_LAZY_FETCH", "1").with_short_timeout().finish().await?.success() {
            return Ok(None);
        }
        let args = ["diff", "--name-only", "--no-renames", "--no-ext-diff", from.as_str(), to.as_str(), "--"];
        let names = Git::new(self, &mirror, &args).output().await?;
        Ok((names.len() <= LONGEST_LIST).then(|| names.lines().map(unquoted).collect()))
    }

    /// Fetches the tip of the default branch of a pull request's repository into the mirror. One request to the host.
    pub async fn default_tip(
        &self,
        pull: &PullRequest,
        credentials: Option<&Credentials>,
    ) -> Result<CommitSha, CheckoutError> {
        let mirror = Mirror::of(self, pull)?;
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        mirror.fetch_default(credentials).await
    }

    /// Returns the name of the default branch of a repository; `None` if the host does not name it. One request to the host.
    pub async fn default_branch(
        &self,
        repo: &RepoId,
        clone_url: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Option<String>, CheckoutError> {
        let mirror = Mirror::at(self, repo, clone_url)?;
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        mirror.prepare().with_context(|| format!("cannot prepare the mirror {}", mirror.path.display()))?;
        let git = Git::new(self, &mirror.path, &["ls-remote", "--symref", "--", "origin", "HEAD"]);
        let told = git.credentials(&mirror.url, credentials).output().await?;
        let named = told.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"));
        Ok(named.map(str::to_owned))
    }

    /// Fetches the tip of a branch of a repository into the mirror, with all commits before it. `None` if there is no such branch. One
    /// request to the host.
    pub async fn branch_tip(
        &self,
        repo: &RepoId,
        clone_url: &str,
        branch: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let mirror = Mirror::at(self, repo, clone_url)?;
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        mirror.prepare().with_context(|| format!("cannot prepare the mirror {}", mirror.path.display()))?;
        mirror.fetch_branch(branch, credentials).await
    }

    /// Fetches the commit of a tag of a repository whose mirror exists. `None` if there is no such tag. One request to the host.
    pub async fn tag_commit(
        &self,
        repo: &RepoId,
        clone_url: &str,
        tag: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let mirror = Mirror::at(self, repo, clone_url)?;
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        mirror.fetch_tag(tag, credentials).await
    }

    /// Returns the text of a file of a commit that the mirror has. `None` if there is no such regular file, or it is larger than `limit`
    /// bytes. Invalid UTF-8 is replaced. `path` is relative to the root.
    pub async fn file_at(
        &self,
        pull: &PullRequest,
        commit: &CommitSha,
        path: &str,
        limit: usize,
        credentials: Option<&Credentials>,
    ) -> Result<Option<String>, CheckoutError> {
        let mirror = Mirror::of(self, pull)?;
        let listed = Git::new(self, &mirror.path, &["ls-tree", commit.as_str(), "--", path])
            .with_short_timeout()
            .output()
            .await?;
        let mut words = listed.split_whitespace();
        let (Some("100644" | "100755"), Some("blob"), Some(blob)) = (words.next(), words.next(), words.next()) else {
            return Ok(None);
        };
        // The mirror may not have this content yet.
        let git = |args: &[&str]| Git::new(self, &mirror.path, args).credentials(&mirror.url, credentials);
        let size = git(&["cat-file", "-s", blob]).output().await?;
        if size.trim().parse::<usize>().map_or(true, |size| size > limit) {
            return Ok(None);
        }
        Ok(Some(git(&["cat-file", "blob", blob]).output().await?))
    }

    /// Returns the first parent of a commit of the mirror.
    pub async fn parent(&self, repo: &RepoId, commit: &CommitSha) -> Result<CommitSha, CheckoutError> {
        let args = ["rev-parse", "--verify", "--end-of-options", &format!("{commit}^1")];
        let parent = Git::new(self, &self.mirror_path(repo), &args).with_short_timeout().output().await?;
        Ok(CommitSha::parse(parent.trim()).context("git rev-parse printed no commit")?)
    }

    /// Returns the commit that is `before` first parents before a commit of the mirror.
    pub async fn ancestor(&self, repo: &RepoId, commit: &CommitSha, before: usize) -> Result<CommitSha, CheckoutError> {
        let args = ["rev-parse", "--verify", "--end-of-options", &format!("{commit}~{before}")];
        let found = Git::new(self, &self.mirror_path(repo), &args).with_short_timeout().output().await?;
        Ok(CommitSha::parse(found.trim()).context("git rev-parse printed no commit")?)
    }

    /// Returns the merge base of two commits of the mirror; `None` if their histories are unrelated.
    pub async fn forked_at(
        &self,
        repo: &RepoId,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        self.fork(&self.mirror_path(repo), base, head).await
    }

    /// Returns the merge base; `None` if the histories are unrelated.
    async fn fork(
        &self,
        mirror: &Path,
        base: &CommitSha,
        head: &CommitSha,
    ) -> Result<Option<CommitSha>, CheckoutError> {
        let done = Git::new(self, mirror, &["merge-base", base.as_str(), head.as_str()]).finish().await?;
        match done.code {
            Some(0) if done.success() => {
                Ok(Some(CommitSha::parse(done.read_text()?.trim()).context("git merge-base printed no commit")?))
            }
            Some(1) => Ok(None),
            _ => Err(failure("merge-base", &done)),
        }
    }
}
