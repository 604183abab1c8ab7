//! Automatic applies (`auto_apply`): who and what causes them, what prevents them, and that none is repeated.

use crate::support::*;
use tidelock_forge::OpenOptions;

const APPROVED: &str = "apply_requirements: [approved]\nauto_apply: {when: approved}";
const APPLY: &str = "echo $PROJECT_NAME $USER_NAME >> {tmp}/applied";
const PREVENT: &str = "To prevent that: `atlantis cancel`";

/// One project with these keys of its repository.
fn one(keys: &str) -> Setup {
    Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &[APPLY]))
}

fn applied(ctx: &Ctx) -> String {
    std::fs::read_to_string(ctx.tmp.join("applied")).unwrap_or_default()
}

#[test]
fn only_an_approval_of_somebody_who_may_apply_applies() {
    let keys = format!("{APPROVED}\nallowed_users: ['*:plan', '*:cancel', 'bob:apply']");
    run_test(one(&keys), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let plan = ctx.next(&pull).await;
        plan.is("plan", "success").has("To be applied automatically when somebody approves: `./default`.").has(PREVENT);
        pull.approve("carol").unwrap();
        let told = ctx.next(&pull).await;
        told.is_message("not_permitted").has("not applied automatically").has("carol may not use `apply`").has("bob");
        // It is told once, whatever carol does next.
        pull.approve("carol").unwrap();
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), applied(ctx).as_str()), (2, ""));
        pull.approve("bob").unwrap();
        let said = ctx.next(&pull).await;
        said.is("apply", "success").has("Applied automatically (`auto_apply`), in the name of bob.");
        assert_eq!(applied(ctx), "bob\n");
        let audit = ctx.json("/audit.json").await.to_string();
        assert!(audit.contains("automatic apply") && audit.contains("bob"), "{audit}");
        ctx.quiet().await;
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), ctx.lines("applied")), (3, 1));
    });
}

#[test]
fn cancel_prevents_it_until_the_next_push() {
    run_test(one(APPROVED), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.say(&pull, "atlantis cancel").await.is_message("cancelled").has("the automatic `apply` of `./default`");
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has_not(PREVENT);
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        ctx.push(&pull, "main.tf", &ctx.fill(&terraform("root", "3"))).await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.quiet().await;
        assert_eq!(applied(ctx), "", "the approval is of an earlier head");
        pull.approve("bob").unwrap();
        ctx.next(&pull).await.is("apply", "success");
    });
}

#[test]
fn cancel_prevents_it_before_there_is_a_plan() {
    run_test(one(APPROVED), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        ctx.say(&pull, "atlantis cancel").await.is_message("cancelled");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has_not(PREVENT);
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
    });
}

#[test]
fn an_approval_from_before_the_plan_or_of_another_plan_applies_nothing() {
    let rules = workflow(APPROVED, &[&gate("plan"), PLANNED], &[APPLY]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        pull.approve("bob").unwrap();
        ctx.next_second().await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        // A person chose the arguments of this plan, which nobody may have read.
        ctx.say(&pull, "atlantis plan -- -var a=b").await.is("plan", "success").has_not(PREVENT);
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_pull_request_turns_it_on_only_where_the_server_lets_it() {
    let yaml = "version: 3\nprojects: [{dir: ., auto_apply: {when: met}}]\n";
    let change = [("main.tf", "# 2\n"), ("atlantis.yaml", yaml)];
    run_test(one(""), async |ctx| {
        let pull = ctx.open("change", &change).await;
        ctx.next(&pull).await.is("plan", "error").because("config").has("auto_apply");
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
    });
    run_test(one("allowed_overrides: [auto_apply]"), async |ctx| {
        let pull = ctx.open("change", &change).await;
        let plan = ctx.next(&pull).await;
        plan.is("plan", "success").has("To be applied automatically when all requirements are met: `./default`.");
        ctx.next(&pull).await.is("apply", "success").has("in the name of alice");
        // Approvals are not asked for, but others may not be gone around.
        let wants = "version: 3\nprojects: [{dir: ., auto_apply: {when: approved}}]\n";
        let pull = ctx.open("other", &[("main.tf", "# 3\n"), ("atlantis.yaml", wants)]).await;
        ctx.next(&pull).await.is("plan", "error").because("config").has("needs the requirement `approved`");
    });
}

#[test]
fn a_command_for_a_plan_is_no_consent_to_apply_it() {
    let keys = "auto_apply: {when: met}\nallowed_users: ['*:plan', 'bob:apply']";
    run_test(one(keys), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.next(&pull).await.is_message("not_permitted").has("alice may not use `apply`");
        ctx.say_as("bob", &pull, "atlantis plan").await.is("plan", "success");
        ctx.next(&pull).await.is_message("not_permitted");
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        pull.approve("bob").unwrap();
        ctx.next(&pull).await.is("apply", "success").has("in the name of bob");
    });
}

#[test]
fn an_order_group_waits_for_all_earlier_ones() {
    let yaml = "version: 3\nprojects:\n- {dir: one, name: one, execution_order_group: 1, auto_apply: {when: never}}\n\
                - {dir: two, name: two, execution_order_group: 2}\n- {dir: three, name: three, execution_order_group: 3}\n";
    let rules = workflow("auto_apply: {when: met}\nallowed_overrides: [auto_apply]", &[PLANNED], &[APPLY]);
    let setup = Setup::projects(&["one", "two", "three"]).file("atlantis.yaml", yaml).repos_yaml(&rules);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["one", "two", "three"]).await;
        ctx.next(&pull).await.is("plan", "success").has("requirements are met: `two`, `three`.");
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        ctx.say(&pull, "atlantis apply -p one").await.is("apply", "success");
        let said = ctx.next(&pull).await;
        let both = ["two", "three"].map(|name| (name.to_owned(), "success".to_owned()));
        assert_eq!(said.outcomes(), both, "{}", said.text);
        assert_eq!(applied(ctx), "one alice\ntwo alice\nthree alice\n");
    });
}

#[test]
fn it_waits_for_the_host_and_for_the_end_of_a_freeze() {
    let rules = "apply_requirements: [mergeable]\nauto_apply: {when: met}";
    run_test(one(rules).flags(&["--allow-commands=all", "--reconcile-interval=1s"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        pull.set_mergeable_state("blocked").unwrap();
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), applied(ctx).as_str()), (1, ""));
        ctx.say(&pull, "atlantis freeze -m release").await.is_message("frozen");
        pull.set_mergeable_state("clean").unwrap();
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
        ctx.say(&pull, "atlantis unfreeze").await.is_message("unfrozen");
        // No delivery says so.
        ctx.next(&pull).await.is("apply", "success");
    });
}

/// The host delivers each status, so one of a look would cause the next look.
#[test]
fn a_look_with_hooks_sets_no_status() {
    let hooks = "pre_workflow_hooks: [{run: 'echo pre >> {tmp}/hooked'}]\npost_workflow_hooks: [{run: 'echo post >> {tmp}/hooked'}]";
    let rules = format!("apply_requirements: [mergeable]\nauto_apply: {{when: met}}\n{hooks}");
    run_test(one(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        pull.set_mergeable_state("blocked").unwrap();
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let (set, hooked) = (format!("{:?}", pull.statuses().unwrap()), ctx.lines("hooked"));
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!((format!("{:?}", pull.statuses().unwrap()), ctx.lines("hooked")), (set, hooked + 2));
        pull.set_mergeable_state("clean").unwrap();
        pull.approve("bob").unwrap();
        ctx.next(&pull).await.is("apply", "success").has("Applied automatically");
    });
}

#[test]
fn a_failure_of_the_whole_command_ends_it() {
    let hook = "pre_workflow_hooks: [{run: 'test ! -e {tmp}/applying', commands: apply}]";
    let rules = format!("{APPROVED}\n{hook}");
    run_test(one(&rules).flags(&["--fail-on-pre-workflow-hook-error"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        std::fs::write(ctx.tmp.join("applying"), "").unwrap();
        pull.approve("bob").unwrap();
        ctx.next(&pull).await.is_message("hook_failed");
        ctx.quiet().await;
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), applied(ctx).as_str()), (2, ""));
    });
}

#[test]
fn drafts_are_never_applied() {
    let setup = one("auto_apply: {when: met}").flags(&["--allow-draft-prs"]);
    run_test(setup, async |ctx| {
        let options = OpenOptions { draft: true, ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "change", &[("main.tf", "# 2\n")], options).await;
        ctx.next(&pull).await.is("plan", "success").has_not(PREVENT);
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(applied(ctx), "");
    });
}

#[test]
fn an_apply_that_failed_is_not_repeated() {
    let apply = "echo once >> {tmp}/applied; echo 'Error: no quota is left'; exit 1";
    let keys = "auto_apply: {when: met}\nreplan_after_failed_apply: true";
    run_test(Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &[apply])), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.next(&pull).await.is("apply", "error").has("no quota is left");
        ctx.next(&pull).await.is_replan("success").has_not(PREVENT);
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
        ctx.push(&pull, "main.tf", &ctx.fill(&terraform("root", "3"))).await;
        ctx.next(&pull).await.is("plan", "success").has(PREVENT);
        ctx.next(&pull).await.is("apply", "error");
        ctx.next(&pull).await.is_replan("success").has_not(PREVENT);
    });
}

#[test]
fn a_kill_repeats_no_automatic_apply_and_loses_none() {
    let rules = workflow("auto_apply: {when: met}", &[PLANNED], &["echo once >> {tmp}/applied", &gate("apply")]);
    run_test(Setup::one_project().repos_yaml(&rules).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("apply");
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "error").because("interrupted");
        pull.approve("bob").unwrap();
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), ctx.lines("applied")), (2, 1));
        // The next plan of this head is a person's to apply.
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has_not(PREVENT);
    });
}
