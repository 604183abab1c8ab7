//! Use of a closed pull request's tree for the next one: few files are written, and nothing of the former one stays.

use super::*;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FILES: usize = 300;

impl World {
    /// Makes many files on `main` and on the pull request's branch.
    async fn large() -> World {
        let mut world = World::new(Strategy::Branch).await;
        let files: Vec<(String, String)> =
            (0..FILES).map(|number| (format!("dir{}/file{number}.tf", number % 10), format!("{number}\n"))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        world.commit("main", &files).await;
        git(&world.source, &["checkout", "-q", "topic"]).await;
        git(&world.source, &["reset", "-q", "--hard", "main"]).await;
        world.commit("topic", &[("dir0/file0.tf", "first\n")]).await;
        world
    }

    /// Closes the pull request when the second of its index is over, as is normal when a person closes one.
    async fn close(&self, tree: &WorkingTree) {
        let written = fs::metadata(tree.git_dir.join("index")).unwrap().modified().unwrap();
        let over = Duration::from_secs(written.duration_since(UNIX_EPOCH).unwrap().as_secs() + 1);
        while SystemTime::now().duration_since(UNIX_EPOCH).unwrap() < over {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.checkouts.remove_pull(&self.pull.id).await.unwrap();
    }

    /// Opens the next pull request, which changes one other file.
    async fn next_pull(&mut self) {
        git(&self.source, &["checkout", "-q", "-B", "topic", "main"]).await;
        self.pull.id.number += 1;
        self.commit("topic", &[("dir1/file1.tf", "second\n"), ("dir2/file2.tf", "")]).await;
    }
}

/// Distinguishes a file from one that was written later: inode, and time of the last status change.
type Written = (u64, i64, i64);

/// Returns every file below, without `.git`, and its text.
fn files(root: &Path) -> HashMap<String, (Written, String)> {
    let (mut found, mut dirs) = (HashMap::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                dirs.extend((path.file_name().unwrap() != ".git").then_some(path));
            } else {
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.insert(
                    path.strip_prefix(root).unwrap().display().to_string(),
                    ((meta.ino(), meta.ctime(), meta.ctime_nsec()), text),
                );
            }
        }
    }
    found
}

/// Returns the names of git's files at this commit.
async fn expected(world: &World, commit: &str) -> Vec<String> {
    let names = git(&world.source, &["ls-tree", "-r", "--name-only", commit]).await;
    let mut names: Vec<String> = names.lines().map(str::to_owned).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_next_pull_request_has_only_what_differs_written() {
    let mut world = World::large().await;
    let first = world.tree().await;
    let before = files(&first.root);
    world.close(&first).await;
    assert!(!first.root.exists());
    world.next_pull().await;
    let second = world.tree().await;
    assert_ne!(first.root, second.root);
    let after = files(&second.root);
    let is_new = |name: &String, is: &Written| before.get(name).is_none_or(|(was, _)| was != is);
    let written = after.iter().filter(|(name, (is, _))| is_new(name, is)).count();
    // The file that the first pull request changed, and the one that this pull request changes.
    assert_eq!((after.len(), written), (FILES + 1, 2));
    assert_eq!((after["dir0/file0.tf"].1.as_str(), after["dir1/file1.tf"].1.as_str()), ("0\n", "second\n"));
    // A tree without leftovers counts as made from nothing.
    assert_eq!(
        crate::checkout::pristine::touched(&second.root, &second.git_dir, &OtherProjects::default()),
        Some(Vec::new())
    );
    fs::write(second.root.join("dir1/also"), "x").unwrap();
    fs::write(second.root.join("dir3/left"), "x").unwrap();
    assert_eq!(world.checkouts.untracked_files(&second).await.unwrap(), ["dir1/also", "dir3/left"]);
    git(&second.root, &["status", "--porcelain"]).await;
    // The only spare tree has been taken.
    world.next_pull().await;
    assert!(world.tree().await.root.join("dir0/file0.tf").exists());
}

#[tokio::test]
async fn nothing_of_a_former_pull_request_stays() {
    let mut world = World::large().await;
    let tree = world.tree().await;
    let outside = world.checkouts.data_dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let at = |path: &str| tree.root.join(path);
    fs::create_dir_all(at("dir0/.terraform/modules")).unwrap();
    fs::write(at("dir0/.terraform/modules/x.tf"), "evil").unwrap();
    for (path, text) in [
        ("dir0/evil_override.tf", "evil"),
        (".gitattributes", "* filter=evil"),
        (".gitignore", "ignored"),
        ("ignored", "evil"),
        ("dir4/terraform.tfstate", "evil"),
        (".git/info/attributes", "* filter=evil"),
        (".git/config", "[core]\n\tfsmonitor = evil\n"),
    ] {
        fs::write(at(path), text).unwrap();
    }
    fs::create_dir_all(at(".git/hooks")).unwrap();
    fs::write(at(".git/hooks/post-checkout"), "evil").unwrap();
    fs::create_dir_all(at("dir9/nested/.git")).unwrap();
    // A tracked file with a second link outside, a file with its old time, and a file and a directory that lead outside.
    fs::hard_link(at("dir5/file5.tf"), outside.join("link")).unwrap();
    let times = fs::FileTimes::new().set_modified(fs::metadata(at("dir6/file6.tf")).unwrap().modified().unwrap());
    fs::write(at("dir6/file6.tf"), "9\n").unwrap();
    fs::File::options().write(true).open(at("dir6/file6.tf")).unwrap().set_times(times).unwrap();
    fs::remove_file(at("dir7/file7.tf")).unwrap();
    symlink(outside.join("kept"), at("dir7/file7.tf")).unwrap();
    fs::remove_dir_all(at("dir8")).unwrap();
    symlink(&outside, at("dir8")).unwrap();
    world.close(&tree).await;

    world.next_pull().await;
    let second = world.tree().await;
    let after = files(&second.root);
    let mut names: Vec<String> = after.keys().cloned().collect();
    names.sort();
    assert_eq!(names, expected(&world, world.pull.head.commit.as_str()).await);
    for number in [5, 6, 7, 8, 18] {
        let name = format!("dir{}/file{number}.tf", number % 10);
        assert_eq!(after[&name].1, format!("{number}\n"), "{name}");
        assert!(fs::symlink_metadata(second.root.join(&name)).unwrap().is_file());
    }
    assert!(fs::symlink_metadata(second.root.join("dir8")).unwrap().is_dir());
    // Writing to the former file changes nothing here.
    fs::write(outside.join("link"), "evil").unwrap();
    assert_eq!(fs::read_to_string(second.root.join("dir5/file5.tf")).unwrap(), "5\n");
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    let own = fs::read_to_string(second.root.join(".git/config")).unwrap();
    assert!(!own.contains("evil") && !second.root.join(".git/hooks").exists());
    assert!(!second.root.join(".git/info/attributes").exists() && !second.root.join("dir0/.terraform").exists());
}

fn mode_of(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn permissions_of_directories_are_not_passed_on() {
    for (dir, mode) in [("dir0", 0o555), ("dir3", 0o700), ("dir7", 0o1777), ("", 0o777)] {
        let mut world = World::large().await;
        let tree = world.tree().await;
        let made = mode_of(tree.root.join("dir1"));
        chmod(tree.root.join(dir), mode);
        world.close(&tree).await;
        world.next_pull().await;
        let second = world.tree().await;
        assert_eq!(mode_of(second.root.join(dir)), made, "{dir}");
        assert_eq!(read(&second, "dir0/file0.tf"), "0\n");
    }
}

/// After a push there is no record of the tree: every file of the index's second may have been changed.
#[tokio::test]
async fn a_tree_that_was_pushed_to_is_cleaned_as_well() {
    let mut world = World::large().await;
    world.tree().await;
    world.commit("topic", &[("dir3/file3.tf", "pushed\n")]).await;
    let tree = world.tree().await;
    let (linked, outside) = (tree.root.join("dir3/file3.tf"), world.checkouts.data_dir.join("link"));
    fs::hard_link(&linked, &outside).unwrap();
    world.close(&tree).await;
    assert!(!linked.exists());
    world.next_pull().await;
    let second = world.tree().await;
    fs::write(&outside, "evil").unwrap();
    assert_eq!(fs::read_to_string(second.root.join("dir3/file3.tf")).unwrap(), "3\n");
    fs::remove_file(&outside).unwrap();
}

#[tokio::test]
async fn a_spare_tree_is_removed_to_make_room() {
    let world = World::large().await;
    let tree = world.tree().await;
    world.close(&tree).await;
    let idle = world.checkouts.idle_trees().await.unwrap();
    assert_eq!(idle.len(), 1);
    assert!(idle[0].bytes > 0 && !idle[0].has_unkept_files);
    assert!(world.checkouts.remove_idle(idle[0].clone()).await.unwrap());
    assert_eq!(world.checkouts.idle_trees().await.unwrap(), []);
    assert!(world.tree().await.root.join("dir0/file0.tf").exists());
}

impl World {
    /// Makes the spare tree that is wanted after a tree was written.
    async fn make_spare(&self, end: &CancellationToken) -> SpareMaking {
        let wanted = self.checkouts.spare_wanted().await;
        self.checkouts.make_spare(&wanted, end).await.unwrap()
    }

    /// Returns true if a spare tree is wanted.
    fn wants_spare(&self) -> bool {
        futures::FutureExt::now_or_never(self.checkouts.spare_wanted()).is_some()
    }

    /// Returns the path of the spare tree.
    fn spare(&self) -> PathBuf {
        self.checkouts.spare_paths(&self.pull.id.repo).root
    }
}

#[tokio::test]
async fn a_spare_tree_is_made_while_pull_requests_are_open_and_serves_the_next_one() {
    let mut world = World::large().await;
    let first = world.tree().await;
    // Making it sends no request to the repository.
    fs::rename(&world.source, world.source.with_extension("away")).unwrap();
    assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
    assert!(!world.wants_spare());
    fs::rename(world.source.with_extension("away"), &world.source).unwrap();
    let spare = world.spare();
    let before = files(&spare);
    assert_eq!(before.len(), FILES + 2);
    assert_eq!(fs::metadata(spare.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    assert!(!spare.join(".git").exists());
    world.next_pull().await;
    let second = world.tree().await;
    let after = files(&second.root);
    let written = after.iter().filter(|(name, (is, _))| before.get(*name).is_none_or(|(was, _)| was != is));
    assert_eq!((after.len(), written.count()), (FILES + 1, 2));
    // The first pull request has its own tree, and the third one finds the next spare tree.
    assert_eq!(read(&first, "dir0/file0.tf"), "first\n");
    assert!(!spare.exists());
    assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
    assert_eq!(world.make_spare_again(&second).await, SpareMaking::NotNeeded);
}

impl World {
    /// Tries to make another spare tree although there is one.
    async fn make_spare_again(&self, like: &WorkingTree) -> SpareMaking {
        let (pull, fetched) = (self.pull.clone(), self.fetch().await);
        let wanted = WantedSpare { like: like.root.clone(), pull, commit: fetched.head.clone(), fetched };
        self.checkouts.make_spare(&wanted, &CancellationToken::new()).await.unwrap()
    }
}

#[tokio::test]
async fn no_spare_tree_is_made_of_what_is_written_quickly_or_for_nobody() {
    let mut small = World::new(Strategy::Branch).await;
    small.commit("topic", &[("a.tf", "a\n")]).await;
    small.tree().await;
    assert!(!small.wants_spare());
    let large = World::large().await;
    let tree = large.tree().await;
    fs::remove_dir_all(&tree.git_dir).unwrap();
    assert_eq!(large.make_spare(&CancellationToken::new()).await, SpareMaking::NotNeeded);
    assert!(!large.spare().exists());
}

#[tokio::test]
async fn whoever_waits_for_a_tree_ends_the_making_and_it_is_done_later() {
    let world = World::large().await;
    world.tree().await;
    let first = world.checkouts.demand.in_front();
    assert!(!world.wants_spare());
    let wanted = {
        let pull = world.pull.clone();
        let fetched = Fetched { head: pull.head.commit.clone(), base_tip: pull.head.commit.clone() };
        WantedSpare { like: world.spare(), pull, commit: fetched.head.clone(), fetched }
    };
    assert_eq!(world.checkouts.make_spare(&wanted, &CancellationToken::new()).await.unwrap(), SpareMaking::Ended);
    drop(first);
    let end = CancellationToken::new();
    let making = world.make_spare(&end);
    tokio::pin!(making);
    // It has begun, and other checkouts are requested.
    let made = loop {
        tokio::select! {
            biased;
            made = &mut making => break made,
            () = tokio::task::yield_now() => drop(world.checkouts.demand.in_front()),
        }
    };
    assert_eq!((made, end.is_cancelled()), (SpareMaking::Ended, true));
    assert!(!world.spare().exists() && world.wants_spare());
    assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
}

#[tokio::test]
async fn a_spare_tree_that_somebody_changed_is_not_used() {
    type Change = fn(&Path);
    let changes: [Change; 5] = [
        |spare| chmod(spare.join("dir1"), 0o777),
        |spare| fs::write(spare.join("dir0/evil_override.tf"), "evil").unwrap(),
        |spare| {
            let file = fs::File::options().write(true).open(spare.join("dir6/file6.tf")).unwrap();
            let times = fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
            std::os::unix::fs::FileExt::write_at(&file, b"9", 0).unwrap();
            file.set_times(times).unwrap();
        },
        |spare| {
            fs::create_dir_all(spare.join("dir1/.terraform/modules")).unwrap();
            fs::write(spare.join("dir1/.terraform/modules/x.tf"), "evil").unwrap();
        },
        |spare| fs::create_dir_all(spare.join(".git/hooks")).unwrap(),
    ];
    let mut world = World::large().await;
    let made = mode_of(world.tree().await.root.join("dir1"));
    for change in changes {
        assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
        change(&world.spare());
        world.next_pull().await;
        let tree = world.tree().await;
        let mut names: Vec<String> = files(&tree.root).into_keys().collect();
        names.sort();
        assert_eq!(names, expected(&world, world.pull.head.commit.as_str()).await);
        assert_eq!(read(&tree, "dir6/file6.tf"), "6\n");
        assert_eq!(mode_of(tree.root.join("dir1")), made);
        assert!(!tree.root.join("dir1/.terraform").exists() && !tree.root.join(".git/hooks").exists());
        assert!(!world.spare().exists());
    }
}

#[tokio::test]
async fn a_spare_tree_goes_first_also_with_a_state_that_git_has() {
    let mut world = World::large().await;
    world.commit("topic", &[("dir1/terraform.tfstate", "{}")]).await;
    let tree = world.tree().await;
    assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
    let idle = world.checkouts.idle_trees().await.unwrap();
    assert_eq!(idle.len(), 2);
    assert!(idle[0].to_string().contains("spare-github.com"), "{idle:?}");
    assert!(!idle[0].has_unkept_files && idle[1].has_unkept_files);
    assert!(tree.root.exists());
}

/// A tree that is being removed to free space is not taken, and a tree that is being taken is not removed. It is whole in either case.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_spare_tree_is_taken_or_removed_and_never_both() {
    let mut world = World::large().await;
    world.tree().await;
    for _ in 0..12 {
        assert_eq!(world.make_spare(&CancellationToken::new()).await, SpareMaking::Made);
        world.next_pull().await;
        let fetched = world.fetch().await;
        let spare = world.checkouts.idle_trees().await.unwrap().remove(0);
        let (checkouts, pull) = (world.checkouts.clone(), world.pull.clone());
        let taking = tokio::spawn(async move { checkouts.tree(&pull, "default", &fetched, None, None).await });
        world.checkouts.remove_idle(spare).await.unwrap();
        let tree = taking.await.unwrap().unwrap();
        let mut names: Vec<String> = files(&tree.root).into_keys().collect();
        names.sort();
        assert_eq!(names, expected(&world, world.pull.head.commit.as_str()).await);
    }
}
