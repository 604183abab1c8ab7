//! Files of Git LFS: fetched if git-lfs is installed, reported otherwise. Tests that fetch use the real git-lfs, which `.ci/run` installs.

use crate::support::*;
use std::path::Path;

const ATTRIBUTES: (&str, &str) = (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
/// Variable to set if git-lfs cannot be installed.
const WITHOUT: &str = "TIDELOCK_TEST_WITHOUT_GIT_LFS";

fn path_of_this_process() -> String {
    std::env::var("PATH").unwrap()
}

/// Returns true if files can be fetched on this machine.
fn has_lfs() -> bool {
    let is_installed = std::env::split_paths(&path_of_this_process()).any(|dir| dir.join("git-lfs").exists());
    assert!(is_installed || std::env::var(WITHOUT).is_ok(), "git-lfs is not installed: install it, or set {WITHOUT}=1");
    is_installed
}

/// Returns a `PATH` with all programs of this one but git-lfs.
fn without_lfs(dir: &Path) -> String {
    for folder in std::env::split_paths(&path_of_this_process()) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() != "git-lfs" {
                let _ = std::os::unix::fs::symlink(entry.path(), dir.join(entry.file_name()));
            }
        }
    }
    dir.to_str().unwrap().to_owned()
}

/// Changes of these files are planned.
const LISTED: &str = "--autoplan-file-list=**/*.tf,**/*.bin,**/.gitattributes";

fn pointer_to(hash: &str, size: usize) -> String {
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{hash}\nsize {size}\n")
}

/// A step that copies the file as it is in the tree.
const SHOW: &str = "cat data.bin > {tmp}/read";

fn read(ctx: &Ctx) -> String {
    std::fs::read_to_string(ctx.tmp.join("read")).unwrap()
}

fn requests_of(ctx: &Ctx, path: &str) -> usize {
    ctx.forge.requests().iter().filter(|request| request.path.contains(path)).count()
}

#[test]
fn large_files_are_fetched_from_beside_the_repository_whatever_lfsconfig_says() {
    if !has_lfs() {
        return;
    }
    run_test(Setup::one_project().steps(&[SHOW, PLANNED], &[]).flags(&[LISTED]), async |ctx| {
        let pointer = ctx.repo.put_large_file(b"large").unwrap();
        // It would get requests, or run a command, if the configuration were obeyed.
        let elsewhere = format!("{}/acme/elsewhere.git/info/lfs", ctx.forge.url());
        let ran = ctx.tmp.join("ran");
        let config = format!(
            "[lfs]\n\turl = {elsewhere}\n\tfetchexclude = *\n\tstandalonetransferagent = evil\n\tstorage = {tmp}\n\
             [remote \"origin\"]\n\tlfsurl = {elsewhere}\n\
             [lfs \"customtransfer.evil\"]\n\tpath = touch\n\targs = {ran}\n\
             [lfs \"extension.evil\"]\n\tsmudge = touch {ran}\n\tclean = cat\n\tpriority = 0\n\
             [lfs \"{url}/acme/infra.git/info/lfs\"]\n\taccess = negotiate\n",
            tmp = ctx.tmp.display(),
            ran = ran.display(),
            url = ctx.forge.url(),
        );
        let files = [ATTRIBUTES, ("data.bin", &pointer), (".lfsconfig", &config)];
        let pull = ctx.open("change", &files).await;
        ctx.next(&pull).await.is("plan", "success").has_not("Git LFS");
        assert_eq!(read(ctx), "large");
        assert_eq!(requests_of(ctx, "elsewhere"), 0);
        assert_eq!(requests_of(ctx, "/acme/infra.git/info/lfs/store/"), 1);
        assert!(!ran.exists());
        // Another commit of it, and one that cannot be fetched.
        let second = ctx.repo.put_large_file(b"larger").unwrap();
        ctx.push(&pull, "data.bin", &second).await;
        ctx.next(&pull).await.is("plan", "success").has_not("Git LFS");
        assert_eq!(read(ctx), "larger");
        let lost = pointer_to(&"0".repeat(64), 5);
        ctx.push(&pull, "data.bin", &lost).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("`data.bin`").has("git-lfs could not fetch them").has("git lfs push --all");
        assert_eq!(read(ctx), lost);
    });
}

#[test]
fn a_file_that_arrives_later_is_fetched_by_the_next_plan() {
    if !has_lfs() {
        return;
    }
    run_test(Setup::one_project().steps(&[SHOW, PLANNED], &[]).flags(&[LISTED]), async |ctx| {
        let pointer = pointer_to("089001a35679a33ef3db0ca350db9b9a2f0136e0e327577b04b3b98127470961", 4);
        let pull = ctx.open("change", &[ATTRIBUTES, ("data.bin", &pointer)]).await;
        ctx.next(&pull).await.is("plan", "success").has("git-lfs could not fetch them");
        assert_eq!(read(ctx), pointer);
        assert_eq!(ctx.repo.put_large_file(b"late").unwrap(), pointer);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has_not("Git LFS");
        assert_eq!(read(ctx), "late");
        // A file that is not of Git LFS any more is its text.
        ctx.push(&pull, ".gitattributes", "# none\n").await;
        ctx.next(&pull).await.is("plan", "success").has_not("Git LFS");
        assert_eq!(read(ctx), pointer);
    });
}

#[test]
fn a_sparse_tree_gets_only_the_files_of_its_projects() {
    if !has_lfs() {
        return;
    }
    let other = pointer_to("d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa", 5);
    let setup = Setup::projects(&["a", "b"]).file(ATTRIBUTES.0, ATTRIBUTES.1).file("b/data.bin", &other);
    run_test(setup.steps(&[SHOW, PLANNED], &[]).flags(&["--sparse-checkout"]), async |ctx| {
        let mine = ctx.repo.put_large_file(b"mine").unwrap();
        assert_eq!(ctx.repo.put_large_file(b"other").unwrap(), other);
        let pull = ctx.open("change", &[("a/data.bin", &mine), ("a/more.tf", "# more\n")]).await;
        ctx.next(&pull).await.is("plan", "success").has_not("Git LFS");
        assert_eq!(read(ctx), "mine");
        assert_eq!(requests_of(ctx, "/info/lfs/store/"), 1);
    });
}

#[test]
fn pointers_that_projects_read_are_reported_where_git_lfs_is_not_installed() {
    let programs = tempfile::tempdir().unwrap();
    let setup = Setup::projects(&["a", "b"]).steps(&[PLANNED], &[]);
    run_test(setup.variable("PATH", &without_lfs(programs.path())), async |ctx| {
        let pointer = ctx.repo.put_large_file(b"large").unwrap();
        let reads = "# more\nlocals {\n  x = filesha256(\"../shared/x.bin\")\n}\n";
        let files = [
            ATTRIBUTES,
            ("a/data.bin", &pointer),
            ("shared/x.bin", &pointer),
            ("docs/picture.bin", &pointer),
            ("a/more.tf", reads),
        ];
        let pull = ctx.open("change", &files).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("`a/data.bin`, `shared/x.bin`, as git-lfs is not installed on this server");
        said.has("install git-lfs on the server").has_not("picture.bin");
        let other = ctx.open_dirs("other", &["b"]).await;
        ctx.next(&other).await.is("plan", "success").has_not("Git LFS");
    });
}
