//! Names of our commit statuses, on hosts that know a status by one text, and the form in which some hosts take a status.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidelock_core::domain::state::{CommitStatus, StatusState};

/// Returns true if a status of this name is one of ours, whose names begin with `first`.
pub(crate) fn is_ours(name: &str, first: &str) -> bool {
    name.strip_prefix(first).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns true if a status of ours has the name of an apply.
pub(crate) fn is_of_apply(name: &str, first: &str) -> bool {
    let rest = name.strip_prefix(first).and_then(|rest| rest.strip_prefix("/apply"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// Returns a name of at most `limit` characters. One that is too long is cut, and stays different from others that begin alike: it ends
/// with this many digits of its hash.
pub(crate) fn cut(name: &str, limit: usize, digits: usize) -> String {
    if name.chars().count() <= limit {
        return name.to_owned();
    }
    let hash: String = hex::encode(Sha256::digest(name)).chars().take(digits).collect();
    let kept: String = name.chars().take(limit.saturating_sub(digits + 1)).collect();
    format!("{kept}~{hash}")
}

/// Returns a status in the form of hosts that know `pending`, `success` and `failure`. Its description is cut to `limit` characters.
pub(crate) fn body(status: &CommitStatus, limit: usize) -> Value {
    let state = match status.state {
        StatusState::Pending => "pending",
        StatusState::Success => "success",
        StatusState::Failure => "failure",
    };
    let description: String = status.description.chars().take(limit).collect();
    let mut body = json!({ "state": state, "context": status.context, "description": description });
    if !status.url.is_empty() {
        body["target_url"] = json!(status.url);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let long = |end: &str| cut(&format!("atlantis/plan: {}{end}", "ä".repeat(100)), 40, 12);
        assert_eq!(long("a").chars().count(), 40);
        assert!(long("a").starts_with("atlantis/plan: ääää") && long("a") != long("b"));
        let most = "x".repeat(40);
        assert_eq!((cut("atlantis/plan", 40, 12), cut(&most, 40, 12)), ("atlantis/plan".to_owned(), most));
    }

    #[test]
    fn our_own_statuses_are_told_by_their_first_part() {
        assert!(is_ours("atlantis/apply", "atlantis") && is_ours("prod/eu/plan: a", "prod/eu"));
        assert!(!is_ours("atlantis-2/apply", "atlantis") && !is_ours("build", "atlantis"));
        assert!(is_of_apply("atlantis/apply", "atlantis") && is_of_apply("atlantis/apply: a", "atlantis"));
        assert!(!is_of_apply("atlantis/apply-all", "atlantis") && !is_of_apply("atlantis/plan", "atlantis"));
        assert!(!is_of_apply("x/apply", "atlantis"));
    }
}
