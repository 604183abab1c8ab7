//! Mode `strict`: plans lock nothing, whoever applies owns what the pull request changes, and what is applied or merged by half keeps
//! others out until that has ended.

use crate::support::*;
use serde_json::Value;

/// Every project is in mode `strict`; each apply writes a line.
fn strict(dirs: &[&str]) -> Setup {
    let rules = workflow(
        "repo_locks: {mode: strict}",
        &[PLANNED],
        &["[ ! -e {tmp}/fails ]", "echo $PULL_NUM >> {tmp}/applied"],
    );
    Setup::projects(dirs).repos_yaml(&rules)
}

/// `dir #owner state` of each lock that the API tells.
async fn owners(ctx: &Ctx) -> Vec<String> {
    let all = ctx.json("/api/locks").await;
    let rows = all["Locks"].as_array().cloned().unwrap_or_default();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    rows.iter()
        .map(|row| format!("{} #{} {}", text(row, "ProjectRepoPath"), text(row, "PullID"), text(row, "State")))
        .collect()
}

#[test]
fn two_pull_requests_plan_one_project_and_the_second_is_told_of_the_first() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success").has_not("locked");
        let second = ctx.open_dirs("second", &["a"]).await;
        ctx.next(&second)
            .await
            .is("plan", "success")
            .has("`a/default` is also changed by #1, which planned it just now");
        assert!(owners(ctx).await.is_empty());
    });
}

#[test]
fn an_apply_owns_all_that_the_pull_request_changes_and_others_are_refused_by_name() {
    run_test(strict(&["a", "b", "c"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        let second = ctx.planned_dirs("second", &["b", "c"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged", "b #1 planned"]);
        // The project itself is free, and one that it changes as well is not.
        let said = ctx.say(&second, "atlantis apply -d c").await;
        said.is("apply", "failure").because("locked").has("#1").has("`b` (workspace `default`) is owned by");
        said.has("`atlantis unlock` on #1");
        let row = &said.marker["results"][0];
        assert_eq!((row["owner"].as_u64(), row["next"].as_str()), (Some(1), Some("atlantis unlock")));
        assert_eq!(ctx.lines("applied"), 1);
        ctx.status(&second, "atlantis/apply: c/default", "failure", "Owned by #1").await;
        let (status, page) = ctx.ask("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("applied, not merged") && page.contains("owned, nothing applied yet"));
    });
}

#[test]
fn with_the_scope_of_a_project_others_are_free() {
    let rules = workflow(
        "repo_locks: {mode: strict, scope: project}\napply_scope: selected",
        &[PLANNED],
        &["echo $PULL_NUM >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        let second = ctx.planned_dirs("second", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1").has("dir `a`").has_not("dir `b`");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged"]);
        ctx.say(&second, "atlantis apply -d b").await.is("apply", "success");
        ctx.next(&first).await.is_message("plans_fell").has("#2").has("dir `b`");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged", "b #2 applied_unmerged"]);
    });
}

#[test]
fn a_plan_falls_when_another_pull_request_applies_and_a_new_one_is_a_preview() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.planned_dirs("second", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1 changes the same").has("`atlantis plan`");
        ctx.status(&second, "atlantis/plan", "failure", "Plan discarded: #1 changes the same").await;
        ctx.say(&second, "atlantis apply -d a").await.is("apply", "failure").because("no_plan");
        let said = ctx.say(&second, "atlantis plan").await;
        said.is("plan", "success").has("The plan of `a/default` is a preview on top of unmerged #1");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
        first.merge().await.unwrap();
        ctx.next(&second).await.is_message("plans_fell").has("`main` has moved to").has("It is planned again");
        ctx.until("the merge frees it", async || owners(ctx).await.is_empty()).await;
        // Both change the same line.
        ctx.next(&second).await.is("plan", "error").has("conflict");
        ctx.say(&second, "atlantis apply -d a").await.is("apply", "error");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_that_falls_while_its_run_goes_on_fails_the_status_at_the_end_of_it() {
    let held = format!("if [ $PULL_NUM = 2 ] && [ $REPO_REL_DIR = b ]; then {}; fi", gate("plan"));
    let rules = workflow("repo_locks: {mode: strict}", &[&held, PLANNED], &["true"]);
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(&["--parallel-pool-size=1"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.open_dirs("second", &["a", "b"]).await;
        ctx.reached("plan", 1).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("dir `a`");
        ctx.open_gate("plan");
        ctx.next(&second).await.is("plan", "success");
        ctx.status(&second, "atlantis/plan", "failure", "1 with changes, 1 discarded").await;
    });
}

#[test]
fn a_failed_apply_owns_the_project_as_well() {
    run_test(strict(&["a"]), async |ctx| {
        std::fs::write(ctx.tmp.join("fails"), "").unwrap();
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "error");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged"]);
        ctx.say(&first, "atlantis unlock")
            .await
            .is_message("unlocked")
            .has("Still owned: 1 project")
            .has("--accept-drift");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged"]);
    });
}

#[test]
fn what_was_closed_after_an_apply_stays_owned_until_somebody_accepts_that() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        first.close().unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Closed after an apply: 1 project").has("dir `a`").has_not("dir `b`");
        said.has("`atlantis unlock --accept-drift -m \"why\"`");
        ctx.status(&first, "atlantis/apply", "failure", "Closed after an apply of 1 project").await;
        assert_eq!(owners(ctx).await, ["a #1 closed_applied"]);
        let second = ctx.planned_dirs("second", &["a"]).await;
        let said = ctx.say(&second, "atlantis apply").await;
        said.is("apply", "failure").because("locked").has("it was closed after an apply");
        let way_out = said.marker["results"][0]["next"].as_str().unwrap().to_owned();
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("Still owned");
        ctx.say(&first, "atlantis unlock --accept-drift").await.is_message("usage").has("needs a reason");
        ctx.say(&first, &way_out).await.is_message("unlocked").has("dir `a`").has_not("Still owned");
        assert!(owners(ctx).await.is_empty());
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_was_closed_and_is_reopened_goes_on_as_before() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.close().unwrap();
        ctx.next(&first).await.is_message("owes");
        first.reopen().unwrap();
        ctx.next(&first).await.is("plan", "success");
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged"]);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.merge().await.unwrap();
        ctx.until("the merge frees it", async || owners(ctx).await.is_empty()).await;
    });
}

#[test]
fn what_was_only_planned_is_forgotten_at_the_close() {
    run_test(strict(&["a"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        first.close().unwrap();
        ctx.quiet().await;
        assert!(owners(ctx).await.is_empty());
    });
}

#[test]
fn what_was_merged_without_being_applied_keeps_others_out() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        first.merge().await.unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Merged, and not applied: 1 project").has("dir `b`").has_not("dir `a`");
        assert_eq!(owners(ctx).await, ["b #1 merged_unapplied"]);
        let second = ctx.open_dirs("second", &["b"]).await;
        ctx.next(&second).await.is("plan", "success").has("a preview on top of unapplied #1");
        ctx.say(&second, "atlantis apply")
            .await
            .is("apply", "failure")
            .because("locked")
            .has("#1")
            .has("it is merged, and not applied");
        ctx.say(&first, "atlantis unlock --accept-drift -m \"applied by hand\"")
            .await
            .is_message("unlocked")
            .has("dir `b`")
            .has("Why: applied by hand.");
        assert!(owners(ctx).await.is_empty());
        // It was opened before the merge of the same line.
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_the_pull_request_does_not_change_is_a_preview() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let said = ctx.say(&first, "atlantis plan -d b").await;
        said.is("plan", "success").has("does not change `b/default`: its plan is a preview");
        assert!(!said.text.contains("atlantis apply"), "{}", said.text);
        ctx.say(&first, "atlantis apply -d b").await.is("apply", "failure").because("not_permitted").has("preview");
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn owners_outlive_a_push_and_a_restart() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.push(&first, "b/main.tf", &terraform("b", "2")).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.server.restart().await;
        assert_eq!(owners(ctx).await, ["a #1 applied_unmerged"]);
        let second = ctx.planned_dirs("second", &["a"]).await;
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked");
    });
}
