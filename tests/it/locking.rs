//! Locks of projects: their holders, refusals, and releases.

use crate::support::*;
use tidelock_forge::Pull;

fn quick() -> Setup {
    Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"])
}

/// Opens two pull requests for one project: the first holds it, the second is refused.
async fn holder_and_refused(ctx: &Ctx) -> (Pull, Pull) {
    let first = ctx.open_input("first", "2").await;
    ctx.next(&first).await.is("plan", "success");
    let second = ctx.open_as("bob", "second", &[("main.tf", &terraform("root", "3"))], Default::default()).await;
    ctx.next(&second).await.is("plan", "failure").because("locked");
    (first, second)
}

#[test]
fn a_second_pull_request_is_told_who_holds_the_project_and_what_frees_it() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        let said = ctx.say_as("bob", &second, "atlantis plan -d .").await;
        said.is("plan", "failure").has(&format!("[#1 Change by first]({})", first.url())).has("planned by alice");
        said.has("by `atlantis unlock` there").has("Or, when the lock is released: `atlantis plan -d .`");
        ctx.status(&second, "atlantis/plan", "failure", "").await;
        ctx.status(&second, "atlantis/plan: ./default", "failure", "Locked by #1").await;
        ctx.say_as("bob", &second, "atlantis apply").await.is("apply", "error").because("no_plan");
        ctx.say_as("bob", &second, "atlantis apply -d .")
            .await
            .is("apply", "failure")
            .has("It is not planned; #1 has locked");
        assert_eq!(ctx.lines("applied"), 0);
        let (status, page) = ctx.request("GET", "/", &[]).await;
        assert!(status == 200 && page.contains("waits for #1") && !page.contains("plan failed"), "{page}");
    });
}

#[test]
fn of_an_apply_of_everything_nothing_begins_while_one_project_is_locked() {
    let setup = quick().file("other/main.tf", &terraform("other", "1"));
    run_test(setup, async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let files = [("main.tf", terraform("root", "3")), ("other/main.tf", terraform("other", "3"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let second = ctx.open_as("bob", "second", &files, Default::default()).await;
        ctx.next(&second).await.has("✗ locked by #1").has("+1 ~0 -0");
        let said = ctx.say_as("bob", &second, "atlantis apply").await;
        said.is("apply", "error").has("Nothing was applied").has("could not be planned").has("`atlantis apply --only`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say_as("bob", &second, "atlantis apply --only").await.is("apply", "success").has("other");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_merge_frees_the_project() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup").has("dir `.` · workspace `default`").has("Next in line");
        // It changes the same line as the merged one, so no tree can be made: it is refused, and nothing is held.
        ctx.next(&second).await.is("plan", "error").has("conflict");
        second.push(&[("main.tf", Some(&ctx.fill(&terraform("root", "4"))))]).await.unwrap();
        ctx.next(&second).await.is("plan", "error").has("conflict");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_close_frees_the_project() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup");
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis plan").await.is_message("closed_pull");
    });
}

#[test]
fn unlock_frees_the_project_and_drops_the_plan() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("dir `.` · workspace `default`");
        ctx.say(&first, "atlantis apply -d .").await.is("apply", "failure").because("no_plan").has("discarded");
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis plan").await.is("plan", "failure").because("locked").has("#2");
    });
}

#[test]
fn deleting_the_lock_on_the_page_frees_the_project_and_tells_the_pull_request() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        let locks = ctx.locks().await;
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={}", locks[0]), &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&first).await.is_message("discarded").has("To plan again: `atlantis plan -d .`");
        ctx.next(&second).await.is("plan", "success");
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={}", locks[0]), &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&second).await.is_message("discarded");
        assert_eq!(ctx.request("DELETE", &format!("/locks?id={}", locks[0]), &[]).await.0, 404);
    });
}

#[test]
fn a_lock_is_deleted_by_the_link_that_the_page_has_for_it() {
    run_test(quick(), async |ctx| {
        let (first, second) = holder_and_refused(ctx).await;
        let (_, page) = ctx.request("GET", "/", &[]).await;
        let id = page.split("lock?id=").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={id}"), &[]).await;
        assert!(status < 400, "{id}: {status} {text}");
        ctx.next(&first).await.is_message("discarded").has("Next in line").has("#2");
        ctx.next(&second).await.is("plan", "success");
        assert_eq!(ctx.locks().await.len(), 1);
    });
}

#[test]
fn a_lock_that_is_deleted_changes_nothing_of_another_name_in_its_directory() {
    let config = "version: 3\nprojects:\n  - {name: one, dir: .}\n  - {name: two, dir: .}\n";
    run_test(quick().file("atlantis.yaml", config), async |ctx| {
        let pull = ctx.open_input("first", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("`one`").has("`two`");
        let locks = ctx.locks().await;
        assert_eq!(locks, ["acme/infra/./default/one", "acme/infra/./default/two"]);
        let (status, text) = ctx.request("DELETE", &format!("/locks?id={}", locks[0]), &[]).await;
        assert!(status < 400, "{status} {text}");
        ctx.next(&pull).await.is_message("discarded").has("`atlantis plan -p one`").has_not("`two`");
        assert_eq!(ctx.locks().await, ["acme/infra/./default/two"]);
        ctx.status(&pull, "atlantis/plan: two", "success", "1 to add").await;
        ctx.say(&pull, "atlantis apply -p one").await.is("apply", "failure").because("no_plan");
        ctx.say(&pull, "atlantis apply -p two").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_plan_that_fails_holds_nothing() {
    run_test(Setup::one_project().steps(&["[ $PULL_NUM = 2 ]", PLANNED], &[]), async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.next(&first).await.is("plan", "error");
        assert!(ctx.locks().await.is_empty());
        let second = ctx.open_input("second", "3").await;
        ctx.next(&second).await.is("plan", "success");
    });
}

#[test]
fn projects_that_are_locked_by_apply_can_be_planned_by_all() {
    let rules = workflow("repo_locks: {mode: on_apply}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open_input("second", "3").await;
        ctx.next(&second).await.is("plan", "success");
        assert!(ctx.locks().await.is_empty());
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
        assert_eq!(ctx.lines("applied"), 1);
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked");
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn projects_without_locks_are_held_by_nobody() {
    let rules = workflow("repo_locks: {mode: disabled}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        for number in ["2", "3"] {
            let pull = ctx.open_input(&format!("change-{number}"), number).await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        }
        assert!(ctx.locks().await.is_empty());
    });
}

/// Two projects whose plan fails, or does not end, if the test says so.
fn breakable() -> Setup {
    let plan = [
        "[ ! -e {tmp}/broken ]",
        "[ ! -e {tmp}/slow ] || { touch {tmp}/begun; while true; do sleep 0.05; done; }",
        PLANNED,
    ];
    Setup::projects(&["a", "b"]).steps(&plan, &["[ ! -e {tmp}/fails ]"])
}

/// Opens a pull request with both projects planned and `a` applied.
async fn applied(ctx: &Ctx) -> Pull {
    let pull = ctx.open_dirs("first", &["a", "b"]).await;
    ctx.next(&pull).await.is("plan", "success");
    ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
    pull
}

/// Checks that `a` is held, until `unlock`, and `b` is not.
async fn only_a_is_held(ctx: &Ctx, pull: &Pull) {
    assert_eq!(ctx.locks().await, ["acme/infra/a/default/"]);
    for file in ["broken", "slow", "fails"] {
        let _ = std::fs::remove_file(ctx.tmp.join(file));
    }
    let other = ctx.open_dirs("second", &["a"]).await;
    ctx.next(&other).await.is("plan", "failure").because("locked").has("#1");
    ctx.say(pull, "atlantis unlock").await.is_message("unlocked");
    ctx.next(&other).await.is("plan", "success");
}

#[test]
fn a_plan_that_fails_does_not_free_an_applied_project() {
    run_test(breakable(), async |ctx| {
        let pull = applied(ctx).await;
        std::fs::write(ctx.tmp.join("broken"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error");
        only_a_is_held(ctx, &pull).await;
    });
}

#[test]
fn a_plan_that_is_cancelled_does_not_free_an_applied_project() {
    run_test(breakable(), async |ctx| {
        let pull = applied(ctx).await;
        std::fs::write(ctx.tmp.join("slow"), "").unwrap();
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.until("a plan has begun", async || ctx.tmp.join("begun").exists()).await;
        pull.comment("bob", "atlantis cancel").unwrap();
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let planned = said.iter().find(|said| said.marker["message"].is_null()).unwrap();
        planned.is("plan", "failure").because("cancelled");
        only_a_is_held(ctx, &pull).await;
    });
}

#[test]
fn a_close_while_it_is_planned_again_tells_what_it_frees() {
    run_test(breakable(), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        std::fs::write(ctx.tmp.join("slow"), "").unwrap();
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.until("a plan has begun", async || ctx.tmp.join("begun").exists()).await;
        pull.close().unwrap();
        ctx.next(&pull).await.is_message("cleanup").has("dir `a` · workspace `default`").has("dir `b`");
        assert!(ctx.locks().await.is_empty());
    });
}

/// The close was accepted first, and waits for the plan that it interrupts: the locks that it releases cause no refusal.
#[test]
fn a_plan_waits_for_a_close_that_came_before_it() {
    let stubborn = format!("trap '' INT TERM; {}", gate("plan"));
    let hooks = "pre_workflow_hooks: [{run: 'echo $HEAD_BRANCH_NAME >> {tmp}/hooked'}]";
    let setup = Setup::one_project().repos_yaml(&workflow(hooks, &[&stubborn, PLANNED], &[]));
    run_test(setup, async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.reached("plan", 1).await;
        first.close().unwrap();
        let second = ctx.open_input("second", "3").await;
        // The close continues when the first plan has ended.
        ctx.until("the second plan wants its lock", async || ctx.lines("hooked") == 2).await;
        ctx.open_gate("plan");
        ctx.next(&first).await.is_message("cleanup");
        ctx.next(&second).await.is("plan", "success");
        ctx.nothing_pending(&second, &[]).await;
        assert_eq!(second.bot_comments().unwrap().len(), 1);
    });
}

#[test]
fn an_applied_project_that_left_the_pull_request_stays_locked() {
    run_test(breakable(), async |ctx| {
        let pull = applied(ctx).await;
        // As on `main` again: only `c` is changed now.
        let as_on_main = |dir: &str| ctx.fill(&terraform(dir, "1"));
        let (a, b, c) = (as_on_main("a"), as_on_main("b"), as_on_main("c"));
        let changes =
            [("a/main.tf", Some(a.as_str())), ("b/main.tf", Some(b.as_str())), ("c/main.tf", Some(c.as_str()))];
        pull.push(&changes).await.unwrap();
        ctx.next(&pull).await.is("plan", "success").has("dir `c`");
        assert_eq!(ctx.locks().await, ["acme/infra/a/default/", "acme/infra/c/default/"]);
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        assert_eq!(ctx.locks().await.len(), 2);
        pull.close().unwrap();
        ctx.next(&pull).await.is_message("cleanup");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_project_whose_apply_broke_stays_locked_as_well() {
    run_test(breakable(), async |ctx| {
        std::fs::write(ctx.tmp.join("fails"), "").unwrap();
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "error");
        std::fs::write(ctx.tmp.join("broken"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error");
        only_a_is_held(ctx, &pull).await;
    });
}

#[test]
fn a_project_whose_state_was_changed_stays_locked_as_well() {
    let plan = ["[ ! -e {tmp}/broken ]", "init", "plan"];
    let setup =
        Setup::one_project().steps(&plan, &["apply"]).flags(&["--allow-commands=plan,apply,unlock,import,state"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis import -d . terraform_data.this known").await.is("import", "success");
        std::fs::write(ctx.tmp.join("broken"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error");
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
    });
}
