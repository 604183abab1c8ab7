//! What of the file system a child can reach.

use crate::platform::{self, Reach};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The bounds of a child and of everything that it starts. Paths are absolute; links in them are followed when the child is started.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// What is for no child: nothing below these can be opened, whatever `writable` names.
    pub hidden: Arc<[PathBuf]>,
    /// What children read, and do not change, whatever `writable` names.
    pub kept: Arc<[PathBuf]>,
    /// Where else children may change files.
    pub writable: Arc<[PathBuf]>,
    /// What this child reaches nevertheless.
    pub own: Vec<(PathBuf, Reach)>,
}

impl Confinement {
    /// Confines this thread, and every process that it starts, for ever.
    pub(super) fn of_thread(&self) -> io::Result<()> {
        platform::confine_thread(&self.reaches())
    }

    /// What is left: the kernel takes everything away that is not named.
    fn reaches(&self) -> Vec<(PathBuf, Reach)> {
        let (hidden, mut kept) = (real(&self.hidden), real(&self.kept));
        let mut reaches = Vec::new();
        beside(PathBuf::from("/"), &hidden, &mut |path| reaches.push((path, Reach::Read)));
        kept.extend(hidden);
        for root in real(&self.writable) {
            beside(root, &kept, &mut |path| reaches.push((path, Reach::Write)));
        }
        let own = self.own.iter().filter_map(|(path, reach)| Some((path.canonicalize().ok()?, *reach)));
        reaches.extend(own);
        reaches
    }
}

/// Without links; what is not there is left out.
fn real(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// The largest parts of `dir` with none of these in them. A directory that leads to one of them is no such part: neither its list nor what
/// is put into it later belongs to any. What a link names is found by its own path.
fn beside(dir: PathBuf, these: &[PathBuf], each: &mut impl FnMut(PathBuf)) {
    if these.iter().any(|one| dir.starts_with(one)) {
        return;
    }
    if !these.iter().any(|one| one.starts_with(&dir)) {
        return each(dir);
    }
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
        beside(entry.path(), these, each);
    }
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
            beside(root.join(from), &hidden, &mut |path| {
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
}
