//! `--gh-allow-mergeable-bypass-apply` and `--ignore-vcs-status-names`: a branch that requires the status of the apply can be applied to.

use crate::support::*;
use secrecy::ExposeSecret as _;
use tidelock_forge::Pull;

fn mergeable() -> Setup {
    Setup::one_project().repos_yaml(&workflow("apply_requirements: [mergeable]", &[PLANNED], &["echo applied"]))
}

/// Sets a status of the head as bob, or his tool.
async fn set_status(ctx: &Ctx, pull: &Pull, context: &str, state: &str) {
    let (_, token) = ctx.forge.credentials("bob").unwrap();
    let url = format!("{}/api/v3/repos/acme/infra/statuses/{}", ctx.forge.url(), pull.head_commit().unwrap());
    let body = serde_json::json!({ "context": context, "state": state }).to_string();
    let request = reqwest::Client::builder().no_proxy().build().unwrap().post(url).bearer_auth(token.expose_secret());
    assert_eq!(request.body(body).send().await.unwrap().status().as_u16(), 201);
}

#[test]
fn the_status_of_the_apply_does_not_keep_from_applying() {
    let flags = ["--gh-allow-mergeable-bypass-apply", "--ignore-vcs-status-names=atlantis-2"];
    run_test(mergeable().flags(&flags), async |ctx| {
        ctx.repo.require_statuses(&["atlantis/apply", "ci", "atlantis/plan", "atlantis-2/plan"]).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "").await;
        let refused = async || ctx.say(&pull, "atlantis apply").await;
        refused().await.is("apply", "failure").has("required checks have not passed: `ci`");
        set_status(ctx, &pull, "ci", "failure").await;
        refused().await.is("apply", "failure").has("required checks have not passed: `ci`");
        set_status(ctx, &pull, "ci", "success").await;
        set_status(ctx, &pull, "atlantis-2/plan", "pending").await;
        // Other reasons of GitHub still count.
        pull.set_mergeable_state("behind").unwrap();
        refused().await.is("apply", "failure").has("it is behind `main`");
        pull.set_mergeable_state("blocked").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn without_the_setting_githubs_word_is_taken() {
    run_test(mergeable(), async |ctx| {
        ctx.repo.require_statuses(&["atlantis/apply"]).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("blocked by branch protection: reviews or required checks are missing");
        assert!(ctx.forge.requests().iter().all(|request| request.path != "/api/graphql"));
    });
}
