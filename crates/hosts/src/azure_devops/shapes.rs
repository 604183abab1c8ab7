//! Azure DevOps' JSON → our data. Deliveries and answers of the API have the same shapes.

use super::address::AzureDevOpsAddress;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState, PullVersion, RepoId};

/// Prefix of the names of all branches.
pub(super) const HEADS: &str = "refs/heads/";
/// Bits of our comment ids that hold the comment's number within its thread.
const COMMENT_BITS: u32 = 16;
/// Least time between a comment's creation and the change of its text that counts as an edit. The clocks of the two may differ.
const EDITED_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// Returns our id of a comment, made of the number of its thread and its own number there. Ids grow with the threads.
pub(super) fn comment_id(thread: u64, comment: u64) -> Option<u64> {
    let fits = comment < 1 << COMMENT_BITS && thread < 1 << (63 - COMMENT_BITS);
    fits.then_some(thread << COMMENT_BITS | comment)
}

/// Splits our id of a comment into its thread and its number.
pub(super) fn thread_and_comment(id: u64) -> (u64, u64) {
    (id >> COMMENT_BITS, id & ((1 << COMMENT_BITS) - 1))
}

/// Login of a person: an email address on Services, `DOMAIN\name` on Server. Unknown if the account is deleted.
pub(super) fn login(person: &Value) -> Login {
    person["uniqueName"].as_str().map_or_else(Login::unknown, Login::new)
}

/// Returns true if a comment's text was changed after it was written, or if the host does not report that.
pub(super) fn is_edited(comment: &Value) -> bool {
    match (moment(&comment["publishedDate"]), moment(&comment["lastContentUpdatedDate"])) {
        (Some(written), Some(changed)) => changed.duration_since(written) >= EDITED_AFTER,
        _ => true,
    }
}

pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Reads the number and the repository of a pull request.
pub(super) fn pull_id(address: &AzureDevOpsAddress, organization: &str, pull: &Value) -> Result<PullId, &'static str> {
    let repo = repository(address, organization, pull)?;
    let number = pull["pullRequestId"].as_u64().ok_or("no pullRequestId")?;
    Ok(PullId { repo, number })
}

/// Reads the repository that something belongs to.
pub(super) fn repository(address: &AzureDevOpsAddress, organization: &str, of: &Value) -> Result<RepoId, &'static str> {
    let repository = &of["repository"];
    let project = repository["project"]["name"].as_str().ok_or("no repository.project.name")?;
    let name = repository["name"].as_str().ok_or("no repository.name")?;
    address.repository(organization, project, name).ok_or("a name that no repository can have")
}

/// Id of a repository. It stays the same if the repository or its project is renamed.
pub(super) fn key(repository: &Value) -> Option<String> {
    let id = repository["id"].as_str()?;
    let is_guid = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_guid.then(|| id.to_ascii_lowercase())
}

/// Reads a pull request; the error names the missing field.
pub(super) fn pull_request(
    address: &AzureDevOpsAddress,
    id: &PullId,
    pull: &Value,
) -> Result<PullRequest, &'static str> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let state = match pull["status"].as_str() {
        Some("active") => PullState::Open,
        Some("completed") => PullState::Merged { commit: commit(&pull["lastMergeCommit"]) },
        Some("abandoned") => PullState::Closed,
        _ => return Err("no status"),
    };
    let fork = pull["forkSource"].is_object();
    let head_repo = if fork {
        let repository = &pull["forkSource"]["repository"];
        let organization = super::address::organization_of(&id.repo);
        let project = repository["project"]["name"].as_str().unwrap_or_default();
        let name = text(&repository["name"]).unwrap_or_default();
        RepoId { host: id.repo.host.clone(), owner: format!("{organization}/{project}"), name }
    } else {
        id.repo.clone()
    };
    // The base repository has a ref of the merge, and none of the head.
    let of_fork = if fork { address.clone_url(&head_repo) } else { None };
    let labels = pull["labels"].as_array().into_iter().flatten().filter(|label| label["active"] != false);
    Ok(PullRequest {
        id: id.clone(),
        title: text(&pull["title"]).ok_or("no title")?,
        url: address.pull_page(&id.repo, id.number).ok_or("a name that no repository can have")?,
        author: login(&pull["createdBy"]),
        head: Head {
            branch: branch(&pull["sourceRefName"]).ok_or("no sourceRefName")?,
            commit: commit(&pull["lastMergeSourceCommit"]).ok_or("no lastMergeSourceCommit.commitId")?,
            repo_owner: head_repo.owner,
            repo_name: head_repo.name,
            clone_url: of_fork,
        },
        base: Base {
            branch: branch(&pull["targetRefName"]).ok_or("no targetRefName")?,
            commit: commit(&pull["lastMergeTargetCommit"]).ok_or("no lastMergeTargetCommit.commitId")?,
        },
        draft: pull["isDraft"] == true,
        state,
        fork,
        labels: labels.filter_map(|label| text(&label["name"])).collect(),
        repo_size_kib: None,
        clone_url: address.clone_url(&id.repo).ok_or("a name that no repository can have")?,
    })
}

/// Version of a pull request. The host reports no time of the last change, so it consists of the fields whose change we act on.
pub(super) fn version(pull: &PullRequest) -> PullVersion {
    let state = match &pull.state {
        PullState::Open => "active",
        PullState::Closed => "abandoned",
        PullState::Merged { .. } => "completed",
    };
    let draft = if pull.draft { " draft" } else { "" };
    PullVersion::new(format!("{} {state}{draft} {}", pull.head.commit, pull.base.branch))
}

/// A branch's name without `refs/heads/`.
pub(super) fn branch(name: &Value) -> Option<String> {
    name.as_str()?.strip_prefix(HEADS).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Reads the full id in a reference to a commit; absent if it is all zeros.
pub(super) fn commit(reference: &Value) -> Option<CommitSha> {
    sha(&reference["commitId"])
}

/// Reads the full id of a commit; absent if it is all zeros.
pub(super) fn sha(id: &Value) -> Option<CommitSha> {
    let id = CommitSha::parse(&id.as_str()?.to_ascii_lowercase()).ok()?;
    Some(id).filter(|id| id.as_str().bytes().any(|byte| byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_of_comments_name_thread_and_comment() {
        assert_eq!(comment_id(5, 2), Some((5 << 16) + 2));
        assert_eq!(thread_and_comment(comment_id(123_456, 65_535).unwrap()), (123_456, 65_535));
        assert_eq!(comment_id(1, 65_536), None);
        assert!(comment_id(u64::MAX, 1).is_none());
    }

    #[test]
    fn a_comment_is_edited_when_its_text_changed_later() {
        let comment =
            |written: &str, changed: &str| json!({"publishedDate": written, "lastContentUpdatedDate": changed});
        assert!(!is_edited(&comment("2026-01-01T00:00:00.32Z", "2026-01-01T00:00:00.32Z")));
        assert!(!is_edited(&comment("2026-01-01T00:00:00.32Z", "2026-01-01T00:00:00.357Z")));
        assert!(is_edited(&comment("2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z")));
        assert!(is_edited(&json!({})));
    }

    #[test]
    fn a_fork_is_told_by_its_source_and_never_by_names() {
        let address = AzureDevOpsAddress::new("dev.azure.com", "https://dev.azure.com");
        let sha = "4444eeee455ff5aaaaabb66ccccccccc7777cccc";
        let mut pull = json!({
            "pullRequestId": 7, "title": "t", "status": "active", "sourceRefName": "refs/heads/topic",
            "targetRefName": "refs/heads/main", "createdBy": {"uniqueName": "ann@example.com"},
            "lastMergeSourceCommit": {"commitId": sha}, "lastMergeTargetCommit": {"commitId": sha},
            "repository": {"name": "live", "project": {"name": "Infra"}},
            "labels": [{"name": "no-plan", "active": true}, {"name": "gone", "active": false}],
        });
        let id = pull_id(&address, "acme", &pull).unwrap();
        let read = pull_request(&address, &id, &pull).unwrap();
        assert!(!read.fork && read.labels == ["no-plan"] && read.head.branch == "topic");
        assert_eq!(read.url, "https://dev.azure.com/acme/Infra/_git/live/pullrequest/7");
        // Its fork has the name of the repository itself, in another project.
        pull["forkSource"] =
            json!({"name": "refs/heads/topic", "repository": {"name": "live", "project": {"name": "Else where"}}});
        let of_fork = pull_request(&address, &id, &pull).unwrap();
        assert!(of_fork.fork && read.head.clone_url.is_none());
        assert_eq!(of_fork.head.clone_url.unwrap(), "https://dev.azure.com/acme/Else%20where/_git/live");
        pull["lastMergeSourceCommit"] = json!({"commitId": "0".repeat(40)});
        assert!(pull_request(&address, &id, &pull).unwrap_err().contains("lastMergeSourceCommit"));
    }
}
