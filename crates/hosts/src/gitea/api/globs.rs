//! Globs of branch protections (modules/glob/glob.go): `*` stands for any characters but separators, `**` for any, `?` for one that is no
//! separator, `[a-z]` and `[!a]` for one of a class, `{a,b}` for one of several patterns; `\` escapes.

/// Longest pattern that is read, in characters. Its cost is its length times that of the text.
const MAX_PATTERN: usize = 1_000;
/// Longest text that is compared, in characters.
const MAX_TEXT: usize = 4_000;
/// Most levels of `{…}`.
const MAX_DEPTH: usize = 8;

/// A compiled glob.
pub(super) struct GiteaGlob {
    parts: Vec<GlobPart>,
    separators: &'static [char],
}

enum GlobPart {
    Char(char),
    /// One character that is no separator.
    One,
    /// Any number of characters that are no separators.
    Some,
    /// Any number of characters.
    Any,
    /// One character of these ranges, or of none of them.
    Class {
        not: bool,
        ranges: Vec<(char, char)>,
    },
    /// One of these patterns.
    Either(Vec<Vec<GlobPart>>),
}

impl GiteaGlob {
    /// Compiles a glob; absent if it is malformed, or longer or nested deeper than allowed.
    pub(super) fn new(pattern: &str, separators: &'static [char]) -> Option<GiteaGlob> {
        let chars: Vec<char> = pattern.chars().collect();
        if chars.len() > MAX_PATTERN {
            return None;
        }
        let (mut alternatives, end) = parse(&chars, 0, 0)?;
        (end == chars.len()).then_some(())?;
        Some(GiteaGlob { parts: alternatives.pop()?, separators })
    }

    /// Returns true if the whole text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        if text.len() > MAX_TEXT {
            return false;
        }
        let mut start = vec![false; text.len() + 1];
        start[0] = true;
        self.ends(&self.parts, &text, start)[text.len()]
    }

    /// Returns the positions of the text at which the parts may end, for those at which they may begin.
    fn ends(&self, parts: &[GlobPart], text: &[char], from: Vec<bool>) -> Vec<bool> {
        let one = |char: char, part: &GlobPart| match part {
            GlobPart::Char(wanted) => *wanted == char,
            GlobPart::Class { not, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&char)) != *not,
            GlobPart::Any => true,
            GlobPart::One | GlobPart::Some => !self.separators.contains(&char),
            GlobPart::Either(_) => false,
        };
        parts.iter().fold(from, |from, part| match part {
            GlobPart::Either(patterns) => {
                let mut all = vec![false; from.len()];
                for pattern in patterns {
                    for (at, is_end) in self.ends(pattern, text, from.clone()).into_iter().enumerate() {
                        all[at] |= is_end;
                    }
                }
                all
            }
            GlobPart::Some | GlobPart::Any => {
                let mut to = from;
                for (at, char) in text.iter().enumerate() {
                    to[at + 1] |= to[at] && one(*char, part);
                }
                to
            }
            GlobPart::Char(_) | GlobPart::One | GlobPart::Class { .. } => {
                let mut to = vec![false; from.len()];
                for (at, char) in text.iter().enumerate() {
                    to[at + 1] = from[at] && one(*char, part);
                }
                to
            }
        })
    }
}

/// Parses from a position to the end, or to the `}` of this level. Returns the patterns between commas, and the position after.
fn parse(chars: &[char], mut at: usize, depth: usize) -> Option<(Vec<Vec<GlobPart>>, usize)> {
    let (mut done, mut parts) = (Vec::new(), Vec::new());
    while let Some(char) = chars.get(at) {
        at += 1;
        let part = match char {
            '}' if depth > 0 => {
                done.push(parts);
                return Some((done, at));
            }
            ',' if depth > 0 => {
                done.push(std::mem::take(&mut parts));
                continue;
            }
            '*' if chars.get(at) == Some(&'*') => {
                at += 1;
                GlobPart::Any
            }
            '*' => GlobPart::Some,
            '?' => GlobPart::One,
            '[' => {
                let (class, end) = class(chars, at)?;
                at = end;
                class
            }
            '{' if depth < MAX_DEPTH => {
                let (patterns, end) = parse(chars, at, depth + 1)?;
                at = end;
                GlobPart::Either(patterns)
            }
            '{' => return None,
            '\\' => {
                let escaped = *chars.get(at)?;
                at += 1;
                GlobPart::Char(escaped)
            }
            char => GlobPart::Char(*char),
        };
        parts.push(part);
    }
    done.push(parts);
    // A `{` without its `}`.
    (depth == 0).then_some((done, at))
}

/// Parses the class whose `[` is before this position.
fn class(chars: &[char], mut at: usize) -> Option<(GlobPart, usize)> {
    let not = chars.get(at) == Some(&'!');
    at += usize::from(not);
    let mut ranges = Vec::new();
    loop {
        let next = |at: &mut usize| {
            *at += usize::from(*chars.get(*at)? == '\\');
            *at += 1;
            chars.get(*at - 1).copied()
        };
        if *chars.get(at)? == ']' {
            return (!ranges.is_empty()).then_some((GlobPart::Class { not, ranges }, at + 1));
        }
        let low = next(&mut at)?;
        let is_range = chars.get(at) == Some(&'-') && chars.get(at + 1).is_some_and(|end| *end != ']');
        let high = if is_range {
            at += 1;
            next(&mut at)?
        } else {
            low
        };
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn globs_match_as_on_the_host() {
        for (pattern, matching, others) in [
            ("ci/build", &["ci/build"][..], &["ci/build2", "xci/build", "CI/build"][..]),
            ("ci/*", &["ci/", "ci/a", "ci/a/b"], &["ci", "xci/a"]),
            ("*", &["", "a", "a/b\nc"], &[]),
            ("a?c", &["abc", "a/c"], &["ac", "abbc"]),
            ("[a-c]x[!0-9]", &["axz", "bx-"], &["dxz", "ax1", "ax"]),
            ("{plan,apply}: *", &["plan: a", "apply: b"], &["plan", "other: a"]),
            ("a{b,}c", &["abc", "ac"], &["abbc"]),
            ("{a,{b,c}d}", &["a", "bd", "cd"], &["b", "ad"]),
            (r"a\*\[", &["a*["], &["ab["]),
            ("a.b+(c)|d", &["a.b+(c)|d"], &["axb+(c)|d"]),
            ("a,b}", &["a,b}"], &["a"]),
        ] {
            let glob = GiteaGlob::new(pattern, &[]).unwrap();
            assert!(matching.iter().all(|text| glob.matches(text)), "{pattern}");
            assert!(!others.iter().any(|text| glob.matches(text)), "{pattern}");
        }
    }

    #[test]
    fn separators_stop_a_star_and_not_two() {
        let matches = |pattern: &str, text: &str| GiteaGlob::new(pattern, &['.', '/']).unwrap().matches(text);
        assert!(matches("*.tf", "main.tf") && !matches("*.tf", "a/main.tf") && !matches("*.tf", "a.b.tf"));
        assert!(matches("**.tf", "a/b.c/main.tf") && !matches("a?b", "a/b"));
    }

    #[test]
    fn malformed_and_huge_patterns_match_nothing() {
        let (long, deep) = ("a".repeat(MAX_PATTERN + 1), "{".repeat(MAX_DEPTH + 1) + &"}".repeat(MAX_DEPTH + 1));
        for pattern in ["[a", "[]", "{a", r"a\", r"[a\", &long, &deep] {
            assert!(GiteaGlob::new(pattern, &[]).is_none(), "{pattern}");
        }
        let many = "{a,b}*".repeat(MAX_PATTERN / 6);
        let many = GiteaGlob::new(&many, &[]).unwrap();
        assert!(many.matches(&"ab".repeat(MAX_PATTERN / 12 + 1)) && !many.matches(&"ab".repeat(MAX_PATTERN / 12 - 1)));
        assert!(!GiteaGlob::new("*", &[]).unwrap().matches(&"a".repeat(MAX_TEXT + 1)));
    }
}
