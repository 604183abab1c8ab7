//! Pages of projects, the list of open pull requests, and the search.

use crate::drift;
use crate::runs_pages::{HOSTILE, has, lacks, link, listed, page, shown};
use crate::support::*;
use serde_json::json;
use tidelock_forge::OpenOptions;

const NET: &str = "/projects/127.0.0.1/acme/infra?dir=net&workspace=default";

#[test]
fn a_project_shows_who_has_it_who_waits_and_what_has_run() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["echo applied"]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        has(&shown(ctx, "/projects").await, &["No project is known."]);
        has(&shown(ctx, "/pulls").await, &["No open pull request is known."]);
        assert_eq!(page(ctx, NET).await.0, 404);
        let [first, second, third] = [
            ctx.planned_dirs("first", &["net"]).await,
            ctx.planned_dirs("second", &["net"]).await,
            ctx.planned_dirs("third", &["net"]).await,
        ];
        has(&shown(ctx, NET).await, &["No pull request has it.", "not checked", "none recorded"]);
        let apply = ctx.say(&first, "atlantis apply").await;
        apply.is("apply", "success");
        for later in [&second, &third] {
            ctx.next(later).await.is_message("plans_fell");
        }
        let project = shown(ctx, NET).await;
        has(&project, &["applied, not merged", "unlock --accept-drift", "place 1 in line", "place 2 in line"]);
        has(
            &project,
            &["its plan was invalidated", &format!("jobs/{}", apply.job()), "./pulls/127.0.0.1/acme/infra/2"],
        );
        assert_eq!(listed(&project), listed(&shown(ctx, "/runs?project=net/default").await));
        let list = shown(ctx, "/projects?q=net&repository=acme/infra").await;
        has(&list, &["acme/infra", "applied, not merged", "drift not checked", "./pulls/127.0.0.1/acme/infra/1"]);
        assert_eq!(link(&list, r#"\s*<span class="project"><b>net/default</b></span>\s*"#), NET);
        has(&shown(ctx, "/projects?q=nothing").await, &["No known project has all of that."]);
        let of_repository = redirect(ctx, "/projects/127.0.0.1/acme/infra").await;
        assert_eq!(of_repository, "../../../projects?repository=127.0.0.1%2Facme%2Finfra");

        let pulls = shown(ctx, "/pulls?repository=acme/infra").await;
        has(
            &pulls,
            &["place 2 in line", "for net/default, which #1 has", "./pulls/127.0.0.1/acme/infra/3", "plan discarded"],
        );
        for (path, reason) in [
            ("/pulls?repo=x", "repo=x: the filter is repository."),
            ("/projects?after=x", "after=x: it comes from a link to another page."),
            ("/projects/127.0.0.1/acme/infra?name=x", "name=x: a project is named by dir and workspace."),
        ] {
            let (status, text) = page(ctx, path).await;
            assert!(status == 400 && text.contains(reason), "{path}: {status} {text}");
        }
        for path in ["/projects/acme?dir=net", "/projects/127.0.0.1/acme/other?dir=net"] {
            assert_eq!(page(ctx, path).await.0, 404, "{path}");
        }
    });
}

#[test]
fn a_project_is_found_whatever_it_is_called_and_when_only_a_run_refused_it() {
    let dir = "a b%2Fc&d#";
    run_test(Setup::projects(&[dir]).steps(&[PLANNED], &[]), async |ctx| {
        ctx.planned_dirs("first", &[dir]).await;
        let second = ctx.open_dirs("second", &[dir]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        let list = shown(ctx, "/projects").await;
        let address = link(&list, r#"\s*<span class="project"><b>a b%2Fc&amp;d#/default</b></span>\s*"#);
        assert_eq!(address, "/projects/127.0.0.1/acme/infra?dir=a+b%252Fc%26d%23&workspace=default");
        let project = shown(ctx, &address).await;
        let runs = listed(&project);
        assert_eq!(runs.len(), 2, "the run that planned it, and the one that was refused:\n{project}");
        let of_project = shown(ctx, "/runs?project=a+b%252Fc%26d%23").await;
        assert_eq!(listed(&of_project), runs);
    });
}

#[test]
fn projects_and_pull_requests_are_read_page_by_page() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        let many = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 120)";
        let pulls = format!(
            "{many} INSERT INTO pulls (pull, open, activity, record)
             SELECT '127.0.0.1/acme/infra#' || n, 1, activity + n, json_set(record, '$.id.number', n) FROM n, pulls"
        );
        let statuses = format!(
            "{many} INSERT INTO project_statuses (pull, dir, workspace, name, state, updated, record)
             SELECT pull, printf('dir%03d', n), workspace, name, state, updated,
               json_set(record, '$.project.dir', printf('dir%03d', n)) FROM n, project_statuses"
        );
        for sql in [pulls, statuses] {
            assert_eq!(state.execute(&sql, []).unwrap(), 119);
        }
        let named = "INSERT INTO project_statuses (pull, dir, workspace, name, state, updated, record)
            SELECT pull, dir, workspace, 'other', state, updated, record FROM project_statuses WHERE dir = 'dir077'";
        assert_eq!(state.execute(named, []).unwrap(), 1);
        // The list has projects that only a status names, and so have they pages.
        let project = "/projects/127.0.0.1/acme/infra?dir=dir077&workspace=default";
        let project = shown(ctx, project).await;
        has(&project, &["No run of it is recorded.", "<dt>Name</dt><dd>other</dd>"]);
        let audit = "/audit?repository=127.0.0.1%2Facme%2Finfra&project=";
        assert_eq!(link(&project, "In the audit log as other"), format!("{audit}other"));
        assert_eq!(link(&project, "In the audit log as dir077/default"), format!("{audit}dir077%2Fdefault"));
        let found = |page: &str, pattern: &str| -> Vec<String> {
            let pattern = regex::Regex::new(pattern).unwrap();
            pattern.captures_iter(page).map(|found| found[1].to_owned()).collect()
        };
        for (path, next, pattern) in [
            ("/pulls", "Older", r#"pulls/127.0.0.1/acme/infra/(\d+)">acme"#),
            ("/projects?repository=acme%2Finfra", "Next", r#"<b>([^<]+)/default</b>"#),
        ] {
            let first = shown(ctx, path).await;
            let second = shown(ctx, &link(&first, next)).await;
            let third = shown(ctx, &link(&second, next)).await;
            lacks(&third, &[&format!(">{next}<")]);
            let pages = [&first, &second, &third].map(|page| found(page, pattern));
            assert_eq!(pages.each_ref().map(Vec::len), [50, 50, 20], "{path}");
            assert_eq!(pages.concat().iter().collect::<std::collections::HashSet<_>>().len(), 120, "{path}");
            if path == "/pulls" {
                has(&third, &["and 118 more"]);
            }
        }
    });
}

#[test]
fn drift_is_shown_with_its_time_and_its_runs_are_those_of_drift() {
    run_test(Setup::projects(&["net"]).flags(&drift::FLAGS), async |ctx| {
        let (status, _) = drift::detect(ctx, json!({})).await;
        assert_eq!(status, 200);
        let project = shown(ctx, NET).await;
        has(&project, &["<span class=\"mark warn\">drift</span>", "checked <time", "main"]);
        let runs = listed(&project);
        let [run] = runs.as_slice() else { panic!("{project}") };
        let run = shown(ctx, &format!("/runs/{run}")).await;
        let of_drift = link(&run, "All drift runs of the repository");
        assert_eq!(of_drift, "/runs?repository=127.0.0.1%2Facme%2Finfra&pull=drift");
        assert_eq!(listed(&shown(ctx, &of_drift).await), runs);
        has(&shown(ctx, "/projects").await, &["<span class=\"mark warn\">drift</span>"]);
    });
}

/// Returns the address to which a page redirects.
async fn redirect(ctx: &Ctx, path: &str) -> String {
    let response = client().get(format!("{}{path}", ctx.server.url())).send().await.unwrap();
    assert_eq!(response.status(), 303, "{path}");
    response.headers()["location"].to_str().unwrap().to_owned()
}

fn searched(text: &str) -> String {
    let text: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    format!("/search?q={text}")
}

#[test]
fn the_search_leads_to_pages_of_this_server_alone() {
    run_test(Setup::projects(&["net"]).steps(&[PLANNED], &[]), async |ctx| {
        let files = [("net/main.tf", Some("# 2\n"))];
        let pull = ctx.repo.open_pull("change", "alice", HOSTILE, &files, OpenOptions::default()).await.unwrap();
        ctx.next(&pull).await.is("plan", "success");
        let url = format!("{}/files", pull.url());
        for text in ["1", "#1", "acme/infra#1", "127.0.0.1/Acme/infra#1", &url] {
            assert_eq!(redirect(ctx, &searched(text)).await, "./pulls/127.0.0.1/acme/infra/1", "{text}");
        }
        let found = shown(ctx, "/search?q=infra").await;
        has(&found, &["./projects?repository=127.0.0.1%2Facme%2Finfra", "./audit?repository="]);
        let found = shown(ctx, "/search?q=NET").await;
        has(&found, &["./projects/127.0.0.1/acme/infra?dir=net"]);
        let found = shown(ctx, "/search?q=ali").await;
        has(&found, &["alice", "./runs?person=alice"]);
        has(&shown(ctx, "/search").await, &["Search for a repository"]);
        for text in ["https://evil.example/acme/infra/pull/1", "//evil.example", "javascript:1", "999", HOSTILE] {
            let found = shown(ctx, &searched(text)).await;
            has(&found, &["Nothing is called that."]);
            lacks(&found, &["<script>alert", "href=\"//", "href=\"javascript", "href=\"https://evil"]);
        }
    });
}
