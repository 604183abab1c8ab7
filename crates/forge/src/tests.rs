//! The forge by itself: git, API, webhooks, pages and faults, each over real HTTP.

mod check_runs;
pub(crate) mod examples;
pub(crate) mod receiver;

use super::*;
use axum::body::Bytes;
use http::{HeaderMap, Method};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::process::Output;
use tempfile::TempDir;
use tokio::sync::mpsc;

const LIMIT: Duration = Duration::from_secs(20);

struct TestForge {
    forge: Forge,
    repo: Repo,
    dir: TempDir,
    client: reqwest::Client,
}

impl TestForge {
    async fn new() -> TestForge {
        let dir = TempDir::new().unwrap();
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let repo = forge.create_repo("acme/infra", &[("main.tf", "a = 1\n"), ("old.tf", "")]).await.unwrap();
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build().unwrap();
        TestForge { forge, repo, dir, client }
    }

    async fn pull(&self) -> Pull {
        let changes = [("main.tf", Some("a = 2\n")), ("old.tf", None)];
        self.repo.open_pull("change", "alice", "Change a", &changes, OpenOptions::default()).await.unwrap()
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(method, format!("{}/api/v3/repos/acme/infra{path}", self.forge.url()))
            .bearer_auth(self.forge.token().expose_secret())
    }

    async fn get(&self, path: &str) -> Value {
        self.request(Method::GET, path).send().await.unwrap().json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.request(Method::POST, path).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Real git in the temporary directory, without the forge's configuration.
    async fn git(&self, args: &[&str]) -> Output {
        let mut command = git::git_command();
        command.args(["-c", "user.name=alice", "-c", "user.email=a@b", "-c", "protocol.version=2"]);
        command.args(args).current_dir(self.dir.path()).env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap()
    }

    /// Receives webhooks and answers with this status.
    async fn receiver(&self, status: u16) -> mpsc::UnboundedReceiver<(HeaderMap, Bytes)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let answer = async move |headers: HeaderMap, body: Bytes| {
            sender.send((headers, body)).unwrap();
            (http::StatusCode::from_u16(status).unwrap(), "thanks")
        };
        let app = axum::Router::new().route("/events", axum::routing::post(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.forge.set_webhook(&format!("http://{}/events", listener.local_addr().unwrap()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }
}

#[tokio::test]
async fn git_clones_with_a_token_and_is_refused_without_one() {
    let place = TestForge::new().await;
    let refused = place.git(&["clone", "-q", &place.repo.clone_url(), "none"]).await;
    assert!(!refused.status.success());
    let wrong = place.repo.clone_url().replacen("http://", "http://alice:wrong@", 1);
    assert!(!place.git(&["clone", "-q", &wrong, "wrong"]).await.status.success());

    let url = place.repo.clone_url_for("alice").unwrap();
    let partial = place.git(&["clone", "-q", "--filter=blob:none", "--depth=1", &url, "partial"]).await;
    assert!(partial.status.success(), "{partial:?}");
    assert_eq!(std::fs::read_to_string(place.dir.path().join("partial/main.tf")).unwrap(), "a = 1\n");

    place.forge.credentials("mallory").unwrap();
    let stranger = place.repo.clone_url_for("mallory").unwrap();
    assert!(!place.git(&["clone", "-q", &stranger, "stranger"]).await.status.success());
}

#[tokio::test]
async fn any_commit_of_a_pull_request_can_be_fetched_by_its_id() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let first = pull.head_commit().unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let url = place.repo.clone_url_for("tidelock-bot").unwrap();
    place.git(&["init", "-q", "--bare", "mirror"]).await;
    for what in [first.as_str(), "refs/pull/1/head"] {
        let fetched = place.git(&["-C", "mirror", "fetch", "-q", "--depth=1", &url, what]).await;
        assert!(fetched.status.success(), "{what}: {fetched:?}");
    }
    let seen = place.git(&["-C", "mirror", "show", &format!("{first}:main.tf")]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "a = 2\n");
}

#[tokio::test]
async fn a_push_with_git_moves_the_pull_request_and_is_announced() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let mut hooks = place.receiver(200).await;
    let url = place.repo.clone_url_for("bob").unwrap();
    assert!(place.git(&["clone", "-q", "-b", "change", &url, "work"]).await.status.success());
    std::fs::write(place.dir.path().join("work/main.tf"), "a = 4\n").unwrap();
    assert!(place.git(&["-C", "work", "commit", "-qam", "More"]).await.status.success());
    let pushed = place.git(&["-C", "work", "push", "-q", "origin", "change"]).await;
    assert!(pushed.status.success(), "{pushed:?}");

    assert_eq!(hooks.recv().await.unwrap().0["x-github-event"], "ping");
    let event: Value = serde_json::from_slice(&hooks.recv().await.unwrap().1).unwrap();
    assert_eq!((&event["action"], &event["sender"]["login"]), (&json!("synchronize"), &json!("bob")));
    assert_eq!(event["pull_request"]["head"]["sha"], json!(pull.head_commit().unwrap()));
    assert_eq!(event["after"], event["pull_request"]["head"]["sha"]);
    assert_eq!(place.repo.file(&pull.head_commit().unwrap(), "main.tf").await.unwrap().unwrap(), "a = 4\n");

    place.repo.set_permission("bob", "read").unwrap();
    assert!(!place.git(&["-C", "work", "push", "-q", "origin", "change:other"]).await.status.success());
}

#[tokio::test]
async fn a_pull_request_has_githubs_shape() {
    let place = TestForge::new().await;
    let options = OpenOptions { labels: vec!["urgent".into()], body: "why".into(), ..OpenOptions::default() };
    let pull = place.repo.open_pull("fix me/1", "alice", "Fix", &[("a.tf", Some("x"))], options.clone()).await;
    assert!(pull.is_err(), "a branch name that git refuses is refused");
    let pull = place.repo.open_pull("fix/'me'", "alice", "Fix", &[("a.tf", Some("x"))], options).await.unwrap();
    let shape = place.get("/pulls/1").await;
    let head = pull.head_commit().unwrap();
    let base = place.repo.tip("main").await.unwrap();
    for (pointer, expected) in [
        ("/number", json!(1)),
        ("/state", json!("open")),
        ("/title", json!("Fix")),
        ("/body", json!("why")),
        ("/draft", json!(false)),
        ("/merged", json!(false)),
        ("/mergeable", json!(true)),
        ("/mergeable_state", json!("clean")),
        ("/user/login", json!("alice")),
        ("/labels/0/name", json!("urgent")),
        ("/head/ref", json!("fix/'me'")),
        ("/head/sha", json!(head)),
        ("/head/repo/full_name", json!("acme/infra")),
        ("/head/repo/owner/login", json!("acme")),
        ("/base/ref", json!("main")),
        ("/base/sha", json!(base)),
        ("/base/repo/clone_url", json!(place.repo.clone_url())),
        ("/base/repo/size", json!(1)),
        ("/html_url", json!(pull.url())),
    ] {
        assert_eq!(shape.pointer(pointer), Some(&expected), "{pointer}");
    }
    let repo = place.get("").await;
    assert_eq!((&repo["allow_merge_commit"], &repo["allow_rebase_merge"]), (&json!(true), &json!(false)));
    assert_eq!(place.request(Method::GET, "/pulls/2").send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_fork_has_another_owner_and_its_head_is_in_the_base_repository() {
    let place = TestForge::new().await;
    let options = OpenOptions { fork: Some("mallory".into()), draft: true, ..OpenOptions::default() };
    let pull = place.repo.open_pull("x", "mallory", "Evil", &[("main.tf", Some("b"))], options).await.unwrap();
    let shape = place.get("/pulls/1").await;
    assert_eq!(shape["head"]["repo"]["full_name"], "mallory/infra");
    assert_eq!((&shape["head"]["repo"]["fork"], &shape["mergeable_state"]), (&json!(true), &json!("draft")));
    let pushed = pull.push(&[("main.tf", Some("c"))]).await.unwrap();
    assert_eq!(pull.head_commit().unwrap(), pushed);
    let git = place.forge.shared.git("acme/infra").unwrap();
    assert_eq!(git.file("refs/pull/1/head", "main.tf").await.unwrap().unwrap(), "c");
    pull.ready().unwrap();
    assert_eq!(place.get("/pulls/1").await["draft"], false);
}

#[tokio::test]
async fn webhooks_are_signed_in_order_recorded_and_sent_again_only_when_asked() {
    let place = TestForge::new().await;
    let mut hooks = place.receiver(500).await;
    let pull = place.pull().await;
    let id = pull.comment("bob", "atlantis plan").unwrap();
    pull.approve("bob").unwrap();
    pull.close().unwrap();
    place.forge.wait_for_deliveries(LIMIT).await.unwrap();

    let mut events = Vec::new();
    while let Ok((headers, body)) = hooks.try_recv() {
        let signature = headers["x-hub-signature-256"].to_str().unwrap();
        assert_eq!(signature, hooks::signature(place.forge.webhook_secret().expose_secret(), &body));
        let payload: Value = serde_json::from_slice(&body).unwrap();
        let action = payload["action"].as_str().unwrap_or_default().to_owned();
        events.push(format!("{} {action}", headers["x-github-event"].to_str().unwrap()));
        if headers["x-github-event"] == "issue_comment" {
            assert_eq!((&payload["comment"]["id"], &payload["comment"]["user"]["login"]), (&json!(id), &json!("bob")));
            assert_eq!((&payload["issue"]["number"], &payload["issue"]["state"]), (&json!(1), &json!("open")));
            assert!(payload["issue"]["pull_request"].is_object());
        }
        if action == "opened" {
            assert_eq!(payload["pull_request"]["mergeable_state"], "unknown");
        }
    }
    let expected = [
        "ping ",
        "pull_request opened",
        "issue_comment created",
        "pull_request_review submitted",
        "pull_request closed",
    ];
    assert_eq!(events, expected);

    let deliveries = place.forge.deliveries();
    assert!(deliveries.iter().all(|delivery| delivery.status == Some(500) && delivery.answer == "thanks"));
    place.forge.pause_webhooks(true);
    place.forge.redeliver(deliveries[2].id).unwrap();
    assert!(place.forge.wait_for_deliveries(Duration::from_millis(50)).await.is_err(), "held back");
    place.forge.pause_webhooks(false);
    let (headers, body) = hooks.recv().await.unwrap();
    assert_eq!(headers["x-github-delivery"], deliveries[2].guid.as_str());
    assert_eq!(body, deliveries[2].body);
    assert!(place.forge.redeliver(1).is_err());
}

/// A known answer from GitHub's documentation, so that the forge does not only agree with itself.
#[test]
fn signatures_are_githubs() {
    let expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(hooks::signature("It's a Secret to Everybody", b"Hello, World!"), expected);
}

#[tokio::test]
async fn lists_are_paged_with_links_by_repository_id() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    for n in 0..5 {
        pull.comment("bob", &format!("comment {n}")).unwrap();
    }
    let mut next = Some(format!("{}/api/v3/repos/acme/infra/issues/1/comments?per_page=2", place.forge.url()));
    let mut bodies = Vec::new();
    while let Some(url) = next {
        let token = place.forge.token();
        let response = place.client.get(&url).bearer_auth(token.expose_secret()).send().await.unwrap();
        let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned()).unwrap_or_default();
        next = link.split(", ").find(|part| part.ends_with("rel=\"next\"")).map(|part| {
            assert!(part.contains("/api/v3/repositories/"), "{part}");
            part.trim_start_matches('<').split('>').next().unwrap().to_owned()
        });
        let page: Vec<Value> = response.json().await.unwrap();
        bodies.push(page.iter().map(|comment| comment["body"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(bodies, [vec!["comment 0", "comment 1"], vec!["comment 2", "comment 3"], vec!["comment 4"]]);
}

#[tokio::test]
async fn the_api_comments_reacts_sets_statuses_and_deletes() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let (status, comment) = place.post("/issues/1/comments", json!({"body": "hello"})).await;
    assert_eq!((status, &comment["user"]["login"]), (201, &json!("tidelock-bot")));
    let said = pull.wait_for_comment(0, LIMIT).await.unwrap();
    assert_eq!((said.body.as_str(), said.id), ("hello", comment["id"].as_u64().unwrap()));

    let asked = pull.comment("bob", "atlantis plan").unwrap();
    let path = format!("/issues/comments/{asked}/reactions");
    assert_eq!(place.post(&path, json!({"content": "eyes"})).await.0, 201);
    assert_eq!(place.post(&path, json!({"content": "eyes"})).await.0, 200);
    assert_eq!(place.post(&path, json!({"content": "frown"})).await.0, 422);
    assert_eq!(pull.reactions(asked).unwrap(), [("tidelock-bot".to_owned(), "eyes".to_owned())]);

    let head = pull.head_commit().unwrap();
    let path = format!("/statuses/{head}");
    for state in ["pending", "success"] {
        let body = json!({"state": state, "context": "atlantis/plan", "description": "d", "target_url": "http://x/1"});
        assert_eq!(place.post(&path, body).await.0, 201);
    }
    let status = pull.wait_for_status("atlantis/plan", |status| status.state == "success", LIMIT).await.unwrap();
    assert_eq!((status.description.as_str(), status.url.as_str()), ("d", "http://x/1"));
    assert_eq!(pull.statuses().unwrap().len(), 1);
    for wrong in [
        json!({"state": "green"}),
        json!({"state": "success", "description": "x".repeat(141)}),
        json!({"state": "success", "context": "x".repeat(256)}),
        json!({"state": "success", "target_url": "javascript:x"}),
    ] {
        assert_eq!(place.post(&path, wrong).await.0, 422);
    }
    assert_eq!(place.post(&format!("/statuses/{}", "0".repeat(40)), json!({"state": "success"})).await.0, 422);
    assert_eq!(place.post("/issues/1/comments", json!({"body": "x".repeat(65_537)})).await.0, 422);

    let deleted = place.request(Method::DELETE, &format!("/issues/comments/{}", said.id)).send().await.unwrap();
    assert_eq!((deleted.status().as_u16(), pull.bot_comments().unwrap().len()), (204, 0));
    let error = pull.wait_for_comment(0, Duration::from_millis(10)).await.unwrap_err();
    assert!(format!("{error:#}").contains("the server's comment 1 on #1"), "{error:#}");
}

#[tokio::test]
async fn reviews_and_permissions_are_as_people_made_them() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    assert!(pull.approve("alice").is_err(), "her own");
    pull.approve("bob").unwrap();
    pull.request_changes("dave").unwrap();
    let reviews = place.get("/pulls/1/reviews").await;
    let rows: Vec<_> = reviews.as_array().unwrap().iter().map(|r| (&r["user"]["login"], &r["state"])).collect();
    assert_eq!(rows, [(&json!("bob"), &json!("APPROVED")), (&json!("dave"), &json!("CHANGES_REQUESTED"))]);
    assert_eq!(reviews[0]["commit_id"], json!(pull.head_commit().unwrap()));
    for (user, level) in [("alice", "admin"), ("bob", "write"), ("dave", "read"), ("tidelock-bot", "admin")] {
        assert_eq!(place.get(&format!("/collaborators/{user}/permission")).await["permission"], level);
    }
    assert_eq!(place.request(Method::GET, "/collaborators/nobody/permission").send().await.unwrap().status(), 404);

    let anonymous = place.client.get(format!("{}/api/v3/repos/acme/infra", place.forge.url())).send().await.unwrap();
    assert_eq!(anonymous.status(), 404);
    let url = format!("{}/api/v3/repos/acme/infra", place.forge.url());
    assert_eq!(place.client.get(url).bearer_auth("wrong").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn merging_is_real_and_refused_where_github_refuses() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let rival =
        place.repo.open_pull("rival", "bob", "Other a", &[("main.tf", Some("a = 9\n"))], OpenOptions::default());
    let rival = rival.await.unwrap();
    let merge = async |number: u64, body: Value| {
        let response = place.request(Method::PUT, &format!("/pulls/{number}/merge")).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    assert_eq!(merge(1, json!({"sha": "0".repeat(40)})).await.0, 409);
    assert_eq!(merge(1, json!({"merge_method": "rebase"})).await.0, 405);
    pull.set_mergeable_state("blocked").unwrap();
    assert_eq!(merge(1, json!({})).await.0, 405);
    pull.set_mergeable_state("clean").unwrap();
    let (status, merged) = merge(1, json!({"sha": pull.head_commit().unwrap(), "merge_method": "merge"})).await;
    assert_eq!((status, &merged["merged"]), (200, &json!(true)));
    assert_eq!(merged["sha"], json!(place.repo.tip("main").await.unwrap()));
    assert_eq!(place.repo.file("main", "main.tf").await.unwrap().unwrap(), "a = 2\n");
    assert_eq!(place.repo.file("main", "old.tf").await.unwrap(), None);
    assert!(pull.is_merged().unwrap() && !pull.is_open().unwrap() && pull.reopen().is_err());
    assert_eq!(place.get("/pulls/1").await["merged_by"]["login"], "tidelock-bot");

    assert_eq!(place.get("/pulls/2").await["mergeable_state"], "dirty");
    assert!(rival.merge().await.is_err());
    rival.close().unwrap();
    assert!(rival.close().is_err());
    rival.reopen().unwrap();
    assert!(rival.is_open().unwrap());

    let squashed = place.repo.open_pull("new", "bob", "New", &[("b.tf", Some("b"))], OpenOptions::default()).await;
    squashed.unwrap().merge_as("bob", "squash").await.unwrap();
    assert_eq!(place.repo.file("main", "b.tf").await.unwrap().unwrap(), "b");
}

#[tokio::test]
async fn faults_hit_the_requests_that_were_named_and_no_more() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let comments = "/api/v3/repos/*/comments";
    let limited = vec![("retry-after".to_owned(), "1".to_owned())];
    place.forge.fail_next("POST", comments, Fault::Status(403, "{}".into(), limited), 1).unwrap();
    place.forge.fail_next("post", comments, Fault::Reset, 1).unwrap();
    place.forge.fail_next("*", comments, Fault::AppliedThenReset, 1).unwrap();
    place.forge.fail_next("POST", comments, Fault::Stall(Duration::from_millis(30)), 1).unwrap();
    assert!(place.forge.fail_next("POST", "[", Fault::Reset, 1).is_err());

    let send = async |text: &str| {
        let sent = place.request(Method::POST, "/issues/1/comments").json(&json!({"body": text})).send().await;
        sent.map(|response| (response.status().as_u16(), response.headers().contains_key("retry-after")))
    };
    let texts = || pull.comments().unwrap().into_iter().map(|comment| comment.body).collect::<Vec<_>>();
    assert_eq!(place.get("").await["name"], "infra");
    assert_eq!(send("refused").await.unwrap(), (403, true));
    assert!(send("reset").await.is_err());
    assert!(texts().is_empty());
    assert!(send("lost answer").await.is_err());
    assert_eq!(texts(), ["lost answer"]);
    let before = std::time::Instant::now();
    assert_eq!(send("late").await.unwrap(), (201, false));
    assert!(before.elapsed() >= Duration::from_millis(30));
    assert_eq!(texts(), ["lost answer", "late"]);

    let seen = place.forge.requests();
    let posts: Vec<_> = seen.iter().filter(|request| request.method == "POST").map(|request| request.status).collect();
    assert_eq!(posts, [403, 0, 0, 201]);
}

#[tokio::test]
async fn git_requests_fail_on_demand_too() {
    let place = TestForge::new().await;
    // curl would retry a reset on a kept-alive connection, so the first request is the one that is reset.
    place.forge.fail_next("GET", "/acme/infra.git/info/refs", Fault::Reset, 1).unwrap();
    place.forge.fail_next("POST", "*/git-upload-pack", Fault::Status(503, String::new(), vec![]), 1).unwrap();
    let url = place.repo.clone_url_for("alice").unwrap();
    assert!(!place.git(&["clone", "-q", &url, "a"]).await.status.success());
    assert!(!place.git(&["clone", "-q", &url, "b"]).await.status.success());
    assert!(place.git(&["clone", "-q", &url, "c"]).await.status.success());
}

#[tokio::test]
async fn people_play_in_the_browser_but_other_sites_cannot() {
    let place = TestForge::new().await;
    let pull = place.pull().await;
    let url = place.forge.url();
    let form = |path: &str, origin: &str, fields: &[(&str, &str)]| {
        let body: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = place.client.post(format!("{url}{path}")).header("origin", origin.to_owned());
        request.header("content-type", "application/x-www-form-urlencoded").body(body).send()
    };
    let path = "/acme/infra/pull/1/comment";
    let fields = [("as", "bob"), ("body", "atlantis plan\r\n<script>x</script>")];
    for stranger in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(form(path, stranger, &fields).await.unwrap().status(), 403, "{stranger}");
    }
    let rebound = place.client.get(format!("{url}/")).header("host", "evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), 403);
    assert!(pull.comments().unwrap().is_empty());

    assert_eq!(form(path, url, &fields).await.unwrap().status(), 303);
    assert_eq!(pull.comments().unwrap()[0].author, "bob");
    let edit = [("as", "alice"), ("path", "main.tf"), ("content", "a = 5\r\nb = 6")];
    assert_eq!(form("/acme/infra/pull/1/edit", url, &edit).await.unwrap().status(), 303);
    let head = pull.head_commit().unwrap();
    assert_eq!(place.repo.file(&head, "main.tf").await.unwrap().unwrap(), "a = 5\nb = 6\n");
    assert_eq!(form("/acme/infra/pull/1/approve", url, &[("as", "bob")]).await.unwrap().status(), 303);
    assert_eq!(form("/acme/infra/pull/1/merge", url, &[("as", "dave")]).await.unwrap().status(), 422);
    let new =
        [("as", "bob"), ("path", "x.tf"), ("content", "x"), ("branch", "b"), ("title", "<i>T</i>"), ("draft", "on")];
    let opened = form("/acme/infra/new", url, &new).await.unwrap();
    assert_eq!(opened.headers()["location"], "/acme/infra/pull/2");
    let outside = [("as", "bob"), ("path", "../x"), ("content", "x"), ("branch", "c"), ("title", "T")];
    assert_eq!(form("/acme/infra/new", url, &outside).await.unwrap().status(), 422);

    for (path, expected) in [
        ("/", "&lt;i&gt;T&lt;&#x2f;i&gt;"),
        ("/acme/infra", "git clone"),
        ("/acme/infra/pull/1", "&lt;script&gt;"),
        ("/acme/infra/pull/1/edit?path=main.tf", "b = 6"),
        ("/acme/infra/new", "change-3"),
        ("/acme/infra/file?path=main.tf", "a = 1"),
        ("/deliveries", "None yet"),
        ("/sandbox.css", "prefers-color-scheme"),
    ] {
        let response = place.client.get(format!("{url}{path}")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let text = response.text().await.unwrap();
        assert!(text.contains(expected) && !text.contains("<script>x") && !text.contains("<i>T"), "{path}: {text}");
    }
    assert_eq!(place.client.get(format!("{url}/no/such/page/here")).send().await.unwrap().status(), 404);
    assert_eq!(form("/acme/infra/pull/1/merge", url, &[("as", "alice")]).await.unwrap().status(), 303);
    assert!(pull.is_merged().unwrap());
}

#[tokio::test]
async fn a_dropped_forge_frees_its_port() {
    let place = TestForge::new().await;
    let address = place.forge.url().trim_start_matches("http://").to_owned();
    let TestForge { forge, repo, client, .. } = place;
    drop((forge, repo));
    // The tasks end in their own time; every try is a real connection, so this does not spin.
    let refused = async { while client.get(format!("http://{address}/")).send().await.is_ok() {} };
    tokio::time::timeout(LIMIT, refused).await.unwrap();
}
