//! The first look at a repository or a pull request. What was there before is known from then on, and none of it runs.

use crate::dispatch::reconcile::{HostOrStateError, MARKS_AT_ONCE, Round};
use crate::dispatch::recorder;
use crate::domain::state::{PollMark, Watermark};
use crate::domain::{PullId, PullRequest, RepoId};
use crate::store::{KnownPull, Tx};
use crate::vcs::{Host, HostComment, HostError, OpenPull};
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeSet, HashSet};

/// A host may have comments that are this much younger than the version of their pull request, and its answers another clock.
pub(super) const RECENT: SignedDuration = SignedDuration::from_mins(15);

/// Returns comments; absent if the host never lists them, for instance because they are too many. Whoever writes them must not keep the
/// rest of the pull request from being seen.
pub(super) async fn readable_comments(
    host: &dyn Host,
    pull: &PullId,
    since: Option<Timestamp>,
) -> Result<Option<Vec<HostComment>>, HostError> {
    match host.comments(pull, since).await {
        Ok(comments) => Ok(Some(comments.list)),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => {
            tracing::warn!(%pull, "its comments so far are passed over, as they cannot be listed: {error}");
            Ok(None)
        }
    }
}

/// Returns the time of the last change of a pull request, by the clock of its comments. These may be younger than its version. `at`: time
/// of the look, for a pull request whose comments are unknown.
pub(super) fn changed_at(now: &OpenPull, comments: Option<&[HostComment]>, at: Timestamp) -> Timestamp {
    let newest = match comments {
        Some(comments) => comments.iter().map(|comment| comment.created).max(),
        None => Some(at),
    };
    now.version.moment().max(newest).unwrap_or(now.created)
}

/// Returns the mark of a pull request that a look sees for the first time. What was said so far is not new. `at`: time of the look.
pub(super) async fn first_mark(host: &dyn Host, now: &OpenPull, at: Timestamp) -> Result<Watermark, HostError> {
    let changed = now.version.moment().filter(|_| host.profile().versions_cover_comments);
    let is_recent = changed.is_none_or(|changed| at.duration_since(changed) < RECENT);
    let comments = if is_recent { readable_comments(host, &now.pull.id, changed).await? } else { Some(Vec::new()) };
    let seen = changed_at(now, comments.as_deref(), at);
    let mut mark = Watermark { version: now.version.clone(), ..new_mark(now, seen) };
    let passed = if is_recent && comments.is_some() {
        changed.unwrap_or(now.created).max(seen.min(at))
    } else {
        // Comments of the second of a change may be older than the look, and are not listed.
        Timestamp::from_second(seen.as_second().saturating_add(1)).unwrap_or(seen)
    };
    mark.comments = mark.comments.max(passed);
    let comments = comments.unwrap_or_default();
    if let Some(polled) = &mut mark.polled {
        polled.handled = comments.iter().filter(|one| one.created >= mark.comments).map(|one| one.id).collect();
    }
    Ok(mark)
}

/// Returns the mark of a pull request of which everything that was said is new. `seen`: time of its last change.
pub(super) fn new_mark(now: &OpenPull, seen: Timestamp) -> Watermark {
    let polled = PollMark {
        head: now.pull.head.commit.clone(),
        replaced: None,
        seen,
        draft: now.pull.draft,
        handled: BTreeSet::new(),
        closing: false,
    };
    Watermark { polled: Some(polled), ..Watermark::at(now.created) }
}

/// Records the first look at a repository. Pull requests opened before it are known from now on, and not planned. A look that ends early is
/// continued by the next one.
pub(super) async fn begin(
    round: &Round<'_>,
    repo: &RepoId,
    open: Vec<OpenPull>,
    known: &[KnownPull],
    at: Timestamp,
) -> Result<(), HostOrStateError> {
    let known: HashSet<u64> = known.iter().map(|known| known.pull.id.number).collect();
    let unknown: Vec<OpenPull> = open.into_iter().filter(|one| !known.contains(&one.pull.id.number)).collect();
    for part in unknown.chunks(MARKS_AT_ONCE) {
        let mut marks = Vec::new();
        let marked = first_marks(round, part, at, &mut marks).await;
        record(round, marks).await?;
        if !marked? {
            return Ok(());
        }
    }
    let of = repo.clone();
    recorder::transaction(round.inner, move |tx| tx.begin_polling(&of, at)).await?;
    tracing::info!(%repo, "this repository is polled from now on");
    Ok(())
}

/// Adds the first mark of each pull request. Returns false if the host is not to be asked for the rest now.
async fn first_marks(
    round: &Round<'_>,
    open: &[OpenPull],
    at: Timestamp,
    marks: &mut Vec<(PullRequest, Watermark)>,
) -> Result<bool, HostError> {
    for one in open {
        if round.inner.actors.draining() || !round.may_ask() {
            return Ok(false);
        }
        marks.push((one.pull.clone(), first_mark(round.host, one, at).await?));
    }
    Ok(true)
}

async fn record(round: &Round<'_>, marks: Vec<(PullRequest, Watermark)>) -> Result<()> {
    let record = move |tx: &Tx<'_>| {
        marks.iter().try_for_each(|(pull, mark)| {
            tx.put_pull(pull)?;
            tx.set_watermark(&pull.id, mark)
        })
    };
    recorder::transaction(round.inner, record).await
}
