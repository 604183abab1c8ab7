//! The HTTP server: `/events` for hosts, pages and API for people. One table (`table`) has every route and who may call
//! it; the rules are in [`access`].

pub mod access;
pub mod api;
pub mod dashboard;
pub mod host_pages;
pub mod jobs;

mod answer;
mod assets;
mod events;
mod freezes;
mod inbox;
mod locks;
mod metrics;
mod pages;
mod trace;

#[cfg(test)]
mod front_door_tests;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
mod with_store_tests;

use crate::domain::CommitAddress;
use crate::server_status::{Meters, ServerStatus, Services};
use crate::store::audit;
use crate::vault::Vault;
use crate::webhook::Intake;
pub use access::Who;
use access::throttle::Throttle;
use access::{AccessDenied, Admitted};
use answer::{HttpProblem, Visit};
use axum::extract::{ConnectInfo, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use http::{HeaderValue, Method};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;
use tracing::Instrument;

/// Longest method and path in the audit log, in characters.
const MAX_ASKED: usize = 200;

/// What the routes need.
pub struct WebState {
    /// Verifies deliveries.
    pub intake: Intake,
    /// The current role: pages are shown while there are services, and deliveries are recorded or stored accordingly.
    pub server_status: tokio::sync::watch::Receiver<Arc<ServerStatus>>,
    /// Counters.
    pub meters: Arc<Meters>,
    /// Stores deliveries in the inbox.
    pub vault: Vault,
    /// `--events-only`.
    pub events_only: bool,
    /// Who may reach what.
    pub access: access::AccessRules,
    /// Address of this server for links, with its base path; no trailing slash.
    pub url: String,
    /// `--api-secret`.
    pub api_secret: Option<SecretString>,
    /// `--disable-global-apply-lock`.
    pub disable_global_apply_lock: bool,
    /// `apply` is an allowed command.
    pub apply_allowed: bool,
    /// What a pull request's number is written with, by the host's name; `#` where none is named.
    pub pull_marks: BTreeMap<String, char>,
    /// Where people find commits, by the host's name.
    pub commit_addresses: BTreeMap<String, CommitAddress>,
    /// Pages of the hosts' own.
    pub host_pages: Vec<Arc<dyn host_pages::HostPage>>,
    /// First word of commands that pages show.
    pub executable_name: String,
}

/// State that all handlers share.
struct Site {
    state: Arc<WebState>,
    pages: pages::PageTemplates,
    /// One permit per open log stream.
    streams: Arc<Semaphore>,
    /// One permit per large delivery that is being read.
    large_bodies: Semaphore,
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
            large_bodies: Semaphore::new(events::MAX_LARGE_BODIES),
            rejections: events::Rejections::default(),
            logins: Throttle::default(),
            signatures: Throttle::default(),
            requests: AtomicU64::new(0),
            started: jiff::Timestamp::now().as_second() as u32,
        }
    }

    fn server_status(&self) -> Arc<ServerStatus> {
        self.state.server_status.borrow().clone()
    }

    /// The services while this server owns the state, or a problem that names the leader.
    fn services(&self) -> Result<Arc<Services>, HttpProblem> {
        let server_status = self.server_status();
        server_status.services.clone().ok_or_else(|| HttpProblem::not_leading(&server_status))
    }

    fn request_id(&self) -> String {
        format!("{:08x}{:08x}", self.started, self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

/// A route and who may call it. A route cannot be made without that decision.
struct Route {
    method: Method,
    path: &'static str,
    who: Who,
    handler: MethodRouter<Arc<Site>>,
}

fn route<H, T>(method: Method, path: &'static str, who: Who, handler: H) -> Route
where
    H: Handler<T, Arc<Site>>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
    Route { method, path, who, handler: on(filter, handler) }
}

/// Routes for machines that cannot sign in: the only ones with `--events-only`.
fn unattended() -> Vec<Route> {
    vec![
        route(Method::POST, "/events", Who::Host, events::receive),
        route(Method::GET, "/healthz", Who::Probes, api::healthz),
        route(Method::GET, "/readyz", Who::Probes, api::readyz),
    ]
}

/// All other routes.
fn attended() -> Vec<Route> {
    use Who::{Api, Everyone, People};
    vec![
        route(Method::GET, "/status", Everyone, api::status),
        route(Method::GET, "/metrics", Api, metrics::page),
        route(Method::GET, "/static/{name}", Everyone, assets::serve),
        route(Method::GET, "/", People, dashboard::page),
        route(Method::GET, "/index.html", People, dashboard::page),
        route(Method::GET, "/lock", People, locks::page),
        route(Method::DELETE, "/locks", People, locks::delete),
        route(Method::POST, "/locks/delete", People, locks::delete),
        route(Method::GET, "/jobs/{id}", People, jobs::page),
        route(Method::GET, "/jobs/{id}/log", People, jobs::plain),
        route(Method::GET, "/jobs/{id}/stream", People, jobs::stream),
        route(Method::GET, "/api/locks", Api, api::locks),
        route(Method::GET, "/api/freezes", Api, freezes::api),
        route(Method::POST, "/freezes/lift", People, freezes::lift),
        route(Method::GET, "/api/runs/{id}", Api, api::run),
    ]
}

/// Routes that `--disable-global-apply-lock` removes.
fn apply_lock() -> Vec<Route> {
    vec![
        route(Method::POST, "/apply/lock", Who::People, locks::stop_applies),
        route(Method::DELETE, "/apply/unlock", Who::People, locks::allow_applies),
        route(Method::POST, "/apply/unlock", Who::People, locks::allow_applies),
    ]
}

/// The routes of this server.
fn table(state: &WebState) -> Vec<Route> {
    let mut routes = unattended();
    if !state.events_only {
        routes.extend(attended());
        if !state.disable_global_apply_lock {
            routes.extend(apply_lock());
        }
        routes.extend(state.host_pages.iter().map(|page| {
            let shown = Arc::clone(page);
            let handler = move |site, visit, uri| host_pages::show(Arc::clone(&shown), site, visit, uri);
            route(Method::GET, page.path(), Who::People, handler)
        }));
    }
    routes
}

/// All routes and who may call them.
pub fn routes() -> Vec<(Method, &'static str, Who)> {
    let all = unattended().into_iter().chain(attended()).chain(apply_lock());
    all.map(|route| (route.method, route.path, route.who)).collect()
}

/// The router with all routes of this server.
pub fn router(state: Arc<WebState>) -> Router {
    let site = Arc::new(Site::new(state));
    let mut router = Router::new();
    for Route { path, who, handler, .. } in table(&site.state) {
        let handler = match who {
            // `/events` verifies deliveries itself, and probes cannot sign in.
            Who::Host | Who::Probes => handler,
            Who::Everyone | Who::People | Who::Api => handler.layer(from_fn_with_state((site.clone(), who), gate)),
        };
        router = router.route(path, handler);
    }
    // Unknown paths are behind the gate too, so that nobody learns which paths exist without being admitted.
    router
        .fallback(unknown.layer(from_fn_with_state((site.clone(), Who::Everyone), gate)))
        .layer(from_fn_with_state(site.clone(), numbered))
        .with_state(site)
}

/// The ID of a request, in its response and in its log lines.
#[derive(Debug, Clone)]
struct RequestId(String);

/// Gives a request its ID, and its log lines the trace that it belongs to.
async fn numbered(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let id = site.request_id();
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", id, trace = tracing::field::Empty);
    if let Some(trace) = trace::of(request.headers()) {
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
            request.extensions_mut().insert(visit.clone());
            let is_call = request.uri().path().starts_with("/api/");
            let response = next.run(request).await;
            if who == Who::Api && is_call {
                audit::log(&visit.entry("api call", &asked, response.status().as_str()));
            }
            response
        }
        Err(refusal) => {
            if let AccessDenied::NotAdmin(email) = &refusal {
                visit.name.clone_from(email);
                audit::log(&visit.entry("change of state", &asked, "refused: not named by --admins"));
            }
            HttpProblem::refused(refusal).into_response()
        }
    };
    answer::dress(&site, &visit, response)
}

/// Who sent a request, or why it is refused. Wrong logins are counted.
async fn admit(site: &Site, who: Who, mut caller: access::Caller<'_>) -> Result<Admitted, AccessDenied> {
    let access = &site.state.access;
    let guessing = access.may_guess(caller.headers).then(|| access.address(caller.peer, caller.headers));
    if let Some(seconds) = guessing.and_then(|address| site.logins.wait(address)) {
        return Err(AccessDenied::TooMany(seconds));
    }
    caller.iap = access.ask_iap(caller.headers).await;
    let admitted = access.admit(who, site.state.api_secret.as_ref(), &site.state.url, &caller);
    if let (Some(address), Err(AccessDenied::Login | AccessDenied::WrongToken)) = (guessing, &admitted) {
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

/// A header value of untrusted text; empty if it has characters that headers cannot have.
fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
