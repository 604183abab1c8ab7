//! Polling (`--poll`): the leader asks the hosts for what they would deliver elsewhere. What it finds is recorded like a delivery, together
//! with the mark of its pull request, and goes through the same decisions. So a look that is repeated, by this server or the next one,
//! repeats nothing.
//!
//! Times are compared only with times of the same host: its clock may differ from ours.

mod closed;
mod comments;
mod first;
mod last_looks;
mod look;
mod opened;
mod pace;
mod repos;

pub(in crate::dispatch) use last_looks::LastLooks;

use super::{HostOrStateError, Round};
use crate::dispatch::inner::Inner;
use crate::domain::{PullId, RepoId};
use crate::store::is_deposed;
use crate::vcs::{Host, HostError};
use futures::FutureExt as _;
use jiff::Timestamp;
use pace::LookBudget;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause while the host's rate limit is low.
const LOW: Duration = Duration::from_secs(60);
/// Interval at which the list of repositories is read again.
const REPOS_AGAIN: Duration = Duration::from_secs(300);

/// Asks one host, for as long as this server leads.
pub(in crate::dispatch) async fn run(inner: Arc<Inner>, host: Arc<dyn Host>) {
    let Some(interval) = inner.ctx.settings.poll else { return };
    let mut poller = Poller {
        interval,
        repos: BTreeMap::new(),
        listed: None,
        paused: None,
        is_low: false,
        budget: LookBudget::new(host.hourly_requests()),
    };
    inner.last_looks.note(host.hostname());
    while !inner.actors.draining() {
        let looked = AssertUnwindSafe(poller.go(&Round { inner: &inner.now(), host: &*host })).catch_unwind().await;
        let failed = match looked {
            Ok(Ok(())) => None,
            Ok(Err(HostOrStateError::State(error))) if is_deposed(&error) => return,
            Ok(Err(HostOrStateError::State(error))) => Some(format!("{error:#}")),
            Ok(Err(HostOrStateError::Host(error))) => Some(error.to_string()),
            Err(_) => Some("a panic, told above".to_owned()),
        };
        if let Some(because) = failed {
            tracing::warn!(host = host.hostname(), "changes could not be looked for: {because}");
            poller.paused = Some(Instant::now() + interval);
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
    /// True if polling waits since the rate limit is low.
    is_low: bool,
    budget: LookBudget,
}

/// Looks at one repository.
struct RepoTurn {
    next: Instant,
    /// Interval between the last look and the next one.
    every: Duration,
    /// Time of the last change or command.
    active: Instant,
    /// Time of the last look, by the host's clock.
    looked: Option<Timestamp>,
    /// Consecutive looks that could not list its pull requests.
    failures: u32,
    /// Permanent error that was logged last.
    error: Option<String>,
    pulls: HashMap<PullId, PullTurn>,
}

/// Looks at one pull request.
struct PullTurn {
    active: Instant,
    /// Time at which a look saw a change.
    changed: Option<Instant>,
    /// Time of the last list of its comments.
    listed: Option<Instant>,
    /// True if the list of open pull requests has it.
    is_listed: bool,
    /// Time of the last look that failed, or at which the host was asked whether it is closed.
    asked: Option<Instant>,
    /// Consecutive looks that failed.
    failures: u32,
}

impl Poller {
    /// Returns the time until the next look.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let next = self.repos.values().map(|turn| turn.next).min().unwrap_or(now + self.interval);
        let next = self.paused.map_or(next, |paused| paused.max(next));
        next.saturating_duration_since(now).min(self.interval)
    }

    /// Looks at one repository, if one is due.
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
        let Some(repo) = self.most_overdue(now) else { return Ok(()) };
        if !round.may_ask() {
            if !std::mem::replace(&mut self.is_low, true) {
                tracing::warn!(host = round.host.hostname(), "the rate limit is low: polling waits until it is higher");
            }
            self.paused = Some(now + LOW);
            return Ok(());
        }
        self.is_low = false;
        let wait = self.budget.wait();
        if !wait.is_zero() {
            self.paused = Some(now + wait);
            return Ok(());
        }
        let before = round.host.requests();
        let looked = self.look_at(round, &repo).await;
        self.budget.spend(round.host.requests().saturating_sub(before));
        looked
    }

    /// Returns the repository whose look is late by the largest part of its interval: active ones do not wait for all others, nor these for
    /// them.
    fn most_overdue(&self, now: Instant) -> Option<RepoId> {
        let late = |turn: &RepoTurn| (now - turn.next).as_secs_f64() / turn.every.as_secs_f64();
        let due = self.repos.iter().filter(|(_, turn)| turn.next <= now);
        let most = due.max_by(|(_, one), (_, other)| late(one).total_cmp(&late(other)));
        most.map(|(repo, _)| repo.clone())
    }

    /// Makes no look until the host's limit permits requests again.
    fn pause(&mut self, round: &Round<'_>, wait: Duration, what: &str) {
        tracing::warn!(host = round.host.hostname(), "{what}: too many requests; the next look is in {wait:?}");
        self.paused = Some(Instant::now() + wait);
    }

    /// Looks at one repository. An error of the host delays the next look there, and no other repository.
    async fn look_at(&mut self, round: &Round<'_>, repo: &RepoId) -> Result<(), HostOrStateError> {
        let Some(turn) = self.repos.get_mut(repo) else { return Ok(()) };
        let failures = turn.failures;
        // Stands if the look panics.
        turn.failures = failures.saturating_add(1);
        turn.schedule(self.interval);
        match turn.look(round, repo, self.interval).await {
            Ok(()) => {
                (turn.failures, turn.error) = (0, None);
                round.inner.last_looks.note(round.host.hostname());
            }
            Err(HostOrStateError::Host(HostError::RateLimited { wait, what })) => {
                turn.failures = failures;
                turn.next = Instant::now() + wait;
                self.pause(round, wait, &what);
                return Ok(());
            }
            Err(HostOrStateError::Host(error)) if error.is_transient() => {
                tracing::warn!(%repo, "changes there are looked for later: {error}");
            }
            Err(HostOrStateError::Host(error)) => turn.unreadable(round, repo, &error).await?,
            Err(error) => {
                turn.failures = failures;
                return Err(error);
            }
        }
        if round.inner.actors.busy_in(repo) {
            turn.active = Instant::now();
        }
        turn.schedule(self.interval);
        Ok(())
    }
}

impl RepoTurn {
    fn new(interval: Duration) -> RepoTurn {
        let now = Instant::now();
        let (looked, error, pulls) = Default::default();
        RepoTurn { next: now, every: interval, active: now, looked, failures: 0, error, pulls }
    }

    /// Sets the time of the next look.
    fn schedule(&mut self, interval: Duration) {
        self.every = pace::interval(interval, self.active.elapsed(), self.failures);
        self.next = Instant::now() + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn neither_active_nor_quiet_repositories_wait_for_all_others() {
        let interval = Duration::from_secs(15);
        let repo = |name: String| RepoId { host: "h".into(), owner: "acme".into(), name };
        let quiet = (0..300).map(|number| (repo(format!("quiet{number}")), RepoTurn::new(Duration::from_secs(120))));
        let active = (repo("active".to_owned()), RepoTurn::new(interval));
        let (listed, paused) = Default::default();
        let repos = quiet.chain([active]).collect();
        let mut poller = Poller { interval, repos, listed, paused, is_low: false, budget: LookBudget::new(None) };
        let mut looks: BTreeMap<RepoId, usize> = BTreeMap::new();
        for _ in 0..1000 {
            // Each look takes a second, so that all of them are late.
            let next = poller.most_overdue(Instant::now()).unwrap();
            let turn = poller.repos.get_mut(&next).unwrap();
            turn.next = Instant::now() + turn.every;
            *looks.entry(next).or_default() += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(looks[&repo("active".to_owned())] >= 20, "{looks:?}");
        assert!(looks.len() == 301 && looks.values().all(|looks| *looks >= 2), "{looks:?}");
    }
}
