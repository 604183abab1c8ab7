//! Pages of a VCS host's own, such as those that create an app there. The host's file in `app` has their contents.

use super::Site;
use super::answer::{CONTENT_SECURITY_POLICY, HttpProblem, Visit};
use async_trait::async_trait;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, Uri, header};
use serde::Serialize;
use std::sync::Arc;
use url::Url;

/// A page of a host's own, for people who may change state.
#[async_trait]
pub trait HostPage: Send + Sync {
    /// Returns its path.
    fn path(&self) -> &'static str;

    /// Returns its contents; `query` is the part of the address after `?`, and untrusted.
    async fn show(&self, query: &str) -> HostPageContent;
}

/// Contents of such a page.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HostPageContent {
    /// HTTP status.
    pub status: u16,
    /// Heading.
    pub title: String,
    /// Paragraphs.
    pub text: Vec<String>,
    /// Values that are displayed once, each with its name.
    pub values: Vec<(String, String)>,
    /// A form that is sent to the host.
    pub form: Option<HostForm>,
}

/// A form of one button.
#[derive(Debug, Clone, Serialize)]
pub struct HostForm {
    /// Address that it is sent to.
    pub action: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
    /// Text of the button.
    pub button: String,
}

/// Serves a host's page. Opening it has an effect, so people who may only view pages are refused.
pub(super) async fn show(
    page: Arc<dyn HostPage>,
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    if !visit.may_change {
        let text = "This page is for those who may change state here (--admins).";
        return Err(HttpProblem::new(StatusCode::FORBIDDEN, "Not yours to change", text));
    }
    let content = page.show(uri.query().unwrap_or_default()).await;
    let mut response = site.pages.page("host.html", &visit, &content)?;
    *response.status_mut() = StatusCode::from_u16(content.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let target =
        content.form.and_then(|form| Url::parse(&form.action).ok()).map(|url| url.origin().ascii_serialization());
    let policy = target
        .map(|target| CONTENT_SECURITY_POLICY.replace("form-action 'self'", &format!("form-action 'self' {target}")));
    if let Some(policy) = policy.and_then(|policy| HeaderValue::from_str(&policy).ok()) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}
