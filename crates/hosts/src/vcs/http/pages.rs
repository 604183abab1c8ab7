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
            rows.extend(values(&mut answer.body).ok_or_else(|| odd(path, "no list of values"))?);
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

/// Rows of a list whose pages are known by the number of their first row, and the time of the first page by the host's clock.
pub(crate) struct StartRows {
    pub(crate) rows: Vec<Value>,
    pub(crate) at: Timestamp,
    /// False if the list has more rows than were to be read.
    pub(crate) is_whole: bool,
}

/// Fewest rows that a page counts as, so that the number of requests has a limit: the host's usual number of rows.
const LEAST_ROWS: usize = 25;
/// Part of a page that is requested where a whole one is too large to be read.
const SMALLER: u32 = 10;

/// Pages that are objects, with the rows in `values`, `isLastPage`, and the number of the next page's first row in `nextPageStart`
/// (developer.atlassian.com/server/bitbucket/rest, "Paged APIs").
impl Http {
    /// Returns the rows of all such pages, of at most `limit` rows each; the host may cut them shorter. More rows than `max_pages` whole pages
    /// have are an error, and so is a page that leads back.
    pub(crate) async fn start_pages(&self, path: &str, limit: u32, max_pages: u32) -> Result<StartRows, HostError> {
        let read = self.start_pages_until(path, limit, max_pages, |_| false).await?;
        if read.is_whole { Ok(read) } else { Err(too_many(path, limit, max_pages)) }
    }

    /// Returns the rows of such pages up to the page with a row for which `ends` is true, or up to the last page. It stops, without an error,
    /// after as many rows as `max_pages` whole pages have.
    pub(crate) async fn start_pages_until(
        &self,
        path: &str,
        limit: u32,
        max_pages: u32,
        mut ends: impl FnMut(&Value) -> bool + Send,
    ) -> Result<StartRows, HostError> {
        let join = if path.contains('?') { '&' } else { '?' };
        let most = u64::from(limit) * u64::from(max_pages);
        let (mut rows, mut at, mut start, mut counted, mut limit) = (Vec::new(), None, 0, 0_u64, limit);
        while counted < most {
            let mut answer = match self.get(&format!("{path}{join}limit={limit}&start={start}")).await {
                Err(error) if limit > 1 && self.is_too_large(&error) => {
                    limit = (limit / SMALLER).max(1);
                    continue;
                }
                answered => answered?,
            };
            at = at.or(answer.at);
            let found = values(&mut answer.body).ok_or_else(|| odd(path, "no list of values"))?;
            counted += found.len().max(LEAST_ROWS) as u64;
            let is_end = found.iter().any(&mut ends);
            rows.extend(found);
            if is_end || answer.body["isLastPage"] != false {
                return Ok(StartRows { rows, at: at.unwrap_or_else(Timestamp::now), is_whole: true });
            }
            let next = answer.body["nextPageStart"].as_u64().filter(|next| *next > start);
            start = next.ok_or_else(|| odd(path, "no next page, and not the last one"))?;
        }
        Ok(StartRows { rows, at: at.unwrap_or_else(Timestamp::now), is_whole: false })
    }
}

/// Takes the rows out of a page; absent if it is no object, or has none.
fn values(page: &mut Value) -> Option<Vec<Value>> {
    match page.get_mut("values")?.take() {
        Value::Array(rows) => Some(rows),
        _ => None,
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
