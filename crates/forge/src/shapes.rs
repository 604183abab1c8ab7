//! GitHub's JSON shapes of the state: REST answers and webhook payloads.

use super::hooks::Delivery;
use super::kind::written;
use super::state::{CommentState, IssueState, PullState, ReactionState, RepoState, ReviewState, State, StatusState};
use serde_json::{Map, Value, json};

const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];

/// Name of each `ROUTE_url` of a repository, and its path below `/repos/OWNER/NAME/`.
const REPO_URLS: [(&str, &str); 22] = [
    ("assignees", "assignees{/user}"),
    ("blobs", "git/blobs{/sha}"),
    ("branches", "branches{/branch}"),
    ("collaborators", "collaborators{/collaborator}"),
    ("comments", "comments{/number}"),
    ("commits", "commits{/sha}"),
    ("compare", "compare/{base}...{head}"),
    ("contents", "contents/{+path}"),
    ("deployments", "deployments"),
    ("events", "events"),
    ("forks", "forks"),
    ("git_commits", "git/commits{/sha}"),
    ("git_refs", "git/refs{/sha}"),
    ("hooks", "hooks"),
    ("issue_comment", "issues/comments{/number}"),
    ("issues", "issues{/number}"),
    ("labels", "labels{/name}"),
    ("merges", "merges"),
    ("pulls", "pulls{/number}"),
    ("statuses", "statuses/{sha}"),
    ("teams", "teams"),
    ("trees", "git/trees{/sha}"),
];

fn merged(mut to: Value, more: Value) -> Value {
    if let (Some(to), Value::Object(more)) = (to.as_object_mut(), more) {
        to.extend(more);
    }
    to
}

/// Converts a time of the state to GitHub's form, without fractions of a second.
pub(super) fn seconds(moment: &str) -> String {
    format!("{}Z", moment.split(['.', 'Z']).next().unwrap_or_default())
}

pub(super) fn user(url: &str, state: &State, login: &str) -> Value {
    let id = state.users.get(&login.to_lowercase()).map_or(0, |user| user.id);
    let api = format!("{url}/api/v3/users/{login}");
    json!({
        "login": login, "id": id, "node_id": format!("U_{id}"), "avatar_url": format!("{url}/avatars/u/{id}?"), "gravatar_id": "",
        "url": api, "html_url": format!("{url}/{login}"), "followers_url": format!("{api}/followers"),
        "following_url": format!("{api}/following{{/other_user}}"), "gists_url": format!("{api}/gists{{/gist_id}}"),
        "starred_url": format!("{api}/starred{{/owner}}{{/repo}}"), "subscriptions_url": format!("{api}/subscriptions"),
        "organizations_url": format!("{api}/orgs"), "repos_url": format!("{api}/repos"),
        "events_url": format!("{api}/events{{/privacy}}"), "received_events_url": format!("{api}/received_events"),
        "type": "User", "site_admin": false,
    })
}

pub(super) fn repo(url: &str, state: &State, repo: &RepoState) -> Value {
    let full_name = repo.full_name();
    let api = format!("{url}/api/v3/repos/{full_name}");
    let web = format!("{url}/{full_name}");
    let host = url.split("://").nth(1).unwrap_or_default();
    let opened = repo.pulls.iter().filter(|pull| pull.open).count();
    let links: Map<_, _> =
        REPO_URLS.iter().map(|(name, tail)| (format!("{name}_url"), format!("{api}/{tail}").into())).collect();
    let body = json!({
        "id": repo.id, "node_id": format!("R_{}", repo.id), "name": repo.name, "full_name": full_name, "private": true,
        "owner": user(url, state, &repo.owner), "html_url": web, "description": null, "fork": repo.parent.is_some(), "url": api,
        "created_at": seconds(&repo.created_at), "updated_at": seconds(&repo.created_at), "pushed_at": seconds(&repo.created_at),
        "git_url": format!("git://{host}/{full_name}.git"), "ssh_url": format!("git@{host}:{full_name}.git"),
        "clone_url": format!("{web}.git"), "svn_url": web, "homepage": null, "size": repo.size_kib, "stargazers_count": 0, "watchers_count": 0,
    });
    let settings = json!({
        "language": "HCL", "has_issues": !repo.issues_disabled, "has_projects": false, "has_downloads": false, "has_wiki": false, "has_pages": false,
        "forks_count": 0, "mirror_url": null, "archived": false, "disabled": false, "open_issues_count": opened, "license": null,
        "allow_forking": true, "is_template": false, "topics": [], "visibility": "private", "forks": 0, "open_issues": opened,
        "watchers": 0, "default_branch": "main", "allow_squash_merge": repo.allow_squash_merge,
        "allow_merge_commit": repo.allow_merge_commit, "allow_rebase_merge": repo.allow_rebase_merge, "allow_auto_merge": false,
        "delete_branch_on_merge": false,
    });
    merged(merged(body, settings), Value::Object(links))
}

/// Repositories that the account sees, with its permissions.
pub(super) fn repos_of(url: &str, state: &State, login: &str) -> Value {
    let seen = state.repos.values().filter(|found| found.permission(login) != "none");
    let row = |found: &RepoState| {
        let level = found.permission(login);
        let permissions = json!({"permissions": {"admin": level == "admin", "maintain": level == "admin",
            "push": found.can_write(login), "triage": found.can_write(login), "pull": true}});
        merged(repo(url, state, found), permissions)
    };
    Value::Array(seen.map(row).collect())
}

/// The forge's webhook as a repository's own, with the result of its last delivery.
pub(super) fn webhook(url: &str, state: &State, repo: &RepoState) -> Option<Value> {
    let target = state.webhook.as_ref()?;
    let last = match state.deliveries.iter().rev().find(|delivery| delivery.done) {
        None => json!({"code": null, "status": "unused", "message": null}),
        Some(delivery) => match delivery.status {
            Some(code) if delivery.succeeded() => json!({"code": code, "status": "active", "message": "OK"}),
            Some(code) => {
                json!({"code": code, "status": "misconfigured", "message": format!("Invalid HTTP Response: {code}")})
            }
            None => json!({"code": 0, "status": "misconfigured", "message": "failed to connect to host"}),
        },
    };
    let api = format!("{url}/api/v3/repos/{}/hooks/1", repo.full_name());
    Some(json!({"type": "Repository", "id": 1, "name": "web", "active": true,
        "events": ["issue_comment", "merge_group", "pull_request", "pull_request_review", "push"],
        "config": {"content_type": "json", "insecure_ssl": "0", "url": target, "secret": "********"},
        "updated_at": seconds(&repo.created_at), "created_at": seconds(&repo.created_at), "url": api, "test_url": format!("{api}/test"),
        "ping_url": format!("{api}/pings"), "deliveries_url": format!("{api}/deliveries"), "last_response": last}))
}

/// A delivery of the webhook, without request and answer.
pub(super) fn delivery(delivery: &Delivery) -> Value {
    json!({"id": delivery.id, "guid": delivery.guid, "delivered_at": seconds(&delivery.created_at), "event": delivery.event,
        "action": delivery.action, "status_code": delivery.status.unwrap_or_default(),
        "status": if delivery.succeeded() { "OK" } else { "Invalid HTTP Response" }, "redelivery": false})
}

fn association(repo: &RepoState, login: &str) -> &'static str {
    if repo.permission(login) == "none" { "NONE" } else { "COLLABORATOR" }
}

fn label(url: &str, full_name: &str, name: &str) -> Value {
    json!({"id": 1, "node_id": "LA_1", "url": format!("{url}/api/v3/repos/{full_name}/labels/{name}"), "name": name, "color": "ededed",
        "default": false, "description": null})
}

/// Fields that an issue and a pull request share.
fn thread(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let labels: Vec<_> = pull.labels.iter().map(|name| label(url, &repo.full_name(), name)).collect();
    json!({
        "id": pull.id, "node_id": format!("PR_{}", pull.id), "number": pull.number, "title": pull.title,
        "user": user(url, state, &pull.author), "labels": labels, "state": if pull.open { "open" } else { "closed" }, "locked": false,
        "assignee": null, "assignees": [], "milestone": null, "created_at": seconds(&pull.created_at), "updated_at": seconds(&pull.updated_at),
        "closed_at": pull.closed_at.as_deref().map(seconds), "author_association": association(repo, &pull.author), "active_lock_reason": null,
        "body": if pull.body.is_empty() { Value::Null } else { pull.body.clone().into() }, "draft": pull.draft,
    })
}

fn side(url: &str, state: &State, full_name: &str, reference: &str, sha: &str) -> Value {
    let owner = full_name.split('/').next().unwrap_or_default();
    let body = state.repo(full_name).map_or(Value::Null, |found| repo(url, state, found));
    json!({"label": format!("{owner}:{reference}"), "ref": reference, "sha": sha, "user": user(url, state, owner), "repo": body})
}

/// A pull request. In an `event` its mergeability is not known yet, as on GitHub.
pub(super) fn pull(url: &str, state: &State, repo: &RepoState, pull: &PullState, event: bool) -> Value {
    let full_name = repo.full_name();
    let api = format!("{url}/api/v3/repos/{full_name}");
    let page = format!("{url}/{full_name}/pull/{}", pull.number);
    let (own, issue) = (format!("{api}/pulls/{}", pull.number), format!("{api}/issues/{}", pull.number));
    let (mergeable, mergeable_state) = if event { (None, "unknown".to_owned()) } else { repo.mergeability(pull) };
    let (merge_commit, merged_by) = pull.merged.clone().unzip();
    let specific = json!({
        "url": own, "html_url": page, "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"), "issue_url": issue,
        "merged_at": merge_commit.as_ref().and(pull.closed_at.as_deref()).map(seconds), "merge_commit_sha": merge_commit,
        "requested_reviewers": [], "requested_teams": [], "commits_url": format!("{own}/commits"),
        "review_comments_url": format!("{own}/comments"), "review_comment_url": format!("{api}/pulls/comments{{/number}}"),
        "comments_url": format!("{issue}/comments"), "statuses_url": format!("{api}/statuses/{}", pull.head_sha),
        "head": side(url, state, &pull.head_repo, &pull.head_ref, &pull.head_sha),
        "base": side(url, state, &full_name, &pull.base_ref, &pull.base_sha),
        "_links": {"self": {"href": own}, "html": {"href": page}, "issue": {"href": issue}}, "auto_merge": null,
        "merged": pull.merged.is_some(), "mergeable": mergeable, "rebaseable": mergeable, "mergeable_state": mergeable_state,
        "merged_by": merged_by.map(|login| user(url, state, &login)), "comments": pull.comments.len(), "review_comments": 0,
        "maintainer_can_modify": false, "commits": 1, "additions": 1, "deletions": 0, "changed_files": 1,
    });
    merged(thread(url, state, repo, pull), specific)
}

pub(super) fn issue(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let api = format!("{url}/api/v3/repos/{}", repo.full_name());
    let page = format!("{url}/{}/pull/{}", repo.full_name(), pull.number);
    let own = format!("{api}/issues/{}", pull.number);
    let specific = json!({
        "url": own, "repository_url": api, "labels_url": format!("{own}/labels{{/name}}"), "comments_url": format!("{own}/comments"),
        "events_url": format!("{own}/events"), "html_url": page, "comments": pull.comments.len(), "state_reason": null,
        "pull_request": {"url": format!("{api}/pulls/{}", pull.number), "html_url": page, "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"), "merged_at": pull.merged.as_ref().and(pull.closed_at.as_deref()).map(seconds)},
    });
    merged(thread(url, state, repo, pull), specific)
}

/// An issue that is no pull request: it has no key `pull_request`.
pub(super) fn plain_issue(url: &str, state: &State, repo: &RepoState, issue: &IssueState) -> Value {
    let full_name = repo.full_name();
    let api = format!("{url}/api/v3/repos/{full_name}");
    let own = format!("{api}/issues/{}", issue.number);
    let labels: Vec<_> = issue.labels.iter().map(|name| label(url, &full_name, name)).collect();
    json!({
        "id": issue.id, "node_id": format!("I_{}", issue.id), "number": issue.number, "title": issue.title,
        "user": user(url, state, &issue.author), "labels": labels, "state": if issue.open { "open" } else { "closed" }, "locked": false,
        "assignee": null, "assignees": [], "milestone": null, "created_at": seconds(&issue.created_at),
        "updated_at": seconds(&issue.updated_at), "closed_at": issue.closed_at.as_deref().map(seconds),
        "author_association": association(repo, &issue.author), "active_lock_reason": null, "body": issue.body,
        "url": own, "repository_url": api, "labels_url": format!("{own}/labels{{/name}}"), "comments_url": format!("{own}/comments"),
        "events_url": format!("{own}/events"), "html_url": format!("{url}/{full_name}/issues/{}", issue.number),
        "comments": issue.comments.len(), "state_reason": if issue.open { Value::Null } else { "completed".into() },
    })
}

/// Returns the time of a comment's last change in GitHub's form. A change in the second of the creation is reported a second later, so that
/// tests see that there was one.
pub(super) fn changed(comment: &CommentState) -> String {
    let (created, changed) = (seconds(&comment.created_at), seconds(&comment.updated_at));
    if created != changed || comment.created_at == comment.updated_at {
        return changed;
    }
    let later = changed.parse::<jiff::Timestamp>().map(|at| at + jiff::SignedDuration::from_secs(1));
    later.map_or(changed, |at| seconds(&written(at)))
}

pub(super) fn comment(url: &str, state: &State, repo: &RepoState, number: u64, comment: &CommentState) -> Value {
    let api = format!("{url}/api/v3/repos/{}", repo.full_name());
    let own = format!("{api}/issues/comments/{}", comment.id);
    let count = |content: &str| comment.reactions.iter().filter(|reaction| reaction.content == content).count();
    let mut reactions = json!({"url": format!("{own}/reactions"), "total_count": comment.reactions.len()});
    for content in REACTIONS {
        reactions[content] = count(content).into();
    }
    json!({
        "url": own, "html_url": format!("{url}/{}/pull/{number}#issuecomment-{}", repo.full_name(), comment.id),
        "issue_url": format!("{api}/issues/{number}"), "id": comment.id, "node_id": format!("IC_{}", comment.id),
        "user": user(url, state, &comment.author), "created_at": seconds(&comment.created_at), "updated_at": changed(comment),
        "author_association": association(repo, &comment.author), "body": comment.body, "reactions": reactions,
        "performed_via_github_app": null,
    })
}

pub(super) fn reaction(url: &str, state: &State, reaction: &ReactionState) -> Value {
    json!({"id": reaction.id, "node_id": format!("REA_{}", reaction.id), "user": user(url, state, &reaction.user),
        "content": reaction.content, "created_at": seconds(&reaction.created_at)})
}

/// Returns true if GitHub has this reaction.
pub(super) fn is_reaction(content: &str) -> bool {
    REACTIONS.contains(&content)
}

pub(super) fn review(url: &str, state: &State, repo: &RepoState, number: u64, review: &ReviewState) -> Value {
    let page = format!("{url}/{}/pull/{number}#pullrequestreview-{}", repo.full_name(), review.id);
    let pull = format!("{url}/api/v3/repos/{}/pulls/{number}", repo.full_name());
    json!({
        "id": review.id, "node_id": format!("PRR_{}", review.id), "user": user(url, state, &review.user), "body": review.body,
        "state": review.state, "html_url": page, "pull_request_url": pull, "author_association": association(repo, &review.user),
        "_links": {"html": {"href": page}, "pull_request": {"href": pull}}, "commit_id": review.commit,
        "submitted_at": seconds(&review.submitted_at),
    })
}

pub(super) fn status(url: &str, state: &State, repo: &RepoState, status: &StatusState) -> Value {
    let creator = user(url, state, &status.creator);
    json!({
        "url": format!("{url}/api/v3/repos/{}/statuses/{}", repo.full_name(), status.sha), "avatar_url": creator["avatar_url"],
        "id": status.id, "node_id": format!("SC_{}", status.id), "state": status.state, "description": status.description,
        "target_url": status.target_url, "context": status.context, "created_at": seconds(&status.created_at),
        "updated_at": seconds(&status.created_at), "creator": creator,
    })
}

pub(super) fn ping(url: &str, hook: &str) -> Value {
    json!({"zen": "Non-blocking is better than blocking.", "hook_id": 1,
        "hook": {"type": "Repository", "id": 1, "name": "web", "active": true,
            "events": ["issue_comment", "pull_request", "pull_request_review"],
            "config": {"content_type": "json", "insecure_ssl": "0", "url": hook, "secret": "********"},
            "url": format!("{url}/api/v3/hooks/1")}})
}

/// Payload of `pull_request`.
pub(super) fn pull_event(
    url: &str,
    state: &State,
    full_name: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: Value,
) -> anyhow::Result<Value> {
    let (found, pulled) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let body = json!({"action": action, "number": number, "pull_request": pull(url, state, found, pulled, true),
        "repository": repo(url, state, found), "sender": user(url, state, sender)});
    Ok(merged(body, extra))
}

/// Payload of `issue_comment`.
pub(super) fn comment_event(
    url: &str,
    state: &State,
    full_name: &str,
    number: u64,
    id: u64,
    action: &str,
    sender: &str,
) -> anyhow::Result<Value> {
    let (found, pulled) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let said = pulled.comments.iter().find(|comment| comment.id == id);
    let said = said.ok_or_else(|| anyhow::anyhow!("#{number} has no comment {id}"))?;
    let said = comment(url, state, found, number, said);
    Ok(json!({"action": action, "issue": issue(url, state, found, pulled), "comment": said,
        "repository": repo(url, state, found), "sender": user(url, state, sender)}))
}

/// Payload of `pull_request_review` for the latest review.
pub(super) fn review_event(url: &str, state: &State, full_name: &str, number: u64) -> anyhow::Result<Value> {
    let (found, pulled) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let latest = pulled.reviews.last().ok_or_else(|| anyhow::anyhow!("#{number} has no review"))?;
    let shaped = merged(review(url, state, found, number, latest), json!({"state": latest.state.to_lowercase()}));
    Ok(json!({"action": "submitted", "review": shaped, "pull_request": pull(url, state, found, pulled, true),
        "repository": repo(url, state, found), "sender": user(url, state, &latest.user)}))
}
