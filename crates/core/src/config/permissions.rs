//! Permissions to use commands on projects: `allowed_users` and `allowed_teams` of the configuration files, and team allowlists of
//! settings. Pure: the caller gives the memberships of teams.
//!
//! ```text
//! WHO[:COMMAND[:DIRECTORY[:WORKSPACE]]]
//! ```
//!
//! A part that is absent or `*` means any. A project's name is not part of it, as pull requests choose names. The right to an escape hatch
//! needs a rule with its own word; a rule for any command does not give it.

use super::paths::Glob;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Most rules of one list.
pub(super) const MAX_RULES: usize = 1000;
/// Most people and teams that a refusal names.
const MAX_NAMED: usize = 10;

/// Escape hatches: ways around a rule. Each is a right of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeHatch {
    /// `unlock #12`, of another pull request.
    UnlockOthers,
    /// `apply --force`.
    ForceApply,
    /// `apply --only`.
    OnlyApply,
    /// `freeze`.
    Freeze,
    /// `unfreeze`.
    Unfreeze,
    /// `lock`.
    Lock,
}

/// Escape hatches, by their words in rules, and as people type them.
const ESCAPE_HATCHES: [(&str, EscapeHatch, &str); 6] = [
    ("unlock-others", EscapeHatch::UnlockOthers, "unlock"),
    ("apply-force", EscapeHatch::ForceApply, "apply --force"),
    ("apply-only", EscapeHatch::OnlyApply, "apply --only"),
    ("freeze", EscapeHatch::Freeze, "freeze"),
    ("unfreeze", EscapeHatch::Unfreeze, "unfreeze"),
    ("lock", EscapeHatch::Lock, "lock"),
];

impl EscapeHatch {
    /// Returns the escape hatch that a command of this name also is.
    pub fn for_command(command: CommandName) -> Option<EscapeHatch> {
        match command {
            CommandName::Freeze => Some(EscapeHatch::Freeze),
            CommandName::Unfreeze => Some(EscapeHatch::Unfreeze),
            CommandName::Lock => Some(EscapeHatch::Lock),
            _ => None,
        }
    }

    /// Returns its word in rules.
    pub fn word(self) -> &'static str {
        ESCAPE_HATCHES.iter().find(|(_, hatch, _)| *hatch == self).map_or("", |(word, ..)| word)
    }

    /// Returns it as people type it.
    pub fn spoken(self) -> &'static str {
        ESCAPE_HATCHES.iter().find(|(_, hatch, _)| *hatch == self).map_or("", |(_, _, spoken)| spoken)
    }
}

/// Right that a rule gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// Every command, but no escape hatch.
    Any,
    Command(CommandName),
    EscapeHatch(EscapeHatch),
}

/// Rules of one place, as they are written there. An action is allowed if one of them allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// `allowed_users`: logins; on pages, email addresses and names of users.
    pub users: Vec<String>,
    /// `allowed_teams`: `team` of the repository's owner, or `owner/team`.
    pub teams: Vec<String>,
}

/// All lists that apply to a project: each of them has to allow an action.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    lists: Vec<RuleList>,
}

#[derive(Debug, Clone)]
struct RuleList {
    /// Place of the list, for people.
    place: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    who: Grantee,
    right: Right,
    dir: Option<Glob>,
    workspace: Option<Glob>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Grantee {
    Anyone,
    User(String),
    Team(String),
}

/// Action to be decided on.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    /// Its command.
    pub command: CommandName,
    /// Its project; absent for any project.
    pub project: Option<&'a ProjectId>,
}

/// Decision on an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permitted {
    /// It is allowed.
    Allowed,
    /// It depends on the person's membership in this team.
    Ask(String),
    /// The action is refused.
    Refused {
        /// Place of the rules that only allow it to others.
        place: String,
        /// The people who may, in words; empty for none.
        who: Vec<String>,
    },
}

/// Checks one of the server's rules; the error is for people.
pub fn check(text: &str) -> Result<(), String> {
    let rule = parse(text, Grantee::User)?;
    match rule.right {
        Right::EscapeHatch(hatch @ (EscapeHatch::Freeze | EscapeHatch::Unfreeze)) if !rule.is_for_all() => {
            Err(format!(
                "`{}` is about the whole repository: write `WHO:{}`, without a directory and a workspace",
                hatch.word(),
                hatch.word()
            ))
        }
        _ => Ok(()),
    }
}

/// Checks one of a project's own rules, which name no directory, workspace or escape hatch.
pub(super) fn check_own(text: &str) -> Result<(), String> {
    let rule = parse(text, Grantee::User)?;
    match rule.right {
        _ if !rule.is_for_all() => {
            Err("a project's own rule is `WHO` or `WHO:COMMAND`: it holds for the project that has it".to_owned())
        }
        Right::EscapeHatch(hatch) => Err(format!("`{}` is given in the server's `repos.yaml` only", hatch.word())),
        Right::Any | Right::Command(_) => Ok(()),
    }
}

/// Returns an error if there are too many rules.
pub fn too_many(rules: usize) -> Option<String> {
    (rules > MAX_RULES).then(|| format!("more than {MAX_RULES} rules; write patterns for directories, or use teams"))
}

fn parse(text: &str, grantee: fn(String) -> Grantee) -> Result<Rule, String> {
    let mut parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let whole_id = match parts.as_slice() {
        [first, second, ..] if !first.is_empty() && is_uuid(second) => Some(format!("{first}:{second}")),
        _ => None,
    };
    if let Some(id) = &whole_id {
        parts.splice(..2, [id.as_str()]);
    }
    if parts.len() > 4 || parts.iter().any(|part| part.is_empty()) {
        return Err(
            "a rule is `WHO`, `WHO:COMMAND`, `WHO:COMMAND:DIRECTORY` or `WHO:COMMAND:DIRECTORY:WORKSPACE`".to_owned()
        );
    }
    let given = |at: usize| parts.get(at).copied().filter(|part| *part != "*");
    let who = match given(0) {
        None => Grantee::Anyone,
        Some(name) if name.contains(char::is_whitespace) => return Err("a name has no white space in it".to_owned()),
        Some(name) => grantee(name.to_lowercase()),
    };
    let words = |command: &CommandName| {
        let spec = command.spec();
        let other = (spec.first_word() != spec.word).then_some(spec.word);
        std::iter::once(spec.first_word()).chain(other)
    };
    // Escape hatches have rights of their own, and everybody may ask for help.
    let commands = CommandName::ALL
        .iter()
        .filter(|name| **name != CommandName::Help && EscapeHatch::for_command(**name).is_none());
    let commands = commands.flat_map(|command| words(command).map(|word| (word, Right::Command(*command))));
    let mut known = commands.chain(ESCAPE_HATCHES.iter().map(|(word, hatch, _)| (*word, Right::EscapeHatch(*hatch))));
    let right = given(1).map(|word| {
        let found = known.clone().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, right)| right);
        let words: Vec<&str> = known.by_ref().map(|(word, _)| word).collect();
        found.ok_or_else(|| format!("no such command; there are: {}, *", words.join(", ")))
    });
    let glob = |at: usize| given(at).map(Glob::new).transpose();
    Ok(Rule { who, right: right.transpose()?.unwrap_or(Right::Any), dir: glob(2)?, workspace: glob(3)? })
}

/// Returns true for a UUID without braces, which is the second half of an account ID such as `712020:UUID` (Atlassian's). No command has
/// such a name.
fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

impl Rule {
    fn is_about(&self, act: Act<'_>) -> bool {
        let is_right = match self.right {
            Right::Any => true,
            Right::Command(command) => command == act.command,
            Right::EscapeHatch(_) => false,
        };
        is_right && self.is_for(act.project)
    }

    fn is_for_all(&self) -> bool {
        self.dir.is_none() && self.workspace.is_none()
    }

    fn is_for(&self, project: Option<&ProjectId>) -> bool {
        let fits = |glob: &Option<Glob>, text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
        project.is_none_or(|project| fits(&self.dir, &project.dir) && fits(&self.workspace, &project.workspace))
    }
}

impl Grantee {
    fn describe(&self) -> String {
        match self {
            Grantee::Anyone => "everybody".to_owned(),
            Grantee::User(name) => name.clone(),
            Grantee::Team(name) => format!("team {name}"),
        }
    }
}

impl Permissions {
    /// Adds a list; `place` names it for people. A rule that does not parse allows nothing.
    pub fn with(mut self, place: &str, allowed: &Allowed) -> Permissions {
        let users = allowed.users.iter().map(|text| parse(text, Grantee::User));
        let teams = allowed.teams.iter().map(|text| parse(text, Grantee::Team));
        let rules = users.chain(teams).filter_map(Result::ok).collect();
        self.lists.push(RuleList { place: place.to_owned(), rules });
        self
    }

    /// Returns true if there are no restrictions.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Decides on an action of this person. `teams`: the person's known memberships, by the team's name in lower case.
    pub fn decide(&self, person: &str, act: Act<'_>, teams: &HashMap<String, bool>) -> Permitted {
        decide(self.lists.iter(), person, |rule| rule.is_about(act), teams)
    }

    /// Decides by specific rules only, which name the command, the person, or a team of theirs. One list with such a rule is enough.
    /// Callers first check that all lists allow the action.
    pub fn decide_by_name(&self, person: &str, act: Act<'_>, teams: &HashMap<String, bool>) -> Permitted {
        let is_named = |rule: &Rule| rule.right != Right::Any || rule.who != Grantee::Anyone;
        let of_list = |list| decide(std::iter::once(list), person, |rule| rule.is_about(act) && is_named(rule), teams);
        let mut last = Permitted::Refused { place: String::new(), who: Vec::new() };
        for list in &self.lists {
            match of_list(list) {
                Permitted::Refused { .. } => {}
                Permitted::Allowed => return Permitted::Allowed,
                ask @ Permitted::Ask(_) => last = ask,
            }
        }
        last
    }

    /// Does the same for an escape hatch; absent if no rule names it. Lists that do not name it are ignored.
    pub fn decide_escape_hatch(
        &self,
        person: &str,
        hatch: EscapeHatch,
        project: Option<&ProjectId>,
        teams: &HashMap<String, bool>,
    ) -> Option<Permitted> {
        let right = Right::EscapeHatch(hatch);
        let naming = || self.lists.iter().filter(|list| list.rules.iter().any(|rule| rule.right == right));
        naming().next()?;
        Some(decide(naming(), person, |rule| rule.right == right && rule.is_for(project), teams))
    }
}

/// Checks that each of these lists has a rule of this kind for a person.
fn decide<'a>(
    lists: impl Iterator<Item = &'a RuleList>,
    person: &str,
    is_about: impl Fn(&Rule) -> bool,
    teams: &HashMap<String, bool>,
) -> Permitted {
    let person = person.to_lowercase();
    for list in lists {
        let about = || list.rules.iter().filter(|rule| is_about(rule)).map(|rule| &rule.who);
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

/// Returns the people who may, each once, up to a limit.
fn named<'a>(who: impl Iterator<Item = &'a Grantee>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in who.map(Grantee::describe) {
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
