//! Terraform's own locks on its states: nobody has to find out by himself what a killed run of ours left.

use crate::support::*;

/// A plan that takes the local backend's lock and is killed while it holds it.
fn held_plan() -> Setup {
    let info = r#"{"ID":"11111111-2222-3333-4444-555555555555","Operation":"OperationTypePlan","Who":"root@vm","Created":"2026-01-01T00:00:00Z"}"#;
    let hold = format!("echo '{info}' > {{tmp}}/state/.root.tfstate.lock.info");
    let freed = "rm -f {tmp}/state/.root.tfstate.lock.info";
    Setup::one_project().steps(&["init", &hold, &gate("plan"), freed, PLANNED], &[]).own_process()
}

#[test]
fn a_killed_plan_that_is_not_run_again_is_told_with_its_state_lock() {
    run_test(held_plan(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        ctx.forge.pause_webhooks(true);
        pull.close().unwrap();
        ctx.server.start().await;
        let told = ctx.next(&pull).await;
        told.is_message("interrupted").has("`11111111-2222-3333-4444-555555555555`").has("state lock").has("`atlantis plan -d .`");
        ctx.forge.pause_webhooks(false);
        ctx.quiet().await;
        // It is told once.
        ctx.server.restart().await;
        ctx.quiet().await;
    });
}

#[test]
fn a_killed_plan_that_runs_again_needs_no_word() {
    run_test(held_plan(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        pull.close().unwrap();
        ctx.next(&pull).await.is_message("cleanup");
    });
}

#[test]
fn a_killed_plan_whose_lock_is_gone_needs_no_word() {
    run_test(held_plan(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        std::fs::remove_file(ctx.tmp.join("state/.root.tfstate.lock.info")).unwrap();
        pull.close().unwrap();
        ctx.server.start().await;
        ctx.quiet().await;
    });
}

#[test]
fn on_an_empty_disk_a_killed_plan_is_told_with_the_command_to_free_its_lock() {
    run_test(held_plan(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        std::fs::remove_dir_all(ctx.server.data("repos")).unwrap();
        ctx.forge.pause_webhooks(true);
        pull.close().unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is_message("interrupted").has("`atlantis force-unlock -d . LOCK_ID`");
        ctx.forge.pause_webhooks(false);
        ctx.quiet().await;
    });
}
