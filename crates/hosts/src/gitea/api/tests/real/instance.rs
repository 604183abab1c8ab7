//! People and a repository on the instance, of one test.

use super::*;
use base64::Engine as _;
use reqwest::header::AUTHORIZATION;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for what the host does in the background.
const LIMIT: Duration = Duration::from_secs(30);
const SCOPES: [&str; 4] = ["write:repository", "write:issue", "read:user", "read:organization"];

pub(super) struct Instance {
    url: String,
    root: Http,
    /// End of the names of people and organizations, which are the instance's.
    mark: String,
}

/// Waits until something is so.
pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < LIMIT, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn client(url: &str, token: &str, headers: HeaderMap) -> Http {
    Http::new(format!("{url}{API}"), TokenSource::Value(token.into()), headers)
}

async fn send(http: &Http, method: &str, path: &str, body: Value) -> Value {
    let body = Some(body).filter(|body| !body.is_null());
    http.send(method.parse().unwrap(), path, body).await.unwrap_or_else(|error| panic!("{error}")).body
}

impl Instance {
    /// Makes an organization with a repository `infra`, in which `ann` and `bob` may write, and `bot` is an administrator. `eve` may read.
    pub(super) async fn new() -> Instance {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("TIDELOCK_TEST_GITEA").unwrap();
        let token = std::env::var("TIDELOCK_TEST_GITEA_TOKEN").unwrap();
        let mark = format!("{:x}{}", Timestamp::now().as_millisecond(), COUNT.fetch_add(1, Ordering::Relaxed));
        let instance = Instance { root: client(&url, &token, HeaderMap::new()), url, mark };
        for name in ["ann", "bob", "eve", "bot"] {
            let login = instance.login(name);
            let person = json!({"username": login, "password": "password1", "email": format!("{login}@example.com"),
                "must_change_password": false});
            instance.root("POST", "/admin/users", person).await;
        }
        instance.root("POST", "/orgs", json!({"username": instance.org()})).await;
        let repo = json!({"name": "infra", "auto_init": true, "default_branch": "main"});
        instance.root("POST", &format!("/orgs/{}/repos", instance.org()), repo).await;
        for (name, right) in [("ann", "write"), ("bob", "write"), ("eve", "read"), ("bot", "admin")] {
            let path = instance.at(&format!("/collaborators/{}", instance.login(name)));
            instance.root("PUT", &path, json!({"permission": right})).await;
        }
        instance
    }

    pub(super) fn login(&self, name: &str) -> String {
        format!("{name}{}", self.mark)
    }

    pub(super) fn org(&self) -> String {
        self.login("org")
    }

    pub(super) fn repo(&self) -> RepoId {
        RepoId { host: "localhost".into(), owner: self.org(), name: "infra".into() }
    }

    /// Path below the repository.
    pub(super) fn at(&self, tail: &str) -> String {
        format!("/repos/{}/infra{tail}", self.org())
    }

    /// Sends a request as the administrator of the instance.
    pub(super) async fn root(&self, method: &str, path: &str, body: Value) -> Value {
        send(&self.root, method, path, body).await
    }

    /// Sends a request as one of the people.
    pub(super) async fn by(&self, name: &str, method: &str, path: &str, body: Value) -> Value {
        send(&client(&self.url, "", self.password(name)), method, path, body).await
    }

    fn password(&self, name: &str) -> HeaderMap {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{}:password1", self.login(name)));
        HeaderMap::from_iter([(AUTHORIZATION, format!("Basic {pair}").parse().unwrap())])
    }

    async fn token(&self, name: &str, scopes: &[&str]) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let token = json!({"name": format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed)), "scopes": scopes});
        let made = self.by(name, "POST", &format!("/users/{}/tokens", self.login(name)), token).await;
        made["sha1"].as_str().unwrap().to_owned()
    }

    pub(super) async fn bot(&self) -> Gitea {
        self.host("bot", &SCOPES).await
    }

    pub(super) async fn host(&self, name: &str, scopes: &[&str]) -> Gitea {
        self.make(name, scopes, Arc::new(|_| true)).await
    }

    pub(super) async fn host_that_serves(&self, name: &str, serves: ServesRepository) -> Gitea {
        self.make(name, &SCOPES, serves).await
    }

    async fn make(&self, name: &str, scopes: &[&str], serves: ServesRepository) -> Gitea {
        Gitea::new(GiteaOptions {
            address: GiteaAddress::new("localhost", &self.url),
            user: Login::new(self.login(name)),
            token: TokenSource::Value(self.token(name, scopes).await.into()),
            status_name: "atlantis".into(),
            serves,
        })
    }

    /// Writes a file to a new branch as `ann`, and opens a pull request of it.
    pub(super) async fn open(&self, branch: &str, file: &str) -> PullId {
        let content = json!({"content": "Zm9v", "message": "Write it", "branch": "main", "new_branch": branch});
        self.by("ann", "POST", &self.at(&format!("/contents/{file}")), content).await;
        let pull = json!({"base": "main", "head": branch, "title": "Add a bucket"});
        let made = self.by("ann", "POST", &self.at("/pulls"), pull).await;
        PullId { repo: self.repo(), number: made["number"].as_u64().unwrap() }
    }

    /// Writes a file to a branch, and waits until the pull request shows it.
    pub(super) async fn push(&self, name: &str, bot: &Gitea, id: &PullId, file: &str) -> PullRequest {
        let before = bot.pull_request(id).await.unwrap();
        let content = json!({"content": "Zm9v", "message": "Write more", "branch": before.head.branch});
        let made = self.by(name, "POST", &self.at(&format!("/contents/{file}")), content).await;
        let commit = made["commit"]["sha"].as_str().unwrap().to_owned();
        // The list has the head of the pull request's own ref, which the host writes in the background.
        until("the push to arrive", async || {
            let open = bot.open_pulls(&id.repo).await.unwrap();
            open.iter().any(|one| one.pull.id == *id && one.pull.head.commit.as_str() == commit)
        })
        .await;
        bot.pull_request(id).await.unwrap()
    }

    pub(super) async fn review(&self, name: &str, id: &PullId, event: &str) -> u64 {
        let path = self.at(&format!("/pulls/{}/reviews", id.number));
        let made = self.by(name, "POST", &path, json!({"event": event, "body": "a word"})).await;
        made["id"].as_u64().unwrap()
    }
}
