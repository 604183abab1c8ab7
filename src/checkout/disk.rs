//! A checked-out tree as discovery sees it.

use super::folder::Folder;
use super::{gone, inside};
use crate::schedule::Tree;
use rustix::fs::FileType;
use std::io;
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

    fn dirs_and_links(&self) -> Vec<String> {
        self.walk_links()
    }

    fn read(&self, path: &str) -> Option<String> {
        self.find(path, |top, path| top.read_text(path, LARGEST_FILE))
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

    /// All directories, also those behind links.
    fn walk_links(&self) -> Vec<String> {
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
                } else if kind.is_symlink() {
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
}
