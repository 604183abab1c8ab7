//! Repositories that are asked: those that the allowlist names, and those that a pattern of it means and that the token lists.

use super::{Poller, RepoTurn};
use crate::dispatch::reconcile::{HostOrStateError, Round};
use crate::domain::RepoId;
use crate::vcs::HostError;
use tokio::time::Instant;

impl Poller {
    /// Reads the list of repositories again. One that is not served any more is dropped.
    pub(super) async fn find_repos(&mut self, round: &Round<'_>) -> Result<(), HostOrStateError> {
        if let Err(error) = round.host.learn_account().await {
            tracing::warn!(host = round.host.hostname(), "the server's own account is not known: {error}");
        }
        let found = round.polled_repos().await?;
        let now = Instant::now();
        self.repos.retain(|repo, _| found.contains(repo));
        for repo in found {
            self.repos.entry(repo).or_insert_with(|| RepoTurn::new(now));
        }
        Ok(())
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
