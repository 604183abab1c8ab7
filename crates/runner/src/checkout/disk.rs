//! A checked-out tree for project discovery.

mod resolve;

use super::folder::Folder;
use super::{gone, inside, inside_real};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use tidelock_core::inputs::{RealPath, Tree};

/// Largest file that is read.
const LARGEST_FILE: u64 = 1 << 20;
/// Most directories that a walk lists; the rest is ignored.
const MOST_DIRS: usize = 100_000;
/// Most links on the way to a file, as in Linux (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Ends of the names of files that Terraform or OpenTofu may read.
const CODE_ENDINGS: [&str; 4] = [".tf", ".tofu", ".json", ".hcl"];
/// Directories without configuration, which are skipped.
const NOT_WALKED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];

/// The tree below a directory. Links are followed only if they stay inside. Blocking: not for async threads.
pub struct DiskTree {
    /// Root of the checkout.
    pub root: PathBuf,
}

impl Tree for DiskTree {
    fn is_dir(&self, dir: &str) -> bool {
        let found = self.find(dir, |top, path| top.folder(path).map(Some));
        found.is_some_and(|folder| matches!(dir, "." | "") || gone::holds_a_project(&folder))
    }

    fn files(&self, dir: &str) -> Vec<String> {
        let Some(entries) = self.find(dir, |top, path| top.folder(path)?.entries().map(Some)) else {
            return Vec::new();
        };
        let is_file = |name: &str, kind: FileType| match kind {
            FileType::Symlink => inside(&self.root, &format!("{dir}/{name}")).is_ok_and(|target| target.is_file()),
            kind => kind == FileType::RegularFile,
        };
        let mut names: Vec<String> = entries
            .into_iter()
            // A name that is not UTF-8 is listed, but cannot be read.
            .map(|(name, kind)| (name.to_string_lossy().into_owned(), kind))
            .filter(|(name, kind)| is_file(name, *kind))
            .map(|(name, _)| name)
            .collect();
        names.sort();
        names
    }

    fn names(&self, dir: &str) -> Option<Vec<String>> {
        let entries = self.find(dir, |top, path| top.folder(path)?.entries().map(Some))?;
        let mut names = Vec::new();
        for (name, _) in entries.into_iter().filter(|(_, kind)| *kind != FileType::Directory) {
            if is_unreadable_code(&name) {
                return None;
            }
            names.extend(name.into_string().ok());
        }
        Some(names)
    }

    fn dirs(&self) -> Vec<String> {
        let mut found = vec![String::from(".")];
        let walked = Folder::open(&self.root).and_then(|top| {
            top.walk(&mut |entry| {
                // `kind` is the entry's own: links to directories are not entered, so there is no cycle.
                let enter = entry.kind == FileType::Directory
                    && !NOT_WALKED.iter().any(|skipped| entry.name == *skipped)
                    && found.len() < MOST_DIRS;
                if enter {
                    found.push(entry.path.to_string_lossy().into_owned());
                }
                // Nothing can be named below a directory whose name is not UTF-8.
                let is_named = entry.path.to_str().is_some();
                if enter && !is_named {
                    let (root, directory) = (self.root.display(), entry.path.display());
                    tracing::warn!(%root, %directory, "the name of a directory is not UTF-8: nothing is planned there");
                }
                Ok(enter && is_named)
            })
        });
        if let Err(error) = walked {
            tracing::warn!(root = %self.root.display(), %error, "a checkout cannot be walked; the rest of it is ignored");
        }
        self.complain_of(found.len());
        found.sort();
        found
    }

    fn dirs_and_links(&self) -> Vec<String> {
        let start = WalkStep { name: ".".into(), place: PathBuf::new(), linked_from: None, links: 0 };
        let (mut found, mut next) = (vec![start], 0);
        let (Ok(top), Ok(root)) = (Folder::open(&self.root), self.root.canonicalize()) else { return vec![".".into()] };
        while next < found.len() && found.len() < MOST_DIRS {
            let inner = below(&top, &root, &found, next);
            found.extend(inner);
            next += 1;
        }
        self.complain_of(found.len());
        let mut names: Vec<String> = found.into_iter().map(|step| step.name).collect();
        names.sort();
        names
    }

    fn read(&self, path: &str) -> Option<String> {
        self.find(path, |top, path| top.read_text(path, LARGEST_FILE))
    }

    fn resolve(&self, path: &str) -> Option<RealPath> {
        resolve::resolve(&self.root, path)
    }
}

/// Returns true if a file of this name is code that cannot be read, because the name is not UTF-8.
fn is_unreadable_code(name: &OsStr) -> bool {
    name.to_str().is_none() && CODE_ENDINGS.iter().any(|ending| name.to_string_lossy().ends_with(ending))
}

/// A directory in a walk that follows links.
struct WalkStep {
    /// Path from the root, with links.
    name: String,
    /// Path from the root, with links resolved.
    place: PathBuf,
    /// Index of the step with the last link on the way here.
    linked_from: Option<usize>,
    /// Number of links on the way here.
    links: usize,
}

impl DiskTree {
    /// Tries a path without links. If that fails, tries the target of its links, if that is inside the tree.
    fn find<T>(&self, path: &str, look: impl Fn(&Folder, &Path) -> io::Result<Option<T>>) -> Option<T> {
        let top = Folder::open(&self.root).ok()?;
        if let Ok(found) = look(&top, Path::new(path)) {
            return found;
        }
        let root = self.root.canonicalize().ok()?;
        let target = inside_real(&root, path).ok()?;
        look(&top, target.strip_prefix(&root).ok()?).ok()?
    }

    fn complain_of(&self, dirs: usize) {
        if dirs >= MOST_DIRS {
            tracing::warn!(root = %self.root.display(), MOST_DIRS, "too many directories; the rest is ignored");
        }
    }
}

/// Returns the directories in a step's directory, and those that its links lead to.
fn below(top: &Folder, root: &Path, found: &[WalkStep], from: usize) -> Vec<WalkStep> {
    let mut inner = Vec::new();
    let Some(step) = found.get(from) else { return inner };
    let entries = match top.folder(&step.place).and_then(|folder| folder.entries()) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(directory = %step.place.display(), %error, "a directory of a checkout cannot be listed");
            return inner;
        }
    };
    for (name, kind) in entries {
        let Some(name) = name.to_str().filter(|name| !NOT_WALKED.contains(name)) else { continue };
        let place = step.place.join(name);
        let to = match kind {
            FileType::Directory => Some((place, step.linked_from, step.links)),
            FileType::Symlink => linked(top, root, found, from, &place).map(|to| (to, Some(from), step.links + 1)),
            _ => None,
        };
        if let Some((place, linked_from, links)) = to {
            let name = if step.name == "." { name.to_owned() } else { format!("{}/{name}", step.name) };
            inner.push(WalkStep { name, place, linked_from, links });
        }
    }
    inner
}

/// Returns the directory that a link in the directory of step `from` leads to, relative to the root. `None` if it leads outside, to a
/// skipped directory, in a circle, or through too many links.
fn linked(top: &Folder, root: &Path, found: &[WalkStep], from: usize, link: &Path) -> Option<PathBuf> {
    if found.get(from)?.links >= MOST_LINKS {
        return None;
    }
    let target = inside_real(root, link.to_str()?).ok()?;
    let to = target.strip_prefix(root).ok()?.to_owned();
    let walked = !to.as_os_str().is_empty() && !to.iter().any(|part| NOT_WALKED.iter().any(|name| part == *name));
    let mut passed = Some(from);
    while let Some(step) = passed.and_then(|step| found.get(step)) {
        if step.place.starts_with(&to) {
            return None;
        }
        passed = step.linked_from;
    }
    (walked && top.folder(&to).is_ok()).then_some(to)
}
