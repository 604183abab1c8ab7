//! Plans at the end of applies (`verify_applies`).

use crate::support::*;

const KEY: &str = "verify_applies: true";
/// A plan stage with changes before the apply; after it, whatever `after` prints.
const PLAN: &str = "printf 'with [%s]\\n' \"$COMMENT_ARGS\" >> {tmp}/plans; if [ -e {tmp}/applied ]; then sh {tmp}/after; else echo 'Plan: 1 to add, 0 to change, 0 to destroy.'; fi";
const APPLY: &str = "echo x >> {tmp}/applied; echo 'Apply complete! Resources: 1 added, 0 changed, 0 destroyed.'";
const NOTHING: &str = "echo 'No changes. Your infrastructure matches the configuration.'";

/// Returns the lines about the apply of a new pull request, whose plan after the apply is this one.
async fn applied_with(ctx: &Ctx, branch: &str, after: &str, flags: &str) -> Said {
    let _ = std::fs::remove_file(ctx.tmp.join("applied"));
    std::fs::write(ctx.tmp.join("after"), after).unwrap();
    let pull = ctx.open_dirs(branch, &["net"]).await;
    ctx.next(&pull).await.is("plan", "success");
    if !flags.is_empty() {
        ctx.say(&pull, &format!("atlantis plan {flags}")).await.is("plan", "success");
    }
    let said = ctx.say(&pull, "atlantis apply").await;
    ctx.status(&pull, "atlantis/apply", "success", "").await;
    pull.merge().await.unwrap();
    ctx.next(&pull).await.is_message("cleanup");
    said
}

#[test]
fn the_comment_says_whether_a_new_plan_has_changes() {
    let rules = workflow(KEY, &[PLAN], &[APPLY]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        let said = applied_with(ctx, "clean", NOTHING, "").await;
        said.is("apply", "success").has("1 added, 0 changed, 0 destroyed, nothing is left").has_not("To plan again");
        let left = "echo 'Plan: 0 to add, 2 to change, 0 to destroy.'";
        let said = applied_with(ctx, "left", left, "").await;
        said.is("apply", "success")
            .has("changes are left")
            .has("still has changes (0 to add, 2 to change, 0 to destroy)");
        said.has("To plan again: `atlantis plan -d net`");
        let said = applied_with(ctx, "failing", "echo 'Error: no access'; exit 1", "").await;
        said.is("apply", "success").has("not verified").has("the plan after it failed").has_not("no access");
        let said = applied_with(ctx, "silent", "echo fine", "").await;
        said.is("apply", "success").has("not verified").has("prints no totals");
        std::fs::remove_file(ctx.tmp.join("plans")).unwrap();
        applied_with(ctx, "arguments", NOTHING, "-d net -- -var a=b").await.has("nothing is left");
        let plans = std::fs::read_to_string(ctx.tmp.join("plans")).unwrap();
        let with: Vec<&str> = plans.lines().collect();
        assert!(
            with.len() == 3 && with[0] == "with []" && with[1].contains("\\v\\a\\r") && with[1] == with[2],
            "{plans}"
        );
    });
}

#[test]
fn terraform_itself_shows_what_never_settles() {
    let clock = "resource \"terraform_data\" \"clock\" {\n  input = timestamp()\n}\n";
    let rules = format!("repos:\n- id: /.*/\n  {KEY}\n");
    run_test(Setup::projects(&["net", "clock"]).repos_yaml(&rules), async |ctx| {
        let files = [("net/main.tf", &*terraform("net", "2")), ("clock/main.tf", &*(terraform("clock", "1") + clock))];
        let pull = ctx.open_as("alice", "change", &files, Default::default()).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "success").has("✓ applied, nothing is left").has("✓ applied, changes are left");
        said.has("`clock/default` is applied, but a plan right after it still has changes");
        said.has_not("`net/default` is applied, but");
        // The new plan is gone: nobody can apply it.
        ctx.say(&pull, "atlantis apply").await.has("Everything that was planned is applied already");
    });
}

#[test]
fn an_apply_counts_whatever_becomes_of_the_new_plan() {
    let rules = workflow(KEY, &[PLAN], &[APPLY]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules).own_process(), async |ctx| {
        std::fs::write(ctx.tmp.join("after"), ctx.fill(&gate("after"))).unwrap();
        let pull = ctx.open_dirs("cancelled", &["net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("after", 1).await;
        ctx.say(&pull, "atlantis cancel --apply").await.is_message("cancelled");
        ctx.next(&pull).await.is("apply", "success").has("not verified");
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("cleanup");

        std::fs::remove_file(ctx.tmp.join("applied")).unwrap();
        let pull = ctx.open_dirs("killed", &["net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("after", 2).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "error").because("interrupted");
        assert_eq!(ctx.lines("applied"), 1, "it is not repeated");
    });
}

#[test]
fn the_job_of_an_executor_plans_again_itself() {
    let keys = format!("{KEY}\nexecutor: [{{plan: jobs, apply: jobs}}]");
    let rules = format!("executors: {{jobs: {{kind: process}}}}\n{}", workflow(&keys, &["init", "plan"], &["apply"]));
    run_test(Setup::one_project().repos_yaml(&rules).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply")
            .await
            .is("apply", "success")
            .has("1 added, 0 changed, 0 destroyed, nothing is left");
    });
}

#[test]
fn a_guard_that_was_overridden_does_not_stop_the_new_plan() {
    let keys = format!("{KEY}\nguards: [{{name: no-scripts, forbid: [provisioners], override: ['user:alice']}}]");
    let script =
        "resource \"terraform_data\" \"script\" {\n  provisioner \"local-exec\" {\n    command = \"true\"\n  }\n}\n";
    run_test(Setup::projects(&["net"]).repos_yaml(&workflow(&keys, &["init", "plan"], &["apply"])), async |ctx| {
        let pull = ctx
            .open_as("alice", "change", &[("net/main.tf", &(terraform("net", "2") + script))], Default::default())
            .await;
        ctx.next(&pull).await.has("no-scripts");
        ctx.say(&pull, "atlantis plan --override no-scripts -m 'a script is needed'").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("nothing is left");
    });
}
