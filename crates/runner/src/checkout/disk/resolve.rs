//! Resolves a path of a tree link by link, so that it also works for places that a sparse tree does not have yet.

use super::super::folder::Folder;
use super::MOST_LINKS;
use crate::platform;
use rustix::fs::FileType;
use std::path::Path;
use tidelock_core::inputs::RealPath;

/// Implements [`tidelock_core::inputs::Tree::resolve`].
pub(super) fn resolve(root: &Path, path: &str) -> Option<RealPath> {
    let top = Folder::open(root).ok()?;
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if !platform::IGNORES_CASE && top.folder(Path::new(&parts.join("/"))).is_ok() {
        // The directory can be opened without a link on the way.
        return Some(RealPath { path: joined(&parts), links: Vec::new() });
    }
    let (mut real, mut links) = (Vec::<String>::new(), Vec::new());
    let mut ends = None;
    let mut rest: Vec<String> = parts.into_iter().rev().map(str::to_owned).collect();
    while let Some(part) = rest.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                real.pop()?;
                continue;
            }
            _ => {}
        }
        if platform::IGNORES_CASE && !is_spelled(&top, &real.join("/"), &part) {
            return None;
        }
        real.push(part);
        // Nothing exists below a file or below a missing entry, so there are no links either.
        if ends.is_some_and(|depth| depth < real.len()) {
            continue;
        }
        let here = real.join("/");
        let kind = top.kind(Path::new(&here));
        ends = if matches!(kind, Ok(None | Some(FileType::RegularFile))) { Some(real.len()) } else { None };
        if !matches!(kind, Ok(Some(FileType::Symlink))) {
            continue;
        }
        if links.len() >= MOST_LINKS {
            return None;
        }
        let target = top.read_link(Path::new(&here)).ok()?.into_string().ok()?;
        links.push(here);
        real.pop();
        let target = match target.starts_with('/') {
            true => {
                real.clear();
                below(root, &target)?
            }
            false => target,
        };
        rest.extend(target.split('/').rev().map(str::to_owned));
    }
    Some(RealPath { path: joined(&real), links })
}

fn joined<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Returns an absolute target as a path from the root. Steps make such links; a commit cannot know the path of its checkout.
fn below(root: &Path, target: &str) -> Option<String> {
    let root = root.canonicalize().ok()?;
    Path::new(target).strip_prefix(&root).ok()?.to_str().map(str::to_owned)
}

/// Returns true if an entry has exactly this name, or there is none of that name in any spelling.
fn is_spelled(top: &Folder, dir: &str, name: &str) -> bool {
    let Ok(entries) = top.folder(Path::new(dir)).and_then(|folder| folder.entries()) else { return true };
    let is_there = top.kind(&Path::new(dir).join(name)).is_ok_and(|kind| kind.is_some());
    !is_there || entries.iter().any(|(entry, _)| entry == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_one_by_one_and_never_out() {
        let dir = tempfile::tempdir().unwrap();
        let (top, root) = (dir.path().canonicalize().unwrap(), dir.path().join("tree"));
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::fs::create_dir_all(root.join("conf")).unwrap();
        std::fs::write(root.join("real/file"), "").unwrap();
        let absolute = top.join("tree/real").to_string_lossy().into_owned();
        for (path, target) in [
            ("link", "real"),
            ("conf/x", "../link/deep"),
            ("conf/up", ".."),
            ("conf/out", "../../tree/real"),
            ("circle", "./circle"),
            ("one", "two"),
            ("two", "one/x"),
            ("dangling", "not/yet"),
            ("absolute", &absolute),
            ("root", "/"),
        ] {
            symlink(target, root.join(path)).unwrap();
        }
        let found = |path: &str| resolve(&root, path).map(|real| (real.path, real.links.join(" ")));
        for (path, real, links) in [
            (".", ".", ""),
            ("real/./deep", "real/deep", ""),
            ("real/file", "real/file", ""),
            ("gone/x", "gone/x", ""),
            ("gone/x/../../link/deep", "real/deep", "link"),
            ("link/file", "real/file", "link"),
            ("conf/x", "real/deep", "conf/x link"),
            ("conf/x/new", "real/deep/new", "conf/x link"),
            ("conf/up", ".", "conf/up"),
            ("conf/up/conf/up/link", "real", "conf/up conf/up link"),
            ("dangling/x", "not/yet/x", "dangling"),
            ("absolute/deep", "real/deep", "absolute"),
        ] {
            assert_eq!(found(path), Some((real.to_owned(), links.to_owned())), "{path}");
        }
        // The time grows with the path only, whatever its start.
        for start in ["gone", "real/file"] {
            let long = format!("{start}{}", "/x".repeat(50_000));
            assert_eq!(found(&long), Some((long, String::new())));
        }
        for path in ["conf/out", "circle", "one", "two/y", "root", "root/etc", "..", "../tree"] {
            assert_eq!(found(path), None, "{path}");
        }
    }
}
