//! A GitLab of the test's own: a forge of that kind, with one project in a subgroup. Each act waits until its deliveries are answered.

use crate::support::{Ctx, LIMIT};
use secrecy::ExposeSecret as _;
use std::sync::{Arc, Mutex};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};

/// Path of the project.
pub(super) const FULL_NAME: &str = "acme/platform/live";
/// Person who opens merge requests.
pub(super) const AUTHOR: &str = "alice";
/// Address on which nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/";

/// Handle to the host; cheap to clone.
#[derive(Clone)]
pub(crate) struct GitlabFake {
    pub(super) forge: Forge,
    /// Address of deliveries; empty if they are lost.
    deliver_to: Arc<Mutex<String>>,
    /// True if deliveries may fail because the server is killed meanwhile.
    is_unsteady: bool,
    _dir: Arc<tempfile::TempDir>,
    /// Runtime of the forge, which starts before the test with its own.
    _runtime: Arc<tokio::runtime::Runtime>,
}

impl GitlabFake {
    /// Starts a host that answers until the test ends.
    pub(crate) fn start() -> GitlabFake {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = ForgeOptions { dir: dir.path().join("gitlab"), port: 0 };
        let forge = runtime.block_on(Forge::start_as(HostKind::Gitlab, options)).unwrap();
        let (deliver_to, is_unsteady) = Default::default();
        GitlabFake { forge, deliver_to, is_unsteady, _dir: Arc::new(dir), _runtime: Arc::new(runtime) }
    }

    /// Starts one whose deliveries may fail because the server is killed meanwhile, without being switched off.
    pub(crate) fn start_unsteady() -> GitlabFake {
        let fake = GitlabFake { is_unsteady: true, ..GitlabFake::start() };
        fake.forge.set_webhook_auto_disabling(false);
        fake
    }

    /// Returns the flags of a server that has this host besides the forge.
    pub(super) fn flags(&self) -> Vec<String> {
        let settings = self.forge.server_settings();
        let mut flags: Vec<String> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        flags.push(format!("--gitlab-token={}", self.forge.token().expose_secret()));
        flags.push(format!("--gitlab-webhook-secret={}", self.forge.webhook_secret().expose_secret()));
        flags.push(format!("--repo-allowlist=127.0.0.1/acme/*,{}/acme/*", self.hostname()));
        flags
    }

    /// Host name, as in ids of repositories.
    fn hostname(&self) -> String {
        let address = url::Url::parse(self.forge.url()).unwrap();
        address.host_str().unwrap().to_owned()
    }

    pub(super) fn repo(&self) -> Repo {
        self.forge.repo(FULL_NAME)
    }

    pub(super) fn pull(&self, number: u64) -> Pull {
        self.repo().pull(number)
    }

    /// Makes the project, and directs deliveries to the server.
    pub(super) async fn connect(&self, ctx: &Ctx) {
        self.forge.create_repo(FULL_NAME, &[("main.tf", "# 1\n")]).await.unwrap();
        self.deliver_to(&ctx.server.url());
    }

    /// Directs deliveries to this server from now on; if empty, they are lost.
    pub(super) fn deliver_to(&self, server: &str) {
        let address = if server.is_empty() { String::new() } else { format!("{server}/events") };
        self.forge.set_webhook(if address.is_empty() { NOWHERE } else { &address });
        *self.deliver_to.lock().unwrap() = address;
    }

    /// Opens a merge request that writes this file. Returns its number.
    pub(super) async fn open(&self, branch: &str, file: (&str, &str)) -> u64 {
        let (title, changes) = (format!("Change by {branch}"), [(file.0, Some(file.1))]);
        let opened = self.repo().open_pull(branch, AUTHOR, &title, &changes, OpenOptions::default()).await.unwrap();
        self.delivered().await;
        opened.number()
    }

    /// Waits until the deliveries are answered. All of the forge's are authentic, and GitLab expects a success for them.
    pub(super) async fn delivered(&self) {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let is_heard = !self.is_unsteady && !self.deliver_to.lock().unwrap().is_empty();
        let last = self.forge.deliveries().into_iter().rfind(|one| one.done);
        if let Some(last) = last.filter(|_| is_heard) {
            assert_eq!(last.status, Some(200), "{}: {}", last.event, last.answer);
        }
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

    /// Sends the latest delivery with this text replaced and another secret. Returns the status of the answer.
    pub(super) async fn send_forged(&self, text: &str, other: &str) -> u16 {
        let last = self.forge.deliveries().pop().unwrap();
        assert!(last.body.contains(text), "{}", last.body);
        self.send(&last.event, &last.body.replace(text, other), "a guess").await
    }

    /// Sends a delivery with the right secret, as a webhook with a custom template does. Returns the status of the answer.
    pub(super) async fn send_from_template(&self, event: &str, body: &str) -> u16 {
        self.send(event, body, self.forge.webhook_secret().expose_secret()).await
    }

    async fn send(&self, event: &str, body: &str, token: &str) -> u16 {
        let to = self.deliver_to.lock().unwrap().clone();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.post(to).header("content-type", "application/json").header("x-gitlab-event", event);
        let request = request.header("x-gitlab-token", token).body(body.to_owned());
        request.send().await.unwrap().status().as_u16()
    }
}
