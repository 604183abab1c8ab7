//! One working tree, moved to a commit by a single git process, with a `.git` of its own for the steps that run in it.
//!
//! The state that the server relies on (index, sparse patterns, the commit that is checked out) is in the mirror's `worktrees/`, laid out
//! as git lays out linked worktrees. The `.git` in the tree is a copy for people's `git status`. Steps can write to it, so no git of the
//! server's reads it.

use super::beside::Which;
use super::folder::{Folder, remove_path};
use super::git::{Git, failure};
use super::gone::Moves;
use super::marker::{MARKER, Marker};
use super::mirror::Mirror;
use super::own_git::{ALTERNATES, Noted, OwnGit, write_ref};
use super::spare::{SpareFiles, TreePaths};
use super::{
    CheckoutError, Checkouts, Credentials, Fetched, Strategy, WantedSpare, WorkingTree, gone, pristine, waits,
    write_whole,
};
use anyhow::Context;
use rustix::fs::FileType;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tidelock_core::domain::{CommitSha, PullRequest};
use tokio_util::sync::CancellationToken;

/// File with a random identifier of the tree, which changes when the tree is moved or made from nothing.
const MADE: &str = "tidelock-made";
/// Author of merge commits.
const AUTHOR: (&str, &str) = ("Tidelock", "tidelock@localhost");
/// Largest file of the tree's `.git` that is read, in bytes.
const MAX_ALTERNATES: u64 = 64 << 10;
/// Directories that a walk for old plan files does not enter.
const NOT_SEARCHED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];

/// State of a tree before git writes to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Missing, or not trusted.
    Nothing,
    /// Written before the machine started.
    Old,
    /// Steps may have run in it.
    Used,
    /// Every file is as git wrote it, and there are no others.
    AsWritten,
}

/// Part of a commit that a tree has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// The directories of git's sparse patterns.
    Sparse,
}

/// A tree to make or to move.
pub(super) struct TreeLocation<'a> {
    pub(super) checkouts: &'a Checkouts,
    pub(super) mirror: Mirror<'a>,
    pub(super) root: PathBuf,
    /// The server's git directory for it.
    pub(super) admin: PathBuf,
}

impl<'a> TreeLocation<'a> {
    pub(super) fn for_pull(
        checkouts: &'a Checkouts,
        pull: &PullRequest,
        which: &Which,
    ) -> Result<TreeLocation<'a>, CheckoutError> {
        let mirror = Mirror::of(checkouts, pull)?;
        let root = checkouts.pull_path(&pull.id).join(&which.name);
        let admin = mirror.path.join("worktrees").join(format!("{}-{}", pull.id.number, which.name));
        Ok(TreeLocation { checkouts, mirror, root, admin })
    }

    /// Returns a tree of the mirror at other paths.
    pub(super) fn at_paths(mirror: Mirror<'a>, checkouts: &'a Checkouts, paths: TreePaths) -> TreeLocation<'a> {
        TreeLocation { checkouts, mirror, root: paths.root, admin: paths.admin }
    }

    /// Writes the files of a commit whose objects are in the mirror, in the background, from nothing and without a `.git`. Returns false if
    /// it was cancelled.
    pub(super) async fn write_in_background(
        &self,
        fetched: &Fetched,
        commit: &CommitSha,
        end: &CancellationToken,
    ) -> Result<bool, CheckoutError> {
        self.make_room(Before::Nothing, None).await?;
        let git = self.git(&["read-tree", "--reset", "-u", commit.as_str()]).in_background(end);
        let done = git.finish().await?;
        if done.cancelled || end.is_cancelled() {
            return Ok(false);
        }
        if !done.success() {
            return Err(failure("read-tree", &done));
        }
        let marker = Marker::new(self.checkouts.strategy, fetched, None);
        write_whole(&self.admin.join(MARKER), &marker.text())?;
        Ok(true)
    }

    pub(super) fn git(&self, args: &[&str]) -> Git<'a> {
        Git::new(self.checkouts, &self.admin, args).env("GIT_WORK_TREE", self.root.to_string_lossy())
    }

    /// Makes the tree or moves it. A tree that has the commit already keeps its files.
    pub(super) async fn at(
        &self,
        pull: &PullRequest,
        fetched: &Fetched,
        dirs: Option<&[String]>,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        check_commits(fetched)?;
        let patterns = dirs.map(cone);
        let wanted = Marker::new(self.checkouts.strategy, fetched, patterns.as_deref());
        let present = self.marker();
        let tree = |base: CommitSha| {
            let (root, git_dir, head) = (self.root.clone(), self.admin.clone(), fetched.head.clone());
            // Trees of earlier versions have none, and keep that as long as they do not move.
            let made = fs::read_to_string(self.admin.join(MADE)).unwrap_or_default();
            WorkingTree { root, head, base, git_dir, made, pointers: self.left_pointers() }
        };
        // Written before the machine started: a loss of power may have cut or zeroed any file of it.
        let is_old = present.as_ref().is_some_and(|present| present.boot != wanted.boot);
        if let Some(present) = present.as_ref().filter(|present| !is_old && present.serves(&wanted)) {
            if present.base != wanted.base {
                self.move_base(pull, &wanted).await?;
            }
            return Ok(tree(wanted.base));
        }
        let _first = self.checkouts.demand.in_front();
        let spare = if present.is_none() && patterns.is_none() { self.take_spare(pull).await } else { None };
        let is_alike = present.is_some_and(|present| present.sparse.is_some() == wanted.sparse.is_some());
        let mut before = match spare {
            Some(SpareFiles::AsWritten) => Before::AsWritten,
            Some(SpareFiles::Unknown) => Before::Used,
            None if is_alike && is_old => Before::Old,
            None if is_alike => Before::Used,
            None => Before::Nothing,
        };
        self.make_room(before, patterns.clone()).await?;
        let commit = match self.checkouts.strategy {
            Strategy::Branch => fetched.head.clone(),
            Strategy::Merge => self.merge(pull, fetched, credentials).await?,
        };
        let mut moves = Moves::default();
        if before != Before::Nothing {
            moves = gone::moves(|args| self.git(args), &commit).await?;
        }
        if moves.attributes && (spare.is_some() || self.has_large_files()) {
            // Other attributes determined the content of files that are the same in both commits.
            (before, moves) = (Before::Nothing, Moves::default());
            self.make_room(before, patterns.clone()).await?;
        }
        let extent = if patterns.is_none() { Extent::Whole } else { Extent::Sparse };
        let began = SystemTime::now();
        let wrote_only_changes = self.write_files(&commit, before, extent, credentials).await?;
        let wrote_only_changes = !self.fetch_large_files(&commit, extent, credentials).await? && wrote_only_changes;
        let is_new = spare.is_some() || before == Before::Nothing;
        if extent == Extent::Whole && is_new {
            self.report_spare(pull, fetched, &commit, spare.is_none().then_some(began));
        }
        let own = OwnGit {
            root: self.root.clone(),
            admin: self.admin.clone(),
            mirror: self.mirror.path.clone(),
            url: self.mirror.url.clone(),
            commit,
            base_ref: base_ref(pull),
            base_tip: fetched.base_tip.clone(),
            lost: moves.lost,
            patterns,
            marker: wanted.text(),
            owner: self.checkouts.tree_owner(&pull.id),
            noted: match before {
                Before::AsWritten if wrote_only_changes => Noted::But(moves.changed),
                _ if is_new => Noted::All,
                _ => Noted::Nothing,
            },
        };
        blocking(move || own.write()).await?;
        Ok(tree(fetched.base_tip.clone()))
    }

    /// Returns the git command that writes a commit's files.
    pub(super) fn read_tree(&self, how: &str, commit: &CommitSha, extent: Extent) -> Git<'a> {
        let git = self.git(&["read-tree", how, "-u", commit.as_str()]);
        match extent {
            Extent::Whole => git,
            Extent::Sparse => git.config("core.sparseCheckout", "true").config("core.sparseCheckoutCone", "true"),
        }
    }

    /// Has git write the differences between its index and the commit, and also every file that is not as git wrote it, unless all are.
    /// Returns true if it wrote only the differences.
    async fn write_files(
        &self,
        commit: &CommitSha,
        before: Before,
        extent: Extent,
        credentials: Option<&Credentials>,
    ) -> Result<bool, CheckoutError> {
        let read_tree = |how: &str| self.read_tree(how, commit, extent);
        // `-m` reads no file that is the same in both, and stops before it writes if one of the others was touched.
        if before == Before::AsWritten {
            let moved = read_tree("-m").credentials(&self.mirror.url, credentials).finish().await?;
            if moved.success() {
                return Ok(true);
            }
        }
        read_tree("--reset").credentials(&self.mirror.url, credentials).output().await?;
        Ok(false)
    }

    /// Records the new tip of the base branch for steps. The head is checked out already.
    async fn move_base(&self, pull: &PullRequest, wanted: &Marker) -> Result<(), CheckoutError> {
        let (root, admin, marker) = (self.root.clone(), self.admin.clone(), wanted.text());
        let (name, tip) = (base_ref(pull), wanted.base.clone());
        let moved = blocking(move || {
            let git = Folder::open(&root)?.make_folder(Path::new(".git"))?;
            write_ref(&git, Path::new(&name), &tip)?;
            write_whole(&admin.join(MARKER), &marker)
        });
        Ok(moved.await.context("noting the base branch's new tip in a checkout")?)
    }

    /// Reports the tree as a possible spare one, with the time to write all files since `began`. That excludes the fetch of missing files,
    /// which come in one pack before.
    fn report_spare(&self, pull: &PullRequest, fetched: &Fetched, commit: &CommitSha, began: Option<SystemTime>) {
        let packs = fs::metadata(self.mirror.path.join("objects/pack")).and_then(|meta| meta.modified());
        let took = began.map(|began| {
            let began = packs.map_or(began, |came| came.max(began));
            SystemTime::now().duration_since(began).unwrap_or(Duration::ZERO)
        });
        let files = pristine::indexed(&self.admin.join("index")).unwrap_or_default();
        let (pull, fetched, commit) = (pull.clone(), fetched.clone(), commit.clone());
        let wanted = WantedSpare { like: self.root.clone(), pull, fetched, commit };
        self.checkouts.demand.record_tree(&self.mirror.path, files, took, wanted);
    }

    /// Takes the repository's spare tree for this one, if there is one.
    async fn take_spare(&self, pull: &PullRequest) -> Option<SpareFiles> {
        let here = TreePaths { root: self.root.clone(), admin: self.admin.clone() };
        match self.checkouts.take_spare(&pull.id.repo, here).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(pull = %pull.id, error = format!("{error:#}"), "a kept checkout cannot be used");
                None
            }
        }
    }

    /// Returns the head and base that the tree is on, if it exists.
    pub(super) fn present(&self) -> Option<Fetched> {
        self.marker().map(|marker| Fetched { head: marker.head, base_tip: marker.base })
    }

    /// Returns true if the tree exists and would have to be moved.
    pub(super) fn would_move(&self, fetched: &Fetched, dirs: Option<&[String]>) -> bool {
        let wanted = Marker::new(self.checkouts.strategy, fetched, dirs.map(cone).as_deref());
        self.marker().is_some_and(|present| !present.serves(&wanted))
    }

    /// Returns the tree's marker, if it was finished, uses this mirror, and belongs to a user that steps run as now.
    fn marker(&self) -> Option<Marker> {
        let top = Folder::open(&self.root).ok().filter(|top| self.checkouts.is_of_steps(top))?;
        let alternates = top.read_text(&Path::new(".git").join(ALTERNATES), MAX_ALTERNATES).ok()??;
        let ours = alternates.trim_end() == self.mirror.path.join("objects").to_string_lossy();
        if ours { Marker::parse(&fs::read_to_string(self.admin.join(MARKER)).ok()?) } else { None }
    }

    /// Prepares the tree before git starts. An untrusted tree is removed. A trusted one loses its marker and its old plan files, and an old
    /// one also git's index, so that git writes every file again. A tree that is as git wrote it loses only its marker.
    async fn make_room(&self, before: Before, patterns: Option<String>) -> Result<(), CheckoutError> {
        let (root, admin) = (self.root.clone(), self.admin.clone());
        blocking(move || {
            if before != Before::Nothing {
                fs::remove_file(admin.join(MARKER))?;
                if before == Before::Old {
                    remove_file(&admin.join("index"))?;
                }
                if before != Before::AsWritten {
                    if let Err(error) = pristine::settle(&root, &admin) {
                        // git then reads more files than necessary.
                        tracing::debug!(root = %root.display(), error = format!("{error:#}"), "cannot settle a tree");
                    }
                    pristine::remove_record(&admin)?;
                    remove_plan_files(&root)?;
                }
            } else {
                remove_path(&root)?;
                remove_path(&admin)?;
                fs::create_dir_all(&root)?;
                fs::create_dir_all(admin.join("info"))?;
                fs::write(admin.join("commondir"), "../..\n")?;
                fs::write(admin.join("gitdir"), format!("{}\n", root.join(".git").display()))?;
                // Not a commit of the mirror: git takes it for an unborn branch, and read-tree has nothing to compare with.
                fs::write(admin.join("HEAD"), "ref: refs/heads/main\n")?;
            }
            note_made(&admin)?;
            remove_file(&admin.join("index.lock"))?;
            match patterns {
                Some(patterns) => fs::write(admin.join("info/sparse-checkout"), patterns)?,
                None => remove_file(&admin.join("info/sparse-checkout"))?,
            }
            anyhow::Ok(())
        })
        .await
        .with_context(|| format!("cannot prepare the working tree {}", self.root.display()))?;
        Ok(())
    }

    /// Merges the head into the base's tip, without a working tree. The parents of the commit are base and head, in this order.
    async fn merge(
        &self,
        pull: &PullRequest,
        fetched: &Fetched,
        credentials: Option<&Credentials>,
    ) -> Result<CommitSha, CheckoutError> {
        let (base, head) = (fetched.base_tip.as_str(), fetched.head.as_str());
        let mirror = &self.mirror;
        let git = Git::new(self.checkouts, &mirror.path, &["merge-tree", "--write-tree", "--messages", base, head]);
        let done = git.credentials(&mirror.url, credentials).finish().await?;
        let printed = done.read_text()?;
        match done.code {
            Some(0) if done.success() => {}
            Some(1) if printed.contains("CONFLICT") => {
                // The output has the tree, the conflicted entries, an empty line, and then the text for people.
                let words = printed.split_once("\n\n").map_or(printed.as_str(), |(_, words)| words);
                return Err(CheckoutError::Conflict(self.checkouts.redactor.redact(words.trim())));
            }
            _ => return Err(failure("merge-tree", &done)),
        }
        let tree = printed.lines().next().unwrap_or_default().trim().to_owned();
        let message = format!("Merge pull request #{} for planning", pull.id.number);
        let args = ["commit-tree", "-p", base, "-p", head, "-m", &message, &tree];
        let mut git = Git::new(self.checkouts, &mirror.path, &args);
        for role in ["AUTHOR", "COMMITTER"] {
            git = git.env(&format!("GIT_{role}_NAME"), AUTHOR.0).env(&format!("GIT_{role}_EMAIL"), AUTHOR.1);
        }
        Ok(CommitSha::parse(git.output().await?.trim()).context("git commit-tree printed no commit")?)
    }
}

/// Gives the tree of this git directory a new random identifier, and returns it.
pub(super) fn note_made(admin: &Path) -> anyhow::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    let made = hex::encode(random);
    fs::write(admin.join(MADE), &made)?;
    Ok(made)
}

/// Refuses commits that are none: a plan's record may be of an earlier version, which did not check them.
fn check_commits(fetched: &Fetched) -> Result<(), CheckoutError> {
    [&fetched.head, &fetched.base_tip].into_iter().try_for_each(|commit| match CommitSha::parse(commit.as_str()) {
        Ok(_) => Ok(()),
        Err(error) => Err(CheckoutError::Git(error.to_string())),
    })
}

/// Returns the ref in the tree's `.git` that has the tip of the base branch.
fn base_ref(pull: &PullRequest) -> String {
    format!("refs/remotes/origin/{}", pull.base.branch)
}

/// Returns patterns of git's cone mode: the files at the root, these directories with all contents, and the files of their parent
/// directories.
fn cone(dirs: &[String]) -> String {
    let mut whole: Vec<&str> = dirs.iter().map(|dir| dir.trim_matches('/')).filter(|dir| !dir.is_empty()).collect();
    whole.sort_unstable();
    whole.dedup();
    if whole.contains(&".") {
        return "/*\n".into();
    }
    let all = whole.clone();
    // A directory within another chosen one is included already; git does not accept both as a cone.
    whole.retain(|dir| !all.iter().any(|other| dir.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))));
    let mut parents: Vec<&str> =
        whole.iter().flat_map(|dir| dir.match_indices('/').map(|(at, _)| &dir[..at])).collect();
    parents.sort_unstable();
    parents.dedup();
    let mut patterns = String::from("/*\n!/*/\n");
    for dir in parents {
        patterns.push_str(&format!("/{0}/\n!/{0}/*/\n", escaped(dir)));
    }
    for dir in whole {
        patterns.push_str(&format!("/{}/\n", escaped(dir)));
    }
    patterns
}

/// Escapes a path in a pattern of git's, so that it is matched literally.
pub(super) fn escaped(path: &str) -> String {
    let special = |c: &char| matches!(c, '\\' | '*' | '?' | '[');
    path.chars().flat_map(|c| Some('\\').filter(|_| special(&c)).into_iter().chain([c])).collect()
}

/// Removes plans of another commit, and files on which git would block. Tracked files of that name come back with the checkout.
fn remove_plan_files(root: &Path) -> anyhow::Result<()> {
    Folder::open(root)?.walk(&mut |entry| {
        if entry.kind == FileType::Directory {
            return Ok(!NOT_SEARCHED.iter().any(|skipped| entry.name == *skipped));
        }
        if entry.name.to_string_lossy().ends_with(".tfplan") || waits::for_it(entry) {
            entry.remove_file()?;
        }
        Ok(false)
    })?;
    Ok(())
}

/// Removes a file of the server's own; it may be absent.
pub(super) fn remove_file(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Runs file work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("file work ended early")?
}
