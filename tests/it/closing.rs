//! Comments and failed statuses when a pull request is closed after an apply, and when its plans are unlocked.

use crate::support::*;
use tidelock_forge::Pull;

const NO_CHANGES: &str = "echo 'No changes. Your infrastructure matches the configuration.'";

/// Two projects whose applies succeed unless the test makes them fail.
fn two(mode: &str) -> Setup {
    let rules = workflow(&format!("repo_locks: {{mode: {mode}}}"), &[PLANNED], &["[ ! -e {tmp}/fails ]"]);
    Setup::projects(&["a", "b"]).repos_yaml(&rules)
}

/// Plans both projects and applies `a`.
async fn applied(ctx: &Ctx) -> Pull {
    let pull = ctx.planned_dirs("first", &["a", "b"]).await;
    ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
    pull
}

async fn told(ctx: &Ctx, pull: &Pull) -> Said {
    let said = ctx.next(pull).await;
    said.is_message("cleanup")
        .has("Closed after an apply: 1 project")
        .has("dir `a` · workspace `default`: [`apply` at ");
    ctx.status(pull, "atlantis/apply", "failure", "Closed after an apply of 1 project").await;
    said
}

/// Plays a closing after an apply in a mode that frees the project.
fn play_closing(mode: &str) {
    run_test(two(mode), async |ctx| {
        let pull = applied(ctx).await;
        pull.close().unwrap();
        told(ctx, &pull).await.has_not("may have changed some").has("reopen this pull request and merge it");
        assert!(ctx.locks().await.is_empty());
        // Its delivery comes again, and the server starts again: there is one comment.
        let closed = ctx.forge.deliveries().into_iter().rfind(|one| one.action.as_deref() == Some("closed")).unwrap();
        ctx.forge.redeliver(closed.id).unwrap();
        ctx.quiet().await;
        ctx.server.restart().await;
        ctx.quiet().await;
    });
}

#[test]
fn what_was_applied_is_told_at_the_closing_where_a_plan_locks() {
    play_closing("on_plan");
}

#[test]
fn what_was_applied_is_told_at_the_closing_where_an_apply_locks() {
    play_closing("on_apply");
}

#[test]
fn what_was_applied_is_told_at_the_closing_where_nothing_locks() {
    play_closing("disabled");
}

#[test]
fn a_lost_closing_is_told_as_well() {
    run_test(two("on_plan"), async |ctx| {
        let pull = applied(ctx).await;
        ctx.quiet().await;
        ctx.server.stop().await;
        pull.close().unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.server.start().await;
        told(ctx, &pull).await;
    });
}

#[test]
fn an_apply_that_failed_counts() {
    run_test(two("on_plan"), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b"]).await;
        std::fs::write(ctx.tmp.join("fails"), "").unwrap();
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "error");
        pull.close().unwrap();
        told(ctx, &pull).await.has("which failed and may have changed some resources");
    });
}

#[test]
fn what_was_applied_at_an_earlier_head_counts_where_the_change_is_gone() {
    run_test(two("on_plan"), async |ctx| {
        let pull = applied(ctx).await;
        let earlier = pull.head_commit().unwrap();
        let (a, b) = (ctx.fill(&terraform("a", "1")), ctx.fill(&terraform("b", "3")));
        pull.push(&[("a/main.tf", Some(a.as_str())), ("b/main.tf", Some(b.as_str()))]).await.unwrap();
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        pull.close().unwrap();
        told(ctx, &pull).await.has(&earlier[..7]);
    });
}

#[test]
fn an_import_counts_and_is_named() {
    let setup = Setup::one_project().steps(&["init", "plan"], &["apply"]);
    run_test(setup.flags(&["--allow-commands=plan,apply,unlock,import,state"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis import -d . terraform_data.this known").await.is("import", "success");
        // Its plan is based on the state before.
        let because = "Plan discarded: import of ./default changed the state";
        ctx.status(&pull, "atlantis/plan", "failure", because).await;
        ctx.status(&pull, "atlantis/plan: ./default", "failure", because).await;
        ctx.say(&pull, "atlantis state -d . rm terraform_data.this").await.is("state_rm", "success");
        pull.close().unwrap();
        ctx.next(&pull).await.is_message("cleanup").has("Closed after an apply: 1 project").has("[`state rm` at ");
        ctx.status(&pull, "atlantis/apply", "failure", "Closed after an apply of 1 project").await;
    });
}

#[test]
fn what_another_pull_request_has_applied_since_is_named() {
    run_test(two("on_plan"), async |ctx| {
        let first = applied(ctx).await;
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked");
        let second = ctx.planned_dirs("second", &["a"]).await;
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        first.close().unwrap();
        told(ctx, &first).await.has("; #2 has applied the project since");
    });
}

#[test]
fn what_was_only_planned_or_is_merged_fails_nothing() {
    run_test(two("on_plan"), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has_not("after an apply");
        let second = ctx.planned_own("second", &["b"]).await;
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("cleanup").has_not("after an apply");
        ctx.status(&second, "atlantis/apply", "success", "").await;
        assert!(!first.statuses().unwrap().contains_key("atlantis/apply"));
    });
}

#[test]
fn what_is_reopened_and_closed_again_is_told_again() {
    run_test(two("on_plan"), async |ctx| {
        let pull = applied(ctx).await;
        pull.close().unwrap();
        told(ctx, &pull).await;
        pull.reopen().unwrap();
        ctx.next(&pull).await.is("plan", "success");
        pull.close().unwrap();
        told(ctx, &pull).await;
    });
}

/// In mode `strict` the owner is kept; projects of other modes are reported with it.
#[test]
fn a_closing_counts_the_projects_of_every_mode_in_one_status() {
    let setup = two("on_plan")
        .file("atlantis.yaml", "version: 3\nprojects:\n  - {dir: a, repo_locks: {mode: strict}}\n  - {dir: b}\n");
    let rules = workflow("allowed_overrides: [repo_locks]", &[PLANNED], &["true"]);
    run_test(setup.repos_yaml(&rules), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        pull.close().unwrap();
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let of = |kind: &str| said.iter().find(|said| said.marker["message"] == kind).unwrap();
        of("owes").has("dir `a`").has_not("dir `b`");
        of("cleanup").has("Closed after an apply: 1 project").has("dir `b`").has_not("dir `a`");
        ctx.status(&pull, "atlantis/apply", "failure", "Closed after an apply of 2 projects").await;
    });
}

/// A discarded plan is no success, whoever discards it; a new plan is one again.
#[test]
fn unlocked_plans_fail_their_statuses_until_the_next_plan() {
    run_test(two("on_plan"), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a", "b"]).await;
        ctx.status(&pull, "atlantis/plan", "success", "").await;
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        for context in ["atlantis/plan", "atlantis/plan: a/default", "atlantis/plan: b/default"] {
            ctx.status(&pull, context, "failure", "Plan discarded: unlocked by alice").await;
        }
        assert!(!pull.statuses().unwrap().contains_key("atlantis/apply"));
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "2 with changes").await;
        ctx.say(&pull, "atlantis unlock -d a").await.is_message("unlocked").has("1 project");
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded: unlocked by alice").await;
        ctx.status(&pull, "atlantis/plan: a/default", "failure", "Plan discarded: unlocked by alice").await;
        ctx.status(&pull, "atlantis/plan: b/default", "success", "1 to add").await;
        // A plan of the other project does not hide it.
        ctx.say(&pull, "atlantis plan -d b").await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "failure", "1 with changes, 1 discarded").await;
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={}", ctx.locks().await[0]), &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&pull).await.is_message("discarded");
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded: ").await;
        ctx.status(&pull, "atlantis/plan: b/default", "failure", "Plan discarded: ").await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "2 with changes").await;
    });
}

#[test]
fn plans_that_another_pull_request_unlocks_fail_as_well() {
    run_test(two("on_plan"), async |ctx| {
        let first = ctx.planned_dirs("first", &["a"]).await;
        let second = ctx.planned_dirs("second", &["b"]).await;
        ctx.repo.set_permission("carol", "admin").unwrap();
        ctx.say_as("carol", &second, "atlantis unlock #1 -m 'left for good'").await.is_message("unlocked");
        ctx.next(&first).await.is_message("unlocked");
        ctx.status(&first, "atlantis/plan", "failure", "Plan discarded: unlocked by carol").await;
        ctx.status(&second, "atlantis/plan", "success", "").await;
    });
}

/// With nothing to apply, the status of the apply was a success, which a branch may require.
#[test]
fn nothing_is_up_to_date_once_it_is_unlocked() {
    run_test(Setup::one_project().steps(&[NO_CHANGES], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 up to date").await;
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded: unlocked by alice").await;
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 up to date").await;
    });
}

#[test]
fn what_is_applied_stays_so_when_its_lock_goes() {
    run_test(two("on_plan"), async |ctx| {
        let pull = ctx.planned_dirs("first", &["a"]).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={}", ctx.locks().await[0]), &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&pull).await.is_message("discarded");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        ctx.quiet().await;
        ctx.status(&pull, "atlantis/plan", "success", "").await;
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        pull.close().unwrap();
        told(ctx, &pull).await;
    });
}

/// A configured time limit holds for applies too.
#[test]
fn an_apply_is_interrupted_by_a_limit_that_was_set() {
    let setup = Setup::one_project().steps(&[PLANNED], &["exec sleep 600"]).flags(&["--job-timeout=2s"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error").because("timeout").has("--job-timeout");
    });
}
