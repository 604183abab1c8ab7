//! Repositories that were transferred or renamed: answers of the host under a former name are about a repository that may be in no
//! allowlist.

use crate::support::*;
use secrecy::ExposeSecret;
use serde_json::Value;
use tidelock_forge::Fault;

fn counted() -> Setup {
    Setup::one_project().steps(&["echo ran >> {tmp}/ran", PLANNED], &["echo applied >> {tmp}/applied"])
}

/// Sets the forge's next answer for the only pull request of `acme/infra`.
fn answer_next(ctx: &Ctx, body: &Value) {
    let answer = Fault::Status(200, body.to_string(), vec![]);
    ctx.forge.fail_next("GET", "/api/v3/repos/acme/infra/pulls/1", answer, 1).unwrap();
}

/// Returns a pull request as the API has it.
async fn told(ctx: &Ctx, repo: &str) -> Value {
    let url = format!("{}/api/v3/repos/{repo}/pulls/1", ctx.forge.url());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(url).bearer_auth(ctx.forge.token().expose_secret()).send().await.unwrap();
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

#[test]
fn what_a_redirect_leads_to_is_neither_fetched_nor_run_nor_told() {
    run_test(counted().flags(&["--repo-allowlist=127.0.0.1/acme/*"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let (said, head) = (pull.bot_comments().unwrap().len(), pull.head_commit().unwrap());
        // Deliveries on their way have the former name of the repository.
        ctx.forge.pause_webhooks(true);
        pull.comment("alice", "atlantis apply").unwrap();
        let pushed = ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.forge.transfer("acme/infra", "other/vault").unwrap();
        ctx.forge.pause_webhooks(false);
        ctx.quiet().await;
        ctx.server.restart().await;
        ctx.quiet().await;
        assert_ne!(head, pushed);
        assert_eq!((ctx.lines("ran"), ctx.lines("applied")), (1, 0));
        assert_eq!(pull.bot_comments().unwrap().len(), said);
        assert!(ctx.repo.statuses_of(&pushed).unwrap().is_empty());
        // Its own name is not in the allowlist.
        pull.comment("alice", "atlantis plan").unwrap();
        ctx.quiet().await;
        assert_eq!(ctx.lines("ran"), 1);
    });
}

#[test]
fn the_result_of_an_apply_follows_a_repository_to_a_name_that_is_served() {
    let setup = Setup::one_project().steps(&[PLANNED], &[&gate("apply")]);
    run_test(setup.flags(&["--repo-allowlist=127.0.0.1/acme/*"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.forge.transfer("acme/infra", "acme/renamed").unwrap();
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "").await;
    });
}

#[test]
fn an_answer_about_another_repository_is_refused_by_name() {
    run_test(counted().flags(&["--repo-allowlist=127.0.0.1/acme/infra"]), async |ctx| {
        let other = ctx.forge.create_repo("acme/vault", &[("main.tf", "")]).await.unwrap();
        let change = [("main.tf", Some("# change\n"))];
        other.open_pull("change", "alice", "Change", &change, Default::default()).await.unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        answer_next(ctx, &told(ctx, "acme/vault").await);
        ctx.say(&pull, "atlantis plan").await.has("leads to another repository, acme/vault");
        // The right name, but with another address for git.
        let mut elsewhere = told(ctx, "acme/infra").await;
        elsewhere["base"]["repo"]["clone_url"] = other.clone_url().into();
        answer_next(ctx, &elsewhere);
        ctx.say(&pull, "atlantis apply").await.has("fetch from does not lead to /acme/infra.git");
        assert_eq!((ctx.lines("ran"), ctx.lines("applied")), (1, 0));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
