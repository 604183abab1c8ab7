//! One working tree: moved to a commit by a single git, with a `.git` of its own for the steps that run in it.
//!
//! What we rely on (index, sparse patterns, which commit is checked out) lies in the mirror's `worktrees/`, laid out as git lays
//! out linked worktrees. The `.git` in the tree is a copy for people's `git status`; whoever can run a step can write to it, so
//! no git of ours reads it.

use super::beside::Which;
use super::folder::{Folder, remove_path};
use super::git::{Git, failure};
use super::marker::{MARKER, Marker};
use super::mirror::{Mirror, quoted};
use super::spare::TreePaths;
use super::{
    CheckoutError, Checkouts, Credentials, Fetched, Strategy, WantedSpare, WorkingTree, gone, pristine, waits,
    write_whole,
};
use crate::domain::{CommitSha, PullRequest};
use anyhow::Context;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// Names this tree as long as it is neither moved nor made from nothing.
const MADE: &str = "tidelock-made";
/// Whom merge commits are by.
const AUTHOR: (&str, &str) = ("Tidelock", "tidelock@localhost");
/// Where the tree's `.git` names the mirror's objects.
const ALTERNATES: &str = "objects/info/alternates";
/// Largest file of the tree's `.git` that is read, in bytes.
const MAX_ALTERNATES: u64 = 64 << 10;
/// Directories that a walk for old plan files does not enter.
const NOT_SEARCHED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];

/// A tree to make or to move.
pub(super) struct TreeLocation<'a> {
    checkouts: &'a Checkouts,
    mirror: Mirror<'a>,
    pub(super) root: PathBuf,
    /// Our own git directory for it.
    admin: PathBuf,
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
        self.make_room(false, false, None).await?;
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

    fn git(&self, args: &[&str]) -> Git<'a> {
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
            WorkingTree { root, head, base, git_dir, made }
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
        let is_spare = present.is_none() && patterns.is_none() && self.take_spare(pull).await;
        let again = match is_spare {
            true => Some(wanted.clone()),
            false => present.filter(|present| present.sparse.is_some() == wanted.sparse.is_some()),
        };
        self.make_room(again.is_some(), is_old, patterns.clone()).await?;
        let commit = match self.checkouts.strategy {
            Strategy::Branch => fetched.head.clone(),
            Strategy::Merge => self.merge(pull, fetched, credentials).await?,
        };
        let lost = match again {
            Some(_) => gone::directories(|args| self.git(args), &commit).await?,
            None => BTreeSet::new(),
        };
        let mut git = self.git(&["read-tree", "--reset", "-u", commit.as_str()]);
        if patterns.is_some() {
            git = git.config("core.sparseCheckout", "true").config("core.sparseCheckoutCone", "true");
        }
        let (began, is_whole) = (SystemTime::now(), patterns.is_none());
        git.credentials(&self.mirror.url, credentials).output().await?;
        if is_whole && (is_spare || again.is_none()) {
            self.note(pull, fetched, &commit, (!is_spare).then_some(began));
        }
        let own = OwnGit {
            root: self.root.clone(),
            admin: self.admin.clone(),
            mirror: self.mirror.path.clone(),
            url: self.mirror.url.clone(),
            commit,
            base_ref: base_ref(pull),
            base_tip: fetched.base_tip.clone(),
            lost,
            patterns,
            marker: wanted.text(),
            owner: self.checkouts.owner,
            is_new: again.is_none() || is_spare,
        };
        blocking(move || own.write()).await?;
        Ok(tree(fetched.base_tip.clone()))
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
    async fn take_spare(&self, pull: &PullRequest) -> bool {
        let here = TreePaths { root: self.root.clone(), admin: self.admin.clone() };
        match self.checkouts.take_spare(&pull.id.repo, here).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(pull = %pull.id, error = format!("{error:#}"), "a kept checkout cannot be used");
                false
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
        let top = Folder::open(&self.root).ok().filter(|top| top.belongs_to(self.checkouts.owner))?;
        let alternates = top.read_text(&Path::new(".git").join(ALTERNATES), MAX_ALTERNATES).ok()??;
        let ours = alternates.trim_end() == self.mirror.path.join("objects").to_string_lossy();
        if ours { Marker::parse(&fs::read_to_string(self.admin.join(MARKER)).ok()?) } else { None }
    }

    /// Before git starts: an untrusted tree goes, a trusted one loses its marker and its old plan files, and an old one git's index, so
    /// that every file of git's is written again.
    async fn make_room(&self, keep: bool, is_old: bool, patterns: Option<String>) -> Result<(), CheckoutError> {
        let (root, admin) = (self.root.clone(), self.admin.clone());
        blocking(move || {
            if keep {
                fs::remove_file(admin.join(MARKER))?;
                if is_old {
                    remove_file(&admin.join("index"))?;
                }
                if let Err(error) = pristine::settle(&root, &admin) {
                    // Then git reads more than it must.
                    tracing::debug!(root = %root.display(), error = format!("{error:#}"), "cannot settle a tree");
                }
                pristine::forget(&admin)?;
                remove_plan_files(&root)?;
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

/// Everything that follows the checkout, done in one go off the async threads.
struct OwnGit {
    root: PathBuf,
    admin: PathBuf,
    mirror: PathBuf,
    url: String,
    commit: CommitSha,
    base_ref: String,
    base_tip: CommitSha,
    /// Directories of which git has no file any more.
    lost: BTreeSet<String>,
    patterns: Option<String>,
    marker: String,
    owner: Option<crate::process::RunAs>,
    /// Made from nothing, or of a tree with nothing else in it.
    is_new: bool,
}

impl OwnGit {
    /// The tree's `.git`: objects from the mirror, everything that can be written its own. The marker comes last.
    fn write(self) -> anyhow::Result<()> {
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
            super::owner::give(&self.root, owner)?;
        }
        if self.is_new {
            pristine::note(&self.root, &self.admin)?;
        }
        write_whole(&self.admin.join(MARKER), &self.marker)
    }
}

/// A ref in the tree's `.git`; a branch that is now in the way of it, as `a` is of `a/b`, goes, and so does a link.
fn write_ref(git: &Folder, name: &Path, commit: &CommitSha) -> anyhow::Result<()> {
    if let Some(parent) = name.parent() {
        git.make_folder(parent)?;
    }
    git.write(name, 0o644, format!("{commit}\n").as_bytes()).with_context(|| format!("cannot write {}", name.display()))
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
