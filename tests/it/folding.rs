//! `--hide-prev-plan-comments`: a comment is folded if a newer one replaces it, and no other.

use crate::support::*;
use tidelock_forge::{Fault, Gate, Pull};

fn folding(setup: Setup) -> Setup {
    setup.flags(&["--hide-prev-plan-comments"]).steps(&[PLANNED], &["test -e {tmp}/ok"])
}

/// Returns the places of folded comments among the server's.
fn hidden(pull: &Pull) -> Vec<usize> {
    let comments = pull.bot_comments().unwrap();
    comments.iter().enumerate().filter(|(_, comment)| comment.hidden).map(|(place, _)| place).collect()
}

async fn are_hidden(ctx: &Ctx, pull: &Pull, places: &[usize]) {
    ctx.until(&format!("{places:?} are folded"), async || hidden(pull) == places).await;
}

fn asked(ctx: &Ctx) -> usize {
    ctx.forge.requests().iter().filter(|request| request.path == "/api/graphql").count()
}

#[test]
fn a_result_folds_what_it_tells_anew() {
    run_test(folding(Setup::projects(&["a", "b"])), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("bob", "Plan: looks good").unwrap();
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        are_hidden(ctx, &pull, &[1]).await;
        // An autoplan reports all projects.
        ctx.push(&pull, "a/main.tf", &terraform("a", "3")).await;
        ctx.next(&pull).await.is("plan", "success");
        are_hidden(ctx, &pull, &[0, 1, 2]).await;
        // A successful apply stays visible; a failed attempt does not.
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "error");
        std::fs::write(ctx.fill("{tmp}/ok"), "").unwrap();
        ctx.say(&pull, "atlantis apply -d b").await.is("apply", "success");
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d a").await.is("apply", "success");
        are_hidden(ctx, &pull, &[0, 1, 2, 4]).await;
        ctx.quiet().await;
        let bobs = pull.comments().unwrap().into_iter().filter(|comment| comment.author != ctx.forge.bot());
        assert!(bobs.map(|comment| comment.hidden).all(|hidden| !hidden), "comments of people are theirs");
        let (results, requests) = (pull.bot_comments().unwrap().len(), asked(ctx));
        assert!(requests <= 2 * results, "{requests} requests for {results} results");
    });
}

#[test]
fn an_app_folds_its_own_comments() {
    let setup = folding(Setup::one_project()).signed_in_as_app("tide");
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(pull.bot_comments().unwrap()[0].author, "tide[bot]");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        are_hidden(ctx, &pull, &[0]).await;
    });
}

#[test]
fn nothing_is_folded_unless_it_is_asked_for() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.quiet().await;
        assert_eq!((hidden(&pull), asked(ctx)), (vec![], 0));
    });
}

#[test]
fn a_killed_server_folds_after_its_start_what_was_left() {
    run_test(folding(Setup::one_project()).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let gate = Gate::new();
        ctx.forge.fail_next("POST", "/api/graphql", Fault::Hold(gate.clone()), 1).unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        gate.reached(1).await;
        // The gate stays closed: the request from before the kill has no effect.
        ctx.server.kill().await;
        assert_eq!(hidden(&pull), [] as [usize; 0]);
        ctx.server.start().await;
        are_hidden(ctx, &pull, &[0]).await;
        // An answer that is lost, and one that never comes.
        ctx.forge.fail_next("POST", "/api/graphql", Fault::AppliedThenReset, 2).unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        are_hidden(ctx, &pull, &[0, 1]).await;
    });
}

#[test]
fn a_host_that_refuses_to_fold_holds_nothing_up() {
    run_test(folding(Setup::one_project()), async |ctx| {
        let refusal = r#"{"data": null, "errors": [{"type": "FORBIDDEN", "message": "no"}]}"#.to_owned();
        ctx.forge.fail_next("POST", "/api/graphql", Fault::Status(200, refusal, Vec::new()), usize::MAX).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for _ in 0..3 {
            ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        }
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        assert!(hidden(&pull).is_empty());
    });
}
