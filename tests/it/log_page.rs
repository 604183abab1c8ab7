//! The page of a job's log: its steps with their times, the search in it, and the largest log that there is.

use crate::runs_pages::{has, lacks, shown};
use crate::support::*;
use serde_json::Value;

/// Two steps, the first of which prints three lines, and one that prints nothing.
const STEPS: [&str; 3] = ["printf 'one\\n<two>\\nthree\\n'", "true", PLANNED];

/// Returns the steps of the only job of the newest run, as the API has them.
async fn api_steps(ctx: &Ctx, job: &str) -> Vec<Value> {
    let (status, text) = ctx.request("GET", &format!("/api/jobs/{job}"), &[]).await;
    assert_eq!(status, 200, "{text}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let (_, of_run) = ctx.request("GET", &format!("/api/runs/{}/jobs", record["run"].as_str().unwrap()), &[]).await;
    let of_run: Value = serde_json::from_str(&of_run).unwrap();
    let same = of_run["jobs"].as_array().unwrap().iter().find(|one| one["job"] == job).unwrap();
    assert_eq!(same["steps"], record["steps"]);
    record["steps"].as_array().unwrap().clone()
}

/// Checks the sections of a plan with [`STEPS`], in whose log the server has written `before` lines before them.
async fn has_sections(ctx: &Ctx, job: &str, before: u64) {
    let steps = api_steps(ctx, job).await;
    let places: Vec<_> =
        steps.iter().map(|step| (step["line"].as_u64().unwrap(), step["lines"].as_u64().unwrap())).collect();
    assert_eq!(places, [(before + 1, 3), (before + 4, 0), (before + 4, 1)], "{steps:?}");
    let began: Vec<u64> = steps.iter().map(|step| step["began_millis"].as_u64().unwrap()).collect();
    assert!(began.is_sorted() && steps.iter().all(|step| step["kind"] == "run"), "{steps:?}");

    let page = shown(ctx, &format!("/jobs/{job}")).await;
    let sections = regex::Regex::new(r#"(?s)<details class="fold step"( open)?><summary><b>run</b> · (\d+ lines?) · [^<]* · began <time [^>]*data-clock>[0-9:]{8}</time></summary>(.*?)</details>"#).unwrap();
    let found: Vec<_> = sections
        .captures_iter(&page)
        .map(|found| (found.get(1).is_some(), found[2].to_owned(), found[3].to_owned()))
        .collect();
    let [(false, first, of_first), (true, last, of_last)] = found.as_slice() else { panic!("{found:?} in {page}") };
    assert_eq!((first.as_str(), last.as_str()), ("3 lines", "1 line"));
    has(of_first, &["&lt;two&gt;", &format!("id=\"L{}\"", before + 1), &format!("id=\"L{}\"", before + 3)]);
    has(of_last, &["Plan: 1 to add"]);
    has(&page, &["Show all steps"]);
    let all = shown(ctx, &format!("/jobs/{job}?open=all")).await;
    lacks(&all, &["<details class=\"fold step\">", "Show all steps"]);
}

#[test]
fn steps_are_sections_of_the_log_with_their_times_also_after_a_restart() {
    run_test(Setup::one_project().steps(&STEPS, &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        has_sections(ctx, &job, 0).await;
        ctx.server.restart().await;
        has_sections(ctx, &job, 0).await;
        let run = regex::Regex::new("runs/[0-9a-f]{32}").unwrap();
        let page = shown(ctx, &format!("/jobs/{job}")).await;
        let of_run = shown(ctx, &format!("/{}", &run.find(&page).unwrap().as_str())).await;
        has(&of_run, &[&format!("jobs/{job}#L1\">run</a>"), &format!("jobs/{job}#L4\">run</a>")]);
        // A page that is open asks for what is above the log.
        let head = shown(ctx, &format!("/jobs/{job}?part=head")).await;
        has(&head, &["id=\"part-state\"", "data-state=\"succeeded\"", "#L1\">run</a>"]);
        lacks(&head, &["id=\"L1\""]);
    });
}

#[test]
fn steps_at_an_executor_have_their_places_in_the_servers_log() {
    let keys = "executor: [{plan: jobs, apply: jobs}]";
    let repos = format!("executors: {{jobs: {{kind: process}}}}\n{}", workflow(keys, &STEPS, &[]));
    run_test(Setup::one_project().repos_yaml(&repos).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        let (_, log) = ctx.request("GET", &format!("/jobs/{job}/log"), &[]).await;
        let before = log.lines().take_while(|line| *line != "one").count();
        assert!(before > 0, "{log}");
        has_sections(ctx, &job, before as u64).await;
    });
}

#[test]
fn a_log_is_searched_without_javascript() {
    run_test(Setup::one_project().steps(&STEPS, &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        let page = shown(ctx, &format!("/jobs/{job}?q=%3CTWO")).await;
        has(&page, &["1 line matches", "<mark>&lt;two</mark>&gt;", "href=\"#L2\">First match", "value=\"&lt;TWO\""]);
        // The step that has it is unfolded.
        lacks(&page, &["<details class=\"fold step\">", "<two"]);
        let none = shown(ctx, &format!("/jobs/{job}?q=four%26")).await;
        has(&none, &["No line matches", &format!("jobs/{job}?open=all&amp;q=four%26\">Show all steps")]);
        lacks(&none, &["<mark>", "First match"]);
    });
}

#[test]
fn the_page_of_the_largest_log_is_small_and_its_search_finds_every_line() {
    // More than a log keeps: 12 MB in lines of 60 bytes, with one to be found in the middle, among the first 8 MiB.
    let line = "x".repeat(59);
    let print = format!("yes {line} | head -n 70000; echo a needle; yes {line} | head -n 130000");
    run_test(Setup::one_project().steps(&[&print, PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let job = ctx.next(&pull).await.job();
        ctx.next(&pull).await.has("Continued plan output");
        let (_, log) = ctx.request("GET", &format!("/jobs/{job}/log"), &[]).await;
        let (limit, lines) = (8 << 20, log.lines().count());
        assert!(log.len() <= limit && log.len() > limit - 200, "{}", log.len());
        has(log.lines().last().unwrap(), &["reached its limit of 8 MiB"]);

        let page = shown(ctx, &format!("/jobs/{job}")).await;
        assert_eq!(page.matches("class=\"l ").count(), 20_000);
        assert!(page.len() < 20_000 * (line.len() + 200), "{}", page.len());
        has(&page, &[&format!("{} lines are not shown here", lines - 20_000), &format!("id=\"L{lines}\"")]);
        lacks(&page, &["a needle"]);

        let found = shown(ctx, &format!("/jobs/{job}?q=Needle")).await;
        has(&found, &["1 line matches", "a <mark>needle</mark>", "href=\"#L70001\">First match", "id=\"L70003\""]);
        assert_eq!(found.matches("class=\"l ").count(), 20_005);

        let everywhere = shown(ctx, &format!("/jobs/{job}?q=x")).await;
        has(&everywhere, &[&format!("{} lines match", lines - 2), "with a match, are not shown here"]);
        assert!(everywhere.len() < 20_200 * (line.len() + 20 * 13 + 400), "{}", everywhere.len());
    });
}
