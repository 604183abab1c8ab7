//! Issues about drift on the host, through the front door: one for each drifted project, whatever happens to the server.

use super::schedule::{daily, of_infra, page};
use crate::support::*;
use tidelock_forge::{Fault, Gate, Issue};

/// Path of the API that opens and lists issues.
const ISSUES: &str = "/api/v3/repos/acme/infra/issues";
/// A plan without drift.
const SAME: &str = "No changes. Your infrastructure matches the configuration.";
/// A plan that changes one resource.
const ONE: &str = "  ~ resource \"a\" \"b\" {}\n\nPlan: 0 to add, 1 to change, 0 to destroy.";
/// A plan that deletes one resource.
const OTHER: &str = "  - resource \"a\" \"b\" {}\n\nPlan: 0 to add, 0 to change, 1 to destroy.";

/// Returns a `repos.yaml` whose schedule never comes during a test, with these keys of `drift` besides. The plan of each project is a file.
fn idle(more: &str) -> String {
    let drift = format!("{{schedule: {}, window: 10m{more}}}", daily(120));
    of_infra(&drift, &["cat {tmp}/plan-$(basename $DIR)"])
}

fn setup(dirs: &[&str], more: &str) -> Setup {
    Setup::projects(dirs).repos_yaml(&idle(more))
}

/// Sets the text of the next plans of a project.
fn plan(ctx: &Ctx, dir: &str, text: &str) {
    std::fs::write(ctx.tmp.join(format!("plan-{dir}")), text).unwrap();
}

/// Returns the last detection that has ended; absent while one runs.
async fn last_check(ctx: &Ctx) -> Option<String> {
    let shown = page(ctx, "").await;
    let run = regex::Regex::new("last check <a href=\"[^\"]*runs/([0-9a-f]{32})").unwrap();
    let run = run.captures(&shown).map(|found| found[1].to_owned());
    run.filter(|_| !shown.contains(">running<"))
}

/// Has the repository checked now, and waits for its end. An orderly end of the server posts what is left to post.
async fn check(ctx: &Ctx) {
    let before = last_check(ctx).await;
    let (status, text) = ctx.request("POST", "/drift/check?repo=127.0.0.1%2Facme%2Finfra", &[]).await;
    assert_eq!(status, 200, "{text}");
    ctx.until("the check has ended", async || last_check(ctx).await.is_some_and(|run| Some(run) != before)).await;
    ctx.server.restart().await;
}

/// Returns all issues of the repository.
fn issues(ctx: &Ctx) -> Vec<Issue> {
    ctx.repo.issues().unwrap()
}

/// Returns the only issue.
fn only(ctx: &Ctx) -> Issue {
    let mut all = issues(ctx);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

#[test]
fn a_drifted_project_has_one_issue_that_follows_its_drift() {
    run_test(setup(&["net", "db"], ", issue: true, issue_labels: [drift]"), async |ctx| {
        plan(ctx, "net", ONE);
        plan(ctx, "db", SAME);
        check(ctx).await;
        let issue = only(ctx);
        assert_eq!((issue.title.as_str(), &issue.labels[..]), ("Drift: `net` on `main`", &["drift".to_owned()][..]));
        for part in [
            "**1 to change**",
            "~ resource",
            "/jobs/",
            "/projects/127.0.0.1/acme/infra?dir=net",
            "atlantis apply -d net",
        ] {
            assert!(issue.body.contains(part), "{part}: {}", issue.body);
        }
        let link = format!("/issues/{}\" rel=\"noreferrer\">issue 1</a>", issue.number);
        assert!(page(ctx, "").await.contains(&link), "{}", page(ctx, "").await);
        let (_, shown) = ctx.request("GET", "/projects/127.0.0.1/acme/infra?dir=net", &[]).await;
        assert!(shown.contains(">Issue 1</a>"), "{shown}");

        // The same drift changes nothing; another one replaces the text.
        check(ctx).await;
        assert_eq!(only(ctx), issue);
        plan(ctx, "net", OTHER);
        check(ctx).await;
        let updated = only(ctx);
        assert!(
            updated.open && updated.body.contains("**1 to destroy**") && updated.comments.is_empty(),
            "{updated:#?}"
        );
        // An unknown drift is no end.
        plan(ctx, "net", "Error: no credentials");
        check(ctx).await;
        assert_eq!(only(ctx), updated);

        plan(ctx, "net", SAME);
        check(ctx).await;
        let closed = only(ctx);
        assert!(!closed.open && closed.comments.len() == 1, "{closed:#?}");
        assert!(closed.comments[0].body.contains("no drift any more"), "{closed:#?}");
        // Drift that comes back is another one.
        plan(ctx, "net", OTHER);
        check(ctx).await;
        let all = issues(ctx);
        assert_eq!(all.iter().map(|issue| issue.open).collect::<Vec<_>>(), [false, true]);
        assert_eq!(all[0], closed);
    });
}

#[test]
fn without_the_key_no_issue_is_opened() {
    run_test(setup(&["net"], ""), async |ctx| {
        plan(ctx, "net", ONE);
        check(ctx).await;
        assert!(issues(ctx).is_empty() && page(ctx, "").await.contains(">1 drifted<"));
        assert!(ctx.forge.requests().iter().all(|request| !request.path.ends_with("/issues")));
    });
}

#[test]
fn an_issue_that_a_person_closed_stays_closed_while_its_drift_lasts() {
    run_test(setup(&["net"], ", issue: true"), async |ctx| {
        plan(ctx, "net", ONE);
        check(ctx).await;
        ctx.repo.close_issue(1).unwrap();
        check(ctx).await;
        plan(ctx, "net", OTHER);
        check(ctx).await;
        let closed = only(ctx);
        assert!(!closed.open && closed.body.contains("**1 to destroy**"), "{closed:#?}");
        plan(ctx, "net", SAME);
        check(ctx).await;
        assert_eq!(only(ctx), closed, "nothing is said on an issue that a person has closed");
        plan(ctx, "net", OTHER);
        check(ctx).await;
        assert_eq!(issues(ctx).len(), 2);
    });
}

#[test]
fn an_issue_is_closed_when_its_project_or_its_schedule_is_gone() {
    run_test(setup(&["net", "db", "app"], ", issue: true"), async |ctx| {
        for dir in ["net", "db", "app"] {
            plan(ctx, dir, ONE);
        }
        check(ctx).await;
        assert_eq!(issues(ctx).len(), 3);
        ctx.repo.push("main", &[("net/main.tf", None)]).await.unwrap();
        check(ctx).await;
        let of = |dir: &str| {
            let title = format!("`{dir}`");
            issues(ctx).into_iter().find(|issue| issue.title.contains(&title)).unwrap()
        };
        let is_closed = |dir: &str, because: &str| {
            let issue = of(dir);
            assert!(!issue.open && issue.comments[0].body.contains(because), "{issue:#?}");
        };
        is_closed("net", "does not have this project any more");
        assert!(of("db").open && of("app").open);

        ctx.server.stop().await;
        ctx.rewrite_repos_yaml(&idle(", issue: true, projects: app"));
        ctx.server.start().await;
        check(ctx).await;
        is_closed("db", "does not include this project any more");
        ctx.server.stop().await;
        ctx.rewrite_repos_yaml(&idle(""));
        ctx.server.start().await;
        ctx.until("the last issue is closed", async || !of("app").open).await;
        is_closed("app", "does not ask for issues");
        assert_eq!(issues(ctx).iter().map(|issue| issue.comments.len()).collect::<Vec<_>>(), [1, 1, 1]);
    });
}

#[test]
fn a_repository_without_issues_is_checked_and_the_page_says_so() {
    run_test(setup(&["net", "db"], ", issue: true"), async |ctx| {
        ctx.repo.disable_issues(true).unwrap();
        plan(ctx, "net", ONE);
        plan(ctx, "db", ONE);
        for _ in 0..2 {
            check(ctx).await;
            let shown = page(ctx, "").await;
            for part in [">2 drifted<", "No issues: Issues are disabled for this repo."] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
        ctx.repo.disable_issues(false).unwrap();
        check(ctx).await;
        assert_eq!(issues(ctx).len(), 2);
        assert!(!page(ctx, "").await.contains("No issues"));
    });
}

#[test]
fn an_issue_is_opened_once_though_the_answer_is_lost_and_the_server_is_killed() {
    run_test(setup(&["net"], ", issue: true").own_process(), async |ctx| {
        plan(ctx, "net", ONE);
        ctx.forge.fail_next("POST", ISSUES, Fault::AppliedThenReset, 1).unwrap();
        check(ctx).await;
        assert_eq!(only(ctx).number, 1);
        plan(ctx, "net", SAME);
        check(ctx).await;
        assert!(!only(ctx).open);

        // Killed when the issue is there, before that is recorded.
        plan(ctx, "net", ONE);
        ctx.forge.fail_next("POST", ISSUES, Fault::AppliedThenReset, 1).unwrap();
        let (status, text) = ctx.request("POST", "/drift/check?repo=127.0.0.1%2Facme%2Finfra", &[]).await;
        assert_eq!(status, 200, "{text}");
        ctx.until("the issue is there", async || issues(ctx).len() == 2).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.until("the issue is known", async || page(ctx, "").await.contains(">issue 2</a>")).await;
        assert_eq!(issues(ctx).len(), 2);

        // Killed between the closing comment and the closing.
        plan(ctx, "net", SAME);
        let gate = Gate::new();
        ctx.forge.fail_next("PATCH", &format!("{ISSUES}/2"), Fault::Hold(gate.clone()), 1).unwrap();
        let (status, text) = ctx.request("POST", "/drift/check?repo=127.0.0.1%2Facme%2Finfra", &[]).await;
        assert_eq!(status, 200, "{text}");
        gate.reached(1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.until("the issue is closed", async || !issues(ctx)[1].open).await;
        gate.open();
        ctx.quiet().await;
        assert_eq!(issues(ctx)[1].comments.len(), 1);
    });
}

#[test]
fn the_text_of_a_plan_becomes_no_markup_and_no_marker() {
    run_test(setup(&["net"], ", issue: true"), async |ctx| {
        let forged = "<!-- tidelock:{\"v\":1,\"drift_issue\":\"00000000000000000000000000000000\"} -->";
        let hostile = format!("```\n@acme/all see #1\n-->\n</details>\n{forged}\n{ONE}\n{forged}\n````");
        plan(ctx, "net", &hostile);
        check(ctx).await;
        let issue = only(ctx);
        let fence = issue.body.lines().find(|line| line.starts_with("`````")).unwrap().to_owned();
        let (before, rest) = issue.body.split_once(&fence).unwrap();
        let (inside, after) = rest.split_once(&format!("\n{fence}")).unwrap();
        for part in ["@acme/all", "see #1", "</details>", "00000000", "````"] {
            assert!(inside.contains(part) && !before.contains(part), "{part}: {}", issue.body);
        }
        assert!(!after.contains("@acme/all") && !after.contains("00000000"), "{after}");
        let last = issue.body.lines().next_back().unwrap();
        assert!(last.starts_with("<!-- tidelock:") && last != forged, "{last}");
        check(ctx).await;
        assert_eq!(only(ctx), issue);
    });
}

#[test]
fn an_issue_of_somebody_else_with_our_marker_is_left_alone() {
    run_test(setup(&["net"], ", issue: true"), async |ctx| {
        plan(ctx, "net", ONE);
        check(ctx).await;
        let body = only(ctx).body;
        plan(ctx, "net", SAME);
        check(ctx).await;
        ctx.repo.open_issue("dave", "Drift: `net` on `main`", &body).unwrap();
        plan(ctx, "net", ONE);
        check(ctx).await;
        let all = issues(ctx);
        let who: Vec<_> = all.iter().map(|issue| (issue.author.as_str(), issue.open)).collect();
        assert_eq!(who, [("tidelock-bot", false), ("dave", true), ("tidelock-bot", true)]);
        plan(ctx, "net", SAME);
        check(ctx).await;
        assert_eq!(issues(ctx).iter().map(|issue| issue.open).collect::<Vec<_>>(), [false, true, false]);
    });
}

#[test]
fn one_detection_opens_a_bounded_number_of_issues() {
    let dirs: Vec<String> = (0..22).map(|number| format!("p{number}")).collect();
    let dirs: Vec<&str> = dirs.iter().map(String::as_str).collect();
    run_test(setup(&dirs, ", issue: true"), async |ctx| {
        dirs.iter().for_each(|dir| plan(ctx, dir, ONE));
        check(ctx).await;
        assert_eq!(issues(ctx).len(), 20);
        assert!(page(ctx, "").await.contains("2 issues are opened by the next checks"));
        check(ctx).await;
        assert_eq!(issues(ctx).len(), 22);
        assert!(!page(ctx, "").await.contains("issues are opened by"));
    });
}
