//! `CODEOWNERS`: owners of the files of a repository. Hosts have different languages for it. Pure.

mod every_rule;
mod last_rule;
mod sections;

use crate::domain::OwnersLanguage;
use every_rule::PatternRules;
use globset::{Glob, GlobSet, GlobSetBuilder};

/// Largest file that is read, in bytes.
pub const MAX_OWNERS_FILE: usize = 3 << 20;
/// Most rules of a file.
const MAX_RULES: usize = 5000;

/// An owner of files; names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeOwner {
    /// A login of the host, or an email address.
    User(String),
    /// A team or group, such as `owner/team`.
    Team(String),
    /// A name without a slash, which may be a person's or a group's.
    UserOrTeam(String),
    /// The people with a role in the project, such as `@@maintainers`. The server cannot tell who they are, so nobody is one of them.
    Role(String),
}

impl CodeOwner {
    /// Returns the text for people.
    pub fn describe(&self) -> String {
        match self {
            CodeOwner::User(name) | CodeOwner::UserOrTeam(name) => name.clone(),
            CodeOwner::Team(name) => format!("team {name}"),
            CodeOwner::Role(name) => format!("{name}, a role that this server cannot check"),
        }
    }
}

/// Owners who have to approve a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredOwners {
    /// Name of the section, in a language that has them.
    pub section: Option<String>,
    /// The owners; empty for none.
    pub owners: Vec<CodeOwner>,
    /// Number of them who have to approve, at least 1.
    pub count: usize,
}

/// Rules of one file.
#[derive(Debug, Clone)]
pub struct OwnerRules(RulesByLanguage);

/// Rules of one file, by what decides about a changed file.
#[derive(Debug, Clone)]
enum RulesByLanguage {
    /// In each section the last rule that matches. There is one section in a language without sections.
    Sections(Vec<SectionRules>),
    /// Every rule that matches.
    Patterns(PatternRules),
}

/// Rules of one section. The last one that matches a file decides.
#[derive(Debug, Clone)]
struct SectionRules {
    patterns: GlobSet,
    /// Owners by the number of the pattern.
    owners: Vec<RequiredOwners>,
    /// Files that need no approval, whatever the rules say.
    exclusions: GlobSet,
}

/// Rules of one section that are being read.
#[derive(Default)]
struct OwnerRuleList {
    patterns: Vec<Glob>,
    owners: Vec<RequiredOwners>,
    exclusions: Vec<Glob>,
}

impl OwnerRuleList {
    /// Adds a rule, which matches what any of its globs matches.
    fn add(&mut self, globs: Vec<Glob>, owners: RequiredOwners) -> Result<(), String> {
        if self.owners.len() >= MAX_RULES {
            return Err(format!("it has more than {MAX_RULES} rules"));
        }
        for glob in globs {
            self.patterns.push(glob);
            self.owners.push(owners.clone());
        }
        Ok(())
    }

    fn build(self) -> Result<SectionRules, String> {
        let (patterns, exclusions) = (glob_set(self.patterns)?, glob_set(self.exclusions)?);
        Ok(SectionRules { patterns, owners: self.owners, exclusions })
    }
}

fn glob_set(globs: Vec<Glob>) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob);
    }
    set.build().map_err(|error| error.to_string())
}

impl OwnerRules {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// Reason for which the file cannot be read, as text that follows "it": it is too large, or has too many rules.
    pub fn parse(language: OwnersLanguage, text: &str) -> Result<OwnerRules, String> {
        if text.len() > MAX_OWNERS_FILE {
            return Err(format!("it is larger than {} MiB", MAX_OWNERS_FILE >> 20));
        }
        match language {
            OwnersLanguage::LastRule => last_rule::parse(text),
            OwnersLanguage::Sections => sections::parse(text),
            OwnersLanguage::EveryRule => every_rule::parse(text),
        }
    }

    /// Returns the owners of a file who have to approve it, by its path from the root; empty for none.
    pub fn owners_of(&self, path: &str) -> Vec<&RequiredOwners> {
        let sections = match &self.0 {
            RulesByLanguage::Sections(sections) => sections,
            RulesByLanguage::Patterns(rules) => return rules.owners_of(path).collect(),
        };
        let sections = sections.iter().filter(|rules| !rules.exclusions.is_match(path));
        let last = sections.filter_map(|rules| rules.owners.get(rules.patterns.matches(path).into_iter().max()?));
        last.filter(|required| !required.owners.is_empty()).collect()
    }
}

/// Parses an owner; none if the text cannot be one. `of_name` decides what a name without a slash stands for.
fn owner(text: &str, of_name: fn(String) -> CodeOwner) -> Option<CodeOwner> {
    let lower = text.to_lowercase();
    match lower.strip_prefix('@') {
        Some("") => None,
        Some(team) if team.contains('/') => Some(CodeOwner::Team(team.to_owned())),
        Some(name) => Some(of_name(name.to_owned())),
        None => lower.contains('@').then_some(CodeOwner::User(lower)),
    }
}
