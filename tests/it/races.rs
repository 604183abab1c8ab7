//! Changes by others while a plan is made, or while an apply waits: a plan that is invalid by the time of its recording is not applied.

use crate::support::*;

const APPLY: &str = "echo $PULL_NUM >> {tmp}/applied";
const UNCHANGED: &str = "No changes. Your infrastructure matches the configuration.";

/// The lock is released by a merge that the tree of the plan lacks: its plan would revert the change that was applied there.
#[test]
fn a_plan_that_waited_for_a_merge_is_made_on_top_of_it() {
    let hook = "[ ! -e {tmp}/held ] || echo >> {tmp}/hooked; while [ -e {tmp}/held ]; do sleep 0.05; done";
    let rules = format!("repo_locks: {{mode: on_plan}}\npre_workflow_hooks: [{{run: '{hook}'}}]");
    let steps = workflow(&rules, &[PLANNED, "ls > {tmp}/files.$PULL_NUM"], &[APPLY]);
    run_test(Setup::projects(&["a"]).repos_yaml(&steps), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        std::fs::write(ctx.tmp.join("held"), "").unwrap();
        let second = ctx.open_own("second", &["a"]).await;
        ctx.until("its tree is made", async || ctx.lines("hooked") == 1).await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup");
        std::fs::remove_file(ctx.tmp.join("held")).unwrap();
        ctx.next(&second).await.is("plan", "success");
        let files = std::fs::read_to_string(ctx.tmp.join("files.2")).unwrap();
        assert!(files.contains("first.tf") && files.contains("second.tf"), "{files}");
    });
}

#[test]
fn a_plan_is_invalidated_that_was_made_while_what_it_depends_on_was_applied() {
    let config = "version: 3\nprojects:\n  - {dir: a, name: net}\n  - {dir: b, name: b, depends_on: [net]}\n";
    let waits = format!("case $PROJECT_NAME in b) {};; esac", gate("plan"));
    let rules = workflow("repo_locks: {mode: strict}", &[&waits, PLANNED], &[APPLY]);
    run_test(Setup::projects(&["a", "b"]).repos_yaml(&rules).file("atlantis.yaml", config), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["b"]).await;
        ctx.reached("plan", 1).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.open_gate("plan");
        ctx.next(&second).await.is_message("plans_fell").has("`net`");
        ctx.next(&second).await.is("plan", "success");
        ctx.next(&second).await.is_replan("success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_plan_is_invalidated_that_was_made_while_another_one_applied_its_project() {
    let waits = format!("case $PULL_NUM in 2) {};; esac", gate("plan"));
    let rules = workflow("repo_locks: {mode: strict}", &[&waits, PLANNED], &[APPLY]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a"]).await;
        ctx.reached("plan", 1).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.say(&first, "atlantis unlock --accept-drift -m 'a test'").await.is_message("unlocked");
        ctx.open_gate("plan");
        ctx.next(&second).await.is_message("plans_fell").has("#1");
        ctx.next(&second).await.is("plan", "success");
        ctx.next(&second).await.is_replan("success");
    });
}

#[test]
fn a_plan_is_not_kept_whose_lock_was_deleted_and_taken_by_another_one_meanwhile() {
    let waits = format!("case $PULL_NUM in 1) {};; esac", gate("plan"));
    let rules = workflow("repo_locks: {mode: on_plan}", &[&waits, PLANNED], &[APPLY]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.open_own("first", &["a"]).await;
        ctx.reached("plan", 1).await;
        let lock = ctx.locks().await.pop().unwrap();
        assert_eq!(ctx.request("DELETE", &format!("/locks?id={lock}"), &[]).await.0, 200);
        ctx.next(&first).await.is_message("discarded");
        let second = ctx.planned_own("second", &["a"]).await;
        ctx.open_gate("plan");
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply -d a").await.is("apply", "failure").because("no_plan");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("cleanup").has("Next in line").has("#1");
        ctx.next(&first).await.is_replan("success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

/// The head alone lacks the merges of others: its plan would revert them.
#[test]
fn in_strict_a_head_without_what_others_have_merged_is_not_applied() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &[APPLY]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(&["--checkout-strategy=branch"]);
    run_test(setup, async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.planned_own("second", &["a"]).await;
        let third = ctx.planned_own("third", &["b"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("#1");
        first.merge().await.unwrap();
        ctx.next(&second).await.is_replan("success");
        let said = ctx.say(&second, "atlantis apply").await;
        said.is("apply", "failure").has("undiverged").has("rebase or merge it").has("`a/first.tf`");
        // A merge in another project stops nobody.
        ctx.say(&third, "atlantis apply").await.is("apply", "success");
        second.push(&[("a/first.tf", Some("# first\n"))]).await.unwrap();
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").has("undiverged");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

/// `x` is applied while `y`, in the same directory, waits for its turn. `w` makes `y` wait until `x` has the directory.
#[test]
fn what_is_merged_while_an_apply_waits_is_seen_by_undiverged() {
    let config = "version: 3\nparallel_apply: true\nprojects:\n  - {dir: b, name: w}\n  - {dir: a, name: x, workflow: x, autoplan: {when_modified: [x.tf]}}\n  - {dir: a, name: y, workflow: y, autoplan: {when_modified: [y.tf]}}\n";
    let waits = format!("case $PULL_NUM$PROJECT_NAME in 2w) {};; 2x) {};; esac", gate("begin"), gate("apply"));
    let keys = "repo_locks: {mode: on_apply}\napply_requirements: [undiverged]\nallowed_overrides: [workflow]";
    let setup = Setup::projects(&["a", "b"]).file("atlantis.yaml", config).flags(&["--parallel-pool-size=2"]);
    let setup = setup.file("a/x.tf", "# 1\n").file("a/y.tf", "# 1\n\n\n\n# 1\n");
    let step = |command: &str| format!("        - run: {}\n", serde_json::Value::from(command));
    // Two states of one directory, so that one of them can be applied while another pull request has the other.
    let of_state = |name: &str| {
        let env = format!("        - env: {{name: TF_DATA_DIR, value: .{name}}}\n");
        let plan = format!("  {name}:\n    plan:\n      steps:\n{env}{}", step(PLANNED));
        format!("{plan}    apply:\n      steps:\n{}{}", step(&waits), step(APPLY))
    };
    let rules = workflow(keys, &[PLANNED], &[&waits, APPLY]) + &of_state("x") + &of_state("y");
    run_test(setup.repos_yaml(&rules), async |ctx| {
        let first = ctx.open("first", &[("a/y.tf", "# 2\n\n\n\n# 1\n")]).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        let files = [("b/w.tf", "# 2\n"), ("a/x.tf", "# 2\n"), ("a/y.tf", "# 1\n\n\n\n# 2\n")];
        let second = ctx.open("second", &files).await;
        ctx.next(&second).await.is("plan", "success");
        second.comment("alice", "atlantis apply").unwrap();
        ctx.reached("begin", 1).await;
        ctx.reached("apply", 1).await;
        ctx.open_gate("begin");
        // `w` has ended, and `y` has begun.
        ctx.until("it is applied", async || ctx.lines("applied") == 2).await;
        ctx.let_pass().await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup");
        ctx.open_gate("apply");
        let said = ctx.next(&second).await;
        let outcomes: Vec<_> = said.outcomes().into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, ["success", "success", "failure"], "{}", said.text);
        said.has("undiverged");
    });
}

#[test]
fn what_is_invalidated_while_an_apply_waits_is_missing_for_what_begins_later() {
    let waits = format!("case $REPO_REL_DIR in a) {};; esac", gate("apply"));
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &[&waits, APPLY]);
    run_test(Setup::projects(&["a", "b", "c"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.planned_own("first", &["a", "b", "c"]).await;
        pull.comment("alice", "atlantis apply -d '[ac]'").unwrap();
        ctx.reached("apply", 1).await;
        ctx.repo.push("main", &[("b/other.tf", Some("# 2\n"))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("dir `b`");
        ctx.open_gate("apply");
        let said = ctx.next(&pull).await;
        let outcomes: Vec<_> = said.outcomes().into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, ["success", "failure"], "{}", said.text);
        said.has("`atlantis plan -d b`");
        ctx.next(&pull).await.is_replan("success");
    });
}

/// An invalidated plan is made again, and has no changes by then: nobody has asked for the merge.
#[test]
fn automerge_follows_no_invalidated_plan() {
    let plan = format!("if [ -e {{tmp}}/same ] && [ $REPO_REL_DIR = b ]; then echo '{UNCHANGED}'; else {PLANNED}; fi");
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&workflow("repo_locks: {mode: strict}", &[&plan], &[APPLY]));
    run_test(setup.flags(&["--automerge"]), async |ctx| {
        let pull = ctx.planned_own("first", &["a", "b"]).await;
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
        std::fs::write(ctx.tmp.join("same"), "").unwrap();
        ctx.repo.push("main", &[("b/other.tf", Some("# 2\n"))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("dir `b`");
        ctx.next(&pull).await.is_replan("success");
        ctx.quiet().await;
        assert!(pull.is_open().unwrap());
    });
}

/// An apply that began no job does not cause a merge.
#[test]
fn automerge_goes_by_the_last_apply_that_has_applied_something() {
    let config = "version: 3\nprojects:\n  - {dir: a, name: net}\n  - {dir: b, name: b, depends_on: [net]}\n";
    let plan = format!("case $PROJECT_NAME in b) echo '{UNCHANGED}';; *) {PLANNED};; esac");
    let rules = workflow("repo_locks: {mode: strict}", &[&plan], &[&gate("apply"), APPLY]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&rules).file("atlantis.yaml", config);
    run_test(setup.flags(&["--automerge"]), async |ctx| {
        let pull = ctx.planned_own("first", &["a", "b"]).await;
        pull.comment("alice", "atlantis apply --auto-merge-disabled").unwrap();
        ctx.reached("apply", 1).await;
        pull.comment("bob", "atlantis apply -p b").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        ctx.next(&pull).await.is("apply", "failure");
        ctx.next(&pull).await.is_replan("success");
        ctx.quiet().await;
        assert!(pull.is_open().unwrap());
    });
}

/// Another one's apply satisfies the plan after the merge: that plan is not needed, and no merged pull request waits in line.
#[test]
fn a_plan_after_the_merge_is_not_kept_once_another_one_has_applied_what_it_is_of() {
    let waits = format!("case $PULL_NUM in 1) [ ! -e {{tmp}}/held ] || {{ {}; }};; esac", gate("plan"));
    let rules = workflow("repo_locks: {mode: strict}", &[&waits, PLANNED], &[APPLY]);
    run_test(Setup::projects(&["a"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.planned_own("second", &["a"]).await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes");
        ctx.next(&second).await.is_message("plans_fell");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes");
        std::fs::write(ctx.tmp.join("held"), "").unwrap();
        first.comment("alice", "atlantis plan").unwrap();
        ctx.reached("plan", 1).await;
        ctx.say(&second, "atlantis plan").await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        ctx.next(&first).await.is_message("applied_by_another");
        ctx.open_gate("plan");
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is_message("closed_pull");
        assert!(ctx.locks().await.is_empty());
        assert_eq!(ctx.lines("applied"), 1);
    });
}
