//! Automatic plans after a failed apply (`replan_after_failed_apply`).

use crate::support::*;

const KEY: &str = "replan_after_failed_apply: true";
const BECAUSE: &str = "Planned automatically: the apply failed.";
const APPLY: &str = "[ -e {tmp}/mended ] || { echo 'Error: no quota is left'; exit 1; }";

#[test]
fn a_project_is_planned_again_once_after_each_failed_apply() {
    // The plan after the first apply waits at a gate, for the kill.
    let plan = format!("if [ -e {{tmp}}/held ]; then {}; fi", gate("plan"));
    let rules = workflow(KEY, &[&plan, PLANNED], &[APPLY]);
    run_test(Setup::one_project().repos_yaml(&rules).flags(&["--automerge"]).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        std::fs::write(ctx.tmp.join("held"), "").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "error").has("no quota is left");
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("plan");
        ctx.server.start().await;
        ctx.next(&pull).await.is_replan("success").has(BECAUSE);
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        ctx.next(&pull).await.is_replan("success").has(BECAUSE);
        // It is the last comment: a plan neither applies nor plans.
        ctx.quiet().await;
        std::fs::write(ctx.tmp.join("mended"), "").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_message("automerge");
        ctx.next(&pull).await.is_message("cleanup");
    });
}

#[test]
fn no_plan_follows_an_apply_that_was_interrupted_killed_or_refused() {
    let apply = ["[ ! -e {tmp}/fatal ] || kill -9 $$", &gate("apply"), "exit 1"];
    let rules = workflow(&format!("{KEY}\napply_requirements: [approved]"), &[PLANNED], &apply);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("requirement");
        pull.approve("bob").unwrap();
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.say(&pull, "atlantis cancel --apply").await.is_message("cancelled");
        ctx.next(&pull).await.is("apply", "error").because("interrupted");
        ctx.quiet().await;
        std::fs::write(ctx.tmp.join("fatal"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error").has("signal 9");
        ctx.next(&pull).await.is_message("interrupted").has("may have left its state lock");
        ctx.quiet().await;
        ctx.say(&pull, "atlantis help").await.is_message("help");
    });
}
