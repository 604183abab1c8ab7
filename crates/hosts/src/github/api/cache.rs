//! Cache of lists that are requested repeatedly. GitHub does not send an unchanged answer again, and does not count it against the rate
//! limit.

use crate::vcs::HostError;
use crate::vcs::http::{Http, odd, page_of, too_many};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most pages in the cache.
const MAX_PAGES: usize = 5_000;
/// Most rows in the cache. The pages that were not requested for the longest time are removed first.
const MAX_ROWS: usize = 50_000;

/// Pages of lists as last sent.
pub(super) struct Cache<T> {
    pages: Mutex<Pages<T>>,
}

struct Pages<T> {
    known: HashMap<String, Page<T>>,
    rows: usize,
    /// Number of lookups so far.
    now: u64,
}

#[derive(Clone)]
struct Page<T> {
    etag: String,
    rows: Vec<T>,
    has_next: bool,
    used: u64,
}

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache { pages: Mutex::new(Pages { known: HashMap::new(), rows: 0, now: 0 }) }
    }
}

impl<T: Clone> Cache<T> {
    /// Returns the rows that `keep` makes of all pages of a list, `per_page` rows each. More than `max_pages` pages are an error, and so is
    /// a row for which `keep` fails.
    pub(super) async fn pages(
        &self,
        http: &Http,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<Result<T, HostError>> + Send + Sync,
    ) -> Result<Vec<T>, HostError> {
        let mut rows = Vec::new();
        for page in 1..=max_pages {
            let (more, has_next) = self.page(http, &page_of(path, per_page, page), &keep).await?;
            rows.extend(more);
            if !has_next {
                return Ok(rows);
            }
        }
        Err(too_many(path, per_page, max_pages))
    }

    /// Returns the rows of one page, and `true` if there is a next one.
    pub(super) async fn page(
        &self,
        http: &Http,
        path: &str,
        keep: impl Fn(Value) -> Option<Result<T, HostError>> + Send + Sync,
    ) -> Result<(Vec<T>, bool), HostError> {
        let known = self.find(path);
        let answer = http.get_unless(path, known.as_ref().map(|page| page.etag.as_str())).await?;
        if let Some(page) = known.filter(|_| answer.unchanged) {
            return Ok((page.rows, page.has_next));
        }
        let Value::Array(found) = answer.body else { return Err(odd(path, "not a list")) };
        let rows: Vec<T> = found.into_iter().filter_map(keep).collect::<Result<_, _>>()?;
        match answer.etag {
            Some(etag) => self.put(path, Page { etag, rows: rows.clone(), has_next: answer.next.is_some(), used: 0 }),
            None => self.remove(path),
        }
        Ok((rows, answer.next.is_some()))
    }

    fn lock(&self) -> MutexGuard<'_, Pages<T>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, path: &str) -> Option<Page<T>> {
        let mut pages = self.lock();
        pages.now += 1;
        let now = pages.now;
        let page = pages.known.get_mut(path)?;
        page.used = now;
        Some(page.clone())
    }

    fn remove(&self, path: &str) {
        let mut pages = self.lock();
        if let Some(gone) = pages.known.remove(path) {
            pages.rows -= gone.rows.len();
        }
    }

    fn put(&self, path: &str, page: Page<T>) {
        self.remove(path);
        let mut pages = self.lock();
        pages.rows += page.rows.len();
        let now = pages.now;
        pages.known.insert(path.to_owned(), Page { used: now, ..page });
        while pages.known.len() > MAX_PAGES || pages.rows > MAX_ROWS {
            let oldest = pages.known.iter().min_by_key(|(_, page)| page.used).map(|(path, _)| path.clone());
            let Some(gone) = oldest.and_then(|path| pages.known.remove(&path)) else { return };
            pages.rows -= gone.rows.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_not_asked_for_the_longest_go_first() {
        let cache = Cache::default();
        let page = |rows: usize| Page { etag: "e".to_owned(), rows: vec![(); rows], has_next: false, used: 0 };
        for number in 0..MAX_PAGES {
            assert!(cache.find(&number.to_string()).is_none());
            cache.put(&number.to_string(), page(1));
        }
        assert!(cache.find("0").is_some());
        cache.put("more", page(1));
        assert!(cache.find("0").is_some() && cache.find("1").is_none());
        cache.put("large", page(MAX_ROWS));
        let kept = || {
            let pages = cache.lock();
            (pages.known.len(), pages.rows)
        };
        assert_eq!(kept(), (1, MAX_ROWS));
        cache.put("large", page(2));
        assert_eq!(kept(), (1, 2));
    }
}
