//! `people` of `repos.yaml`: logins of people whom the pages know by another name.
//!
//! ```yaml
//! people:
//!   - {person: ada@example.com, login: github.com/ada}
//! ```

use super::errors::all;
use super::raw::LocatedText;
use super::yaml::{error_at, quoted};
use super::{ConfigError, ConfigErrors};
use crate::domain::Login;
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Most entries.
pub(super) const MAX_PEOPLE: usize = 10_000;
/// Longest name of a person, and longest login, in bytes.
const MAX_NAME: usize = 320;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPerson {
    person: Option<LocatedText>,
    login: Option<LocatedText>,
}

/// Logins of people, by name on the pages and host, both in lower case.
#[derive(Debug, Clone, Default)]
pub struct People {
    logins: BTreeMap<(String, String), Login>,
    /// Each host with the place of its first entry, for messages.
    hosts: BTreeMap<String, ConfigError>,
}

impl People {
    /// Checks the entries.
    pub(super) fn from_raw(list: &[Spanned<RawPerson>], file: &str) -> Result<People, ConfigErrors> {
        if let Some(last) = list.last().filter(|_| list.len() > MAX_PEOPLE) {
            return Err(error_at(file, last, format!("people: more than {MAX_PEOPLE} entries")).into());
        }
        let mut people = People::default();
        all(list.iter().map(|raw| people.add(raw, file)))?;
        Ok(people)
    }

    fn add(&mut self, raw: &Spanned<RawPerson>, file: &str) -> Result<(), ConfigError> {
        let (Some(person), Some(login)) = (&raw.value.person, &raw.value.login) else {
            let message = "people: an entry needs `person` and `login`, such as `{person: ada@example.com, login: git.example.com/ada}`";
            return Err(error_at(file, raw, message));
        };
        let is_name = |name: &str| {
            !name.is_empty() && name.len() <= MAX_NAME && !name.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        if !is_name(&person.value) {
            let message = format!("people: `{}` is no name of a person on the pages", quoted(&person.value));
            return Err(error_at(file, person, message));
        }
        let parts = login.value.split_once('/').filter(|(host, login)| is_name(host) && is_name(login));
        let Some((host, account)) = parts.filter(|(_, login)| !login.contains('/')) else {
            let message = format!("people: `{}` is no login of the form `host/login`", quoted(&login.value));
            return Err(error_at(file, login, message));
        };
        let (name, host) = (person.value.to_lowercase(), host.to_lowercase());
        let unknown = format!("people: no host of this server is called `{}`", quoted(&host));
        self.hosts.entry(host.clone()).or_insert_with(|| error_at(file, login, unknown));
        if let Some(known) = self.logins.insert((name, host), Login::new(account)) {
            let message = format!(
                "people: `{}` has the login `{}` on this host already",
                quoted(&person.value),
                quoted(known.as_str())
            );
            return Err(error_at(file, person, message));
        }
        Ok(())
    }

    /// Returns the login of a person on a host; case of both names is ignored. Who signed in with an account of the host is `host/login`
    /// on the pages, and has that login. No email is taken for such a name.
    pub fn login_of<'a>(&'a self, person: &'a str, host: &str) -> Option<&'a str> {
        let listed = self.logins.get(&(person.to_lowercase(), host.to_lowercase()));
        let account = person
            .split_once('/')
            .filter(|(of, login)| of.eq_ignore_ascii_case(host) && !login.is_empty() && !login.contains(['/', '@']));
        listed.map(Login::as_str).or(account.map(|(_, login)| login))
    }

    /// Checks that each entry is about one of these hosts.
    ///
    /// # Errors
    ///
    /// The place of an entry about another host.
    pub fn check_hosts(&self, known: &[&str]) -> Result<(), ConfigError> {
        let is_known = |host: &str| known.iter().any(|one| one.eq_ignore_ascii_case(host));
        match self.hosts.iter().find(|(host, _)| !is_known(host)) {
            Some((_, problem)) => Err(ConfigError(format!("{problem}; there are: {}", known.join(", ")))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::global::GlobalConfig;

    #[test]
    fn a_person_has_one_login_on_each_host() {
        let text = "people:\n- {person: Ada@Example.com, login: GitHub.com/Ada}\n- {person: ada@example.com, login: dev.azure.com/ada@example.com}\n";
        let people = GlobalConfig::parse(text, "repos.yaml").unwrap().people;
        let login = |person, host| people.login_of(person, host);
        assert_eq!(login("ada@example.com", "github.com"), Some("Ada"));
        assert_eq!(login("ADA@example.com", "dev.azure.com"), Some("ada@example.com"));
        assert_eq!(login("bob@example.com", "github.com"), None);
        assert_eq!(login("github.com/bob", "GitHub.com"), Some("bob"), "signed in there");
        for name in ["github.com/bob", "dev.azure.com/boss@example.com", "dev.azure.com/", "dev.azure.com/a/b"] {
            assert_eq!(login(name, "dev.azure.com"), None, "{name}");
        }
        assert!(people.check_hosts(&["github.com", "dev.azure.com"]).is_ok());
        let unknown = people.check_hosts(&["github.com"]).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "repos.yaml:3:36: people: no host of this server is called `dev.azure.com`; there are: github.com"
        );
    }

    #[test]
    fn what_names_nobody_is_refused_with_its_place() {
        for (entry, said) in [
            ("{person: ada@example.com}", "repos.yaml:2:3: people: an entry needs `person` and `login`"),
            ("{person: '', login: github.com/ada}", "repos.yaml:2:12: people: `` is no name"),
            ("{person: 'a b', login: github.com/ada}", "is no name of a person"),
            ("{person: a, login: ada}", "repos.yaml:2:22: people: `ada` is no login of the form `host/login`"),
            ("{person: a, login: github.com/acme/ada}", "is no login of the form"),
            ("{person: a, login: github.com/}", "is no login of the form"),
            ("{person: a, login: github.com/x, team: y}", "team"),
            (
                "{person: a, login: github.com/ada}\n- {person: A, login: GitHub.com/bob}",
                "repos.yaml:3:12: people: `A` has the login `ada` on this host already",
            ),
        ] {
            let error = GlobalConfig::parse(&format!("people:\n- {entry}\n"), "repos.yaml").unwrap_err().to_string();
            assert!(error.contains(said), "{entry}: {error}");
        }
    }
}
