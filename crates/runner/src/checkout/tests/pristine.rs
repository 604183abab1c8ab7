//! Without leftovers no git is started, and no leftover is missed.

use super::super::pristine;
use super::*;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

impl World {
    async fn kept(&self, tree: &WorkingTree, except: &[&str]) -> Result<PlanArtifacts, CheckoutError> {
        let dirs = except.iter().map(|dir| (*dir).to_owned()).collect();
        let others = OtherProjects { dirs: Arc::new(dirs), own: "own".to_owned() };
        let archive = self.checkouts.data_dir.join("left.tar.zst");
        let kept = self.checkouts.keep_artifacts(tree, &others, archive.clone()).await;
        let _ = fs::remove_file(archive);
        kept
    }

    /// Returns a machine without git.
    fn without_git(&self) -> World {
        let mut checkouts = self.checkouts.clone();
        checkouts.env.clear();
        World { _temp: tempfile::tempdir().unwrap(), source: PathBuf::new(), checkouts, pull: self.pull.clone() }
    }
}

#[tokio::test]
async fn a_tree_that_is_as_git_wrote_it_needs_no_git() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n")]).await;
    let tree = world.tree().await;
    let without_git = world.without_git();
    assert_eq!(without_git.kept(&tree, &[]).await.unwrap(), PlanArtifacts::Nothing);
    fs::create_dir_all(tree.root.join("a/.terraform/providers")).unwrap();
    fs::write(tree.root.join("a/.terraform/providers/x"), "x").unwrap();
    fs::write(tree.root.join("a/default.tfplan"), "plan").unwrap();
    assert_eq!(without_git.kept(&tree, &[]).await.unwrap(), PlanArtifacts::Nothing);
    // The file of another project belongs to that project.
    fs::write(tree.root.join("b/made"), "b").unwrap();
    assert_eq!(without_git.kept(&tree, &["b"]).await.unwrap(), PlanArtifacts::Nothing);
    without_git.kept(&tree, &[]).await.unwrap_err();
    assert_eq!(world.kept(&tree, &[]).await.unwrap(), PlanArtifacts::Files(1));
}

#[tokio::test]
async fn a_file_that_was_changed_in_place_with_its_old_time_is_seen() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n")]).await;
    let tree = world.tree().await;
    let file = tree.root.join("a/main.tf");
    let before = fs::metadata(&file).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    // The clock of the file system is coarser than the system's.
    loop {
        fs::write(&file, "b\n").unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
        if fs::metadata(&file).unwrap().ctime_nsec() != before.ctime_nsec() {
            break;
        }
    }
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
    world.without_git().kept(&tree, &[]).await.unwrap_err();
}

/// Rewrites a file with the same size, in the second in which git wrote it.
fn rewrite_unseen(file: &Path, text: &str) {
    let times = fs::FileTimes::new().set_modified(fs::metadata(file).unwrap().modified().unwrap());
    fs::write(file, text).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_times(times).unwrap();
}

#[tokio::test]
async fn a_file_that_changed_in_the_second_of_the_checkout_is_written_again_by_a_push() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n")]).await;
    let tree = world.tree().await;
    let index = tree.git_dir.join("index");
    let written = fs::metadata(&index).unwrap().mtime();
    rewrite_unseen(&tree.root.join("a/main.tf"), "x\n");
    // The next second has begun, on this clock and on git's.
    let later = |time: i64| {
        let clock = tree.root.join("a/clock");
        fs::write(&clock, "").unwrap();
        fs::metadata(clock).unwrap().mtime() > time
    };
    while !later(written) {
        tokio::task::yield_now().await;
    }
    world.commit("topic", &[("c/main.tf", "c\n")]).await;
    let moved = world.tree().await;
    assert_eq!((read(&moved, "a/main.tf"), read(&moved, "c/main.tf")), ("a\n".into(), "c\n".into()));
}

#[tokio::test]
async fn a_push_reads_no_file_again_that_is_as_git_wrote_it() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n")]).await;
    let tree = world.tree().await;
    let index = tree.git_dir.join("index");
    // As if the checkout had ended in the second in which it wrote this, long ago.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let times = fs::FileTimes::new().set_modified(long_ago);
    fs::File::options().write(true).open(&index).unwrap().set_times(times).unwrap();
    fs::write(tree.root.join("a/made"), "made").unwrap();
    let before = ["a/main.tf", "b/main.tf"].map(|file| fs::metadata(tree.root.join(file)).unwrap().mtime_nsec());
    pristine::settle(&tree.root, &tree.git_dir).unwrap();
    let after = ["a/main.tf", "b/main.tf"].map(|file| fs::metadata(tree.root.join(file)).unwrap().mtime_nsec());
    assert!(
        fs::metadata(&index).unwrap().modified().unwrap()
            > fs::metadata(tree.root.join("b/main.tf")).unwrap().modified().unwrap()
    );
    assert!(before[0] != after[0] && before[1] == after[1], "{before:?} {after:?}");
}

#[tokio::test]
async fn of_a_tree_git_is_asked_only_where_anything_was_left() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a[1]/b/main.tf", "a\n"), ("c/main.tf", "c\n"), ("main.tf", "m\n")]).await;
    let tree = world.tree().await;
    fs::write(tree.root.join("a[1]/made"), "one").unwrap();
    fs::create_dir(tree.root.join("a[1]/new")).unwrap();
    fs::write(tree.root.join("a[1]/new/made"), "two").unwrap();
    assert_eq!(world.kept(&tree, &[]).await.unwrap(), PlanArtifacts::Files(2));
    assert_eq!(world.kept(&tree, &["a[1]"]).await.unwrap(), PlanArtifacts::Nothing);
    assert_eq!(world.kept(&tree, &["a[1]/new", "c"]).await.unwrap(), PlanArtifacts::Files(1));
    fs::write(tree.root.join("made"), "three").unwrap();
    fs::write(tree.root.join("c/main.tf"), "changed").unwrap();
    assert_eq!(world.kept(&tree, &["a[1]"]).await.unwrap(), PlanArtifacts::Files(2));
    // Tracked files count beside an exclusion too, whether git is asked about single directories or about all.
    fs::remove_file(tree.root.join("made")).unwrap();
    assert_eq!(world.kept(&tree, &["a[1]", "live"]).await.unwrap(), PlanArtifacts::Files(1));
    pristine::remove_record(&tree.git_dir).unwrap();
    assert_eq!(world.kept(&tree, &["a[1]", "live"]).await.unwrap(), PlanArtifacts::Files(1));
}

#[tokio::test]
async fn a_tree_with_files_of_gits_that_are_not_looked_at_is_left_to_git() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/.terraform/modules.json", "{}\n")]).await;
    let tree = world.tree().await;
    world.without_git().kept(&tree, &[]).await.unwrap_err();
}

#[tokio::test]
async fn what_was_left_before_a_push_is_kept_after_it() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n")]).await;
    let tree = world.tree().await;
    fs::write(tree.root.join("a/made"), "once").unwrap();
    world.commit("topic", &[("a/main.tf", "b\n")]).await;
    let moved = world.tree().await;
    assert_ne!(moved.made, tree.made);
    assert_eq!(world.kept(&moved, &[]).await.unwrap(), PlanArtifacts::Files(1));
}

#[tokio::test]
async fn large_trees_and_odd_names_are_left_to_git() {
    for (name, count) in [("many", 5001), ("odd\nname", 1)] {
        let mut world = World::new(Strategy::Branch).await;
        let names: Vec<String> = (0..count).map(|at| format!("a/{name}{at}")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x\n")).collect();
        world.commit("topic", &files).await;
        let tree = world.tree().await;
        assert_eq!(world.kept(&tree, &[]).await.unwrap(), PlanArtifacts::Nothing);
        world.without_git().kept(&tree, &[]).await.unwrap_err();
    }
}
