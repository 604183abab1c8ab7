//! Lists of dockerignore-style patterns, as moby's patternmatcher reads them: `when_modified`, `--autoplan-file-list`, module globs.
//!
//! `*` and `?` stay within a segment, `**` spans any number of them, `[…]` is a class, `\` escapes, braces are plain text.
//! A pattern that matches a parent directory matches everything below. The last pattern that matches decides; `!` negates.

use crate::config::paths::{MAX_PATTERN_BYTES, clean, join};
use crate::config::quoted;
use regex::{Regex, RegexBuilder};
use std::iter::Peekable;
use std::str::Chars;

/// Most patterns of one list.
pub const MAX_PATTERNS: usize = 1_000;
/// Largest compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;

/// A compiled list.
#[derive(Debug, Clone)]
pub struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    negated: bool,
    regex: Regex,
}

impl Patterns {
    /// Compiles a list; blank entries are skipped. The error names the pattern and is for people.
    pub fn new<S: AsRef<str>>(list: &[S]) -> Result<Patterns, String> {
        if list.len() > MAX_PATTERNS {
            return Err(format!("more than {MAX_PATTERNS} patterns"));
        }
        let mut patterns = Vec::new();
        for text in list {
            let text = text.as_ref().trim();
            if text.is_empty() {
                continue;
            }
            let cleaned = clean(text);
            let (negated, glob) = match cleaned.strip_prefix('!') {
                Some("") => return Err("the pattern `!` excludes nothing; write what follows it".to_owned()),
                Some(rest) => (true, rest),
                None => (false, cleaned.as_str()),
            };
            let regex = compile(glob).map_err(|error| format!("pattern `{}`: {}", quoted(text), quoted(&error)))?;
            patterns.push(Pattern { negated, regex });
        }
        Ok(Patterns(patterns))
    }

    /// Compiles `when_modified` of a project: patterns relative to its directory, such as `../modules/**`.
    pub fn relative_to(dir: &str, list: &[String]) -> Result<Patterns, String> {
        // The directory is a name, not a pattern, even if it has a bracket in it.
        let dir: String =
            dir.chars().flat_map(|c| "\\*?[]!".contains(c).then_some('\\').into_iter().chain([c])).collect();
        let joined: Vec<String> = list
            .iter()
            .map(|text| match text.trim() {
                "" => String::new(),
                "!" => "!".to_owned(),
                text => match text.strip_prefix('!') {
                    Some(rest) => format!("!{}", join(&dir, rest)),
                    None => join(&dir, text),
                },
            })
            .collect();
        Patterns::new(&joined)
    }

    /// Returns true if the list selects a file; `path` is relative to the repository's root.
    pub fn matches(&self, path: &str) -> bool {
        let mut selected = false;
        for pattern in &self.0 {
            // Only a negated pattern can deselect a file, and only a positive one can select it.
            if pattern.negated == selected && pattern.matches_or_parent(path) {
                selected = !pattern.negated;
            }
        }
        selected
    }

    /// Returns true if the list excludes a file: the last pattern that matches is negated.
    pub fn exclude(&self, path: &str) -> bool {
        self.0.iter().rev().find(|pattern| pattern.matches_or_parent(path)).is_some_and(|pattern| pattern.negated)
    }

    /// Returns true if the list selects any of these files.
    pub fn match_any(&self, paths: &[String]) -> bool {
        paths.iter().any(|path| self.matches(path))
    }
}

impl Pattern {
    fn matches_or_parent(&self, path: &str) -> bool {
        self.regex.is_match(path)
            || path.match_indices('/').any(|(at, _)| path.get(..at).is_some_and(|parent| self.regex.is_match(parent)))
    }
}

fn compile(glob: &str) -> Result<Regex, String> {
    if glob.len() > MAX_PATTERN_BYTES {
        return Err(format!("longer than {MAX_PATTERN_BYTES} bytes"));
    }
    let mut regex = String::from("^");
    let mut chars = glob.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.next_if_eq(&'*').is_some() => {
                // `**/` and `**` are the same: any number of directories, or none; at the end, everything.
                chars.next_if_eq(&'/');
                regex.push_str(if chars.peek().is_none() { ".*" } else { "(.*/)?" });
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => class(&mut chars, &mut regex)?,
            '\\' => {
                let escaped = chars.next().ok_or("ends with a backslash")?;
                regex.push_str(&regex::escape(&escaped.to_string()));
            }
            other => regex.push_str(&regex::escape(&other.to_string())),
        }
    }
    regex.push('$');
    let built = RegexBuilder::new(&regex).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES).build();
    built.map_err(|_| "too large or not valid".to_owned())
}

/// `[abc]`, `[a-z]`, `[^a]`, with Go's rules: not empty, `\` escapes, a bare `-` or `]` is an error.
fn class(chars: &mut Peekable<Chars<'_>>, regex: &mut String) -> Result<(), String> {
    const UNCLOSED: &str = "a `[` is not closed";
    regex.push('[');
    if chars.next_if_eq(&'^').is_some() {
        regex.push('^');
    }
    let one = |chars: &mut Peekable<Chars<'_>>| match chars.next() {
        None => Err(UNCLOSED.to_owned()),
        Some('-' | ']') => Err("a class `[…]` is empty or has a bare `-`".to_owned()),
        Some('\\') => chars.next().ok_or_else(|| UNCLOSED.to_owned()),
        Some(c) => Ok(c),
    };
    let escaped = |c: char| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
    loop {
        let low = one(chars)?;
        regex.push_str(&escaped(low));
        if chars.next_if_eq(&'-').is_some() {
            let high = one(chars)?;
            if high < low {
                return Err(format!("the range `{low}-{high}` is empty"));
            }
            regex.push('-');
            regex.push_str(&escaped(high));
        }
        if chars.next_if_eq(&']').is_some() {
            regex.push(']');
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutation::mutated;
    use proptest::prelude::*;

    fn matches(list: &[&str], path: &str) -> bool {
        Patterns::new(list).unwrap().matches(path)
    }

    #[test]
    fn single_patterns_match_as_in_moby() {
        for (pattern, path, expected) in [
            ("**", "file", true),
            ("**", "dir/file", true),
            ("**/", "file", true),
            ("**/**", "dir/dir2/file", true),
            ("dir/**", "dir/file", true),
            ("dir/**", "dir/dir2/file", true),
            ("dir/**", "dirfile", false),
            ("**/dir", "dir/file", true),
            ("**/dir2/*", "dir/dir2/file", true),
            ("**/dir2/*", "dir/dir2/dir2/file", true),
            ("**file", "file", true),
            ("**file", "dir/file", true),
            ("**/file", "dir/dir/file", true),
            ("**/*.tf", "main.tf", true),
            ("**/*.tf", "a/b/main.tf", true),
            ("**/*.tf*", "a/x.tfvars", true),
            ("*.tf", "a/main.tf", false),
            ("*.tf", "main.tf.json", false),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/b/b/c", false),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/b/b/c", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "dx", true),
            ("[^a-c]x", "bx", false),
            ("[!a]x", "!x", true),
            (r"[\]]x", "]x", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a.b", "axb", false),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("a+(b)|$", "a+(b)|$", true),
            ("./a//b/", "a/b", true),
            ("a/../b", "b", true),
            ("modules", "modules/null/main.tf", true),
            ("modules/*", "modules/null/deep/main.tf", true),
            ("  spaced  ", "spaced", true),
            ("**/.terraform.lock.hcl", ".terraform.lock.hcl", true),
            ("**/terragrunt.hcl", "xterragrunt.hcl", false),
        ] {
            assert_eq!(matches(&[pattern], path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_last_matching_pattern_decides() {
        for (list, path, expected) in [
            (vec!["**/*.tf", "!docs/*.tf"], "docs/x.tf", false),
            (vec!["!docs/*.tf", "**/*.tf"], "docs/x.tf", true),
            (vec!["**/*.tf", "!docs", "docs/keep.tf"], "docs/keep.tf", true),
            (vec!["**/*.tf", "!docs", "docs/keep.tf"], "docs/drop.tf", false),
            (vec!["!a"], "a", false),
            (vec!["", "  "], "a", false),
            (vec![], "a", false),
        ] {
            assert_eq!(matches(&list, path), expected, "{list:?} {path}");
        }
    }

    #[test]
    fn patterns_of_a_project_are_relative_to_its_directory() {
        for (dir, pattern, path, expected) in [
            ("app", "**/*.tf", "app/main.tf", true),
            ("app", "**/*.tf", "other/main.tf", false),
            ("app", "../config/*.json", "config/app.json", true),
            ("app", "../modules/**/*.tf", "modules/a/b.tf", true),
            ("app", "../modules", "modules/a/b.tf", true),
            ("app", "../../outside", "outside", false),
            (".", "*.tf", "main.tf", true),
            ("a[1]", "*.tf", "a[1]/main.tf", true),
            ("a[1]", "../b/*.tf", "b/main.tf", true),
            ("a[1]", "*.tf", "a1/main.tf", false),
        ] {
            let patterns = Patterns::relative_to(dir, &[pattern.to_owned()]).unwrap();
            assert_eq!(patterns.matches(path), expected, "{dir} {pattern} {path}");
        }
        let list = ["**/*.tf", "!docs/*.tf", "../config/*.json"].map(str::to_owned);
        let patterns = Patterns::relative_to("app", &list).unwrap();
        assert!(patterns.matches("app/main.tf") && !patterns.matches("app/docs/example.tf"));
    }

    #[test]
    fn wrong_patterns_are_refused_by_name() {
        for (pattern, error) in [
            ("!", "the pattern `!` excludes nothing; write what follows it"),
            ("a[", "pattern `a[`: a `[` is not closed"),
            ("a[]", "pattern `a[]`: a class `[…]` is empty or has a bare `-`"),
            ("a[z-a]", "pattern `a[z-a]`: the range `z-a` is empty"),
            (r"a\", r"pattern `a\`: ends with a backslash"),
        ] {
            assert_eq!(Patterns::new(&[pattern]).unwrap_err(), error);
        }
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_path_panics(list in proptest::collection::vec(".{0,40}", 0..6), dir in ".{0,20}", path in ".{0,40}") {
            if let Ok(patterns) = Patterns::new(&list) {
                patterns.matches(&path);
            }
            if let Ok(patterns) = Patterns::relative_to(&dir, &list) {
                patterns.matches(&path);
            }
        }

        #[test]
        fn an_escaped_path_matches_itself_and_all_below(path in "[a-z*?\\[\\]{}!.+-]{1,8}(/[a-z*?\\[\\]]{1,5}){0,3}") {
            prop_assume!(clean(&path) == path);
            let escaped: String = path.chars().flat_map(|c| (c != '/').then_some('\\').into_iter().chain([c])).collect();
            let patterns = Patterns::new(&[escaped]).unwrap();
            prop_assert!(patterns.matches(&path));
            let below = format!("{path}/below");
            prop_assert!(patterns.matches(&below));
        }

        #[test]
        fn a_final_exclusion_of_everything_selects_nothing(list in proptest::collection::vec("[a-z*/]{1,10}", 0..5), path in "[a-z/]{1,20}") {
            let mut list = list;
            list.push("!**".to_owned());
            if let Ok(patterns) = Patterns::new(&list) {
                prop_assert!(!patterns.matches(&path));
            }
        }

        #[test]
        fn a_mutated_list_selects_or_is_refused_in_few_words(list in proptest::collection::vec(mutated(lists()), 1..4), dir in mutated(lists()), path in mutated(lists())) {
            for patterns in [Patterns::new(&list), Patterns::relative_to(&dir, &list)] {
                match patterns {
                    Ok(patterns) => drop(patterns.matches(&path)),
                    Err(error) => prop_assert!(error.chars().count() < 300 && !error.contains(char::is_control), "{error:?}"),
                }
            }
        }

        /// A pattern without classes matches a path if its segments match the path, or a directory above it.
        #[test]
        fn a_pattern_means_what_its_segments_say(pattern in "(a|b|\\*|\\?|\\*\\*|ab|a\\*)(/(a|b|\\*|\\?|\\*\\*|ab|\\*b)){0,3}", path in "[ab]{1,2}(/[ab]{1,2}){0,3}") {
            let segments = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
            let (glob, parts) = (segments(&pattern), segments(&path));
            let expected = (1..=parts.len()).any(|depth| means(&glob, &parts[..depth]));
            prop_assert_eq!(Patterns::new(&[&pattern]).unwrap().matches(&path), expected, "{} {}", pattern, path);
        }
    }

    fn lists() -> Vec<String> {
        ["**/*.tf", "../modules/**", "!legacy/x", "a/[a-z]?/*.tf", r"a\*b", "modules", "**", "a/**/b.hcl"]
            .map(str::to_owned)
            .to_vec()
    }

    fn means(glob: &[String], path: &[String]) -> bool {
        match (glob.split_first(), path.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            // At the end it matches everything below, but not the directory itself.
            (Some((first, [])), _) if first == "**" => !path.is_empty(),
            (Some((first, rest)), _) if first == "**" => {
                means(rest, path) || path.split_first().is_some_and(|(_, below)| means(glob, below))
            }
            (Some(_), None) => false,
            (Some((first, rest)), Some((name, below))) => {
                segment(&first.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>()) && means(rest, below)
            }
        }
    }

    fn segment(glob: &[char], name: &[char]) -> bool {
        match (glob.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => segment(rest, name) || name.split_first().is_some_and(|(_, n)| segment(glob, n)),
            (Some((c, rest)), Some((n, below))) => (*c == '?' || c == n) && segment(rest, below),
            _ => false,
        }
    }
}
