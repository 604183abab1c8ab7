//! Trees that travel to another machine: one archive (tar, zstd) with all files of a tree and the objects of a git directory of its own.
//!
//! Entries of the archive: `tree/PATH` for each file, link and directory, `git/NAME` for the packs of objects, `index` for git's index, and
//! `facts.json` at the end. Without the last one an archive is incomplete.

mod facts;
mod index;
mod objects;
mod pack;
mod parents;
mod unpack;

use super::own_git::Missing;
use super::tree::blocking;
use super::{CheckoutError, Checkouts, WorkingTree, folder};
use anyhow::{Context, ensure};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tidelock_core::domain::CommitSha;

/// Most entries of a tree.
const MAX_FILES: usize = if cfg!(test) { 5_000 } else { 2_000_000 };
/// Most bytes of all files of an archive, before compression.
const MAX_BYTES: u64 = if cfg!(test) { 64 << 20 } else { 16 << 30 };
/// Most directories above a file.
const MAX_DEPTH: usize = 150;
/// Longest path in a tree, in bytes.
const MAX_PATH: usize = 4_000;
/// Prefix of the tree's files in an archive.
const TREE: &str = "tree/";
/// Prefix of the packs of objects.
const GIT: &str = "git/";
/// Name of git's index.
const INDEX: &str = "index";
/// Name of the facts.
const FACTS: &str = "facts.json";

/// Objects of git that a packed tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackedGit {
    /// The commit of the tree, its head and base, and their directories: nothing asks git for history or contents.
    Commit,
    /// All commits, with the contents that the mirror has.
    History,
}

impl PackedGit {
    fn missing(self) -> Missing {
        match self {
            PackedGit::Commit => Missing::Accepted,
            PackedGit::History => Missing::Fetched,
        }
    }
}

/// Reason that a tree was not packed; for users, without secrets.
#[derive(Debug, thiserror::Error)]
pub enum PackTreeError {
    /// The archive exceeds the limit, in bytes.
    #[error("the packed working tree is larger than {} MiB, which is the limit", .0 >> 20)]
    TooLarge(u64),
    /// The files exceed a limit, in bytes before compression.
    #[error("the files of the working tree are larger than {} MiB, which is the limit", .0 >> 20)]
    TooMuchContent(u64),
    /// The tree has more entries than this.
    #[error("the working tree has more than {0} files, which is the limit")]
    TooManyFiles(usize),
    /// The path is too long or has too many directories.
    #[error("a path of the working tree is too deep: {0:?}")]
    TooDeep(PathBuf),
    /// The server cannot read an entry, and a job must not run without it.
    #[error("cannot read {path:?} in the working tree: {why}")]
    Unreadable {
        /// Path below the root.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// A file became shorter while it was read.
    #[error("{0:?} in the working tree changed while it was packed; does a hook leave a process behind?")]
    Changed(PathBuf),
    /// git failed.
    #[error(transparent)]
    Git(#[from] CheckoutError),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl From<io::Error> for PackTreeError {
    fn from(error: io::Error) -> PackTreeError {
        // Errors of this kind pass through writers and walks.
        error.downcast::<PackTreeError>().unwrap_or_else(|error| PackTreeError::Other(error.into()))
    }
}

impl From<PackTreeError> for io::Error {
    fn from(error: PackTreeError) -> io::Error {
        io::Error::other(error)
    }
}

impl Checkouts {
    /// Packs a tree, with all files in it and a git directory of its own, into a new archive (tar, zstd) of at most `limit` bytes. Fetches
    /// nothing. Plans of earlier jobs and folders that `init` creates are left out, unless git tracks them. Returns the size of the archive
    /// in bytes.
    pub async fn pack_tree(
        &self,
        tree: &WorkingTree,
        git: PackedGit,
        to: PathBuf,
        limit: u64,
    ) -> Result<u64, PackTreeError> {
        let mut scratch = to.clone().into_os_string();
        scratch.push(".git");
        let scratch = PathBuf::from(scratch);
        let packed = self.pack_by_way_of(&scratch, tree, git, to, limit).await;
        blocking(move || remove_scratch(&scratch)).await?;
        packed
    }

    async fn pack_by_way_of(
        &self,
        scratch: &Path,
        tree: &WorkingTree,
        git: PackedGit,
        to: PathBuf,
        limit: u64,
    ) -> Result<u64, PackTreeError> {
        let dir = scratch.to_owned();
        blocking(move || {
            // An earlier attempt may have been cut.
            remove_scratch(&dir)?;
            new_folder(&dir)
        })
        .await?;
        let facts = self.pack_objects(tree, git, scratch).await?;
        let tracked = self.tracked_leftovers(tree).await?;
        let work = pack::TreePacking {
            root: tree.root.clone(),
            admin: tree.git_dir.clone(),
            objects: scratch.to_owned(),
            facts,
            tracked,
            to,
            limit,
        };
        blocking(move || Ok(work.run())).await?
    }
}

/// Unpacks such an archive into a new tree at `root`, which must not exist. The server's git directory of the tree is made at `git_dir`,
/// which must not exist either. Both are absolute. A failure leaves neither.
pub async fn unpack_tree(
    archive: PathBuf,
    root: PathBuf,
    git_dir: PathBuf,
    head: CommitSha,
    base: CommitSha,
) -> anyhow::Result<WorkingTree> {
    blocking(move || {
        ensure!(root.is_absolute() && git_dir.is_absolute(), "a tree needs absolute paths");
        ensure!(!git_dir.starts_with(&root), "the server's git directory of a tree must be out of reach of steps");
        new_folder(&root)?;
        let unpacked = new_folder(&git_dir).and_then(|()| {
            let unpacked = unpack::unpack(&archive, &root, &git_dir);
            if unpacked.is_err() {
                folder::remove_path(&git_dir)?;
            }
            unpacked
        });
        if unpacked.is_err() {
            folder::remove_path(&root)?;
        }
        let unpacked = unpacked.with_context(|| format!("cannot unpack a working tree at {}", root.display()))?;
        Ok(WorkingTree { root, head, base, git_dir, made: unpacked.made, pointers: unpacked.pointers })
    })
    .await
}

fn remove_scratch(path: &Path) -> anyhow::Result<()> {
    folder::remove_path(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Makes a directory that must not exist, and its missing parents, for this user only.
fn new_folder(path: &Path) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    if let Some(parent) = path.parent() {
        builder.recursive(true).create(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    builder.recursive(false).create(path).with_context(|| format!("cannot make {}", path.display()))
}
