//! `--gh-checks`: statuses as check runs with text, annotations and buttons; their buttons are commands with the rules of comments.

use crate::support::*;
use tidelock_forge::{Fault, OpenOptions, PostedCheck, Pull};

const PROJECT: &str = "atlantis/plan: ./default";

/// Makes the server an App that posts check runs.
fn with_checks(setup: Setup) -> Setup {
    setup.signed_in_as_app("acme-tidelock").flags(&["--gh-checks"])
}

/// The same, with a workflow without Terraform.
fn quick(keys: &str) -> Setup {
    with_checks(Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &["echo applied >> {tmp}/applied"])))
}

/// Waits until the newest check run of this name is completed with this conclusion.
async fn check(ctx: &Ctx, pull: &Pull, name: &str, conclusion: &str) -> PostedCheck {
    let fits = |check: &PostedCheck| check.conclusion.as_deref() == Some(conclusion);
    ctx.until(&format!("{name} is {conclusion}"), async || pull.check(name).is_ok_and(|check| fits(&check))).await;
    pull.check(name).unwrap()
}

/// Presses a button of the newest check run of this name, and returns the answer.
async fn press(ctx: &Ctx, user: &str, pull: &Pull, name: &str, button: Option<&str>) -> Said {
    ctx.until(&format!("{name} has ended"), async || pull.check(name).is_ok_and(|check| check.status == "completed"))
        .await;
    ctx.quiet().await;
    // What GitHub signs has whole seconds, by which two presses of a button differ.
    ctx.next_second().await;
    pull.press(user, pull.check(name).unwrap().id, button).unwrap();
    ctx.next(pull).await
}

/// Returns the answer to the last delivery of this event.
async fn last_answer(ctx: &Ctx, event: &str) -> String {
    ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
    ctx.forge.deliveries().into_iter().rfind(|one| one.event == event).unwrap().answer
}

#[test]
fn a_plan_and_its_apply_are_check_runs_with_text_and_buttons() {
    run_test(with_checks(Setup::one_project()), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let planned = check(ctx, &pull, PROJECT, "success").await;
        assert_eq!(planned.title, "1 to add, 0 to change, 0 to destroy");
        assert_eq!(planned.summary, "**1 to add, 0 to change, 0 to destroy**\n\n- create `terraform_data.this`");
        assert_eq!(planned.buttons, ["plan", "apply"]);
        let all = check(ctx, &pull, "atlantis/plan", "success").await;
        assert_eq!(all.summary, "- `./default` – planned: 1 to add, 0 to change, 0 to destroy");
        press(ctx, "alice", &pull, PROJECT, Some("apply")).await.is("apply", "success");
        let applied = check(ctx, &pull, "atlantis/apply: ./default", "success").await;
        assert_eq!((applied.title.as_str(), applied.buttons.len()), ("1 added, 0 changed, 0 destroyed", 0));
        check(ctx, &pull, "atlantis/apply", "success").await;
        let of_statuses = |path: &str| path.contains("/statuses/");
        assert!(!ctx.forge.requests().iter().any(|request| of_statuses(&request.path)), "there are no commit statuses");
        // The audit log names the person.
        let (_, log) = ctx.request("GET", "/audit", &[]).await;
        assert!(log.contains("alice") && log.contains("apply"), "{log}");
    });
}

#[test]
fn a_failed_plan_has_annotations_at_the_lines_that_terraform_names() {
    let broken = format!("{}locals {{\n  x = local.missing\n}}\n", terraform("net", "2"));
    run_test(with_checks(Setup::projects(&["net"])), async |ctx| {
        let pull = ctx.open("change", &[("net/main.tf", &broken)]).await;
        ctx.next(&pull).await.is("plan", "error");
        let failed = check(ctx, &pull, "atlantis/plan: net/default", "failure").await;
        let line = broken.lines().position(|line| line.contains("missing")).unwrap() as u64 + 1;
        let place = ("net/main.tf".to_owned(), line, "failure".to_owned());
        let [(path, at, level, title)] = &failed.annotations[..] else { panic!("{failed:?}") };
        assert_eq!((path.clone(), *at, level.clone()), place);
        assert!(title.contains("undeclared local value"), "{title}");
        assert!(failed.summary.contains("local.missing"), "{}", failed.summary);
        assert_eq!(failed.buttons, ["plan"]);
        check(ctx, &pull, "atlantis/plan", "failure").await;
    });
}

#[test]
fn hostile_output_escapes_no_fence_and_no_repository() {
    let lies = "printf 'Error: <b>\\033[31m@team\\n  on ../../etc/x.tf line 1:\\nError: b\\n  on a.tf line 2:\\n```\\n# x\\n'; exit 1";
    let setup = with_checks(Setup::one_project().repos_yaml(&workflow("", &[lies], &["true"])));
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "error");
        let failed = check(ctx, &pull, PROJECT, "failure").await;
        let paths: Vec<&str> = failed.annotations.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["a.tf"]);
        assert!(failed.summary.contains("\n````\n") && !failed.summary.contains('\u{1b}'), "{}", failed.summary);
        assert!(!failed.summary.split("````").next().unwrap().contains("<b>"), "{}", failed.summary);
    });
}

#[test]
fn a_long_text_is_cut_to_what_the_host_takes() {
    let many = "for i in $(seq 400); do printf '  # terraform_data.%0300d will be created\\n  + resource \"a\" \"b\" {\\n    }\\n\\n' $i; done";
    let many = format!(
        "echo 'Terraform will perform the following actions:'; echo; {many}; echo 'Plan: 400 to add, 0 to change, 0 to destroy.'"
    );
    let setup = with_checks(Setup::one_project().repos_yaml(&workflow("", &[&many], &["true"])));
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let planned = check(ctx, &pull, PROJECT, "success").await;
        assert!(planned.summary.contains("… and 200 more"), "{}", planned.summary);
        assert!(planned.summary.chars().count() < 65_535);
        // The second part of the plan.
        ctx.next(&pull).await;
    });
}

#[test]
fn a_button_gives_nobody_a_right() {
    run_test(quick("allowed_users: ['*:plan', 'alice:apply']"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let by_comment = ctx.say_as("bob", &pull, "atlantis apply -d .").await;
        let by_button = press(ctx, "bob", &pull, PROJECT, Some("apply")).await;
        assert_eq!(by_comment.text, by_button.text, "the refusal is the same");
        by_button.has("bob may not use `apply`");
        assert_eq!(ctx.lines("applied"), 0);
        press(ctx, "alice", &pull, PROJECT, Some("apply")).await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_press_that_is_delivered_twice_does_nothing_twice() {
    run_test(quick(""), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        press(ctx, "alice", &pull, PROJECT, Some("apply")).await.is("apply", "success");
        ctx.quiet().await;
        let pressed = ctx.forge.deliveries().into_iter().rfind(|one| one.event == "check_run").unwrap();
        ctx.server.restart().await;
        ctx.forge.redeliver(pressed.id).unwrap();
        assert!(last_answer(ctx, "check_run").await.contains("known already"));
        assert_eq!(ctx.lines("applied"), 1);
        // Forged: the signature is that of another body.
        let url = format!("{}/events", ctx.server.url());
        let forged =
            client().post(url).header("content-type", "application/json").header("x-github-event", "check_run");
        let forged = forged.header("x-hub-signature-256", format!("sha256={}", "0".repeat(64)));
        let answer = forged.body(pressed.body.replace("alice", "bob")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 401);
        // The check run of another App, with our texts.
        let mut stolen: serde_json::Value = serde_json::from_str(&pressed.body).unwrap();
        stolen["check_run"]["app"]["id"] = 1.into();
        assert_eq!(ctx.deliver("check_run", &stolen.to_string()).await, 200);
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_button_of_an_earlier_head_is_refused_in_words() {
    run_test(quick(""), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let old = check(ctx, &pull, PROJECT, "success").await;
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        pull.press("alice", old.id, Some("apply")).unwrap();
        let said = ctx.next(&pull).await;
        said.is_message("superseded")
            .has("Refused: the pull request has a newer commit")
            .has("`atlantis apply -d . -w default`");
        assert_eq!(ctx.lines("applied"), 0);
        press(ctx, "alice", &pull, PROJECT, Some("apply")).await.is("apply", "success");
    });
}

#[test]
fn a_check_of_another_status_name_applies_nothing() {
    run_test(quick(""), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let shown = check(ctx, &pull, PROJECT, "success").await;
        ctx.quiet().await;
        pull.press("alice", shown.id, Some("apply")).unwrap();
        ctx.next(&pull).await.is("apply", "success");
        let pressed = ctx.forge.deliveries().into_iter().rfind(|one| one.event == "check_run").unwrap();
        assert_eq!(ctx.lines("applied"), 1);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        for name in ["atlantis-prod/plan: ./default", "old/apply", "old/plan", "atlantis/pre_workflow_hook: x"] {
            ctx.quiet().await;
            let mut other: serde_json::Value = serde_json::from_str(&pressed.body).unwrap();
            other["check_run"]["name"] = name.into();
            assert_eq!(ctx.deliver("check_run", &other.to_string()).await, 200);
            ctx.next(&pull).await.has("Refused: the button belongs to the check").has(name);
        }
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_check_that_github_refuses_is_posted_without_its_details() {
    run_test(quick(""), async |ctx| {
        let refusal = r#"{"message": "Validation Failed: summary exceeds a maximum bytesize of 65535"}"#.to_owned();
        ctx.forge.fail_next("POST", "**/check-runs", Fault::Status(422, refusal, Vec::new()), 1).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        check(ctx, &pull, PROJECT, "success").await;
        check(ctx, &pull, "atlantis/plan", "success").await;
    });
}

#[test]
fn pull_requests_with_one_head_have_no_buttons() {
    run_test(quick("repo_locks: {mode: on_apply}"), async |ctx| {
        ctx.repo
            .push(
                "prod",
                &[(
                    "readme.md",
                    Some(
                        "prod
",
                    ),
                )],
            )
            .await
            .unwrap();
        let first = ctx.open_input("change", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let early = check(ctx, &first, PROJECT, "success").await;
        assert_eq!(early.buttons, ["plan", "apply"]);
        let second = ctx.repo.open_again(&first, "alice", "prod").await.unwrap();
        ctx.next(&second).await.is("plan", "success");
        for pull in [&first, &second] {
            ctx.say(pull, "atlantis plan").await.is("plan", "success");
            ctx.quiet().await;
            let planned = check(ctx, pull, PROJECT, "success").await;
            assert_eq!(planned.buttons, [""; 0], "a button would be that of the one that posted last");
        }
        // One that was shown before, perhaps on the page of the second one.
        first.press("alice", early.id, Some("apply")).unwrap();
        ctx.next(&first).await.has("Refused: several open pull requests have this commit");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn plans_are_repeated_by_buttons_and_by_githubs_own() {
    let steps = workflow("", &[PLANNED, "echo planned >> {tmp}/planned"], &["true"]);
    run_test(with_checks(Setup::projects(&["a", "b"]).repos_yaml(&steps)), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 2);
        press(ctx, "bob", &pull, "atlantis/plan: a/default", Some("plan")).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 3, "one project");
        press(ctx, "bob", &pull, "atlantis/plan: b/default", None).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 4);
        press(ctx, "bob", &pull, "atlantis/plan", Some("plan")).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 6, "all of it");
        ctx.quiet().await;
        ctx.next_second().await;
        pull.rerun_checks("bob").unwrap();
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 8);
        // Each name has one check run that counts, and none is left in progress.
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn a_post_whose_answer_is_lost_makes_no_second_check_run() {
    run_test(quick("").own_process(), async |ctx| {
        ctx.forge.fail_next("POST", "**/check-runs", Fault::AppliedThenReset, 3).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for name in [PROJECT, "atlantis/plan"] {
            check(ctx, &pull, name, "success").await;
        }
        ctx.quiet().await;
        let ended = |checks: &[PostedCheck], name| {
            checks.iter().filter(|check| check.name == name && check.status == "completed").count()
        };
        let checks = pull.checks().unwrap();
        assert_eq!((ended(&checks, PROJECT), ended(&checks, "atlantis/plan")), (1, 1), "{checks:#?}");
        // Killed between the post and its record.
        let lost = || {
            let of_checks = |path: &str| path.ends_with("/check-runs");
            let all = ctx.forge.requests();
            all.iter().filter(|one| one.method == "POST" && of_checks(&one.path) && one.status == 0).count()
        };
        let before = lost();
        ctx.forge.fail_next("POST", "**/check-runs", Fault::AppliedThenReset, 1).unwrap();
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.until("a check run is posted without an answer", async || lost() > before).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.next(&pull).await;
        ctx.nothing_pending(&pull, &[]).await;
        let checks = pull.checks().unwrap();
        let mut all: Vec<(&str, &str)> =
            checks.iter().map(|check| (check.name.as_str(), check.title.as_str())).collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before, "{checks:#?}");
    });
}

#[test]
fn a_fork_and_a_closed_pull_request_keep_their_rules() {
    run_test(quick("").flags(&["--allow-fork-prs"]), async |ctx| {
        let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "change", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.next(&pull).await.is("plan", "success");
        // The host names no pull request for such a check.
        press(ctx, "bob", &pull, PROJECT, Some("plan")).await.is("plan", "success");
        pull.close().unwrap();
        ctx.next(&pull).await;
        // A closed pull request has no projects.
        press(ctx, "bob", &pull, PROJECT, Some("apply")).await.has("no such project now");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn our_own_check_runs_do_not_keep_from_applying() {
    let flags = ["--gh-allow-mergeable-bypass-apply"];
    run_test(quick("apply_requirements: [mergeable]").flags(&flags), async |ctx| {
        ctx.repo.require_statuses(&["atlantis/apply", "atlantis/plan"]).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        check(ctx, &pull, "atlantis/plan", "success").await;
        press(ctx, "alice", &pull, PROJECT, Some("apply")).await.is("apply", "success");
        check(ctx, &pull, "atlantis/apply", "success").await;
        pull.merge().await.unwrap();
        ctx.next(&pull).await;
    });
}

#[test]
fn without_the_setting_nothing_about_checks_is_requested() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied"]).signed_in_as_app("acme-tidelock");
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "").await;
        ctx.quiet().await;
        assert!(ctx.forge.requests().iter().all(|request| !request.path.contains("check-runs")));
        assert!(pull.checks().unwrap().is_empty());
        // An event of a check is no button then.
        let body = r#"{"action": "rerequested", "check_run": {"app": {"id": 1}}}"#;
        assert_eq!(ctx.deliver("check_run", body).await, 200);
    });
}

#[test]
fn the_doctor_names_the_permission() {
    run_test(quick("").own_process(), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let url = format!("--atlantis-url={}", ctx.server.url());
        let (code, text) = ctx.server.command("doctor", &[&url]).await;
        assert_eq!(code, Some(0), "{text}");
        ctx.forge.restrict_app("checks", "check_run").unwrap();
        let (code, text) = ctx.server.command("doctor", &[&url]).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("lacks the permission checks: write (check runs, --gh-checks)"), "{text}");
        // GitHub subscribes an App with the permission by itself.
        assert!(!text.contains("check_run"), "{text}");
    });
}
