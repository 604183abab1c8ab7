//! `automerge` and `merge_method` of `repos.yaml`: how pull requests are merged once they are applied.

use super::ConfigError;
use super::global::{GlobalConfig, RepoRules};
use super::raw::LocatedText;
use super::yaml::{error_at, quoted};
use crate::domain::automerge::HOST_MERGE_METHODS;

/// `merge_method` of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeMethod {
    /// One of [`HOST_MERGE_METHODS`].
    pub name: String,
    /// The error on hosts that do not have it, with its place.
    impossible: ConfigError,
}

/// A host of the server: its name, and the names of the ways to merge that it has.
pub type HostMethods<'a> = (&'a str, &'a [&'static str]);

/// Parses `merge_method`.
pub(super) fn method(text: &LocatedText, file: &str) -> Result<MergeMethod, ConfigError> {
    let name = text.value.as_str();
    if !HOST_MERGE_METHODS.contains(&name) {
        let known = HOST_MERGE_METHODS.join(", ");
        return Err(error_at(
            file,
            text,
            format!("merge_method: \"{}\" is not valid; there are: {known}", quoted(name)),
        ));
    }
    let impossible = error_at(file, text, format!("merge_method: `{name}` is not possible"));
    Ok(MergeMethod { name: name.to_owned(), impossible })
}

impl MergeMethod {
    /// Checks that one of these hosts has the method. Without a host there is nothing to check.
    ///
    /// # Errors
    ///
    /// The place of the key, and the methods of the hosts.
    pub fn check(&self, hosts: &[HostMethods<'_>]) -> Result<(), ConfigError> {
        if hosts.is_empty() || hosts.iter().any(|(_, methods)| methods.contains(&self.name.as_str())) {
            return Ok(());
        }
        let of_hosts: Vec<String> =
            hosts.iter().map(|(host, methods)| format!("{host} has {}", methods.join(", "))).collect();
        Err(ConfigError(format!("{}: {}", self.impossible, of_hosts.join("; "))))
    }
}

impl RepoRules {
    /// Returns true if pull requests are merged once they are applied. `repo`: the key of the repo config, which cannot turn on what
    /// `repos.yaml` turns off. `setting`: the server's setting, for a repository of which neither file says it.
    pub fn automerges(&self, repo: Option<bool>, setting: bool) -> bool {
        match self.automerge {
            Some(false) => false,
            server => repo.or(server).unwrap_or(setting),
        }
    }
}

impl GlobalConfig {
    /// Checks that each `merge_method` is possible on a host that its entry may be about.
    ///
    /// # Errors
    ///
    /// The place of the first one that is not.
    pub fn check_merge_methods(&self, hosts: &[HostMethods<'_>]) -> Result<(), ConfigError> {
        self.merge_methods().try_for_each(|(host, method)| match host {
            None => method.check(hosts),
            Some(host) => {
                let of_host: Vec<_> =
                    hosts.iter().filter(|(name, _)| name.eq_ignore_ascii_case(host)).copied().collect();
                method.check(&of_host)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;

    const HOSTS: [HostMethods<'_>; 2] =
        [("github.com", &["merge", "rebase", "squash"]), ("git.example.com", &["merge", "squash"])];

    fn global(entries: &str) -> GlobalConfig {
        GlobalConfig::parse(&format!("repos:\n{entries}\n"), "repos.yaml").unwrap()
    }

    #[test]
    fn no_repo_config_turns_on_what_the_server_turns_off() {
        let is_on = |entries: &str, repo: Option<bool>, setting: bool| {
            let repo_id = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
            global(entries).rules(&repo_id, "main").automerges(repo, setting)
        };
        let (off, on, unsaid) = (
            "- {id: /.*/, automerge: false}",
            "- {id: /.*/, automerge: false}\n- {id: github.com/acme/infra, automerge: true}",
            "- id: /.*/",
        );
        for (entries, repo, setting, expected) in [
            (off, None, true, false),
            (off, Some(true), true, false),
            (on, None, false, true),
            (on, Some(false), true, false),
            (unsaid, None, true, true),
            (unsaid, None, false, false),
            (unsaid, Some(true), false, true),
            (unsaid, Some(false), true, false),
        ] {
            assert_eq!(is_on(entries, repo, setting), expected, "{entries} {repo:?} {setting}");
        }
    }

    #[test]
    fn a_method_that_no_host_of_the_entry_has_is_refused_with_its_place() {
        let checked = |entry: &str| global(entry).check_merge_methods(&HOSTS).map_err(|error| error.to_string());
        for fine in [
            "- {id: /.*/, merge_method: rebase}",
            "- {id: git.example.com/acme/infra, merge_method: squash}",
            "- {id: other.example.com/acme/infra, merge_method: fast-forward-only}",
        ] {
            assert_eq!(checked(fine), Ok(()), "{fine}");
        }
        assert_eq!(
            checked("- {id: Git.example.com/acme/infra, merge_method: rebase}").unwrap_err(),
            "repos.yaml:2:50: merge_method: `rebase` is not possible: git.example.com has merge, squash"
        );
        assert_eq!(
            checked("- {id: /.*/, merge_method: rebase-merge}").unwrap_err(),
            "repos.yaml:2:28: merge_method: `rebase-merge` is not possible: github.com has merge, rebase, squash; \
             git.example.com has merge, squash"
        );
        let unknown = GlobalConfig::parse("repos:\n- {id: /.*/, merge_method: octopus}\n", "repos.yaml").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "repos.yaml:2:28: merge_method: \"octopus\" is not valid; there are: merge, rebase, squash, rebase-merge, \
             fast-forward-only"
        );
    }
}
