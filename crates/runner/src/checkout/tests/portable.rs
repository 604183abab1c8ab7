//! Trees that travel: the copy on another machine answers as the original does, and no file of a tree or an archive leads out of it.

mod hostile;

use super::*;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Largest archive of these tests, in bytes.
const LIMIT: u64 = 32 << 20;

/// Another machine with an unpacked tree.
struct Elsewhere {
    temp: TempDir,
    checkouts: Checkouts,
    tree: WorkingTree,
}

impl World {
    /// The pull request changes one file.
    async fn with_head() -> World {
        let mut world = World::new(Strategy::Branch).await;
        world.commit("topic", &[("live/app/side.tf", "side\n")]).await;
        world
    }

    async fn packed(&self, tree: &WorkingTree, git: PackedGit) -> Result<PathBuf, PackTreeError> {
        let to = self.checkouts.data_dir.join("tree.tar.zst");
        let _ = fs::remove_file(&to);
        let size = self.checkouts.pack_tree(tree, git, to.clone(), LIMIT).await?;
        assert_eq!(size, fs::metadata(&to).unwrap().len());
        assert!(!self.checkouts.data_dir.join("tree.tar.zst.git").exists());
        Ok(to)
    }

    async fn sent(&self, tree: &WorkingTree, git: PackedGit) -> Elsewhere {
        let archive = self.packed(tree, git).await.unwrap();
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        let checkouts = Checkouts::new(&data, Strategy::Branch, Redactor::default(), environment()).unwrap();
        let (root, git_dir) = (data.join("jobs/1/tree"), data.join("jobs/1/git"));
        let tree = unpack_tree(archive, root, git_dir, tree.head.clone(), tree.base.clone()).await.unwrap();
        Elsewhere { temp, checkouts, tree }
    }

    /// Removes everything that an unpacked tree must do without.
    fn forget(&self) {
        let _ = fs::remove_dir_all(&self.source);
        fs::remove_dir_all(self.checkouts.data_dir.join("mirrors")).unwrap();
    }
}

impl Elsewhere {
    async fn git(&self, args: &[&str]) -> String {
        git(&self.tree.root, args).await
    }

    async fn left(&self, to: &str) -> (PlanArtifacts, PathBuf) {
        let others = OtherProjects { dirs: Arc::default(), own: ".".to_owned() };
        let archive = self.temp.path().join(to);
        (self.checkouts.keep_artifacts(&self.tree, &others, archive.clone()).await.unwrap(), archive)
    }
}

async fn status(tree: &WorkingTree) -> String {
    git(&tree.root, &["status", "--porcelain"]).await
}

#[tokio::test]
async fn a_tree_comes_out_as_it_went_in_without_its_mirror() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("a/gone.tf", "x\n"), ("b/run.sh", "#!/bin/sh\n")]).await;
    let tree = world.tree().await;
    write(&tree, "a/main.tf", "changed by a hook\n");
    write(&tree, "a/made.tf", "made by a hook\n");
    fs::remove_file(tree.root.join("a/gone.tf")).unwrap();
    fs::set_permissions(tree.root.join("b/run.sh"), PermissionsExt::from_mode(0o4755)).unwrap();
    fs::create_dir(tree.root.join("empty")).unwrap();
    symlink("../b/./run.sh", tree.root.join("a/link")).unwrap();
    symlink(format!("/nowhere/{}", "x".repeat(300)), tree.root.join("a/long")).unwrap();
    let deep = format!("{}/f", vec!["d".repeat(60); 10].join("/"));
    write(&tree, &deep, "deep");
    let odd = std::ffi::OsStr::from_bytes(b"odd\n\xff");
    fs::write(tree.root.join(odd), "odd").unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(tree.root.join("a/made.tf")).unwrap().set_modified(old).unwrap();

    let (answer, listed) = (status(&tree).await, git(&tree.root, &["ls-files"]).await);
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    world.forget();
    let copy = &elsewhere.tree;
    assert_eq!(status(copy).await, answer);
    assert!(answer.contains("D a/gone.tf") && answer.contains("a/made.tf"), "{answer}");
    assert_eq!(elsewhere.git(&["ls-files"]).await, listed);
    assert_eq!(elsewhere.git(&["rev-parse", "HEAD"]).await, tree.head.to_string());
    assert_eq!(elsewhere.git(&["rev-parse", "origin/main"]).await, tree.base.to_string());
    let top = elsewhere.git(&["rev-parse", "--show-toplevel"]).await;
    assert_eq!(Path::new(&top), copy.root.canonicalize().unwrap());
    assert!(elsewhere.git(&["log", "-1"]).await.contains("change"));

    assert_eq!((read(copy, "a/main.tf"), read(copy, &deep)), ("changed by a hook\n".into(), "deep".into()));
    assert_eq!(fs::read(copy.root.join(odd)).unwrap(), b"odd");
    let mode = |file: &str| fs::metadata(copy.root.join(file)).unwrap().mode() & 0o7777;
    assert_eq!((mode("b/run.sh"), mode("a/main.tf") & 0o111, mode("")), (0o755, 0, 0o700));
    for link in ["a/link", "a/long"] {
        assert_eq!(fs::read_link(copy.root.join(link)).unwrap(), fs::read_link(tree.root.join(link)).unwrap());
    }
    assert!(copy.root.join("empty").is_dir());
    assert_eq!(fs::metadata(copy.root.join("a/made.tf")).unwrap().modified().unwrap(), old);
    assert_eq!((&copy.head, &copy.base, &copy.pointers), (&tree.head, &tree.base, &tree.pointers));
    assert!(copy.made != tree.made && !copy.made.is_empty());
}

#[tokio::test]
async fn hooks_files_are_left_files_there_as_well_and_can_be_put_back() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n")]).await;
    let tree = world.tree().await;
    let unchanged = world.sent(&tree, PackedGit::Commit).await;
    assert_eq!(unchanged.left("none").await.0, PlanArtifacts::Nothing);
    write(&tree, "a/main.tf", "A\n");
    write(&tree, "a/made.tf", "made\n");
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    world.forget();
    write(&elsewhere.tree, "b/by-a-step", "step\n");
    let (kept, archive) = elsewhere.left("left").await;
    assert_eq!(kept, PlanArtifacts::Files(3));
    for file in ["a/main.tf", "a/made.tf", "b/by-a-step"] {
        fs::remove_file(elsewhere.tree.root.join(file)).unwrap();
    }
    elsewhere.checkouts.put_back(&elsewhere.tree, archive, None).await.unwrap();
    assert_eq!(
        (read(&elsewhere.tree, "a/main.tf"), read(&elsewhere.tree, "b/by-a-step")),
        ("A\n".into(), "step\n".into())
    );
    let copy = &elsewhere.tree;
    let untracked = elsewhere.checkouts.untracked_files(copy).await.unwrap();
    assert_eq!(untracked, ["a/made.tf", "b/by-a-step"]);
    for (file, tracked) in [("a/main.tf", true), ("a/made.tf", false), ("b/main.tf", true)] {
        let is = elsewhere.checkouts.is_tracked(&copy.git_dir, &copy.root, &copy.root.join(file)).await.unwrap();
        assert_eq!(is, tracked, "{file}");
    }
}

#[tokio::test]
async fn a_tree_that_no_hook_touched_needs_no_git_there() {
    let world = World::with_head().await;
    let tree = world.tree().await;
    let mut elsewhere = world.sent(&tree, PackedGit::Commit).await;
    elsewhere.checkouts.env.clear();
    assert_eq!(elsewhere.left("none").await.0, PlanArtifacts::Nothing);
    // There is a file to look at now.
    write(&elsewhere.tree, "live/app/more", "x");
    let others = OtherProjects { dirs: Arc::default(), own: ".".to_owned() };
    let archive = elsewhere.temp.path().join("left");
    elsewhere.checkouts.keep_artifacts(&elsewhere.tree, &others, archive).await.unwrap_err();
}

#[tokio::test]
async fn git_reads_no_file_that_is_as_it_wrote_it() {
    let world = World::with_head().await;
    let tree = world.tree().await;
    write(&tree, "live/app/main.tf", "ONE\n");
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    // This command lists files by their metadata, without reading any.
    let stale = elsewhere.git(&["diff-files", "--name-only"]).await;
    assert_eq!(stale, "live/app/main.tf");
    assert_eq!(git(&tree.root, &["diff-files", "--name-only"]).await, stale);
}

#[tokio::test]
async fn history_is_there_if_asked_for() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("main", &[("base.tf", "base\n")]).await;
    world.commit("topic", &[("a/main.tf", "one\n")]).await;
    world.commit("topic", &[("a/main.tf", "two\n")]).await;
    let tree = world.tree().await;
    world.checkouts.bring_history(&world.pull, &tree, None).await.unwrap();
    let expected = git(&tree.root, &["log", "--format=%H %s"]).await;
    // Nothing is fetched for an archive.
    fs::remove_dir_all(&world.source).unwrap();
    let short = world.sent(&tree, PackedGit::Commit).await;
    let whole = world.sent(&tree, PackedGit::History).await;
    world.forget();
    assert_eq!(whole.git(&["log", "--format=%H %s"]).await, expected);
    assert_eq!(whole.git(&["diff", "--name-only", "origin/main...HEAD"]).await, "a/main.tf");
    assert_eq!(whole.git(&["show", "HEAD:a/main.tf"]).await, "two");
    assert_eq!(whole.git(&["show", "origin/main:base.tf"]).await, "base");
    assert_eq!(whole.git(&["status", "--porcelain"]).await, "");
    assert_eq!(short.git(&["log", "--format=%H"]).await, tree.head.to_string());
    assert_eq!(short.git(&["status", "--porcelain"]).await, "");
    whole.git(&["gc", "-q"]).await;
    assert_eq!(whole.git(&["log", "--format=%H %s"]).await, expected);
    for copy in [&short, &whole] {
        let config = fs::read_to_string(copy.tree.root.join(".git/config")).unwrap();
        let of_this_machine = world.source.to_string_lossy().into_owned();
        assert!(!config.contains(&of_this_machine) && config.contains("refs/remotes/origin"), "{config}");
        assert!(!copy.tree.root.join(".git/objects/info/alternates").exists());
    }
}

#[tokio::test]
async fn a_merge_travels_with_both_of_its_sides() {
    let mut world = World::new(Strategy::Merge).await;
    world.commit("main", &[("base.tf", "base\n")]).await;
    world.commit("topic", &[("a/main.tf", "a\n")]).await;
    let tree = world.tree().await;
    let commit = git(&tree.root, &["rev-parse", "HEAD"]).await;
    let short = world.sent(&tree, PackedGit::Commit).await;
    world.checkouts.bring_history(&world.pull, &tree, None).await.unwrap();
    let whole = world.sent(&tree, PackedGit::History).await;
    world.forget();
    for copy in [&short, &whole] {
        assert_eq!(copy.git(&["rev-parse", "HEAD"]).await, commit);
        assert_eq!(copy.git(&["rev-parse", "HEAD^1", "HEAD^2"]).await, format!("{}\n{}", tree.base, tree.head));
        assert_eq!(copy.git(&["status", "--porcelain"]).await, "");
        assert_eq!((read(&copy.tree, "base.tf"), read(&copy.tree, "a/main.tf")), ("base\n".into(), "a\n".into()));
        assert_eq!((&copy.tree.head, &copy.tree.base), (&tree.head, &tree.base));
    }
    assert_eq!(whole.git(&["diff", "--name-only", "origin/main...HEAD"]).await, "a/main.tf");
}

#[tokio::test]
async fn a_sparse_tree_stays_sparse() {
    let mut world = World::new(Strategy::Branch).await;
    world.checkouts.sparse = true;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n"), ("b/deep/er/x.tf", "x\n")]).await;
    let fetched = world.fetch().await;
    let dirs = ["a".to_owned()];
    let tree = world.checkouts.tree(&world.pull, "default", &fetched, Some(&dirs), None).await.unwrap();
    write(&tree, "a/main.tf", "A\n");
    let answer = status(&tree).await;
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    world.forget();
    assert!(!elsewhere.tree.root.join("b").exists());
    assert_eq!((status(&elsewhere.tree).await, answer.as_str()), (answer.clone(), "M a/main.tf"));
    assert_eq!(elsewhere.left("left").await.0, PlanArtifacts::Files(1));
}

#[tokio::test]
async fn plans_and_what_init_makes_stay_unless_git_has_them() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("kept/.terraform/x.tf", "tracked\n"), ("kept/sample.tfplan", "tracked\n")]).await;
    let tree = world.tree().await;
    for file in ["a/.terraform/p", ".terraform/p", "b/.terragrunt-cache/c/p", "a/default.tfplan", "kept/.terraform/p"] {
        write(&tree, file, "of this machine");
    }
    write(&tree, "a/nested/.git/config", "[core]\n");
    let elsewhere = world.sent(&tree, PackedGit::Commit).await;
    let there = |file: &str| elsewhere.tree.root.join(file).exists();
    for file in ["a/.terraform", ".terraform", "b/.terragrunt-cache", "a/default.tfplan", "kept/.terraform/p"] {
        assert!(!there(file), "{file}");
    }
    assert!(there("kept/.terraform/x.tf") && there("kept/sample.tfplan") && there("a/nested/.git/config"));
    assert_eq!(elsewhere.git(&["diff-files", "--name-only"]).await, "");
}

#[tokio::test]
async fn pointers_of_git_lfs_are_told_there() {
    let world = World::with_head().await;
    let mut tree = world.tree().await;
    let pointers = LeftPointers { why: PointersLeft::NotInstalled, paths: vec!["a b".into(), "c".into()] };
    tree.pointers = Some(pointers.clone());
    assert_eq!(world.sent(&tree, PackedGit::Commit).await.tree.pointers, Some(pointers));
}
