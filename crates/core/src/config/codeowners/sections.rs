//! The language with sections, of each of which the last rule that matches a file decides
//! (docs.gitlab.com/user/project/codeowners/reference).
//!
//! ```text
//! * @acme/everybody
//!
//! [Payments][2] @alice @acme/payments
//! /conf/pay/
//! !/conf/pay/notes.txt
//!
//! ^[Documentation]
//! *.md @writers
//! ```

use super::{CodeOwner, MAX_RULES, OwnerRuleList, OwnerRules, RequiredOwners, RulesByLanguage, SectionRules, owner};
use globset::GlobBuilder;
use regex::Regex;
use std::sync::LazyLock;

/// Most sections of a file.
const MAX_SECTIONS: usize = 500;

/// Start of a line that is the heading of a section: optional or not, its name, number of approvals, default owners. Whatever follows is
/// ignored.
static HEADING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(\^)?\[([^\]]+)\](?:\[(\d*)\])?(?:\s+(.*))?").ok());

/// Properties that a heading gives to its rules.
struct Heading {
    /// Absent before the first heading.
    name: Option<String>,
    optional: bool,
    count: usize,
    default_owners: Vec<CodeOwner>,
}

/// SectionRules below all headings of one name.
struct OwnerSection {
    name: Option<String>,
    /// In the order of the first line of each pattern: a line that repeats a pattern replaces its rule.
    rules: Vec<(String, SectionRule)>,
}

enum SectionRule {
    /// The owners of files, whether their approval is optional, and how many have to approve.
    Owners(Vec<CodeOwner>, bool, usize),
    /// The files need no approval in this section.
    Excluded,
}

/// Parses a file. Lines that are no rule are ignored, as by the host.
pub(super) fn parse(text: &str) -> Result<OwnerRules, String> {
    let mut heading = Heading { name: None, optional: false, count: 1, default_owners: Vec::new() };
    let mut sections = vec![OwnerSection { name: None, rules: Vec::new() }];
    let mut current = 0;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (number, line) in lines.enumerate() {
        if number >= MAX_RULES {
            return Err(format!("it has more than {MAX_RULES} rules"));
        }
        if let Some(found) = read_heading(line) {
            current = enter(&mut sections, &found)?;
            heading = found;
        } else if let Some(section) = sections.get_mut(current) {
            section.add(line, &heading);
        }
    }
    Ok(OwnerRules(RulesByLanguage::Sections(
        sections.into_iter().map(OwnerSection::finish).collect::<Result<_, String>>()?,
    )))
}

/// Parses the heading of a section; absent if the line is none.
fn read_heading(line: &str) -> Option<Heading> {
    let found = HEADING.as_ref()?.captures(line)?;
    let text = |at: usize| found.get(at).map_or("", |part| part.as_str());
    let name = Some(text(2).trim().to_owned()).filter(|name| !name.is_empty())?;
    let (optional, count) = (found.get(1).is_some(), text(3).parse().unwrap_or(1).max(1));
    Some(Heading { name: Some(name), optional, count, default_owners: owners(text(4)) })
}

/// Returns the place of a heading's section. Headings with the same name, in any case, have one section.
fn enter(sections: &mut Vec<OwnerSection>, heading: &Heading) -> Result<usize, String> {
    let name = heading.name.as_deref().map(str::to_lowercase);
    let is_same = |known: &OwnerSection| known.name.as_deref().map(str::to_lowercase) == name;
    if let Some(known) = sections.iter().position(is_same) {
        return Ok(known);
    }
    if sections.len() > MAX_SECTIONS {
        return Err(format!("it has more than {MAX_SECTIONS} sections"));
    }
    sections.push(OwnerSection { name: heading.name.clone(), rules: Vec::new() });
    Ok(sections.len() - 1)
}

impl OwnerSection {
    /// Adds the rule of a line below a heading.
    fn add(&mut self, line: &str, heading: &Heading) {
        let (pattern, names) = split(line);
        let (pattern, rule) = match pattern.strip_prefix('!') {
            Some(excluded) => (excluded, SectionRule::Excluded),
            None => {
                let owners = if names.is_empty() { heading.default_owners.clone() } else { owners(names) };
                (pattern, SectionRule::Owners(owners, heading.optional, heading.count))
            }
        };
        let pattern = normal(pattern);
        match self.rules.iter_mut().find(|(known, _)| *known == pattern) {
            Some(known) => known.1 = rule,
            None => self.rules.push((pattern, rule)),
        }
    }

    /// Returns the rules and the excluded files. A section is optional if all its rules are, and needs the largest number of approvals that
    /// one of its rules does.
    fn finish(self) -> Result<SectionRules, String> {
        let (mut is_optional, mut count) = (true, 1);
        for (_, rule) in &self.rules {
            if let SectionRule::Owners(_, optional, of_rule) = rule {
                is_optional &= *optional;
                count = count.max(*of_rule);
            }
        }
        let mut list = OwnerRuleList::default();
        for (pattern, rule) in self.rules {
            let Ok(glob) = GlobBuilder::new(&pattern).literal_separator(true).backslash_escape(true).build() else {
                continue;
            };
            match rule {
                SectionRule::Owners(..) if is_optional => {}
                SectionRule::Owners(owners, ..) => {
                    list.add(vec![glob], RequiredOwners { section: self.name.clone(), owners, count })?;
                }
                SectionRule::Excluded => list.exclusions.push(glob),
            }
        }
        list.build()
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
    let one = |word: &str| match word.starts_with("@@") {
        true => Some(CodeOwner::Role(word.to_lowercase())),
        false => owner(word, CodeOwner::UserOrTeam),
    };
    names.split_whitespace().filter_map(one).collect()
}

/// Returns the glob that matches as Ruby's `File.fnmatch` with `FNM_PATHNAME` and `FNM_DOTMATCH` does, after the host's own changes of the
/// pattern.
fn normal(pattern: &str) -> String {
    // A backslash keeps `#` and white space. Braces have no meaning.
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
        return "**/*".to_owned();
    }
    let from_root = plain.strip_prefix('/').map_or_else(|| format!("**/{plain}"), str::to_owned);
    let whole = if from_root.ends_with('/') { format!("{from_root}**/*") } else { from_root };
    // Only `**/` spans directories.
    let parts: Vec<&str> = whole.split('/').collect();
    let last = parts.len() - 1;
    let level = |(at, part): (usize, &&str)| match *part {
        "**" if at < last => "**".to_owned(),
        part => single_stars(part),
    };
    parts.iter().enumerate().map(level).collect::<Vec<_>>().join("/")
}

/// Returns a part of a pattern in which each row of stars is one star.
fn single_stars(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for char in part.chars() {
        if char != '*' || !out.ends_with('*') {
            out.push(char);
        }
    }
    out
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
        let text = "* @all\n[Database][2] @dba @acme/db\n/db/\n/db/seed.sql @seeder\n^[Docs] @writers\n*.md\n[DATABASE] @modeller\n/model/\n\
                    [Empty]\n*.lock\n[Roles] @@maintainers\n/roles/\n[Many][0] @a\n/many/\n";
        for (path, expected) in [
            ("main.tf", "1:all"),
            ("db/x.sql", "1:all Database2:dba,team acme/db"),
            ("db/seed.sql", "1:all Database2:seeder"),
            ("model/x", "1:all Database2:modeller"),
            ("README.md", "1:all"),
            (".terraform.lock", "1:all"),
            ("roles/x", "1:all Roles1:@@maintainers, a role that this server cannot check"),
            ("many/x", "1:all Many1:a"),
        ] {
            assert_eq!(owners(text, path), expected, "{path}");
        }
    }

    /// Each heading speaks for the rules below it; only the name is shared.
    #[test]
    fn a_section_that_is_entered_again_loses_no_owner() {
        assert_eq!(owners("^[Docs] @writers\n*.md\n[Docs][2] @legal\n/legal/\n", "legal/x.md"), "Docs2:legal");
        assert_eq!(owners("^[Docs] @writers\n*.md\n[Docs][2] @legal\n/legal/\n", "x.md"), "Docs2:writers");
        assert_eq!(owners("^[Docs] @writers\n*.md\n^[docs]\n/docs/ @d\n", "x.md"), "");
    }

    #[test]
    fn only_two_stars_with_a_slash_span_directories() {
        let text = "/infra/ @senior\n/infra/** @junior\n/a**/x @b\n";
        assert_eq!(owners(text, "infra/x"), "1:junior");
        assert_eq!(owners(text, "infra/deep/x"), "1:senior");
        assert_eq!((owners(text, "ab/x"), owners(text, "a/b/x")), ("1:b".to_owned(), String::new()));
    }

    #[test]
    fn an_exclusion_counts_in_its_section_wherever_it_stands() {
        let text = "[A] @a\n!/pay/README.md\n/pay/\n[B] @b\n*\n";
        assert_eq!(owners(text, "pay/main.tf"), "A1:a B1:b");
        assert_eq!(owners(text, "pay/README.md"), "B1:b");
        assert_eq!(owners("!/x\n/x @a\n", "x"), "1:a", "a later rule of the same pattern replaces it");
    }

    #[test]
    fn a_repeated_pattern_keeps_its_place() {
        assert_eq!(owners("* @a\n/x @b\n* @c\n", "x"), "1:b");
        assert_eq!(owners("* @a\n/x @b\n* @c\n", "y"), "1:c");
    }

    #[test]
    fn what_begins_like_a_heading_is_one_and_a_file_without_end_is_refused() {
        assert_eq!(owners("* @all\n[Pay][two] @p\n/pay/\n", "pay/x"), "1:all");
        assert_eq!(owners("* @all\n[ab].tf @a\n* @b\n", "a.tf"), "1:all ab1:b");
        assert_eq!(owners("* @all\n[Pay]@p\n/pay/\n", "pay/x"), "1:all");
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
