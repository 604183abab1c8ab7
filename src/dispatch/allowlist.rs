//! `--repo-allowlist`: the repositories that are served.

use super::decide::{Decision, NOT_ALLOWLISTED};
use super::inner::Inner;
use crate::domain::reply::Message;
use crate::domain::{PullId, RepoId};

/// Rules such as `github.com/acme/*`, `*`, `!github.com/acme/secret`. Case is ignored; `*` stands for any characters, slashes too.
/// A repository is allowed when a rule matches and no `!` rule does.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    allow: Vec<String>,
    deny: Vec<String>,
    /// Rules without `*` and `!`, as they are written.
    names: Vec<String>,
}

impl Allowlist {
    /// Parses the setting's rules.
    pub fn new(rules: &[String]) -> Allowlist {
        let mut list = Allowlist::default();
        for rule in rules {
            if !rule.contains(['*', '!']) {
                list.names.push(rule.trim().to_owned());
            }
            let rule = rule.trim().to_lowercase();
            match rule.strip_prefix('!') {
                Some(denied) => list.deny.push(denied.trim().to_owned()),
                None => list.allow.push(rule),
            }
        }
        list
    }

    /// Returns the repositories that rules name whole.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns true if a rule may allow repositories of a host that no rule names whole.
    pub(super) fn has_patterns(&self, host: &str) -> bool {
        let is_of_host = |rule: &String| {
            let of_host = rule.split_once('/').map_or(rule.as_str(), |(of_host, _)| of_host);
            rule.contains('*') && matches(of_host, &host.to_lowercase())
        };
        self.allow.iter().any(is_of_host)
    }

    /// Returns true if a rule with `!` excludes a repository that another rule lists.
    pub fn excludes(&self, repo: &RepoId) -> bool {
        let id = repo.to_string().to_lowercase();
        let hit = |rule: &String| matches(rule, &id);
        self.allow.iter().any(hit) && self.deny.iter().any(hit)
    }

    /// Returns true if the repository is served.
    pub fn allows(&self, repo: &RepoId) -> bool {
        let id = repo.to_string().to_lowercase();
        let hit = |rule: &String| matches(rule, &id);
        self.allow.iter().any(hit) && !self.deny.iter().any(hit)
    }
}

/// Returns true if `text` matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Inner {
    /// Decides on an event of a repository that is not served.
    pub(super) fn not_allowlisted(&self, pull: &PullId, reply: Option<Message>) -> Decision {
        let tells = self.tells_not_allowlisted(pull);
        reply.filter(|_| tells).map_or(Decision::Ignore(NOT_ALLOWLISTED), Decision::Reply)
    }

    /// Returns the reply to a command of a repository that was taken off the allowlist while the command waited; absent if such replies are
    /// silenced.
    pub(super) fn removed_reply(&self, pull: &PullId) -> Option<Message> {
        self.tells_not_allowlisted(pull).then_some(Message::NotAllowlisted)
    }

    /// Returns true if people are told that a repository is not served; the log is told too. An organization's webhook delivers for all of
    /// its repositories, so that is no error and gets no reply. By default only a repository that a `!` rule excludes gets one;
    /// `silence_allowlist_errors` overrides that.
    fn tells_not_allowlisted(&self, pull: &PullId) -> bool {
        let is_silent = self.ctx.settings.silence_allowlist_errors.unwrap_or(!self.allowlist.excludes(&pull.repo));
        if !is_silent {
            tracing::warn!(%pull, "{NOT_ALLOWLISTED}");
        }
        !is_silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rules: &str, id: &str) -> bool {
        let mut parts = id.splitn(3, '/').map(str::to_owned);
        let mut next = || parts.next().unwrap();
        let repo = RepoId { host: next(), owner: next(), name: next() };
        Allowlist::new(&rules.split(',').map(str::to_owned).collect::<Vec<_>>()).allows(&repo)
    }

    #[test]
    fn repositories_are_listed_by_the_host_only_where_a_pattern_may_mean_more() {
        let list = |rules: &[&str]| Allowlist::new(&rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>());
        let named = list(&["github.com/Acme/Infra", "!github.com/acme/secret", "gitlab.com/acme/*"]);
        assert_eq!(named.names().collect::<Vec<_>>(), ["github.com/Acme/Infra"]);
        assert!(!named.has_patterns("github.com") && named.has_patterns("GitLab.com"));
        assert!(list(&["*"]).has_patterns("github.com") && list(&["git*/acme/infra"]).has_patterns("github.com"));
    }

    #[test]
    fn rules_match_whole_ids_and_exclusions_win() {
        for (rules, id, want) in [
            ("*", "github.com/a/b", true),
            ("github.com/a/b", "github.com/a/b", true),
            ("github.com/a/b", "github.com/a/bc", false),
            ("GitHub.com/A/*", "github.com/a/b", true),
            ("github.com/a/*", "github.com/ab/c", false),
            ("github.com/*/infra", "github.com/a/infra", true),
            ("github.com/*/infra", "evil.com/a/infra", false),
            ("github.com/*-infra", "github.com/a/x-infra", true),
            ("*,!github.com/a/secret", "github.com/a/secret", false),
            ("*, !github.com/a/s*", "github.com/a/b", true),
            ("!github.com/a/b", "github.com/a/c", false),
        ] {
            assert_eq!(allows(rules, id), want, "{rules} {id}");
        }
    }
}
