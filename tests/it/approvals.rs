//! Approval rules of projects: required approvals, the people whose approval counts, and the text of refusals.

use crate::support::*;
use tidelock_forge::{Fault, OpenOptions, Pull};

/// Two projects, with `CODEOWNERS`, and these rules.
fn guarded(rules: &str) -> Setup {
    let rules = workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    let owners = "* @acme/everybody\n/pay/ @carol @acme/money\n/net/ @bob\n";
    Setup::projects(&["pay", "net"]).file(".github/CODEOWNERS", owners).repos_yaml(&rules)
}

/// Opens a pull request of alice and has it planned; dave may write.
async fn planned(ctx: &Ctx, dirs: &[&str]) -> Pull {
    ctx.repo.set_permission("dave", "write").unwrap();
    let pull = ctx.open_dirs("change", dirs).await;
    ctx.next(&pull).await.is("plan", "success");
    pull
}

#[test]
fn so_many_of_those_named_have_to_approve() {
    run_test(guarded("approvals: {any_of: ['user:bob', 'team:sre'], count: 2}"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["carol"]);
        let pull = planned(ctx, &["pay"]).await;
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("requirement").has("approved: 0 of 2 of: bob, team sre");
        pull.approve("dave").unwrap();
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("1 of 2 of: bob, team sre (bob)");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn each_of_all_of_has_to_approve_and_each_unmet_rule_is_a_line() {
    run_test(guarded("approvals: {all_of: ['user:carol', 'team:sre']}"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = planned(ctx, &["pay"]).await;
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("carol has to approve").has("somebody of team sre has to approve");
        pull.approve("bob").unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("✗ approved: carol has to approve").has("✓ approved: team sre: bob");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn the_code_owners_of_each_project_approve_it() {
    run_test(guarded("approvals: {all_of: [codeowners]}"), async |ctx| {
        ctx.forge.set_team("acme", "money", &["dave"]);
        ctx.forge.set_team("acme", "everybody", &["bob", "carol", "dave"]);
        let pull = planned(ctx, &["pay", "net"]).await;
        let said = ctx.say(&pull, "atlantis apply -d pay").await;
        said.is("apply", "failure").has("code owners have to approve `pay/main.tf` (carol or team acme/money)");
        pull.approve("bob").unwrap();
        // An owner of one project does not count for the other.
        let said = ctx.say(&pull, "atlantis apply").await;
        assert_eq!(said.outcomes(), [("net".into(), "success".into()), ("pay".into(), "failure".into())]);
        pull.approve("dave").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_pull_request_does_not_choose_its_own_code_owners() {
    run_test(guarded("approvals: {any_of: [codeowners]}"), async |ctx| {
        let files = [("pay/main.tf", terraform("pay", "2")), (".github/CODEOWNERS", "* @bob\n".to_owned())];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let pull = ctx.open("change", &files).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("0 of 1 of: the code owners");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_pull_request_chooses_code_owners_neither_by_its_base_branch_nor_by_its_configuration() {
    run_test(guarded("approvals: {all_of: [codeowners]}"), async |ctx| {
        ctx.forge.set_team("acme", "everybody", &["bob"]);
        ctx.repo.push("release", &[(".github/CODEOWNERS", Some("* @bob\n"))]).await.unwrap();
        let listed = "version: 3\nprojects:\n  - dir: pay\n    autoplan: {when_modified: [none]}\n";
        let files = [("pay/main.tf", terraform("pay", "2")), ("atlantis.yaml", listed.to_owned())];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let options = OpenOptions { base: Some("release".to_owned()), ..OpenOptions::default() };
        let pull = ctx.open_as("alice", "change", &files, options).await;
        ctx.say(&pull, "atlantis plan -d pay").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("`atlantis.yaml` (team acme/everybody)");
        pull.approve("bob").unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("code owners have to approve `pay/main.tf` (carol or team acme/money)");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn without_code_owners_nobody_is_one() {
    let rules = workflow("approvals: {all_of: [codeowners]}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("the default branch has no CODEOWNERS");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn an_approval_counts_for_the_plan_that_was_there_when_it_was_given() {
    run_test(guarded("approvals: {of_plan: true}"), async |ctx| {
        let pull = planned(ctx, &["pay"]).await;
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let text = terraform("pay", "3");
        ctx.push(&pull, "pay/main.tf", &text).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("0 of 1 of: people who may write; the approval of bob is of an earlier head");
        pull.approve("bob").unwrap();
        ctx.next_second().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("bob approved before this plan was made");
        pull.approve("carol").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn an_approval_counts_for_a_new_plan_that_changes_the_same() {
    let rules = workflow("approvals: {of_plan: true}", &["init", "plan"], &["apply", "echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["pay"]).repos_yaml(&rules), async |ctx| {
        let pull = planned(ctx, &["pay"]).await;
        pull.approve("bob").unwrap();
        ctx.next_second().await;
        ctx.push(&pull, "pay/main.tf", &terraform("pay", "another")).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("the approval of bob is of an earlier head");
        // The plan is the same, but its code is not: a plan does not show everything.
        ctx.push(&pull, "pay/main.tf", &format!("# As before.\n{}", terraform("pay", "change"))).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("the approval of bob is of an earlier head");
        // Back to the approved code.
        ctx.push(&pull, "pay/main.tf", &terraform("pay", "change")).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

/// A plan is posted when all of its command are made, so nobody can have approved it before.
#[test]
fn an_approval_from_before_a_plan_was_told_is_not_of_it() {
    let waits = format!("case $REPO_REL_DIR in two) {};; esac", gate("plan"));
    let rules = workflow("approvals: {of_plan: true}", &[&waits, PLANNED], &["true"]);
    run_test(Setup::projects(&["one", "two"]).repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_dirs("first", &["one", "two"]).await;
        ctx.reached("plan", 1).await;
        ctx.status(&pull, "atlantis/plan: one/default", "success", "").await;
        ctx.next_second().await;
        pull.approve("bob").unwrap();
        ctx.next_second().await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply -d one").await;
        said.is("apply", "failure").has("bob approved before this plan was made");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply -d one").await.is("apply", "success");
    });
}

#[test]
fn who_pushed_does_not_approve() {
    run_test(guarded("approvals: {exclude_pushers: true}"), async |ctx| {
        let pull = planned(ctx, &["pay"]).await;
        pull.approve("bob").unwrap();
        pull.approve("dave").unwrap();
        let by =
            |login: &str| format!(r#"[{{"author": {{"login": "{login}"}}, "committer": {{"login": "web-flow"}}}}]"#);
        let answers =
            |body: String| ctx.forge.fail_next("GET", "**/commits", Fault::Status(200, body, Vec::new()), 1).unwrap();
        answers(r#"[{"author": null, "committer": null}]"#.to_owned());
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("does not report all authors and pushers");
        answers(format!("[{}]", vec![r#"{"author": {"login": "erin"}}"#; 250].join(",")));
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("squash 250 or more commits");
        answers(by("bob").replace("]", ", ") + &by("dave")[1..]);
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("0 of 1 of: people who may write; bob pushed to it; dave pushed to it");
        answers(by("dave"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn rules_hold_although_the_pull_request_drops_the_requirement() {
    let file = "version: 3\nprojects:\n  - dir: pay\n    apply_requirements: []\n";
    let rules =
        "allowed_overrides: [apply_requirements]\napply_requirements: [approved]\napprovals: {all_of: ['user:bob']}";
    run_test(guarded(rules).file("atlantis.yaml", file), async |ctx| {
        let pull = planned(ctx, &["pay"]).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("bob has to approve");
        let own = file.replace("apply_requirements: []", "approvals: {count: 1}");
        ctx.push(&pull, "atlantis.yaml", &own).await;
        ctx.next(&pull).await.is("plan", "error").has("not allowed to set `approvals` here");
    });
}

#[test]
fn no_answer_of_the_host_about_a_team_is_no_approval() {
    run_test(guarded("approvals: {all_of: ['team:sre']}"), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        let pull = planned(ctx, &["pay"]).await;
        pull.approve("bob").unwrap();
        ctx.forge.fail_next("GET", "/api/v3/orgs/**", Fault::Status(403, "{}".to_owned(), Vec::new()), 1).unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "error").has("did not say whether the pull request is approved").has("`atlantis apply`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

/// A team that the host was not asked about counts as no approval, and the refusal says so.
#[test]
fn more_pairs_of_team_and_person_than_the_host_is_asked_about_are_told() {
    let teams: Vec<String> = (0..60).map(|number| format!("'team:t{number}'")).collect();
    run_test(guarded(&format!("approvals: {{any_of: [{}]}}", teams.join(", "))), async |ctx| {
        let pull = planned(ctx, &["pay"]).await;
        pull.approve("bob").unwrap();
        pull.approve("dave").unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("requirement").has("the host is asked at most 100 times");
        let asked = ctx.forge.requests().iter().filter(|request| request.path.contains("/memberships/")).count();
        assert_eq!(asked, 100);
        // Fewer pairs are all asked about.
        ctx.forge.set_team("acme", "t0", &["bob"]);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
