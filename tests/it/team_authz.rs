//! `team_authz`: a program of the operator decides who may use which command.

use crate::support::*;

/// Two projects, one with a name, and a program that is asked before each of them.
fn asking() -> Setup {
    let rules = workflow("", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    let file = "version: 3\nprojects:\n  - {name: pay, dir: conf/pay}\n  - dir: conf/net\n";
    Setup::projects(&["conf/pay", "conf/net"])
        .file("atlantis.yaml", file)
        .repos_yaml(&format!("{rules}team_authz:\n  command: /bin/sh {{tmp}}/authz.sh\n  args: [--for, infra]\n"))
}

/// Installs the program, which records its arguments, then variables, and runs this script.
fn answers(ctx: &Ctx, script: &str) {
    let told = "printf '%s ' \"$@\" >> {tmp}/asked\n\
        echo \"| $USER_NAME $COMMAND_NAME $PULL_NUM $HEAD_BRANCH_NAME $PROJECT_NAME $REPO_REL_PATH ${TIDELOCK_GH_TOKEN-hidden}\" >> {tmp}/asked\n\
        [ -z \"$REPO_ROOT\" ] || [ -e \"$REPO_ROOT/atlantis.yaml\" ] || exit 3\n";
    std::fs::write(ctx.tmp.join("authz.sh"), ctx.fill(&format!("{told}{script}\n"))).unwrap();
}

/// Returns the questions to it since the last call, one a line.
fn asked(ctx: &Ctx) -> Vec<String> {
    let file = ctx.tmp.join("asked");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(file);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_operators_command_decides_with_teams_command_and_project() {
    run_test(asking(), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["bob"]);
        ctx.forge.set_team("acme", "devs", &["bob", "carol"]);
        ctx.forge.set_team("other", "root", &["bob"]);
        answers(
            ctx,
            "case \"$* $REPO_REL_PATH\" in\n\
            *' plan '*) echo pass;;\n\
            *' apply '*conf/pay) case \" $* \" in *' acme/sre '*) echo PASS >&2;; *) echo 'pass'; echo 'ask sre';; esac;;\n\
            *' apply '*' acme/devs'*) echo pass;;\n\
            esac",
        );
        let pull = ctx.open_dirs("change", &["conf/pay", "conf/net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let of_plan =
            ["| alice plan 1 change  ", "| alice plan 1 change pay conf/pay", "| alice plan 1 change  conf/net"];
        let expected = of_plan.map(|told| format!("--for infra plan acme/infra {told} hidden"));
        let mut told = asked(ctx);
        told.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(told, expected);

        let said = ctx.say_as("alice", &pull, "atlantis apply").await;
        said.is("apply", "error").because("not_permitted").has("alice may not use `apply`: ").has("`team_authz`");
        said.has("said nothing").has("`atlantis apply`");
        assert_eq!(asked(ctx), ["--for infra apply acme/infra | alice apply 1 change   hidden"]);

        let said = ctx.say_as("carol", &pull, "atlantis apply").await;
        let mut outcomes = said.outcomes();
        outcomes.sort();
        assert_eq!(outcomes, [("conf/net".into(), "success".into()), ("conf/pay".into(), "failure".into())]);
        said.has("carol may not use `apply` on `pay`").has("`atlantis apply -p pay`");
        assert!(asked(ctx)[0].starts_with("--for infra apply acme/infra acme/devs | carol apply"));
        ctx.say_as("bob", &pull, "atlantis apply").await.is("apply", "success");
        assert!(asked(ctx)[0].starts_with("--for infra apply acme/infra acme/devs acme/sre | bob apply"));
        assert_eq!(ctx.lines("applied"), 2);
        let said = ctx.say_as("bob", &pull, "atlantis unlock").await;
        said.is_message("not_permitted").has("bob may not use `unlock`");
        ctx.say_as("bob", &pull, "atlantis cancel").await.is_message("not_permitted");
    });
}

#[test]
fn a_command_that_breaks_lets_nobody_and_tells_no_secret() {
    run_test(asking(), async |ctx| {
        use secrecy::ExposeSecret as _;
        let token = ctx.forge.token().expose_secret().to_owned();
        answers(ctx, &format!("echo pass; echo 'no | {token}' >&2; exit 1"));
        let pull = ctx.open_dirs("change", &["conf/pay"]).await;
        ctx.status(&pull, "atlantis/plan", "failure", "alice may not use `plan`").await;
        assert!(ctx.locks().await.is_empty());
        let said = ctx.say(&pull, "atlantis plan").await;
        said.is("plan", "error").has("exit status 1").has_not(&token).has("no ");
        std::fs::remove_file(ctx.tmp.join("authz.sh")).unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error").has("exit status");
        // The host did not say in which teams the person is, which counts as a refusal.
        answers(ctx, "echo pass");
        let fault = tidelock_forge::Fault::Status(403, "{}".to_owned(), Vec::new());
        ctx.forge.fail_next("POST", "/api/graphql", fault, 1).unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "error").has("did not say in which teams alice is");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn rules_hold_besides_the_command() {
    let rules = workflow("allowed_users: ['*:plan', bob]", &[PLANNED], &["true"]);
    let setup = Setup::one_project().repos_yaml(&format!("{rules}team_authz: {{command: echo pass ; true}}\n"));
    run_test(setup, async |ctx| {
        // It prints `pass`, and then `true` gets the arguments: the setting is text for the shell.
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error").has("let only bob do so");
        ctx.say_as("bob", &pull, "atlantis apply").await.is("apply", "success");
    });
}
