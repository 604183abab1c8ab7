//! The language with sections, of each of which the last rule that matches a file decides
//! (docs.gitlab.com/user/project/codeowners/reference).
//!
//! ```text
//! * @acme/everybody
//!
//! [Payments][2] @alice @acme/payments
//! /conf/pay/
//! !/conf/pay/README.md
//!
//! ^[Documentation]
//! *.md @writers
//! ```

use super::{CodeOwner, MAX_RULES, OwnerRules, RequiredOwners, RuleList, glob_set};
use globset::{Glob, GlobBuilder};
use regex::Regex;
use std::sync::LazyLock;

/// Most sections of a file.
const MAX_SECTIONS: usize = 500;

/// Heading of a section: optional or not, its name, number of approvals, default owners.
static HEADING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(\^)?\[([^\]]*)\](?:\[(\d*)\])?(?:\s+(.*))?$").ok());

/// A section that is being read.
#[derive(Default)]
struct Section {
    /// Name as first written; absent for the rules before the first heading.
    name: Option<String>,
    optional: bool,
    count: usize,
    default_owners: Vec<CodeOwner>,
    /// Rules in the order of the first line of each pattern: a line that repeats a pattern replaces its owners.
    rules: Vec<(String, Vec<CodeOwner>)>,
    exclusions: Vec<String>,
}

/// Parses a file. Lines that are no rule are ignored, as by the host.
pub(super) fn parse(text: &str) -> Result<OwnerRules, String> {
    let mut sections = vec![Section { count: 1, ..Section::default() }];
    let mut current = 0;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (number, line) in lines.enumerate() {
        if number >= MAX_RULES {
            return Err(format!("it has more than {MAX_RULES} rules"));
        }
        if let Some(section) = heading(line) {
            current = enter(&mut sections, section)?;
        } else if let Some(section) = sections.get_mut(current) {
            section.add(line);
        }
    }
    let mut read = OwnerRules { sections: Vec::new(), exclusions: Vec::new() };
    for section in sections.into_iter().filter(|section| !section.optional) {
        let mut list = RuleList::default();
        for (pattern, owners) in section.rules {
            let Some(glob) = glob(&pattern) else { continue };
            list.add(vec![glob], RequiredOwners { section: section.name.clone(), owners, count: section.count })?;
        }
        read.sections.push(list.build()?);
        read.exclusions.push(glob_set(section.exclusions.iter().filter_map(|pattern| glob(pattern)))?);
    }
    Ok(read)
}

/// Parses the heading of a section; absent if the line is none.
fn heading(line: &str) -> Option<Section> {
    let found = HEADING.as_ref()?.captures(line)?;
    let text = |at: usize| found.get(at).map_or("", |part| part.as_str());
    let name = Some(text(2).trim().to_owned()).filter(|name| !name.is_empty())?;
    Some(Section {
        name: Some(name),
        optional: found.get(1).is_some(),
        count: text(3).parse().unwrap_or(1).max(1),
        default_owners: owners(text(4)),
        ..Section::default()
    })
}

/// Returns the place of a section. Headings with the same name, in any case, are one section with what the first of them says.
fn enter(sections: &mut Vec<Section>, section: Section) -> Result<usize, String> {
    let name = section.name.as_deref().map(str::to_lowercase);
    let is_same = |known: &Section| known.name.as_deref().map(str::to_lowercase) == name;
    if let Some(known) = sections.iter().position(is_same) {
        return Ok(known);
    }
    if sections.len() > MAX_SECTIONS {
        return Err(format!("it has more than {MAX_SECTIONS} sections"));
    }
    sections.push(section);
    Ok(sections.len() - 1)
}

impl Section {
    /// Adds the rule or exclusion of a line.
    fn add(&mut self, line: &str) {
        let (pattern, names) = split(line);
        if let Some(excluded) = pattern.strip_prefix('!') {
            self.exclusions.push(excluded.to_owned());
            return;
        }
        let owners = if names.is_empty() { self.default_owners.clone() } else { owners(names) };
        match self.rules.iter_mut().find(|(known, _)| known == pattern) {
            Some(rule) => rule.1 = owners,
            None => self.rules.push((pattern.to_owned(), owners)),
        }
    }
}

/// Splits a line at the first white space that no backslash keeps.
fn split(line: &str) -> (&str, &str) {
    let mut is_kept = false;
    for (at, char) in line.char_indices() {
        if char.is_whitespace() && !is_kept {
            return (&line[..at], line[at..].trim());
        }
        is_kept = char == '\\' && !is_kept;
    }
    (line, "")
}

/// Returns the owners in a text; words that cannot be one are left out.
fn owners(names: &str) -> Vec<CodeOwner> {
    names.split_whitespace().filter_map(owner).collect()
}

fn owner(word: &str) -> Option<CodeOwner> {
    let lower = word.to_lowercase();
    if lower.starts_with("@@") {
        return Some(CodeOwner::Role(lower));
    }
    match lower.strip_prefix('@') {
        Some("") => None,
        Some(group) if group.contains('/') => Some(CodeOwner::Team(group.to_owned())),
        Some(name) => Some(CodeOwner::UserOrTeam(name.to_owned())),
        None => lower.contains('@').then_some(CodeOwner::User(lower)),
    }
}

/// Returns the glob of a pattern, as Ruby's `File.fnmatch` with `FNM_PATHNAME` and `FNM_DOTMATCH` matches it; none if it is invalid.
fn glob(pattern: &str) -> Option<Glob> {
    // A backslash keeps `#` and white space.
    let mut plain = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some('#' | ' ' | '\t')) => {}
            ('{' | '}', _) => plain.extend(['\\', char]),
            _ => plain.push(char),
        }
    }
    if plain == "*" {
        return GlobBuilder::new("**").build().ok();
    }
    let from_root = plain.strip_prefix('/').map_or_else(|| format!("**/{plain}"), str::to_owned);
    let whole = if from_root.ends_with('/') { format!("{from_root}**") } else { from_root };
    GlobBuilder::new(&whole).literal_separator(true).backslash_escape(true).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::OwnersLanguage;
    use proptest::prelude::*;

    /// The owners of a file: of each section its name, its number of approvals, and the owners.
    fn owners(text: &str, path: &str) -> String {
        let rules = OwnerRules::parse(OwnersLanguage::Sections, text).unwrap();
        let shown = |required: &&RequiredOwners| {
            let names: Vec<String> = required.owners.iter().map(CodeOwner::describe).collect();
            format!("{}{}:{}", required.section.as_deref().unwrap_or(""), required.count, names.join(","))
        };
        rules.owners_of(path).iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn patterns_match_as_the_documentation_says() {
        let text = "* @default-codeowner\n* @multiple @code @owners\n*.rb @ruby-owner\n#file_with_pound.rb @owner-file-with-pound\n\
                    \\#file_with_pound.rb @owner-file-with-pound\n*.txt @multiple @Acme/Owners janedoe@gitlab.com\n\
                    path\\ with\\ spaces/ @space-owner\n/docs/ @all-docs\n/docs/* @root-docs\n/docs/**/*.md @markdown-docs\n\
                    lib/ @lib-owner\n/config/ @config-owner\n/x[ab].tf @class\n/{y}.tf @brace\n";
        for (path, expected) in [
            ("README.md", "1:multiple,code,owners"),
            ("a/b/c.rb", "1:ruby-owner"),
            ("#file_with_pound.rb", "1:owner-file-with-pound"),
            ("a/LICENSE.txt", "1:multiple,team acme/owners,janedoe@gitlab.com"),
            ("deep/path with spaces/x", "1:space-owner"),
            ("docs/index.html", "1:root-docs"),
            ("docs/projects/index.html", "1:all-docs"),
            ("docs/a/b/c.md", "1:markdown-docs"),
            ("docs/c.md", "1:markdown-docs"),
            ("lib/x", "1:lib-owner"),
            ("some/lib/x/y", "1:lib-owner"),
            ("config/.hidden/x", "1:config-owner"),
            ("some/config/x", "1:multiple,code,owners"),
            ("xa.tf", "1:class"),
            ("{y}.tf", "1:brace"),
            (".dot", "1:multiple,code,owners"),
        ] {
            assert_eq!(owners(text, path), expected, "{path}");
        }
        // Unlike in the other language, a name without a slash at its end is a file.
        assert_eq!(owners("/docs @a\n", "docs/x"), "");
    }

    #[test]
    fn each_section_decides_for_itself() {
        let text = "* @all\n[Database][2] @dba @acme/db\n/db/\n/db/seed.sql @seeder\n^[Docs] @writers\n*.md\n[DATABASE]\n/model/\n\
                    [Empty]\n*.lock\n[Roles] @@maintainers\n/roles/\n[Many][0] @a\n/many/\n";
        for (path, expected) in [
            ("main.tf", "1:all"),
            ("db/x.sql", "1:all Database2:dba,team acme/db"),
            ("db/seed.sql", "1:all Database2:seeder"),
            ("model/x", "1:all Database2:dba,team acme/db"),
            ("README.md", "1:all"),
            (".terraform.lock", "1:all"),
            ("roles/x", "1:all Roles1:@@maintainers, a role that this server cannot check"),
            ("many/x", "1:all Many1:a"),
        ] {
            assert_eq!(owners(text, path), expected, "{path}");
        }
    }

    #[test]
    fn an_exclusion_counts_in_its_section_wherever_it_stands() {
        let text = "[A] @a\n!/pay/README.md\n/pay/\n[B] @b\n*\n";
        assert_eq!(owners(text, "pay/main.tf"), "A1:a B1:b");
        assert_eq!(owners(text, "pay/README.md"), "B1:b");
    }

    #[test]
    fn a_repeated_pattern_keeps_its_place() {
        assert_eq!(owners("* @a\n/x @b\n* @c\n", "x"), "1:b");
        assert_eq!(owners("* @a\n/x @b\n* @c\n", "y"), "1:c");
    }

    #[test]
    fn what_is_no_heading_is_a_pattern_and_a_file_without_end_is_refused() {
        assert_eq!(owners("[ab].tf @a\n", "a.tf"), "1:a");
        assert_eq!(owners("[] @a\n", "x"), "");
        let parse = |text: &str| OwnerRules::parse(OwnersLanguage::Sections, text).unwrap_err();
        assert!(parse(&"x @a\n".repeat(MAX_RULES + 1)).contains("rules"));
        let many: String = (0..=MAX_SECTIONS).map(|number| format!("[s{number}] @a\n")).collect();
        assert!(parse(&many).contains("sections"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~\n]{0,200}", path in "[a-z/.*]{1,20}") {
            if let Ok(rules) = OwnerRules::parse(OwnersLanguage::Sections, &text) {
                rules.owners_of(&path);
            }
        }
    }
}
