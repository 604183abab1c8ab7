//! The objects of git that a packed tree has, packed from the mirror.

use super::facts::{PackedRef, TreeFacts};
use super::{PackedGit, pack};
use crate::checkout::folder::Folder;
use crate::checkout::git::Git;
use crate::checkout::mirror::is_branch;
use crate::checkout::tree::blocking;
use crate::checkout::{CheckoutError, Checkouts, WorkingTree};
use anyhow::Context;
use rustix::fs::FileType;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use tidelock_core::domain::CommitSha;

/// Most refs that are taken from a tree's `.git`, and most entries that are looked at for them.
const MAX_REFS: usize = 100;
/// Largest file with a ref, in bytes.
const MAX_REF: u64 = 200;
/// Schemes of addresses that are the same on every machine.
const SCHEMES: [&str; 3] = ["https://", "http://", "ssh://"];

/// A commit with its directory and parents.
struct CommitNode {
    commit: String,
    root: String,
    parents: Vec<String>,
}

impl Checkouts {
    /// Packs the objects of a tree's commits into new files in `to`, without fetching any, and returns the facts about them.
    pub(super) async fn pack_objects(
        &self,
        tree: &WorkingTree,
        git: PackedGit,
        to: &Path,
    ) -> Result<TreeFacts, CheckoutError> {
        let commit = fs::read_to_string(tree.git_dir.join("HEAD")).context("a checkout has no commit")?;
        let commit = CommitSha::parse(commit.trim()).context("a checkout has no commit")?;
        let mut commits = vec![commit.clone(), tree.head.clone(), tree.base.clone()];
        commits.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        commits.dedup();
        let (how, input, shallow) = match git {
            PackedGit::Commit => {
                let lines = self.commit_lines(tree, &commits).await?;
                let shallow = cut_off(&lines)?;
                (None, self.commits_and_directories(tree, &lines).await?, shallow)
            }
            PackedGit::History => {
                let input: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
                (Some("--revs"), input, Vec::new())
            }
        };
        let name = to.join("pack").to_string_lossy().into_owned();
        let mut args = vec!["pack-objects", "-q", "--delta-base-offset", "--missing=allow-any"];
        args.extend(how);
        args.push(&name);
        Git::new(self, &tree.git_dir, &args).offline().input(input.into_bytes()).output().await?;
        let url = self.url_of(tree).await?;
        let (root, admin, pointers) = (tree.root.clone(), tree.git_dir.clone(), tree.pointers.clone());
        let facts = blocking(move || {
            Ok(TreeFacts {
                refs: remote_refs(&root, &commits).context("cannot read the refs of a tree")?,
                commit,
                shallow,
                url,
                missing: git.missing(),
                patterns: fs::read_to_string(admin.join("info/sparse-checkout")).ok(),
                pointers: pointers.map(|pointers| pointers.text()),
                touched: None,
            })
        });
        Ok(facts.await?)
    }

    async fn commit_lines(&self, tree: &WorkingTree, commits: &[CommitSha]) -> Result<Vec<CommitNode>, CheckoutError> {
        let mut args = vec!["rev-list", "--no-walk=unsorted", "--format=%H %T %P"];
        args.extend(commits.iter().map(CommitSha::as_str));
        args.push("--");
        let told = Git::new(self, &tree.git_dir, &args).offline().output().await?;
        let lines = told.lines().filter(|line| !line.starts_with("commit "));
        let parsed = lines.map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (commit, root) = (words.next()?, words.next()?);
            Some(CommitNode { commit, root, parents: words.collect() })
        });
        let parsed: Option<Vec<CommitNode>> = parsed.collect();
        Ok(parsed.context("git rev-list printed something else")?)
    }

    /// Returns the names of these commits and of all their directories, a line each.
    async fn commits_and_directories(&self, tree: &WorkingTree, lines: &[CommitNode]) -> Result<String, CheckoutError> {
        let mut names = String::new();
        for CommitNode { commit, root, .. } in lines {
            names.push_str(&format!("{commit}\n{root}\n"));
            let args = ["ls-tree", "-r", "-d", "-z", commit, "--"];
            let listed = Git::new(self, &tree.git_dir, &args).offline().output().await?;
            for line in listed.split('\0') {
                let mut words = line.split([' ', '\t']).skip(1);
                // Submodules are listed as well.
                if let (Some("tree"), Some(id)) = (words.next(), words.next()) {
                    let _ = writeln!(names, "{id}");
                }
            }
        }
        Ok(names)
    }

    /// Returns the address of a tree's repository, unless it is a path of this machine.
    async fn url_of(&self, tree: &WorkingTree) -> Result<Option<String>, CheckoutError> {
        let args = ["config", "--get", "remote.origin.url"];
        let done = Git::new(self, &tree.git_dir, &args).with_short_timeout().finish().await?;
        let url = done.read_text()?.trim().to_owned();
        Ok(SCHEMES.iter().any(|scheme| url.starts_with(scheme)).then_some(url))
    }

    /// Returns the files that git tracks among those that are otherwise left out.
    pub(super) async fn tracked_leftovers(&self, tree: &WorkingTree) -> Result<pack::Tracked, CheckoutError> {
        let folders = pack::LEFT_OUT.map(|folder| format!(":(top,glob)**/{folder}/**"));
        let plans = format!(":(top,glob)**/*{}", pack::PLAN_ENDING);
        let args = ["ls-files", "-z", "--cached", "--", &plans, &folders[0], &folders[1]];
        let git = Git::new(self, &tree.git_dir, &args).offline().env("GIT_WORK_TREE", tree.root.to_string_lossy());
        let done = git.within(&tree.root).finish().await?;
        if !done.success() {
            return Err(crate::checkout::git::failure("ls-files", &done));
        }
        Ok(pack::Tracked::of(done.read().context("git tracks more plan files than can be listed")?))
    }
}

/// Returns the commits with parents that are not among them.
fn cut_off(lines: &[CommitNode]) -> Result<Vec<CommitSha>, CheckoutError> {
    let has = |parent: &String| lines.iter().any(|line| line.commit == *parent);
    let cut = lines.iter().filter(|line| !line.parents.iter().all(has));
    let cut: Result<Vec<_>, _> = cut.map(|line| CommitSha::parse(&line.commit)).collect();
    Ok(cut.context("git rev-list printed no commit")?)
}

/// Returns the refs of the host's branches in a tree's `.git` that name one of these commits. Steps can write to it.
fn remote_refs(root: &Path, commits: &[CommitSha]) -> io::Result<Vec<PackedRef>> {
    let mut refs = Vec::new();
    let Ok(folder) = Folder::open(root)?.folder(Path::new(".git/refs/remotes")) else { return Ok(refs) };
    let mut seen = 0;
    folder.walk(&mut |entry| {
        seen += 1;
        if entry.kind == FileType::RegularFile
            && seen <= MAX_REFS
            && let Some(name) = entry.path.to_str().filter(|name| is_branch(name))
            && let Ok(Some(text)) = folder.read_text(entry.path, MAX_REF)
            && let Some(commit) = commits.iter().find(|commit| commit.as_str() == text.trim())
        {
            refs.push(PackedRef { name: name.to_owned(), commit: commit.clone() });
        }
        Ok(seen <= MAX_REFS)
    })?;
    Ok(refs)
}
