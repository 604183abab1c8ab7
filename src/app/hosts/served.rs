//! Repositories that are served, as the doctor of a host needs them.

use crate::dispatch::Allowlist;
use crate::domain::RepoId;
use crate::settings::Settings;
use crate::vcs::RepoAccess;

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

/// Returns the first names of a list in words.
pub(super) fn names(list: &[String]) -> String {
    let more = list.len().saturating_sub(SHOWN);
    let shown = list.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    shown + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
