//! The forge as Gitea, over real HTTP: its answers, refusals and deliveries, git, and its pages.

mod compare;
mod deliveries;
mod merges;

use super::super::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo, git};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const NAME: &str = "acme/infra";
const REPO: &str = "/api/v1/repos/acme/infra";

struct GiteaForge {
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

/// Reads an answer; a body that is no JSON is a text.
async fn answer_of(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

/// A client that follows no redirects.
fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

impl GiteaForge {
    async fn new() -> GiteaForge {
        let dir = TempDir::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::Gitea, options).await.unwrap();
        let repo = forge.create_repo(NAME, &[("main.tf", "a = 1\n")]).await.unwrap();
        GiteaForge { forge, repo, dir, client: client() }
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
        let mut request =
            self.client.request(method, address).header("Authorization", format!("token {}", token.expose_secret()));
        if !body.is_null() {
            request = request.json(&body);
        }
        answer_of(request).await
    }

    /// Sends a request about the repository as the server's account.
    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let answer = self.request(method, &format!("{REPO}{path}"), self.forge.bot(), body).await;
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

/// Message of a refusal.
fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_repository_is_there_for_those_who_may_see_it() {
    let gitea = GiteaForge::new().await;
    let token = gitea.forge.token();
    assert!(token.expose_secret().len() == 40 && token.expose_secret().chars().all(|c| c.is_ascii_hexdigit()));
    let repo = gitea.get("").await;
    let by_id = format!("/api/v1/repositories/{}", repo["id"]);
    for (path, login, status) in [
        (REPO, "tidelock-bot", 200),
        ("/api/v1/repos/ACME/Infra", "tidelock-bot", 200),
        (by_id.as_str(), "tidelock-bot", 200),
        (by_id.as_str(), "mallory", 404),
        (REPO, "mallory", 404),
        ("/api/v1/repos/acme/other", "tidelock-bot", 404),
        ("/api/v1/nothing", "tidelock-bot", 404),
        ("/api/forgejo/v1/version", "tidelock-bot", 404),
        ("/api/v1/version", "mallory", 200),
    ] {
        let answer = gitea.request(Method::GET, path, login, Value::Null).await;
        assert_eq!(answer.status, status, "{path} as {login}: {}", answer.body);
    }
    let address = |path: &str| format!("{}{path}", gitea.forge.url());
    for (path, status, text) in
        [(REPO, 404, "not found"), ("/api/v1/user", 401, "token is required"), ("/api/v1/version", 200, "")]
    {
        let answer = answer_of(gitea.client.get(address(path))).await;
        assert_eq!((answer.status, message(&answer.body)), (status, text), "{path} without a token");
    }
    let wrong = answer_of(gitea.client.get(address(REPO)).bearer_auth("wrong")).await;
    assert_eq!((wrong.status, message(&wrong.body)), (401, "invalid username, password or token"));
    assert_eq!(answer_of(gitea.client.get(address(REPO)).bearer_auth(token.expose_secret())).await.status, 200);
    let user = gitea.request(Method::GET, "/api/v1/user", "tidelock-bot", Value::Null).await;
    assert_eq!((&user.body["login"], &user.body["active"]), (&json!("tidelock-bot"), &json!(true)));
    let own = gitea.request(Method::GET, "/api/v1/user/repos", "dave", Value::Null).await;
    assert_eq!(own.body[0]["permissions"], json!({"admin": false, "push": false, "pull": true}));
}

#[tokio::test]
async fn a_token_without_a_scope_is_refused_with_its_name() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    gitea.forge.set_token_scopes(&["read:repository", "write:issue"]);
    let status = format!("{REPO}/statuses/{}", pull.head_commit().unwrap());
    let comments = format!("{REPO}/issues/1/comments");
    for (method, path, needed) in [
        (Method::GET, "/api/v1/user", Some("read:user")),
        (Method::GET, "/api/v1/orgs/acme/teams", Some("read:organization")),
        (Method::GET, "/api/v1/admin/cron", Some("read:admin")),
        (Method::POST, status.as_str(), Some("write:repository")),
        (Method::GET, REPO, None),
        (Method::GET, comments.as_str(), None),
        (Method::POST, comments.as_str(), None),
    ] {
        let answer = gitea.request(method.clone(), path, "tidelock-bot", json!({"body": "x"})).await;
        let expected = needed.map_or_else(String::new, |needed| {
            format!(
                "token does not have at least one of required scope(s), required=[{needed}], token scope=write:issue,read:repository"
            )
        });
        assert_eq!(message(&answer.body), expected, "{method} {path}");
        assert_eq!(answer.status == 403, needed.is_some(), "{method} {path}");
    }
    let clone = gitea.repo.clone_url_for("tidelock-bot").unwrap();
    assert!(gitea.git(&["clone", "-q", &clone, "read"]).await.status.success());
    gitea.forge.set_token_scopes(&["write:issue"]);
    assert!(!gitea.git(&["clone", "-q", &clone, "refused"]).await.status.success());
}

#[tokio::test]
async fn a_renamed_repository_redirects_every_method() {
    let gitea = GiteaForge::new().await;
    gitea.forge.transfer(NAME, "acme/cloud").unwrap();
    for (method, path, place) in [
        (Method::GET, "/pulls?state=open", "/api/v1/repos/acme/cloud/pulls?state=open"),
        (Method::POST, "/issues/1/comments", "/api/v1/repos/acme/cloud/issues/1/comments"),
    ] {
        let moved = gitea.request(method, &format!("{REPO}{path}"), "tidelock-bot", json!({})).await;
        assert_eq!((moved.status, moved.headers["location"].to_str().unwrap()), (301, place));
    }
}

#[tokio::test]
async fn lists_are_cut_at_fifty_rows_without_a_word() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let head = pull.head_commit().unwrap();
    for number in 0..53 {
        let body = json!({"state": "success", "context": format!("check {number}")});
        assert_eq!(gitea.ask(Method::POST, &format!("/statuses/{head}"), body).await.0, 201);
    }
    let path = format!("{REPO}/commits/{head}/statuses");
    let first = gitea.request(Method::GET, &format!("{path}?limit=500"), "bob", Value::Null).await;
    assert_eq!(
        (first.body.as_array().unwrap().len(), first.headers["x-total-count"].to_str().unwrap()),
        (50, "53"),
        "a larger limit"
    );
    let link = first.headers["link"].to_str().unwrap();
    let next = link.split('<').nth(1).unwrap().split('>').next().unwrap();
    assert!(link.contains("rel=\"next\"") && next.ends_with("limit=500&page=2"), "{link}");
    let next = next.strip_prefix(gitea.forge.url()).unwrap();
    let second = gitea.request(Method::GET, next, "bob", Value::Null).await;
    assert_eq!(second.body.as_array().unwrap().len(), 3);
    assert!(!second.headers["link"].to_str().unwrap().contains("next"));
    assert_eq!(gitea.get(&format!("/commits/{head}/statuses")).await.as_array().unwrap().len(), 30);
    for number in 0..33 {
        pull.comment("bob", &format!("comment {number}")).unwrap();
    }
    let comments = gitea.request(Method::GET, &format!("{REPO}/issues/1/comments?limit=1"), "bob", Value::Null).await;
    assert_eq!(comments.body.as_array().unwrap().len(), 33, "comments have no pages");
}

#[tokio::test]
async fn comments_and_reactions_have_their_rules() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let theirs = pull.comment("bob", "atlantis plan").unwrap();
    let comments = format!("/issues/{}/comments", pull.number());
    let (status, own) = gitea.ask(Method::POST, &comments, json!({"body": "Planned."})).await;
    assert_eq!((status, &own["user"]["login"], &own["issue_url"]), (201, &json!("tidelock-bot"), &json!("")));
    let (own, eyes) = (format!("/issues/comments/{}", own["id"]), format!("/issues/comments/{theirs}/reactions"));
    for (method, path, body, wanted) in [
        (Method::POST, &comments, json!({"body": ""}), 422),
        (Method::POST, &comments, json!({}), 422),
        (Method::POST, &"/issues/99/comments".to_owned(), json!({"body": "x"}), 500),
        (Method::POST, &eyes, json!({"content": "eyes"}), 201),
        (Method::POST, &eyes, json!({"content": "eyes"}), 200),
        (Method::POST, &eyes, json!({"content": "thumbsup"}), 403),
        (Method::GET, &own, Value::Null, 200),
        (Method::PATCH, &own, json!({"body": "Planned again."}), 200),
        (Method::DELETE, &own, Value::Null, 204),
        (Method::DELETE, &own, Value::Null, 404),
        (Method::GET, &own, Value::Null, 404),
    ] {
        let (status, told) = gitea.ask(method.clone(), path, body).await;
        assert_eq!(status, wanted, "{method} {path}: {told}");
    }
    assert_eq!(pull.reactions(theirs).unwrap(), [("tidelock-bot".to_owned(), "eyes".to_owned())]);
    let foreign = format!("{REPO}/issues/comments/{theirs}");
    let refused = gitea.request(Method::PATCH, &foreign, "dave", json!({"body": "x"})).await;
    assert_eq!((refused.status, &refused.body), (403, &json!("")), "no body");
    let before = gitea.get(&format!("/issues/comments/{theirs}")).await["updated_at"].clone();
    let since = format!("{comments}?since={}", before.as_str().unwrap());
    assert_eq!(gitea.get(&since).await[0]["id"], theirs, "its own second is in it");
    pull.age_comment(theirs, jiff::SignedDuration::from_secs(5)).unwrap();
    assert_eq!(gitea.get(&since).await, json!([]));
    gitea.forge.set_utc_offset(-5);
    let at = gitea.get(&comments).await[0]["created_at"].clone();
    assert!(at.as_str().unwrap().ends_with("-05:00"), "{at}");
}

#[tokio::test]
async fn the_place_of_a_status_does_not_tell_the_last_one() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    let head = pull.head_commit().unwrap();
    for word in ["pending", "success"] {
        let body = json!({"state": word, "context": "atlantis/plan", "target_url": "http://x/y", "description": "d"});
        assert_eq!(gitea.ask(Method::POST, &format!("/statuses/{head}"), body).await.0, 201);
    }
    let all = gitea.get(&format!("/commits/{head}/statuses")).await;
    let second = |row: &Value| row["created_at"].clone();
    if second(&all[0]) == second(&all[1]) {
        assert_eq!((&all[0]["id"], &all[1]["id"]), (&json!(1), &json!(2)), "within a second, the oldest first");
    }
    let combined = gitea.get(&format!("/commits/{head}/status")).await;
    assert_eq!((&combined["state"], &combined["total_count"]), (&json!("success"), &json!(1)));
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "success");
    let unknown = "1".repeat(40);
    assert_eq!(gitea.ask(Method::POST, &format!("/statuses/{unknown}"), json!({"state": "success"})).await.0, 500);
    let none = gitea.request(Method::POST, &format!("{REPO}/statuses/{head}"), "dave", json!({"state": "error"})).await;
    assert_eq!((none.status, message(&none.body)), (403, "user should have a permission to write to a repo"));
}

#[tokio::test]
async fn administrators_alone_see_what_others_may() {
    let gitea = GiteaForge::new().await;
    let permission = async |of: &str, by: &str| {
        let path = format!("{REPO}/collaborators/{of}/permission");
        let answer = gitea.request(Method::GET, &path, by, Value::Null).await;
        (answer.status, answer.body["permission"].as_str().map(str::to_owned))
    };
    assert_eq!(permission("bob", "tidelock-bot").await, (200, Some("write".to_owned())));
    assert_eq!(permission("bob", "bob").await, (200, Some("write".to_owned())));
    assert_eq!(permission("bob", "carol").await, (403, None));
    assert_eq!(permission("nobody", "tidelock-bot").await, (404, None));
    for path in ["/hooks", "/branch_protections"] {
        let refused = gitea.request(Method::GET, &format!("{REPO}{path}"), "bob", Value::Null).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.body);
        assert_eq!(gitea.get(path).await, json!([]));
    }
}

#[tokio::test]
async fn teams_are_those_of_the_account_or_of_an_owner() {
    let gitea = GiteaForge::new().await;
    gitea.forge.set_team("acme", "ops", &["bob"]);
    gitea.forge.set_team("acme", "net", &["tidelock-bot"]);
    let ask = async |path: &str| {
        let answer = gitea.request(Method::GET, path, "tidelock-bot", Value::Null).await;
        (answer.status, answer.body)
    };
    let (_, teams) = ask("/api/v1/orgs/acme/teams").await;
    assert_eq!(teams.as_array().unwrap().len(), 2);
    let ops = teams.as_array().unwrap().iter().find(|team| team["name"] == "ops").unwrap()["id"].clone();
    assert_eq!(ask("/api/v1/orgs/acme/teams/search?q=op").await.1["data"], json!([]), "owners are in no team");
    assert_eq!(ask("/api/v1/orgs/acme/teams/search?q=net").await.1["data"][0]["name"], "net");
    let member = format!("/api/v1/teams/{ops}/members");
    assert_eq!(ask(&format!("{member}/bob")).await.0, 200);
    assert_eq!(ask(&format!("{member}/carol")).await.0, 404);
    assert_eq!(ask("/api/v1/orgs/nobody/teams").await.0, 404);
    gitea.forge.set_bot_owns_organizations(false);
    let (status, told) = ask(&format!("{member}/bob")).await;
    assert_eq!((status, message(&told)), (403, "Must be a team member"));
    gitea.forge.set_team("acme", "net", &[]);
    assert_eq!(ask(&format!("{member}/bob")).await.0, 404);
    let (status, told) = ask("/api/v1/orgs/acme/teams").await;
    assert_eq!((status, message(&told)), (403, "Must be an organization member"));
}

#[tokio::test]
async fn issues_share_the_numbers_of_pull_requests() {
    let gitea = GiteaForge::new().await;
    gitea.pull().await;
    let (status, issue) = gitea.ask(Method::POST, "/issues", json!({"title": "Drift", "body": "x"})).await;
    assert_eq!((status, &issue["number"], &issue["pull_request"]), (201, &json!(2), &Value::Null));
    assert_eq!(gitea.ask(Method::POST, "/issues/2/comments", json!({"body": "Still."})).await.0, 201);
    assert_eq!(gitea.get("/issues/2/comments").await[0]["pull_request_url"], "");
    let own = "/issues?type=issues&created_by=tidelock-bot&state=open";
    assert_eq!(gitea.get(own).await.as_array().unwrap().len(), 1);
    assert_eq!(gitea.get("/issues").await.as_array().unwrap().len(), 2);
    assert_eq!(gitea.ask(Method::PATCH, "/issues/2", json!({"state": "closed"})).await.0, 201);
    assert_eq!(gitea.get(own).await, json!([]));
    assert!(!gitea.repo.issues().unwrap()[0].open);
    gitea.repo.disable_issues(true).unwrap();
    assert_eq!(gitea.ask(Method::GET, own, Value::Null).await.0, 404);
    assert_eq!(gitea.ask(Method::GET, "/issues/2", Value::Null).await.0, 404);
    assert_eq!(gitea.ask(Method::POST, "/issues", json!({"title": "More"})).await.0, 201, "administrators may");
    let refused = gitea.request(Method::POST, &format!("{REPO}/issues"), "bob", json!({"title": "More"})).await;
    assert_eq!(refused.status, 403);
    assert_eq!(gitea.ask(Method::POST, "/issues/1/comments", json!({"body": "x"})).await.0, 201);
}

#[tokio::test]
async fn git_gives_any_commit_and_heads_of_forks() {
    let gitea = GiteaForge::new().await;
    let first = gitea.pull().await;
    let old = first.head_commit().unwrap();
    first.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
    let fork = gitea.repo.open_pull("theirs", "mallory", "From a fork", &[("b.tf", Some("b"))], options).await.unwrap();
    let head = gitea.get("/pulls/2").await["head"].clone();
    assert_eq!((&head["repo"]["full_name"], &head["ref"]), (&json!("mallory/infra"), &json!("theirs")));
    assert_eq!(head["repo"]["parent"]["full_name"], NAME);
    let url = gitea.repo.clone_url_for("tidelock-bot").unwrap();
    assert!(gitea.git(&["init", "-q", "--bare", "mirror"]).await.status.success());
    for what in [old.as_str(), "refs/pull/2/head"] {
        let fetched = gitea.git(&["-C", "mirror", "fetch", "-q", &url, what]).await;
        assert!(fetched.status.success(), "{what}: {}", String::from_utf8_lossy(&fetched.stderr));
    }
    let theirs = gitea.git(&["-C", "mirror", "rev-parse", "FETCH_HEAD"]).await;
    assert_eq!(String::from_utf8_lossy(&theirs.stdout).trim(), fork.head_commit().unwrap());
    let (base, head) = (gitea.repo.tip("main").await.unwrap(), first.head_commit().unwrap());
    assert_eq!(gitea.get(&format!("/compare/{base}...{head}")).await["total_commits"], 2);
    assert_eq!(gitea.get(&format!("/compare/{head}...{base}")).await["total_commits"], 0);
    let files = gitea.get("/pulls/1/files").await;
    assert_eq!((&files[0]["filename"], &files[0]["status"]), (&json!("main.tf"), &json!("changed")));
    assert_eq!(gitea.get("/pulls/1/commits").await.as_array().unwrap().len(), 2);
    assert_eq!(gitea.ask(Method::GET, "/raw/main.tf?ref=change", Value::Null).await.1, json!("a = 3\n"));
    assert_eq!(gitea.get("/contents/main.tf").await["content"], "YSA9IDEK");
}

#[tokio::test]
async fn people_read_and_comment_on_its_pages() {
    let gitea = GiteaForge::new().await;
    let pull = gitea.pull().await;
    assert!(pull.url().ends_with("/acme/infra/pulls/1") && pull.reference() == "#1", "{}", pull.url());
    let text = gitea.client.get(pull.url()).send().await.unwrap().text().await.unwrap().replace("&#x2f;", "/");
    assert!(text.contains("#1") && text.contains("/acme/infra/pull/1/comment"), "{text}");
    for (action, fields) in
        [("comment", "as=bob&body=atlantis+plan"), ("approve", "as=bob"), ("merge", "as=alice"), ("reopen", "as=alice")]
    {
        let form = gitea.client.post(format!("{}/{action}", pull.url())).body(fields);
        let posted = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert_eq!(posted.status(), if action == "reopen" { 422 } else { 303 }, "{action}");
    }
    assert!(pull.is_merged().unwrap());
    assert_eq!(pull.comments().unwrap()[0].body, "atlantis plan");
    let head = pull.head_commit().unwrap();
    for path in ["", "/new", "/file?path=main.tf", "/pulls/1/edit", &format!("/commit/{head}")] {
        let address = format!("{}/acme/infra{path}", gitea.forge.url());
        assert_eq!(gitea.client.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
}
