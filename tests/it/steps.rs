//! Input of steps and hooks, and the output that people see: values, masks, filters, Terraform's own rules.

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
fn values_of_env_and_multienv_arrive_byte_for_byte() {
    let steps = r#"
        - env: {name: VALUE, command: 'cat {tmp}/value'}
        - multienv: {command: 'cat {tmp}/pairs', output: hide}
        - run: 'printf %s "$VALUE" > {tmp}/seen.value; printf %s "$A" > {tmp}/seen.a; printf %s "$B" > {tmp}/seen.b'
        - run: 'printf %s "$LONG" > {tmp}/seen.long; echo "now $SECRET"; printf %s "$SECRET" > {tmp}/seen.secret'
"#;
    let setup =
        custom(steps).flags(&["--disable-autoplan", "--masked-variables=PIN"]).variable("PIN", "hunter2hunter2");
    run_test(setup, async |ctx| {
        let long = "x".repeat(100 << 10);
        let value = "C:\\new\\table\r\u{1b}[1mtwo\nlines, hunter2hunter2 ";
        let pairs =
            format!("A=\"C:\\new\\\\x, \\\"quoted\\\" \\$\",B='C:\\new, it\\'s',LONG={long},SECRET=hunter2hunter2\n");
        std::fs::write(ctx.tmp.join("value"), format!("{value}\n")).unwrap();
        std::fs::write(ctx.tmp.join("pairs"), pairs).unwrap();
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.say(&pull, "atlantis plan").await;
        said.is("plan", "success").has("now <redacted>").has_not("hunter2");
        let seen = |name: &str| std::fs::read_to_string(ctx.tmp.join(format!("seen.{name}"))).unwrap();
        assert_eq!(seen("value"), value);
        assert_eq!(seen("a"), r#"C:\new\\x, "quoted" \$"#);
        assert_eq!(seen("b"), r"C:\new, it\'s");
        assert!(seen("long") == long, "{} bytes", seen("long").len());
        assert_eq!(seen("secret"), "hunter2hunter2");
    });
}

#[test]
fn what_env_steps_set_is_for_their_own_stage_alone() {
    let plan = "        - env: {name: VALUE, value: planned}\n        - run: 'echo \"$VALUE\" > {tmp}/plan'\n        - run: \"echo 'No changes. x'\"\n";
    let apply = "        - run: 'echo \"${VALUE-none}\" > {tmp}/apply'\n        - env: {name: VALUE, value: applied}\n        - run: 'echo \"$VALUE\" >> {tmp}/apply'\n";
    run_test(Setup::one_project().repos_yaml(&stages("", plan, apply)), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let read = |file: &str| std::fs::read_to_string(ctx.tmp.join(file)).unwrap();
        assert_eq!((read("plan").as_str(), read("apply").as_str()), ("planned\n", "none\napplied\n"));
    });
}

#[test]
fn a_value_that_no_environment_can_hold_ends_the_step_with_words_and_is_not_shown() {
    let steps = "        - multienv: 'cat {tmp}/pairs'\n        - run: touch {tmp}/after\n";
    run_test(custom(steps).flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        for (pairs, words) in [
            (format!("LONG={}", "y".repeat(200 << 10)), "`LONG`"),
            (format!("A=1,LONG={}", "y".repeat(5 << 20)), "more than"),
            ("A=1,B yyyyyyyy".to_owned(), "has no `=`"),
            ("A=\"yyyyyyyy".to_owned(), "is not closed"),
            ("A=yyyyyyyy\0".to_owned(), "`A`"),
        ] {
            std::fs::write(ctx.tmp.join("pairs"), pairs).unwrap();
            let said = ctx.say(&pull, "atlantis plan").await;
            said.is("plan", "error").has("multienv").has(words).has_not("yyyyyyyy");
        }
        assert!(!ctx.tmp.join("after").exists());
    });
}

#[test]
fn what_a_step_printed_for_the_environment_is_not_shown_when_it_fails() {
    let command = "echo KEY=yyyyyyyy; echo because of this >&2; exit 1";
    let steps = format!("        - multienv: '{command}'\n");
    run_test(custom(&steps).flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.say(&pull, "atlantis plan").await;
        said.is("plan", "error").has("because of this").has("exit status 1").has_not("=yyyyyyyy\n");
    });
}

#[test]
fn a_secret_inside_of_a_changed_files_name_does_not_hide_the_change() {
    let setup = Setup::projects(&["production"]).steps(&[PLANNED], &[]);
    run_test(setup.flags(&["--masked-variables=PIN"]).variable("PIN", "prod"), async |ctx| {
        let pull = ctx.open_dirs("change", &["production"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "1 to add").await;
    });
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

const PRINTED: &str = "password=hunter2, user=alice\n";

#[test]
fn filters_hold_for_steps_that_fail() {
    let steps =
        "        - run: {command: 'cat {tmp}/printed; exit 3', output: [hide, {filter_regex: '(password=)[^,]*'}]}\n";
    run_test(custom(steps), async |ctx| {
        std::fs::write(ctx.tmp.join("printed"), PRINTED).unwrap();
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error").has("exit status 3").has("password=<redacted>, user=alice").has_not("hunter2");
    });
}

#[test]
fn filters_hold_for_steps_that_run_out_of_time() {
    let steps =
        "        - run: {command: 'cat {tmp}/printed; exec sleep 60', output: {filter_regex: '(password=)[^,]*'}}\n";
    run_test(custom(steps).flags(&["--job-timeout=5s"]), async |ctx| {
        std::fs::write(ctx.tmp.join("printed"), PRINTED).unwrap();
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error").because("timeout").has("password=<redacted>, user=alice").has_not("hunter2");
    });
}

#[test]
fn filters_hold_for_applies_that_are_cancelled() {
    let command = "cat {tmp}/printed; echo reached >> {tmp}/apply.reached; exec sleep 60";
    let apply = format!("        - run: {{command: '{command}', output: {{filter_regex: '(password=)[^,]*'}}}}\n");
    let setup = Setup::one_project().repos_yaml(&stages("", &format!("        - run: \"{PLANNED}\"\n"), &apply));
    run_test(setup, async |ctx| {
        std::fs::write(ctx.tmp.join("printed"), PRINTED).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        pull.comment("alice", "atlantis cancel --apply").unwrap();
        // The order of these comments is not defined.
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let (cancelled, applied): (Vec<_>, Vec<_>) =
            said.iter().partition(|said| said.marker["message"] == "cancelled");
        assert_eq!((cancelled.len(), applied.len()), (1, 1), "{} {}", said[0].text, said[1].text);
        applied[0]
            .is("apply", "error")
            .because("interrupted")
            .has("password=<redacted>, user=alice")
            .has_not("hunter2");
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

#[test]
fn a_tofu_file_says_nothing_to_terraform() {
    let versions = "terraform {\n  required_version = \">= 99\"\n}\n";
    run_test(Setup::one_project().file("versions.tofu", versions), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn a_workspace_from_the_environment_has_to_be_the_projects_own() {
    let steps = "        - env: {name: TF_WORKSPACE, command: 'cat {tmp}/workspace'}\n        - init\n        - plan\n";
    run_test(custom(steps).flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        std::fs::write(ctx.tmp.join("workspace"), "other").unwrap();
        let said = ctx.say(&pull, "atlantis plan").await;
        said.is("plan", "failure").because("config").has("`TF_WORKSPACE`").has("`other`").has("`workspace: other`");
        for same in ["default", ""] {
            std::fs::write(ctx.tmp.join("workspace"), same).unwrap();
            ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        }
    });
}

/// Stand-in for Terraform: records the calls of `init`, and makes a lock file as `init` does.
const INIT_THAT_LOCKS: &str = r#"#!/bin/sh
case "$1" in
  version) echo 'Terraform v1.11.4' ;;
  init)
    [ -e .terraform.lock.hcl ] && had=with || had=without
    echo "$had: $*" >> {tmp}/inits
    [ $had = with ] || echo '# generated' > .terraform.lock.hcl
    mkdir -p .terraform ;;
  plan)
    while [ "$1" != -out ]; do shift; done
    echo plan > "$2"
    echo 'Plan: 1 to add, 0 to change, 0 to destroy.' ;;
esac
"#;

/// Writes a stand-in for Terraform to `{own}/bin`.
fn install_terraform(ctx: &Ctx, script: &str) {
    let path = ctx.own.join("bin/terraform");
    std::fs::create_dir(ctx.own.join("bin")).unwrap();
    std::fs::write(&path, ctx.fill(script)).unwrap();
    make_executable(&path);
}

#[test]
fn a_lock_file_that_git_has_is_neither_deleted_nor_upgraded_past() {
    let path = format!("{{own}}/bin:{}", std::env::var("PATH").unwrap());
    run_test(Setup::one_project().variable("PATH", &path), async |ctx| {
        install_terraform(ctx, INIT_THAT_LOCKS);
        let inits = || std::fs::read_to_string(ctx.tmp.join("inits")).unwrap();
        let (fresh, locked) = ("without: init -input=false -upgrade\n", "with: init -input=false\n");
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(inits(), fresh);
        // Not tracked: the last run has left it.
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert_eq!(inits(), [fresh, fresh].concat());
        // The file of the run is committed unchanged.
        ctx.push(&pull, ".terraform.lock.hcl", "# generated\n").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert_eq!(inits(), [fresh, fresh, locked, locked].concat());
    });
}

/// Stand-in for Terraform, whose first `init` does not reach the registry.
const INIT_WITHOUT_REGISTRY: &str = r#"#!/bin/sh
case "$1" in
  version) echo 'Terraform v1.11.4' ;;
  init)
    echo begun >> {tmp}/inits
    [ $(wc -l < {tmp}/inits) -gt 1 ] && exit
    echo 'Error: Failed to install provider: could not connect to registry.terraform.io' >&2
    exit 1 ;;
  plan)
    while [ "$1" != -out ]; do shift; done
    echo plan > "$2"
    echo 'Plan: 1 to add, 0 to change, 0 to destroy.' ;;
esac
"#;

#[test]
fn an_init_that_does_not_reach_the_registry_is_repeated_and_the_comment_counts() {
    let path = format!("{{own}}/bin:{}", std::env::var("PATH").unwrap());
    run_test(Setup::one_project().variable("PATH", &path), async |ctx| {
        install_terraform(ctx, INIT_WITHOUT_REGISTRY);
        let pull = ctx.open_input("change", "2").await;
        let plan = ctx.next(&pull).await;
        plan.is("plan", "success").has("`terraform init` was repeated once").has("could not connect to registry");
        assert_eq!(ctx.lines("inits"), 2);
    });
}

#[test]
fn changes_behind_a_prefix_are_counted_and_none_is_none() {
    let line = |text: &str| format!("        - run: \"echo '10:09:53.115 STDOUT [vpc] terraform: {text}'\"\n");
    let unchanged = line("No changes. Your infrastructure matches the configuration.");
    run_test(custom(&unchanged), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "No changes").await;
    });
}
