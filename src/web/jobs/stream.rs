//! `/jobs/{id}/stream`: the lines that come after those of the page, as server-sent events. Each carries its number as id, so
//! that a browser that reconnects goes on where it was.

use super::ansi::{Span, Style};
use super::{checked, log};
use crate::store::logs::{LogReader, Logs};
use crate::web::Site;
use crate::web::answer::Problem;
use axum::extract::{Path, Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;

/// Most streams that are open at the same time.
pub(in crate::web) const MAX_STREAMS: usize = 128;

/// A comment is sent when nothing else was for this long, so that proxies keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// After this long a browser that lost its connection tries again.
const RECONNECT: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(in crate::web) struct From {
    /// How many lines the page has already.
    from: Option<usize>,
}

/// One line: what it is about, and its pieces.
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
) -> Result<Response, Problem> {
    let ready = site.ready()?;
    let id = checked(&id)?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let from = resumed.or(query.from).unwrap_or(0);
    let permit = site.streams.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{MAX_STREAMS} logs are being followed already; reload the page to see what is new.");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "Too many streams", text)
    })?;
    let reader = ready.logs.read(id).await?.ok_or_else(|| Problem::not_found("This job has no log."))?;
    let follower = Follower::new(ready.logs.clone(), id.to_owned(), reader, from, Some(permit));
    let mut response = Sse::new(follower.events()).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // Proxies such as nginx would collect events otherwise.
    response.headers_mut().insert("x-accel-buffering", http::HeaderValue::from_static("no"));
    Ok(response)
}

/// One reader of a log.
struct Follower {
    logs: Logs,
    id: String,
    reader: LogReader,
    /// Lines that are there but not sent.
    waiting: VecDeque<String>,
    /// Number of the last line that was sent.
    sent: usize,
    style: Style,
    ended: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Follower {
    fn new(logs: Logs, id: String, reader: LogReader, from: usize, permit: Option<OwnedSemaphorePermit>) -> Follower {
        let mut style = Style::default();
        for line in log::lines(&reader.so_far).take(from) {
            style.spans(line);
        }
        let waiting = VecDeque::new();
        let mut follower = Follower { logs, id, reader, waiting, sent: from, style, ended: false, _permit: permit };
        follower.take_over();
        follower
    }

    /// Moves what the reader has beyond the lines that were sent to those that wait.
    fn take_over(&mut self) {
        let so_far = std::mem::take(&mut self.reader.so_far);
        self.waiting.extend(log::lines(&so_far).skip(self.sent).map(str::to_owned));
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
                return Some(self.line(&line));
            }
            if self.ended {
                return None;
            }
            match &mut self.reader.lines {
                None => {
                    self.ended = true;
                    return Some(Event::default().event("end").data(self.sent.to_string()));
                }
                Some(lines) => match lines.recv().await {
                    Ok(text) => self.waiting.extend(text.trim_end_matches('\n').split('\n').map(str::to_owned)),
                    Err(RecvError::Closed) => self.reader.lines = None,
                    Err(RecvError::Lagged(missed)) => {
                        if let Some(notice) = self.catch_up(missed).await {
                            return Some(notice);
                        }
                    }
                },
            }
        }
    }

    fn line(&mut self, text: &str) -> Event {
        let spans = self.style.spans(text);
        self.sent += 1;
        let line = Line { k: log::kind(&spans), s: spans };
        let event = Event::default().event("line").id(self.sent.to_string()).retry(RECONNECT);
        event.json_data(line).unwrap_or_else(|_| Event::default().comment("a line that cannot be shown"))
    }

    /// Lines came faster than this reader took them: the log itself still has them. Tells so where it has not.
    async fn catch_up(&mut self, missed: u64) -> Option<Event> {
        match self.logs.read(&self.id).await {
            Ok(Some(reader)) => {
                self.reader = reader;
                self.take_over();
                None
            }
            Ok(None) | Err(_) => {
                self.sent += usize::try_from(missed).unwrap_or(usize::MAX);
                Some(Event::default().event("notice").data(format!("{missed} lines were skipped; reload to see them")))
            }
        }
    }
}

/// All that a reader is sent, for tests.
#[cfg(test)]
pub(in crate::web) async fn log_events(logs: Logs, id: String, reader: LogReader, from: usize) -> String {
    let body = Sse::new(Follower::new(logs, id, reader, from, None).events()).into_response().into_body();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast;

    async fn sent(so_far: &str, lines: Option<broadcast::Receiver<String>>, from: usize) -> String {
        let logs = Logs::new(std::path::Path::new("/nonexistent"));
        log_events(logs, "0".repeat(32), LogReader { so_far: so_far.into(), lines }, from).await
    }

    #[tokio::test]
    async fn a_finished_log_is_sent_from_where_the_page_ends() {
        let text = sent("one\n\x1b[31mtwo\nthree\n", None, 2).await;
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
        let (sender, receiver) = broadcast::channel(8);
        let writer = async move {
            sender.send("two".to_owned()).unwrap();
            tokio::task::yield_now().await;
            sender.send("three\nfour\n".to_owned()).unwrap();
        };
        let (text, ()) = tokio::join!(sent("one\n", Some(receiver), 0), writer);
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, ["1", "2", "3", "4"]);
        assert!(text.trim_end().ends_with("event: end\ndata: 4"), "{text}");
    }
}
