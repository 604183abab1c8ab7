//! One working tree: moved to a commit by a single git, with a `.git` of its own for the steps that run in it.
//!
//! What we rely on (index, sparse patterns, which commit is checked out) lies in the mirror's `worktrees/`, laid out as git lays
//! out linked worktrees. The `.git` in the tree is a copy for people's `git status`; whoever can run a step can write to it, so
//! no git of ours reads it.

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

/// Names this tree as long as it is neither moved nor made from nothing.
const MADE: &str = "tidelock-made";
/// Whom merge commits are by.
const AUTHOR: (&str, &str) = ("Tidelock", "tidelock@localhost");
/// Largest file of the tree's `.git` that is read, in bytes.
const MAX_ALTERNATES: u64 = 64 << 10;
/// Directories that a walk for old plan files does not enter.
const NOT_SEARCHED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];

/// What a tree is before git writes to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Not there, or not trusted.
    Nothing,
    /// Written before the machine started.
    Old,
    /// Steps may have run in it.
    Used,
    /// Every file is as git wrote it, and there is no other.
    AsWritten,
}

/// A tree to make or to move.
pub(super) struct TreeLocation<'a> {
    pub(super) checkouts: &'a Checkouts,
    pub(super) mirror: Mirror<'a>,
    pub(super) root: PathBuf,
    /// Our own git directory for it.
    pub(super) admin: PathBuf,
}

impl<'a> TreeLocation<'a> {
    pub(super) fn of(
        checkouts: &'a Checkouts,
        pull: &PullRequest,
        which: &Which,
    ) -> Result<TreeLocation<'a>, CheckoutError> {
        let mirror = Mirror::of(checkouts, pull)?;
        let root = checkouts.pull_path(&pull.id).join(&which.name);
        let admin = mirror.path.join("worktrees").join(format!("{}-{}", pull.id.number, which.name));
        Ok(TreeLocation { checkouts, mirror, root, admin })
    }

    /// A tree of the mirror at another place.
    pub(super) fn at_paths(mirror: Mirror<'a>, checkouts: &'a Checkouts, paths: TreePaths) -> TreeLocation<'a> {
        TreeLocation { checkouts, mirror, root: paths.root, admin: paths.admin }
    }

    /// Writes the files of a commit whose objects are here, from nothing and without a `.git`; false if it was ended before. Nobody waits
    /// for it.
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

    /// Makes the tree or moves it; nothing at all if it is there already.
    pub(super) async fn at(
        &self,
        pull: &PullRequest,
        fetched: &Fetched,
        dirs: Option<&[String]>,
        credentials: Option<&Credentials>,
    ) -> Result<WorkingTree, CheckoutError> {
        // A plan's record may be of an earlier version, which did not check them.
        for commit in [&fetched.head, &fetched.base_tip] {
            CommitSha::parse(commit.as_str()).map_err(|error| CheckoutError::Git(error.to_string()))?;
        }
        let patterns = dirs.map(cone);
        let wanted = Marker::new(self.checkouts.strategy, fetched, patterns.as_deref());
        let present = self.marker();
        let tree = |base: CommitSha| {
            let (root, git_dir, head) = (self.root.clone(), self.admin.clone(), fetched.head.clone());
            // Trees of earlier versions have none, and stay the same for as long.
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
            // Other attributes have shaped files that are the same in both.
            (before, moves) = (Before::Nothing, Moves::default());
            self.make_room(before, patterns.clone()).await?;
        }
        let (began, is_whole) = (SystemTime::now(), patterns.is_none());
        let wrote_only_changes = self.write_files(&commit, before, !is_whole, credentials).await?;
        let wrote_only_changes = !self.fetch_large_files(&commit, !is_whole, credentials).await? && wrote_only_changes;
        let is_new = spare.is_some() || before == Before::Nothing;
        if is_whole && is_new {
            self.note(pull, fetched, &commit, spare.is_none().then_some(began));
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

    /// The git that writes a commit's files.
    pub(super) fn read_tree(&self, how: &str, commit: &CommitSha, is_sparse: bool) -> Git<'a> {
        let git = self.git(&["read-tree", how, "-u", commit.as_str()]);
        match is_sparse {
            true => git.config("core.sparseCheckout", "true").config("core.sparseCheckoutCone", "true"),
            false => git,
        }
    }

    /// Has git write what differs between its index and the commit, and every file that is not as git wrote it unless all are; returns
    /// whether it wrote no other.
    async fn write_files(
        &self,
        commit: &CommitSha,
        before: Before,
        is_sparse: bool,
        credentials: Option<&Credentials>,
    ) -> Result<bool, CheckoutError> {
        let read_tree = |how: &str| self.read_tree(how, commit, is_sparse);
        // `-m` looks at no file that is the same in both, and ends before it writes if one of the others was touched.
        if before == Before::AsWritten {
            let moved = read_tree("-m").credentials(&self.mirror.url, credentials).finish().await?;
            if moved.success() {
                return Ok(true);
            }
        }
        read_tree("--reset").credentials(&self.mirror.url, credentials).output().await?;
        Ok(false)
    }

    /// The head is there already, and the base branch has moved: steps find its new tip.
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

    /// How long writing all files took since `began`, without the fetch of files that were missing, which come in one pack before.
    fn note(&self, pull: &PullRequest, fetched: &Fetched, commit: &CommitSha, began: Option<SystemTime>) {
        let packs = fs::metadata(self.mirror.path.join("objects/pack")).and_then(|meta| meta.modified());
        let took = began.map(|began| {
            let began = packs.map_or(began, |came| came.max(began));
            SystemTime::now().duration_since(began).unwrap_or(Duration::ZERO)
        });
        let files = pristine::indexed(&self.admin.join("index")).unwrap_or_default();
        let (pull, fetched, commit) = (pull.clone(), fetched.clone(), commit.clone());
        let wanted = WantedSpare { like: self.root.clone(), pull, fetched, commit };
        self.checkouts.demand.note(&self.mirror.path, files, took, wanted);
    }

    /// Makes the tree of a closed pull request this one, where one was kept.
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

    /// Head and base that the tree is on, if it is there.
    pub(super) fn present(&self) -> Option<Fetched> {
        self.marker().map(|marker| Fetched { head: marker.head, base_tip: marker.base })
    }

    /// Whether the tree is there and would have to be moved.
    pub(super) fn would_move(&self, fetched: &Fetched, dirs: Option<&[String]>) -> bool {
        let wanted = Marker::new(self.checkouts.strategy, fetched, dirs.map(cone).as_deref());
        self.marker().is_some_and(|present| !present.serves(&wanted))
    }

    /// What the tree holds, if it was finished and is ours, for the user that steps run as now.
    fn marker(&self) -> Option<Marker> {
        let top = Folder::open(&self.root).ok().filter(|top| self.checkouts.is_of_steps(top))?;
        let alternates = top.read_text(&Path::new(".git").join(ALTERNATES), MAX_ALTERNATES).ok()??;
        let ours = alternates.trim_end() == self.mirror.path.join("objects").to_string_lossy();
        if ours { Marker::parse(&fs::read_to_string(self.admin.join(MARKER)).ok()?) } else { None }
    }

    /// Before git starts: an untrusted tree goes, a trusted one loses its marker and its old plan files, and an old one git's index, so
    /// that every file of git's is written again. One that is as git wrote it has nothing to lose.
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
                        // Then git reads more than it must.
                        tracing::debug!(root = %root.display(), error = format!("{error:#}"), "cannot settle a tree");
                    }
                    pristine::forget(&admin)?;
                    remove_plan_files(&root)?;
                }
            } else {
                remove_path(&root)?;
                remove_path(&admin)?;
                fs::create_dir_all(&root)?;
                fs::create_dir_all(admin.join("info"))?;
                fs::write(admin.join("commondir"), "../..\n")?;
                fs::write(admin.join("gitdir"), format!("{}\n", root.join(".git").display()))?;
                // Not a commit of the mirror: git takes it for an unborn branch, and read-tree for nothing to compare with.
                fs::write(admin.join("HEAD"), "ref: refs/heads/main\n")?;
            }
            let mut random = [0; 16];
            getrandom::fill(&mut random)?;
            fs::write(admin.join(MADE), hex::encode(random))?;
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

    /// The head merged into the base's tip, without a working tree. Its parents are base and head, in this order.
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
                // The tree, the conflicted entries, an empty line, and then what is meant for people.
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

/// Where the tree's `.git` has the tip of the base branch.
fn base_ref(pull: &PullRequest) -> String {
    format!("refs/remotes/origin/{}", pull.base.branch)
}

/// Patterns of git's cone mode: the files at the root, these directories whole, and the files beside them on the way.
fn cone(dirs: &[String]) -> String {
    let mut whole: Vec<&str> = dirs.iter().map(|dir| dir.trim_matches('/')).filter(|dir| !dir.is_empty()).collect();
    whole.sort_unstable();
    whole.dedup();
    if whole.contains(&".") {
        return "/*\n".into();
    }
    let all = whole.clone();
    // What lies in another chosen directory is there already; git refuses to take both for a cone.
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

/// A path in a pattern of git's, to be taken as it is.
pub(super) fn escaped(path: &str) -> String {
    let special = |c: &char| matches!(c, '\\' | '*' | '?' | '[');
    path.chars().flat_map(|c| Some('\\').filter(|_| special(&c)).into_iter().chain([c])).collect()
}

/// Plans of another commit; tracked files of that name come back with the checkout. With them goes what git would wait for.
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

/// For files of our own; absent is fine.
pub(super) fn remove_file(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// File work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("file work ended early")?
}
