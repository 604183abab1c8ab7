//! The few fields of payloads that are read (modules/structs/hook.go, modules/structs/pull.go). All are optional here: a delivery that has
//! no effect is never wrong, and a reason can name a missing field.

use crate::gitea::GiteaAddress;
use serde::Deserialize;
use tidelock_core::domain::{CommitSha, Login, PartialPull, PullAction, PullId, PullState, RepoId, Sighting};

/// Number that stands for a deleted account (models/user/user_system.go, `GhostUserID`).
const GHOST: i64 = -1;

/// The field that all payloads have in common.
#[derive(Deserialize)]
pub(super) struct AnyPayload {
    repository: Option<PayloadRepository>,
}

#[derive(Deserialize)]
struct PayloadRepository {
    id: Option<u64>,
    full_name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct PayloadUser {
    id: Option<i64>,
    login: Option<String>,
}

/// An event of a pull request.
#[derive(Deserialize)]
pub(super) struct PullPayload {
    pub(super) action: Option<String>,
    pub(super) number: Option<u64>,
    pub(super) pull_request: Option<PayloadPull>,
    pub(super) changes: Option<PayloadChanges>,
}

/// Former values of what was edited.
#[derive(Deserialize)]
pub(super) struct PayloadChanges {
    pub(super) title: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct PayloadPull {
    state: Option<String>,
    draft: Option<bool>,
    pub(super) merged: Option<bool>,
    merge_commit_sha: Option<String>,
    pub(super) updated_at: Option<String>,
    labels: Option<Vec<PayloadLabel>>,
    head: Option<PayloadHead>,
}

#[derive(Deserialize)]
struct PayloadLabel {
    name: Option<String>,
}

/// Head of a pull request.
#[derive(Deserialize)]
struct PayloadHead {
    /// Name of the branch, also of one that was deleted. Empty for a head that was pushed to `refs/for/…`.
    label: Option<String>,
    /// Empty if the branch was deleted.
    sha: Option<String>,
    /// Null if the fork was deleted.
    repo: Option<PayloadRepository>,
}

/// An event of a comment.
#[derive(Deserialize)]
pub(super) struct CommentPayload {
    pub(super) action: Option<String>,
    pub(super) is_pull: Option<bool>,
    pub(super) issue: Option<PayloadIssue>,
    pub(super) comment: Option<PayloadComment>,
}

#[derive(Deserialize)]
pub(super) struct PayloadIssue {
    pub(super) number: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct PayloadComment {
    pub(super) id: Option<u64>,
    pub(super) user: Option<PayloadUser>,
    pub(super) body: Option<String>,
}

/// An event of a branch or tag.
#[derive(Deserialize)]
pub(super) struct PushPayload {
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    pub(super) after: Option<String>,
}

/// An event of a commit status.
#[derive(Deserialize)]
pub(super) struct StatusPayload {
    pub(super) sha: Option<String>,
}

/// Returns the login of an account; unknown if the payload has none, or that of a deleted account.
pub(super) fn login(user: Option<&PayloadUser>) -> Login {
    let user = user.filter(|user| user.id != Some(GHOST));
    user.and_then(|user| user.login.as_deref()).map_or_else(Login::unknown, Login::new)
}

impl AnyPayload {
    /// Returns the repository of the event.
    pub(super) fn repo(&self, address: &GiteaAddress) -> Result<RepoId, &'static str> {
        let name = self.repository.as_ref().and_then(|repository| repository.full_name.as_deref());
        address.repository(name.ok_or("no repository.full_name")?).ok_or("a name that no repository can have")
    }

    /// Returns the repository by name and id; absent if the event lacks one of them.
    pub(super) fn sighting(&self, address: &GiteaAddress) -> Option<Sighting> {
        Some(Sighting { repo: self.repo(address).ok()?, key: self.repository.as_ref()?.id?.to_string() })
    }
}

impl PayloadHead {
    /// Returns the commit; absent if the payload has no full id.
    fn commit(&self) -> Option<CommitSha> {
        CommitSha::parse(self.sha.as_deref()?).ok()
    }

    /// Returns the repository of a head; absent if its fork was deleted, and for one that was pushed to `refs/for/…`. The right to read is
    /// enough for such a push (routers/web/repo/githttp.go, `httpBase`), and the payload has the base repository as its source.
    fn source(&self, address: &GiteaAddress) -> Option<RepoId> {
        self.label.as_deref().filter(|label| !label.is_empty())?;
        address.repository(self.repo.as_ref()?.full_name.as_deref()?)
    }

    /// Returns true if a head may come from a person who cannot write to the base repository.
    fn is_foreign(&self, base: &RepoId, address: &GiteaAddress) -> bool {
        !self.source(address).is_some_and(|source| source.is_named(&base.owner, &base.name))
    }
}

impl PayloadPull {
    /// Returns true if it is told to be open and no draft.
    pub(super) fn is_open_and_ready(&self) -> bool {
        self.state.as_deref() == Some("open") && self.draft == Some(false)
    }

    /// Returns the commit of the head; absent if the payload has no full id.
    pub(super) fn head_commit(&self) -> Option<CommitSha> {
        self.head.as_ref()?.commit()
    }

    fn state(&self, action: PullAction) -> PullState {
        if self.merged == Some(true) {
            let commit = self.merge_commit_sha.as_deref().and_then(|commit| CommitSha::parse(commit).ok());
            PullState::Merged { commit }
        } else if matches!(action, PullAction::Closed { .. }) || self.state.as_deref() == Some("closed") {
            PullState::Closed
        } else {
            PullState::Open
        }
    }

    /// Returns what decides whether there is work.
    pub(super) fn part(self, id: PullId, action: PullAction, address: &GiteaAddress) -> PartialPull {
        let labels = self.labels.as_ref();
        PartialPull {
            state: self.state(action),
            head: self.head_commit(),
            head_start: None,
            draft: self.draft,
            fork: self.head.as_ref().map(|head| head.is_foreign(&id.repo, address)),
            labels: labels.map(|labels| labels.iter().filter_map(|label| label.name.clone()).collect()),
            id,
        }
    }
}
