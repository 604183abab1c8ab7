//! The HTTP server: `/events` for hosts, pages and API for people. One table (`table`) has every route and its permitted callers; the
//! rules are in `access`.

pub(crate) mod access;
pub(crate) mod api;
pub(crate) mod dashboard;
pub(crate) mod host_pages;
pub(crate) mod jobs;

mod actions;
mod answer;
mod assets;
mod audit;
mod changes;
mod commands;
pub(crate) mod connections;
mod drift;
mod events;
mod filters;
mod freezes;
mod inbox;
mod locks;
pub(crate) mod login;
pub(crate) mod metrics;
mod openapi;
mod pages;
mod projects;
mod pulls;
mod runs;
mod search;
mod trace;
mod wake;

#[cfg(test)]
mod front_door_tests;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
mod with_store_tests;

use crate::domain::CommitAddress;
use crate::server_status::{ConfigurationStatus, Meters, ServerStatus, Services};
use crate::vault::Vault;
use crate::wake::Attention;
use crate::webhook::Intake;
use access::throttle::Throttle;
use access::{AccessDenied, Admitted, ScriptDenied};
pub use access::{TokenScope, Who};
use answer::{HttpProblem, Visit};
use axum::extract::{ConnectInfo, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use http::{HeaderValue, Method};
use openapi::{RouteDoc, about};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;
use tracing::Instrument;

/// Longest method and path in the audit log, in characters.
const MAX_ASKED: usize = 200;

/// State that the routes need.
pub struct WebState {
    /// Verifies deliveries.
    pub intake: Intake,
    /// The current role: pages are shown while there are services, and deliveries are recorded or stored accordingly.
    pub server_status: tokio::sync::watch::Receiver<Arc<ServerStatus>>,
    /// Counters.
    pub meters: Arc<Meters>,
    /// Stores deliveries in the inbox.
    pub vault: Vault,
    /// Requests that keep this server awake, or wake it.
    pub attention: Arc<Attention>,
    /// True if it sleeps when it has nothing to do (`--idle-release`).
    pub sleeps: bool,
    /// `--events-only`.
    pub events_only: bool,
    /// Separation of steps from files of others; absent if none run.
    pub protection: Option<String>,
    /// The last readings of the configuration; absent where it is read only at the start.
    pub configuration: Option<tokio::sync::watch::Receiver<Arc<ConfigurationStatus>>>,
    /// Access rules.
    pub access: access::AccessRules,
    /// Address of this server for links, with its base path; no trailing slash.
    pub url: String,
    /// `--api-secret`.
    pub api_secret: Option<SecretString>,
    /// `--enable-drift-detection`.
    pub drift_detection: bool,
    /// `--enable-drift-remediation`.
    pub drift_remediation: bool,
    /// `--trace-page`.
    pub trace_page: Option<String>,
    /// `--disable-global-apply-lock`.
    pub disable_global_apply_lock: bool,
    /// True if `apply` is an allowed command.
    pub apply_allowed: bool,
    /// Mark in front of a pull request's number, by the host's name; `#` for any other host.
    pub pull_marks: BTreeMap<String, char>,
    /// Address of a commit's page, by the host's name.
    pub commit_addresses: BTreeMap<String, CommitAddress>,
    /// Pages of the hosts' own.
    pub host_pages: Vec<Arc<dyn host_pages::HostPage>>,
    /// First word of commands that pages show.
    pub executable_name: String,
    /// Names, counters and gauges of `/metrics`.
    pub metrics: metrics::MetricsSource,
}

impl WebState {
    /// Returns true if this path is one of a route of the server.
    pub fn is_route(&self, path: &str) -> bool {
        table(self).iter().any(|route| route.path == path)
    }
}

/// State that all handlers share.
struct Site {
    state: Arc<WebState>,
    pages: pages::PageTemplates,
    /// One permit per open log stream.
    streams: Arc<Semaphore>,
    /// One permit per page that is told of changes.
    watchers: Arc<Semaphore>,
    /// One permit per call that waits for its plans or applies.
    waiting: Arc<Semaphore>,
    /// Deliveries that are being read.
    bodies: events::Bodies,
    rejections: events::Rejections,
    /// Wrong logins and tokens, by address.
    logins: Throttle,
    /// Deliveries with wrong signatures, by address.
    signatures: Throttle,
    /// Number of requests: the second half of a request ID.
    requests: AtomicU64,
    /// Time of the start: the first half of a request ID.
    started: u32,
}

impl Site {
    fn new(state: Arc<WebState>) -> Site {
        Site {
            pages: pages::PageTemplates::new(state.pull_marks.clone()),
            state,
            streams: Arc::new(Semaphore::new(jobs::MAX_STREAMS)),
            watchers: Arc::new(Semaphore::new(changes::MAX_PAGES)),
            waiting: Arc::new(Semaphore::new(commands::MAX_WAITING)),
            bodies: events::Bodies::default(),
            rejections: events::Rejections::default(),
            logins: Throttle::default(),
            signatures: Throttle::default(),
            requests: AtomicU64::new(0),
            started: jiff::Timestamp::now().as_second() as u32,
        }
    }

    fn configuration(&self) -> Option<Arc<ConfigurationStatus>> {
        self.state.configuration.as_ref().map(|configuration| configuration.borrow().clone())
    }

    fn server_status(&self) -> Arc<ServerStatus> {
        self.state.server_status.borrow().clone()
    }

    /// Returns the services while this server owns the state, or a problem that names the leader.
    fn services(&self) -> Result<Arc<Services>, HttpProblem> {
        let server_status = self.server_status();
        server_status.services.clone().ok_or_else(|| HttpProblem::not_leading(&server_status))
    }

    /// Returns the revisions of the state while this server owns it.
    fn revisions(&self) -> Result<changes::Revisions, HttpProblem> {
        Ok(changes::Revisions { process: self.started, commits: self.services()?.store.commits() })
    }

    fn request_id(&self) -> String {
        format!("{:08x}{:08x}", self.started, self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

/// A route with its permitted callers and its description. A route cannot be declared without these.
struct Route {
    method: Method,
    path: &'static str,
    who: Who,
    handler: MethodRouter<Arc<Site>>,
    doc: RouteDoc,
}

fn route<H, T>(method: Method, path: &'static str, who: Who, handler: H, doc: RouteDoc) -> Route
where
    H: Handler<T, Arc<Site>>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    Route { method, path, who, handler: on(filter, handler), doc }
}

/// Returns the routes for machines that cannot sign in: the only ones with `--events-only`.
fn unattended() -> Vec<Route> {
    let delivery = about("Takes a delivery of a host, which signs it.").takes_delivery();
    let delivery = delivery.text("text/plain; charset=utf-8").problems(&[400, 401, 403, 413, 415, 429, 503]);
    let alive = about("Whether the process answers.").json::<api::Probe>();
    let ready = about("Whether this server leads, and its state answers.").json::<api::Probe>();
    vec![
        route(Method::POST, "/events", Who::Host, events::receive, delivery),
        route(Method::GET, "/healthz", Who::Probes, api::healthz, alive),
        route(Method::GET, "/readyz", Who::Probes, api::readyz, ready.json_with::<api::FailedProbe>(503)),
    ]
}

/// Returns all other routes.
fn attended() -> Vec<Route> {
    let pages = [for_people(), actions::routes(), projects::routes(), search::routes(), jobs::routes()];
    let others = [for_machines(), drift::routes()].into_iter().chain(pages);
    others.chain([changes::routes(), runs::routes(), audit::routes()]).flatten().collect()
}

/// Returns the routes whose responses are for machines.
fn for_machines() -> Vec<Route> {
    use TokenScope::{Apply, Plan, Read, Unlock};
    use Who::{Api, Everyone, Token};
    let status = about("Role and work of this server.").json::<api::Status>();
    let figures = about("Figures for Prometheus.").text("text/plain; version=0.0.4; charset=utf-8");
    let asset = about("A style, a script or an image of the pages.").part("name", "Its name.").text("text/css");
    let locks = about("Project locks, and owners of projects.").json::<api::Locks>();
    let run = about("A run with all of its results.").part("id", "Its id.").json::<api::RunAnswer>().problems(&[404]);
    let command = |summary| {
        let doc = about(summary).takes::<commands::CommandRequest>().json::<commands::CommandResult>();
        doc.json_with::<commands::CommandResult>(500).problems(&[400, 409, 413, 502])
    };
    vec![
        route(Method::GET, "/openapi.json", Everyone, openapi::serve, about("This document.").text("application/json")),
        route(Method::GET, "/status", Everyone, api::status, status),
        route(Method::GET, "/metrics", Api(Read), metrics::page, figures),
        route(Method::GET, "/static/{name}", Everyone, assets::serve, asset.problems(&[404])),
        route(Method::GET, "/api/locks", Api(Read), api::locks, locks),
        route(Method::DELETE, "/api/locks", Api(Unlock), locks::delete, unlock_doc()),
        route(
            Method::GET,
            "/api/freezes",
            Api(Read),
            freezes::api,
            about("Frozen repositories.").json::<freezes::Freezes>(),
        ),
        route(Method::GET, "/api/runs/{id}", Api(Read), api::run, run),
        route(
            Method::POST,
            "/api/plan",
            Token(Plan),
            commands::plan,
            command("Plans projects of an open pull request."),
        ),
        route(
            Method::POST,
            "/api/apply",
            Token(Apply),
            commands::apply,
            command("Plans projects of an open pull request, and applies those whose plan succeeded."),
        ),
    ]
}

/// Returns the description of the routes that delete a lock.
fn unlock_doc() -> RouteDoc {
    let doc = about("Deletes a lock and the plan under it, and tells the pull request.").query("id", "The lock's key.");
    doc.optional_query("reason", "Why; the pull request is told.").change().problems(&[400, 404, 409, 413])
}

/// Returns the routes of pages, their logs and their buttons.
fn for_people() -> Vec<Route> {
    use Who::People;
    let lock = about("The page of a lock.").query("id", "The lock's key.").problems(&[400, 404, 413]);
    let lift = about("Lets applies of a frozen repository go on.").query("repo", "host/owner/name.");
    vec![
        route(Method::GET, "/", People, dashboard::page, about("The overview.").page()),
        route(Method::GET, "/index.html", People, dashboard::page, about("The overview.").page()),
        route(Method::GET, "/api", People, openapi::page, about("The API, for people.").page()),
        route(Method::GET, "/lock", People, locks::page, lock.page()),
        route(Method::DELETE, "/locks", People, locks::delete, unlock_doc()),
        route(Method::POST, "/locks/delete", People, locks::delete, unlock_doc()),
        route(Method::POST, "/freezes/lift", People, freezes::lift, lift.change().problems(&[404, 413])),
    ]
}

/// Returns the routes that `--disable-global-apply-lock` removes.
fn apply_lock() -> Vec<Route> {
    let stop = about("Stops all applies.").optional_query("reason", "Why; browsers have to say it.");
    let allow = || about("Allows applies again.").change();
    vec![
        route(Method::POST, "/apply/lock", Who::People, locks::stop_applies, stop.change().problems(&[400, 413])),
        route(Method::DELETE, "/apply/unlock", Who::People, locks::allow_applies, allow()),
        route(Method::POST, "/apply/unlock", Who::People, locks::allow_applies, allow()),
    ]
}

/// Returns the routes of this server.
fn table(state: &WebState) -> Vec<Route> {
    let mut routes = unattended();
    if !state.events_only {
        routes.extend(attended());
        if state.access.wake.is_some() {
            routes.extend(wake::routes());
        }
        if state.access.sign_in.is_some() {
            routes.extend(login::routes());
        }
        if !state.disable_global_apply_lock {
            routes.extend(apply_lock());
        }
        routes.extend(state.host_pages.iter().map(|page| {
            let shown = Arc::clone(page);
            let handler = move |site, visit, uri| host_pages::show(Arc::clone(&shown), site, visit, uri);
            let doc = about("A page of a host's own.").page().problems(&[400, 404, 409, 502]);
            route(Method::GET, page.path(), Who::People, handler, doc)
        }));
    }
    routes
}

/// Returns all routes and their permitted callers.
pub fn routes() -> Vec<(Method, &'static str, Who)> {
    let all =
        unattended().into_iter().chain(wake::routes()).chain(attended()).chain(apply_lock()).chain(login::routes());
    all.map(|route| (route.method, route.path, route.who)).collect()
}

/// Builds the router with all routes of this server.
pub fn router(state: Arc<WebState>) -> Router {
    let site = Arc::new(Site::new(state));
    let mut router = Router::new();
    for Route { path, who, handler, .. } in table(&site.state) {
        router = router.route(path, guarded(&site, who, handler));
    }
    if let Some(path) = site.state.metrics.path.as_deref().filter(|path| !site.state.is_route(path)) {
        router = router.route(path, guarded(&site, Who::Api(TokenScope::Read), on(MethodFilter::GET, metrics::page)));
    }
    // Unknown paths are behind the gate too, so that nobody learns which paths exist without being admitted.
    router
        .fallback(unknown.layer(from_fn_with_state((site.clone(), Who::Everyone), gate)))
        .layer(from_fn_with_state(site.clone(), numbered))
        .with_state(site)
}

/// Puts a handler behind the gate.
fn guarded(site: &Arc<Site>, who: Who, handler: MethodRouter<Arc<Site>>) -> MethodRouter<Arc<Site>> {
    match who {
        // `/events` and `/wake` verify their callers themselves, and probes cannot sign in.
        Who::Host | Who::Probes | Who::Wake => handler,
        Who::Everyone | Who::People | Who::Api(_) | Who::Token(_) => {
            handler.layer(from_fn_with_state((site.clone(), who), gate))
        }
    }
}

/// The ID of a request, in its response and in its log lines.
#[derive(Debug, Clone)]
struct RequestId(String);

/// Gives a request its ID, and its log lines the trace that it belongs to.
async fn numbered(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let id = site.request_id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", id, trace = tracing::field::Empty);
    if let Some(trace) = trace::parse_id(request.headers()) {
        span.record("trace", trace);
    }
    let mut response = next.run(request).instrument(span).await;
    response.headers_mut().insert("x-request-id", header_value(&id));
    response
}

/// Admits or refuses a request, and adds headers to the response or renders its problem.
async fn gate(
    State((site, who)): State<(Arc<Site>, Who)>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(RequestId(id)): Extension<RequestId>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut visit = Visit::new(request.uri().path(), request.headers(), who, id);
    let asked: String = format!("{} {}", request.method(), request.uri().path()).chars().take(MAX_ASKED).collect();
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let response = match admit(&site, who, access::Caller { peer, method, uri, headers, iap: None }).await {
        Ok(admitted) => {
            visit.admit(admitted);
            let is_call = request.uri().path().starts_with("/api/");
            let visit_of_leader = wake::attend(&site, who, request.method(), request.uri().path()).await;
            // Read before the page reads the state: a page may be newer than its revision, never older.
            visit.revision = site.revisions().map(|revisions| revisions.current()).unwrap_or_default();
            request.extensions_mut().insert(visit.clone());
            let response = wake::until_sent(&site, visit_of_leader, next.run(request).await).await;
            if matches!(who, Who::Api(_) | Who::Token(_)) && is_call {
                crate::store::audit::log(&visit.entry("api call", &asked, response.status().as_str()));
            }
            response
        }
        Err(refusal) => {
            if let AccessDenied::NotAdmin(email) = &refusal {
                visit.name.clone_from(email);
                crate::store::audit::log(&visit.entry("change of state", &asked, "refused: not named by --admins"));
            }
            let (method, uri, headers) = (request.method(), request.uri(), request.headers());
            let caller = access::Caller { peer, method, uri, headers, iap: None };
            match &site.state.access.sign_in {
                Some(sign_in) => login::refuse(sign_in, &visit, &caller, refusal),
                None => HttpProblem::access_denied(refusal).into_response(),
            }
        }
    };
    answer::dress(&site, &visit, response)
}

/// Returns the sender of a request, or the reason for a refusal. Wrong logins are counted.
async fn admit(site: &Site, who: Who, mut caller: access::Caller<'_>) -> Result<Admitted, AccessDenied> {
    let access = &site.state.access;
    let guessing = access.may_guess(caller.headers).then(|| access.address(caller.peer, caller.headers));
    if let Some(seconds) = guessing.and_then(|address| site.logins.wait(address)) {
        return Err(AccessDenied::TooMany(seconds));
    }
    caller.iap = access.ask_iap(caller.headers).await;
    let admitted = access.admit(who, site.state.api_secret.as_ref(), &site.state.url, &caller);
    if let (Some(address), Err(AccessDenied::Login | AccessDenied::Script(ScriptDenied::WrongToken))) =
        (guessing, &admitted)
    {
        site.logins.failed(address);
    }
    admitted
}

async fn unknown(State(site): State<Arc<Site>>) -> HttpProblem {
    HttpProblem::not_found(if site.state.events_only {
        "This server only takes deliveries (--events-only): there is nothing here but /events and probes. Pages and API are on \
         the server that leads."
    } else {
        "There is no such page here."
    })
}

/// Converts untrusted text into a header value; empty if it has characters that headers cannot have.
fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
