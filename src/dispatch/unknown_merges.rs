//! Merges with unknown changes, because git failed or the merged configuration could not be read. They are part of the state, and every
//! leader tries to determine the changes until they are known.

use super::immediate_commands::merged_as;
use super::inner::Inner;
use super::recorder;
use crate::domain::command::{Command, CommandName};
use crate::domain::reply::Message;
use crate::domain::{PullId, PullRequest, PullState};
use crate::execute::merged_changes;
use crate::execute::notices::NoticeWriter;
use crate::locks::{LockEvent, MergedInto};
use crate::store::is_deposed;
use anyhow::Result;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Delays between attempts for one merge.
const LOOKS: ExponentialBuilder =
    tidelock_retry::jittered(Duration::from_secs(1), Duration::from_secs(600)).without_max_times();
/// Longest time between two checks for due attempts.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Time of the next attempt for a merge.
struct NextLook {
    at: Instant,
    waits: ExponentialBackoff,
}

impl NextLook {
    fn new() -> NextLook {
        let mut next = NextLook { at: Instant::now(), waits: LOOKS.build() };
        next.put_off();
        next
    }

    fn put_off(&mut self) {
        self.at = Instant::now() + self.waits.next().unwrap_or(LOOK_AGAIN);
    }
}

/// Tries to determine the changes of such merges, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut changes = inner.ctx.store.replans_recorded();
    let mut looks = HashMap::new();
    loop {
        changes.borrow_and_update();
        let wait = match try_due(&inner.now(), &mut looks).await {
            Ok(wait) => wait,
            Err(error) if is_deposed(&error) => return,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "merges that are not known could not be read");
                LOOK_AGAIN
            }
        };
        if inner.actors.draining() {
            return;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Makes the attempts that are due. Returns the time until the next one is.
async fn try_due(inner: &Arc<Inner>, looks: &mut HashMap<PullId, NextLook>) -> Result<Duration> {
    let unknown = inner.ctx.store.read(|view| view.unknown_merges()).await?;
    let pulls: Vec<PullId> = unknown.into_iter().map(|owner| owner.holder.pull).collect();
    looks.retain(|pull, _| pulls.contains(pull));
    for pull in pulls {
        let next = looks.entry(pull.clone()).or_insert_with(NextLook::new);
        if next.at > Instant::now() || inner.actors.draining() {
            continue;
        }
        next.put_off();
        match look_again(inner, &pull).await {
            Ok(None) => drop(looks.remove(&pull)),
            Ok(Some(because)) => tracing::info!(%pull, "what it has merged is not known yet: {because}"),
            Err(error) if is_deposed(&error) => return Err(error),
            Err(error) => tracing::warn!(%pull, "what it has merged is not known yet: {error:#}"),
        }
    }
    let next = looks.values().map(|next| next.at.saturating_duration_since(Instant::now())).min();
    Ok(next.unwrap_or(LOOK_AGAIN))
}

/// Makes an attempt now if the command is a `plan` or `apply` on such a merged pull request. Returns the answer if its changes are still
/// unknown.
pub(super) async fn asked(inner: &Arc<Inner>, pull: &PullRequest, command: &Command) -> Result<Option<Message>> {
    let is_merged = matches!(pull.state, PullState::Merged { .. });
    if !is_merged || !matches!(command.name, CommandName::Plan | CommandName::Apply) {
        return Ok(None);
    }
    let id = pull.id.clone();
    let owners = inner.ctx.store.read(move |view| view.owners_of(&id)).await?;
    if !owners.iter().any(|owner| owner.is_unknown()) {
        return Ok(None);
    }
    let because = look_again(inner, &pull.id).await?;
    Ok(because.map(|because| Message::MergeUnknown { because, again: true }))
}

/// Makes one attempt. Returns the reason if the changes are still unknown; otherwise records what follows, and notifies the pull request.
async fn look_again(inner: &Arc<Inner>, id: &PullId) -> Result<Option<String>> {
    let pull = match inner.ctx.hosts.for_repo(&id.repo)?.pull_request(id).await {
        Ok(pull) => pull,
        Err(error) => {
            let error = inner.ctx.redactor.redact(&error.to_string());
            return Ok(Some(format!("The pull request could not be read from the host: {error}")));
        }
    };
    let PullState::Merged { commit } = &pull.state else {
        return Ok(Some("The host says that the pull request is not merged.".to_owned()));
    };
    let facts = merged_changes::of_unknown(&inner.ctx, &pull).await;
    if let MergedInto::Unknown { because } = facts.into {
        return Ok(Some(because));
    }
    let mut merged = merged_as(&pull, commit.clone());
    merged.into = facts.into;
    let (notices, id) = (NoticeWriter::new(&inner.ctx), id.clone());
    let writer = notices.clone();
    let known = recorder::transaction(inner, move |tx| {
        if let Some(changed) = &facts.changed {
            tx.put_changed_projects(changed)?;
        }
        writer.record(tx, &LockEvent::MergeKnown { pull: id.clone(), merged })?;
        tx.forget_changed_projects(&id)
    });
    known.await?;
    notices.after_commit(&inner.ctx).await;
    Ok(None)
}
