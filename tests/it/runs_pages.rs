//! Pages with a history: the list of runs, one run, one pull request.

use crate::support::*;
use tidelock_forge::OpenOptions;

pub(crate) const HOSTILE: &str = "<script>alert(1)</script> \u{202e}flip";

/// Returns the status and the text of a page, with plain slashes and quotes.
pub(crate) async fn page(ctx: &Ctx, path: &str) -> (u16, String) {
    let (status, page) = ctx.request("GET", path, &[("Accept", "text/html")]).await;
    (status, page.replace("&#x2f;", "/").replace("&#x27;", "'"))
}

pub(crate) async fn shown(ctx: &Ctx, path: &str) -> String {
    let (status, page) = page(ctx, path).await;
    assert_eq!(status, 200, "{path}: {page}");
    page
}

/// Returns the ids of the listed runs, in their order.
pub(crate) fn listed(page: &str) -> Vec<String> {
    let link = regex::Regex::new(r#"class="what"><a href="[./]*runs/([0-9a-f]{32})""#).unwrap();
    link.captures_iter(page).map(|found| found[1].to_owned()).collect()
}

/// Returns the address behind a link with this text, from `/`.
pub(crate) fn link(page: &str, text: &str) -> String {
    let link = regex::Regex::new(&format!(r#"href="(?:\.\.?/)+([^"]*)"[^>]*>{text}<"#)).unwrap();
    let found = link.captures(page).unwrap_or_else(|| panic!("no link {text} in:\n{page}"));
    format!("/{}", found[1].replace("&amp;", "&"))
}

pub(crate) fn lacks(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(!page.contains(text), "{text} is in:\n{page}");
    }
}

pub(crate) fn has(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text} is missing:\n{page}");
    }
}

#[test]
fn a_plan_and_its_apply_are_connected() {
    let setup = Setup::projects(&["net", "db"]).steps(&[PLANNED], &["echo applied"]);
    run_test(setup, async |ctx| {
        has(&shown(ctx, "/runs").await, &["Nothing has run yet."]);
        let files = [("net/main.tf", "# 2\n"), ("db/main.tf", "# 2\n")].map(|(path, text)| (path, Some(text)));
        let pull = ctx.repo.open_pull("change", "alice", HOSTILE, &files, OpenOptions::default()).await.unwrap();
        ctx.next(&pull).await.is("plan", "success");
        let apply = ctx.say(&pull, "atlantis apply -d net").await;
        apply.is("apply", "success");
        let list = shown(ctx, "/runs").await;
        let runs = listed(&list);
        has(
            &list,
            &["apply -d net", "db/default, net/default", "autoplan", "comment", "acme/infra#1", "&lt;script&gt;"],
        );
        lacks(&list, &["<script>alert", "\u{202e}"]);
        let [applied, planned] = runs.as_slice() else { panic!("{runs:?}") };

        let run = shown(ctx, &format!("/runs/{applied}")).await;
        has(&run, &["apply -d net", "succeeded", "asked by alice", &format!("jobs/{}", apply.job()), "&lt;script&gt;"]);
        lacks(&run, &["<script>alert", "\u{202e}", "Run after"]);
        lacks(run.split_once(r#"id="results""#).unwrap().1, &["db/default"]);
        assert_eq!(link(&run, "Run before"), format!("/runs/{planned}"));
        let run = shown(ctx, &format!("/runs/{planned}")).await;
        has(&run, &["net/default", "db/default", "+1", "1 to add"]);
        assert_eq!(link(&run, "Run after"), format!("/runs/{applied}"));
        assert_eq!(listed(&shown(ctx, &link(&run, "All of its runs")).await), runs);

        let job = shown(ctx, &format!("/jobs/{}", apply.job())).await;
        assert_eq!(link(&job, "its run"), format!("/runs/{applied}"));
        let address = link(&job, "acme/infra#1");
        assert_eq!(address, "/pulls/127.0.0.1/acme/infra/1");
        let of_pull = shown(ctx, &address).await;
        has(
            &of_pull,
            &["open", "applied", "no apply recorded", "lock?id=", &format!("jobs/{}", apply.job()), "&lt;script&gt;"],
        );
        lacks(&of_pull, &["<script>alert", "\u{202e}", "Missing approvals", "Waits for"]);
        assert_eq!(listed(&of_pull), runs);
        let overview = shown(ctx, "/").await;
        has(&overview, &[&format!("./runs/{applied}"), "./pulls/127.0.0.1/acme/infra/1", "href=\"./runs\""]);
        let lock = shown(
            ctx,
            &link(&of_pull, r#"\s*<span class="project"><b>net/default</b></span>\s*<span class="hidden">: its lock"#),
        )
        .await;
        has(&lock, &["./pulls/127.0.0.1/acme/infra/1"]);
    });
}

#[test]
fn runs_are_filtered_and_what_cannot_be_a_filter_is_named() {
    let setup = Setup::projects(&["net", "db"])
        .steps(&["case $DIR in */db) exit 1;; esac", PLANNED], &[])
        .flags(&["--disable-autoplan"]);
    run_test(setup.flags(&["--disable-autoplan"]), async |ctx| {
        let first = ctx.open_dirs("first", &["net", "db"]).await;
        ctx.say(&first, "atlantis plan -d net").await.is("plan", "success");
        ctx.say_as("bob", &first, "atlantis plan -d db").await.is("plan", "error");
        let second = ctx.open_dirs("second", &["net"]).await;
        ctx.say(&second, "atlantis plan -d net").await.is("plan", "failure").because("locked");
        ctx.say(&second, "atlantis plan -d nowhere").await;
        ctx.say(&second, "atlantis unlock").await;
        let all = listed(&shown(ctx, "/runs").await);
        let [nowhere, locked, failed, planned] = all.as_slice() else { panic!("{all:?}") };
        for (filter, expected) in [
            ("repository=acme/infra", &all[..]),
            ("repository=127.0.0.1%2FAcme%2Finfra", &all),
            ("pull=1", &all[2..]),
            ("pull=%232&repository=acme/infra", &all[..2]),
            ("project=net", &[locked.clone(), planned.clone()]),
            ("project=db/default", &all[2..3]),
            ("person=BOB", &all[2..3]),
            ("command=plan", &all),
            ("command=apply", &[]),
            ("result=succeeded", std::slice::from_ref(planned)),
            ("result=failed", &[nowhere.clone(), failed.clone()]),
            ("result=locked", std::slice::from_ref(locked)),
            ("result=running", &[]),
            (
                "result=failed&person=bob&command=plan&pull=1&project=db&repository=acme/infra",
                std::slice::from_ref(failed),
            ),
            ("repository=&pull=&project=&person=&command=&result=", &all),
        ] {
            assert_eq!(listed(&shown(ctx, &format!("/runs?{filter}")).await), expected, "{filter}");
        }
        has(&shown(ctx, "/runs?person=nobody").await, &["No run has all of that.", "value=\"nobody\""]);
        for (filter, reason) in [
            ("repository=acme/other", "repository=acme/other: this server has served no such repository"),
            ("pull=seven", "pull=seven: it is the number of a pull request"),
            ("result=fine", "result=fine: it is one of running, succeeded, failed, locked, stopped, ended."),
            ("command=destroy", "command=destroy: it is one of plan, apply,"),
            ("after=first", "after=first: it comes from a link to another page."),
            ("reopsitory=acme/infra", "reopsitory=acme/infra: the filters are repository, pull"),
        ] {
            let (status, text) = page(ctx, &format!("/runs?{filter}")).await;
            assert!(status == 400 && text.contains(reason), "{filter}: {status} {text}");
        }
        let run = shown(ctx, &format!("/runs/{locked}")).await;
        has(&run, &["another pull request has the project: #1", "atlantis unlock", "It had no job"]);
        has(
            &shown(ctx, &format!("/runs/{failed}")).await,
            &["the plan failed", "next: <code>atlantis plan -d db</code>"],
        );
        has(&shown(ctx, &format!("/runs/{nowhere}")).await, &["nowhere"]);
        for path in
            ["/runs/00000000000000000000000000000000", "/runs/x", "/pulls/127.0.0.1/acme/infra/9", "/pulls/acme"]
        {
            assert_eq!(page(ctx, path).await.0, 404, "{path}");
        }
    });
}

#[test]
fn a_hundred_and_twenty_runs_are_read_page_by_page_and_back() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        let copy = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 120)
                    INSERT INTO runs (id, pull, started, finished, record)
                    SELECT printf('%032x', n), pull, started, finished, json_set(record, '$.id', printf('%032x', n)) FROM n, runs";
        assert_eq!(state.execute(copy, []).unwrap(), 119);
        for filter in ["", "?person=alice&repository=acme%2Finfra"] {
            let first = shown(ctx, &format!("/runs{filter}")).await;
            lacks(&first, &["Newer"]);
            let second = shown(ctx, &link(&first, "Older")).await;
            let third = shown(ctx, &link(&second, "Older")).await;
            lacks(&third, &["Older"]);
            let pages = [listed(&first), listed(&second), listed(&third)];
            assert_eq!(pages.each_ref().map(Vec::len), [50, 50, 20], "{filter}");
            assert_eq!(pages.concat().iter().collect::<std::collections::HashSet<_>>().len(), 120, "{filter}");
            assert_eq!(pages[0][0], format!("{:032x}", 120));
            assert_eq!(listed(&shown(ctx, &link(&third, "Newer")).await), pages[1], "{filter}");
            assert_eq!(listed(&shown(ctx, &link(&second, "Newer")).await), pages[0], "{filter}");
        }
    });
}

#[test]
fn in_mode_strict_a_pull_request_shows_what_it_owns_and_what_it_waits_for() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["echo applied"]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        let [first, second, third] = [
            ctx.planned_dirs("first", &["net"]).await,
            ctx.planned_dirs("second", &["net"]).await,
            ctx.planned_dirs("third", &["net"]).await,
        ];
        has(&shown(ctx, "/pulls/127.0.0.1/acme/infra/1").await, &["It holds no project."]);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        for later in [&second, &third] {
            ctx.next(later).await.is_message("plans_fell");
        }
        let owner = shown(ctx, "/pulls/127.0.0.1/acme/infra/1").await;
        has(&owner, &["applied, not merged", "unlock --accept-drift", "waiting: #2, #3"]);
        lacks(&owner, &["Waits for"]);
        let waits = shown(ctx, "/pulls/127.0.0.1/acme/infra/3").await;
        has(&waits, &["Waits for", "#1 has it", "place 2 in line", "its plan was invalidated", "It holds no project."]);
    });
}
