//! The few fields of GitHub's payloads that we read, borrowed from the body; all others are skipped. All are optional here: a delivery that
//! we do not act on is never wrong, and an error can name a missing field.

use crate::webhook::Rejection;
use serde::Deserialize;
use std::borrow::Cow;
use tidelock_core::domain::{CommitSha, Login, RepoId, Sighting};

/// Fields of all events that are read.
#[derive(Deserialize)]
pub(super) struct Payload<'a> {
    #[serde(borrow)]
    pub(super) action: Option<Text<'a>>,
    #[serde(borrow, rename = "ref")]
    pub(super) reference: Option<Text<'a>>,
    pub(super) number: Option<u64>,
    #[serde(borrow)]
    pub(super) pull_request: Option<Pull<'a>>,
    pub(super) issue: Option<Issue>,
    #[serde(borrow)]
    pub(super) comment: Option<Comment<'a>>,
    #[serde(borrow)]
    pub(super) merge_group: Option<MergeGroup<'a>>,
    #[serde(borrow)]
    pub(super) check_suite: Option<CheckSuite<'a>>,
    #[serde(borrow)]
    pub(super) check_run: Option<CheckRunFields<'a>>,
    #[serde(borrow)]
    pub(super) requested_action: Option<RequestedAction<'a>>,
    /// Commit of a status.
    #[serde(borrow)]
    pub(super) sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) repository: Option<Repository<'a>>,
    #[serde(borrow)]
    pub(super) sender: Option<User<'a>>,
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
pub(super) struct Pull<'a> {
    pub(super) number: Option<u64>,
    #[serde(borrow)]
    pub(super) title: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) html_url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) state: Option<Text<'a>>,
    pub(super) merged: Option<bool>,
    #[serde(borrow)]
    pub(super) merge_commit_sha: Option<Text<'a>>,
    pub(super) draft: Option<bool>,
    #[serde(borrow)]
    pub(super) updated_at: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) user: Option<User<'a>>,
    #[serde(borrow)]
    pub(super) labels: Option<Vec<Label<'a>>>,
    #[serde(borrow)]
    pub(super) head: Option<Side<'a>>,
    #[serde(borrow)]
    pub(super) base: Option<Side<'a>>,
}

/// Head or base of a pull request.
#[derive(Deserialize)]
pub(super) struct Side<'a> {
    #[serde(borrow, rename = "ref")]
    pub(super) branch: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) sha: Option<Text<'a>>,
    /// Null if the fork was deleted.
    #[serde(borrow)]
    pub(super) repo: Option<Repository<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Label<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Issue {
    pub(super) number: Option<u64>,
    /// Present only if the issue is a pull request.
    pub(super) pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Comment<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) body: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) user: Option<User<'a>>,
}

#[derive(Deserialize)]
pub(super) struct CheckSuite<'a> {
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    pub(super) app: Option<CheckApp>,
}

#[derive(Deserialize)]
pub(super) struct CheckRunFields<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) external_id: Option<Text<'a>>,
    pub(super) app: Option<CheckApp>,
}

/// The App that posted a check.
#[derive(Deserialize)]
pub(super) struct CheckApp {
    pub(super) id: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct RequestedAction<'a> {
    #[serde(borrow)]
    pub(super) identifier: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct MergeGroup<'a> {
    #[serde(borrow)]
    pub(super) head_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) head_ref: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) base_sha: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) base_ref: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct User<'a> {
    #[serde(borrow)]
    pub(super) login: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Repository<'a> {
    #[serde(borrow)]
    pub(super) full_name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) clone_url: Option<Text<'a>>,
    /// Size in KiB.
    pub(super) size: Option<u64>,
}

impl<'a> Payload<'a> {
    /// Decodes a payload; an error has line and column.
    pub(super) fn parse(json: &'a [u8]) -> Result<Payload<'a>, Rejection> {
        serde_json::from_slice(json).map_err(|error| {
            let message: String = error.to_string().chars().take(MAX_MESSAGE).collect();
            Rejection::new(400, format!("The payload cannot be read: {message}"))
        })
    }

    /// Base repository and its address for git.
    pub(super) fn repository(&self, host: &str) -> Result<(RepoId, String), Rejection> {
        let repository = present(&self.repository, "repository")?;
        let (owner, name) = owner_and_name(&repository.full_name, "repository.full_name")?;
        let url = text(&repository.clone_url, "repository.clone_url")?;
        let repo = RepoId { host: host.to_owned(), owner, name };
        let wrong = |what: String| Rejection::new(400, format!("The payload's repository.clone_url {what}"));
        repo.check_clone_url(url).map_err(wrong)?;
        Ok((repo, url.to_owned()))
    }
}

/// Returns the repository of any event, by name and id; absent if the event has none, or cannot be read.
pub(super) fn sighting(json: &[u8], host: &str) -> Option<Sighting> {
    #[derive(Deserialize)]
    struct AnyEvent<'a> {
        #[serde(borrow)]
        repository: RepositoryName<'a>,
    }
    #[derive(Deserialize)]
    struct RepositoryName<'a> {
        id: u64,
        #[serde(borrow)]
        full_name: Option<Text<'a>>,
    }
    let AnyEvent { repository } = serde_json::from_slice(json).ok()?;
    let (owner, name) = owner_and_name(&repository.full_name, "repository.full_name").ok()?;
    Some(Sighting { repo: RepoId { host: host.to_owned(), owner, name }, key: repository.id.to_string() })
}

/// Longest message of the JSON parser that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// Returns the value; an error names the missing field.
pub(super) fn present<'a, T>(value: &'a Option<T>, field: &str) -> Result<&'a T, Rejection> {
    value.as_ref().ok_or_else(|| Rejection::new(400, format!("The payload has no {field}")))
}

/// Returns the text; an error names the field if it is missing or empty.
pub(super) fn text<'a>(value: &'a Option<Text<'_>>, field: &str) -> Result<&'a str, Rejection> {
    let text = &present(value, field)?.0;
    if text.is_empty() { Err(Rejection::new(400, format!("The payload's {field} is empty"))) } else { Ok(text) }
}

/// Returns the text; empty if it is missing.
pub(super) fn or_empty(value: &Option<Text<'_>>) -> String {
    value.as_ref().map(|text| text.0.to_string()).unwrap_or_default()
}

pub(super) fn login(user: &Option<User<'_>>, field: &str) -> Result<Login, Rejection> {
    text(&present(user, field)?.login, field).map(Login::new)
}

pub(super) fn commit(value: &Option<Text<'_>>, field: &str) -> Result<CommitSha, Rejection> {
    let no_commit = |_| Rejection::new(400, format!("The payload's {field} is no commit id"));
    CommitSha::parse(text(value, field)?).map_err(no_commit)
}

/// Splits `owner/name`, and checks both: they become parts of paths and addresses.
pub(super) fn owner_and_name(value: &Option<Text<'_>>, field: &str) -> Result<(String, String), Rejection> {
    let is_sound = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && part != "."
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match text(value, field)?.split_once('/') {
        Some((owner, name)) if is_sound(owner) && is_sound(name) => Ok((owner.to_owned(), name.to_owned())),
        _ => Err(Rejection::new(400, format!("The payload's {field} is not of the form owner/name"))),
    }
}
