//! `tidelock server`: settings to services, listen first, then open the state, then lead; and the orderly end.

use super::{data_dir, logging};
use crate::checkout::Checkouts;
use crate::comment::Names;
use crate::config::global::GlobalConfig;
use crate::dispatch::{Allowlist, Handle};
use crate::execute::{Admission, Context, DirectoryLocks};
use crate::process::Redactor;
use crate::reply::outbox::Outbox;
use crate::reply::render::RenderOptions;
use crate::reply::statuses::Statuses;
use crate::settings::{GithubSettings, GithubToken, Settings, SettingsError};
use crate::store::Store;
use crate::store::logs::Logs;
use crate::terraform::install::{InstallSettings, Installer};
use crate::vcs::github::{Github, GithubOptions};
use crate::vcs::{Host, TokenSource};
use crate::web::access::Access;
use crate::web::{self, Ready, WebState};
use crate::webhook::Secrets;
use anyhow::{Context as _, Result, anyhow};
use jiff::Timestamp;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// For commands to end at a shutdown; Cloud Run kills ten seconds after SIGTERM.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
/// Jobs of all pull requests together: this many times one command's pool, at least [`ADMISSION_MIN`].
const ADMISSION_POOLS: usize = 4;
const ADMISSION_MIN: usize = 16;
/// Between two sweeps of what retention allows to go.
const PRUNE_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Runs `tidelock server` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let settings = match Settings::from_process(args) {
        Ok(settings) => settings,
        Err(SettingsError::Help(text)) => return super::say(&text, true),
        Err(SettingsError::Invalid(text)) => return super::say(&format!("tidelock: {text}\n"), false),
    };
    logging::start(&settings.log_level, logging::To::Stdout);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return super::say(&format!("tidelock: no threads: {error}\n"), false),
    };
    let code = match runtime.block_on(until_signal(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            super::say(&format!("tidelock: {error:#}\n"), false)
        }
    };
    // Nothing that still waits, such as an open page, may keep the process.
    runtime.shutdown_background();
    code
}

async fn until_signal(settings: Settings) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let server = Server::start(settings).await?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "stopping");
    server.stop().await
}

/// A running server.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    dispatch: Handle,
    store: Store,
}

impl Server {
    /// Listens, opens the state, takes up what was unfinished.
    pub async fn start(settings: Settings) -> Result<Server> {
        crate::process::harden_self()?;
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let global = match &settings.repo_config {
            Some((origin, text)) => GlobalConfig::parse(text, origin)?,
            None => GlobalConfig::without_file(),
        };
        let github = settings
            .github
            .as_ref()
            .ok_or_else(|| anyhow!("no VCS host is configured: set --gh-user and --gh-token"))?;
        let host: Arc<dyn Host> = Arc::new(github_host(github));
        let (ready, watching) = watch::channel(None);
        let address = listen(&settings, github, watching).await?;
        tracing::info!(%address, role = "restoring", version = env!("CARGO_PKG_VERSION"), "listening");
        let (data_dir, user) = (settings.data_dir.clone(), settings.run_as_user);
        let store = tokio::task::spawn_blocking(move || {
            data_dir::prepare(&data_dir, user)?;
            Store::open(&data_dir)
        })
        .await??;
        let logs = Logs::new(&settings.data_dir);
        let outbox = Outbox::start(store.clone(), vec![Arc::clone(&host)]).await?;
        let names = names(&settings, host.bot_login());
        let allowlist = Allowlist::new(&settings.repo_allowlist);
        let ctx = context(settings, global, store.clone(), logs.clone(), host, outbox)?;
        let dispatch = Handle::start(ctx, names, allowlist).await?;
        tokio::spawn(prune(store.clone(), logs.clone()));
        let _ = ready.send(Some(Arc::new(Ready { store: store.clone(), logs, dispatch: dispatch.clone() })));
        tracing::info!(role = "leading", "ready");
        Ok(Server { address, dispatch, store })
    }

    /// Plans go back into the queue, applies are interrupted and told, everything recorded is kept.
    pub async fn stop(&self) -> Result<()> {
        self.dispatch.drain(DRAIN_LIMIT).await;
        self.store.close().await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The port opens before anything slow happens: a platform that probes it sees a live process at once.
async fn listen(
    settings: &Settings,
    github: &GithubSettings,
    ready: watch::Receiver<Option<Arc<Ready>>>,
) -> Result<SocketAddr> {
    let wanted = SocketAddr::new(settings.bind, settings.port);
    let listener =
        TcpListener::bind(wanted).await.with_context(|| format!("cannot listen on {wanted} (--bind, --port)"))?;
    let address = listener.local_addr()?;
    let state = WebState {
        secrets: Secrets { github: github.webhook_secret.clone(), github_hostname: github.hostname.clone() },
        ready,
        access: Access { basic_auth: settings.web_basic_auth.clone(), open: settings.allow_unauthenticated_pages },
        url: settings.atlantis_url.clone(),
        api_secret: settings.api_secret.clone(),
        disable_global_apply_lock: settings.disable_global_apply_lock,
        apply_allowed: settings.allow_commands.contains(&crate::domain::command::CommandName::Apply),
        executable_name: settings.executable_names.first().cloned().unwrap_or_default(),
    };
    let service = web::router(Arc::new(state)).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move {
        use axum::serve::ListenerExt;
        let listener = listener.tap_io(|stream| {
            // Small answers go out at once.
            let _ = stream.set_nodelay(true);
        });
        if let Err(error) = axum::serve(listener, service).await {
            tracing::error!("the listener ended: {error}");
        }
    });
    Ok(address)
}

fn github_host(github: &GithubSettings) -> Github {
    let token = match &github.token {
        GithubToken::Value(token) => TokenSource::Value(token.clone()),
        GithubToken::File(path) => TokenSource::File(path.clone()),
    };
    let options = GithubOptions {
        hostname: github.hostname.clone(),
        api_url: github.api_url.clone(),
        user: github.user.clone(),
        token,
    };
    Github::new(options)
}

fn names(settings: &Settings, bot_login: &str) -> Names {
    Names {
        executables: settings.executable_names.clone(),
        is_default: settings.executable_names.len() > 1,
        bot_login: bot_login.to_owned(),
        allowed: settings.allow_commands.clone(),
        blocked_extra_args: settings.blocked_extra_args.clone(),
        apply_disabled: !settings.allow_commands.contains(&crate::domain::command::CommandName::Apply),
    }
}

fn context(
    settings: Settings,
    global: GlobalConfig,
    store: Store,
    logs: Logs,
    host: Arc<dyn Host>,
    outbox: Outbox,
) -> Result<Context> {
    let redactor = Redactor::new(settings.secrets.clone());
    let path = settings.child_env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let installer = Installer::new(InstallSettings {
        data_dir: settings.data_dir.clone(),
        download: settings.tf_download,
        terraform_url: settings.tf_download_url.clone(),
        opentofu_url: settings.tofu_download_url.clone(),
        allow_unsigned: settings.tf_download_allow_unsigned,
        default_version: settings.default_tf_version.clone(),
        default_distribution: settings.default_tf_distribution,
        path: path.unwrap_or_default(),
        redactor: redactor.clone(),
        keys: None,
    });
    let apply_allowed = settings.allow_commands.contains(&crate::domain::command::CommandName::Apply);
    let rendering = RenderOptions {
        executable: settings.executable_names.first().cloned().unwrap_or_else(|| "atlantis".into()),
        url: settings.atlantis_url.clone(),
        comment_limit: host.comment_limit(),
        max_comments: settings.max_comments_per_command,
        disable_folding: settings.disable_markdown_folding,
        diff_format: settings.enable_diff_markdown_format,
        hide_unchanged: settings.hide_unchanged_plan_comments,
        offer_apply: apply_allowed,
        offer_apply_all: apply_allowed && !settings.disable_apply_all,
        locking: !settings.disable_repo_locking,
        now: Timestamp::now(),
    };
    let pool = settings.parallel_pool_size.saturating_mul(ADMISSION_POOLS).max(ADMISSION_MIN);
    let mut checkouts =
        Checkouts::new(&settings.data_dir, settings.checkout_strategy, redactor.clone(), settings.child_env.clone())?;
    checkouts.sparse = settings.sparse_checkout;
    checkouts.owner = settings.run_as_user;
    Ok(Context {
        checkouts,
        statuses: Statuses { prefix: settings.vcs_status_name.clone(), url: settings.atlantis_url.clone() },
        admission: Admission::new(pool),
        directories: DirectoryLocks::default(),
        doubts: crate::execute::state_locks::Doubts::default(),
        settings,
        global,
        store,
        logs,
        host,
        installer,
        outbox,
        rendering,
        redactor,
    })
}

/// Now and then drops what retention allows.
async fn prune(store: Store, logs: Logs) {
    loop {
        tokio::time::sleep(PRUNE_INTERVAL).await;
        match store.write(|tx| tx.prune(Timestamp::now())).await {
            Ok(jobs) => jobs.iter().for_each(|job| logs.remove(job)),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "old records could not be dropped"),
        }
    }
}
