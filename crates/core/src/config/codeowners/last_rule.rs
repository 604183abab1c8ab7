//! The language in which the last rule that matches a file decides.
//!
//! ```text
//! *              @acme/everybody
//! /conf/pay/     @alice @acme/payments
//! ```

use super::{CodeOwner, OwnerRuleList, OwnerRules, RequiredOwners, RulesByLanguage, owner};
use globset::GlobBuilder;

/// Parses a file. Invalid lines are ignored, as by hosts of this language.
pub(super) fn parse(text: &str) -> Result<OwnerRules, String> {
    let mut rules = OwnerRuleList::default();
    for line in text.lines() {
        let words = split_words(line);
        let Some((pattern, names)) = words.split_first() else { continue };
        // A line with an invalid owner is ignored. A line without owners means no owners.
        let people = names.iter().map(|name| owner(name, CodeOwner::User)).collect::<Option<Vec<CodeOwner>>>();
        let (Some(globs), Some(owners)) = (globs(pattern), people) else { continue };
        rules.add(globs, RequiredOwners { section: None, owners, count: 1 })?;
    }
    Ok(OwnerRules(RulesByLanguage::Sections(vec![rules.build()?])))
}

/// Splits a line into words: a backslash keeps a space in a word, and `#` begins a comment.
fn split_words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '#' if word.is_none() => break,
            '\\' => {
                let word = word.get_or_insert_default();
                match chars.next() {
                    Some(kept @ (' ' | '#' | '@')) => word.push(kept),
                    Some(kept) => word.extend(['\\', kept]),
                    None => word.push('\\'),
                }
            }
            _ if char.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// Returns the globs of a pattern; none if its syntax is not supported, such as `!x` and `[ab]`.
fn globs(pattern: &str) -> Option<Vec<globset::Glob>> {
    if pattern.starts_with('!') || pattern.contains(['[', ']']) {
        return None;
    }
    let is_dir = pattern.ends_with('/');
    let path = pattern.trim_end_matches('/');
    let rest = path.trim_start_matches('/');
    if rest.is_empty() {
        return None;
    }
    let anchored = path.starts_with('/') || rest.contains('/');
    let start = if anchored { "" } else { "**/" };
    let escaped = rest.replace('{', "\\{").replace('}', "\\}");
    // `docs/*` and `/*` only match direct entries; all others also match everything below.
    let is_level = anchored && (rest == "*" || rest.ends_with("/*"));
    let mut texts = Vec::new();
    if !is_dir {
        texts.push(format!("{start}{escaped}"));
    }
    if is_dir || !is_level {
        texts.push(format!("{start}{escaped}/**"));
    }
    let glob = |text: &String| GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build().ok();
    texts.iter().map(glob).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_OWNERS_FILE, MAX_RULES};
    use super::*;
    use crate::domain::OwnersLanguage;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<OwnerRules, String> {
        OwnerRules::parse(OwnersLanguage::LastRule, text)
    }

    fn owners(text: &str, path: &str) -> String {
        let rules = parse(text).unwrap();
        let required = rules.owners_of(path);
        required.iter().flat_map(|required| &required.owners).map(CodeOwner::describe).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn patterns_match_as_githubs_documentation_says() {
        let text = "# All\n*       @global-owner1 @Global-Owner2\n*.js    @js-owner #inline comment\n*.go docs@example.com\n\
                    *.txt @octo-org/octocats\n/build/logs/ @doctocat\ndocs/*  docs2@example.com\napps/ @octocat\n\
                    /docs/ @doctocat\n/scripts/ @doctocat @octocat\n**/logs @octocat2\n/apps/github\n/with\\ space/x @s\n\
                    !negated @nobody\n/x[ab] @nobody\n";
        for (path, expected) in [
            ("README.md", "global-owner1,global-owner2"),
            ("a/b/c.js", "js-owner"),
            ("c.go", "docs@example.com"),
            ("a/x.txt", "team octo-org/octocats"),
            ("build/logs/a/b", "octocat2"),
            ("other/build/logs/a", "octocat2"),
            ("apps/a/b", "octocat"),
            ("deep/apps/x", "octocat"),
            ("docs/a/b.md", "doctocat"),
            ("apps/github/x", ""),
            ("with space/x", "s"),
            ("negated", "global-owner1,global-owner2"),
            ("xa", "global-owner1,global-owner2"),
        ] {
            assert_eq!(owners(text, path), expected, "{path}");
        }
        assert_eq!(owners("docs/* @d\n", "docs/getting-started.md"), "d");
        assert_eq!(owners("docs/* @d\n", "docs/build-app/troubleshooting.md"), "");
        assert_eq!(owners("/a{b}/ @d\n", "a{b}/c"), "d");
        assert_eq!(owners("", "x"), "");
        assert_eq!(owners("* @all\n/* @top\n", "main.tf"), "top");
        assert_eq!(owners("* @all\n/* @top\n", "pay/main.tf"), "all");
    }

    #[test]
    fn a_line_with_an_owner_that_cannot_be_one_does_not_count() {
        for line in ["/pay/ carol", "/pay/ @", "/pay/ @carol money", "/pay/ @carol @"] {
            assert_eq!(owners(&format!("* @all\n{line}\n"), "pay/main.tf"), "all", "{line}");
        }
        assert_eq!(owners("* @all\n/pay/\n", "pay/main.tf"), "");
        assert_eq!(owners("* @all\n/pay/ # nobody\n", "pay/main.tf"), "");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        assert!(parse(&"x @a\n".repeat(MAX_RULES + 1)).unwrap_err().contains("rules"));
        assert!(parse(&"#".repeat(MAX_OWNERS_FILE + 1)).unwrap_err().contains("3 MiB"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~\n]{0,200}", path in "[a-z/.*]{1,20}") {
            if let Ok(rules) = parse(&text) {
                rules.owners_of(&path);
            }
        }

        /// A directory rule matches the files in it, and a later rule overrides it.
        #[test]
        fn the_last_rule_that_matches_counts(dir in "[a-z]{1,6}", file in "[a-z]{1,6}", depth in 0..3_usize) {
            let path = format!("{dir}/{}{file}.tf", "sub/".repeat(depth));
            let exact = format!("/{path} @exact");
            let text = format!("* @all\n/{dir}/ @dir\n");
            prop_assert_eq!(owners(&text, &path), "dir");
            prop_assert_eq!(owners(&format!("{text}{exact}\n"), &path), "exact");
            prop_assert_eq!(owners(&format!("{exact}\n{text}"), &path), "dir");
            prop_assert_eq!(owners(&text, &format!("elsewhere/{path}")), "all");
        }
    }
}
