//! Escape hatches: the people who may use them, their effects, and the comments and records about them.

use crate::support::*;
use tidelock_forge::{Fault, Gate, Pull};

/// Two projects and these rules; carol administers the repository.
fn guarded(rules: &str) -> Setup {
    let rules = workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    Setup::projects(&["conf/pay", "conf/net"]).repos_yaml(&rules)
}

/// Opens a pull request of alice that has both projects, and one of bob that waits for it.
async fn holder_and_waiter(ctx: &Ctx) -> (Pull, Pull) {
    ctx.repo.set_permission("carol", "admin").unwrap();
    let first = ctx.open_dirs("first", &["conf/pay", "conf/net"]).await;
    ctx.next(&first).await.is("plan", "success");
    let second = ctx.open_dirs("second", &["conf/pay"]).await;
    ctx.next(&second).await.is("plan", "failure").because("locked");
    // A plan that has just been answered is not unlocked from elsewhere until it has ended.
    ctx.quiet().await;
    (first, second)
}

#[test]
fn administrators_unlock_other_pull_requests_and_each_is_told() {
    run_test(guarded(""), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        let said = ctx.say_as("bob", &second, "atlantis unlock #1").await;
        said.is_message("not_permitted").has("bob may not use `unlock`").has("`unlock-others`").has("administrators");
        assert_eq!(ctx.locks().await.len(), 2);
        let said = ctx.say_as("carol", &second, "atlantis unlock #1 #2 #99 -p none -m 'nobody is here'").await;
        said.is_message("unlocked").has("Nothing unlocked for #1: it has no matching locks or plans");
        let said = ctx.say_as("carol", &second, "atlantis unlock #1 #99 -m 'left for good'").await;
        said.is_message("unlocked")
            .has("Unlocked for #1: `conf/net/default`, `conf/pay/default`")
            .has("Nothing unlocked for #99: it has no matching");
        let told = ctx.next(&first).await;
        told.is_message("unlocked").has("Unlocked by carol: 2 projects").has("on #2: left for good.");
        told.has("`atlantis plan`").has("Next in line").has("#2");
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is_message("no_projects");
    });
}

#[test]
fn a_rule_gives_a_hatch_and_a_rule_for_everything_does_not() {
    run_test(guarded("allowed_users: ['*', 'bob:unlock-others']"), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        let said = ctx.say_as("carol", &second, "atlantis unlock #1").await;
        said.is_message("not_permitted").has("let only bob do so").has("`atlantis unlock");
        ctx.say_as("carol", &second, "atlantis freeze -m release").await.is_message("frozen");
        ctx.say_as("carol", &second, "atlantis unfreeze").await.is_message("unfrozen");
        ctx.say_as("bob", &second, "atlantis unlock 1").await.is_message("unlocked").has("Unlocked for #1: ");
        ctx.next(&first).await.is_message("unlocked").has("Unlocked by bob");
        ctx.next(&second).await.is("plan", "success");
    });
}

#[test]
fn no_answer_of_the_host_about_administrators_is_no_yes() {
    run_test(guarded(""), async |ctx| {
        let (_, second) = holder_and_waiter(ctx).await;
        let fault = Fault::Status(500, "{}".to_owned(), Vec::new());
        ctx.forge.fail_next("GET", "**/collaborators/carol/permission", fault, 20).unwrap();
        let said = ctx.say_as("carol", &second, "atlantis freeze -m 'release week'").await;
        said.is_message("not_permitted").has("did not say whether carol may use `freeze`");
        said.has("`atlantis freeze -m 'release week'`");
    });
}

#[test]
fn one_project_is_unlocked_and_the_other_stays() {
    run_test(guarded(""), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        ctx.say(&first, "atlantis unlock -d conf/net").await.is_message("unlocked").has("conf/net").has_not("conf/pay");
        assert_eq!(ctx.locks().await, ["acme/infra/conf/pay/default/"]);
        ctx.say(&first, "atlantis unlock -d 'conf/p*'").await.is_message("unlocked").has("conf/pay");
        ctx.next(&second).await.is("plan", "success");
        // Its own number means the same as none.
        ctx.say(&second, "atlantis unlock #2").await.is_message("unlocked").has("1 project");
    });
}

#[test]
fn a_pull_request_that_applies_is_not_unlocked_from_elsewhere() {
    let setup = guarded("");
    run_test(
        setup.steps(&[PLANNED], &["touch {tmp}/begun; while [ ! -e {tmp}/go ]; do sleep 0.05; done"]),
        async |ctx| {
            let (first, second) = holder_and_waiter(ctx).await;
            first.comment("alice", "atlantis apply -d conf/pay").unwrap();
            ctx.until("the apply has begun", async || ctx.tmp.join("begun").exists()).await;
            let said = ctx.say_as("carol", &second, "atlantis unlock #1").await;
            said.is_message("unlocked")
                .has("Nothing unlocked for #1: an apply of it runs")
                .has("`atlantis cancel --apply`");
            said.has("`atlantis unlock #1`");
            assert_eq!(ctx.locks().await.len(), 2);
            ctx.say(&first, "atlantis unlock").await.is_message("not_permitted").has("`atlantis cancel --apply`");
            std::fs::write(ctx.tmp.join("go"), "").unwrap();
            ctx.next(&first).await.is("apply", "success");
        },
    );
}

#[test]
fn an_unlock_of_others_does_not_wait_for_what_runs_where_it_is_typed() {
    run_test(guarded(""), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        let gate = Gate::new();
        let path = format!("**/pulls/{}", second.number());
        ctx.forge.fail_next("GET", &path, Fault::Hold(gate.clone()), 1).unwrap();
        second.comment("bob", "atlantis plan").unwrap();
        gate.reached(1).await;
        ctx.say_as("carol", &second, "atlantis unlock #1").await.is_message("unlocked").has("Unlocked for #1: ");
        ctx.next(&first).await.is_message("unlocked");
        gate.open();
        ctx.next(&second).await.is("plan", "success");
    });
}

#[test]
fn a_forced_apply_goes_past_requirements_and_never_past_a_lock() {
    let setup = guarded("apply_requirements: [approved]\nrepo_locks: {mode: on_apply}").own_process();
    run_test(setup, async |ctx| {
        ctx.repo.set_permission("carol", "admin").unwrap();
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply --force").await.is_message("usage").has("--force needs a reason");
        let said = ctx.say_as("bob", &pull, "atlantis apply --force -m 'the site is down'").await;
        said.is("apply", "error").because("not_permitted").has("`apply-force`");
        said.has("`atlantis apply --force -m 'the site is down'`");
        assert_eq!(ctx.lines("applied"), 0);
        let said = ctx.say_as("carol", &pull, "atlantis apply --force -m 'the site is down'").await;
        said.is("apply", "success")
            .has("carol applied it with `--force` (reason: the site is down)")
            .has("0 of 1 review");
        assert_eq!(ctx.lines("applied"), 1);
        let other = ctx.open_dirs("other", &["conf/pay"]).await;
        ctx.next(&other).await.is("plan", "success");
        let said = ctx.say_as("carol", &other, "atlantis apply --force -m 'me first'").await;
        said.is("apply", "failure").because("locked").has("#1");
        assert_eq!(ctx.lines("applied"), 1);
        let log = ctx.server.log();
        let said =
            [r#""audit":true"#, r#""act":"apply --force""#, r#""why":"the site is down""#, r#""result":"applied""#];
        assert!(log.lines().any(|line| said.iter().all(|part| line.contains(part))), "{log}");
    });
}

#[test]
fn a_lock_by_hand_is_taken_as_a_whole_and_outlives_a_plan_that_fails() {
    let rules = workflow(
        "repo_locks: {mode: on_apply}",
        &["[ ! -e {tmp}/broken ]", PLANNED],
        &["echo applied >> {tmp}/applied"],
    );
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open_dirs("second", &["a", "b"]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis lock").await.is_message("usage").has("lock needs a reason");
        ctx.say_as("bob", &first, "atlantis lock -m mine").await.has("bob may not use `lock`");
        let said = ctx.say(&first, "atlantis lock -m 'I migrate its state by hand'").await;
        said.is_message("locked").has("I migrate its state by hand").has("dir `a`").has("`atlantis unlock`");
        let said = ctx.say(&second, "atlantis lock -m 'me too'").await;
        said.is_message("not_locked").has("`a/default` is held by #1 (alice").has("`atlantis unlock #1`");
        assert_eq!(ctx.locks().await, ["acme/infra/a/default/"]);
        ctx.say(&second, "atlantis apply -d a").await.is("apply", "failure").because("locked").has("#1");
        std::fs::write(ctx.tmp.join("broken"), "").unwrap();
        ctx.say(&first, "atlantis plan").await.is("plan", "error");
        assert_eq!(ctx.locks().await, ["acme/infra/a/default/"]);
        // The next in line is planned as soon as it is unlocked.
        std::fs::remove_file(ctx.tmp.join("broken")).unwrap();
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked");
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis lock -m now").await.is_message("locked");
        assert_eq!(ctx.locks().await.len(), 2);
    });
}

#[test]
fn a_right_to_one_directory_unlocks_no_other_one() {
    run_test(guarded("allowed_users: ['*', 'bob:unlock-others:conf/net']"), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        let said = ctx.say_as("bob", &second, "atlantis unlock #1").await;
        said.is_message("not_permitted").has("`unlock` on `conf/pay/default`").has("let nobody do so");
        assert_eq!(ctx.locks().await.len(), 2);
        let said = ctx.say_as("bob", &second, "atlantis unlock #1 -d conf/net").await;
        said.is_message("unlocked").has("Unlocked for #1: `conf/net/default`");
        ctx.next(&first).await.is_message("unlocked").has("Unlocked by bob");
        assert_eq!(ctx.locks().await, ["acme/infra/conf/pay/default/"]);
    });
}

#[test]
fn each_pull_request_is_unlocked_or_refused_for_its_own_reason() {
    run_test(guarded("allowed_users: ['*', 'bob:unlock-others:conf/net']"), async |ctx| {
        let first = ctx.planned_dirs("first", &["conf/pay"]).await;
        let second = ctx.planned_dirs("second", &["conf/net"]).await;
        let third = ctx.open_dirs("third", &["conf/pay"]).await;
        ctx.next(&third).await.is("plan", "failure").because("locked");
        ctx.quiet().await;
        let said = ctx.say_as("bob", &third, "atlantis unlock #1 #2").await;
        said.is_message("unlocked").has("Unlocked for #2: `conf/net/default`");
        said.has("Nothing unlocked for #1: bob may not use `unlock` on `conf/pay/default`").has("let nobody do so");
        assert_eq!(ctx.locks().await, ["acme/infra/conf/pay/default/"]);
        ctx.next(&second).await.is_message("unlocked").has("Unlocked by bob");
        // To unlock one's own takes no right to unlock others.
        let said = ctx.say_as("bob", &first, "atlantis unlock #1 #99").await;
        said.is_message("unlocked")
            .has("Unlocked for #1: `conf/pay/default`")
            .has("Nothing unlocked for #99: it has no matching");
        ctx.next(&third).await.is("plan", "success");
    });
}

#[test]
fn an_unlock_of_holder_and_waiter_frees_both() {
    run_test(guarded(""), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        let third = ctx.open_dirs("third", &["conf/pay"]).await;
        ctx.next(&third).await.is("plan", "failure").has("2nd in line, behind #2");
        ctx.quiet().await;
        let said = ctx.say_as("carol", &third, "atlantis unlock #1 #2 -m 'stale'").await;
        said.has("Unlocked for #1: ").has("Unlocked for #2: it no longer waits for `conf/pay/default`");
        ctx.next(&first).await.is_message("unlocked").has("Unlocked by carol");
        ctx.next(&second).await.is_message("unlocked").has("Unlocked by carol");
        ctx.next(&third).await.is_replan("success");
        assert_eq!(ctx.locks().await, ["acme/infra/conf/pay/default/"]);
        ctx.quiet().await;
        assert_eq!(second.bot_comments().unwrap().len(), 2, "it is not planned");
    });
}

#[test]
fn a_pull_request_that_plans_is_not_unlocked_from_elsewhere() {
    let waits = "while [ -e {tmp}/hold ]; do touch {tmp}/planning; sleep 0.05; done";
    run_test(guarded("").steps(&[PLANNED, waits], &["true"]), async |ctx| {
        let (first, second) = holder_and_waiter(ctx).await;
        std::fs::write(ctx.tmp.join("hold"), "").unwrap();
        first.comment("alice", "atlantis plan -d conf/pay").unwrap();
        ctx.until("the plan has begun", async || ctx.tmp.join("planning").exists()).await;
        let said = ctx.say_as("carol", &second, "atlantis unlock #1").await;
        said.is_message("unlocked").has("Nothing unlocked for #1: `plan` of it runs").has("`atlantis cancel` there");
        assert_eq!(ctx.locks().await.len(), 2);
        std::fs::remove_file(ctx.tmp.join("hold")).unwrap();
        ctx.next(&first).await.is("plan", "success");
    });
}
