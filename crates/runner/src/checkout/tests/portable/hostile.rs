//! Trees as malicious hooks leave them, and archives that nobody packs.

use super::*;
use std::os::unix::net::UnixListener;

const SECRET: &str = "not of this tree";

async fn world_and_tree() -> (World, WorkingTree) {
    let world = World::with_head().await;
    let tree = world.tree().await;
    (world, tree)
}

async fn unpacked(archive: PathBuf, tree: &WorkingTree) -> (TempDir, WorkingTree) {
    let temp = tempfile::tempdir().unwrap();
    let (root, git_dir) = (temp.path().join("tree"), temp.path().join("git"));
    let tree = unpack_tree(archive, root, git_dir, tree.head.clone(), tree.base.clone()).await.unwrap();
    (temp, tree)
}

/// An archive in the making, and the attempt to unpack it.
struct Crafted {
    temp: TempDir,
    archive: tar::Builder<zstd::Encoder<'static, fs::File>>,
}

impl Crafted {
    fn new() -> Crafted {
        let temp = tempfile::tempdir().unwrap();
        let file = fs::File::create(temp.path().join("a.tar.zst")).unwrap();
        Crafted { temp, archive: tar::Builder::new(zstd::Encoder::new(file, 1).unwrap()) }
    }

    fn add(&mut self, name: &str, kind: tar::EntryType, link: &str, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_link_name_literal(link).unwrap();
        header.set_cksum();
        self.archive.append(&header, content).unwrap();
    }

    async fn unpack(self) -> (TempDir, anyhow::Error) {
        self.archive.into_inner().unwrap().finish().unwrap();
        let (root, git_dir) = (self.temp.path().join("new/tree"), self.temp.path().join("new/git"));
        let commit = CommitSha::parse(&"a".repeat(40)).unwrap();
        let archive = self.temp.path().join("a.tar.zst");
        let error = unpack_tree(archive, root.clone(), git_dir.clone(), commit.clone(), commit).await.unwrap_err();
        assert!(!root.exists() && !git_dir.exists(), "nothing of it stays");
        (self.temp, error)
    }
}

#[tokio::test]
async fn links_are_kept_as_links_and_what_is_no_file_stays() {
    let (world, tree) = world_and_tree().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("key"), SECRET).unwrap();
    symlink(outside.path(), tree.root.join("away")).unwrap();
    symlink(outside.path().join("key"), tree.root.join("key")).unwrap();
    symlink("loop", tree.root.join("loop")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, tree.root.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    let _socket = UnixListener::bind(tree.root.join("socket")).unwrap();
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    let root = &elsewhere.tree.root;
    assert_eq!(fs::read_link(root.join("away")).unwrap(), outside.path());
    assert_eq!(fs::read_link(root.join("key")).unwrap(), outside.path().join("key"));
    assert_eq!(fs::read_link(root.join("loop")).unwrap(), Path::new("loop"));
    assert!(fs::symlink_metadata(root.join("pipe")).is_err() && fs::symlink_metadata(root.join("socket")).is_err());
}

#[tokio::test]
async fn the_git_directory_of_steps_has_no_say() {
    let (world, tree) = world_and_tree().await;
    let git_dir = tree.root.join(".git");
    write(&tree, ".git/hooks/post-checkout", "#!/bin/sh\n");
    write(&tree, ".git/config", "[core]\n\tfsmonitor = /tmp/evil\n");
    write(&tree, ".git/refs/remotes/origin/forged", &format!("{}\n", "f".repeat(40)));
    fs::remove_file(git_dir.join("HEAD")).unwrap();
    symlink("/etc/passwd", git_dir.join("HEAD")).unwrap();
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    assert_eq!(elsewhere.git(&["rev-parse", "HEAD"]).await, tree.head.to_string());
    assert_eq!(elsewhere.git(&["for-each-ref", "--format=%(refname)"]).await, "refs/remotes/origin/main");
    let config = read(&elsewhere.tree, ".git/config");
    assert!(!config.contains("fsmonitor") && !elsewhere.tree.root.join(".git/hooks").exists(), "{config}");
    fs::remove_dir_all(&git_dir).unwrap();
    symlink("/etc", &git_dir).unwrap();
    assert_eq!(world.sent(&tree, PackedGit::Commit).await.git(&["rev-parse", "HEAD"]).await, tree.head.to_string());
}

#[tokio::test]
async fn an_archive_above_the_limit_is_removed() {
    let (world, tree) = world_and_tree().await;
    let mut noise = vec![0; 4 << 20];
    getrandom::fill(&mut noise).unwrap();
    fs::write(tree.root.join("noise"), &noise).unwrap();
    let to = world.checkouts.data_dir.join("small");
    let limit = 1 << 20;
    let error = world.checkouts.pack_tree(&tree, PackedGit::Commit, to.clone(), limit).await.unwrap_err();
    assert!(matches!(error, PackTreeError::TooLarge(told) if told == limit), "{error}");
    assert!(!to.exists() && !to.with_extension("git").exists());
    fs::write(&to, "of somebody else").unwrap();
    world.checkouts.pack_tree(&tree, PackedGit::Commit, to.clone(), LIMIT).await.unwrap_err();
    assert_eq!(fs::read_to_string(&to).unwrap(), "of somebody else");
}

#[tokio::test]
async fn an_endless_hole_many_files_and_great_depth_are_refused() {
    let (world, tree) = world_and_tree().await;
    let hole = tree.root.join("hole");
    fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
    let error = world.packed(&tree, PackedGit::Commit).await.unwrap_err();
    assert!(matches!(error, PackTreeError::TooMuchContent(_)), "{error}");
    // A smaller one costs next to nothing.
    fs::File::options().write(true).open(&hole).unwrap().set_len(32 << 20).unwrap();
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    assert_eq!(fs::metadata(elsewhere.tree.root.join("hole")).unwrap().len(), 32 << 20);
    fs::remove_file(hole).unwrap();

    let mut deep = tree.root.clone();
    deep.extend(std::iter::repeat_n("d", 300));
    fs::create_dir_all(&deep).unwrap();
    let error = world.packed(&tree, PackedGit::Commit).await.unwrap_err();
    assert!(matches!(error, PackTreeError::TooDeep(_)), "{error}");
    fs::remove_dir_all(tree.root.join("d")).unwrap();

    fs::create_dir(tree.root.join("many")).unwrap();
    for at in 0..6_000 {
        fs::write(tree.root.join("many").join(at.to_string()), "").unwrap();
    }
    let error = world.packed(&tree, PackedGit::Commit).await.unwrap_err();
    assert!(matches!(error, PackTreeError::TooManyFiles(_)), "{error}");
}

#[tokio::test]
async fn a_file_that_grows_or_shrinks_meanwhile_does_no_harm() {
    let (world, tree) = world_and_tree().await;
    let (file, end) = (tree.root.join("log"), CancellationToken::new());
    let stop = end.clone();
    let writer = std::thread::spawn(move || {
        while !stop.is_cancelled() {
            fs::write(&file, vec![7; 200_000]).unwrap();
            fs::write(&file, "short").unwrap();
        }
    });
    for _ in 0..10 {
        // Either all of it is in order, or the file is named.
        match world.packed(&tree, PackedGit::Commit).await {
            Ok(archive) => assert_eq!(read(&unpacked(archive, &tree).await.1, "README"), "read me\n"),
            Err(PackTreeError::Changed(path)) => assert_eq!(path, Path::new("log")),
            Err(error) => panic!("{error}"),
        }
    }
    end.cancel();
    writer.join().unwrap();
}

#[tokio::test]
async fn a_job_does_not_run_without_a_file_that_the_server_may_not_read() {
    let (world, tree) = world_and_tree().await;
    if rustix::process::geteuid().is_root() {
        // Steps run as another user; the file is root's.
        std::os::unix::fs::chown(&tree.root, Some(12_345), Some(12_345)).unwrap();
    } else {
        fs::set_permissions(tree.root.join("README"), PermissionsExt::from_mode(0o000)).unwrap();
    }
    let error = world.packed(&tree, PackedGit::Commit).await.unwrap_err();
    assert!(matches!(error, PackTreeError::Unreadable { .. }), "{error}");
    assert!(!world.checkouts.data_dir.join("tree.tar.zst").exists());
}

#[tokio::test]
async fn crafted_entries_are_refused() {
    use tar::EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
    for (name, kind) in [
        ("tree/../out", Regular),
        ("tree//tmp/tidelock-out", Regular),
        ("tree/a/../../out", Regular),
        ("tree/", Directory),
        ("tree/.git/config", Regular),
        ("tree/.git/hooks/post-checkout", Symlink),
        ("tree/hard", Link),
        ("tree/device", Char),
        ("tree/device", Block),
        ("tree/pipe", Fifo),
        ("/tmp/tidelock-out", Regular),
        ("out", Regular),
        ("git/../../out", Regular),
        ("git/config", Regular),
        ("index", Symlink),
    ] {
        let mut crafted = Crafted::new();
        crafted.add(name, kind, "/etc/passwd", b"");
        let (temp, error) = crafted.unpack().await;
        assert!(format!("{error:#}").contains("in the archive"), "{name}: {error:#}");
        assert!(!temp.path().join("out").exists() && !temp.path().join("new/out").exists(), "{name}");
    }
    assert!(!Path::new("/tmp/tidelock-out").exists());
}

#[tokio::test]
async fn nothing_is_written_through_a_link_of_the_archive() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let mut crafted = Crafted::new();
    crafted.add("tree/a", tar::EntryType::Symlink, target, b"");
    crafted.add("tree/a/passwd", tar::EntryType::Regular, "", b"mine");
    crafted.unpack().await;
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    // A link is not written through by a file of its name, either.
    let key = outside.path().join("key");
    fs::write(&key, SECRET).unwrap();
    let mut crafted = Crafted::new();
    crafted.add("tree/a", tar::EntryType::Symlink, key.to_str().unwrap(), b"");
    crafted.add("tree/a", tar::EntryType::Regular, "", b"mine");
    let (_temp, error) = crafted.unpack().await;
    assert!(format!("{error:#}").contains("\"tree/a\" in the archive: File exists"), "{error:#}");
    assert_eq!(fs::read_to_string(&key).unwrap(), SECRET);
}

#[tokio::test]
async fn bombs_are_refused() {
    let zeros = vec![0; 1 << 20];
    let mut crafted = Crafted::new();
    for at in 0..100 {
        crafted.add(&format!("tree/{at}"), tar::EntryType::Regular, "", &zeros);
    }
    assert!(format!("{:#}", crafted.unpack().await.1).contains("larger than any"));
    let mut crafted = Crafted::new();
    crafted.add("././@LongLink", tar::EntryType::GNULongName, "", &zeros);
    assert!(format!("{:#}", crafted.unpack().await.1).contains("longer than any"));
    let mut crafted = Crafted::new();
    for _ in 0..6_000 {
        crafted.add("tree/d", tar::EntryType::Directory, "", b"");
    }
    assert!(format!("{:#}", crafted.unpack().await.1).contains("larger than any"));
}

#[tokio::test]
async fn a_damaged_archive_leaves_nothing() {
    let (world, tree) = world_and_tree().await;
    let archive = world.packed(&tree, PackedGit::Commit).await.unwrap();
    let whole = fs::read(&archive).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let mut extended = whole.clone();
    extended.extend(zstd::encode_all(&vec![0; 4 << 20][..], 1).unwrap());
    for bytes in [&whole[..whole.len() / 2], &whole[..whole.len() - 1], &flipped, &extended, b"", b"no archive"] {
        fs::write(&archive, bytes).unwrap();
        let (root, git_dir) = (world.checkouts.data_dir.join("new/tree"), world.checkouts.data_dir.join("new/git"));
        let (head, base) = (tree.head.clone(), tree.base.clone());
        unpack_tree(archive.clone(), root.clone(), git_dir.clone(), head, base).await.unwrap_err();
        assert!(!root.exists() && !git_dir.exists());
    }
}

#[tokio::test]
async fn a_tree_is_unpacked_only_where_nothing_is() {
    let (world, tree) = world_and_tree().await;
    let archive = world.packed(&tree, PackedGit::Commit).await.unwrap();
    let (root, git_dir) = (world.checkouts.data_dir.join("there"), world.checkouts.data_dir.join("other"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "of somebody else").unwrap();
    let (relative, within) = (PathBuf::from("relative"), git_dir.join("git"));
    for (root, git_dir) in [(&root, &git_dir), (&git_dir, &root), (&relative, &git_dir), (&git_dir, &within)] {
        let (head, base) = (tree.head.clone(), tree.base.clone());
        unpack_tree(archive.clone(), root.clone(), git_dir.clone(), head, base).await.unwrap_err();
        assert!(!world.checkouts.data_dir.join("other").exists());
    }
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "of somebody else");
}
