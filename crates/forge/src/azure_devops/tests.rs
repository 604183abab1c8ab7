//! The forge as Azure DevOps Server, over real HTTP: its refusals, its deliveries, git, and its pages.

use super::super::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo, git};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;

const LIMIT: Duration = Duration::from_secs(20);
const NAME: &str = "DefaultCollection/Cloud Infra/live";
const REPOSITORY: &str = "/defaultcollection/cloud%20infra/_apis/git/repositories/live";

struct AzureDevOpsForge {
    forge: Forge,
    repo: Repo,
    dir: TempDir,
    client: reqwest::Client,
}

impl AzureDevOpsForge {
    async fn new() -> AzureDevOpsForge {
        let dir = TempDir::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::AzureDevOps, options).await.unwrap();
        let repo = forge.create_repo(NAME, &[("main.tf", "a = 1\n")]).await.unwrap();
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build().unwrap();
        AzureDevOpsForge { forge, repo, dir, client }
    }

    async fn pull(&self, options: OpenOptions) -> Pull {
        self.repo.open_pull("change", "alice", "Change a", &[("main.tf", Some("a = 2\n"))], options).await.unwrap()
    }

    async fn request(&self, method: Method, path: &str, token: &str, body: Value) -> (u16, Value) {
        let address = format!("{}{path}", self.forge.hostname_setting());
        let request = self.client.request(method, address).basic_auth("", Some(token)).json(&body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }

    /// Sends a request about the repository, as the server's account.
    async fn of_repo(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{REPOSITORY}{path}{mark}api-version=7.0");
        self.request(method, &path, self.forge.token().expose_secret(), body).await
    }
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_refused() {
    let azure = AzureDevOpsForge::new().await;
    azure.pull(OpenOptions::default()).await;
    let token = azure.forge.token();
    let token = token.expose_secret();
    for (path, token, status) in [
        (format!("{REPOSITORY}?api-version=7.0"), token, 200),
        (format!("{REPOSITORY}?api-version=7.0"), "guessed", 203),
        (REPOSITORY.to_owned(), token, 400),
        ("/elsewhere/_apis/git/repositories?api-version=7.0".to_owned(), token, 404),
        ("/defaultcollection/other/_apis/git/repositories/live?api-version=7.0".to_owned(), token, 404),
    ] {
        assert_eq!(azure.request(Method::GET, &path, token, Value::Null).await.0, status, "{path} {token}");
    }
    let status =
        |iteration: u64, state: &str| json!({"iterationId": iteration, "state": state, "context": {"name": "x"}});
    let thread = |text: &str| json!({"comments": [{"content": text}]});
    for (method, path, body, wanted) in [
        (Method::GET, "/pullRequests/2", Value::Null, 404),
        (Method::POST, "/pullRequests/1/statuses", status(1, "success"), 400),
        (Method::POST, "/pullRequests/1/statuses", status(2, "succeeded"), 400),
        (Method::POST, "/pullRequests/1/statuses", status(1, "succeeded"), 200),
        (Method::POST, "/pullRequests/1/threads", thread(""), 400),
        (Method::POST, "/pullRequests/1/threads", thread(&"x".repeat(150_001)), 400),
        (Method::POST, "/pullRequests/1/threads", thread(&"x".repeat(150_000)), 200),
        (Method::PATCH, "/pullRequests/1", json!({"status": "completed"}), 409),
        (Method::GET, "/nonsense", Value::Null, 404),
    ] {
        let (answered, told) = azure.of_repo(method, path, body).await;
        assert_eq!(answered, wanted, "{path}: {told}");
    }
}

#[tokio::test]
async fn deliveries_have_basic_auth_and_one_completion_is_told_twice() {
    let azure = AzureDevOpsForge::new().await;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let take = async move |headers: http::HeaderMap, body: axum::body::Bytes| {
        sender.send((headers, serde_json::from_slice::<Value>(&body).unwrap())).unwrap();
    };
    let app = axum::Router::new().route("/events", axum::routing::post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    azure.forge.set_webhook(&format!("http://{}/events", listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let pull = azure.pull(OpenOptions::default()).await;
    pull.comment("bob", "atlantis plan").unwrap();
    pull.vote("bob", 10).unwrap();
    pull.merge().await.unwrap();
    azure.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let mut events = Vec::new();
    while let Ok((headers, body)) = receiver.try_recv() {
        let proof = base64::Engine::encode(
            &base64::prelude::BASE64_STANDARD,
            format!("hooks:{}", azure.forge.webhook_secret().expose_secret()),
        );
        assert_eq!(headers["authorization"], format!("Basic {proof}"));
        assert!(headers.contains_key("x-vss-activityid"));
        events.push((body["eventType"].as_str().unwrap().to_owned(), body["resource"].clone()));
    }
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let update = "git.pullrequest.updated";
    let comment = "ms.vss-code.git-pullrequest-comment-event";
    assert_eq!(names, ["git.pullrequest.created", comment, update, update, "git.pullrequest.merged"]);
    assert_eq!(events[1].1["comment"]["author"]["uniqueName"], "bob@example.com");
    assert_eq!(events[2].1["reviewers"][0]["vote"], 10);
    assert_eq!((&events[3].1["status"], &events[4].1["status"]), (&json!("completed"), &json!("completed")));
}

#[tokio::test]
async fn a_status_belongs_to_its_iteration_and_a_fork_is_named() {
    let azure = AzureDevOpsForge::new().await;
    let fork = OpenOptions { fork: Some("DefaultCollection/Elsewhere".to_owned()), ..OpenOptions::default() };
    let other = azure.repo.open_pull("other", "bob", "From a fork", &[("b.tf", Some("b"))], fork).await.unwrap();
    let (_, told) = azure.of_repo(Method::GET, &format!("/pullRequests/{}", other.number()), Value::Null).await;
    assert_eq!(told["forkSource"]["repository"]["project"]["name"], "Elsewhere");
    let pull = azure.pull(OpenOptions::default()).await;
    let path = format!("/pullRequests/{}/statuses", pull.number());
    let status = json!({"iterationId": 1, "state": "succeeded", "context": {"genre": "ours/x", "name": "plan"}});
    azure.of_repo(Method::POST, &path, status).await;
    assert_eq!(pull.statuses().unwrap()["ours/x/plan"].state, "success");
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert!(pull.statuses().unwrap().is_empty(), "it was the former push's");
    let (_, told) = azure.of_repo(Method::GET, &path, Value::Null).await;
    assert_eq!((&told["count"], &told["value"][0]["context"]["genre"]), (&json!(1), &json!("ours/x")));
}

#[tokio::test]
async fn git_gives_tips_of_branches_and_takes_pushes() {
    let azure = AzureDevOpsForge::new().await;
    let pull = azure.pull(OpenOptions::default()).await;
    let first = pull.head_commit().unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let run = async |args: &[&str]| {
        let mut command = git::git_command();
        command.args(["-c", "user.name=alice", "-c", "user.email=a@b"]).args(args);
        command.current_dir(azure.dir.path()).env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap()
    };
    let url = azure.repo.clone_url_for("alice").unwrap();
    let cloned = run(&["clone", "-q", "-b", "change", &url, "clone"]).await;
    assert!(cloned.status.success(), "{}", String::from_utf8_lossy(&cloned.stderr));
    assert!(!run(&["clone", "-q", &azure.repo.clone_url(), "stranger"]).await.status.success());
    assert!(run(&["init", "-q", "bare"]).await.status.success());
    assert!(!run(&["-C", "bare", "fetch", "-q", &url, &first]).await.status.success(), "it is no tip any more");
    assert!(run(&["-C", "bare", "fetch", "-q", &url, &pull.head_commit().unwrap()]).await.status.success());
    std::fs::write(azure.dir.path().join("clone/main.tf"), "a = 4\n").unwrap();
    assert!(run(&["-C", "clone", "commit", "-qam", "More"]).await.status.success());
    assert!(run(&["-C", "clone", "push", "-q"]).await.status.success());
    let tip = String::from_utf8(run(&["-C", "clone", "rev-parse", "HEAD"]).await.stdout).unwrap();
    assert_eq!(pull.head_commit().unwrap(), tip.trim());
}

#[tokio::test]
async fn people_read_and_comment_on_its_pages() {
    let azure = AzureDevOpsForge::new().await;
    let pull = azure.pull(OpenOptions::default()).await;
    assert!(pull.url().ends_with("/tfs/DefaultCollection/Cloud%20Infra/_git/live/pullrequest/1"), "{}", pull.url());
    let page = azure.client.get(pull.url()).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let text = page.text().await.unwrap().replace("&#x2f;", "/");
    assert!(text.contains("!1") && text.contains("/_git/live/pull/1/comment"), "{text}");
    let form = azure.client.post(format!("{}/comment", pull.url())).body("as=bob&body=atlantis+plan");
    let posted = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
    assert_eq!(posted.status(), 303);
    let back = posted.headers()["location"].to_str().unwrap().to_owned();
    assert!(back.starts_with("/tfs/DefaultCollection/Cloud%20Infra/_git/live/pullrequest/1#"), "{back}");
    assert_eq!(pull.comments().unwrap()[0].body, "atlantis plan");
    let index = azure.client.get(azure.forge.url()).send().await.unwrap().text().await.unwrap();
    assert!(index.replace("&#x2f;", "/").contains("/tfs/DefaultCollection/Cloud%20Infra/_git/live"), "{index}");
    for path in ["", "/new", "/file?path=main.tf", "/pullrequest/1/edit"] {
        let address = format!("{}{path}", azure.repo.clone_url());
        assert_eq!(azure.client.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
}
