//! Terragrunt: units in their order, plans that are bound to it, and the same as a custom workflow, with a stand-in for Terragrunt.

use crate::support::*;

/// The switch in `repos.yaml`.
const NATIVE: &str = "repos:\n  - id: /.*/\n    terragrunt: true\n";
const ROOT: &str = "remote_state {\n  backend = \"local\"\n  config = {\n    path = \"{tmp}/state/${path_relative_to_include()}.tfstate\"\n  }\n}\n";
const MODULE: &str = "terraform {\n  backend \"local\" {}\n}\n\nvariable \"input\" {\n  type = string\n}\n\n\
    resource \"terraform_data\" \"this\" {\n  input = var.input\n}\n\noutput \"value\" {\n  value = terraform_data.this.output\n}\n";

/// Code of a unit whose input is a text, or the output of another one.
fn unit(on: Option<&str>, input: &str) -> String {
    let include = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\n\n";
    let source = "terraform {\n  source = \"${get_repo_root()}/modules//echo\"\n}\n\n";
    match on {
        None => format!("{include}{source}inputs = {{\n  input = \"{input}\"\n}}\n"),
        Some(on) => format!(
            "{include}{source}dependency \"{on}\" {{\n  config_path = \"../{on}\"\n  mock_outputs = {{ value = \"{input}\" }}\n}}\n\n\
             inputs = {{\n  input = dependency.{on}.outputs.value\n}}\n"
        ),
    }
}

/// `PATH` with the stand-in.
fn path() -> String {
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/terragrunt");
    format!("{{own}}/bin:{stand_in}:{}", std::env::var("PATH").unwrap())
}

/// `live/app` depends on `live/vpc`; `live/dns` on none.
fn live() -> Setup {
    let files = [
        ("root.hcl", ROOT.to_owned()),
        ("modules/echo/main.tf", MODULE.to_owned()),
        ("live/vpc/terragrunt.hcl", unit(None, "1")),
        ("live/app/terragrunt.hcl", unit(Some("vpc"), "mock")),
        ("live/dns/terragrunt.hcl", unit(None, "1")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    Setup::repo(&files).variable("PATH", &path())
}

fn native() -> Setup {
    live().repos_yaml(NATIVE)
}

fn outcomes(said: &Said) -> Vec<String> {
    said.outcomes().into_iter().map(|(dir, outcome)| format!("{dir} {outcome}")).collect()
}

fn state(ctx: &Ctx, unit: &str) -> String {
    std::fs::read_to_string(ctx.tmp.join(format!("state/{unit}.tfstate"))).unwrap_or_default()
}

#[test]
fn an_applied_unit_drops_the_plans_that_were_made_with_its_old_outputs() {
    run_test(native(), async |ctx| {
        let pull = ctx.open("change", &[("root.hcl", &format!("{ROOT}# changed\n"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("by Terragrunt 0.99.1").has("mock");
        assert_eq!(outcomes(&said), ["live/dns success", "live/vpc success", "live/app success"]);
        // A unit waits for those that it depends on.
        let said = ctx.say(&pull, "atlantis apply -d live/app").await;
        said.because("dependency").has("It waits for `live/vpc/default`").has("`atlantis apply -d live/vpc`");
        let said = ctx.say(&pull, "atlantis apply").await;
        assert_eq!(outcomes(&said), ["live/dns success", "live/vpc success", "live/app failure"]);
        said.has("Plans discarded: `live/app/default`.").has("`atlantis plan -d live/app`");
        said.has("`live/vpc/default`, which it depends on, was applied after it was planned");
        ctx.status(&pull, "atlantis/apply", "failure", "").await;
        assert!(state(ctx, "live/vpc").contains("\"1\"") && state(ctx, "live/app").is_empty());
        ctx.say(&pull, "atlantis plan -d live/app").await.is("plan", "success").has_not("mock");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "live/app").contains("\"1\""));
        ctx.status(&pull, "atlantis/apply", "success", "3/3 applied").await;
    });
}

/// The plan of a unit has no mocks if a unit that it depends on changes too.
#[test]
fn units_have_layers_in_mode_strict() {
    let rules = "repos:\n  - id: /.*/\n    terragrunt: true\n    repo_locks: {mode: strict}\n";
    run_test(live().repos_yaml(rules), async |ctx| {
        let pull = ctx.open("change", &[("root.hcl", &format!("{ROOT}# changed\n"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("dir `live/app` · workspace `default` waits for `live/vpc/default`")
            .has_not("mock");
        let said = ctx.say(&pull, "atlantis apply -d live/app").await;
        said.is("apply", "failure").because("dependency").has("`atlantis apply -d live/vpc`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.next(&pull).await.is_replan("success").has("dir `live/app`").has_not("mock");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(!state(ctx, "live/app").contains("mock") && state(ctx, "live/app").contains("this"));
    });
}

#[test]
fn an_applied_unit_drops_such_plans_of_other_pull_requests_and_tells_them() {
    run_test(native().flags(&["--disable-autoplan"]), async |ctx| {
        let one = ctx.open("vpc", &[("live/vpc/terragrunt.hcl", &unit(None, "2"))]).await;
        ctx.say(&one, "atlantis plan -d live/vpc").await.is("plan", "success");
        let app = format!("{}# changed\n", unit(Some("vpc"), "mock"));
        let two =
            ctx.open("app", &[("live/app/terragrunt.hcl", &app), ("live/dns/terragrunt.hcl", &unit(None, "2"))]).await;
        ctx.say(&two, "atlantis plan").await.is("plan", "success").has("mock");
        let files = || std::fs::read_dir(ctx.server.data("plans")).unwrap().count();
        assert_eq!(files(), 3);
        ctx.say(&one, "atlantis apply").await.is("apply", "success");
        let told = ctx.next(&two).await;
        told.is_message("discarded")
            .has("#1 has applied dir `live/vpc` · workspace `default`")
            .has("`atlantis plan -d live/app`");
        ctx.until("the dropped plan's file goes", async || files() == 1).await;
        let said = ctx.say(&two, "atlantis apply -d live/app").await;
        said.because("no_plan").has("Its plan was discarded").has("`atlantis plan -d live/app`");
        ctx.say(&two, "atlantis plan -d live/app").await.is("plan", "success").has_not("mock");
        ctx.say(&two, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "live/app").contains("\"2\"") && state(ctx, "live/dns").contains("\"2\""));
    });
}

#[test]
fn a_unit_that_fails_stops_those_that_depend_on_it_and_no_others() {
    run_test(native(), async |ctx| {
        let broken = unit(None, "1").replace("//echo", "//missing");
        let files = [("live/vpc/terragrunt.hcl", broken.as_str()), ("live/dns/terragrunt.hcl", &unit(None, "2"))];
        let pull = ctx.open("change", &files).await;
        let said = ctx.next(&pull).await;
        let found = outcomes(&said);
        assert_eq!(found, ["live/dns success", "live/vpc error", "live/app failure"]);
        said.has("It depends on `live/vpc/default`, which could not be planned, so it was not run");
        ctx.say(&pull, "atlantis apply -d live/dns").await.is("apply", "success");
        ctx.status(&pull, "atlantis/plan: live/app/default", "failure", "").await;
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
    });
}

#[test]
fn a_plan_is_bound_to_the_terragrunt_that_made_it() {
    let older = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/terragrunt/terragrunt");
    run_test(native(), async |ctx| {
        std::fs::create_dir(ctx.own.join("bin")).unwrap();
        let install = |name: &str| std::os::unix::fs::symlink(older, ctx.own.join("bin").join(name)).unwrap();
        let config =
            |version: &str| format!("version: 3\nprojects:\n  - dir: live/vpc\n    terragrunt_version: {version}\n");
        install("terragrunt0.72.6");
        // Before 0.73 it takes Terraform's commands as they are, and its variables have other names.
        let files = [("live/vpc/terragrunt.hcl", unit(None, "2")), ("atlantis.yaml", config("v0.72.6"))];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let pull = ctx.open("change", &files).await;
        ctx.next(&pull).await.is("plan", "success").has("by Terragrunt 0.72.6");
        std::fs::remove_file(ctx.own.join("bin/terragrunt0.72.6")).unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "error").has("Terragrunt 0.72.6 is not installed").has("change `terragrunt_version`");
        install("terragrunt0.72.6");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "live/vpc").contains("\"2\""));
    });
}

#[test]
fn a_newer_terragrunt_on_the_path_does_not_apply_what_another_one_planned() {
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/terragrunt/terragrunt");
    run_test(native(), async |ctx| {
        let pull = ctx.open("change", &[("live/vpc/terragrunt.hcl", &unit(None, "2"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        std::fs::create_dir(ctx.own.join("bin")).unwrap();
        let other = format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo terragrunt version 1.0.0; exit; fi\nexec {stand_in} \"$@\"\n"
        );
        std::fs::write(ctx.own.join("bin/terragrunt"), other).unwrap();
        make_executable(&ctx.own.join("bin/terragrunt"));
        let said = ctx.say(&pull, "atlantis apply -d live/vpc").await;
        said.because("stale_plan")
            .has("by terragrunt 0.99.1, and now terraform")
            .has("by terragrunt 1.0.0 would apply it");
    });
}

#[test]
fn an_apply_on_an_empty_disk_and_in_a_workspace_of_its_own() {
    let config = "version: 3\nprojects:\n  - dir: live/vpc\n    workspace: staging\n    terragrunt: true\n";
    run_test(live(), async |ctx| {
        let pull =
            ctx.open("change", &[("live/vpc/terragrunt.hcl", &unit(None, "2")), ("atlantis.yaml", config)]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.server.stop().await;
        for folder in ["repos", "mirrors"] {
            std::fs::remove_dir_all(ctx.server.data(folder)).unwrap();
        }
        ctx.server.start().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        // The local backend keeps states of workspaces beside the working directory, which is in Terragrunt's cache.
        assert_eq!(state(ctx, "live/vpc"), "");
    });
}

#[test]
fn a_state_that_could_not_be_saved_is_found_where_terraform_ran() {
    // Terraform cannot save a state if its file was replaced by a directory.
    let lose = "mkdir -p {tmp}/state/live && rm -rf {tmp}/state/live/vpc.tfstate && mkdir {tmp}/state/live/vpc.tfstate";
    let fail = format!("{lose}; cd .terragrunt-cache/*/*/echo && echo '{{}}' > errored.tfstate; exit 1");
    let setup = live().repos_yaml(&workflow("terragrunt: true", &["init", "plan"], &[&fail]));
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("live/vpc/terragrunt.hcl", &unit(None, "2"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        let said = ctx.say(&pull, "atlantis apply -d live/vpc").await;
        said.is("apply", "error").has("left it as `errored.tfstate`").has("state push errored/");
        let kept = std::fs::read_dir(ctx.server.data("errored")).unwrap().next().unwrap().unwrap().path();
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "{}\n");
    });
}

#[test]
fn a_custom_workflow_runs_terragrunt_as_it_says() {
    let plan = "terragrunt plan -input=false -out $PLANFILE";
    let setup = live().repos_yaml(&workflow("", &[plan], &["terragrunt apply -input=false $PLANFILE"]));
    run_test(setup.variable("TG_NON_INTERACTIVE", "true"), async |ctx| {
        let pull = ctx.open("change", &[("live/vpc/terragrunt.hcl", &unit(None, "2"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("STDOUT terraform: Plan: 1 to add")
            .has("**Plan: 1 to add, 0 to change, 0 to destroy**");
        // Dependent units are planned only if the switch is on.
        assert_eq!(outcomes(&said), ["live/vpc success"]);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "live/vpc").contains("\"2\""));
    });
}

#[test]
fn units_in_a_circle_and_files_that_lead_away_are_told() {
    run_test(native(), async |ctx| {
        let circle = unit(Some("app"), "mock");
        let pull = ctx.open("circle", &[("live/vpc/terragrunt.hcl", &circle)]).await;
        let said = ctx.next(&pull).await;
        said.has("in a cycle: `live/app` → `live/vpc` → `live/app`; remove one of these dependencies");
        let away = unit(None, "2")
            + "dependency \"x\" {\n  config_path = \"../../../../etc\"\n}\ndependency \"y\" {\n  config_path = get_env(\"HOME\")\n}\n";
        let pull = ctx.open("away", &[("live/dns/terragrunt.hcl", &away)]).await;
        let said = ctx.next(&pull).await;
        said.has("`live/dns/terragrunt.hcl`, line 13: `config_path` leads out of the repository");
        said.has("`live/dns/terragrunt.hcl`, line 16: `config_path` of `dependency` cannot be told without running Terragrunt");
    });
}

#[test]
fn a_sparse_tree_has_what_units_are_made_of() {
    run_test(native().flags(&["--sparse-checkout"]), async |ctx| {
        let pull = ctx
            .open("change", &[("live/app/terragrunt.hcl", &format!("{}# changed\n", unit(Some("vpc"), "mock")))])
            .await;
        ctx.next(&pull).await.is("plan", "success").has("mock");
        let pull = ctx.open("module", &[("modules/echo/main.tf", &format!("{MODULE}# changed\n"))]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes().len(), 3, "{}", said.text);
    });
}

#[test]
fn a_units_plan_after_the_merge_is_shown_as_its_code_cannot_be_compared() {
    let rules = format!("{NATIVE}    repo_locks: {{mode: strict}}\n");
    run_test(live().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open("change", &[("live/dns/terragrunt.hcl", &unit(None, "2"))]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.merge().await.unwrap();
        ctx.next(&pull).await.is_message("owes");
        ctx.say(&pull, "atlantis apply").await.is("plan", "success").has("the server cannot compare the plan");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(state(ctx, "live/dns").contains("\"2\"") && ctx.locks().await.is_empty());
    });
}
