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
