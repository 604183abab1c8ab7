//! What steps and hooks are given, and what of them people see: values, masks, filters, Terraform's own rules.

use crate::support::*;

/// A workflow whose plan and apply stages have these steps, as YAML lists of eight spaces' indent.
fn stages(keys: &str, plan: &str, apply: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "repos:\n  - id: /.*/\n    workflow: custom\n{keys}workflows:\n  custom:\n    plan:\n      steps:\n{plan}    apply:\n      steps:\n{apply}"
    )
}

fn custom(plan: &str) -> Setup {
    Setup::one_project().repos_yaml(&stages("", plan, "        - run: echo applied\n"))
}

#[test]
fn values_can_be_masked_without_being_withheld_from_steps() {
    let setup = custom("        - run: 'echo \"key $API_KEY\"; printf %s \"$API_KEY\" > {tmp}/seen'\n");
    let setup = setup.flags(&["--masked-values-from=API_KEY,NOT_SET"]).variable("API_KEY", "key-of-the-cloud");
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("key <redacted>").has_not("key-of-the-cloud");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("seen")).unwrap(), "key-of-the-cloud");
    });
}

#[test]
fn hooks_after_a_refusal_are_told_that_it_was_one() {
    let keys = "apply_requirements: [approved]\npost_workflow_hooks:\n  - run: 'echo \"$COMMAND_NAME $COMMAND_HAS_ERRORS\" >> {tmp}/post'\n";
    let setup = Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &["echo applied"]));
    run_test(setup.flags(&["--disable-autoplan"]), async |ctx| {
        let mut said = Vec::new();
        let mut told = async |what: &str| {
            ctx.quiet().await;
            said.push(what.to_owned());
            let seen = std::fs::read_to_string(ctx.tmp.join("post")).unwrap_or_default();
            assert_eq!(seen.lines().collect::<Vec<_>>(), said);
        };
        let first = ctx.open_input("first", "2").await;
        ctx.say(&first, "atlantis apply").await.is("apply", "error").because("no_plan");
        told("apply true").await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        told("plan false").await;
        let second = ctx.open_input("second", "3").await;
        ctx.say(&second, "atlantis plan").await.is("plan", "failure").because("locked");
        told("plan true").await;
        ctx.say(&first, "atlantis apply").await.is("apply", "failure").because("requirement");
        told("apply true").await;
        first.approve("bob").unwrap();
        ctx.push(&first, "main.tf", &terraform("root", "4")).await;
        ctx.say(&first, "atlantis apply -d .").await.is("apply", "failure").because("stale_plan");
        told("apply true").await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        told("plan false").await;
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        told("apply false").await;
        ctx.say(&first, "atlantis apply").await.is_message("no_projects");
        told("apply false").await;
        ctx.push(&second, "atlantis.yaml", "version: 3\nprojects: 7\n").await;
        ctx.say(&second, "atlantis plan").await.because("config");
        told("plan true").await;
        ctx.say(&second, "atlantis version").await.because("config");
        told("version true").await;
    });
}
