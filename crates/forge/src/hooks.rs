//! Webhooks: signed like GitHub's, Gitea's and Bitbucket's, with basic auth like Azure DevOps' or with a secret like GitLab's, sent in order by one
//! task, recorded, and sent again only on request.

use super::state::State;
use super::{
    HostKind, Shared, azure_devops, bitbucket_cloud, bitbucket_data_center, gitea, gitlab, random_hex, shapes,
    timestamp,
};
use anyhow::Context;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;

/// User of the deliveries' basic auth; the webhook's secret is its password.
pub(super) const BASIC_USER: &str = "hooks";

/// Time limit of the receiver, as on GitHub.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of deliveries that are kept. Beyond it the oldest one is dropped if it is finished.
const MAX_DELIVERIES: usize = 10_000;

/// Longest wait for something to send before the queue is checked again.
const ROUND: Duration = Duration::from_secs(3600);

/// Most bytes of the receiver's answer that are kept.
const MAX_ANSWER: usize = 64 << 10;

/// One delivery of an event, and its result.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Number of this record, for [`super::Forge::redeliver`].
    pub id: u64,
    /// `X-GitHub-Delivery`, `X-VSS-ActivityId`, `Idempotency-Key`, `X-Request-UUID` or `X-Request-Id`; a redelivery has the same. Or
    /// `X-Gitea-Delivery`, which is new.
    pub guid: String,
    /// `X-GitHub-Event`, such as `pull_request`, `X-Gitlab-Event`, `X-Gitea-Event-Type` or `X-Event-Key`; on Azure DevOps the `eventType` of
    /// the body.
    pub event: String,
    /// The payload's action, if it has one.
    pub action: Option<String>,
    /// The exact body.
    pub body: String,
    /// True once it was sent, also without an answer.
    pub done: bool,
    /// Status of the answer; `None` when there was none.
    pub status: Option<u16>,
    /// Text of the answer, or the error.
    pub answer: String,
    /// Time of the event, RFC 3339.
    pub created_at: String,
}

impl Delivery {
    /// Returns true if it was sent and answered with 2xx.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Queues an event for the webhook, if there is one.
pub(super) fn emit(state: &mut State, event: &str, action: Option<&str>, payload: &Value) {
    if state.webhook.is_none() {
        return;
    }
    let id = state.new_id();
    push(
        state,
        Delivery {
            id,
            guid: new_guid(id),
            event: event.to_owned(),
            action: action.map(str::to_owned),
            // Gitea indents (`JSONPayload` of modules/structs/hook.go).
            body: if state.kind == HostKind::Gitea { format!("{payload:#}") } else { payload.to_string() },
            done: false,
            status: None,
            answer: String::new(),
            created_at: timestamp(),
        },
    );
}

fn new_guid(id: u64) -> String {
    let mut random = random_hex().unwrap_or_else(|_| format!("{id:032x}"));
    for at in [8, 13, 18, 23] {
        random.insert(at, '-');
    }
    random
}

/// Queues the event of a change of the pull request.
pub(super) fn emit_pull(
    state: &mut State,
    url: &str,
    repo: &str,
    number: u64,
    action: &str,
    sender: &str,
) -> anyhow::Result<()> {
    emit_pull_with(state, url, repo, number, action, sender, json!({}))
}

/// Queues the same event with more fields, in GitHub's form.
pub(super) fn emit_pull_with(
    state: &mut State,
    url: &str,
    repo: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: Value,
) -> anyhow::Result<()> {
    match state.kind {
        HostKind::Github => {}
        HostKind::AzureDevOps => return azure_devops::emit_pull(state, url, repo, number, action),
        HostKind::Gitlab => return gitlab::emit_pull(state, url, repo, number, action, sender, &extra),
        HostKind::Gitea => return gitea::emit_pull(state, url, repo, number, action, sender, &extra),
        HostKind::BitbucketCloud => {
            return bitbucket_cloud::emit_pull(state, url, repo, number, action, sender, &extra);
        }
        HostKind::BitbucketDataCenter => {
            return bitbucket_data_center::emit_pull(state, url, repo, number, action, sender, &extra);
        }
    }
    let payload = shapes::pull_event(url, state, repo, number, action, sender, extra)?;
    emit(state, "pull_request", Some(action), &payload);
    Ok(())
}

/// Queues the event of a branch that has moved from one commit to another.
pub(super) fn emit_push(
    state: &mut State,
    url: &str,
    repo: &str,
    (branch, before, after): (&str, &str, &str),
    sender: &str,
) -> anyhow::Result<()> {
    match state.kind {
        HostKind::Github => {}
        HostKind::AzureDevOps => return azure_devops::emit_push(state, url, repo, (branch, before, after)),
        HostKind::Gitlab => return gitlab::emit_push(state, url, repo, (branch, before, after), sender),
        HostKind::Gitea => return gitea::emit_push(state, url, repo, (branch, before, after), sender),
        HostKind::BitbucketCloud => {
            return bitbucket_cloud::emit_push(state, url, repo, (branch, before, after), sender);
        }
        HostKind::BitbucketDataCenter => {
            return bitbucket_data_center::emit_push(state, url, repo, (branch, before, after), sender);
        }
    }
    let payload = json!({
        "ref": format!("refs/heads/{branch}"), "before": before, "after": after, "created": false, "deleted": false,
        "forced": false, "repository": shapes::repo(url, state, state.repo(repo)?), "sender": {"login": sender},
        "pusher": {"name": sender}, "commits": [],
    });
    emit(state, "push", None, &payload);
    Ok(())
}

/// Queues the event of a new comment, or of an edit.
pub(super) fn emit_comment(
    state: &mut State,
    url: &str,
    repo: &str,
    number: u64,
    id: u64,
    action: &str,
    sender: &str,
) -> anyhow::Result<()> {
    match state.kind {
        HostKind::Github => {}
        HostKind::AzureDevOps => return azure_devops::emit_comment(state, url, repo, number, id),
        HostKind::Gitlab => return gitlab::emit_comment(state, url, repo, (number, id), action, sender),
        HostKind::Gitea => return gitea::emit_comment(state, url, repo, (number, id), (action, sender), None),
        HostKind::BitbucketCloud => {
            return bitbucket_cloud::emit_comment(state, url, repo, number, id, action, sender);
        }
        HostKind::BitbucketDataCenter => {
            return bitbucket_data_center::emit_comment(state, url, repo, number, id, action, sender);
        }
    }
    let payload = shapes::comment_event(url, state, repo, number, id, action, sender)?;
    emit(state, "issue_comment", Some(action), &payload);
    Ok(())
}

/// Queues the event of the latest review.
pub(super) fn emit_review(state: &mut State, url: &str, repo: &str, number: u64) -> anyhow::Result<()> {
    match state.kind {
        HostKind::Github => {}
        HostKind::AzureDevOps => return azure_devops::emit_pull(state, url, repo, number, "voted"),
        HostKind::Gitlab => return gitlab::emit_review(state, url, repo, number),
        HostKind::Gitea => return gitea::emit_review(state, url, repo, number),
        HostKind::BitbucketCloud => return bitbucket_cloud::emit_review(state, url, repo, number),
        // Its votes come with their former status.
        HostKind::BitbucketDataCenter => return Ok(()),
    }
    let payload = shapes::review_event(url, state, repo, number)?;
    emit(state, "pull_request_review", Some("submitted"), &payload);
    Ok(())
}

/// Queues a delivery again under the same GUID, on Gitea under a new one. Returns the number of the new record.
pub(super) fn redeliver(state: &mut State, id: u64) -> anyhow::Result<u64> {
    let old = state.deliveries.iter().find(|delivery| delivery.id == id);
    let old = old.with_context(|| format!("there is no delivery {id}"))?.clone();
    let id = state.new_id();
    let guid = if state.kind == HostKind::Gitea { new_guid(id) } else { old.guid.clone() };
    push(state, Delivery { id, guid, done: false, status: None, answer: String::new(), ..old });
    Ok(id)
}

fn push(state: &mut State, delivery: Delivery) {
    if state.deliveries.len() >= MAX_DELIVERIES && state.deliveries.front().is_some_and(|oldest| oldest.done) {
        state.deliveries.pop_front();
    }
    state.deliveries.push_back(delivery);
}

/// Signature of a body, `sha256=…`.
pub(super) fn signature(secret: &str, body: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return String::new(); // HMAC takes keys of any length
    };
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// Sends queued deliveries, one after the other, until the forge stops.
pub(super) async fn deliver_all(shared: Arc<Shared>) {
    let next = |state: &State| {
        let waiting = state.deliveries.iter().find(|delivery| !delivery.done && !state.webhooks_paused);
        waiting.cloned().zip(state.webhook.clone())
    };
    let work = async {
        loop {
            let Ok((delivery, url)) = shared.wait_for(ROUND, next).await else { continue };
            if shared.kind == HostKind::Gitlab && shared.change(|state| gitlab::drops(state, delivery.id)) {
                continue;
            }
            if shared.kind == HostKind::BitbucketDataCenter
                && shared.change(|state| bitbucket_data_center::skips(state, delivery.id))
            {
                continue;
            }
            let (status, answer) = match send(&shared, &delivery, &url).await {
                Ok((status, answer)) => (Some(status), answer),
                Err(error) => (None, format!("{error:#}")),
            };
            shared.change(|state| {
                if let Some(record) = state.deliveries.iter_mut().find(|record| record.id == delivery.id) {
                    (record.done, record.status, record.answer) = (true, status, answer);
                }
                if state.kind == HostKind::Gitlab {
                    gitlab::note_result(state, status);
                }
                if state.kind == HostKind::BitbucketDataCenter {
                    bitbucket_data_center::note_result(state, &delivery, status);
                }
            });
        }
    };
    tokio::select! { () = work => {}, () = shared.stop.cancelled() => {} }
}

async fn send(shared: &Shared, delivery: &Delivery, url: &str) -> anyhow::Result<(u16, String)> {
    let body = delivery.body.clone().into_bytes();
    let (request, secret) = (shared.client.post(url).timeout(DELIVERY_TIMEOUT), shared.webhook_secret.expose_secret());
    let request = match shared.kind {
        HostKind::Github => request
            .header("Content-Type", "application/json")
            .header("User-Agent", "GitHub-Hookshot/sandbox")
            .header("X-GitHub-Delivery", &delivery.guid)
            .header("X-GitHub-Event", &delivery.event)
            .header("X-GitHub-Hook-ID", "1")
            .header("X-Hub-Signature-256", signature(secret, &body)),
        HostKind::AzureDevOps => request
            .header("Content-Type", "application/json; charset=utf-8")
            .header("User-Agent", "VSServices/sandbox")
            .header("X-VSS-ActivityId", &delivery.guid)
            .basic_auth(BASIC_USER, Some(secret)),
        HostKind::Gitlab => gitlab::headers(shared, request, delivery),
        HostKind::Gitea => gitea::send(shared, request, delivery),
        HostKind::BitbucketCloud => bitbucket_cloud::headers(shared, request, delivery),
        HostKind::BitbucketDataCenter => bitbucket_data_center::headers(shared, request, delivery),
    };
    // A form has another body than the delivery.
    let request = if shared.kind == HostKind::Gitea { request } else { request.body(body) };
    let mut response = request.send().await?;
    let status = response.status().as_u16();
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        answer.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - answer.len())]);
        if answer.len() == MAX_ANSWER {
            break;
        }
    }
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}
