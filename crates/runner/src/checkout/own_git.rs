//! A tree's own `.git`, for the steps that run in it and for people's `git status`. No git of the server's reads it.

use super::folder::Folder;
use super::marker::MARKER;
use super::mirror::quoted;
use super::users::TreeOwner;
use super::{gone, pristine, write_whole};
use anyhow::Context;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tidelock_core::domain::CommitSha;

/// File of the tree's `.git` that names the mirror's objects.
pub(super) const ALTERNATES: &str = "objects/info/alternates";

/// Record to make of a tree's files after a move.
pub(super) enum Noted {
    /// No record: steps may have run in the tree.
    Nothing,
    /// Record of all directories: every file is as git wrote it.
    All,
    /// Every file is as git wrote it, and all were recorded before. git has written only to these directories since.
    But(BTreeSet<String>),
}

/// The work that follows the checkout, done at once off the async threads.
pub(super) struct OwnGit {
    pub(super) root: PathBuf,
    pub(super) admin: PathBuf,
    pub(super) mirror: PathBuf,
    pub(super) url: String,
    pub(super) commit: CommitSha,
    pub(super) base_ref: String,
    pub(super) base_tip: CommitSha,
    /// Directories in which git has no file any more.
    pub(super) lost: BTreeSet<String>,
    pub(super) patterns: Option<String>,
    pub(super) marker: String,
    pub(super) owner: Option<TreeOwner>,
    pub(super) noted: Noted,
}

impl OwnGit {
    /// Writes the tree's `.git`: the objects are the mirror's, and everything that can be written is its own. The marker is written last.
    pub(super) fn write(self) -> anyhow::Result<()> {
        let top = Folder::open(&self.root)?;
        gone::clear(&top, &self.lost)?;
        let git = Path::new(".git");
        if !matches!(top.kind(&git.join("config")), Ok(Some(FileType::RegularFile))) {
            top.remove(git)?;
        }
        let git = top.make_folder(git)?;
        for dir in ["objects/info", "objects/pack", "refs/heads", "refs/remotes/origin", "info"] {
            git.make_folder(Path::new(dir))?;
        }
        let write = |name: &str, text: &str| {
            git.write(Path::new(name), 0o644, text.as_bytes()).with_context(|| format!("cannot write .git/{name}"))
        };
        write("config", &config(Some(&self.url), self.patterns.as_deref(), Missing::Fetched))?;
        if let Some(patterns) = &self.patterns {
            write("info/sparse-checkout", patterns)?;
        }
        write(ALTERNATES, &format!("{}\n", self.mirror.join("objects").display()))?;
        write_ref(&git, Path::new(&self.base_ref), &self.base_tip)?;
        write("HEAD", &format!("{}\n", self.commit))?;
        git.remove(Path::new("index.lock"))?;
        let index = fs::File::open(self.admin.join("index")).context("there is no index to copy")?;
        git.write(Path::new("index"), 0o644, index).context("cannot copy the index")?;
        fs::write(self.admin.join("HEAD"), format!("{}\n", self.commit))?;
        if let Some(owner) = self.owner {
            owner.take_over(&self.root)?;
        }
        match &self.noted {
            Noted::Nothing => {}
            Noted::But(dirs) if self.owner.is_none() => pristine::renew(&self.root, &self.admin, dirs)?,
            Noted::But(_) | Noted::All => pristine::record(&self.root, &self.admin)?,
        }
        write_whole(&self.admin.join(MARKER), &self.marker)
    }
}

/// Way in which git takes objects that a tree's `.git` lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Missing {
    /// It fetches them from the host.
    Fetched,
    /// It does without, and makes no request.
    Accepted,
}

/// Returns the configuration of a tree's `.git`.
pub(super) fn config(url: Option<&str>, patterns: Option<&str>, missing: Missing) -> String {
    let sparse = if patterns.is_some() { "\tsparseCheckout = true\n\tsparseCheckoutCone = true\n" } else { "" };
    let url = url.map_or(String::new(), |url| format!("\turl = {}\n", quoted(url)));
    let (extensions, promisor) = match missing {
        Missing::Fetched => {
            ("[extensions]\n\tpartialClone = origin\n", "\tpromisor = true\n\tpartialclonefilter = blob:none\n")
        }
        Missing::Accepted => ("", ""),
    };
    format!(
        "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = false\n{sparse}{extensions}\
         [remote \"origin\"]\n{url}\tfetch = +refs/heads/*:refs/remotes/origin/*\n{promisor}"
    )
}

/// Writes a ref in the tree's `.git`. Removes a branch that is in its way, as `a` is of `a/b`, and a link of that name.
pub(super) fn write_ref(git: &Folder, name: &Path, commit: &CommitSha) -> anyhow::Result<()> {
    if let Some(parent) = name.parent() {
        git.make_folder(parent)?;
    }
    git.write(name, 0o644, format!("{commit}\n").as_bytes()).with_context(|| format!("cannot write {}", name.display()))
}
