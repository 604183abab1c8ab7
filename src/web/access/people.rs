//! People who have signed in, and rules that name them: `--admins` and `--web-viewers`.

/// A person who has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// E-mail address, or `HOST/LOGIN` of an account on a VCS host; lower case. Only the former has an `@`, so neither can pass for the
    /// other.
    pub name: String,
    /// Domain of the person's organization, lower case; absent for accounts of no organization, and on VCS hosts.
    pub domain: Option<String>,
    /// Organizations and teams on a VCS host, `HOST/ORGANIZATION/*` and `HOST/ORGANIZATION/TEAM`, of those that rules name.
    pub groups: Vec<String>,
}

/// Rules that name people.
#[derive(Debug, Default)]
pub struct PersonRules(Vec<String>);

impl PersonRules {
    /// Takes rules in lower case: `ada@example.com`, `@example.com`, `example.com`, `github.com/ada`, `github.com/acme/sre`,
    /// `github.com/acme/*`. Without rules everybody is meant.
    pub fn new(rules: Vec<String>) -> PersonRules {
        PersonRules(rules)
    }

    /// Returns true if the rules name this person, or there are none. A domain is the one that the issuer names (`hd`) or answers for; the
    /// end of an email alone is not enough, since an account of no organization can have it.
    pub(in crate::web) fn allow(&self, person: &Person) -> bool {
        let is_meant = |rule: &String| match rule.split_once('@') {
            _ if rule.contains('/') => person.name == *rule || person.groups.contains(rule),
            Some(("", domain)) => person.domain.as_deref() == Some(domain),
            Some(_) => person.name == *rule,
            None => person.domain.as_ref() == Some(rule),
        };
        self.0.is_empty() || self.0.iter().any(is_meant)
    }

    /// Returns true if a rule names this person.
    pub(super) fn name(&self, person: &Person) -> bool {
        !self.0.is_empty() && self.allow(person)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(name: &str, domain: Option<&str>, groups: &[&str]) -> Person {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Person { name: name.into(), domain: domain.map(str::to_owned), groups }
    }

    fn rules(rules: &[&str]) -> PersonRules {
        PersonRules::new(rules.iter().map(|rule| (*rule).to_owned()).collect())
    }

    #[test]
    fn emails_are_exact_and_domains_are_the_accounts_own() {
        let rules = rules(&["ada@example.com", "@ops.example", "sea.example"]);
        let vectors = [
            (person("ada@example.com", None, &[]), true),
            (person("ada@example.com", Some("example.com"), &[]), true),
            (person("eve@example.com", Some("example.com"), &[]), false),
            (person("bob@ops.example", Some("ops.example"), &[]), true),
            (person("bob@ops.example", None, &[]), false),
            (person("bob@ops.example", Some("x.ops.example"), &[]), false),
            (person("cy@sea.example", Some("sea.example"), &[]), true),
            (person("sea.example", None, &[]), false),
            (person("@ops.example", None, &[]), false),
        ];
        for (person, expected) in vectors {
            assert_eq!(rules.allow(&person), expected, "{person:?}");
            assert!(PersonRules::default().allow(&person) && !PersonRules::default().name(&person));
        }
    }

    #[test]
    fn accounts_are_of_their_host_and_groups_are_whole_names() {
        let rules = rules(&["github.com/ada", "github.com/acme/sre", "github.com/sea/*"]);
        let vectors = [
            (person("github.com/ada", None, &[]), true),
            (person("github.com/adam", None, &[]), false),
            (person("git.example.com/ada", None, &[]), false),
            (person("github.com/bob", None, &["github.com/acme/sre"]), true),
            (person("github.com/bob", None, &["github.com/acme/*", "github.com/acme/sre-x"]), false),
            (person("github.com/cy", None, &["github.com/sea/*"]), true),
            // Nobody is called by a rule of a group, and an issuer's email is no account.
            (person("github.com/ada@example.com", Some("github.com"), &[]), false),
        ];
        for (person, expected) in vectors {
            assert_eq!(rules.allow(&person), expected, "{person:?}");
        }
    }
}
