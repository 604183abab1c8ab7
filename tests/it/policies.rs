//! Policy checks: engines and their input, the effects of a failed check, and approvals of it.

use crate::buttons::{address, buttons, press, send};
use crate::runs_pages::{has, lacks, shown};
use crate::support::*;
use tidelock_forge::Pull;

/// Denies every resource that is created, with its value in the message.
const NO_CREATION: &str = r#"package main

deny contains msg if {
	some change in input.resource_changes
	"create" in change.change.actions
	msg := sprintf("no creation of %s with %s", [change.address, change.change.after.input])
}
"#;

/// One project that is checked by the built-in engine, as a process of its own; `policies` is YAML of `repos.yaml`.
fn checked(policies: &str) -> Setup {
    Setup::one_project().own_process().flags(&["--enable-policy-checks"]).repos_yaml(policies)
}

/// Returns a policy set with these keys, whose policies are on the server.
fn one_set(keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("      {line}\n")).collect();
    format!("policies:\n  policy_sets:\n    - name: gate\n      path: '{{tmp}}/policies'\n{keys}")
}

fn write_policy(ctx: &Ctx, text: &str) {
    std::fs::create_dir_all(ctx.tmp.join("policies")).unwrap();
    std::fs::write(ctx.tmp.join("policies/gate.rego"), text).unwrap();
}

/// Reads the plan's comment, and that of its policy check.
async fn plan_and_check(ctx: &Ctx, pull: &Pull) -> (Said, Said) {
    (ctx.next(pull).await, ctx.next(pull).await)
}

/// Returns name, true if passed, approvals, and required approvals of each set of a lone result.
fn sets(said: &Said) -> Vec<(String, bool, u64, u64)> {
    let rows = said.marker["results"][0]["policy_sets"].as_array().unwrap();
    let row = |row: &serde_json::Value| {
        let number = |key: &str| row[key].as_u64().unwrap();
        (row["name"].as_str().unwrap().to_owned(), row["passed"] == true, number("approvals"), number("required"))
    };
    rows.iter().map(row).collect()
}

#[test]
fn what_fails_is_applied_only_when_an_owner_has_approved_it() {
    run_test(checked(&one_set("owners: {users: [Olga]}")), async |ctx| {
        write_policy(ctx, NO_CREATION);
        let pull = ctx.open_input("change", "2").await;
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is("plan", "success")
            .has_not("To apply")
            .has("when its policies pass or are approved, to apply: `atlantis apply -d .`");
        check.is("policy_check", "failure").because("policy");
        check.has("FAIL - <redacted plan file> - main - no creation of terraform_data.this with 2");
        check.has("1 test, 0 passed, 0 warnings, 1 failure, 0 exceptions");
        check.has("A policy set did not pass").has("may be approved by Olga").has("`atlantis approve_policies -d .`");
        assert_eq!(sets(&check), [("gate".into(), false, 0, 1)]);
        ctx.status(&pull, "atlantis/policy_check", "failure", "1/1 failed policies").await;
        ctx.status(&pull, "atlantis/plan", "success", "").await;

        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("requirement").has("policies have not passed");
        said.has("`gate` did not pass, and has 0 of 1 approval").has("Olga may approve");
        said.has("`atlantis approve_policies -d .`");
        let missing = async || {
            let (_, page) = ctx.request("GET", "/pulls/127.0.0.1/acme/infra/1", &[]).await;
            page.split_once("Missing approvals").map(|(_, rest)| rest.contains("0 of 1 approvals"))
        };
        assert_eq!(missing().await, Some(true));
        has(&shown(ctx, "/pulls").await, &["policies not passed in 1 project"]);
        let said = ctx.say_as("mallory", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "failure").because("not_permitted");
        said.has("mallory is not a policy owner of `gate`: its owners are Olga");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure");

        let said = ctx.say_as("olga", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "success").has("approved by olga").has("`atlantis apply -d .`");
        assert_eq!(sets(&said), [("gate".into(), false, 1, 1)]);
        assert_eq!(missing().await, None);
        lacks(&shown(ctx, "/pulls").await, &["policies not passed"]);
        ctx.status(&pull, "atlantis/policy_check", "success", "1/1 passed or approved").await;
        // The approval is durable.
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_plan_that_passes_is_applied_and_a_quiet_server_says_nothing_of_it() {
    let policies = format!("{}repos:\n  - id: /.*/\n    allowed_overrides: [policy_check]\n", one_set(""));
    let config = "version: 3\nprojects:\n  - dir: fine\n  - dir: bad\n  - dir: unchecked\n    policy_check: false\n";
    let setup = Setup::projects(&["fine", "bad", "unchecked"]).file("atlantis.yaml", config).own_process();
    let setup = setup.flags(&["--enable-policy-checks", "--quiet-policy-checks"]).repos_yaml(&policies);
    run_test(setup, async |ctx| {
        write_policy(
            ctx,
            &NO_CREATION
                .replace("some change in", "input.resource_changes[_].change.after.input == \"bad\"\n\tsome change in"),
        );
        let dirs = ["fine", "bad", "unchecked"].map(|dir| (format!("{dir}/main.tf"), terraform(dir, dir)));
        let files: Vec<_> = dirs.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let pull = ctx.open("change", &files).await;
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is("plan", "success");
        assert_eq!(check.outcomes(), [("bad".to_owned(), "failure".to_owned())]);
        check.has_not("dir `fine`");
        ctx.status(&pull, "atlantis/policy_check", "failure", "1/2 failed policies").await;
        let mut outcomes = ctx.say(&pull, "atlantis apply").await.outcomes();
        outcomes.sort();
        let want = [("bad", "failure"), ("fine", "success"), ("unchecked", "success")];
        assert_eq!(outcomes, want.map(|(dir, outcome)| (dir.to_owned(), outcome.to_owned())));
    });
}

#[test]
fn what_is_not_planned_yet_is_checked_with_its_plan() {
    let config = "version: 3\nprojects:\n  - {dir: a, name: a}\n  - {dir: b, name: b, depends_on: [a]}\n";
    let rules =
        format!("repos:\n  - {{id: /.*/, repo_locks: {{mode: strict}}}}\n{}", one_set("owners: {users: [olga]}"));
    let setup = Setup::projects(&["a", "b"]).file("atlantis.yaml", config).own_process();
    run_test(setup.flags(&["--enable-policy-checks"]).repos_yaml(&rules), async |ctx| {
        write_policy(ctx, "package main\n\ndeny contains \"never\" if { false }\n");
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is("plan", "success").has("`b` waits for `a`");
        check.is("policy_check", "success").has("`a`").has_not("`b`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is_replan("success").has("`b`");
        check.is("policy_check", "success").has("`b`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn several_owners_of_teams_have_to_approve_and_may_take_it_back() {
    let keys = "owners: {users: [alice], teams: [sre]}\napprove_count: 2\nprevent_self_approve: true";
    run_test(checked(&one_set(keys)), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob", "carol"]);
        write_policy(ctx, NO_CREATION);
        let pull = ctx.open_input("change", "2").await;
        plan_and_check(ctx, &pull).await.1.has("0 of 2 approvals").has("alice, team sre");
        let said = ctx.say_as("alice", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "failure").has("alice is the author").has("prevent_self_approve");
        let said = ctx.say_as("bob", &pull, "atlantis approve_policies -d . --policy-set gate").await;
        said.is("approve_policies", "success").has("1 of 2 approvals");
        let said = ctx.say_as("bob", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "failure").has("bob has approved `gate` already");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("1 of 2 approvals");
        ctx.say_as("carol", &pull, "atlantis approve_policies --policy-set other").await.has("there are: `gate`");
        let said = ctx.say_as("carol", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "success").has("✓ approved");
        let said = ctx.say_as("mallory", &pull, "atlantis approve_policies --clear-policy-approval").await;
        said.is("approve_policies", "failure").has("mallory is not a policy owner");
        let said = ctx.say_as("bob", &pull, "atlantis approve_policies --clear-policy-approval").await;
        said.is("approve_policies", "success").has("bob withdrew earlier approvals").has("0 of 2 approvals");
        ctx.status(&pull, "atlantis/policy_check", "failure", "").await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure");
    });
}

#[test]
fn approvals_end_with_the_plan_unless_they_are_sticky_and_cover_everything() {
    for sticky in [false, true] {
        let keys = format!("owners: {{users: [olga]}}\nsticky_policy_approvals: {sticky}\npolicy_item_regex: 'FAIL.*'");
        run_test(checked(&one_set(&keys)), async |ctx| {
            write_policy(ctx, NO_CREATION);
            let pull = ctx.open_input("change", "2").await;
            plan_and_check(ctx, &pull).await;
            ctx.say_as("olga", &pull, "atlantis approve_policies").await.is("approve_policies", "success");
            pull.comment("alice", "atlantis plan").unwrap();
            let check = plan_and_check(ctx, &pull).await.1;
            if !sticky {
                check.is("policy_check", "failure").has("0 of 1 approval");
                ctx.say(&pull, "atlantis apply").await.is("apply", "failure");
                return;
            }
            check.is("policy_check", "success").has("✓ approved").has("1 previously approved item");
            // A push with something new in it.
            ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
            let check = plan_and_check(ctx, &pull).await.1;
            check.is("policy_check", "failure").has("no creation of terraform_data.this with 3");
            ctx.say(&pull, "atlantis apply").await.is("apply", "failure");
            // And back to the approved code.
            ctx.push(&pull, "main.tf", &terraform("root", "2")).await;
            plan_and_check(ctx, &pull).await.1.is("policy_check", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        });
    }
}

#[test]
fn an_approval_is_for_the_workspace_that_it_names_and_no_other_of_its_directory() {
    let config = "version: 3\nprojects:\n  - {dir: ., workspace: staging}\n  - {dir: ., workspace: prod}\n";
    run_test(checked(&one_set("owners: {users: [olga]}")).file("atlantis.yaml", config), async |ctx| {
        write_policy(ctx, NO_CREATION);
        let pull = ctx.open_input("change", "2").await;
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is("plan", "success");
        check.is("policy_check", "failure").has("workspace `staging`").has("workspace `prod`");
        let said = ctx.say_as("olga", &pull, "atlantis approve_policies -w staging").await;
        said.is("approve_policies", "success").has("approved by olga");
        let said = ctx.say(&pull, "atlantis apply -w prod").await;
        said.is("apply", "failure").because("requirement").has("`gate` did not pass, and has 0 of 1 approval");
        ctx.say(&pull, "atlantis apply -w staging").await.is("apply", "success");
    });
}

#[test]
fn what_cannot_be_evaluated_is_not_taken_for_passed() {
    let extra =
        "workflows:\n  default:\n    policy_check:\n      steps: [show, {policy_check: {extra_args: [$EXTRA]}}]\n";
    let setup = checked(&format!("{}{extra}", one_set("owners: {users: [alice]}"))).variable("EXTRA", "--no-fail");
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let check = plan_and_check(ctx, &pull).await.1;
        check.is("policy_check", "error").because("policy").has("no such file or directory");
        ctx.say(&pull, "atlantis approve_policies").await.is_message("no_projects").has("`atlantis plan`");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("this plan was not checked against the policies").has("`atlantis plan -d .`");
        for (policy, words) in [
            ("package main\ndeny contains", "gate.rego"),
            ("package main\ndeny contains msg if { msg := http.send({}) }", "--policy-engine=conftest"),
            ("package main\ndeny := true", "make it a set of messages"),
        ] {
            write_policy(ctx, policy);
            pull.comment("alice", "atlantis plan").unwrap();
            plan_and_check(ctx, &pull).await.1.is("policy_check", "error").has(words);
        }
        // No rule of the package `main`, which conftest would let pass.
        write_policy(ctx, "package other\ndeny contains \"x\"");
        pull.comment("alice", "atlantis plan").unwrap();
        plan_and_check(ctx, &pull).await.1.is("policy_check", "failure").has("No rule was evaluated");
        // A denial counts, whatever the exit code.
        write_policy(ctx, NO_CREATION);
        pull.comment("alice", "atlantis plan").unwrap();
        plan_and_check(ctx, &pull).await.1.is("policy_check", "failure").has("1 failure");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("requirement");
    });
}

#[test]
fn an_argument_that_the_engine_lacks_is_refused_with_the_name_of_the_other_one() {
    let extra =
        "workflows:\n  default:\n    policy_check:\n      steps: [show, {policy_check: {extra_args: [--update, x]}}]\n";
    run_test(checked(&format!("{}{extra}", one_set(""))), async |ctx| {
        write_policy(ctx, NO_CREATION);
        let pull = ctx.open_input("change", "2").await;
        let check = plan_and_check(ctx, &pull).await.1;
        check.is("policy_check", "error").has("does not know `--update`").has("--policy-engine=conftest");
    });
}

/// A workflow with a plan of its own, and with a custom policy check of these `run` steps.
fn custom(steps: &[&str]) -> Setup {
    custom_with("", steps)
}

/// The same with more keys of the repository.
fn custom_with(keys: &str, steps: &[&str]) -> Setup {
    let steps: String =
        steps.iter().map(|step| format!("        - run: {}\n", serde_json::Value::from(*step))).collect();
    let keys = format!("custom_policy_check: true\n{keys}");
    let text = workflow(&keys, &["echo planned >> {tmp}/planned", PLANNED], &["echo applied"]);
    Setup::one_project().own_process().flags(&["--enable-policy-checks"]).repos_yaml(&format!(
        "{text}    policy_check:\n      steps:\n{steps}policies:\n  owners: {{users: [olga]}}\n  policy_sets:\n    - name: one\n    - name: two\n"
    ))
}

#[test]
fn what_run_steps_print_is_the_result_of_the_sets_in_their_order() {
    run_test(custom(&["echo PASS - 0 failures", "echo '2 failures'"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let check = plan_and_check(ctx, &pull).await.1;
        assert_eq!(sets(&check), [("one".into(), true, 0, 1), ("two".into(), false, 0, 1)]);
        let said = ctx.say_as("olga", &pull, "atlantis approve_policies").await;
        said.is("approve_policies", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn masks_change_what_people_read_and_not_what_is_decided() {
    let setup = custom_with("masks: ['[0-9]+', FAIL]", &["echo FAIL - no", "echo '2 failures'"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let check = plan_and_check(ctx, &pull).await.1;
        assert_eq!(sets(&check), [("one".into(), false, 0, 1), ("two".into(), false, 0, 1)]);
        check.has("<redacted> - no").has("<redacted> failures").has_not("FAIL - no").has_not("2 failures");
        let (_, log) = ctx.request("GET", &format!("/jobs/{}/log", check.job()), &[]).await;
        assert!(log.contains("<redacted> failures") && !log.contains("2 failures"), "{log}");
    });
}

#[test]
fn a_server_that_is_killed_while_it_checks_goes_on_with_the_check_alone() {
    run_test(custom(&["echo fine", &gate("check")]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("check", 1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.reached("check", 2).await;
        ctx.open_gate("check");
        let (plan, check) = plan_and_check(ctx, &pull).await;
        plan.is("plan", "success");
        assert_eq!(sets(&check), [("one".into(), true, 0, 1), ("two".into(), false, 0, 1)]);
        assert_eq!(ctx.lines("planned"), 1);
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure");
    });
}

#[test]
fn a_check_is_cancelled_like_a_plan_and_blocks_the_apply() {
    run_test(custom(&["echo fine", &gate("check")]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("check", 1).await;
        pull.comment("alice", "atlantis cancel").unwrap();
        let first = ctx.next(&pull).await;
        let second = ctx.next(&pull).await;
        let third = ctx.next(&pull).await;
        let kinds =
            [&first, &second, &third].map(|said| said.marker["command"].as_str().unwrap_or_default().to_owned());
        assert!(
            ["plan", "policy_check", "cancel"].iter().all(|kind| kinds.iter().any(|said| said == kind)),
            "{kinds:?}"
        );
        let check = [&first, &second, &third].into_iter().find(|said| said.marker["command"] == "policy_check");
        check.unwrap().is("policy_check", "failure").because("cancelled");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("was not checked against the policies");
    });
}

#[test]
fn conftest_is_run_where_it_is_asked_for_and_reads_no_configuration_of_the_pull_request() {
    let path = format!("{{own}}/bin:{}", std::env::var("PATH").unwrap());
    let keys = "owners: {users: [olga]}";
    let setup =
        Setup::one_project().flags(&["--enable-policy-checks", "--policy-engine=conftest"]).variable("PATH", &path);
    run_test(setup.repos_yaml(&one_set(keys)), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let check = plan_and_check(ctx, &pull).await.1;
        // There is none on PATH, or it finds no policies.
        check.is("policy_check", "error").because("policy");
        std::fs::create_dir(ctx.own.join("bin")).unwrap();
        let script = "#!/bin/sh\necho \"$@\" >> {tmp}/args\nprintf 'FAIL - %s - main - no\\n\\n1 test, 0 passed, 0 warnings, 1 failure, 0 exceptions\\n' \"$4\"\nexit 1\n";
        std::fs::write(ctx.own.join("bin/conftest"), ctx.fill(script)).unwrap();
        make_executable(&ctx.own.join("bin/conftest"));
        pull.comment("alice", "atlantis plan").unwrap();
        let check = plan_and_check(ctx, &pull).await.1;
        check.is("policy_check", "failure").has("FAIL - <redacted plan file> - main - no");
        let args = std::fs::read_to_string(ctx.tmp.join("args")).unwrap();
        let words: Vec<&str> = args.split_whitespace().collect();
        assert_eq!(words[..3], ["test", "-p", ctx.tmp.join("policies").to_str().unwrap()]);
        assert_eq!((words[4], words[5]), ("--no-color", "--config-file"));
        assert_eq!(std::fs::read_to_string(words[6]).unwrap(), "");
    });
}

/// A name of a page is no owner and no author: only a login of the host approves.
#[test]
fn policies_are_approved_by_button_only_with_a_login() {
    let owners = one_set("owners: {users: [loopback, olga]}\nprevent_self_approve: true");
    for (login, refusal) in
        [(None, Some("has no host login")), (Some("alice"), Some("not a policy owner")), (Some("olga"), None)]
    {
        let people = login.map(|login| format!("people: [{{person: loopback, login: 127.0.0.1/{login}}}]\n"));
        run_test(checked(&format!("{}{owners}", people.unwrap_or_default())), async |ctx| {
            write_policy(ctx, NO_CREATION);
            let pull = ctx.open_input("change", "2").await;
            plan_and_check(ctx, &pull).await.1.is("policy_check", "failure");
            let (_, page) = ctx.request("GET", &address(&pull), &[]).await;
            has(&page, &["the policies of one project are not approved"]);
            press(ctx, &pull, "approve_policies", &[]).await;
            let said = ctx.next(&pull).await;
            said.has("Requested by `loopback`");
            match refusal {
                Some(because) => {
                    said.is("approve_policies", "failure").because("not_permitted").has(because);
                    // An apply without the button meets the policies all the same.
                    let mut form = buttons(ctx, &address(&pull), &[]).await["plan"].clone();
                    form.action = "/actions/apply".to_owned();
                    assert_eq!(send(ctx, &form, &[]).await.status, 200);
                    ctx.next(&pull).await.is("apply", "failure").because("requirement");
                }
                None => {
                    said.is("approve_policies", "success").has("approved by olga");
                    press(ctx, &pull, "apply", &[]).await;
                    ctx.next(&pull).await.is("apply", "success");
                }
            }
        });
    }
}
