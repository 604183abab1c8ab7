//! `/jobs/{id}`: one job with its result on top and its whole log, followed live where JavaScript runs; the log as plain text.

mod ansi;
mod log;
mod stream;

use super::answer::{Problem, Visit, typed};
use super::dashboard::JobRow;
use super::pages::web_address;
use super::{Site, header_value};
use crate::domain::PullRequest;
use crate::domain::state::{Job, JobState};
use crate::store::Store;
use crate::store::logs::LogReader;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header;
use jiff::Timestamp;
use minijinja::Value;
use serde::Serialize;
use std::sync::Arc;

#[cfg(test)]
pub(super) use stream::log_events;
pub(super) use stream::{MAX_STREAMS, stream};

/// Most lines that the page shows; the first [`HEAD_LINES`] and the last ones. The download has all.
const MAX_PAGE_LINES: usize = 20_000;

/// How many lines from the beginning are shown where not all are.
const HEAD_LINES: usize = 1_000;

#[derive(Serialize)]
pub(super) struct JobPage {
    job: JobRow,
    commit: String,
    /// Its page on the host; empty: none.
    commit_address: String,
    /// How many lines the log has so far; the stream goes on from there.
    lines: usize,
    /// The log still grows.
    live: bool,
    /// False where there is no log (any more).
    has_log: bool,
    /// Escaped by [`log`].
    log: Value,
}

impl JobPage {
    /// `text` is the log so far, `commit_address` the page of a commit with `{repo}` and `{commit}` in it.
    pub(super) fn new(
        job: &Job,
        pull: Option<&PullRequest>,
        commit_address: &str,
        text: Option<&str>,
        live: bool,
        now: Timestamp,
    ) -> JobPage {
        let rendered = log::render(text.unwrap_or_default());
        JobPage {
            commit: job.head.chars().take(7).collect(),
            commit_address: web_address(
                &commit_address.replace("{repo}", &job.pull.repo.full_name()).replace("{commit}", &job.head),
            )
            .to_owned(),
            job: JobRow::new(job, pull, now),
            lines: rendered.lines,
            live: live && job.state == JobState::Running,
            has_log: text.is_some(),
            log: Value::from_safe_string(rendered.html),
        }
    }
}

/// Job ids are 32 hex digits; nothing else is asked for in state or on disk.
fn checked(id: &str) -> Result<&str, Problem> {
    let valid = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if valid { Ok(id) } else { Err(no_such_job()) }
}

fn no_such_job() -> Problem {
    Problem::not_found("There is no such job, or it is so old that it was dropped.")
}

/// A job and its pull request.
pub(super) async fn find(store: &Store, id: &str) -> anyhow::Result<Option<(Job, Option<PullRequest>)>> {
    let id = id.to_owned();
    store
        .read(move |view| {
            let Some(job) = view.job(&id)? else { return Ok(None) };
            let pull = view.pull(&job.pull)?;
            Ok(Some((job, pull)))
        })
        .await
}

/// The page.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let services = site.services()?;
    let id = checked(&id)?;
    // The log first: a job that ends in between is then shown as ended, never as running for ever.
    let mut log = services.logs.read(id).await?;
    let (job, pull) = find(&services.store, id).await?.ok_or_else(no_such_job)?;
    let live = log.as_ref().is_some_and(LogReader::is_live);
    if live && job.state != JobState::Running {
        log = services.logs.read(id).await?;
    }
    let text = match &mut log {
        Some(log) => Some(log.so_far().await?),
        None => None,
    };
    let rendered = tokio::task::spawn_blocking(move || {
        let address = site.state.commit_addresses.get(&job.pull.repo.host).map_or("", String::as_str);
        let view = JobPage::new(&job, pull.as_ref(), address, text.as_deref(), live, Timestamp::now());
        site.pages.page("job.html", &visit, &view)
    });
    Ok(rendered.await.map_err(anyhow::Error::from)??)
}

/// The log so far, without colours.
pub(super) async fn plain(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let services = site.services()?;
    let id = checked(&id)?;
    let mut log = services.logs.read(id).await?.ok_or_else(|| Problem::not_found("This job has no log."))?;
    let text = log.so_far().await?;
    let text = tokio::task::spawn_blocking(move || log::plain(&text)).await.map_err(anyhow::Error::from)?;
    let mut response = typed("text/plain; charset=utf-8", text);
    let name = format!("inline; filename=\"tidelock-{}.log\"", &id[..12]);
    response.headers_mut().insert(header::CONTENT_DISPOSITION, header_value(&name));
    Ok(response)
}
