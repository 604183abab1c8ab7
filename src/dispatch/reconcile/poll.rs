//! Polling (`--poll`): the leader asks the hosts for what they would deliver elsewhere. What it finds is recorded like a delivery, together
//! with the mark of its pull request, and goes through the same decisions. So a look that is repeated, by this server or the next one,
//! repeats nothing.
//!
//! Times are compared only with times of the same host: its clock may differ from ours.

mod closed;
mod comments;
mod look;
mod opened;
mod pace;
mod repos;

use super::{HostOrStateError, Round};
use crate::dispatch::inner::Inner;
use crate::domain::{PullId, RepoId};
use crate::store::is_deposed;
use crate::vcs::{Host, HostError};
use jiff::Timestamp;
use pace::LookBudget;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause while the host's rate limit is low.
const LOW: Duration = Duration::from_secs(60);
/// Interval at which the list of repositories is read again.
const REPOS_AGAIN: Duration = Duration::from_secs(300);
/// Shortest pause between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// Asks one host, for as long as this server leads.
pub(in crate::dispatch) async fn run(inner: Arc<Inner>, host: Arc<dyn Host>) {
    let Some(interval) = inner.ctx.settings.poll else { return };
    let mut poller = Poller {
        interval,
        repos: BTreeMap::new(),
        listed: None,
        paused: None,
        budget: LookBudget::new(host.hourly_requests()),
    };
    while !inner.actors.draining() {
        match poller.go(&Round { inner: &inner.now(), host: &*host }).await {
            Ok(()) => {}
            Err(HostOrStateError::State(error)) if is_deposed(&error) => return,
            Err(HostOrStateError::State(error)) => {
                tracing::warn!(host = host.hostname(), error = format!("{error:#}"), "changes could not be looked for");
            }
            Err(HostOrStateError::Host(error)) => {
                tracing::warn!(host = host.hostname(), "changes could not be looked for: {error}");
            }
        }
        tokio::time::sleep(poller.wait()).await;
    }
}

/// Progress of polling on one host. It is lost with the process; what must not be lost is in the state.
struct Poller {
    interval: Duration,
    repos: BTreeMap<RepoId, RepoTurn>,
    /// Time at which the list of repositories was read.
    listed: Option<Instant>,
    /// End of a pause.
    paused: Option<Instant>,
    budget: LookBudget,
}

/// Looks at one repository.
struct RepoTurn {
    next: Instant,
    /// Time of the last change or command.
    active: Instant,
    /// Time of the last look, by the host's clock.
    looked: Option<Timestamp>,
    failures: u32,
    pulls: HashMap<PullId, PullTurn>,
}

/// Looks at one pull request whose host does not say by its version whether there is something new.
struct PullTurn {
    active: Instant,
    /// Time at which a look saw a change.
    changed: Option<Instant>,
    /// Time of the last list of its comments.
    listed: Option<Instant>,
    /// Time at which approvals for automatic applies were asked for.
    reviewed: Option<Instant>,
}

impl Poller {
    /// Returns the time until the next look.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let next = self.repos.values().map(|turn| turn.next).min().unwrap_or(now + self.interval);
        let next = self.paused.map_or(next, |paused| paused.max(next));
        next.saturating_duration_since(now).clamp(SHORTEST, self.interval)
    }

    /// Looks at the repositories that are due.
    async fn go(&mut self, round: &Round<'_>) -> Result<(), HostOrStateError> {
        let now = Instant::now();
        if self.paused.is_some_and(|paused| now < paused) {
            return Ok(());
        }
        self.paused = None;
        if self.listed.is_none_or(|listed| listed + REPOS_AGAIN <= now) {
            match self.find_repos(round).await {
                Err(HostOrStateError::Host(HostError::RateLimited { wait, what })) => {
                    self.pause(round, wait, &what);
                    return Ok(());
                }
                found => found?,
            }
            self.listed = Some(now);
        }
        let mut due: Vec<(Instant, RepoId)> = self
            .repos
            .iter()
            .filter(|(_, turn)| turn.next <= now)
            .map(|(repo, turn)| (turn.next, repo.clone()))
            .collect();
        due.sort();
        for (_, repo) in due {
            if round.inner.actors.draining() {
                return Ok(());
            }
            if !round.may_ask() {
                self.paused = Some(Instant::now() + LOW);
                return Ok(());
            }
            let wait = self.budget.wait();
            if !wait.is_zero() {
                self.paused = Some(Instant::now() + wait);
                return Ok(());
            }
            let before = round.host.requests();
            let looked = self.look_at(round, &repo).await;
            self.budget.spend(round.host.requests().saturating_sub(before));
            looked?;
        }
        Ok(())
    }

    /// Makes no look until the host's limit permits requests again.
    fn pause(&mut self, round: &Round<'_>, wait: Duration, what: &str) {
        tracing::warn!(host = round.host.hostname(), "{what}: too many requests; the next look is in {wait:?}");
        self.paused = Some(Instant::now() + wait);
    }

    /// Looks at one repository. An error of the host delays the next look there, and no other repository.
    async fn look_at(&mut self, round: &Round<'_>, repo: &RepoId) -> Result<(), HostOrStateError> {
        let Some(turn) = self.repos.get_mut(repo) else { return Ok(()) };
        let looked = turn.look(round, repo, self.interval).await;
        let now = Instant::now();
        match looked {
            Ok(()) => turn.failures = 0,
            Err(HostOrStateError::Host(HostError::RateLimited { wait, what })) => {
                turn.next = now + wait;
                self.pause(round, wait, &what);
                return Ok(());
            }
            Err(HostOrStateError::Host(error)) => {
                turn.failures = turn.failures.saturating_add(1);
                if error.is_transient() {
                    tracing::warn!(%repo, "changes there are looked for later: {error}");
                } else {
                    round.unreadable(repo, &error).await?;
                    round.inner.look_for(round.host, repo).await?;
                }
            }
            Err(error) => {
                turn.next = now + self.interval;
                return Err(error);
            }
        }
        if round.inner.actors.busy_in(repo) {
            turn.active = now;
        }
        turn.next = now + pace::interval(self.interval, turn.active.elapsed(), turn.failures);
        Ok(())
    }
}

impl RepoTurn {
    fn new(now: Instant) -> RepoTurn {
        RepoTurn { next: now, active: now, looked: None, failures: 0, pulls: HashMap::new() }
    }
}
