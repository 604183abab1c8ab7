//! The forge's HTTP server: routes to API, git and pages, authenticates, injects faults and records requests.

use super::connection::{ResetSwitch, ResettableListener};
use super::faults::{self, Fault};
use super::{
    HostKind, Shared, api, azure_devops, bitbucket_cloud, bitbucket_data_center, git_http, gitea, gitlab, lfs, pages,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use http::{HeaderMap, StatusCode, header, request};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Limit of a request's body in bytes, also of a push.
const MAX_BODY: usize = 64 << 20;

/// Number of requests that are kept. The oldest are dropped first.
const MAX_REQUESTS: usize = 100_000;

/// One API or git request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Status of the answer; 0 if the connection was reset instead.
    pub status: u16,
}

/// Listens on a loopback address of this name. Returns the name that it has: `localhost` where loopback has 127.0.0.1 alone, as on macOS.
pub(super) async fn listen(hostname: &'static str, port: u16) -> io::Result<(&'static str, TcpListener)> {
    let address = hostname.parse().unwrap_or(Ipv4Addr::LOCALHOST);
    match TcpListener::bind((address, port)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            Ok(("localhost", TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?))
        }
        bound => Ok((hostname, bound?)),
    }
}

/// Serves until the forge stops.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let stop = shared.stop.clone();
    let app = Router::new().fallback(handle).with_state(shared).into_make_service_with_connect_info::<ResetSwitch>();
    let server = axum::serve(ResettableListener(listener), app);
    tokio::select! {
        _ = server => {}
        () = stop.cancelled() => {}
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(switch): ConnectInfo<ResetSwitch>,
    request: axum::extract::Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "body too large").into_response();
    };
    let path = parts.uri.path().to_owned();
    let (is_api, is_page) = places(shared.kind, &path);
    if is_page {
        return pages::answer(shared, &parts, body).await;
    }
    let method = parts.method.to_string();
    let fault = shared.change(|state| faults::take(&mut state.faults, &method, &path));
    let answer = async |parts: &request::Parts, body: Bytes| match (shared.kind, is_api) {
        (HostKind::AzureDevOps, _) => azure_devops::answer(&shared, parts, body).await,
        (HostKind::Gitlab, true) => gitlab::answer(&shared, parts, body).await,
        (HostKind::Gitlab, false) => gitlab::git(&shared, parts, body).await,
        (HostKind::Gitea, true) => gitea::answer(&shared, parts, body).await,
        (HostKind::BitbucketCloud, true) => bitbucket_cloud::answer(&shared, parts, body).await,
        (HostKind::Github, true) => api::answer(&shared, parts, body).await,
        (HostKind::BitbucketDataCenter, true) => bitbucket_data_center::answer(&shared, parts, body).await,
        (HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud | HostKind::BitbucketDataCenter, false)
            if lfs::is_lfs(&path) =>
        {
            lfs::answer(&shared, parts, &body)
        }
        (HostKind::BitbucketDataCenter, false) => bitbucket_data_center::git(&shared, parts, body).await,
        (HostKind::BitbucketCloud, false) => bitbucket_cloud::git(&shared, parts, body).await,
        (HostKind::Gitea, false) => gitea::git(&shared, parts, body).await,
        (HostKind::Github, false) => git_http::answer(&shared, parts, body, git_http::Fetches::Anything).await,
    };
    let response = match &fault {
        Some(Fault::Status(status, text, headers)) => Some(refusal(*status, text, headers)),
        Some(Fault::Reset) => None,
        Some(Fault::AppliedThenReset) => {
            let applied = answer(&parts, body).await;
            // git's output must be read to its end, otherwise git is stopped in the middle.
            let _ = axum::body::to_bytes(applied.into_body(), MAX_BODY).await;
            None
        }
        Some(Fault::Stall(time)) => {
            tokio::time::sleep(*time).await;
            Some(answer(&parts, body).await)
        }
        Some(Fault::Hold(gate)) => {
            gate.pass().await;
            Some(answer(&parts, body).await)
        }
        None => Some(answer(&parts, body).await),
    };
    let status = response.as_ref().map_or(0, |response| response.status().as_u16());
    shared.change(|state| {
        if state.requests.len() >= MAX_REQUESTS {
            state.requests.pop_front();
        }
        state.requests.push_back(Request { method, path, status });
    });
    match response {
        Some(response) => response,
        None => match switch.reset().await {},
    }
}

/// Returns whether a path is one of the API, and whether it is a page; all others are git's.
fn places(kind: HostKind, path: &str) -> (bool, bool) {
    let is_api = match kind {
        HostKind::BitbucketCloud => path.starts_with("/2.0/"),
        HostKind::BitbucketDataCenter => bitbucket_data_center::is_api(path),
        _ => path.starts_with("/api/"),
    };
    let is_page = match kind {
        HostKind::Github | HostKind::Gitea | HostKind::BitbucketCloud => {
            !is_api && !git_http::is_git(path) && !lfs::is_lfs(path)
        }
        HostKind::AzureDevOps => azure_devops::is_page(path),
        HostKind::Gitlab => !is_api && !gitlab::is_git(path),
        HostKind::BitbucketDataCenter => !is_api && !bitbucket_data_center::is_git(path) && !lfs::is_lfs(path),
    };
    (is_api, is_page)
}

fn refusal(status: u16, text: &str, headers: &[(String, String)]) -> Response {
    let mut builder =
        Response::builder().status(status).header(header::CONTENT_TYPE, "application/json; charset=utf-8");
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    let built = builder.body(Body::from(text.to_owned()));
    built.unwrap_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response())
}

/// Returns the login of a request's token; `None` without a token, an error for an unknown one.
pub(super) fn principal(shared: &Shared, headers: &HeaderMap) -> Result<Option<String>, ()> {
    match token(headers)? {
        None => Ok(None),
        Some(token) => shared.lock().login_of_token(&token).map(Some).ok_or(()),
    }
}

pub(super) fn token(headers: &HeaderMap) -> Result<Option<String>, ()> {
    Ok(credentials(headers)?.map(|found| found.token))
}

/// Credentials of a request.
pub(super) struct RequestCredentials {
    /// User of basic auth; absent for a bare token.
    pub user: Option<String>,
    pub token: String,
}

/// Returns the credentials of a request; `None` without any, an error for those that cannot be read.
pub(super) fn credentials(headers: &HeaderMap) -> Result<Option<RequestCredentials>, ()> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let (scheme, rest) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(())?;
    match scheme.to_lowercase().as_str() {
        "bearer" | "token" => Ok(Some(RequestCredentials { user: None, token: rest.trim().to_owned() })),
        "basic" => {
            let decoded = base64::prelude::BASE64_STANDARD.decode(rest.trim()).map_err(drop)?;
            let decoded = String::from_utf8(decoded).map_err(drop)?;
            let (user, token) = decoded.split_once(':').ok_or(())?;
            Ok(Some(RequestCredentials { user: Some(user.to_owned()), token: token.to_owned() }))
        }
        _ => Err(()),
    }
}
