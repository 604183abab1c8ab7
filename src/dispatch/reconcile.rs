//! Missed deliveries: compares the open pull requests of the state with the host, when this server takes the lead and every few minutes.
//! Closed pull requests free their locks, missed pushes and pull requests are planned, and missed comments are handled. All go through the
//! same decisions as deliveries. Comments have the identities of their deliveries, and a watermark records the push that was taken up: so a
//! delivery that comes late is not acted on twice.
//!
//! Each host has rounds of its own, so that one that does not answer does not delay the others.
//!
//! Nobody waits for a round: it makes one conditional request for each repository, and none while the host's rate limit is low. The next
//! round continues where one ended early. The watermark of a pull request is recorded once all found on it is, many in one commit.

mod auto_applies;
mod first_rounds;
mod late;
mod merges;
mod missed_pulls;
pub(super) mod poll;
mod repos;
mod statuses;

pub(super) use first_rounds::FirstRounds;
pub(super) use late::comes_late;

use super::decide::Decision;
use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::queues::Task;
use super::renames::Standing;
use super::{plan_invalidation, recorder};
use crate::domain::state::{Delivery, Watermark};
use crate::domain::{
    CommentEvent, DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullState, PullVersion, RepoId, Sighting,
};
use crate::render::marker;
use crate::reply::duplicates::{self, HostOrStateError};
use crate::store::{KnownPull, Tx, is_deposed};
use crate::vcs::{Comments, Host, HostError, OpenPull, is_since};
use anyhow::{Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use late::is_as_looked_at;
use repos::in_turns;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A push or comment that is younger than this may still come as a delivery.
const FRESH: SignedDuration = SignedDuration::from_secs(4);
/// Comments this much older than the watermark are listed as well, to find the originals of late duplicates.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(1);
/// Prefix of the identities of deliveries that this server concluded; nobody signed them.
pub(super) const MISSED: &str = "missed:";
/// Comments on an unknown pull request are handled if they are no older than this: identities of deliveries are kept longer.
const COMMENTS_KNOWN: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Pull requests whose watermarks are recorded in one commit.
const MARKS_AT_ONCE: usize = 100;
/// Consecutive repositories that cannot be read for now, after which a round ends.
const FAILURES: usize = 3;

/// Position at which the next round continues.
#[derive(Default)]
struct Turn {
    /// The last repository in a round that ended early.
    after: Option<RepoId>,
    /// Number of pull requests whose statuses were compared.
    statuses: usize,
}

/// Runs the rounds of one host, for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>, host: Arc<dyn Host>) {
    let mut turn = Turn::default();
    for (round, pause) in first_rounds::pauses(inner.ctx.settings.reconcile_interval).enumerate() {
        tokio::time::sleep(pause).await;
        if inner.actors.draining() {
            return;
        }
        match (Round { inner: &inner.now(), host: &*host }).go(&mut turn).await {
            Ok(()) => {}
            Err(HostOrStateError::State(error)) if is_deposed(&error) => return,
            Err(HostOrStateError::State(error)) => {
                tracing::warn!(
                    host = host.hostname(),
                    error = format!("{error:#}"),
                    "missed deliveries could not be looked for"
                )
            }
            Err(HostOrStateError::Host(error)) => {
                tracing::warn!(host = host.hostname(), "missed deliveries could not be looked for: {error}")
            }
        }
        inner.first_rounds.ended(round);
    }
}

/// Logs and drops a permanent error of one pull request, so that the others are checked.
fn tolerate(pull: &PullId, result: Result<(), HostOrStateError>) -> Result<(), HostOrStateError> {
    match result {
        Err(HostOrStateError::Host(error)) if !error.is_transient() => {
            tracing::warn!(%pull, "what was missed on it cannot be looked for: {error}");
            Ok(())
        }
        result => result,
    }
}

/// Progress on a pull request in this round.
struct Mark {
    pull: PullId,
    /// The watermark that is recorded.
    before: Option<Watermark>,
    /// The one to record.
    after: Watermark,
}

struct Round<'a> {
    inner: &'a Arc<Inner>,
    host: &'a dyn Host,
}

impl Round<'_> {
    /// Returns true unless the host's rate limit is low: nobody waits for these requests.
    fn may_ask(&self) -> bool {
        let low = self.host.budget().filter(|budget| budget.is_low());
        if let Some(budget) = low {
            tracing::info!(
                host = self.host.hostname(),
                left = budget.left,
                all = budget.all,
                "the rate limit is low: missed deliveries are looked for later"
            );
        }
        low.is_none()
    }

    async fn go(&self, turn: &mut Turn) -> Result<(), HostOrStateError> {
        let mut at_rest = Vec::new();
        let mut failures = 0;
        if !self.may_ask() {
            return Ok(());
        }
        if let Err(error) = self.host.learn_account().await {
            tracing::warn!(host = self.host.hostname(), "the server's own account is not known: {error}");
        }
        if self.inner.ctx.settings.poll.is_none() {
            self.redeliver().await;
        }
        for repo in in_turns(self.repos().await?, turn.after.as_ref()) {
            if self.inner.actors.draining() || !self.may_ask() {
                return Ok(());
            }
            let looked = self.repository(&repo, &mut at_rest).await;
            turn.after = Some(repo.clone());
            match looked {
                Ok(()) => failures = 0,
                // The other repositories are checked all the same.
                Err(HostOrStateError::Host(error)) if !error.is_transient() => {
                    self.unreadable(&repo, &error).await?;
                    self.inner.look_for(self.host, &repo).await?;
                }
                Err(HostOrStateError::Host(error @ HostError::Unavailable { .. })) if failures + 1 < FAILURES => {
                    failures += 1;
                    tracing::warn!(%repo, "what was missed there is looked for later: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        turn.after = None;
        self.merges(&at_rest).await?;
        self.auto_applies(&at_rest).await?;
        self.statuses(&at_rest, &mut turn.statuses).await
    }

    /// Asks the host to repeat the deliveries that nobody took, if it keeps a list of them.
    async fn redeliver(&self) {
        match self.host.redeliver_missed().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(host = self.host.hostname(), count, "asked for deliveries that nobody took"),
            Err(error) => {
                tracing::warn!(host = self.host.hostname(), "missed deliveries could not be asked for: {error}")
            }
        }
    }

    /// Checks the known and the open pull requests of one repository.
    async fn repository(&self, repo: &RepoId, at_rest: &mut Vec<PullId>) -> Result<(), HostOrStateError> {
        plan_invalidation::look_at_all(self.inner, repo).await?;
        if self.inner.ctx.settings.poll.is_some() {
            // The looks of `poll` compare it.
            let of = repo.clone();
            let known = self.inner.ctx.store.read(move |view| view.open_pulls_of(&of)).await?;
            at_rest.extend(known.into_iter().map(|one| one.pull.id).filter(|id| !self.inner.actors.busy(id)));
            return Ok(());
        }
        let open = self.host.open_pulls(repo).await?;
        if let Some(key) = self.host.told_key(repo)
            && self.inner.settle(&Sighting { repo: repo.clone(), key }).await? != Standing::Settled
        {
            return Ok(());
        }
        let of = repo.clone();
        let found = self.inner.ctx.store.read(move |view| Ok((view.open_pulls_of(&of)?, view.served_since(&of)?)));
        let (known, served) = found.await?;
        let mut open: HashMap<u64, OpenPull> = open.into_iter().map(|one| (one.pull.id.number, one)).collect();
        let mut marks = Vec::new();
        let compared = self.compare(known, &mut open, at_rest, &mut marks).await;
        // Pull requests checked before an error are not checked again.
        self.remember(marks).await?;
        compared?;
        let mut unknown: Vec<OpenPull> = open.into_values().collect();
        unknown.sort_by_key(|one| one.pull.id.number);
        for one in unknown {
            if served.is_some_and(|served| is_since(one.created, served)) {
                tolerate(&one.pull.id, self.unknown(&one).await)?;
            }
        }
        Ok(())
    }

    /// Compares the known pull requests of a repository with its open ones; removes those that it compares from `open`.
    async fn compare(
        &self,
        known: Vec<KnownPull>,
        open: &mut HashMap<u64, OpenPull>,
        at_rest: &mut Vec<PullId>,
        marks: &mut Vec<Mark>,
    ) -> Result<(), HostOrStateError> {
        for known in known {
            let now = open.remove(&known.pull.id.number);
            // Its actor may be handling the very delivery.
            if self.inner.actors.busy(&known.pull.id) {
                continue;
            }
            match now {
                None => self.closed(&known).await?,
                Some(now) => {
                    tolerate(&now.pull.id, self.changed(&known, &now, marks).await)?;
                    at_rest.push(now.pull.id.clone());
                }
            }
            if marks.len() >= MARKS_AT_ONCE {
                self.remember(std::mem::take(marks)).await?;
            }
        }
        Ok(())
    }

    /// Records watermarks, except for pull requests of which something else was recorded meanwhile: the next round checks them again.
    async fn remember(&self, marks: Vec<Mark>) -> Result<()> {
        if marks.is_empty() {
            return Ok(());
        }
        let record = move |tx: &Tx<'_>| {
            for Mark { pull, before, after } in &marks {
                let known = tx.known_pull(pull)?;
                if known.is_some_and(|known| known.open && known.watermark == *before) {
                    tx.set_watermark(pull, after)?;
                }
            }
            Ok(())
        };
        recorder::transaction(self.inner, record).await
    }

    /// Records that a pull request is not open any more; the host is asked once more before anything is freed.
    async fn closed(&self, known: &KnownPull) -> Result<()> {
        let pull = crate::domain::PullRequest { state: PullState::Closed, ..known.pull.clone() };
        let id = pull.id.clone();
        tracing::info!(pull = %id, "it is not open any more, and no delivery said so");
        let identity = DeliveryId::new(format!("{MISSED}{id}:closed:{}", Timestamp::now().as_microsecond()));
        let action = PullAction::Closed { merged: false };
        let event = PullEvent { action, pull: pull.into(), sender: Login::unknown(), version: PullVersion::default() };
        let decision = Decision::Queue(Task::Closed(Box::new(event.clone())));
        let known = known.clone();
        let record = move |tx: &Tx<'_>| is_as_looked_at(tx, &id, Some(&known));
        self.take_up(identity, Event::Pull(event), Timestamp::now(), decision, record).await.map(drop)
    }

    async fn changed(&self, listed: &KnownPull, now: &OpenPull, marks: &mut Vec<Mark>) -> Result<(), HostOrStateError> {
        let id = &now.pull.id;
        let told = self.host.profile().versions_cover_comments;
        if told && listed.watermark.as_ref().is_some_and(|mark| mark.version == now.version) || !self.may_ask() {
            return Ok(());
        }
        let from = listed.watermark.clone().unwrap_or_else(|| Watermark::at(Timestamp::now()));
        let since = from.comments.checked_sub(LOOK_BACK).ok();
        let comments = self.host.comments(id, since).await?;
        let age = now.version.moment().map_or(FRESH, |at| comments.now.duration_since(at));
        // The next round checks it again.
        if age < FRESH || self.inner.actors.draining() {
            return Ok(());
        }
        // Includes what came while the host was asked.
        let target = id.clone();
        let known = self.inner.ctx.store.read(move |view| view.known_pull(&target)).await?;
        let Some(known) = known.filter(|known| known.open && !self.inner.actors.busy(id)) else { return Ok(()) };
        let mut before = known.watermark.clone();
        let mut mark = known.watermark.clone().unwrap_or(from);
        if now.pull.head.commit != known.pull.head.commit {
            if !self.pushed(now, known, &mut mark).await? {
                // Its delivery came meanwhile. The next round checks it again.
                return Ok(());
            }
            let target = id.clone();
            let recorded = self.inner.ctx.store.read(move |view| view.known_pull(&target)).await?;
            before = recorded.and_then(|known| known.watermark);
        }
        self.duplicates(id, &comments).await?;
        for comment in &comments.list {
            if comment.created < mark.comments {
                continue;
            }
            // The next server handles this comment and those after it.
            if self.inner.actors.draining() {
                return Ok(());
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
            let Some(identity) = self.inner.intake.comment_identity(id, comment.id) else { continue };
            let event = Event::Comment(event);
            let decision = match self.inner.decide(&event, id) {
                // Others may edit a person's comments, so nobody can tell who wrote it.
                Decision::Queue(_) if comment.edited => Decision::Edited,
                _ if comment.edited => continue,
                decision => decision,
            };
            self.take_up(identity, event, asked, decision, |_| Ok(true)).await?;
        }
        if let Some(newest) = comments.list.iter().map(|comment| comment.created).max() {
            mark.comments = mark.comments.max(newest);
        }
        mark.version.clone_from(&now.version);
        marks.push(Mark { pull: id.clone(), before, after: mark });
        Ok(())
    }

    /// Handles the event as if its delivery had come, unless it has. `also` is recorded with it; if it returns false, nothing is recorded,
    /// and the result is false. Fails if the event could not be recorded; then nothing was done.
    async fn take_up(
        &self,
        identity: DeliveryId,
        event: Event,
        received: Timestamp,
        decision: Decision,
        also: impl FnOnce(&Tx<'_>) -> Result<bool> + Send + 'static,
    ) -> Result<bool> {
        let Some(pull) = event.pull_id().cloned() else { return Ok(true) };
        match decision {
            Decision::Ignore(_) => return Ok(true),
            Decision::Superseded(head) => {
                self.inner.actors.cancel_superseded_plan(&pull, &head);
                return Ok(true);
            }
            Decision::Reply(_) | Decision::Refuse(..) | Decision::Queue(_) | Decision::Edited => {}
        }
        let (what, asked) = (identity.clone(), identity.clone());
        if self.inner.ctx.store.read(move |view| view.knows_delivery(&asked)).await? {
            return Ok(true);
        }
        let delivery = Delivery { identity, host_id: "missed".to_owned(), received, event };
        match self.inner.record(delivery, pull.clone(), decision, also).await {
            DeliveryOutcome::NotLeading | DeliveryOutcome::Unrecorded => {
                // If another server leads, fails with that as the reason.
                self.inner.ctx.store.may_act().await?;
                return Err(anyhow!("{what} could not be recorded"));
            }
            DeliveryOutcome::Known => return Ok(false),
            taken => tracing::info!(%pull, delivery = what.as_str(), "taken up, its delivery was missed: {taken}"),
        }
        Ok(true)
    }

    /// Deletes comments of ours that exist twice, from a late request or a server that slept while another one led. The lowest id stays.
    async fn duplicates(&self, pull: &PullId, comments: &Comments) -> Result<(), HostOrStateError> {
        let ctx = &self.inner.ctx;
        let mut seen = HashSet::new();
        let mut extra = Vec::new();
        for comment in comments.list.iter().filter(|one| one.author.is(self.host.bot_login())) {
            let Some(marker) = marker::parse(&comment.body) else { continue };
            let (Some(run), Some(part)) = (marker["run"].as_str(), marker["part"].as_u64()) else { continue };
            if !seen.insert((run.to_owned(), part)) {
                extra.push(comment.id);
            }
        }
        duplicates::delete(&ctx.store, self.host, pull, &extra).await
    }
}
