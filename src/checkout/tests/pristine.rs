//! Where nothing was left, no git is asked; where anything was, nothing is missed.

use super::*;

impl World {
    async fn kept(&self, tree: &WorkingTree, except: &[&str]) -> Result<Kept, CheckoutError> {
        let except: Vec<String> = except.iter().map(|dir| (*dir).to_owned()).collect();
        let archive = self.checkouts.data_dir.join("left.tar.zst");
        let kept = self.checkouts.keep_left(tree, &except, archive.clone()).await;
        let _ = fs::remove_file(archive);
        kept
    }

    /// A machine without git from now on.
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
    assert_eq!(without_git.kept(&tree, &[]).await.unwrap(), Kept::Nothing);
    fs::create_dir_all(tree.root.join("a/.terraform/providers")).unwrap();
    fs::write(tree.root.join("a/.terraform/providers/x"), "x").unwrap();
    fs::write(tree.root.join("a/default.tfplan"), "plan").unwrap();
    assert_eq!(without_git.kept(&tree, &[]).await.unwrap(), Kept::Nothing);
    // Somebody else's file is theirs.
    fs::write(tree.root.join("b/made"), "b").unwrap();
    assert_eq!(without_git.kept(&tree, &["b"]).await.unwrap(), Kept::Nothing);
    without_git.kept(&tree, &[]).await.unwrap_err();
    assert_eq!(world.kept(&tree, &[]).await.unwrap(), Kept::Files(1));
}

#[tokio::test]
async fn a_file_that_was_changed_in_place_with_its_old_time_is_seen() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n")]).await;
    let tree = world.tree().await;
    let file = tree.root.join("a/main.tf");
    let before = fs::metadata(&file).unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    // The clock of the file system is coarser than ours.
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

#[tokio::test]
async fn what_was_left_before_a_push_is_kept_after_it() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n")]).await;
    let tree = world.tree().await;
    fs::write(tree.root.join("a/made"), "once").unwrap();
    world.commit("topic", &[("a/main.tf", "b\n")]).await;
    let moved = world.tree().await;
    assert_eq!(moved.made, tree.made);
    assert_eq!(world.kept(&moved, &[]).await.unwrap(), Kept::Files(1));
}

#[tokio::test]
async fn large_trees_and_odd_names_are_left_to_git() {
    for (name, count) in [("many", 5001), ("odd\nname", 1)] {
        let mut world = World::new(Strategy::Branch).await;
        let names: Vec<String> = (0..count).map(|at| format!("a/{name}{at}")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x\n")).collect();
        world.commit("topic", &files).await;
        let tree = world.tree().await;
        assert_eq!(world.kept(&tree, &[]).await.unwrap(), Kept::Nothing);
        world.without_git().kept(&tree, &[]).await.unwrap_err();
    }
}
