//! The server as a GitHub App: tokens of several installations, which expire, are revoked and are renewed; deliveries that nobody took; the
//! doctor's report; and the making of an App.

use crate::support::*;
use jiff::SignedDuration;
use tidelock_forge::OpenOptions;

const APP: &str = "acme-tidelock";

fn app() -> Setup {
    Setup::one_project().steps(&[PLANNED], &["echo applied"]).signed_in_as_app(APP)
}

/// Returns the number of requests that made a token of an installation.
fn made_tokens(ctx: &Ctx) -> usize {
    let of_tokens = |path: &str| path.ends_with("/access_tokens");
    ctx.forge.requests().iter().filter(|request| of_tokens(&request.path) && request.status == 201).count()
}

#[test]
fn a_pull_request_is_planned_and_applied_by_the_app() {
    run_test(app().flags(&["--gh-app-slug=acme-tidelock"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "").await;
        assert!(pull.comments().unwrap().iter().any(|comment| comment.author == "acme-tidelock[bot]"));
        // One token is enough for everything.
        assert_eq!(made_tokens(ctx), 1);
    });
}

#[test]
fn each_owner_is_served_with_the_token_of_its_installation() {
    run_test(app(), async |ctx| {
        let other = ctx.forge.create_repo("beta/infra", &[("main.tf", &terraform("beta", "1"))]).await.unwrap();
        let changes = [("main.tf", Some(&*ctx.fill(&terraform("beta", "2"))))];
        ctx.forge.install_app("beta").unwrap();
        let pull = other.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap();
        let comment = pull.wait_for_comment(0, LIMIT).await.unwrap();
        Said::new(&comment.body).is("plan", "success");
        let first = ctx.open_input("change", "2").await;
        ctx.next(&first).await.is("plan", "success");
        assert_eq!(made_tokens(ctx), 2);
    });
}

#[test]
fn tokens_that_were_revoked_or_end_soon_are_made_anew() {
    run_test(app(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        let before = made_tokens(ctx);
        ctx.forge.revoke_app_tokens().unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(made_tokens(ctx) > before);
        ctx.quiet().await;
        // Renewed minutes before expiry: no request is refused.
        ctx.forge.set_app_token_life(SignedDuration::from_secs(300)).unwrap();
        ctx.forge.revoke_app_tokens().unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let (made, refused) = (made_tokens(ctx), refusals(ctx));
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert!(made_tokens(ctx) > made);
        assert_eq!(refusals(ctx), refused);
    });
}

/// Returns the number of requests that were refused because of their token.
fn refusals(ctx: &Ctx) -> usize {
    let is_refused = |path: &str, status| status == 401 && path.starts_with("/api/");
    ctx.forge.requests().iter().filter(|request| is_refused(&request.path, request.status)).count()
}

#[test]
fn a_clock_that_is_wrong_does_not_matter() {
    run_test(app(), async |ctx| {
        ctx.forge.set_clock_ahead(SignedDuration::from_mins(-20));
        ctx.forge.revoke_app_tokens().unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.forge.set_clock_ahead(SignedDuration::from_hours(2));
        ctx.forge.revoke_app_tokens().unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn deliveries_that_nobody_took_come_again() {
    run_test(app(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        ctx.server.stop().await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let lost = ctx.forge.deliveries().pop().unwrap();
        assert!(!lost.succeeded());
        // A minute later.
        ctx.forge.set_clock_ahead(SignedDuration::from_mins(1));
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "success");
        ctx.until("it came again", async || {
            ctx.forge.deliveries().iter().any(|one| one.guid == lost.guid && one.succeeded())
        })
        .await;
    });
}

/// Returns the doctor's report, with parts that differ from run to run replaced.
async fn doctor(ctx: &Ctx) -> (Option<i32>, String) {
    let url = format!("--atlantis-url={}", ctx.server.url());
    let (code, text) = ctx.server.command("doctor", &[&url]).await;
    (code, text.replace(&ctx.server.url(), "URL").replace(ctx.forge.url(), "FORGE"))
}

#[test]
fn the_doctor_names_what_the_app_lacks() {
    run_test(app().own_process(), async |ctx| {
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let (code, text) = doctor(ctx).await;
        assert_eq!(code, Some(0), "{text}");
        for said in [
            "ok       github app the server is acme-tidelock[bot], FORGE/apps/acme-tidelock",
            "ok       github app acme has installed it",
            "ok       github     may write to acme/infra",
            "ok       webhook    the App's comes to URL/events, its last delivery was taken",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        ctx.forge.restrict_app("statuses", "issue_comment").unwrap();
        ctx.forge.suspend_app("acme", true).unwrap();
        let (code, text) = doctor(ctx).await;
        assert_eq!(code, Some(1), "{text}");
        for said in [
            "FAULT    github app it lacks the permission statuses: write",
            "FAULT    github app it is not told of the event issue_comment",
            "FAULT    github app acme has suspended its installation",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        // A key of another App.
        ctx.forge.set_app(APP, OTHER_KEY).unwrap();
        let (_, text) = doctor(ctx).await;
        assert!(text.contains("GitHub does not take the key of the App") && text.contains("new private key"), "{text}");
    });
}

#[test]
fn an_app_is_made_by_whoever_began_it_here_and_shown_once() {
    run_test(Setup::one_project().flags(&["--gh-org=acme"]), async |ctx| {
        let code = ctx.forge.make_app(APP, OTHER_KEY).unwrap();
        let (status, text) = ctx.request("GET", &format!("/github-app/exchange-code?code={code}&state="), &[]).await;
        assert!(status == 400 && text.contains("not begun here"), "{status} {text}");
        let page = ctx.request("GET", "/github-app/setup", &[]).await;
        assert_eq!(page.0, 200, "{}", page.1);
        let form = unescaped(&page.1);
        let place = form.split("/organizations/acme/settings/apps/new?state=").nth(1).unwrap();
        let state: String = place.chars().take_while(char::is_ascii_hexdigit).collect();
        assert!(page.1.contains("pull_requests") && page.1.contains("merge_group"), "{}", page.1);
        let exchange = format!("/github-app/exchange-code?code={code}&state={state}");
        let (status, text) = ctx.request("GET", &exchange, &[]).await;
        let (line, text) = (OTHER_KEY.lines().nth(1).unwrap(), unescaped(&text));
        assert!(status == 200 && text.contains(line) && text.contains("gh-app-id"), "{status} {text}");
        let (status, text) = ctx.request("GET", &exchange, &[]).await;
        assert!(status == 400 && !unescaped(&text).contains(line), "{status} {text}");
    });
}

#[test]
fn no_app_is_made_where_the_server_is_one_or_the_caller_may_not() {
    run_test(app(), async |ctx| {
        for path in ["/github-app/setup", "/github-app/exchange-code?code=x&state=y"] {
            let (status, text) = ctx.request("GET", path, &[]).await;
            assert!(status == 400 && text.contains("already"), "{path}: {status} {text}");
            // Through a proxy, and without a login.
            let (status, _) = ctx.request("GET", path, &[("x-forwarded-for", "192.0.2.1")]).await;
            assert_eq!(status, 403, "{path}");
        }
    });
}

/// Unescapes a page, as far as these tests need it.
fn unescaped(page: &str) -> String {
    page.replace("&#x2f;", "/").replace("&#x3d;", "=")
}

/// Another key, made for these tests, and known to nobody else.
const OTHER_KEY: &str = include_str!("github_app/other.pem");
