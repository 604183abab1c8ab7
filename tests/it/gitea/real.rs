//! A real Gitea on loopback, which `scripts/with-gitea` starts and names. Each test has a repository of its own there. Deliveries pass a
//! recorder on their way to the server.

use crate::flow::FlowHost;
use crate::support::{Ctx, LIMIT, Setup, client};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const AUTHOR: &str = "alice";
const BOT: &str = "tidelock";
const SECRET: &str = "a_secret_of_the_webhook";
/// Events of the webhook, as docs/gitea.md lists them.
const EVENTS: [&str; 5] =
    ["pull_request_only", "pull_request_sync", "pull_request_comment", "pull_request_review", "push"];

/// A delivery that the recorder got.
#[derive(Clone)]
struct Recorded {
    headers: HeaderMap,
    body: Bytes,
}

impl Recorded {
    fn event(&self) -> &str {
        self.headers["x-gitea-event"].to_str().unwrap()
    }

    fn payload(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What stands between Gitea and the server.
#[derive(Default)]
struct Recorder {
    /// Address of the server's deliveries; empty if they are lost.
    to: Mutex<String>,
    /// Deliveries that the server has answered, or that were lost.
    seen: Mutex<Vec<Recorded>>,
}

impl Recorder {
    async fn receive(State(recorder): State<Arc<Recorder>>, headers: HeaderMap, body: Bytes) -> StatusCode {
        let recorded = Recorded { headers, body };
        let status = recorder.forward(&recorded).await;
        recorder.seen.lock().unwrap().push(recorded);
        status
    }

    /// Sends a delivery to the server. Returns the status of the answer.
    async fn forward(&self, recorded: &Recorded) -> StatusCode {
        let to = self.to.lock().unwrap().clone();
        if to.is_empty() {
            return StatusCode::BAD_GATEWAY;
        }
        let mut headers = recorded.headers.clone();
        headers.remove("host");
        headers.remove("content-length");
        let answer = client().post(to).headers(headers).body(recorded.body.clone()).send().await;
        answer.map_or(StatusCode::BAD_GATEWAY, |answer| answer.status())
    }
}

/// Handle to a repository on the real host.
pub(crate) struct RealGitea {
    /// Address of the host, without a slash at its end.
    url: String,
    /// Token of the host's administrator.
    root: String,
    /// Token of the server's account.
    token: String,
    full_name: &'static str,
    recorder: Arc<Recorder>,
    /// Address of the recorder.
    hook: String,
    /// Branches of pull requests.
    branches: Mutex<BTreeMap<u64, String>>,
    /// Runtime of the recorder, which starts before the test with its own.
    _runtime: tokio::runtime::Runtime,
}

/// Who asks the host.
#[derive(Clone, Copy)]
enum As<'a> {
    Root,
    Person(&'a str),
}

impl RealGitea {
    /// Makes people and a repository.
    pub(crate) fn start() -> RealGitea {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The server does so only later; a second time is refused, and does not matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = std::env::var("TIDELOCK_TEST_GITEA").expect("run this test with scripts/with-gitea");
        let root = std::env::var("TIDELOCK_TEST_GITEA_TOKEN").unwrap();
        let name = format!("acme/live-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let recorder = Arc::<Recorder>::default();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let hook = format!("http://{}/", listener.local_addr().unwrap());
        let app = Router::new().route("/", post(Recorder::receive)).with_state(Arc::clone(&recorder));
        runtime.spawn(async move { axum::serve(listener, app).await });
        let full_name: &'static str = Box::leak(name.into_boxed_str());
        let (token, branches) = (String::new(), Mutex::default());
        let made = RealGitea { url, root, token, full_name, recorder, hook, branches, _runtime: runtime };
        let token = made._runtime.block_on(made.seed());
        RealGitea { token, ..made }
    }

    /// Makes what is missing. Returns a token of the server's account.
    async fn seed(&self) -> String {
        for name in [AUTHOR, "bob", "carol", BOT] {
            let person = json!({
                "username": name, "password": password(name), "email": format!("{name}@example.com"), "must_change_password": false,
            });
            self.ask(As::Root, Method::POST, "/admin/users", Some(person), &[201, 422]).await;
        }
        self.ask(As::Root, Method::POST, "/orgs", Some(json!({"username": "acme"})), &[201, 422]).await;
        let name = self.full_name.trim_start_matches("acme/");
        let repo = json!({"name": name, "auto_init": true, "default_branch": "main"});
        self.ask(As::Root, Method::POST, "/orgs/acme/repos", Some(repo), &[201]).await;
        for (name, right) in [(AUTHOR, "write"), ("bob", "write"), ("carol", "write"), (BOT, "admin")] {
            let path = self.of_repo(&format!("/collaborators/{name}"));
            self.ask(As::Root, Method::PUT, &path, Some(json!({"permission": right})), &[204]).await;
        }
        self.write(As::Root, "main", ("main.tf", "# 1\n")).await;
        let scopes = json!(["write:repository", "write:issue", "read:user", "read:organization"]);
        let token = json!({"name": name, "scopes": scopes});
        let path = format!("/users/{BOT}/tokens");
        let made = self.ask(As::Person(BOT), Method::POST, &path, Some(token), &[201]).await;
        made["sha1"].as_str().unwrap().to_owned()
    }

    fn of_repo(&self, rest: &str) -> String {
        format!("/repos/{}{rest}", self.full_name)
    }

    /// Asks the host, and expects one of these statuses. Returns the body.
    async fn ask(&self, who: As<'_>, method: Method, path: &str, body: Option<Value>, expected: &[u16]) -> Value {
        let (status, answer) = self.try_to(who, method.clone(), path, body).await;
        assert!(expected.contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    async fn try_to(&self, who: As<'_>, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = client().request(method, format!("{}/api/v1{path}", self.url));
        let request = match who {
            As::Root => request.header("authorization", format!("token {}", self.root)),
            As::Person(name) => request.basic_auth(name, Some(password(name))),
        };
        let request = body.into_iter().fold(request, |request, body| request.json(&body));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(As::Root, Method::GET, &self.of_repo(path), None, &[200]).await
    }

    /// Commits a file to a branch.
    async fn write(&self, who: As<'_>, branch: &str, (path, text): (&str, &str)) {
        let place = self.of_repo(&format!("/contents/{path}"));
        let (_, known) = self.try_to(As::Root, Method::GET, &format!("{place}?ref={branch}"), None).await;
        let mut body = json!({"content": STANDARD.encode(text), "message": format!("Write {path}"), "branch": branch});
        let method = if let Some(sha) = known["sha"].as_str() {
            body["sha"] = json!(sha);
            Method::PUT
        } else {
            Method::POST
        };
        self.ask(who, method, &place, Some(body), &[200, 201]).await;
    }

    fn count(&self) -> usize {
        self.recorder.seen.lock().unwrap().len()
    }

    /// Waits for a delivery after the first `since` ones.
    async fn heard(&self, since: usize, what: &str, is: impl Fn(&Recorded) -> bool) {
        let waiting = async {
            while !self.recorder.seen.lock().unwrap().iter().skip(since).any(&is) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("no delivery within {LIMIT:?}: {what}"));
    }

    /// Waits for a delivery about a pull request, with this action.
    async fn heard_of(&self, since: usize, number: u64, action: &str) {
        let is = |recorded: &Recorded| {
            let payload = recorded.payload();
            payload["action"] == action && (payload["number"] == number || payload["issue"]["number"] == number)
        };
        self.heard(since, &format!("{action} of #{number}"), is).await;
    }

    /// Does what a test asks for at once.
    fn now<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
    }

    fn branch(&self, number: u64) -> String {
        self.branches.lock().unwrap()[&number].clone()
    }
}

fn password(name: &str) -> String {
    format!("{name}word1")
}

impl FlowHost for RealGitea {
    const MARK: char = '#';

    fn full_name(&self) -> &'static str {
        self.full_name
    }

    fn served(&self, setup: Setup) -> Setup {
        let url = url::Url::parse(&self.url).unwrap();
        let allowed = format!("--repo-allowlist=127.0.0.1/acme/infra,{}/{}", url.host_str().unwrap(), self.full_name);
        setup.flags(&[
            // The forge of GitHub has the other name of loopback.
            &format!("--gitea-base-url={}", self.url),
            &format!("--gitea-user={BOT}"),
            &format!("--gitea-token={}", self.token),
            &format!("--gitea-webhook-secret={SECRET}"),
            &allowed,
        ])
    }

    async fn connect(&self, ctx: &Ctx) {
        self.hear(ctx, true);
        let config = json!({"url": self.hook, "content_type": "json", "secret": SECRET});
        let hook = json!({"type": "gitea", "active": true, "events": EVENTS, "config": config});
        self.ask(As::Root, Method::POST, &self.of_repo("/hooks"), Some(hook), &[201]).await;
    }

    fn hear(&self, ctx: &Ctx, heard: bool) {
        *self.recorder.to.lock().unwrap() = if heard { format!("{}/events", ctx.server.url()) } else { String::new() };
    }

    async fn open_one(&self, _: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        let since = self.count();
        let new = json!({"new_branch_name": branch, "old_branch_name": "main"});
        self.ask(As::Person(AUTHOR), Method::POST, &self.of_repo("/branches"), Some(new), &[201]).await;
        self.write(As::Person(AUTHOR), branch, file).await;
        let pull = json!({"base": "main", "head": branch, "title": format!("Change by {branch}")});
        let pull = self.ask(As::Person(AUTHOR), Method::POST, &self.of_repo("/pulls"), Some(pull), &[201]).await;
        let number = pull["number"].as_u64().unwrap();
        self.branches.lock().unwrap().insert(number, branch.to_owned());
        self.heard_of(since, number, "opened").await;
        number
    }

    async fn push_to(&self, _: &Ctx, number: u64, file: (&str, &str)) {
        let since = self.count();
        self.write(As::Person(AUTHOR), &self.branch(number), file).await;
        self.heard_of(since, number, "synchronized").await;
    }

    async fn comment_on(&self, _: &Ctx, number: u64, text: &str) {
        let since = self.count();
        let path = self.of_repo(&format!("/issues/{number}/comments"));
        self.ask(As::Person(AUTHOR), Method::POST, &path, Some(json!({"body": text})), &[201]).await;
        let is = |recorded: &Recorded| {
            let payload = recorded.payload();
            payload["comment"]["body"] == text && payload["sender"]["login"] == AUTHOR
        };
        self.heard(since, text, is).await;
    }

    async fn touch(&self, ctx: &Ctx, number: u64) {
        self.comment_on(ctx, number, "Looks good.").await;
    }

    async fn push_to_main(&self, _: &Ctx, file: (&str, &str)) {
        let since = self.count();
        self.write(As::Root, "main", file).await;
        self.heard(since, "push", |recorded| recorded.event() == "push").await;
    }

    async fn close_one(&self, _: &Ctx, number: u64) {
        let since = self.count();
        let path = self.of_repo(&format!("/pulls/{number}"));
        self.ask(As::Person(AUTHOR), Method::PATCH, &path, Some(json!({"state": "closed"})), &[201]).await;
        self.heard_of(since, number, "closed").await;
    }

    async fn merge_one(&self, ctx: &Ctx, number: u64) {
        let since = self.count();
        let path = self.of_repo(&format!("/pulls/{number}/merge"));
        // It is refused while the host checks whether it can be merged.
        let merged = async || {
            let merge = Some(json!({"Do": "merge"}));
            self.try_to(As::Person(AUTHOR), Method::POST, &path, merge).await.0 == 200
        };
        ctx.until("it is merged", merged).await;
        self.heard_of(since, number, "closed").await;
    }

    async fn vote_on(&self, _: &Ctx, number: u64, who: &str, approves: bool) {
        let since = self.count();
        let review = json!({"event": if approves { "APPROVED" } else { "REQUEST_CHANGES" }, "body": "My verdict."});
        let path = self.of_repo(&format!("/pulls/{number}/reviews"));
        self.ask(As::Person(who), Method::POST, &path, Some(review), &[200]).await;
        self.heard_of(since, number, "reviewed").await;
    }

    async fn approve_as_author(&self, _: &Ctx, number: u64) {
        let path = self.of_repo(&format!("/pulls/{number}/reviews"));
        self.ask(As::Person(AUTHOR), Method::POST, &path, Some(json!({"event": "APPROVED"})), &[422]).await;
    }

    fn refuse_merge(&self, _: &Ctx, _: u64) -> &'static str {
        let rule = json!({"rule_name": "main", "enable_push": true, "required_approvals": 1});
        self.now(self.ask(As::Root, Method::POST, &self.of_repo("/branch_protections"), Some(rule), &[201]));
        "1 more approval is required"
    }

    fn is_merged(&self, _: &Ctx, number: u64) -> bool {
        self.now(self.get(&format!("/pulls/{number}")))["merged"] == true
    }

    async fn has_branch(&self, _: &Ctx, branch: &str) -> bool {
        let path = self.of_repo(&format!("/branches/{branch}"));
        self.try_to(As::Root, Method::GET, &path, None).await.0 == 200
    }

    async fn forged(&self, _: &Ctx, text: &str, other: &str) -> u16 {
        let seen = self.recorder.seen.lock().unwrap().clone();
        let is_it = |one: &&Recorded| one.payload()["comment"]["body"] == text;
        let mut forged = seen.iter().rfind(is_it).unwrap().clone();
        forged.body = String::from_utf8(forged.body.to_vec()).unwrap().replace(text, other).into();
        self.recorder.forward(&forged).await.as_u16()
    }

    /// As by its page, on which a repetition gets an id of its own.
    async fn redeliver_last(&self, _: &Ctx) {
        let mut last = self.recorder.seen.lock().unwrap().last().unwrap().clone();
        last.headers.insert("x-gitea-delivery", "5a8c1c3f-0000-4000-8000-000000000000".parse().unwrap());
        assert_eq!(self.recorder.forward(&last).await, 200);
    }

    fn answers(&self, _: &Ctx, number: u64) -> Vec<String> {
        let comments = self.now(self.get(&format!("/issues/{number}/comments")));
        let of_bot = comments.as_array().unwrap().iter().filter(|comment| comment["user"]["login"] == BOT);
        of_bot.map(|comment| comment["body"].as_str().unwrap().to_owned()).collect()
    }

    fn is_success(&self, _: &Ctx, number: u64, context: &str) -> Option<bool> {
        let pull = self.now(self.get(&format!("/pulls/{number}")));
        let head = pull["head"]["sha"].as_str().unwrap();
        let combined = self.now(self.get(&format!("/commits/{head}/status")));
        let status = combined["statuses"].as_array()?.iter().find(|status| status["context"] == context)?;
        (status["status"] != "pending").then(|| status["status"] == "success")
    }
}
