//! What of the file system a child can reach.

use crate::platform::{self, Reach};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How old the last change of a directory has to be for its list to be used again: an entry that is made in the same tick of the file
/// system's clock, which may be 10 ms, does not change the time of change.
const SETTLED: Duration = Duration::from_secs(1);

/// The bounds of a child and of everything that it starts.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The bounds of all children.
    pub shared: Arc<SharedBounds>,
    /// What this child reaches nevertheless. Paths are absolute; links in them are followed when the child is started.
    pub own: Vec<(PathBuf, Reach)>,
}

impl Confinement {
    /// Confines this thread, and every process that it starts, for ever.
    pub(super) fn of_thread(&self) -> io::Result<()> {
        let listing = self.shared.listing();
        let own: Vec<_> =
            self.own.iter().filter_map(|(path, reach)| Some((path.canonicalize().ok()?, *reach))).collect();
        platform::confine_thread(listing.reaches.iter().chain(&own))
    }
}

/// The bounds that all children of a server have in common. Paths are absolute; links in them are followed when a child is started.
#[derive(Debug, Default)]
pub struct SharedBounds {
    named: Named,
    /// The last list that can be used again.
    listing: Mutex<Option<Arc<Listing>>>,
}

/// The directories that bounds are made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    hidden: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// What the kernel is told: it takes away whatever is not named.
#[derive(Debug)]
struct Listing {
    /// What it was made of, without links.
    real: Named,
    /// The directories whose entries were listed.
    listed: Vec<(PathBuf, DirectoryStamp)>,
    reaches: Vec<(PathBuf, Reach)>,
}

/// Changes with the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl SharedBounds {
    /// Children can open nothing below `hidden` and change nothing below `kept`, whatever `writable` names; elsewhere they read everything,
    /// and change what is below `writable`.
    pub fn new(hidden: Vec<PathBuf>, kept: Vec<PathBuf>, writable: Vec<PathBuf>) -> SharedBounds {
        SharedBounds { named: Named { hidden, kept, writable }, listing: Mutex::default() }
    }

    /// Lists the file system, unless nothing has changed.
    fn listing(&self) -> Arc<Listing> {
        let real = self.named.real();
        let mut kept = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listing) = kept.as_ref().filter(|listing| listing.real == real && listing.is_current()) {
            return Arc::clone(listing);
        }
        let now = SystemTime::now();
        let listing = Arc::new(Listing::new(real));
        *kept = listing.is_settled(now).then(|| Arc::clone(&listing));
        listing
    }
}

impl Named {
    /// Without links; what is not there is left out.
    fn real(&self) -> Named {
        let real = |paths: &[PathBuf]| paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        Named { hidden: real(&self.hidden), kept: real(&self.kept), writable: real(&self.writable) }
    }
}

impl Listing {
    fn new(real: Named) -> Listing {
        let mut listed = BTreeMap::new();
        let mut reaches = BTreeMap::new();
        let mut list = |root: &Path, excluded: &[PathBuf], reach| {
            beside(root.to_owned(), excluded, &mut listed, &mut |path| {
                reaches.insert(path, reach);
            });
        };
        list(Path::new("/"), &real.hidden, Reach::Read);
        let unchangeable = [&real.hidden[..], &real.kept[..]].concat();
        for root in &real.writable {
            list(root, &unchangeable, Reach::Write);
        }
        Listing { real, listed: listed.into_iter().collect(), reaches: reaches.into_iter().collect() }
    }

    /// Whether the directories have the entries that they had.
    fn is_current(&self) -> bool {
        self.listed.iter().all(|(dir, stamp)| DirectoryStamp::of_directory(dir).is_some_and(|now| now == *stamp))
    }

    /// Whether a later change will be seen.
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = now.saturating_sub(SETTLED).as_secs();
        self.listed.iter().all(|(_, stamp)| u64::try_from(stamp.modified.0).is_ok_and(|seconds| seconds < latest))
    }
}

impl DirectoryStamp {
    fn of_directory(dir: &Path) -> Option<DirectoryStamp> {
        let meta = dir.symlink_metadata().ok()?;
        Some(DirectoryStamp { device: meta.dev(), inode: meta.ino(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
}

/// The largest parts of `dir` with none of the excluded paths in them. A directory that leads to one of them is no such part: neither its
/// list nor what is put into it later belongs to any; it is noted in `listed`. What a link names is found by its own path.
fn beside(
    dir: PathBuf,
    excluded: &[PathBuf],
    listed: &mut BTreeMap<PathBuf, DirectoryStamp>,
    each: &mut impl FnMut(PathBuf),
) {
    if excluded.iter().any(|path| dir.starts_with(path)) {
        return;
    }
    if !excluded.iter().any(|path| path.starts_with(&dir)) {
        return each(dir);
    }
    // Before its entries: a change meanwhile is seen later.
    let Some(stamp) = DirectoryStamp::of_directory(&dir) else { return };
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
        beside(entry.path(), excluded, listed, each);
    }
    listed.entry(dir).or_insert(stamp);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_is_named_and_links_are_not_followed() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["a/secret/deep", "a/other", "b", "c/also-secret"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/secret"), root.join("link")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        let found = |from: &str, hidden: &[&str]| {
            let hidden: Vec<PathBuf> = hidden.iter().map(|path| root.join(path)).collect();
            let mut found = Vec::new();
            beside(root.join(from), &hidden, &mut BTreeMap::new(), &mut |path| {
                found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            });
            found.sort();
            found
        };
        assert_eq!(found("", &["a/secret", "c/also-secret"]), ["a/other", "b", "file"]);
        assert_eq!(found("a/secret", &["a/secret"]), [""; 0]);
        assert_eq!(found("a/secret/deep", &["a/secret"]), [""; 0]);
        assert_eq!(found("b", &["a/secret"]), ["b"]);
        assert_eq!(found("", &["elsewhere"]), ["a", "b", "c", "file"]);
    }
    #[test]
    fn a_list_is_used_until_an_entry_or_a_link_changes() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["secret", "other", "moved"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        let link = root.join("link");
        std::os::unix::fs::symlink(root.join("secret"), &link).unwrap();
        let settle = || std::fs::File::open(&root).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let bounds = SharedBounds::new(vec![link.clone()], vec![], vec![root.clone()]);
        let list = || {
            let listing = bounds.listing();
            let below = |(path, reach): &(PathBuf, Reach)| {
                (*reach == Reach::Write).then(|| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
            };
            (listing.reaches.iter().filter_map(below).collect::<Vec<_>>(), listing)
        };

        // Other tests change directories above at any time; this one is only ever changed here.
        assert_eq!(list().0, ["moved", "other"]);
        std::fs::write(root.join("new"), "").unwrap();
        assert_eq!(list().0, ["moved", "new", "other"]);
        settle();
        let stamp = DirectoryStamp::of_directory(&root).unwrap();
        assert!(list().1.listed.contains(&(root.clone(), stamp)));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(root.join("moved"), &link).unwrap();
        settle();
        assert_eq!(list().0, ["new", "other", "secret"]);
    }

    #[test]
    fn a_list_of_directories_that_have_just_changed_is_not_kept() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("secret")).unwrap();
        let listing = || {
            let mut listing = Listing { real: Named::default(), listed: Vec::new(), reaches: Vec::new() };
            listing.listed.push((root.clone(), DirectoryStamp::of_directory(&root).unwrap()));
            listing
        };
        let now = SystemTime::now();
        assert!(listing().is_current() && !listing().is_settled(now));
        assert!(listing().is_settled(now + 3 * SETTLED));
        let before = listing();
        std::fs::File::open(&root).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!before.is_current() && listing().is_settled(now));
    }
}
