//! A checked-out tree as discovery sees it.

use super::inside;
use crate::schedule::Tree;
use std::fs;
use std::path::PathBuf;

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
        inside(&self.root, dir).is_ok_and(|path| path.is_dir())
    }

    fn files(&self, dir: &str) -> Vec<String> {
        let Ok(path) = inside(&self.root, dir) else { return Vec::new() };
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| match entry.file_type() {
                Ok(kind) if kind.is_symlink() => {
                    fs::canonicalize(entry.path()).is_ok_and(|target| target.is_file() && self.holds(&target))
                }
                Ok(kind) => kind.is_file(),
                Err(_) => false,
            })
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    fn dirs(&self) -> Vec<String> {
        let (mut found, mut next) = (vec![String::from(".")], 0);
        while next < found.len() && found.len() < MOST_DIRS {
            let dir = found[next].clone();
            next += 1;
            let path = if dir == "." { self.root.clone() } else { self.root.join(&dir) };
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                // The kind of the entry itself: a link to a directory is not entered, so there is no cycle.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !NOT_WALKED.contains(&name.as_str()) {
                    found.push(if dir == "." { name } else { format!("{dir}/{name}") });
                }
            }
        }
        if found.len() >= MOST_DIRS {
            tracing::warn!(root = %self.root.display(), MOST_DIRS, "too many directories; the rest is not looked at");
        }
        found.sort();
        found
    }

    fn read(&self, path: &str) -> Option<String> {
        let path = inside(&self.root, path).ok()?;
        let meta = fs::metadata(&path).ok()?;
        if !meta.is_file() || meta.len() > LARGEST_FILE {
            return None;
        }
        fs::read_to_string(path).ok()
    }
}

impl DiskTree {
    fn holds(&self, canonical: &std::path::Path) -> bool {
        fs::canonicalize(&self.root).is_ok_and(|root| canonical.starts_with(root))
    }
}
