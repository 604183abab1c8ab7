//! `/changes`: tells open pages that the state has changed, as server-sent events, so that they load what they show again.

use super::answer::{self, HttpProblem};
use super::openapi::about;
use super::{Route, Site, Who, route};
use axum::extract::{Query, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures::Stream;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

/// Returns the route.
pub(super) fn routes() -> Vec<Route> {
    let doc = about("Tells pages that the state has changed.").query("since", "Revision that the page shows.");
    vec![route(Method::GET, "/changes", Who::People, stream, doc.text("text/event-stream").problems(&[400]))]
}

/// Maximum number of pages that are told at the same time. Others ask by themselves.
pub(super) const MAX_PAGES: usize = 256;

/// Shortest time between two events of a page: a busy server commits many times a second.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Since {
    /// Revision that the page shows.
    since: Option<String>,
}

/// Revisions of the state, as pages name them: no two processes have one in common.
#[derive(Clone)]
pub(super) struct Revisions {
    /// Prefix of this process.
    pub(super) process: u32,
    /// Counter of the store's commits.
    pub(super) commits: watch::Receiver<u64>,
}

impl Revisions {
    /// Returns the current revision.
    pub(super) fn current(&self) -> String {
        format!("{:08x}-{}", self.process, *self.commits.borrow())
    }
}

/// Sends an event with the current revision if the page shows another one, and then whenever the state has changed.
async fn stream(
    State(site): State<Arc<Site>>,
    Query(query): Query<Since>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let revisions = site.revisions()?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let shown = resumed.or(query.since).ok_or_else(|| {
        let text = "since has to be the revision that the page shows.";
        HttpProblem::new(StatusCode::BAD_REQUEST, "No revision", text)
    })?;
    let permit = site.watchers.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{MAX_PAGES} pages are kept up to date already; reload the page to see what is new.");
        HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "Too many pages", text)
    })?;
    let watcher = Watcher { revisions, shown, told: None, pause: PAUSE, _permit: Some(permit) };
    Ok(answer::events(watcher.events()))
}

/// One page that is kept up to date.
struct Watcher {
    revisions: Revisions,
    /// Revision that the page shows, or was told.
    shown: String,
    /// Time of the last event.
    told: Option<Instant>,
    /// Shortest time between two events.
    pause: Duration,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Watcher {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(self, |mut watcher| async {
            let event = watcher.next().await?;
            Some((Ok(event), watcher))
        })
    }

    /// Waits for a revision that the page does not show. `None` once this server does not lead any more: the page then connects to the
    /// server that does.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(told) = self.told {
                tokio::time::sleep_until(told + self.pause).await;
            }
            self.revisions.commits.mark_unchanged();
            let current = self.revisions.current();
            if self.shown != current {
                self.told = Some(Instant::now());
                self.shown.clone_from(&current);
                return Some(Event::default().event("change").id(current).data(""));
            }
            self.revisions.commits.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, StreamExt};
    use std::pin::pin;

    #[tokio::test]
    async fn pages_are_told_of_what_they_do_not_show_and_not_more_often_than_they_can_load() {
        let pause = Duration::from_millis(100);
        let (commits, seen) = watch::channel(7);
        let revisions = Revisions { process: 1, commits: seen };
        let watcher = |shown: &str| Watcher {
            revisions: revisions.clone(),
            shown: shown.into(),
            told: None,
            pause,
            _permit: None,
        };
        let mut of_another_process = pin!(watcher("00000002-7").events());
        assert!(of_another_process.next().await.is_some(), "another process counts anew");

        let mut events = pin!(watcher("00000001-7").events());
        assert!(events.next().now_or_never().is_none(), "nothing has changed");
        let begin = Instant::now();
        commits.send_replace(8);
        assert!(events.next().now_or_never().is_some(), "the first change is told at once");
        for commit in 9..20 {
            commits.send_replace(commit);
        }
        assert!(events.next().now_or_never().is_none(), "changes that follow wait");
        assert!(events.next().await.is_some());
        assert!(begin.elapsed() >= pause, "and are told together");
        assert!(events.next().now_or_never().is_none(), "the last event named the newest revision");
        drop(commits);
        assert!(events.next().await.is_none(), "the server does not lead any more");
    }
}
