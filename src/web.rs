//! HTTP: `/events` for hosts, pages and API for people. Every route stands in one table (`table`) with who may call it;
//! the rules themselves are in [`access`].

pub mod access;
pub mod api;
pub mod dashboard;
pub mod jobs;
pub mod standing;

mod answer;
mod assets;
mod events;
mod inbox;
mod locks;
mod metrics;
mod pages;

#[cfg(test)]
mod front_door_tests;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
mod with_store_tests;

use crate::vault::Vault;
use crate::webhook::Secrets;
use access::Who;
use answer::{Problem, Visit};
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{HeaderValue, Method};
use secrecy::SecretString;
use standing::{Meters, Ready, Standing};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// What the routes need.
pub struct WebState {
    /// Webhook secrets.
    pub secrets: Secrets,
    /// What this server is just now (listen first): pages are shown while it has services, deliveries go where it says.
    pub standing: tokio::sync::watch::Receiver<Arc<Standing>>,
    /// Counters.
    pub meters: Arc<Meters>,
    /// For the inbox.
    pub vault: Vault,
    /// Who may see pages.
    pub access: access::Access,
    /// Base path and address for links; no trailing slash.
    pub url: String,
    /// `--api-secret`.
    pub api_secret: Option<SecretString>,
    /// `--disable-global-apply-lock`.
    pub disable_global_apply_lock: bool,
    /// `apply` is an allowed command.
    pub apply_allowed: bool,
    /// First word of comments to us, for commands that pages show.
    pub executable_name: String,
}

/// Everything that handlers share.
struct Site {
    state: Arc<WebState>,
    pages: pages::Pages,
    /// One permit per open log stream.
    streams: Arc<Semaphore>,
    /// One permit per large delivery that is being read.
    large_bodies: Semaphore,
    rejections: events::Rejections,
    /// Requests so far: the second half of a request id.
    requests: AtomicU64,
    /// The first half: another one for each start.
    started: u32,
}

impl Site {
    fn new(state: Arc<WebState>) -> Site {
        Site {
            state,
            pages: pages::Pages::new(),
            streams: Arc::new(Semaphore::new(jobs::MAX_STREAMS)),
            large_bodies: Semaphore::new(events::MAX_LARGE_BODIES),
            rejections: events::Rejections::default(),
            requests: AtomicU64::new(0),
            started: jiff::Timestamp::now().as_second() as u32,
        }
    }

    fn standing(&self) -> Arc<Standing> {
        self.state.standing.borrow().clone()
    }

    /// What is there while state is ours, or the page that says who leads.
    fn ready(&self) -> Result<Arc<Ready>, Problem> {
        let standing = self.standing();
        standing.services.clone().ok_or_else(|| Problem::not_leading(&standing))
    }

    fn request_id(&self) -> String {
        format!("{:08x}{:08x}", self.started, self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

/// One route and the decision who may call it. There is no way to make one without that decision.
struct Route {
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests go through the table by it"))]
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

/// All routes.
fn table(state: &WebState) -> Vec<Route> {
    use Who::{Api, Everyone, People};
    let mut routes = vec![
        route(Method::POST, "/events", Everyone, events::receive),
        route(Method::GET, "/healthz", Everyone, api::healthz),
        route(Method::GET, "/readyz", Everyone, api::readyz),
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
    ];
    if !state.disable_global_apply_lock {
        routes.extend([
            route(Method::POST, "/apply/lock", People, locks::stop_applies),
            route(Method::DELETE, "/apply/unlock", People, locks::allow_applies),
            route(Method::POST, "/apply/unlock", People, locks::allow_applies),
        ]);
    }
    routes
}

/// All routes.
pub fn router(state: Arc<WebState>) -> Router {
    let site = Arc::new(Site::new(state));
    let mut router = Router::new();
    for Route { path, who, handler, .. } in table(&site.state) {
        // What is open to everyone goes without the gate: `/events` has to be fast, and the rest says nothing secret.
        let handler = match who {
            Who::Everyone => handler,
            Who::People | Who::Api => handler.layer(from_fn_with_state((site.clone(), who), gate)),
        };
        router = router.route(path, handler);
    }
    router.fallback(unknown).with_state(site)
}

/// Lets in who may come in, and puts headers and a page's clothes on whatever the handler answers.
async fn gate(
    State((site, who)): State<(Arc<Site>, Who)>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = access::Caller { peer, method: request.method(), uri: request.uri(), headers: request.headers() };
    let mut visit = Visit::new(request.uri().path(), request.headers(), who, site.request_id());
    let admitted = site.state.access.admit(who, site.state.api_secret.as_ref(), &site.state.url, &caller);
    let response = match admitted {
        Ok(name) => {
            visit.name = name;
            request.extensions_mut().insert(visit.clone());
            next.run(request).await
        }
        Err(refusal) => Problem::refused(refusal).into_response(),
    };
    answer::dress(&site, &visit, response)
}

async fn unknown(State(site): State<Arc<Site>>, request: Request) -> Response {
    let path = request.uri().path();
    let who = if path.starts_with("/api/") { Who::Api } else { Who::Everyone };
    let visit = Visit::new(path, request.headers(), who, site.request_id());
    answer::dress(&site, &visit, Problem::not_found("There is no such page here.").into_response())
}

/// A header value made of text that may be untrusted; empty where it has characters that headers cannot have.
fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
