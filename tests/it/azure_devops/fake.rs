//! An Azure DevOps Server of the test's own: a forge of that kind, with one repository in a project whose name has a space. Each act waits
//! until its deliveries are answered.

use crate::support::{Ctx, LIMIT};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};

/// Name as people write it.
const NAME: &str = "DefaultCollection/Cloud Infra/live";
/// Prefix of our ids.
pub(super) const FULL_NAME: &str = "defaultcollection/Cloud Infra/live";
/// Project with forks.
const ELSEWHERE: &str = "DefaultCollection/Elsewhere";
pub(super) const HOOK_USER: &str = "hooks";
pub(super) const BOT: &str = "tidelock-bot@example.com";
/// Address on which nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/";

/// Handle to the host; cheap to clone.
#[derive(Clone)]
pub(crate) struct AzureDevOpsFake {
    pub(crate) forge: Forge,
    /// Address of deliveries; empty if they are lost.
    deliver_to: Arc<Mutex<String>>,
    /// True if deliveries may fail because the server is killed meanwhile.
    is_unsteady: bool,
    _dir: Arc<tempfile::TempDir>,
    /// Runtime of the forge, which starts before the test with its own.
    _runtime: Arc<tokio::runtime::Runtime>,
}

impl AzureDevOpsFake {
    /// Starts a host that answers until the test ends.
    pub(crate) fn start() -> AzureDevOpsFake {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = ForgeOptions { dir: dir.path().join("azure"), port: 0 };
        let forge = runtime.block_on(Forge::start_as(HostKind::AzureDevOps, options)).unwrap();
        let (deliver_to, is_unsteady) = Default::default();
        AzureDevOpsFake { forge, deliver_to, is_unsteady, _dir: Arc::new(dir), _runtime: Arc::new(runtime) }
    }

    /// Starts one whose deliveries may fail because the server is killed meanwhile.
    pub(crate) fn start_unsteady() -> AzureDevOpsFake {
        AzureDevOpsFake { is_unsteady: true, ..AzureDevOpsFake::start() }
    }

    /// Returns the flags of a server that has this host besides the forge.
    pub(super) fn flags(&self) -> Vec<String> {
        let settings = self.forge.server_settings();
        let mut flags: Vec<String> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        flags.push(format!("--azuredevops-token={}", self.forge.token().expose_secret()));
        flags.push(format!("--azuredevops-webhook-password={}", self.password().expose_secret()));
        flags
    }

    pub(super) fn password(&self) -> SecretString {
        self.forge.webhook_secret()
    }

    pub(super) fn repo(&self) -> Repo {
        self.forge.repo(NAME)
    }

    pub(crate) fn pull(&self, number: u64) -> Pull {
        self.repo().pull(number)
    }

    /// Makes the repository, and directs deliveries to the server.
    pub(super) async fn connect(&self, ctx: &Ctx) {
        self.forge.create_repo(NAME, &[("main.tf", "# 1\n")]).await.unwrap();
        self.deliver_to(&ctx.server.url());
    }

    /// Directs deliveries to this server from now on; if empty, they are lost.
    pub(super) fn deliver_to(&self, server: &str) {
        let address = if server.is_empty() { String::new() } else { format!("{server}/events") };
        self.forge.set_webhook(if address.is_empty() { NOWHERE } else { &address });
        *self.deliver_to.lock().unwrap() = address;
    }

    /// Opens a pull request that writes this file. Returns its number.
    pub(super) async fn open(&self, branch: &str, file: (&str, &str)) -> u64 {
        self.open_with(branch, file, OpenOptions::default()).await
    }

    pub(super) async fn open_with(&self, branch: &str, file: (&str, &str), options: OpenOptions) -> u64 {
        self.open_titled(&format!("Change by {branch}"), branch, file, options).await
    }

    pub(super) async fn open_titled(&self, title: &str, branch: &str, file: (&str, &str), options: OpenOptions) -> u64 {
        let changes = [(file.0, Some(file.1))];
        let pull = self.repo().open_pull(branch, "ann", title, &changes, options).await.unwrap();
        self.delivered().await;
        pull.number()
    }

    /// Opens a pull request from a fork in another project.
    pub(super) async fn open_from_fork(&self, branch: &str, file: (&str, &str)) -> u64 {
        self.open_with(branch, file, OpenOptions { fork: Some(ELSEWHERE.to_owned()), ..OpenOptions::default() }).await
    }

    pub(super) async fn push(&self, number: u64, file: (&str, &str)) {
        self.push_as("ann", number, file).await;
    }

    pub(super) async fn push_as(&self, who: &str, number: u64, file: (&str, &str)) {
        self.pull(number).push_as(who, "Change it", &[(file.0, Some(file.1))]).await.unwrap();
        self.delivered().await;
    }

    pub(super) async fn close(&self, number: u64) {
        self.pull(number).close().unwrap();
        self.delivered().await;
    }

    pub(super) async fn reopen(&self, number: u64) {
        self.pull(number).reopen().unwrap();
        self.delivered().await;
    }

    pub(super) async fn ready(&self, number: u64) {
        self.pull(number).ready().unwrap();
        self.delivered().await;
    }

    /// Completes it, which causes events of two kinds.
    pub(super) async fn merge(&self, number: u64) {
        self.pull(number).merge().await.unwrap();
        self.delivered().await;
    }

    /// Votes as a person; the host adds a thread about that.
    pub(super) async fn vote(&self, number: u64, who: &str, vote: i64) {
        self.pull(number).vote(who, vote).unwrap();
        self.delivered().await;
    }

    /// Comments in a new thread. Returns the comment's id.
    pub(super) async fn say(&self, number: u64, who: &str, text: &str) -> u64 {
        let id = self.pull(number).comment(who, text).unwrap();
        self.delivered().await;
        id
    }

    /// Changes the text of a comment as its author.
    pub(super) async fn edit(&self, number: u64, who: &str, comment: u64, text: &str) {
        self.pull(number).edit_comment(who, comment, text).unwrap();
        self.delivered().await;
    }

    /// Returns the texts of the server's comments.
    pub(super) fn comment_texts(&self, number: u64) -> Vec<String> {
        self.pull(number).bot_comments().unwrap().into_iter().map(|comment| comment.body).collect()
    }

    /// Returns the state of a status on the present head: `pending`, `success`, `failure` or `error`.
    pub(super) fn status(&self, number: u64, genre: &str, name: &str) -> Option<String> {
        self.pull(number).statuses().unwrap().remove(&format!("{genre}/{name}")).map(|status| status.state)
    }

    pub(super) fn set_policies(&self, evaluations: &[Value]) {
        self.forge.set_policy_evaluations(evaluations.to_vec());
    }

    /// Refuses the next matching requests with these statuses, one each.
    pub(super) fn refuse(&self, refusals: &[(&str, &str, u16)]) {
        for (method, path_glob, status) in refusals {
            self.forge.refuse_next(method, path_glob, *status, 1).unwrap();
        }
    }

    /// Refuses every request of the API and of git from now on, or none any more.
    pub(super) fn is_down(&self, down: bool) {
        self.forge.clear_faults();
        if down {
            self.forge.refuse_next("*", "*", 503, usize::MAX).unwrap();
        }
    }

    /// Returns the paths of all requests so far, with their methods.
    pub(super) fn requests(&self) -> Vec<String> {
        self.forge.requests().iter().map(|request| format!("{} {}", request.method, request.path)).collect()
    }

    /// Sends the latest delivery again. Returns the status of the answer.
    pub(super) async fn redeliver(&self) -> u16 {
        let last = self.forge.deliveries().pop().unwrap();
        self.forge.redeliver(last.id).unwrap();
        self.delivered().await;
        // There may be later deliveries by now, such as about a comment of the server's.
        let again = self.forge.deliveries().into_iter().rfind(|one| one.done && one.guid == last.guid);
        again.unwrap().status.unwrap()
    }

    /// Sends the latest delivery with this text replaced and another password. Returns the status of the answer.
    pub(super) async fn send_forged(&self, text: &str, other: &str) -> u16 {
        let body = self.forge.deliveries().pop().unwrap().body;
        assert!(body.contains(text), "{body}");
        self.post(&body.replace(text, other), HOOK_USER, "a guess").await
    }

    /// Waits until the deliveries are answered. An answer that is no success puts a subscription on probation.
    async fn delivered(&self) {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let is_heard = !self.is_unsteady && !self.deliver_to.lock().unwrap().is_empty();
        // Deliveries that the server has caused meanwhile may still be on their way.
        let last = self.forge.deliveries().into_iter().rfind(|one| one.done);
        if let Some(last) = last.filter(|_| is_heard) {
            assert!(matches!(last.status, Some(200 | 202)), "{}: {:?} {}", last.event, last.status, last.answer);
        }
    }

    /// Posts a delivery. Returns the status of the answer.
    pub(super) async fn post(&self, body: &str, user: &str, password: &str) -> u16 {
        let to = self.deliver_to.lock().unwrap().clone();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
        let request = client.post(to).basic_auth(user, Some(password)).header("x-vss-activityid", "9f2c");
        let request = request.header("content-type", "application/json; charset=utf-8");
        request.body(body.to_owned()).send().await.unwrap().status().as_u16()
    }
}
