//! The few fields of GitLab's payloads that are read (docs.gitlab.com/user/project/integrations/webhook_events). All are optional here: a
//! delivery that has no effect is never wrong, and a reason can name a missing field.

use crate::gitlab::GitlabAddress;
use serde::Deserialize;
use tidelock_core::domain::{CommitSha, Login, PullId, RepoId, Sighting};

/// Fields that all kinds of hooks have in common.
#[derive(Deserialize)]
pub(super) struct AnyHook {
    /// Kind of event. System hooks of pushes have `event_name` only.
    object_kind: Option<String>,
    event_name: Option<String>,
    project: Option<HookProject>,
    project_id: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct HookProject {
    id: Option<u64>,
    path_with_namespace: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct HookUser {
    pub(super) id: Option<u64>,
    username: Option<String>,
}

/// An event of a merge request.
#[derive(Deserialize)]
pub(super) struct MergeRequestHook {
    pub(super) object_attributes: HookMergeRequest,
    pub(super) labels: Option<Vec<HookLabel>>,
    pub(super) changes: Option<MergeRequestChanges>,
}

#[derive(Deserialize)]
pub(super) struct HookMergeRequest {
    /// Number within its project.
    iid: Option<u64>,
    pub(super) action: Option<String>,
    /// Former head; present only if the head moved.
    pub(super) oldrev: Option<String>,
    pub(super) state: Option<String>,
    pub(super) draft: Option<bool>,
    /// Former name of `draft`.
    pub(super) work_in_progress: Option<bool>,
    pub(super) source_project_id: Option<u64>,
    pub(super) target_project_id: Option<u64>,
    target: Option<HookProject>,
    pub(super) last_commit: Option<LastCommit>,
    pub(super) merge_commit_sha: Option<String>,
    pub(super) updated_at: Option<String>,
    /// Reason of a change that GitLab made itself, such as `approvals_reset_on_push`.
    pub(super) system_action: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct LastCommit {
    id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct HookLabel {
    pub(super) title: Option<String>,
}

/// Fields that an update changed.
#[derive(Deserialize)]
pub(super) struct MergeRequestChanges {
    pub(super) draft: Option<ChangedField<bool>>,
    pub(super) title: Option<ChangedField<String>>,
    /// Present if a reviewer was added or removed, or has requested changes.
    pub(super) reviewers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct ChangedField<T> {
    pub(super) previous: Option<T>,
    pub(super) current: Option<T>,
}

/// An event of a comment.
#[derive(Deserialize)]
pub(super) struct NoteHook {
    pub(super) event_type: Option<String>,
    /// The person who wrote or edited it.
    pub(super) user: Option<HookUser>,
    pub(super) object_attributes: NoteAttributes,
    pub(super) merge_request: Option<HookMergeRequest>,
}

#[derive(Deserialize)]
pub(super) struct NoteAttributes {
    pub(super) id: Option<u64>,
    pub(super) note: Option<String>,
    pub(super) noteable_type: Option<String>,
    pub(super) author_id: Option<u64>,
    /// `create` or `update`; earlier versions have none.
    pub(super) action: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) updated_at: Option<String>,
    pub(super) system: Option<bool>,
    pub(super) internal: Option<bool>,
    /// Former name of `internal`.
    pub(super) confidential: Option<bool>,
}

/// An event of a branch.
#[derive(Deserialize)]
pub(super) struct PushHook {
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    /// New tip of the branch: zeros if it was deleted.
    pub(super) after: Option<String>,
}

impl AnyHook {
    /// Returns the kind of event; empty if the payload has none.
    pub(super) fn kind(&self) -> &str {
        self.object_kind.as_deref().or(self.event_name.as_deref()).unwrap_or_default()
    }

    /// Returns the repository of the event.
    pub(super) fn repository(&self, address: &GitlabAddress) -> Result<RepoId, &'static str> {
        let path = self.project.as_ref().and_then(|project| project.path_with_namespace.as_deref());
        address.repository(path.ok_or("no project.path_with_namespace")?).ok_or("a name that no project can have")
    }

    /// Returns the repository by name and id; absent if the event lacks one of them.
    pub(super) fn sighting(&self, address: &GitlabAddress) -> Option<Sighting> {
        Some(Sighting { repo: self.repository(address).ok()?, key: self.project_id()?.to_string() })
    }

    fn project_id(&self) -> Option<u64> {
        self.project.as_ref()?.id.or(self.project_id)
    }

    /// Returns the id of a merge request. Its target must be the project of the event.
    pub(super) fn pull_id(&self, address: &GitlabAddress, pull: &HookMergeRequest) -> Result<PullId, &'static str> {
        let repo = self.repository(address)?;
        let path = pull.target.as_ref().and_then(|project| project.path_with_namespace.as_deref());
        let is_other = self.project_id().zip(pull.target_project_id).is_some_and(|(project, target)| project != target)
            || path.is_some_and(|path| path != repo.full_name());
        if is_other {
            return Err("a merge request of another project");
        }
        let number = pull.iid.filter(|number| *number > 0).ok_or("no iid")?;
        Ok(PullId { repo, number })
    }
}

impl HookUser {
    /// Returns the login; unknown if the payload has none.
    pub(super) fn login(user: Option<&HookUser>) -> Login {
        user.and_then(|user| user.username.as_deref()).map_or_else(Login::unknown, Login::new)
    }
}

impl HookMergeRequest {
    /// Returns the commit of the head; absent if the payload has no full id.
    pub(super) fn head(&self) -> Option<CommitSha> {
        CommitSha::parse(self.last_commit.as_ref()?.id.as_deref()?).ok()
    }
}
