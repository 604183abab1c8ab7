//! The audit log: its page, its forms for programs, and the links to it.

use crate::runs_pages::{HOSTILE, has, lacks, link, listed, page, shown};
use crate::support::*;
use serde_json::Value;

/// Returns act and person of the listed entries, in their order.
fn entries(page: &str) -> Vec<String> {
    let entry = regex::Regex::new(r#"<b>([^<]+)</b> <span class="part">by ([^<]*)</span>"#).unwrap();
    entry.captures_iter(page).map(|found| format!("{} by {}", &found[1], &found[2])).collect()
}

/// Adds `many` entries, whose second of `at`, act, person and result are these expressions of `n`.
fn fill(ctx: &Ctx, many: usize, act: &str, who: &str, result: &str) {
    let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
    let sql = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {many})
         INSERT INTO audit (at, record) SELECT n * 1000000, json_object('at', '1970-01-01T00:00:00Z', 'who', {who}, 'act', {act},
           'subject', 'entry ' || n, 'result', {result}) FROM n"
    );
    assert_eq!(state.execute(&sql, []).unwrap(), many);
}

#[test]
fn entries_are_filtered_and_found_from_what_they_are_about() {
    run_test(Setup::projects(&["net", "db"]).steps(&[PLANNED], &["echo applied"]), async |ctx| {
        has(&shown(ctx, "/audit").await, &["Nothing was done yet."]);
        let pull = ctx.planned_dirs("first", &["net", "db"]).await;
        ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success");
        ctx.say_as("bob", &pull, "atlantis apply -d db").await.is("apply", "success");
        let of_pull = shown(ctx, "/pulls/127.0.0.1/acme/infra/1").await;
        let lock = r#"\s*<span class="project"><b>net/default</b></span>\s*<span class="hidden">: its lock"#;
        let lock = shown(ctx, &link(&of_pull, lock)).await;
        let (alice, bob) = (vec!["apply by alice"; 2], vec!["apply by bob"; 2]);
        let all = [bob.clone(), alice.clone()].concat();
        assert_eq!(entries(&shown(ctx, &link(&lock, "In the audit log")).await), alice);
        assert_eq!(entries(&shown(ctx, &link(&of_pull, "In the audit log")).await), all);
        for run in listed(&shown(ctx, "/runs?command=apply&person=bob").await) {
            let run = shown(ctx, &format!("/runs/{run}")).await;
            assert_eq!(entries(&shown(ctx, &link(&run, "In the audit log")).await), bob);
            let project = shown(ctx, &link(&run, r#"\s*<span class="project"><b>db/default</b>.*?"#)).await;
            assert_eq!(entries(&shown(ctx, &link(&project, "In the audit log")).await), bob);
        }
        let log = shown(ctx, "/audit").await;
        assert_eq!(entries(&log), all);
        has(&log, &["applied", "acme/infra#1", "net/default", "begun"]);
        for (filter, expected) in [
            ("person=BOB", &bob),
            ("act=apply", &all),
            ("act=app", &vec![]),
            ("repository=acme/infra&pull=%231", &all),
            ("pull=2", &vec![]),
            ("project=net/default", &alice),
            ("result=applied", &vec!["apply by bob", "apply by alice"]),
            ("from=2020-01-01&until=2020-01-02", &vec![]),
            ("from=2020-01-01+00:00", &all),
            ("person=bob&act=apply&repository=127.0.0.1/acme/infra&pull=1&project=db/default", &bob),
        ] {
            assert_eq!(&entries(&shown(ctx, &format!("/audit?{filter}")).await), expected, "{filter}");
        }
        for (filter, reason) in [
            ("repository=acme/other", "repository=acme/other: this server has served no such repository"),
            ("pull=seven", "pull=seven: it is the number of a pull request"),
            ("from=yesterday", "from=yesterday: it is a date, or a date and a time, in UTC"),
            ("after=first", "after=first: it comes from a link to another page."),
            (
                "who=bob",
                "who=bob: the filters are person, act, repository, pull, project, result, request, from and until.",
            ),
        ] {
            for form in ["/audit", "/audit.csv", "/audit.json"] {
                let (status, text) = page(ctx, &format!("{form}?{filter}")).await;
                assert!(status == 400 && text.contains(reason), "{form}?{filter}: {status} {text}");
            }
        }
    });
}

/// Returns a form for programs after all its pages: their texts, the address of the next one being found by `next`.
async fn all_pages(ctx: &Ctx, first: &str, next: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut path, mut texts) = (Some(first.to_owned()), Vec::new());
    while let Some(asked) = path {
        let (status, text) = ctx.request("GET", &asked, &[]).await;
        assert_eq!(status, 200, "{asked}: {text}");
        path = next(&text).map(|next| format!("/{next}"));
        texts.push(text);
    }
    texts
}

#[test]
fn the_forms_for_programs_lead_to_every_entry_and_nothing_in_them_is_run() {
    run_test(Setup::one_project(), async |ctx| {
        fill(ctx, 6000, "'unlock'", &format!("'=HYPERLINK(\"x\"){HOSTILE}'"), "'entry, ' || n");
        let next = |text: &str| serde_json::from_str::<Value>(text).unwrap()["next"].as_str().map(str::to_owned);
        let pages = all_pages(ctx, "/audit.json?act=unlock", next).await;
        let pages: Vec<Value> = pages.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let counts: Vec<usize> = pages.iter().map(|page| page["entries"].as_array().unwrap().len()).collect();
        assert_eq!(counts, [5000, 1000]);
        let entry = &pages[0]["entries"][0];
        assert_eq!(entry["subject"], "entry 6000");
        assert_eq!(
            (&entry["result"], &entry["pull"], &entry["why"]),
            (&"entry, 6000".into(), &Value::Null, &Value::Null)
        );
        assert_eq!(pages[1]["entries"][999]["subject"], "entry 1");

        let next = |text: &str| {
            let last = text.lines().last().unwrap();
            last.split_once("The next ones are at ").map(|(_, next)| next.trim_end_matches('"').to_owned())
        };
        let pages = all_pages(ctx, "/audit.csv?act=unlock", next).await;
        let lines: Vec<&str> = pages.iter().flat_map(|page| page.lines()).collect();
        assert_eq!(
            (pages.len(), lines.len()),
            (2, 6000 + 2 + 1),
            "two heads, and one line that says that it is not all"
        );
        assert_eq!(lines[0], "at,who,act,subject,result,why,repository,pull,project,commit,plan,request,name");
        let cells =
            format!(r#""1970-01-01T00:00:00Z","'=HYPERLINK(""x""){HOSTILE}","unlock","entry 6000","entry, 6000","""#);
        assert!(lines[1].starts_with(&cells), "{}", lines[1]);

        let log = shown(ctx, "/audit").await;
        has(&log, &["=HYPERLINK(", "&lt;script&gt;", "entry 6000"]);
        lacks(&log, &["<script>alert", "\u{202e}", "Newest"]);
        assert_eq!(entries(&log).len(), 50);
        let second = shown(ctx, &link(&log, "Older")).await;
        has(&second, &["entry 5950", "entry 5901"]);
        lacks(&second, &["entry 5951<", "entry 5900<"]);
        has(&shown(ctx, &link(&second, "Newest")).await, &["entry 6000"]);
    });
}

#[test]
fn a_search_that_finds_little_says_how_far_it_looked() {
    run_test(Setup::one_project(), async |ctx| {
        // What one filter finds is never what the other does, and both find many.
        fill(ctx, 12_000, "iif(n % 2, 'apply', 'unlock')", "'alice'", "iif(n % 2, 'applied', 'done')");
        let first = shown(ctx, "/audit?act=apply&result=done").await;
        has(&first, &["Looked at 5000 entries, up to", "1970-01-01 00:33 UTC", "There is no entry on this page."]);
        assert_eq!(entries(&first), Vec::<String>::new());
        let last = shown(ctx, &link(&first, "Continue")).await;
        lacks(&last, &["Looked at", "Continue", "Older"]);
        assert_eq!(entries(&shown(ctx, "/audit?act=apply&result=applied").await).len(), 50);
        let json = ctx.json("/audit.json?act=apply&result=done").await;
        assert_eq!((json["entries"].as_array().unwrap().len(), json["next"].is_string()), (0, true));
    });
}
