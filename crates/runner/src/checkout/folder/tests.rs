//! Files and directories that steps replace by other kinds of entries.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use tempfile::TempDir;

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

/// Returns a tree, and a directory beside it that must not be touched.
fn world() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
    for folder in [&tree, &outside] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), "text").unwrap();
    }
    symlink(&outside, tree.join("away")).unwrap();
    symlink(outside.join("file"), tree.join("link")).unwrap();
    mkfifo(&tree.join("pipe"));
    symlink("/dev/zero", tree.join("zero")).unwrap();
    (dir, tree, outside)
}

#[test]
fn only_a_regular_file_below_is_read_and_only_up_to_a_limit() {
    let (_dir, tree, _) = world();
    let top = Folder::open(&tree).unwrap();
    let read = |path: &str| top.read(Path::new(path), 4);
    assert_eq!(read("file").unwrap().as_deref(), Some(&b"text"[..]));
    assert_eq!(read("./file").unwrap().as_deref(), Some(&b"text"[..]));
    assert!(read("absent").unwrap().is_none() && read("absent/file").unwrap().is_none());
    for path in ["link", "away/file", "pipe", "zero", ".", "..", "../outside/file", "/etc/passwd", "file/x"] {
        assert!(read(path).is_err(), "{path}");
    }
    assert!(top.read(Path::new("file"), 3).is_err());
    assert!(Folder::open(&tree.join("away")).is_err());
}

#[test]
fn what_is_written_takes_the_place_of_a_link() {
    let (_dir, tree, outside) = world();
    let top = Folder::open(&tree).unwrap();
    fs::create_dir_all(tree.join("full/of/things")).unwrap();
    for path in ["file", "link", "pipe", "zero", "away", "full", "new"] {
        top.write(Path::new(path), 0o640, &b"new"[..]).unwrap();
        assert_eq!(fs::read_to_string(tree.join(path)).unwrap(), "new", "{path}");
        let meta = fs::symlink_metadata(tree.join(path)).unwrap();
        assert!(meta.is_file() && meta.permissions().mode() & 0o777 == 0o640, "{path}");
    }
    assert_eq!(fs::read_dir(&tree).unwrap().count(), 7, "nothing unfinished is left");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "text");
}

#[test]
fn directories_are_made_in_the_place_of_links_and_entered_through_none() {
    let (_dir, tree, outside) = world();
    let top = Folder::open(&tree).unwrap();
    assert!(top.write(Path::new("away/new"), 0o600, &b"new"[..]).is_err());
    assert!(top.remove(Path::new("away/file")).is_err());
    top.make_folder(Path::new("away/deeper")).unwrap().write(Path::new("new"), 0o600, &b"new"[..]).unwrap();
    assert_eq!(fs::read_to_string(tree.join("away/deeper/new")).unwrap(), "new");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn removing_ends_at_links_and_takes_everything_else() {
    let (_dir, tree, outside) = world();
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/file"), "x").unwrap();
    symlink(&outside, tree.join("a/away")).unwrap();
    fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
    let top = Folder::open(&tree).unwrap();
    assert!(!top.remove_empty(Path::new("a")).unwrap());
    for path in ["a", "away", "pipe", "absent", "absent/x"] {
        top.remove(Path::new(path)).unwrap();
        assert!(!tree.join(path).exists(), "{path}");
    }
    remove_path(&tree).unwrap();
    remove_path(&tree).unwrap();
    assert!(!tree.exists());
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "text");
}

#[test]
fn a_tree_is_removed_that_is_deeper_than_files_may_be_open() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut at = open(&tree, FOLDER, Mode::empty()).unwrap();
    for _ in 0..1_500 {
        mkdirat(&at, "d", FOLDER_MODE).unwrap();
        mkdirat(&at, "e", FOLDER_MODE).unwrap();
        at = openat(&at, "d", FOLDER, Mode::empty()).unwrap();
    }
    drop(at);
    assert!(!Folder::open(&tree).unwrap().walk(&mut |_| Ok(true)).unwrap());
    remove_path(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn a_walk_shows_everything_once_and_enters_no_link() {
    let (_dir, tree, _) = world();
    fs::create_dir_all(tree.join("a/b")).unwrap();
    let mut seen = Vec::new();
    let top = Folder::open(&tree).unwrap();
    let everywhere = top.walk(&mut |entry| {
        seen.push((entry.path.to_str().unwrap().to_owned(), entry.kind));
        Ok(true)
    });
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let names: Vec<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(names, ["a", "a/b", "away", "file", "link", "pipe", "zero"]);
    assert!(everywhere.unwrap());
}

#[test]
fn files_belong_to_the_owner_of_the_tree_and_no_others_are_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "files_belong_to_the_owner_of_the_tree_and_no_others_are_read: skipped, because only root can give files away"
        );
        return;
    }
    let (_dir, tree, outside) = world();
    let user = RunAs { uid: 65_534, gid: 65_533 };
    std::os::unix::fs::chown(&tree, Some(user.uid), Some(user.gid)).unwrap();
    let top = Folder::open(&tree).unwrap();
    assert!(top.belongs_to(Some(user)) && !top.belongs_to(None));
    // A second name of one of the server's files.
    fs::hard_link(outside.join("file"), tree.join("second")).unwrap();
    assert!(top.read(Path::new("second"), 10).is_err());
    top.make_folder(Path::new("a/b")).unwrap().write(Path::new("c"), 0o600, &b"x"[..]).unwrap();
    top.write_link(Path::new("l"), Path::new("a")).unwrap();
    for path in ["a", "a/b", "a/b/c", "l"] {
        let meta = fs::symlink_metadata(tree.join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (user.uid, user.gid), "{path}");
    }
    assert_eq!(top.read(Path::new("a/b/c"), 10).unwrap().as_deref(), Some(&b"x"[..]));
    super::super::owner::change_owner_of_tree(&tree, user).unwrap();
    assert_eq!(fs::metadata(outside.join("file")).unwrap().uid(), 0, "it has another name outside");
}
