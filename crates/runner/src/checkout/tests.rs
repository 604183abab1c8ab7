//! Real git with real repositories: the effects that a pull request can have on its tree, and those that it cannot.

mod http;
mod idle;
mod paths;
mod portable;
mod pristine;
mod proxy;
mod spare;

use super::*;
use crate::process::{Invocation, run};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use tempfile::TempDir;
use tidelock_core::domain::{Base, Head, PullState};
use tokio_util::sync::CancellationToken;

fn environment() -> Vec<(String, String)> {
    vec![("PATH".into(), std::env::var("PATH").unwrap()), ("HOME".into(), "/nonexistent".into())]
}

async fn git(dir: &Path, args: &[&str]) -> String {
    let mut env = environment();
    for role in ["AUTHOR", "COMMITTER"] {
        env.push((format!("GIT_{role}_NAME"), "Test".into()));
        env.push((format!("GIT_{role}_EMAIL"), "test@example.invalid".into()));
    }
    let invocation = Invocation::new("git", args.iter().copied(), dir).env(env).reading(1 << 20);
    let done = run(invocation, &Redactor::default(), &CancellationToken::new(), None).await.unwrap();
    assert!(done.success(), "git {args:?}: {}", done.output);
    done.read_text().unwrap().trim().to_owned()
}

/// A repository to fetch from, a data directory, and one pull request.
struct World {
    _temp: TempDir,
    source: PathBuf,
    checkouts: Checkouts,
    pull: PullRequest,
}

impl World {
    /// `main` has `live/app/main.tf` and `README`; the pull request changes nothing yet.
    async fn new(strategy: Strategy) -> World {
        let temp = tempfile::tempdir().unwrap();
        let source = temp.path().join("source");
        fs::create_dir(&source).unwrap();
        git(&source, &["init", "-q", "-b", "main"]).await;
        git(&source, &["config", "uploadpack.allowFilter", "true"]).await;
        git(&source, &["config", "uploadpack.allowAnySHA1InWant", "true"]).await;
        let checkouts =
            Checkouts::new(&temp.path().join("data"), strategy, Redactor::default(), environment()).unwrap();
        fs::create_dir(&checkouts.data_dir).unwrap();
        let pull = pull_request(&format!("file://{}", source.display()));
        let mut world = World { _temp: temp, source, checkouts, pull };
        world.commit("main", &[("live/app/main.tf", "one\n"), ("README", "read me\n")]).await;
        git(&world.source, &["branch", "topic"]).await;
        world
    }

    /// Writes files, removes those with an empty text, and commits on that branch. The pull request's head follows `topic`.
    async fn commit(&mut self, branch: &str, files: &[(&str, &str)]) -> CommitSha {
        if self.source.join(".git/refs/heads/main").exists() {
            git(&self.source, &["checkout", "-q", branch]).await;
        }
        for (name, text) in files {
            let file = self.source.join(name);
            if text.is_empty() {
                fs::remove_file(&file).unwrap();
            } else {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, text).unwrap();
            }
        }
        git(&self.source, &["add", "-Af"]).await;
        git(&self.source, &["commit", "-q", "-m", "change"]).await;
        let commit = CommitSha::parse(&git(&self.source, &["rev-parse", "HEAD"]).await).unwrap();
        if branch != self.pull.base.branch {
            self.pull.head.commit = commit.clone();
        }
        commit
    }

    async fn fetch(&self) -> Fetched {
        self.checkouts.fetch(&self.pull, None).await.unwrap()
    }

    async fn tree(&self) -> WorkingTree {
        let fetched = self.fetch().await;
        self.checkouts.tree(&self.pull, "default", &fetched, None, None).await.unwrap()
    }
}

fn pull_request(clone_url: &str) -> PullRequest {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    let head = Head {
        branch: "topic".into(),
        commit: "".into(),
        repo_owner: "acme".into(),
        repo_name: "infra".into(),
        clone_url: None,
    };
    PullRequest {
        id: PullId { repo, number: 7 },
        title: "t".into(),
        url: "u".into(),
        author: "a".into(),
        head,
        base: Base { branch: "main".into(), commit: "".into() },
        draft: false,
        state: PullState::Open,
        fork: false,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: clone_url.into(),
    }
}

fn read(tree: &WorkingTree, file: &str) -> String {
    fs::read_to_string(tree.root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn write(tree: &WorkingTree, file: &str, text: &str) {
    let file = tree.root.join(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

#[tokio::test]
async fn after_the_machine_has_started_again_every_file_of_gits_is_written_anew_and_no_other_is_lost() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a/main.tf", "a\n"), ("b/main.tf", "b\n")]).await;
    let tree = world.tree().await;
    write(&tree, "a/terraform.tfstate", "local state");
    let (marker, index) = (tree.git_dir.join("tidelock-commit"), tree.git_dir.join("index"));
    for zeroed_index in [false, true] {
        // Zeroed with its size and time, and cut, as after a loss of power. The tree was finished before.
        let file = fs::File::options().write(true).open(tree.root.join("a/main.tf")).unwrap();
        let times = fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        std::os::unix::fs::FileExt::write_at(&file, &[0, 0], 0).unwrap();
        file.set_times(times).unwrap();
        write(&tree, "b/main.tf", "");
        if zeroed_index {
            fs::write(&index, vec![0; 100]).unwrap();
        }
        let text = fs::read_to_string(&marker).unwrap();
        let (line, rest) = text.split_once('\n').unwrap();
        let (before, _) = line.rsplit_once(' ').unwrap();
        fs::write(&marker, format!("{before} another-run\n{rest}")).unwrap();
        let again = world.tree().await;
        assert_eq!((read(&again, "a/main.tf"), read(&again, "b/main.tf")), ("a\n".into(), "b\n".into()));
        assert_eq!(read(&again, "a/terraform.tfstate"), "local state");
        assert_ne!(again.made, tree.made, "what steps left is put back as well");
        assert_eq!(world.tree().await, again, "once is enough");
    }
}

#[tokio::test]
async fn a_push_moves_the_tree_and_keeps_what_is_not_gits() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("live/app/main.tf", "two\n"), ("old/x.tf", "x\n")]).await;
    let tree = world.tree().await;
    assert_eq!((read(&tree, "live/app/main.tf"), read(&tree, "README")), ("two\n".into(), "read me\n".into()));
    assert_eq!(tree.root, world.checkouts.data_dir.join("repos/acme/infra/7/default"));

    let untouched = fs::metadata(tree.root.join("README")).unwrap();
    write(&tree, "live/app/.terraform/providers/p", "provider");
    write(&tree, "live/app/.terragrunt-cache/a.tfplan", "kept");
    write(&tree, "live/app/default.tfplan", "plan");
    write(&tree, "live/app/note.txt", "untracked");
    write(&tree, "live/new/main.tf", "in the way");
    write(&tree, "live/app/main.tf", "changed by a step");
    world.commit("topic", &[("live/new/main.tf", "new\n"), ("old/x.tf", "")]).await;
    let moved = world.tree().await;

    assert_eq!(moved.head, world.pull.head.commit);
    let expected = [
        ("live/app/main.tf", "two\n"),
        ("live/new/main.tf", "new\n"),
        ("live/app/note.txt", "untracked"),
        ("live/app/.terraform/providers/p", "provider"),
        ("live/app/.terragrunt-cache/a.tfplan", "kept"),
    ];
    for (file, text) in expected {
        assert_eq!(read(&moved, file), text, "{file}");
    }
    assert!(!moved.root.join("live/app/default.tfplan").exists(), "the old plan is gone");
    assert!(!moved.root.join("old").exists(), "a removed file leaves no folder behind");
    let kept = fs::metadata(tree.root.join("README")).unwrap();
    assert_eq!(
        (kept.ino(), kept.mtime_nsec()),
        (untouched.ino(), untouched.mtime_nsec()),
        "only changed files are written"
    );
}

#[tokio::test]
async fn at_the_same_commit_nothing_runs_and_nothing_changes() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let tree = world.tree().await;
    write(&tree, "default.tfplan", "plan");
    write(&tree, ".terraform.lock.hcl", "locked");

    world.checkouts.env = vec![("PATH".into(), "/nowhere".into())]; // git is not available any more
    let fetched = world.checkouts.fetch_missing(&world.pull, None).await.unwrap();
    let again = world.checkouts.tree(&world.pull, "default", &fetched, None, None).await.unwrap();
    assert_eq!(again, tree);
    assert_eq!(read(&again, "default.tfplan"), "plan");
}

#[tokio::test]
async fn an_interrupted_checkout_is_made_again_from_scratch() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let tree = world.tree().await;
    write(&tree, "half-written.tf", "resource");
    fs::remove_file(tree.git_dir.join("tidelock-commit")).unwrap();
    fs::write(tree.git_dir.join("index.lock"), "").unwrap();
    let again = world.tree().await;
    assert!(!again.root.join("half-written.tf").exists());
    assert_eq!(read(&again, "a.tf"), "a\n");
}

#[tokio::test]
async fn git_works_inside_the_tree_and_shares_no_file() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a b.tf", "a\n")]).await;
    let tree = world.tree().await;
    let fetched = world.fetch().await;
    let other = world.checkouts.tree(&world.pull, "prod", &fetched, None, None).await.unwrap();
    assert_eq!(git(&tree.root, &["status", "--porcelain"]).await, "");
    assert_eq!(git(&tree.root, &["rev-parse", "HEAD"]).await, world.pull.head.commit.as_str());
    assert_eq!(git(&tree.root, &["diff", "--name-only", "origin/main"]).await, "a b.tf");
    assert_eq!(git(&tree.root, &["log", "--format=%s", "-1"]).await, "change");

    let mut dirs = vec![tree.root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let meta = entry.metadata().unwrap();
            assert!(meta.is_dir() || meta.nlink() == 1, "{:?} is shared", entry.path());
            if meta.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    git(&tree.root, &["commit", "-q", "--allow-empty", "-m", "by a step"]).await;
    assert_eq!(git(&other.root, &["rev-parse", "HEAD"]).await, world.pull.head.commit.as_str());
    write(&tree, "note", "x");
    assert_eq!(world.checkouts.untracked_files(&tree).await.unwrap(), ["note"]);
}

#[tokio::test]
async fn what_a_step_writes_into_dot_git_is_not_run_by_us() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let tree = world.tree().await;
    let proof = world.checkouts.data_dir.join("proof");
    let script = format!(
        "[core]\n\tfsmonitor = touch {0}\n\tsshCommand = touch {0}\n[filter \"x\"]\n\tsmudge = touch {0}\n",
        proof.display()
    );
    write(&tree, ".git/config", &script);
    write(&tree, ".git/hooks/post-checkout", &format!("#!/bin/sh\ntouch {}\n", proof.display()));
    write(&tree, ".gitattributes", "* filter=x\n");
    world.commit("topic", &[("a.tf", "b\n"), (".gitattributes", "* filter=x\n")]).await;
    let moved = world.tree().await;
    world.checkouts.untracked_files(&moved).await.unwrap();
    assert_eq!(read(&moved, "a.tf"), "b\n");
    assert!(!proof.exists());
}

#[tokio::test]
async fn a_link_that_a_step_leaves_leads_no_checkout_outside() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("dir/a.tf", "a\n")]).await;
    let tree = world.tree().await;
    let outside = world.checkouts.data_dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(tree.root.join("dir")).unwrap();
    symlink(&outside, tree.root.join("dir")).unwrap();
    world.commit("topic", &[("dir/a.tf", "b\n"), ("dir/b.tf", "b\n")]).await;
    let moved = world.tree().await;
    assert_eq!(read(&moved, "dir/b.tf"), "b\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn merging_has_the_base_as_first_parent_and_moves_with_it() {
    let mut world = World::new(Strategy::Merge).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let base = world.commit("main", &[("b.tf", "b\n")]).await;
    let tree = world.tree().await;
    assert_eq!((read(&tree, "a.tf"), read(&tree, "b.tf")), ("a\n".into(), "b\n".into()));
    assert_eq!(
        git(&tree.root, &["rev-parse", "HEAD^1", "HEAD^2"]).await,
        format!("{base}\n{}", world.pull.head.commit)
    );
    assert_eq!((tree.base, tree.head.as_str()), (base, world.pull.head.commit.as_str()));

    let base = world.commit("main", &[("b.tf", "c\n")]).await;
    let moved = world.tree().await;
    assert_eq!((moved.base.clone(), read(&moved, "b.tf")), (base, "c\n".into()));
}

#[tokio::test]
async fn a_conflict_is_told_in_gits_words() {
    let mut world = World::new(Strategy::Merge).await;
    world.commit("topic", &[("live/app/main.tf", "mine\n")]).await;
    world.commit("main", &[("live/app/main.tf", "theirs\n")]).await;
    let fetched = world.fetch().await;
    let error = world.checkouts.tree(&world.pull, "default", &fetched, None, None).await.unwrap_err();
    insta::assert_snapshot!(error, @r"
    the head branch does not merge into the base branch:
    Auto-merging live/app/main.tf
    CONFLICT (content): Merge conflict in live/app/main.tf
    ");
}

#[tokio::test]
async fn changed_files_are_those_since_the_merge_base_with_both_names_of_a_rename() {
    let mut world = World::new(Strategy::Branch).await;
    world
        .commit("topic", &[("live/app/main.tf", ""), ("live/moved/main.tf", "one\n"), ("tab\tä \"q\".tf", "x\n")])
        .await;
    let fetched = world.fetch().await;
    assert!(world.checkouts.contains_base(&world.pull, &fetched).await.unwrap());
    world.commit("main", &[("base.tf", "b\n")]).await;
    let fetched = world.fetch().await;
    let modified = world.checkouts.modified_files(&world.pull, &fetched).await.unwrap();
    assert_eq!(modified, ["live/app/main.tf", "live/moved/main.tf", "tab\tä \"q\".tf"]);
    assert_eq!(world.checkouts.diverged_files(&world.pull, &fetched).await.unwrap(), ["base.tf"]);
    assert!(!world.checkouts.contains_base(&world.pull, &fetched).await.unwrap());
}

#[tokio::test]
async fn odd_names_of_branches_are_data() {
    let mut world = World::new(Strategy::Branch).await;
    let odd = "-c;echo$(x)'\"/ä";
    git(&world.source, &["branch", "--", "x"]).await;
    fs::create_dir_all(world.source.join(".git/refs/heads/-c;echo$(x)'\"")).unwrap();
    fs::copy(world.source.join(".git/refs/heads/x"), world.source.join(".git/refs/heads").join(odd)).unwrap();
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.pull.base.branch = odd.into();
    let tree = world.tree().await;
    let base = git(&tree.root, &["rev-parse", &format!("refs/remotes/origin/{odd}")]).await;
    assert_eq!(base, tree.base.as_str());
    for bad in ["a b", "a:b", "..", "x.lock"] {
        world.pull.base.branch = bad.into();
        let error = world.checkouts.fetch(&world.pull, None).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{bad:?} cannot be the name of a branch"));
    }
}

#[tokio::test]
async fn a_commit_that_is_gone_and_a_branch_that_is_gone_are_named() {
    let mut world = World::new(Strategy::Branch).await;
    world.pull.head.commit = "1234567890123456789012345678901234567890".into();
    let error = world.checkouts.fetch(&world.pull, None).await.unwrap_err();
    assert!(
        matches!(&error, CheckoutError::MissingCommit(commit) if commit == world.pull.head.commit.as_str()),
        "{error}"
    );
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.pull.base.branch = "gone".into();
    let error = world.checkouts.fetch(&world.pull, None).await.unwrap_err().to_string();
    assert!(error.contains("couldn't find remote ref refs/heads/gone"), "{error}");
}

#[tokio::test]
async fn a_broken_mirror_is_made_again() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.tree().await;
    let mirror = world.checkouts.mirror_path(&world.pull.id.repo);
    fs::write(mirror.join("HEAD"), "\0").unwrap();
    world.commit("topic", &[("a.tf", "b\n")]).await;
    assert_eq!(read(&world.tree().await, "a.tf"), "b\n");
}

#[tokio::test]
async fn locks_of_a_killed_fetch_are_in_nobodys_way() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    world.fetch().await;
    let mirror = world.checkouts.mirror_path(&world.pull.id.repo);
    for name in ["refs/tidelock/pull/7.lock", "refs/tidelock/base/main.lock"] {
        fs::write(mirror.join(name), "").unwrap();
    }
    world.commit("topic", &[("a.tf", "b\n")]).await;
    world.commit("main", &[("b.tf", "b\n")]).await;
    assert_eq!(read(&world.tree().await, "a.tf"), "b\n");
}

#[tokio::test]
async fn many_packs_become_one_and_every_tree_still_reads() {
    let mut world = World::new(Strategy::Branch).await;
    for text in ["a\n", "b\n", "c\n"] {
        world.commit("topic", &[("a.tf", text)]).await;
        world.tree().await;
    }
    let tree = world.tree().await;
    let mirror = Mirror::of(&world.checkouts, &world.pull).unwrap();
    let packs = || {
        fs::read_dir(mirror.path.join("objects/pack"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "pack"))
            .count()
    };
    assert!(packs() > 2);
    mirror.tidy(2).await;
    assert_eq!(packs(), 1);
    git(&tree.root, &["checkout", "-q", "HEAD~1"]).await;
    assert_eq!(read(&tree, "a.tf"), "b\n");
}

#[tokio::test]
async fn a_closed_pull_request_leaves_no_tree() {
    let mut world = World::new(Strategy::Branch).await;
    world.commit("topic", &[("a.tf", "a\n")]).await;
    let tree = world.tree().await;
    world.checkouts.remove_pull(&world.pull.id).await.unwrap();
    world.checkouts.remove_pull(&world.pull.id).await.unwrap();
    assert!(!tree.root.parent().unwrap().exists() && !tree.git_dir.exists());
    assert_eq!(world.tree().await.root, tree.root);
}

#[tokio::test]
async fn a_sparse_tree_has_the_chosen_directories_and_grows() {
    let mut world = World::new(Strategy::Branch).await;
    world.checkouts.sparse = true;
    world
        .commit(
            "topic",
            &[("live/b/x.tf", "x\n"), ("live/side.tf", "s\n"), ("other/o.tf", "o\n"), ("live/a*/d/y.tf", "y\n")],
        )
        .await;
    let fetched = world.fetch().await;
    let tree = |dirs: &[&str]| {
        let dirs: Vec<String> = dirs.iter().map(|dir| (*dir).to_owned()).collect();
        let (checkouts, pull, fetched) = (&world.checkouts, &world.pull, &fetched);
        async move { checkouts.tree(pull, "default", fetched, Some(&dirs), None).await.unwrap() }
    };
    let sparse = tree(&["live/b"]).await;
    let there = |file: &str| sparse.root.join(file).exists();
    assert!(there("live/b/x.tf") && there("live/side.tf") && there("README") && !there("other") && !there("live/app"));
    assert_eq!(git(&sparse.root, &["status", "--porcelain"]).await, "");
    tree(&["live/b", "live/a*", "live/a*/d"]).await;
    assert!(there("live/a*/d/y.tf") && there("live/b/x.tf") && !there("live/app"));
    world.checkouts.tree(&world.pull, "default", &fetched, None, None).await.unwrap();
    assert!(there("other/o.tf") && there("live/app/main.tf"));
}

#[tokio::test]
async fn a_tree_is_given_to_the_user_that_steps_run_as() {
    if !rustix::process::geteuid().is_root() {
        // Written directly, because the test runner hides the output of a passing test.
        std::io::Write::write_all(
            &mut std::io::stderr(),
            b"skipped: a_tree_is_given_to_the_user_that_steps_run_as: only root may give files away\n",
        )
        .unwrap();
        return;
    }
    let mut world = World::new(Strategy::Branch).await;
    world.checkouts.users = crate::process::RunAsUsers::new(65_534, 65_534).map(StepUsers::new);
    world.commit("topic", &[("dir/a.tf", "a\n")]).await;
    let tree = world.tree().await;
    write(&tree, "dir/.terraform/x", "x");
    let outside = world.checkouts.data_dir.join("outside");
    fs::write(&outside, "").unwrap();
    symlink(&outside, tree.root.join("link")).unwrap();
    world.commit("topic", &[("dir/a.tf", "b\n")]).await;
    world.tree().await;
    for file in ["", "dir", "dir/a.tf", "dir/.terraform/x", "link", ".git/index"] {
        let meta = fs::symlink_metadata(tree.root.join(file)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (65_534, 65_534), "{file}");
    }
    assert_eq!(fs::metadata(&outside).unwrap().uid(), 0);
}
