//! Comparison of the changes of two plans: all of their inputs, and reasons for which the result is unknown.

use crate::support::*;
use tidelock_forge::Pull;

/// Code of a project with an output that is known only after the apply, and depends on a variable.
fn code(input: &str) -> String {
    format!(
        "{}\nvariable \"v\" {{\n  default = \"0\"\n}}\n\noutput \"o\" {{\n  value = \"${{terraform_data.this.id}} ${{var.v}}\"\n}}\n",
        terraform("a", input)
    )
}

/// Rules with these keys and plan steps for every repository.
fn rules(keys: &str, steps: &str) -> String {
    format!(
        "repos:\n  - id: /.*/\n    workflow: custom\n    {keys}\nworkflows:\n  custom:\n    plan:\n      steps:\n{steps}    apply:\n      \
         steps:\n        - apply\n        - run: echo applied >> {{tmp}}/applied\n"
    )
}

const OF_PLAN: &str = "approvals: {of_plan: true}";
const PLAIN: &str = "        - init\n        - plan\n";

fn on_merge(steps: &str) -> String {
    rules("repo_locks: {mode: strict}\n    on_merge: apply", steps)
}

async fn opened(ctx: &Ctx, text: &str) -> Pull {
    let pull = ctx.open("first", &[("a/main.tf", text)]).await;
    ctx.next(&pull).await.is("plan", "success");
    pull
}

async fn approved(ctx: &Ctx, pull: &Pull) {
    pull.approve("bob").unwrap();
    ctx.next_second().await;
}

#[test]
fn an_approval_does_not_count_for_other_arguments() {
    run_test(Setup::repo(&[("a/main.tf", &code("1"))]).repos_yaml(&rules(OF_PLAN, PLAIN)), async |ctx| {
        let pull = opened(ctx, &code("first")).await;
        approved(ctx, &pull).await;
        ctx.say(&pull, "atlantis plan -- -var v=1").await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "failure").has("bob approved before this plan was made").has("the values of its variables");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn an_approval_does_not_count_for_what_steps_set_and_files_that_arguments_name() {
    let steps = "        - env: {name: TF_VAR_v, command: 'cat {tmp}/value'}\n        - init\n        \
                 - plan: {extra_args: [-var-file=../shared/x.vars, '-var-file={tmp}/$REPO_REL_DIR.tfvars']}\n";
    let setup = Setup::repo(&[("a/main.tf", &code("1")), ("shared/x.vars", "# one\n")]);
    run_test(setup.repos_yaml(&rules(OF_PLAN, steps)), async |ctx| {
        let write = |file: &str, text: &str| std::fs::write(ctx.tmp.join(file), text).unwrap();
        write("value", "1");
        write("a.tfvars", "");
        let pull = opened(ctx, &code("first")).await;
        approved(ctx, &pull).await;
        for (file, text, before, what) in
            [("value", "2", "1", "the environment"), ("a.tfvars", "# another\n", "", "files that its arguments name")]
        {
            write(file, text);
            ctx.say(&pull, "atlantis plan").await.is("plan", "success");
            ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("bob approved before").has(what);
            write(file, before);
        }
        ctx.push(&pull, "shared/x.vars", "# two\n").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("files that its arguments name");
        std::fs::remove_file(ctx.tmp.join("a.tfvars")).unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error");
    });
}

#[test]
fn on_merge_a_changed_variable_is_shown_to_people() {
    let steps = "        - env: {name: TF_VAR_v, command: 'cat {tmp}/value'}\n        - init\n        - plan\n";
    run_test(Setup::repo(&[("a/main.tf", &code("1"))]).repos_yaml(&on_merge(steps)), async |ctx| {
        std::fs::write(ctx.tmp.join("value"), "1").unwrap();
        let pull = opened(ctx, &code("first")).await;
        std::fs::write(ctx.tmp.join("value"), "2").unwrap();
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("`a/default`: the plan differs from the one of")
            .has("the values of its variables");
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

/// A provisioner, and values that are known after the apply.
fn provisioned(input: &str, command: &str) -> String {
    code(input).replace(
        &format!("  input = \"{input}\"\n"),
        &format!(
            "  input = \"{input}\"\n  provisioner \"local-exec\" {{\n    command = \"{command} ${{self.id}} >> {{tmp}}/provisioned\"\n  }}\n"
        ),
    )
}

#[test]
fn ordinary_code_is_comparable_with_a_provisioner_as_well() {
    let script = ("a/run.sh", "#!/bin/sh\necho \"$@\"\n");
    let text = |input| provisioned(input, "sh ${path.module}/run.sh");
    let setup = Setup::repo(&[("a/main.tf", &text("1")), script]).repos_yaml(&on_merge(PLAIN));
    run_test(setup, async |ctx| {
        let pull = opened(ctx, &text("first")).await;
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        ctx.next(&pull).await.is("plan", "success").has("before the merge. It is applied now.");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), ctx.lines("provisioned")), (1, 1));
    });
}

#[test]
fn what_cannot_be_compared_says_why() {
    let outside = |input: &str| provisioned(input, "sh ../run.sh");
    for (text, steps, because) in [
        (outside("first"), PLAIN, "its code names files of other directories (`a/main.tf`)"),
        (
            code("first"),
            "        - run: \"echo 'Plan: 1 to add, 0 to change, 0 to destroy.'\"\n",
            "its workflow leaves no plan file",
        ),
        (
            code("first"),
            "        - init\n        - run: terraform plan -out $PLANFILE\n",
            "its workflow plans with a `run` step",
        ),
    ] {
        let setup = Setup::repo(&[("a/main.tf", &code("1")), ("run.sh", "echo \"$@\"\n")]).repos_yaml(&on_merge(steps));
        run_test(setup, async |ctx| {
            let pull = opened(ctx, &text).await;
            pull.merge().await.unwrap();
            ctx.next(&pull).await.is_message("owes");
            let said = ctx.next(&pull).await;
            said.is("plan", "success").has("the server cannot compare the plan").has(because);
            ctx.quiet().await;
            assert_eq!(ctx.lines("applied"), 0);
        });
    }
}
