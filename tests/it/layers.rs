//! Layers, in mode `strict`: a project that depends on others of the pull request is planned when those are applied.

use crate::support::*;

/// `b` depends on `net` in `a`, and `c` on `b`.
const CHAIN: &str = "version: 3\nprojects:\n  - {dir: c, name: c, depends_on: [b]}\n  - {dir: b, name: b, depends_on: [net]}\n  - {dir: a, name: net}\n";

fn chain() -> Setup {
    layered(&[PLANNED], &["basename $PWD >> {tmp}/applied"])
}

fn layered(plan: &[&str], apply: &[&str]) -> Setup {
    let rules = workflow("repo_locks: {mode: strict}", plan, apply);
    Setup::projects(&["a", "b", "c"]).repos_yaml(&rules).file("atlantis.yaml", CHAIN)
}

fn applied(ctx: &Ctx) -> Vec<String> {
    let text = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_depends_on_others_is_planned_layer_by_layer() {
    run_test(chain(), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b", "c"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("Not planned yet: `b` waits for `net`. The server plans it after that apply");
        said.has("`c` waits for `b`").has("`atlantis plan -p b`").has_not("failed");
        ctx.status(&pull, "atlantis/plan", "success", "1 with changes, 2 wait for others").await;
        ctx.status(&pull, "atlantis/plan: b", "pending", "Waits for net").await;
        assert!(ctx.request("GET", "/", &[]).await.1.contains("waits for another project"));
        let said = ctx.say(&pull, "atlantis apply -p b").await;
        said.is("apply", "failure").because("dependency").has("`atlantis apply -p net`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("`net`");
        let said = ctx.next(&pull).await;
        said.is_replan("success").has("`b`").has("a dependency was applied").has_not("`c`");
        ctx.status(&pull, "atlantis/plan: b", "success", "").await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_replan("success").has("`c`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a", "b", "c"]);
        ctx.status(&pull, "atlantis/apply", "success", "3/3 applied").await;
        ctx.quiet().await;
        assert_eq!(pull.bot_comments().unwrap().len(), 7);
    });
}

/// A project without changes makes no other wait.
#[test]
fn a_layer_without_changes_is_passed_at_once() {
    let unchanged = "case $PROJECT_NAME in b) echo 'No changes. Your infrastructure matches the configuration.';; *) echo 'Plan: 1 to add, 0 to change, 0 to destroy.';; esac";
    run_test(layered(&[unchanged], &["basename $PWD >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b", "c"]).await;
        ctx.next(&pull).await.is("plan", "success").has("`b` waits for `net`");
        ctx.say(&pull, "atlantis apply -p net").await.is("apply", "success");
        let mut planned = Vec::new();
        while !planned.contains(&"c".to_owned()) {
            let said = ctx.next(&pull).await;
            planned.extend(said.is_replan("success").outcomes().into_iter().map(|(dir, _)| dir));
        }
        assert_eq!(planned, ["b", "c"]);
        let second = ctx.open_dirs("second", &["b", "c"]).await;
        ctx.next(&second).await.is("plan", "success").has_not("waits for");
    });
}

/// The last layer is not applied if it has no changes: its plan is the end.
#[test]
fn automerge_follows_a_last_layer_without_changes_as_the_last_apply_asked_for_it() {
    let unchanged = "case $PROJECT_NAME in b) echo 'No changes. Your infrastructure matches the configuration.';; *) echo 'Plan: 1 to add, 0 to change, 0 to destroy.';; esac";
    let setup = layered(&[unchanged], &["basename $PWD >> {tmp}/applied"]).flags(&["--automerge"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success").has("`b` waits for `net`");
        ctx.say(&pull, "atlantis apply --auto-merge-disabled").await.is("apply", "success");
        ctx.next(&pull).await.is_replan("success").has("`b`");
        ctx.quiet().await;
        assert!(pull.is_open().unwrap());
        pull.close().unwrap();
        ctx.next(&pull).await;
        ctx.say(&pull, "atlantis unlock --accept-drift -m 'a test'").await.is_message("unlocked");
        let pull = ctx.open_dirs("second", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success").has("`b` waits for `net`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_replan("success").has("`b`");
        ctx.next(&pull).await.is_message("automerge");
        ctx.until("it is merged", async || pull.is_merged().unwrap()).await;
        assert_eq!(applied(ctx), ["a", "a"]);
    });
}

#[test]
fn what_depends_on_a_plan_that_failed_is_not_planned() {
    let fails = "test $PROJECT_NAME != net";
    run_test(layered(&[fails, PLANNED], &["true"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        let outcomes = [("a", "error"), ("b", "failure")].map(|(dir, outcome)| (dir.to_owned(), outcome.to_owned()));
        assert_eq!(said.outcomes(), outcomes);
        said.has("It depends on `net`, which could not be planned");
    });
}

/// The kill is after the apply, and before the next layer is planned.
#[test]
fn the_next_layer_is_planned_after_a_kill() {
    let waits = "case $PROJECT_NAME in b) echo >> {tmp}/begun; while [ ! -e {tmp}/go ]; do sleep 0.05; done;; esac";
    run_test(layered(&[waits, PLANNED], &["basename $PWD >> {tmp}/applied"]).own_process(), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.has("`b` waits for `net`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.until("the next layer is being planned", async || ctx.lines("begun") == 1).await;
        ctx.server.kill().await;
        std::fs::write(ctx.tmp.join("go"), "").unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is_replan("success").has("`b`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["a", "b"]);
    });
}

#[test]
fn where_autoplan_is_off_it_is_told_that_the_next_layer_can_be_planned() {
    run_test(chain().flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.say(&pull, "atlantis plan").await.has("`b` waits for `net`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_message("lock_freed").has("`atlantis plan -p b`");
        ctx.say(&pull, "atlantis plan -p b").await.is("plan", "success");
    });
}

/// A project that no longer waits for its own pull request, but that another one owns then, is planned when that is over.
#[test]
fn a_layer_that_another_one_owns_is_planned_when_it_is_free() {
    let rules = workflow("repo_locks: {mode: strict, scope: project}", &[PLANNED], &["basename $PWD >> {tmp}/applied"]);
    let setup = Setup::projects(&["a", "b", "c"]).repos_yaml(&rules).file("atlantis.yaml", CHAIN);
    run_test(setup, async |ctx| {
        let first = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&first).await.has("`b` waits for `net`");
        let second = ctx.open("second", &[("b/more.tf", "# more\n")]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        second.merge().await.unwrap();
        ctx.next(&first).await.is_replan("success").has("`b`");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert_eq!(applied(ctx), ["b", "a", "b"]);
    });
}

#[test]
fn a_circle_is_refused_by_name() {
    let config = CHAIN.replace("name: net}", "name: net, depends_on: [c]}");
    run_test(chain().file("atlantis.yaml", &config), async |ctx| {
        let pull = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success").has("`b` waits for `net`");
        let pull = ctx.open_dirs("second", &["a", "b", "c"]).await;
        ctx.next(&pull).await.has("`depends_on` has a cycle").has("depends on itself, by way of");
    });
}
