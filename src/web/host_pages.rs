//! Pages of a VCS host's own, such as those on which an app is made there. What is on them is said by the host's file in `app`.

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
    /// Its path.
    fn path(&self) -> &'static str;

    /// What it shows; `query` is what follows the `?` of the address, and untrusted.
    async fn show(&self, query: &str) -> HostPageContent;
}

/// What such a page shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HostPageContent {
    /// HTTP status.
    pub status: u16,
    /// Heading.
    pub title: String,
    /// Paragraphs.
    pub text: Vec<String>,
    /// What is shown once, each with its name.
    pub values: Vec<(String, String)>,
    /// A form that is sent to the host.
    pub form: Option<HostForm>,
}

/// A form of one button.
#[derive(Debug, Clone, Serialize)]
pub struct HostForm {
    /// Where it is sent.
    pub action: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
    /// What the button says.
    pub button: String,
}

/// Answers it. Looking at it is the same as acting, so that those who may only look do not get it.
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
