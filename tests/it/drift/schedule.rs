//! Detections that `repos.yaml` schedules, through the front door: each scheduled time has one, whatever happens to the server.

use crate::notifications::told;
use crate::support::*;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Returns the minute and the hour, in UTC, of the time this many minutes ago.
fn clock(minutes_ago: i64) -> (i8, i8) {
    let time = (Timestamp::now() - SignedDuration::from_mins(minutes_ago)).to_zoned(jiff::tz::TimeZone::UTC);
    (time.minute(), time.hour())
}

/// Returns a daily schedule at the time this many minutes ago.
pub(super) fn daily(minutes_ago: i64) -> String {
    let (minute, hour) = clock(minutes_ago);
    format!("{minute} {hour} * * *")
}

/// A `repos.yaml` that names these repositories, each with this `drift` and these steps.
fn scheduled(repos: &[&str], drift: &str, plan: &[&str]) -> String {
    let whole = workflow(&format!("drift: {drift}"), plan, &["true"]);
    let (head, workflows) = whole.split_once("workflows:").unwrap();
    let entry = head.strip_prefix("repos:\n").unwrap();
    let entries: String = repos.iter().map(|repo| entry.replace("/.*/", &format!("127.0.0.1/{repo}"))).collect();
    format!("repos:\n{entries}workflows:{workflows}")
}

pub(super) fn of_infra(drift: &str, plan: &[&str]) -> String {
    scheduled(&["acme/infra"], drift, plan)
}

/// Returns the text of the page, with plain slashes and quotes.
pub(super) async fn page(ctx: &Ctx, query: &str) -> String {
    let (status, page) = ctx.request("GET", &format!("/drift{query}"), &[("Accept", "text/html")]).await;
    assert_eq!(status, 200, "{page}");
    page.replace("&#x2f;", "/").replace("&#x27;", "'").replace("&quot;", "\"")
}

async fn until_page_has(ctx: &Ctx, text: &str) -> String {
    ctx.until(&format!("the page has {text}"), async || page(ctx, "").await.contains(text)).await;
    page(ctx, "").await
}

/// Checks that no detection runs or is due.
fn is_calm(page: &str) {
    for busy in [">running<", ">waits for its turn<"] {
        assert!(!page.contains(busy), "{busy}: {page}");
    }
}

#[test]
fn a_time_that_is_due_has_one_detection_which_is_told_once() {
    let (setup, receiver, listener, _dir) = told("webhooks:\n- {event: drift, kind: http, url: '{receiver}/drift'}\n");
    let setup = setup.repos_yaml(&of_infra(&format!("{{schedule: {}}}", daily(120)), &["init", "plan"]));
    run_test(setup, async |ctx| {
        receiver.serve(listener);
        ctx.until("drift is told", async || receiver.taken() == 1).await;
        let told = &receiver.got()[0].body;
        assert_eq!(
            (&told["event"], &told["repository"], &told["ref"]),
            (&json!("drift"), &json!("acme/infra"), &json!("main"))
        );
        let shown = until_page_has(ctx, ">checked<").await;
        for part in ["acme/infra", ">1 drifted<", ">drifted<", "1 to add", "UTC</code>", "next <time"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let run = regex::Regex::new("runs/([0-9a-f]{32})").unwrap().captures(&shown).unwrap()[1].to_owned();
        assert_eq!(told["detection_id"], run);
        let (status, text) = ctx.request("GET", &format!("/runs/{run}"), &[]).await;
        assert!(status == 200 && text.contains("schedule") && text.contains("drift run"), "{text}");
        let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
        assert!(metrics.contains("\ntidelock_runs_total{command=\"drift\",result=\"success\"} 1\n"), "{metrics}");

        ctx.server.restart().await;
        is_calm(&page(ctx, "").await);
        assert!(page(ctx, "?state=clean").await.contains("No project is clean."));
        ctx.server.stop().await;
        // Nobody is told of the next one, which puts nothing right.
        ctx.rewrite_repos_yaml(&of_infra(&format!("{{schedule: {}, notify: none}}", daily(60)), &["init", "plan"]));
        ctx.server.start().await;
        ctx.until("there is another run", async || !page(ctx, "").await.contains(&run)).await;
        ctx.quiet().await;
        assert_eq!(receiver.taken(), 1);
    });
}

#[test]
fn a_detection_that_a_kill_cuts_begins_once_more() {
    let yaml = of_infra(&format!("{{schedule: {}}}", daily(120)), &[&gate("plan"), PLANNED]);
    let setup = Setup::projects(&["net"]).repos_yaml(&yaml).own_process();
    run_test(setup, async |ctx| {
        ctx.reached("plan", 1).await;
        assert!(page(ctx, "").await.contains(">running<"));
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        until_page_has(ctx, ">1 drifted<").await;
        ctx.server.kill().await;
        ctx.server.start().await;
        let shown = page(ctx, "").await;
        is_calm(&shown);
        assert!(shown.contains(">checked<") && ctx.lines("plan.reached") == 2, "{shown}");
    });
    let setup = Setup::projects(&["net"]).repos_yaml(&yaml).own_process();
    run_test(setup, async |ctx| {
        for times in [1, 2] {
            ctx.reached("plan", times).await;
            ctx.server.kill().await;
            ctx.server.start().await;
        }
        ctx.open_gate("plan");
        let shown = page(ctx, "").await;
        is_calm(&shown);
        assert!(shown.contains(">interrupted<") && ctx.lines("plan.reached") == 2, "{shown}");
    });
}

#[test]
fn what_was_missed_is_made_up_for_once_within_its_window() {
    let steps = ["echo planned >> {tmp}/planned", PLANNED];
    let setup = Setup::projects(&["net"]).repos_yaml(&of_infra(&format!("{{schedule: {}}}", daily(240)), &steps));
    run_test(setup, async |ctx| {
        until_page_has(ctx, ">1 drifted<").await;
        ctx.server.stop().await;
        let ((minute, first), (_, second)) = (clock(180), clock(120));
        let twice = format!("{{schedule: '{minute} {first},{second} * * *'}}");
        ctx.rewrite_repos_yaml(&of_infra(&twice, &steps));
        ctx.server.start().await;
        ctx.until("it is made up for", async || ctx.lines("planned") == 2).await;
        is_calm(&until_page_has(ctx, ">checked<").await);
        ctx.server.stop().await;
        ctx.rewrite_repos_yaml(&of_infra(&format!("{{schedule: {}, window: 10m}}", daily(30)), &steps));
        ctx.server.start().await;
        let shown = page(ctx, "").await;
        is_calm(&shown);
        assert!(shown.contains("No check began within the window of"), "{shown}");
        assert_eq!(ctx.lines("planned"), 2);
    });
}

#[test]
fn few_run_at_once_and_they_do_not_begin_together() {
    let yaml = |drift: &str| scheduled(&["acme/infra", "acme/net", "acme/db"], drift, &[&gate("plan"), PLANNED]);
    let idle = format!("{{schedule: {}, window: 10m}}", daily(120));
    let setup = Setup::projects(&["net"]).repos_yaml(&yaml(&idle));
    run_test(setup, async |ctx| {
        let shown = page(ctx, "").await;
        is_calm(&shown);
        assert_eq!(shown.matches(">not checked yet<").count(), 3, "{shown}");
        let next = regex::Regex::new(r#"next <time datetime="([^"]*)""#).unwrap();
        let mut times: Vec<&str> = next.captures_iter(&shown).map(|found| found.extract::<1>().1[0]).collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), 3, "{shown}");
        ctx.server.stop().await;
        for repo in ["acme/net", "acme/db"] {
            ctx.forge.create_repo(repo, &[("main.tf", &ctx.fill(&terraform("root", "1")))]).await.unwrap();
        }
        ctx.rewrite_repos_yaml(&yaml(&format!("{{schedule: {}}}", daily(120))));
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        let shown = page(ctx, "").await;
        let count = |text: &str| shown.matches(text).count();
        assert_eq!((count(">running<"), count(">waits for its turn<")), (2, 1), "{shown}");
        ctx.open_gate("plan");
        ctx.until("all are checked", async || page(ctx, "").await.matches(">checked<").count() == 3).await;
        let shown = page(ctx, "?repository=acme/db").await;
        assert!(shown.contains("acme/db") && !shown.contains(">acme/net<"), "{shown}");
    });
}

#[test]
fn projects_are_chosen_and_what_pull_requests_hold_is_left_alone() {
    let steps = [PLANNED];
    let idle = format!("{{schedule: {}, window: 10m}}", daily(120));
    let config = "version: 3\nprojects:\n- {dir: a, name: net}\n- {dir: prod/b}\n- {dir: c}\n";
    let setup =
        Setup::projects(&["a", "prod/b", "c"]).file("atlantis.yaml", config).repos_yaml(&of_infra(&idle, &steps));
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&pull).await.is("plan", "success");
        // A pull request has no say.
        let other = ctx.open("second", &[("atlantis.yaml", &format!("{config}drift: {{schedule: none}}\n"))]).await;
        ctx.next(&other).await.has("unknown key `drift`");
        assert!(page(ctx, "").await.contains(">not checked yet<"));
        ctx.server.stop().await;
        let due = format!("{{schedule: {}, projects: [net, 'prod/**'], branch: main}}", daily(120));
        ctx.rewrite_repos_yaml(&of_infra(&due, &steps));
        ctx.server.start().await;
        let shown = until_page_has(ctx, ">checked<").await;
        for part in [">1 drifted<", ">1 skipped<", "#1 has locked it", "prod/b", ">net<"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("c/default"), "{shown}");
        assert_eq!(ctx.locks().await, ["acme/infra/a/default/net"]);

        ctx.server.stop().await;
        let none = format!("{{schedule: {}, projects: 'test/**'}}", daily(60));
        ctx.rewrite_repos_yaml(&of_infra(&none, &steps));
        ctx.server.start().await;
        let said = "`drift.projects` in `repos.yaml` matches no project of the branch \"main\": test/**";
        is_calm(&until_page_has(ctx, said).await);
        ctx.server.stop().await;
        let gone = format!("{{schedule: {}, branch: gone}}", daily(30));
        ctx.rewrite_repos_yaml(&of_infra(&gone, &steps));
        ctx.server.start().await;
        until_page_has(ctx, "there is no branch \"gone\"").await;
    });
}

#[test]
fn a_person_who_may_plan_has_a_repository_checked_now() {
    let drift = format!("{{schedule: {}, window: 10m}}", daily(120));
    let setup = || Setup::projects(&["net"]).repos_yaml(&of_infra(&drift, &[&gate("plan"), PLANNED]));
    let check = "/drift/check?repo=127.0.0.1%2Facme%2Finfra";
    run_test(setup(), async |ctx| {
        assert!(page(ctx, "").await.contains("Check now"));
        for (path, headers, status) in [
            (check, &[("Sec-Fetch-Site", "cross-site")][..], 403),
            (check, &[("Origin", "https://evil.example")], 403),
            ("/drift/check?repo=127.0.0.1%2Facme%2Fother", &[], 404),
            ("/drift/check", &[], 404),
            (check, &[], 200),
        ] {
            let (answered, text) = ctx.request("POST", path, headers).await;
            assert_eq!(answered, status, "{path} {headers:?}: {text}");
        }
        ctx.reached("plan", 1).await;
        assert!(!page(ctx, "").await.contains("Check now"));
        let (status, text) = ctx.request("POST", check, &[]).await;
        assert!(status == 409 && text.contains("runs already"), "{status} {text}");
        ctx.open_gate("plan");
        let shown = until_page_has(ctx, ">checked<").await;
        let run = regex::Regex::new("runs/([0-9a-f]{32})").unwrap().captures(&shown).unwrap()[1].to_owned();
        let run = ctx.json(&format!("/api/runs/{run}")).await;
        assert_eq!((&run["user"], &run["trigger"]), (&json!("loopback"), &json!("drift")));
        let audit = ctx.json("/audit.json?act=drift%20check").await;
        assert_eq!(audit["entries"][0]["who"], "loopback", "{audit:#}");
        assert_eq!(ctx.lines("plan.reached"), 1);
    });
    let drift = format!("allowed_users: [alice]\ndrift: {drift}");
    let guarded = Setup::projects(&["net"]).repos_yaml(&workflow(&drift, &[PLANNED], &["true"]));
    let guarded = guarded.flags(&["--web-basic-auth"]).variable("ATLANTIS_WEB_USERNAME", "ada");
    run_test(guarded.variable("ATLANTIS_WEB_PASSWORD", "a long secret"), async |ctx| {
        // The server knows a repository of a pattern by its pull requests.
        ctx.planned_dirs("change", &["net"]).await;
        let login = [("authorization", "Basic YWRhOmEgbG9uZyBzZWNyZXQ=")];
        let (_, shown) = ctx.request("GET", "/drift", &login).await;
        assert!(shown.contains("acme") && !shown.contains("Check now"), "{shown}");
        let (status, text) = ctx.request("POST", check, &login).await;
        assert!(status == 403 && text.contains("ada may not use `plan`"), "{status} {text}");
    });
}
