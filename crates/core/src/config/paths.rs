//! Paths and globs of the configuration, by the rules of Go and doublestar. They are only text: the disk is never read.

use super::quoted;
use globset::GlobBuilder;
use regex::bytes::{Regex, RegexBuilder};

/// Longest glob or pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// Largest compiled glob, in bytes.
const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;

/// Returns the shortest equivalent path (Go's `path.Clean`): no `//`, no `.`, `..` resolved as far as possible, `.` for an empty path.
pub fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

/// Returns `path` relative to `dir`, cleaned. It begins with `..` if it leaves the repository.
pub fn join(dir: &str, path: &str) -> String {
    clean(&format!("{dir}/{}", path.trim_start_matches('/')))
}

/// Returns the directory of a file, `.` for the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(dir, _)| dir)
}

/// Returns true if a text is a glob in places that accept globs and directories (`-d`, `dir`): braces alone do not make one.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// A doublestar glob: `*` and `?` within a segment, `**` across segments, `[…]`, `{a,b}`. It has to match the whole
/// path.
#[derive(Debug, Clone)]
pub struct Glob(Vec<Regex>);

impl Glob {
    /// Compiles a glob; the error is for users.
    pub fn new(glob: &str) -> Result<Glob, String> {
        if glob.len() > MAX_PATTERN_BYTES {
            return Err(format!("the glob is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        let build = |text: &str| {
            let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|error| error.kind().to_string())?;
            // `compile_matcher` panics if braces are nested too deeply.
            let regex =
                RegexBuilder::new(glob.regex()).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES).build();
            regex.map_err(|_| "it is too large, or nested too deeply".to_owned())
        };
        let build = |text: &str| {
            build(text).map_err(|error| format!("`{}` is not a valid glob: {}", quoted(text), quoted(&error)))
        };
        let mut matchers = vec![build(glob)?];
        // doublestar's `a/**` matches `a` itself too.
        let dir = glob.strip_suffix('/').unwrap_or(glob).trim_end_matches("/**");
        if dir.len() < glob.trim_end_matches('/').len() && !dir.is_empty() {
            matchers.push(build(dir)?);
        }
        Ok(Glob(matchers))
    }

    /// Returns true if the whole path matches.
    pub fn matches(&self, path: &str) -> bool {
        self.0.iter().any(|matcher| matcher.is_match(path.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, cleaned) in [
            ("", "."),
            (".", "."),
            ("./", "."),
            ("a//b/", "a/b"),
            ("./a/./b", "a/b"),
            ("a/../b", "b"),
            ("a/..", "."),
            ("a/../..", ".."),
            ("../a", "../a"),
            ("../../a/../b", "../../b"),
            ("/a/../../b", "/b"),
            ("/", "/"),
            ("**/*.tf", "**/*.tf"),
        ] {
            assert_eq!(clean(path), cleaned, "{path}");
        }
        assert_eq!(join("app", "../modules/**"), "modules/**");
        assert_eq!(join(".", "**/*.tf"), "**/*.tf");
        assert_eq!(join("app", "../../x"), "../x");
        assert_eq!(join("app", "/x"), "app/x");
    }

    #[test]
    fn globs_match_whole_paths_as_doublestar_does() {
        for (glob, path, expected) in [
            ("legacy/**", "legacy/old", true),
            ("legacy/**", "legacy/old/older", true),
            ("legacy/**", "legacy", true),
            ("legacy/**", "legacy2", false),
            ("legacy", "legacy/old", false),
            ("legacy/*", "legacy/old", true),
            ("legacy/*", "legacy/old/older", false),
            ("**/old", "old", true),
            ("**/old", "legacy/old", true),
            ("**/old", "legacy/older", false),
            ("legacy/**/**", "legacy", true),
            ("legacy/**/", "legacy", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("{dev,prod}/*", "prod/app", true),
            ("{dev,prod}/*", "test/app", false),
            ("[!d]*/app", "prod/app", true),
            ("[^d]*/app", "dev/app", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("**", ".", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
        ] {
            assert_eq!(Glob::new(glob).unwrap().matches(path), expected, "{glob} {path}");
        }
        assert!(Glob::new("a[").is_err());
        assert!(Glob::new("{a").is_err());
        let deep = [1000, 300, 2000].map(|n| "{a,".repeat(n / 2) + &"}".repeat(n / 2));
        assert!(deep.iter().all(|glob| Glob::new(glob).unwrap_err().contains("nested too deeply")));
    }

    #[test]
    fn only_star_question_mark_and_bracket_make_a_glob() {
        assert!(is_glob("a/*") && is_glob("a?") && is_glob("[ab]"));
        assert!(!is_glob("{a,b}") && !is_glob("a/b"));
    }
}
