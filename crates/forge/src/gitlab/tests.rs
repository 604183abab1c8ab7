//! The forge as GitLab, over real HTTP: its answers, refusals and deliveries, git, and its pages.

mod deliveries;
mod merges;

use super::super::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo, git};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const NAME: &str = "acme/platform/live";
const PROJECT: &str = "/api/v4/projects/acme%2Fplatform%2Flive";

struct GitlabForge {
    forge: Forge,
    repo: Repo,
    dir: TempDir,
    client: reqwest::Client,
}

/// Status, headers and body of an answer.
struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: Value,
}

impl GitlabForge {
    async fn new() -> GitlabForge {
        let dir = TempDir::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::Gitlab, options).await.unwrap();
        let repo = forge.create_repo(NAME, &[("main.tf", "a = 1\n")]).await.unwrap();
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(redirects).build().unwrap();
        GitlabForge { forge, repo, dir, client }
    }

    async fn pull(&self) -> Pull {
        self.open(OpenOptions::default()).await
    }

    async fn open(&self, options: OpenOptions) -> Pull {
        self.repo.open_pull("change", "alice", "Change a", &[("main.tf", Some("a = 2\n"))], options).await.unwrap()
    }

    async fn request(&self, method: Method, path: &str, login: &str, body: Value) -> Answer {
        let token = self.forge.credentials(login).unwrap().1;
        let address = format!("{}{path}", self.forge.url());
        let mut request = self.client.request(method, address).header("PRIVATE-TOKEN", token.expose_secret());
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answer { status, headers, body: serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default() }
    }

    /// Sends a request about the project as the server's account.
    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let answer = self.request(method, &format!("{PROJECT}{path}"), self.forge.bot(), body).await;
        (answer.status, answer.body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn git(&self, args: &[&str]) -> std::process::Output {
        let mut command = git::git_command();
        command.args(["-c", "user.name=alice", "-c", "user.email=a@b"]).args(args);
        command.current_dir(self.dir.path()).env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap()
    }
}

#[tokio::test]
async fn a_project_is_there_for_those_who_may_see_it() {
    let gitlab = GitlabForge::new().await;
    let project = gitlab.get("").await;
    let id = project["id"].as_u64().unwrap();
    let by_id = format!("/api/v4/projects/{id}");
    let unknown = json!({"message": "404 Project Not Found"});
    for (path, login, status, body) in [
        (by_id.as_str(), "tidelock-bot", 200, project.clone()),
        (by_id.as_str(), "mallory", 404, unknown.clone()),
        ("/api/v4/projects/acme%2Flive", "tidelock-bot", 404, unknown.clone()),
        ("/api/v4/projects/acme/platform/live", "tidelock-bot", 404, unknown),
        ("/api/v4/nothing", "tidelock-bot", 404, json!({"error": "404 Not Found"})),
    ] {
        let answer = gitlab.request(Method::GET, path, login, Value::Null).await;
        assert_eq!((answer.status, &answer.body), (status, &body), "{path} as {login}");
    }
    let address = format!("{}{by_id}", gitlab.forge.url());
    let refused = gitlab.client.get(&address).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.json::<Value>().await.unwrap(), json!({"message": "401 Unauthorized"}));
    let token = gitlab.forge.token();
    assert_eq!(gitlab.client.get(&address).bearer_auth(token.expose_secret()).send().await.unwrap().status(), 200);
    let basic = gitlab.client.get(&address).basic_auth("x", Some(token.expose_secret()));
    assert_eq!(basic.send().await.unwrap().status(), 401);
    let user = gitlab.request(Method::GET, "/api/v4/user", "tidelock-bot", Value::Null).await;
    assert_eq!((&user.body["username"], &user.body["bot"]), (&json!("tidelock-bot"), &json!(false)));
    gitlab.forge.set_token_limits(&["read_api"], Some("2026-12-31"));
    let own = gitlab.request(Method::GET, "/api/v4/personal_access_tokens/self", "tidelock-bot", Value::Null).await;
    assert_eq!(own.body["expires_at"], "2026-12-31");
    let pull = gitlab.pull().await;
    let path = format!("/merge_requests/{}/notes", pull.number());
    let (status, refused) = gitlab.ask(Method::POST, &path, json!({"body": "x"})).await;
    assert_eq!((status, &refused["error"]), (403, &json!("insufficient_scope")));
}

#[tokio::test]
async fn a_renamed_project_redirects_reads_and_refuses_the_rest() {
    let gitlab = GitlabForge::new().await;
    let id = gitlab.get("").await["id"].clone();
    gitlab.forge.transfer(NAME, "acme/cloud/live").unwrap();
    let path = format!("{PROJECT}/merge_requests?state=opened");
    let moved = gitlab.request(Method::GET, &path, "tidelock-bot", Value::Null).await;
    assert_eq!(moved.status, 301);
    let location = format!("{}/api/v4/projects/{id}/merge_requests?state=opened", gitlab.forge.url());
    assert_eq!(moved.headers["location"], location);
    let refused = gitlab.request(Method::POST, &format!("{PROJECT}/statuses/x"), "tidelock-bot", json!({})).await;
    assert_eq!(refused.status, 405);
    assert_eq!(refused.body, json!({"message": "Non GET methods are not allowed for moved projects"}));
}

#[tokio::test]
async fn a_merge_status_is_known_to_the_second_request() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let path = format!("/merge_requests/{}", pull.number());
    let statuses = async || {
        let listed = gitlab.get("/merge_requests?state=opened").await[0]["detailed_merge_status"].clone();
        let first = gitlab.get(&path).await["detailed_merge_status"].clone();
        (listed, first, gitlab.get(&path).await["detailed_merge_status"].clone())
    };
    assert_eq!(statuses().await, (json!("unchecked"), json!("checking"), json!("mergeable")));
    assert_eq!(statuses().await, (json!("mergeable"), json!("mergeable"), json!("mergeable")));
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    assert_eq!(statuses().await, (json!("unchecked"), json!("checking"), json!("mergeable")));
    gitlab.repo.push("main", &[("main.tf", Some("a = 9\n"))]).await.unwrap();
    assert_eq!(statuses().await, (json!("unchecked"), json!("checking"), json!("conflict")));
    let body = gitlab.get(&path).await;
    assert_eq!((&body["has_conflicts"], &body["merge_status"]), (&json!(true), &json!("cannot_be_merged")));
    assert_eq!(body["references"]["full"], "acme/platform/live!1");
    assert_eq!((&body["sha"], &body["diff_refs"]["head_sha"]), (&json!(pull.head_commit().unwrap()), &body["sha"]));
    let at = body["updated_at"].as_str().unwrap();
    assert!(at.len() == "2026-01-01T00:00:00.123Z".len() && at.ends_with('Z'), "{at}");
    assert!(gitlab.get("/merge_requests").await[0].get("diff_refs").is_none(), "lists leave it out");
}

#[tokio::test]
async fn lists_have_pages_of_at_most_a_hundred() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    for number in 0..103 {
        pull.comment("bob", &format!("note {number}")).unwrap();
    }
    let path = format!("{PROJECT}/merge_requests/{}/notes?sort=asc&order_by=created_at", pull.number());
    let first = gitlab.request(Method::GET, &format!("{path}&per_page=500"), "bob", Value::Null).await;
    assert_eq!((first.body.as_array().unwrap().len(), &first.headers["x-next-page"]), (100, &"2".parse().unwrap()));
    let link = first.headers["link"].to_str().unwrap();
    let next = link.split('<').nth(1).unwrap().split('>').next().unwrap();
    assert!(link.contains("rel=\"next\"") && next.contains("sort=asc"), "{link}");
    let next = next.strip_prefix(gitlab.forge.url()).unwrap();
    let second = gitlab.request(Method::GET, next, "bob", Value::Null).await;
    assert_eq!((second.body.as_array().unwrap().len(), &second.body[2]["body"]), (3, &json!("note 102")));
    assert!(!second.headers["link"].to_str().unwrap().contains("next"));
    let usual = gitlab.request(Method::GET, &path, "bob", Value::Null).await;
    assert_eq!(usual.body.as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn notes_have_their_limits_and_their_authors() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let theirs = pull.comment("bob", "atlantis plan").unwrap();
    let notes = format!("/merge_requests/{}/notes", pull.number());
    let (status, told) = gitlab.ask(Method::POST, &notes, json!({"body": "x".repeat(super::MAX_NOTE + 1)})).await;
    assert_eq!(status, 400);
    assert!(told["message"].as_str().unwrap().contains("is too long (maximum is 1000000 characters)"), "{told}");
    let (status, note) = gitlab.ask(Method::POST, &notes, json!({"body": "Planned."})).await;
    assert_eq!((status, &note["author"]["username"]), (201, &json!("tidelock-bot")));
    let (own, emoji) = (format!("{notes}/{}", note["id"]), format!("{notes}/{theirs}/award_emoji?name=eyes"));
    for (method, path, body, wanted) in [
        (Method::POST, &emoji, Value::Null, 201),
        (Method::POST, &emoji, Value::Null, 404),
        (Method::POST, &notes, json!({"body": " "}), 400),
        (Method::POST, &notes, json!({}), 400),
        (Method::PUT, &own, json!({"body": "Planned again."}), 200),
        (Method::DELETE, &own, Value::Null, 204),
        (Method::DELETE, &own, Value::Null, 404),
    ] {
        let (status, told) = gitlab.ask(method.clone(), path, body).await;
        assert_eq!(status, wanted, "{method} {path}: {told}");
    }
    let foreign = format!("{PROJECT}{notes}/{theirs}");
    let refused = gitlab.request(Method::PUT, &foreign, "carol", json!({"body": "x"})).await;
    assert_eq!((refused.status, &refused.body), (403, &json!({"message": "403 Forbidden"})));
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let all = gitlab.get(&format!("{notes}?sort=asc")).await;
    let systems: Vec<&Value> = all.as_array().unwrap().iter().map(|note| &note["system"]).collect();
    assert_eq!(systems, [false, true]);
    let request = format!("/merge_requests/{}", pull.number());
    let before = gitlab.get(&request).await["updated_at"].clone();
    pull.comment("bob", "so soon").unwrap();
    assert_eq!(gitlab.get(&request).await["updated_at"], before, "within a minute");
    let events = gitlab.get("/events?action=commented").await;
    assert_eq!((&events[0]["note"]["body"], &events[0]["note"]["noteable_iid"]), (&json!("so soon"), &json!(1)));
    let versions = gitlab.get(&format!("{request}/versions")).await;
    assert_eq!(
        (versions.as_array().unwrap().len(), &versions[0]["head_commit_sha"]),
        (2, &json!(pull.head_commit().unwrap()))
    );
}

#[tokio::test]
async fn quick_actions_are_carried_out_unless_they_are_fenced() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let notes = format!("/merge_requests/{}/notes", pull.number());
    let (status, _) = gitlab.ask(Method::POST, &notes, json!({"body": "Output:\n```\n/merge\n/close\n```"})).await;
    assert_eq!((status, pull.is_open().unwrap()), (201, true));
    let (status, told) = gitlab.ask(Method::POST, &notes, json!({"body": "/close"})).await;
    assert_eq!((status, &told["commands_changes"]), (202, &json!({"state_event": "close"})));
    assert!(!pull.is_open().unwrap());
    let (status, note) = gitlab.ask(Method::POST, &notes, json!({"body": "Back.\n/reopen\n/approve"})).await;
    assert_eq!((status, &note["body"]), (201, &json!("Back.")));
    let approvals = gitlab.get(&format!("/merge_requests/{}/approvals", pull.number())).await;
    assert_eq!(approvals["approved_by"][0]["user"]["username"], "tidelock-bot");
    let (status, _) = gitlab.ask(Method::POST, &notes, json!({"body": "/reopen"})).await;
    assert_eq!(status, 400, "it is open already");
    let edited = format!("{notes}/{}", note["id"]);
    assert_eq!(gitlab.ask(Method::PUT, &edited, json!({"body": "Back again.\n/label ~ops"})).await.0, 200);
    assert_eq!(gitlab.get("/merge_requests/1").await["labels"], json!(["ops"]));
    assert_eq!(gitlab.ask(Method::POST, &notes, json!({"body": "/merge"})).await.0, 202);
    assert!(pull.is_merged().unwrap());
}

#[tokio::test]
async fn members_inherit_from_groups_above() {
    let gitlab = GitlabForge::new().await;
    gitlab.forge.set_group("acme", &[("erin", 30)]).unwrap();
    let id = async |name: &str| {
        let found = gitlab.request(Method::GET, &format!("/api/v4/users?username={name}"), "bob", Value::Null).await;
        found.body[0]["id"].clone()
    };
    let (erin, bob) = (id("erin").await, id("bob").await);
    let groups = "/api/v4/groups";
    for (path, wanted) in [
        (format!("{PROJECT}/members/all/{erin}"), Some(30)),
        (format!("{PROJECT}/members/{erin}"), None),
        (format!("{PROJECT}/members/{bob}"), Some(30)),
        (format!("{groups}/acme%2Fplatform/members/all/{erin}"), Some(30)),
        (format!("{groups}/acme%2Fplatform/members/{erin}"), None),
        (format!("{groups}/acme/members/all/{bob}"), None),
        (format!("{groups}/other/members/all/{erin}"), None),
    ] {
        let answer = gitlab.request(Method::GET, &path, "tidelock-bot", Value::Null).await;
        assert_eq!(answer.body["access_level"].as_u64(), wanted, "{path}: {}", answer.body);
        assert_eq!(answer.status, if wanted.is_some() { 200 } else { 404 }, "{path}");
    }
    assert_eq!(id("nobody").await, Value::Null);
    let pull = gitlab.pull().await;
    pull.push_as("bob", "More", &[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let events = gitlab.get("/events?action=pushed").await;
    assert_eq!(events[0]["author_username"], "bob");
    assert_eq!(events[0]["push_data"]["commit_to"], json!(pull.head_commit().unwrap()));
}

#[tokio::test]
async fn git_asks_first_and_gives_any_commit_and_heads_of_forks() {
    let gitlab = GitlabForge::new().await;
    let first = gitlab.pull().await;
    let old = first.head_commit().unwrap();
    first.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
    let fork =
        gitlab.repo.open_pull("theirs", "mallory", "From a fork", &[("b.tf", Some("b"))], options).await.unwrap();
    assert_ne!(gitlab.get("/merge_requests/2").await["source_project_id"], gitlab.get("").await["id"]);
    let asked = gitlab.client.get(format!("{}/info/refs?service=git-upload-pack", gitlab.repo.clone_url()));
    let asked = asked.send().await.unwrap();
    assert_eq!(
        (asked.status().as_u16(), &asked.headers()["www-authenticate"]),
        (401, &"Basic realm=\"GitLab\"".parse().unwrap())
    );
    let url = gitlab.repo.clone_url_for("tidelock-bot").unwrap();
    assert!(url.ends_with("/acme/platform/live.git"), "{url}");
    assert!(gitlab.git(&["init", "-q", "--bare", "mirror"]).await.status.success());
    for what in [old.as_str(), "refs/merge-requests/2/head"] {
        let fetched = gitlab.git(&["-C", "mirror", "fetch", "-q", &url, what]).await;
        assert!(fetched.status.success(), "{what}: {}", String::from_utf8_lossy(&fetched.stderr));
    }
    let theirs = gitlab.git(&["-C", "mirror", "rev-parse", "FETCH_HEAD"]).await;
    assert_eq!(String::from_utf8_lossy(&theirs.stdout).trim(), fork.head_commit().unwrap());
    let stranger = gitlab.repo.clone_url_for("stranger").unwrap();
    assert!(!gitlab.git(&["clone", "-q", &stranger, "stranger"]).await.status.success());
    assert!(
        gitlab
            .git(&["clone", "-q", "-b", "change", &gitlab.repo.clone_url_for("alice").unwrap(), "clone"])
            .await
            .status
            .success()
    );
    std::fs::write(gitlab.dir.path().join("clone/main.tf"), "a = 4\n").unwrap();
    assert!(gitlab.git(&["-C", "clone", "commit", "-qam", "More"]).await.status.success());
    assert!(gitlab.git(&["-C", "clone", "push", "-q"]).await.status.success());
    let tip = gitlab.git(&["-C", "clone", "rev-parse", "HEAD"]).await;
    assert_eq!(first.head_commit().unwrap(), String::from_utf8_lossy(&tip.stdout).trim());
    let (base, head) = (gitlab.repo.tip("main").await.unwrap(), first.head_commit().unwrap());
    let found = gitlab.get(&format!("/repository/merge_base?refs[]={base}&refs[]={head}")).await;
    assert_eq!(found["id"], json!(base));
    let refs = gitlab.get(&format!("/repository/commits/{head}/refs?type=branch")).await;
    assert_eq!(refs, json!([{"type": "branch", "name": "change"}]));
    assert_eq!(gitlab.ask(Method::DELETE, "/repository/branches/main", Value::Null).await.0, 403);
    assert_eq!(gitlab.ask(Method::DELETE, "/repository/branches/change", Value::Null).await.0, 204);
    assert!(!first.is_open().unwrap());
}

#[tokio::test]
async fn people_read_and_comment_on_its_pages() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    assert!(pull.url().ends_with("/acme/platform/live/-/merge_requests/1"), "{}", pull.url());
    let text = gitlab.client.get(pull.url()).send().await.unwrap().text().await.unwrap().replace("&#x2f;", "/");
    assert!(text.contains("!1") && text.contains("/acme/platform/live/-/pull/1/comment"), "{text}");
    let form = gitlab.client.post(format!("{}/comment", pull.url())).body("as=bob&body=atlantis+plan");
    let posted = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
    assert_eq!(posted.status(), 303);
    assert_eq!(pull.comments().unwrap()[0].body, "atlantis plan");
    let project = format!("{}/acme/platform/live", gitlab.forge.url());
    let head = pull.head_commit().unwrap();
    for path in ["", "/-", "/-/new", "/-/file?path=main.tf", "/-/merge_requests/1/edit", &format!("/-/commit/{head}")] {
        let address = format!("{project}{path}");
        assert_eq!(gitlab.client.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
    assert_eq!(gitlab.client.get(format!("{}/acme", gitlab.forge.url())).send().await.unwrap().status(), 404);
}

#[tokio::test]
#[ignore = "needs python3 with python-gitlab"]
async fn another_client_finds_its_way() {
    let gitlab = GitlabForge::new().await;
    gitlab.forge.set_group("acme", &[("bob", 20)]).unwrap();
    gitlab.forge.set_webhook("http://127.0.0.1:1/events");
    gitlab.forge.pause_webhooks(true);
    gitlab.pull().await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gitlab/tests/client.py");
    let mut command = tokio::process::Command::new("python3");
    let tokens = ["tidelock-bot", "bob"].map(|login| gitlab.forge.credentials(login).unwrap().1);
    command.args([script, gitlab.forge.url(), tokens[0].expose_secret(), tokens[1].expose_secret(), NAME]);
    let done = command.env("NO_PROXY", "*").output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
