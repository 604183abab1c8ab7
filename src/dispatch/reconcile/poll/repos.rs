//! Repositories that are asked: those that the allowlist names, and those that a pattern of it means and that the token lists.

use super::{Poller, RepoTurn};
use crate::dispatch::reconcile::{HostOrStateError, Round};
use crate::domain::RepoId;
use crate::vcs::HostError;

impl Poller {
    /// Reads the list of repositories again. One that is not served any more is dropped.
    pub(super) async fn find_repos(&mut self, round: &Round<'_>) -> Result<(), HostOrStateError> {
        if let Err(error) = round.host.learn_account().await {
            tracing::warn!(host = round.host.hostname(), "the server's own account is not known: {error}");
        }
        let found = round.polled_repos().await?;
        if found.len() > self.repos.len() && !self.budget.covers(found.len()) {
            let (host, repos) = (round.host.hostname(), found.len());
            tracing::warn!(
                host,
                repos,
                "the host permits too few requests for so many: name fewer in --repo-allowlist"
            );
        }
        self.repos.retain(|repo, _| found.contains(repo));
        for repo in found {
            self.repos.entry(repo).or_insert_with(|| RepoTurn::new(self.interval));
        }
        Ok(())
    }
}

impl RepoTurn {
    /// Handles the error of a repository that cannot be read until somebody mends the name or the token. It is told once if the operator has
    /// named the repository.
    pub(super) async fn unreadable(
        &mut self,
        round: &Round<'_>,
        repo: &RepoId,
        error: &HostError,
    ) -> Result<(), HostOrStateError> {
        let told = error.to_string();
        let is_named = round.inner.allowlist.names().any(|name| name.eq_ignore_ascii_case(&repo.to_string()));
        if !is_named {
            round.unreadable(repo, error).await?;
        } else if self.error.as_ref() != Some(&told) {
            tracing::warn!(%repo, "it cannot be polled; check its name in --repo-allowlist, and the token: {told}");
            self.error = Some(told);
        }
        Ok(round.inner.look_for(round.host, repo).await?)
    }
}

impl Round<'_> {
    /// Returns the repositories to ask about. Names that differ in case only are one repository: the name that the state has goes before
    /// that of the host, and that before the allowlist's.
    async fn polled_repos(&self) -> Result<Vec<RepoId>, HostOrStateError> {
        let (inner, read) =
            (self.inner, |view: &crate::store::View<'_>| Ok((view.repos_of_open_pulls()?, view.served_repos()?)));
        let (mut all, served) = inner.ctx.store.read(read).await?;
        all.extend(served);
        if inner.allowlist.has_patterns(self.host.hostname()) {
            match self.host.repositories().await {
                Ok(listed) => all.extend(listed.into_iter().filter(|one| !one.archived).map(|one| one.repo)),
                Err(error @ HostError::RateLimited { .. }) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(
                        host = self.host.hostname(),
                        "the repositories of our token cannot be listed: {error}"
                    );
                }
            }
        }
        all.extend(inner.allowlist.names().filter_map(RepoId::of_whole_name));
        let mut found: Vec<RepoId> = Vec::new();
        for repo in all {
            let is_known = found.iter().any(|one| one.is_named(&repo.owner, &repo.name));
            if repo.host.eq_ignore_ascii_case(self.host.hostname()) && inner.allowlist.allows(&repo) && !is_known {
                found.push(repo);
            }
        }
        Ok(found)
    }
}
