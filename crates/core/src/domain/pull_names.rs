//! Names of pull requests, as each host writes them.

use super::PullId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The mark before the number of a pull request, of each host. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PullNames {
    /// By the host's name in lower case.
    marks: Arc<BTreeMap<String, char>>,
}

impl PullNames {
    /// Takes the name and the mark of each host. If two have the same name, the first one is used.
    pub fn new<'a>(marks: impl IntoIterator<Item = (&'a str, char)>) -> PullNames {
        let mut by_host = BTreeMap::new();
        for (host, mark) in marks {
            by_host.entry(host.to_ascii_lowercase()).or_insert(mark);
        }
        PullNames { marks: Arc::new(by_host) }
    }

    /// Returns the name of a pull request, such as `#7`; with `#` for an unknown host.
    pub fn name(&self, pull: &PullId) -> String {
        if pull.is_branch() {
            return format!("a drift run of {}", pull.repo.full_name());
        }
        let mark = self.marks.get(&pull.repo.host.to_ascii_lowercase()).unwrap_or(&'#');
        format!("{mark}{}", pull.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RepoId;

    #[test]
    fn a_pull_request_has_the_mark_of_its_host() {
        let names = PullNames::new([("Git.example", '!'), ("git.example", '#')]);
        let name = |host: &str, number| {
            let repo = RepoId { host: host.to_owned(), owner: "acme".to_owned(), name: "infra".to_owned() };
            names.name(&PullId { repo, number })
        };
        assert_eq!(name("git.Example", 7), "!7");
        assert_eq!(name("other.example", 7), "#7");
        assert_eq!(name("git.example", 0), "a drift run of acme/infra");
    }
}
