//! A tree's own `.git`, for the steps that run in it and for people's `git status`; no git of ours reads it.

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

/// Where the tree's `.git` names the mirror's objects.
pub(super) const ALTERNATES: &str = "objects/info/alternates";

/// What is to be noted of a tree that was moved.
pub(super) enum Noted {
    /// Steps may have run in it.
    Nothing,
    /// Every file is as git wrote it.
    All,
    /// The same, and all of them were noted before; git wrote only to these directories.
    But(BTreeSet<String>),
}

/// Everything that follows the checkout, done in one go off the async threads.
pub(super) struct OwnGit {
    pub(super) root: PathBuf,
    pub(super) admin: PathBuf,
    pub(super) mirror: PathBuf,
    pub(super) url: String,
    pub(super) commit: CommitSha,
    pub(super) base_ref: String,
    pub(super) base_tip: CommitSha,
    /// Directories of which git has no file any more.
    pub(super) lost: BTreeSet<String>,
    pub(super) patterns: Option<String>,
    pub(super) marker: String,
    pub(super) owner: Option<TreeOwner>,
    pub(super) noted: Noted,
}

impl OwnGit {
    /// The tree's `.git`: objects from the mirror, everything that can be written its own. The marker comes last.
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
        let sparse =
            if self.patterns.is_some() { "\tsparseCheckout = true\n\tsparseCheckoutCone = true\n" } else { "" };
        write(
            "config",
            &format!(
                "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = false\n{sparse}[extensions]\n\
                 \tpartialClone = origin\n[remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                 \tpromisor = true\n\tpartialclonefilter = blob:none\n",
                quoted(&self.url)
            ),
        )?;
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
            owner.take(&self.root)?;
        }
        match &self.noted {
            Noted::Nothing => {}
            Noted::But(dirs) if self.owner.is_none() => pristine::renew(&self.root, &self.admin, dirs)?,
            Noted::But(_) | Noted::All => pristine::note(&self.root, &self.admin)?,
        }
        write_whole(&self.admin.join(MARKER), &self.marker)
    }
}

/// A ref in the tree's `.git`; a branch that is now in the way of it, as `a` is of `a/b`, goes, and so does a link.
pub(super) fn write_ref(git: &Folder, name: &Path, commit: &CommitSha) -> anyhow::Result<()> {
    if let Some(parent) = name.parent() {
        git.make_folder(parent)?;
    }
    git.write(name, 0o644, format!("{commit}\n").as_bytes()).with_context(|| format!("cannot write {}", name.display()))
}
