//! Deliveries (support.atlassian.com/bitbucket-cloud/docs/event-payloads). The host's own further tries after a failure are left out: a
//! delivery is sent again on request only.

use super::super::hooks::{self, Delivery, signature};
use super::super::state::State;
use super::super::{Shared, timestamp};
use super::activity::Update;
use super::{reviews, shapes};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// Largest payload in bytes; a larger one is not sent, and nobody is told
/// (support.atlassian.com/bitbucket-cloud/docs/troubleshoot-webhooks).
const MAX_PAYLOAD: usize = 256 << 10;

/// Unique id of the webhook, without braces.
pub(super) const HOOK: &str = "d53603cc-3f67-45ea-b310-aaa5ef6ec061";

/// Adds the headers of a delivery. The signature is missing if the webhook has no secret.
pub(in super::super) fn headers(
    shared: &Shared,
    request: reqwest::RequestBuilder,
    delivery: &Delivery,
) -> reqwest::RequestBuilder {
    let (has_secret, attempt) = {
        let state = shared.lock();
        let same = |other: &&Delivery| other.guid == delivery.guid && other.id <= delivery.id;
        (!state.bitbucket_cloud.hook.has_no_secret, state.deliveries.iter().filter(same).count())
    };
    let request = request
        .header("Content-Type", "application/json")
        .header("User-Agent", "Bitbucket-Webhooks/2.0")
        .header("X-Event-Key", &delivery.event)
        .header("X-Hook-UUID", HOOK)
        .header("X-Request-UUID", &delivery.guid)
        .header("X-Attempt-Number", attempt.to_string());
    match has_secret {
        true => {
            let signed = signature(shared.webhook_secret.expose_secret(), delivery.body.as_bytes());
            request.header("X-Hub-Signature", signed)
        }
        false => request,
    }
}

/// Queues a delivery if the webhook has its event.
fn emit(state: &mut State, event: &str, payload: &Value) {
    let hook = &state.bitbucket_cloud.hook;
    let is_chosen = hook.events.as_ref().is_none_or(|events| events.iter().any(|chosen| chosen == event));
    if is_chosen && !hook.is_off && payload.to_string().len() <= MAX_PAYLOAD {
        hooks::emit(state, event, None, payload);
    }
}

/// Payload of an event of a pull request.
fn payload(state: &State, url: &str, full_name: &str, number: u64, actor: &str) -> anyhow::Result<Value> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    Ok(json!({
        "pullrequest": shapes::pull(url, state, repo, pull), "repository": shapes::repo_event(url, state, repo),
        "actor": shapes::person(url, state, actor),
    }))
}

/// Queues the delivery of a change of a pull request. That of an update does not say what has changed, and there are no labels.
pub(in super::super) fn emit_pull(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: &Value,
) -> anyhow::Result<()> {
    if let Some(before) = extra["before"].as_str() {
        let pull = state.pull(full_name, number)?;
        let (branch, after, source) = (pull.head_ref.clone(), pull.head_sha.clone(), pull.head_repo.clone());
        emit_push(state, url, &source, (&branch, before, &after), sender)?;
        reviews::follow_push(state, full_name, number)?;
    }
    let pull = state.pull(full_name, number)?;
    let (id, is_merged) = (pull.id, pull.merged.is_some());
    let update = Update::of(pull, sender);
    let facts = state.bitbucket_cloud.facts_mut(id);
    let event = match action {
        "opened" => "pullrequest:created",
        "closed" => {
            (facts.closed_by, facts.is_queued) = (Some(sender.to_owned()), false);
            if is_merged { "pullrequest:fulfilled" } else { "pullrequest:rejected" }
        }
        "labeled" => return Ok(()),
        _ => "pullrequest:updated",
    };
    facts.updates.push(update);
    let payload = payload(state, url, full_name, number, sender)?;
    emit(state, event, &payload);
    Ok(())
}

/// Queues the delivery of a vote.
pub(super) fn emit_vote(state: &mut State, url: &str, full_name: &str, number: u64, event: &str) -> anyhow::Result<()> {
    let pull = state.pull(full_name, number)?;
    let Some(review) = pull.reviews.last() else { return Ok(()) };
    let user = review.user.clone();
    let vote = json!({"date": shapes::time(&review.submitted_at), "user": shapes::person(url, state, &user)});
    let mut payload = payload(state, url, full_name, number, &user)?;
    let name = if event.contains("approved") { "approval" } else { "changes_request" };
    payload[name] = vote;
    emit(state, event, &payload);
    Ok(())
}

/// Queues the delivery of the latest review.
pub(in super::super) fn emit_review(state: &mut State, url: &str, full_name: &str, number: u64) -> anyhow::Result<()> {
    let vote = state.pull(full_name, number)?.reviews.last().map_or(0, |review| review.vote);
    let event = match vote {
        1.. => "pullrequest:approved",
        0 => "pullrequest:unapproved",
        _ => "pullrequest:changes_request_created",
    };
    emit_vote(state, url, full_name, number, event)
}

/// Queues the delivery of a comment that is `created`, `edited` or `deleted`.
pub(in super::super) fn emit_comment(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    id: u64,
    action: &str,
    sender: &str,
) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let deleted = state.bitbucket_cloud.pulls.get(&pull.id).map_or(&[][..], |facts| &facts.deleted);
    let comment = pull.comments.iter().chain(deleted).find(|comment| comment.id == id);
    let comment = comment.ok_or_else(|| anyhow::anyhow!("#{number} has no comment {id}"))?;
    let shaped = shapes::comment(url, state, repo, pull, comment);
    let mut payload = payload(state, url, full_name, number, sender)?;
    payload["comment"] = shaped;
    let event = match action {
        "created" => "pullrequest:comment_created",
        "deleted" => "pullrequest:comment_deleted",
        _ => "pullrequest:comment_updated",
    };
    emit(state, event, &payload);
    Ok(())
}

/// Queues the delivery of a push to a branch (go-scm, push.json). Commits are whole here.
pub(in super::super) fn emit_push(
    state: &mut State,
    url: &str,
    full_name: &str,
    (branch, before, after): (&str, &str, &str),
    sender: &str,
) -> anyhow::Result<()> {
    let repo = state.repo(full_name)?;
    let address = shapes::api(url, full_name);
    let person = shapes::person(url, state, sender);
    let commit = |hash: &str| {
        let mut body = shapes::commit_links(url, full_name, hash);
        body["author"] =
            json!({"type": "author", "raw": format!("{sender} <{sender}@sandbox.invalid>"), "user": person});
        body["summary"] = shapes::rendered("Change\n");
        body["message"] = "Change\n".into();
        body["parents"] = json!([]);
        body["date"] = shapes::time(&timestamp()).into();
        body
    };
    let side = |hash: &str| {
        json!({
            "type": "branch", "name": branch, "target": commit(hash), "links": {
                "commits": {"href": format!("{address}/commits/{branch}")},
                "self": {"href": format!("{address}/refs/branches/{branch}")},
                "html": {"href": format!("{url}/{full_name}/branch/{branch}")}},
        })
    };
    let change = json!({
        "forced": false, "created": false, "closed": false, "truncated": false, "old": side(before), "new": side(after),
        "commits": [commit(after)], "links": {
            "commits": {"href": format!("{address}/commits?include={after}&exclude={before}")},
            "html": {"href": format!("{url}/{full_name}/branches/compare/{after}..{before}")},
            "diff": {"href": format!("{address}/diff/{after}..{before}")}},
    });
    let payload = json!({
        "push": {"changes": [change]}, "repository": shapes::repo_event(url, state, repo), "actor": person,
    });
    emit(state, "repo:push", &payload);
    Ok(())
}
