//! Hides results that a newer comment replaces (`--hide-prev-plan-comments`), once that one is posted. "Older" is by the time of the last
//! writing, because a comment may be written over an earlier one.
//!
//! At the time of the attempt, the markers of our own comments decide which ones are hidden. So a repeated attempt, even after
//! a crash, hides no comment twice and none that is newer. An attempt costs two requests if the host folds in one.

use super::OutboxInner;
use crate::domain::command::CommandName;
use crate::domain::reply::{Reply, ReplyBody};
use crate::domain::state::{Effect, PendingEffect};
use crate::domain::{ProjectId, RunId};
use crate::render::marker;
use crate::reply::comments::policy_reply_of;
use crate::reply::duplicates::HostOrStateError;
use crate::vcs::{Host, ShownComment};
use serde_json::Value;

/// Maximum number of comments that one result hides; the newest go first, and the next result hides the others.
const MOST: usize = 20;

/// Returns the effect that hides the comments that a result replaces; none for replies other than results of a plan, an apply or an
/// approval of policies.
pub(in crate::reply) fn effect_of(reply: &Reply) -> Option<Effect> {
    let command = reply.command.as_ref()?;
    if !matches!(command.name, CommandName::Plan | CommandName::Apply | CommandName::ApprovePolicies) {
        return None;
    }
    let projects = match &reply.body {
        ReplyBody::Results(_) if command.name == CommandName::Plan && command.target.is_all() => None,
        ReplyBody::Results(results) => Some(results.outcomes.iter().map(|outcome| outcome.project.clone()).collect()),
        ReplyBody::CommandError(_) => Some(Vec::new()),
        ReplyBody::Message(_) => return None,
    };
    Some(Effect::Hide { run: reply.run.clone(), command: command.name, projects })
}

/// Returns our comments with their markers, oldest first. Some hosts report whole seconds: within one, the times in the markers decide.
pub(super) fn with_markers(shown: Vec<ShownComment>) -> Vec<(ShownComment, Value)> {
    let with_marker = |one: ShownComment| marker::parse(&one.body).map(|marker| (one, marker));
    let mut marked: Vec<_> = shown.into_iter().filter_map(with_marker).collect();
    marked.sort_by_cached_key(|(one, marker)| (one.written, marker::made_at(marker)));
    marked
}

/// Returns those of our visible comments, oldest first, that precede the first one of this run and that it replaces.
fn replaced(
    shown: Vec<ShownComment>,
    run: &RunId,
    command: CommandName,
    projects: Option<&[ProjectId]>,
) -> Vec<ShownComment> {
    let marked = with_markers(shown);
    // Absent: it was deleted, or a newer one has hidden it.
    let Some(newer) = marked.iter().position(|(_, marker)| marker["run"] == run.as_str()) else { return Vec::new() };
    // The checks of this plan may have been written over an earlier comment in the same second.
    let checks = policy_reply_of(run);
    let is_older = |marker: &Value| marker["run"] != checks.as_str() && is_told_anew(marker, command, projects);
    let older = marked.into_iter().take(newer).filter(|(_, marker)| is_older(marker));
    let mut older: Vec<ShownComment> = older.map(|(one, _)| one).collect();
    older.drain(..older.len().saturating_sub(MOST));
    older
}

/// Returns true if results of this command on these projects replace everything in a comment.
pub(super) fn is_told_anew(marker: &Value, command: CommandName, projects: Option<&[ProjectId]>) -> bool {
    let Some(rows) = marker["results"].as_array().filter(|rows| !rows.is_empty()) else { return false };
    if marker["truncated"] == true && projects.is_some() {
        return false;
    }
    rows.iter().all(|row| {
        let is_same = row["cmd"] == command.as_str() || command == CommandName::Plan && row["cmd"] == "policy_check";
        // Changes that were applied stay visible.
        let has_changed = command == CommandName::Apply && row["outcome"] == "success";
        is_same && !has_changed && (row["scope"] == "command" || is_among(row, projects))
    })
}

fn is_among(row: &Value, projects: Option<&[ProjectId]>) -> bool {
    let is_row = |project: &ProjectId| {
        row["dir"] == project.dir.as_str()
            && row["workspace"] == project.workspace.as_str()
            && row["project"].as_str() == project.name.as_deref()
    };
    projects.is_none_or(|projects| projects.iter().any(is_row))
}

impl OutboxInner {
    /// Hides the comments that this effect replaces and that are still visible.
    pub(super) async fn hide(
        &self,
        host: &dyn Host,
        effect: &PendingEffect,
        run: &RunId,
        command: CommandName,
        projects: Option<&[ProjectId]>,
    ) -> Result<String, HostOrStateError> {
        let shown = host.shown_comments(&effect.pull).await?;
        let replaced = replaced(shown, run, command, projects);
        if !replaced.is_empty() {
            self.store.may_act().await?;
            host.hide_comments(&effect.pull, &replaced).await?;
        }
        Ok(format!("hid {} comments", replaced.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    fn project(dir: &str) -> ProjectId {
        ProjectId { dir: dir.into(), workspace: "default".into(), name: None }
    }

    fn row(cmd: &str, dir: &str, outcome: &str) -> Value {
        json!({"cmd": cmd, "dir": dir, "workspace": "default", "outcome": outcome})
    }

    fn shown_comment(id: &str, run: &str, rows: &[Value]) -> ShownComment {
        let marker = json!({"v": 1, "run": run, "part": 1, "parts": 1, "results": rows});
        let body = format!("text\n<!-- tidelock:{marker} -->");
        ShownComment { id: id.to_owned(), body, written: Timestamp::UNIX_EPOCH }
    }

    fn hidden(shown: &[ShownComment], run: &str, command: CommandName, projects: Option<&[ProjectId]>) -> Vec<String> {
        replaced(shown.to_vec(), &run.into(), command, projects).into_iter().map(|one| one.id).collect()
    }

    #[test]
    fn only_what_is_told_anew_is_hidden() {
        let (a, b) = (row("plan", "a", "success"), row("plan", "b", "failure"));
        let shown = [
            shown_comment("whole", "r1", &[a.clone(), b.clone()]),
            shown_comment("a", "r2", std::slice::from_ref(&a)),
            shown_comment("apply", "r3", &[row("apply", "a", "success")]),
            shown_comment("failed", "r4", &[row("apply", "b", "error")]),
            shown_comment("broken", "r5", &[json!({"cmd": "plan", "scope": "command", "outcome": "error"})]),
            shown_comment("policies", "r6", &[row("policy_check", "a", "failure")]),
            ShownComment { id: "hand".into(), body: "no marker".into(), written: Timestamp::UNIX_EPOCH },
            shown_comment("new", "new", std::slice::from_ref(&a)),
            shown_comment("newer", "newer", std::slice::from_ref(&a)),
        ];
        use CommandName::{Apply, Plan};
        assert_eq!(hidden(&shown, "new", Plan, None), ["whole", "a", "broken", "policies"]);
        assert_eq!(hidden(&shown, "new", Plan, Some(&[project("a")])), ["a", "broken", "policies"]);
        assert_eq!(hidden(&shown, "new", Plan, Some(&[])), ["broken"]);
        assert_eq!(hidden(&shown, "new", Apply, Some(&[project("a"), project("b")])), ["failed"]);
        assert!(hidden(&shown, "gone", Plan, None).is_empty());
    }

    #[test]
    fn a_comment_that_does_not_list_all_it_tells_is_only_replaced_by_a_whole_plan() {
        let mut long = shown_comment("long", "r1", &[row("plan", "a", "success")]);
        long.body = long.body.replace("\"v\":1", "\"v\":1,\"truncated\":true");
        let shown = [long, shown_comment("new", "new", &[])];
        assert!(hidden(&shown, "new", CommandName::Plan, Some(&[project("a")])).is_empty());
        assert_eq!(hidden(&shown, "new", CommandName::Plan, None), ["long"]);
    }

    #[test]
    fn the_checks_of_the_same_plan_stay() {
        let checks = |id: &str, run: &str| shown_comment(id, run, &[row("policy_check", "a", "failure")]);
        let own = policy_reply_of(&"new".into());
        let plan = shown_comment("plan", "new", &[row("plan", "a", "success")]);
        let shown = [checks("before", "other"), checks("own", own.as_str()), plan];
        assert_eq!(hidden(&shown, "new", CommandName::Plan, None), ["before"]);
    }

    #[test]
    fn the_markers_decide_within_a_second() {
        let comment = |id: &str, second: i64, at: Option<&str>| {
            let mut marker = json!({"v": 1, "run": id, "results": [row("plan", "a", "success")]});
            if let Some(at) = at {
                marker["at"] = json!(format!("2026-11-29T09:30:00.{at}Z"));
            }
            let body = format!("text\n<!-- tidelock:{marker} -->");
            ShownComment { id: id.to_owned(), body, written: Timestamp::from_second(second).unwrap() }
        };
        let shown = [
            comment("second before", 1, Some("999")),
            comment("of an older version", 2, None),
            comment("new", 2, Some("500")),
            comment("written over", 2, Some("499")),
            comment("newer", 2, Some("501")),
        ];
        let expected = ["second before", "of an older version", "written over"];
        assert_eq!(hidden(&shown, "new", CommandName::Plan, None), expected);
    }

    #[test]
    fn one_result_hides_so_many() {
        let rows = [row("plan", "a", "success")];
        let mut shown: Vec<_> = (0..30).map(|n| shown_comment(&n.to_string(), &format!("r{n}"), &rows)).collect();
        shown.push(shown_comment("new", "new", &rows));
        let all = hidden(&shown, "new", CommandName::Plan, None);
        assert_eq!((all.len(), all.first().map(String::as_str)), (MOST, Some("10")));
    }
}
