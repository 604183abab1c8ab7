//! Progress of the comparison of pull requests with their hosts.

use super::{CommitSha, PullVersion};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Progress of the comparison of a pull request with its host, which finds events that were never delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// Comments before this time, by the host's clock, are not new. Whole seconds, as hosts write them.
    pub comments: Timestamp,
    /// Its version at the last comparison; unknown before the first.
    #[serde(default, rename = "updated_at")]
    pub version: PullVersion,
    /// The head that was handled without its delivery, and the version then. That delivery is ignored if it still arrives.
    #[serde(default)]
    pub taken: Option<(CommitSha, PullVersion)>,
    /// Progress of polling; absent without polling, and before the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled: Option<PollMark>,
}

/// State of a pull request at the last look of polling. Times are by the host's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollMark {
    /// Its head.
    pub head: CommitSha,
    /// The head before that one, if a look has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<CommitSha>,
    /// Time of the first look that saw the head. Whoever commented before may have meant another one.
    pub seen: Timestamp,
    /// True if it was a draft.
    #[serde(default)]
    pub draft: bool,
    /// Comments at or after [`Watermark::comments`] that were handled.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub handled: BTreeSet<u64>,
    /// True once its closing was taken up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
}

impl Watermark {
    /// Creates a mark that ignores all comments before this moment.
    pub fn at(now: Timestamp) -> Watermark {
        let comments = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Watermark { comments, version: PullVersion::default(), taken: None, polled: None }
    }
}
