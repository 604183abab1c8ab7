//! Rules of who may change state: emails and domains of `--admins`.

use super::iap::Person;

/// Rules of `--admins`.
#[derive(Debug, Default)]
pub struct Admins(Vec<String>);

impl Admins {
    /// Takes rules in lower case: `ada@example.com`, `@example.com`, `example.com`. Without rules everybody may change state.
    pub fn new(rules: Vec<String>) -> Admins {
        Admins(rules)
    }

    /// Returns true if this person may change state. A domain is the account's organisation (`hd`), which Google asserts; the ending of
    /// an email is not enough, since an account of no organisation can have it.
    pub(super) fn allow(&self, person: &Person) -> bool {
        let is_meant = |rule: &String| match rule.split_once('@') {
            Some(("", domain)) => person.domain.as_deref() == Some(domain),
            Some(_) => person.email == *rule,
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

    #[test]
    fn emails_are_exact_and_domains_are_the_accounts_own() {
        let person =
            |email: &str, domain: Option<&str>| Person { email: email.into(), domain: domain.map(str::to_owned) };
        let admins = Admins::new(["ada@example.com", "@ops.example", "sea.example"].map(str::to_owned).to_vec());
        let vectors = [
            (person("ada@example.com", None), true),
            (person("ada@example.com", Some("example.com")), true),
            (person("eve@example.com", Some("example.com")), false),
            (person("bob@ops.example", Some("ops.example")), true),
            (person("bob@ops.example", None), false),
            (person("bob@ops.example", Some("x.ops.example")), false),
            (person("cy@sea.example", Some("sea.example")), true),
            (person("sea.example", None), false),
            (person("@ops.example", None), false),
        ];
        for (person, expected) in vectors {
            assert_eq!(admins.allow(&person), expected, "{person:?}");
            assert!(Admins::default().allow(&person));
        }
    }
}
