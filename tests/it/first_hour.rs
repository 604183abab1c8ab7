//! What a newcomer meets first: statuses that end, a dashboard that lists what is broken, and changes that are asked for twice.

use crate::support::*;

async fn dashboard(ctx: &Ctx, query: &str) -> String {
    let (status, page) = ctx.ask("GET", &format!("/{query}"), &[]).await;
    assert_eq!(status, 200, "{page}");
    page.replace("&#x2f;", "/")
}

#[test]
fn a_command_without_a_status_of_its_own_leaves_none_pending() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis version").await.is("version", "success");
        let id = "11111111-2222-3333-4444-555555555555";
        ctx.say(&pull, &format!("atlantis import -d . terraform_data.this {id}")).await.is("import", "success");
        ctx.say(&pull, "atlantis state rm -d . terraform_data.this").await.is("state_rm", "success");
        // Whatever was to be told of them is told before the server ends.
        ctx.quiet().await;
        ctx.server.restart().await;
        let statuses = pull.statuses().unwrap();
        let pending: Vec<_> = statuses.iter().filter(|(_, status)| status.state == "pending").collect();
        assert!(pending.is_empty(), "{pending:#?}");
        let others = ["version", "import", "state"].iter().any(|name| statuses.keys().any(|key| key.contains(name)));
        assert!(!others, "{statuses:#?}");
    });
}

#[test]
fn a_pull_request_whose_plan_failed_as_a_whole_is_listed_and_counted() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open("broken", &[("atlantis.yaml", "version: 3\nprojets:\n  - dir: .\n")]).await;
        ctx.next(&pull).await.has("projets");
        let page = dashboard(ctx, "").await;
        for shown in ["1 failed", "acme/infra#1", "Change by broken", "plan failed", "projets"] {
            assert!(page.contains(shown), "{shown} is missing:\n{page}");
        }
        ctx.push(&pull, "atlantis.yaml", "version: 3\nprojects:\n  - dir: .\n").await;
        ctx.next(&pull).await;
        let page = dashboard(ctx, "").await;
        assert!(!page.contains("projets") && !page.contains("1 failed"), "{page}");
    });
}

#[test]
fn the_dashboard_shows_what_waits_for_what_and_finds_words() {
    run_test(Setup::one_project().steps(&[PLANNED], &[&gate("apply"), "echo applied"]), async |ctx| {
        let first = ctx.open_input("first", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.open_input("second", "3").await;
        ctx.next(&second).await.because("locked");
        let page = dashboard(ctx, "").await;
        let lock = "href=\"./lock?id=acme%2Finfra%2F.%2Fdefault%2F\"><span class=\"mark warn\">waits for #1</span>";
        assert!(page.contains(lock), "{page}");
        first.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let page = dashboard(ctx, "").await;
        assert!(page.contains("<span class=\"mark busy\">applying</span>"), "{page}");
        let page = dashboard(ctx, "?q=change+by+second").await;
        assert!(page.contains("acme/infra#2") && !page.contains("acme/infra#1<"), "{page}");
        let page = dashboard(ctx, "?q=nobody+says+this").await;
        assert!(page.contains("No open pull request has the words") && page.contains("Show all"), "{page}");
        assert!(page.contains("value=\"nobody says this\""), "{page}");
        ctx.open_gate("apply");
        ctx.next(&first).await;
    });
}

#[test]
fn stopping_all_applies_wants_a_reason_of_people() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let browser = [("Accept", "text/html")];
        let (status, page) = ctx.ask("POST", "/apply/lock", &browser).await;
        assert!(status == 400 && page.contains("say why"), "{status} {page}");
        assert!(!dashboard(ctx, "").await.contains("applies are stopped"));
        let (status, _) = ctx.ask("POST", "/apply/lock?reason=freeze", &browser).await;
        assert_eq!(status, 303);
        let page = dashboard(ctx, "?notice=applies-stopped").await;
        assert!(page.contains("class=\"notice warn\"") && page.contains("freeze"), "{page}");
        assert_eq!(ctx.ask("POST", "/apply/unlock", &browser).await.0, 303);
        // Scripts that know Atlantis give none.
        assert_eq!(ctx.ask("POST", "/apply/lock", &[]).await.0, 200);
    });
}
