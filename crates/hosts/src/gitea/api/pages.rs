//! Lists of several pages. The host cuts a `limit` above its own silently (services/convert/utils.go, `ToCorrectPageSize`), and some lists
//! have no `Link` header but the number of their rows alone (routers/api/v1/repo/pull_review.go, hook.go).

use super::Gitea;
use crate::vcs::HostError;
use crate::vcs::http::{Answer, odd, too_many};
use serde_json::Value;

/// Rows on one page: the host's maximum, unless it is configured (modules/setting/api.go, `MaxResponseItems`).
pub(super) const PER_PAGE: u32 = 50;

impl Gitea {
    /// Returns the rows of all pages. More than `max_pages` pages are an error, never a cut.
    pub(super) async fn rows(&self, path: &str, max_pages: u32) -> Result<Vec<Value>, HostError> {
        let (mut rows, mut largest) = (Vec::new(), 0);
        for page in 1..=max_pages {
            let (found, is_last) = self.page(path, page, &mut largest).await?;
            rows.extend(found);
            if is_last {
                return Ok(rows);
            }
        }
        Err(too_many(path, PER_PAGE, max_pages))
    }

    /// Returns the rows of one page, and true if it is the last one; `largest` is kept between the pages of a list. The address of the next
    /// page is not followed: its host is that of the instance's `ROOT_URL`, which need not be ours.
    pub(super) async fn page(&self, path: &str, page: u32, largest: &mut u64) -> Result<(Vec<Value>, bool), HostError> {
        let answer = self.http.get(&page_of(path, page)).await?;
        let is_last = is_last(&answer, page, largest);
        match answer.body {
            Value::Array(rows) => Ok((rows, is_last)),
            _ => Err(odd(path, "not a list")),
        }
    }
}

/// Address of one page of a list.
pub(super) fn page_of(path: &str, page: u32) -> String {
    let join = if path.contains('?') { '&' } else { '?' };
    format!("{path}{join}limit={PER_PAGE}&page={page}")
}

/// Returns true if this page is the last one. `largest`: rows of the largest page so far, below which the host's own limit cannot be. A page
/// may have fewer rows than it stands for: pending reviews of others are left out of it (services/convert/pull_review.go).
fn is_last(answer: &Answer, page: u32, largest: &mut u64) -> bool {
    let rows = answer.body.as_array().map_or(0, Vec::len) as u64;
    *largest = rows.max(*largest);
    let is_counted = answer.total.map_or(rows == 0, |total| largest.saturating_mul(u64::from(page)) >= total);
    answer.next.is_none() && is_counted
}
