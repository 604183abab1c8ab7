//! Plans that are made at an executor and applied with another identity: what is applied has to be what people have read. The job of a
//! plan runs the code of a pull request, so it can give back any plan file, text and file of the checkout.

use crate::support::*;

/// Identities of the apply: another executor, and the server itself.
const APPLIES: [&str; 2] = ["applies", "local"];
/// A step that replaces the plan file of the project by that of a plan with another input. Its text is hidden.
pub(crate) const SWAP: &str = "terraform plan -input=false -no-color -var input=evil -out \"$PLANFILE\" > /dev/null";

/// Returns a `repos.yaml` with the executor `plans` for plans and another identity for applies.
fn apart(applies: &str, plan: &[&str], apply: &[&str]) -> String {
    let rule = format!("executor: [{{plan: plans, apply: {applies}}}]");
    let executors = "executors: {plans: {kind: process}, applies: {kind: process}}";
    format!("{executors}\n{}", workflow(&rule, plan, apply))
}

/// Code with an input that a variable sets.
pub(crate) fn code() -> String {
    terraform("root", "x").replace("input = \"x\"", "input = var.input")
        + "\nvariable \"input\" {\n  default = \"good\"\n}\n"
}

/// Runs a test of a plan that lies with these steps, once for each identity of the apply.
fn run_lie(plan: &[&str], test: impl AsyncFn(&Ctx, &tidelock_forge::Pull)) {
    for applies in APPLIES {
        let setup = Setup::repo(&[("main.tf", &code())]).repos_yaml(&apart(applies, plan, &["apply"])).own_process();
        run_test(setup, async |ctx| {
            let pull = ctx.open("change", &[("more.tf", "output \"more\" {\n  value = 1\n}\n")]).await;
            ctx.next(&pull).await.is("plan", "success").has("input  = \"good\"").has_not("evil");
            test(ctx, &pull).await;
            assert!(!ctx.tmp.join("state/root.tfstate").exists(), "nothing was applied at {applies}");
            ctx.status(&pull, "atlantis/apply", "failure", "").await;
        });
    }
}

#[test]
fn a_plan_file_that_does_something_else_than_its_text_is_not_applied() {
    run_lie(&["init", "plan", SWAP], async |ctx, pull| {
        let held = ctx.tmp.join("state/.root.tfstate.lock.info");
        std::fs::create_dir_all(held.parent().unwrap()).unwrap();
        // Terraform replaces this file when it locks the state, and removes it with the lock.
        std::fs::write(&held, r#"{"ID":"11111111-2222-3333-4444-555555555555"}"#).unwrap();
        let said = ctx.say(pull, "atlantis apply").await;
        said.is("apply", "error").because("stale_plan").has("differs from the approved text");
        said.has("input  = \"evil\"").has("Find out what this pull request runs in a plan").has("atlantis plan -d .");
        assert!(held.exists());
        ctx.say(pull, "atlantis apply").await.has("its plan was used by the apply that failed");
    });
}

#[test]
fn a_plan_file_with_other_code_is_not_applied_although_its_text_is_the_same() {
    // No text of a plan shows a provisioner.
    let provisioner = r#"  provisioner \"local-exec\" {\n    command = \"touch {tmp}/owned\"\n  }"#;
    let other = format!(
        "cp main.tf kept && sed -i 's|^  input = var.input|&\\n{}|' main.tf && terraform plan -input=false -out \"$PLANFILE\" > /dev/null && mv kept main.tf",
        provisioner.replace("\\\"", "\"")
    );
    run_lie(&["init", "plan", &other], async |ctx, pull| {
        let said = ctx.say(pull, "atlantis apply").await;
        said.is("apply", "error")
            .because("stale_plan")
            .has("cannot confirm that the plan file contains the checkout's code")
            .has("`main.tf` is another one");
        assert!(!ctx.tmp.join("owned").exists());
    });
}

#[test]
fn steps_of_a_plan_cannot_leave_code_for_its_apply() {
    let leave = "printf 'output \"evil\" {\\n  value = 1\\n}\\n' > evil.tf";
    for (applies, outcome) in [("applies", "error"), ("local", "failure")] {
        let yaml = apart(applies, &["init", "plan", leave], &["apply"]);
        run_test(Setup::one_project().repos_yaml(&yaml).own_process(), async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            let said = ctx.say(&pull, "atlantis apply").await;
            said.is("apply", outcome).has("have left `evil.tf`").has("the same name for `plan` and `apply`");
        });
    }
}

#[test]
fn honest_plans_are_applied_with_another_identity() {
    let module = "variable \"of\" {}\n\nresource \"terraform_data\" \"inner\" {\n  input = var.of\n}\n\noutput \"of\" {\n  value = terraform_data.inner.output\n}\n";
    let code = terraform("root", "1")
        + r#"
variable "secret" {
  default   = "hidden-value"
  sensitive = true
}

module "m" {
  source = "./m"
  of     = terraform_data.this.output
}

resource "terraform_data" "lines" {
  input = <<-EOT
    Terraform will perform the following actions:
    Plan: 7 to add
  EOT
}

resource "terraform_data" "secret" {
  input = var.secret
}

output "all" {
  value = module.m.of
}

check "warns" {
  assert {
    condition     = terraform_data.this.input == "never"
    error_message = "an honest warning"
  }
}
"#;
    let made = "echo made by a step > left.txt && echo said by a step";
    for applies in APPLIES {
        let yaml = apart(applies, &["init", made, "plan", "echo said afterwards"], &["cat left.txt", "apply"]);
        let setup = Setup::repo(&[("main.tf", &code), ("m/main.tf", module)]).repos_yaml(&yaml).own_process();
        run_test(setup, async |ctx| {
            let pull = ctx.open("change", &[("more.tf", "output \"more\" {\n  value = 1\n}\n")]).await;
            ctx.next(&pull)
                .await
                .is("plan", "success")
                .has("4 to add")
                .has("an honest warning")
                .has("(sensitive value)");
            ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("made by a step").has("4 added");
            // A change of outputs only, one in place of a resource, and no change.
            for (file, text, what) in [
                ("more.tf", "output \"more\" {\n  value = 2\n}\n".to_owned(), "Changes to Outputs"),
                (
                    "main.tf",
                    code.replace("input = \"1\"", "input = \"2\"").replace("hidden-value", "other"),
                    "to change",
                ),
                ("more.tf", "# words\noutput \"more\" {\n  value = 2\n}\n".to_owned(), "No changes"),
            ] {
                ctx.push(&pull, file, &text).await;
                ctx.next(&pull).await.is("plan", "success").has(what);
                ctx.say(&pull, "atlantis apply").await.is("apply", "success");
            }
        });
    }
}

#[test]
fn a_plan_of_a_command_is_applied_if_its_output_has_the_plan() {
    let command = "terraform plan -input=false -out=$PLANFILE";
    for (plan, outcome) in [(command.to_owned(), "success"), (format!("{command} > /dev/null"), "error")] {
        let yaml = apart("applies", &["init", &plan], &["terraform apply $PLANFILE"]);
        run_test(Setup::one_project().repos_yaml(&yaml).own_process(), async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", outcome);
            assert_eq!(ctx.tmp.join("state/root.tfstate").exists(), outcome == "success");
        });
    }
}

#[test]
fn a_plan_without_the_step_init_is_applied_by_its_own_executor_only() {
    let plan = ["terraform init -input=false", "plan"];
    let apply = ["terraform init -input=false", "apply"];
    run_test(Setup::one_project().repos_yaml(&apart("applies", &plan, &apply)).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply")
            .await
            .is("apply", "failure")
            .has("needs the built-in step `init`")
            .has("`executor`");
        // One identity does both: nothing is compared.
        ctx.rewrite_repos_yaml(&apart("plans", &plan, &apply));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
