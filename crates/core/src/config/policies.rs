//! `policies` of `repos.yaml`: the policy sets, their owners who may approve findings, and the number of approvals.

use super::raw::{LocatedText, Texts};
use super::yaml::{error_at, quoted, regex_problem};
use super::{ConfigError, ConfigErrors, errors};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

/// Most policy sets.
pub(super) const MAX_SETS: usize = 100;

/// Policy engine: built in, or conftest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyEngine {
    /// Built in: nothing has to be installed.
    #[default]
    Builtin,
    /// The program `conftest`.
    Conftest,
}

/// All policy sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policies {
    /// Version of conftest, without its `v`; any if absent.
    pub conftest_version: Option<String>,
    /// The sets, with inherited values.
    pub sets: Vec<PolicySet>,
}

/// Policies that pass or fail together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySet {
    /// Its name.
    pub name: String,
    /// File or directory, relative to the project's directory unless absolute. Not needed if steps of the workflow do the check.
    pub path: Option<String>,
    /// Owners who may approve its findings: its own and those of all sets.
    pub owners: PolicyOwners,
    /// Number of owners who have to approve.
    pub approve_count: u32,
    /// True if approvals stay valid for later plans without new findings.
    pub sticky_approvals: bool,
    /// Pattern of the items in the output, which are approved; absent if the whole output is one item.
    pub item_regex: Option<String>,
    /// True if the author of the pull request may not approve.
    pub prevent_self_approve: bool,
}

/// People and teams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOwners {
    /// Logins of the owners.
    pub users: Vec<String>,
    /// Teams of the repository's owner, or `owner/team`.
    pub teams: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicies {
    conftest_version: Option<LocatedText>,
    owners: Option<RawOwners>,
    approve_count: Option<i64>,
    sticky_policy_approvals: Option<bool>,
    policy_item_regex: Option<LocatedText>,
    policy_sets: Option<Vec<Spanned<RawPolicySet>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicySet {
    name: Option<LocatedText>,
    path: Option<LocatedText>,
    source: Option<LocatedText>,
    owners: Option<RawOwners>,
    approve_count: Option<i64>,
    sticky_policy_approvals: Option<bool>,
    policy_item_regex: Option<LocatedText>,
    prevent_self_approve: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOwners {
    users: Texts,
    teams: Texts,
}

impl Policies {
    pub(super) fn from_raw(raw: RawPolicies, file: &str, errors: &mut ConfigErrors) -> Policies {
        let version = errors.key(raw.conftest_version.as_ref().map(|text| conftest_version(text, file)));
        let shared = PolicySet {
            name: String::new(),
            path: None,
            owners: errors.take(owners(raw.owners.as_ref(), file)).unwrap_or_default(),
            approve_count: positive(raw.approve_count).unwrap_or(1),
            sticky_approvals: raw.sticky_policy_approvals.unwrap_or_default(),
            item_regex: errors.take(item_regex(raw.policy_item_regex.as_ref(), file)).flatten(),
            prevent_self_approve: false,
        };
        let mut sets: Vec<PolicySet> = Vec::new();
        for raw in raw.policy_sets.unwrap_or_default() {
            let Some(set) = errors.take(set(&raw, &shared, file)) else { continue };
            if sets.iter().any(|known| known.name == set.name) {
                let message = format!("policy_sets: there are two sets with the name `{}`", quoted(&set.name));
                errors.add(error_at(file, &raw, message));
                continue;
            }
            if sets.len() == MAX_SETS {
                errors.add(error_at(file, &raw, format!("policy_sets: more than {MAX_SETS} sets")));
                break;
            }
            sets.push(set);
        }
        Policies { conftest_version: version, sets }
    }
}

fn set(raw: &Spanned<RawPolicySet>, shared: &PolicySet, file: &str) -> Result<PolicySet, ConfigErrors> {
    let (at, raw) = (raw, &raw.value);
    let name = raw.name.as_ref().filter(|name| !name.value.trim().is_empty());
    let name = name.ok_or_else(|| error_at(file, at, "policy_sets: a set needs `name`"))?;
    if name.value.contains(|c: char| c.is_control() || c == '`') {
        return Err(error_at(file, name, "policy_sets: a name has no backticks and no control characters").into());
    }
    if let Some(source) = raw.source.as_ref().filter(|source| source.value != "local") {
        let message = format!(
            "policy_sets: source `{}` is not read: put the policies on the server, and write `source: local`",
            quoted(&source.value)
        );
        return Err(error_at(file, source, message).into());
    }
    if let Some(path) = raw.path.as_ref().filter(|path| path.value.is_empty() || path.value.starts_with('-')) {
        return Err(
            error_at(file, path, "policy_sets: `path` is a file or a directory, such as `/etc/policies`").into()
        );
    }
    let own = owners(raw.owners.as_ref(), file)?;
    let both = |shared: &[String], own: Vec<String>| {
        let mut all = shared.to_vec();
        all.extend(own.into_iter().filter(|one| !shared.contains(one)));
        all
    };
    Ok(PolicySet {
        name: name.value.clone(),
        path: raw.path.as_ref().map(|path| path.value.clone()),
        owners: PolicyOwners {
            users: both(&shared.owners.users, own.users),
            teams: both(&shared.owners.teams, own.teams),
        },
        approve_count: positive(raw.approve_count).unwrap_or(shared.approve_count),
        sticky_approvals: raw.sticky_policy_approvals.unwrap_or(shared.sticky_approvals),
        item_regex: item_regex(raw.policy_item_regex.as_ref(), file)?.or_else(|| shared.item_regex.clone()),
        prevent_self_approve: raw.prevent_self_approve.unwrap_or_default(),
    })
}

/// Returns a count; none if it is 0 or less, as in Atlantis.
fn positive(count: Option<i64>) -> Option<u32> {
    count.filter(|count| *count > 0).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

fn owners(raw: Option<&RawOwners>, file: &str) -> Result<PolicyOwners, ConfigErrors> {
    let list = |texts: &Texts, key: &str| {
        let texts = texts.iter().flatten().map(|text| {
            let name = text.value.trim().trim_start_matches('@');
            match name.is_empty() || name.contains(char::is_whitespace) || name.contains('`') {
                true => Err(error_at(file, text, format!("owners.{key}: \"{}\" is no name", quoted(&text.value)))),
                false => Ok(name.to_owned()),
            }
        });
        errors::all(texts)
    };
    let Some(raw) = raw else { return Ok(PolicyOwners::default()) };
    Ok(PolicyOwners { users: list(&raw.users, "users")?, teams: list(&raw.teams, "teams")? })
}

fn item_regex(raw: Option<&LocatedText>, file: &str) -> Result<Option<String>, ConfigError> {
    let Some(text) = raw.filter(|text| !text.value.is_empty()) else { return Ok(None) };
    match Regex::new(&text.value) {
        Ok(_) => Ok(Some(text.value.clone())),
        Err(error) => {
            let message = format!("policy_item_regex: not a valid regex: {}", regex_problem(&error));
            Err(error_at(file, text, message))
        }
    }
}

fn conftest_version(text: &LocatedText, file: &str) -> Result<String, ConfigError> {
    let version = text.value.strip_prefix('v').unwrap_or(&text.value);
    match semver::Version::parse(version) {
        Ok(_) => Ok(version.to_owned()),
        Err(_) => {
            let message = format!("conftest_version: \"{}\" is no version such as 0.66.0", quoted(&text.value));
            Err(error_at(file, text, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::global::GlobalConfig;
    use insta::assert_snapshot;

    fn error(policies: &str) -> String {
        GlobalConfig::parse(&format!("policies:\n{policies}"), "repos.yaml").unwrap_err().to_string()
    }

    #[test]
    fn sets_inherit_what_is_said_for_all() {
        let text = "policies:\n  owners: {users: [Ann], teams: [sre]}\n  approve_count: 2\n  sticky_policy_approvals: true\n  \
                    conftest_version: v0.66.0\n  policy_item_regex: 'FAIL.*'\n  policy_sets:\n  - {name: a, path: p}\n  - name: b\n    \
                    source: local\n    approve_count: 3\n    sticky_policy_approvals: false\n    owners: {users: ['@bob', Ann]}\n    \
                    prevent_self_approve: true\n";
        let policies = GlobalConfig::parse(text, "repos.yaml").unwrap().policies;
        assert_eq!(policies.conftest_version.as_deref(), Some("0.66.0"));
        let [a, b] = policies.sets.as_slice() else { panic!("{policies:?}") };
        assert_eq!((a.approve_count, a.sticky_approvals, a.prevent_self_approve), (2, true, false));
        assert_eq!((a.owners.users.join(" "), a.owners.teams.join(" ")), ("Ann".into(), "sre".into()));
        assert_eq!((b.approve_count, b.sticky_approvals, b.prevent_self_approve), (3, false, true));
        assert_eq!((b.owners.users.join(" "), b.path.is_none()), ("Ann bob".into(), true));
        assert_eq!(b.item_regex.as_deref(), Some("FAIL.*"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert_snapshot!(error("  policy_sets:\n  - path: p"), @"repos.yaml:3:5: policy_sets: a set needs `name`");
        assert_snapshot!(error("  policy_sets:\n  - {name: a}\n  - {name: a}"), @"repos.yaml:4:5: policy_sets: there are two sets with the name `a`");
        assert_snapshot!(error("  policy_sets:\n  - {name: a, source: github}"), @"repos.yaml:3:23: policy_sets: source `github` is not read: put the policies on the server, and write `source: local`");
        assert_snapshot!(error("  policy_sets:\n  - {name: a, path: --update}"), @"repos.yaml:3:21: policy_sets: `path` is a file or a directory, such as `/etc/policies`");
        assert!(
            error("  policy_item_regex: '['").starts_with("repos.yaml:2:22: policy_item_regex: not a valid regex: ")
        );
        assert_snapshot!(error("  conftest_version: newest"), @"repos.yaml:2:21: conftest_version: \"newest\" is no version such as 0.66.0");
        assert_snapshot!(error("  owners: {users: [a b]}"), @"repos.yaml:2:20: owners.users: \"a b\" is no name");
        assert_snapshot!(error("  colour: red"), @"repos.yaml:2:3: unknown key `colour`; known here: conftest_version, owners, approve_count, sticky_policy_approvals, policy_item_regex, policy_sets");
    }
}
