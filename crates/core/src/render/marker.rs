//! The machine-readable last line of a comment (docs/comment-marker.md). Every part has one; the outbox searches for it
//! before it posts again.

use super::RenderOptions;
use super::markdown::turns_direction;
use crate::domain::outcome::{Failure, JobOutcome, Outcome, PolicySetReport, Reason};
use crate::domain::reply::{Message, Reply, ReplyBody};
use crate::domain::waiting::PlaceInLine;
use crate::domain::{ProjectId, RunId, command::CommandName};
use crate::wording::command_line;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::{self, Write as _};

/// Longest marker line, in bytes.
pub(super) const MAX_MARKER: usize = 4096;

/// Form of the marker line: text of Markdown that the host does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkerForm {
    /// An HTML comment.
    Html,
    /// A definition of a link that nothing refers to, for hosts that show HTML comments. The JSON is its title in parentheses.
    Reference,
}

impl MarkerForm {
    const ALL: [MarkerForm; 2] = [MarkerForm::Html, MarkerForm::Reference];

    fn of(options: &RenderOptions) -> MarkerForm {
        if options.html_comments { MarkerForm::Html } else { MarkerForm::Reference }
    }

    fn prefix(self) -> &'static str {
        match self {
            MarkerForm::Html => "<!-- tidelock:",
            MarkerForm::Reference => "[//]: # (tidelock:",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            MarkerForm::Html => " -->",
            MarkerForm::Reference => ")",
        }
    }

    /// Returns the JSON of a line in this form.
    fn json_of(self, line: &str) -> Option<&str> {
        line.strip_prefix(self.prefix())?.strip_suffix(self.suffix())
    }
}

/// Returns the marker of one part of a reply, at most `limit` bytes long: results that do not fit are left out, and `truncated` is set.
pub(super) fn line(reply: &Reply, options: &RenderOptions, part: usize, parts: usize, limit: usize) -> String {
    let executable = options.executable.as_str();
    let mut marker = JsonObject::default();
    marker.put("v", json!(1));
    marker.put("at", json!(format!("{:.3}", options.now)));
    marker.put("run", json!(reply.run));
    marker.put("part", json!(part));
    marker.put("parts", json!(parts));
    if let Some(command) = &reply.command {
        marker.put("command", json!(command.name));
        marker.put("trigger", json!(command.trigger));
    }
    if let Some(head) = &reply.head {
        marker.put("head", json!(head));
    }
    let (key, rows) = match &reply.body {
        ReplyBody::Results(results) => ("results", results.shown().map(|o| result(o, executable)).collect()),
        ReplyBody::CommandError(fault) => match command_word(reply.command_name().unwrap_or(CommandName::Plan)) {
            Some(cmd) => {
                let row = json!({"cmd": cmd, "scope": "command", "outcome": "error", "reason": fault.reason});
                ("results", vec![row.to_string()])
            }
            None => {
                let kind = match fault.reason {
                    Reason::Config => "config_error",
                    Reason::NotPermitted => "not_permitted",
                    _ => "interrupted",
                };
                marker.put("message", json!(kind));
                ("results", Vec::new())
            }
        },
        ReplyBody::Message(message) => {
            marker.put("message", json!(kind(message)));
            match message {
                Message::Cleanup { locks, .. } => {
                    let row = |(dir, workspaces): &(String, Vec<String>)| {
                        json!({"dir": dir, "workspaces": workspaces}).to_string()
                    };
                    ("locks_deleted", locks.iter().map(row).collect())
                }
                Message::PlansInvalidated { .. } => {
                    marker.put("next", json!(format!("{executable} plan")));
                    ("results", Vec::new())
                }
                _ => ("results", Vec::new()),
            }
        }
    };
    with_rows(&mut marker, MarkerForm::of(options), key, rows, limit.min(MAX_MARKER))
}

/// Returns the marker of the issue about a project on a branch.
pub(super) fn of_drift_issue(subject: &str) -> String {
    let mut marker = JsonObject::default();
    marker.put("v", json!(1));
    marker.put("drift_issue", json!(subject));
    comment(&marker, MarkerForm::Html)
}

/// Returns the marker of the comment with which the server closes an issue. It is the first and only part of its reply.
pub(super) fn of_closing(issue: &RunId) -> String {
    let mut marker = JsonObject::default();
    for (key, value) in [("v", json!(1)), ("run", json!(issue)), ("part", json!(1)), ("parts", json!(1))] {
        marker.put(key, value);
    }
    marker.put("message", json!("drift_issue_closed"));
    comment(&marker, MarkerForm::Html)
}

/// Returns all results of a reply as JSON objects, in the marker's format.
pub fn results(body: &ReplyBody, executable: &str) -> Vec<String> {
    match body {
        ReplyBody::Results(results) => {
            results.outcomes.iter().filter(|o| !o.silenced).map(|o| result(o, executable)).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds as many rows as fit, and returns the marker line.
fn with_rows(marker: &mut JsonObject, form: MarkerForm, key: &'static str, rows: Vec<String>, limit: usize) -> String {
    if rows.is_empty() {
        return comment(marker, form);
    }
    let rows: Vec<String> = rows.iter().map(|row| form.escaped(row)).collect();
    let mut room = limit.saturating_sub(comment(marker, form).len() + format!(r#","{key}":[],"truncated":true"#).len());
    let all = rows.len();
    let fitting: Vec<String> = rows
        .into_iter()
        .take_while(|row| {
            let size = row.len() + 1;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        })
        .collect();
    if fitting.len() < all {
        marker.put("truncated", json!(true));
    }
    marker.put(key, format!("[{}]", fitting.join(",")));
    comment(marker, form)
}

fn comment(marker: &JsonObject, form: MarkerForm) -> String {
    format!("{}{}{}", form.prefix(), form.escaped(&marker.to_string()), form.suffix())
}

/// A JSON object that keeps the order of its keys.
#[derive(Default)]
struct JsonObject(Vec<(&'static str, String)>);

impl JsonObject {
    fn put(&mut self, key: &'static str, value: impl fmt::Display) {
        self.0.push((key, value.to_string()));
    }
}

impl fmt::Display for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        for (i, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}\"{key}\":{value}", if i > 0 { "," } else { "" })?;
        }
        f.write_char('}')
    }
}

impl MarkerForm {
    /// Escapes what would end the line's hidden text, and characters that hide or reorder text. Our JSON has none of them outside of
    /// strings. Escaping twice changes nothing more.
    fn escaped(self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        for c in json.chars() {
            let ends = c == '-' && out.ends_with('-') || self == MarkerForm::Reference && matches!(c, '(' | ')');
            if ends || turns_direction(c) || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            } else {
                out.push(c);
            }
        }
        out
    }
}

/// Returns the pull request that has to give way and the command to use there; without a pull request, the command to use here.
fn way_out_of(failure: &Failure, executable: &str) -> Option<(Option<u64>, String)> {
    match failure {
        Failure::Locked(holder) if holder.pull.is_branch() => {
            Some((None, command_line(executable, "plan", None, &[], &[])))
        }
        Failure::Locked(holder) => Some((Some(holder.pull.number), format!("{executable} unlock"))),
        Failure::Owned(owner) => Some((Some(owner.holder.pull.number), owner.state.way_out(executable))),
        Failure::NotPlanned { missing } => {
            Some((None, command_line(executable, "plan", missing.first().filter(|_| missing.len() == 1), &[], &[])))
        }
        _ => None,
    }
}

/// Returns the place in line of a refused pull request.
fn place_of(failure: &Failure) -> Option<&PlaceInLine> {
    match failure {
        Failure::Locked(holder) => holder.place.as_ref(),
        Failure::Owned(owner) => owner.place.as_ref(),
        _ => None,
    }
}

/// Returns one result as a JSON object.
pub fn result(job: &JobOutcome, executable: &str) -> String {
    let mut row = JsonObject::default();
    row.put("cmd", json!(command_word(job.command).unwrap_or("plan")));
    let ProjectId { dir, workspace, name } = &job.project;
    row.put("dir", json!(dir));
    row.put("workspace", json!(workspace));
    if let Some(name) = name {
        row.put("project", json!(name));
    }
    let (outcome, reason) = match &job.outcome {
        Outcome::Failed(failure) => ("failure", Some(failure.reason())),
        Outcome::Errored(fault) => ("error", Some(fault.reason)),
        Outcome::Deferred { .. } => ("failure", Some(Reason::Dependency)),
        _ if !job.outcome.is_success() => ("failure", Some(Reason::Policy)),
        _ => ("success", None),
    };
    row.put("outcome", json!(outcome));
    if let Some(reason) = reason {
        row.put("reason", json!(reason));
    }
    if let Outcome::Failed(failure) = &job.outcome
        && let Some((owner, next)) = way_out_of(failure, executable)
    {
        if let Some(owner) = owner {
            row.put("owner", json!(owner));
        }
        row.put("next", json!(next));
    }
    if let Outcome::Deferred { on } = &job.outcome {
        row.put("next", json!(command_line(executable, "apply", on.first().filter(|_| on.len() == 1), &[], &[])));
    }
    if let Outcome::Failed(failure) = &job.outcome
        && let Some(place) = place_of(failure)
    {
        row.put("place", json!(place.number));
        row.put("behind", json!(place.behind.number));
    }
    if job.outcome.part().is_some() {
        row.put("in_part", json!(true));
    }
    match &job.outcome {
        Outcome::Planned(plan) => {
            let s = &plan.summary;
            row.put("plan", json!({"add": s.add, "change": s.change, "destroy": s.destroy, "import": s.import}));
            if s.no_changes {
                row.put("no_changes", json!(true));
            }
            if plan.deleted {
                row.put("deleted", json!(true));
            }
        }
        Outcome::PoliciesChecked(report) | Outcome::PoliciesApproved(report) => {
            let set = |set: &PolicySetReport| json!({"name": set.name, "passed": set.passed, "approvals": set.approvals, "required": set.required});
            row.put("policy_sets", Value::from(report.sets.iter().map(set).collect::<Vec<_>>()));
        }
        Outcome::Applied(a) => {
            row.put("apply", json!({"added": a.added, "changed": a.changed, "destroyed": a.destroyed}));
            if let Some(verification) = &a.verification {
                row.put("nothing_left", json!(verification.is_clean()));
            }
        }
        _ => {}
    }
    row.to_string()
}

/// Returns the marker's `cmd`; `None` for commands without results.
fn command_word(name: CommandName) -> Option<&'static str> {
    let spec = name.spec();
    spec.has_results.then_some(spec.word)
}

/// Returns the marker's `message`.
fn kind(message: &Message) -> &'static str {
    match message {
        Message::Help { .. } => "help",
        Message::Usage { .. } => "usage",
        Message::UnknownCommand { .. } | Message::SwitchedOff { .. } => "unknown_command",
        Message::DidYouMean { .. } => "did_you_mean",
        Message::ApplyDisabled { .. } => "apply_disabled",
        Message::Unlocked { .. } | Message::UnlockedOthers { .. } | Message::UnlockedBy { .. } => "unlocked",
        Message::Owes { .. } => "owes",
        Message::MergeUnknown { .. } => "merge_unknown",
        Message::MergeKnown => "merge_known",
        Message::MergedOnto { .. } => "merged_onto",
        Message::AppliedByAnother { .. } => "applied_by_another",
        Message::AlsoChanged { .. } => "also_changed",
        Message::PlansInvalidated { .. } => "plans_fell",
        Message::LockFreed { .. } => "lock_freed",
        Message::Locked { .. } => "locked",
        Message::NotLocked { .. } => "not_locked",
        Message::Frozen { .. } => "frozen",
        Message::Unfrozen { .. } => "unfrozen",
        Message::UnlockRefused { .. } | Message::NotPermitted { .. } => "not_permitted",
        Message::Cancelled { .. } => "cancelled",
        Message::ForkRefused => "fork_refused",
        Message::NotAllowlisted => "not_allowlisted",
        Message::ClosedPull => "closed_pull",
        Message::Cleanup { .. } => "cleanup",
        Message::Discarded { .. } | Message::DependentPlansDiscarded { .. } => "discarded",
        Message::Automerging | Message::NotMerged { .. } => "automerge",
        Message::HookFailed { .. } => "hook_failed",
        Message::Interrupted { .. } | Message::StateLocks { .. } | Message::LateEnd { .. } => "interrupted",
        Message::ShuttingDown => "shutting_down",
        Message::NoProjects { .. } => "no_projects",
        Message::Superseded { .. } | Message::PlannedAlready { .. } => "superseded",
    }
}

/// Returns true if a comment's last line is the marker of this part of this run. Only valid for comments of our own account.
pub fn is_of(body: &str, run: &RunId, part: u32) -> bool {
    parse(body).is_some_and(|marker| marker["run"] == run.as_str() && marker["part"] == part)
}

/// Returns true if the last line of an issue's text is the marker of this subject. Only valid for issues of our own account.
pub fn is_of_drift(body: &str, subject: &str) -> bool {
    parse(body).is_some_and(|marker| marker["drift_issue"] == subject)
}

/// Returns the unparsed marker line of a comment, if its last line is one.
pub(super) fn last_line(body: &str) -> Option<&str> {
    let line = body.trim_end().lines().next_back()?.trim();
    MarkerForm::ALL.iter().any(|form| form.json_of(line).is_some()).then_some(line)
}

/// Returns the time at which the text with this marker was made; none from a version that wrote none.
pub fn made_at(marker: &Value) -> Option<Timestamp> {
    marker["at"].as_str()?.parse().ok()
}

/// Returns the JSON of the marker in a comment's last line, in either form.
pub fn parse(body: &str) -> Option<Value> {
    let line = last_line(body)?;
    let json = MarkerForm::ALL.iter().find_map(|form| form.json_of(line))?;
    serde_json::from_str(json).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_believed_only_on_the_last_line() {
        let marker = r#"<!-- tidelock:{"run":"a","part":1} -->"#;
        assert!(is_of(&format!("text\n{marker}\r\n\n"), &"a".into(), 1));
        assert!(!is_of(&format!("text\n{marker}"), &"a".into(), 2));
        assert!(!is_of(&format!("{marker}\ntext"), &"a".into(), 1));
        assert!(!is_of("<!-- tidelock:[1] -->", &"a".into(), 1));
        assert!(!is_of("<!-- tidelock:{ -->", &"a".into(), 1));
        let marker = r#"[//]: # (tidelock:{"run":"a","part":1})"#;
        assert!(is_of(&format!("text\n\n{marker}\r\n\n"), &"a".into(), 1));
        assert!(!is_of(&format!("{marker}\ntext"), &"a".into(), 1));
        for wrong in ["[//]: # (tidelock:{)", r#"[//]: # (tidelock:{"run":"a","part":1}"#, "[//]: # (tidelock:"] {
            assert!(!is_of(wrong, &"a".into(), 1), "{wrong}");
        }
    }

    #[test]
    fn hyphens_cannot_end_the_comment() {
        for text in ["--", "---", "-->", "a--b---c-", "<!----"] {
            let json = MarkerForm::Html.escaped(&json!({ "x": text }).to_string());
            assert!(!json.contains("--"), "{json}");
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["x"], text);
        }
    }
}
