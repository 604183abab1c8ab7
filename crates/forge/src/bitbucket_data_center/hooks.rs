//! Deliveries (confluence.atlassian.com/bitbucketserver/event-payload), and the circuit breaker of the webhook.

use super::super::hooks::{self, Delivery, signature};
use super::super::state::{PullState, State};
use super::super::{Shared, timestamp};
use super::activities::Happened;
use super::pulls::Told;
use super::shapes;
use anyhow::Context;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// Failures in a row after which deliveries are skipped, and the first and the longest time of that, in seconds; each further failure
/// doubles it (confluence.atlassian.com/bitbucketserver/manage-webhooks).
const MOST_FAILURES: u32 = 5;
const FIRST_PAUSE: i64 = 10;
const LONGEST_PAUSE: i64 = 10 * 60 * 60;

/// Event of a test of the connection. It comes without a signature (github.com/runatlantis/atlantis/issues/474).
pub(super) const PING: &str = "diagnostics:ping";

/// The webhook: what the API shows of it, and what became of its deliveries.
#[derive(Default)]
pub(super) struct HookState {
    /// Events that were chosen; absent for all.
    pub(super) events: Option<Vec<String>>,
    pub(super) name: String,
    pub(super) has_no_secret: bool,
    /// True for a webhook that is not active.
    pub(super) is_off: bool,
    /// True if no failure switches it off.
    pub(super) never_skips: bool,
    failures: u32,
    skipped_until: Option<jiff::Timestamp>,
    /// Latest delivery of each outcome.
    pub(super) last: Outcomes,
}

/// The latest delivery of each outcome, and their numbers.
#[derive(Default)]
pub(super) struct Outcomes {
    pub(super) success: Option<Invocation>,
    pub(super) failure: Option<Invocation>,
    pub(super) error: Option<Invocation>,
    pub(super) counts: [u64; 3],
}

/// A delivery, for statistics.
#[derive(Clone)]
pub(super) struct Invocation {
    pub(super) id: u64,
    pub(super) event: String,
    pub(super) at: String,
    pub(super) status: Option<u16>,
}

impl HookState {
    /// Forgets what a former webhook was like. Secret and breaker are settings of the test.
    pub(super) fn renew(&mut self) {
        let (has_no_secret, never_skips) = (self.has_no_secret, self.never_skips);
        *self = HookState { has_no_secret, never_skips, ..HookState::default() };
    }
}

/// Time of the host, which tests may move.
fn now(state: &State) -> jiff::Timestamp {
    jiff::Timestamp::now() + state.clock_ahead
}

/// Drops a delivery while the webhook is skipped because it has failed too often. It never comes again.
pub(in super::super) fn skips(state: &mut State, delivery: u64) -> bool {
    let is_skipped = state.bitbucket_data_center.hook.skipped_until.is_some_and(|until| until > now(state));
    if is_skipped {
        state.deliveries.retain(|record| record.id != delivery);
    }
    is_skipped
}

/// Counts the result of a delivery.
pub(in super::super) fn note_result(state: &mut State, delivery: &Delivery, status: Option<u16>) {
    let time = now(state);
    let hook = &mut state.bitbucket_data_center.hook;
    let invocation =
        Invocation { id: delivery.id, event: delivery.event.clone(), at: delivery.created_at.clone(), status };
    let (last, count) = match status {
        Some(200..=399) => (&mut hook.last.success, &mut hook.last.counts[0]),
        Some(_) => (&mut hook.last.failure, &mut hook.last.counts[1]),
        None => (&mut hook.last.error, &mut hook.last.counts[2]),
    };
    *last = Some(invocation);
    *count += 1;
    if status.is_some_and(|status| status < 400) {
        (hook.failures, hook.skipped_until) = (0, None);
        return;
    }
    hook.failures += 1;
    if let Some(doublings) = hook.failures.checked_sub(MOST_FAILURES).filter(|_| !hook.never_skips) {
        let pause = FIRST_PAUSE.saturating_mul(1_i64.checked_shl(doublings).unwrap_or(i64::MAX)).min(LONGEST_PAUSE);
        hook.skipped_until = Some(time + jiff::SignedDuration::from_secs(pause));
    }
}

/// Adds the headers of a delivery. The signature is missing if the webhook has no secret, and from a ping.
pub(in super::super) fn headers(
    shared: &Shared,
    request: reqwest::RequestBuilder,
    delivery: &Delivery,
) -> reqwest::RequestBuilder {
    let has_secret = !shared.lock().bitbucket_data_center.hook.has_no_secret;
    let request = request
        .header("Content-Type", "application/json; charset=utf-8")
        .header("User-Agent", "Atlassian HttpClient 4.2.0 / Bitbucket-9.4.3 (9004003) / Default")
        .header("X-Event-Key", &delivery.event)
        .header("X-Request-Id", &delivery.guid);
    if !has_secret || delivery.event == PING {
        return request;
    }
    request.header("X-Hub-Signature", signature(shared.webhook_secret.expose_secret(), delivery.body.as_bytes()))
}

/// Queues a delivery if the webhook has its event.
fn send(state: &mut State, event: &str, payload: &Value) {
    let hook = &state.bitbucket_data_center.hook;
    let is_chosen = hook.events.as_ref().is_none_or(|events| events.iter().any(|chosen| chosen == event));
    if is_chosen && !hook.is_off {
        hooks::emit(state, event, None, payload);
    }
}

/// Queues a ping (its body: runatlantis/atlantis and zulip/zulip, `diagnostics_ping.json`).
pub(super) fn ping(state: &mut State) {
    hooks::emit(state, PING, None, &json!({"test": true}));
}

/// Payload of an event, without its subject.
fn payload(state: &State, url: &str, event: &str, actor: &str) -> Value {
    // go-scm, pr_open.json: a time without fractions.
    let date = now(state).strftime("%Y-%m-%dT%H:%M:%S+0000").to_string();
    json!({"eventKey": event, "date": date, "actor": shapes::person(url, state, actor)})
}

/// Queues the delivery of an event of a pull request, with more fields.
pub(super) fn emit(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    (event, actor): (&str, &str),
    more: Value,
) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let mut body = payload(state, url, event, actor);
    body["pullRequest"] = shapes::pull(url, state, repo, pull);
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    send(state, event, &body);
    Ok(())
}

/// Queues the delivery of a change of a pull request. A reopened one has none, and labels do not exist. The version grows with changes of
/// fields by one and with a merge or a decline by two (go-scm, pr_merged.json and pr_declined.json), and stays with pushes to the head
/// (go-scm, pr_from_ref_updated.json).
pub(in super::super) fn emit_pull(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    action: &str,
    sender: &str,
    extra: &Value,
) -> anyhow::Result<()> {
    let before = extra["before"].as_str();
    if let Some(before) = before {
        let pull = state.pull(full_name, number)?;
        let (branch, after, source) = (pull.head_ref.clone(), pull.head_sha.clone(), pull.head_repo.clone());
        // The webhooks of the source repository are not those of its forks.
        if source.eq_ignore_ascii_case(full_name) {
            emit_push(state, url, &source, (&branch, before, &after), sender)?;
        }
        super::settings::follow_push(state, full_name, number)?;
    }
    let id = state.new_id();
    let pull = state.pull(full_name, number)?;
    let (pull_id, is_merged, told) = (pull.id, pull.merged.is_some(), Told::of(pull));
    let facts = state.bitbucket_data_center.facts_mut(pull_id);
    let former = facts.told.replace(told.clone()).unwrap_or(told);
    let (event, happened, grows) = match (action, is_merged) {
        ("opened", _) => ("pr:opened", "OPENED", 0),
        ("synchronize", _) => ("pr:from_ref_updated", "", 0),
        ("closed", true) => ("pr:merged", "MERGED", 2),
        ("closed", false) => ("pr:declined", "DECLINED", 2),
        ("reopened", _) => ("", "REOPENED", 1),
        ("labeled", _) => return Ok(()),
        _ => ("pr:modified", "UPDATED", 1),
    };
    facts.version += grows;
    if !happened.is_empty() {
        facts.happened.push(Happened::now(id, happened, sender));
    }
    let more = match (event, before) {
        ("pr:modified", _) => former.shaped(url, state, state.repo(full_name)?),
        (_, Some(before)) => json!({"previousFromHash": before}),
        _ => Value::Null,
    };
    match event {
        "" => Ok(()),
        _ => emit(state, url, full_name, number, (event, sender), more),
    }
}

/// Queues the delivery of a comment that is `created`, `edited`, `changed` in something but its text, or `deleted`.
pub(in super::super) fn emit_comment(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    id: u64,
    action: &str,
    sender: &str,
) -> anyhow::Result<()> {
    let pull = state.pull(full_name, number)?;
    let comment = pull.comments.iter().find(|comment| comment.id == id);
    let text = comment.with_context(|| format!("#{number} has no comment {id}"))?.body.clone();
    let facts = state.bitbucket_data_center.comments.entry(id).or_default();
    let former = std::mem::replace(&mut facts.former_text, text);
    facts.version += i64::from(action == "edited");
    let parent = facts.parent;
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let comment = pull.comments.iter().find(|comment| comment.id == id);
    let mut more = json!({"comment": comment.map(|comment| shapes::comment(url, state, repo, pull, comment, None))});
    if let Some(parent) = parent {
        more["commentParentId"] = parent.into();
    }
    let event = match action {
        "created" => "pr:comment:added",
        "deleted" => "pr:comment:deleted",
        _ => {
            more["previousComment"] = former.into();
            "pr:comment:edited"
        }
    };
    emit(state, url, full_name, number, (event, sender), more)
}

/// Queues the delivery of a push to a branch (go-scm, push.json). It raises the version of open pull requests into the branch (bb,
/// pr_transition_stale_version_live_test.go).
pub(in super::super) fn emit_push(
    state: &mut State,
    url: &str,
    full_name: &str,
    (branch, before, after): (&str, &str, &str),
    sender: &str,
) -> anyhow::Result<()> {
    let into: Vec<u64> = {
        let into_it = |pull: &&PullState| pull.open && pull.base_ref == branch;
        state.repo(full_name)?.pulls.iter().filter(into_it).map(|pull| pull.id).collect()
    };
    for pull in into {
        state.bitbucket_data_center.facts_mut(pull).version += 1;
    }
    let repo = state.repo(full_name)?;
    let id = format!("refs/heads/{branch}");
    let mut body = payload(state, url, "repo:refs_changed", sender);
    body["repository"] = shapes::repo(url, state, repo);
    body["changes"] = json!([{
        "ref": {"id": id, "displayId": branch, "type": "BRANCH"}, "refId": id, "fromHash": before, "toHash": after, "type": "UPDATE",
    }]);
    let person = json!({"name": sender, "emailAddress": format!("{sender}@sandbox.invalid")});
    let at = shapes::millis(&timestamp());
    let commit = json!({
        "id": after, "displayId": shapes::short(after), "author": person, "authorTimestamp": at, "committer": person,
        "committerTimestamp": at, "message": "Change", "parents": [{"id": before, "displayId": shapes::short(before)}],
    });
    body["commits"] = json!([commit]);
    body["toCommit"] = commit;
    send(state, "repo:refs_changed", &body);
    Ok(())
}
