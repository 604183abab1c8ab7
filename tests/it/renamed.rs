//! Repositories that are renamed, transferred or replaced: the state follows the host's id of the repository.

use crate::support::*;
use tidelock_forge::{OpenOptions, Pull};

const STRICT: &str = "repo_locks: {mode: strict}";
const ALL: &str = "--repo-allowlist=127.0.0.1/acme/*";

fn strict() -> Setup {
    let rules = workflow(STRICT, &[PLANNED], &["echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(&[ALL])
}

/// Returns `owner/name dir #holder` of each lock or owner in the API.
async fn held(ctx: &Ctx) -> Vec<String> {
    let all = ctx.json("/api/locks").await;
    let rows = all["Locks"].as_array().cloned().unwrap_or_default();
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    rows.iter()
        .map(|row| format!("{} {} #{}", text(row, "ProjectRepo"), text(row, "ProjectRepoPath"), text(row, "PullID")))
        .collect()
}

/// Returns the same pull request under the present name.
fn under(ctx: &Ctx, name: &str, pull: &Pull) -> Pull {
    ctx.forge.repo(name).pull(pull.number())
}

#[test]
fn an_owner_keeps_its_project_under_the_present_name() {
    run_test(strict(), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        let before = held(ctx).await;
        assert!(before.iter().any(|row| row == "acme/infra a #1"), "{before:?}");
        ctx.quiet().await;
        ctx.forge.transfer("acme/infra", "acme/net").unwrap();
        let first = under(ctx, "acme/net", &first);
        // The delivery of a comment shows the new name.
        ctx.say(&first, "atlantis help").await;
        let after = held(ctx).await;
        assert!(after.iter().all(|row| row.starts_with("acme/net ")) && after.len() == before.len(), "{after:?}");
        ctx.server.restart().await;
        assert_eq!(held(ctx).await, after);
        // Nobody else changes it before that is merged.
        let options = OpenOptions::default();
        let change = [("a/second.tf", Some("# more\n"))];
        let second = ctx.forge.repo("acme/net").open_pull("second", "alice", "Second", &change, options).await.unwrap();
        ctx.next(&second).await;
        ctx.say(&second, "atlantis apply").await.has("#1");
        assert_eq!(ctx.lines("applied"), 1);
        first.merge().await.unwrap();
        ctx.until("the merge frees it", async || held(ctx).await.iter().all(|row| !row.ends_with("#1"))).await;
        ctx.next(&second).await.is_message("plans_fell");
        ctx.next(&second).await.is("plan", "success");
    });
}

#[test]
fn a_lock_follows_without_any_delivery() {
    let setup = Setup::one_project()
        .steps(&[PLANNED], &["echo applied >> {tmp}/applied"])
        .flags(&[ALL, "--reconcile-interval=1s"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(held(ctx).await, ["acme/infra . #1"]);
        ctx.quiet().await;
        ctx.forge.transfer("acme/infra", "acme/net").unwrap();
        ctx.until("it follows", async || held(ctx).await == ["acme/net . #1"]).await;
        // The plan still belongs to the pull request.
        let pull = under(ctx, "acme/net", &pull);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn what_leaves_the_allowlist_is_ended_with_a_word() {
    run_test(strict().own_process(), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        ctx.forge.transfer("acme/infra", "other/vault").unwrap();
        let first = under(ctx, "other/vault", &first);
        first.comment("alice", "atlantis plan").unwrap();
        ctx.until("it is ended", async || held(ctx).await.is_empty()).await;
        ctx.until("the log says so", async || ctx.server.log().contains("is not in --repo-allowlist; list it")).await;
    });
}

#[test]
fn another_repository_with_the_former_name_inherits_nothing() {
    run_test(strict(), async |ctx| {
        let first = ctx.planned_own("first", &["a"]).await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        let said = first.bot_comments().unwrap().len();
        // No delivery reports the renaming.
        ctx.forge.transfer("acme/infra", "acme/net").unwrap();
        let files = [("a/main.tf", ""), ("b/main.tf", "")];
        let other = ctx.forge.create_repo("acme/infra", &files).await.unwrap();
        let change = [("a/other.tf", Some("# other\n"))];
        let pull = other.open_pull("other", "alice", "Other", &change, OpenOptions::default()).await.unwrap();
        // Both have the number 1.
        ctx.until("it is planned", async || pull.bot_comments().unwrap().len() == 1).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.until("it is applied", async || pull.bot_comments().unwrap().len() == 2).await;
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 2);
        let rows = held(ctx).await;
        assert!(rows.contains(&"acme/net a #1".to_owned()) && rows.contains(&"acme/infra a #1".to_owned()), "{rows:?}");
        let first = under(ctx, "acme/net", &first);
        assert_eq!(first.bot_comments().unwrap().len(), said);
        ctx.server.restart().await;
        assert_eq!(held(ctx).await.len(), rows.len());
    });
}
