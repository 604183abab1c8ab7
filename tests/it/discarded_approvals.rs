//! `--discard-approval-on-plan`: a command to plan takes back the approvals before it.

use crate::support::*;
use tidelock_forge::Fault;

fn discarding(keys: &str) -> Setup {
    let rules = workflow(keys, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    Setup::one_project().flags(&["--discard-approval-on-plan"]).repos_yaml(&rules)
}

#[test]
fn an_asked_for_plan_takes_back_what_was_approved() {
    run_test(discarding("apply_requirements: [approved]"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for who in ["bob", "bob", "carol"] {
            pull.approve(who).unwrap();
        }
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("0 of 1 review");
        let dismissals = ctx.forge.requests().into_iter().filter(|request| request.path.ends_with("/dismissals"));
        assert_eq!(dismissals.count(), 3, "an older approval of somebody is one too");
        pull.approve("carol").unwrap();
        // A push takes back none.
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn nothing_is_planned_while_approvals_stay() {
    run_test(discarding("apply_requirements: [approved]"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        let refusal = r#"{"message": "Could not dismiss: you are not on the list"}"#.to_owned();
        ctx.forge.fail_next("PUT", "**/dismissals", Fault::Status(403, refusal, Vec::new()), 1).unwrap();
        let said = ctx.say(&pull, "atlantis plan -d .").await;
        said.because("requirement")
            .has("could not dismiss the approvals")
            .has("not on the list")
            .has("`atlantis plan -d .`");
        // The approval is of the plan that still exists.
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_plan_that_has_to_be_approved_is_judged_by_what_was_there() {
    run_test(discarding("plan_requirements: [approved]"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "failure").because("requirement");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "failure").because("requirement");
    });
}

#[test]
fn who_may_not_plan_takes_nothing_back() {
    let rules = "apply_requirements: [approved]\nallowed_users: ['alice:plan', 'alice:apply']";
    run_test(discarding(rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        ctx.say_as("carol", &pull, "atlantis plan").await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
