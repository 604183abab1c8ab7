//! Common parts of all responses of pages and API: security headers, a request ID, and the rendering of problems.

use super::Site;
use super::access::{AccessDenied, Admitted, ScriptDenied, Who};
use super::pages::web_address;
use crate::dispatch::PageVisitor;
use crate::domain::JobId;
use crate::domain::state::AuditEntry;
use crate::server_status::{Role, ServerStatus};
use axum::body::Body;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use futures::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use minijinja::context;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Policy that allows only our own resources; no inline script or style, and no frames.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
     img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Seconds after which clients retry while this server does not lead.
pub(super) const RETRY_SECONDS: u32 = 2;

/// Longest request ID of a caller that is repeated, in bytes.
const MAX_CALLER_ID: usize = 128;

/// Deepest path for which links are made relative.
const MAX_DEPTH: usize = 16;

/// The parts of a request that its response depends on.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    /// The caller, for the audit log.
    pub(super) name: String,
    /// The signed-in person whom pages show; empty if there is none.
    pub(super) person: String,
    /// True if pages show buttons for changes.
    pub(super) may_change: bool,
    /// True if the person has a session, which a button of pages ends.
    pub(super) can_sign_out: bool,
    /// The caller, as far as the rules of repositories apply.
    pub(super) visitor: PageVisitor,
    /// True if the client is a browser rather than a script.
    pub(super) browser: bool,
    /// Relative path to `/`, so that pages work under any path of a proxy.
    pub(super) root: String,
    /// True if problems are rendered as JSON.
    json: bool,
    /// True if problems are in the format of `/api/drift/*`.
    drift: bool,
    /// Request ID of the caller.
    pub(super) caller_id: Option<String>,
    /// Request ID of the server.
    pub(super) id: String,
    /// Revision of the state that pages show; empty while this server does not lead.
    pub(super) revision: String,
}

impl Visit {
    pub(super) fn new(path: &str, headers: &HeaderMap, who: Who, id: String) -> Visit {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let depth = path.matches('/').count().saturating_sub(1).min(MAX_DEPTH);
        let root = if depth == 0 { "./".into() } else { "../".repeat(depth) };
        let json = matches!(who, Who::Api(_) | Who::Token(_)) || path.starts_with("/api/");
        let browser = accept.contains("text/html");
        let caller_id = headers.get("x-request-id").and_then(|value| value.to_str().ok());
        let is_sound = |id: &&str| (1..=MAX_CALLER_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        Visit {
            drift: path.starts_with(super::drift::PREFIX),
            caller_id: caller_id.filter(is_sound).map(str::to_owned),
            name: String::new(),
            person: String::new(),
            may_change: false,
            can_sign_out: false,
            visitor: PageVisitor::Other,
            browser,
            root,
            json,
            id,
            revision: String::new(),
        }
    }

    /// Returns an audit entry about this request.
    pub(super) fn entry(&self, act: &str, subject: &str, result: &str) -> AuditEntry {
        AuditEntry {
            at: Timestamp::now(),
            who: self.name.clone(),
            act: act.into(),
            subject: subject.into(),
            result: result.into(),
            request: Some(self.id.clone()),
            ..AuditEntry::default()
        }
    }

    /// Returns the proved name of a caller who may change something: a signed-in person, or this machine.
    pub(super) fn actor(&self) -> Option<&str> {
        let is_proved = !self.person.is_empty() || self.visitor == PageVisitor::Operator;
        (self.may_change && is_proved).then_some(self.name.as_str())
    }

    /// Records the admitted caller.
    pub(super) fn admit(&mut self, admitted: Admitted) {
        if admitted.signed_in {
            self.person.clone_from(&admitted.name);
        }
        self.may_change = admitted.may_change;
        self.can_sign_out = admitted.can_sign_out;
        self.visitor = admitted.visitor;
        self.name = admitted.name;
    }

    /// Returns the response to a change: text for scripts; browsers are redirected to the dashboard, which shows `notice`.
    pub(super) fn done(&self, notice: &str, text: String) -> Response {
        if self.browser {
            Redirect::to(&format!("{}?notice={notice}", self.root)).into_response()
        } else {
            text.into_response()
        }
    }
}

/// Error or refusal; `dress` renders it as a page, a text or JSON.
#[derive(Debug, Clone)]
pub(super) struct HttpProblem {
    status: StatusCode,
    title: &'static str,
    text: String,
    /// Flags or commands for the next step.
    next: Vec<String>,
    /// A related job.
    job: Option<JobId>,
    /// Machine and address of the leader.
    leader: Option<Box<(String, String)>>,
    /// Seconds after which to retry.
    retry: Option<u32>,
    /// True if the browser is asked for user name and password.
    challenge: bool,
    /// Cause, only for the log.
    cause: Option<Arc<anyhow::Error>>,
}

impl HttpProblem {
    pub(super) fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> HttpProblem {
        let text = text.into();
        HttpProblem {
            status,
            title,
            text,
            next: Vec::new(),
            job: None,
            leader: None,
            retry: None,
            challenge: false,
            cause: None,
        }
    }

    /// Returns the problem of a caller whose identity nothing proves, and whose command nobody could be named for.
    pub(super) fn unproved() -> HttpProblem {
        let text =
            "Only people whose identity is proved have these buttons: by a login, or on the server's own machine.";
        HttpProblem::new(StatusCode::FORBIDDEN, "Not signed in", text)
    }

    pub(super) fn not_found(text: impl Into<String>) -> HttpProblem {
        HttpProblem::new(StatusCode::NOT_FOUND, "Not found", text)
    }

    /// Returns the problem of a server that does not lead, with the leader and the reason.
    pub(super) fn not_leading(server_status: &ServerStatus) -> HttpProblem {
        let title = match server_status.role {
            Role::Standby => "Standing by",
            Role::Restoring => "Starting",
            Role::Leading => "Not ready",
            Role::Draining => "Replaced",
            Role::Asleep => "Waking",
        };
        let text = format!(
            "This Tidelock server does not lead: {}. State is shown by the server that leads; this page looks again by itself.",
            server_status.why
        );
        let leader = server_status.leader.as_ref().map(|leader| Box::new((leader.machine.clone(), leader.url.clone())));
        let retry = Some(RETRY_SECONDS);
        // The next step, if it does not happen automatically.
        let next = if server_status.mismatch { vec!["--force-takeover".to_owned()] } else { Vec::new() };
        HttpProblem { leader, retry, next, ..HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, title, text) }
    }

    /// Returns the problem of an internal error, whose cause is in the log.
    pub(super) fn broken() -> HttpProblem {
        let text = "The server could not do this. Its log says why, under the request id of this answer.";
        HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "Something broke", text)
    }

    /// Returns a temporary problem, with a time to retry.
    pub(super) fn later(text: impl Into<String>) -> HttpProblem {
        let problem = HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "Not now", text);
        HttpProblem { retry: Some(RETRY_SECONDS), ..problem }
    }

    pub(super) fn with_job(mut self, job: JobId) -> HttpProblem {
        self.job = Some(job);
        self
    }

    /// Adds the cause, for the log.
    pub(super) fn with_cause(mut self, cause: anyhow::Error) -> HttpProblem {
        self.cause = Some(Arc::new(cause));
        self
    }

    pub(super) fn access_denied(refusal: AccessDenied) -> HttpProblem {
        match refusal {
            AccessDenied::NotThroughIap(why) => HttpProblem::new(
                StatusCode::FORBIDDEN,
                "Not signed in",
                format!(
                    "Pages and API are for people who come through Google's Identity-Aware Proxy (--iap-audience), and {why}. Use \
                     the server's public address."
                ),
            ),
            AccessDenied::NotAdmin(email) => HttpProblem::new(
                StatusCode::FORBIDDEN,
                "Not yours to change",
                format!(
                    "{email} may view everything here, and change nothing: --admins names neither {email} nor a domain or \
                     team of this account."
                ),
            ),
            AccessDenied::NotViewer(name) => HttpProblem::new(
                StatusCode::FORBIDDEN,
                "Not for you to view",
                format!("You are {name}, and --web-viewers names neither {name} nor a domain or team of this account."),
            ),
            AccessDenied::SignIn => HttpProblem::new(
                StatusCode::UNAUTHORIZED,
                "Sign in",
                "There is no session, or it has ended. Open a page of this server in a browser and sign in; scripts send \
                 X-Atlantis-Token to /api/….",
            ),
            AccessDenied::TooMany(seconds) => {
                let text = format!("Too many wrong logins came from your address. Try again in {seconds} seconds.");
                let problem = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "Too many wrong logins", text);
                HttpProblem { retry: Some(seconds), ..problem }
            }
            AccessDenied::Login => {
                let text = "User name or password is missing or wrong.";
                HttpProblem { challenge: true, ..HttpProblem::new(StatusCode::UNAUTHORIZED, "Login needed", text) }
            }
            AccessDenied::Script(refusal) => HttpProblem::script_denied(refusal),
            AccessDenied::OtherOrigin => HttpProblem::new(
                StatusCode::FORBIDDEN,
                "Asked for by another site",
                "A page of another site asked for this change, so nothing was changed. Use the buttons of these pages; \
                 behind a proxy, --atlantis-url must be the address that people see.",
            ),
            AccessDenied::NotLoopback => {
                let text = "No login is configured, so pages and API are only for a browser on the server's own machine. \
                            Start the server with one of these to open them:";
                let next =
                    ["--web-basic-auth --web-username=NAME --web-password=PASSWORD", "--allow-unauthenticated-pages"];
                let problem = HttpProblem::new(StatusCode::FORBIDDEN, "Pages are closed", text);
                HttpProblem { next: next.map(str::to_owned).to_vec(), ..problem }
            }
        }
    }

    fn script_denied(refusal: ScriptDenied) -> HttpProblem {
        match refusal {
            ScriptDenied::NoToken => HttpProblem::new(
                StatusCode::UNAUTHORIZED,
                "Token needed",
                "The header X-Atlantis-Token is missing: it has to be the server's api-secret, or a token of `tidelock token`.",
            ),
            ScriptDenied::ApiOff => HttpProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Not switched on",
                "Plans and applies by API are off: the server has no api-secret.",
            ),
            ScriptDenied::WrongToken => HttpProblem::new(
                StatusCode::UNAUTHORIZED,
                "Wrong token",
                "X-Atlantis-Token is neither the server's api-secret nor a token that was made with it.",
            ),
            ScriptDenied::Expired(token) => {
                HttpProblem::new(StatusCode::UNAUTHORIZED, "Token expired", token.expired_text())
            }
            ScriptDenied::NotInScope(token, scope) => {
                HttpProblem::new(StatusCode::FORBIDDEN, "Not in the token's scope", token.lacks_text(scope))
            }
        }
    }
}

impl From<anyhow::Error> for HttpProblem {
    fn from(error: anyhow::Error) -> HttpProblem {
        HttpProblem { cause: Some(Arc::new(error)), ..HttpProblem::broken() }
    }
}

impl IntoResponse for HttpProblem {
    /// Returns an empty response that carries the problem to `dress`.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Adds the headers of all responses, and renders a problem.
pub(super) fn dress(site: &Site, visit: &Visit, mut response: Response) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<HttpProblem>() {
        if let Some(cause) = &problem.cause {
            tracing::error!(request = visit.id, "answering a request: {cause:#}");
        }
        let cookies: Vec<HeaderValue> = response.headers().get_all(header::SET_COOKIE).iter().cloned().collect();
        response = word(site, visit, &problem);
        for cookie in cookies {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    let headers = response.headers_mut();
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn word(site: &Site, visit: &Visit, problem: &HttpProblem) -> Response {
    let mut response = if visit.drift {
        axum::Json(visit.drift_problem(problem.status, plain(problem))).into_response()
    } else if visit.json {
        axum::Json(serde_json::json!({ "error": plain(problem) })).into_response()
    } else if visit.browser {
        let HttpProblem { status, title, text, next, job, leader, .. } = problem;
        let code = status.as_u16();
        let refresh = problem.retry;
        let job = job.as_ref().map(JobId::as_str);
        let leader = leader.as_deref().map(|(machine, url)| context! { machine, url => web_address(url) });
        let facts = context! { title => *title, text, next, job, leader, code, refresh, request => &visit.id };
        site.pages.render("problem.html", visit, facts).unwrap_or_else(|_| plain(problem).into_response())
    } else {
        plain(problem).into_response()
    };
    *response.status_mut() = problem.status;
    if let Some(seconds) = problem.retry {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if problem.challenge {
        let challenge = HeaderValue::from_static("Basic realm=\"restricted\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the problem as text, with the next steps.
fn plain(problem: &HttpProblem) -> String {
    let mut text = problem.text.clone();
    for next in &problem.next {
        text.push_str("\n  ");
        text.push_str(next);
    }
    if let Some((machine, url)) = problem.leader.as_deref() {
        text.push_str(&format!("\n  {machine} leads: {url}"));
    }
    text
}

/// Returns a response with this content type and body.
pub(super) fn typed(content_type: &'static str, body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], body.into()).into_response()
}

/// Interval of comments on an idle stream of events, so that proxies keep the connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Returns a response of server-sent events.
pub(super) fn events(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // Proxies such as nginx buffer events otherwise.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
