//! What people read, kind by kind, and what no input may do to it.

use super::*;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::*;
use crate::domain::reply::{Message, Results};
use crate::domain::state::LockHolder;
use crate::domain::{ProjectId, PullId, RepoId};
use insta::assert_snapshot;

mod messages;
mod results;
mod untrusted;

const HEAD: &str = "3f2c1abd00000000000000000000000000000000";
const NOW: &str = "2026-08-22T12:00:00Z";

fn options() -> RenderOptions {
    RenderOptions {
        executable: "atlantis".to_owned(),
        url: "https://tide.example".to_owned(),
        comment_limit: 65_536,
        max_comments: 100,
        disable_folding: false,
        diff_format: false,
        hide_unchanged: false,
        offer_apply: true,
        offer_apply_all: true,
        locking: true,
        now: NOW.parse().unwrap(),
    }
}

fn reply(name: CommandName, body: ReplyBody) -> Reply {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    Reply {
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        pull: PullId { repo, number: 42 },
        command: Some(Command::new(name, Trigger::Comment, "bob")),
        head: Some(HEAD.to_owned()),
        body,
    }
}

fn results(outcomes: Vec<JobOutcome>) -> ReplyBody {
    ReplyBody::Results(Results { outcomes, base_branch: "main".to_owned(), remarks: Vec::new() })
}

fn network() -> ProjectId {
    ProjectId { dir: "infra/network".into(), workspace: "prod".into(), name: Some("network".into()) }
}

fn unnamed(dir: &str) -> ProjectId {
    ProjectId { dir: dir.to_owned(), workspace: "default".to_owned(), name: None }
}

fn job(command: CommandName, project: ProjectId, outcome: Outcome) -> JobOutcome {
    JobOutcome { command, project, job: Some("ab12".into()), millis: 12_000, tool: None, silenced: false, outcome }
}

fn planned(add: u64, change: u64, destroy: u64) -> Planned {
    Planned {
        summary: PlanSummary {
            add,
            change,
            destroy,
            no_changes: add + change + destroy == 0,
            ..PlanSummary::default()
        },
        output: format!("Plan: {add} to add, {change} to change, {destroy} to destroy."),
        saved: true,
        ..Planned::default()
    }
}

/// All comments without their markers.
fn read(reply: &Reply, options: &RenderOptions) -> String {
    let strip = |comment: String| {
        let marker = marker::last_line(&comment).expect("a marker on the last line").to_owned();
        comment.strip_suffix(&marker).unwrap().trim_end().to_owned()
    };
    render(reply, options).into_iter().map(strip).collect::<Vec<_>>().join("\n=====\n")
}

fn marker_of(reply: &Reply) -> String {
    let comments = render(reply, &options());
    marker::last_line(&comments[0]).unwrap().to_owned()
}
