//! The forge as Bitbucket Data Center, over real HTTP: its answers, refusals and deliveries, git, and its pages.

mod comments;
mod deliveries;
mod examples;
mod merges;

use super::super::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo, git};
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const NAME: &str = "ACME/infra";
const API: &str = "/bitbucket/rest/api/latest";
const REPO: &str = "/bitbucket/rest/api/latest/projects/ACME/repos/infra";

struct DataCenterForge {
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

/// Message and exception of a refusal, the exception without its package.
fn error(body: &Value) -> (&str, &str) {
    let error = &body["errors"][0];
    let name = error["exceptionName"].as_str().unwrap_or_default();
    (error["message"].as_str().unwrap_or_default(), name.rsplit('.').next().unwrap_or_default())
}

impl DataCenterForge {
    async fn new() -> DataCenterForge {
        let dir = TempDir::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::BitbucketDataCenter, options).await.unwrap();
        let repo = forge.create_repo(NAME, &[("main.tf", "a = 1\n"), ("net/main.tf", "b = 1\n")]).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        DataCenterForge { forge, repo, dir, client }
    }

    async fn pull(&self) -> Pull {
        self.open(OpenOptions::default()).await
    }

    async fn open(&self, options: OpenOptions) -> Pull {
        self.repo.open_pull("change", "alice", "Change a", &[("main.tf", Some("a = 2\n"))], options).await.unwrap()
    }

    async fn request(&self, method: Method, path: &str, login: &str, body: Value) -> Answer {
        let token = self.forge.credentials(login).unwrap().1;
        let mut request = self.client.request(method, format!("{}{path}", self.forge.url()));
        request = request.bearer_auth(token.expose_secret());
        if !body.is_null() {
            request = request.json(&body);
        }
        answer_of(request).await
    }

    /// Sends a request about the repository as this person.
    async fn ask_as(&self, login: &str, method: Method, path: &str, body: Value) -> (u16, Value) {
        let answer = self.request(method, &format!("{REPO}{path}"), login, body).await;
        (answer.status, answer.body)
    }

    /// Sends a request about the repository as the server's account.
    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        self.ask_as(self.forge.bot(), method, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn git(&self, args: &[&str]) -> bool {
        let mut command = git::git_command();
        command.args(["-c", "user.name=alice", "-c", "user.email=a@b"]).args(args);
        let ended = command.current_dir(self.dir.path()).env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap();
        ended.status.success()
    }

    /// Sets a build status of a commit.
    async fn build(&self, commit: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, &format!("/commits/{commit}/builds"), body).await
    }
}

#[tokio::test]
async fn a_token_is_a_bearer_for_the_api_and_a_password_for_git() {
    let host = DataCenterForge::new().await;
    let token = host.forge.token();
    let address = format!("{}{REPO}", host.forge.url());
    let with = async |request: reqwest::RequestBuilder| answer_of(request).await;
    let right = with(host.client.get(&address).bearer_auth(token.expose_secret())).await;
    assert_eq!((right.status, &right.headers["x-ausername"]), (200, &"tidelock-bot".parse().unwrap()));
    let absent = with(host.client.get(&address)).await;
    let text = "You are not permitted to access this resource";
    assert_eq!((absent.status, error(&absent.body)), (401, (text, "AuthenticationRequiredException")));
    let text = "Authentication failed. Please check your credentials and try again.";
    let wrong = (text, "IncorrectPasswordAuthenticationException");
    let refused = with(host.client.get(&address).bearer_auth("BBDC-wrong")).await;
    assert_eq!((refused.status, error(&refused.body)), (401, wrong));
    assert!(!refused.headers.contains_key("x-ausername"));
    let basic = host.client.get(&address).basic_auth("tidelock-bot", Some(token.expose_secret()));
    assert_eq!(error(&with(basic).await.body), wrong);
    let who = "/bitbucket/plugins/servlet/applinks/whoami";
    assert_eq!(host.request(Method::GET, who, "bob", Value::Null).await.body, "bob");
    let open = with(host.client.get(format!("{}{API}/application-properties", host.forge.url()))).await;
    assert_eq!((open.status, &open.body["displayName"]), (200, &json!("Bitbucket")), "without credentials");
    host.forge.set_data_center_version("8.19.1");
    let old = host.request(Method::GET, &format!("{API}/application-properties"), "bob", Value::Null).await;
    assert_eq!((&old.body["version"], &old.body["buildNumber"]), (&json!("8.19.1"), &json!("8019001")));
    assert!(host.forge.url().starts_with("http://127.0.0.5:") && host.forge.hostname_setting().ends_with("/bitbucket"));
    assert!(host.repo.clone_url().ends_with("/bitbucket/scm/acme/infra.git"));
    let clone = async |name: &str, into: &str| {
        let url = host.repo.clone_url().replacen("http://", &format!("http://{name}:{}@", token.expose_secret()), 1);
        host.git(&["clone", "-q", &url, into]).await
    };
    assert!(clone("tidelock-bot", "one").await && clone("x-token-auth", "two").await);
    assert!(!clone("alice", "three").await);
    let header = format!("http.extraHeader=Authorization: Bearer {}", token.expose_secret());
    assert!(host.git(&["-c", &header, "clone", "-q", &host.repo.clone_url(), "four"]).await);
}

#[tokio::test]
async fn a_repository_is_known_by_key_and_slug() {
    let host = DataCenterForge::new().await;
    host.forge.set_project_name("ACME", "OTHER");
    let told = host.get("").await;
    assert_eq!((&told["slug"], &told["project"]["key"]), (&json!("infra"), &json!("ACME")));
    assert_eq!((&told["name"], &told["project"]["name"]), (&json!("Infra"), &json!("OTHER")), "anything");
    let lower = format!("{API}/projects/acme/repos/INFRA");
    let lower = host.request(Method::GET, &lower, "dave", Value::Null).await;
    assert_eq!((lower.status, &lower.body["project"]["key"]), (200, &json!("ACME")), "case says nothing");
    for (path, exception) in [
        ("/projects/OTHER/repos/infra", ("Project OTHER does not exist.", "NoSuchProjectException")),
        ("/projects/ACME/repos/none", ("Repository ACME/none does not exist.", "NoSuchRepositoryException")),
        (
            "/projects/ACME/repos/infra/pull-requests/9",
            ("Pull request 9 does not exist in ACME/infra.", "NoSuchPullRequestException"),
        ),
    ] {
        let answer = host.request(Method::GET, &format!("{API}{path}"), "bob", Value::Null).await;
        assert_eq!((answer.status, error(&answer.body)), (404, exception));
    }
    let stranger = host.request(Method::GET, REPO, "mallory", Value::Null).await;
    assert_eq!((stranger.status, error(&stranger.body).1), (401, "AuthorisationException"), "not 403, not 404");
    for name in ["acme/infra", "ACME/Infra", "AC-ME/infra", "ACME/infra/x", "~/infra"] {
        assert!(host.forge.create_repo(name, &[("a", "a")]).await.is_err(), "{name}");
    }
    let own = host.forge.create_repo("~bob/notes", &[("a.tf", "a")]).await.unwrap();
    assert!(own.clone_url().ends_with("/bitbucket/scm/~bob/notes.git"));
    let told = host.request(Method::GET, &format!("{API}/projects/~bob/repos/notes"), "bob", Value::Null).await.body;
    assert_eq!((&told["project"]["type"], &told["project"]["owner"]["name"]), (&json!("PERSONAL"), &json!("bob")));
    let page = told["links"]["self"][0]["href"].as_str().unwrap().to_owned();
    assert!(page.ends_with("/bitbucket/users/bob/repos/notes/browse"), "{page}");
    assert_eq!(host.client.get(page).send().await.unwrap().status(), 200);
    let all = host.request(Method::GET, &format!("{API}/repos?limit=1"), "bob", Value::Null).await.body;
    assert_eq!((&all["size"], &all["isLastPage"], &all["nextPageStart"]), (&json!(1), &json!(false), &json!(1)));
    let rest = host.request(Method::GET, &format!("{API}/repos?start=1&limit=9999"), "bob", Value::Null).await.body;
    assert_eq!((&rest["limit"], &rest["isLastPage"]), (&json!(1000), &json!(true)), "the limit is cut");
    assert_eq!(rest["values"][0]["project"]["key"], "~bob");
    assert!(rest["nextPageStart"].is_null());
}

#[tokio::test]
async fn permissions_are_those_of_the_levels() {
    let host = DataCenterForge::new().await;
    let head = host.pull().await.head_commit().unwrap();
    let build = json!({"key": "k", "state": "FAILED", "url": "http://x/y"});
    let builds = format!("/commits/{head}/builds");
    let hook = "/webhooks/10/statistics";
    for (login, method, path, body, wanted) in [
        ("dave", Method::POST, "/pull-requests/1/comments", json!({"text": "x"}), 201),
        ("dave", Method::POST, builds.as_str(), build.clone(), 204),
        ("dave", Method::POST, "/pull-requests/1/merge?version=0", json!({}), 401),
        ("dave", Method::PUT, "/pull-requests/1", json!({"version": 0, "title": "x"}), 401),
        ("bob", Method::GET, "/permissions/users", Value::Null, 401),
        ("bob", Method::GET, "/webhooks", Value::Null, 401),
        ("bob", Method::GET, hook, Value::Null, 401),
        ("bob", Method::DELETE, builds.as_str(), Value::Null, 401),
        ("alice", Method::GET, "/permissions/users", Value::Null, 200),
        ("alice", Method::GET, "/webhooks", Value::Null, 200),
        ("mallory", Method::GET, "/pull-requests/1", Value::Null, 401),
    ] {
        let (status, told) = host.ask_as(login, method.clone(), path, body).await;
        assert_eq!(status, wanted, "{login} {method} {path}: {told}");
    }
    let people = host.get("/permissions/users?filter=bo").await;
    let row = |row: &Value| (row["user"]["name"].clone(), row["permission"].clone());
    let rows: Vec<_> = people["values"].as_array().unwrap().iter().map(row).collect();
    let expected = [("bob", "REPO_WRITE"), ("tidelock-bot", "REPO_ADMIN")].map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(rows, expected, "names that contain it");
    let names = async |query: &str| {
        let answer = host.request(Method::GET, &format!("{API}/users?{query}"), "tidelock-bot", Value::Null).await;
        let rows = answer.body["values"].as_array().cloned();
        rows.map(|rows| rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let may = "permission=REPO_WRITE&permission.projectKey=ACME&permission.repositorySlug=infra";
    assert_eq!(names(&format!("filter=bob&{may}")).await.unwrap(), ["bob"]);
    assert_eq!(names(&format!("filter=dave&{may}")).await.unwrap(), [""; 0], "a reader");
    assert_eq!(names("permission=REPO_WRITE").await, None, "of which repository");
    assert_eq!(names(&may.replace("infra", "none")).await, None);
    host.forge.set_team("anything", "ops", &["bob", "carol"]);
    host.forge.invite("anything", "ops", "dave");
    assert_eq!(names("group=ops").await.unwrap(), ["bob", "carol"]);
    assert_eq!(names("group=ops&filter=carol").await.unwrap(), ["carol"]);
    let groups = host.request(Method::GET, &format!("{API}/groups?filter=op"), "bob", Value::Null).await.body;
    assert_eq!(groups["values"], json!(["ops"]));
    let one = host.request(Method::GET, &format!("{API}/users/bob"), "bob", Value::Null).await.body;
    assert_eq!((&one["name"], &one["displayName"]), (&json!("bob"), &json!("Bob Citizen")));
    host.forge.set_person_name("bob", "", "alice").unwrap();
    let one = host.request(Method::GET, &format!("{API}/users/bob"), "bob", Value::Null).await.body;
    assert_eq!((&one["name"], &one["displayName"]), (&json!("bob"), &json!("alice")), "anybody may");
}

#[tokio::test]
async fn a_build_is_known_by_its_key() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let head = pull.head_commit().unwrap();
    let with = |key: &str, word: &str| {
        json!({"key": key, "state": word, "url": "http://127.0.0.1:1/x", "name": format!("atlantis/{key}"), "description": "d",
            "ref": "refs/heads/change"})
    };
    assert_eq!(host.build(&head, with("plan", "INPROGRESS")).await.0, 204);
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "pending");
    assert_eq!(host.build(&head, with("plan", "SUCCESSFUL")).await.0, 204);
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "success");
    let told = host.get(&format!("/commits/{head}/builds?key=plan")).await;
    assert_eq!((&told["state"], &told["ref"]), (&json!("SUCCESSFUL"), &json!("refs/heads/change")));
    assert!(told["createdDate"].as_i64().unwrap() > 1_600_000_000_000, "milliseconds");
    let list = format!("/bitbucket/rest/build-status/latest/commits/{head}");
    let list = host.request(Method::GET, &list, "bob", Value::Null).await.body;
    assert_eq!((&list["size"], &list["values"][0]["key"]), (&json!(1), &json!("plan")), "replaced");
    let changed = |name: &str, value: Value| {
        let mut body = with("apply", "FAILED");
        body[name] = value;
        body
    };
    let long = |count: usize| json!("k".repeat(count));
    for (name, value) in [
        ("key", Value::Null),
        ("key", json!("")),
        ("key", long(256)),
        ("state", Value::Null),
        ("state", json!("failed")),
        ("state", json!("STOPPED")),
        ("url", Value::Null),
        ("url", json!("/jobs/1")),
        ("url", json!(format!("http://x/{}", "y".repeat(450)))),
        ("description", long(256)),
        ("name", long(256)),
        ("ref", json!("change")),
    ] {
        let (status, told) = host.build(&head, changed(name, value)).await;
        assert_eq!((status, &told["errors"][0]["context"]), (400, &json!(name)), "{told}");
    }
    assert_eq!(host.build(&head, changed("key", long(255))).await.0, 204);
    assert_eq!(host.build(&"1".repeat(40), with("k", "FAILED")).await.0, 404);
    assert_eq!(host.build(&head[..12], with("k", "FAILED")).await.0, 400, "no hash");
    let (status, told) = host.ask(Method::GET, &format!("/commits/{head}/builds?key=none"), Value::Null).await;
    assert_eq!((status, error(&told).1), (404, ""));
    assert_eq!(host.ask(Method::DELETE, &format!("/commits/{head}/builds?key=plan"), Value::Null).await.0, 204);
    assert!(!pull.statuses().unwrap().contains_key("atlantis/plan"));
    let address = format!("{}{REPO}/commits/{head}/builds", host.forge.url());
    let form = host.client.post(address).bearer_auth(host.forge.token().expose_secret()).body("key=k");
    assert_eq!(form.send().await.unwrap().status(), 415, "JSON alone");
}

#[tokio::test]
async fn files_commits_and_branches_are_read() {
    let host = DataCenterForge::new().await;
    let head = host.pull().await.head_commit().unwrap();
    let file = host.request(Method::GET, &format!("{REPO}/raw/main.tf?at={head}"), "dave", Value::Null).await;
    assert_eq!((file.status, &file.body), (200, &json!("a = 2\n")));
    let main = host.request(Method::GET, &format!("{REPO}/raw/net/main.tf"), "dave", Value::Null).await;
    assert_eq!(main.body, "b = 1\n");
    for (path, exception) in [
        ("/raw/none.tf", "NoSuchPathException"),
        ("/raw/main.tf?at=refs/heads/none", "NoSuchCommitException"),
        ("/commits?until=none", "NoSuchCommitException"),
        ("/commits/change", "NoSuchCommitException"),
        (format!("/commits/{}", "1".repeat(40)).as_str(), "NoSuchCommitException"),
    ] {
        let (status, told) = host.ask(Method::GET, path, Value::Null).await;
        assert_eq!((status, error(&told).1), (404, exception), "{path}");
    }
    assert_eq!(host.get("/files").await["values"], json!(["main.tf", "net/main.tf"]));
    assert_eq!(host.get("/files/net").await["values"], json!(["main.tf"]));
    let changes = host.get("/pull-requests/1/changes").await;
    let change = &changes["values"][0];
    assert_eq!((&change["path"]["toString"], &change["type"]), (&json!("main.tf"), &json!("MODIFY")));
    let between = host.get("/compare/changes?from=refs/heads/change&to=main").await;
    assert_eq!(between["values"][0]["path"], change["path"]);
    let commits = host.get("/commits?until=refs/heads/change&since=main").await;
    assert_eq!((&commits["size"], &commits["values"][0]["id"]), (&json!(1), &json!(head)));
    assert_eq!(host.get("/pull-requests/1/commits").await["values"], commits["values"]);
    assert_eq!(host.get(&format!("/commits/{head}")).await["displayId"], head[..11]);
    let branches = host.get("/branches?filterText=chan").await;
    assert_eq!((&branches["size"], &branches["values"][0]["latestCommit"]), (&json!(1), &json!(head)));
    assert_eq!(host.get("/default-branch").await["displayId"], "main");
}

#[tokio::test]
async fn a_branch_is_deleted_where_it_is_expected() {
    let host = DataCenterForge::new().await;
    let tip = host.repo.push("some/branch", &[("x.tf", Some("x"))]).await.unwrap();
    let main = host.repo.tip("main").await.unwrap();
    let delete = async |login: &str, body: Value| {
        let path = "/bitbucket/rest/branch-utils/latest/projects/ACME/repos/infra/branches";
        let answer = host.request(Method::DELETE, path, login, body).await;
        (answer.status, answer.body)
    };
    let named = |name: &str, commit: &str, dry: bool| json!({"name": name, "endPoint": commit, "dryRun": dry});
    let full = "refs/heads/some/branch";
    assert_eq!(delete("dave", named(full, &tip, false)).await.0, 401);
    let (status, told) = delete("bob", named(full, &main, false)).await;
    assert_eq!((status, &told["errors"][0]["context"]), (400, &json!("endPoint")), "it is elsewhere");
    assert_eq!(delete("bob", named("refs/heads/main", &main, false)).await.0, 400, "the default branch");
    assert_eq!(delete("bob", json!({"endPoint": tip})).await.0, 400);
    assert_eq!(delete("bob", named(full, &tip, true)).await.0, 204);
    assert_eq!(host.repo.tip("some/branch").await.unwrap(), tip, "a dry run");
    assert_eq!(delete("bob", named(full, &tip, false)).await.0, 204);
    assert!(host.repo.tip("some/branch").await.is_err());
    assert_eq!(delete("bob", named(full, &tip, false)).await.0, 204, "it is gone already");
}

#[tokio::test]
async fn heads_have_refs_also_those_of_forks() {
    let host = DataCenterForge::new().await;
    let own = host.pull().await.head_commit().unwrap();
    let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
    let fork = host.repo.open_pull("theirs", "mallory", "From a fork", &[("c.tf", Some("c"))], options).await.unwrap();
    let told = host.get("/pull-requests/2").await;
    let from = &told["fromRef"]["repository"];
    assert_eq!((&from["project"]["key"], &from["slug"]), (&json!("~mallory"), &json!("infra")));
    assert_eq!(
        (&from["origin"]["project"]["key"], &told["toRef"]["repository"]["id"]),
        (&json!("ACME"), &from["origin"]["id"])
    );
    assert_ne!(from["id"], from["origin"]["id"]);
    let path = format!("{API}/projects/~mallory/repos/infra");
    assert_eq!(host.request(Method::GET, &path, "tidelock-bot", Value::Null).await.status, 401, "a fork is private");
    assert_eq!(host.request(Method::GET, &path, "mallory", Value::Null).await.status, 200);
    let url = host.repo.clone_url_for("tidelock-bot").unwrap();
    assert!(host.git(&["init", "-q", "tree"]).await);
    for (number, head) in [(1, own), (2, fork.head_commit().unwrap())] {
        let spec = format!("refs/pull-requests/{number}/from");
        assert!(host.git(&["-C", "tree", "fetch", "-q", &url, &spec]).await);
        assert!(host.git(&["-C", "tree", "cat-file", "-e", &head]).await);
    }
    host.forge.set_webhook("http://127.0.0.1:1/");
    let pushed = fork.push(&[("c.tf", Some("d"))]).await.unwrap();
    let events: Vec<String> = host.forge.deliveries().into_iter().map(|one| one.event).collect();
    assert_eq!(events, ["pr:from_ref_updated"], "a fork has webhooks of its own");
    assert_eq!(host.get("/pull-requests/2").await["fromRef"]["latestCommit"], json!(pushed));
    assert!(host.git(&["-C", "tree", "fetch", "-q", &url, "refs/pull-requests/2/from"]).await);
    assert!(host.git(&["-C", "tree", "cat-file", "-e", &pushed]).await);
}

#[tokio::test]
async fn a_refusal_of_a_test_has_the_form_of_the_host() {
    let host = DataCenterForge::new().await;
    host.forge.refuse_next("GET", "/bitbucket/rest/*", 429, 1).unwrap();
    let refused = host.request(Method::GET, REPO, "bob", Value::Null).await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(refused.body["errors"][0]["message"].is_string());
    let unknown = host.request(Method::GET, "/bitbucket/rest/api/latest/none", "bob", Value::Null).await;
    assert_eq!((unknown.status, &unknown.body["status-code"]), (404, &json!(404)), "not the form of other errors");
}

#[tokio::test]
async fn people_read_and_comment_on_its_pages() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    assert!(pull.url().ends_with("/bitbucket/projects/ACME/repos/infra/pull-requests/1") && pull.reference() == "#1");
    for (action, fields, status) in [
        ("comment", "as=bob&body=%3Cb%3Ex%3C/b%3E", 303),
        ("approve", "as=bob", 303),
        ("approve", "as=alice", 422),
        ("request-changes", "as=carol", 303),
        ("close", "as=alice", 303),
        ("reopen", "as=alice", 303),
        ("merge", "as=alice", 303),
        ("reopen", "as=alice", 422),
    ] {
        let form = host.client.post(format!("{}/{action}", pull.url())).body(fields);
        let posted = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert_eq!(posted.status(), status, "{action} {fields}");
    }
    assert!(pull.is_merged().unwrap());
    let text = host.client.get(pull.url()).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("&lt;b&gt;x&lt;/b&gt;") && !text.contains("<b>x</b>"), "tags are text");
    let head = pull.head_commit().unwrap();
    for path in ["", "/browse", "/new", "/file?path=main.tf", "/pull-requests/1/edit", &format!("/commits/{head}")] {
        let address = format!("{}/bitbucket/projects/ACME/repos/infra{path}", host.forge.url());
        assert_eq!(host.client.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
    assert_eq!(host.client.get(format!("{}/ACME/infra", host.forge.url())).send().await.unwrap().status(), 404);
}
