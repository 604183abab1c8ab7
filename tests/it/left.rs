//! Files that steps leave in a checkout are part of the plan, and survive the disk on which it was made.

use crate::support::*;

/// Removes the checkouts, as after a start on an empty disk.
async fn lose_checkouts(ctx: &Ctx) {
    ctx.server.stop().await;
    remove_checkouts(ctx);
    ctx.server.start().await;
}

fn remove_checkouts(ctx: &Ctx) {
    for folder in ["repos", "mirrors"] {
        std::fs::remove_dir_all(ctx.server.data(folder)).unwrap();
    }
}

/// Replaces the content of the only archive of left files.
fn spoil_archive(ctx: &Ctx) {
    let archive = std::fs::read_dir(ctx.server.data("left")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(archive, "something else").unwrap();
}

fn kept(ctx: &Ctx) -> usize {
    std::fs::read_dir(ctx.server.data("left")).map(|entries| entries.count()).unwrap_or_default()
}

#[test]
fn an_apply_on_an_empty_disk_finds_what_its_plan_had_made() {
    let make = "mkdir -p ../shared && echo made-once >> ../shared/out.txt && echo secret > lambda.zip && ln -sf lambda.zip latest";
    let plan = ["init", make, "plan"];
    let apply = ["cat ../shared/out.txt latest && test -d .terraform", "apply"];
    let setup = Setup::repo(&[("a/main.tf", &terraform("a", "1")), (".gitignore", "*.zip\n")]).steps(&plan, &apply);
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("a/main.tf", &terraform("a", "2"))]).await;
        ctx.next(&pull).await.is("plan", "success").has_not("does not keep");
        assert_eq!(kept(ctx), 1);
        lose_checkouts(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("made-once\nsecret");
        assert_eq!(kept(ctx), 0);
    });
}

#[test]
fn nothing_is_kept_where_nothing_was_left_and_init_runs_again_as_needed() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(kept(ctx), 0);
        lose_checkouts(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn more_than_is_kept_is_told_and_needs_a_new_plan_on_an_empty_disk() {
    let many = "mkdir -p many && cd many && seq -f %g 5001 | xargs touch";
    run_test(Setup::one_project().steps(&["init", many, "plan"], &["apply"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull)
            .await
            .is("plan", "success")
            .has("Steps of `./default` left 5001 files, and at most 5000 are kept");
        assert_eq!(kept(ctx), 0);
        lose_checkouts(ctx).await;
        ctx.say(&pull, "atlantis apply").await.because("stale_plan").has("5001 files").has("`atlantis plan -d .`");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn an_archive_that_is_not_the_plans_own_is_refused() {
    run_test(Setup::one_project().steps(&["init", "echo x > made", "plan"], &["apply"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        spoil_archive(ctx);
        remove_checkouts(ctx);
        ctx.say(&pull, "atlantis apply").await.because("stale_plan");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        // Files are removed after the commit that drops their plan, which is reported meanwhile.
        ctx.until("the archive goes", async || kept(ctx) == 0).await;
    });
}

#[test]
fn an_archive_that_was_changed_on_the_disk_is_made_new_at_the_start() {
    run_test(Setup::one_project().steps(&["init", "echo x > made", "plan"], &["cat made", "apply"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        spoil_archive(ctx);
        lose_checkouts(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_state_that_could_not_be_saved_is_kept_and_told_with_what_to_do() {
    let fail = "echo '{\"serial\": 7}' > errored.tfstate; exit 1";
    run_test(Setup::one_project().steps(&["init", "plan"], &[fail]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let failed = ctx.say(&pull, "atlantis apply").await;
        let file = format!("errored/{}.tfstate", failed.job());
        failed.is("apply", "error").has(&format!("`terraform state push {file}`")).has("`tidelock vault export DIR`");
        assert_eq!(std::fs::read_to_string(ctx.server.data(&file)).unwrap(), "{\"serial\": 7}\n");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn the_end_of_a_deposed_servers_apply_brings_its_state_or_says_where_that_lies() {
    for (mib, is_handed_over) in [(1, true), (50, false)] {
        let fail = format!("head -c {} /dev/zero > errored.tfstate; exit 1", mib << 20);
        let setup = Setup::one_project().steps(&["init", "plan"], &[&gate("apply"), &fail]);
        let setup = setup.flags(&["--bucket=file://{own}/bucket", "--lease-ttl=3s"]).own_process();
        run_test(setup, async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.reached("apply", 1).await;
            depose(ctx).await;
            let second = ctx.server.beside(&ctx.own.join("data-2"), &[]);
            second.start_as_standby().await;
            second.role("leading").await;
            let interrupted = ctx.next(&pull).await;
            let file = format!("errored/{}.tfstate", interrupted.is("apply", "error").because("interrupted").job());
            ctx.open_gate("apply");
            let late = ctx.next(&pull).await;
            late.is_message("interrupted").has("has finished").has("Terraform could not save the state");
            assert_eq!(second.data(&file).exists(), is_handed_over, "{mib} MiB");
            let here = ctx.server.data(&file);
            match is_handed_over {
                true => late.has(&format!("`terraform state push {file}`")),
                false => late.has(here.to_str().unwrap()).has("52.4 MB").has_not("its vault"),
            };
            second.stop().await;
            // The first one restores. It keeps the file in both cases: no other copy exists, or a row names it.
            ctx.server.role("leading").await;
            assert_eq!(here.metadata().unwrap().len(), mib << 20);
        });
    }
}
