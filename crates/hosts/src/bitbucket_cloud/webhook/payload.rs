//! The few fields of payloads that are read (support.atlassian.com/bitbucket-cloud/docs/event-payloads). All are optional here: a delivery
//! that has no effect is never wrong, and a reason can name a missing field.

use crate::bitbucket_cloud::commit_start::is_start;
use crate::bitbucket_cloud::person::{ToldPerson, is_uuid, person};
use crate::bitbucket_cloud::{BitbucketCloudAddress, times};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tidelock_core::domain::{CommitSha, Login, PartialPull, PullId, PullState, RepoId, Sighting};

/// The field that all payloads have in common.
#[derive(Deserialize)]
pub(super) struct CloudPayload {
    repository: Option<CloudRepository>,
}

#[derive(Deserialize)]
struct CloudRepository {
    uuid: Option<String>,
    full_name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct CloudUser {
    account_id: Option<String>,
    uuid: Option<String>,
    display_name: Option<String>,
}

impl CloudUser {
    fn login(&self) -> Login {
        person(ToldPerson {
            account_id: self.account_id.as_deref(),
            uuid: self.uuid.as_deref(),
            display_name: self.display_name.as_deref(),
        })
    }
}

/// An event of a pull request.
#[derive(Deserialize)]
pub(super) struct CloudPullPayload {
    pub(super) pullrequest: Option<CloudPull>,
    comment: Option<IgnoredAny>,
    approval: Option<IgnoredAny>,
    changes_request: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct CloudPull {
    pub(super) id: Option<u64>,
    state: Option<String>,
    draft: Option<bool>,
    updated_on: Option<String>,
    comment_count: Option<u64>,
    source: Option<CloudSource>,
}

/// Head of a pull request.
#[derive(Deserialize)]
struct CloudSource {
    commit: Option<CloudCommit>,
    /// Null if the fork was deleted.
    repository: Option<CloudRepository>,
}

#[derive(Deserialize)]
struct CloudCommit {
    hash: Option<String>,
}

/// An event of a comment.
#[derive(Deserialize)]
pub(super) struct CloudCommentPayload {
    pub(super) actor: Option<CloudUser>,
    pub(super) comment: Option<CloudComment>,
}

#[derive(Deserialize)]
pub(super) struct CloudComment {
    pub(super) id: Option<u64>,
    user: Option<CloudUser>,
    content: Option<CloudContent>,
    created_on: Option<String>,
    updated_on: Option<String>,
    deleted: Option<bool>,
    pending: Option<bool>,
    inline: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct CloudContent {
    raw: Option<String>,
}

/// An event of branches and tags.
#[derive(Deserialize)]
pub(super) struct CloudPushPayload {
    push: Option<CloudPush>,
}

#[derive(Deserialize)]
struct CloudPush {
    changes: Option<Vec<CloudChange>>,
}

#[derive(Deserialize)]
struct CloudChange {
    /// Null if the branch was deleted.
    new: Option<CloudRef>,
}

#[derive(Deserialize)]
struct CloudRef {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
}

/// An event of a build status.
#[derive(Deserialize)]
pub(super) struct CloudStatusPayload {
    commit_status: Option<CloudStatus>,
}

#[derive(Deserialize)]
struct CloudStatus {
    commit: Option<CloudCommit>,
    links: Option<CloudLinks>,
}

#[derive(Deserialize)]
struct CloudLinks {
    commit: Option<CloudLink>,
}

#[derive(Deserialize)]
struct CloudLink {
    href: Option<String>,
}

impl CloudPayload {
    /// Returns the repository of the event.
    pub(super) fn repo(&self, address: &BitbucketCloudAddress) -> Result<RepoId, &'static str> {
        let name = self.repository.as_ref().and_then(|repository| repository.full_name.as_deref());
        address.repository(name.ok_or("no repository.full_name")?).ok_or("a name that no repository can have")
    }

    /// Returns the repository by name and id; absent if the event lacks one of them.
    pub(super) fn sighting(&self, address: &BitbucketCloudAddress) -> Option<Sighting> {
        let key = self.repository.as_ref()?.uuid.clone().filter(|uuid| is_uuid(uuid))?;
        Some(Sighting { repo: self.repo(address).ok()?, key })
    }
}

impl CloudPullPayload {
    /// Returns true for a payload of a comment or an approval, which has the pull request besides.
    pub(super) fn is_of_another_kind(&self) -> bool {
        [&self.comment, &self.approval, &self.changes_request].into_iter().any(Option::is_some)
    }
}

impl CloudPull {
    /// Returns the state in the host's word; empty without one.
    pub(super) fn state_word(&self) -> &str {
        self.state.as_deref().unwrap_or_default()
    }

    /// Returns the state. That of the merge is known by its first digits only.
    pub(super) fn state(&self) -> Result<PullState, &'static str> {
        match self.state_word() {
            "OPEN" => Ok(PullState::Open),
            "MERGED" => Ok(PullState::Merged { commit: None }),
            "DECLINED" | "SUPERSEDED" => Ok(PullState::Closed),
            _ => Err("no pullrequest.state"),
        }
    }

    /// Returns the version; absent without the time of the last change.
    pub(super) fn version(&self) -> Option<String> {
        times::version(self.updated_on.as_deref()?, self.comment_count.unwrap_or_default())
    }

    /// Returns the first digits of the head's commit; absent if they are none.
    pub(super) fn head_start(&self) -> Option<&str> {
        let hash = self.source.as_ref()?.commit.as_ref()?.hash.as_deref()?;
        is_start(hash).then_some(hash)
    }

    /// Returns what decides whether there is work.
    pub(super) fn part(self, id: PullId, state: PullState, address: &BitbucketCloudAddress) -> PartialPull {
        let is_foreign = |source: &CloudSource| {
            let name = source.repository.as_ref().and_then(|repository| repository.full_name.as_deref());
            let source = name.and_then(|name| address.repository(name));
            !source.is_some_and(|source| source.is_named(&id.repo.owner, &id.repo.name))
        };
        let start = self.head_start().map(str::to_owned);
        let head = start.as_deref().and_then(|start| CommitSha::parse(start).ok());
        PartialPull {
            state,
            head_start: start.filter(|_| head.is_none()),
            head,
            draft: self.draft,
            fork: self.source.as_ref().map(is_foreign),
            // The host has none.
            labels: Some(Vec::new()),
            id,
        }
    }
}

impl CloudComment {
    /// Returns the reason for which a comment is not a new one of the conversation; absent if it is one.
    pub(super) fn objection(&self) -> Option<&'static str> {
        let moment = |text: &Option<String>| text.as_deref().and_then(times::moment);
        match () {
            () if self.deleted == Some(true) => Some("a deleted comment"),
            () if self.pending == Some(true) => Some("a comment of a review that is not submitted"),
            () if self.inline.is_some() => Some("a comment on a line of a file"),
            () if times::is_edited(moment(&self.created_on), moment(&self.updated_on)) => Some("an edited comment"),
            () => None,
        }
    }

    /// Returns the author: older payloads name only the person who caused the event.
    pub(super) fn author(&self, actor: Option<&CloudUser>) -> Login {
        self.user.as_ref().or(actor).map_or_else(Login::unknown, CloudUser::login)
    }

    /// Returns the text as it was typed.
    pub(super) fn text(self) -> String {
        self.content.and_then(|content| content.raw).unwrap_or_default()
    }
}

impl CloudPushPayload {
    /// Returns the branches that got another commit, at most so many.
    pub(super) fn branches(self, most: usize) -> Vec<String> {
        let changes = self.push.and_then(|push| push.changes).unwrap_or_default();
        let new = changes.into_iter().filter_map(|change| change.new);
        let branches = new.filter(|new| new.kind.as_deref() == Some("branch")).filter_map(|new| new.name);
        branches.filter(|name| !name.is_empty()).take(most).collect()
    }
}

impl CloudStatusPayload {
    /// Returns the commit, which older payloads name in a link only.
    pub(super) fn commit(self) -> Option<CommitSha> {
        let status = self.commit_status?;
        let of_link = status.links.and_then(|links| links.commit).and_then(|link| link.href);
        let of_link = of_link.and_then(|href| Some(href.rsplit_once("/commit/")?.1.to_owned()));
        let hashes = [status.commit.and_then(|commit| commit.hash), of_link];
        hashes.into_iter().flatten().find_map(|hash| CommitSha::parse(&hash).ok())
    }
}
