//! Which repositories a round of reconciliation looks at, and in which order.

use super::{HostOrStateError, Round};
use crate::dispatch::recorder;
use crate::domain::RepoId;
use crate::vcs::HostError;
use jiff::Timestamp;
use std::collections::BTreeSet;

impl Round<'_> {
    /// All of this host that are served: those with open pull requests or owners that are known; and, where unknown ones are looked for, those that were served
    /// before or that the token lists. A new one is served from now on: what was opened there before is old news.
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

    /// Its open pull requests cannot be listed. That is worth a word where some are known: a repository may also be gone for good.
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

/// All of them once, beginning with the one that follows `after`.
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
        // It is gone meanwhile.
        assert_eq!(names(Some("bb")), "cdab");
        assert_eq!(names(Some("d")), "abcd");
    }
}
