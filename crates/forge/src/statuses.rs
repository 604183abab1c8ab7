//! Commit statuses, as tests read them.

use super::state::{State, StatusState};
use std::collections::BTreeMap;

/// The latest commit status of one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStatus {
    /// `pending`, `success`, `failure` or `error`.
    pub state: String,
    /// One line of text; may be empty.
    pub description: String,
    /// The link of the status; may be empty.
    pub url: String,
}

/// The latest status of each context on the head of a pull request.
pub(super) fn statuses(state: &State, full_name: &str, number: u64) -> anyhow::Result<BTreeMap<String, CommitStatus>> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    Ok(shaped(repo.statuses_of_head(pull)))
}

/// The latest status of each context on a commit.
pub(super) fn statuses_of(
    state: &State,
    full_name: &str,
    commit: &str,
) -> anyhow::Result<BTreeMap<String, CommitStatus>> {
    Ok(shaped(state.repo(full_name)?.latest_statuses(commit)))
}

fn shaped(latest: BTreeMap<&str, &StatusState>) -> BTreeMap<String, CommitStatus> {
    let shape = |(context, status): (&str, &StatusState)| {
        let shaped = CommitStatus {
            state: status.state.clone(),
            description: status.description.clone().unwrap_or_default(),
            url: status.target_url.clone().unwrap_or_default(),
        };
        (context.to_owned(), shaped)
    };
    latest.into_iter().map(shape).collect()
}
