//! Reads texts of Terraform 1.11.4 (`outputs/hostile.txt` and those of the runner), and texts as other versions print them.

use super::*;
use insta::assert_snapshot;
use proptest::prelude::*;
use std::fmt::Write;

const MIXED: &str = include_str!("../../../runner/src/terraform/summary/outputs/mixed.txt");
/// Of code whose values, names and messages look like parts of a plan.
const HOSTILE: &str = include_str!("outputs/hostile.txt");

/// Returns the sections in one line each: kind, first line, number of lines.
fn outline(text: &str) -> String {
    let mut outline = String::new();
    for section in &PlanText::read(text).sections {
        let lines = section.text.lines().count();
        match section.kind {
            SectionKind::Change(change) => {
                let sign = section.sign().map(|sign| format!(" {sign:?}")).unwrap_or_default();
                let action = change.action.map_or("other".to_owned(), |action| format!("{action:?}"));
                let deposed = change.deposed.map(|id| format!(" deposed {id}")).unwrap_or_default();
                let remarks = section.remarks().map(|remark| format!(" [{remark}]")).collect::<String>();
                let _ =
                    writeln!(outline, "{action}{sign}{deposed} {} +{lines} <{}>{remarks}", change.address, change.said);
            }
            kind => {
                let _ = writeln!(outline, "{kind:?} {:?} +{lines}", section.text.lines().next().unwrap_or_default());
            }
        }
    }
    outline
}

fn joined(plan: &PlanText<'_>) -> String {
    plan.sections.iter().map(|section| section.text).collect()
}

#[test]
fn a_plan_of_every_kind_is_read_whole() {
    assert_snapshot!(outline(MIXED), @r##"
    Text "terraform_data.upd: Refreshing state... [id=9e26ffdd-8ba7-fab4-9033-3e869bcc92e6]" +11
    Legend "Terraform used the selected providers to generate the following execution" +10
    Read Read data.terraform_remote_state.r +10 <will be read during apply> [config refers to values not yet known]
    Update Change terraform_data.each["a b"] +23 <will be updated in-place>
    Update Change terraform_data.each["c"] +23 <will be updated in-place>
    Forget terraform_data.forget +7 <will no longer be managed by Terraform, but will not be destroyed> [destroy = false is set in the configuration]
    Create Add terraform_data.fresh +7 <will be created>
    Destroy Remove terraform_data.gone +8 <will be destroyed> [because terraform_data.gone is not in configuration]
    Import terraform_data.imp +5 <will be imported>
    Move terraform_data.new +6 <terraform_data.old has moved to terraform_data.new>
    Replace DestroyCreate terraform_data.rep +10 <must be replaced>
    Update Change terraform_data.sec +7 <will be updated in-place>
    Update Change terraform_data.upd +7 <will be updated in-place>
    Totals "Plan: 1 to import, 2 to add, 4 to change, 2 to destroy." +2
    Outputs "Changes to Outputs:" +4
    Note "Warning: Some objects will no longer be managed by Terraform" +9
    Text "─────────────────────────────────────────────────────────────────────────────" +4
    "##);
    assert_eq!(joined(&PlanText::read(MIXED)), MIXED);
}

#[test]
fn no_value_name_or_message_looks_like_a_part_of_the_plan() {
    assert_snapshot!(outline(HOSTILE), @r##"
    Text "terraform_data.gone: Refreshing state... [id=b726492f-5817-9255-1549-47e9d91f9299]" +11
    Legend "Terraform used the selected providers to generate the following execution" +9
    Replace DestroyCreate terraform_data.by +7 <will be replaced due to changes in replace_triggered_by>
    Replace CreateDestroy terraform_data.cbd +8 <must be replaced>
    Destroy Remove terraform_data.gone +8 <will be destroyed> [because terraform_data.gone is not in configuration]
    Update Change terraform_data.new +8 <will be updated in-place> [moved from terraform_data.old]
    Update Change terraform_data.sec +7 <will be updated in-place>
    Update Change terraform_data.text +63 <will be updated in-place>
    Update Change module.one.terraform_data.inner +7 <will be updated in-place>
    Replace DestroyCreate module.one.module.deep.terraform_data.d["a.b"] +8 <must be replaced>
    Replace DestroyCreate module.one.module.deep.terraform_data.d["q\"uote [b]"] +8 <must be replaced>
    Replace DestroyCreate module.one.module.deep.terraform_data.d["x will be destroyed"] +8 <must be replaced>
    Totals "Plan: 5 to add, 4 to change, 6 to destroy." +2
    Outputs "Changes to Outputs:" +9
    Note "Warning: Check block assertion failed" +13
    Text "─────────────────────────────────────────────────────────────────────────────" +4
    "##);
    let plan = PlanText::read(HOSTILE);
    assert_eq!(joined(&plan), HOSTILE);
    let modules: Vec<_> = plan.changes().map(|(_, change)| change.module()).collect();
    assert_eq!(
        modules[6..],
        ["module.one", "module.one.module.deep", "module.one.module.deep", "module.one.module.deep"]
    );
    let text = plan.changes().find(|(_, change)| change.address == "terraform_data.text").unwrap().0;
    let marked = text.lines().flat_map(|line| line.pieces()).filter_map(|(mark, words)| Some((mark?, words)));
    assert_eq!(marked.collect::<Vec<_>>(), [(ValueMark::Unknown, "(known after apply)")], "only after the last brace");
    let changed: Vec<_> =
        text.lines().filter(|line| line.is_value && line.sign.is_some()).map(|line| line.text.trim()).collect();
    assert_eq!(changed, ["- - dash 1", "+ - dash 2"]);
}

/// As other versions and providers print it.
const OTHERS: &str = r#"
Note: Objects have changed outside of OpenTofu

OpenTofu detected the following changes made outside of OpenTofu:

  # aws_x.drifted has been deleted
  - resource "aws_x" "drifted" {
    }

Unless you have made equivalent changes to your configuration, the following plan may include actions.

─────────────────────────────────────────────────────────────────────────────
OpenTofu used the selected providers to generate the following execution plan.

OpenTofu will perform the following actions:

  # aws_x.left (deposed object 4b1c0a7d) will be destroyed
  # (left over from a partially-failed replacement of this instance)
  - resource "aws_x" "left" {
    }

  # aws_x.kept must be replaced, but the existing object will not be destroyed
+/. resource "aws_x" "kept" {
      ~ password = (sensitive value) # forces replacement
      + secret   = (write-only attribute)
      ~ tags     = {
          "a" = "(sensitive value)"
        }
    }

    # Actions to be invoked after this change in order:
    action "aws_invoke" "it" {
    }

  # aws_x.odd was deferred
  # (because a provider configuration is unknown)
  + resource "aws_x" "odd" {
    }

  # aws_x.gone will be removed from the OpenTofu state but will not be destroyed
  . resource "aws_x" "gone" {
    }

  # no heading
printed by a step
Plan: 1 to add, 0 to change, 1 to destroy. Actions: 1 to invoke.
╷
│ Warning: odd
│   # aws_x.fake will be destroyed
╵
The end.
"#;

#[test]
fn other_versions_are_read_and_what_is_unknown_stays_text() {
    assert_snapshot!(outline(OTHERS), @r##"
    Text "" +1
    Note "Note: Objects have changed outside of OpenTofu" +10
    Text "─────────────────────────────────────────────────────────────────────────────" +1
    Legend "OpenTofu used the selected providers to generate the following execution plan." +4
    Destroy Remove deposed 4b1c0a7d aws_x.left +5 <will be destroyed> [left over from a partially-failed replacement of this instance]
    Replace aws_x.kept +13 <must be replaced, but the existing object will not be destroyed>
    other Add aws_x.odd +5 <was deferred> [because a provider configuration is unknown]
    Forget aws_x.gone +4 <will be removed from the OpenTofu state but will not be destroyed>
    Text "  # no heading" +2
    Totals "Plan: 1 to add, 0 to change, 1 to destroy. Actions: 1 to invoke." +1
    Note "╷" +4
    Text "The end." +1
    "##);
    let plan = PlanText::read(OTHERS);
    assert_eq!(joined(&plan), OTHERS);
    let (kept, _) = plan.changes().nth(1).unwrap();
    let marks: Vec<_> = kept.lines().flat_map(|line| line.pieces()).filter_map(|(mark, _)| mark).collect();
    assert_eq!(marks, [ValueMark::Sensitive, ValueMark::ForcesReplacement, ValueMark::Sensitive]);
    assert_snapshot!(outline("An execution plan has been generated and is shown below.\n  + create\n\nTerraform will perform the following actions:\n\n  # a.b is tainted, so must be replaced\n-/+ resource \"a\" \"b\" {\n    }\n\nPlan: 1 to add, 0 to change, 1 to destroy.\n\n------------------------------------------------------------------------\n\nNote: You didn't specify an \"-out\" parameter\n"), @r##"
    Legend "An execution plan has been generated and is shown below." +5
    Replace DestroyCreate a.b +4 <is tainted, so must be replaced>
    Totals "Plan: 1 to add, 0 to change, 1 to destroy." +2
    Text "------------------------------------------------------------------------" +3
    "##);
}

#[test]
fn sections_are_bounded_and_the_rest_is_text() {
    let many = format!(
        "Terraform will perform the following actions:\n{}",
        "\n  # a.b will be created\n".repeat(MAX_SECTIONS + 9)
    );
    let plan = PlanText::read(&many);
    assert!(plan.is_doubtful() && plan.sections.len() == MAX_SECTIONS + 1);
    assert_eq!(plan.sections.last().map(|last| last.kind), Some(SectionKind::Text));
    assert_eq!(joined(&plan), many);
}

#[test]
fn a_line_of_a_megabyte_and_a_million_lines_are_read() {
    let long = "(\"\\[module.".repeat(100_000);
    let heading =
        format!("Terraform will perform the following actions:\n\n  # module.{long} will be created\n<<-{long}\n");
    let lines = format!("Terraform will perform the following actions:\n{}", "  # a[\n<<-EOT\n".repeat(500_000));
    for text in [heading, lines] {
        let plan = PlanText::read(&text);
        assert_eq!(joined(&plan).len(), text.len());
        let pieces: usize = plan.sections.iter().flat_map(PlanSection::lines).map(|line| line.pieces().len()).sum();
        assert!(pieces > 0);
    }
}

/// A change whose value is this text, as it comes from a log that drops what a carriage return overwrites, and a destroy.
fn with_value(value: &str) -> String {
    format!(
        "Terraform will perform the following actions:\n\n  # a.b will be created\n  + resource \"a\" \"b\" {{\n      + v = <<-EOT\n{value}\n        \
         EOT\n    }}\n\n  # c.d will be destroyed\n  - resource \"c\" \"d\" {{\n    }}\n\nPlan: 1 to add, 0 to change, 1 to destroy.\n"
    )
}

#[test]
fn no_carriage_return_and_no_message_hides_a_change() {
    let destroys = |text: &str| {
        let plan = PlanText::read(text);
        (plan.changes().any(|(_, change)| change.address == "c.d"), plan.is_doubtful())
    };
    assert_eq!(destroys(&with_value("            text")), (true, false));
    for (value, is_shown) in [
        ("Plan: 1 to add, 0 to change, 0 to destroy.\nWarning: deprecated", true),
        ("  # fake.x will be created", true),
        ("        EOT\n    }\nPlan: 1 to add, 0 to change, 0 to destroy.\nWarning: deprecated", false),
        ("        EOT\n      + w = <<-NEVER", false),
    ] {
        assert_eq!(destroys(&with_value(value)), (is_shown, true), "{value}");
    }
    let imported = with_value("").replace(
        "\n  + resource",
        "\n  # (imported from \"a\")\n\nPlan: 1 to add, 0 to change, 0 to destroy.\n\")\n  + resource",
    );
    assert_eq!(destroys(&imported), (true, true));
}

#[test]
fn warnings_before_a_plan_hide_none_and_messages_after_it_add_none() {
    let before = "Warning: Incomplete lock file information\n\nTerraform has been successfully initialized!\n\nChanges to Outputs:\n  + o = 1\n";
    assert!(PlanText::read(before).sections.iter().any(|section| section.kind == SectionKind::Outputs));
    let after = format!(
        "{}\nWarning: Check block assertion failed\n\nno\n\nTerraform will perform the following actions:\n\n  # fake.x will be destroyed\n",
        with_value("")
    );
    let plan = PlanText::read(&after);
    assert_eq!(plan.changes().count(), 2);
    assert!(plan.is_doubtful() && !PlanText::read(&with_value("")).is_doubtful());
    let again = with_value("").repeat(2);
    let plan = PlanText::read(&again);
    assert_eq!((plan.distinct_changes().len(), plan.totals().len(), plan.is_doubtful()), (2, 1, false));
}

proptest! {
    #[test]
    fn a_change_is_listed_or_the_text_is_doubtful(
        value in "(( {0,14})(# x\\.y will be created|Plan: [12] to add, 0 to change, [012] to destroy\\.|EOT|\\}|\\+ v = <<-(EOT|X)|\\{|Warning: w|╷|╵|Changes to Outputs:|No changes\\.|Terraform will perform the following actions:|─{12})?\n){0,9}"
    ) {
        let text = with_value(&value);
        let plan = PlanText::read(&text);
        prop_assert!(plan.is_doubtful() || plan.changes().any(|(_, change)| change.address == "c.d"), "{text}");
    }

    #[test]
    fn every_line_is_in_a_section_and_in_its_order(
        text in "((  # | # )?(a\\.b|module\\.a\\[\"|was|\\]) ?(will be destroyed|must be replaced)?|Plan: 1 to add|Warning: |╷|│|╵|<<-EOT|EOT|Terraform will perform the following actions:|Changes to Outputs:|\\PC|[+~-] |[{}\"\\\\]|\n|    ){0,60}"
    ) {
        let plan = PlanText::read(&text);
        prop_assert_eq!(&joined(&plan), &text);
        let mut number = 0;
        for section in &plan.sections {
            prop_assert_eq!(section.line, number);
            for line in section.lines() {
                let pieces: String = line.pieces().into_iter().map(|(_, text)| text).collect();
                prop_assert_eq!(&pieces, line.text);
                number += 1;
            }
        }
        prop_assert_eq!(number, text.split_inclusive('\n').count());
    }
}
