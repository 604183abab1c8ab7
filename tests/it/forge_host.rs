//! A host of the test's own beside GitHub: a forge of another kind, with one repository. Each act waits until its deliveries are answered.

use crate::flow::FlowHost;
use crate::support::{Ctx, LIMIT, Setup, client};
use secrecy::ExposeSecret as _;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};

/// Person who opens pull requests.
pub(crate) const AUTHOR: &str = "alice";
/// Address on which nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1/";

/// Properties of a host that the story depends on.
pub(crate) trait ForgeKind: 'static {
    const KIND: HostKind;
    /// Mark in front of the number of a pull request.
    const MARK: char;
    /// Full name of the repository, whose owner begins with `acme`.
    const FULL_NAME: &'static str;
    /// State in which the host refuses a merge, and a part of its reason.
    const REFUSAL: (&'static str, &'static str);
    /// True if authors can approve their own pull requests.
    const AUTHORS_APPROVE: bool;
    /// True if an approval stays until its person takes it back, and cannot be given again before.
    const APPROVALS_STAY: bool = false;
    /// Part of the reason for which approvals stay, if the host lets nobody take back another person's.
    const APPROVALS_STAND: Option<&'static str> = None;
    /// States of statuses that are neither a success nor a failure.
    const WAITING: &'static [&'static str];

    /// Returns the headers of a delivery with this event and a wrong proof.
    fn forged_headers(event: &str) -> Vec<(&'static str, String)>;
}

/// Handle to the host; cheap to clone.
pub(crate) struct ForgeHost<K> {
    pub(crate) forge: Forge,
    /// Address of deliveries; empty if they are lost.
    deliver_to: Arc<Mutex<String>>,
    /// True if deliveries may fail because the server is killed meanwhile.
    is_unsteady: bool,
    _dir: Arc<tempfile::TempDir>,
    /// Runtime of the forge, which starts before the test with its own.
    _runtime: Arc<tokio::runtime::Runtime>,
    _kind: PhantomData<K>,
}

impl<K: ForgeKind> ForgeHost<K> {
    /// Starts a host that answers until the test ends.
    pub(crate) fn start() -> ForgeHost<K> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = ForgeOptions { dir: dir.path().join(K::KIND.name()), port: 0 };
        let forge = runtime.block_on(Forge::start_as(K::KIND, options)).unwrap();
        let (deliver_to, is_unsteady) = Default::default();
        let (_dir, _runtime) = (Arc::new(dir), Arc::new(runtime));
        ForgeHost { forge, deliver_to, is_unsteady, _dir, _runtime, _kind: PhantomData }
    }

    /// Starts one whose deliveries may fail because the server is killed meanwhile, without being switched off.
    pub(crate) fn start_unsteady() -> ForgeHost<K> {
        let host = ForgeHost { is_unsteady: true, ..ForgeHost::start() };
        host.forge.set_webhook_auto_disabling(false);
        host
    }

    /// Returns the flags of a server that has this host besides the forge.
    fn flags(&self) -> Vec<String> {
        let settings = self.forge.server_settings();
        let mut flags: Vec<String> = settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        for (variable, secret) in self.forge.server_secrets() {
            let name = variable.trim_start_matches("TIDELOCK_").to_lowercase().replace('_', "-");
            flags.push(format!("--{name}={}", secret.expose_secret()));
        }
        flags.push(format!("--repo-allowlist=127.0.0.1/acme/*,{}/acme/*", self.hostname()));
        flags
    }

    /// Host name, as in ids of repositories.
    fn hostname(&self) -> String {
        let address = url::Url::parse(self.forge.url()).unwrap();
        address.host_str().unwrap().to_owned()
    }

    pub(crate) fn repo(&self) -> Repo {
        self.forge.repo(K::FULL_NAME)
    }

    pub(crate) fn pull(&self, number: u64) -> Pull {
        self.repo().pull(number)
    }

    /// Directs deliveries to this server from now on; if empty, they are lost.
    fn deliver_to(&self, server: &str) {
        let address = if server.is_empty() { String::new() } else { format!("{server}/events") };
        self.forge.set_webhook(if address.is_empty() { NOWHERE } else { &address });
        *self.deliver_to.lock().unwrap() = address;
    }

    /// Waits until the deliveries are answered. All of the forge's are authentic, and a success is expected for them.
    pub(crate) async fn delivered(&self) {
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
        let is_heard = !self.is_unsteady && !self.deliver_to.lock().unwrap().is_empty();
        let last = self.forge.deliveries().into_iter().rfind(|one| one.done);
        if let Some(last) = last.filter(|_| is_heard) {
            assert_eq!(last.status, Some(200), "{}: {}", last.event, last.answer);
        }
    }

    /// Sends a delivery of the test's own. Returns the status of the answer.
    pub(crate) async fn send(&self, headers: Vec<(&'static str, String)>, body: &str) -> u16 {
        let to = self.deliver_to.lock().unwrap().clone();
        let request = client().post(to).header("content-type", "application/json").body(body.to_owned());
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        request.send().await.unwrap().status().as_u16()
    }
}

impl<K: ForgeKind> FlowHost for ForgeHost<K> {
    const MARK: char = K::MARK;
    const APPROVALS_STAND: Option<&'static str> = K::APPROVALS_STAND;

    fn full_name(&self) -> &'static str {
        K::FULL_NAME
    }

    fn served(&self, setup: Setup) -> Setup {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        setup.flags(&flags)
    }

    async fn connect(&self, ctx: &Ctx) {
        self.forge.create_repo(K::FULL_NAME, &[("main.tf", "# 1\n")]).await.unwrap();
        self.deliver_to(&ctx.server.url());
    }

    fn hear(&self, ctx: &Ctx, heard: bool) {
        self.deliver_to(&if heard { ctx.server.url() } else { String::new() });
    }

    async fn open_one(&self, _: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        let (title, changes) = (format!("Change by {branch}"), [(file.0, Some(file.1))]);
        let opened = self.repo().open_pull(branch, AUTHOR, &title, &changes, OpenOptions::default()).await.unwrap();
        self.delivered().await;
        opened.number()
    }

    async fn push_to(&self, _: &Ctx, number: u64, file: (&str, &str)) {
        self.pull(number).push(&[(file.0, Some(file.1))]).await.unwrap();
        self.delivered().await;
    }

    async fn comment_on(&self, _: &Ctx, number: u64, text: &str) {
        self.pull(number).comment(AUTHOR, text).unwrap();
        self.delivered().await;
    }

    async fn touch(&self, _: &Ctx, number: u64) {
        self.pull(number).comment(AUTHOR, "Looks good.").unwrap();
        self.delivered().await;
    }

    async fn push_to_main(&self, _: &Ctx, file: (&str, &str)) {
        self.repo().push("main", &[(file.0, Some(file.1))]).await.unwrap();
        self.delivered().await;
    }

    async fn close_one(&self, _: &Ctx, number: u64) {
        self.pull(number).close().unwrap();
        self.delivered().await;
    }

    async fn merge_one(&self, _: &Ctx, number: u64) {
        self.pull(number).merge().await.unwrap();
        self.delivered().await;
    }

    async fn vote_on(&self, _: &Ctx, number: u64, who: &str, approves: bool) {
        let pull = self.pull(number);
        if K::APPROVALS_STAY {
            // Fails without an approval of this person.
            pull.vote(who, 0).ok();
        }
        if approves { pull.approve(who) } else { pull.request_changes(who) }.unwrap();
        self.delivered().await;
    }

    async fn approve_as_author(&self, _: &Ctx, number: u64) {
        let approved = self.pull(number).approve(AUTHOR);
        assert_eq!(approved.is_ok(), K::AUTHORS_APPROVE);
        self.delivered().await;
    }

    fn refuse_merge(&self, _: &Ctx, number: u64) -> &'static str {
        let (state, reason) = K::REFUSAL;
        self.pull(number).set_mergeable_state(state).unwrap();
        reason
    }

    fn is_merged(&self, _: &Ctx, number: u64) -> bool {
        self.pull(number).is_merged().unwrap()
    }

    async fn has_branch(&self, _: &Ctx, branch: &str) -> bool {
        self.repo().tip(branch).await.is_ok()
    }

    async fn forged(&self, _: &Ctx, text: &str, other: &str) -> u16 {
        let last = self.forge.deliveries().pop().unwrap();
        assert!(last.body.contains(text), "{}", last.body);
        self.send(K::forged_headers(&last.event), &last.body.replace(text, other)).await
    }

    async fn redeliver_last(&self, _: &Ctx) {
        let last = self.forge.deliveries().pop().unwrap();
        self.forge.redeliver(last.id).unwrap();
        self.delivered().await;
        // There may be later deliveries by now, such as about a comment of the server's.
        let again = self.forge.deliveries().into_iter().rfind(|one| one.done && one.guid == last.guid);
        assert_eq!(again.unwrap().status, Some(200));
    }

    fn answers(&self, _: &Ctx, number: u64) -> Vec<String> {
        self.pull(number).bot_comments().unwrap().into_iter().map(|comment| comment.body).collect()
    }

    fn is_success(&self, _: &Ctx, number: u64, context: &str) -> Option<bool> {
        let state = self.pull(number).statuses().unwrap().remove(context)?.state;
        (!K::WAITING.contains(&state.as_str())).then(|| state == "success")
    }
}
