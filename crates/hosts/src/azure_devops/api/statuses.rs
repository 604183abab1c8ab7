//! Statuses of a pull request. Each belongs to an iteration, which is the result of a push; a branch policy selects one by genre and name.
//! After the merge, statuses of other commits are set on the commit itself.

use super::{AzureDevOps, VERSION, list, organization_of, pull_path, shapes};
use crate::azure_devops::address::repo_path;
use crate::vcs::HostError;
use backon::BackoffBuilder as _;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, Login, PullId};

/// Prefix of the genre of our statuses, the same as in policies made for Atlantis.
const GENRE: &str = "Atlantis Bot";
/// Longest description of a status, in characters.
const DESCRIPTION_LIMIT: usize = 140;
/// Most requests for the iteration of a commit. The host creates it shortly after the push.
const TRIES: usize = 3;

/// The result of one push to a pull request.
pub(super) struct Iteration {
    pub(super) number: u64,
    pub(super) commit: CommitSha,
    pub(super) created: Option<Timestamp>,
    /// Login of the pusher.
    pub(super) author: Login,
}

/// Returns all iterations of a pull request, oldest first.
pub(super) async fn iterations(host: &AzureDevOps, pull: &PullId) -> Result<Vec<Iteration>, HostError> {
    let body = host.http.get(&format!("{}/iterations?{VERSION}", pull_path(pull)?)).await?.body;
    let read = |row: &Value| {
        let commit = shapes::commit(&row["sourceRefCommit"])?;
        let (created, author) = (shapes::moment(&row["createdDate"]), shapes::login(&row["author"]));
        Some(Iteration { number: row["id"].as_u64()?, commit, created, author })
    };
    let mut all: Vec<Iteration> = list(&body).filter_map(read).collect();
    all.sort_by_key(|iteration| iteration.number);
    Ok(all)
}

/// Returns the latest iteration of a commit; absent if there is none. It is requested each time: a push back gives a commit another one.
async fn iteration_of(host: &AzureDevOps, pull: &PullId, commit: &CommitSha) -> Result<Option<Iteration>, HostError> {
    let all = iterations(host, pull).await?;
    Ok(all.into_iter().rfind(|iteration| iteration.commit == *commit))
}

/// Returns the iteration of a commit that was pushed just now, and waits for it.
pub(super) async fn iteration_to_come(
    host: &AzureDevOps,
    pull: &PullId,
    commit: &CommitSha,
) -> Result<Option<Iteration>, HostError> {
    let mut iteration = iteration_of(host, pull, commit).await?;
    for wait in host.http.waits(TRIES).build() {
        if iteration.is_some() {
            break;
        }
        tokio::time::sleep(wait).await;
        iteration = iteration_of(host, pull, commit).await?;
    }
    Ok(iteration)
}

/// Splits a context at its last slash into genre and name.
fn genre_and_name(context: &str) -> (String, &str) {
    match context.rsplit_once('/') {
        Some((before, name)) => (format!("{GENRE}/{before}"), name),
        None => (GENRE.to_owned(), context),
    }
}

/// Returns the context of a genre and a name; absent if the genre is not ours.
fn context(genre: &str, name: &str) -> Option<String> {
    match genre.strip_prefix(GENRE)? {
        "" => Some(name.to_owned()),
        before => Some(format!("{}/{name}", before.strip_prefix('/')?)),
    }
}

/// Returns true if a status is one of ours, with names that begin with `first`.
pub(super) fn is_ours(genre: &str, name: &str, first: &str) -> bool {
    let context = context(genre, name).unwrap_or_default();
    context.strip_prefix(first).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) async fn set(
    host: &AzureDevOps,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let of_pull = format!("{}/statuses?{VERSION}", pull_path(pull)?);
    let iteration = iteration_to_come(host, pull, commit).await?;
    let path = match &iteration {
        Some(_) => of_pull,
        // Work after the merge is about a commit of the base branch.
        None if is_completed(host, pull).await? => {
            format!("{}/commits/{commit}/statuses?{VERSION}", repo_path(&pull.repo)?)
        }
        None => {
            let message = format!("the pull request has no iteration of commit {commit}");
            return Err(HostError::Rejected { what: format!("POST {of_pull}"), status: 404, message });
        }
    };
    let state = match status.state {
        StatusState::Pending => "pending",
        StatusState::Success => "succeeded",
        StatusState::Failure => "failed",
    };
    let (genre, name) = genre_and_name(&status.context);
    let description: String = status.description.chars().take(DESCRIPTION_LIMIT).collect();
    let mut body = json!({
        "state": state, "description": description,
        "context": { "genre": genre, "name": name },
    });
    if let Some(iteration) = iteration {
        body["iterationId"] = json!(iteration.number);
    }
    if !status.url.is_empty() {
        body["targetUrl"] = json!(status.url);
    }
    host.http.send(Method::POST, &path, Some(body)).await.map(drop)
}

async fn is_completed(host: &AzureDevOps, pull: &PullId) -> Result<bool, HostError> {
    let told = host.http.get(&format!("{}?{VERSION}", pull_path(pull)?)).await?.body;
    Ok(told["status"] == "completed")
}

pub(super) async fn own(host: &AzureDevOps, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
    let Some(iteration) = iteration_of(host, pull, commit).await? else { return Ok(Vec::new()) };
    let account = host.account(organization_of(&pull.repo)).await?;
    let body = host.http.get(&format!("{}/statuses?{VERSION}", pull_path(pull)?)).await?.body;
    let mut rows: Vec<&Value> = list(&body).filter(|row| row["iterationId"] == iteration.number).collect();
    rows.sort_by_key(|row| row["id"].as_u64());
    let mut latest: Vec<(CommitStatus, bool)> = Vec::new();
    for row in rows {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = context(&text(&row["context"]["genre"]), &text(&row["context"]["name"]));
        let Some(named) = named else { continue };
        let state = match row["state"].as_str() {
            Some("pending") => StatusState::Pending,
            Some("succeeded") => StatusState::Success,
            _ => StatusState::Failure,
        };
        let own = text(&row["createdBy"]["id"]).eq_ignore_ascii_case(&account.id);
        latest.retain(|(known, _)| known.context != named);
        let (description, url) = (text(&row["description"]), text(&row["targetUrl"]));
        latest.push((CommitStatus::told(named, state, description, url), own));
    }
    Ok(latest.into_iter().filter(|(_, own)| *own).map(|(status, _)| status).collect())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn contexts_become_genres_as_atlantis_policies_have_them() {
        for (one, genre, name) in [
            ("atlantis/plan", "Atlantis Bot/atlantis", "plan"),
            ("atlantis/apply: dev/default", "Atlantis Bot/atlantis/apply: dev", "default"),
            ("plain", "Atlantis Bot", "plain"),
        ] {
            assert_eq!(genre_and_name(one), (genre.to_owned(), name));
            assert_eq!(context(genre, name).as_deref(), Some(one));
        }
        assert_eq!(context("Build", "plan"), None);
        assert_eq!(context("Atlantis Bots/x", "plan"), None);
    }

    #[test]
    fn our_own_statuses_are_told_by_their_first_part() {
        assert!(is_ours("Atlantis Bot/atlantis", "apply", "atlantis"));
        assert!(is_ours("Atlantis Bot/atlantis/plan: dev", "default", "atlantis"));
        assert!(!is_ours("Atlantis Bot/other", "apply", "atlantis"));
        assert!(!is_ours("Build", "apply", "atlantis"));
        assert!(is_ours("Atlantis Bot/prod/eu", "apply", "prod/eu"));
    }
}
