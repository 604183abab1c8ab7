//! Our comments that people see, in the order in which they were written.

use jiff::Timestamp;
use tidelock_core::render::marker;

/// A comment of ours that is not hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownComment {
    /// Id by which the host hides and rewrites it.
    pub id: String,
    /// Whole text.
    pub body: String,
}

impl ShownComment {
    /// Sorts comments by the time of their last writing, by the host's clock. Each has its place by creation as well. GitHub and Gitea report
    /// whole seconds: within one, the time in the marker decides, because a comment may have been written over an earlier one.
    pub(crate) fn oldest_first(mut found: Vec<(Timestamp, u64, Self)>) -> Vec<Self> {
        found.sort_by_cached_key(|(written, place, comment)| (*written, marker::made_at(&comment.body), *place));
        found.into_iter().map(|(.., comment)| comment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_decides_within_a_second() {
        let comment = |second: i64, id: u64, at: &str| {
            let body = format!("text\n<!-- tidelock:{{\"v\":1{at}}} -->");
            (Timestamp::from_second(second).unwrap(), id, ShownComment { id: id.to_string(), body })
        };
        let at = |millisecond: u16| format!(r#","at":"2026-11-29T09:30:00.{millisecond:03}Z""#);
        let found = vec![
            comment(2, 1, &at(900)),
            comment(2, 2, &at(100)),
            comment(1, 3, &at(950)),
            comment(2, 5, ""),
            comment(2, 4, ""),
        ];
        let ids: Vec<String> = ShownComment::oldest_first(found).into_iter().map(|comment| comment.id).collect();
        assert_eq!(ids, ["3", "4", "5", "2", "1"], "without a time in the marker: before the others of the second");
    }
}
