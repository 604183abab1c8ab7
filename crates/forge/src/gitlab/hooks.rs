//! Webhooks (docs.gitlab.com/user/project/integrations/webhooks): payloads, headers, and when a failing one is switched off.

use super::super::hooks::{Delivery, emit};
use super::super::state::{CommentState, PullState, RepoState, State};
use super::super::{Shared, timestamp};
use super::{approvals, merging, now, shapes};
use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::RequestBuilder;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::Sha256;

/// Names of the events in `X-Gitlab-Event`.
pub(super) const MERGE_REQUEST_HOOK: &str = "Merge Request Hook";
pub(super) const NOTE_HOOK: &str = "Note Hook";
pub(super) const PUSH_HOOK: &str = "Push Hook";

/// Identity of the webhook in the deliveries.
const WEBHOOK_UUID: &str = "3b2a5d2e-6f0c-4c53-9a8e-8d4f64e7c1aa";

/// Failures in a row that a webhook may have before it is switched off, and before that is for good: the constants of
/// app/models/concerns/web_hooks/auto_disabling.rb.
const TOLERATED_FAILURES: u32 = 3;
const MOST_FAILURES: u32 = 39;
/// First time for which it is switched off, which doubles, and the longest one, in seconds.
const FIRST_PAUSE: i64 = 60;
const LONGEST_PAUSE: i64 = 24 * 60 * 60;

/// The commit of a branch that does not exist.
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// Drops a delivery without a record if the webhook is switched off. Tests and repetitions are sent all the same.
pub(in super::super) fn drops(state: &mut State, delivery: u64) -> bool {
    let is_dropped = is_switched_off(state) && !state.gitlab.hook.forced.contains(&delivery);
    if is_dropped {
        state.deliveries.retain(|record| record.id != delivery);
    }
    is_dropped
}

fn is_switched_off(state: &State) -> bool {
    let hook = &state.gitlab.hook;
    let until = hook.disabled_until.is_some_and(|until| until >= now(state));
    hook.failures > MOST_FAILURES || (hook.failures > TOLERATED_FAILURES && until)
}

/// Counts the result of a delivery. Redirects are no failures (app/services/web_hook_service.rb, `response_category`).
pub(in super::super) fn note_result(state: &mut State, status: Option<u16>) {
    let time = now(state);
    let hook = &mut state.gitlab.hook;
    if status.is_some_and(|status| (200..400).contains(&status)) {
        (hook.failures, hook.disabled_until) = (0, None);
    } else if !hook.never_disabled {
        if let Some(doublings) = hook.failures.checked_sub(TOLERATED_FAILURES) {
            let pause = FIRST_PAUSE.saturating_mul(1_i64.checked_shl(doublings).unwrap_or(i64::MAX)).min(LONGEST_PAUSE);
            hook.disabled_until = Some(time + jiff::SignedDuration::from_secs(pause));
        }
        hook.failures += 1;
    }
}

/// `alert_status` of the webhook.
pub(super) fn alert_status(state: &State) -> &'static str {
    match is_switched_off(state) {
        true if state.gitlab.hook.failures > MOST_FAILURES => "disabled",
        true => "temporarily_disabled",
        false => "executable",
    }
}

/// Adds the headers of a delivery, with its signature where the webhook has a signing token (standardwebhooks.com).
pub(in super::super) fn headers(shared: &Shared, request: RequestBuilder, delivery: &Delivery) -> RequestBuilder {
    let (signing_token, time) = {
        let state = shared.lock();
        (state.gitlab.signing_token.clone(), now(&state).as_second())
    };
    let request = request
        .header("Content-Type", "application/json")
        .header("User-Agent", "GitLab/18.6.1-ee")
        .header("Idempotency-Key", &delivery.guid)
        .header("X-Gitlab-Event", &delivery.event)
        .header("X-Gitlab-Webhook-UUID", WEBHOOK_UUID)
        .header("X-Gitlab-Instance", &shared.url)
        .header("X-Gitlab-Event-UUID", format!("{}-event", delivery.id))
        .header("X-Gitlab-Token", shared.webhook_secret.expose_secret());
    match signing_token {
        None => request,
        Some(token) => request
            .header("webhook-id", &delivery.guid)
            .header("webhook-timestamp", time.to_string())
            .header("webhook-signature", signature(token.expose_secret(), &delivery.guid, time, &delivery.body)),
    }
}

/// Signature of a delivery: `v1,` and HMAC-SHA256 of `<id>.<timestamp>.<body>` in Base64.
pub(super) fn signature(token: &str, id: &str, time: i64, body: &str) -> String {
    let key = token.strip_prefix("whsec_").and_then(|key| base64::prelude::BASE64_STANDARD.decode(key).ok());
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key.unwrap_or_default()) else {
        return String::new(); // HMAC takes keys of any length
    };
    mac.update(format!("{id}.{time}.{body}").as_bytes());
    format!("v1,{}", base64::prelude::BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

/// A time as deliveries about merge requests and notes write it: `2026-01-01 10:00:00 UTC`.
fn hook_time(text: &str) -> String {
    match (text.get(..10), text.get(11..19)) {
        (Some(day), Some(time)) => format!("{day} {time} UTC"),
        _ => text.to_owned(),
    }
}

fn person(state: &State, login: &str) -> Value {
    json!({"id": shapes::id_of(state, login), "name": login, "username": login, "avatar_url": null, "email": "[REDACTED]"})
}

fn project(url: &str, repo: &RepoState) -> Value {
    let web = shapes::web_url(url, repo);
    let (ssh, http) = (format!("git@{}:{}.git", shapes::host(url), repo.full_name()), format!("{web}.git"));
    json!({
        "id": repo.id, "name": repo.name, "description": null, "web_url": web, "avatar_url": null, "git_ssh_url": ssh, "git_http_url": http,
        "namespace": repo.owner.rsplit('/').next(), "visibility_level": 0, "path_with_namespace": repo.full_name(),
        "default_branch": "main", "ci_config_path": null, "homepage": web, "url": ssh, "ssh_url": ssh, "http_url": http,
    })
}

fn repository(url: &str, repo: &RepoState) -> Value {
    let web = shapes::web_url(url, repo);
    json!({"name": repo.name, "url": format!("{web}.git"), "description": null, "homepage": web})
}

fn label(repo: &RepoState, name: &str) -> Value {
    let at = hook_time(&repo.created_at);
    json!({"id": 1, "title": name, "color": "#ededed", "project_id": repo.id, "created_at": at, "updated_at": at, "template": false,
        "description": null, "type": "ProjectLabel", "group_id": null})
}

fn labels(repo: &RepoState, pull: &PullState) -> Vec<Value> {
    pull.labels.iter().map(|name| label(repo, name)).collect()
}

fn commit(url: &str, repo: &RepoState, sha: &str, message: &str, (author, at): (&str, &str)) -> Value {
    json!({"id": sha, "message": message, "title": message, "timestamp": shapes::api_time(at),
        "url": format!("{}/-/commit/{sha}", shapes::web_url(url, repo)),
        "author": {"name": author, "email": format!("{author}@sandbox.invalid")}})
}

/// The merge request of a delivery. It has no commit of the target branch and no login of the author.
fn merge_request(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let source = state.repo(&pull.head_repo).ok();
    let pushed =
        pull.pushes.last().map_or((pull.author.as_str(), pull.created_at.as_str()), |push| (&push.author, &push.at));
    let detailed = merging::known_status(state, repo, pull);
    json!({
        "assignee_id": null, "author_id": shapes::id_of(state, &pull.author), "created_at": hook_time(&pull.created_at),
        "description": pull.body, "head_pipeline_id": null, "id": pull.id, "iid": pull.number, "last_edited_at": null,
        "last_edited_by_id": null, "merge_commit_sha": pull.merged.as_ref().map(|(commit, _)| commit), "merge_error": null,
        "merge_params": {"force_remove_source_branch": "1"}, "merge_status": shapes::merge_status(detailed),
        "merge_user_id": null, "merge_when_pipeline_succeeds": false, "milestone_id": null, "source_branch": pull.head_ref,
        "source_project_id": source.map(|source| source.id), "state": shapes::state_word(pull), "target_branch": pull.base_ref,
        "target_project_id": repo.id, "time_estimate": 0, "title": shapes::title(pull), "updated_at": hook_time(&pull.updated_at),
        "updated_by_id": null, "url": shapes::pull_url(url, repo, pull), "source": source.map(|source| project(url, source)),
        "target": project(url, repo), "work_in_progress": pull.draft, "total_time_spent": 0, "human_total_time_spent": null,
        "human_time_estimate": null, "assignee_ids": [], "reviewer_ids": [], "labels": labels(repo, pull),
        "last_commit": commit(url, repo, &pull.head_sha, &pull.title, pushed), "detailed_merge_status": detailed,
    })
}

/// Payload of a Merge Request Hook, without its action.
pub(super) fn merge_request_event(
    url: &str,
    state: &State,
    (repo, pull): (&RepoState, &PullState),
    sender: &str,
    changes: &Value,
) -> Value {
    let mut attributes = merge_request(url, state, repo, pull);
    attributes["state_id"] = match shapes::state_word(pull) {
        "opened" => 1.into(),
        "closed" => 2.into(),
        _ => 3.into(),
    };
    attributes["draft"] = pull.draft.into();
    attributes["first_contribution"] = false.into();
    attributes["blocking_discussions_resolved"] =
        state.gitlab.merges.get(&pull.id).is_none_or(|merge| merge.open_threads == 0).into();
    attributes["time_change"] = 0.into();
    attributes["human_time_change"] = Value::Null;
    json!({
        "object_kind": "merge_request", "event_type": "merge_request", "user": person(state, sender), "project": project(url, repo),
        "object_attributes": attributes, "labels": labels(repo, pull), "changes": changes, "repository": repository(url, repo),
    })
}

/// Action of a change in GitLab's words, what else has changed, and the note that the host makes of it.
fn told(repo: &RepoState, pull: &PullState, action: &str, extra: &Value) -> (&'static str, Value, String) {
    let before = &extra["changes"]["base"]["ref"]["from"];
    let title = |prefix: &str| format!("{prefix}{}", pull.title);
    match action {
        "opened" => ("open", json!({}), String::new()),
        "closed" if pull.merged.is_some() => {
            ("merge", json!({"state_id": {"previous": 4, "current": 3}}), "merged".to_owned())
        }
        "closed" => ("close", json!({"state_id": {"previous": 1, "current": 2}}), "closed".to_owned()),
        "reopened" => ("reopen", json!({"state_id": {"previous": 2, "current": 1}}), "reopened".to_owned()),
        "ready_for_review" => {
            let changes = json!({"draft": {"previous": true, "current": false},
                "title": {"previous": title("Draft: "), "current": title("")}});
            ("update", changes, "marked this merge request as **ready**".to_owned())
        }
        "edited" => {
            let note =
                format!("changed target branch from `{}` to `{}`", before.as_str().unwrap_or_default(), pull.base_ref);
            ("update", json!({"target_branch": {"previous": before, "current": pull.base_ref}}), note)
        }
        "labeled" => {
            ("update", json!({"labels": {"previous": [], "current": labels(repo, pull)}}), "added labels".to_owned())
        }
        "synchronize" => ("update", json!({}), format!("added 1 commit\n\n<ul><li>{}</li></ul>", pull.head_sha)),
        _ => ("update", json!({}), String::new()),
    }
}

/// Queues the delivery of a change of a merge request. `oldrev` is there only if the head has moved
/// (docs.gitlab.com/user/project/integrations/webhook_events, "Merge request events").
pub(in super::super) fn emit_pull(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: &Value,
) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let (word, changes, note) = told(repo, pull, action, extra);
    let mut payload = merge_request_event(url, state, (repo, pull), sender, &changes);
    payload["object_attributes"]["action"] = json!(word);
    if let Some(before) = extra.get("before") {
        payload["object_attributes"]["oldrev"] = before.clone();
        let (sha, branch, source) = (pull.head_sha.clone(), pull.head_ref.clone(), pull.head_repo.clone());
        let before = before.as_str().unwrap_or_default().to_owned();
        emit_push(state, url, &source, (&branch, &before, &sha), sender)?;
    }
    say(state, full_name, number, sender, note)?;
    emit(state, MERGE_REQUEST_HOOK, Some(word), &payload);
    if action == "synchronize" { reset_approvals(state, url, full_name, number, sender) } else { Ok(()) }
}

/// Removes approvals after a push, in projects that do so. The host itself causes the delivery.
fn reset_approvals(state: &mut State, url: &str, full_name: &str, number: u64, sender: &str) -> anyhow::Result<()> {
    let project = state.repo(full_name)?.id;
    if !state.gitlab.projects.get(&project).is_some_and(|settings| settings.resets_approvals) {
        return Ok(());
    }
    let mut removed = 0;
    for review in state.pull_mut(full_name, number)?.reviews.iter_mut().filter(|review| review.vote > 0) {
        (review.state, review.vote) = ("DISMISSED", 0);
        removed += 1;
    }
    if removed == 0 {
        return Ok(());
    }
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let mut payload = merge_request_event(url, state, (repo, pull), sender, &json!({}));
    let attributes = &mut payload["object_attributes"];
    attributes["action"] = json!("unapproved");
    attributes["system"] = true.into();
    attributes["system_action"] = json!("approvals_reset_on_push");
    emit(state, MERGE_REQUEST_HOOK, Some("unapproved"), &payload);
    Ok(())
}

/// Adds a note of the host itself, which is never delivered.
fn say(state: &mut State, full_name: &str, number: u64, sender: &str, body: String) -> anyhow::Result<()> {
    if body.is_empty() {
        return Ok(());
    }
    let (id, pull, at) = (state.new_id(), state.pull(full_name, number)?.id, timestamp());
    state.gitlab.merges.entry(pull).or_default().system_notes.push(CommentState {
        id,
        author: sender.to_owned(),
        body,
        created_at: at.clone(),
        updated_at: at,
        reactions: Vec::new(),
        hidden: false,
    });
    Ok(())
}

/// Queues the delivery of the latest review. `approved` and `unapproved` are about all rules, `approval` and `unapproval` about one
/// person (docs.gitlab.com/user/project/integrations/webhook_events, "Merge request events").
pub(in super::super) fn emit_review(state: &mut State, url: &str, full_name: &str, number: u64) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let Some(review) = pull.reviews.last() else { anyhow::bail!("!{number} has no review") };
    let (sender, left) = (review.user.clone(), approvals::left(state, repo, pull));
    let needs_some = state.gitlab.projects.get(&repo.id).is_some_and(|settings| settings.approvals_required > 0);
    let (word, note) = match review.vote {
        1.. if left == 0 => ("approved", "approved this merge request"),
        1.. => ("approval", "approved this merge request"),
        0 if left == 1 || !needs_some => ("unapproved", "unapproved this merge request"),
        0 => ("unapproval", "unapproved this merge request"),
        _ => ("update", "requested changes"),
    };
    let changes = match review.vote {
        ..0 => {
            let mut reviewer = person(state, &sender);
            reviewer["state"] = json!(approvals::reviewer_state(review.vote));
            json!({"reviewers": {"previous": [], "current": [[reviewer]]}})
        }
        _ => json!({}),
    };
    let mut payload = merge_request_event(url, state, (repo, pull), &sender, &changes);
    payload["object_attributes"]["action"] = json!(word);
    say(state, full_name, number, &sender, note.to_owned())?;
    emit(state, MERGE_REQUEST_HOOK, Some(word), &payload);
    Ok(())
}

/// Queues the delivery of a new note (`created`) or an edit.
pub(in super::super) fn emit_comment(
    state: &mut State,
    url: &str,
    full_name: &str,
    (number, id): (u64, u64),
    action: &str,
    sender: &str,
) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let note = pull.comments.iter().find(|note| note.id == id);
    let note = note.ok_or_else(|| anyhow::anyhow!("!{number} has no note {id}"))?;
    let word = if action == "created" { "create" } else { "update" };
    let payload = json!({
        "object_kind": "note", "event_type": "note", "user": person(state, sender), "project_id": repo.id,
        "project": project(url, repo), "repository": repository(url, repo), "merge_request": merge_request(url, state, repo, pull),
        "object_attributes": {
            "attachment": null, "author_id": shapes::id_of(state, &note.author), "change_position": null, "commit_id": null,
            "created_at": hook_time(&note.created_at), "discussion_id": format!("{:040x}", note.id), "id": note.id, "internal": false,
            "line_code": null, "note": note.body, "noteable_id": pull.id, "noteable_type": "MergeRequest", "original_position": null,
            "position": null, "project_id": repo.id, "resolved_at": null, "resolved_by_id": null, "resolved_by_push": null,
            "st_diff": null, "system": false, "type": null, "updated_at": hook_time(&note.updated_at), "updated_by_id": null,
            "description": note.body, "url": format!("{}#note_{id}", shapes::pull_url(url, repo, pull)), "action": word,
        },
    });
    emit(state, NOTE_HOOK, Some(word), &payload);
    Ok(())
}

/// Queues the delivery of a push to a branch (docs.gitlab.com/user/project/integrations/webhook_events, "Push events"). Of the commits it
/// has the last one only.
pub(in super::super) fn emit_push(
    state: &mut State,
    url: &str,
    full_name: &str,
    (branch, before, after): (&str, &str, &str),
    sender: &str,
) -> anyhow::Result<()> {
    let repo = state.repo(full_name)?;
    let is_deleted = after == NO_COMMIT;
    let mut row = commit(url, repo, after, "Change", (sender, &timestamp()));
    (row["added"], row["modified"], row["removed"]) = (json!([]), json!([]), json!([]));
    let commits = if is_deleted { Vec::new() } else { vec![row] };
    let mut of_repository = repository(url, repo);
    let web = shapes::web_url(url, repo);
    of_repository["git_http_url"] = json!(format!("{web}.git"));
    of_repository["git_ssh_url"] = json!(format!("git@{}:{}.git", shapes::host(url), repo.full_name()));
    of_repository["visibility_level"] = 0.into();
    let payload = json!({
        "object_kind": "push", "event_name": "push", "before": before, "after": after, "ref": format!("refs/heads/{branch}"),
        "ref_protected": branch == "main", "checkout_sha": (!is_deleted).then_some(after), "message": null,
        "user_id": shapes::id_of(state, sender), "user_name": sender, "user_username": sender, "user_email": "", "user_avatar": null,
        "project_id": repo.id, "project": project(url, repo), "commits": commits, "total_commits_count": commits.len(),
        "repository": of_repository,
    });
    emit(state, PUSH_HOOK, None, &payload);
    Ok(())
}
