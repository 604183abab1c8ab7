//! Tests of the three stories against a scripted server: they end when comments and locks are as expected, and fail otherwise.

use super::super::tests::{comment, scripted};
use super::*;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Response of `/api/locks`.
type ScriptedLocks = Arc<Mutex<Value>>;

/// Changes a text.
type SpoilText = fn(String) -> String;

fn lock(project: &str, owner: u64, state: &str, waiting: &[&str]) -> Value {
    json!([{"ProjectRepoPath": project, "PullID": owner.to_string(), "State": state, "Waiting": waiting}])
}

/// Returns the scripted server's response to an event: the locks from then on, numbers and comments.
fn script(event: &Value) -> (Option<Value>, Vec<(u64, String)>) {
    let number = event["number"].as_u64().or_else(|| event["issue"]["number"].as_u64()).unwrap_or(0);
    let result = |command: &str, outcome: &str, reason: Value, owner: Value| json!({"v": 1, "results": [{"cmd": command, "outcome": outcome, "reason": reason, "owner": owner}]});
    let planned = |number, text: &str| (number, comment(text, result("plan", "success", Value::Null, Value::Null)));
    let applied = |number, text: &str| (number, comment(text, result("apply", "success", Value::Null, Value::Null)));
    let refused = |number, text: &str, reason: &str, owner: Value| {
        (number, comment(text, result("apply", "failure", json!(reason), owner)))
    };
    let told = |number, text: &str, message: &str| (number, comment(text, json!({"v": 1, "message": message})));
    let again = |number, project: &str| planned(number, &format!("Plan for {project}. Planned automatically."));
    let none = || Some(Value::Null);
    let accept = "atlantis unlock --accept-drift -m \"why\"";
    match (event["action"].as_str().unwrap_or_default(), number, event["comment"]["body"].as_str()) {
        ("opened", 1, _) => (None, vec![planned(1, "network")]),
        ("created", 1, Some("atlantis apply")) => {
            (Some(lock("network", 1, "applied_unmerged", &[])), vec![applied(1, "network")])
        }
        ("closed", 1, _) => {
            let text = format!("Closed after an apply: network {accept}");
            (Some(lock("network", 1, "closed_applied", &[])), vec![told(1, &text, "owes")])
        }
        ("opened", 2, _) => (None, vec![planned(2, "a preview on #1")]),
        ("created", 2, Some("atlantis apply")) => {
            let refusal = refused(2, &format!("#1: closed after an apply; {accept}"), "locked", json!(1));
            (Some(lock("network", 1, "closed_applied", &["2"])), vec![refusal])
        }
        ("created", 1, Some(text)) if text.starts_with("atlantis unlock --accept-drift -m ") => {
            (none(), vec![told(1, "network, #2", "unlocked"), again(2, "network")])
        }
        ("opened", 3, _) => (None, vec![planned(3, "dns")]),
        ("closed", 3, _) => {
            let owes = told(3, "Merged but not applied: dns; atlantis apply", "owes");
            (Some(lock("dns", 3, "merged_unapplied", &[])), vec![owes])
        }
        ("opened", 4, _) => (None, vec![planned(4, "a preview on #3")]),
        ("created", 4, Some("atlantis apply")) => {
            let refusal = refused(4, "#3: merged but not applied; atlantis apply", "locked", json!(3));
            (Some(lock("dns", 3, "merged_unapplied", &["4"])), vec![refusal])
        }
        ("created", 3, Some("atlantis apply")) => {
            let alices = [planned(3, "The pull request is merged. It is applied now."), applied(3, "dns")];
            let bobs = [told(4, "after #3 releases it", "plans_fell"), again(4, "dns")];
            (none(), alices.into_iter().chain(bobs).collect())
        }
        ("opened", 5, _) => (None, vec![planned(5, "app")]),
        ("opened", 6, _) => {
            let comments = vec![planned(6, "also changed by #5"), told(5, "#6 also changes 1 project", "also_changed")];
            (None, comments)
        }
        ("created", 5, Some("atlantis apply")) => {
            let comments = vec![applied(5, "app"), told(6, "after #5 releases it", "plans_fell")];
            (Some(lock("app", 5, "applied_unmerged", &["6"])), comments)
        }
        ("created", 6, Some("atlantis apply -p app")) => {
            (None, vec![refused(6, "no plan: atlantis plan", "no_plan", Value::Null)])
        }
        ("closed", 5, _) => (none(), vec![again(6, "app")]),
        ("created", 6, Some("atlantis apply")) => {
            (Some(lock("app", 6, "applied_unmerged", &[])), vec![applied(6, "app")])
        }
        ("closed", 6, _) => (none(), Vec::new()),
        _ => (None, Vec::new()),
    }
}

/// Plays the stories; comments go through `spoil`, the text of `/api/locks` through `spoil_locks`.
async fn played(spoil: SpoilText, spoil_locks: SpoilText) -> (anyhow::Result<()>, String) {
    let dir = tempfile::TempDir::new().unwrap();
    let locks = ScriptedLocks::default();
    let told = locks.clone();
    let answer = move |event: &Value| {
        let (locks, comments) = script(event);
        if let Some(locks) = locks {
            *told.lock().unwrap() = locks;
        }
        comments
    };
    let forge = scripted(&dir, answer, spoil).await;
    let look = async move || spoil_locks(json!({"Locks": *locks.lock().unwrap()}).to_string());
    let app = axum::Router::new().route("/api/locks", axum::routing::get(look));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut out = Vec::new();
    // Right locks appear within a moment, wrong ones stay.
    let ended = play(&forge, &url, Style::PLAIN, SandboxExecutor::Local, &mut out, Duration::from_secs(2)).await;
    (ended, String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn the_three_stories_are_told_to_their_end() {
    let (ended, text) = played(|comment| comment, |locks| locks).await;
    ended.unwrap();
    let told: Vec<_> = text.lines().filter(|line| line.starts_with("━━") || line.contains("/api/locks")).collect();
    let expected = [
        "━━ closed after apply",
        "● /api/locks  nothing is owned",
        "● /api/locks  network  #1  applied_unmerged",
        "● /api/locks  network  #1  closed_applied",
        "● /api/locks  network  #1  closed_applied  waiting: #2",
        "● /api/locks  nothing is owned",
        "━━ merged before apply",
        "● /api/locks  dns  #3  merged_unapplied",
        "● /api/locks  dns  #3  merged_unapplied  waiting: #4",
        "● /api/locks  nothing is owned",
        "━━ your plan fell",
        "● /api/locks  app  #5  applied_unmerged  waiting: #6",
        "● /api/locks  nothing is owned",
        "● /api/locks  app  #6  applied_unmerged",
        "● /api/locks  nothing is owned",
    ];
    assert_eq!(told, expected, "{text}");
    assert!(text.contains("Done: 3 stories, 6 pull requests, 23 comments of the server, "), "{text}");
}

#[tokio::test]
async fn a_server_that_says_something_else_fails_the_stories() {
    let same: SpoilText = |text| text;
    let cases: [(SpoilText, SpoilText, &str); 8] = [
        (same, |locks| locks.replace("closed_applied", "planned"), "it says [\"network  #1  planned\"]"),
        (same, |locks| locks.replace("[\"4\"]", "[]"), "it says [\"dns  #3  merged_unapplied\"]"),
        (same, |_| "{}".to_owned(), "the answer has no Locks"),
        (|text| text.replace("--accept-drift", "--now"), same, "it does not speak of atlantis unlock --accept-drift"),
        (|text| text.replace("\"owner\":3", "\"owner\":4"), same, "expected an apply that is refused as locked"),
        (|text| text.replace("It is applied now", "Look at it"), same, "it does not speak of It is applied now"),
        (|text| text.replace("plans_fell", "notice"), same, "expected the message plans_fell"),
        (|text| text.replace("also_changed", "notice"), same, "expected the message also_changed"),
    ];
    for (spoil, spoil_locks, reason) in cases {
        let (ended, text) = played(spoil, spoil_locks).await;
        let error = format!("{:#}", ended.unwrap_err());
        assert!(error.contains(reason) && error.contains("in the story"), "{error}");
        assert!(!text.contains("Done:"), "{text}");
    }
}
