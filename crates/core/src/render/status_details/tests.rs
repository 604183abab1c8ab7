//! Tests of the details of commit statuses.

use super::*;
use crate::domain::outcome::{PlanSummary, Reason, RequirementCheck, ResourceChange};
use crate::domain::{ProjectId, PullNames};

fn statuses() -> Statuses {
    Statuses {
        prefix: "atlantis".to_owned(),
        url: "https://t".to_owned(),
        pulls: PullNames::default(),
        has_details: true,
    }
}

fn of(command: CommandName, outcome: Outcome) -> StatusDetails {
    let project = ProjectId { dir: "net".to_owned(), workspace: "default".to_owned(), name: None };
    let job = JobOutcome { command, project, job: Some("j".into()), millis: 0, tool: None, silenced: false, outcome };
    *statuses().project(&job).details.unwrap()
}

fn planned(resources: Vec<ResourceChange>, guards: Vec<TrippedGuard>) -> Outcome {
    let summary = PlanSummary { add: 1, destroy: 1, ..PlanSummary::default() };
    Outcome::Planned(Planned { summary, resources, guards, ..Planned::default() })
}

fn change(action: ResourceAction, address: &str) -> ResourceChange {
    ResourceChange { action, address: address.to_owned(), attributes: Vec::new() }
}

#[test]
fn a_plan_tells_guards_counts_and_what_changes() {
    let changes = vec![
        change(ResourceAction::Create, "a.b"),
        change(ResourceAction::Read, "data.x.y"),
        change(ResourceAction::Destroy, "c.d[\"x`@team\"]"),
    ];
    let details = of(CommandName::Plan, planned(changes.clone(), Vec::new()));
    assert_eq!(
        details.summary,
        "**1 to add, 0 to change, 1 to destroy**\n\n- destroy <code>c.d&#91;&#34;x&#96;&#64;team&#34;&#93;</code>\n- create `a.b`"
    );
    assert_eq!(details.buttons, [CommandName::Plan, CommandName::Apply]);
    let guard = TrippedGuard {
        name: "few".to_owned(),
        findings: vec!["<b>many</b>".to_owned()],
        more: 0,
        of_code: false,
        who: String::new(),
        passed: None,
    };
    let details = of(CommandName::Plan, planned(changes, vec![guard]));
    assert!(details.summary.starts_with("- ⚠ guard `few` tripped: &#60;b&#62;many"), "{}", details.summary);
    assert_eq!(details.buttons, [CommandName::Plan], "it cannot be applied");
}

#[test]
fn an_error_is_quoted_in_a_fence_and_has_its_place() {
    let output = "╷\n│ Error: Bad ```x\n│ \n│   on main.tf line 2, in locals:\n│    2: x\n╵\n";
    let fault = Fault { reason: Reason::Plan, message: "terraform plan: exit status 1".into(), output: output.into() };
    let details = of(CommandName::Plan, Outcome::Errored(fault));
    assert!(details.summary.contains("````\n╷"), "{}", details.summary);
    assert!(details.summary.ends_with("\n````"), "{}", details.summary);
    assert_eq!((details.annotations[0].path.as_str(), details.annotations[0].line), ("net/main.tf", 2));
    assert_eq!(details.buttons, [CommandName::Plan]);
}

#[test]
fn a_refused_apply_can_be_tried_again() {
    let check = RequirementCheck { name: "approved".into(), met: false, detail: "0 of 1 review".into() };
    let details = of(CommandName::Apply, Outcome::Failed(Failure::Requirements(vec![check])));
    assert!(details.summary.contains("- ✗ `approved`: 0 of 1 review"), "{}", details.summary);
    assert_eq!(details.buttons, [CommandName::Plan, CommandName::Apply]);
}

#[test]
fn a_long_summary_is_cut_between_blocks_and_links_to_the_rest() {
    let mut summary = SummaryWriter::default();
    for _ in 0..20 {
        summary.output(&"x".repeat(MAX_OUTPUT - 100));
    }
    let text = summary.end("https://t/jobs/j");
    assert!(text.chars().count() < 65_535);
    assert!(
        text.ends_with("```\n\n[The rest is on the server's page](https://t/jobs/j)"),
        "{}",
        &text[text.len() - 99..]
    );
    let many = (0..500).map(|n| change(ResourceAction::Create, &format!("a.{}{n}", "é".repeat(5000)))).collect();
    let details = of(CommandName::Plan, planned(many, Vec::new()));
    let left = details.summary.rsplit("… and ").next().and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    assert!(details.summary.len() < 65_535 && left.is_some_and(|left| left > 300), "{left:?}");
}

#[test]
fn there_are_none_without_a_host_that_shows_them() {
    let plain = Statuses { has_details: false, ..statuses() };
    assert!(plain.plan(&[]).details.is_none() && plain.failed(CommandName::Plan, "x").details.is_none());
    assert!(statuses().failed(CommandName::Plan, "x").details.is_some());
}

#[test]
fn a_summary_is_counted_in_bytes_and_takes_the_rows_that_fit() {
    let mut summary = SummaryWriter::default();
    summary.list(&vec!["é".repeat(400); 100]);
    let text = summary.end("https://t");
    assert!(text.len() < MAX_SUMMARY + 100 && text.len() > MAX_SUMMARY - 1000, "{}", text.len());
    let end = "\n- … and 26 more\n\n[The rest is on the server's page](https://t)";
    assert!(text.ends_with(end), "{}", text.lines().last().unwrap());
    let mut summary = SummaryWriter::default();
    summary.block(&"語".repeat(30_000));
    assert_eq!(summary.end("https://t"), "[The rest is on the server's page](https://t)");
}

#[test]
fn only_exact_names_are_of_all_projects() {
    let statuses = statuses();
    for name in ["atlantis/plan", "atlantis/apply", "atlantis/policy_check"] {
        assert!(statuses.is_of_all(name), "{name}");
    }
    for name in [
        "atlantis/plan: a/default",
        "atlantis-prod/plan",
        "atlantis-prod/apply: a/default",
        "old/apply",
        "atlantis/",
        "",
    ] {
        assert!(!statuses.is_of_all(name) && !statuses.is_of_hook(name), "{name}");
    }
    assert!(statuses.is_of_hook("atlantis/pre_workflow_hook: x") && !statuses.is_of_hook("old/pre_workflow_hook: x"));
}
