//! What can be seen from outside in a trial: what people did, what the server answered, and what is there at the end.

use serde_json::Value;
use std::collections::BTreeMap;

/// Mode of all projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Locking {
    #[default]
    OnPlan,
    Strict,
}

/// What people do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Open,
    Push,
    Plan,
    Apply,
    Unlock,
    AcceptDrift,
    Close,
    Merge,
    /// `apply` on a merged pull request, which may come to a plan that is shown first.
    ApplyMerged,
}

impl Act {
    /// The command that an answer to it names.
    pub(crate) fn answered_by(self) -> &'static str {
        match self {
            Act::Open | Act::Push | Act::Plan => "plan",
            Act::Apply | Act::ApplyMerged => "apply",
            Act::Unlock | Act::AcceptDrift => "unlock",
            Act::Close | Act::Merge => "cleanup",
        }
    }

    /// Whether the pull request gives up its locks and plans.
    pub(crate) fn frees(self) -> bool {
        matches!(self, Act::Unlock | Act::AcceptDrift | Act::Close | Act::Merge)
    }

    /// Whether a comment with this command may be what a person waits for.
    pub(crate) fn is_answered_by(self, command: &str) -> bool {
        match self {
            Act::ApplyMerged => ["apply", "plan"].contains(&command),
            Act::Close | Act::Merge => ["cleanup", "owes"].contains(&command),
            _ => self.answered_by() == command,
        }
    }
}

/// The result of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Result {
    pub(crate) dir: String,
    pub(crate) outcome: String,
    pub(crate) reason: String,
}

/// One thing that happened, in the order in which it was seen. What people do is recorded before they do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// `accepted`: a delivery about it was answered with success.
    Said { pull: u64, act: Act, accepted: bool },
    /// A comment of the server. `command`: what it answers, or the kind of its message; `head`: the commit that it is about, if any.
    Answered { pull: u64, id: u64, command: String, head: String, results: Vec<Result>, text: String },
    /// The workflow ran: a plan was made, or its apply has begun.
    Ran { is_apply: bool, pull: u64, dir: String, plan: String },
    /// The server is about to be ended.
    Ending,
    /// It has ended, and another one runs.
    Ended,
}

/// A line that the apply step has written: which plan was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) pull: u64,
    pub(crate) dir: String,
    pub(crate) plan: String,
}

/// A row of `/api/locks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) pull: u64,
    pub(crate) dir: String,
    pub(crate) state: String,
}

/// All of a trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// What pull requests are written with.
    pub(crate) mark: String,
    pub(crate) locking: Locking,
    pub(crate) events: Vec<Event>,
    /// Directories that each pull request changes.
    pub(crate) dirs: BTreeMap<u64, Vec<String>>,
    /// At rest, the head of each pull request.
    pub(crate) heads: BTreeMap<u64, String>,
    /// At rest, of open pull requests: number, context and state of the head's statuses.
    pub(crate) statuses: Vec<(u64, String, String)>,
    pub(crate) applied: Vec<Applied>,
    /// At rest.
    pub(crate) owned: Vec<Owned>,
    /// Something that went wrong with the trial itself, such as a server that does not start.
    pub(crate) broken: Vec<String>,
}

impl Event {
    /// A comment of the server; absent for further parts of one.
    pub(crate) fn of_comment(pull: u64, id: u64, body: &str) -> Option<Event> {
        let (text, last) = body.trim_end().rsplit_once('\n')?;
        let json = last.strip_prefix("<!-- tidelock:")?.strip_suffix(" -->")?;
        let marker: Value = serde_json::from_str(json).ok()?;
        if marker["part"].as_u64().is_some_and(|part| part > 1) {
            return None;
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let result = |row: &Value| Result {
            dir: word(&row["dir"]),
            outcome: word(&row["outcome"]),
            reason: word(&row["reason"]),
        };
        let results: Vec<Result> = marker["results"].as_array().into_iter().flatten().map(result).collect();
        let command = match marker["command"].as_str().or(marker["message"].as_str()) {
            // A plan that was asked for before a push, whose own plan is told.
            Some("superseded") => "plan",
            // Nobody asked for it.
            Some("plan") if marker["trigger"] == "replan" => "replan",
            named => named.unwrap_or_default(),
        };
        let (command, head) = (command.to_owned(), word(&marker["head"]));
        Some(Event::Answered { pull, id, command, head, results, text: text.to_owned() })
    }

    /// From a line that a step of the workflow has written.
    pub(crate) fn of_line(line: &str) -> Option<Event> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let is_apply = words.next()? == "apply";
        Some(Event::Ran { is_apply, pull: words.next()?.parse().ok()?, dir: words.next()?, plan: words.next()? })
    }

    pub(crate) fn pull(&self) -> Option<u64> {
        match self {
            Event::Said { pull, .. } | Event::Answered { pull, .. } => Some(*pull),
            Event::Ran { .. } | Event::Ending | Event::Ended => None,
        }
    }
}
