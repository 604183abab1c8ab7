//! Version constraints of `required_version`, by the rules of go-version.

use anyhow::{Context, bail};
use semver::Version;

/// A comma-separated list of conditions, all of which must hold.
#[derive(Debug, Clone)]
pub(super) struct Constraint {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    operator: &'static str,
    version: Version,
    /// Count of the numbers that were written: `~> 1.5` and `~> 1.5.0` differ.
    written: usize,
}

/// Longer operators come first, so that `>` does not match the start of `>=`.
const OPERATORS: [&str; 7] = [">=", "<=", "!=", "~>", "=", ">", "<"];

impl Constraint {
    /// Parses `>= 1.3, < 2.0.0`. An empty text allows everything.
    pub(super) fn parse(text: &str) -> anyhow::Result<Constraint> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let conditions = parts.map(Condition::parse).collect::<anyhow::Result<Vec<_>>>();
        Ok(Constraint { conditions: conditions.with_context(|| format!("{text:?} is not a version constraint"))? })
    }

    /// Returns true if this version is allowed.
    pub(super) fn allows(&self, version: &Version) -> bool {
        self.conditions.iter().all(|condition| condition.is_met_by(version))
    }

    /// Returns the version of the condition `=`, if there is one.
    pub(super) fn exact(&self) -> Option<&Version> {
        self.conditions.iter().find(|condition| condition.operator == "=").map(|condition| &condition.version)
    }
}

impl Condition {
    fn parse(text: &str) -> anyhow::Result<Condition> {
        let (operator, rest) = OPERATORS
            .iter()
            .find_map(|operator| text.strip_prefix(operator).map(|rest| (*operator, rest)))
            .unwrap_or(("=", text));
        let (version, written) = lenient(rest.trim())?;
        Ok(Condition { operator, version, written })
    }

    fn is_met_by(&self, version: &Version) -> bool {
        let own = &self.version;
        match self.operator {
            "=" => return version.cmp_precedence(own).is_eq(),
            "!=" => return version.cmp_precedence(own).is_ne(),
            _ => {}
        }
        // A pre-release matches only a condition that names a pre-release of the same version.
        let numbers = |v: &Version| [v.major, v.minor, v.patch];
        if !version.pre.is_empty() && (own.pre.is_empty() || numbers(version) != numbers(own)) {
            return false;
        }
        let order = version.cmp_precedence(own);
        match self.operator {
            ">" => order.is_gt(),
            "<" => order.is_lt(),
            ">=" => order.is_ge(),
            "<=" => order.is_le(),
            _ => {
                let fixed = self.written.saturating_sub(1);
                let pre_release_alike = own.pre.is_empty() || !version.pre.is_empty();
                pre_release_alike && order.is_ge() && numbers(version)[..fixed] == numbers(own)[..fixed]
            }
        }
    }
}

/// Parses `1.5.7`, `v1.5.7`, `1.5`, `1`, `1.6.0-beta1`. Also returns the count of the numbers that were written.
pub(super) fn lenient(text: &str) -> anyhow::Result<(Version, usize)> {
    let plain = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let end = plain.find(['-', '+']).unwrap_or(plain.len());
    let (numbers, rest) = plain.split_at(end);
    let written = numbers.split('.').count();
    if written > 3 || numbers.is_empty() {
        bail!("{text:?} is not a version (like 1.11.4)");
    }
    let padded = format!("{numbers}{}{rest}", ".0".repeat(3 - written));
    let version = Version::parse(&padded).map_err(|_| anyhow::anyhow!("{text:?} is not a version (like 1.11.4)"))?;
    Ok((version, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_mean_what_they_mean_to_terraform() {
        let table: [(&str, &[&str], &[&str]); 13] = [
            ("", &["0.1.0", "9.9.9"], &[]),
            ("1.5.7", &["1.5.7"], &["1.5.8", "1.5.7-rc1"]),
            ("= v1.5", &["1.5.0"], &["1.5.1"]),
            ("!=1.5.7", &["1.5.8"], &["1.5.7"]),
            (">= 1.3, < 2.0.0", &["1.3.0", "1.99.0"], &["1.2.9", "2.0.0", "1.4.0-beta1", "2.0.0-rc1"]),
            ("~> 1.5", &["1.5.0", "1.11.4"], &["2.0.0", "1.4.9", "1.6.0-alpha1"]),
            ("~> 1.5.2", &["1.5.2", "1.5.99"], &["1.6.0", "1.5.1"]),
            ("~> 1", &["1.0.0", "1.9.0", "2.0.0"], &["0.15.0"]),
            ("~> 1.6.0-beta1", &["1.6.0-beta2", "1.6.0-beta1"], &["1.6.0", "1.6.0-alpha1", "1.6.1"]),
            (">= 1.6.0-beta1", &["1.6.0-beta2", "1.6.0", "1.7.0"], &["1.7.0-beta1", "1.5.0"]),
            ("> 1.5", &["1.5.1"], &["1.5.0"]),
            ("<= 1.5", &["1.5.0", "0.12.31"], &["1.5.1"]),
            ("<1", &["0.15.5"], &["1.0.0"]),
        ];
        for (text, good, bad) in table {
            let constraint = Constraint::parse(text).unwrap();
            for (versions, expected) in [(good, true), (bad, false)] {
                for version in versions {
                    assert_eq!(constraint.allows(&version.parse().unwrap()), expected, "{text:?} and {version}");
                }
            }
        }
        for wrong in ["latest", ">= x", "~>", "1.2.3.4", "=> 1", "1..2"] {
            assert!(Constraint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
