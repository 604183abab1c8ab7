//! A checked-out tree as discovery sees it.

use super::inside;
use crate::schedule::Tree;
use std::fs;
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

/// The directory of the tree that a link leads to, unless the way there, with links at these places, would go in a circle.
fn linked(root: &Path, link: &Path, passed: &[PathBuf]) -> Option<PathBuf> {
    let to = fs::canonicalize(link).ok().filter(|to| to.is_dir())?;
    let inside = to.strip_prefix(root).ok()?;
    let walked = !inside.iter().any(|part| NOT_WALKED.iter().any(|name| part == *name));
    (walked && !passed.iter().any(|place| place.starts_with(&to))).then_some(to)
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
        self.walk(false)
    }

    fn dirs_and_links(&self) -> Vec<String> {
        self.walk(true)
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

/// A directory on the way of a walk.
struct Step {
    /// As it is called from the root.
    name: String,
    /// Where it is.
    place: PathBuf,
    /// Where the links were that have led there.
    links: Vec<PathBuf>,
}

impl DiskTree {
    /// All directories, also those behind links if that is asked for.
    fn walk(&self, links: bool) -> Vec<String> {
        let Ok(root) = fs::canonicalize(&self.root) else { return vec![".".into()] };
        let (mut found, mut next) = (vec![Step { name: ".".into(), place: root.clone(), links: Vec::new() }], 0);
        while next < found.len() && found.len() < MOST_DIRS {
            let Step { name: dir, place, links: passed } = &found[next];
            next += 1;
            let mut inner = Vec::new();
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let Ok(kind) = entry.file_type() else { continue };
                if NOT_WALKED.contains(&name.as_str()) {
                    continue;
                }
                let (to, passed) = if kind.is_dir() {
                    (place.join(&name), passed.clone())
                } else if kind.is_symlink() && links {
                    let passed = [passed.as_slice(), std::slice::from_ref(place)].concat();
                    let Some(to) = linked(&root, &place.join(&name), &passed) else { continue };
                    (to, passed)
                } else {
                    continue;
                };
                let name = if dir == "." { name } else { format!("{dir}/{name}") };
                inner.push(Step { name, place: to, links: passed });
            }
            found.append(&mut inner);
        }
        if found.len() >= MOST_DIRS {
            tracing::warn!(root = %self.root.display(), MOST_DIRS, "too many directories; the rest is not looked at");
        }
        let mut names: Vec<String> = found.into_iter().map(|step| step.name).collect();
        names.sort();
        names
    }

    fn holds(&self, canonical: &Path) -> bool {
        fs::canonicalize(&self.root).is_ok_and(|root| canonical.starts_with(root))
    }
}
