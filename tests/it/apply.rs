//! Applies: the plan that they use, refusals, and events while they run.

use crate::support::*;
use tidelock_forge::Pull;

/// Two projects by name; the second one's keys are given.
fn two_projects(second: &str) -> String {
    format!(
        "version: 3\nabort_on_execution_order_fail: true\nprojects:\n  - name: first\n    dir: first\n  - name: second\n    dir: second\n{second}"
    )
}

#[test]
fn a_plan_is_applied_once() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added, 0 changed, 0 destroyed");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        let state = std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap();
        ctx.say(&pull, "atlantis apply")
            .await
            .is_message("no_projects")
            .has("Everything that was planned is applied already.");
        ctx.say(&pull, "atlantis apply -d .").await.is("apply", "failure").because("no_plan").has("applied already");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap(), state);
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn a_plan_of_an_earlier_commit_is_not_applied() {
    let setup =
        Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]).flags(&["--disable-autoplan"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        for command in ["atlantis apply", "atlantis apply -d ."] {
            let said = ctx.say(&pull, command).await;
            said.is("apply", "failure").because("stale_plan").has("It was made for commit").has("`atlantis plan -d .`");
        }
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_of_another_configuration_is_not_applied() {
    run_test(Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.rewrite_repos_yaml(&workflow("", &[PLANNED], &["echo something else"]));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("stale_plan").has("configuration");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn a_plan_file_with_other_bytes_is_not_applied() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let plans: Vec<_> =
            std::fs::read_dir(ctx.server.data("plans")).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(plans.len(), 1);
        let mut bytes = std::fs::read(&plans[0]).unwrap();
        bytes.push(0);
        std::fs::write(&plans[0], bytes).unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("stale_plan").has("missing or was changed").has("`atlantis plan -d .`");
        assert!(!ctx.tmp.join("state/root.tfstate").exists());
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn an_apply_waits_for_an_approval_that_counts() {
    let rules = workflow("apply_requirements: [approved]", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let refused = ctx.say(&pull, "atlantis apply").await;
        refused.is("apply", "failure").because("requirement").has("not approved").has("0 of 1 review");
        refused.has("When this is resolved: `atlantis apply -d .`");
        pull.approve("dave").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("no write access: dave");
        pull.approve("bob").unwrap();
        pull.request_changes("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("carol requested changes");
        assert_eq!(ctx.lines("applied"), 0);
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has_not("earlier head");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

async fn approved_before_a_push(ctx: &Ctx) -> Pull {
    let pull = ctx.open_input("change", "2").await;
    ctx.next(&pull).await.is("plan", "success");
    pull.approve("bob").unwrap();
    ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
    ctx.next(&pull).await.is("plan", "success");
    pull
}

#[test]
fn an_approval_of_an_earlier_head_is_remarked() {
    let rules = workflow("apply_requirements: [approved]", &[PLANNED], &["echo applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = approved_before_a_push(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("The approval of bob is of an earlier head");
    });
}

#[test]
fn an_approval_of_an_earlier_head_does_not_count_where_that_is_asked_for() {
    let rules = workflow("apply_requirements: [approved]", &[PLANNED], &["echo applied"]);
    run_test(Setup::one_project().repos_yaml(&rules).flags(&["--approval-of-head"]), async |ctx| {
        let pull = approved_before_a_push(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("the approval of bob is of an earlier head");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn an_apply_waits_until_the_pull_request_can_be_merged() {
    let rules = workflow("apply_requirements: [mergeable]", &[PLANNED], &["echo applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.set_mergeable_state("dirty").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("requirement").has("not mergeable");
        pull.set_mergeable_state("clean").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_pull_request_cannot_take_its_requirements_away() {
    let rules = workflow("apply_requirements: [approved]", &[PLANNED], &["echo applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let gate = "version: 3\nprojects:\n  - dir: .\n    apply_requirements: []\n";
        let pull = ctx.open("change", &[("main.tf", &terraform("root", "2")), ("atlantis.yaml", gate)]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error").because("config").has("apply_requirements").has("allowed_overrides");
    });
}

#[test]
fn a_project_waits_for_what_it_depends_on() {
    let setup = Setup::projects(&["first", "second"]).file("atlantis.yaml", &two_projects("    depends_on: [first]\n"));
    run_test(setup.steps(&[PLANNED], &["echo $PROJECT_NAME >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let refused = ctx.say(&pull, "atlantis apply -p second").await;
        refused
            .is("apply", "failure")
            .because("dependency")
            .has("First: `atlantis apply -p first`")
            .has("When this is resolved: `atlantis apply -p second`");
        ctx.say(&pull, "atlantis apply -p first").await.is("apply", "success");
        // As in Atlantis, a refusal counts as failed until the project is applied.
        ctx.status(&pull, "atlantis/apply", "failure", "1 failed, 1/2 applied").await;
        ctx.say(&pull, "atlantis apply -p second").await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "2/2 applied").await;
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "first\nsecond\n");
    });
}

#[test]
fn a_group_does_not_begin_after_one_that_failed() {
    let second = "    execution_order_group: 1\n";
    let setup = Setup::projects(&["first", "second"]).file("atlantis.yaml", &two_projects(second));
    run_test(setup.steps(&[PLANNED], &["echo $PROJECT_NAME >> {tmp}/applied; [ -e {tmp}/mended ]"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        assert_eq!(said.outcomes(), [("first".into(), "error".into())]);
        said.has("Not started, as an earlier group failed: `second`. After the fix, comment: `atlantis apply`");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "first\n");
        std::fs::write(ctx.tmp.join("mended"), "").unwrap();
        // Its plan was not used.
        ctx.say(&pull, "atlantis apply -p second").await.is("apply", "success");
    });
}

#[test]
fn the_apply_lock_stops_applies_until_it_is_lifted() {
    run_test(Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let (status, text) = ctx.request("POST", "/apply/lock?reason=freeze", &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.say(&pull, "atlantis apply").await.is_message("apply_disabled").has("applies are stopped").has("(freeze)");
        assert_eq!(ctx.lines("applied"), 0);
        let (status, text) = ctx.request("DELETE", "/apply/unlock", &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn the_apply_lock_holds_for_projects_whose_turn_has_not_come() {
    let setup = Setup::projects(&["first", "second"]);
    let setup = setup.steps(&[PLANNED], &[&gate("$REPO_REL_DIR"), "echo $REPO_REL_DIR >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("first", 1).await;
        let (status, text) = ctx.request("POST", "/apply/lock?reason=freeze", &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.open_gate("first");
        ctx.open_gate("second");
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("first".into(), "success".into()), ("second".into(), "failure".into())]);
        said.has("(freeze)");
        assert_eq!(ctx.lines("applied"), 1);
        ctx.request("DELETE", "/apply/unlock", &[]).await;
        // Its plan was not used.
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

/// Installs a binary that only prints its version, in the place of downloaded ones.
fn install(ctx: &Ctx, version: &str) {
    let path = ctx.server.data(&format!("bin/terraform{version}"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\necho 'Terraform v{version}'\n")).unwrap();
    make_executable(&path);
}

#[test]
fn a_plan_of_another_tool_is_not_applied() {
    run_test(Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]), async |ctx| {
        install(ctx, "9.9.1");
        install(ctx, "9.9.2");
        ctx.server.flag("--default-tf-version=9.9.1");
        ctx.server.restart().await;
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("Terraform 9.9.1");
        ctx.server.flag("--default-tf-version=9.9.2");
        ctx.server.restart().await;
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("stale_plan").has("terraform 9.9.1").has("terraform 9.9.2");
        said.has("`atlantis plan -d .`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

fn gated() -> Setup {
    Setup::one_project().steps(&[PLANNED], &["echo begun >> {tmp}/begun", &gate("apply"), "echo ended >> {tmp}/ended"])
}

/// Opens a pull request whose apply has begun and waits at the gate.
async fn applying(ctx: &Ctx) -> Pull {
    let pull = ctx.open_input("change", "2").await;
    ctx.next(&pull).await.is("plan", "success");
    pull.comment("alice", "atlantis apply").unwrap();
    ctx.reached("apply", 1).await;
    pull
}

#[test]
fn unlock_is_refused_while_an_apply_runs() {
    run_test(gated(), async |ctx| {
        let pull = applying(ctx).await;
        let refused = ctx.say_as("bob", &pull, "atlantis unlock").await;
        refused.is_message("not_permitted").has("Unlock refused").has("cancel --apply");
        let (_, log) = ctx.request("GET", &format!("/jobs/{}", refused.job()), &[]).await;
        assert!(log.contains("apply"), "{log}");
        let (status, text) = ctx.request("DELETE", "/locks?id=acme/infra/./default/", &[]).await;
        assert!(status == 409 && text.contains("cancel --apply"), "{status} {text}");
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn unlock_is_done_after_an_apply_that_is_answered_although_its_hooks_run() {
    let hook = serde_json::Value::from(format!("[ ! -e {{tmp}}/hold ] || ({})", gate("hook")));
    let rules = workflow(&format!("post_workflow_hooks:\n  - run: {hook}"), &[PLANNED], &["true"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        std::fs::write(ctx.tmp.join("hold"), "").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.reached("hook", 1).await;
        pull.comment("alice", "atlantis unlock").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.open_gate("hook");
        ctx.next(&pull).await.is_message("unlocked");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn cancel_leaves_an_apply_alone_unless_it_is_named() {
    run_test(gated(), async |ctx| {
        let pull = applying(ctx).await;
        let left = ctx.say(&pull, "atlantis cancel").await;
        left.is_message("cancelled")
            .has("Nothing was cancelled")
            .has("Still running")
            .has("`apply`; to interrupt it: `atlantis cancel --apply`");
        ctx.repo.set_permission("eve", "read").unwrap();
        let refused = ctx.say_as("eve", &pull, "atlantis cancel --apply").await;
        refused.is_message("not_permitted").has("eve may not use `cancel --apply`").has("only those who may write");
        assert_eq!((ctx.lines("begun"), ctx.lines("ended")), (1, 0));
        pull.comment("bob", "atlantis cancel --apply").unwrap();
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let (told, result): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.marker["message"] == "cancelled");
        told[0].has("the running `apply`");
        result[0].is("apply", "error").because("interrupted").has("by bob").has("`atlantis plan -d .`");
        assert_eq!((ctx.lines("begun"), ctx.lines("ended")), (1, 0));
        ctx.status(&pull, "atlantis/apply", "failure", "1 failed").await;
        ctx.nothing_pending(&pull, &[]).await;
        // An apply that has begun is not repeated without a new plan.
        ctx.say(&pull, "atlantis apply -d .").await.is("apply", "failure").because("no_plan");
    });
}

#[test]
fn a_push_during_an_apply_lets_it_end_and_is_planned_then() {
    run_test(gated(), async |ctx| {
        let pull = applying(ctx).await;
        let before = pull.head_commit().unwrap();
        let head = ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.open_gate("apply");
        let applied = ctx.next(&pull).await;
        applied.is("apply", "success");
        assert_eq!(applied.marker["head"], before.as_str());
        let planned = ctx.next(&pull).await;
        planned.is("plan", "success");
        assert_eq!(planned.marker["head"], head.as_str());
        assert_eq!(ctx.lines("ended"), 1);
        ctx.nothing_pending_on(&before).await;
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn an_apply_without_a_plan_says_what_became_of_it_and_offers_what_works_now() {
    let setup = Setup::one_project().steps(&[PLANNED], &["[ ! -e {tmp}/fails ]"]);
    run_test(setup, async |ctx| {
        std::fs::write(ctx.tmp.join("fails"), "").unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let job = ctx.say(&pull, "atlantis apply").await.is("apply", "error").job();
        for command in ["atlantis apply", "atlantis apply -d ."] {
            let said = ctx.say(&pull, command).await;
            said.has("was used by the apply that failed").has(&format!("/jobs/{job}")).has("`atlantis plan");
        }
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        for command in ["atlantis apply", "atlantis apply -d ."] {
            ctx.say(&pull, command).await.has("s plan was discarded").has("`atlantis plan");
        }
    });
}

#[test]
fn a_plan_without_changes_offers_no_apply() {
    run_test(
        Setup::one_project().steps(&["echo 'No changes. Your infrastructure matches.'"], &["true"]),
        async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull)
                .await
                .is("plan", "success")
                .has("No changes")
                .has_not("To apply")
                .has("to confirm that there is nothing to apply: `atlantis apply -d .`")
                .has("atlantis plan");
            // It works all the same, for people who need it.
            ctx.say(&pull, "atlantis apply -d .").await.is("apply", "success");
        },
    );
}
