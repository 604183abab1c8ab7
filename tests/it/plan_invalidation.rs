//! Invalidation of plans in mode `strict` without a command on their pull request: their inputs have changed on the base branch, or they
//! have become too old. In the first case they are planned again once, by the rules of autoplan; in the second they are not.

use crate::support::*;

/// Every project is in mode `strict`; each apply writes a line.
fn strict(keys: &str, dirs: &[&str]) -> Setup {
    let keys = format!("repo_locks: {{mode: strict}}\n{keys}");
    Setup::projects(dirs).repos_yaml(&workflow(&keys, &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]))
}

/// Returns the number of objects in the server's journal.
fn journal(ctx: &Ctx) -> usize {
    std::fs::read_dir(ctx.server.data("vault/journal")).unwrap().count()
}

#[test]
fn a_plan_is_invalidated_when_the_base_branch_moves_in_what_it_is_made_of() {
    let module = "module \"m\" {\n  source = \"../modules/m\"\n}\n";
    let setup = strict("", &["a", "b", "c"]).file("b/module.tf", module).file("modules/m/main.tf", "# 1\n");
    run_test(setup, async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.planned_dirs("second", &["b", "c"]).await;
        ctx.repo
            .push("main", &[("modules/m/main.tf", Some("# 2\n")), ("a/readme.md", Some("not read"))])
            .await
            .unwrap();
        let said = ctx.next(&second).await;
        said.is_message("plans_fell")
            .has("`main` has moved to")
            .has("dir `b`")
            .has_not("dir `c`")
            .has("`atlantis plan`");
        assert_eq!(said.marker["next"], "atlantis plan");
        let said = ctx.next(&second).await;
        said.is_replan("success");
        assert_eq!(said.outcomes(), [("b".to_owned(), "success".to_owned())]);
        ctx.status(&second, "atlantis/plan", "success", "").await;
        ctx.status(&second, "atlantis/plan: b/default", "success", "").await;
        ctx.repo.push("main", &[("a/other.tf", Some("# own\n"))]).await.unwrap();
        ctx.next(&first).await.is_message("plans_fell").has("dir `a`");
        ctx.next(&first).await.is_replan("success");
        ctx.say(&second, "atlantis apply --only -d c").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_is_invalidated_when_the_base_branch_configures_its_project_otherwise() {
    let config = |requirement: &str| {
        format!("version: 3\nprojects:\n  - dir: a\n    apply_requirements: [{requirement}]\n  - dir: b\n")
    };
    let setup = strict("allowed_overrides: [apply_requirements]", &["a", "b"]).file("atlantis.yaml", &config(""));
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.repo.push("main", &[("atlantis.yaml", Some(&config("approved")))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("dir `a`").has_not("dir `b`");
        let said = ctx.next(&pull).await;
        said.is_replan("success");
        assert_eq!(said.outcomes(), [("a".to_owned(), "success".to_owned())]);
    });
}

#[test]
fn many_pushes_are_told_once_and_those_that_invalidate_nothing_not_at_all() {
    run_test(strict("", &["a", "b"]), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        ctx.repo.push("main", &[("b/main.tf", Some("# 2\n"))]).await.unwrap();
        ctx.quiet().await;
        assert_eq!(ctx.forge.deliveries().pop().unwrap().status, Some(200));
        let repository = r#"{"full_name": "acme/infra", "clone_url": "{forge}/acme/infra.git"}"#;
        let body = ctx.fill(&format!(r#"{{"ref": "refs/heads/nobodys", "repository": {repository}}}"#));
        // A round of reconciliation may write at the same time.
        let mut is_silent = false;
        for _ in 0..5 {
            let before = journal(ctx);
            assert_eq!((ctx.deliver("push", &body).await, ctx.deliver("push", "{}").await), (200, 200));
            is_silent |= journal(ctx) == before;
        }
        assert!(is_silent, "what concerns nothing is not recorded");
        // A round of reconciliation may look in between: it sees all of them.
        ctx.unseen_by_git(async {
            ctx.forge.pause_webhooks(true);
            for number in 0..5 {
                ctx.repo.push("main", &[("a/other.tf", Some(&format!("# {number}\n")))]).await.unwrap();
            }
            ctx.forge.pause_webhooks(false);
        })
        .await;
        ctx.next(&pull).await.is_message("plans_fell").has("dir `a`");
        let tip = ctx.repo.tip("main").await.unwrap();
        ctx.next(&pull).await.is_replan("success").has(&format!("on top of `main` [{}]", &tip[..7]));
        ctx.quiet().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_push_that_nobody_told_of_is_found() {
    run_test(strict("", &["a"]), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        ctx.server.stop().await;
        ctx.repo.push("main", &[("a/other.tf", Some("# 2\n"))]).await.unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is_message("plans_fell").has("`main` has moved to");
        ctx.next(&pull).await.is_replan("success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_is_invalidated_has_no_plan_and_stays_so_where_autoplan_is_off() {
    run_test(strict("", &["a"]).flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["a"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.repo.push("main", &[("a/other.tf", Some("# 2\n"))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("`main` has moved to");
        ctx.quiet().await;
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded: main has moved to").await;
        ctx.status(&pull, "atlantis/plan: a/default", "failure", "Plan discarded: main has moved to").await;
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "failure").because("no_plan");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn what_was_pushed_while_it_was_planned_is_found_and_not_applied() {
    let rules = workflow(
        "repo_locks: {mode: strict}",
        &["touch {tmp}/begun; while [ ! -e {tmp}/go ]; do sleep 0.1; done", PLANNED],
        &["echo $PULL_NUM >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_dirs("first", &["a"]).await;
        ctx.until("it is being planned", async || ctx.tmp.join("begun").exists()).await;
        ctx.repo.push("main", &[("a/other.tf", Some("# 2\n"))]).await.unwrap();
        // The apply asks for the pull request first. The look at the branch asks next, and waits until the apply is answered.
        let look = ctx.hold_second("**/pulls/1");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        std::fs::write(ctx.tmp.join("go"), "").unwrap();
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.next(&pull).await;
        said.is("apply", "failure")
            .because("stale_plan")
            .has("changed on `main`, which is now at")
            .has("`atlantis plan -d a`");
        look.open();
        ctx.next(&pull).await.is_message("plans_fell").has("`main` has moved to");
        ctx.next(&pull).await.is_replan("success");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_others_have_merged_invalidates_plans_that_use_the_same_module() {
    let module = "module \"m\" {\n  source = \"../modules/m\"\n}\n";
    let setup = strict("", &["a", "b"]).file("b/module.tf", module).file("modules/m/main.tf", "# 1\n");
    run_test(setup, async |ctx| {
        let first = ctx.open("first", &[("modules/m/main.tf", "# 2\n")]).await;
        let second = ctx.planned_dirs("second", &["b"]).await;
        first.merge().await.unwrap();
        ctx.next(&second).await.is_message("plans_fell").has("`main` has moved to").has("dir `b`");
        ctx.next(&second).await.is_replan("success").has("dir `b`");
    });
}

#[test]
fn in_the_other_modes_nothing_is_invalidated() {
    let rules = workflow("", &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        ctx.repo.push("main", &[("a/other.tf", Some("# 2\n"))]).await.unwrap();
        ctx.quiet().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_plan_that_becomes_too_old_is_invalidated_by_itself() {
    run_test(strict("plan_max_age: 5s", &["a"]), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        let said = ctx.next(&pull).await;
        said.is_message("plans_fell").has("older than 5 s").has("(`plan_max_age`)").has("dir `a`");
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded: it is older than 5 s").await;
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "failure").because("no_plan");
    });
}
