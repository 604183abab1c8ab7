//! The state in the shapes of the REST API v4 (docs.gitlab.com/api).

use super::super::HostKind;
use super::super::state::{CommentState, PullState, RepoState, State};
use super::{ProjectSettings, members, merging};
use serde_json::{Value, json};

/// A segment of a path, percent-encoded.
pub(super) fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A time as the API writes it: `2026-01-01T10:00:00.123Z`.
pub(super) fn api_time(text: &str) -> String {
    text.get(..23).map_or_else(|| text.to_owned(), |head| format!("{head}Z"))
}

pub(super) fn id_of(state: &State, login: &str) -> u64 {
    state.users.get(&login.to_lowercase()).map_or(0, |user| user.id)
}

/// A person as other rows name one.
pub(super) fn person(url: &str, state: &State, login: &str) -> Value {
    json!({
        "id": id_of(state, login), "username": login, "public_email": "", "name": login, "state": "active", "locked": false,
        "avatar_url": null, "web_url": format!("{url}/{login}"),
    })
}

/// The user of the request (docs.gitlab.com/api/users, "Retrieve the current user").
pub(super) fn user(url: &str, state: &State, login: &str) -> Value {
    let mut body = person(url, state, login);
    body["email"] = json!(format!("{login}@sandbox.invalid"));
    body["created_at"] = json!("2026-01-01T00:00:00.000Z");
    body["bot"] = (login == super::super::BOT && state.gitlab.token.is_of_bot).into();
    body["external"] = false.into();
    body["private_profile"] = false.into();
    body
}

pub(super) fn web_url(url: &str, repo: &RepoState) -> String {
    format!("{url}{}", HostKind::Gitlab.home(&repo.full_name()))
}

pub(super) fn pull_url(url: &str, repo: &RepoState, pull: &PullState) -> String {
    format!("{url}{}", HostKind::Gitlab.pull_page(&repo.full_name(), pull.number))
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// docs.gitlab.com/api/projects, "Retrieve a project".
pub(super) fn project(url: &str, state: &State, repo: &RepoState, login: &str) -> Value {
    let web = web_url(url, repo);
    let level = members::level(state, repo, login);
    let settings = state.gitlab.projects.get(&repo.id);
    let has = |find: fn(&ProjectSettings) -> bool| settings.is_some_and(find);
    let (pipeline, threads) = (has(|of| of.needs_successful_pipeline), has(|of| of.needs_resolved_threads));
    let mut body = json!({
        "id": repo.id, "description": null, "name": repo.name, "path": repo.name, "path_with_namespace": repo.full_name(),
        "name_with_namespace": repo.full_name().replace('/', " / "), "created_at": api_time(&repo.created_at),
        "default_branch": "main", "topics": [], "tag_list": [], "ssh_url_to_repo": format!("git@{}:{}.git", host(url), repo.full_name()),
        "http_url_to_repo": format!("{web}.git"), "web_url": web, "avatar_url": null, "star_count": 0,
        "last_activity_at": api_time(&repo.created_at), "visibility": "private", "archived": false, "empty_repo": false,
        "namespace": {"id": 1, "name": last_part(&repo.owner), "path": last_part(&repo.owner), "kind": "group",
            "full_path": repo.owner, "parent_id": null, "avatar_url": null, "web_url": format!("{url}/groups/{}", repo.owner)},
        "merge_requests_enabled": true, "issues_enabled": true, "jobs_enabled": true, "lfs_enabled": false, "merge_method": "merge",
        "squash_option": "default_off", "only_allow_merge_if_pipeline_succeeds": pipeline,
        "allow_merge_on_skipped_pipeline": false, "only_allow_merge_if_all_discussions_are_resolved": threads,
        "remove_source_branch_after_merge": true, "merge_trains_enabled": has(|of| of.has_merge_trains), "merge_pipelines_enabled": false,
        "permissions": {"project_access": {"access_level": level, "notification_level": 3}, "group_access": null},
    });
    if let Some(parent) = repo.parent.as_deref().and_then(|parent| state.repo(parent).ok()) {
        body["forked_from_project"] = json!({
            "id": parent.id, "path_with_namespace": parent.full_name(), "name": parent.name, "web_url": web_url(url, parent),
        });
    }
    body
}

pub(super) fn host(url: &str) -> &str {
    url.split("://").last().unwrap_or_default()
}

/// Title with the prefix that makes a draft (docs.gitlab.com/user/project/merge_requests/drafts).
pub(super) fn title(pull: &PullState) -> String {
    if pull.draft { format!("Draft: {}", pull.title) } else { pull.title.clone() }
}

pub(super) fn state_word(pull: &PullState) -> &'static str {
    match pull {
        PullState { merged: Some(_), .. } => "merged",
        PullState { open: true, .. } => "opened",
        _ => "closed",
    }
}

/// The older `merge_status` of a detailed one: it knows of conflicts only (docs.gitlab.com/api/merge_requests, "Merge status").
pub(super) fn merge_status(detailed: &str) -> &'static str {
    match detailed {
        "unchecked" => "unchecked",
        "checking" => "checking",
        "conflict" | "need_rebase" | "broken_status" => "cannot_be_merged",
        _ => "can_be_merged",
    }
}

/// A merge request in a list, which has neither `diff_refs` nor `head_pipeline`
/// (docs.gitlab.com/api/merge_requests, "List project merge requests").
pub(super) fn merge_request(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let merge = state.gitlab.merges.get(&pull.id);
    let detailed = merging::known_status(state, repo, pull);
    let is_squashed = merge.is_some_and(|merge| merge.is_squashed);
    let merge_commit = pull.merged.as_ref().map(|(commit, _)| commit);
    let merged_by = pull.merged.as_ref().map(|(_, by)| person(url, state, by));
    let closed_at = pull.closed_at.as_deref().map(api_time);
    let (merged_at, closed_at) = if pull.merged.is_some() { (closed_at, None) } else { (None, closed_at) };
    let source = state.repo(&pull.head_repo).map(|source| source.id).ok();
    let reference = format!("!{}", pull.number);
    let full_reference = format!("{}{reference}", repo.full_name());
    let facts = json!({
        "id": pull.id, "iid": pull.number, "project_id": repo.id, "title": title(pull), "description": pull.body, "state": state_word(pull),
        "created_at": api_time(&pull.created_at), "updated_at": api_time(&pull.updated_at),
        "merged_by": merged_by, "merge_user": merged_by, "merged_at": merged_at, "closed_by": null, "closed_at": closed_at,
        "target_branch": pull.base_ref, "source_branch": pull.head_ref, "user_notes_count": pull.comments.len(), "upvotes": 0,
        "downvotes": 0, "author": person(url, state, &pull.author), "assignees": [], "assignee": null, "reviewers": [],
        "source_project_id": source, "target_project_id": repo.id, "labels": pull.labels, "draft": pull.draft,
        "work_in_progress": pull.draft, "milestone": null,
    });
    let merging = json!({
        "merge_when_pipeline_succeeds": merge.is_some_and(|merge| merge.auto_merge.is_some()),
        "merge_status": merge_status(detailed), "detailed_merge_status": detailed, "sha": pull.head_sha,
        "merge_commit_sha": merge_commit.filter(|_| !is_squashed), "squash_commit_sha": merge_commit.filter(|_| is_squashed),
        "discussion_locked": null, "should_remove_source_branch": null, "force_remove_source_branch": null,
        "prepared_at": api_time(&pull.created_at), "reference": reference,
        "references": {"short": reference, "relative": reference, "full": full_reference},
        "web_url": pull_url(url, repo, pull), "squash": false, "squash_on_merge": false, "has_conflicts": detailed == "conflict",
        "task_completion_status": {"count": 0, "completed_count": 0},
        "blocking_discussions_resolved": merge.is_none_or(|merge| merge.open_threads == 0), "approvals_before_merge": null,
        "imported": false, "imported_from": "none",
    });
    joined(facts, merging)
}

/// Both objects in one.
pub(super) fn joined(mut one: Value, other: Value) -> Value {
    if let (Some(one), Value::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

/// A note (docs.gitlab.com/api/notes, "Merge requests").
pub(super) fn note(
    url: &str,
    state: &State,
    repo: &RepoState,
    pull: &PullState,
    (note, is_system): (&CommentState, bool),
) -> Value {
    json!({
        "id": note.id, "type": null, "body": note.body, "attachment": null, "author": person(url, state, &note.author),
        "created_at": api_time(&note.created_at), "updated_at": api_time(&note.updated_at), "system": is_system,
        "noteable_id": pull.id, "noteable_type": "MergeRequest", "project_id": repo.id, "resolvable": false, "confidential": false,
        "internal": false, "imported": false, "imported_from": "none", "noteable_iid": pull.number, "commands_changes": {},
    })
}
