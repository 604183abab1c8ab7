//! Removes directories that a push removed. git deletes tracked files, but files of Terraform and of steps would keep the directory, and
//! with it a project that no longer exists.

use super::folder::Folder;
use super::git::Git;
use super::{CheckoutError, LONGEST_LIST, unquoted};
use anyhow::Context;
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidelock_core::domain::CommitSha;

/// Entries that Terraform, OpenTofu, Terragrunt and the server leave in a project's directory, and that do not make it a project.
const LEFT: [&str; 4] = [".terraform", ".terragrunt-cache", ".terraform.lock.hcl", "terraform.tfstate.d"];
/// Endings of such entries.
const LEFT_ENDINGS: [&str; 2] = [".tfplan", ".lock.info"];

/// Differences between git's index and a commit.
#[derive(Default)]
pub(super) struct Moves {
    /// Directories with files in the index but not in the commit.
    pub(super) lost: BTreeSet<String>,
    /// Directories with a file that differs, in the form of [`super::pristine`].
    pub(super) changed: BTreeSet<String>,
    /// True if attributes differ. They affect how git writes files that do not differ.
    pub(super) attributes: bool,
}

/// Compares git's index with the commit. To be called before the tree moves to it. `git` starts git in the tree.
pub(super) async fn moves<'a>(git: impl Fn(&[&str]) -> Git<'a>, commit: &CommitSha) -> Result<Moves, CheckoutError> {
    let args = ["diff-index", "--cached", "--name-status", "--no-renames", commit.as_str(), "--"];
    let files = git(&args).output().await?;
    let mut moves = Moves::default();
    for (status, file) in files.lines().filter_map(|line| line.split_once('\t')) {
        let file = unquoted(file);
        let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
        moves.changed.insert(dir.to_owned());
        moves.attributes |= file.ends_with(".gitattributes");
        if status == "A" {
            moves.lost.extend(file.match_indices('/').map(|(at, _)| file[..at].to_owned()));
        }
    }
    if moves.lost.is_empty() {
        return Ok(moves);
    }
    let there = git(&["ls-tree", "-r", "-d", "--name-only", commit.as_str(), "--"]).output().await?;
    if files.len().max(there.len()) > LONGEST_LIST {
        moves.lost.clear();
        return Ok(moves);
    }
    for dir in there.lines().map(unquoted) {
        moves.lost.remove(&dir);
    }
    Ok(moves)
}

/// Removes the contents of these directories except states, which are found again if the directory comes back. Parents that become empty
/// are removed too.
pub(super) fn clear(top: &Folder, lost: &BTreeSet<String>) -> anyhow::Result<()> {
    // Parents come before their contents, so that each is checked once.
    let mut done: Option<&str> = None;
    for dir in lost {
        if done.is_some_and(|above| dir.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))) {
            continue;
        }
        done = Some(dir);
        clear_one(top, Path::new(dir)).with_context(|| format!("cannot clear the removed directory {dir}"))?;
    }
    Ok(())
}

fn clear_one(top: &Folder, dir: &Path) -> std::io::Result<()> {
    let folder = match top.kind(dir) {
        Ok(Some(FileType::Directory)) => top.folder(dir)?,
        // Missing, or exchanged for a link on the way.
        _ => return Ok(()),
    };
    let mut states: Vec<PathBuf> = Vec::new();
    folder.walk(&mut |entry| {
        if entry.kind == FileType::RegularFile && is_state(entry.path) {
            states.push(entry.path.to_owned());
        }
        Ok(entry.name != ".terraform")
    })?;
    if states.is_empty() {
        top.remove(dir)?;
    } else {
        let mut useless: Vec<PathBuf> = Vec::new();
        folder.walk(&mut |entry| {
            let on_the_way = states.iter().any(|state| state.starts_with(entry.path));
            if !on_the_way {
                useless.push(entry.path.to_owned());
            }
            Ok(on_the_way)
        })?;
        useless.iter().try_for_each(|path| folder.remove(path))?;
    }
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if !top.remove_empty(above)? {
            break;
        }
    }
    Ok(())
}

/// Returns true if a file is a state of Terraform's local backend, or its backup.
pub(super) fn is_state(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".tfstate") || name.ends_with(".tfstate.backup")
}

/// Returns true if a directory has entries besides leftovers of Terraform. Also true for an empty one: nothing ran there.
pub(super) fn holds_a_project(folder: &Folder) -> bool {
    let mut any = false;
    let walked = folder.walk(&mut |entry| {
        let name = entry.name.to_string_lossy();
        let left = LEFT.iter().any(|left| name == *left)
            || LEFT_ENDINGS.iter().any(|ending| name.ends_with(ending))
            || is_state(entry.path);
        any = true;
        if !left && entry.kind != FileType::Directory {
            return Err(std::io::Error::other("found"));
        }
        Ok(!left)
    });
    !any || walked.is_err()
}
