//! Plans that are too old to be applied.

use crate::support::*;
use jiff::Timestamp;

/// Returns a `repos.yaml` with this limit on the age of plans.
fn aged(limit: &str) -> String {
    workflow(&format!("plan_max_age: {limit}"), &[PLANNED], &["echo applied >> {tmp}/applied"])
}

/// Restarts the server with plans that may become a second old, and returns when all earlier plans are older.
async fn restart_when_plans_are_old(ctx: &Ctx) {
    let planned = Timestamp::now();
    ctx.rewrite_repos_yaml(&aged("1s"));
    ctx.server.restart().await;
    ctx.until("the plan is older than a second", async || Timestamp::now().duration_since(planned).as_millis() > 1000)
        .await;
}

#[test]
fn a_plan_that_is_too_old_is_refused_with_its_age_and_kept() {
    run_test(Setup::one_project().repos_yaml(&aged("1h")), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("may be applied for another 59 min"), "{page}");
        restart_when_plans_are_old(ctx).await;
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure")
            .because("stale_plan")
            .has(" s old")
            .has("the limit is 1 s")
            .has("`atlantis plan -d .`");
        assert_eq!(ctx.lines("applied"), 0);
        // The plan still exists: with another limit it is applied.
        ctx.rewrite_repos_yaml(&aged("1h"));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn an_apply_of_everything_names_each_plan_that_is_too_old() {
    let setup = Setup::projects(&["first", "second"]).repos_yaml(&aged("0"));
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["first", "second"]).await;
        ctx.next(&pull).await.is("plan", "success");
        restart_when_plans_are_old(ctx).await;
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").because("stale_plan");
        said.has("`atlantis plan -d first`").has("`atlantis plan -d second`");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.rewrite_repos_yaml(&aged("1h"));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis plan -d first").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d first").await.is("apply", "success");
    });
}

#[test]
fn a_repository_sets_its_own_limit_only_where_it_may() {
    let file = "version: 3\nprojects:\n  - dir: .\n    plan_max_age: 1s\n";
    let allowed = workflow("allowed_overrides: [plan_max_age]", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().file("atlantis.yaml", file).repos_yaml(&aged("1h")), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "error").has("not allowed to set `plan_max_age`");
        ctx.rewrite_repos_yaml(&allowed);
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let planned = Timestamp::now();
        ctx.until("the plan is too old", async || Timestamp::now().duration_since(planned).as_millis() > 1000).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("stale_plan").has("`atlantis plan -d .`");
        assert_eq!(ctx.lines("applied"), 0);
    });
}
