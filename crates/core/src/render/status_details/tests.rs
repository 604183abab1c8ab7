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
    assert!(details.summary.chars().count() < 65_535 && details.summary.contains("… and 300 more"));
}

#[test]
fn there_are_none_without_a_host_that_shows_them() {
    let plain = Statuses { has_details: false, ..statuses() };
    assert!(plain.plan(&[]).details.is_none() && plain.failed(CommandName::Plan, "x").details.is_none());
    assert!(statuses().failed(CommandName::Plan, "x").details.is_some());
}
