//! Repositories that a round of reconciliation checks, and their order.

use super::{HostOrStateError, Round};
use crate::dispatch::recorder;
use crate::domain::RepoId;
use crate::vcs::HostError;
use jiff::Timestamp;
use std::collections::BTreeSet;

impl Round<'_> {
    /// Returns the served repositories of this host: those with known open pull requests or owners. If unknown pull requests are looked
    /// for, also those that were served before or that the token lists. A new one is served from now on: pull requests opened there before
    /// are ignored.
    pub(super) async fn repos(&self) -> Result<BTreeSet<RepoId>, HostOrStateError> {
        let ctx = &self.inner.ctx;
        let read =
            ctx.store.read(|view| Ok((view.repos_of_open_pulls()?, view.repos_of_owners()?, view.served_repos()?)));
        let (mut repos, owned, served) = read.await?;
        repos.extend(owned);
        if ctx.settings.reconcile_unknown {
            repos.extend(served.iter().cloned());
            match self.host.repositories().await {
                Ok(listed) => repos.extend(listed.into_iter().filter(|one| !one.archived).map(|one| one.repo)),
                Err(error @ HostError::RateLimited { .. }) => return Err(error.into()),
                Err(error) => tracing::warn!("the repositories of our token cannot be listed: {error}"),
            }
        }
        let here = |repo: &RepoId| repo.host.eq_ignore_ascii_case(self.host.hostname());
        let repos: BTreeSet<RepoId> =
            repos.into_iter().filter(|repo| here(repo) && self.inner.allowlist.allows(repo)).collect();
        let new: Vec<RepoId> = repos.iter().filter(|repo| !served.contains(repo)).cloned().collect();
        if !new.is_empty() {
            let now = Timestamp::now();
            recorder::transaction(self.inner, move |tx| new.iter().try_for_each(|repo| tx.serve(repo, now))).await?;
        }
        Ok(repos)
    }

    /// Logs that a repository's open pull requests cannot be listed; as a warning only if some are known, since it may be deleted.
    pub(super) async fn unreadable(&self, repo: &RepoId, error: &HostError) -> Result<(), HostOrStateError> {
        let of = repo.clone();
        let known = self.inner.ctx.store.read(move |view| Ok(!view.open_pulls_of(&of)?.is_empty())).await?;
        match known {
            true => tracing::warn!(%repo, "its open pull requests cannot be listed: {error}"),
            false => tracing::debug!(%repo, "its open pull requests cannot be listed: {error}"),
        }
        Ok(())
    }
}

/// Returns all of them once, beginning with the one that follows `after`.
pub(super) fn in_turns(repos: BTreeSet<RepoId>, after: Option<&RepoId>) -> Vec<RepoId> {
    let Some(after) = after else { return repos.into_iter().collect() };
    let (first, rest): (Vec<RepoId>, Vec<RepoId>) = repos.into_iter().partition(|repo| repo > after);
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(name: &str) -> RepoId {
        RepoId { host: "github.com".into(), owner: "acme".into(), name: name.into() }
    }

    #[test]
    fn a_round_that_ended_early_is_taken_up_where_it_ended() {
        let names = |after: Option<&str>| {
            let repos: BTreeSet<RepoId> = ["c", "a", "d", "b"].map(repo).into();
            let order = in_turns(repos, after.map(repo).as_ref());
            order.into_iter().map(|repo| repo.name).collect::<String>()
        };
        assert_eq!(names(None), "abcd");
        assert_eq!(names(Some("b")), "cdab");
        // `bb` is not served any more.
        assert_eq!(names(Some("bb")), "cdab");
        assert_eq!(names(Some("d")), "abcd");
    }
}
