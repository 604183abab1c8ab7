//! The API of GitHub Apps: the App itself with tokens that it signs, tokens of its installations, its deliveries, and manifests.

use super::super::app::AppState;
use super::super::state::State;
use super::super::{Shared, hooks, server, shapes};
use super::{ApiReply, NOT_FOUND, Refusal, Result, created, invalid, ok};
use http::{HeaderMap, Method, StatusCode, request};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

/// Returns true if a path below the API's is the App's own.
pub(super) fn is_of_apps(path: &str) -> bool {
    matches!(path.split('/').next(), Some("app" | "app-manifests"))
}

/// Answers a request to such a path.
pub(super) fn answer(shared: &Shared, parts: &request::Parts, path: &str, body: &[u8]) -> Result {
    let segments: Vec<&str> = path.split('/').collect();
    if let ("POST", ["app-manifests", code, "conversions"]) = (parts.method.as_str(), segments.as_slice()) {
        return convert(shared, code);
    }
    shared.change(|state| {
        let now = jiff::Timestamp::now() + state.clock_ahead;
        let token = server::token(&parts.headers).ok().flatten().unwrap_or_default();
        let app = state.app.as_mut().ok_or_else(NOT_FOUND)?;
        let refused = |message: &str| Refusal(StatusCode::UNAUTHORIZED, message.to_owned());
        app.check(&token, now.as_second()).map_err(refused)?;
        let url = &shared.url;
        match (parts.method.as_str(), segments.as_slice()) {
            ("GET", ["app"]) => {
                ok(json!({"id": app.id, "slug": app.slug, "name": app.slug, "permissions": app.permissions,
                "events": app.events, "html_url": format!("{url}/apps/{}", app.slug)}))
            }
            ("GET", ["app", "installations"]) => ok(if is_first(parts) { installations(url, app) } else { json!([]) }),
            ("POST", ["app", "installations", id, "access_tokens"]) => new_token(app, id, body),
            ("GET", ["app", "hook", "config"]) => {
                ok(json!({"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": state.webhook}))
            }
            ("GET", ["app", "hook", "deliveries"]) => ok(deliveries(state)),
            ("GET", ["app", "hook", "deliveries", id]) => {
                let found = state.deliveries.iter().find(|one| one.id.to_string() == *id).ok_or_else(NOT_FOUND)?;
                let mut body = shapes::delivery(found);
                body["response"] = json!({"headers": {}, "payload": found.answer});
                ok(body)
            }
            ("POST", ["app", "hook", "deliveries", id, "attempts"]) => {
                let id = id.parse().map_err(|_| NOT_FOUND())?;
                hooks::redeliver(state, id).map_err(|_| NOT_FOUND())?;
                Ok(ApiReply(StatusCode::ACCEPTED, json!({}), HeaderMap::new()))
            }
            _ => Err(NOT_FOUND()),
        }
    })
}

/// Returns true for the first page: lists have only one.
fn is_first(parts: &request::Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).all(|(name, value)| name != "page" || value == "1")
}

fn installations(url: &str, app: &AppState) -> Value {
    let row = |one: &super::super::app::InstallationState| {
        json!({"id": one.id, "account": {"login": one.account, "type": "Organization"}, "app_id": app.id, "app_slug": app.slug,
            "permissions": app.permissions, "events": app.events, "repository_selection": "all",
            "suspended_at": one.suspended.then_some("2026-01-01T00:00:00Z"),
            "html_url": format!("{url}/organizations/{}/settings/installations/{}", one.account, one.id)})
    };
    app.installations.iter().map(row).collect()
}

fn new_token(app: &mut AppState, id: &str, body: &[u8]) -> Result {
    let found = app.installations.iter().find(|one| one.id.to_string() == id).ok_or_else(NOT_FOUND)?;
    if found.suspended {
        return Err(Refusal(StatusCode::FORBIDDEN, "This installation has been suspended".to_owned()));
    }
    let (id, asked) = (found.id, serde_json::from_slice::<Value>(body).unwrap_or_default());
    let rights = asked["permissions"].as_object();
    if rights.is_some_and(|rights| !app.grants(rights)) {
        return Err(invalid("The permissions requested are not granted to this installation."));
    }
    let only_reads = rights.is_some_and(|rights| rights.values().all(|level| level == "read"));
    let (token, end) = app.new_token(id, only_reads).ok_or_else(NOT_FOUND)?;
    let rights = rights.map_or_else(|| app.permissions.clone(), |rights| Value::from(rights.clone()));
    let end = end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    created(json!({"token": token, "expires_at": end, "permissions": rights, "repository_selection": "all"}))
}

/// Lists finished attempts, latest first.
fn deliveries(state: &State) -> Value {
    state.deliveries.iter().rev().filter(|one| one.done).take(super::MAX_PER_PAGE).map(shapes::delivery).collect()
}

/// Lists the repositories of the installation whose token is used.
pub(super) fn repositories(shared: &Shared, parts: &request::Parts) -> Result {
    let state = shared.lock();
    let token = server::token(&parts.headers).ok().flatten().unwrap_or_default();
    let account = state.app.as_ref().and_then(|app| Some(app.installation_of(&token)?.account.clone()));
    let refused =
        || Refusal(StatusCode::FORBIDDEN, "You must authenticate with an installation access token".to_owned());
    let account = account.ok_or_else(refused)?;
    let of_account = state.repos.values().filter(|repo| repo.owner.eq_ignore_ascii_case(&account) && is_first(parts));
    let rows: Vec<Value> = of_account.map(|repo| shapes::repo(&shared.url, &state, repo)).collect();
    ok(json!({"total_count": rows.len(), "repository_selection": "all", "repositories": rows}))
}

/// Returns the App that was made from a manifest. Its code works once.
fn convert(shared: &Shared, code: &str) -> Result {
    let made = shared.change(|state| state.manifests.remove(code).map(|made| (state.new_id(), made)));
    let (id, (slug, key)) = made.ok_or_else(NOT_FOUND)?;
    created(json!({"id": id, "slug": slug, "name": slug, "html_url": format!("{}/apps/{slug}", shared.url), "pem": key,
        "webhook_secret": shared.webhook_secret.expose_secret(), "client_id": "Iv1.x", "client_secret": "x"}))
}

/// Refuses what the token of an installation does not allow.
pub(super) fn check_token(shared: &Shared, parts: &request::Parts, full_name: &str) -> Result<()> {
    let state = shared.lock();
    if !super::super::app::may_see(&state, &parts.headers, full_name) {
        return Err(NOT_FOUND());
    }
    if parts.method != Method::GET && super::super::app::only_reads(&state, &parts.headers) {
        return Err(Refusal(StatusCode::FORBIDDEN, "Resource not accessible by integration".to_owned()));
    }
    Ok(())
}
