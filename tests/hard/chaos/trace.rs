//! Observations of a trial from outside: acts of people, answers of the server, and the state at the end.

use super::approvals::ApplyCause;
use super::engines::JobEngine;
use serde_json::Value;
use std::collections::BTreeMap;
use tidelock_core::render::marker;

/// Mode of all projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Locking {
    #[default]
    OnPlan,
    Strict,
}

/// Place where all jobs run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum JobsAt {
    #[default]
    Server,
    Executor(JobEngine),
}

/// Act of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Open,
    Push,
    Plan,
    Apply,
    /// An approval, which causes an apply.
    Approve,
    Unlock,
    AcceptDrift,
    Close,
    Merge,
    /// `apply` on a merged pull request, which may show a new plan first.
    ApplyMerged,
}

impl Act {
    /// Returns the command that an answer to it names.
    pub(crate) fn answered_by(self) -> &'static str {
        match self {
            Act::Open | Act::Push | Act::Plan => "plan",
            Act::Apply | Act::Approve | Act::ApplyMerged => "apply",
            Act::Unlock | Act::AcceptDrift => "unlock",
            Act::Close | Act::Merge => "cleanup",
        }
    }

    /// Returns true if the pull request gives up its locks and plans.
    pub(crate) fn frees(self) -> bool {
        matches!(self, Act::Unlock | Act::AcceptDrift | Act::Close | Act::Merge)
    }

    /// Returns true if it may rightly get no answer: nothing was held, or nothing was planned.
    pub(crate) fn may_be_unanswered(self) -> bool {
        self.answered_by() == "cleanup" || self == Act::Approve
    }

    /// Returns true if a comment with this command may be the answer that a person waits for.
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

/// One event, in the order of observation. Acts are recorded before they are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// `accepted`: a delivery about it was answered with success.
    Said { pull: u64, act: Act, accepted: bool },
    /// A comment of the server. `command`: the command that it answers, or the kind of its message; `head`: the commit that it is about, if
    /// any.
    Answered { pull: u64, id: u64, command: String, head: String, results: Vec<Result>, text: String },
    /// The workflow ran: a plan was made, or its apply has begun.
    Ran { is_apply: bool, pull: u64, dir: String, plan: String },
    /// The process of a job at an executor is about to be killed, and its steps with it.
    JobKilled { is_apply: bool, pull: u64, dir: String },
    /// The server is about to be ended.
    Ending,
    /// It has ended, and another one runs.
    Ended,
}

/// A line of the apply step, which names the plan that was applied.
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

/// Observations of a whole trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// Mark in front of numbers of pull requests, such as `#`.
    pub(crate) mark: String,
    pub(crate) locking: Locking,
    pub(crate) jobs: JobsAt,
    pub(crate) applies: ApplyCause,
    pub(crate) events: Vec<Event>,
    /// Directories that each pull request changes.
    pub(crate) dirs: BTreeMap<u64, Vec<String>>,
    /// Head of each pull request, at rest.
    pub(crate) heads: BTreeMap<u64, String>,
    /// Statuses of open pull requests' heads, at rest: number, context and state.
    pub(crate) statuses: Vec<(u64, String, String)>,
    pub(crate) applied: Vec<Applied>,
    /// Owners at rest.
    pub(crate) owned: Vec<Owned>,
    /// What is left of jobs at rest: processes, objects, and records of running ones.
    pub(crate) left: Vec<String>,
    /// Errors of the trial itself, such as a server that does not start.
    pub(crate) broken: Vec<String>,
}

impl Event {
    /// Parses a comment of the server; absent for further parts of one.
    pub(crate) fn of_comment(pull: u64, id: u64, body: &str) -> Option<Event> {
        let (text, _) = body.trim_end().rsplit_once('\n')?;
        let marker = marker::parse(body)?;
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
            // A plan that was asked for before a push; the plan of the push is reported instead.
            Some("superseded") => "plan",
            // A re-plan has no command.
            Some("plan") if marker["trigger"] == "replan" => "replan",
            named => named.unwrap_or_default(),
        };
        let (command, head) = (command.to_owned(), word(&marker["head"]));
        Some(Event::Answered { pull, id, command, head, results, text: text.to_owned() })
    }

    /// Parses a line that a step of the workflow has written.
    pub(crate) fn of_line(line: &str) -> Option<Event> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let is_apply = words.next()? == "apply";
        Some(Event::Ran { is_apply, pull: words.next()?.parse().ok()?, dir: words.next()?, plan: words.next()? })
    }

    pub(crate) fn pull(&self) -> Option<u64> {
        match self {
            Event::Said { pull, .. } | Event::Answered { pull, .. } | Event::JobKilled { pull, .. } => Some(*pull),
            Event::Ran { .. } | Event::Ending | Event::Ended => None,
        }
    }
}
