//! Writes a plan that nobody asked for over an earlier comment that it replaces (`--update-plan-comments`).
//!
//! At the time of the attempt, the markers of our own comments decide which one that is. Comments of a pull request are posted in order, so
//! none is written over a newer one, and a repeated attempt finds the text that it has written by its marker. Hosts have no conditional
//! edits: a request that was sent before its server lost the lead, and that the host takes up only after the next plan was written, brings
//! the earlier text back until the next plan.

use super::OutboxInner;
use super::hide::{is_told_anew, with_markers};
use crate::domain::command::CommandName;
use crate::domain::reply::{Reply, ReplyBody};
use crate::domain::state::OverwriteScope;
use crate::domain::{ProjectId, PullId};
use crate::render::marker;
use crate::reply::duplicates::HostOrStateError;
use crate::vcs::{Host, HostError, ShownComment};
use serde_json::Value;

/// Returns which earlier comments a reply may be written over; none unless it has the plans, or policy checks, of a command that nobody
/// asked for. Who has asked finds the answer below the question.
pub(in crate::reply) fn scope_of(reply: &Reply) -> Option<OverwriteScope> {
    let command = reply.command.as_ref()?;
    let is_plan = matches!(command.name, CommandName::Plan | CommandName::PolicyCheck);
    let has_results = matches!(reply.body, ReplyBody::Results(_));
    (is_plan && has_results && command.trigger.is_unasked()).then_some(match command.target.is_all() {
        true => OverwriteScope::Any,
        false => OverwriteScope::SameProjects,
    })
}

/// Returns the comment that a part of a reply, with this marker, is written over. The last parts of the last earlier reply are taken, so
/// that parts without a successor come before it and are hidden.
fn overwritten(shown: Vec<ShownComment>, new: &Value, scope: OverwriteScope) -> Option<ShownComment> {
    let kind = new["results"][0]["cmd"].as_str()?;
    let command = [CommandName::Plan, CommandName::PolicyCheck].into_iter().find(|name| name.as_str() == kind)?;
    let projects = match scope {
        OverwriteScope::Any => None,
        OverwriteScope::SameProjects if new["truncated"] == true => return None,
        OverwriteScope::SameProjects => Some(projects_of(new)),
    };
    let is_earlier = |old: &Value| {
        old["run"] != new["run"] && old["results"][0]["cmd"] == kind && is_told_anew(old, command, projects.as_deref())
    };
    let mut earlier = with_markers(shown);
    earlier.retain(|(_, marker)| is_earlier(marker));
    let last = earlier.last()?.1["run"].clone();
    earlier.retain(|(_, marker)| marker["run"] == last);
    let (part, parts) = (new["part"].as_u64()?, new["parts"].as_u64()?);
    let to_write = usize::try_from(parts.saturating_sub(part)).ok()? + 1;
    let place = earlier.len().saturating_sub(to_write);
    Some(earlier.swap_remove(place).0)
}

fn projects_of(marker: &Value) -> Vec<ProjectId> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let project = |row: &Value| {
        let (dir, workspace) = (text(&row["dir"])?, text(&row["workspace"])?);
        Some(ProjectId { dir, workspace, name: text(&row["project"]) })
    };
    marker["results"].as_array().into_iter().flatten().filter_map(project).collect()
}

impl OutboxInner {
    /// Writes a comment over the earlier one that it replaces. Returns false if there is none, or if the host refuses: a new comment is
    /// better than none.
    pub(super) async fn overwrite(
        &self,
        host: &dyn Host,
        pull: &PullId,
        body: &str,
        scope: OverwriteScope,
    ) -> Result<bool, HostOrStateError> {
        let Some(new) = marker::parse(body) else { return Ok(false) };
        let written = async {
            let shown = host.shown_comments(pull).await?;
            let Some(old) = overwritten(shown, &new, scope) else { return Ok(false) };
            self.store.may_act().await?;
            Ok(host.rewrite_comment(pull, &old, body).await?)
        };
        match written.await {
            Err(HostOrStateError::Host(error))
                if !error.is_transient() && !matches!(error, HostError::Moved { .. }) =>
            {
                tracing::warn!(%pull, "a comment cannot be updated: {error}; a new one is posted");
                Ok(false)
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    fn row(cmd: &str, dir: &str) -> Value {
        json!({"cmd": cmd, "dir": dir, "workspace": "default", "outcome": "success"})
    }

    fn marker(run: &str, part: u64, parts: u64, rows: &[Value]) -> Value {
        json!({"v": 1, "run": run, "part": part, "parts": parts, "results": rows})
    }

    fn shown(id: &str, marker: &Value) -> ShownComment {
        let body = format!("text\n<!-- tidelock:{marker} -->");
        ShownComment { id: id.to_owned(), body, written: Timestamp::UNIX_EPOCH }
    }

    fn place(all: &[ShownComment], new: &Value, scope: OverwriteScope) -> Option<String> {
        overwritten(all.to_vec(), new, scope).map(|comment| comment.id)
    }

    #[test]
    fn the_last_comment_of_the_same_kind_is_written_over() {
        use OverwriteScope::{Any, SameProjects};
        let plan = |run, dir| marker(run, 1, 1, &[row("plan", dir)]);
        let all = [
            shown("first", &plan("1", "a")),
            shown("second", &plan("2", "b")),
            shown("policies", &marker("3", 1, 1, &[row("policy_check", "a")])),
            shown("applied", &marker("4", 1, 1, &[row("apply", "a")])),
            ShownComment { id: "person".to_owned(), body: "no marker".to_owned(), written: Timestamp::UNIX_EPOCH },
        ];
        assert_eq!(place(&all, &plan("9", "c"), Any).as_deref(), Some("second"));
        assert_eq!(place(&all, &plan("9", "a"), SameProjects).as_deref(), Some("first"));
        assert_eq!(place(&all, &plan("9", "c"), SameProjects), None);
        assert_eq!(place(&all, &plan("2", "c"), Any).as_deref(), Some("first"), "never over its own run");
        let checks = marker("9", 1, 1, &[row("policy_check", "z")]);
        assert_eq!(place(&all, &checks, Any).as_deref(), Some("policies"));
        assert_eq!(place(&all, &marker("9", 1, 1, &[row("apply", "a")]), Any), None);
        assert_eq!(place(&all, &marker("9", 1, 1, &[]), Any), None);
        let mut truncated = plan("9", "a");
        truncated["truncated"] = json!(true);
        assert_eq!(place(&all, &truncated, SameProjects), None, "it does not list all of its projects");
    }

    #[test]
    fn parts_are_written_over_the_last_parts() {
        let parts =
            |run: &'static str, of: u64| (1..=of).map(move |part| (part, marker(run, part, of, &[row("plan", "a")])));
        // Each part is written in turn, as the outbox does: the next one finds the text of the one before.
        let written = |old: u64, new: u64| {
            let mut all: Vec<ShownComment> =
                parts("old", old).map(|(part, marker)| shown(&part.to_string(), &marker)).collect();
            let mut places = Vec::new();
            for (_, marker) in parts("new", new) {
                let found = place(&all, &marker, OverwriteScope::Any);
                if let Some(id) = &found {
                    let old = all.iter_mut().find(|comment| comment.id == *id).unwrap();
                    *old = shown(id, &marker);
                }
                places.push(found.unwrap_or_else(|| "new".to_owned()));
            }
            places
        };
        assert_eq!(written(1, 1), ["1"]);
        assert_eq!(written(2, 1), ["2"]);
        assert_eq!(written(1, 2), ["1", "new"]);
        assert_eq!(written(2, 3), ["1", "2", "new"]);
        assert_eq!(written(3, 2), ["2", "3"]);
    }
}
