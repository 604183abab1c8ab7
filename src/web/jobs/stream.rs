//! `/jobs/{id}/stream`: the lines after those of the page, as server-sent events. Each event has its line number as ID,
//! so that a browser resumes after a reconnect.

use super::ansi::{Span, TextStyle};
use super::{checked, log};
use crate::store::logs::LogReader;
use crate::web::Site;
use crate::web::answer::{self, HttpProblem};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures::Stream;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Maximum number of concurrent streams.
pub(in crate::web) const MAX_STREAMS: usize = 128;

/// Delay before a disconnected browser reconnects.
const RECONNECT: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(in crate::web) struct From {
    /// Number of lines that the page has already.
    from: Option<usize>,
}

/// A line: its class and its pieces.
#[derive(Serialize)]
struct Line {
    k: &'static str,
    s: Vec<Span>,
}

/// Follows a log.
pub(in crate::web) async fn stream(
    State(site): State<Arc<Site>>,
    Path(id): Path<String>,
    Query(query): Query<From>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let id = checked(&id)?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let from = resumed.or(query.from).unwrap_or(0);
    let permit = site.streams.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{MAX_STREAMS} logs are being followed already; reload the page to see what is new.");
        HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "Too many streams", text)
    })?;
    let reader = services.logs.read(&id).await?.ok_or_else(|| HttpProblem::not_found("This job has no log."))?;
    Ok(answer::events(Follower::new(reader, from, Some(permit)).events()))
}

/// One reader of a log.
struct Follower {
    reader: LogReader,
    /// Lines that were read and not sent yet.
    waiting: VecDeque<String>,
    /// Number of lines to skip: the page has them already.
    known: usize,
    /// Number of the last sent or skipped line.
    sent: usize,
    style: TextStyle,
    ended: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Follower {
    fn new(reader: LogReader, from: usize, permit: Option<OwnedSemaphorePermit>) -> Follower {
        let waiting = VecDeque::new();
        Follower { reader, waiting, known: from, sent: 0, style: TextStyle::default(), ended: false, _permit: permit }
    }

    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(self, |mut follower| async {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                match self.line(&line) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            if self.ended {
                return None;
            }
            match self.reader.next().await {
                Ok(Some(piece)) => self.waiting.extend(log::lines(&piece).map(str::to_owned)),
                Ok(None) => {
                    self.ended = true;
                    return Some(Event::default().event("end").data(self.sent.to_string()));
                }
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "a log could not be followed");
                    self.ended = true;
                    return Some(Event::default().event("notice").data("the log cannot be read; reload the page"));
                }
            }
        }
    }

    /// Converts a line into an event, if it is not skipped. Skipped lines are parsed too, since their colours continue on later lines.
    fn line(&mut self, text: &str) -> Option<Event> {
        let spans = self.style.spans(text);
        self.sent += 1;
        if self.sent <= self.known {
            return None;
        }
        let line = Line { k: log::kind(&spans), s: spans };
        let event = Event::default().event("line").id(self.sent.to_string()).retry(RECONNECT);
        Some(event.json_data(line).unwrap_or_else(|_| Event::default().comment("a line that cannot be shown")))
    }
}

/// Returns all events of a stream, for tests.
#[cfg(test)]
pub(in crate::web) async fn log_events(reader: LogReader, from: usize) -> String {
    let body = answer::events(Follower::new(reader, from, None).events()).into_body();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::logs::Logs;

    const JOB: &str = "0123456789abcdef0123456789abcdef";

    #[tokio::test]
    async fn a_finished_log_is_sent_from_where_the_page_ends() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::new(dir.path());
        logs.create(&JOB.into()).unwrap().line("one\n\x1b[31mtwo\nthree");
        let text = log_events(logs.read(&JOB.into()).await.unwrap().unwrap(), 2).await;
        insta::assert_snapshot!(text, @r##"
    event: line
    id: 3
    retry: 2000
    data: {"k":"","s":[["c1","three"]]}

    event: end
    data: 3
    "##);
    }

    #[tokio::test]
    async fn a_growing_log_is_followed_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let logs = Logs::new(dir.path());
        let writer = logs.create(&JOB.into()).unwrap();
        writer.line("one");
        let reader = logs.read(&JOB.into()).await.unwrap().unwrap();
        let writing = async move {
            writer.line("two");
            tokio::task::yield_now().await;
            writer.line("three\nfour");
        };
        let (text, ()) = tokio::join!(log_events(reader, 0), writing);
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, ["1", "2", "3", "4"]);
        assert!(text.trim_end().ends_with("event: end\ndata: 4"), "{text}");
    }
}
