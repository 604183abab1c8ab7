//! A look at one repository: its open pull requests are compared with the marks.

use super::{PullTurn, RepoTurn, first, pace};
use crate::dispatch::decide::Decision;
use crate::dispatch::reconcile::{FAILURES, HostOrStateError, MISSED, Round, tolerate};
use crate::dispatch::renames::Standing;
use crate::dispatch::{auto_applies, merge_again, recorder};
use crate::domain::state::{PollMark, Watermark};
use crate::domain::{DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullRequest, RepoId, Sighting};
use crate::store::{KnownPull, Tx};
use crate::vcs::{HostError, OpenPull};
use anyhow::Result;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// Time after a change of a version until a list has all comments of that version: a host may show one later, and some change the version
/// of a pull request at most once in a minute.
const FRESH: Duration = Duration::from_secs(75);

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

/// Returns the heads of a pull request after a look. `seen`: time of its last change.
pub(super) fn heads_after(polled: &PollMark, now: &OpenPull, seen: Timestamp) -> PollMark {
    let head = now.pull.head.commit.clone();
    if polled.head == head {
        return polled.clone();
    }
    PollMark { head, replaced: Some(polled.head.clone()), seen, ..polled.clone() }
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
    /// Compares the open pull requests with the marks. An error about one of them delays the next look at that one alone.
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
            first::begin(round, repo, open, &known, at).await?;
            self.looked = Some(at);
            return Ok(());
        };
        let owing = owing(round, repo).await?;
        let kept: HashSet<&PullId> = known.iter().chain(&owing).map(|known| &known.pull.id).collect();
        self.pulls.retain(|id, _| kept.contains(id));
        let look = Look { round, at, before: self.looked, since, interval };
        let mut open: HashMap<u64, OpenPull> = open.into_iter().map(|one| (one.pull.id.number, one)).collect();
        let mut failed = Failed::default();
        for known in known {
            let id = known.pull.id.clone();
            let now = open.remove(&id.number);
            let turn = self.pulls.entry(id.clone()).or_insert_with(|| PullTurn::new(now.as_ref(), at));
            turn.is_listed = now.is_some();
            if !turn.may_ask(interval) {
                continue;
            }
            let looked = match &now {
                Some(now) => look.known(&known, now, turn).await,
                None => look.gone(&known).await,
            };
            turn.asked(&looked);
            if turn.is_listed && looked.is_ok() {
                self.active = self.active.max(turn.active);
            }
            failed.keep(&id, looked)?;
        }
        for known in owing {
            let id = known.pull.id.clone();
            let turn = self.pulls.entry(id.clone()).or_insert_with(|| PullTurn::new(None, at));
            if turn.is_due(turn.listed, interval) {
                turn.listed = Some(Instant::now());
                failed.keep(&id, look.owing(&known).await)?;
            }
        }
        for now in open.values() {
            let opened = look.opened(now).await;
            if opened.is_ok() {
                self.active = Instant::now();
            }
            failed.keep(&now.pull.id, opened)?;
        }
        if !failed.any {
            self.looked = Some(at);
        }
        Ok(())
    }
}

/// Errors about single pull requests in one look.
#[derive(Default)]
struct Failed {
    any: bool,
    in_a_row: usize,
}

impl Failed {
    /// Logs an error about one pull request. Fails if the others cannot be looked at either.
    fn keep(&mut self, pull: &PullId, looked: Result<(), HostOrStateError>) -> Result<(), HostOrStateError> {
        match tolerate(pull, looked) {
            Err(HostOrStateError::Host(error @ HostError::Unavailable { .. })) if self.in_a_row + 1 < FAILURES => {
                self.any = true;
                self.in_a_row += 1;
                tracing::warn!(%pull, "changes there are looked for later: {error}");
                Ok(())
            }
            looked => {
                self.in_a_row = 0;
                looked
            }
        }
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

impl Look<'_> {
    /// Compares an open pull request with its mark. What was said comes first: a comment of before a push is not about the new head.
    async fn known(&self, known: &KnownPull, now: &OpenPull, turn: &mut PullTurn) -> Result<(), HostOrStateError> {
        let id = &now.pull.id;
        let Some((mark, polled)) = known.watermark.as_ref().and_then(|mark| Some((mark, mark.polled.as_ref()?))) else {
            // It was open before its host was polled.
            let first = first::first_mark(self.round.host, now, self.at).await?;
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
        let (mut next, mut unread) = (mark.clone(), None);
        if is_moved || self.lists_comments(mark, now, turn) {
            turn.listed = Some(Instant::now());
            match self.comments(known, now, turn).await {
                Ok(Some(listed)) => next = listed,
                Ok(None) => return Ok(()),
                // Comments must not hide a push. Those of before it stay unread.
                Err(HostOrStateError::Host(error)) if !error.is_transient() => {
                    next.polled = Some(heads_after(polled, now, first::changed_at(now, None, self.at)));
                    unread = Some(error);
                }
                Err(error) => return Err(error),
            }
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
        match unread {
            Some(error) => return Err(error.into()),
            None if is_changed && !is_moved => self.updated(id, now).await,
            None => {}
        }
        Ok(())
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

    /// Returns true if the comments are to be listed: the version has changed, or the last list may not have all of that change. Where versions
    /// do not tell, the comments of an active pull request are listed in every look.
    fn lists_comments(&self, mark: &Watermark, now: &OpenPull, turn: &PullTurn) -> bool {
        if mark.version != now.version {
            return true;
        }
        if now.version.moment().is_none() || !self.round.host.profile().versions_cover_comments {
            return turn.is_due(turn.listed, self.interval);
        }
        turn.may_miss_comments()
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

    /// Returns the recorded mark of an open pull request.
    pub(super) async fn mark_of(&self, id: &PullId) -> Result<Option<Watermark>> {
        let of = id.clone();
        let known = self.round.inner.ctx.store.read(move |view| view.known_pull(&of)).await?;
        Ok(known.filter(|known| known.open).and_then(|known| known.watermark))
    }
}

impl PullTurn {
    /// Begins with a pull request as the first look of this process sees it; absent if the list does not have it. The process before may have
    /// seen its last change too early to see all comments.
    fn new(now: Option<&OpenPull>, at: Timestamp) -> PullTurn {
        let quiet =
            now.and_then(|now| now.version.moment()).map(|changed| at.duration_since(changed)).unwrap_or_default();
        let begun = Instant::now();
        PullTurn {
            active: Duration::try_from(quiet).ok().and_then(|quiet| begun.checked_sub(quiet)).unwrap_or(begun),
            changed: (quiet < first::RECENT).then_some(begun),
            listed: None,
            is_listed: now.is_some(),
            asked: None,
            failures: 0,
        }
    }

    /// Returns true if the last list of comments may not have all of the last change. By our clock: that of the host's answers may be another
    /// one than that of its records.
    fn may_miss_comments(&self) -> bool {
        self.changed.is_some_and(|at| self.listed.is_none_or(|listed| listed < at + FRESH))
    }

    /// Returns true if something that was done at a time is due again.
    fn is_due(&self, done: Option<Instant>, interval: Duration) -> bool {
        done.is_none_or(|done| done.elapsed() >= pace::interval(interval, self.active.elapsed(), self.failures))
    }

    /// Returns true if the pull request may be looked at. One that the list passes over, or that fails, is asked for less often.
    fn may_ask(&self, interval: Duration) -> bool {
        self.is_listed && self.failures == 0 || self.is_due(self.asked, interval)
    }

    /// Notes the result of a look.
    fn asked(&mut self, looked: &Result<(), HostOrStateError>) {
        self.failures = if looked.is_ok() { 0 } else { self.failures.saturating_add(1) };
        self.asked = (!self.is_listed || looked.is_err()).then(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the requests of four hours of looks at a pull request.
    async fn asked(is_listed: bool, result: impl Fn() -> Result<(), HostOrStateError>) -> usize {
        let (mut turn, mut asked) = (PullTurn { is_listed, ..PullTurn::new(None, Timestamp::UNIX_EPOCH) }, 0);
        for _ in 0..960 {
            if turn.may_ask(Duration::from_secs(15)) {
                asked += 1;
                turn.asked(&result());
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn a_pull_request_that_is_passed_over_or_fails_is_asked_for_seldom() {
        let fails = || Err(HostError::NotFound { what: String::new() }.into());
        assert_eq!(asked(true, || Ok(())).await, 960);
        assert!((120..240).contains(&asked(false, || Ok(())).await));
        assert!(asked(true, fails).await < 40 && asked(false, fails).await < 40);
    }

    /// Looks at a quiet repository may be two minutes apart.
    #[tokio::test(start_paused = true)]
    async fn comments_are_listed_once_more_however_late_the_next_look_is() {
        let mut turn = PullTurn::new(None, Timestamp::UNIX_EPOCH);
        assert!(turn.may_miss_comments(), "the process before may have missed some");
        for pause in [30, 120] {
            turn.listed = Some(Instant::now());
            assert!(turn.may_miss_comments());
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
        turn.listed = Some(Instant::now());
        assert!(!turn.may_miss_comments());
        turn.changed = Some(Instant::now());
        assert!(turn.may_miss_comments());
    }

    #[test]
    fn three_errors_in_a_row_end_a_look_and_permanent_ones_do_not() {
        let repo = crate::domain::RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() };
        let pull = PullId { repo, number: 1 };
        let unavailable = || -> Result<(), HostOrStateError> {
            Err(HostError::Unavailable { what: String::new(), message: String::new() }.into())
        };
        let mut failed = Failed::default();
        assert!(failed.keep(&pull, Err(HostError::NotFound { what: String::new() }.into())).is_ok() && !failed.any);
        for _ in 0..2 {
            assert!(failed.keep(&pull, unavailable()).is_ok() && failed.any);
        }
        assert!(failed.keep(&pull, Ok(())).is_ok());
        assert!(failed.keep(&pull, unavailable()).is_ok() && failed.keep(&pull, unavailable()).is_ok());
        assert!(failed.keep(&pull, unavailable()).is_err());
    }
}
