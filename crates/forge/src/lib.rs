//! A forge on loopback: the part of a host's API that a pull-request server uses, webhooks, real git over HTTP, and pages of pull
//! requests for the browser. For tests of such a server, and for trying one out without an account anywhere. It speaks as GitHub,
//! Azure DevOps Server, GitLab, Gitea, Bitbucket Cloud or Bitbucket Data Center ([`HostKind`]): state, git, deliveries, faults and pages
//! are the same.
//!
//! Everything but git objects is in memory (`state`). People act through [`Repo`] and [`Pull`] or through the pages; the server
//! under test acts through the REST API, gets webhooks, and fetches with git. [`Forge::fail_next`] makes its requests fail.

mod activity;
mod api;
mod app;
mod azure_devops;
mod bitbucket_cloud;
mod bitbucket_data_center;
mod checks;
mod comments;
mod connection;
mod faults;
mod git;
mod git_http;
mod gitea;
mod gitlab;
mod hooks;
mod issue;
mod kind;
mod lfs;
mod pages;
mod pull;
mod queue;
mod repo;
mod server;
mod shapes;
mod state;
mod statuses;
#[cfg(test)]
mod tests;

pub use activity::{Activity, ActivityKind, Follower};
pub use checks::PostedCheck;
pub use faults::{Fault, Gate};
pub use gitea::BranchProtection;
pub use hooks::Delivery;
pub use issue::Issue;
pub use kind::HostKind;
pub use pull::{Comment, Pull};
pub use repo::{OpenOptions, Repo};
pub use server::Request;
pub use statuses::CommitStatus;

use anyhow::{Context, bail};
use git::GitRepo;
use kind::{random_hex, timestamp};
use secrecy::SecretString;
use state::{RepoState, State};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Login of the account that the server under test uses.
const BOT: &str = "tidelock-bot";

/// People with access to every repository, and their permissions.
const PEOPLE: [(&str, &str); 4] = [("alice", "admin"), ("bob", "write"), ("carol", "write"), ("dave", "read")];

/// Options of a forge.
pub struct ForgeOptions {
    /// Directory for repositories.
    pub dir: PathBuf,
    /// Port; 0: any free one.
    pub port: u16,
}

/// A running forge. Cheap to clone. It stops when the last clone is dropped.
#[derive(Clone)]
pub struct Forge {
    shared: Arc<Shared>,
    /// `None` in handles of the forge's own tasks, which must not keep it running.
    _stop: Option<Arc<DropGuard>>,
}

/// State that the forge's own tasks share. It has no guard, so that they end with the last [`Forge`].
struct Shared {
    kind: HostKind,
    dir: PathBuf,
    url: String,
    webhook_secret: SecretString,
    state: Mutex<State>,
    /// Number of changes of `state`. Waiting tasks watch it.
    changes: watch::Sender<u64>,
    /// Locked while refs of any repository change and the state is updated.
    refs: tokio::sync::Mutex<()>,
    client: reqwest::Client,
    stop: CancellationToken,
}

impl Shared {
    /// Locks the state for reading. The guard must not be held over an await.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes waiting tasks.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let done = act(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        done
    }

    /// Waits until `find` returns something. Fails at the limit.
    async fn wait_for<T>(&self, limit: Duration, find: impl Fn(&State) -> Option<T>) -> anyhow::Result<T> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = find(&self.lock()) {
                    return Ok(found);
                }
                changes.changed().await.context("the forge has stopped")?;
            }
        };
        match tokio::time::timeout(limit, waiting).await {
            Ok(found) => found,
            Err(_) => bail!("nothing like it within {} s", limit.as_secs_f32()),
        }
    }

    /// A handle for the forge's own use.
    fn forge(self: &Arc<Self>) -> Forge {
        Forge { shared: self.clone(), _stop: None }
    }

    /// Returns the git repository of a repository.
    fn git(&self, full_name: &str) -> anyhow::Result<GitRepo> {
        Ok(self.lock().repo(full_name)?.git.clone())
    }
}

impl Forge {
    /// Starts a forge that speaks as GitHub: [`Forge::start_as`].
    pub async fn start(options: ForgeOptions) -> anyhow::Result<Forge> {
        Forge::start_as(HostKind::Github, options).await
    }

    /// Starts a forge on loopback that speaks as this host. Fails when git is missing, too old or has no HTTP server.
    pub async fn start_as(kind: HostKind, options: ForgeOptions) -> anyhow::Result<Forge> {
        git::check_version().await?;
        // Other code of this process may have installed a provider already; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        std::fs::create_dir_all(&options.dir)
            .and_then(|()| options.dir.canonicalize())
            .with_context(|| format!("cannot make {}", options.dir.display()))
            .map(|dir| ForgeOptions { dir, ..options })
            .map(|options| Forge::bind(kind, options))?
            .await
    }

    async fn bind(kind: HostKind, options: ForgeOptions) -> anyhow::Result<Forge> {
        let (hostname, listener) = server::listen(kind.hostname(), options.port)
            .await
            .with_context(|| format!("the sandbox's forge cannot listen on {}:{}", kind.hostname(), options.port))?;
        let stop = CancellationToken::new();
        let mut state = State::default();
        state.kind = kind;
        state.add_user(BOT, random_hex()?);
        for (login, _) in PEOPLE {
            state.add_user(login, random_hex()?);
        }
        let shared = Arc::new(Shared {
            kind,
            dir: options.dir,
            url: format!("http://{hostname}:{}", listener.local_addr()?.port()),
            webhook_secret: random_hex()?.into(),
            state: Mutex::new(state),
            changes: watch::channel(0).0,
            refs: tokio::sync::Mutex::new(()),
            client: client()?,
            stop: stop.clone(),
        });
        tokio::spawn(hooks::deliver_all(shared.clone()));
        if kind == HostKind::Gitea {
            tokio::spawn(gitea::merge_scheduled(shared.clone()));
        }
        if kind == HostKind::BitbucketDataCenter {
            tokio::spawn(bitbucket_data_center::merge_requested(shared.clone()));
        }
        tokio::spawn(server::serve(shared.clone(), listener));
        Ok(Forge { shared, _stop: Some(Arc::new(stop.drop_guard())) })
    }

    /// Address of the forge's pages, without trailing slash.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Directory it was given, absolute; repositories lie in `repos/` below.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// The host that it speaks as.
    pub fn kind(&self) -> HostKind {
        self.shared.kind
    }

    /// The address as a server's setting for the host: `--gh-hostname`, `--azuredevops-hostname`, `--gitlab-hostname`, `--gitea-base-url`,
    /// `--bitbucket-base-url`, `--bitbucket-data-center-base-url`.
    pub fn hostname_setting(&self) -> String {
        format!("{}{}", self.shared.url, self.shared.kind.root())
    }

    /// Login of the account that the server under test uses.
    pub fn bot(&self) -> &'static str {
        BOT
    }

    /// API and git token of that account.
    pub fn token(&self) -> SecretString {
        self.shared.lock().users.get(BOT).map(|user| user.token.clone()).unwrap_or_default().into()
    }

    /// The secret that webhooks are signed with; on Azure DevOps and GitLab they contain it.
    pub fn webhook_secret(&self) -> SecretString {
        self.shared.webhook_secret.clone()
    }

    /// Sends events to this address from now on. On GitHub that begins with a `ping`.
    pub fn set_webhook(&self, url: &str) {
        let shared = &self.shared;
        shared.change(|state| {
            state.webhook = Some(url.to_owned());
            state.gitlab.renew_hook();
            state.renew_gitea_hook();
            state.renew_bitbucket_cloud_hook();
            state.renew_bitbucket_data_center_hook();
            if state.kind == HostKind::Github {
                let payload = shapes::ping(&shared.url, url);
                hooks::emit(state, "ping", None, &payload);
            }
        });
    }

    /// Creates a private repository with one commit on `main`. Its name is `OWNER/NAME`, on Azure DevOps `COLLECTION/PROJECT/NAME`,
    /// on Bitbucket Data Center `PROJECT/slug` or `~user/slug`, and GitLab's owners have any number of parts.
    pub async fn create_repo(&self, full_name: &str, files: &[(&str, &str)]) -> anyhow::Result<Repo> {
        let git = self.empty_repo(full_name).await?;
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, Some(*text))).collect();
        git.commit("main", None, "alice", "Begin", &files).await?;
        self.add_repo(full_name, git)
    }

    /// Creates a private repository whose `main` is the checked-out commit of a git repository on this machine, with its history. That
    /// repository is only read.
    pub async fn import_repo(&self, full_name: &str, from: &Path) -> anyhow::Result<Repo> {
        let from = from.canonicalize().with_context(|| format!("cannot read {}", from.display()))?;
        let git = self.empty_repo(full_name).await?;
        git.import(&from).await.with_context(|| {
            format!("cannot copy {}: name the root of a git repository with a commit", from.display())
        })?;
        self.add_repo(full_name, git)
    }

    async fn empty_repo(&self, full_name: &str) -> anyhow::Result<GitRepo> {
        let (owner, name) = self.shared.kind.owner_and_name(full_name)?;
        let mut place = self.shared.dir.join("repos").join(owner).join(format!("{name}.git"));
        if place.exists() {
            // A repository that has moved keeps its place.
            place.set_file_name(format!("{name}.{}.git", self.shared.lock().new_id()));
        }
        GitRepo::init(&place).await
    }

    fn add_repo(&self, full_name: &str, git: GitRepo) -> anyhow::Result<Repo> {
        let (owner, name) = self.shared.kind.owner_and_name(full_name)?;
        self.shared.change(|state| {
            if state.repos.contains_key(&full_name.to_lowercase()) {
                bail!("{full_name} is there already");
            }
            // The name does not redirect to another repository any more.
            state.moved.remove(&full_name.to_lowercase());
            let id = state.new_id();
            state.repos.insert(full_name.to_lowercase(), RepoState::new(id, owner, name, git, None));
            Ok(())
        })?;
        Ok(self.repo(full_name))
    }

    /// Gives a repository another owner or name. API and git redirect requests for its former name, as the host does. Handles stay valid.
    pub fn transfer(&self, from: &str, to: &str) -> anyhow::Result<()> {
        let (owner, name) = self.shared.kind.owner_and_name(to)?;
        self.shared.change(|state| state.transfer(from, owner, name))
    }

    /// Creates a team of an organization, or replaces it, with these members.
    pub fn set_team(&self, organization: &str, slug: &str, members: &[&str]) {
        let members = members.iter().map(|login| (login.to_lowercase(), true)).collect();
        self.shared.lock().teams.insert(format!("{organization}/{slug}").to_lowercase(), members);
    }

    /// Invites a person to a team, who is no member before accepting.
    pub fn invite(&self, organization: &str, slug: &str, login: &str) {
        let team = format!("{organization}/{slug}").to_lowercase();
        self.shared.lock().teams.entry(team).or_default().insert(login.to_lowercase(), false);
    }

    /// A handle to a repository. Its methods fail if the repository does not exist.
    pub fn repo(&self, full_name: &str) -> Repo {
        Repo { forge: self.clone(), full_name: full_name.to_owned() }
    }

    /// Full names of all repositories.
    pub fn repos(&self) -> Vec<String> {
        self.shared.lock().repos.values().map(RepoState::full_name).collect()
    }

    /// Webhook deliveries so far, oldest first.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.lock().deliveries.iter().cloned().collect()
    }

    /// Sends a delivery again, with the same GUID and body, in a new record.
    pub fn redeliver(&self, id: u64) -> anyhow::Result<()> {
        self.shared.change(|state| hooks::redeliver(state, id)).map(drop)
    }

    /// Holds webhooks back, or sends the held ones in order.
    pub fn pause_webhooks(&self, paused: bool) {
        self.shared.change(|state| state.webhooks_paused = paused);
    }

    /// Waits until every delivery was sent, those that are held back included. Fails at the limit.
    pub async fn wait_for_deliveries(&self, limit: Duration) -> anyhow::Result<()> {
        let done = |state: &State| state.deliveries.iter().all(|d| d.done).then_some(());
        self.shared.wait_for(limit, done).await.context("waiting for webhook deliveries")
    }

    /// Injects a fault into the next `times` API or git requests with this method (`*`: any) and a path that matches the glob. In the glob,
    /// `*` also matches `/`. Faults are used in the order of their injection.
    pub fn fail_next(&self, method: &str, path_glob: &str, fault: Fault, times: usize) -> anyhow::Result<()> {
        self.fail_after(0, method, path_glob, fault, times)
    }

    /// Refuses the next `times` matching requests in the form of the host; status 429 comes with a time to wait, in seconds
    /// (learn.microsoft.com/azure/devops/integrate/concepts/rate-limits, docs.gitlab.com/security/rate_limits), but not on Bitbucket Cloud
    /// (support.atlassian.com/bitbucket-cloud/docs/api-request-limits).
    pub fn refuse_next(&self, method: &str, path_glob: &str, status: u16, times: usize) -> anyhow::Result<()> {
        let body = match self.shared.kind {
            HostKind::AzureDevOps => azure_devops::fault(status),
            HostKind::BitbucketCloud => bitbucket_cloud::fault(status),
            HostKind::BitbucketDataCenter => bitbucket_data_center::fault(status),
            HostKind::Github | HostKind::Gitlab | HostKind::Gitea => {
                serde_json::json!({"message": format!("{status} a fault of the test")})
            }
        };
        let has_wait = status == 429 && self.shared.kind != HostKind::BitbucketCloud;
        let headers = if has_wait { vec![("Retry-After".to_owned(), "1".to_owned())] } else { Vec::new() };
        self.fail_next(method, path_glob, Fault::Status(status, body.to_string(), headers), times)
    }

    /// Does the same after so many matching requests without the fault.
    pub fn fail_after(
        &self,
        passed: usize,
        method: &str,
        path_glob: &str,
        fault: Fault,
        times: usize,
    ) -> anyhow::Result<()> {
        let planned = faults::Planned::new(method, path_glob, fault, (passed, times))?;
        self.shared.change(|state| state.faults.push(planned));
        Ok(())
    }

    /// Removes the faults that have not been used.
    pub fn clear_faults(&self) {
        self.shared.change(|state| state.faults.clear());
    }

    /// Moves the time in the API's answers ahead by this much.
    pub fn set_clock_ahead(&self, by: jiff::SignedDuration) {
        self.shared.change(|state| state.clock_ahead = by);
    }

    /// API and git requests so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.iter().cloned().collect()
    }

    /// A person's user name and token for git and the API. An unknown login gets an account without access to any repository.
    pub fn credentials(&self, login: &str) -> anyhow::Result<(String, SecretString)> {
        let fresh = random_hex()?;
        Ok(self.shared.change(|state| {
            let user = state.add_user(login, fresh);
            (user.login.clone(), user.token.clone().into())
        }))
    }
}

/// Creates the client that delivers webhooks. It accepts any certificate, like a webhook without "SSL verification": nobody intercepts
/// traffic on loopback.
fn client() -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    client.tls_danger_accept_invalid_certs(true).build()
}
