//! Trees and mirrors that can be removed to free space, and their order.

use super::*;

impl World {
    /// Another pull request with the same head.
    async fn tree_of(&self, number: u64) -> WorkingTree {
        let mut pull = self.pull.clone();
        pull.id.number = number;
        let _using = self.checkouts.using(&pull.id).await.unwrap();
        let fetched = self.checkouts.fetch(&pull, None).await.unwrap();
        self.checkouts.tree(&pull, "default", &fetched, None, None).await.unwrap()
    }

    async fn idle(&self) -> Vec<String> {
        let root = self.checkouts.data_dir.display().to_string();
        let found = self.checkouts.idle_trees().await.unwrap();
        found.iter().map(|idle| idle.to_string().replace(&format!("{root}/"), "")).collect()
    }
}

#[tokio::test]
async fn the_longest_unused_tree_goes_first_and_comes_again_without_a_fetch() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    for number in [3, 1, 2, 3] {
        world.tree_of(number).await;
    }
    let paths = [1, 2, 3].map(|number| format!("the checkouts repos/acme/infra/{number}"));
    assert_eq!(world.idle().await, paths);
    let first = world.checkouts.idle_trees().await.unwrap().remove(0);
    assert!(first.bytes > 0, "{first:?}");
    let before = world.tree_of(1).await;
    assert!(world.checkouts.remove_idle(first).await.unwrap());
    assert!(!before.root.parent().unwrap().exists() && !before.git_dir.exists());
    assert_eq!(world.idle().await.len(), 2);
    fs::rename(&world.source, world.source.with_extension("away")).unwrap();
    let mut pull = world.pull.clone();
    pull.id.number = 1;
    let fetched = world.checkouts.fetch_missing(&pull, None).await.unwrap();
    let again = world.checkouts.tree(&pull, "default", &fetched, None, None).await.unwrap();
    assert_eq!(read(&again, "a.tf"), "a\n");
    assert_ne!(again.made, before.made);
}

#[tokio::test]
async fn what_is_in_use_stays() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let tree = world.tree_of(7).await;
    let idle = world.checkouts.idle_trees().await.unwrap().remove(0);
    let using = world.checkouts.using(&world.pull.id).await.unwrap();
    assert!(!world.checkouts.remove_idle(idle.clone()).await.unwrap());
    assert!(tree.root.join("a.tf").exists());
    drop(using);
    assert!(world.checkouts.remove_idle(idle).await.unwrap());
}

#[tokio::test]
async fn a_mirror_goes_only_without_trees_and_while_nobody_uses_it() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.tree_of(7).await;
    assert_eq!(world.checkouts.idle_mirrors().await.unwrap(), []);
    let trees = world.checkouts.idle_trees().await.unwrap().remove(0);
    assert!(world.checkouts.remove_idle(trees).await.unwrap());
    let mirror = world.checkouts.idle_mirrors().await.unwrap().remove(0);
    let using = world.checkouts.using(&world.pull.id).await.unwrap();
    assert!(!world.checkouts.remove_idle(mirror.clone()).await.unwrap());
    drop(using);
    // A pull request began between the listing and the removal.
    world.tree_of(8).await;
    assert!(!world.checkouts.remove_idle(mirror.clone()).await.unwrap());
    world.checkouts.remove_pull(&PullId { number: 8, ..world.pull.id.clone() }).await.unwrap();
    assert!(world.checkouts.remove_idle(mirror).await.unwrap());
    assert!(!world.checkouts.mirror_path(&world.pull.id.repo).exists());
    assert_eq!(read(&world.tree_of(9).await, "a.tf"), "a\n");
}

#[tokio::test]
async fn trees_with_files_that_are_kept_nowhere_else_come_last() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let state = world.tree_of(1).await;
    fs::write(state.root.join("live/terraform.tfstate"), "{}").unwrap();
    let too_much = world.tree_of(2).await;
    for at in 0..5001 {
        fs::write(too_much.root.join(format!("{at}.txt")), "").unwrap();
    }
    let kept = world
        .checkouts
        .keep_artifacts(&too_much, &OtherProjects::default(), world.checkouts.data_dir.join("left.tar.zst"))
        .await
        .unwrap();
    assert!(matches!(kept, PlanArtifacts::TooMuch(_)));
    let plain = world.tree_of(3).await;
    fs::create_dir(plain.root.join(".terraform")).unwrap();
    fs::write(plain.root.join(".terraform/terraform.tfstate"), "{}").unwrap();
    assert_eq!(world.idle().await, [3, 1, 2].map(|number| format!("the checkouts repos/acme/infra/{number}")));
}
