//! `--update-plan-comments`: plans that nobody asked for are written over the comment that they replace.

use crate::support::*;
use tidelock_forge::{Fault, Gate, Pull};

fn updating(setup: Setup) -> Setup {
    setup.flags(&["--update-plan-comments"]).steps(&[PLANNED], &[])
}

/// Returns the server's comments, as the command, the head that they tell of, and `hidden` where they are.
fn told(pull: &Pull) -> Vec<String> {
    let row = |comment: tidelock_forge::Comment| {
        let said = Said::new(&comment.body);
        let head = said.marker["head"].as_str().unwrap_or_default();
        let hidden = if comment.hidden { " hidden" } else { "" };
        format!("{} {}{hidden}", said.marker["command"].as_str().unwrap_or_default(), &head[..7])
    };
    pull.bot_comments().unwrap().into_iter().map(row).collect()
}

async fn are(ctx: &Ctx, pull: &Pull, expected: &[String]) {
    ctx.until_equal(expected, || told(pull)).await;
}

/// Pushes another input of the project with this file, and returns the first digits of the new head.
async fn push(ctx: &Ctx, pull: &Pull, file: &str, input: &str) -> String {
    let state = file.split_once('/').map_or("root", |(dir, _)| dir);
    ctx.push(pull, file, &terraform(state, input)).await;
    pull.head_commit().unwrap()[..7].to_owned()
}

#[test]
fn one_comment_tells_the_present_plan() {
    run_test(updating(Setup::projects(&["a", "b"])), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("bob", "Looks good.").unwrap();
        for input in ["3", "4"] {
            let head = push(ctx, &pull, "a/main.tf", input).await;
            are(ctx, &pull, &[format!("plan {head}")]).await;
        }
        // Who asks finds the answer below the question, and a part of the plans replaces no comment on all of them.
        let head = pull.head_commit().unwrap()[..7].to_owned();
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        are(ctx, &pull, &[format!("plan {head}"), format!("plan {head}")]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let hidden = format!("plan {head} hidden");
        are(ctx, &pull, &[hidden.clone(), hidden.clone(), format!("plan {head}")]).await;
        let next = push(ctx, &pull, "b/main.tf", "5").await;
        are(ctx, &pull, &[hidden.clone(), hidden, format!("plan {next}")]).await;
    });
}

#[test]
fn policy_checks_have_a_comment_of_their_own() {
    let policies =
        "policies:\n  policy_sets:\n    - name: gate\n      path: '{tmp}/policies'\n      owners: {users: [olga]}";
    let setup = Setup::one_project().own_process().flags(&["--enable-policy-checks", "--update-plan-comments"]);
    run_test(setup.repos_yaml(policies), async |ctx| {
        std::fs::create_dir_all(ctx.tmp.join("policies")).unwrap();
        std::fs::write(ctx.tmp.join("policies/gate.rego"), "package main\n\ndeny contains \"no\" if true\n").unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.next(&pull).await.is("policy_check", "failure");
        let head = push(ctx, &pull, "main.tf", "3").await;
        are(ctx, &pull, &[format!("plan {head}"), format!("policy_check {head}")]).await;
        ctx.quiet().await;
        are(ctx, &pull, &[format!("plan {head}"), format!("policy_check {head}")]).await;
        // Without a check, what the last one has told is no longer so.
        let old = head;
        ctx.push(&pull, "main.tf", "no code\n").await;
        let head = pull.head_commit().unwrap()[..7].to_owned();
        are(ctx, &pull, &[format!("plan {head}"), format!("policy_check {old} hidden")]).await;
    });
}

/// Requests of GraphQL before an edit: the one that reads the comments.
const READ: usize = 1;

#[test]
fn an_edit_that_is_cut_is_made_in_the_end() {
    run_test(updating(Setup::one_project()).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        for (fault, input) in [(Fault::AppliedThenReset, "3"), (Fault::Reset, "4")] {
            ctx.forge.fail_after(READ, "POST", "/api/graphql", fault, 1).unwrap();
            let head = push(ctx, &pull, "main.tf", input).await;
            are(ctx, &pull, &[format!("plan {head}")]).await;
        }
        let gate = Gate::new();
        ctx.forge.fail_after(READ, "POST", "/api/graphql", Fault::Hold(gate.clone()), 1).unwrap();
        let head = push(ctx, &pull, "main.tf", "5").await;
        gate.reached(1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        are(ctx, &pull, &[format!("plan {head}")]).await;
        ctx.quiet().await;
        are(ctx, &pull, &[format!("plan {head}")]).await;
    });
}

#[test]
fn a_new_comment_is_posted_where_none_can_be_written_over() {
    run_test(updating(Setup::one_project()), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let first = format!("plan {} hidden", &pull.head_commit().unwrap()[..7]);
        let refusal = r#"{"data": null, "errors": [{"type": "FORBIDDEN", "message": "no"}]}"#.to_owned();
        ctx.forge.fail_after(READ, "POST", "/api/graphql", Fault::Status(200, refusal, Vec::new()), 1).unwrap();
        let head = push(ctx, &pull, "main.tf", "3").await;
        are(ctx, &pull, &[first, format!("plan {head}")]).await;
        ctx.pass_over(&pull);
    });
}
