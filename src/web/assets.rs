//! Stylesheet, scripts and icon: embedded, named by a hash of their content, and cached without a time limit.

use super::Site;
use super::answer::typed;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Hex digits of the hash in a name.
const HASH_DIGITS: usize = 12;

/// One embedded file.
pub(super) struct Asset {
    /// Name with the hash, under `static/`.
    pub(super) name: String,
    pub(super) content: &'static str,
    content_type: &'static str,
}

impl Asset {
    fn new(stem: &str, extension: &str, content_type: &'static str, content: &'static str) -> Asset {
        let hash = hex::encode(Sha256::digest(content));
        Asset { name: format!("{stem}.{}.{extension}", &hash[..HASH_DIGITS]), content, content_type }
    }
}

/// All embedded files.
pub(super) struct Assets {
    pub(super) style: Asset,
    pub(super) script: Asset,
    /// Runs before the first paint, so that the page does not show the other theme for a moment.
    pub(super) theme: Asset,
    pub(super) icon: Asset,
}

impl Assets {
    pub(super) fn new() -> Assets {
        let style = include_str!("../../templates/pages/tidelock.css");
        let script = include_str!("../../templates/pages/tidelock.js");
        let theme = include_str!("../../templates/pages/theme.js");
        let icon = include_str!("../../templates/pages/icon.svg");
        Assets {
            style: Asset::new("tidelock", "css", "text/css; charset=utf-8", style),
            script: Asset::new("tidelock", "js", "text/javascript; charset=utf-8", script),
            theme: Asset::new("theme", "js", "text/javascript; charset=utf-8", theme),
            icon: Asset::new("icon", "svg", "image/svg+xml", icon),
        }
    }
}

/// Serves an embedded file by its full name.
pub(super) async fn serve(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Response {
    let Assets { style, script, theme, icon } = &site.pages.assets;
    let Some(asset) = [style, script, theme, icon].into_iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "no such file").into_response();
    };
    let mut response = typed(asset.content_type, asset.content);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // An icon that is opened as a document gets the same policy.
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(super::answer::CONTENT_SECURITY_POLICY));
    response
}
