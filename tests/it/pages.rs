//! Pages for people and scripts on the server's own address.

use crate::support::*;

async fn dashboard(ctx: &Ctx) -> String {
    let (status, page) = ctx.request("GET", "/", &[]).await;
    assert_eq!(status, 200, "{page}");
    page.replace("&#x2f;", "/")
}

#[test]
fn the_dashboard_shows_what_runs_and_who_holds_what() {
    run_test(Setup::one_project().steps(&["echo hello from the step", &gate("plan"), PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        let page = dashboard(ctx).await;
        for shown in ["acme/infra", "#1", "Change by change", "alice", "running"] {
            assert!(page.contains(shown), "{shown} is missing:\n{page}");
        }
        let live = regex::Regex::new("jobs/([0-9a-f]{32})").unwrap().captures(&page).unwrap()[1].to_owned();
        let (status, job) = ctx.request("GET", &format!("/jobs/{live}"), &[]).await;
        assert!(status == 200 && job.contains("hello from the step"), "{status} {job}");
        ctx.open_gate("plan");
        let said = ctx.next(&pull).await;
        assert_eq!(said.job(), live);
        let page = dashboard(ctx).await;
        assert!(page.contains("lock?id=127.0.0.1%2Facme%2Finfra%2F.%2Fdefault%2F"), "{page}");
        let (status, lock) = ctx.request("GET", "/lock?id=acme%2Finfra%2F.%2Fdefault%2F", &[]).await;
        assert!(status == 200 && lock.contains("atlantis plan -d ."), "{status} {lock}");
    });
}

#[test]
fn an_open_page_is_told_of_a_change_once_the_page_shows_it() {
    run_test(Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]), async |ctx| {
        let revision_of = |page: &str| {
            regex::Regex::new("data-revision=\"([0-9a-f]{8}-[0-9]+)\"").unwrap().captures(page).unwrap()[1].to_owned()
        };
        let before = revision_of(&dashboard(ctx).await);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let changes = format!("{}/changes?since={before}", ctx.server.url());
        let mut stream = client.get(changes).send().await.unwrap();
        assert_eq!(stream.headers()["content-type"], "text/event-stream");
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        let mut seen = String::new();
        while !seen.ends_with("\n\n") {
            seen += &String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream ended"));
        }
        let id = seen.lines().find_map(|line| line.strip_prefix("id: ")).expect("an event has its revision");
        assert!(seen.starts_with("event: change\n") && id != before, "{seen}");
        let page = dashboard(ctx).await;
        assert!(page.contains("Change by change") && revision_of(&page) != before, "{page}");
        ctx.open_gate("plan");
        ctx.next(&pull).await;
        let (status, refused) = ctx.request("GET", "/changes", &[]).await;
        assert!(status == 400 && refused.contains("since"), "{status} {refused}");
    });
}

#[test]
fn a_jobs_log_is_there_after_its_end_and_after_a_restart() {
    run_test(Setup::one_project().steps(&["echo hello from the step", PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        let look = async || {
            let (status, page) = ctx.request("GET", &format!("/jobs/{job}"), &[]).await;
            assert!(status == 200 && page.contains("hello from the step"), "{status} {page}");
            let (status, log) = ctx.request("GET", &format!("/jobs/{job}/log"), &[]).await;
            assert!(status == 200 && log.contains("hello from the step"), "{status} {log}");
            let (status, stream) = ctx.request("GET", &format!("/jobs/{job}/stream"), &[]).await;
            assert!(status == 200 && stream.contains("hello from the step"), "{status} {stream}");
        };
        look().await;
        ctx.server.restart().await;
        look().await;
        assert_eq!(ctx.request("GET", "/jobs/00000000000000000000000000000000", &[]).await.0, 404);
    });
}

#[test]
fn the_api_lists_locks_as_atlantis_does() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        assert_eq!(ctx.json("/api/locks").await, serde_json::json!({ "Locks": null }));
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await;
        let mut locks = ctx.json("/api/locks").await;
        let time = locks["Locks"][0]["Time"].take();
        assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
        let lock = serde_json::json!({
            "Name": "acme/infra/./default/",
            "ProjectName": "",
            "ProjectRepo": "acme/infra",
            "ProjectRepoPath": ".",
            "PullID": "1",
            "PullURL": pull.url(),
            "User": "alice",
            "Workspace": "default",
            "State": "planned",
            "Waiting": [],
            "Time": null,
        });
        assert_eq!(locks, serde_json::json!({ "Locks": [lock] }));
    });
}

#[test]
fn pages_are_for_this_machine_until_an_operator_says_more() {
    run_test(Setup::one_project(), async |ctx| {
        let proxied = [("X-Forwarded-For", "203.0.113.7")];
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/jobs/00000000000000000000000000000000"),
            ("GET", "/lock?id=x"),
            ("GET", "/api/locks"),
            ("DELETE", "/locks?id=x"),
            ("POST", "/apply/lock"),
            ("DELETE", "/apply/unlock"),
        ] {
            let (status, text) = ctx.request(method, path, &proxied).await;
            assert_eq!(status, 403, "{method} {path}: {text}");
            for flag in ["--web-basic-auth", "--allow-unauthenticated-pages"] {
                assert!(text.contains(flag), "{method} {path} does not name {flag}: {text}");
            }
        }
        assert_eq!(ctx.request("GET", "/healthz", &proxied).await.0, 200);
        assert_eq!(ctx.request("GET", "/", &[("Origin", "http://evil.example")]).await.0, 200);
        assert_eq!(ctx.request("POST", "/apply/lock", &[("Origin", "http://evil.example")]).await.0, 403);
        ctx.server.flag("--allow-unauthenticated-pages");
        ctx.server.restart().await;
        assert_eq!(ctx.request("GET", "/", &proxied).await.0, 200);
    });
}

#[test]
fn pages_ask_for_the_login_that_is_configured() {
    let flags = ["--web-basic-auth=true", "--web-username=ann", "--web-password=correct-horse"];
    run_test(Setup::one_project().flags(&flags), async |ctx| {
        assert_eq!(ctx.request("GET", "/", &[]).await.0, 401);
        // ann:wrong, ann:correct-horse
        assert_eq!(ctx.request("GET", "/", &[("Authorization", "Basic YW5uOndyb25n")]).await.0, 401);
        assert_eq!(ctx.request("GET", "/", &[("Authorization", "Basic YW5uOmNvcnJlY3QtaG9yc2U=")]).await.0, 200);
        assert_eq!(ctx.request("GET", "/status", &[]).await.0, 200);
    });
}

#[test]
fn deliveries_that_nobody_signed_are_refused() {
    run_test(Setup::one_project().steps(&["touch {tmp}/ran", PLANNED], &[]), async |ctx| {
        let headers = [("X-GitHub-Event", "issue_comment"), ("Content-Type", "application/json")];
        let forged = [headers[0], headers[1], ("X-Hub-Signature-256", "sha256=00")];
        for headers in [&headers[..], &forged[..]] {
            let (status, text) = ctx.request("POST", "/events", headers).await;
            assert!((400..500).contains(&status), "{status} {text}");
        }
        assert_eq!(ctx.deliver("pull_request", "{\"action\":").await, 400);
        assert_eq!(ctx.deliver("deployment", "{}").await, 200);
        ctx.quiet().await;
    });
}
