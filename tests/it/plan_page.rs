//! The page of what the plans of a run change.

use crate::runs_pages::{has, lacks, link, listed, page, shown};
use crate::support::*;
use serde_json::{Value, json};

/// Code whose second version updates, replaces, creates and destroys, with names and values that try to be markup and headings.
fn code(state: &str, second: bool) -> String {
    let (input, name) = if second { ("2", "later") } else { ("1", "earlier") };
    terraform(state, input)
        + &r#"
variable "secret" {
  default   = "hidden-value"
  sensitive = true
}
module "net" {
  source = "../m"
  of     = "IN"
}
resource "terraform_data" "swapped" {
  input            = "IN"
  triggers_replace = "IN"
  lifecycle {
    create_before_destroy = true
  }
}
resource "terraform_data" "secret" {
  triggers_replace = "${var.secret} IN"
}
resource "terraform_data" "NAME" {
  input = <<-EOT
      # fake.resource will be destroyed
    <script>alert(1)</script>
    Plan: 0 to add, 0 to change, 99 to destroy.
  EOT
}
output "told" {
  value = "<b>IN</b>"
}
"#
        .replace("IN", input)
        .replace("NAME", name)
}

const MODULE: &str = "variable \"of\" {}\n\nresource \"terraform_data\" \"inner\" {\n  for_each         = toset([\"<i>\"])\n  \
                      input            = var.of\n  triggers_replace = var.of\n}\n";

/// Returns the addresses of the listed resources with their actions.
fn resources(page: &str) -> Vec<String> {
    let row = regex::Regex::new(r#"<summary><span class="mark \w+">(\w+)</span> <code>([^<]*)</code>"#).unwrap();
    row.captures_iter(page).map(|found| format!("{} {}", &found[1], &found[2])).collect()
}

/// Returns what the API tells of the run with this page.
async fn changes(ctx: &Ctx, page: &str, filter: &str) -> Value {
    let run = page.strip_suffix("/plan").unwrap();
    ctx.json(&format!("/api{run}/changes?{filter}")).await
}

/// Returns actions and addresses of an answer of the API, as [`resources`] does.
fn told(answer: &Value) -> Vec<String> {
    let row = |row: &Value| {
        let address = row["address"].as_str().unwrap().replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        format!("{} {address}", row["action"].as_str().unwrap())
    };
    answer["changes"].as_array().unwrap().iter().map(row).collect()
}

/// Checks that the log has the heading of a resource at the line that the page links to.
async fn links_to_its_line(ctx: &Ctx, plan: &str, job: &str) {
    let text = link(plan, "text<span class=\"hidden\"> of terraform_data.swapped</span>");
    let (log, line) = text.split_once("#L").unwrap();
    assert_eq!(log, format!("/jobs/{job}"));
    let (_, log) = ctx.request("GET", &format!("{log}/log"), &[]).await;
    let heading = log.lines().nth(line.parse::<usize>().unwrap() - 1);
    assert_eq!(heading, Some("  # terraform_data.swapped must be replaced"));
}

/// Asks for what there is not.
async fn refusals(ctx: &Ctx, address: &str) {
    for wrong in ["action=delete", "colour=red", "from=x"] {
        assert_eq!(page(ctx, &format!("{address}?{wrong}")).await.0, 400, "{wrong}");
    }
    for nothing in ["x", "00000000000000000000000000000000"] {
        assert_eq!(page(ctx, &format!("/runs/{nothing}/plan")).await.0, 404);
    }
}

#[test]
fn a_plan_is_shown_by_module_and_filtered() {
    let repo =
        Setup::repo(&[("a/main.tf", &code("a", false)), ("b/main.tf", &code("b", false)), ("m/main.tf", MODULE)]);
    run_test(repo, async |ctx| {
        let first = ctx.open("first", &[("a/more.tf", ""), ("b/more.tf", "")]).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.push(&first, "a/main.tf", &code("a", true)).await;
        ctx.next(&first).await.is("plan", "success");
        let planned = ctx.say(&first, "atlantis plan -d a").await;
        planned.is("plan", "success");

        let run = format!("/runs/{}", listed(&shown(ctx, "/runs").await)[0]);
        let of_run = shown(ctx, &run).await;
        let address = link(&of_run, "Plan");
        assert_eq!(address, format!("{run}/plan"));
        assert_eq!(
            link(&of_run, "changes<span class=\"hidden\"> of a/default</span>"),
            format!("{address}?project=a%2Fdefault")
        );
        let of_job = shown(ctx, &format!("/jobs/{}", planned.job())).await;
        assert_eq!(link(&of_job, "its changes"), format!("{address}?project=a%2Fdefault"));

        let plan = shown(ctx, &address).await;
        let all = [
            "destroy terraform_data.earlier",
            "replace terraform_data.secret",
            "replace terraform_data.swapped",
            "update terraform_data.this",
            "create terraform_data.later",
            "replace module.net.terraform_data.inner[&quot;&lt;i&gt;&quot;]",
        ];
        assert_eq!(resources(&plan), all);
        has(
            &plan,
            &[
                "Root module",
                "<h3><code>module.net</code></h3>",
                "the new one is created first",
                "the old one is destroyed first",
                "<em class=\"sensitive\">(sensitive value)</em>",
                "<em class=\"unknown\">(known after apply)</em>",
                "&lt;script&gt;alert(1)",
                "Plan: 4 to add, 1 to change, 4 to destroy.",
                "Changes to Outputs",
            ],
        );
        lacks(&plan, &["hidden-value", "<script>alert", "<b>2", "<i>", "The same changes"]);
        links_to_its_line(ctx, &plan, &planned.job()).await;
        for (filter, expected) in [
            ("action=destroy", &all[..1]),
            ("action=replace&action=create", &[all[1], all[2], all[4], all[5]]),
            ("address=INNER", &all[5..]),
            ("address=%22%3Ci%3E%22%5D&action=update", &[]),
            ("from=4", &all[4..]),
            ("project=a%2Fdefault", &all),
            ("project=b", &[]),
        ] {
            assert_eq!(resources(&shown(ctx, &format!("{address}?{filter}")).await), expected, "{filter}");
            assert_eq!(told(&changes(ctx, &address, filter).await), expected, "{filter}");
        }
        let all = changes(ctx, &address, "").await;
        let secret = &all["changes"][1];
        assert_eq!((&secret["project_count"], &secret["projects"][0]["directory"]), (&1.into(), &"a".into()));
        assert!(secret["text"].as_str().unwrap().contains("(sensitive value)"), "{secret:#}");
        assert_eq!((&all["next"], &all["incomplete"], &secret["is_cut"]), (&Value::Null, &json!([]), &json!(false)));
        refusals(ctx, &address).await;
        std::fs::remove_file(ctx.server.data(&format!("logs/{}.log", planned.job()))).unwrap();
        has(&shown(ctx, &address).await, &["its log is gone"]);
    });
}

#[test]
fn the_same_changes_of_several_projects_are_shown_once() {
    let step = |kind: &str| {
        format!(
            "printf 'Terraform will perform the following actions:\\n\\n  # x.y will be created\\n  + resource \"x\" \"y\" {{\\n        id = \
             \"%s\"\\n      + kind = \"{kind}\"\\n    }}\\n\\nPlan: 1 to add, 0 to change, 0 to destroy.\\n' \"$PWD\""
        )
    };
    let (same, other) = (step("same"), step("other"));
    let plan = format!("case $PWD in */c) {other};; */d) echo nothing to read;; *) {same};; esac");
    run_test(Setup::projects(&["a", "b", "c", "d"]).steps(&[&plan], &[]), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c", "d"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let address = format!("/runs/{}/plan", listed(&shown(ctx, "/runs").await)[0]);
        let plan = shown(ctx, &address).await;
        has(
            &plan,
            &["The same changes in 2 of 4 projects", "its output has no plan that can be read", "value=\"create\"> "],
        );
        assert_eq!(resources(&plan), ["create x.y", "create x.y"]);
        assert_eq!(plan.matches("kind = &quot;same&quot;").count(), 1, "{plan}");
        let alone = shown(ctx, &format!("{address}?project=b%2Fdefault")).await;
        lacks(&alone, &["The same changes", "&quot;other&quot;"]);
        assert_eq!(resources(&alone), ["create x.y"]);
    });
}
