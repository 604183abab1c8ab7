//! Pull requests that are merged into the head branch of another one, in mode `strict`: their changes are applied with that one.

use crate::support::*;
use tidelock_forge::{OpenOptions, Pull};

const STRICT: &str = "repo_locks: {mode: strict}";

/// Every project is in mode `strict`; each apply writes a line.
fn strict(keys: &str, dirs: &[&str]) -> Setup {
    let rules = workflow(&format!("{STRICT}{keys}"), &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(dirs).repos_yaml(&rules)
}

/// Opens a pull request with a new file in this project, into this branch, and has it planned.
async fn onto(ctx: &Ctx, base: &str, branch: &str, dir: &str) -> Pull {
    let options = OpenOptions { base: Some(base.to_owned()), ..OpenOptions::default() };
    let pull = ctx.open_as("alice", branch, &[(&format!("{dir}/{branch}.tf"), "# more\n")], options).await;
    ctx.next(&pull).await.is("plan", "success");
    pull
}

#[test]
fn what_is_merged_into_the_branch_of_another_is_owed_by_that_alone() {
    run_test(strict("", &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = onto(ctx, "first", "second", "a").await;
        second.merge().await.unwrap();
        ctx.next(&second)
            .await
            .is_message("merged_onto")
            .has("Merged into the branch of #1")
            .has("#1 applies the changes");
        // The merge is a push to its head branch.
        ctx.next(&first).await.is("plan", "success");
        assert!(ctx.owners().await.is_empty());
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.merge().await.unwrap();
        ctx.until("the merge frees it", async || ctx.owners().await.is_empty()).await;
        ctx.say(&second, "atlantis apply").await.is_message("closed_pull");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn what_was_merged_into_the_branch_of_another_is_owed_when_that_is_merged_without_an_apply() {
    run_test(strict("", &["a", "b"]).flags(&["--disable-autoplan"]), async |ctx| {
        let first = ctx.open_own("first", &["a"]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        let options = OpenOptions { base: Some("first".to_owned()), ..OpenOptions::default() };
        let second = ctx.open_as("alice", "second", &[("b/second.tf", "# more\n")], options).await;
        ctx.quiet().await;
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("merged_onto");
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes").has("dir `a`").has("dir `b`");
        assert_eq!(ctx.owners().await, ["a #1 merged_unapplied", "b #1 merged_unapplied"]);
    });
}

#[test]
fn what_was_applied_and_merged_into_the_branch_of_another_is_owned_by_that() {
    run_test(strict("", &["a", "b"]), async |ctx| {
        let first = ctx.planned_own("first", &["b"]).await;
        let second = onto(ctx, "first", "second", "a").await;
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.owners().await, ["a #2 applied_unmerged"]);
        second.merge().await.unwrap();
        ctx.next(&second)
            .await
            .is_message("merged_onto")
            .has("dir `a`")
            .has("#1 now owns the project that was already applied here");
        assert_eq!(ctx.owners().await, ["a #1 applied_unmerged"]);
        ctx.next(&first).await.is("plan", "success");
        first.close().unwrap();
        ctx.next(&first).await.is_message("owes").has("Closed after an apply: 1 project").has("dir `a`");
        assert_eq!(ctx.owners().await, ["a #1 closed_applied"]);
    });
}

#[test]
fn a_branch_that_the_server_names_is_applied_from_whatever_pull_request_it_is_the_head_of() {
    run_test(strict("\nbranch: /^(main|staging)$/", &["a"]), async |ctx| {
        ctx.repo.push("staging", &[("readme.md", Some("staging"))]).await.unwrap();
        let promotion = ctx.open("staging", &[("readme.md", "next")]).await;
        ctx.quiet().await;
        let second = onto(ctx, "staging", "second", "a").await;
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes").has("Merged but not applied");
        ctx.next(&promotion).await.is("plan", "success");
        assert_eq!(ctx.owners().await, ["a #2 merged_unapplied"]);
    });
}

#[test]
fn the_default_branch_is_applied_from_whatever_pull_request_it_is_the_head_of() {
    run_test(strict("", &["a"]), async |ctx| {
        ctx.repo.push("other", &[("readme.md", Some("other"))]).await.unwrap();
        let options = OpenOptions { base: Some("other".to_owned()), ..OpenOptions::default() };
        let reverse = ctx.open_as("mallory", "main", &[("a/more.tf", "# more\n")], options).await;
        ctx.next(&reverse).await.is("plan", "success");
        let second = ctx.planned_own("second", &["a"]).await;
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes").has("Merged but not applied");
        // The merge is a push to its head.
        ctx.next(&reverse).await.is("plan", "success");
        assert_eq!(ctx.owners().await, ["a #2 merged_unapplied"]);
    });
}

#[test]
fn a_branch_of_a_fork_is_another_branch() {
    run_test(strict("", &["a"]).flags(&["--allow-fork-prs"]), async |ctx| {
        ctx.repo.push("release", &[("readme.md", Some("1.x"))]).await.unwrap();
        let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
        let fork = ctx.open_as("mallory", "release", &[("a/fork.tf", "# more\n")], options).await;
        ctx.next(&fork).await.is("plan", "success");
        let second = onto(ctx, "release", "second", "a").await;
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes").has("Merged but not applied");
        assert_eq!(ctx.owners().await, ["a #2 merged_unapplied"]);
    });
}

#[test]
fn who_is_retargeted_as_the_other_is_merged_owes_it_to_the_new_branch() {
    run_test(strict("", &["a", "b"]), async |ctx| {
        let first = ctx.planned_own("first", &["b"]).await;
        let second = onto(ctx, "first", "second", "a").await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.merge().await.unwrap();
        second.retarget("main").await.unwrap();
        ctx.quiet().await;
        ctx.say(&second, "atlantis plan").await.is("plan", "success");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes").has("dir `a`");
        assert_eq!(ctx.owners().await, ["a #2 merged_unapplied"]);
    });
}
