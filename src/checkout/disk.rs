//! A checked-out tree as discovery sees it.

use super::folder::Folder;
use super::{gone, inside};
use crate::schedule::Tree;
use rustix::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file that is read.
const LARGEST_FILE: u64 = 1 << 20;
/// Directories that a walk lists; a tree with more is listed as far as that.
const MOST_DIRS: usize = 100_000;
/// Directories that are no part of anyone's configuration.
const NOT_WALKED: [&str; 3] = [".git", ".terraform", ".terragrunt-cache"];

/// The tree below a directory. Links are followed only where they stay inside. Blocking: not for async threads.
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
            .filter_map(|(name, kind)| name.into_string().ok().map(|name| (name, kind)))
            .filter(|(name, kind)| is_file(name, *kind))
            .map(|(name, _)| name)
            .collect();
        names.sort();
        names
    }

    fn dirs(&self) -> Vec<String> {
        let mut found = vec![String::from(".")];
        let walked = Folder::open(&self.root).and_then(|top| {
            top.walk(&mut |entry| {
                // The kind of the entry itself: a link to a directory is not entered, so there is no cycle.
                let enter = entry.kind == FileType::Directory
                    && !NOT_WALKED.iter().any(|skipped| entry.name == *skipped)
                    && found.len() < MOST_DIRS;
                match entry.path.to_str().filter(|_| enter) {
                    Some(path) => found.push(path.to_owned()),
                    None => return Ok(false),
                }
                Ok(true)
            })
        });
        if let Err(error) = walked {
            tracing::warn!(root = %self.root.display(), %error, "a checkout cannot be walked; the rest of it is not looked at");
        }
        if found.len() >= MOST_DIRS {
            tracing::warn!(root = %self.root.display(), MOST_DIRS, "too many directories; the rest is not looked at");
        }
        found.sort();
        found
    }

    fn read(&self, path: &str) -> Option<String> {
        self.find(path, |top, path| top.read_text(path, LARGEST_FILE))
    }
}

impl DiskTree {
    /// Looks at a path as it is; where that does not work, at what its links lead to, if that is inside.
    fn find<T>(&self, path: &str, look: impl Fn(&Folder, &Path) -> io::Result<Option<T>>) -> Option<T> {
        let top = Folder::open(&self.root).ok()?;
        if let Ok(found) = look(&top, Path::new(path)) {
            return found;
        }
        let target = inside(&self.root, path).ok()?;
        let relative = target.strip_prefix(self.root.canonicalize().ok()?).ok()?;
        look(&top, relative).ok()?
    }
}
