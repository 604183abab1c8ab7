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
    /// Returns the repositories to ask for, and reports the number of the others.
    pub(super) fn first<'r>(&self, repos: &'r [RepoId], findings: &mut Findings) -> &'r [RepoId] {
        let left_out = repos.len().saturating_sub(self.most);
        if left_out > 0 {
            findings.unknown(self.subject, format!("{left_out} more repositories were not looked at"), "");
        }
        &repos[..repos.len() - left_out]
    }

    /// Returns the host's answer about a repository, or reports that it cannot be read.
    pub(super) fn read<A>(&self, repo: &RepoId, told: Result<A, HostError>, findings: &mut Findings) -> Option<A> {
        match told {
            Ok(answer) => return Some(answer),
            Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Rejected { .. })) => {
                let text = format!("{} is served, and the {} does not see it: {error}", repo.full_name(), self.who);
                findings.fault(self.subject, text, self.invite);
            }
            Err(error) => findings.unknown(self.subject, error.to_string(), "run the doctor again"),
        }
        None
    }
}

/// Returns the first names of a list in words.
pub(super) fn names(list: &[String]) -> String {
    let more = list.len().saturating_sub(SHOWN);
    let shown = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    shown + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
