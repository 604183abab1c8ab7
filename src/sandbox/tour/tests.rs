//! Tests of the tour against a scripted server: it passes if the server's comments are as expected, and reports the difference otherwise.

use super::*;
use crate::sandbox::{ForgeOptions, HostKind};
use axum::body::Bytes;
use insta::assert_snapshot;
use secrecy::ExposeSecret;
use serde_json::json;

/// Returns the scripted server's response to an event: numbers and comments.
fn script(event: &Value) -> Vec<(u64, String)> {
    let Some(number) = event["number"].as_u64().or_else(|| event["issue"]["number"].as_u64()) else {
        return Vec::new();
    };
    let result = |command: &str, outcome: &str| json!({"v": 1, "results": [{"cmd": command, "outcome": outcome, "project": "network"}]});
    let planned = || result("plan", "success");
    let (text, marker) = match (event["action"].as_str().unwrap_or_default(), number, event["comment"]["body"].as_str())
    {
        ("opened", 1, _) => ("### Plan for `network`\n**Plan: 1 to add**", planned()),
        ("opened", 2, _) => ("### Plan for `network` waits for #1", result("plan", "failure")),
        ("created", 1, Some("atlantis apply")) => ("### Applied `network`", result("apply", "success")),
        ("closed", 1, _) => {
            let freed = comment("Locks of `network` are free.", json!({"v": 1, "message": "cleanup"}));
            return vec![(1, freed), (2, comment("### Plan for `network`", planned()))];
        }
        ("created", 2, Some("atlantis unlock")) => ("Unlocked.", json!({"v": 1, "message": "unlocked"})),
        _ => return Vec::new(),
    };
    vec![(number, comment(text, marker))]
}

/// Returns a comment with its hidden line.
pub(super) fn comment(text: &str, marker: Value) -> String {
    format!("{text}\n\n<!-- tidelock:{marker} -->")
}

/// Starts a forge with a scripted server, whose comments go through `spoil`.
pub(super) async fn scripted(
    dir: &tempfile::TempDir,
    script: impl Fn(&Value) -> Vec<(u64, String)> + Clone + Send + Sync + 'static,
    spoil: fn(String) -> String,
) -> Forge {
    let forge = Forge::start(ForgeOptions { dir: dir.path().to_owned(), port: 0 }).await.unwrap();
    let api = format!("{}/api/v3/repos/{}/issues", forge.url(), demo::repository(HostKind::Github));
    let (token, client) = (forge.token(), reqwest::Client::builder().no_proxy().build().unwrap());
    let answer = async move |body: Bytes| {
        for (number, comment) in script(&serde_json::from_slice(&body).unwrap()) {
            let request = client.post(format!("{api}/{number}/comments")).bearer_auth(token.expose_secret());
            let answered = request.json(&json!({"body": spoil(comment)})).send().await.unwrap();
            assert_eq!(answered.status(), 201);
        }
    };
    let app = axum::Router::new().route("/events", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    forge.set_webhook(&format!("http://{}/events", listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    forge
}

async fn play(spoil: fn(String) -> String, executor: SandboxExecutor) -> (anyhow::Result<()>, String) {
    let dir = tempfile::TempDir::new().unwrap();
    let forge = scripted(&dir, script, spoil).await;
    let mut out = Vec::new();
    let ended = tour(&forge, "http://127.0.0.1:4141", Style::PLAIN, executor, &mut out, async || Ok(())).await;
    let port = forge.url().rsplit(':').next().unwrap().to_owned();
    let text = String::from_utf8(out).unwrap().replace(&port, "PORT");
    (ended, regex::Regex::new(r"\d+\.\d s").unwrap().replace_all(&text, "0.0 s").into_owned())
}

#[tokio::test]
async fn the_story_is_told_to_its_end() {
    let (ended, text) = play(|comment| comment, SandboxExecutor::Local).await;
    ended.unwrap();
    assert_snapshot!(text, @r##"
    A pull request is planned, blocked, applied, merged and unlocked, and a server is lost on the way: on this machine, with real Terraform.
      pull requests  http://127.0.0.1:PORT
      server         http://127.0.0.1:4141


    1. alice opens a pull request; the server plans by itself
    ● #1  alice: Let SSH in through the proxy only
      http://127.0.0.1:PORT/acme/infrastructure/pull/1
      the server is at work … 0.0 s
      ┌ #1  tidelock-bot ────────────────────────────────────────────────────────────
      │ Plan for `network`
      │ Plan: 1 to add
      └──────────────────────────────────────────────────────────────────────────────

    2. bob opens another one for the same project, which #1 holds
    ● #2  bob: Add a subnet for the cache
      http://127.0.0.1:PORT/acme/infrastructure/pull/2
      the server is at work … 0.0 s
      ┌ #2  tidelock-bot ────────────────────────────────────────────────────────────
      │ Plan for `network` waits for #1
      └──────────────────────────────────────────────────────────────────────────────

    3. the server is killed and its disk wiped; another one starts from the bucket
    ● state restored in 0.0 s

    4. alice applies the plan that was made before
    ● #1  alice: atlantis apply
      the server is at work … 0.0 s
      ┌ #1  tidelock-bot ────────────────────────────────────────────────────────────
      │ Applied `network`
      └──────────────────────────────────────────────────────────────────────────────

    5. alice merges; the lock goes with the pull request
    ● #1  alice merged it
      the server is at work … 0.0 s
      ┌ #1  tidelock-bot ────────────────────────────────────────────────────────────
      │ Locks of `network` are free.
      └──────────────────────────────────────────────────────────────────────────────

    6. bob was next in line: his is planned without being asked
      the server is at work … 0.0 s
      ┌ #2  tidelock-bot ────────────────────────────────────────────────────────────
      │ Plan for `network`
      └──────────────────────────────────────────────────────────────────────────────

    7. bob changes his mind and frees the project
    ● #2  bob: atlantis unlock
      the server is at work … 0.0 s
      ┌ #2  tidelock-bot ────────────────────────────────────────────────────────────
      │ Unlocked.
      └──────────────────────────────────────────────────────────────────────────────

    Done: 2 pull requests, 6 comments of the server, 1 apply, 1 server lost, 0.0 s.
    To play yourself, in the browser: tidelock sandbox
    "##);
}

#[tokio::test]
async fn an_executor_is_explained_once_where_its_first_job_begins() {
    let (ended, text) = play(|comment| comment, SandboxExecutor::Process).await;
    ended.unwrap();
    let (before, after) = text.split_once("each job runs at the executor `processes`").unwrap();
    assert!(before.contains("alice: Let SSH") && !before.contains("at work"), "{text}");
    assert!(after.contains("docs/executors.md") && !after.contains("at the executor"), "{text}");
    assert!(text.ends_with("tidelock sandbox --executor process\n"), "{text}");
}

#[tokio::test]
async fn a_server_that_says_something_else_fails_the_tour() {
    for (spoil, reason) in [
        ((|comment| comment.replace("waits for #1", "waits")) as fn(String) -> String, "it does not speak of #1"),
        (|comment| comment.replace("success", "error"), "expected a plan with success"),
        (|comment| comment.replace("cleanup", "unlocked"), "expected the message cleanup"),
        (|comment| comment.replace("<!--", "<!- -"), "it has no hidden last line"),
        (|comment| comment.replace("\"results\":[{", "\"results\":[],\"x\":[{"), "expected a plan with success"),
    ] {
        let (ended, text) = play(spoil, SandboxExecutor::Local).await;
        let error = format!("{:#}", ended.unwrap_err());
        assert!(error.contains(reason) && error.contains("/pull/"), "{error}");
        assert!(!text.contains("Done:"), "{text}");
    }
}

#[tokio::test]
async fn plain_sandbox_narrates_what_happens() {
    let dir = tempfile::TempDir::new().unwrap();
    let forge = scripted(&dir, script, |comment| comment).await;
    let repo = demo::populate(&forge).await.unwrap();
    let pull = demo::story_start(&repo).await.unwrap();
    pull.wait_for_comment(0, ANSWER_TIMEOUT).await.unwrap();
    pull.comment("bob", "nice\x1b[2J").unwrap();
    pull.approve("bob").unwrap();
    pull.close().unwrap();
    let mut out = Vec::new();
    // It runs until it is dropped; it writes all earlier events before it first waits.
    let mut told = Box::pin(demo::narrate(&forge, Style::PLAIN, &mut out));
    assert!(futures::poll!(&mut told).is_pending());
    drop(told);
    let text = String::from_utf8(out).unwrap().replace(&pull.head_commit().unwrap()[..7], "HEAD");
    assert_snapshot!(text, @"
    ● #1  alice opened “Let SSH in through the proxy only”
      #1  head is HEAD
      ┌ #1  tidelock-bot ────────────────────────────────────────────────────────────
      │ Plan for `network`
      │ Plan: 1 to add
      └──────────────────────────────────────────────────────────────────────────────
    ● #1  bob: nice[2J
    ● #1  bob approved
    ● #1  closed
    ");
}

#[tokio::test]
async fn both_pull_requests_of_the_story_can_be_merged() {
    let dir = tempfile::TempDir::new().unwrap();
    let forge = Forge::start(ForgeOptions { dir: dir.path().to_owned(), port: 0 }).await.unwrap();
    let repo = demo::populate(&forge).await.unwrap();
    for pull in [demo::story_start(&repo).await.unwrap(), demo::second_pull(&repo).await.unwrap()] {
        pull.merge().await.unwrap();
    }
    let text = repo.file("main", "network/main.tf").await.unwrap().unwrap();
    for part in ["10.20.16.0/23", "10.20.24.0/24", "allow_ssh_from_iap", "output \"ranges\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let state = forge.dir().join("terraform-state");
    assert!(!text.contains("legacy_ssh") && text.contains(&format!("{}/network.tfstate", state.display())), "{text}");
    assert_eq!(std::fs::read_dir(state).unwrap().count(), 3);
}
