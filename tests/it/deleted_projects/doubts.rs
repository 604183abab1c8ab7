//! Deleted directories that are kept, and destroys that do not start: each would destroy what somebody still needs.

use super::*;

/// Applies a project whose state is named, as [`terraform`] does, with a resource of this name.
fn named(state: &str, resource: &str) -> String {
    terraform(state, "1").replace("\"this\"", &format!("\"{resource}\""))
}

#[test]
fn nothing_is_destroyed_after_a_failed_apply() {
    let steps = ["test ! -e {tmp}/refuse-$REPO_REL_DIR", "apply"];
    let rules = workflow(KEYS, &["init", "plan"], &steps);
    run_test(Setup::projects(&["net", "app"]).repos_yaml(&rules), async |ctx| {
        let first = ctx.open_own("first", &["net"]).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        first.close().unwrap();
        ctx.next(&first).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        ctx.next(&pull).await;
        pull.approve("bob").unwrap();
        std::fs::write(ctx.tmp.join("refuse-app"), "").unwrap();
        let said = ctx.say(&pull, "atlantis apply -d app -d net --only").await;
        said.has("t would be destroyed after `app/default`, which could not be applied and may still use it");
        assert!(has_resource(ctx, "net"));
        let said = ctx.say(&pull, "atlantis apply -d net").await;
        said.because("dependency")
            .has("`app/default` of this pull request must be applied first")
            .has("apply -d net --only");
        assert!(has_resource(ctx, "net"));
        std::fs::remove_file(ctx.tmp.join("refuse-app")).unwrap();
        ctx.say(&pull, "atlantis plan").await;
        ctx.say(&pull, "atlantis apply --only").await.is("apply", "success").has("Not destroyed");
        assert!(has_resource(ctx, "app") && has_resource(ctx, "net"));
        ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success");
        assert!(!has_resource(ctx, "net"));
    });
}

#[test]
fn a_project_that_stays_keeps_what_it_depends_on() {
    let listed = "version: 3\nprojects:\n- {name: net, dir: net}\n- {name: app, dir: app, depends_on: [net]}\n";
    run_test(projects("", &["net", "app"]).file("atlantis.yaml", listed), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("app".into(), "success".into())]);
        said.has("`app` still depends on it").has_not(DESTROY);
        ctx.say(&pull, "atlantis plan -d net -- -destroy").await.has("`app` still depends on it").has_not(DESTROY);
    });
}

#[test]
fn a_copy_that_is_on_the_base_branch_already_keeps_the_original() {
    let setup = projects("", &["net"]).file("vpc/main.tf", &named("net", "this"));
    run_test(setup, async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        let said = ctx.next(&pull).await;
        said.is_message("no_projects").has("`vpc` has the same backend, so its state may be the same");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await;
        assert!(has_resource(ctx, "net"));
    });
}

#[test]
fn a_directory_that_another_one_takes_in_is_kept() {
    let setup = projects("", &["app"]).file("net/main.tf", &named("net", "net"));
    run_test(setup, async |ctx| {
        let together = named("app", "this") + "resource \"terraform_data\" \"net\" {\n  input = \"1\"\n}\n";
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &together)]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("app".into(), "success".into())]);
        said.has("it may have moved to `app`, which has `terraform_data.net` now").has_not(DESTROY);
        let import = "import {\n  to = terraform_data.this\n  id = \"x\"\n}\n";
        let pull = delete(ctx, "third", &["net/main.tf"], &[("app/import.tf", import)]).await;
        ctx.next(&pull).await.has("may have moved to `app`, which has new `import` blocks").has_not(DESTROY);
    });
}

#[test]
fn a_directory_that_survives_the_merge_is_kept() {
    let setup = projects("", &["net", "app"]).flags(&["--checkout-strategy=branch"]);
    run_test(setup, async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        ctx.repo.push_as("alice", "main", "Add to it", &[("net/extra.tf", Some("# more\n"))]).await.unwrap();
        pull.approve("bob").unwrap();
        let said = ctx.say(&pull, "atlantis apply -d net").await;
        said.is("apply", "failure").because("requirement").has("`net/extra.tf`");
        let said = ctx.say(&pull, "atlantis plan").await;
        said.has("the base branch has `net/extra.tf`, which this pull request does not delete").has_not(DESTROY);
        assert!(has_resource(ctx, "net"));
    });
}

#[test]
fn what_the_base_branch_adds_after_the_plan_is_not_destroyed_unseen() {
    let listed = "version: 3\nprojects:\n- dir: net\n  autoplan: {when_modified: [main.tf]}\n- dir: app\n";
    run_test(projects("", &["net", "app"]).file("atlantis.yaml", listed), async |ctx| {
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        pull.approve("bob").unwrap();
        ctx.repo.push_as("alice", "main", "Elsewhere", &[("app/more.tf", Some("# more\n"))]).await.unwrap();
        ctx.repo.push_as("alice", "main", "Add to it", &[("net/extra.tf", Some("# more\n"))]).await.unwrap();
        let said = ctx.say(&pull, "atlantis apply -d net").await;
        said.is("apply", "failure").because("requirement").has("undiverged").has("`net/extra.tf`");
    });
}

#[test]
fn an_approval_of_a_head_without_the_deletion_does_not_count() {
    for keys in ["", "approvals: {count: 1}"] {
        run_test(projects(keys, &["net", "app"]), async |ctx| {
            apply_main_approved(ctx, &["net"]).await;
            let pull = ctx.open("second", &[("app/main.tf", &terraform("app", "2"))]).await;
            ctx.next(&pull).await.is("plan", "success");
            pull.approve("bob").unwrap();
            pull.push(&[("net/main.tf", None)]).await.unwrap();
            ctx.next(&pull).await.is("plan", "success").has(DESTROY);
            let said = ctx.say(&pull, "atlantis apply -d net --only").await;
            said.is("apply", "failure").because("requirement").has("earlier head");
            assert!(has_resource(ctx, "net"));
            pull.approve("bob").unwrap();
            ctx.say(&pull, "atlantis apply -d net --only").await.is("apply", "success");
            assert!(!has_resource(ctx, "net"));
        });
    }
}

/// As [`apply_main`], for rules that ask for an approval.
async fn apply_main_approved(ctx: &Ctx, dirs: &[&str]) {
    let pull = ctx.open_own("first", dirs).await;
    ctx.next(&pull).await.is("plan", "success");
    pull.approve("bob").unwrap();
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    pull.close().unwrap();
    ctx.next(&pull).await;
}

#[test]
fn a_directory_whose_code_names_no_state_is_kept() {
    let code = "resource \"terraform_data\" \"net\" {\n  input = \"1\"\n}\n";
    run_test(projects("", &["app"]).file("net/main.tf", code), async |ctx| {
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        let said = ctx.next(&pull).await;
        said.is_message("no_projects").has("has no `backend` or `cloud` block, so its state would not be found");
        ctx.say(&pull, "atlantis plan -d net -- -destroy").await.has("its state would not be found").has_not(DESTROY);
    });
}

#[test]
fn a_person_may_keep_the_resources() {
    run_test(projects("", &["net", "app"]), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        let said = ctx.say(&pull, "atlantis unlock -d net --accept-drift").await;
        said.has("--accept-drift needs a reason");
        ctx.say(&pull, "atlantis unlock -d net --accept-drift -m 'moved to acme/net'").await.is_message("unlocked");
        ctx.status(&pull, "atlantis/plan: net/default", "success", "Not destroyed: unlocked by alice").await;
        ctx.status(&pull, "atlantis/plan", "success", "0/0 projects planned").await;
        ctx.status(&pull, "atlantis/apply", "success", "0/0 applied").await;
        assert!(ctx.locks().await.is_empty() && has_resource(ctx, "net"));
        let audit = ctx.json("/audit.json").await.to_string();
        assert!(audit.contains("moved to acme/net"), "{audit}");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await;
        assert!(has_resource(ctx, "net"));
    });
}

#[test]
fn deleted_projects_of_one_group_go_in_reverse_order() {
    let base = "version: 3\nprojects:\n- {name: net, dir: net}\n- {name: app, dir: app, depends_on: [net]}\n";
    run_test(projects("", &["net", "app"]).file("atlantis.yaml", base), async |ctx| {
        apply_main(ctx, &["net", "app"]).await;
        let gone = ["net/main.tf", "app/main.tf"];
        let pull = delete(ctx, "second", &gone, &[("atlantis.yaml", "version: 3\n")]).await;
        ctx.next(&pull).await.is("plan", "success");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply -p net -p app").await.is("apply", "success");
        assert_eq!(applied(ctx), ["app", "net"]);
        assert!(!has_resource(ctx, "net") && !has_resource(ctx, "app"));
    });
}

#[test]
fn a_broken_config_of_the_base_branch_can_be_repaired() {
    let setup = projects("", &["net", "app"]).file("atlantis.yaml", "version: 3\nprojects: 7\n");
    run_test(setup, async |ctx| {
        let written = [("atlantis.yaml", "version: 3\n"), ("app/main.tf", &terraform("app", "2"))];
        let pull = delete(ctx, "second", &["net/main.tf"], &written).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("app".into(), "success".into())]);
        said.has("the configuration of the base branch has an error").has_not(DESTROY);
    });
}

#[test]
fn what_a_hook_writes_does_not_count_as_the_pull_requests_change() {
    let hook = "pre_workflow_hooks:\n- run: \"printf 'version: 3\\nprojects: [{dir: app}]\\n' > atlantis.yaml\"";
    let setup = projects(hook, &["net", "app"]).flags(&["--include-git-untracked-files"]);
    run_test(setup, async |ctx| {
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        let said = ctx.next(&pull).await;
        said.has("a workflow hook may write the repository's configuration").has_not(DESTROY);
    });
}
