//! Terraform Cloud and Enterprise: the token of `tfe-token`, and plans of remote runs, which cannot be saved.

use crate::support::*;

/// Stand-in for Terraform, with a backend whose runs are remote. `{tmp}/value` is the value that the run plans, `{tmp}/workspace` is in its
/// question. The applied value is in `{tmp}/done`.
const REMOTE: &str = r#"#!/bin/sh
echo "$1 ${TF_TOKEN_tfe_example_com-none}" >> {tmp}/calls
planned() {
  printf 'Running %s in the remote backend.\n\nTo view this run in a browser, visit:\nhttps://tfe.example.com/run-%s\n\n' "$1" $$
  printf 'Terraform will perform the following actions:\n\n  # a.b will be created\n  + input = "%s"\n\n' "$(cat {tmp}/value)"
  printf 'Plan: 1 to add, 0 to change, 0 to destroy.\n'
}
case "$1" in
  version) echo 'Terraform v1.5.7' ;;
  init) mkdir -p .terraform ;;
  plan)
    case " $* " in *' -out '*)
      printf 'Error: Saving a generated plan is currently not supported\n\nThe "remote" backend does not support it.\n' >&2
      exit 1 ;;
    esac
    planned plan ;;
  apply)
    echo "$*" >> {tmp}/applies
    planned apply
    printf '\n\nDo you want to perform these actions%s?\n' "$(cat {tmp}/workspace)"
    printf "  Terraform will perform the actions described above.\n  Only 'yes' will be accepted to approve.\n\n  Enter a value: "
    read answer
    [ "$answer" = yes ] || { echo 'Error: Apply discarded.' >&2; exit 1; }
    cat {tmp}/value >> {tmp}/done
    printf 'Apply complete! Resources: 1 added, 0 changed, 0 destroyed.\n' ;;
esac
"#;

fn remote() -> Setup {
    let path = format!("{{own}}/bin:{}", std::env::var("PATH").unwrap());
    Setup::one_project()
        .variable("PATH", &path)
        .flags(&["--tfe-hostname=tfe.example.com"])
        .variable("ATLANTIS_TFE_TOKEN", "hunter2.atlasv1.of-tfe")
}

fn install(ctx: &Ctx) {
    std::fs::create_dir(ctx.own.join("bin")).unwrap();
    let terraform_path = ctx.own.join("bin/terraform");
    std::fs::write(&terraform_path, ctx.fill(REMOTE)).unwrap();
    make_executable(&terraform_path);
    set_answer(ctx, "1", " in workspace \"default\"");
}

fn set_answer(ctx: &Ctx, value: &str, workspace: &str) {
    std::fs::write(ctx.tmp.join("value"), format!("{value}\n")).unwrap();
    std::fs::write(ctx.tmp.join("workspace"), workspace).unwrap();
}

#[test]
fn a_remote_run_is_confirmed_where_it_plans_what_was_approved() {
    run_test(remote(), async |ctx| {
        install(ctx);
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("a.b will be created").has("Plan: 1 to add").has_not("run-");
        ctx.status(&pull, "atlantis/plan", "success", "").await;

        // A change that was not approved is not applied, nor is one with another question.
        set_answer(ctx, "other", " in workspace \"default\"");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "error").because("stale_plan").has("now plans something else").has("`atlantis plan -d .`");
        assert_eq!(ctx.lines("done"), 0);
        set_answer(ctx, "1", "");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error").because("stale_plan");
        assert_eq!(ctx.lines("done"), 0);

        set_answer(ctx, "1", " in workspace \"default\"");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added");
        assert_eq!(ctx.lines("done"), 1);
        let applies = std::fs::read_to_string(ctx.tmp.join("applies")).unwrap();
        assert!(applies.lines().all(|line| line == "apply -input=false -no-color"), "{applies}");
        // Each call of Terraform that needs the token had it.
        let calls = std::fs::read_to_string(ctx.tmp.join("calls")).unwrap();
        let is_told = |line: &str| line.starts_with("version ") || line.ends_with(" hunter2.atlasv1.of-tfe");
        assert!(calls.contains("init ") && calls.lines().all(is_told), "{calls}");
    });
}

#[test]
fn a_remote_plan_whose_text_is_not_kept_whole_is_refused() {
    run_test(remote(), async |ctx| {
        install(ctx);
        let lines = "x".repeat(1023) + "\n";
        set_answer(ctx, &lines.repeat(3 << 10), " in workspace \"default\"");
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error").has("is too long to compare with an apply (limits: 2 MiB").has("a `cloud` block");
        set_answer(ctx, &"x".repeat(100_000), " in workspace \"default\"");
        ctx.say(&pull, "atlantis plan").await.is("plan", "error").has("64 KiB per line");
        ctx.say(&pull, "atlantis apply -d .").await.is("apply", "failure").because("no_plan");
        // A long plan is read whole.
        set_answer(ctx, &lines.repeat(30), " in workspace \"default\"");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added");
    });
}

#[test]
fn steps_get_the_token_masked_and_hooks_do_not_get_it() {
    let told = "echo \"${TF_TOKEN_app_terraform_io-none} ${ATLANTIS_TFE_TOKEN-none}\"";
    let hook = format!("pre_workflow_hooks:\n  - run: {}", serde_json::Value::from(format!("{told} > {{tmp}}/hook")));
    let steps = [told, &format!("{told} > {{tmp}}/step"), "echo 'No changes. It is so.'"];
    let setup = Setup::one_project().repos_yaml(&workflow(&hook, &steps, &["true"]));
    run_test(setup.variable("ATLANTIS_TFE_TOKEN", "hunter2.atlasv1.of-tfe"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has_not("hunter2").has("none");
        let read = |file: &str| std::fs::read_to_string(ctx.tmp.join(file)).unwrap();
        assert_eq!(read("step"), "hunter2.atlasv1.of-tfe none\n");
        assert_eq!(read("hook"), "none none\n");
    });
}
