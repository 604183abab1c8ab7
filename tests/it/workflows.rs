//! Custom workflows, hooks, workspaces, and several projects at once.

use crate::support::*;

fn custom(plan: &str) -> Setup {
    let rules =
        format!("repos:\n  - id: /.*/\n    workflow: custom\nworkflows:\n  custom:\n    plan:\n      steps:\n{plan}");
    Setup::one_project().repos_yaml(&rules)
}

#[test]
fn env_steps_set_variables_for_the_steps_after_them() {
    let steps = r#"
        - env: {name: FIXED, value: one}
        - env: {name: COMPUTED, command: 'echo $FIXED-two'}
        - multienv: 'echo "A=three,B=\"four, five\""'
        - run: 'echo "$FIXED $COMPUTED $A $B in $DIR of $BASE_REPO_OWNER/$BASE_REPO_NAME#$PULL_NUM by $USER_NAME"'
"#;
    run_test(custom(steps), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("one one-two three four, five in ").has("of acme/infra#1 by alice");
    });
}

#[test]
fn output_filters_decide_what_the_comment_shows() {
    let steps = r#"
        - run: {command: 'echo password=hunter2, user=alice', output: {filter_regex: '(password=)[^,]*'}}
        - run: {command: 'echo nobody reads this', output: hide}
        - run: 'echo everybody reads this'
"#;
    run_test(custom(steps), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("password=<redacted>, user=alice").has("everybody reads this");
        said.has_not("hunter2").has_not("nobody reads this");
    });
}

#[test]
fn a_step_that_fails_ends_the_plan_with_its_output() {
    run_test(
        custom("        - run: 'echo broken pipe dream; exit 3'\n        - run: 'touch {tmp}/after'\n"),
        async |ctx| {
            let pull = ctx.open_input("change", "2").await;
            ctx.next(&pull).await.is("plan", "error").has("broken pipe dream").has("3").has("`atlantis plan -d .`");
            ctx.status(&pull, "atlantis/plan", "failure", "").await;
            assert!(!ctx.tmp.join("after").exists());
        },
    );
}

#[test]
fn secrets_of_the_server_reach_neither_steps_nor_comments() {
    run_test(Setup::one_project().steps(&["env; env > {tmp}/env", PLANNED], &[]), async |ctx| {
        use secrecy::ExposeSecret;
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        let env = std::fs::read_to_string(ctx.tmp.join("env")).unwrap();
        assert!(env.contains("PULL_NUM=1"), "{env}");
        for secret in [ctx.forge.token(), ctx.forge.webhook_secret()] {
            assert!(!env.contains(secret.expose_secret()));
            said.has_not(secret.expose_secret());
        }
    });
}

fn hooks(pre: &str) -> Setup {
    let post = "echo \"$COMMAND_NAME $COMMAND_HAS_ERRORS\" >> {tmp}/post";
    let keys = format!(
        "pre_workflow_hooks:\n  - run: {}\n    description: generate\npost_workflow_hooks:\n  - run: {}\n",
        serde_json::Value::from(pre),
        serde_json::Value::from(post)
    );
    Setup::one_project().repos_yaml(&workflow(&keys, &["cat generated", PLANNED], &["echo applied"]))
}

#[test]
fn hooks_run_around_each_command() {
    run_test(hooks("echo 'made by a hook' > generated"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("made by a hook");
        ctx.status(&pull, "atlantis/pre_workflow_hook: generate", "success", "").await;
        ctx.quiet().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.quiet().await;
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("post")).unwrap(), "plan false\napply false\n");
        ctx.nothing_pending(&pull, &[]).await;
    });
}

#[test]
fn a_pre_hook_that_fails_is_passed_over() {
    run_test(hooks("echo 'made anyway' > generated; exit 1"), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("made anyway");
        ctx.status(&pull, "atlantis/pre_workflow_hook: generate", "failure", "").await;
    });
}

#[test]
fn a_pre_hook_that_fails_ends_the_command_where_that_is_asked_for() {
    let setup = hooks("echo no such generator; [ -e {tmp}/mended ] && touch generated");
    run_test(setup.flags(&["--fail-on-pre-workflow-hook-error"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is_message("hook_failed").has("no such generator").has("`atlantis plan");
        ctx.status(&pull, "atlantis/plan", "failure", "a pre-workflow hook failed").await;
        ctx.nothing_pending(&pull, &[]).await;
        assert!(ctx.locks().await.is_empty());
        std::fs::write(ctx.tmp.join("mended"), "").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn projects_are_planned_at_the_same_time_where_that_is_asked_for() {
    let setup = Setup::projects(&["a", "b"]).steps(&[&gate("plan"), PLANNED], &[]);
    run_test(setup.flags(&["--parallel-plan", "--parallel-pool-size=2"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        // Both wait at the gate: neither has ended.
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("a".into(), "success".into()), ("b".into(), "success".into())]);
        ctx.status(&pull, "atlantis/plan", "success", "2 with changes").await;
        assert_eq!(ctx.locks().await.len(), 2);
    });
}

#[test]
fn workspaces_of_a_directory_are_projects_of_their_own() {
    let main = "terraform {\n  backend \"local\" {\n    path          = \"{tmp}/state/root.tfstate\"\n    workspace_dir = \"{tmp}/state/workspaces\"\n  }\n}\n\n\
                resource \"terraform_data\" \"this\" {\n  input = terraform.workspace\n}\n";
    let config = "version: 3\nprojects:\n  - dir: .\n    workspace: staging\n  - dir: .\n    workspace: prod\n";
    run_test(Setup::repo(&[("main.tf", main), ("atlantis.yaml", config)]), async |ctx| {
        let pull = ctx.open("change", &[("main.tf", &format!("{main}\noutput \"it\" {{\n  value = 1\n}}\n"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("workspace `staging`").has("workspace `prod`");
        assert_eq!(ctx.locks().await, ["acme/infra/./prod/", "acme/infra/./staging/"]);
        ctx.say(&pull, "atlantis apply -w staging").await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "pending", "1/2 applied").await;
        let state = |workspace: &str| ctx.tmp.join(format!("state/workspaces/{workspace}/terraform.tfstate"));
        assert!(state("staging").exists() && !state("prod").exists());
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("prod");
        assert!(std::fs::read_to_string(state("prod")).unwrap().contains("\"prod\""));
        ctx.status(&pull, "atlantis/apply", "success", "2/2 applied").await;
    });
}
