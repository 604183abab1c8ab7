//! Reads the headers of an answer.

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, HeaderValue, LINK};

/// Header about the rate limit: `x-ratelimit-…`, or `ratelimit-…` as GitLab writes it (docs.gitlab.com/administration/settings/
/// user_and_ip_rate_limits, "Response headers").
pub(super) fn limit_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    headers.get(format!("x-ratelimit-{name}")).or_else(|| headers.get(format!("ratelimit-{name}")))
}

/// Time of an answer, by the host's clock.
pub(super) fn moment(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(date).ok().map(|at| at.timestamp())
}

/// Address of the next page, if a `Link` header names one (RFC 8288).
pub(super) fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let next = links.flat_map(|links| links.split(',')).find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}

/// Number of rows of a list of several pages (`x-total-count`).
pub(super) fn row_count(headers: &HeaderMap) -> Option<u64> {
    headers.get("x-total-count")?.to_str().ok()?.trim().parse().ok()
}
