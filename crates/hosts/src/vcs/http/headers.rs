//! Reads the headers of an answer.

use crate::vcs::Budget;
use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, HeaderValue, LINK};
use std::time::Duration;

/// Header about the rate limit: `x-ratelimit-…`, or `ratelimit-…` as GitLab writes it (docs.gitlab.com/administration/settings/
/// user_and_ip_rate_limits, "Response headers").
pub(super) fn limit_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    headers.get(format!("x-ratelimit-{name}")).or_else(|| headers.get(format!("ratelimit-{name}")))
}

/// Number in a header about the rate limit.
pub(super) fn limit_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    limit_header(headers, name)?.to_str().ok()?.trim().parse().ok()
}

/// Rate limit of an answer.
pub(super) enum ToldBudget {
    /// The host counts what is left, or says that less than a fifth is.
    Counted(Budget),
    /// The host does not count, and at least a fifth is left.
    Ample,
    /// The host says nothing.
    Untold,
}

/// Reads the rate limit. Bitbucket Cloud does not count what is left, but says when less than a fifth is
/// (support.atlassian.com/bitbucket-cloud/docs/api-request-limits, "Response headers"): then it stands for just below that.
pub(super) fn told_budget(headers: &HeaderMap) -> ToldBudget {
    let Some(all) = limit_number(headers, "limit") else { return ToldBudget::Untold };
    if let Some(left) = limit_number(headers, "remaining") {
        return ToldBudget::Counted(Budget { left, all });
    }
    match limit_header(headers, "nearlimit").is_some_and(|near| near.as_bytes().eq_ignore_ascii_case(b"true")) {
        true => ToldBudget::Counted(Budget { left: all.saturating_sub(1) / 5, all }),
        false => ToldBudget::Ample,
    }
}

/// Time until a limit that fills up again steadily is whole, as the limits of Data Center products are
/// (confluence.atlassian.com/adminjiraserver, "Adjusting your code for rate limiting"); absent if the host does not say so.
pub(super) fn refill(headers: &HeaderMap, budget: Budget) -> Option<Duration> {
    let (rate, interval) = (limit_number(headers, "fillrate")?, limit_number(headers, "interval-seconds")?);
    let steps = budget.all.saturating_sub(budget.left).checked_add(rate)?.checked_div(rate)?;
    Some(Duration::from_secs(interval.saturating_mul(steps)))
}

/// Text of a header; absent if it is empty or not ASCII.
pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty()).map(str::to_owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[(&'static str, &'static str)]) -> Option<Option<(u64, u64)>> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        match told_budget(&headers.collect()) {
            ToldBudget::Counted(budget) => Some(Some((budget.left, budget.all))),
            ToldBudget::Ample => Some(None),
            ToldBudget::Untold => None,
        }
    }

    #[test]
    fn a_limit_that_is_near_counts_as_low_where_the_rest_is_not_counted() {
        let near = [("x-ratelimit-limit", "1000"), ("x-ratelimit-nearlimit", "true")];
        assert_eq!(told(&near), Some(Some((199, 1000))));
        assert!(Budget { left: 199, all: 1000 }.is_low());
        assert_eq!(told(&[("x-ratelimit-limit", "1"), ("x-ratelimit-nearlimit", "True")]), Some(Some((0, 1))));
        assert_eq!(told(&[("x-ratelimit-limit", "1000"), ("x-ratelimit-nearlimit", "false")]), Some(None));
        assert_eq!(told(&[("x-ratelimit-limit", "1000")]), Some(None));
        assert_eq!(told(&[("x-ratelimit-nearlimit", "true")]), None);
        let counted =
            [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-nearlimit", "true")];
        assert_eq!(told(&counted), Some(Some((4000, 5000))));
    }

    #[test]
    fn a_limit_that_fills_up_steadily_is_whole_soon() {
        let filled = |pairs: &[(&'static str, &'static str)]| {
            let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            refill(&headers.collect(), Budget { left: 10, all: 60 })
        };
        let told = [("x-ratelimit-fillrate", "5"), ("x-ratelimit-interval-seconds", "2")];
        assert_eq!(filled(&told), Some(Duration::from_secs(22)));
        assert_eq!(filled(&told[..1]), None);
        assert_eq!(filled(&[("x-ratelimit-fillrate", "0"), told[1]]), None);
    }
}
