//! Deliveries (services/webhook/notifier.go, services/webhook/deliver.go). Each is tried once. The event of a delivery in the state is the
//! fine one, `X-Gitea-Event-Type`.

use super::super::hooks::{self, Delivery};
use super::super::state::{CommentState, PullState, RepoState, State};
use super::super::{Shared, timestamp};
use super::{access, reviews, shapes};
use ring::hmac;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;

/// The time in which a receiver must answer (modules/setting/webhook.go, `DeliverTimeout`).
const TIMEOUT: Duration = Duration::from_secs(5);

/// The id that stands for no commit.
const NO_COMMIT: &str = "0000000000000000000000000000000000000000";

/// The coarse event of a fine one: `Event` of modules/webhook/type.go.
pub(super) fn event_of(kind: &str) -> &str {
    match kind {
        "pull_request_assign"
        | "pull_request_label"
        | "pull_request_milestone"
        | "pull_request_sync"
        | "pull_request_review_request" => "pull_request",
        "pull_request_comment" => "issue_comment",
        "pull_request_review_approved" => "pull_request_approved",
        "pull_request_review_rejected" => "pull_request_rejected",
        "pull_request_review_comment" => "pull_request_comment",
        other => other,
    }
}

/// Sends a delivery to a receiver. The signatures are over the JSON text, also of a form, and empty without a secret
/// (services/webhook/deliver.go, `newDefaultRequest` and `addDefaultHeaders`).
pub(in super::super) fn send(
    shared: &Shared,
    request: reqwest::RequestBuilder,
    delivery: &Delivery,
) -> reqwest::RequestBuilder {
    let (is_form, has_secret) = {
        let state = shared.lock();
        (state.gitea.hook.is_form, !state.gitea.hook.has_no_secret)
    };
    let secret = shared.webhook_secret.expose_secret().as_bytes();
    let signed = |algorithm| {
        let key = hmac::Key::new(algorithm, secret);
        hex::encode(hmac::sign(&key, delivery.body.as_bytes()))
    };
    let sha1 = if has_secret { signed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY) } else { String::new() };
    let sha256 = if has_secret { signed(hmac::HMAC_SHA256) } else { String::new() };
    let event = event_of(&delivery.event);
    let request = request
        .timeout(TIMEOUT)
        .header("User-Agent", "Go-http-client/1.1")
        .header("X-Gitea-Signature", &sha256)
        .header("X-Gogs-Signature", &sha256)
        .header("X-Hub-Signature", format!("sha1={sha1}"))
        .header("X-Hub-Signature-256", format!("sha256={sha256}"))
        .header("X-Gitea-Hook-Installation-Target-Type", "repository")
        .header("X-GitHub-Hook-Installation-Target-Type", "repository");
    let of_vendor = |request: reqwest::RequestBuilder, vendor: &str| {
        request
            .header(format!("X-{vendor}-Delivery"), &delivery.guid)
            .header(format!("X-{vendor}-Event"), event)
            .header(format!("X-{vendor}-Event-Type"), &delivery.event)
    };
    let request = ["Gitea", "Gogs", "GitHub"].into_iter().fold(request, of_vendor);
    if !is_form {
        return request.header("Content-Type", "application/json").body(delivery.body.clone());
    }
    let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &delivery.body).finish();
    request.header("Content-Type", "application/x-www-form-urlencoded").body(form)
}

/// Queues a delivery if the webhook has its event (models/webhook/webhook.go, `HasEvent`).
fn emit(state: &mut State, kind: &str, action: Option<&str>, payload: &Value) {
    let is_review = kind.starts_with("pull_request_review_") && kind != "pull_request_review_request";
    let asked = if is_review { "pull_request_review" } else { kind };
    let chosen = |events: &Vec<String>| events.iter().any(|event| event == asked || event == kind);
    if !state.gitea.hook.is_off && state.gitea.hook.events.as_ref().is_none_or(chosen) {
        hooks::emit(state, kind, action, payload);
    }
}

/// Payload of an event of a pull request, for a sender whose repository is shown with this level of access.
fn pull_payload(
    url: &str,
    state: &State,
    (repo, pull): (&RepoState, &PullState),
    (action, sender, level): (&str, &str, &str),
) -> Value {
    json!({
        "action": action, "number": pull.number,
        "pull_request": shapes::pull(url, state, repo, pull, sender),
        "requested_reviewer": null, "repository": shapes::repo(url, state, repo, level), "sender": shapes::user(url, state, sender),
        "commit_id": "", "review": null,
    })
}

/// Queues the delivery of a change of a pull request. Most show the repository with the permissions of its author.
pub(in super::super) fn emit_pull(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: &Value,
) -> anyhow::Result<()> {
    let pushed = extra["before"].as_str().map(str::to_owned);
    if let Some(before) = pushed {
        let pull = state.pull(full_name, number)?;
        let (branch, after, source) = (pull.head_ref.clone(), pull.head_sha.clone(), pull.head_repo.clone());
        emit_push(state, url, &source, (&branch, &before, &after), sender)?;
    }
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let author = access::level(repo, &pull.author);
    let from = &extra["changes"]["base"]["ref"]["from"];
    let (kind, word, level, changes) = match action {
        "synchronize" => ("pull_request_sync", "synchronized", "owner", None),
        "labeled" => ("pull_request_label", "label_updated", "owner", None),
        "ready_for_review" => {
            let before = json!({"from": format!("WIP: {}", pull.title)});
            ("pull_request", "edited", author, Some(json!({ "title": before })))
        }
        // What is said to be the former base branch is the new one (routers/api/v1/repo/pull.go, `EditPullRequest`).
        "edited" if from.is_string() => {
            ("pull_request", "edited", author, Some(json!({"ref": {"from": pull.base_ref}})))
        }
        "edited" => ("pull_request", "edited", author, Some(extra["changes"].clone())),
        "closed" if pull.merged.is_some() => ("pull_request", "closed", access::level(repo, sender), None),
        other => ("pull_request", other, author, None),
    };
    let mut payload = pull_payload(url, state, (repo, pull), (word, sender, level));
    if let Some(mut changes) = changes {
        changes["added_labels"] = Value::Null;
        changes["removed_labels"] = Value::Null;
        payload["changes"] = changes;
    }
    emit(state, kind, Some(word), &payload);
    // The push is worked on after the answer to git, and its branch has an open pull request by then (services/pull/pull.go,
    // `AddTestPullRequestTask`).
    if action == "opened" {
        emit_pull(state, url, full_name, number, "synchronize", sender, &Value::Null)
    } else {
        Ok(())
    }
}

/// Queues the delivery of the latest review.
pub(in super::super) fn emit_review(state: &mut State, url: &str, full_name: &str, number: u64) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let (review, kind) = reviews::latest(state, pull)?;
    let event = match kind {
        "APPROVED" => "pull_request_review_approved",
        "REQUEST_CHANGES" => "pull_request_review_rejected",
        _ => "pull_request_review_comment",
    };
    // The author is not loaded at this place, which gives the rights of nobody (`PullRequestReview`).
    let how = ("reviewed", review.user.as_str(), "none");
    let mut payload = pull_payload(url, state, (repo, pull), how);
    payload["requested_reviewer"] = shapes::user(url, state, &review.user);
    payload["review"] = json!({"type": event, "content": review.body});
    emit(state, event, Some("reviewed"), &payload);
    Ok(())
}

/// Queues the delivery of a new comment (`created`) or an edit.
pub(in super::super) fn emit_comment(
    state: &mut State,
    url: &str,
    full_name: &str,
    (number, id): (u64, u64),
    (action, sender): (&str, &str),
    before: Option<&str>,
) -> anyhow::Result<()> {
    let pull = state.pull(full_name, number)?;
    let comment = pull.comments.iter().find(|comment| comment.id == id);
    let comment = comment.ok_or_else(|| anyhow::anyhow!("#{number} has no comment {id}"))?;
    let mut payload = comment_payload(url, state, full_name, number, (comment, action, sender))?;
    if let Some(before) = before {
        payload["changes"] = json!({"body": {"from": before}, "added_labels": null, "removed_labels": null});
    }
    emit(state, "pull_request_comment", Some(action), &payload);
    Ok(())
}

/// Queues the delivery of a comment that has just been deleted.
pub(super) fn emit_deleted(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    comment: &CommentState,
    sender: &str,
) -> anyhow::Result<()> {
    let payload = comment_payload(url, state, full_name, number, (comment, "deleted", sender))?;
    emit(state, "pull_request_comment", Some("deleted"), &payload);
    Ok(())
}

fn comment_payload(
    url: &str,
    state: &State,
    full_name: &str,
    number: u64,
    (comment, action, sender): (&CommentState, &str, &str),
) -> anyhow::Result<Value> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let level = access::level(repo, sender);
    Ok(json!({
        "action": action, "issue": shapes::pull_as_issue(url, state, repo, pull, sender),
        "pull_request": shapes::pull(url, state, repo, pull, sender), "comment": shapes::comment(url, state, repo, (number, true), comment),
        "repository": shapes::repo(url, state, repo, level), "sender": shapes::user(url, state, sender), "is_pull": true,
    }))
}

/// Queues the delivery of a push to a branch. Of the commits it has the last one only.
pub(in super::super) fn emit_push(
    state: &mut State,
    url: &str,
    full_name: &str,
    (branch, before, after): (&str, &str, &str),
    sender: &str,
) -> anyhow::Result<()> {
    if after == NO_COMMIT {
        return Ok(());
    }
    let repo = state.repo(full_name)?;
    let web = shapes::web(url, repo);
    let person = json!({"name": sender, "email": format!("{sender}@sandbox.invalid"), "username": ""});
    let commit = json!({
        "id": after, "message": "Change", "url": format!("{web}/commit/{after}"), "author": person, "committer": person,
        "verification": null, "timestamp": shapes::time(state, &timestamp()),
    });
    let user = shapes::user(url, state, sender);
    let payload = json!({
        "ref": format!("refs/heads/{branch}"), "before": before, "after": after,
        "compare_url": format!("{web}/compare/{before}...{after}"), "commits": [commit], "total_commits": 1, "head_commit": commit,
        "repository": shapes::repo(url, state, repo, "owner"), "pusher": user, "sender": user,
    });
    emit(state, "push", None, &payload);
    Ok(())
}

/// Queues the push that tests a webhook: the tip of `main`, once more (routers/api/v1/repo/hook.go, `TestHook`).
pub(super) fn emit_test(state: &mut State, url: &str, full_name: &str, tip: &str, sender: &str) -> anyhow::Result<()> {
    emit_push(state, url, full_name, ("main", tip, tip), sender)
}

/// Sets the text of a pull request and queues the delivery.
pub(super) fn rewrite(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    body: &str,
    sender: &str,
) -> anyhow::Result<()> {
    let pull = state.pull_mut(full_name, number)?;
    let before = std::mem::replace(&mut pull.body, body.to_owned());
    if before == body {
        return Ok(());
    }
    pull.updated_at = timestamp();
    emit_pull(state, url, full_name, number, "edited", sender, &json!({"changes": {"body": {"from": before}}}))
}

/// Sets the title of a pull request and queues the delivery. The title says whether it is a draft.
pub(super) fn rename(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    title: &str,
    sender: &str,
) -> anyhow::Result<()> {
    let pull = state.pull_mut(full_name, number)?;
    let before = shapes::title(pull);
    if before == title {
        return Ok(());
    }
    (pull.title, pull.draft) = (title.to_owned(), shapes::has_draft_prefix(title));
    pull.updated_at = timestamp();
    let extra = json!({"changes": {"title": {"from": before}}});
    emit_pull(state, url, full_name, number, "edited", sender, &extra)
}
