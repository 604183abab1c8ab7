//! `plan` and `apply` on a pull request that was merged before all of it was applied, in mode `strict`.

use crate::support::*;
use tidelock::sandbox::Pull;

/// Projects in mode `strict`; each apply writes its pull request's number.
fn strict(dirs: &[&str]) -> Setup {
    let rules =
        workflow("repo_locks: {mode: strict}", &["init", "plan"], &["apply", "echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(dirs).repos_yaml(&rules)
}

/// A pull request that changes these projects, planned, merged without an apply, and told so.
async fn merged(ctx: &Ctx, branch: &str, dirs: &[&str]) -> Pull {
    let pull = ctx.open_dirs(branch, dirs).await;
    ctx.next(&pull).await.is("plan", "success");
    pull.merge().await.unwrap();
    ctx.next(&pull).await.is_message("owes").has("Merged, and not applied").has("`atlantis apply`");
    pull
}

fn state(ctx: &Ctx, dir: &str) -> String {
    std::fs::read_to_string(ctx.tmp.join(format!("state/{dir}.tfstate"))).unwrap_or_default()
}

#[test]
fn an_apply_after_the_merge_is_planned_at_the_tip_of_the_base_branch_and_shown_first() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = merged(ctx, "first", &["a", "b"]).await;
        let said = ctx.say(&first, "atlantis apply").await;
        said.is("plan", "success").has("The pull request is merged: this is planned at the tip of `main`");
        assert_eq!(ctx.lines("applied"), 0);
        let said = ctx.say(&first, "atlantis apply").await;
        said.is("apply", "success");
        assert_eq!((ctx.lines("applied"), said.outcomes().len()), (2, 2));
        assert!(state(ctx, "a").contains("\"first\"") && state(ctx, "b").contains("\"first\""));
        assert!(ctx.locks().await.is_empty());
        ctx.say(&first, "atlantis apply").await.is_message("closed_pull");
    });
}

#[test]
fn what_others_have_merged_since_is_planned_with_it_and_satisfied_by_one_apply() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open("second", &[("a/other.tf", "resource \"terraform_data\" \"other\" {}\n")]).await;
        ctx.next(&second).await.is("plan", "success").has("also changed by #1");
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes");
        ctx.next(&second).await.is_message("plans_fell").has("`main` has moved to");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes");
        assert_eq!(ctx.locks().await.len(), 2);
        ctx.say(&second, "atlantis plan").await.is("plan", "success").has("2 to add");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        ctx.next(&first).await.is_message("applied_by_another").has("Applied with #2");
        assert!(ctx.locks().await.is_empty());
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_without_changes_after_the_merge_ends_what_is_owed() {
    let plan = "[ -e {tmp}/same ] && echo 'No changes. Your infrastructure matches the configuration.' || echo 'Plan: 1 to add, 0 to change, 0 to destroy.'";
    let rules = workflow("repo_locks: {mode: strict}", &[plan], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        assert_eq!(ctx.locks().await.len(), 1);
        // Somebody has applied it by hand.
        std::fs::write(ctx.tmp.join("same"), "").unwrap();
        ctx.say(&first, "atlantis plan").await.is("plan", "success").has("No changes");
        assert!(ctx.locks().await.is_empty());
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn after_the_merge_only_what_is_owed_can_be_planned() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = merged(ctx, "first", &["a"]).await;
        ctx.say(&first, "atlantis plan -d b")
            .await
            .is("plan", "error")
            .has("is not among what it has not applied: `a/default`");
        ctx.repo.push("main", &[("readme.md", Some("moved"))]).await.unwrap();
        ctx.say(&first, "atlantis plan -d a").await.is("plan", "success");
        ctx.repo.push("main", &[("readme.md", Some("moved again"))]).await.unwrap();
        // The tip has moved since: it is planned anew.
        ctx.say(&first, "atlantis apply -d a").await.is("plan", "success");
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}
