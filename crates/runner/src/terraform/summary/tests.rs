//! Parses the output of Terraform 1.11.4 (`outputs/`), and text that it prints for providers that are not available here.

use super::*;
use insta::assert_snapshot;
use proptest::{prop_assert, proptest};
use tidelock_core::domain::outcome::ResourceChange;

const MIXED: &str = include_str!("outputs/mixed.txt");
const SAVED: &str = include_str!("outputs/saved_color.txt");
const NO_CHANGES: &str = include_str!("outputs/no_changes.txt");
const OUTPUTS: &str = include_str!("outputs/outputs.txt");
const APPLY: &str = include_str!("outputs/apply.txt");

fn list(resources: &[ResourceChange]) -> String {
    let line = |r: &ResourceChange| format!("{:?} {} ({})", r.action, r.address, r.attributes.join(", "));
    resources.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A block as Terraform prints it for large providers.
const REPLACED: &str = r#"
Terraform will perform the following actions:

  # google_compute_instance.vm must be replaced
  # (moved from google_compute_instance.old)
-/+ resource "google_compute_instance" "vm" {
      ~ id           = "i-1" -> (known after apply)
      ~ machine_type = "e2-small" -> "e2-medium"
      ~ name         = "a" -> "b" # forces replacement
      ~ tags         = [ # forces replacement
          - "x",
        ]
      ~ "odd key"    = "1" -> "2"

      ~ boot_disk {
          ~ initialize_params {
              ~ image = "debian-11" -> "debian-12" # forces replacement
            }
        }
        metadata     = {
            "startup" = <<-EOT
                # forces replacement
                  # fake.resource will be destroyed
            EOT
        }
    }

  # module.x["a.b"].google_project.p (deposed object 4b1c0a7d) will be destroyed
  - resource "google_project" "p" {
    }

  # null_resource.t is tainted, so must be replaced
+/- resource "null_resource" "t" {
      ~ id = "1" -> (known after apply)
    }

  # data.http.x will be read during apply
 <= data "http" "x" {
    }

  # a.b was deferred
  + resource "a" "b" {
    }

Plan: 2 to add, 0 to change, 3 to destroy.

  # fake.after will be destroyed
"#;

#[test]
fn resources_are_listed_with_what_changes_or_forces_a_replacement() {
    assert_snapshot!(list(&plan_resources(MIXED)), @r#"
    Read data.terraform_remote_state.r ()
    Update terraform_data.each["a b"] (input)
    Update terraform_data.each["c"] (input)
    Forget terraform_data.forget ()
    Create terraform_data.fresh ()
    Destroy terraform_data.gone ()
    Import terraform_data.imp ()
    Move terraform_data.new ()
    Replace terraform_data.rep (input, triggers_replace)
    Update terraform_data.sec (input)
    Update terraform_data.upd (input)
    "#);
    assert_snapshot!(list(&plan_resources(&strip_ansi(SAVED))), @r"
    Update terraform_data.sec (input)
    Replace terraform_data.upd (id, output)
    ");
    assert_snapshot!(list(&plan_resources(REPLACED)), @r#"
    Replace google_compute_instance.vm (name, tags, boot_disk.initialize_params.image)
    Destroy module.x["a.b"].google_project.p ()
    Replace null_resource.t (id)
    Read data.http.x ()
    "#);
    assert_eq!(plan_resources(NO_CHANGES), []);
}

#[test]
fn totals_are_terraforms_own() {
    let summary = |text: &str| {
        let s = plan_summary(&plan_text(text))?;
        let marks = [(s.no_changes, " none"), (s.changes_outside, " outside"), (s.outputs_only, " outputs")];
        let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
        Some(format!("+{} ~{} -{} <{} .{}{marks}", s.add, s.change, s.destroy, s.import, s.forget))
    };
    let outside = "Note: Objects have changed outside of Terraform\n\nx\n\nNo changes. Your infrastructure still matches the configuration.\n";
    let terragrunt = "10:1 STDOUT [a] terraform: Plan: 1 to add, 2 to change, 3 to destroy.\nPlan: 1 to import, 0 to add, 1 to change, 0 to destroy.";
    let table = [
        (MIXED, Some("+2 ~4 -2 <1 .1")),
        (SAVED, Some("+1 ~1 -1 <0 .0")),
        (NO_CHANGES, Some("+0 ~0 -0 <0 .0 none")),
        (OUTPUTS, Some("+0 ~0 -0 <0 .0 outputs")),
        (REPLACED, Some("+2 ~0 -3 <0 .0")),
        (outside, Some("+0 ~0 -0 <0 .0 none outside")),
        (terragrunt, Some("+1 ~3 -3 <1 .0")),
        ("Plan: 2 to import, 1 to add, 0 to change, 0 to destroy, 4 to forget.", Some("+1 ~0 -0 <2 .4")),
        ("No changes. Infrastructure is up-to-date.", Some("+0 ~0 -0 <0 .0 none")),
        (
            "10:09:53.115 STDOUT [vpc] terraform: No changes. Your infrastructure matches the configuration.\n",
            Some("+0 ~0 -0 <0 .0 none"),
        ),
        ("[a] No changes. Your infrastructure\n[b] Plan: 1 to add, 0 to change, 0 to destroy.", Some("+1 ~0 -0 <0 .0")),
        ("[a] No changes. Your infrastructure\n[b] Changes to Outputs:", Some("+0 ~0 -0 <0 .0 outputs")),
        (
            "[a] Note: Objects have changed outside of Terraform\n[a] No changes. Your",
            Some("+0 ~0 -0 <0 .0 none outside"),
        ),
        ("      + x = \"y: No changes. Your infrastructure\"", None),
        ("No changes.", None),
        ("Error: Plan: failed", None),
        ("      + x = \"Plan: 1 to add, 0 to change, 0 to destroy.\"", None),
        ("  No changes. Your infrastructure", None),
        ("", None),
    ];
    for (text, expected) in table {
        assert_eq!(summary(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn applies_are_counted_and_summed() {
    assert_eq!(apply_counts(APPLY), Some((9, 0, 0)));
    let two = "Apply complete! Resources: 1 imported, 2 added, 3 changed, 4 destroyed.\nDestroy complete! Resources: 5 destroyed.\n";
    assert_eq!(apply_counts(two), Some((2, 3, 9)));
    assert_eq!(apply_counts("Error: no"), None);
    assert_eq!(apply_counts("  x = \"Apply complete! Resources: 1 added.\""), None);
}

#[test]
fn people_read_the_plan_and_neither_the_refresh_nor_advice_on_our_plan_file() {
    assert_snapshot!(plan_text(SAVED), @r#"
    Terraform used the selected providers to generate the following execution
    plan. Resource actions are indicated with the following symbols:
      ~ update in-place
    -/+ destroy and then create replacement

    Terraform will perform the following actions:

      # terraform_data.sec will be updated in-place
      ~ resource "terraform_data" "sec" {
            id     = "3e94ebda-9453-0ba5-4d23-2120f45b8924"
          ~ input  = (sensitive value)
          ~ output = "s3" -> (known after apply)
        }

      # terraform_data.upd will be replaced, as requested
    -/+ resource "terraform_data" "upd" {
          ~ id     = "9e26ffdd-8ba7-fab4-9033-3e869bcc92e6" -> (known after apply)
          ~ output = "a" -> (known after apply)
            # (1 unchanged attribute hidden)
        }

    Plan: 1 to add, 1 to change, 1 to destroy.

    Changes to Outputs:
      ~ o = "a" -> (known after apply)
    "#);
    let failed = "a.b: Refreshing state... [id=1]\ndata.x.y: Reading...\ndata.x.y: Read complete after 0s\n\nError: no such thing\n";
    assert_eq!(plan_text(failed), "Error: no such thing");
}

#[test]
fn a_value_cannot_cut_the_plan_in_front_of_it() {
    let text = "x.y: Refreshing state... [id=1]\n\nTerraform will perform the following actions:\n\n  # a.b will be destroyed\nz: Refreshing state...\n";
    assert!(plan_text(text).contains("a.b will be destroyed"));
}

#[test]
fn escapes_and_controls_go_text_stays() {
    let table = [
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{1b}\\", "link"),
        ("\u{1b}]0;title\nnext", "\nnext"),
        ("a\r\nb\tc\u{8}\u{0}\u{9b}", "a\nb\tc"),
        ("\u{1b}(Bx\u{1b}", "x"),
        ("ä─", "ä─"),
    ];
    for (text, plain) in table {
        assert_eq!(strip_ansi(text), plain, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_output_makes_it_panic(text in "(  # |Plan: |[+~-] |\\{|\\}|<<-EOT|EOT|\n|\u{1b}\\[|[a-z\" ä=]|    ){0,60}") {
        let plain = strip_ansi(&text);
        prop_assert!(plain.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
        plan_summary(&plain);
        plan_resources(&format!("Terraform will perform the following actions:\n{plain}"));
        plan_text(&text);
    }
}

#[test]
fn of_several_modules_behind_prefixes_no_plan_is_cut_off_by_the_refresh_of_another() {
    let text = "[a] x.y: Refreshing state... [id=1]\n[a] Terraform used the selected providers\n[a]   # x.y will be updated\n\
                [b] z: Refreshing state... [id=2]\n[b] No changes. Your infrastructure matches the configuration.";
    let shown = plan_text(text);
    assert!(shown.starts_with("[a] Terraform used") && shown.contains("# x.y will be updated"), "{shown}");
}
