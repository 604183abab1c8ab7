//! Lines of pull requests that wait for a project: their order, turns when it is released, and automatic re-plans.

use crate::support::*;
use serde_json::Value;
use std::time::{Duration, Instant};
use tidelock_forge::{Fault, Gate, OpenOptions};

/// Projects with these rules; each apply writes its pull request's number.
fn with_rules(rules: &str, dirs: &[&str]) -> Setup {
    Setup::projects(dirs).repos_yaml(&workflow(rules, &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]))
}

fn strict(dirs: &[&str]) -> Setup {
    with_rules("repo_locks: {mode: strict}", dirs)
}

/// Returns the place and the number of the one before, as in the hidden line of a refusal.
fn place(said: &Said) -> (Option<u64>, Option<u64>) {
    let row = &said.marker["results"][0];
    (row["place"].as_u64(), row["behind"].as_u64())
}

/// Returns `dir #holder: waiting ones` of each lock in the API.
async fn lines(ctx: &Ctx) -> Vec<String> {
    let all = ctx.json("/api/locks").await;
    let rows = all["Locks"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let waiting = |row: &Value| row["Waiting"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(" ");
    let line = |row: &Value| format!("{} #{}: {}", text(&row["ProjectRepoPath"]), text(&row["PullID"]), waiting(row));
    rows.iter().map(line).collect()
}

#[test]
fn who_is_refused_waits_in_line_and_is_planned_when_the_project_is_free() {
    run_test(with_rules("repo_locks: {mode: on_plan}", &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        let said = ctx.next(&second).await;
        said.is("plan", "failure").has("This pull request is 1st in line, behind #1");
        assert_eq!(place(&said), (Some(1), Some(1)));
        let third = ctx.open_own("third", &["a"]).await;
        let said = ctx.next(&third).await;
        said.is("plan", "failure").has("2nd in line, behind #2");
        assert_eq!(place(&said), (Some(2), Some(2)));
        // Asking again does not lose the place.
        assert_eq!(place(&ctx.say(&second, "atlantis plan").await), (Some(1), Some(1)));
        assert_eq!(lines(ctx).await, ["a #1: 2 3"]);
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("waiting: #2, #3"), "{page}");
        ctx.server.restart().await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup").has("Next in line for dir `a` · workspace `default`: #2");
        let said = ctx.next(&second).await;
        said.is_replan("success");
        said.has("Planned automatically: a project was released.");
        assert_eq!(lines(ctx).await, ["a #2: 3"]);
        ctx.say(&second, "atlantis unlock").await.is_message("unlocked").has("Next in line for").has("#3");
        ctx.next(&third).await.is_replan("success");
        assert_eq!(lines(ctx).await, ["a #3: "]);
        let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
        for line in ["lock_wait_duration_seconds_count 2", "lock_waits 0", "locks 1"] {
            assert!(metrics.contains(&format!("\ntidelock_{line}\n")), "{line}: {metrics}");
        }
    });
}

/// Autoplan leaves the project out. A pull request whose author asked for its plan and waited gets a comment that it is free.
#[test]
fn a_turn_for_what_autoplan_leaves_out_is_told() {
    let config = "version: 3\nprojects:\n  - dir: a\n  - dir: b\n    autoplan: {enabled: false}\n";
    let setup = with_rules("repo_locks: {mode: on_plan}", &["a", "b"]).file("atlantis.yaml", config);
    run_test(setup, async |ctx| {
        let first = ctx.planned_own("first", &["a", "b"]).await;
        ctx.say(&first, "atlantis plan -d b").await.is("plan", "success");
        let second = ctx.open_own("second", &["a", "b"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        ctx.say(&second, "atlantis plan -d b").await.is("plan", "failure").because("locked");
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked");
        let said = ctx.next(&second).await;
        said.is_replan("success")
            .has("`b/default` is released, but autoplan does not include it. To plan it: `atlantis plan -d b`");
        // It waits for that one alone.
        let third = ctx.open_own("third", &["b"]).await;
        ctx.say(&third, "atlantis plan -d b").await.is("plan", "success");
        ctx.say(&second, "atlantis plan -d b").await.is("plan", "failure").because("locked");
        ctx.say(&third, "atlantis unlock").await.is_message("unlocked");
        ctx.next(&second)
            .await
            .is_message("lock_freed")
            .has("Released, not planned automatically: 1 project")
            .has("Autoplan does not include this project");
    });
}

/// The plan of the push keeps the lock of the plan that it interrupts.
#[test]
fn a_push_while_it_is_planned_costs_nobody_the_turn() {
    let hook = "echo >> {tmp}/hooked; while [ -e {tmp}/held ]; do sleep 0.05; done";
    let rules = format!("repo_locks: {{mode: on_plan}}\npre_workflow_hooks: [{{run: '{hook}'}}]");
    let steps = workflow(&rules, &[&gate("plan"), PLANNED], &["true"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&steps), async |ctx| {
        let first = ctx.open_own("first", &["a"]).await;
        ctx.reached("plan", 1).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        std::fs::write(ctx.tmp.join("held"), "").unwrap();
        first.push(&[("a/more.tf", Some("# more\n"))]).await.unwrap();
        ctx.until("the plan of the push has begun", async || ctx.lines("hooked") == 3).await;
        assert_eq!(lines(ctx).await, ["a #1: 2"]);
        std::fs::remove_file(ctx.tmp.join("held")).unwrap();
        ctx.open_gate("plan");
        ctx.next(&first).await.is("plan", "success");
        ctx.quiet().await;
        assert_eq!(second.bot_comments().unwrap().len(), 1);
        assert_eq!(lines(ctx).await, ["a #1: 2"]);
    });
}

#[test]
fn who_goes_leaves_the_line() {
    run_test(with_rules("repo_locks: {mode: on_plan}", &["a", "b"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let mut waiting = Vec::new();
        for branch in ["closes", "unlocks", "moves", "stays"] {
            let pull = ctx.open_own(branch, &["a"]).await;
            ctx.next(&pull).await.is("plan", "failure").because("locked");
            waiting.push(pull);
        }
        assert_eq!(lines(ctx).await, ["a #1: 2 3 4 5"]);
        waiting[0].close().unwrap();
        ctx.say(&waiting[1], "atlantis unlock").await.is_message("unlocked");
        // It does not change the project any more.
        waiting[2].push(&[("a/moves.tf", None), ("b/moves.tf", Some("# b\n"))]).await.unwrap();
        ctx.next(&waiting[2]).await.is("plan", "success").has("dir `b`");
        ctx.quiet().await;
        assert_eq!(lines(ctx).await, ["a #1: 5", "b #4: "]);
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has("Next in line").has("#5");
        ctx.next(&waiting[3]).await.is_replan("success");
    });
}

#[test]
fn an_apply_that_a_lock_refuses_waits_as_well() {
    run_test(with_rules("repo_locks: {mode: on_apply}", &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let (second, third) = (ctx.planned_own("second", &["a"]).await, ctx.planned_own("third", &["a"]).await);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert_eq!(place(&ctx.say(&second, "atlantis apply").await), (Some(1), Some(1)));
        assert_eq!(place(&ctx.say(&third, "atlantis apply").await), (Some(2), Some(2)));
        // A plan of a locked project takes no turn.
        ctx.say(&second, "atlantis plan").await.is("plan", "success");
        assert_eq!(lines(ctx).await, ["a #1: 2 3"]);
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup").has("#2").has("#3");
        // Plans lock nothing: each of them gets its own.
        ctx.next(&second).await.is_replan("success");
        ctx.next(&third).await.is_replan("success");
        ctx.quiet().await;
        ctx.say(&third, "atlantis apply").await.is("apply", "success");
        assert_eq!(lines(ctx).await, ["a #3: "]);
    });
}

#[test]
fn an_invalidated_plan_is_made_again_once_when_the_owner_is_done() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_own("first", &["a", "b"]).await;
        let second = ctx.planned_own("second", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("after #1 releases it").has("`atlantis plan`");
        ctx.say(&first, "atlantis apply -d b").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell");
        assert_eq!(lines(ctx).await, ["a #1: 2", "b #1: 2"]);
        ctx.quiet().await;
        first.merge().await.unwrap();
        let said = ctx.next(&second).await;
        said.is_replan("success");
        assert_eq!(said.outcomes().len(), 2);
        assert!(lines(ctx).await.is_empty());
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn an_apply_that_an_owner_refuses_waits_for_what_the_owner_has() {
    run_test(strict(&["a", "b", "c"]), async |ctx| {
        let first = ctx.planned_own("first", &["a", "b"]).await;
        let second = ctx.planned_own("second", &["b", "c"]).await;
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "success");
        let said = ctx.say(&second, "atlantis apply -d c").await;
        said.is("apply", "failure").because("locked").has("1st in line, behind #1");
        assert_eq!(lines(ctx).await, ["a #1: ", "b #1: 2"]);
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("waiting: #2"), "{page}");
        first.close().unwrap();
        ctx.next(&first).await.is_message("owes");
        // A project that was only planned is free, and plans of projects that were never held are unchanged.
        let said = ctx.next(&second).await;
        said.is_replan("success");
        assert_eq!(said.outcomes(), [("b".to_owned(), "success".to_owned())]);
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 3);
    });
}

#[test]
fn a_plan_invalidated_by_a_merge_waits_for_its_apply_and_leaves_the_other_plans_alone() {
    run_test(strict(&["a", "b"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.planned_own("second", &["a", "b"]).await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes");
        ctx.next(&second).await.is_message("plans_fell").has("after #1 releases it");
        ctx.say(&first, "atlantis unlock --accept-drift -m 'by hand'").await.is_message("unlocked").has("#2");
        let said = ctx.next(&second).await;
        said.is_replan("success");
        assert_eq!(said.outcomes(), [("a".to_owned(), "success".to_owned())]);
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_turn_survives_a_kill_and_comes_about_once() {
    run_test(with_rules("repo_locks: {mode: on_plan}", &["a"]).own_process(), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        // The host is asked about the second one only when its turn has come.
        let (gate, path) = (Gate::new(), format!("**/pulls/{}", second.number()));
        ctx.forge.fail_next("GET", &path, Fault::Hold(gate.clone()), 1).unwrap();
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("#2");
        gate.reached(1).await;
        ctx.server.kill().await;
        gate.open();
        ctx.server.start().await;
        ctx.next(&second).await.is_replan("success");
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.quiet().await;
        assert_eq!(lines(ctx).await, ["a #2: "]);
    });
}

/// Cuts the plan of a turn, by an orderly end of the server or a kill. The next server goes on with it.
fn a_turn_that_was_cut_goes_on(orderly: bool) {
    let rules = workflow("repo_locks: {mode: on_plan}", &[&gate("plan"), PLANNED], &["true"]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules).own_process(), async |ctx| {
        ctx.open_gate("plan");
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        std::fs::remove_file(ctx.tmp.join("plan.open")).unwrap();
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked");
        ctx.reached("plan", 2).await;
        match orderly {
            true => ctx.server.stop().await,
            false => ctx.server.kill().await,
        }
        ctx.server.start().await;
        ctx.open_gate("plan");
        ctx.next(&second).await.is_replan("success");
        ctx.quiet().await;
    });
}

#[test]
fn a_turn_that_was_cut_goes_on_after_a_kill() {
    a_turn_that_was_cut_goes_on(false);
}

#[test]
fn a_turn_that_was_cut_goes_on_after_a_shutdown() {
    a_turn_that_was_cut_goes_on(true);
}

#[test]
fn what_autoplan_would_not_plan_is_told_to_be_free_and_the_next_one_has_its_turn() {
    let setup = with_rules("repo_locks: {mode: on_plan}", &["a"]).flags(&["--disable-autoplan-label=by-hand"]);
    run_test(setup, async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let labelled = OpenOptions { labels: vec!["by-hand".to_owned()], ..OpenOptions::default() };
        let second = ctx.open_as("bob", "second", &[("a/second.tf", "# second\n")], labelled).await;
        ctx.say(&second, "atlantis plan").await.is("plan", "failure").because("locked");
        let third = ctx.open_own("third", &["a"]).await;
        ctx.next(&third).await.is("plan", "failure").because("locked");
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has("#2");
        let said = ctx.next(&second).await;
        said.is_message("lock_freed").has("--disable-autoplan-label").has("`atlantis plan -d a`");
        ctx.next(&third).await.is_replan("success");
        assert_eq!(lines(ctx).await, ["a #3: "]);
    });
}

#[test]
fn a_plan_that_a_person_asks_for_comes_first_and_is_the_turn() {
    run_test(with_rules("repo_locks: {mode: on_plan}", &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        let (gate, path) = (Gate::new(), format!("**/pulls/{}", second.number()));
        ctx.forge.fail_next("GET", &path, Fault::Hold(gate.clone()), 1).unwrap();
        second.comment("bob", "atlantis plan").unwrap();
        gate.reached(1).await;
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("#2");
        gate.open();
        let said = ctx.next(&second).await;
        said.is("plan", "success");
        assert_eq!(said.marker["trigger"], "comment");
        ctx.quiet().await;
        assert_eq!(lines(ctx).await, ["a #2: "]);
    });
}

#[test]
fn what_is_owed_is_told_again_after_each_interval_until_it_has_ended() {
    const INTERVAL: Duration = Duration::from_secs(4);
    let rules = format!("repo_locks: {{mode: strict}}\nreminder_interval: {}s", INTERVAL.as_secs());
    run_test(with_rules(&rules, &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        // Taken before the first reminder: intervals begin when it is recorded, and not when it is read here.
        let began = Instant::now();
        first.close().unwrap();
        ctx.next(&first).await.is_message("owes").has("Closed after an apply: 1 project");
        let said = ctx.next(&first).await;
        said.is_message("owes").has("Still applied but not merged: 1 project").has("dir `a`");
        said.has("`atlantis unlock --accept-drift -m \"why\"`");
        ctx.server.restart().await;
        ctx.next(&first).await.is_message("owes").has("Still applied but not merged");
        // The comment comes after its recording; a restart repeats nothing.
        assert!(began.elapsed() > INTERVAL * 2 - Duration::from_secs(2), "{:?}", began.elapsed());
        first.comment("alice", "atlantis unlock --accept-drift -m 'it is as we want it'").unwrap();
        while ctx.next(&first).await.marker["message"] != "unlocked" {}
        assert!(lines(ctx).await.is_empty());
    });
}

/// Rules about permission to plan do not block anybody: the last ones who planned or pushed the head are known.
#[test]
fn with_rules_about_who_may_plan_it_is_planned_for_whom_its_head_was_planned() {
    let rules = "repo_locks: {mode: on_plan}\nallowed_users: [alice]";
    run_test(with_rules(rules, &["a"]), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        // Nobody may plan bob's push, until alice does.
        let third = ctx.open_as("bob", "third", &[("a/third.tf", "# third\n")], OpenOptions::default()).await;
        ctx.status(&third, "atlantis/plan", "failure", "bob may not use `plan`").await;
        ctx.say(&third, "atlantis plan").await.is("plan", "failure").because("locked");
        ctx.say_as("bob", &third, "atlantis plan").await.is("plan", "error").because("not_permitted");
        assert_eq!(lines(ctx).await, ["a #1: 2 3"]);
        ctx.server.restart().await;
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has("#2");
        ctx.next(&second).await.is_replan("success");
        second.close().unwrap();
        ctx.next(&second).await.is_message("cleanup").has("#3");
        ctx.next(&third).await.is_replan("success");
        assert_eq!(lines(ctx).await, ["a #3: "]);
    });
}

#[test]
fn with_rules_about_who_may_plan_an_invalidated_plan_and_a_layer_are_planned_too() {
    let config = "version: 3\nprojects:\n  - {dir: a, name: a}\n  - {dir: b, name: b, depends_on: [a]}\n";
    let rules = "repo_locks: {mode: strict}\nallowed_users: [alice]";
    run_test(with_rules(rules, &["a", "b"]).file("atlantis.yaml", config), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.planned_own("second", &["a", "b"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("after #1 releases it");
        first.merge().await.unwrap();
        ctx.next(&second).await.is_replan("success").has("`a`");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_replan("success").has("`b`");
    });
}

/// Permission to plan is checked when the turn comes.
#[test]
fn who_lost_the_right_meanwhile_is_told_that_it_is_free_and_the_next_one_has_its_turn() {
    let rules = workflow("repo_locks: {mode: on_plan}", &[PLANNED], &["true"]);
    let setup =
        Setup::projects(&["a"]).repos_yaml(&format!("{rules}team_authz: {{command: /bin/sh {{tmp}}/authz.sh}}\n"));
    run_test(setup, async |ctx| {
        let script = ctx.tmp.join("authz.sh");
        std::fs::write(&script, "echo pass\n").unwrap();
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_as("bob", "second", &[("a/second.tf", "# second\n")], OpenOptions::default()).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        let third = ctx.open_own("third", &["a"]).await;
        ctx.next(&third).await.is("plan", "failure").because("locked");
        std::fs::write(&script, "[ \"$USER_NAME\" != bob ] && echo pass\n").unwrap();
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has("#2");
        let said = ctx.next(&second).await;
        said.is_message("lock_freed").has("bob may not use `plan`").has("`atlantis plan -d a`");
        ctx.next(&third).await.is_replan("success");
        assert_eq!(lines(ctx).await, ["a #3: "]);
        // It is planned for one of those who planned its head and still may.
        ctx.say(&second, "atlantis plan").await.is("plan", "failure").because("locked");
        ctx.say_as("bob", &second, "atlantis plan").await.is("plan", "error").because("not_permitted");
        third.close().unwrap();
        ctx.next(&third).await.is_message("cleanup").has("#2");
        ctx.next(&second).await.is_replan("success");
    });
}

/// A re-plan was promised for the invalidated plan: if nobody may make it, that is reported.
#[test]
fn an_invalidated_plan_that_nobody_may_make_again_is_told() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["true"]);
    let setup =
        Setup::projects(&["a"]).repos_yaml(&format!("{rules}team_authz: {{command: /bin/sh {{tmp}}/authz.sh}}\n"));
    run_test(setup, async |ctx| {
        let script = ctx.tmp.join("authz.sh");
        std::fs::write(&script, "echo pass\n").unwrap();
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_as("bob", "second", &[("a/second.tf", "# second\n")], OpenOptions::default()).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("after #1 releases it");
        std::fs::write(&script, "[ \"$USER_NAME\" != bob ] && echo pass\n").unwrap();
        first.merge().await.unwrap();
        let said = ctx.next(&second).await;
        said.is_message("lock_freed").has("bob may not use `plan`").has("`atlantis plan -d a`");
    });
}
