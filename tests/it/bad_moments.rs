//! Promises hold at bad moments: a command between the queue and the start, a host that does not answer during a command, a full disk when
//! a job begins or ends.

use crate::support::*;
use tidelock_forge::{Fault, Gate, Pull};

const APPLIED: &str = "echo applied >> {tmp}/applied";

/// Two projects at `first` and `second`; the second one's apply needs an approval.
fn one_needs_approval() -> Setup {
    let config = "version: 3\nprojects:\n  - dir: first\n  - dir: second\n    apply_requirements: [approved]\n";
    let rules =
        workflow("allowed_overrides: [apply_requirements]", &[PLANNED], &["echo $REPO_REL_DIR >> {tmp}/applied"]);
    Setup::projects(&["first", "second"]).file("atlantis.yaml", config).repos_yaml(&rules)
}

/// Comments while the server asks the host about the pull request; the gate lets the server continue.
async fn said_and_held(ctx: &Ctx, pull: &Pull, comment: &str) -> std::sync::Arc<Gate> {
    let gate = Gate::new();
    ctx.forge.fail_next("GET", &format!("**/pulls/{}", pull.number()), Fault::Hold(gate.clone()), 1).unwrap();
    pull.comment("alice", comment).unwrap();
    gate.reached(1).await;
    gate
}

#[test]
fn an_apply_that_is_cancelled_before_it_starts_does_not_run() {
    run_test(Setup::one_project().steps(&[PLANNED], &[APPLIED]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for cancel in ["atlantis cancel --apply", "atlantis cancel"] {
            let gate = said_and_held(ctx, &pull, "atlantis apply").await;
            ctx.say_as("bob", &pull, cancel).await.is_message("cancelled").has("the waiting `apply`");
            gate.open();
            ctx.quiet().await;
            assert_eq!(ctx.lines("applied"), 0, "after {cancel}");
        }
        // The plan is not used up.
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn an_unlock_that_is_cancelled_before_it_is_done_is_not_done() {
    run_test(Setup::one_project().steps(&[PLANNED], &[APPLIED]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let gate = said_and_held(ctx, &pull, "atlantis unlock").await;
        ctx.say_as("bob", &pull, "atlantis cancel").await.is_message("cancelled").has("the waiting `unlock`");
        gate.open();
        ctx.quiet().await;
        assert_eq!(ctx.locks().await.len(), 1);
    });
}

#[test]
fn a_lock_is_deleted_on_the_page_as_long_as_its_apply_has_not_begun() {
    run_test(Setup::one_project().steps(&[PLANNED], &[APPLIED]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let gate = said_and_held(ctx, &pull, "atlantis apply -d .").await;
        let (status, text) = ctx.request("DELETE", "/locks?id=acme/infra/./default/", &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&pull).await.is_message("discarded");
        gate.open();
        ctx.next(&pull).await.is("apply", "failure").because("no_plan");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn a_host_that_does_not_say_who_approved_is_the_outcome_of_that_project_alone() {
    run_test(one_needs_approval(), async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        let refusal = Fault::Status(403, "{\"message\":\"not now\"}".into(), Vec::new());
        // A step of the first project asks as well, for its environment.
        ctx.forge.fail_next("GET", "**/reviews", refusal, 2).unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        assert_eq!(said.outcomes(), [("first".into(), "success".into()), ("second".into(), "error".into())]);
        said.has("did not say whether the pull request is approved");
        ctx.status(&pull, "atlantis/apply", "failure", "1 of 2 failed").await;
        ctx.nothing_pending(&pull, &[]).await;
        // Its plan is not used up.
        ctx.say(&pull, "atlantis apply -d second").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_host_that_does_not_answer_is_the_outcome_of_one_project_of_a_plan() {
    let config = "version: 3\nprojects:\n  - dir: first\n  - dir: second\n    plan_requirements: [approved]\n";
    let rules = workflow("allowed_overrides: [plan_requirements]", &[PLANNED], &[APPLIED]);
    let setup = Setup::projects(&["first", "second"]).file("atlantis.yaml", config).repos_yaml(&rules);
    run_test(setup, async |ctx| {
        let refusal = Fault::Status(403, "{\"message\":\"not now\"}".into(), Vec::new());
        // A step of the first project asks as well, for its environment.
        ctx.forge.fail_next("GET", "**/reviews", refusal, 2).unwrap();
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("first".into(), "success".into()), ("second".into(), "error".into())]);
        said.has("did not say whether the pull request is approved");
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

/// Makes every matching change of the server's state fail, as on a full disk.
fn refuse_changes(ctx: &Ctx, of: &str) {
    sql(ctx, &format!("CREATE TRIGGER full {of} BEGIN SELECT RAISE(ABORT, 'no room is left'); END"));
}

fn sql(ctx: &Ctx, text: &str) {
    let database = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
    database.busy_timeout(LIMIT).unwrap();
    database.execute_batch(text).unwrap();
}

#[test]
fn a_hook_that_cannot_begin_after_the_results_gives_no_second_answer() {
    let rules = workflow("post_workflow_hooks:\n  - run: echo after", &[PLANNED], &[APPLIED]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        refuse_changes(ctx, "BEFORE INSERT ON jobs WHEN NEW.record LIKE '%post_workflow_hook%'");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        sql(ctx, "DROP TRIGGER full");
        ctx.say(&pull, "atlantis help").await.is_message("help");
    });
}

#[test]
fn an_apply_that_has_no_room_for_its_log_uses_no_plan_up() {
    run_test(Setup::one_project().steps(&[PLANNED], &[APPLIED]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let (logs, away) = (ctx.server.data("logs"), ctx.tmp.join("logs"));
        std::fs::rename(&logs, &away).unwrap();
        std::fs::write(&logs, "").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        ctx.nothing_pending(&pull, &[]).await;
        std::fs::remove_file(&logs).unwrap();
        std::fs::rename(&away, &logs).unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn an_apply_whose_end_cannot_be_recorded_is_told_with_the_others_and_ends_all_the_same() {
    let setup = Setup::projects(&["first", "second"]).steps(&[PLANNED], &["echo $REPO_REL_DIR >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        refuse_changes(
            ctx,
            "BEFORE UPDATE ON jobs WHEN NEW.state = 'succeeded' AND json_extract(NEW.record, '$.project.dir') = 'first'",
        );
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "success");
        assert_eq!((said.outcomes().len(), ctx.lines("applied")), (2, 2));
        ctx.quiet().await;
        ctx.nothing_pending(&pull, &[]).await;
        let database = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        let running = "SELECT count(*) FROM jobs WHERE state = 'running'";
        assert_eq!(database.query_row(running, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        drop(database);
        sql(ctx, "DROP TRIGGER full");
    });
}

#[test]
fn an_apply_whose_end_cannot_be_recorded_at_once_is_recorded_with_the_answer() {
    let apply = format!("test $REPO_REL_DIR = first || ({})", gate("second"));
    let setup = Setup::projects(&["first", "second"]).steps(&[PLANNED], &[&apply]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        refuse_changes(ctx, "BEFORE UPDATE ON jobs WHEN NEW.state = 'succeeded'");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("second", 1).await;
        sql(ctx, "DROP TRIGGER full");
        ctx.open_gate("second");
        ctx.next(&pull).await.is("apply", "success");
        ctx.quiet().await;
        ctx.status(&pull, "atlantis/apply: first/default", "success", "").await;
        let database = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        let applied =
            "SELECT count(*) FROM jobs WHERE state = 'succeeded' AND json_extract(record, '$.kind') = 'apply'";
        assert_eq!(database.query_row(applied, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
        drop(database);
        ctx.status(&pull, "atlantis/apply", "success", "2/2 applied").await;
    });
}

#[test]
fn what_ran_when_the_server_was_killed_has_ended_after_the_next_start() {
    let hook = serde_json::Value::from(gate("hook"));
    let rules = workflow(&format!("post_workflow_hooks:\n  - run: {hook}"), &[PLANNED], &[APPLIED]);
    run_test(Setup::one_project().repos_yaml(&rules).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.reached("hook", 1).await;
        let hook = "atlantis/post_workflow_hook: Post workflow hook #0";
        ctx.status(&pull, hook, "pending", "").await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.status(&pull, hook, "failure", "the server ended").await;
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        ctx.open_gate("hook");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
