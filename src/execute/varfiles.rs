//! `--var-file-allowlist`: where `-var-file` in a comment may point to.

use std::path::{Component, Path, PathBuf};

/// The first `-var-file` argument that leads outside of the checkout and of the allowed roots, if any. Relative paths are read
/// in the project's directory; those that climb out of it are refused.
pub(super) fn refused<'a>(args: &'a [String], allowed: &[PathBuf]) -> Option<&'a str> {
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let bare = arg.trim_start_matches('-');
        let value = match bare.strip_prefix("var-file") {
            Some("") if arg.starts_with('-') => rest.next().map_or("", String::as_str),
            Some(tail) if arg.starts_with('-') && tail.starts_with('=') => &tail[1..],
            _ => continue,
        };
        let path = Path::new(value);
        let climbs = path.components().any(|part| part == Component::ParentDir);
        let relative = path.is_relative() && !value.starts_with('~') && !climbs;
        let inside = path.is_absolute() && !climbs && allowed.iter().any(|root| path.starts_with(root));
        if !relative && !inside {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_the_checkout_or_an_allowed_root_pass() {
        let allowed = [PathBuf::from("/etc/tidelock/vars")];
        for (arg, refuse) in [
            ("-var-file=prod.tfvars", false),
            ("--var-file=/etc/passwd", true),
            ("-var-file=../../x", true),
            ("-var-file=~/x", true),
            ("-var-file=/etc/tidelock/vars/a.tfvars", false),
            ("-var-file=/etc/tidelock/vars/../../passwd", true),
            ("-var=file=/etc/passwd", false),
        ] {
            assert_eq!(refused(&[arg.into()], &allowed).is_some(), refuse, "{arg}");
        }
        assert_eq!(refused(&["-var-file".into(), "/etc/passwd".into()], &allowed), Some("/etc/passwd"));
    }
}
