//! Tests of comments by kind, and of their resistance to any input.

use super::*;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::outcome::*;
use crate::domain::reply::{Message, Results, UnmergedChange};
use crate::domain::state::LockHolder;
use crate::domain::waiting::{Blocked, PlaceInLine};
use crate::domain::{CommitAddress, ProjectId, PullId, RepoId};
use insta::assert_snapshot;

mod limits;
mod messages;
mod own;
mod plans;
mod results;
mod untrusted;

const HEAD: &str = "3f2c1abd00000000000000000000000000000000";
const NOW: &str = "2026-08-22T12:00:00Z";

fn options() -> RenderOptions {
    RenderOptions {
        executable: "atlantis".to_owned(),
        url: "https://tide.example".to_owned(),
        commit_address: None,
        comment_limit: 65_536,
        html_comments: true,
        pull_mark: '#',
        style: CommentStyle::Short,
        max_comments: 100,
        disable_folding: false,
        diff_format: false,
        hide_unchanged: false,
        hide_replaced: false,
        update_plans: false,
        offer_apply: true,
        offer_apply_all: true,
        locking: true,
        now: NOW.parse().unwrap(),
        templates: CommentTemplates::default(),
        language: Arc::default(),
    }
}

fn reply(name: CommandName, body: ReplyBody) -> Reply {
    let repo = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    Reply {
        run: "0123456789abcdef0123456789abcdef".into(),
        pull: PullId { repo, number: 42 },
        command: Some(Command::new(name, Trigger::Comment, "bob")),
        head: Some(HEAD.into()),
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

/// Returns all comments without their markers.
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

fn resource(action: ResourceAction, address: &str, attributes: &[&str]) -> ResourceChange {
    let attributes = attributes.iter().map(|a| (*a).to_owned()).collect();
    ResourceChange { action, address: address.to_owned(), attributes }
}

fn network_plan() -> JobOutcome {
    let plan = Planned {
        base_commit: Some("9d0e77c0000".into()),
        resources: vec![
            resource(ResourceAction::Create, "google_compute_firewall.iap_ssh", &[]),
            resource(ResourceAction::Destroy, "google_compute_firewall.legacy_ssh", &[]),
            resource(ResourceAction::Update, "google_compute_subnetwork.apps[\"a|b\"]", &["private_ip_google_access"]),
        ],
        output: "  + line\n".repeat(12) + "\nPlan: 1 to add, 1 to change, 1 to destroy.",
        extra_args: vec!["-var".to_owned(), "x=y".to_owned()],
        ..planned(1, 1, 1)
    };
    JobOutcome {
        tool: Some("Terraform 1.11.4".to_owned()),
        ..job(CommandName::Plan, network(), Outcome::Planned(plan))
    }
}

fn one(outcome: JobOutcome) -> Reply {
    reply(outcome.command, results(vec![outcome]))
}

fn render_failure(command: CommandName, failure: Failure) -> String {
    read(&one(job(command, network(), Outcome::Failed(failure))), &options())
}

fn holder() -> Box<Blocked<LockHolder>> {
    let pull = PullId { number: 41, ..reply(CommandName::Plan, results(vec![])).pull };
    let holder = LockHolder {
        pull,
        title: "Open SSH [through] IAP".to_owned(),
        url: "https://github.com/acme/infra/pull/41".to_owned(),
        user: "alice".into(),
        since: "2026-08-22T10:00:00Z".parse().unwrap(),
        overdue: None,
    };
    Box::new(holder.into())
}

fn fault(reason: Reason, lines: usize) -> Fault {
    let output =
        "line\n".repeat(lines) + "╷\n│ Error: Reference to undeclared input variable\n│ \n│   on main.tf line 1\n╵\n";
    Fault { reason, message: "terraform plan: exit status 1".to_owned(), output }
}
