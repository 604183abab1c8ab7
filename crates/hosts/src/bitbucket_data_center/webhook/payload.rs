//! The few fields of payloads that are read (confluence.atlassian.com/bitbucketserver, "Event payload"). All are optional here: a delivery
//! that has no effect is never wrong, and a reason can name a missing field.

use crate::bitbucket_data_center::{BitbucketDataCenterAddress, person, times};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tidelock_core::domain::{CommitSha, Login, PartialPull, PullId, PullState, RepoId, Sighting};

/// Prefix of the names of all branches.
const HEADS: &str = "refs/heads/";

/// The fields that payloads have in common.
#[derive(Deserialize)]
pub(super) struct DataCenterPayload {
    #[serde(rename = "eventKey")]
    event_key: Option<String>,
    repository: Option<DataCenterRepository>,
    #[serde(rename = "pullRequest")]
    pull_request: Option<DataCenterSides>,
}

/// The repositories of a pull request.
#[derive(Deserialize)]
struct DataCenterSides {
    #[serde(rename = "toRef")]
    to: Option<DataCenterSide>,
}

#[derive(Deserialize)]
struct DataCenterRepository {
    id: Option<u64>,
    slug: Option<String>,
    project: Option<DataCenterProject>,
}

/// Project of a repository. Its `name` is whatever its administrators like.
#[derive(Deserialize)]
struct DataCenterProject {
    key: Option<String>,
}

/// One side of a pull request.
#[derive(Deserialize)]
struct DataCenterSide {
    #[serde(rename = "latestCommit")]
    latest_commit: Option<String>,
    repository: Option<DataCenterRepository>,
}

#[derive(Deserialize)]
struct DataCenterUser {
    name: Option<String>,
}

/// An event of a pull request.
#[derive(Deserialize)]
pub(super) struct DataCenterPullPayload {
    #[serde(rename = "pullRequest")]
    pull_request: Option<DataCenterPull>,
}

#[derive(Deserialize)]
pub(super) struct DataCenterPull {
    pub(super) id: Option<u64>,
    version: Option<u64>,
    state: Option<String>,
    draft: Option<bool>,
    #[serde(rename = "updatedDate")]
    updated: Option<i64>,
    #[serde(rename = "fromRef")]
    from: Option<DataCenterSide>,
    #[serde(rename = "toRef")]
    to: Option<DataCenterSide>,
}

/// An event of a comment.
#[derive(Deserialize)]
pub(super) struct DataCenterCommentPayload {
    pub(super) comment: Option<DataCenterComment>,
}

#[derive(Deserialize)]
pub(super) struct DataCenterComment {
    pub(super) id: Option<u64>,
    version: Option<u64>,
    text: Option<String>,
    author: Option<DataCenterUser>,
    #[serde(rename = "createdDate")]
    created: Option<i64>,
    #[serde(rename = "updatedDate")]
    updated: Option<i64>,
    state: Option<String>,
    anchor: Option<IgnoredAny>,
}

/// An event of branches and tags.
#[derive(Deserialize)]
pub(super) struct DataCenterPushPayload {
    changes: Option<Vec<DataCenterChange>>,
}

#[derive(Deserialize)]
struct DataCenterChange {
    #[serde(rename = "refId")]
    ref_id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl DataCenterRepository {
    fn named(&self, address: &BitbucketDataCenterAddress) -> Result<RepoId, &'static str> {
        let slug = self.slug.as_deref().ok_or("no repository.slug")?;
        let key = self.project.as_ref().and_then(|project| project.key.as_deref());
        address.repository(key.ok_or("no repository.project.key")?, slug).ok_or("a name that no repository can have")
    }
}

impl DataCenterPayload {
    /// Returns the name of the event; empty without one.
    pub(super) fn event(&self) -> &str {
        self.event_key.as_deref().unwrap_or_default()
    }

    fn told(&self) -> Option<&DataCenterRepository> {
        let of_pull = self.pull_request.as_ref().and_then(|pull| pull.to.as_ref()?.repository.as_ref());
        of_pull.or(self.repository.as_ref())
    }

    /// Returns the repository of the event: of a pull request the one that it merges into.
    pub(super) fn repo(&self, address: &BitbucketDataCenterAddress) -> Result<RepoId, &'static str> {
        self.told().ok_or("no repository")?.named(address)
    }

    /// Returns the repository by name and id; absent if the event lacks one of them.
    pub(super) fn sighting(&self, address: &BitbucketDataCenterAddress) -> Option<Sighting> {
        let told = self.told()?;
        Some(Sighting { repo: told.named(address).ok()?, key: told.id?.to_string() })
    }
}

impl DataCenterPullPayload {
    pub(super) fn pull(&self) -> Result<&DataCenterPull, &'static str> {
        self.pull_request.as_ref().ok_or("no pullRequest")
    }

    pub(super) fn into_pull(self) -> Result<DataCenterPull, &'static str> {
        self.pull_request.ok_or("no pullRequest")
    }
}

impl DataCenterPull {
    /// Returns the repository that it merges into.
    pub(super) fn base(&self, address: &BitbucketDataCenterAddress) -> Result<RepoId, &'static str> {
        let repository = self.to.as_ref().and_then(|side| side.repository.as_ref());
        repository.ok_or("no pullRequest.toRef.repository")?.named(address)
    }

    /// Returns the state in the host's word; empty without one.
    pub(super) fn state_word(&self) -> &str {
        self.state.as_deref().unwrap_or_default()
    }

    /// Returns the state. The server asks the host for the commit of a merge.
    pub(super) fn state(&self) -> Result<PullState, &'static str> {
        match self.state_word() {
            "OPEN" => Ok(PullState::Open),
            "MERGED" => Ok(PullState::Merged { commit: None }),
            "DECLINED" => Ok(PullState::Closed),
            _ => Err("no pullRequest.state"),
        }
    }

    /// Returns the version; absent without the time of the last change.
    pub(super) fn version(&self) -> Option<String> {
        times::version(self.updated?, self.version.unwrap_or_default())
    }

    /// Returns what decides whether there is work.
    pub(super) fn part(self, id: PullId, state: PullState, address: &BitbucketDataCenterAddress) -> PartialPull {
        let is_foreign = |side: &DataCenterSide| {
            let source = side.repository.as_ref().and_then(|repository| repository.named(address).ok());
            !source.is_some_and(|source| source.is_named(&id.repo.owner, &id.repo.name))
        };
        let head = self.from.as_ref().and_then(|side| side.latest_commit.as_deref());
        PartialPull {
            state,
            head: head.and_then(|head| CommitSha::parse(head).ok()),
            head_start: None,
            // Versions before 8.18 have no drafts.
            draft: Some(self.draft == Some(true)),
            fork: self.from.as_ref().map(is_foreign),
            // Pull requests have none.
            labels: Some(Vec::new()),
            id,
        }
    }
}

impl DataCenterComment {
    /// Returns the reason for which a comment is not a new one of the conversation; absent if it is one.
    pub(super) fn objection(&self) -> Option<&'static str> {
        match () {
            () if self.state.as_deref() == Some("PENDING") => Some("a comment of a review that is not submitted"),
            () if self.anchor.is_some() => Some("a comment on a line of a file"),
            () if self.version.unwrap_or_default() > 0 || self.created != self.updated => Some("an edited comment"),
            () => None,
        }
    }

    /// Returns the author.
    pub(super) fn author(&self) -> Login {
        person::login(self.author.as_ref().and_then(|author| author.name.as_deref()))
    }

    /// Returns the text as it was typed.
    pub(super) fn text(self) -> String {
        self.text.unwrap_or_default()
    }
}

impl DataCenterPushPayload {
    /// Returns the branches that got another commit, at most so many.
    pub(super) fn branches(self, most: usize) -> Vec<String> {
        let changes = self.changes.unwrap_or_default().into_iter();
        let moved =
            changes.filter(|change| change.kind.as_deref() != Some("DELETE")).filter_map(|change| change.ref_id);
        let branches = moved.filter_map(|name| name.strip_prefix(HEADS).map(str::to_owned));
        branches.filter(|name| !name.is_empty()).take(most).collect()
    }
}
