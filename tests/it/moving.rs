//! A pull request that changes while its projects wait for each other: jobs that have not begun by then are refused, with the reason.

use crate::support::*;
use tidelock_forge::{Fault, Pull};

/// Two projects that are applied one after the other, each at a gate of its own.
fn one_by_one() -> Setup {
    let setup = Setup::projects(&["first", "second"]);
    setup.steps(&[PLANNED], &[&gate("$REPO_REL_DIR"), "echo $REPO_REL_DIR >> {tmp}/applied"])
}

/// Opens a pull request with both planned, whose apply of everything waits at the gate of the first.
async fn applying_first(ctx: &Ctx) -> Pull {
    let pull = ctx.open_dirs("change", &["first", "second"]).await;
    ctx.next(&pull).await.is("plan", "success");
    pull.comment("alice", "atlantis apply").unwrap();
    ctx.reached("first", 1).await;
    pull
}

/// Checks that the first was applied, and the second refused for this reason. Returns the comment.
async fn only_the_first(ctx: &Ctx, pull: &Pull, reason: &str) -> Said {
    for project in ["first", "second"] {
        ctx.open_gate(project);
    }
    let said = ctx.next(pull).await;
    assert_eq!(said.outcomes().len(), 2, "{}", said.text);
    for result in said.marker["results"].as_array().unwrap() {
        let first = result["dir"] == "first";
        assert_eq!(result["outcome"] == "success", first, "{}", said.text);
        assert!(first || result["reason"] == reason, "{}", said.text);
    }
    assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "first\n");
    said
}

#[test]
fn a_project_whose_turn_comes_after_a_push_is_not_applied() {
    run_test(one_by_one(), async |ctx| {
        let pull = applying_first(ctx).await;
        let before = pull.head_commit().unwrap();
        let head = ctx.push(&pull, "second/main.tf", &terraform("second", "3")).await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let said = only_the_first(ctx, &pull, "stale_plan").await;
        said.has(&format!("he head moved from {} to {}", &before[..7], &head[..7])).has("`atlantis plan -d second`");
        assert_eq!(said.marker["head"], before.as_str());
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d second").await.is("apply", "success");
        ctx.nothing_pending_on(&before).await;
    });
}

#[test]
fn a_push_that_nobody_was_told_of_is_seen_as_well() {
    run_test(one_by_one(), async |ctx| {
        let pull = applying_first(ctx).await;
        ctx.forge.pause_webhooks(true);
        let head = ctx.push(&pull, "second/main.tf", &terraform("second", "3")).await;
        let said = only_the_first(ctx, &pull, "stale_plan").await;
        said.has(&format!(" to {} before this project began", &head[..7]));
        ctx.forge.pause_webhooks(false);
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn a_project_whose_turn_comes_after_the_closing_is_not_applied() {
    run_test(one_by_one(), async |ctx| {
        let pull = applying_first(ctx).await;
        pull.close().unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        only_the_first(ctx, &pull, "not_permitted").await.has("closed or merged");
        ctx.next(&pull).await.is_message("cleanup");
    });
}

#[test]
fn a_project_whose_turn_comes_after_the_merge_is_not_applied() {
    run_test(one_by_one(), async |ctx| {
        let pull = applying_first(ctx).await;
        pull.merge().await.unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        only_the_first(ctx, &pull, "not_permitted").await.has("closed or merged");
        ctx.next(&pull).await.is_message("cleanup");
    });
}

#[test]
fn a_project_is_not_applied_while_the_host_does_not_say_how_the_pull_request_is() {
    run_test(one_by_one(), async |ctx| {
        let pull = applying_first(ctx).await;
        ctx.forge.fail_next("GET", "**/pulls/1", Fault::Status(403, "{}".into(), vec![]), 1).unwrap();
        only_the_first(ctx, &pull, "internal").await.has("did not answer whether").has("`atlantis apply -d second`");
    });
}

#[test]
fn projects_that_run_at_the_same_time_are_held_up_alike() {
    let rules = workflow("", &[PLANNED], &[&gate("$REPO_REL_DIR"), "echo $REPO_REL_DIR >> {tmp}/applied"]);
    let flags = ["--parallel-apply", "--parallel-pool-size=2"];
    run_test(Setup::projects(&["a", "b", "c"]).repos_yaml(&rules).flags(&flags), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("a", 1).await;
        ctx.reached("b", 1).await;
        ctx.push(&pull, "c/main.tf", &terraform("c", "3")).await;
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        for project in ["a", "b", "c"] {
            ctx.open_gate(project);
        }
        let said = ctx.next(&pull).await;
        let succeeded = |dir: &str| {
            let results = said.marker["results"].as_array().unwrap();
            results.iter().any(|result| result["dir"] == dir && result["outcome"] == "success")
        };
        assert!(succeeded("a") && succeeded("b") && !succeeded("c"), "{}", said.text);
        assert_eq!(ctx.lines("applied"), 2);
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn a_plan_for_another_base_branch_is_not_applied() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        ctx.repo.push("release", &[("README.md", Some("For customers.\n"))]).await.unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.retarget("release").await.unwrap();
        for command in ["atlantis apply", "atlantis apply -d ."] {
            let said = ctx.say(&pull, command).await;
            said.is("apply", "failure")
                .because("stale_plan")
                .has("`main`")
                .has("`release`")
                .has("`atlantis plan -d .`");
        }
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_command_that_the_base_branch_rules_out_is_answered() {
    let rules = workflow("branch: /^main$/", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        ctx.repo.push("release", &[("README.md", Some("For customers.\n"))]).await.unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.retarget("release").await.unwrap();
        for command in ["plan", "apply", "version"] {
            let said = ctx.say(&pull, &format!("atlantis {command}")).await;
            said.is_message("not_permitted").has("`release`").has("`branch`").has(&format!("`atlantis {command}`"));
        }
        assert_eq!((ctx.lines("applied"), ctx.locks().await.len()), (0, 1));
        // Its locks can be released all the same.
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        assert!(ctx.locks().await.is_empty());
    });
}
