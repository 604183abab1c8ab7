//! Attacks on pages by what the state remembers: no text of any record becomes markup or a link of its own on any page.

use crate::drift::{FLAGS, detect};
use crate::runs_pages::page;
use crate::support::*;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Tables whose records pages show.
const TABLES: [&str; 14] = [
    "audit",
    "apply_lock",
    "drift",
    "drift_checks",
    "freezes",
    "jobs",
    "locks",
    "owners",
    "plans",
    "policy_checks",
    "project_statuses",
    "pulls",
    "runs",
    "waiters",
];

/// Added to a text: the end of an attribute, and tags. In place of an address: one that runs a script.
const TAGS: &str = "\"'><script>alert(1)</script>";
const SCRIPT: &str = "javascript:alert(1)//\"><script>alert(1)</script>";

/// Returns pointers to all strings of a record.
fn strings(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| strings(item, &format!("{at}/{n}"), found))
        }
        Value::Object(keys) => keys.iter().for_each(|(key, item)| strings(item, &format!("{at}/{key}"), found)),
        _ => {}
    }
}

/// Returns the strings of a table's records, each once whatever its place in a list: the row, its record and the pointer.
fn texts(state: &Connection, table: &str) -> Vec<(i64, Value, String)> {
    let mut rows = state.prepare(&format!("SELECT rowid, record FROM {table} ORDER BY rowid DESC")).unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).unwrap();
    let place = regex::Regex::new(r"/\d+(/|$)").unwrap();
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    for (row, record) in rows.map(Result::unwrap) {
        let record: Value = serde_json::from_str(&record).unwrap();
        let mut of_record = Vec::new();
        strings(&record, "", &mut of_record);
        of_record.retain(|at| known.insert(place.replace_all(at, "/0$1").into_owned()));
        found.extend(of_record.into_iter().map(|at| (row, record.clone(), at)));
    }
    found
}

/// All pages that show records.
struct Pages {
    addresses: Vec<String>,
}

impl Pages {
    fn of(state: &Connection) -> Pages {
        let mut addresses: Vec<String> = [
            "/",
            "/runs",
            "/pulls",
            "/projects",
            "/audit",
            "/drift",
            "/search?q=acme",
            "/search?q=alice",
            "/pulls/127.0.0.1/acme/infra/1",
            "/pulls/127.0.0.1/acme/infra/2",
            "/projects/127.0.0.1/acme/infra?dir=a",
            "/lock?id=acme%2Finfra%2Fa%2Fdefault%2F",
        ]
        .map(str::to_owned)
        .to_vec();
        for (table, below) in [("runs", "runs"), ("jobs", "jobs")] {
            let mut ids = state.prepare(&format!("SELECT id FROM {table} ORDER BY rowid DESC LIMIT 2")).unwrap();
            let ids = ids.query_map([], |row| row.get::<_, String>(0)).unwrap();
            addresses.extend(ids.map(|id| format!("/{below}/{}", id.unwrap())));
        }
        Pages { addresses }
    }

    /// Returns true if a page shows the text, escaped; none if a page cannot be made of it.
    async fn show(&self, ctx: &Ctx, what: &str) -> Option<bool> {
        let mut is_shown = false;
        for address in &self.addresses {
            let (status, page) = page(ctx, address).await;
            assert!(!page.contains("<script>alert"), "{what} is markup on {address}: {page}");
            let links = ["href=\"javascript:", "action=\"javascript:", "src=\"javascript:"];
            assert!(links.iter().all(|link| !page.contains(link)), "{what} is an address on {address}: {page}");
            if status >= 500 {
                return None;
            }
            is_shown |= page.contains("&lt;script&gt;alert(1)");
        }
        Some(is_shown)
    }
}

#[test]
fn no_text_of_the_state_becomes_markup() {
    let policies = "policies:\n  policy_sets:\n    - name: gate\n      path: '{tmp}/policies'\n      owners: {users: [olga]}\n\
                    repos:\n  - id: /.*/\n    repo_locks: {mode: strict}\n";
    let flags = [&FLAGS[..2], &["--enable-policy-checks"]].concat();
    run_test(Setup::projects(&["a", "b"]).own_process().flags(&flags).repos_yaml(policies), async |ctx| {
        std::fs::create_dir_all(ctx.tmp.join("policies")).unwrap();
        std::fs::write(ctx.tmp.join("policies/gate.rego"), "package main\n\ndeny contains \"no\" if true\n").unwrap();
        let first = ctx.open_dirs("first", &["a", "b"]).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.next(&first).await.is("policy_check", "failure");
        ctx.say_as("olga", &first, "atlantis approve_policies -d b").await;
        ctx.say(&first, "atlantis apply -d b").await.is("apply", "success");
        let second = ctx.open_input("second", "not Terraform").await;
        ctx.push(&second, "a/main.tf", "not Terraform").await;
        ctx.next_of_all(&second).await;
        detect(ctx, json!({})).await;
        ctx.say(&first, "atlantis freeze -m 'no applies'").await.is_message("frozen");
        assert_eq!(ctx.request("POST", "/apply/lock", &[]).await.0, 200);
        ctx.quiet().await;
        let state = Connection::open(ctx.server.data("tidelock.db")).unwrap();
        let pages = Pages::of(&state);
        let (mut tried, mut shown, mut unreadable) = (0, BTreeSet::new(), 0);
        for table in TABLES {
            for (row, record, at) in texts(&state, table) {
                let put = |record: &Value| {
                    let sql = format!("UPDATE {table} SET record = ?2 WHERE rowid = ?1");
                    assert_eq!(state.execute(&sql, (row, record.to_string())).unwrap(), 1);
                };
                let text = record.pointer(&at).unwrap().as_str().unwrap();
                let hostile = if text.starts_with("http") { SCRIPT.to_owned() } else { format!("{text}{TAGS}") };
                let mut changed = record.clone();
                *changed.pointer_mut(&at).unwrap() = hostile.into();
                put(&changed);
                tried += 1;
                match pages.show(ctx, &format!("{table}{at}")).await {
                    Some(true) => _ = shown.insert(format!("{table}{at}")),
                    Some(false) => {}
                    None => unreadable += 1,
                }
                put(&record);
            }
        }
        // Each of these is text of a person, a host or Terraform, and is on a page.
        for text in ["audit/who", "pulls/title", "owners/holder/title", "freezes/why", "runs/user", "jobs/summary"] {
            assert!(shown.contains(text), "{text} is not among what was shown: {shown:#?}");
        }
        assert!(
            shown.len() >= 40 && unreadable < tried / 2,
            "{tried} tried, {unreadable} unreadable, shown: {shown:#?}"
        );
    });
}
