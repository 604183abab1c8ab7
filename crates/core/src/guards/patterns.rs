//! Patterns of guards: `*` stands for any characters. Addresses have brackets and slashes, so no globs of paths are used.

/// Host of sources of providers that name none. OpenTofu's own registry has the same role.
const DEFAULT_HOSTS: [&str; 2] = ["registry.terraform.io", "registry.opentofu.org"];
/// Provider that is a part of Terraform.
const BUILT_IN: &str = "terraform.io/builtin/terraform";

/// Returns true if a text matches a pattern as a whole.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// Returns true if a pattern protects a resource. A pattern without a dot is for types. One with a dot is for addresses; it also protects
/// the instances of a resource, and everything in a module.
pub(super) fn protects(pattern: &str, address: &str) -> bool {
    if !pattern.contains('.') {
        return matches(pattern, type_of(address));
    }
    let ends = address.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
    ends.chain([address.len()]).any(|end| address.get(..end).is_some_and(|part| matches(pattern, part)))
}

/// Returns the type of the resource at an address.
fn type_of(address: &str) -> &str {
    let mut rest = address;
    while let Some(in_module) = rest.strip_prefix("module.") {
        let Some(after) = after_step(in_module) else { return rest };
        rest = after;
    }
    rest.split('.').next().unwrap_or(rest)
}

/// Returns the text after a module's name, its index and the dot. An index may be a text with dots and brackets.
fn after_step(text: &str) -> Option<&str> {
    let end = text.find(['.', '['])?;
    let rest = text.get(end..)?;
    if let Some(after) = rest.strip_prefix('.') {
        return Some(after);
    }
    let after = match rest.strip_prefix("[\"") {
        Some(key) => after_key(key)?,
        None => rest.split_once(']')?.1,
    };
    after.strip_prefix('.')
}

/// Returns the text after the quoted key of an index.
fn after_key(key: &str) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in key.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return key.get(at + 1..)?.strip_prefix(']'),
            _ => {}
        }
    }
    None
}

/// Returns true if one of the patterns has this source of a provider.
pub(super) fn allows_provider(patterns: &[String], source: &str) -> bool {
    let source = source.to_lowercase();
    let Some([host, namespace, kind]) = provider_parts(&source) else { return false };
    if [host, namespace, kind].join("/") == BUILT_IN {
        return true;
    }
    let is_of = |pattern: &str, part: &str| matches(&pattern.to_lowercase(), part);
    patterns.iter().any(|pattern| match *pattern.split('/').collect::<Vec<_>>() {
        [of_namespace, of_kind] => {
            DEFAULT_HOSTS.contains(&host) && is_of(of_namespace, namespace) && is_of(of_kind, kind)
        }
        [of_host, of_namespace, of_kind] => {
            is_of(of_host, host) && is_of(of_namespace, namespace) && is_of(of_kind, kind)
        }
        _ => false,
    })
}

/// Returns host, namespace and type of a source.
fn provider_parts(source: &str) -> Option<[&str; 3]> {
    let default = DEFAULT_HOSTS.first().copied().unwrap_or_default();
    match *source.split('/').collect::<Vec<_>>() {
        ["terraform"] => Some(["terraform.io", "builtin", "terraform"]),
        [kind] => Some([default, "hashicorp", kind]),
        [namespace, kind] => Some([default, namespace, kind]),
        [host, namespace, kind] => Some([host, namespace, kind]),
        _ => None,
    }
}

/// Returns true if one of the patterns has this source of a module. Sources that a fetch might normalize to another address match none.
pub(super) fn allows_module(patterns: &[String], source: &str) -> bool {
    let address = source.split('?').next().unwrap_or(source);
    let leaves = address.split(['/', ':']).any(|part| part == ".." || part == ".");
    let is_odd = address.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '%' | '\\' | '#'));
    !leaves && !is_odd && patterns.iter().any(|pattern| matches(pattern, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("**x", "yx", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn protected_are_types_addresses_instances_and_modules() {
        for (pattern, address, expected) in [
            ("google_sql_*", "google_sql_database.a", true),
            ("google_sql_*", "module.x[\"a.b].google_sql_c\"].google_sql_database.a[\"k/1\"]", true),
            ("google_sql_*", "module.google_sql_x.null_resource.a", false),
            ("null_resource", "module.a.module.b[0].null_resource.x", true),
            ("aws_s3_bucket.logs", "aws_s3_bucket.logs", true),
            ("aws_s3_bucket.logs", "aws_s3_bucket.logs[\"a/b\"]", true),
            ("aws_s3_bucket.logs", "aws_s3_bucket.logs2", false),
            ("aws_s3_bucket.logs", "module.x.aws_s3_bucket.logs", false),
            ("*.aws_s3_bucket.logs", "module.x.aws_s3_bucket.logs[0]", true),
            ("module.db", "module.db.x.y", true),
            ("module.db", "module.db[\"prod\"].x.y", true),
            ("module.db", "module.db2.x.y", false),
        ] {
            assert_eq!(protects(pattern, address), expected, "{pattern} {address}");
        }
    }

    #[test]
    fn providers_are_allowed_by_their_full_source() {
        let allowed = |pattern: &str, source: &str| allows_provider(&[pattern.to_owned()], source);
        for (pattern, source, expected) in [
            ("hashicorp/*", "google", true),
            ("hashicorp/*", "hashicorp/google", true),
            ("hashicorp/*", "registry.terraform.io/hashicorp/google", true),
            ("hashicorp/*", "registry.opentofu.org/hashicorp/google", true),
            ("hashicorp/*", "evil.example.com/hashicorp/google", false),
            ("hashicorp/google", "hashicorp/google-beta", false),
            ("Hashicorp/Google", "HASHICORP/google", true),
            ("*/*", "evil.example.com/a/b", false),
            ("example.com/*/*", "example.com/a/b", true),
            ("none/none", "terraform.io/builtin/terraform", true),
            ("none/none", "terraform", true),
            ("none/none", "evil/terraform", false),
            ("*/*", "a/b/c/d", false),
        ] {
            assert_eq!(allowed(pattern, source), expected, "{pattern} {source}");
        }
    }

    #[test]
    fn module_sources_that_lead_elsewhere_are_never_allowed() {
        let pattern = ["git::https://github.com/acme/*".to_owned()];
        let allowed = |source: &str| allows_module(&pattern, source);
        assert!(allowed("git::https://github.com/acme/net.git//vpc?ref=v1.2..3"));
        for source in [
            "git::https://github.com/acme/../evil/net.git",
            "git::https://github.com/acme/%2e%2e/evil/net.git",
            "git::https://github.com/acme/..\\evil",
            "git::https://github.com/acme/./x",
            "git::https://github.com@evil.example/acme/x",
            "git::https://github.com/acme/ x",
            "https://github.com/acme/x",
        ] {
            assert!(!allowed(source), "{source}");
        }
    }
}
