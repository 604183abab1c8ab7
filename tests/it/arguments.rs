//! Arguments behind `--`: none displaces the plan, writes a file, names another state, or reads a file from elsewhere.

use crate::support::*;

fn state(ctx: &Ctx) -> serde_json::Value {
    let text = std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the input of the only resource.
fn input(state: &serde_json::Value) -> &serde_json::Value {
    &state["resources"][0]["instances"][0]["attributes"]["input"]["value"]
}

#[test]
fn arguments_of_apply_cannot_displace_the_plan_and_a_refusal_costs_nothing() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.next(&pull).await.has("0 to add, 1 to change, 0 to destroy");
        let before = state(ctx);
        assert_eq!(input(&before), "2");
        for arguments in [
            "-auto-approve -destroy -backup",
            "-auto-approve -destroy -state",
            "-auto-approve -destroy -state-out",
            "-lock-timeout",
            "-destroy",
            "-target=terraform_data.this",
            "-backup={tmp}/backup",
        ] {
            let said = ctx.say(&pull, &ctx.fill(&format!("atlantis apply -- {arguments}"))).await;
            said.is("apply", "error").because("not_permitted").has("`apply` does not accept").has("`atlantis apply`");
            assert_eq!(state(ctx), before, "{arguments}");
        }
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        let said = ctx.say(&pull, "atlantis apply -- -lock=true --lock-timeout=5s -parallelism=3 -no-color").await;
        said.is("apply", "success").has("0 added, 1 changed, 0 destroyed");
        assert_eq!(input(&state(ctx)), "3");
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn a_flag_of_a_workflow_that_waits_for_its_value_does_not_take_the_plan_file() {
    let steps =
        "workflows:\n  custom:\n    apply:\n      steps:\n        - apply:\n            extra_args: [-backup]\n";
    let rules = format!("repos:\n  - id: /.*/\n    workflow: custom\n{steps}");
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added, 0 changed, 0 destroyed");
        assert_eq!(input(&state(ctx)), "2");
    });
}

#[test]
fn arguments_of_a_plan_write_no_file_and_name_no_other_state() {
    run_test(Setup::one_project(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        for arguments in [
            "-out={tmp}/stolen",
            "--out {tmp}/stolen",
            "-state={tmp}/stolen",
            "--state-out={tmp}/stolen",
            "-backup {tmp}/stolen",
            "-generate-config-out={tmp}/stolen",
            "-var -var-file -var-file=/etc/hostname",
            "-var-file=/etc/hostname",
        ] {
            let said = ctx.say(&pull, &ctx.fill(&format!("atlantis plan -- {arguments}"))).await;
            said.is("plan", "error").because("not_permitted");
            assert!(!ctx.tmp.join("stolen").exists(), "{arguments}");
        }
        // Plan and lock are kept, and the status of the plan is unchanged.
        ctx.status(&pull, "atlantis/plan", "success", "1 to add").await;
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn arguments_of_import_and_state_rm_name_no_other_state() {
    let flags = ["--allow-commands=plan,apply,import,state"];
    run_test(Setup::one_project().flags(&flags), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let commands =
            [("import", "import -d . terraform_data.this x"), ("state_rm", "state rm -d . terraform_data.this")];
        for (name, command) in commands {
            for arguments in
                ["-state={tmp}/other", "-state-out {tmp}/other", "--backup={tmp}/other", "-var-file=/etc/hostname"]
            {
                let said = ctx.say(&pull, &ctx.fill(&format!("atlantis {command} -- {arguments}"))).await;
                said.is(name, "error").because("not_permitted");
                assert!(!ctx.tmp.join("other").exists());
            }
        }
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
