//! Repositories that are served, as the doctor of a host needs them.

use crate::app::doctor::report::Findings;
use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::vcs::{HostError, RepoAccess};

/// Maximum number of names in one line.
const SHOWN: usize = 5;

/// Returns the repositories on a host that rules name in full, and those of `seen` that rules allow, each once.
pub(super) fn wanted(settings: &Settings, hostname: &str, seen: Vec<RepoAccess>) -> Vec<RepoId> {
    let rules = settings.repo_allowlist.iter().map(|rule| rule.trim()).filter(|rule| !rule.contains(['*', '!']));
    let named = rules.filter_map(RepoId::of_whole_name).filter(|repo| repo.host.eq_ignore_ascii_case(hostname));
    let mut wanted: Vec<RepoId> = named.collect();
    let allowlist = Allowlist::new(&settings.repo_allowlist);
    let seen = seen.into_iter().filter(|access| !access.archived && allowlist.allows(&access.repo));
    for repo in seen.map(|access| access.repo) {
        if !wanted.iter().any(|known| known.to_string().eq_ignore_ascii_case(&repo.to_string())) {
            wanted.push(repo);
        }
    }
    wanted
}

/// How a doctor reads served repositories.
pub(super) struct RepositoryReader<'a> {
    /// Subject of its findings.
    pub(super) subject: &'static str,
    /// `account` or `token`, which should see them.
    pub(super) who: &'static str,
    /// Remedy for a repository that it does not see.
    pub(super) invite: &'a str,
    /// Maximum number of repositories: each is a request.
    pub(super) most: usize,
}

impl RepositoryReader<'_> {
    /// Reads the first repositories one by one, and reports those that cannot be read and the number of the others. Returns the answers.
    pub(super) async fn read<A>(
        &self,
        repos: &[RepoId],
        findings: &mut Findings,
        ask: impl AsyncFn(&RepoId) -> Result<A, HostError>,
    ) -> Vec<(RepoId, A)> {
        let mut answers = Vec::new();
        for repo in repos.iter().take(self.most) {
            match ask(repo).await {
                Ok(answer) => answers.push((repo.clone(), answer)),
                Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Rejected { .. })) => {
                    let text = format!("{} is served, and the {} does not see it: {error}", repo.full_name(), self.who);
                    findings.fault(self.subject, text, self.invite);
                }
                Err(error) => findings.unknown(self.subject, error.to_string(), "run the doctor again"),
            }
        }
        let left_out = repos.len().saturating_sub(self.most);
        if left_out > 0 {
            findings.unknown(self.subject, format!("{left_out} more repositories were not looked at"), "");
        }
        answers
    }
}

/// Returns the first names of a list in words.
pub(super) fn names(list: &[String]) -> String {
    let more = list.len().saturating_sub(SHOWN);
    let shown = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    shown + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
