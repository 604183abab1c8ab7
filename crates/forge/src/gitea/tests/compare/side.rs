//! One of the two hosts: its people, its repository, and its receiver of deliveries.

use super::super::{Answer, LIMIT, answer_of, client, message};
use super::BranchProtection;
use crate::tests::receiver::{Received, receiver};
use crate::{Forge, ForgeOptions, HostKind, OpenOptions, Repo};
use base64::Engine;
use http::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;

/// Secret of the webhook of the real one.
const SECRET: &str = "4f1d2c";

const PEOPLE: [(&str, &str); 5] =
    [("alice", "admin"), ("bob", "write"), ("carol", "write"), ("dave", "read"), ("tidelock-bot", "admin")];

/// A host, and what was kept of its answers.
pub(super) struct Side {
    pub url: String,
    client: reqwest::Client,
    tokens: BTreeMap<String, String>,
    kept: BTreeMap<String, String>,
    /// The forge's own handles; absent for the real one.
    own: Option<(Forge, Repo, TempDir)>,
    pub received: Received,
    pub secret: String,
}

/// Makes the same people, organization and repository on both.
pub(super) async fn both(url: &str, root: &str) -> (Side, Side) {
    let organization = format!("acme-{}", &crate::random_hex().unwrap()[..8]);
    let name = format!("{organization}/infra");
    (of_forge(&name).await, of_real(url, root, &organization).await)
}

async fn of_forge(name: &str) -> Side {
    let dir = TempDir::new().unwrap();
    let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
    let forge = Forge::start_as(HostKind::Gitea, options).await.unwrap();
    let repo = forge.create_repo(name, &[("main.tf", "a = 1\n")]).await.unwrap();
    repo.allow_rebase_merges().unwrap();
    forge.set_bot_owns_organizations(false);
    let (address, received) = receiver().await;
    forge.set_webhook(&address);
    let token = |login: &str| (login.to_owned(), forge.credentials(login).unwrap().1.expose_secret().to_owned());
    let tokens = PEOPLE.iter().map(|(login, _)| token(login)).collect();
    let secret = forge.webhook_secret().expose_secret().to_owned();
    let mut side = Side {
        url: forge.url().to_owned(),
        client: client(),
        tokens,
        kept: BTreeMap::new(),
        own: Some((forge, repo, dir)),
        received,
        secret,
    };
    side.set("R", &format!("/api/v1/repos/{name}"));
    side.set("O", name.split('/').next().unwrap());
    side
}

async fn of_real(url: &str, root: &str, organization: &str) -> Side {
    let (address, received) = receiver().await;
    let tokens = [("root".to_owned(), root.to_owned())].into();
    let (kept, secret) = (BTreeMap::new(), SECRET.to_owned());
    let mut side = Side { url: url.to_owned(), client: client(), tokens, kept, own: None, received, secret };
    side.set("R", &format!("/api/v1/repos/{organization}/infra"));
    side.set("O", organization);
    let made = async |path: &str, body: Value| {
        let answer = side.request(&Method::POST, path, "root", &body).await;
        assert!([201, 422].contains(&answer.status), "{path}: {} {}", answer.status, answer.body);
    };
    for (login, _) in PEOPLE {
        let (word, email) = (format!("{login}word1"), format!("{login}@sandbox.invalid"));
        let person = json!({"username": login, "password": word, "email": email, "must_change_password": false});
        made("/api/v1/admin/users", person).await;
    }
    made("/api/v1/orgs", json!({"username": organization})).await;
    let repo = json!({"name": "infra", "auto_init": true, "default_branch": "main", "private": true});
    made(&format!("/api/v1/orgs/{organization}/repos"), repo).await;
    for (login, level) in PEOPLE {
        let token = side.token(login, &["all"]).await;
        side.tokens.insert(login.to_owned(), token);
        let path = format!("{{R}}/collaborators/{login}");
        let answer = side.request(&Method::PUT, &path, "root", &json!({"permission": level})).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    side.write("main", "main", "main.tf", "a = 1\n", "alice").await;
    let config = json!({"url": address, "content_type": "json", "secret": SECRET});
    let hook = json!({"type": "gitea", "active": true, "events": ["pull_request", "push"], "config": config});
    let answer = side.request(&Method::POST, "{R}/hooks", "root", &hook).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    side
}

impl Side {
    pub(super) fn set(&mut self, name: &str, text: &str) {
        self.kept.insert(name.to_owned(), text.to_owned());
    }

    /// Keeps a part of an answer.
    pub(super) fn keep(&mut self, name: &str, body: &Value, pointer: &str) {
        let found = body.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {body}"));
        let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        self.set(name, &text);
    }

    fn filled(&self, text: &str) -> String {
        self.kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    pub(super) async fn request(&self, method: &Method, path: &str, who: &str, body: &Value) -> Answer {
        let address = format!("{}{}", self.url, self.filled(path));
        let mut request = self.client.request(method.clone(), address);
        if let Some(token) = self.tokens.get(who) {
            request = request.header("Authorization", format!("token {token}"));
        }
        if !body.is_null() {
            let body = self.filled(&body.to_string());
            request = request.header("Content-Type", "application/json").body(body);
        }
        answer_of(request).await
    }

    /// A new token of a person with these scopes; on the forge, those of the account's only token.
    pub(super) async fn token(&self, login: &str, scopes: &[&str]) -> String {
        if let Some((forge, ..)) = &self.own {
            forge.set_token_scopes(scopes);
            return self.tokens[login].clone();
        }
        let name = crate::random_hex().unwrap();
        let request = self.client.post(format!("{}/api/v1/users/{login}/tokens", self.url));
        let request = request.basic_auth(login, Some(format!("{login}word1")));
        let answer = answer_of(request.json(&json!({"name": name, "scopes": scopes}))).await;
        answer.body["sha1"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned()
    }

    pub(super) fn use_token(&mut self, login: &str, token: String) {
        self.tokens.insert(login.to_owned(), token);
    }

    /// Writes a file to a branch as a person; a new one begins at `from`.
    pub(super) async fn write(&self, from: &str, branch: &str, path: &str, text: &str, who: &str) {
        if let Some((_, repo, _)) = &self.own {
            repo.push_as(who, branch, "Change", &[(path, Some(text))]).await.unwrap();
            return;
        }
        let content = base64::prelude::BASE64_STANDARD.encode(text);
        let mut body = json!({"content": content, "message": "Change", "branch": from});
        if from != branch {
            body["new_branch"] = branch.into();
        }
        let address = format!("{{R}}/contents/{path}");
        let known = self.request(&Method::GET, &format!("{address}?ref={from}"), who, &Value::Null).await;
        let method = if known.status == 200 { Method::PUT } else { Method::POST };
        if known.status == 200 {
            body["sha"] = known.body["sha"].clone();
        }
        let answer = self.request(&method, &address, who, &body).await;
        assert!([200, 201].contains(&answer.status), "{}", answer.body);
    }

    /// Opens a pull request of a new branch as alice and returns its number.
    pub(super) async fn open(&self, branch: &str, title: &str, text: &str) -> u64 {
        if let Some((_, repo, _)) = &self.own {
            let changes = [("main.tf", Some(text))];
            let pull = repo.open_pull(branch, "alice", title, &changes, OpenOptions::default()).await.unwrap();
            return pull.number();
        }
        self.write("main", branch, "main.tf", text, "alice").await;
        let body = json!({"base": "main", "head": branch, "title": title});
        let answer = self.request(&Method::POST, "{R}/pulls", "alice", &body).await;
        answer.body["number"].as_u64().unwrap_or_else(|| panic!("{}", answer.body))
    }

    /// Opens a pull request of bob's fork of the repository and returns its number.
    pub(super) async fn open_from_fork(&self, branch: &str, title: &str) -> u64 {
        let name = format!("infra-{}", self.filled("{O}"));
        if let Some((_, repo, _)) = &self.own {
            let options = OpenOptions { fork: Some("bob".to_owned()), fork_name: Some(name), ..OpenOptions::default() };
            let changes = [("fork.tf", Some("f = 1\n"))];
            return repo.open_pull(branch, "bob", title, &changes, options).await.unwrap().number();
        }
        let forked = self.request(&Method::POST, "{R}/forks", "bob", &json!({ "name": name })).await;
        assert_eq!(forked.status, 202, "{}", forked.body);
        let content = base64::prelude::BASE64_STANDARD.encode("f = 1\n");
        let body = json!({"content": content, "message": "Change", "branch": "main", "new_branch": branch});
        let path = format!("/api/v1/repos/bob/{name}/contents/fork.tf");
        let answer = self.request(&Method::POST, &path, "bob", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let body = json!({"base": "main", "head": format!("bob/{name}:{branch}"), "title": title});
        let answer = self.request(&Method::POST, "{R}/pulls", "bob", &body).await;
        answer.body["number"].as_u64().unwrap_or_else(|| panic!("{}", answer.body))
    }

    /// Changes the base branch of a pull request as alice.
    pub(super) async fn retarget(&self, number: u64, branch: &str) {
        if let Some((_, repo, _)) = &self.own {
            return repo.pull(number).retarget(branch).await.unwrap();
        }
        let path = format!("{{R}}/pulls/{number}");
        let answer = self.request(&Method::PATCH, &path, "alice", &json!({ "base": branch })).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }

    /// Deletes the fork.
    pub(super) async fn delete_fork(&self) {
        let path = format!("bob/infra-{}", self.filled("{O}"));
        if let Some((forge, ..)) = &self.own {
            return forge.repo(&path).delete().unwrap();
        }
        let answer = self.request(&Method::DELETE, &format!("/api/v1/repos/{path}"), "bob", &Value::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.body);
    }

    /// Protects `main`, or takes the rules away.
    pub(super) async fn protect(&self, rules: Option<&BranchProtection>) {
        match (&self.own, rules) {
            (Some((_, repo, _)), rules) => match rules {
                Some(rules) => repo.protect("main", rules.clone()).unwrap(),
                None => repo.unprotect("main").unwrap(),
            },
            (None, None) => {
                let path = "{R}/branch_protections/main";
                assert_eq!(self.request(&Method::DELETE, path, "root", &Value::Null).await.status, 204);
            }
            (None, Some(rules)) => {
                let body = json!({
                    "rule_name": "main", "required_approvals": rules.required_approvals,
                    "enable_status_check": rules.status_contexts.is_some(), "status_check_contexts": rules.status_contexts,
                    "block_on_rejected_reviews": rules.block_on_rejected_reviews,
                    "block_on_outdated_branch": rules.block_on_outdated_branch,
                    "dismiss_stale_approvals": rules.dismiss_stale_approvals,
                    "ignore_stale_approvals": rules.ignore_stale_approvals,
                });
                let answer = self.request(&Method::POST, "{R}/branch_protections", "root", &body).await;
                assert_eq!(answer.status, 201, "{}", answer.body);
            }
        }
    }

    /// Labels a pull request as alice with a label of this name.
    pub(super) async fn label(&self, number: u64, name: &str) {
        if let Some((_, repo, _)) = &self.own {
            return repo.pull(number).set_labels(&[name]).unwrap();
        }
        let made = self.request(&Method::POST, "{R}/labels", "root", &json!({"name": name, "color": "#ededed"})).await;
        let path = format!("{{R}}/issues/{number}/labels");
        let answer = self.request(&Method::POST, &path, "alice", &json!({"labels": [made.body["id"]]})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Makes a team with these members.
    pub(super) async fn team(&self, name: &str, members: &[&str]) {
        let organization = self.filled("{O}");
        if let Some((forge, ..)) = &self.own {
            return forge.set_team(&organization, name, members);
        }
        let body = json!({"name": name, "units": ["repo.code"], "permission": "read"});
        let made = self.request(&Method::POST, "/api/v1/orgs/{O}/teams", "root", &body).await;
        for member in members {
            let path = format!("/api/v1/teams/{}/members/{member}", made.body["id"]);
            assert_eq!(self.request(&Method::PUT, &path, "root", &Value::Null).await.status, 204);
        }
    }

    /// Switches issues off.
    pub(super) async fn disable_issues(&self) {
        if let Some((_, repo, _)) = &self.own {
            return repo.disable_issues(true).unwrap();
        }
        let answer = self.request(&Method::PATCH, "{R}", "root", &json!({"has_issues": false})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Gives the repository another name.
    pub(super) async fn rename(&self, name: &str) {
        if let Some((forge, repo, _)) = &self.own {
            let to = format!("{}/{name}", self.filled("{O}"));
            return forge.transfer(repo.full_name(), &to).unwrap();
        }
        let answer = self.request(&Method::PATCH, "{R}", "root", &json!({ "name": name })).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Waits until a part of an answer has this value.
    pub(super) async fn wait_for(&self, path: &str, pointer: &str, value: &Value) {
        let has_it = async {
            let ask = async || self.request(&Method::GET, path, "tidelock-bot", &Value::Null).await.body;
            while ask().await.pointer(pointer) != Some(value) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(LIMIT, has_it).await.unwrap_or_else(|_| panic!("{path}: {pointer} is not {value}"));
    }

    /// Merges as the account, again and again while the check for conflicts runs.
    pub(super) async fn merge(&self, path: &str, body: &Value) -> Answer {
        let merged = async {
            loop {
                let answer = self.request(&Method::POST, path, "tidelock-bot", body).await;
                if message(&answer.body) != "Please try again later" {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(LIMIT, merged).await.unwrap_or_else(|_| panic!("{path}: the check does not end"))
    }

    /// What was kept under this name.
    pub(super) fn kept(&self, name: &str) -> &str {
        &self.kept[name]
    }
}
