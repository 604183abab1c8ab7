//! Lists of several pages.

use super::{Http, odd};
use crate::vcs::HostError;
use jiff::Timestamp;
use serde_json::Value;

impl Http {
    /// Returns the items that `keep` makes of all pages, `per_page` rows each. More than `max_pages` pages are an error, never a cut.
    pub(crate) async fn pages<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
    ) -> Result<Vec<T>, HostError> {
        self.each_page(path, per_page, max_pages, keep, &mut None).await
    }

    async fn each_page<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
        at: &mut Option<Timestamp>,
    ) -> Result<Vec<T>, HostError> {
        let mut items = Vec::new();
        for page in 1..=max_pages {
            let answer = self.get(&page_of(path, per_page, page)).await?;
            *at = at.or(answer.at);
            let Value::Array(found) = answer.body else { return Err(odd(path, "not a list")) };
            items.extend(found.into_iter().filter_map(&keep));
            if answer.next.is_none() {
                return Ok(items);
            }
        }
        Err(too_many(path, per_page, max_pages))
    }

    /// Returns the same, with the time of the first page by the host's clock, or by ours if the host does not report it.
    pub(crate) async fn pages_at<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
    ) -> Result<(Vec<T>, Timestamp), HostError> {
        let mut at = None;
        let items = self.each_page(path, per_page, max_pages, keep, &mut at).await?;
        Ok((items, at.unwrap_or_else(Timestamp::now)))
    }

    /// Returns the items that `keep` makes of all pages, each of which names the address of the next one. An address that is not below the
    /// API's own is an error, as it would get our token; so are more than `max_pages` pages.
    pub(crate) async fn linked_pages<T>(
        &self,
        path: &str,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
    ) -> Result<Vec<T>, HostError> {
        let (mut items, mut page) = (Vec::new(), path.to_owned());
        for _ in 0..max_pages {
            let answer = self.get(&page).await?;
            let Value::Array(found) = answer.body else { return Err(odd(path, "not a list")) };
            items.extend(found.into_iter().filter_map(&keep));
            let Some(next) = answer.next else { return Ok(items) };
            page = self.path_of(&next).ok_or_else(|| odd(path, "its next page is at another address"))?.to_owned();
        }
        let message = format!("more than {max_pages} pages");
        Err(HostError::Rejected { what: format!("GET {path}"), status: 200, message })
    }
}

/// Rows of a list whose pages are objects, and the time of the first page by the host's clock.
pub(crate) struct ValueRows {
    pub(crate) rows: Vec<Value>,
    pub(crate) at: Timestamp,
}

/// Pages that are objects, with the rows in `values` and the address of the next page in `next`.
impl Http {
    /// Returns the rows of all such pages, as [`Http::linked_pages`] does: more than `max_pages` pages are an error, and so is an address
    /// that is not below the API's own.
    pub(crate) async fn value_pages(&self, path: &str, max_pages: u32) -> Result<ValueRows, HostError> {
        let (mut rows, mut at, mut page) = (Vec::new(), None, path.to_owned());
        for _ in 0..max_pages {
            let mut answer = self.get(&page).await?;
            at = at.or(answer.at);
            let Value::Array(found) = answer.body["values"].take() else { return Err(odd(path, "no list of values")) };
            rows.extend(found);
            let Some(next) = answer.body["next"].as_str().filter(|next| !next.is_empty()) else {
                return Ok(ValueRows { rows, at: at.unwrap_or_else(Timestamp::now) });
            };
            page = self.path_below(next).ok_or_else(|| odd(path, "its next page is at another address"))?.to_owned();
        }
        let message = format!("more than {max_pages} pages");
        Err(HostError::Rejected { what: format!("GET {path}"), status: 200, message })
    }

    /// Returns the path below the API's address of an address that the host names; absent if it leads elsewhere.
    pub(crate) fn path_below<'a>(&self, address: &'a str) -> Option<&'a str> {
        self.path_of(address).filter(|path| !climbs(path))
    }
}

/// Returns true if a path leads out of where it begins.
fn climbs(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\']).any(|part| matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | ".."))
}

/// Address of one page of a list.
pub(crate) fn page_of(path: &str, per_page: u32, page: u32) -> String {
    let join = if path.contains('?') { '&' } else { '?' };
    format!("{path}{join}per_page={per_page}&page={page}")
}

/// Error for a list that is longer than allowed.
pub(crate) fn too_many(path: &str, per_page: u32, max_pages: u32) -> HostError {
    let message = format!("more than {} entries", u64::from(max_pages) * u64::from(per_page));
    HostError::Rejected { what: format!("GET {path}"), status: 200, message }
}
