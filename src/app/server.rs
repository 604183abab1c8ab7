//! `tidelock server`: listens first, then plays the roles (`roles`) until it is told to end, or until the state cannot be used.

use super::hosts::{self, JoinedHost};
use super::https::{self, Certificate};
use super::reload::{Reloader, stamps};
use super::roles::Roles;
use super::services::Parts;
use super::sleep::wake_queue;
use super::{access, bucket, data_dir, heartbeat, logging};
use crate::config::metrics::StatsdAddress;
use crate::domain::command::CommandName;
use crate::meters::WorkMeters;
use crate::process::Protection;
use crate::server_status::{Meters, Role, ServerStatus};
use crate::settings::{Settings, SettingsError};
use crate::vault::Vault;
use crate::wake::Attention;
use crate::web::access::AccessRules;
use crate::web::connections::{self, Connections, Peers};
use crate::web::metrics::{GaugeCache, MetricsSource, statsd};
use crate::web::{self, WebState};
use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time limit of responses that are being written when the port closes.
const CLOSING_LIMIT: Duration = Duration::from_millis(200);
/// Time that the last traces may take at a shutdown.
const TRACES_LIMIT: Duration = Duration::from_millis(500);
/// Time that the threads of the runtime may take to end with the process. Without any, they are detached while they end, and `pthread_detach`
/// of glibc 2.36 may read the descriptor of a thread that is gone: the process ends with SIGSEGV.
pub(super) const THREADS_LIMIT: Duration = Duration::from_millis(300);
/// Stack of each thread, in bytes: without optimization, code that reads a Job or a pod needs more than the usual 2 MiB. Memory is taken
/// only as it is used.
pub(super) const STACK: usize = 8 << 20;

/// Runs `tidelock server` with the arguments after its name.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let settings = match Settings::from_process(args) {
        Ok(settings) => settings,
        Err(SettingsError::Help(text)) => return super::say(&text),
        Err(SettingsError::Invalid(text)) => {
            return super::misused(&format!(
                "tidelock: {text}\n\n`tidelock help server` lists what most servers need.\n"
            ));
        }
    };
    let to = match &settings.cloud_logging {
        Some(project) => logging::To::Cloud(project.clone()),
        None => logging::To::Stdout,
    };
    logging::start(&settings.log_level, to);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK).build() {
        Ok(runtime) => runtime,
        Err(error) => return super::fail(&format!("tidelock: no threads: {error}\n")),
    };
    let code = match runtime.block_on(until_signal(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Logged only once: log collectors read both streams.
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    // A blocked thread must not keep the process alive.
    runtime.shutdown_timeout(THREADS_LIMIT);
    code
}

async fn until_signal(settings: Settings) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?;
    if let Err(error) = crate::process::adopt_orphans() {
        tracing::warn!(
            error = format!("{error:#}"),
            "processes that steps leave behind in a session of their own keep running"
        );
    }
    let server = Server::start(settings).await?;
    let name = loop {
        tokio::select! {
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
            Some(()) = hangup.recv() => server.reload(),
            ended = server.ended() => return ended,
        }
    };
    tracing::info!(signal = name, "stopping");
    server.stop().await
}

/// A running server.
pub struct Server {
    /// Address that it listens on.
    pub address: SocketAddr,
    server_status: watch::Receiver<Arc<ServerStatus>>,
    /// Absent where the server only accepts deliveries.
    reloader: Option<Arc<Reloader>>,
    stop: CancellationToken,
    listener: Listener,
    ended: watch::Receiver<Option<Result<(), String>>>,
}

impl Server {
    /// Listens, and begins as a standby: it accepts deliveries from now on, and leads as soon as it may.
    pub async fn start(settings: Settings) -> Result<Server> {
        Server::start_with(settings, &[]).await
    }

    /// Starts like [`Server::start`], with additional hosts that no settings name.
    pub async fn start_with(settings: Settings, more: &[JoinedHost]) -> Result<Server> {
        crate::process::harden_self()?;
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let settings = Arc::new(settings);
        let files = stamps(&settings);
        let certificate = settings.https.as_ref().map(Certificate::load).transpose()?;
        let joined = hosts::join(&settings, more)?;
        let parts = match settings.access.events_only {
            true => None,
            false => Some(Arc::new(Parts::new(Arc::clone(&settings), &joined)?)),
        };
        if let Some(parts) = &parts {
            say_protection(&parts.protection, &settings);
            parts.make_room().await;
        }
        let prepared = Arc::clone(&settings);
        tokio::task::spawn_blocking(move || data_dir::prepare(&prepared.data_dir, prepared.run_as_user)).await??;
        let vault = bucket::vault(&settings).await?;
        let meters = Arc::new(Meters::default());
        let (telling, server_status) = watch::channel(Arc::new(ServerStatus::starting()));
        let stop = CancellationToken::new();
        let rules = access::rules(&settings)?;
        access::keep_fresh(&rules, stop.clone());
        let metrics = parts.as_ref().map(|parts| parts.now().global.metrics.clone()).unwrap_or_default();
        let attention = Attention::new(wake_queue(&settings.sleep));
        let (status, figures, awake) = (server_status.clone(), Arc::clone(&meters), Arc::clone(&attention));
        let mut web = web_state(&settings, &joined, rules, status, figures, vault.clone(), awake);
        web.protection = parts.as_ref().map(|parts| parts.protection.to_string());
        web.metrics.path = metrics_path(&web, metrics.endpoint)?;
        let reloader = parts
            .as_ref()
            .map(|parts| Reloader::new(Arc::clone(parts), files, vault.fingerprint.clone(), server_status.clone()));
        if let (Some(parts), Some(reloader)) = (&parts, &reloader) {
            web.metrics.work = Arc::clone(&parts.work);
            web.configuration = Some(reloader.status());
            tokio::spawn(Arc::clone(reloader).run(stop.clone()));
        }
        let web = Arc::new(web);
        if let Some(StatsdAddress { host, port }) = metrics.statsd {
            tokio::spawn(statsd::send(Arc::clone(&web), host, port, stop.clone()));
        }
        let (address, listener) = listen(&settings, certificate, web).await?;
        let location = vault.bucket.location().to_owned();
        tracing::info!(%address, bucket = location, version = env!("CARGO_PKG_VERSION"), "listening");
        let (tell_end, ended) = watch::channel(None);
        let traces = parts.as_ref().map(|parts| parts.traces.clone()).unwrap_or_default();
        tokio::spawn(heartbeat::beat(server_status.clone(), Arc::clone(&meters), heartbeat::INTERVAL));
        let (told, reloads) = (stop.clone(), reloader.clone());
        tokio::spawn(async move {
            let played = match parts.zip(reloads) {
                Some((parts, reloader)) => {
                    let (server_status, stop) = (telling, told);
                    let (kept, swept) = (Mutex::default(), Mutex::default());
                    Roles { parts, reloader, vault, meters, server_status, attention, kept, swept, stop }.play().await
                }
                // It accepts deliveries and never reads the lease; its status stays that of the start.
                None => {
                    told.cancelled().await;
                    drop(telling);
                    Ok(())
                }
            };
            traces.flush(TRACES_LIMIT).await;
            tell_end.send_replace(Some(played.map_err(|error| format!("{error:#}"))));
        });
        Ok(Server { address, server_status, reloader, stop, listener, ended })
    }

    /// Has the configuration read again at once, as SIGHUP does. Its result is in the log and on `/status`.
    pub fn reload(&self) {
        match &self.reloader {
            Some(reloader) => reloader.ask(),
            None => tracing::info!("SIGHUP: a server with --events-only reads its settings only at its start"),
        }
    }

    /// Waits until it leads; an error if it ends before.
    pub async fn leads(&self) -> Result<()> {
        let mut server_status = self.server_status.clone();
        tokio::select! {
            leads = server_status.wait_for(|server_status| server_status.role == Role::Leading) => leads.map(drop).context("it has ended"),
            ended = self.ended() => bail!(ended.err().unwrap_or_else(|| anyhow!("it has ended"))),
        }
    }

    /// Waits until it has ended, by itself (an error if the state cannot be used) or because it was told to.
    pub async fn ended(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.context("the server broke off; its log says why")?;
        match &*ended {
            Some(Err(error)) => Err(anyhow!("{error}")),
            _ => Ok(()),
        }
    }

    /// Stops the server in order: requeues plans, interrupts applies and reports them, commits everything recorded, and releases the
    /// lead.
    pub async fn stop(&self) -> Result<()> {
        self.stop.cancel();
        self.ended().await?;
        self.listener.close().await;
        tracing::info!("stopped");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        self.listener.closing.cancel();
    }
}

/// The open port.
struct Listener {
    closing: CancellationToken,
    task: TaskTracker,
}

impl Listener {
    /// Accepts no new connections and no further requests on open ones. Responses being written may end within [`CLOSING_LIMIT`].
    async fn close(&self) {
        self.closing.cancel();
        let _ = tokio::time::timeout(CLOSING_LIMIT, self.task.wait()).await;
    }
}

/// Logs the protection of steps.
fn say_protection(protection: &Protection, settings: &Settings) {
    match (protection, settings.run_as_user) {
        (Protection::Landlock(_), _) => tracing::info!("steps are {protection}"),
        (Protection::None(_), Some(users)) => tracing::info!("steps run as {users}, and are {protection}"),
        (Protection::None(_), None) => tracing::warn!(
            "steps are {protection}: they can read and change files of the server and of other pull requests; \
             docs/security.md says what --run-as-user prevents"
        ),
    }
}

fn web_state(
    settings: &Settings,
    joined: &[JoinedHost],
    access: AccessRules,
    server_status: watch::Receiver<Arc<ServerStatus>>,
    meters: Arc<Meters>,
    vault: Vault,
    attention: Arc<Attention>,
) -> WebState {
    WebState {
        intake: hosts::intake(joined),
        server_status,
        meters,
        vault,
        attention,
        sleeps: settings.sleep.idle_release.is_some(),
        events_only: settings.access.events_only,
        protection: None,
        configuration: None,
        access,
        url: settings.atlantis_url.clone(),
        api_secret: settings.api_secret.clone(),
        drift_detection: settings.enable_drift_detection,
        drift_remediation: settings.enable_drift_remediation,
        trace_page: settings.traces.page.clone(),
        disable_global_apply_lock: settings.disable_global_apply_lock,
        apply_allowed: settings.allow_commands.contains(&CommandName::Apply),
        pull_marks: joined
            .iter()
            .filter_map(|host| host.api.as_ref())
            .map(|api| (api.hostname().to_ascii_lowercase(), api.profile().pull_mark))
            .collect(),
        commit_addresses: joined
            .iter()
            .filter_map(|host| Some((host.door.hostname().to_ascii_lowercase(), host.profile.commit_address.clone()?)))
            .collect(),
        host_pages: hosts::pages(settings),
        executable_name: settings.executable_names.first().cloned().unwrap_or_default(),
        metrics: MetricsSource {
            namespace: settings.stats_namespace.clone(),
            path: None,
            atlantis_names: settings.metrics.atlantis_names,
            work: Arc::new(WorkMeters::new(settings.metrics.labels)),
            gauges: GaugeCache::default(),
        },
    }
}

/// Returns `metrics.prometheus.endpoint`; an error if it is the path of another route.
fn metrics_path(web: &WebState, endpoint: Option<String>) -> Result<Option<String>> {
    match endpoint {
        Some(path) if path != "/metrics" && web.is_route(&path) => {
            bail!(
                "`metrics` of repos.yaml: the server has something else at {path}; write `endpoint: /metrics`, or another path"
            )
        }
        endpoint => Ok(endpoint),
    }
}

/// Opens the port before anything slow happens, so that a platform's probe finds a live process at once.
async fn listen(
    settings: &Settings,
    certificate: Option<Certificate>,
    state: Arc<WebState>,
) -> Result<(SocketAddr, Listener)> {
    let wanted = SocketAddr::new(settings.bind, settings.port);
    let port =
        TcpListener::bind(wanted).await.with_context(|| format!("cannot listen on {wanted} (--bind, --port)"))?;
    let address = port.local_addr()?;
    let (closing, task) = (CancellationToken::new(), TaskTracker::new());
    // With Identity-Aware Proxy, all connections come from its load balancer.
    let behind_proxies = settings.access.trusted_proxy_hops > 0 || !settings.access.iap_audience.is_empty();
    let peers = if behind_proxies { Peers::Proxies } else { Peers::Clients };
    let (router, all) = (web::router(state), Connections::new(peers));
    match certificate {
        None => {
            let plain = |stream: TcpStream| std::future::ready(Ok(Some(stream)));
            task.spawn(connections::serve(port, plain, router, all, closing.clone()))
        }
        Some(certificate) => {
            let certificate = Arc::new(certificate);
            let secure = move |stream| https::handshake(Arc::clone(&certificate), stream);
            task.spawn(connections::serve(port, secure, router, all, closing.clone()))
        }
    };
    task.close();
    Ok((address, Listener { closing, task }))
}
