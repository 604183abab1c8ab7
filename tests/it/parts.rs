//! Plans of a part of a project, and commands that change the state under it: neither counts as its apply.

use crate::support::*;

/// Two resources in each project, in mode `strict`.
fn strict(keys: &str) -> Setup {
    let rules = workflow(&format!("repo_locks: {{mode: strict}}\n{keys}"), &["init", "plan"], &["apply"]);
    Setup::repo(&[("a/main.tf", &code("1"))]).repos_yaml(&rules)
}

fn code(input: &str) -> String {
    format!("{}\nresource \"terraform_data\" \"other\" {{}}\n", terraform("a", input))
}

async fn opened(ctx: &Ctx) -> tidelock_forge::Pull {
    let pull = ctx.open("first", &[("a/main.tf", &code("first"))]).await;
    ctx.next(&pull).await.is("plan", "success").has_not("part");
    pull
}

async fn states(ctx: &Ctx) -> Vec<String> {
    let all = ctx.json("/api/locks").await;
    let rows = all["Locks"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row["State"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_applied_part_is_owed_until_all_of_it_is_applied() {
    run_test(strict(""), async |ctx| {
        let pull = opened(ctx).await;
        for arguments in [
            "-target=terraform_data.this",
            "--target terraform_data.this",
            "-refresh-only",
            "-replace=terraform_data.this",
            "--destroy=true",
        ] {
            let said = ctx.say(&pull, &format!("atlantis plan -d a -- {arguments}")).await;
            said.is("plan", "success").has("covers a part of the project (`-").has("`atlantis plan -d a`");
            let said = ctx.say(&pull, "atlantis apply -d a").await;
            said.is("apply", "success").has("is applied (`-").has("`atlantis plan -d a`");
            assert_eq!(said.marker["results"][0]["in_part"], true, "{}", said.text);
            ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied, 1 in part").await;
            ctx.status(&pull, "atlantis/apply: a/default", "pending", "in part").await;
        }
        ctx.say(&pull, "atlantis apply").await.has("`atlantis plan`");
        ctx.server.restart().await;
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes").has("Merged but not applied: 1 project");
        assert_eq!(states(ctx).await, ["merged_unapplied"]);
        ctx.say(&pull, "atlantis plan -- -target=terraform_data.this").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("Only a part of");
        assert_eq!(states(ctx).await, ["merged_unapplied"]);
        ctx.say(&pull, "atlantis apply").await.is("plan", "success").has("the plan differs").has("its arguments");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has_not("part");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_whole_plan_or_apply_makes_up_for_a_part() {
    run_test(strict(""), async |ctx| {
        let pull = opened(ctx).await;
        ctx.say(&pull, "atlantis plan -- -target=terraform_data.this").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("Only a part of");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has_not("part");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has_not("part");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        // A plan of a part counts as one even without changes.
        let said = ctx.say(&pull, "atlantis plan -- -target=terraform_data.this").await;
        said.is("plan", "success").has("covers a part of the project (`-target`)");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has("No changes");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 up to date").await;
        pull.merge().await.unwrap();
        ctx.quiet().await;
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_part_without_changes_is_owed_after_the_merge() {
    run_test(strict(""), async |ctx| {
        let pull = opened(ctx).await;
        let said = ctx.say(&pull, "atlantis plan -- -refresh-only").await;
        said.is("plan", "success").has("(`-refresh-only`)");
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        assert_eq!(states(ctx).await, ["merged_unapplied"]);
        ctx.say(&pull, "atlantis plan -- -refresh-only").await.is("plan", "success").has("(`-refresh-only`)");
        assert_eq!(states(ctx).await, ["merged_unapplied"]);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
}

/// The workflow causes it: by arguments, by a variable, and by a `run` step.
#[test]
fn a_workflow_can_make_it_a_part() {
    for (steps, flag) in [
        ("- init\n        - plan: {extra_args: [-target=terraform_data.$NAME]}", "-target"),
        (
            "- init\n        - env: {name: TF_CLI_ARGS_plan, command: 'echo \"-lock=false -refresh-only\"'}\n        - plan",
            "-refresh-only",
        ),
        ("- init\n        - multienv: 'echo TF_CLI_ARGS=--destroy'\n        - plan", "-destroy"),
        ("- init\n        - run: terraform plan -out $PLANFILE -replace=terraform_data.this", "-replace"),
        ("- init\n        - run: t=-target=terraform_data.this; terraform plan -out $PLANFILE $t", "-target"),
    ] {
        let rules = format!(
            "repos:\n  - id: /.*/\n    workflow: custom\n    repo_locks: {{mode: strict}}\nworkflows:\n  custom:\n    plan:\n      steps:\n        \
             - env: {{name: NAME, value: this}}\n        {steps}\n"
        );
        // For `plan` alone, as `init` does not take the flag.
        let rules = rules.replace("TF_CLI_ARGS=--destroy", "TF_CLI_ARGS_plan=--destroy");
        run_test(strict("").repos_yaml(&rules), async |ctx| {
            let pull = ctx.open("first", &[("a/main.tf", &code("first"))]).await;
            ctx.next(&pull).await.is("plan", "success").has(&format!("covers a part of the project (`{flag}`)"));
            ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("Only a part of");
            ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied, 1 in part").await;
        });
    }
}

/// Atlantis merges it, since there a part counts as everything.
#[test]
fn a_part_is_not_merged_by_itself_in_any_mode() {
    let setup = Setup::repo(&[("a/main.tf", &code("1"))]).flags(&["--automerge"]);
    run_test(setup, async |ctx| {
        let pull = opened(ctx).await;
        ctx.say(&pull, "atlantis plan -- -target=terraform_data.this").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("Only a part of");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied, 1 in part").await;
        ctx.quiet().await;
        assert!(pull.is_open().unwrap());
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_message("automerge");
        ctx.next(&pull).await.is_message("cleanup");
        assert!(pull.is_merged().unwrap());
    });
}

#[test]
fn what_changes_the_state_under_an_apply_takes_it_back() {
    let flags = ["--allow-commands=all"];
    run_test(strict("").flags(&flags), async |ctx| {
        let pull = opened(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        let said = ctx.say(&pull, "atlantis state rm -d a terraform_data.other").await;
        said.is("state_rm", "success").has("`atlantis plan -d a`");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        ctx.status(&pull, "atlantis/plan", "failure", "Plan discarded").await;
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        assert_eq!(states(ctx).await, ["merged_unapplied"]);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(ctx.locks().await.is_empty());
    });
    let import = Setup::repo(&[("a/main.tf", &code("1"))]).flags(&flags);
    run_test(import, async |ctx| {
        let pull = opened(ctx).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.say(&pull, "atlantis state rm -d a terraform_data.other").await.is("state_rm", "success");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        ctx.say(&pull, "atlantis import -d a terraform_data.other x").await.is("import", "success");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success").has("No changes");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 up to date").await;
        ctx.say(&pull, "atlantis state rm -d a terraform_data.other").await.is("state_rm", "success");
        ctx.status(&pull, "atlantis/apply", "pending", "0/1 applied").await;
    });
}
