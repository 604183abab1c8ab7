//! Performs one effect on its host, and decides what to do after errors.

use super::pace::{Pacer, Rank};
use super::refusals::{is_passing, kind};
use super::{MAX_TRIES, OutboxInner, lock};
use crate::domain::command::CommandName;
use crate::domain::state::{Effect, OverwriteScope, PendingEffect};
use crate::domain::{PullId, RunId};
use crate::render::{self, marker};
use crate::reply::duplicates::{self, HostOrStateError};
use crate::store::is_deposed;
use crate::traces::{SpanKey, WorkSpan, leaf};
use crate::vcs::{Host, HostError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which a status of a commit that the host does not know is given up...
const COMMIT_PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// ...and the longest pause between attempts before that.
const COMMIT_PAUSE: Duration = Duration::from_secs(15);

/// Time after which a missing repository counts as deleted, or as no longer ours. Missing rights of a token are granted within days.
pub(super) const GONE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The result of an attempt.
pub(super) enum PostResult {
    /// Done, or given up; the note says how.
    Done(String),
    /// Try again after this pause.
    Again(Duration),
    /// Refused until the token or its rights are fixed.
    Refused,
    /// Not tried: due at this time, or when refused posts are accepted again.
    Later(Option<Instant>),
    /// This server was deposed: it tries nothing more.
    Halt(anyhow::Error),
}

impl OutboxInner {
    /// Tries an effect if it is due.
    pub(super) async fn deliver(&self, effect: &PendingEffect) -> PostResult {
        if self.refusals.suspended_until(effect, Instant::now()).is_some() {
            return PostResult::Later(None);
        }
        let host = match self.hosts.for_repo(&effect.pull.repo) {
            Ok(host) => host,
            Err(error) => return self.suspend(effect, &error),
        };
        if let Err(until) = self.turn(&**host, effect) {
            return PostResult::Later(Some(until));
        }
        if let Err(error) = self.check_repository(&**host, effect).await {
            return match error {
                HostOrStateError::Host(error) => self.suspend(effect, &error),
                HostOrStateError::State(error) if is_deposed(&error) => PostResult::Halt(error),
                HostOrStateError::State(_) => PostResult::Again(self.pace.after(effect.attempts + 1)),
            };
        }
        let Some(_slot) = self.slot(&effect.pull.repo).await else { return PostResult::Later(None) };
        let began = Timestamp::now();
        let attempted = self.attempt(&**host, effect).await;
        self.trace(effect, began, attempted.is_ok());
        let error = match attempted {
            Ok(note) => {
                if self.refusals.passed(effect) {
                    tracing::info!(repository = %effect.pull.repo, "the host accepts our {}s again", kind(&effect.effect));
                    self.wake_all(&effect.pull.repo);
                }
                return PostResult::Done(note);
            }
            Err(HostOrStateError::State(error)) if is_deposed(&error) => return PostResult::Halt(error),
            Err(HostOrStateError::State(error)) => {
                tracing::warn!(pull = %effect.pull, effect = effect.id, "{error:#}; no effect is posted now");
                return PostResult::Again(self.pace.after(effect.attempts + 1));
            }
            Err(HostOrStateError::Host(error)) => error,
        };
        self.failed(&**host, effect, error).await
    }

    /// Returns an error if the host's last response for the name was about another repository than that of the effect.
    async fn check_repository(&self, host: &dyn Host, effect: &PendingEffect) -> Result<(), HostOrStateError> {
        let repo = &effect.pull.repo;
        let Some(told) = host.told_key(repo) else { return Ok(()) };
        let name = repo.clone();
        match self.store.read(move |view| view.repo_key(&name)).await? {
            Some(known) if known != told => {
                let to = "another one that has its name now".to_owned();
                Err(HostError::Moved { what: repo.to_string(), to }.into())
            }
            _ => Ok(()),
        }
    }

    /// Decides what to do after an error of the host. Only impossible effects are given up, and pending statuses and reactions.
    async fn failed(&self, host: &dyn Host, effect: &PendingEffect, error: HostError) -> PostResult {
        let tries = effect.attempts + 1;
        if let HostError::UnknownCommit { .. } = error {
            return self.commit_unknown(effect, &error);
        }
        // The repository has moved: its new name may be allowlisted later, or the redirect may come from a proxy and be
        // temporary.
        let waits = error.is_mendable() || matches!(error, HostError::Moved { .. });
        if !error.is_transient() && !waits {
            return self.given_up(effect, &error.to_string());
        }
        if tries >= MAX_TRIES && is_passing(&effect.effect) {
            return self.given_up(effect, &format!("{error}, {tries} times"));
        }
        if let HostError::NotFound { .. } = error {
            if matches!(effect.effect, Effect::React { .. }) {
                return self.given_up(effect, "the comment is gone");
            }
            if !effect.pull.is_branch() && host.is_gone(&effect.pull).await.unwrap_or(false) {
                return self.given_up(effect, "the pull request is gone");
            }
            let age = effect.recorded.map(|at| Timestamp::now().duration_since(at));
            if age.is_some_and(|age| age >= self.pace.gone) {
                return self.given_up(effect, "the repository is gone, or hidden from our token for days");
            }
        }
        if waits {
            return self.suspend(effect, &error);
        }
        let pause = self.pause_after(effect, &error);
        tracing::warn!(pull = %effect.pull, effect = effect.id, tries, "{error}; trying again in {pause:?}");
        PostResult::Again(pause)
    }

    /// Decides about a status whose commit the host does not know. A commit of a fork is known some seconds after its push. One that a
    /// forced push replaced may never be.
    fn commit_unknown(&self, effect: &PendingEffect, error: &HostError) -> PostResult {
        let age = effect.recorded.map(|at| Timestamp::now().duration_since(at));
        if age.map_or(effect.attempts + 1 >= MAX_TRIES, |age| age >= COMMIT_PATIENCE) {
            return self.given_up(effect, &error.to_string());
        }
        let pause = self.pace.after(effect.attempts + 1).min(COMMIT_PAUSE);
        tracing::info!(pull = %effect.pull, effect = effect.id, "{error}; trying again in {pause:?}");
        PostResult::Again(pause)
    }

    /// Returns the pause before the next attempt; a rate limit pauses all effects on that host.
    pub(super) fn pause_after(&self, effect: &PendingEffect, error: &HostError) -> Duration {
        let HostError::RateLimited { wait, .. } = error else { return self.pace.after(effect.attempts + 1) };
        let now = Instant::now();
        lock(&self.pauses).insert(effect.pull.repo.host.clone(), now + *wait);
        if let Some(pacer) = lock(&self.pacers).get_mut(&effect.pull.repo.host) {
            pacer.empty(now);
        }
        *wait
    }

    /// Keeps a refused effect recorded; it is retried slowly until the cause is fixed.
    fn suspend(&self, effect: &PendingEffect, because: &dyn Display) -> PostResult {
        let now = Instant::now();
        let (first, until) = self.refusals.record(effect, self.pace, now);
        let (pause, kind) = (until.saturating_duration_since(now), kind(&effect.effect));
        if first {
            tracing::error!(
                pull = %effect.pull,
                effect = effect.id,
                "a {kind} is refused: {because}; it is kept, and tried again in {pause:?} and then slowly. `tidelock doctor` says what \
                 the token lacks"
            );
        } else {
            tracing::warn!(pull = %effect.pull, effect = effect.id, "a {kind} is still refused: {because}; trying again in {pause:?}");
        }
        PostResult::Refused
    }

    fn given_up(&self, effect: &PendingEffect, because: &str) -> PostResult {
        tracing::error!(pull = %effect.pull, effect = effect.id, "a {} is given up: {because}", kind(&effect.effect));
        PostResult::Done(format!("given up: {because}"))
    }

    /// Takes one post from the host's rate limit; the error is the time of the next attempt.
    fn turn(&self, host: &dyn Host, effect: &PendingEffect) -> Result<(), Instant> {
        let Some(limit) = host.post_limit() else { return Ok(()) };
        let now = Instant::now();
        let mut pacers = lock(&self.pacers);
        let pacer = pacers.entry(effect.pull.repo.host.clone()).or_insert_with(|| Pacer::new(limit, now));
        pacer.take(Rank::of(&effect.effect), &effect.pull.repo, now)
    }

    /// Adds the post of a comment to the trace of its run. Other posts, and comments on no run, belong to no trace.
    fn trace(&self, effect: &PendingEffect, began: Timestamp, has_passed: bool) {
        let Effect::Comment { run, body, .. } = &effect.effect else { return };
        let tells_results = |body| marker::parse(body).is_some_and(|marker| tells_of_run(&marker));
        if self.traces.is_on() && tells_results(body) {
            self.traces.add(|| WorkSpan {
                run,
                key: leaf(),
                parent: Some(SpanKey::Command),
                name: "post comment".into(),
                began,
                ended: Timestamp::now(),
                attributes: Vec::new(),
                failed: (!has_passed).then_some("refused"),
            });
        }
    }

    /// Performs the effect, after checking that this server may still act.
    async fn attempt(&self, host: &dyn Host, effect: &PendingEffect) -> Result<String, HostOrStateError> {
        match &effect.effect {
            Effect::Comment { run, part, body, over } => self.comment(host, effect, (run, *part, body), *over).await,
            Effect::Status { commit, status } => {
                self.store.may_act().await?;
                let mut told = status.clone();
                if host.profile().statuses_of_commits {
                    let (pull, of) = (effect.pull.clone(), commit.clone());
                    told = self.store.read(move |view| view.status_of_commit(&pull, &of, told)).await?;
                }
                match host.profile().status_details {
                    // Also for a status without details: a check is found again by the effect that posts it.
                    true => told.details.get_or_insert_default().effect = effect.id,
                    false => told.details = None,
                }
                host.set_status(&effect.pull, commit, &told).await?;
                Ok("set".to_owned())
            }
            Effect::React { comment_id, reaction } => {
                self.store.may_act().await?;
                host.react(&effect.pull, *comment_id, reaction).await?;
                Ok("reacted".to_owned())
            }
            Effect::Hide { run, command, projects } => {
                self.hide(host, effect, run, *command, projects.as_deref()).await
            }
            Effect::Issue { id, change } => self.issue(host, effect, id, change).await,
            // It has a lane of its own, which `merge` processes.
            Effect::Merge { .. } => Ok("not posted".to_owned()),
        }
    }

    /// Posts a comment unless it exists already: an earlier attempt, of this or another process, may have reached the host. Only comments
    /// since it was recorded are searched. The oldest of duplicates stays.
    pub(super) async fn comment(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        (run, part, body): (&RunId, u32, &str),
        over: Option<OverwriteScope>,
    ) -> Result<String, HostOrStateError> {
        let pull = &effect.pull;
        match host.comments(pull, self.search.start_of(effect)).await {
            Ok(comments) => {
                self.search.answered(&pull.repo.host, comments.now);
                let own = comments.list.iter().filter(|comment| comment.author.is(host.bot_login()));
                let mut same = own.filter(|comment| marker::is_of(&comment.body, run, part)).map(|comment| comment.id);
                if let Some(first) = same.next() {
                    let extra: Vec<u64> = same.collect();
                    match duplicates::delete(&self.store, host, pull, &extra).await {
                        Err(HostOrStateError::Host(error)) => {
                            tracing::warn!(%pull, "a duplicate comment could not be deleted: {error}")
                        }
                        result => result?,
                    }
                    return Ok(format!("found as comment {first}"));
                }
            }
            // A token that may not list comments may not post either.
            Err(error) if error.is_transient() || error.is_mendable() => return Err(error.into()),
            // A duplicate is better than no comment.
            Err(error) => tracing::warn!(%pull, "cannot look for an earlier try of a comment: {error}"),
        }
        match self.post(host, pull, body, over).await {
            Err(HostOrStateError::Host(HostError::TooLong { message, .. })) => {
                tracing::warn!(%pull, "the host finds a comment of {} bytes too long: {message}", body.len());
                let short = render::shortened(body, host.profile().comment_limit.min(body.chars().count()));
                Ok(format!("{}, cut", self.post(host, pull, &short, over).await?))
            }
            result => result,
        }
    }

    /// Writes a comment over an earlier one, where it may and there is one, or posts it.
    async fn post(
        &self,
        host: &dyn Host,
        pull: &PullId,
        body: &str,
        over: Option<OverwriteScope>,
    ) -> Result<String, HostOrStateError> {
        if let Some(scope) = over
            && self.overwrite(host, pull, body, scope).await?
        {
            return Ok("written over an earlier comment".to_owned());
        }
        self.store.may_act().await?;
        Ok(format!("comment {}", host.create_comment(pull, body).await?))
    }
}

/// Returns true if a comment has results of a run. Policy checks are a reply of their own.
fn tells_of_run(marker: &Value) -> bool {
    marker["results"].is_array() && marker["command"] != CommandName::PolicyCheck.as_str()
}

/// Returns the id of the effect if its attempt is to be counted: effects that are never given up are tried without limit.
pub(super) fn counted(effect: &PendingEffect) -> Option<i64> {
    (effect.attempts < MAX_TRIES).then_some(effect.id)
}
