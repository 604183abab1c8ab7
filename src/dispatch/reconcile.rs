//! Missed deliveries: what the state knows as open is held against the host, when this server takes the lead and every few minutes.
//! Closed pull requests free their locks, an unseen push is planned, unseen comments are taken up: all through the same decisions,
//! and with the same identities, as if their deliveries had come. So one that comes late is not acted on twice.
//!
//! It is nobody's business to wait for: one request for each repository, more only where something has changed, none while the
//! host's rate limit is low.

use super::queues::Task;
use super::{Decision, Inner};
use crate::domain::reply::Message;
use crate::domain::state::{Delivery, Effect, NewEffect, Watermark};
use crate::domain::{CommentEvent, Event, PullAction, PullEvent, PullId, RepoId};
use crate::reply::marker;
use crate::store::{KnownPull, is_deposed};
use crate::vcs::{Comments, HostError, OpenPull};
use crate::webhook::github::comment_identity;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// After taking the lead: deliveries that are on their way come first.
const FIRST_ROUND: Duration = Duration::from_secs(3);
/// What was too fresh for the first round is seen in this one.
const SECOND_ROUND: Duration = Duration::from_secs(6);
/// What is younger than this may still come as a delivery.
const FRESH: SignedDuration = SignedDuration::from_secs(4);
/// Pull requests that are looked at in one round, latest activity first.
const MAX_PULLS: usize = 2_000;
/// Pull requests of one round whose statuses are compared; the next round goes on with others.
const STATUSES_PER_ROUND: usize = 20;
/// Comments this much older than the watermark are listed as well: the firsts of late duplicates.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(1);
/// What identities of deliveries begin with that this server concluded; nobody signed them.
pub(super) const MISSED: &str = "missed:";

/// Rounds, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut rotation = 0;
    for pause in [FIRST_ROUND, SECOND_ROUND].into_iter().chain(std::iter::repeat(inner.ctx.settings.reconcile_interval))
    {
        tokio::time::sleep(pause).await;
        if inner.actors.draining() {
            return;
        }
        match (Round { inner: &inner }).go(&mut rotation).await {
            Ok(()) => {}
            Err(Trouble::State(error)) if is_deposed(&error) => return,
            Err(Trouble::State(error)) => {
                tracing::warn!(error = format!("{error:#}"), "missed deliveries could not be looked for")
            }
            Err(Trouble::Host(error)) => tracing::warn!("missed deliveries could not be looked for: {error}"),
        }
    }
}

/// Why a round ends early.
enum Trouble {
    State(anyhow::Error),
    Host(HostError),
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Trouble {
        Trouble::State(error)
    }
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Trouble {
        Trouble::Host(error)
    }
}

/// What is refused for one pull request does not hide the others.
fn tolerate(pull: &PullId, result: Result<(), Trouble>) -> Result<(), Trouble> {
    match result {
        Err(Trouble::Host(error)) if !error.is_transient() => {
            tracing::warn!(%pull, "what was missed on it cannot be looked for: {error}");
            Ok(())
        }
        result => result,
    }
}

struct Round<'a> {
    inner: &'a Arc<Inner>,
}

impl Round<'_> {
    /// Whether the host still lets us ask for what nobody waits for.
    fn may_ask(&self) -> bool {
        let low = self.inner.ctx.host.budget().filter(|budget| budget.is_low());
        if let Some(budget) = low {
            tracing::info!(
                left = budget.left,
                all = budget.all,
                "the rate limit is low: missed deliveries are looked for later"
            );
        }
        low.is_none()
    }

    async fn go(&self, rotation: &mut usize) -> Result<(), Trouble> {
        let known = self.inner.ctx.store.read(|view| view.pulls_to_reconcile(MAX_PULLS)).await?;
        let mut by_repo: HashMap<RepoId, Vec<KnownPull>> = HashMap::new();
        for one in known {
            by_repo.entry(one.pull.id.repo.clone()).or_default().push(one);
        }
        let mut at_rest = Vec::new();
        for (repo, pulls) in by_repo {
            if !self.may_ask() {
                return Ok(());
            }
            if !self.inner.allowlist.allows(&repo) {
                continue;
            }
            let open = match self.inner.ctx.host.open_pulls(&repo).await {
                Ok(open) => open,
                // One repository that cannot be read does not hide the others.
                Err(error) if !error.is_transient() => {
                    tracing::warn!(%repo, "its open pull requests cannot be listed: {error}");
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let open: HashMap<u64, OpenPull> = open.into_iter().map(|one| (one.pull.id.number, one)).collect();
            for known in pulls {
                // What its actor has in hand may be the very thing.
                if self.inner.actors.busy(&known.pull.id) {
                    continue;
                }
                match open.get(&known.pull.id.number) {
                    None => self.closed(&known).await,
                    Some(now) => {
                        tolerate(&now.pull.id, self.changed(&known, now).await)?;
                        at_rest.push(now.pull.id.clone());
                    }
                }
            }
        }
        self.statuses(&at_rest, rotation).await
    }

    /// It is not open any more; the host is asked once more before anything is freed.
    async fn closed(&self, known: &KnownPull) {
        let pull = crate::domain::PullRequest { open: false, ..known.pull.clone() };
        let id = pull.id.clone();
        tracing::info!(pull = %id, "it is not open any more, and no delivery said so");
        let identity = format!("{MISSED}{id}:closed:{}", Timestamp::now().as_microsecond());
        let action = PullAction::Closed { merged: false };
        let event = PullEvent { action, pull, sender: String::new(), updated_at: String::new() };
        let decision = Decision::Queue(Task::Closed(Box::new(event.clone())));
        self.take_up(identity, Event::Pull(event), Timestamp::now(), id, decision).await;
    }

    async fn changed(&self, known: &KnownPull, now: &OpenPull) -> Result<(), Trouble> {
        let id = &now.pull.id;
        let before = known.watermark.clone();
        if before.as_ref().is_some_and(|mark| mark.updated_at == now.updated_at) {
            return Ok(());
        }
        let mut mark = before.unwrap_or_else(|| Watermark::at(Timestamp::now()));
        if !self.may_ask() {
            return Ok(());
        }
        let since = mark.comments.checked_sub(LOOK_BACK).ok();
        let comments = self.inner.ctx.host.comments(id, since).await?;
        let age = now.updated_at.parse::<Timestamp>().map_or(FRESH, |at| comments.now.duration_since(at));
        if age < FRESH {
            // The next round looks again.
            return Ok(());
        }
        if now.pull.head.commit != known.pull.head.commit {
            self.pushed(now, &mut mark).await?;
        }
        self.duplicates(id, &comments).await?;
        for comment in &comments.list {
            if comment.created < mark.comments || self.inner.actors.draining() {
                continue;
            }
            let (here, age) = (Timestamp::now(), comments.now.duration_since(comment.created));
            let asked = here.checked_sub(age).unwrap_or(here);
            let event = CommentEvent {
                pull: id.clone(),
                clone_url: now.pull.clone_url.clone(),
                comment_id: comment.id,
                author: comment.author.clone(),
                body: comment.body.clone(),
            };
            let identity = comment_identity(&id.repo, comment.id);
            let event = Event::Comment(event);
            let decision = match self.inner.decide(&event, id) {
                Decision::Queue(_) if comment.edited => Decision::Reply(edited()),
                _ if comment.edited => continue,
                decision => decision,
            };
            self.take_up(identity, event, asked, id.clone(), decision).await;
        }
        if let Some(newest) = comments.list.iter().map(|comment| comment.created).max() {
            mark.comments = mark.comments.max(newest);
        }
        mark.updated_at.clone_from(&now.updated_at);
        let id = id.clone();
        Ok(self.inner.ctx.store.write(move |tx| tx.set_watermark(&id, &mark)).await?)
    }

    /// The head has moved.
    async fn pushed(&self, now: &OpenPull, mark: &mut Watermark) -> Result<()> {
        let pull = now.pull.clone();
        let (id, head) = (pull.id.clone(), pull.head.commit.clone());
        let identity = format!("{MISSED}{id}:push:{head}");
        mark.taken = Some((head, now.updated_at.clone()));
        let (target, taken) = (id.clone(), mark.clone());
        self.inner.ctx.store.write(move |tx| tx.set_watermark(&target, &taken)).await?;
        let sender = pull.author.clone();
        let event = PullEvent { action: PullAction::Pushed, pull, sender, updated_at: now.updated_at.clone() };
        let event = Event::Pull(event);
        let decision = self.inner.decide(&event, &id);
        self.take_up(identity, event, Timestamp::now(), id, decision).await;
        Ok(())
    }

    /// As if the delivery had come, unless it has.
    async fn take_up(&self, identity: String, event: Event, received: Timestamp, pull: PullId, decision: Decision) {
        let (what, host_id) = (identity.clone(), "missed".to_owned());
        let delivery = Delivery { identity, host_id, received, event };
        if let Some(answer) = self.inner.act_on(delivery, pull.clone(), decision).await {
            tracing::info!(%pull, delivery = what, "taken up, its delivery was missed: {}", answer.text);
        }
    }

    /// Comments of ours that are there twice: a late request, or a server that slept while another one led. The lowest id stays.
    async fn duplicates(&self, pull: &PullId, comments: &Comments) -> Result<(), Trouble> {
        let host = &self.inner.ctx.host;
        let mut seen = HashSet::new();
        for comment in comments.list.iter().filter(|one| one.author.eq_ignore_ascii_case(host.bot_login())) {
            let Some(marker) = marker::parse(&comment.body) else { continue };
            let (Some(run), Some(part)) = (marker["run"].as_str(), marker["part"].as_u64()) else { continue };
            if !seen.insert((run.to_owned(), part)) {
                self.inner.ctx.store.may_act().await?;
                tracing::warn!(%pull, comment = comment.id, run, "a comment was there twice; the later one goes");
                host.delete_comment(pull, comment.id).await?;
            }
        }
        Ok(())
    }

    /// Statuses that somebody turned back are set again: a late request of a server that led before. In turns.
    async fn statuses(&self, pulls: &[PullId], rotation: &mut usize) -> Result<(), Trouble> {
        let count = pulls.len().min(STATUSES_PER_ROUND);
        let chosen = pulls.iter().cycle().skip(*rotation % pulls.len().max(1)).take(count);
        *rotation = rotation.wrapping_add(count);
        for id in chosen {
            if !self.may_ask() || self.inner.actors.busy(id) {
                continue;
            }
            tolerate(id, self.turned_back(id).await)?;
        }
        Ok(())
    }

    async fn turned_back(&self, id: &PullId) -> Result<(), Trouble> {
        let target = id.clone();
        let wanted = self.inner.ctx.store.read(move |view| {
            let Some(pull) = view.pull(&target)? else { return Ok(None) };
            let head = pull.head.commit;
            Ok(Some((view.told_statuses(&target, &head)?, head)))
        });
        let Some((told, head)) = wanted.await?.filter(|(told, _)| !told.is_empty()) else { return Ok(()) };
        let there = self.inner.ctx.host.own_statuses(&id.repo, &head).await?;
        let turned = told.into_iter().filter(|status| {
            let found = there.iter().find(|one| one.context == status.context);
            found.is_some_and(|one| one.state != status.state || one.description != status.description)
        });
        let effects: Vec<NewEffect> = turned
            .map(|status| NewEffect { pull: id.clone(), effect: Effect::Status { commit: head.clone(), status } })
            .collect();
        if effects.is_empty() || self.inner.actors.busy(id) {
            return Ok(());
        }
        tracing::warn!(pull = %id, statuses = effects.len(), "statuses differ from what was told last; they are set again");
        self.inner.ctx.store.write(move |tx| effects.iter().try_for_each(|one| tx.enqueue(one).map(drop))).await?;
        self.inner.ctx.outbox.wake(id);
        Ok(())
    }
}

/// The answer to a command in a comment that was edited: nobody can tell who wrote it, as others may edit a person's comments.
fn edited() -> Message {
    let because = "This comment was edited after it was written, and the server did not hear it before. Whoever may write to the \
        repository can edit other people's comments, so it was not run. If it is still wanted, say it in a new comment";
    Message::NotPermitted { because: because.to_owned() }
}

/// Whether a delivery comes after its push was taken up without it.
pub(super) fn comes_late(delivery: &Delivery, mark: Option<&Watermark>) -> bool {
    let (Event::Pull(event), Some((head, updated_at))) = (&delivery.event, mark.and_then(|mark| mark.taken.as_ref()))
    else {
        return false;
    };
    let of_push = !matches!(event.action, PullAction::Closed { .. }) && !delivery.identity.starts_with(MISSED);
    of_push && event.pull.head.commit == *head && event.updated_at <= *updated_at
}
