//! Mode `strict`: the projects that belong to a pull request, and the plans that are required before any apply.

use crate::support::*;
use tidelock_forge::OpenOptions;

/// Every project is in mode `strict`; each apply writes its directory.
fn strict(keys: &str, dirs: &[&str]) -> Setup {
    let keys = format!("repo_locks: {{mode: strict}}\n{keys}");
    Setup::projects(dirs).repos_yaml(&workflow(&keys, &[PLANNED], &["basename $PWD >> {tmp}/applied"]))
}

fn applied(ctx: &Ctx) -> Vec<String> {
    let text = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

const WITHOUT_AUTOPLAN: &str = "version: 3\nprojects:\n  - dir: a\n  - dir: b\n    autoplan: {enabled: false}\n  - dir: c\n    name: sea\n    autoplan: {enabled: false}\n";

#[test]
fn all_that_is_changed_has_a_plan_before_one_is_applied() {
    run_test(strict("", &["a", "b", "c"]).file("atlantis.yaml", WITHOUT_AUTOPLAN), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b", "c"]).await;
        let said = ctx.say(&pull, "atlantis apply -d a").await;
        said.is("apply", "failure").because("not_planned").has("2 projects of this pull request have no plan");
        said.has("`atlantis plan -d b`").has("`atlantis plan -p sea`").has("`atlantis apply --only`");
        assert_eq!(said.marker["results"][0]["next"], "atlantis plan");
        ctx.say(&pull, "atlantis plan -p sea").await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("not_planned").has("1 project of this pull request has no plan");
        let next = said.marker["results"][0]["next"].as_str().unwrap().to_owned();
        assert!(applied(ctx).is_empty());
        ctx.say(&pull, &next).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a"]);
    });
}

#[test]
fn only_goes_past_what_is_not_planned_and_the_scope_can_be_selected() {
    let own = format!("{WITHOUT_AUTOPLAN}  - dir: d\n    apply_scope: selected\n");
    let setup = strict("allowed_overrides: [apply_scope]", &["a", "b", "c", "d"]).file("atlantis.yaml", &own);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b", "d"]).await;
        ctx.say(&pull, "atlantis apply -d d").await.is("apply", "success");
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "failure").because("not_planned");
        ctx.say(&pull, "atlantis apply --only -d a").await.is("apply", "success");
        assert_eq!(applied(ctx), ["d", "a"]);
    });
}

#[test]
fn a_pull_request_sets_the_scope_only_where_it_may_and_other_modes_can_have_it() {
    let own = "version: 3\nprojects:\n  - dir: a\n    apply_scope: selected\n";
    run_test(strict("", &["a"]).file("atlantis.yaml", own), async |ctx| {
        let pull = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&pull).await.is("plan", "error").has("not allowed to set `apply_scope`");
    });
    let rules = workflow("apply_scope: all_planned", &[PLANNED], &["basename $PWD >> {tmp}/applied"]);
    run_test(
        Setup::projects(&["a", "b", "c"]).file("atlantis.yaml", WITHOUT_AUTOPLAN).repos_yaml(&rules),
        async |ctx| {
            let pull = ctx.planned_dirs("first", &["a", "b"]).await;
            ctx.say(&pull, "atlantis apply -d a").await.is("apply", "failure").because("not_planned");
            ctx.say(&pull, "atlantis plan -d b").await.is("plan", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
            assert_eq!(applied(ctx), ["a", "b"]);
        },
    );
}

#[test]
fn a_change_of_the_configuration_alone_marks_the_projects_that_it_is_about() {
    let config = |requirements: &str| {
        format!("version: 3\nprojects:\n  - dir: a\n    plan_requirements: [{requirements}]\n  - dir: b\n")
    };
    let setup =
        strict("allowed_overrides: [plan_requirements]", &["a", "b"]).file("atlantis.yaml", &config("approved"));
    run_test(setup, async |ctx| {
        let pull = ctx.open("first", &[("atlantis.yaml", &config(""))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        assert_eq!(said.outcomes().len(), 1, "{}", said.text);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a"]);
    });
}

#[test]
fn a_change_of_the_configuration_alone_is_owed_after_a_merge_without_a_plan() {
    let config = |of_a: &str, of_b: &str| {
        let project = |dir, requirements| format!("  - dir: {dir}\n    plan_requirements: [{requirements}]\n");
        format!("version: 3\nprojects:\n{}{}", project("a", of_a), project("b", of_b))
    };
    let setup = strict("allowed_overrides: [plan_requirements]", &["a", "b"])
        .file("atlantis.yaml", &config("approved", "approved"))
        .flags(&["--disable-autoplan"]);
    run_test(setup, async |ctx| {
        let first = ctx.open("first", &[("atlantis.yaml", &config("", "approved"))]).await;
        first.merge().await.unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Merged but not applied: 1 project").has("dir `a`").has_not("dir `b`");
        ctx.say(&first, "atlantis apply").await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a"]);
        let second = ctx.open("second", &[("atlantis.yaml", &config("", ""))]).await;
        second.merge_as("alice", "squash").await.unwrap();
        ctx.next(&second).await.is_message("owes").has("dir `b`").has_not("dir `a`");
        ctx.say(&second, "atlantis unlock --accept-drift -m 'nothing to do'").await.is_message("unlocked");
        // The change has no effect on any project.
        let text = format!("# the same\n{}", config("", ""));
        let third = ctx.open("third", &[("atlantis.yaml", &text)]).await;
        third.merge().await.unwrap();
        ctx.quiet().await;
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn what_was_applied_and_taken_back_is_applied_again_to_match() {
    run_test(strict("", &["a", "b"]), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
        ctx.push(&pull, "a/main.tf", &terraform("a", "1")).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("`a/default` was applied earlier in this pull request, which no longer changes it");
        assert_eq!(said.outcomes().len(), 2, "{}", said.text);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a", "b", "a"]);
        pull.merge().await.unwrap();
        ctx.until("the merge frees it", async || ctx.locks().await.is_empty()).await;
    });
}

#[test]
fn a_plan_is_invalidated_when_what_it_depends_on_is_applied() {
    let config = "version: 3\nprojects:\n  - dir: a\n    name: net\n  - dir: b\n    depends_on: [net]\n";
    run_test(strict("", &["a", "b"]).file("atlantis.yaml", config), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.has("waits for `net`");
        let said = ctx.say(&pull, "atlantis plan -d b").await;
        said.is("plan", "success").has("`b/default` depends on `net`. This plan is a preview");
        let other = ctx.planned_dirs("second", &["b"]).await;
        let said = ctx.say(&pull, "atlantis apply -d b").await;
        said.is("apply", "failure").because("dependency").has("`atlantis apply -p net`");
        ctx.say(&pull, "atlantis apply -p net").await.is_message("plans_fell").has("`net` was applied").has("dir `b`");
        ctx.next(&pull).await.is("apply", "success");
        ctx.next(&other).await.is_message("plans_fell").has("`net` was applied").has("dir `b`");
        ctx.status(&other, "atlantis/plan: b/default", "failure", "Plan discarded: net was applied").await;
        ctx.next(&pull).await.is_replan("success").has("dir `b`").has_not("waits for");
        ctx.say(&pull, "atlantis apply -d b").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a", "b"]);
    });
}

#[test]
fn what_was_merged_without_any_plan_is_owed_as_well() {
    run_test(strict("", &["a", "b"]).flags(&["--disable-autoplan"]), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        first.merge().await.unwrap();
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Merged but not applied: 1 project").has("dir `a`").has_not("dir `b`");
        let second = ctx.open_dirs("second", &["a"]).await;
        ctx.say(&second, "atlantis plan").await.is("plan", "success").has("a preview: #1 must be applied first");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
        ctx.say(&first, "atlantis apply").await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1 changes the same");
        // An owner had refused its apply, so it waited.
        ctx.next(&second).await.is_message("lock_freed").has("`--disable-autoplan`").has("`atlantis plan -d a`");
        assert_eq!(applied(ctx), ["a"]);
        assert!(ctx.locks().await.is_empty());
        // Squashed, with nothing of a project in it.
        let third = ctx.open("third", &[("readme.md", "text")]).await;
        third.merge_as("alice", "squash").await.unwrap();
        ctx.quiet().await;
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_state_that_was_changed_by_hand_is_told_as_a_stale_plan() {
    let rules = workflow("repo_locks: {mode: strict}", &["init", "plan"], &["apply"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        let state = r#"{"version": 4, "terraform_version": "1.0.0", "serial": 7, "lineage": "by-hand", "outputs": {}, "resources": []}"#;
        std::fs::write(ctx.tmp.join("state/a.tfstate"), state).unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure")
            .because("stale_plan")
            .has("changed outside of this server")
            .has("`atlantis plan -d a`");
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_deleted_directory_is_told() {
    run_test(strict("", &["a", "b"]), async |ctx| {
        let gone = [("a/main.tf", None)];
        let pull = ctx.repo.open_pull("first", "alice", "Without a", &gone, OpenOptions::default()).await.unwrap();
        ctx.next(&pull).await.is_message("no_projects").has("`a` has no Terraform files any more");
    });
}

#[test]
fn a_plan_that_fails_leaves_the_others_alone() {
    let plan = "case $PWD in */a) exit 1;; esac; echo 'Plan: 1 to add, 0 to change, 0 to destroy.'";
    let rules = workflow("repo_locks: {mode: strict}", &[plan], &["basename $PWD >> {tmp}/applied"]);
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("a".to_owned(), "error".to_owned()), ("b".to_owned(), "success".to_owned())]);
        ctx.say(&pull, "atlantis apply -d b")
            .await
            .is("apply", "failure")
            .because("not_planned")
            .has("`atlantis plan -d a`");
        ctx.say(&pull, "atlantis apply --only -d b").await.is("apply", "success");
        assert_eq!(applied(ctx), ["b"]);
    });
}

#[test]
fn pull_requests_for_two_branches_share_the_owner() {
    run_test(strict("", &["a"]), async |ctx| {
        ctx.repo.push("release", &[("readme.md", Some("1.x"))]).await.unwrap();
        let first = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        let options = OpenOptions { base: Some("release".to_owned()), ..OpenOptions::default() };
        let second = ctx.open_as("alice", "second", &[("a/main.tf", &terraform("a", "2"))], options).await;
        ctx.next(&second).await.is("plan", "success").has("a preview: #1 must be merged first");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
    });
}
