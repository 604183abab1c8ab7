//! Guards of `repos.yaml`: plans and code that trip them, overrides, and attempts of pull requests to get past them.

use crate::lying_plans::{SWAP, code};
use crate::support::*;
use tidelock_forge::Fault;

/// Returns a `repos.yaml` with these guards.
fn guards(guards: &str) -> String {
    format!(
        "repos:\n  - id: /.*/\n    guards:\n{}\n",
        guards.lines().map(|line| format!("      {line}\n")).collect::<String>()
    )
}

/// A project with these guards, whose resource exists already.
fn applied_project(text: &str) -> Setup {
    Setup::one_project().repos_yaml(&guards(text))
}

/// Applies the project as it is on `main`.
async fn apply_main(ctx: &Ctx) {
    let pull = ctx.open("first", &[("note.tf", "# first\n")]).await;
    ctx.next(&pull).await.is("plan", "success");
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    pull.close().unwrap();
    ctx.next(&pull).await.is_message("cleanup");
}

fn has_state(ctx: &Ctx, text: &str) -> bool {
    std::fs::read_to_string(ctx.tmp.join("state/root.tfstate")).unwrap_or_default().contains(text)
}

#[test]
fn a_plan_that_destroys_too_much_is_applied_only_by_those_who_may_override() {
    let setup = applied_project("- {name: few, max_destroys: 0, override: ['user:carol', 'team:sre']}").own_process();
    run_test(setup, async |ctx| {
        ctx.forge.set_team("acme", "sre", &["dora"]);
        apply_main(ctx).await;
        let renamed = terraform("root", "1").replace("\"this\"", "\"other\"");
        let pull = ctx.open("second", &[("main.tf", &renamed)]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("Guard `few` refuses an apply");
        said.has("1 to destroy, at most 0 allowed (`max_destroys`): `terraform_data.this`");
        said.has("Only carol or team sre may override it: `atlantis apply -d . --override few -m 'why'`");
        said.has_not("To apply:");
        assert!(said.text.find("Guard `few`") < said.text.find("Plan: 1 to add"), "{}", said.text);
        ctx.status(&pull, "atlantis/plan", "success", "").await;

        let refused = ctx.say(&pull, "atlantis apply").await;
        refused.is("apply", "failure").because("requirement").has("guard few").has("1 to destroy, at most 0 allowed");
        refused.has("Only carol or team sre may override it: `atlantis apply -d . --override few -m 'why'`");
        ctx.say(&pull, "atlantis apply --override few").await.is_message("usage").has("--override needs a reason");
        let refused = ctx.say_as("bob", &pull, "atlantis apply --override few -m 'I want it'").await;
        refused.is("apply", "failure").has("bob may not override it: only carol or team sre may override it");
        // Neither another guard's name nor `--force` overrides it.
        ctx.say_as("carol", &pull, "atlantis apply --override other -m x")
            .await
            .is("apply", "failure")
            .has("guard few");
        ctx.repo.set_permission("carol", "admin").unwrap();
        ctx.say_as("carol", &pull, "atlantis apply --force -m x").await.is("apply", "failure").has("guard few");
        assert!(has_state(ctx, "\"this\""), "nothing is applied");

        let said = ctx.say_as("dora", &pull, "atlantis apply --override few -m 'the move of May'").await;
        said.is("apply", "success").has("dora overrode the guard `few` (reason: the move of May)").has("1 to destroy");
        assert!(has_state(ctx, "\"other\""));
        let log = ctx.server.log();
        let said = [
            r#""audit":true"#,
            r#""act":"apply --override few""#,
            r#""why":"the move of May""#,
            r#""result":"applied""#,
        ];
        assert!(log.lines().any(|line| said.iter().all(|part| line.contains(part))), "{log}");
    });
}

#[test]
fn replacements_and_protected_resources_trip_and_without_people_nobody_overrides() {
    let text = "- {name: whole, max_replacements: 0}\n- {name: data, protect: [terraform_data.this, module.vault]}";
    run_test(applied_project(text), async |ctx| {
        apply_main(ctx).await;
        let replaced = terraform("root", "1").replace("input = \"1\"", "input = \"1\"\n  triggers_replace = \"new\"");
        let pull = ctx.open("second", &[("main.tf", &replaced)]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("Guard `whole`").has("1 to replace, at most 0 allowed");
        said.has("Guard `data`").has("`terraform_data.this` would be replaced").has("Nobody may override it");
        let refused = ctx.say(&pull, "atlantis apply --override whole --override data -m x").await;
        refused.is("apply", "failure").has("alice may not override it: nobody may override it");
        // Away from the state, or under another name, it would not be protected any more.
        for (code, finding) in [
            (
                "removed {\n  from = terraform_data.this\n  lifecycle {\n    destroy = false\n  }\n}\n",
                "would be removed from the state",
            ),
            (
                "moved {\n  from = terraform_data.this\n  to   = terraform_data.new\n}\nresource \"terraform_data\" \"new\" {\n  input = \"1\"\n}\n",
                "would be moved to `terraform_data.new`",
            ),
        ] {
            let main = terraform("root", "1");
            let backend = main.split("resource").next().unwrap();
            ctx.push(&pull, "main.tf", &format!("{backend}{code}")).await;
            ctx.next(&pull).await.is("plan", "success").has("Guard `data`").has(finding);
            ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("guard data");
        }
        // A plan within the limits is applied as ever.
        ctx.push(&pull, "main.tf", &terraform("root", "2")).await;
        ctx.next(&pull).await.is("plan", "success").has_not("Guard");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

/// Code that runs a program when it is planned or applied, and would leave a file if Terraform read it.
#[test]
fn code_that_runs_programs_is_refused_before_terraform_runs() {
    let setup = applied_project("- {name: code, forbid: [external, provisioners], override: ['user:carol']}");
    run_test(setup.flags(&["--allow-commands=all"]).own_process(), async |ctx| {
        let provisioner = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"touch {tmp}/ran\"\n  }\n}\n";
        let pull = ctx.open("change", &[("x.tf", "\ndata \"external\" \"x\" {\n  program = [\"true\"]\n}\n")]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "failure").because("requirement").has("guard code");
        said.has("x.tf:2: `external` runs a program (`forbid: external`)");
        said.has("Only carol may override it: `atlantis plan -d . --override code -m 'why'`");
        ctx.status(&pull, "atlantis/plan: ./default", "failure", "Guard code tripped").await;
        let log = ctx.request("GET", &format!("/jobs/{}/log", said.job()), &[]).await.1;
        assert!(!log.contains("Initializing"), "{log}");
        for (path, code, caller) in [
            ("x.tf", provisioner, ""),
            ("y.tf.json", "{\"data\": {\"external\": {\"x\": {\"program\": [\"true\"]}}}, \"data\": {}}", ""),
            ("m/x.tf.json", "{\"data\": [{\"external\": {\"x\": {}}}]}", "module \"m\" {\n  source = \"./m\"\n}\n"),
        ] {
            let code = ctx.fill(code);
            pull.push(&[(path, Some(code.as_str())), ("z.tf", Some(caller))]).await.unwrap();
            ctx.next(&pull).await.is("plan", "failure").has("guard code").has(&format!("{path}:"));
            pull.push(&[(path, None), ("z.tf", Some(&format!("# without {path}\n")))]).await.unwrap();
            ctx.next(&pull).await.is("plan", "success");
        }
        ctx.push(&pull, "x.tf", provisioner).await;
        ctx.next(&pull).await.is("plan", "failure");
        // Others of its commands do not run it either.
        ctx.say(&pull, "atlantis import -d . terraform_data.this x").await.is("import", "failure").has("guard code");
        assert!(!ctx.tmp.join("ran").exists());
        ctx.say(&pull, "atlantis plan --override code -m x")
            .await
            .is("plan", "failure")
            .has("alice may not override it");
        let said = ctx.say_as("carol", &pull, "atlantis plan -d . --override code -m 'once'").await;
        said.is("plan", "success")
            .has("Guard `code`, overridden by carol")
            .has("(reason: once)")
            .has("provisioner `local-exec`");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(ctx.tmp.join("ran").exists());
        let log = ctx.server.log();
        let said = [r#""audit":true"#, r#""act":"plan --override code""#, r#""why":"once""#];
        assert!(log.lines().any(|line| said.iter().all(|part| line.contains(part))), "{log}");
    });
}

#[test]
fn providers_and_modules_from_elsewhere_are_refused_before_anything_is_fetched() {
    let text = "- {name: sources, providers: [hashicorp/*], modules: ['git::{forge}/acme/*']}";
    run_test(applied_project(text), async |ctx| {
        let pull =
            ctx.open("change", &[("x.tf", "module \"m\" {\n  source = \"git::https://example.com/x\"\n}\n")]).await;
        ctx.next(&pull)
            .await
            .is("plan", "failure")
            .has("x.tf:2: the module source `git::https://example.com/x` is not in");
        let provider = "terraform {\n  required_providers {\n    a = { source = \"evil/a\" }\n  }\n}\n";
        ctx.push(&pull, "x.tf", provider).await;
        ctx.next(&pull).await.is("plan", "failure").has("x.tf:3: the provider `evil/a` is not in `providers`");
        ctx.push(&pull, "x.tf", "resource \"terraform_data\" \"fine\" {}\n").await;
        ctx.next(&pull).await.is("plan", "success").has_not("uard");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

/// Terraform would run them without a download.
#[test]
fn providers_that_a_pull_request_brings_along_are_refused() {
    let mirror = "terraform.d/plugins/registry.terraform.io/hashicorp/external/9.9.9/linux_amd64/terraform-provider-external_v9.9.9";
    run_test(applied_project("- {name: sources, providers: [hashicorp/*]}"), async |ctx| {
        for (branch, path, why) in [
            ("mirror", mirror, "terraform.d: it cannot be checked: providers beside the code are not checked"),
            ("data", ".terraform/providers/x", ".terraform: it cannot be checked: the repository has files in"),
        ] {
            let pull = ctx.open(branch, &[(path, "#!/bin/sh\n"), ("x.tf", "# x\n")]).await;
            ctx.next(&pull).await.is("plan", "failure").has("guard sources").has(why);
        }
    });
}

/// `init` fetches the module, and Terraform does not plan it.
#[test]
fn code_of_fetched_modules_is_read_before_the_plan() {
    let text = "- {name: code, forbid: [provisioners], modules: ['git::{forge}/acme/*'], override: ['user:carol']}";
    let setup = applied_project(text).flags(&["--module-credentials={forge}/acme"]);
    run_test(setup, async |ctx| {
        let code =
            "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"true\"\n  }\n}\n";
        ctx.forge.create_repo("acme/modules", &[("sub/main.tf", code), ("main.tf", "")]).await.unwrap();
        let using = |path: &str| format!("module \"m\" {{\n  source = \"git::{{forge}}/acme/modules.git{path}\"\n}}\n");
        let pull = ctx.open("change", &[("x.tf", &using("//sub"))]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "failure").has("guard code tripped");
        said.has(".terraform/modules/m/sub/main.tf:2: provisioner `local-exec`");
        said.has_not("is not in `modules`");
        // Nobody has asked for the plan.
        let log = ctx.request("GET", &format!("/jobs/{}/log", said.job()), &[]).await.1;
        assert!(!log.contains("will be created"), "{log}");
        ctx.push(&pull, "x.tf", &using("")).await;
        ctx.next(&pull).await.is("plan", "success").has_not("uard");
    });
}

#[test]
fn a_pull_request_neither_sets_nor_removes_a_guard() {
    run_test(applied_project("- {name: few, max_destroys: 0}"), async |ctx| {
        apply_main(ctx).await;
        let renamed = terraform("root", "1").replace("\"this\"", "\"other\"");
        let own = "version: 3\nprojects:\n- dir: .\n  guards: []\n";
        let pull = ctx.open("second", &[("main.tf", &renamed), ("atlantis.yaml", own)]).await;
        ctx.next(&pull).await.has("unknown key `guards`");
        ctx.push(&pull, "atlantis.yaml", "version: 3\nprojects:\n- {dir: ., name: mine, workspace: default}\n").await;
        ctx.next(&pull).await.is("plan", "success").has("Guard `few` refuses an apply");
        ctx.say(&pull, "atlantis apply -p mine").await.is("apply", "failure").has("guard few");
        assert!(has_state(ctx, "\"this\""));
        // A guard that is new to a plan needs a new plan.
        ctx.rewrite_repos_yaml(&guards("- {name: few, max_destroys: 0}\n- {name: more, max_destroys: 5}"));
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply -p mine").await.is("apply", "failure").because("stale_plan");
    });
}

#[test]
fn a_workflow_without_a_plan_file_and_an_unknown_team_do_not_pass() {
    let keys = "guards: [{name: few, max_destroys: 5, override: ['team:sre']}]";
    let yaml = workflow(keys, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::one_project().repos_yaml(&yaml), async |ctx| {
        ctx.forge.set_team("acme", "sre", &["carol"]);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("the plan cannot be checked: its workflow leaves no plan file");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("guard few");
        ctx.forge.fail_next("GET", "**/teams/**", Fault::Status(500, "{}".to_owned(), Vec::new()), 20).unwrap();
        let said = ctx.say_as("carol", &pull, "atlantis apply --override few -m x").await;
        said.is("apply", "error").has("the host did not say whether carol is in team sre");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.forge.clear_faults();
        ctx.say_as("carol", &pull, "atlantis apply --override few -m x").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

/// The job of a plan at another executor hides what its file does.
#[test]
fn a_plan_file_of_another_executor_is_checked_again_before_its_apply() {
    let keys = "executor: [{plan: plans, apply: local}]\nguards: [{name: code, forbid: [provisioners]}]";
    let hide = "cat > hidden.tf <<'EOF'\nresource \"terraform_data\" \"hidden\" {\n  provisioner \"local-exec\" {\n    command = \"touch {tmp}/ran\"\n  }\n}\nEOF";
    let swap = format!("{hide}\n{SWAP}; rm hidden.tf");
    let yaml = workflow(keys, &["init", "plan", &swap], &["apply"]);
    let yaml = format!("executors: {{plans: {{kind: process}}}}\n{yaml}");
    let setup = Setup::repo(&[("main.tf", &code())]).repos_yaml(&yaml).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("more.tf", "output \"more\" {\n  value = 1\n}\n")]).await;
        ctx.next(&pull)
            .await
            .is("plan", "success")
            .has("Guard `code` refuses an apply")
            .has("terraform_data.hidden: provisioner");
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("guard code");
        assert!(!ctx.tmp.join("ran").exists());
    });
}
