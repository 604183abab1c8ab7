//! Limits the part of the file system that a child can reach.

use crate::platform::{Reach, RuleTarget, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Minimum age of a directory's last change before its list is reused. An entry that is created within the same tick of the file system's
/// clock, up to 10 ms, does not change the directory's times.
const SETTLED: Duration = Duration::from_secs(1);
/// Most rules that are kept for later children, each with an open file. Hooks of a run, commands that install providers and all others differ,
/// and those of a job with copies of its plan.
const RULES_KEPT: usize = 32;

/// The bounds of a child and of everything that it starts.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The bounds of all children.
    pub shared: Arc<SharedBounds>,
    /// Absolute paths that only this child can reach, in spite of the shared bounds. Links in them are followed when the child is started.
    pub own: Vec<(PathBuf, Reach)>,
}

impl Confinement {
    /// Confines this thread, and every process that it starts, permanently.
    pub(super) fn of_thread(&self) -> io::Result<()> {
        let own: Vec<_> = self.own.iter().filter_map(|(path, reach)| Some((RuleTarget::open(path)?, *reach))).collect();
        self.shared.rules(&own, SystemTime::now())?.confine_thread()
    }
}

/// The bounds that all children of a server share. Paths are absolute; links in them are followed when a child is started.
#[derive(Debug, Default)]
pub struct SharedBounds {
    named: NamedPaths,
    reused: Mutex<Option<Reused>>,
}

/// Work done for earlier children.
#[derive(Debug)]
struct Reused {
    listing: Listing,
    /// The rules with this list, for children with these paths of their own. The last used are at the end.
    rules: VecDeque<(Vec<OwnPath>, Arc<Rules>)>,
}

/// Device, inode and reach of a path that only some children can reach.
type OwnPath = ((u64, u64), Reach);

/// The directories that the bounds name.
#[derive(Debug, Default, PartialEq, Eq)]
struct NamedPaths {
    hidden: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// The allow-list for the kernel, which denies access to every other path.
#[derive(Debug)]
struct Listing {
    /// The directories from which the list was computed, with links resolved.
    real: NamedPaths,
    /// The directories whose entries were listed.
    listed: BTreeMap<PathBuf, DirectoryStamp>,
    reaches: BTreeMap<PathBuf, Reach>,
    /// Device and inode of each of these paths, to which rules apply; absent for one that is gone.
    identities: Vec<Option<(u64, u64)>>,
    /// True if every directory that may be listed was listed.
    is_complete: bool,
}

/// Stamp that changes with a directory's entries and with the permission to list it. It has the time of status change, because steps may
/// own a directory and could set its modification time (inode(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl SharedBounds {
    /// Children can open nothing below `hidden` and change nothing below `kept`, even if `writable` names it. Elsewhere they can read
    /// everything, and change files below `writable`.
    pub fn new(hidden: Vec<PathBuf>, kept: Vec<PathBuf>, writable: Vec<PathBuf>) -> SharedBounds {
        SharedBounds { named: NamedPaths { hidden, kept, writable }, reused: Mutex::default() }
    }

    /// Returns the rules for a child that can reach these files, too.
    fn rules(&self, own: &[(RuleTarget, Reach)], now: SystemTime) -> io::Result<Arc<Rules>> {
        let key = own.iter().map(|(target, reach)| Ok((target.identity()?, *reach))).collect::<io::Result<Vec<_>>>()?;
        let mut reused = self.reused.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.reuse_or_list(reused.take())?;
        let rules = known.rules(key, own)?;
        *reused = known.listing.is_reusable(now).then_some(known);
        Ok(rules)
    }

    /// Returns what was reused, if nothing has changed since, or lists the file system again.
    fn reuse_or_list(&self, reused: Option<Reused>) -> io::Result<Reused> {
        let real = self.named.real()?;
        let current = reused.filter(|reused| reused.listing.real == real && reused.listing.is_current());
        Ok(current.unwrap_or_else(|| Reused { listing: Listing::new(real), rules: VecDeque::new() }))
    }
}

impl Reused {
    /// Returns the rules for children with these paths, made from `own` if no earlier child had them.
    fn rules(&mut self, key: Vec<OwnPath>, own: &[(RuleTarget, Reach)]) -> io::Result<Arc<Rules>> {
        let found = self.rules.iter().position(|(known, _)| *known == key).and_then(|at| self.rules.remove(at));
        let rules = match found {
            Some((_, rules)) => rules,
            None => Arc::new(Rules::new(&self.listing.reaches, own)?),
        };
        if self.rules.len() == RULES_KEPT {
            self.rules.pop_front();
        }
        self.rules.push_back((key, Arc::clone(&rules)));
        Ok(rules)
    }
}

impl NamedPaths {
    /// Returns the directories with links resolved. Missing ones are left out.
    ///
    /// # Errors
    ///
    /// If a hidden path cannot be resolved: a step may have closed a directory above it.
    fn real(&self) -> io::Result<NamedPaths> {
        let is_gone = |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        let resolve = |path: &PathBuf| match path.canonicalize() {
            Err(error) if is_gone(&error) => None,
            real => Some(real),
        };
        let hidden = self.hidden.iter().filter_map(resolve).collect::<io::Result<_>>()?;
        let kept = |path: &PathBuf| resolve(path).map(|real| real.unwrap_or_else(|_| path.clone()));
        let writable = |path: &PathBuf| path.canonicalize().ok();
        Ok(NamedPaths {
            hidden,
            kept: self.kept.iter().filter_map(kept).collect(),
            writable: self.writable.iter().filter_map(writable).collect(),
        })
    }
}

impl Listing {
    fn new(real: NamedPaths) -> Listing {
        let (listed, reaches, identities) = Default::default();
        let mut listing = Listing { real, listed, reaches, identities, is_complete: true };
        let hidden = listing.real.hidden.clone();
        listing.add(PathBuf::from("/"), &hidden, Reach::Read);
        let unchangeable = [&hidden[..], &listing.real.kept].concat();
        for root in listing.real.writable.clone() {
            listing.add(root, &unchangeable, Reach::Write);
        }
        listing.identities = listing.identities_now().collect();
        listing
    }

    fn identities_now(&self) -> impl Iterator<Item = Option<(u64, u64)>> {
        let identity = |path: &PathBuf| path.symlink_metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        self.reaches.keys().map(identity)
    }

    /// Adds the largest parts of `dir` that contain no excluded path. A directory above an excluded path is not added itself: neither its
    /// list nor entries created in it later become accessible. The target of a link is found by its own path.
    fn add(&mut self, dir: PathBuf, excluded: &[PathBuf], reach: Reach) {
        if excluded.iter().any(|path| dir.starts_with(path)) {
            return;
        }
        if !excluded.iter().any(|path| path.starts_with(&dir)) {
            self.reaches.insert(dir, reach);
            return;
        }
        // Taken before the entries are read, so that a change meanwhile is detected later.
        let Ok(stamp) = DirectoryStamp::of_directory(&dir) else {
            self.is_complete = false;
            return;
        };
        let entries = std::fs::read_dir(&dir);
        // A directory that becomes listable later gets another stamp.
        self.is_complete &= entries.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::PermissionDenied);
        for entry in entries.into_iter().flatten() {
            match entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) {
                Ok((kind, _)) if kind.is_symlink() => {}
                Ok((_, path)) => self.add(path, excluded, reach),
                Err(_) => self.is_complete = false,
            }
        }
        self.listed.entry(dir).or_insert(stamp);
    }

    /// Returns true if no listed directory has changed, and no path is another file or the place of another file system.
    fn is_current(&self) -> bool {
        self.listed.iter().all(|(dir, stamp)| DirectoryStamp::of_directory(dir).is_ok_and(|now| now == *stamp))
            && self.identities_now().eq(self.identities.iter().copied())
    }

    /// Returns true if it is complete and every later change of a listed directory will alter a stamp.
    fn is_reusable(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = now.saturating_sub(SETTLED).as_secs();
        let is_settled = |stamp: &DirectoryStamp| u64::try_from(stamp.changed.0).is_ok_and(|seconds| seconds < latest);
        self.is_complete && self.listed.values().all(is_settled)
    }
}

impl DirectoryStamp {
    fn of_directory(dir: &Path) -> io::Result<DirectoryStamp> {
        let meta = dir.symlink_metadata()?;
        Ok(DirectoryStamp { device: meta.dev(), inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

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
            let mut listing = Listing::new(NamedPaths::default());
            listing.add(root.join(from), &hidden, Reach::Write);
            let below = |path: &PathBuf| path.strip_prefix(&root).ok().map(|path| path.to_str().unwrap().to_owned());
            listing.reaches.keys().filter_map(below).collect::<Vec<String>>()
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
        let bounds = SharedBounds::new(vec![link.clone()], vec![], vec![root.clone()]);
        let mut reused = None;
        let mut list = || {
            let known = bounds.reuse_or_list(reused.take()).unwrap();
            let below = |path: &PathBuf| path.strip_prefix(&root).ok().map(|path| path.to_str().unwrap().to_owned());
            let list = known.listing.reaches.keys().filter_map(below).collect::<Vec<String>>();
            reused = Some(known);
            list
        };
        assert_eq!(list(), ["moved", "other"]);
        std::fs::write(root.join("new"), "").unwrap();
        assert_eq!(list(), ["moved", "new", "other"]);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(root.join("moved"), &link).unwrap();
        assert_eq!(list(), ["new", "other", "secret"]);
    }

    #[test]
    fn a_list_that_may_be_wrong_is_not_kept() {
        let dir = tempfile::TempDir::new().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (above, secret) = (root.join("above"), root.join("above/secret"));
        std::fs::create_dir_all(&secret).unwrap();
        let bounds = SharedBounds::new(vec![secret.clone()], vec![], vec![root.clone()]);
        let listing = || bounds.reuse_or_list(None).map(|known| known.listing);
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_secs(3600));
        let before = listing().unwrap();
        assert!(!before.is_reusable(now), "it has just changed");
        assert!(before.is_reusable(later));
        // The owner can set this time, but not the time of the status change.
        std::fs::File::open(&above).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!before.is_current() && !listing().unwrap().is_reusable(now));
        let set_mode = |mode| std::fs::set_permissions(&above, std::fs::Permissions::from_mode(mode)).unwrap();
        if !rustix::process::geteuid().is_root() {
            std::fs::create_dir(above.join("open")).unwrap();
            let open = || listing().unwrap().reaches.contains_key(&above.join("open"));
            set_mode(0o311);
            assert!(!open(), "it cannot be listed");
            set_mode(0o000);
            assert!(listing().is_err(), "nobody knows what to hide");
            set_mode(0o755);
            assert!(open());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn children_with_the_same_paths_have_the_same_rules() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["tree", "other"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        let mut reused = Reused { listing: Listing::new(NamedPaths::default()), rules: VecDeque::new() };
        let mut rules = |name: &str, reach| {
            let target = RuleTarget::open(&path(name)).unwrap();
            reused.rules(vec![(target.identity().unwrap(), reach)], &[(target, reach)]).unwrap()
        };
        let read = rules("tree", Reach::Read);
        let write = rules("tree", Reach::Write);
        assert!(!Arc::ptr_eq(&read, &write));
        assert!(Arc::ptr_eq(&read, &rules("tree", Reach::Read)) && Arc::ptr_eq(&write, &rules("tree", Reach::Write)));
        std::fs::rename(path("tree"), path("moved")).unwrap();
        std::fs::rename(path("other"), path("tree")).unwrap();
        assert!(!Arc::ptr_eq(&read, &rules("tree", Reach::Read)), "another directory has the name");
        assert!(Arc::ptr_eq(&read, &rules("moved", Reach::Read)));
        for number in 0..2 * RULES_KEPT {
            let name = number.to_string();
            std::fs::create_dir(path(&name)).unwrap();
            rules(&name, Reach::Write);
        }
        assert!(!Arc::ptr_eq(&read, &rules("moved", Reach::Read)), "they were dropped");
        assert_eq!(reused.rules.len(), RULES_KEPT);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_list_is_not_used_once_a_writable_directory_is_another_one() {
        let dir = tempfile::TempDir::new().unwrap();
        let cache = dir.path().canonicalize().unwrap().join("cache");
        std::fs::create_dir(&cache).unwrap();
        let listing = Listing::new(NamedPaths { writable: vec![cache.clone()], ..NamedPaths::default() });
        let mut reused = Reused { listing, rules: VecDeque::new() };
        reused.rules(Vec::new(), &[]).unwrap();
        assert!(reused.listing.is_current());
        // Nobody listed the directory above it.
        std::fs::remove_dir(&cache).unwrap();
        assert!(!reused.listing.is_current());
        std::fs::create_dir(&cache).unwrap();
        assert!(!reused.listing.is_current());
    }
}
