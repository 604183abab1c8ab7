//! Failed deliveries of project webhooks. GitLab keeps deliveries for two days and repeats one only on request (17.4 and later, Maintainers
//! only). It keeps none of the time in which it had disabled a webhook; reconciliation finds what these would have told.

use super::Gitlab;
use crate::vcs::HostError;
use crate::vcs::http::{odd, page_of};
use reqwest::Method;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use tidelock_core::domain::RepoId;
use tokio::time::{Duration, Instant};

/// Time between two rounds: each asks every project, and reconciliation covers what is missing meanwhile.
const EVERY: Duration = Duration::from_secs(3600);
/// Most projects of one round.
const MAX_PROJECTS: usize = 50;
/// Deliveries on one page: the host's maximum (docs.gitlab.com/api/project_webhooks, "List all events for a project webhook").
const PER_PAGE: u32 = 20;
/// Most pages of deliveries of one webhook.
const PAGES: u32 = 5;
/// Most deliveries of a project that are repeated in one round: the host allows five in a minute.
const MAX_PER_ROUND: usize = 5;
/// Most attempts of one delivery, the first included.
const ATTEMPTS: usize = 4;
/// Kinds of deliveries that cause work.
const WANTED: [&str; 2] = ["merge_request_hooks", "note_hooks"];

/// Time of the last round.
#[derive(Default)]
pub(super) struct ResendRounds(Mutex<Option<Instant>>);

impl ResendRounds {
    /// Returns true, and begins a round, if one is due.
    fn begin(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// One attempt of a delivery.
struct HookAttempt {
    id: u64,
    /// The same for all attempts of a delivery.
    key: String,
    succeeded: bool,
}

/// Requests the deliveries to us that failed, and returns their number.
pub(super) async fn missed(host: &Gitlab) -> Result<usize, HostError> {
    let projects = host.told.names();
    if host.events_url.is_empty() || projects.is_empty() || !host.resends.begin() {
        return Ok(0);
    }
    let mut asked = 0;
    for repo in projects.iter().take(MAX_PROJECTS) {
        match of_project(host, repo).await {
            Ok(number) => asked += number,
            // Only Maintainers see webhooks.
            Err(HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Moved { .. }) => {}
            // Another project may be asked.
            Err(error) => tracing::warn!(%repo, "its failed deliveries cannot be requested again: {error}"),
        }
    }
    Ok(asked)
}

async fn of_project(host: &Gitlab, repo: &RepoId) -> Result<usize, HostError> {
    let mut asked = 0;
    for hook in host.project_hooks(repo).await?.iter().filter(|hook| hook.url == host.events_url) {
        asked += resend(host, repo, hook.id).await?;
    }
    Ok(asked)
}

async fn resend(host: &Gitlab, repo: &RepoId, hook: u64) -> Result<usize, HostError> {
    let path = format!("{}/hooks/{hook}/events", host.address.project_path(repo)?);
    let mut asked = 0;
    for id in to_repeat(&attempts(host, &path).await?) {
        match host.change(Method::POST, &format!("{path}/{id}/resend"), None).await {
            Ok(_) => asked += 1,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => tracing::warn!("a delivery that was missed cannot be asked for again: {error}"),
        }
    }
    Ok(asked)
}

/// Returns the last attempts of deliveries that cause work, newest first.
async fn attempts(host: &Gitlab, path: &str) -> Result<Vec<HookAttempt>, HostError> {
    let mut all = Vec::new();
    for page in 1..=PAGES {
        let answer = host.http.get(&page_of(path, PER_PAGE, page)).await?;
        let Value::Array(rows) = &answer.body else { return Err(odd(path, "not a list")) };
        all.extend(rows.iter().filter_map(attempt));
        if answer.next.is_none() {
            break;
        }
    }
    Ok(all)
}

fn attempt(row: &Value) -> Option<HookAttempt> {
    let is_wanted = WANTED.iter().any(|kind| row["trigger"] == *kind);
    let status =
        row["response_status"].as_str().map(str::to_owned).unwrap_or_else(|| row["response_status"].to_string());
    Some(HookAttempt {
        id: row["id"].as_u64().filter(|_| is_wanted)?,
        key: row["request_headers"]["Idempotency-Key"].as_str()?.to_owned(),
        succeeded: status.starts_with('2'),
    })
}

/// Selects the deliveries whose attempts all failed, oldest first, by the ids of their last attempts.
fn to_repeat(attempts: &[HookAttempt]) -> Vec<u64> {
    let mut last: Vec<&HookAttempt> = Vec::new();
    for attempt in attempts {
        if !last.iter().any(|known| known.key == attempt.key) {
            last.push(attempt);
        }
    }
    last.retain(|last| {
        let tries: Vec<&HookAttempt> = attempts.iter().filter(|attempt| attempt.key == last.key).collect();
        tries.len() < ATTEMPTS && !tries.iter().any(|attempt| attempt.succeeded)
    });
    last.into_iter().rev().take(MAX_PER_ROUND).map(|attempt| attempt.id).collect()
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn what_failed_each_time_is_repeated_a_few_times() {
        let one = |id: u64, key: &str, succeeded: bool| HookAttempt { id, key: key.to_owned(), succeeded };
        // Newest first.
        let all = [
            one(9, "a", false),
            one(8, "b", true),
            one(7, "a", false),
            one(6, "b", false),
            one(5, "c", false),
            one(4, "d", false),
            one(3, "d", false),
            one(2, "d", false),
            one(1, "d", false),
        ];
        assert_eq!(to_repeat(&all), [5, 9]);
        let many: Vec<HookAttempt> = (0..20).rev().map(|id| one(id, &id.to_string(), false)).collect();
        assert_eq!(to_repeat(&many), [0, 1, 2, 3, 4]);
    }
}
