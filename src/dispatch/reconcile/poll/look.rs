//! A look at one repository: its open pull requests are compared with the marks.

use super::{PullTurn, RepoTurn, pace};
use crate::dispatch::decide::Decision;
use crate::dispatch::reconcile::{HostOrStateError, MISSED, Round, tolerate};
use crate::dispatch::renames::Standing;
use crate::dispatch::{auto_applies, merge_again, recorder};
use crate::domain::state::{PollMark, Watermark};
use crate::domain::{DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullRequest, RepoId, Sighting};
use crate::store::{KnownPull, Tx};
use crate::vcs::{Host, HostComment, HostError, OpenPull};
use anyhow::Result;
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// Time after a change of a version in which comments are listed in every look: the host may show one later than it changes the version.
const FRESH: Duration = Duration::from_secs(30);

/// One look at a repository.
pub(super) struct Look<'a> {
    pub(super) round: &'a Round<'a>,
    /// Time of the list, by the host's clock.
    pub(super) at: Timestamp,
    /// Time of the look before; absent if this process has made none.
    pub(super) before: Option<Timestamp>,
    /// Time of the first look.
    pub(super) since: Timestamp,
    pub(super) interval: Duration,
}

/// Returns the time of the last change of a pull request, by the clock of its comments. A host that does not tell it has the time of the
/// last comment: the clock of an answer may be another one.
fn changed_at(now: &OpenPull, comments: &[HostComment]) -> Timestamp {
    let newest = comments.iter().map(|comment| comment.created).max();
    now.version.moment().or(newest).unwrap_or(now.created)
}

/// Returns the mark of a pull request that a look sees for the first time. What was said so far is not new.
pub(super) async fn first_mark(host: &dyn Host, now: &OpenPull) -> Result<Watermark, HostError> {
    if host.profile().versions_cover_comments && now.version.moment().is_some() {
        // Comments of the second of the last change may be older than the look.
        let seen = changed_at(now, &[]);
        let comments = Timestamp::from_second(seen.as_second().saturating_add(1)).unwrap_or(seen);
        return Ok(Watermark { comments, version: now.version.clone(), ..new_mark(now, &[]) });
    }
    let comments = host.comments(&now.pull.id, None).await?.list;
    let mut mark = new_mark(now, &comments);
    if let Some(newest) = comments.iter().map(|comment| comment.created).max() {
        mark.comments = mark.comments.max(newest);
    }
    if let Some(polled) = &mut mark.polled {
        polled.handled = comments.iter().filter(|one| one.created >= mark.comments).map(|one| one.id).collect();
    }
    mark.version.clone_from(&now.version);
    Ok(mark)
}

/// Returns the mark of a pull request of which everything that was said is new. `comments`: those that the look has found.
pub(super) fn new_mark(now: &OpenPull, comments: &[HostComment]) -> Watermark {
    let polled = PollMark {
        head: now.pull.head.commit.clone(),
        replaced: None,
        seen: changed_at(now, comments),
        draft: now.pull.draft,
        handled: BTreeSet::new(),
        closing: false,
    };
    Watermark { polled: Some(polled), ..Watermark::at(now.created) }
}

/// Returns the heads of a pull request after a look that has found these comments.
pub(super) fn heads_after(polled: &PollMark, now: &OpenPull, comments: &[HostComment]) -> PollMark {
    let head = now.pull.head.commit.clone();
    if polled.head == head {
        return polled.clone();
    }
    PollMark { head, replaced: Some(polled.head.clone()), seen: changed_at(now, comments), ..polled.clone() }
}

/// Returns a change of the mark of an open pull request, which fails if another one was recorded meanwhile.
pub(super) fn advance(
    id: &PullId,
    from: Option<&Watermark>,
    to: &Watermark,
) -> impl FnOnce(&Tx<'_>) -> Result<bool> + Send + 'static + use<> {
    let (id, from, to) = (id.clone(), from.cloned(), to.clone());
    move |tx| {
        let is_same = tx.known_pull(&id)?.is_some_and(|known| known.open && known.watermark == from);
        if is_same {
            tx.set_watermark(&id, &to)?;
        }
        Ok(is_same)
    }
}

impl RepoTurn {
    /// Compares the open pull requests with the marks. An error about one of them is returned once all others were compared.
    pub(super) async fn look(
        &mut self,
        round: &Round<'_>,
        repo: &RepoId,
        interval: Duration,
    ) -> Result<(), HostOrStateError> {
        let open = round.host.open_pulls(repo).await?;
        let at = round.host.clock().unwrap_or_else(Timestamp::now);
        if let Some(key) = round.host.told_key(repo)
            && round.inner.settle(&Sighting { repo: repo.clone(), key }).await? != Standing::Settled
        {
            return Ok(());
        }
        let of = repo.clone();
        let read = round.inner.ctx.store.read(move |view| Ok((view.open_pulls_of(&of)?, view.polled_since(&of)?)));
        let (known, since) = read.await?;
        let Some(since) = since else {
            begin(round, repo, open, &known, at).await?;
            self.looked = Some(at);
            return Ok(());
        };
        let look = Look { round, at, before: self.looked, since, interval };
        let mut open: HashMap<u64, OpenPull> = open.into_iter().map(|one| (one.pull.id.number, one)).collect();
        let mut failed = None;
        for known in known {
            let id = known.pull.id.clone();
            let now = open.remove(&id.number);
            let changed = now.as_ref().and_then(|now| now.version.moment());
            let quiet = changed.and_then(|changed| Duration::try_from(at.duration_since(changed)).ok());
            let turn = self.pulls.entry(id.clone()).or_insert_with(|| PullTurn::after(quiet.unwrap_or_default()));
            let looked = match &now {
                Some(now) => look.known(&known, now, turn).await,
                None => look.gone(&known).await,
            };
            if turn.active > self.active {
                self.active = turn.active;
            }
            keep(&id, looked, &mut failed)?;
            if now.is_none() {
                self.pulls.remove(&id);
            }
        }
        for known in owing(round, repo).await? {
            let id = known.pull.id.clone();
            let turn = self.pulls.entry(id.clone()).or_insert_with(|| PullTurn::after(Duration::ZERO));
            if turn.is_due(turn.listed, interval) {
                turn.listed = Some(Instant::now());
                keep(&id, look.last_comments(&known, &known.pull).await, &mut failed)?;
            }
        }
        for now in open.values() {
            self.active = Instant::now();
            keep(&now.pull.id, look.opened(now).await, &mut failed)?;
        }
        match failed {
            Some(error) => Err(error.into()),
            None => {
                self.looked = Some(at);
                Ok(())
            }
        }
    }
}

/// Keeps the first error about a pull request that another look may not meet. Fails if the others cannot be looked at either.
fn keep(
    pull: &PullId,
    looked: Result<(), HostOrStateError>,
    failed: &mut Option<HostError>,
) -> Result<(), HostOrStateError> {
    match tolerate(pull, looked) {
        Err(HostOrStateError::Host(error @ HostError::Unavailable { .. })) => {
            failed.get_or_insert(error);
            Ok(())
        }
        looked => looked,
    }
}

/// Returns pull requests that are not open and still own projects: people apply or release these by comments there.
async fn owing(round: &Round<'_>, repo: &RepoId) -> Result<Vec<KnownPull>> {
    let of = repo.clone();
    let read = round.inner.ctx.store.read(move |view| {
        let mut owing: Vec<KnownPull> = Vec::new();
        for owner in view.owed()?.into_iter().filter(|owner| owner.repo == of) {
            let known = view.known_pull(&owner.holder.pull)?.filter(|known| !known.open);
            owing.extend(known.filter(|known| owing.iter().all(|one| one.pull.id != known.pull.id)));
        }
        Ok(owing)
    });
    read.await
}

/// Records the first look at a repository. Pull requests opened before it are known from now on, and not planned.
async fn begin(
    round: &Round<'_>,
    repo: &RepoId,
    open: Vec<OpenPull>,
    known: &[KnownPull],
    at: Timestamp,
) -> Result<(), HostOrStateError> {
    tracing::info!(%repo, open = open.len(), "this repository is polled from now on");
    let mut unknown = Vec::new();
    for one in open {
        if known.iter().all(|known| known.pull.id != one.pull.id) {
            let mark = first_mark(round.host, &one).await?;
            unknown.push((one.pull, mark));
        }
    }
    let repo = repo.clone();
    let record = move |tx: &Tx<'_>| {
        for (pull, mark) in &unknown {
            tx.put_pull(pull)?;
            tx.set_watermark(&pull.id, mark)?;
        }
        tx.begin_polling(&repo, at)
    };
    Ok(recorder::transaction(round.inner, record).await?)
}

impl Look<'_> {
    /// Compares an open pull request with its mark. What was said comes first: a comment of before a push is not about the new head.
    async fn known(&self, known: &KnownPull, now: &OpenPull, turn: &mut PullTurn) -> Result<(), HostOrStateError> {
        let id = &now.pull.id;
        let Some((mark, polled)) = known.watermark.as_ref().and_then(|mark| Some((mark, mark.polled.as_ref()?))) else {
            // It was open before its host was polled.
            let first = first_mark(self.round.host, now).await?;
            let record = advance(id, known.watermark.as_ref(), &first);
            recorder::transaction(self.round.inner, record).await?;
            return Ok(());
        };
        let is_moved = polled.head != now.pull.head.commit;
        let is_changed = mark.version != now.version;
        let is_ready = polled.draft && !now.pull.draft && !is_moved;
        if is_moved || is_changed {
            turn.active = Instant::now();
            turn.changed = Some(turn.active);
        }
        let mut next = mark.clone();
        if is_moved || self.lists_comments(mark, now, turn) {
            turn.listed = Some(Instant::now());
            let Some(listed) = self.comments(known, now, turn).await? else { return Ok(()) };
            next = listed;
        }
        let Some(present) = self.mark_of(id).await? else { return Ok(()) };
        next.polled = next.polled.map(|polled| PollMark { draft: now.pull.draft, closing: false, ..polled });
        let action = match (is_moved, is_ready) {
            (true, _) if !self.is_planned(now).await? => Some(PullAction::Pushed),
            (_, true) => Some(PullAction::Ready),
            _ => None,
        };
        match action {
            Some(action) => self.happened(now, action, &present, &next).await?,
            None if next != present => {
                recorder::transaction(self.round.inner, advance(id, Some(&present), &next)).await?;
            }
            None => {}
        }
        if is_changed && !is_moved {
            self.updated(id, now).await;
        }
        self.approvals(id, turn).await
    }

    /// Returns true if a plan of the present head waits, runs or has run: a command may have been faster than the look.
    async fn is_planned(&self, now: &OpenPull) -> Result<bool> {
        let head = &now.pull.head.commit;
        if self.round.inner.actors.newest_head(&now.pull.id).as_ref() == Some(head) {
            return Ok(true);
        }
        let of = now.pull.id.clone();
        let planned = self.round.inner.ctx.store.read(move |view| view.last_planned_head(&of)).await?;
        Ok(planned.as_ref() == Some(head))
    }

    /// Returns true if the comments are to be listed: the version tells that there may be new ones, or has changed a moment ago. Where
    /// versions do not tell, the comments of an active pull request are listed in every look.
    fn lists_comments(&self, mark: &Watermark, now: &OpenPull, turn: &PullTurn) -> bool {
        if mark.version != now.version {
            return true;
        }
        match now.version.moment().filter(|_| self.round.host.profile().versions_cover_comments) {
            // By our clock as well: that of the host's answers may be another one.
            Some(changed) => turn.changed.is_some_and(|at| at.elapsed() < FRESH) || self.is_fresh(changed),
            None => turn.is_due(turn.listed, self.interval),
        }
    }

    fn is_fresh(&self, changed: Timestamp) -> bool {
        Duration::try_from(self.at.duration_since(changed)).is_ok_and(|age| age < FRESH)
    }

    /// Takes up a push, or the end of a draft, with the mark.
    async fn happened(
        &self,
        now: &OpenPull,
        action: PullAction,
        from: &Watermark,
        to: &Watermark,
    ) -> Result<(), HostOrStateError> {
        let inner = self.round.inner;
        let id = &now.pull.id;
        let word = if action == PullAction::Ready { "ready" } else { "push" };
        let identity = format!("{MISSED}{id}:{word}:{}:{}", now.pull.head.commit, self.at.as_microsecond());
        let Some(pull) = self.whole(now).await? else { return Ok(()) };
        let event = PullEvent {
            action,
            pull: pull.into(),
            // The pusher is unknown, and need not be the author.
            sender: Login::unknown(),
            version: now.version.clone(),
        };
        let event = Event::Pull(event);
        let decision = inner.decide(&event, id);
        let record = advance(id, Some(from), to);
        match decision {
            Decision::Ignore(_) | Decision::Superseded(_) => {
                if recorder::transaction(inner, record).await?
                    && let Decision::Superseded(head) = decision
                {
                    inner.actors.cancel_superseded_plan(id, &head);
                }
            }
            decision => {
                let identity = DeliveryId::new(identity);
                self.round.take_up(identity, event, Timestamp::now(), decision, record).await?;
            }
        }
        Ok(())
    }

    /// Returns a listed pull request as the host describes it alone: a list may leave something out, such as the tip of the base branch.
    /// Absent if it has changed meanwhile; then the next look sees it.
    pub(super) async fn whole(&self, now: &OpenPull) -> Result<Option<PullRequest>, HostError> {
        let pull = self.round.host.pull_request(&now.pull.id).await?;
        Ok(Some(pull).filter(|pull| pull.is_open() && pull.head.commit == now.pull.head.commit))
    }

    /// Handles a change that may be a review or a vote.
    async fn updated(&self, id: &PullId, now: &OpenPull) {
        let inner = self.round.inner;
        merge_again::try_in_background(inner, id);
        let version = now.version.moment().unwrap_or(self.at).as_microsecond();
        auto_applies::on_update(inner, id, &DeliveryId::new(format!("{MISSED}{id}:updated:{version}"))).await;
    }

    /// Looks for an automatic apply, where a vote does not change the version.
    async fn approvals(&self, id: &PullId, turn: &mut PullTurn) -> Result<(), HostOrStateError> {
        if !turn.is_due(turn.reviewed, self.interval) || !self.round.may_ask() {
            return Ok(());
        }
        turn.reviewed = Some(Instant::now());
        auto_applies::in_round(self.round.inner, id).await
    }

    /// Returns the recorded mark of an open pull request.
    pub(super) async fn mark_of(&self, id: &PullId) -> Result<Option<Watermark>> {
        let of = id.clone();
        let known = self.round.inner.ctx.store.read(move |view| view.known_pull(&of)).await?;
        Ok(known.filter(|known| known.open).and_then(|known| known.watermark))
    }
}

impl PullTurn {
    /// Begins with a pull request that nobody has changed for this long.
    fn after(quiet: Duration) -> PullTurn {
        let now = Instant::now();
        PullTurn { active: now.checked_sub(quiet).unwrap_or(now), changed: None, listed: None, reviewed: None }
    }

    /// Returns true if something that was done at a time is due again.
    fn is_due(&self, done: Option<Instant>, interval: Duration) -> bool {
        done.is_none_or(|done| done.elapsed() >= pace::interval(interval, self.active.elapsed(), 0))
    }
}
