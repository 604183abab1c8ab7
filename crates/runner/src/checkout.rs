//! Working trees: one bare mirror per repository, fetched by exact commit, and a cheap working tree from it per pull request and workspace.

mod artifacts;
mod beside;
pub mod chain;
pub mod disk;
pub mod folder;
mod git;
mod gone;
mod history;
mod idle;
mod lfs;
mod marker;
mod mirror;
mod own_git;
mod owner;
mod portable;
mod pristine;
mod ready;
pub mod space;
mod spare;
#[cfg(test)]
mod tests;
mod tree;
mod users;
mod waits;

use crate::process::Redactor;
use anyhow::Context;
pub use artifacts::{MayBePutBack, NotPutBack, OtherProjects, PlanArtifacts};
use beside::Which;
use git::Git;
pub use git::trust_certificates;
use idle::Uses;
pub use idle::{Idle, Using};
pub use lfs::{LeftPointers, PointersLeft};
use mirror::{Mirror, MirrorLocks};
pub use owner::change_owner_of_tree;
pub use portable::{PackTreeError, PackedGit, unpack_tree};
use ready::SpareDemand;
pub use ready::{SpareMaking, WantedSpare};
use secrecy::SecretString;
use std::path::{Component, Path, PathBuf};
use tidelock_core::domain::{CommitSha, PullId, PullRequest, RepoId};
use tree::TreeLocation;
pub use users::StepUsers;

/// Longest name of an owner, repository or workspace in a path.
const LONGEST_NAME: usize = 120;
/// Most bytes of a list of changed files.
const LONGEST_LIST: usize = 24 << 20;

/// `--checkout-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The head commit as it is.
    Branch,
    /// The head merged into the base branch's tip.
    Merge,
}

/// User and token for git.
#[derive(Clone)]
pub struct Credentials {
    /// User name.
    pub username: String,
    /// Token.
    pub password: SecretString,
}

/// Mirrors and working trees under the data directory.
#[derive(Clone)]
pub struct Checkouts {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Way in which trees are made.
    pub strategy: Strategy,
    /// True if trees have only the directories of the projects, their modules, and the files of parent directories; off by default.
    pub sparse: bool,
    /// True if trees lie in a folder of their host: names of repositories are those of one host only. A server with one host has Atlantis'
    /// paths, which are in plans and workflows.
    pub by_host: bool,
    /// Masks secrets in git's messages.
    pub redactor: Redactor,
    /// git's environment: `PATH`, `HOME`, proxies, certificates. Of `GIT_*`, only variables about TLS, HTTP and tracing are passed on.
    pub env: Vec<(String, String)>,
    /// The owners of trees, if steps run as other users.
    pub users: Option<StepUsers>,
    locks: MirrorLocks,
    /// Trees and mirrors in use, which must not be removed.
    uses: Uses,
    /// Spare trees to make when nobody waits for another tree.
    demand: SpareDemand,
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The head commit, which is in the mirror.
    pub head: CommitSha,
    /// The current tip of the base branch.
    pub base_tip: CommitSha,
}

/// A working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingTree {
    /// Its root.
    pub root: PathBuf,
    /// Head commit in it.
    pub head: CommitSha,
    /// Tip of the base branch that the head was merged with, or that was known when the tree was made.
    pub base: CommitSha,
    /// The server's git directory of the tree, out of reach of everything that runs in the tree.
    pub git_dir: PathBuf,
    /// Random value that changes when the tree is made again or moved: files that steps left may be missing since.
    pub made: String,
    /// Files that are pointers of Git LFS.
    pub pointers: Option<LeftPointers>,
}

/// Reason that there is no tree; for users, without secrets.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The merge has a conflict; git's message.
    #[error("the head branch does not merge into the base branch:\n{0}")]
    Conflict(String),
    /// The repository does not have the commit (any more).
    #[error("commit {0} is not in the repository")]
    MissingCommit(String),
    /// The repository of the head, another one than the base repository, cannot be fetched.
    #[error(
        "the repository of the head branch, {url}, cannot be fetched (the server's account has to be able to read it):\n{words}"
    )]
    HeadRepository {
        /// Its URL.
        url: String,
        /// git's message.
        words: String,
    },
    /// git failed.
    #[error("{0}")]
    Git(String),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Checkouts {
    /// Returns the checkouts below `data_dir`, without creating anything. Fails if the path is relative and the working directory no longer
    /// exists.
    pub fn new(
        data_dir: &Path,
        strategy: Strategy,
        redactor: Redactor,
        env: Vec<(String, String)>,
    ) -> anyhow::Result<Checkouts> {
        let data_dir = std::path::absolute(data_dir).context("cannot make the data directory's path absolute")?;
        let (sparse, by_host, users) = (false, false, None);
        let (locks, uses, demand) = (MirrorLocks::default(), Uses::default(), SpareDemand::default());
        Ok(Checkouts { data_dir, strategy, sparse, by_host, redactor, env, users, locks, uses, demand })
    }

    /// Fetches the head commit and base branch of the pull request into the repository's mirror, in one fetch.
    pub async fn fetch(&self, pull: &PullRequest, credentials: Option<&Credentials>) -> Result<Fetched, CheckoutError> {
        let mirror = Mirror::of(self, pull)?;
        let _first = self.demand.in_front();
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        mirror.prepare_and_fetch(pull, credentials).await
    }

    /// Does the same unless both are there already, the base branch with any tip.
    pub async fn fetch_missing(
        &self,
        pull: &PullRequest,
        credentials: Option<&Credentials>,
    ) -> Result<Fetched, CheckoutError> {
        let mirror = Mirror::of(self, pull)?;
        if let Some(fetched) = mirror.present(pull) {
            return Ok(fetched);
        }
        let _first = self.demand.in_front();
        let _one_at_a_time = self.locks.lock(&mirror.path).await;
        match mirror.present(pull) {
            Some(fetched) => Ok(fetched), // another task fetched it meanwhile
            None => mirror.prepare_and_fetch(pull, credentials).await,
        }
    }

    /// Returns the files that the pull request changes, with both names of renamed ones: merge base of `base_tip` and head, against head.
    pub async fn modified_files(&self, pull: &PullRequest, fetched: &Fetched) -> Result<Vec<String>, CheckoutError> {
        self.changed(pull, &fetched.base_tip, &fetched.head).await
    }

    /// Returns the files that changed on the base branch since the pull request left it (for `undiverged`): merge base against base tip.
    pub async fn diverged_files(&self, pull: &PullRequest, fetched: &Fetched) -> Result<Vec<String>, CheckoutError> {
        self.changed(pull, &fetched.head, &fetched.base_tip).await
    }

    async fn changed(
        &self,
        pull: &PullRequest,
        from: &CommitSha,
        to: &CommitSha,
    ) -> Result<Vec<String>, CheckoutError> {
        let mirror = self.mirror_path(&pull.id.repo);
        let diff = |range: String| {
            let args = ["diff", "--name-only", "--no-renames", "--no-ext-diff", &range, "--"];
            Git::new(self, &mirror, &args).output()
        };
        let names = match diff(format!("{from}...{to}")).await {
            // Unrelated histories have no merge base, so both commits are compared.
            Err(CheckoutError::Git(words)) if words.contains("no merge base") => diff(format!("{from}..{to}")).await?,
            other => other?,
        };
        if names.len() > LONGEST_LIST {
            return Err(CheckoutError::Git("more files changed than can be listed".into()));
        }
        Ok(names.lines().map(unquoted).collect())
    }

    /// Returns the directories of a commit that have a file of this name, including those that a sparse tree lacks.
    pub async fn dirs_with(
        &self,
        pull: &PullRequest,
        commit: &CommitSha,
        name: &str,
    ) -> Result<Vec<String>, CheckoutError> {
        let mirror = self.mirror_path(&pull.id.repo);
        let files = Git::new(self, &mirror, &["ls-tree", "-r", "--name-only", commit.as_str(), "--"]).output().await?;
        if files.len() > LONGEST_LIST {
            return Err(CheckoutError::Git("the repository has more files than can be listed".into()));
        }
        let dir_of = |file: String| match file.rsplit_once('/') {
            Some((dir, file)) => (file == name).then(|| dir.to_owned()),
            None => (file == name).then(|| ".".to_owned()),
        };
        Ok(files.lines().map(unquoted).filter_map(dir_of).collect())
    }

    /// Returns true if the head contains the tip of the base branch, so that merging would change nothing.
    pub async fn contains_base(&self, pull: &PullRequest, fetched: &Fetched) -> Result<bool, CheckoutError> {
        let args = ["merge-base", "--is-ancestor", fetched.base_tip.as_str(), fetched.head.as_str()];
        let done = Git::new(self, &self.mirror_path(&pull.id.repo), &args).finish().await?;
        match done.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(git::failure("merge-base", &done)),
        }
    }

    /// Returns true if a commit contains another one, and false if one of them is not in the mirror.
    pub async fn contains(&self, repo: &RepoId, commit: &CommitSha, other: &CommitSha) -> Result<bool, CheckoutError> {
        for sha in [commit, other] {
            CommitSha::parse(sha.as_str()).map_err(|error| CheckoutError::Git(error.to_string()))?;
        }
        let args = ["merge-base", "--is-ancestor", other.as_str(), commit.as_str()];
        Ok(Git::new(self, &self.mirror_path(repo), &args).finish().await?.code == Some(0))
    }

    /// Returns the tree of this pull request and workspace at `fetched`, made or moved there. `.terraform` folders and untracked files
    /// survive a move; `*.tfplan` do not. It shares no writable file with another tree. Call it for one tree at a time. With
    /// [`Checkouts::sparse`] on, the tree has only the directories `dirs`, and the files of their parent directories up to the root. `None`
    /// is the whole tree.
    pub async fn tree(
        &self,
        pull: &PullRequest,
        workspace: &str,
        fetched: &Fetched,
        dirs: Option<&[String]>,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        let dirs = dirs.filter(|_| self.sparse);
        TreeLocation::for_pull(self, pull, &Which::own(workspace))?.at(pull, fetched, dirs, credentials).await
    }

    /// Returns the path of this workspace's tree, existing or not: `<data-dir>/repos/<owner>/<repo>/<number>/<workspace>`, or below
    /// `<data-dir>/repos/<host>` with [`Checkouts::by_host`].
    pub fn tree_path(&self, pull: &PullId, workspace: &str) -> PathBuf {
        self.pull_path(pull).join(named(workspace, LONGEST_NAME))
    }

    fn pull_path(&self, pull: &PullId) -> PathBuf {
        let mut path = self.data_dir.join("repos");
        path.extend(self.by_host.then(|| named(&pull.repo.host, LONGEST_NAME)));
        path.extend(pull.repo.owner.split('/').map(|part| named(part, LONGEST_NAME)));
        path.join(named(&pull.repo.name, LONGEST_NAME)).join(pull.number.to_string())
    }

    /// Returns the files in a tree that git does not track (`git ls-files --others --exclude-standard`).
    pub async fn untracked_files(&self, tree: &WorkingTree) -> Result<Vec<String>, CheckoutError> {
        self.without_waits(tree, &OtherProjects::default()).await?;
        let git = Git::new(self, &tree.git_dir, &["ls-files", "--others", "--exclude-standard"]).with_short_timeout();
        let names = git.env("GIT_WORK_TREE", tree.root.to_string_lossy()).output().await?;
        Ok(names.lines().map(unquoted).collect())
    }

    /// Removes pipes and devices on which git would block.
    async fn without_waits(&self, tree: &WorkingTree, others: &OtherProjects) -> anyhow::Result<()> {
        let (root, others) = (tree.root.clone(), others.clone());
        tree::blocking(move || Ok(waits::remove(&folder::Folder::open(&root)?, &others)?))
            .await
            .context("removing what git would wait for")
    }

    /// Returns true if git tracks this file of a tree, by the tree's index. `file` is below the root, and may be absent.
    pub async fn is_tracked(&self, git_dir: &Path, root: &Path, file: &Path) -> Result<bool, CheckoutError> {
        let real = root.canonicalize().context("the checkout is not there")?;
        let below =
            file.strip_prefix(&real).or_else(|_| file.strip_prefix(root)).context("a file outside of the tree")?;
        let literal = format!(":(top,literal){}", below.display());
        let git = Git::new(self, git_dir, &["ls-files", "--cached", "--", &literal]);
        Ok(!git.env("GIT_WORK_TREE", root.to_string_lossy()).within(root).output().await?.is_empty())
    }

    /// Removes all trees of a pull request, if there are any. A large one is kept for the repository's next pull request, without the files
    /// that steps left.
    pub async fn remove_pull(&self, pull: &PullId) -> anyhow::Result<()> {
        let (trees, mirror) = (self.pull_path(pull), self.mirror_path(&pull.repo));
        let not_removed_meanwhile = self.uses.hold(trees.clone()).await;
        let _no_fetch_meanwhile = self.locks.lock(&mirror).await;
        let number = pull.number;
        if let Err(error) = self.keep_as_spare(pull).await {
            tracing::warn!(%pull, error = format!("{error:#}"), "its checkout is not kept");
        }
        tree::blocking(move || {
            // The server's records are removed first: without them a remaining tree is not trusted.
            let ours = format!("{number}-");
            for entry in std::fs::read_dir(mirror.join("worktrees")).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(&ours) {
                    folder::remove_path(&entry.path())?;
                }
            }
            tree::remove_file(&mirror.join(format!("refs/tidelock/pull/{number}")))?;
            folder::remove_path(&trees).with_context(|| format!("cannot remove {}", trees.display()))
        })
        .await?;
        drop(not_removed_meanwhile);
        self.uses.remove(&self.pull_path(pull));
        Ok(())
    }

    /// Returns the path of the mirror of a repository: `<data-dir>/mirrors/<host>/<owner>/<name>.git`.
    pub fn mirror_path(&self, repo: &RepoId) -> PathBuf {
        let mut path = self.data_dir.join("mirrors").join(named(&repo.host, LONGEST_NAME));
        path.extend(repo.owner.split('/').map(|part| named(part, LONGEST_NAME)));
        path.join(format!("{}.git", named(&repo.name, LONGEST_NAME)))
    }
}

/// Resolves `dir` below `root`. Fails if it leads out of it, by `..`, an absolute path or a symlink.
pub fn inside(root: &Path, dir: &str) -> anyhow::Result<PathBuf> {
    inside_real(&root.canonicalize().context("the checkout is not there")?, dir)
}

/// Like [`inside`], for a root whose path has no link.
fn inside_real(root: &Path, dir: &str) -> anyhow::Result<PathBuf> {
    let relative = Path::new(dir);
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    anyhow::ensure!(plain, "{dir:?} leads out of the repository; give a path below its root");
    let path = root.join(relative).canonicalize().with_context(|| format!("{dir:?} is not in the repository"))?;
    anyhow::ensure!(path.starts_with(root), "{dir:?} leads out of the repository through a link");
    Ok(path)
}

/// Encodes an untrusted name as one part of a path or ref: letters, digits, `_`, `-` and inner dots are kept, other bytes are
/// percent-encoded, as `%2F`. Different names stay different, and none is empty, hidden, `..`, or longer than `longest` and a digest.
fn named(name: &str, longest: usize) -> String {
    let last = name.len().saturating_sub(1);
    let mut safe = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let dot = byte == b'.' && at > 0 && at < last && !name[at..].eq_ignore_ascii_case(".lock");
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || dot {
            safe.push(char::from(byte));
        } else {
            safe.push_str(&format!("%{byte:02X}"));
        }
    }
    if safe.is_empty() {
        safe.push('%');
    }
    if safe.len() > longest {
        use sha2::Digest;
        let digest = hex::encode(sha2::Sha256::digest(name.as_bytes()));
        safe.truncate(longest);
        safe.push('%');
        safe.push_str(&digest[..32]);
    }
    safe
}

/// Writes a file completely or not at all: writes it next to its path, then renames it.
fn write_whole(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Decodes a file name that git printed with quotes and escapes.
fn unquoted(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return name.to_owned() };
    let (mut bytes, mut rest) = (Vec::new(), inner.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'a') => bytes.push(7),
            Some(b'b') => bytes.push(8),
            Some(b'f') => bytes.push(12),
            Some(b'v') => bytes.push(11),
            Some(digit @ b'0'..=b'3') => {
                let low = rest.by_ref().take(2).fold(0u8, |value, d| value * 8 + d.wrapping_sub(b'0') % 8);
                bytes.push((digit - b'0') * 64 + low);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
