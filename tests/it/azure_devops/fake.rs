//! A stateful Azure DevOps Server on loopback: its collection lies under `/tfs`, its project's name has a space, and git answers by the
//! old protocol, for tips of branches alone. Requests are answered in `wire`; here are its state and what people do.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidelock::sandbox::Repo;

pub(super) const COLLECTION: &str = "DefaultCollection";
pub(super) const PROJECT: &str = "Cloud Infra";
pub(super) const NAME: &str = "live";
/// What our ids begin with.
pub(super) const FULL_NAME: &str = "defaultcollection/Cloud Infra/live";
pub(super) const TOKEN: &str = "a-personal-access-token";
pub(super) const HOOK_USER: &str = "hooks";
pub(super) const PASSWORD: &str = "a password that is long enough";
pub(super) const BOT: &str = "tidelock@example.com";
/// An email address of each person is this after the name.
const DOMAIN: &str = "@example.com";

/// A pull request as the host has it.
#[derive(Clone)]
pub(super) struct KeptPull {
    pub(super) title: String,
    pub(super) branch: String,
    pub(super) author: String,
    pub(super) status: &'static str,
    pub(super) draft: bool,
    pub(super) fork: bool,
    pub(super) head: String,
    pub(super) base: String,
    pub(super) created: Timestamp,
    pub(super) closed: Option<Timestamp>,
    pub(super) merged: Option<String>,
    /// Commit, moment and person of each push.
    pub(super) iterations: Vec<(String, Timestamp, String)>,
    pub(super) threads: Vec<Value>,
    pub(super) statuses: Vec<Value>,
    pub(super) reviewers: Vec<Value>,
}

#[derive(Default)]
pub(super) struct AzureState {
    pub(super) pulls: Vec<KeptPull>,
    pub(super) repo: Option<Repo>,
    /// Evaluations of the branch's policies.
    pub(super) policies: Vec<Value>,
    /// Address of the server's front door; empty: deliveries are lost.
    deliver_to: String,
    /// Deliveries may find nobody.
    is_unsteady: bool,
    /// Bodies of all deliveries, lost ones included.
    sent: Vec<String>,
    pub(super) threads: u64,
    /// Answers to come instead of the true ones, to requests whose method and path have this in them.
    pub(super) faults: VecDeque<(String, u16)>,
    pub(super) is_down: bool,
    /// The branch's policies reject every completion.
    pub(super) rejects_merges: bool,
    /// The token is not valid any more.
    pub(super) is_expired: bool,
    pub(super) requests: Vec<String>,
    events: u64,
}

/// Handle to the host; cheap to clone.
#[derive(Clone)]
pub(crate) struct AzureFake {
    pub(super) state: Arc<Mutex<AzureState>>,
    port: u16,
}

impl AzureFake {
    /// One whose deliveries may find nobody: the server is killed meanwhile.
    pub(crate) fn start_unsteady() -> AzureFake {
        let fake = AzureFake::start();
        fake.look().is_unsteady = true;
        fake
    }

    /// It answers from a thread of its own until the test ends.
    pub(crate) fn start() -> AzureFake {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let fake = AzureFake { state: Arc::default(), port: listener.local_addr().unwrap().port() };
        let served = fake.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(super::wire::serve(listener, served));
        });
        fake
    }

    /// Flags of a server that has this host besides the forge.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            format!("--azuredevops-hostname=http://localhost:{}/tfs", self.port),
            format!("--azuredevops-user={BOT}"),
            format!("--azuredevops-token={TOKEN}"),
            format!("--azuredevops-webhook-user={HOOK_USER}"),
            format!("--azuredevops-webhook-password={PASSWORD}"),
        ]
    }

    /// What every address begins with.
    pub(super) fn base(&self) -> String {
        format!("http://localhost:{}/tfs", self.port)
    }

    pub(super) fn look(&self) -> MutexGuard<'_, AzureState> {
        self.state.lock().unwrap()
    }

    /// Its repository is this one of the forge.
    pub(super) fn serve(&self, repo: &Repo) {
        self.look().repo = Some(repo.clone());
    }

    fn repo(&self) -> Repo {
        self.look().repo.clone().unwrap()
    }

    /// Deliveries go there from now on; empty: they are lost.
    pub(super) fn deliver_to(&self, server: &str) {
        self.look().deliver_to = if server.is_empty() { String::new() } else { format!("{server}/events") };
    }

    /// Opens a pull request that writes this file; its number.
    pub(super) async fn open(&self, branch: &str, file: (&str, &str)) -> u64 {
        self.open_with(branch, file, |_| {}).await
    }

    pub(super) async fn open_with(&self, branch: &str, file: (&str, &str), change: impl FnOnce(&mut KeptPull)) -> u64 {
        let repo = self.repo();
        let base = repo.tip("main").await.unwrap();
        let head = repo.push(branch, &[(file.0, Some(file.1))]).await.unwrap();
        let mut pull = KeptPull {
            title: format!("Change by {branch}"),
            branch: branch.to_owned(),
            author: "ann".to_owned(),
            status: "active",
            draft: false,
            fork: false,
            iterations: vec![(head.clone(), Timestamp::now(), "ann".to_owned())],
            head,
            base,
            created: Timestamp::now(),
            closed: None,
            merged: None,
            threads: Vec::new(),
            statuses: Vec::new(),
            reviewers: Vec::new(),
        };
        change(&mut pull);
        let number = {
            let mut state = self.look();
            state.pulls.push(pull);
            state.pulls.len() as u64
        };
        self.tell("git.pullrequest.created", number, None).await;
        number
    }

    pub(super) async fn push(&self, number: u64, file: (&str, &str)) {
        self.push_as("ann", number, file).await;
    }

    pub(super) async fn push_as(&self, who: &str, number: u64, file: (&str, &str)) {
        let (repo, branch) = (self.repo(), self.pull(number).branch);
        let head = repo.push(&branch, &[(file.0, Some(file.1))]).await.unwrap();
        self.change(number, |pull| {
            pull.iterations.push((head.clone(), Timestamp::now(), who.to_owned()));
            pull.head = head;
        })
        .await;
    }

    pub(super) async fn close(&self, number: u64) {
        self.change(number, |pull| (pull.status, pull.closed) = ("abandoned", Some(Timestamp::now()))).await;
    }

    pub(super) async fn reopen(&self, number: u64) {
        self.change(number, |pull| (pull.status, pull.closed) = ("active", None)).await;
    }

    /// Somebody completes it: events of two kinds tell of it.
    pub(super) async fn merge(&self, number: u64) {
        let merged = self.repo().merge_branch(&self.pull(number).branch).await.unwrap();
        self.look().kept(number).complete(merged);
        self.tell_completed(number).await;
    }

    pub(super) async fn tell_completed(&self, number: u64) {
        self.tell("git.pullrequest.updated", number, None).await;
        self.tell("git.pullrequest.merged", number, None).await;
    }

    /// A person's vote, which a thread of the host tells of.
    pub(super) async fn vote(&self, number: u64, who: &str, vote: i64) {
        let now = Timestamp::now().to_string();
        self.change(number, |pull| {
            pull.reviewers.retain(|voter| voter["id"] != id(who));
            pull.reviewers.push(json!({"id": id(who), "uniqueName": format!("{who}{DOMAIN}"), "vote": vote}));
            pull.threads.push(json!({
                "id": 900_000 + pull.threads.len(), "publishedDate": now, "isDeleted": false,
                "comments": [{"id": 1, "commentType": "system", "content": format!("{who} voted {vote}"), "publishedDate": now,
                    "author": person(who)}],
                "properties": {
                    "CodeReviewThreadType": {"$type": "System.String", "$value": "VoteUpdate"},
                    "CodeReviewVoteResult": {"$type": "System.String", "$value": vote.to_string()},
                    "CodeReviewVotedByIdentity": {"$type": "System.String", "$value": "1"},
                },
                "identities": {"1": person(who)},
            }));
        })
        .await;
    }

    pub(super) async fn change(&self, number: u64, change: impl FnOnce(&mut KeptPull)) {
        change(self.look().kept(number));
        self.tell("git.pullrequest.updated", number, None).await;
    }

    /// A comment in a thread of its own.
    pub(super) async fn say(&self, number: u64, who: &str, text: &str) {
        let thread = self.look().put(number, who, text);
        let comment = self.comment(number, thread);
        self.tell("ms.vss-code.git-pullrequest-comment-event", number, Some(comment)).await;
    }

    /// The person changes the text of their latest comment, long after it was written.
    pub(super) async fn edit(&self, number: u64, text: &str) {
        let thread = {
            let mut state = self.look();
            let thread = state.kept(number).threads.last_mut().unwrap();
            thread["comments"][0]["content"] = json!(text);
            thread["comments"][0]["lastContentUpdatedDate"] = json!("2099-01-01T00:00:00Z");
            thread["id"].as_u64().unwrap()
        };
        let comment = self.comment(number, thread);
        self.tell("ms.vss-code.git-pullrequest-comment-event", number, Some(comment)).await;
    }

    fn comment(&self, number: u64, thread: u64) -> Value {
        let pull = self.pull(number);
        let found = pull.threads.iter().find(|one| one["id"] == thread).unwrap();
        let mut comment = found["comments"][0].clone();
        let at =
            format!("{}/{COLLECTION}/_apis/git/repositories/c2c2/pullRequests/{number}/threads/{thread}", self.base());
        comment["_links"] = json!({"self": {"href": format!("{at}/comments/1")}, "threads": {"href": at}});
        comment
    }

    pub(super) fn pull(&self, number: u64) -> KeptPull {
        self.look().kept(number).clone()
    }

    /// Texts of the server's comments.
    pub(super) fn said(&self, number: u64) -> Vec<String> {
        let threads = self.pull(number).threads;
        let comments = threads.iter().flat_map(|thread| thread["comments"].as_array().unwrap());
        let ours = comments.filter(|comment| comment["author"]["id"] == id("tidelock"));
        ours.map(|comment| comment["content"].as_str().unwrap().to_owned()).collect()
    }

    /// State of a status on the present head.
    pub(super) fn status(&self, number: u64, genre: &str, name: &str) -> Option<String> {
        let pull = self.pull(number);
        let wanted = json!({"genre": genre, "name": name});
        let of_head = |status: &&Value| status["iterationId"] == pull.iterations.len() && status["context"] == wanted;
        pull.statuses.iter().rfind(of_head).map(|status| status["state"].as_str().unwrap().to_owned())
    }

    /// Sends the latest delivery again.
    pub(super) async fn redeliver(&self) -> u16 {
        let body = self.look().sent.last().cloned().unwrap();
        self.post(&body, HOOK_USER, PASSWORD).await
    }

    /// Sends the latest delivery with this text replaced and another password.
    pub(super) async fn send_forged(&self, text: &str, other: &str) -> u16 {
        let body = self.look().sent.last().cloned().unwrap();
        assert!(body.contains(text), "{body}");
        self.post(&body.replace(text, other), HOOK_USER, "a guess").await
    }

    /// Sends a delivery, if anybody listens.
    async fn tell(&self, event: &str, number: u64, comment: Option<Value>) {
        let pull = super::wire::described(self, number);
        let (body, is_heard) = {
            let mut state = self.look();
            state.events += 1;
            let resource = match comment {
                Some(comment) => json!({"comment": comment, "pullRequest": pull}),
                None => pull,
            };
            let body = json!({
                "subscriptionId": "aaaa", "notificationId": state.events, "id": format!("event-{}", state.events),
                "eventType": event, "publisherId": "tfs", "resource": resource, "resourceVersion": "1.0",
                "resourceContainers": {"collection": {"id": "b1b1", "baseUrl": format!("{}/{COLLECTION}/", self.base())}},
                "createdDate": Timestamp::now().to_string(),
            })
            .to_string();
            state.sent.push(body.clone());
            (body, !state.deliver_to.is_empty())
        };
        if is_heard {
            match self.try_post(&body, HOOK_USER, PASSWORD).await {
                Ok(answer) => {
                    assert!(matches!(answer, 200 | 202), "{event}: {answer}, which puts a subscription on probation")
                }
                Err(error) => assert!(self.look().is_unsteady, "{event}: {error}"),
            }
        }
    }

    /// Posts a delivery; the status of the answer.
    pub(super) async fn post(&self, body: &str, user: &str, password: &str) -> u16 {
        self.try_post(body, user, password).await.unwrap()
    }

    async fn try_post(&self, body: &str, user: &str, password: &str) -> Result<u16, reqwest::Error> {
        let to = self.look().deliver_to.clone();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
        let request = client.post(to).basic_auth(user, Some(password)).header("x-vss-activityid", "9f2c");
        let request = request.header("content-type", "application/json; charset=utf-8");
        request.body(body.to_owned()).send().await.map(|answer| answer.status().as_u16())
    }
}

impl AzureState {
    pub(super) fn kept(&mut self, number: u64) -> &mut KeptPull {
        &mut self.pulls[number as usize - 1]
    }

    /// A new thread with this comment; its number.
    pub(super) fn put(&mut self, number: u64, who: &str, text: &str) -> u64 {
        self.threads += 1;
        let (thread, now) = (self.threads, Timestamp::now().to_string());
        self.kept(number).threads.push(json!({
            "id": thread, "publishedDate": now, "isDeleted": false, "properties": {}, "identities": null,
            "comments": [{
                "id": 1, "parentCommentId": 0, "author": person(who), "content": text, "commentType": "text",
                "publishedDate": now, "lastUpdatedDate": now, "lastContentUpdatedDate": now,
            }],
        }));
        thread
    }
}

impl KeptPull {
    pub(super) fn complete(&mut self, merged: String) {
        (self.status, self.closed, self.merged) = ("completed", Some(Timestamp::now()), Some(merged));
    }
}

/// The host's id of a person.
pub(super) fn id(who: &str) -> String {
    format!("id-of-{who}")
}

/// A person as the host describes one.
pub(super) fn person(who: &str) -> Value {
    json!({"id": id(who), "displayName": who, "uniqueName": format!("{who}{DOMAIN}")})
}

/// A proof of basic auth is the token's.
pub(super) fn is_token(proof: &str) -> bool {
    let decoded =
        proof.strip_prefix("Basic ").and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    decoded.and_then(|bytes| String::from_utf8(bytes).ok()).is_some_and(|text| text.ends_with(&format!(":{TOKEN}")))
}
