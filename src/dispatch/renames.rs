//! Repositories that are renamed, transferred or replaced. The host's id identifies a repository; the state under a name belongs to the id
//! that was seen under it first. A delivery may name another id, or an id under another name. Then the host is asked by id for the present
//! name, since deliveries may come late. The state follows in one transaction, before the delivery is recorded.

use super::delivery_outcome::DeliveryOutcome;
use super::inner::Inner;
use super::recorder;
use crate::domain::{RepoId, Sighting};
use crate::reply::duplicates::HostOrStateError;
use crate::vcs::{Host, HostError};
use anyhow::Result;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of asking the host for one name. The host waits about ten seconds for the answer to a delivery, which asks it at most twice.
const ASKING: Duration = Duration::from_secs(4);

/// Answer to a delivery that is older than the present name of its repository.
const FORMER_NAME: &str = "This repository is called otherwise now, so nothing is done under its former name.";

/// Result of a sighting of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The state is about the repository that has this name now.
    Settled,
    /// The repository does not have this name any more.
    Former,
    /// Work under the former name has to end first, or the host does not answer.
    Later,
}

impl Inner {
    /// Has the state follow the repository of a delivery. Returns the outcome of a delivery that is not accepted.
    pub(super) async fn turned_away(self: &Arc<Self>, sight: Option<&Sighting>) -> Option<DeliveryOutcome> {
        let sight = sight?;
        match self.settle(sight).await {
            Ok(Standing::Settled) => None,
            Ok(Standing::Former) => Some(DeliveryOutcome::Ignored(FORMER_NAME)),
            Ok(Standing::Later) => Some(DeliveryOutcome::Unrecorded),
            Err(error) => {
                let problem = "what is kept of a repository could not follow it";
                Some(DeliveryOutcome::unrecorded(&error, &sight.repo, problem))
            }
        }
    }

    /// Compares the state with a repository that was seen, and has it follow the host.
    pub(super) async fn settle(self: &Arc<Self>, sight: &Sighting) -> Result<Standing> {
        let seen = sight.clone();
        let known = self.ctx.store.read(move |view| view.repo_key(&seen.repo)).await?;
        if known.as_ref() == Some(&sight.key) {
            return Ok(Standing::Settled);
        }
        let _one = self.renames.lock().await;
        let seen = sight.clone();
        let read = move |view: &crate::store::View<'_>| {
            Ok((view.repo_of_key(&seen.repo.host, &seen.key)?, view.repo_key(&seen.repo)?))
        };
        let (before, other) = self.ctx.store.read(read).await?;
        let allowed = self.allowlist.allows(&sight.repo);
        match (&before, &other) {
            (Some(before), _) if *before == sight.repo => return Ok(Standing::Settled),
            (None, None) => {
                if allowed {
                    let adopted = sight.clone();
                    recorder::transaction(self, move |tx| tx.adopt_repo(&adopted)).await?;
                }
                return Ok(Standing::Settled);
            }
            _ => {}
        }
        let Ok(host) = self.ctx.hosts.for_repo(&sight.repo).cloned() else { return Ok(Standing::Later) };
        match self.follow(&*host, sight, before, other).await {
            Ok(standing) => Ok(standing),
            Err(HostOrStateError::State(error)) => Err(error),
            Err(HostOrStateError::Host(error)) => {
                tracing::warn!(repo = %sight.repo, "the host does not say what its repository is called now: {error}");
                Ok(Standing::Later)
            }
        }
    }

    /// Has the state follow the present name on the host. `before`: the name under which the id is known. `other`: another id that is known
    /// under the name.
    async fn follow(
        self: &Arc<Self>,
        host: &dyn Host,
        sight: &Sighting,
        before: Option<RepoId>,
        other: Option<String>,
    ) -> Result<Standing, HostOrStateError> {
        let allowed = self.allowlist.allows(&sight.repo);
        let now = called_now(host, &sight.repo, &sight.key).await?;
        // A repository that left may be hidden from our token.
        let has_left = now.is_none() && !allowed;
        if now.as_ref() != Some(&sight.repo) && !has_left {
            if let (Some(before), Some(now)) = (before, now)
                && before != now
                && !self.move_state(host, &before, Some(now), &sight.key).await?
            {
                return Ok(Standing::Later);
            }
            return Ok(Standing::Former);
        }
        if let Some(other) = other {
            let there = called_now(host, &sight.repo, &other).await?;
            if there.as_ref() == Some(&sight.repo) || !self.move_state(host, &sight.repo, there, &other).await? {
                return Ok(Standing::Later);
            }
        }
        match before {
            Some(before) if !self.move_state(host, &before, Some(sight.repo.clone()), &sight.key).await? => {
                return Ok(Standing::Later);
            }
            None if allowed => {
                let adopted = sight.clone();
                recorder::transaction(self, move |tx| tx.adopt_repo(&adopted)).await?;
            }
            _ => {}
        }
        Ok(Standing::Settled)
    }

    /// Moves the state of a repository to its present name. Ends it if that name is not served or there is none. Returns false if something
    /// runs under the former name.
    async fn move_state(
        self: &Arc<Self>,
        host: &dyn Host,
        before: &RepoId,
        now: Option<RepoId>,
        key: &str,
    ) -> Result<bool, HostOrStateError> {
        if self.actors.busy_in(before) || self.drift.may_run_in(before) {
            tracing::info!(repo = %before, "it has another name now; that is followed when what runs under the former one has ended");
            return Ok(false);
        }
        let (from, key) = (before.clone(), key.to_owned());
        let pulls = self.ctx.store.read(move |view| view.pulls_of_repo(&from)).await?;
        let from = before.clone();
        match now.clone().filter(|now| self.allowlist.allows(now)) {
            Some(now) => {
                let addresses = [host.clone_url(before), host.clone_url(&now)];
                let sight = Sighting { repo: now.clone(), key };
                recorder::transaction(self, move |tx| tx.rename_repo(&from, &sight, &addresses)).await?;
                tracing::warn!(%before, %now, "the repository was renamed or transferred: its locks, owners and all else are kept under its present name");
                let (to, woken) = (now.clone(), self.ctx.store.read(|view| view.pulls_with_effects()).await?);
                for pull in woken.iter().filter(|pull| pull.repo == to) {
                    self.ctx.outbox.wake(pull);
                    self.ctx.outbox.wake_merge(pull);
                }
            }
            None => {
                let because = match &now {
                    Some(now) => format!(
                        "{before} is called {now} now, which is not in --repo-allowlist; list it there to have it served anew"
                    ),
                    None => format!(
                        "the host has no repository with its id any more, or our token may not see it ({before})"
                    ),
                };
                tracing::warn!(repo = %before, id = key, "all locks, owners, plans and posts of the repository are ended: {because}");
                recorder::transaction(self, move |tx| tx.end_repo(&from, &key, &because)).await?;
            }
        }
        for pull in pulls {
            if let Err(error) = self.ctx.checkouts.remove_pull(&pull).await {
                tracing::warn!(%pull, "its working trees could not be removed: {error:#}");
            }
        }
        Ok(true)
    }

    /// Checks if a repository that could not be read under its name has another one now, and has the state follow it.
    pub(super) async fn look_for(self: &Arc<Self>, host: &dyn Host, repo: &RepoId) -> Result<()> {
        let name = repo.clone();
        let Some(key) = self.ctx.store.read(move |view| view.repo_key(&name)).await? else { return Ok(()) };
        match called_now(host, repo, &key).await {
            Ok(Some(now)) if now != *repo => self.settle(&Sighting { repo: now, key }).await.map(drop),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(%repo, "the host does not say what it is called now: {error}");
                Ok(())
            }
        }
    }

    /// Fails if the host's last answer under a name is about another repository than the state.
    pub(super) async fn check_told(&self, host: &dyn Host, repo: &RepoId) -> Result<(), HostError> {
        let Some(told) = host.told_key(repo) else { return Ok(()) };
        let (name, key) = (repo.clone(), told);
        let known = self.ctx.store.read(move |view| {
            let other = view.repo_key(&name)?.is_some_and(|known| known != key);
            let elsewhere = view.repo_of_key(&name.host, &key)?.filter(|known| *known != name);
            Ok((other, elsewhere))
        });
        let what = repo.to_string();
        match known.await {
            Ok((false, None)) => Ok(()),
            Ok((_, Some(before))) => Err(HostError::Moved { what, to: format!("which is still known as {before}") }),
            Ok((true, None)) => Err(HostError::Moved { what, to: "another one that has its name now".to_owned() }),
            Err(error) => Err(HostError::Unavailable { what, message: format!("{error:#}") }),
        }
    }
}

/// Returns the present name of a repository; fails if the host does not answer in time.
async fn called_now(host: &dyn Host, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
    tokio::time::timeout(ASKING, host.present_name(near, key)).await.unwrap_or_else(|_| {
        Err(HostError::Unavailable { what: near.to_string(), message: format!("no answer within {ASKING:?}") })
    })
}
