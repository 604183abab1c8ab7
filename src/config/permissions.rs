//! Who may use which command where: `allowed_users` and `allowed_teams` of the configuration files, and team allowlists of settings.
//! Pure: memberships of teams are given.
//!
//! ```text
//! WHO[:COMMAND[:DIRECTORY[:WORKSPACE]]]
//! ```
//!
//! A part that is absent or `*` means any. A project's name is no part of it: pull requests choose names.

use super::paths::Glob;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Most rules of one list.
const MAX_RULES: usize = 1000;
/// Most that a refusal names of those who may.
const MAX_NAMED: usize = 10;
/// Commands, by their words in rules.
const COMMANDS: [(&str, CommandName); 12] = [
    ("plan", CommandName::Plan),
    ("apply", CommandName::Apply),
    ("import", CommandName::Import),
    ("state", CommandName::StateRm),
    ("state_rm", CommandName::StateRm),
    ("version", CommandName::Version),
    ("unlock", CommandName::Unlock),
    ("force-unlock", CommandName::ForceUnlock),
    ("force_unlock", CommandName::ForceUnlock),
    ("cancel", CommandName::Cancel),
    ("approve_policies", CommandName::ApprovePolicies),
    ("policy_check", CommandName::PolicyCheck),
];

/// The rules of one place, as they are written there. What one of them allows is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// `allowed_users`: logins; on pages, email addresses and names of users.
    pub users: Vec<String>,
    /// `allowed_teams`: `team` of the repository's owner, or `owner/team`.
    pub teams: Vec<String>,
}

/// All lists that hold for a project: each of them has to allow.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    lists: Vec<RuleList>,
}

#[derive(Debug, Clone)]
struct RuleList {
    /// Where it is written, for people.
    place: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    who: Grantee,
    command: Option<CommandName>,
    dir: Option<Glob>,
    workspace: Option<Glob>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Grantee {
    Anyone,
    User(String),
    Team(String),
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    /// With this command.
    pub command: CommandName,
    /// On this project; absent: on any that there may be.
    pub project: Option<&'a ProjectId>,
}

/// Whether somebody may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permitted {
    /// It is allowed.
    Allowed,
    /// It depends on whether the person is in this team.
    Ask(String),
    /// It is not.
    Refused {
        /// Where the rules are that allow it to others only.
        place: String,
        /// Who may, in words; nobody where it is empty.
        who: Vec<String>,
    },
}

/// Reads one rule of `allowed_users` or `allowed_teams`; the error is for people. A project's own rules have no place: `with_place` is
/// false.
pub fn check(text: &str, with_place: bool) -> Result<(), String> {
    parse(text, false).and_then(|rule| match with_place || (rule.dir.is_none() && rule.workspace.is_none()) {
        true => Ok(()),
        false => Err("a project's own rule is `WHO` or `WHO:COMMAND`: it holds for the project that has it".to_owned()),
    })
}

/// Whether there are too many rules.
pub fn too_many(rules: usize) -> Option<String> {
    (rules > MAX_RULES).then(|| format!("more than {MAX_RULES} rules; write patterns for directories, or use teams"))
}

fn parse(text: &str, of_team: bool) -> Result<Rule, String> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    if parts.len() > 4 || parts.iter().any(|part| part.is_empty()) {
        return Err(
            "a rule is `WHO`, `WHO:COMMAND`, `WHO:COMMAND:DIRECTORY` or `WHO:COMMAND:DIRECTORY:WORKSPACE`".to_owned()
        );
    }
    let given = |at: usize| parts.get(at).copied().filter(|part| *part != "*");
    let who = match given(0) {
        None => Grantee::Anyone,
        Some(name) if name.contains(char::is_whitespace) => return Err("a name has no white space in it".to_owned()),
        Some(name) if of_team => Grantee::Team(name.to_lowercase()),
        Some(name) => Grantee::User(name.to_lowercase()),
    };
    let command = given(1).map(|word| {
        let found = COMMANDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
        let known: Vec<&str> = COMMANDS.iter().map(|(word, _)| *word).collect();
        found.map(|(_, command)| *command).ok_or_else(|| format!("no such command; there are: {}, *", known.join(", ")))
    });
    let glob = |at: usize| given(at).map(Glob::new).transpose();
    Ok(Rule { who, command: command.transpose()?, dir: glob(2)?, workspace: glob(3)? })
}

impl Rule {
    fn is_about(&self, act: Act<'_>) -> bool {
        let fits = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        self.command.is_none_or(|command| command == act.command)
            && act
                .project
                .is_none_or(|project| fits(&self.dir, &project.dir) && fits(&self.workspace, &project.workspace))
    }
}

impl Grantee {
    fn words(&self) -> String {
        match self {
            Grantee::Anyone => "everybody".to_owned(),
            Grantee::User(name) => name.clone(),
            Grantee::Team(name) => format!("team {name}"),
        }
    }
}

impl Permissions {
    /// Adds a list; `place` names it for people. A rule that cannot be read allows nothing.
    pub fn with(mut self, place: &str, allowed: &Allowed) -> Permissions {
        let users = allowed.users.iter().map(|text| parse(text, false));
        let teams = allowed.teams.iter().map(|text| parse(text, true));
        let rules = users.chain(teams).filter_map(Result::ok).collect();
        self.lists.push(RuleList { place: place.to_owned(), rules });
        self
    }

    /// Whether everybody may do everything.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether this person may. `teams`: whether the person is in a team, by its name in lower case, as far as that is known.
    pub fn decide(&self, person: &str, act: Act<'_>, teams: &HashMap<String, bool>) -> Permitted {
        let person = person.to_lowercase();
        for list in &self.lists {
            let about = || list.rules.iter().filter(|rule| rule.is_about(act)).map(|rule| &rule.who);
            let is_named = |who: &Grantee| match who {
                Grantee::Anyone => true,
                Grantee::User(name) => !person.is_empty() && *name == person,
                Grantee::Team(team) => teams.get(team).copied().unwrap_or_default(),
            };
            if about().any(is_named) {
                continue;
            }
            let unknown = about().find_map(|who| match who {
                Grantee::Team(team) if !person.is_empty() && !teams.contains_key(team) => Some(team.clone()),
                _ => None,
            });
            return match unknown {
                Some(team) => Permitted::Ask(team),
                None => Permitted::Refused { place: list.place.clone(), who: named(about()) },
            };
        }
        Permitted::Allowed
    }
}

/// Those who may, each once, not too many.
fn named<'a>(who: impl Iterator<Item = &'a Grantee>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in who.map(Grantee::words) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > MAX_NAMED {
        let more = names.len() - MAX_NAMED;
        names.truncate(MAX_NAMED);
        names.push(format!("{more} more"));
    }
    names
}

#[cfg(test)]
mod tests;
