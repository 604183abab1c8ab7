//! The language in which every rule that matches a file adds owners. Patterns are regular expressions of whole paths, and `!` stands for
//! all files that a pattern does not match (Gitea: models/issues/pull.go, `GetCodeOwnersFromContent`).
//!
//! ```text
//! .*\\.tf        @acme/platform
//! conf/pay/.*    @alice @acme/payments
//! !docs/.*       @bob
//! ```

use super::{CodeOwner, MAX_RULES, OwnerRules, RequiredOwners, RulesByLanguage};
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// Largest compiled pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Largest size of all compiled patterns, in bytes.
const MAX_PATTERNS: usize = 64 << 20;

/// The rules of a file.
#[derive(Debug, Clone)]
pub(super) struct PatternRules {
    patterns: RegexSet,
    /// Owners of each pattern, and whether they own the files that it does not match.
    owners: Vec<(RequiredOwners, bool)>,
}

impl PatternRules {
    /// Returns the owners of each rule that applies to a file.
    pub(super) fn owners_of(&self, path: &str) -> impl Iterator<Item = &RequiredOwners> {
        let matches = self.patterns.matches(path);
        let rules = self.owners.iter().enumerate();
        rules.filter_map(move |(at, (required, negative))| (matches.matched(at) != *negative).then_some(required))
    }
}

/// Parses a file. A line without owners is ignored, as by the host. A pattern that cannot be read is an error: nobody knows which files it
/// protects.
pub(super) fn parse(text: &str) -> Result<OwnerRules, String> {
    let (mut patterns, mut owners) = (Vec::new(), Vec::new());
    for (at, line) in text.split('\n').enumerate() {
        let words = split_words(line);
        let Some((word, names)) = words.split_first() else { continue };
        let list: Vec<CodeOwner> = names.iter().filter_map(|name| owner(name)).collect();
        if list.is_empty() {
            continue;
        }
        if owners.len() >= MAX_RULES {
            return Err(format!("it has more than {MAX_RULES} rules"));
        }
        let (bare, negative) = word.strip_prefix('!').map_or((word.as_str(), false), |bare| (bare, true));
        let pattern = pattern(bare, negative);
        check(&pattern).map_err(|problem| format!("line {}: {problem}", at + 1))?;
        patterns.push(pattern);
        owners.push((RequiredOwners { section: None, owners: list, count: 1 }, negative));
    }
    let patterns = RegexSetBuilder::new(patterns).size_limit(MAX_PATTERNS).build();
    let patterns = patterns.map_err(|_| "its patterns are too large".to_owned())?;
    Ok(OwnerRules(RulesByLanguage::Patterns(PatternRules { patterns, owners })))
}

/// Returns the expression for a pattern, as the host completes it: in `a|b`, only `a` is tied to the beginning and only `b` to the end.
/// A rule must not be avoided by a line break in the name of a file, so `.` matches one where more matches mean more owners.
fn pattern(bare: &str, negative: bool) -> String {
    let flags = if negative { "" } else { "(?s)" };
    format!("{flags}^{}$", bare.strip_prefix('/').unwrap_or(bare))
}

/// Checks that a pattern can be read. The host permits look-around and references to groups as well, which take unlimited time.
fn check(pattern: &str) -> Result<(), String> {
    let read: Result<Regex, regex::Error> = RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build();
    match read {
        Ok(_) => Ok(()),
        Err(regex::Error::CompiledTooBig(_)) => Err("its pattern is too large".to_owned()),
        Err(_) => Err("its pattern is no regular expression that this server can read. It reads neither look-around, such as `(?!…)`, nor \
             references to groups, such as `\\1`"
            .to_owned()),
    }
}

/// Splits a line into words: a backslash takes away the meaning of the character after it, and an unescaped `#` begins a comment
/// (models/issues/pull.go, `TokenizeCodeOwnersLine`).
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut chars = line.trim().chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => word.extend(chars.next()),
            '#' => break,
            ' ' | '\t' => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            _ => word.push(char),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Parses an owner, with or without `@`; none if the text cannot be one.
fn owner(text: &str) -> Option<CodeOwner> {
    let lower = text.strip_prefix('@').unwrap_or(text).to_lowercase();
    match lower.matches('/').count() {
        0 => Some(lower).filter(|name| !name.is_empty()).map(CodeOwner::User),
        1 => Some(CodeOwner::Team(lower)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::OwnersLanguage;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<OwnerRules, String> {
        OwnerRules::parse(OwnersLanguage::EveryRule, text)
    }

    fn owners(text: &str, path: &str) -> String {
        let rules = parse(text).unwrap();
        let of_rule = |required: &&RequiredOwners| {
            required.owners.iter().map(CodeOwner::describe).collect::<Vec<_>>().join(" or ")
        };
        rules.owners_of(path).iter().map(of_rule).collect::<Vec<_>>().join(", ")
    }

    /// The examples of docs.gitea.com/usage/code-owners.
    #[test]
    fn patterns_match_as_giteas_documentation_says() {
        let text = "# Comment\n.*\\\\.go @user1 @user2 # This is comment\n\n# Comment too\n# You can assigning code owning for users or teams\n\
                    frontend/src/.*\\\\.js @org1/team1 @org1/team2 @user3\n\n# You can use negative pattern\n\
                    !frontend/src/.* @org1/team3 @user5\n\n# You can use power of go regexp\ndocs/(aws|google|azure)/[^/]*\\\\.(md|txt) @user8 @org1/team4\n\
                    !/assets/.*\\\\.(bin|exe|msi) @user9\n";
        for (path, expected) in [
            ("a/b.go", "user1 or user2, team org1/team3 or user5, user9"),
            ("frontend/src/x.js", "team org1/team1 or team org1/team2 or user3, user9"),
            ("docs/aws/x.md", "team org1/team3 or user5, user8 or team org1/team4, user9"),
            ("docs/aws/deep/x.md", "team org1/team3 or user5, user9"),
            ("assets/x.exe", "team org1/team3 or user5"),
        ] {
            assert_eq!(owners(text, path), expected, "{path}");
        }
    }

    /// The cases of Gitea's own test (models/issues/pull_test.go, `testParseCodeOwnersLine`), and two more.
    #[test]
    fn words_are_split_as_gitea_splits_them() {
        for (line, expected) in [
            ("", vec![]),
            ("# comment", vec![]),
            ("!.* @user1 @org1/team1", vec!["!.*", "@user1", "@org1/team1"]),
            (".*\\\\.js @user2 #comment", vec![".*\\.js", "@user2"]),
            (
                "docs/(aws|google|azure)/[^/]*\\\\.(md|txt) @org3 @org2/team2",
                vec!["docs/(aws|google|azure)/[^/]*\\.(md|txt)", "@org3", "@org2/team2"],
            ),
            ("\\#path @org3", vec!["#path", "@org3"]),
            ("path\\ with\\ spaces/ @org3", vec!["path with spaces/", "@org3"]),
            ("a\t@b\\", vec!["a", "@b"]),
        ] {
            assert_eq!(split_words(line), expected, "{line}");
        }
    }

    /// The cases of Gitea's own test (models/issues/pull_test.go, `testCodeOwnerAbsolutePathPatterns`).
    #[test]
    fn a_slash_at_the_beginning_is_of_no_account() {
        for (text, path, is_owned) in [
            ("/README.md @user5\n", "README.md", true),
            ("/docs/.* @user5\n", "docs/foo.md", true),
            ("/docs/.* @user5\n", "other/docs/foo.md", false),
            ("README.md @user5\n", "README.md", true),
            ("!/.* @user5\n", "README.md", false),
        ] {
            assert_eq!(!owners(text, path).is_empty(), is_owned, "{text}");
        }
    }

    #[test]
    fn a_pattern_is_of_the_whole_path_as_gitea_completes_it() {
        assert_eq!(owners("main.tf @a", "main.tf"), "a");
        assert_eq!(owners("main.tf @a", "x/main.tf"), "");
        assert_eq!(owners("/main.tf a", "main.tf"), "a");
        assert_eq!(owners("pay|conf @a", "pay/x"), "a");
        assert_eq!(owners("pay|conf @a", "x/conf"), "a");
        assert_eq!(owners("pay|conf @a", "x/pay/y"), "");
        assert_eq!(owners("pay/ @a", "pay/x"), "", "a directory is no pattern of the files below it");
        assert_eq!(owners("Pay/.* @a", "pay/x"), "");
    }

    #[test]
    fn a_line_break_in_a_name_avoids_no_rule() {
        assert_eq!(owners("pay/.* @a", "pay/x\ny.tf"), "a");
        assert_eq!(owners("!docs/.* @a", "docs/x\ny.tf"), "a");
    }

    #[test]
    fn a_line_without_owners_protects_nothing() {
        assert_eq!(owners("pay/.*\npay/.* @\npay/.* @a/b/c\n", "pay/x"), "");
        assert_eq!(owners("pay/.* @a/b/c @d", "pay/x"), "d");
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_named() {
        for pattern in ["(?!docs).*", "(a)\\\\1", "(", "[z-a]"] {
            let refused = parse(&format!(".* @a\n{pattern} @b\n")).unwrap_err();
            assert!(refused.starts_with("line 2: its pattern is no regular expression"), "{refused}");
        }
        let refused = parse("(a{1000}){1000} @b").unwrap_err();
        assert_eq!(refused, "line 1: its pattern is too large");
        assert!(parse(&"x @a\n".repeat(MAX_RULES + 1)).unwrap_err().contains("rules"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~\n]{0,200}", path in "[a-z/.*\n]{1,20}") {
            if let Ok(rules) = parse(&text) {
                rules.owners_of(&path);
            }
        }

        /// Each rule and its negation together apply to every file, once.
        #[test]
        fn a_negative_rule_applies_to_all_others(pattern in "[a-z./*]{1,8}", path in "[a-z/.]{1,12}") {
            prop_assume!(!pattern.starts_with('*') && !pattern.contains("**") && !pattern.starts_with("/*"));
            let text = format!("{pattern} @a\n!{pattern} @b\n");
            if parse(&text).is_ok() {
                prop_assert!(["a", "b"].contains(&owners(&text, &path).as_str()));
            }
        }
    }
}
