//! Terraform's own locks on its states: locks left by a killed run of ours are reported.

use crate::support::*;

/// A plan that takes the local backend's lock and is killed while it holds it.
fn held_plan() -> Setup {
    let info = r#"{"ID":"11111111-2222-3333-4444-555555555555","Operation":"OperationTypePlan","Who":"root@vm","Created":"2026-01-01T00:00:00Z"}"#;
    let hold = format!("echo '{info}' > {{tmp}}/state/.root.tfstate.lock.info");
    let freed = "rm -f {tmp}/state/.root.tfstate.lock.info";
    Setup::one_project().steps(&["init", &hold, &gate("plan"), freed, PLANNED], &[]).own_process()
}

/// Opens a pull request whose server is killed while its plan holds the lock.
async fn killed_while_planning(ctx: &Ctx) -> tidelock_forge::Pull {
    let pull = ctx.open_input("change", "2").await;
    ctx.reached("plan", 1).await;
    ctx.server.kill().await;
    pull
}

#[test]
fn a_killed_plan_that_is_not_run_again_is_told_with_its_state_lock() {
    run_test(held_plan(), async |ctx| {
        let pull = killed_while_planning(ctx).await;
        ctx.forge.pause_webhooks(true);
        pull.close().unwrap();
        ctx.server.start().await;
        let told = ctx.next(&pull).await;
        told.is_message("interrupted")
            .has("`11111111-2222-3333-4444-555555555555`")
            .has("state lock")
            .has("`atlantis plan -d .`");
        ctx.forge.pause_webhooks(false);
        ctx.next(&pull).await.is_message("cleanup");
        // It is reported once.
        ctx.server.restart().await;
        ctx.quiet().await;
    });
}

#[test]
fn a_killed_plan_that_runs_again_needs_no_word() {
    run_test(held_plan(), async |ctx| {
        let pull = killed_while_planning(ctx).await;
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
        let pull = killed_while_planning(ctx).await;
        std::fs::remove_file(ctx.tmp.join("state/.root.tfstate.lock.info")).unwrap();
        pull.close().unwrap();
        ctx.server.start().await;
        // The closing was missed, and is found a moment after the start: there is no other comment before.
        ctx.next(&pull).await.is_message("cleanup");
        ctx.quiet().await;
    });
}

#[test]
fn on_an_empty_disk_a_killed_plan_is_told_with_the_command_to_free_its_lock() {
    run_test(held_plan(), async |ctx| {
        let pull = killed_while_planning(ctx).await;
        std::fs::remove_dir_all(ctx.server.data("repos")).unwrap();
        ctx.forge.pause_webhooks(true);
        pull.close().unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is_message("interrupted").has("`atlantis force-unlock -d . LOCK_ID`");
        ctx.forge.pause_webhooks(false);
        ctx.next(&pull).await.is_message("cleanup");
    });
}

#[test]
fn a_killed_plan_that_is_cancelled_when_it_runs_again_is_told() {
    run_test(held_plan(), async |ctx| {
        let pull = killed_while_planning(ctx).await;
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        pull.close().unwrap();
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let kinds = ["interrupted", "cleanup"].map(|kind| said.iter().find(|said| said.marker["message"] == kind));
        kinds[0].expect("it is told").has("`11111111-2222-3333-4444-555555555555`");
        kinds[1].expect("what is freed is told");
    });
}

/// A project whose state is on a server that keeps locks; its plans stop at a gate.
fn locking(url: &str) -> (Setup, String) {
    let skipped =
        ["credentials_validation", "region_validation", "requesting_account_id", "metadata_api_check", "s3_checksum"];
    let skipped: String = skipped.map(|name| format!("    skip_{name} = true\n")).concat();
    let main = format!(
        "terraform {{\n  backend \"s3\" {{\n    bucket = \"b\"\n    key = \"s\"\n    region = \"r\"\n    access_key = \"a\"\n    \
         secret_key = \"s\"\n    use_lockfile = true\n    use_path_style = true\n{skipped}    endpoints = {{\n      s3 = \"{url}\"\n    \
         }}\n  }}\n}}\n\nresource \"terraform_data\" \"this\" {{\n  input = \"1\"\n}}\n"
    );
    let setup = Setup::repo(&[("main.tf", &main)]).steps(&["init", "plan", &gate("plan")], &["apply"]).own_process();
    (setup, main.replace("input = \"1\"", "input = \"2\""))
}

/// Runs a test beside such a server; the text is that of a `main.tf` that changes something.
fn with_states(test: impl AsyncFnOnce(&Ctx, &States, &str)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (states, url) = runtime.block_on(States::start());
    let (setup, changed) = locking(&url);
    run_test(setup, async |ctx| test(ctx, &states, &changed).await);
}

#[test]
fn a_state_lock_of_a_dead_run_is_freed_by_comment() {
    with_states(async |ctx, states, changed| {
        states.sticky(true);
        let pull = ctx.open("change", &[("main.tf", changed)]).await;
        ctx.reached("plan", 1).await;
        let id = states.lock().unwrap()["ID"].as_str().unwrap().to_owned();
        // The command waits behind the plan; another pull request's is refused while that runs.
        let other = ctx.open("other", &[("other.tf", "# nothing\n")]).await;
        ctx.next(&other).await.is("plan", "failure").because("locked");
        let unseen = ctx.say(&other, &format!("atlantis force-unlock -d . {id}")).await;
        unseen.because("not_permitted").has(&format!("o run of this project has seen the state lock `{id}`"));
        // It does not wait for the project.
        ctx.say(&other, "atlantis unlock").await.is_message("unlocked");
        ctx.server.kill().await;
        ctx.server.start().await;
        states.sticky(false);
        let failed = ctx.next(&pull).await;
        let command = format!("atlantis force-unlock -d . {id}");
        failed.is("plan", "error").has("was left by the plan of #1 that was interrupted").has(&format!("`{command}`"));
        // It has not succeeded, so only the comment shows the lock.
        ctx.next(&pull).await.is_message("interrupted");
        ctx.say(&pull, &command)
            .await
            .is("force_unlock", "success")
            .has("Freed the state lock of")
            .has("`atlantis plan -d .`");
        assert_eq!(states.lock(), None);
        ctx.open_gate("plan");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_state_lock_of_somebody_else_is_left_alone() {
    with_states(async |ctx, states, changed| {
        ctx.open_gate("plan");
        let lock = serde_json::json!({"ID": "aaaa-1", "Operation": "OperationTypeApply", "Who": "carol@laptop", "Version": "1.11.4",
            "Created": "2026-01-01T00:00:00Z", "Path": "", "Info": ""});
        states.hold(&lock);
        let pull = ctx.open("change", &[("main.tf", changed)]).await;
        ctx.next(&pull).await.is("plan", "error").has("`carol@laptop`").has("no run of this server left it");
        let refused = ctx.say(&pull, "atlantis force-unlock aaaa-1").await;
        refused
            .is("force_unlock", "failure")
            .because("not_permitted")
            .has("`carol@laptop`")
            .has("`terraform force-unlock aaaa-1`");
        assert_eq!(states.lock(), Some(lock));
    });
}
