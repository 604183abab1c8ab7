//! The forge as Bitbucket Cloud, over real HTTP: its answers, refusals and deliveries, git, and its pages.

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
const NAME: &str = "acme/infra";
const REPO: &str = "/2.0/repositories/acme/infra";

struct BitbucketForge {
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

impl BitbucketForge {
    async fn new() -> BitbucketForge {
        let dir = TempDir::new().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::BitbucketCloud, options).await.unwrap();
        let repo = forge.create_repo(NAME, &[("main.tf", "a = 1\n"), ("net/main.tf", "b = 1\n")]).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        BitbucketForge { forge, repo, dir, client }
    }

    async fn pull(&self) -> Pull {
        self.open(OpenOptions::default()).await
    }

    async fn open(&self, options: OpenOptions) -> Pull {
        self.repo.open_pull("change", "alice", "Change a", &[("main.tf", Some("a = 2\n"))], options).await.unwrap()
    }

    async fn request(&self, method: Method, path: &str, login: &str, body: Value) -> Answer {
        let token = self.forge.credentials(login).unwrap().1;
        let address = if path.starts_with('/') { format!("{}{path}", self.forge.url()) } else { path.to_owned() };
        let email = format!("{login}@example.com");
        let mut request = self.client.request(method, address).basic_auth(email, Some(token.expose_secret()));
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

    /// Sets a build status of a commit.
    async fn build(&self, commit: &str, body: Value) -> (u16, Value) {
        self.ask(Method::POST, &format!("/commit/{commit}/statuses/build"), body).await
    }
}

/// Message of a refusal.
fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn credentials_are_those_of_the_kind_of_the_token() {
    let bitbucket = BitbucketForge::new().await;
    let (forge, token) = (&bitbucket.forge, bitbucket.forge.token());
    let user = format!("{}/2.0/user", forge.url());
    let basic = async |name: &str| {
        answer_of(bitbucket.client.get(&user).basic_auth(name, Some(token.expose_secret()))).await.status
    };
    let bearer = async || answer_of(bitbucket.client.get(&user).bearer_auth(token.expose_secret())).await;
    assert_eq!(basic("tidelock-bot@example.com").await, 200);
    for name in ["tidelock-bot", "x-bitbucket-api-token-auth", "alice@example.com", ""] {
        assert_eq!(basic(name).await, 401, "{name}");
    }
    let refused = bearer().await;
    assert_eq!(refused.status, 401);
    assert_eq!(message(&refused.body), "Token is invalid, expired, or not supported for this endpoint.");
    assert_eq!(answer_of(bitbucket.client.get(&user)).await.status, 401);
    let me = bitbucket.request(Method::GET, "/2.0/user", "tidelock-bot", Value::Null).await;
    assert_eq!(me.body["account_id"], forge.account_id("tidelock-bot"));
    assert_eq!(me.headers["x-credential-type"], "api_token");
    assert!(me.headers["x-oauth-scopes"].to_str().unwrap().contains("read:pullrequest:bitbucket, "));
    assert_eq!(forge.server_settings()[1], ("bitbucket-user", "tidelock-bot@example.com".to_owned()));
    assert!(
        forge.server_settings()[0].1.starts_with("http://127.0.0.4:") && forge.hostname_setting().ends_with("/2.0")
    );
    let clone = async |name: &str, into: &str| {
        let plain = bitbucket.repo.clone_url();
        let url = plain.replacen("http://", &format!("http://{name}:{}@", token.expose_secret()), 1);
        bitbucket.git(&["clone", "-q", &url, into]).await.status.success()
    };
    assert!(clone("x-bitbucket-api-token-auth", "one").await && clone("tidelock-bot", "two").await);
    assert!(!clone("x-token-auth", "three").await);
    forge.use_access_token();
    assert_eq!((bearer().await.status, basic("tidelock-bot@example.com").await), (403, 401));
    let told = bearer().await.body["error"].clone();
    assert_eq!(told["detail"]["required"], json!(["account"]));
    assert!(clone("x-token-auth", "four").await && !clone("x-bitbucket-api-token-auth", "five").await);
    assert_eq!(forge.server_settings()[1].1, "x-token-auth");
    let repo = bitbucket.client.get(format!("{}{REPO}", forge.url())).bearer_auth(token.expose_secret());
    let repo = answer_of(repo).await;
    assert_eq!((repo.status, &repo.headers["x-credential-type"]), (200, &"repository_access_token".parse().unwrap()));
}

#[tokio::test]
async fn scopes_do_not_imply_each_other() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    bitbucket.forge.set_token_scopes(&["write:pullrequest:bitbucket", "read:repository:bitbucket"]);
    let head = pull.head_commit().unwrap();
    for (method, path, needed) in [
        (Method::GET, "/pullrequests".to_owned(), vec!["read:pullrequest:bitbucket"]),
        (Method::POST, "/pullrequests/1/comments".to_owned(), vec!["read:pullrequest:bitbucket"]),
        (
            Method::POST,
            "/pullrequests/1/merge".to_owned(),
            vec!["read:pullrequest:bitbucket", "write:pullrequest:bitbucket"],
        ),
        (Method::GET, "/branch-restrictions".to_owned(), vec!["admin:repository:bitbucket"]),
        (Method::GET, "/hooks".to_owned(), vec!["read:webhook:bitbucket"]),
        (Method::GET, String::new(), vec![]),
        (Method::GET, format!("/commit/{head}"), vec![]),
    ] {
        let (status, told) = bitbucket.ask(method.clone(), &path, json!({"content": {"raw": "x"}})).await;
        assert_eq!(status == 403, !needed.is_empty(), "{method} {path}: {told}");
        if status == 403 {
            assert_eq!(message(&told), "Your credentials lack one or more required privilege scopes.");
            assert_eq!(told["error"]["detail"]["required"], json!(needed), "{path}");
        }
    }
}

#[tokio::test]
async fn a_repository_is_there_for_those_who_may_see_it() {
    let bitbucket = BitbucketForge::new().await;
    let repo = bitbucket.get("").await;
    let by_id =
        format!("/2.0/repositories/{}/{}", repo["workspace"]["uuid"].as_str().unwrap(), repo["uuid"].as_str().unwrap());
    for (path, login, status) in [
        (REPO, "dave", 200),
        (by_id.as_str(), "dave", 200),
        (REPO, "mallory", 404),
        ("/2.0/repositories/acme/other", "dave", 404),
        ("/2.0/repositories/acme", "dave", 200),
        ("/2.0/workspaces/acme", "dave", 200),
        ("/2.0/workspaces/other", "dave", 404),
        ("/2.0/nothing", "dave", 404),
    ] {
        let answer = bitbucket.request(Method::GET, path, login, Value::Null).await;
        assert_eq!(answer.status, status, "{path} as {login}: {}", answer.body);
    }
    let none = bitbucket.request(Method::GET, "/2.0/repositories/dev/null", "dave", Value::Null).await;
    assert_eq!(none.body, json!({"type": "error", "error": {"message": "Repository dev/null not found"}}));
    let own = bitbucket.request(Method::GET, "/2.0/user/workspaces", "dave", Value::Null).await;
    assert_eq!(own.body["values"][0]["workspace"]["slug"], "acme");
    for gone in ["/2.0/workspaces", "/2.0/user/permissions/repositories", "/2.0/user/permissions/workspaces"] {
        assert_eq!(bitbucket.request(Method::GET, gone, "dave", Value::Null).await.status, 410, "{gone}");
    }
    let other = "/2.0/user/workspaces/other/permissions/repositories";
    assert_eq!(bitbucket.request(Method::GET, other, "dave", Value::Null).await.status, 404);
    let own = "/2.0/user/workspaces/acme/permissions/repositories?q=repository.full_name%3D%22acme/infra%22";
    let own = bitbucket.request(Method::GET, own, "dave", Value::Null).await.body["values"][0].clone();
    assert_eq!((&own["permission"], &own["repository"]["full_name"]), (&json!("read"), &json!(NAME)));
    let hooks = bitbucket.request(Method::GET, "/2.0/workspaces/acme/hooks", "tidelock-bot", Value::Null).await;
    assert_eq!((hooks.status, &hooks.body["size"]), (200, &json!(0)));
    let permissions = async |login: &str, q: &str| {
        let path = format!("/2.0/workspaces/acme/permissions/repositories/infra?q={q}");
        let answer = bitbucket.request(Method::GET, &path, login, Value::Null).await;
        let levels: Vec<Value> =
            answer.body["values"].as_array().into_iter().flatten().map(|row| row["permission"].clone()).collect();
        (answer.status, levels)
    };
    let of = |login: &str| format!("user.account_id%3D%22{}%22", bitbucket.forge.account_id(login));
    assert_eq!(permissions("tidelock-bot", &of("bob")).await, (200, vec![json!("write")]));
    let uuid = format!("user.uuid%3D%22{}%22", bitbucket.forge.user_uuid("dave"));
    assert_eq!(permissions("tidelock-bot", &uuid).await, (200, vec![json!("read")]));
    assert_eq!(permissions("tidelock-bot", &of("mallory")).await, (200, vec![]));
    assert_eq!(permissions("bob", &of("bob")).await.0, 403, "administrators alone");
    assert_eq!(permissions("tidelock-bot", "user.uuid").await.0, 400, "no expression");
}

#[tokio::test]
async fn a_name_is_what_its_owner_makes_it() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let alice = bitbucket.forge.account_id("alice");
    bitbucket.forge.set_person_name("mallory", &alice, &alice).unwrap();
    bitbucket.repo.set_permission("mallory", "read").unwrap();
    let id = pull.comment("mallory", "atlantis apply").unwrap();
    let user = bitbucket.get(&format!("/pullrequests/1/comments/{id}")).await["user"].clone();
    assert_eq!((&user["nickname"], &user["display_name"]), (&json!(alice), &json!(alice)));
    assert_ne!(user["account_id"], json!(alice));
    let path = format!("/2.0/users/{}", bitbucket.forge.account_id("mallory"));
    let person = bitbucket.request(Method::GET, &path, "bob", Value::Null).await;
    assert_eq!((person.status, &person.body["uuid"]), (200, &user["uuid"]));
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let (status, told) = bitbucket.ask(Method::GET, "/pullrequests?pagelen=100", Value::Null).await;
    assert_eq!((status, message(&told)), (400, "Invalid pagelen"));
    assert_eq!(bitbucket.ask(Method::GET, "/pullrequests/1/comments?pagelen=101", Value::Null).await.0, 400);
    assert_eq!(bitbucket.get("/pullrequests?pagelen=50").await["size"], 1);
    for number in 0..13 {
        pull.comment("bob", &format!("comment {number}")).unwrap();
    }
    let first = bitbucket.get("/pullrequests/1/comments").await;
    assert_eq!((first["values"].as_array().unwrap().len(), &first["size"]), (10, &json!(13)));
    let next = first["next"].as_str().unwrap();
    assert!(next.starts_with(&format!("{}{REPO}/pullrequests/1/comments?", bitbucket.forge.url())), "{next}");
    let second = bitbucket.request(Method::GET, next, "bob", Value::Null).await.body;
    assert_eq!((second["values"].as_array().unwrap().len(), &second["page"]), (3, &json!(2)));
    assert!(second.get("next").is_none() && second["previous"].is_string());
    let count = async |query: &str| {
        let (status, body) = bitbucket.ask(Method::GET, &format!("/pullrequests{query}"), Value::Null).await;
        (status, body["values"].as_array().map_or(0, Vec::len))
    };
    let other = bitbucket.repo.open_pull("other", "bob", "Other", &[("b.tf", Some("b"))], OpenOptions::default());
    other.await.unwrap().close().unwrap();
    assert_eq!(count("").await, (200, 1));
    assert_eq!(count("?state=DECLINED").await, (200, 1));
    assert_eq!(count("?state=OPEN&state=DECLINED&state=MERGED").await, (200, 2));
    assert_eq!(count("?state=closed").await, (400, 0));
    // With an expression, the parameter says nothing.
    assert_eq!(count("?state=OPEN&q=id%3E0").await, (200, 2));
    assert_eq!(count("?q=state%3D%22OPEN%22+AND+updated_on%3E2020-01-01").await, (200, 1));
    assert_eq!(count("?q=state%3D%22OPEN%22+AND+updated_on%3E2099-01-01T00:00:00.000000%2B00:00").await, (200, 0));
    assert_eq!(count("?q=(state%3D%22OPEN%22+OR+state%3D%22DECLINED%22)+AND+title+%7E+%22OTHER%22").await, (200, 1));
    assert_eq!(count("?q=participants.approved%3Dtrue").await, (400, 0));
    let listed = bitbucket.get("/pullrequests").await["values"][0].clone();
    assert!(listed.get("participants").is_none() && listed.get("reviewers").is_none());
    let more = bitbucket.get("/pullrequests?fields=%2Bvalues.participants").await["values"][0].clone();
    assert!(more["participants"].is_array());
    let newest = bitbucket.get("/pullrequests/1/comments?sort=-created_on&pagelen=1").await;
    assert_eq!(newest["values"][0]["content"]["raw"], "comment 12");
}

#[tokio::test]
async fn commits_of_pull_requests_have_twelve_digits() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let head = pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let body = bitbucket.get("/pullrequests/1").await;
    assert_eq!(body["source"]["commit"]["hash"], head[..12]);
    assert_eq!(body["destination"]["commit"]["hash"], bitbucket.repo.tip("main").await.unwrap()[..12]);
    for name in [&head[..12], head.as_str(), "change"] {
        assert_eq!(bitbucket.get(&format!("/commit/{name}")).await["hash"], json!(head), "{name}");
    }
    assert_eq!(bitbucket.ask(Method::GET, "/commit/000000000000", Value::Null).await.0, 404);
    let base = bitbucket.repo.tip("main").await.unwrap();
    assert_eq!(bitbucket.get(&format!("/commits/{head}?exclude={base}")).await["size"], 2);
    assert_eq!(bitbucket.get(&format!("/commits/{base}?exclude={head}&pagelen=1")).await["values"], json!([]));
    let missing = format!("/2.0/repositories/acme/none/commits/{head}");
    let page = bitbucket.request(Method::GET, &missing, "bob", Value::Null).await;
    assert!(page.status == 404 && page.headers["content-type"] == "text/html" && page.body.is_string());
    let options = OpenOptions { fork: Some("mallory".to_owned()), ..OpenOptions::default() };
    let fork =
        bitbucket.repo.open_pull("theirs", "mallory", "From a fork", &[("c.tf", Some("c"))], options).await.unwrap();
    let theirs = fork.head_commit().unwrap();
    let source = bitbucket.get("/pullrequests/2").await["source"].clone();
    assert_eq!(source["repository"]["full_name"], "mallory/infra");
    assert_eq!(bitbucket.ask(Method::GET, &format!("/commit/{}", &theirs[..12]), Value::Null).await.0, 404);
    let path = source["commit"]["links"]["self"]["href"].as_str().unwrap();
    let whole = bitbucket.request(Method::GET, path, "tidelock-bot", Value::Null).await;
    assert_eq!((whole.status, &whole.body["hash"]), (200, &json!(theirs)));
    let (status, told) = bitbucket.build(&theirs, json!({"key": "k", "state": "FAILED", "url": "http://x/y"})).await;
    assert_eq!(status, 201, "{told}");
    bitbucket.forge.repo("mallory/infra").delete().unwrap();
    let body = bitbucket.get("/pullrequests/2").await;
    assert_eq!((&body["source"]["repository"], &body["state"]), (&Value::Null, &json!("OPEN")));
    assert_eq!(bitbucket.request(Method::GET, path, "tidelock-bot", Value::Null).await.status, 404);
    fork.lose_head().unwrap();
    assert_eq!(bitbucket.get("/pullrequests/2").await["source"]["commit"], Value::Null);
}

#[tokio::test]
async fn a_branch_tells_a_head_whose_first_digits_are_not_its_own() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let head = pull.head_commit().unwrap();
    pull.share_first_digits().unwrap();
    assert_eq!(bitbucket.ask(Method::GET, &format!("/commit/{}", &head[..12]), Value::Null).await.0, 404);
    assert_eq!(bitbucket.get(&format!("/commit/{head}")).await["hash"], json!(head));
    assert_eq!(bitbucket.get("/refs/branches/change").await["target"]["hash"], json!(head));
    assert_eq!(bitbucket.get("/pullrequests/1").await["source"]["commit"]["hash"], head[..12]);
}

#[tokio::test]
async fn git_gives_tips_of_branches_alone() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let old = pull.head_commit().unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    let url = bitbucket.repo.clone_url_for("tidelock-bot").unwrap();
    assert!(bitbucket.git(&["init", "-q", "--bare", "mirror"]).await.status.success());
    for (what, is_there) in [(old.as_str(), false), ("refs/pull/1/head", false), ("refs/heads/change", true)] {
        let fetched = bitbucket.git(&["-C", "mirror", "fetch", "-q", &url, what]).await;
        assert_eq!(fetched.status.success(), is_there, "{what}: {}", String::from_utf8_lossy(&fetched.stderr));
    }
    let refs = bitbucket.git(&["ls-remote", &url]).await;
    assert!(!String::from_utf8_lossy(&refs.stdout).contains("pull"));
    let pushed = bitbucket.git(&["clone", "-q", &bitbucket.repo.clone_url_for("bob").unwrap(), "clone"]).await;
    assert!(pushed.status.success());
    assert!(bitbucket.git(&["-C", "clone", "push", "-q", "origin", "HEAD:refs/heads/third"]).await.status.success());
    let reader = bitbucket.repo.clone_url_for("dave").unwrap();
    assert!(!bitbucket.git(&["-C", "clone", "push", "-q", &reader, "HEAD:refs/heads/fourth"]).await.status.success());
}

#[tokio::test]
async fn comments_have_their_rules() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let theirs = pull.comment("bob", "atlantis plan").unwrap();
    let raw = |text: &str| json!({"content": {"raw": text}});
    let all = "/pullrequests/1/comments";
    let before = bitbucket.get("/pullrequests/1").await;
    let (status, own) = bitbucket.ask(Method::POST, all, raw("Planned.\n\n<details>x</details>")).await;
    assert_eq!((status, &own["user"]["account_id"]), (201, &json!(bitbucket.forge.account_id("tidelock-bot"))));
    assert_eq!(own["content"]["html"], "<p>Planned.\n\n&lt;details&gt;x&lt;/details&gt;</p>", "tags are text");
    assert_ne!(own["created_on"], own["updated_on"], "nobody has edited it");
    let after = bitbucket.get("/pullrequests/1").await;
    assert_eq!((&before["comment_count"], &after["comment_count"]), (&json!(1), &json!(2)));
    assert_ne!(before["updated_on"], after["updated_on"]);
    let (own, theirs) = (format!("{all}/{}", own["id"]), format!("{all}/{theirs}"));
    let long = "ä".repeat(32_769);
    for (method, path, body, wanted) in [
        (Method::POST, all, raw(""), 400),
        (Method::POST, all, json!({"body": "x"}), 400),
        (Method::POST, all, raw(&long[..long.len() - 2]), 201),
        (Method::POST, "/pullrequests/99/comments", raw("x"), 404),
        (Method::PUT, theirs.as_str(), raw("x"), 403),
        (Method::PUT, own.as_str(), raw("Planned again."), 200),
        (Method::DELETE, own.as_str(), Value::Null, 204),
        (Method::DELETE, own.as_str(), Value::Null, 404),
        (Method::DELETE, theirs.as_str(), Value::Null, 204),
    ] {
        let (status, told) = bitbucket.ask(method.clone(), path, body).await;
        assert_eq!(status, wanted, "{method} {path}: {told}");
    }
    let (status, told) = bitbucket.ask(Method::POST, all, raw(&long)).await;
    assert_eq!((status, told), (400, json!("<h1>Bad Request (400)</h1>")));
    let gone = bitbucket.get(all).await["values"][0].clone();
    assert_eq!((&gone["deleted"], &gone["content"]["raw"]), (&json!(true), &json!("")));
    let refused = bitbucket.request(Method::DELETE, &format!("{REPO}{own}"), "carol", Value::Null).await;
    assert_eq!(refused.status, 404);
    pull.close().unwrap();
    assert_eq!(bitbucket.ask(Method::POST, all, raw("also when declined")).await.0, 201);
    let inline = pull.comment_on_line("bob", "main.tf", 1, "atlantis apply").unwrap();
    let told = bitbucket.get(&format!("{all}/{inline}")).await;
    assert_eq!((&told["inline"]["to"], &told["content"]["raw"]), (&json!(1), &json!("atlantis apply")));
    let reply = json!({"content": {"raw": "Why?"}, "parent": {"id": inline}});
    assert_eq!(bitbucket.ask(Method::POST, all, reply).await.1["parent"]["id"], inline);
    let id = pull.comment("bob", "x").unwrap();
    assert!(bitbucket.get(&format!("{all}/{id}")).await.get("inline").is_none());
    pull.delete_comment("bob", id).unwrap();
    assert!(pull.comments().unwrap().iter().all(|comment| comment.id != id));
}

#[tokio::test]
async fn a_status_is_known_by_its_key() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    let head = pull.head_commit().unwrap();
    let with = |key: &str, word: &str| {
        json!({"key": key, "state": word, "url": "http://127.0.0.1:1/x", "name": format!("atlantis/{key}"), "description": "d",
            "refname": "change"})
    };
    assert_eq!(bitbucket.build(&head, with("plan", "INPROGRESS")).await.0, 201);
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "pending");
    assert_eq!(bitbucket.build(&head[..12], with("plan", "SUCCESSFUL")).await.0, 201);
    assert_eq!(bitbucket.get(&format!("/commit/{head}/statuses")).await["size"], 1, "replaced");
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "success");
    let key = "k".repeat(41);
    let without = |name: &str| {
        let mut body = with("apply", "FAILED");
        body.as_object_mut().unwrap().remove(name);
        body
    };
    let required = |name: &str| format!("{name}: This field is required.");
    for (body, text) in [
        (with(&key, "FAILED"), "key: Ensure this value has at most 40 characters (it has 41).".to_owned()),
        (with("k", "failed"), "state: Select a valid choice. failed is not one of the available choices.".to_owned()),
        (without("url"), required("url")),
        (without("state"), required("state")),
        (without("key"), required("key")),
        (json!({"key": "k", "state": "FAILED", "url": "/jobs/1"}), "url: Enter a valid URL.".to_owned()),
    ] {
        let (status, told) = bitbucket.build(&head, body).await;
        assert_eq!((status, message(&told)), (400, text.as_str()));
        assert!(told["error"]["fields"].is_object());
    }
    assert_eq!(bitbucket.build(&"1".repeat(40), with("k", "FAILED")).await.0, 404);
    let path = format!("{REPO}/commit/{head}/statuses/build");
    let reader = bitbucket.request(Method::POST, &path, "dave", with("k", "FAILED")).await;
    assert_eq!(reader.status, 403);
    let mut loose = with("loose", "STOPPED");
    loose["refname"] = Value::Null;
    assert_eq!(bitbucket.build(&head, loose).await.0, 201);
    assert_eq!(bitbucket.get(&format!("/commit/{head}/statuses?refname=change")).await["size"], 2);
    assert_eq!(bitbucket.get("/pullrequests/1/statuses").await["size"], 1, "the other names no branch");
    let own = format!("/commit/{head}/statuses/build/plan");
    assert_eq!(bitbucket.ask(Method::PUT, &own, with("plan", "FAILED")).await.0, 200);
    assert_eq!(bitbucket.get(&own).await["state"], "FAILED");
    assert_eq!(bitbucket.ask(Method::GET, &format!("/commit/{head}/statuses/build/none"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn files_and_branches_are_read() {
    let bitbucket = BitbucketForge::new().await;
    let head = bitbucket.pull().await.head_commit().unwrap();
    let file = bitbucket.request(Method::GET, &format!("{REPO}/src/{head}/main.tf"), "dave", Value::Null).await;
    assert_eq!((file.status, &file.body), (200, &json!("a = 2\n")));
    assert_eq!(file.headers["content-disposition"], "attachment");
    assert_eq!(bitbucket.get("/src/main/main.tf?format=meta").await["size"], 6);
    let all = bitbucket.get("/src/main/").await;
    let kinds: Vec<&Value> = all["values"].as_array().unwrap().iter().map(|row| &row["type"]).collect();
    assert_eq!(kinds, ["commit_file", "commit_directory"]);
    assert_eq!(bitbucket.get("/src/main/net").await["values"][0]["path"], "net/main.tf");
    let (status, told) = bitbucket.ask(Method::GET, "/src/main/README.md", Value::Null).await;
    assert_eq!((status, message(&told)), (404, "No such file or directory: README.md"));
    assert_eq!(bitbucket.get("/refs/branches/change").await["target"]["hash"], json!(head));
    let newest = bitbucket.get("/refs/branches?sort=-target.date&pagelen=100").await;
    assert_eq!((&newest["size"], newest["values"][0]["target"]["hash"].as_str().unwrap().len()), (&json!(2), 40));
    assert_eq!(bitbucket.get("/effective-branching-model").await["development"]["name"], "main");
    assert_eq!(bitbucket.get("/effective-default-reviewers").await["size"], 0);
    assert_eq!(bitbucket.ask(Method::DELETE, "/refs/branches/main", Value::Null).await.0, 400);
    bitbucket.repo.push("some/branch", &[("x.tf", Some("x"))]).await.unwrap();
    assert_eq!(bitbucket.ask(Method::DELETE, "/refs/branches/some/branch", Value::Null).await.0, 204);
    assert_eq!(bitbucket.ask(Method::DELETE, "/refs/branches/some/branch", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_refusal_of_a_test_has_the_form_of_the_host() {
    let bitbucket = BitbucketForge::new().await;
    bitbucket.forge.refuse_next("GET", "/2.0/*", 429, 1).unwrap();
    let refused = bitbucket.request(Method::GET, REPO, "bob", Value::Null).await;
    assert_eq!((refused.status, &refused.body["type"]), (429, &json!("error")));
    assert!(!refused.headers.contains_key("retry-after"), "no time is told");
    bitbucket.forge.near_rate_limit();
    let near = bitbucket.request(Method::GET, REPO, "bob", Value::Null).await;
    assert_eq!(near.headers["x-ratelimit-nearlimit"], "true");
}

#[tokio::test]
async fn people_read_and_comment_on_its_pages() {
    let bitbucket = BitbucketForge::new().await;
    let pull = bitbucket.pull().await;
    assert!(pull.url().ends_with("/acme/infra/pull-requests/1") && pull.reference() == "#1", "{}", pull.url());
    for (action, fields, status) in [
        ("comment", "as=bob&body=%3Cb%3Ex%3C/b%3E", 303),
        ("approve", "as=bob", 303),
        ("request-changes", "as=carol", 303),
        ("merge", "as=alice", 303),
        ("reopen", "as=alice", 422),
    ] {
        let form = bitbucket.client.post(format!("{}/{action}", pull.url())).body(fields);
        let posted = form.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        assert_eq!(posted.status(), status, "{action}");
    }
    assert!(pull.is_merged().unwrap());
    let text = bitbucket.client.get(pull.url()).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("&lt;b&gt;x&lt;/b&gt;") && !text.contains("<b>x</b>"), "tags are text");
    let second = bitbucket.repo.open_pull("two", "bob", "Two", &[("b.tf", Some("b"))], OpenOptions::default()).await;
    let second = second.unwrap();
    second.close().unwrap();
    let declined = bitbucket.client.get(second.url()).send().await.unwrap().text().await.unwrap();
    assert!(declined.contains("Closed without merging") && !declined.contains("Reopen"));
    let head = pull.head_commit().unwrap();
    for path in ["", "/new", "/file?path=main.tf", "/pull-requests/1/edit", &format!("/commits/{head}")] {
        let address = format!("{}/acme/infra{path}", bitbucket.forge.url());
        assert_eq!(bitbucket.client.get(&address).send().await.unwrap().status(), 200, "{address}");
    }
}
