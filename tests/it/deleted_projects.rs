//! Projects whose directory a pull request deletes (`deleted_projects: destroy`): destroyed from the base's tree, by a person, before the
//! merge. A directory that only seems to be deleted is left alone.

mod doubts;

use crate::support::*;
use tidelock_forge::{OpenOptions, Pull};

const KEYS: &str = "deleted_projects: destroy";
const APPLY: &[&str] = &["echo $REPO_REL_DIR >> {tmp}/applied", "apply"];
const DESTROY: &str = "destroy of a deleted project";

/// Projects in these directories, in a repository with these keys besides.
fn projects(keys: &str, dirs: &[&str]) -> Setup {
    Setup::projects(dirs).repos_yaml(&workflow(&format!("{KEYS}\n{keys}"), &["init", "plan"], APPLY))
}

/// Applies these projects as they are on `main`.
async fn apply_main(ctx: &Ctx, dirs: &[&str]) {
    let pull = ctx.open_own("first", dirs).await;
    ctx.next(&pull).await.is("plan", "success");
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    pull.close().unwrap();
    ctx.next(&pull).await;
    std::fs::remove_file(ctx.tmp.join("applied")).unwrap();
}

/// Opens a pull request of alice that deletes files, and writes others.
async fn delete(ctx: &Ctx, branch: &str, gone: &[&str], written: &[(&str, &str)]) -> Pull {
    let texts: Vec<_> = written.iter().map(|(path, text)| (*path, ctx.fill(text))).collect();
    let changes: Vec<_> = (gone.iter().map(|path| (*path, None)))
        .chain(texts.iter().map(|(path, text)| (*path, Some(text.as_str()))))
        .collect();
    ctx.repo.open_pull(branch, "alice", &format!("Delete by {branch}"), &changes, OpenOptions::default()).await.unwrap()
}

fn has_resource(ctx: &Ctx, state: &str) -> bool {
    let text = std::fs::read_to_string(ctx.tmp.join(format!("state/{state}.tfstate"))).unwrap_or_default();
    text.contains("\"this\"")
}

fn applied(ctx: &Ctx) -> Vec<String> {
    let text = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn it_is_destroyed_with_the_bases_code_once_somebody_has_approved() {
    let module = "variable \"x\" {}\n";
    let net = terraform("net", "1") + "module \"lib\" {\n  source = \"../lib/m\"\n  x      = 1\n}\n";
    let setup = projects("guards: [{name: few, max_destroys: 1}]", &["app"]).file("net/main.tf", &net);
    run_test(setup.file("lib/m/main.tf", module), async |ctx| {
        apply_main(ctx, &["net"]).await;
        // What the head makes of the module does not matter.
        let pull = delete(ctx, "second", &["net/main.tf"], &[("lib/m/main.tf", "variable \"y\" {}\n")]).await;
        let said = ctx.next(&pull).await;
        assert!(said.outcomes().contains(&("net".into(), "success".into())), "{}", said.text);
        said.has(DESTROY).has("This pull request deletes `net`").has("1 to destroy").has("Apply it before the merge");
        let row = said.marker["results"].as_array().unwrap().iter().find(|row| row["dir"] == "net").unwrap();
        assert_eq!(row["deleted"], true, "{row}");
        let status = "Destroy of a deleted project: 0 to add, 0 to change, 1 to destroy";
        ctx.status(&pull, "atlantis/plan: net/default", "success", status).await;
        let said = ctx.say(&pull, "atlantis apply -d net --only").await;
        said.is("apply", "failure").because("requirement").has("approved: 0 of 1 review");
        assert!(has_resource(ctx, "net"), "nobody has approved");
        pull.approve("bob").unwrap();
        let said = ctx.say(&pull, "atlantis apply -d net").await;
        said.is("apply", "failure")
            .because("dependency")
            .has("`lib/m/default` of this pull request must be applied first");
        assert!(has_resource(ctx, "net"), "another project may use it");
        let said = ctx.say(&pull, "atlantis apply -d net --only").await;
        said.is("apply", "success").has("0 added, 0 changed, 1 destroyed");
        assert!(!has_resource(ctx, "net"));
        ctx.status(&pull, "atlantis/apply: net/default", "success", "1 destroyed").await;
        assert_eq!(applied(ctx), ["net"]);
        let audit = ctx.json("/audit.json").await.to_string();
        assert!(audit.contains("applied: destroy of a deleted project"), "{audit}");
        let said = ctx.say(&pull, "atlantis plan -d net").await;
        said.is("plan", "success").has("No changes").has("The plan destroys nothing, with the code");
    });
}

#[test]
fn its_status_holds_the_merge_back_and_another_pull_request_waits() {
    run_test(projects("", &["net"]), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        assert!(pull.statuses().unwrap().get("atlantis/apply").is_none_or(|status| status.state != "success"));
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
        let other = ctx.open_dirs("third", &["net"]).await;
        ctx.next(&other).await.is("plan", "failure").because("locked").has("#2");
        // A push that restores the directory takes plan and lock away.
        ctx.push(&pull, "net/main.tf", &terraform("net", "1")).await;
        ctx.next(&other).await.is_replan("success").has_not(DESTROY);
        assert!(has_resource(ctx, "net"));
    });
}

#[test]
fn a_push_that_restores_the_directory_discards_plan_and_lock() {
    run_test(projects("", &["net", "app"]), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("app".into(), "success".into()), ("net".into(), "success".into())]);
        pull.approve("bob").unwrap();
        ctx.push(&pull, "net/main.tf", &terraform("net", "1")).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("app".into(), "success".into())]);
        said.has_not(DESTROY);
        assert_eq!(ctx.locks().await, ["acme/infra/app/default/"]);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(has_resource(ctx, "net"));
        assert_eq!(applied(ctx), ["app"]);
    });
}

#[test]
fn without_the_key_nothing_is_planned_as_in_atlantis() {
    let rules = workflow("", &["init", "plan"], APPLY);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let yaml =
            [("atlantis.yaml", "version: 3\n"), ("repos.yaml", "repos: [{id: /.*/, deleted_projects: destroy}]")];
        let pull = delete(ctx, "second", &["net/main.tf"], &yaml).await;
        ctx.status(&pull, "atlantis/plan", "success", "0/0 projects planned").await;
        ctx.quiet().await;
        assert!(pull.bot_comments().unwrap().is_empty());
        ctx.say(&pull, "atlantis plan -d net").await.has("`net` does not exist in this pull request");
    });
}

#[test]
fn a_directory_that_looks_moved_is_destroyed_only_by_name() {
    run_test(projects("", &["net", "app"]), async |ctx| {
        apply_main(ctx, &["net", "app"]).await;
        let renamed = delete(ctx, "second", &["net/main.tf"], &[("vpc/main.tf", &terraform("net", "1"))]).await;
        let said = ctx.next(&renamed).await;
        assert_eq!(said.outcomes(), [("vpc".into(), "success".into())]);
        said.has("`net` has no Terraform files any more, and is not planned as a destroy");
        said.has("`vpc` has the same backend, so").has("`atlantis plan -d net -- -destroy`").has_not(DESTROY);
        ctx.say(&renamed, "atlantis plan -d net").await.has("`vpc` has the same backend, so");
        ctx.say(&renamed, "atlantis plan -- -destroy").await.has("`vpc` has the same backend, so").has_not(DESTROY);

        // Another state, and the same code.
        let copied = delete(ctx, "third", &["app/main.tf"], &[("web/main.tf", &terraform("web", "1"))]).await;
        let said = ctx.next(&copied).await;
        said.has("it may have moved to `web`, which has `terraform_data.this` now").has_not(DESTROY);
        let said = ctx.say(&copied, "atlantis plan -d app -- -destroy").await;
        said.is("plan", "success").has(DESTROY).has_not("covers a part of the project");
        copied.approve("bob").unwrap();
        ctx.say(&copied, "atlantis apply -d app --only")
            .await
            .is("apply", "success")
            .has("1 destroyed")
            .has_not("a part of");
        assert!(!has_resource(ctx, "app") && has_resource(ctx, "net"));
    });
}

#[test]
fn trees_of_the_head_alone_and_of_some_directories_make_no_difference() {
    let rules = format!("repos:\n- id: /.*/\n  {KEYS}\n");
    for flag in ["--checkout-strategy=branch", "--checkout-strategy=merge"] {
        let setup = Setup::projects(&["net", "app"]).repos_yaml(&rules).flags(&[flag, "--sparse-checkout"]);
        run_test(setup, async |ctx| {
            let first = ctx.open_own("first", &["net"]).await;
            ctx.next(&first).await.is("plan", "success");
            ctx.say(&first, "atlantis apply").await.is("apply", "success");
            first.close().unwrap();
            ctx.next(&first).await.is_message("cleanup");
            let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
            // The base branch gets a project that the head does not have, and that nobody deletes.
            let text = ctx.fill(&terraform("web", "1"));
            ctx.repo.push_as("alice", "main", "Add one", &[("web/main.tf", Some(&text))]).await.unwrap();
            ctx.next(&pull).await.is("plan", "success").has(DESTROY);
            let said = ctx.say(&pull, "atlantis plan").await;
            assert_eq!(said.outcomes(), [("net".into(), "success".into())]);
            pull.approve("bob").unwrap();
            let said = ctx.say(&pull, "atlantis apply").await;
            said.is("apply", "failure")
                .has("A destroy begins only if the command names its project: `atlantis apply -d net`");
            ctx.say(&pull, "atlantis apply -d 'n*' --only").await.is("apply", "failure");
            ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success").has("1 destroyed");
            assert!(!has_resource(ctx, "net"));
        });
    }
}

#[test]
fn no_argument_of_a_comment_turns_a_destroy_into_something_else() {
    run_test(projects("", &["net"]), async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        let said = ctx.say(&pull, "atlantis plan -d net -- -destroy=false").await;
        said.is("plan", "success").has(DESTROY).has("1 to destroy");
    });
}

#[test]
fn a_listed_project_is_destroyed_as_the_base_lists_it() {
    let base = "version: 3\nprojects:\n- {name: net, dir: net, execution_order_group: 1}\n\
                - {name: app, dir: app, execution_order_group: 2, depends_on: [net]}\n- {name: web, dir: web}\n";
    let setup = projects("apply_requirements: [mergeable]", &["net", "app", "web"]).file("atlantis.yaml", base);
    run_test(setup, async |ctx| {
        apply_main(ctx, &["net", "app"]).await;
        // Removed from the list alone, `web` is not destroyed.
        let unlisted =
            delete(ctx, "unlisted", &[], &[("atlantis.yaml", "version: 3\nprojects:\n- {name: net, dir: net}\n")])
                .await;
        ctx.status(&unlisted, "atlantis/plan", "success", "0/0 projects planned").await;

        let left = "version: 3\nprojects:\n- {name: web, dir: web}\n";
        let written = [("atlantis.yaml", left), ("web/main.tf", &terraform("web", "2"))];
        let pull = delete(ctx, "second", &["net/main.tf", "app/main.tf"], &written).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes().len(), 3, "{}", said.text);
        ctx.say(&pull, "atlantis plan -p app").await.is("plan", "success").has(DESTROY);
        pull.approve("bob").unwrap();
        let said = ctx.say(&pull, "atlantis apply -p net --only").await;
        said.is("apply", "failure").because("dependency").has("atlantis apply -p app");
        let said = ctx.say(&pull, "atlantis apply").await;
        said.is("apply", "success").has("Not destroyed, as a destroy begins only if the command names its project");
        assert_eq!(applied(ctx), ["web"]);
        ctx.say(&pull, "atlantis apply -p net -p app").await.is("apply", "success");
        assert_eq!(applied(ctx), ["web", "app", "net"], "those that depend on others come first");
        assert!(!has_resource(ctx, "app") && !has_resource(ctx, "net"));
    });
}

#[test]
fn an_automatic_apply_leaves_it_to_a_person() {
    let keys = "apply_requirements: [approved]\nauto_apply: {when: approved}\ndestroy_requirements: []";
    run_test(projects(keys, &["net", "app"]), async |ctx| {
        let first = ctx.open_own("first", &["net"]).await;
        ctx.next(&first).await.is("plan", "success");
        first.approve("bob").unwrap();
        ctx.next(&first).await.is("apply", "success");
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup");
        std::fs::remove_file(ctx.tmp.join("applied")).unwrap();
        let pull = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        ctx.next(&pull).await.has("To be applied automatically when somebody approves: `app/default`.");
        pull.approve("bob").unwrap();
        ctx.next(&pull).await.is("apply", "success");
        ctx.quiet().await;
        assert_eq!(applied(ctx), ["app"]);
        ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success");
        assert_eq!(applied(ctx), ["app", "net"]);
    });
}

#[test]
fn a_workflow_without_the_step_plan_cannot_destroy() {
    let rules = workflow(KEYS, &[PLANNED], &["echo $REPO_REL_DIR >> {tmp}/applied"]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        let said = ctx.next(&pull).await;
        said.is_message("no_projects").has("its workflow `custom` plans with commands of its own").has_not(DESTROY);
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        assert!(applied(ctx).is_empty());
    });
}

#[test]
fn in_strict_it_is_owned_and_a_merge_before_its_apply_is_told() {
    run_test(projects("repo_locks: {mode: strict}", &["net", "app"]), async |ctx| {
        apply_main_strict(ctx, &["net", "app"]).await;
        let first = delete(ctx, "second", &["net/main.tf"], &[("app/main.tf", &terraform("app", "2"))]).await;
        ctx.next(&first).await.is("plan", "success").has(DESTROY).has_not("has no Terraform files any more");
        first.approve("bob").unwrap();
        ctx.say(&first, "atlantis apply -d app").await.is("apply", "success");
        assert_eq!(ctx.owners().await, ["app #2 applied_unmerged", "net #2 planned"]);
        first.merge().await.unwrap();
        ctx.until("net is owed", async || ctx.owners().await == ["net #2 merged_unapplied"]).await;
        ctx.next(&first).await.is_message("owes");
        let said = ctx.say(&first, "atlantis plan").await;
        said.has("merged as deleted before its destroy was applied").has("restore the directory");
        said.has("`atlantis unlock --accept-drift -m \"why\"`");
        assert!(has_resource(ctx, "net"));
        ctx.say(&first, "atlantis unlock --accept-drift -m 'kept'").await.is_message("unlocked");
        assert!(ctx.owners().await.is_empty());
    });
}

/// As [`apply_main`], where an apply has to be merged.
async fn apply_main_strict(ctx: &Ctx, dirs: &[&str]) {
    let changes: Vec<_> = dirs.iter().map(|dir| (format!("{dir}/main.tf"), terraform(dir, "0"))).collect();
    let changes: Vec<_> = changes.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let pull = ctx.open("first", &changes).await;
    ctx.next(&pull).await.is("plan", "success");
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    pull.merge().await.unwrap();
    ctx.until("nothing is owned", async || ctx.owners().await.is_empty()).await;
}

#[test]
fn a_move_of_the_base_branch_in_the_directory_invalidates_the_plan_in_strict() {
    run_test(projects("repo_locks: {mode: strict}", &["net", "app"]), async |ctx| {
        apply_main_strict(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        pull.approve("bob").unwrap();
        let text = ctx.fill(&terraform("net", "3"));
        ctx.repo.push_as("alice", "main", "Tune it", &[("net/main.tf", Some(&text))]).await.unwrap();
        ctx.next(&pull).await.is_message("plans_fell").has("`main` has moved to").has("dir `net`");
        ctx.next(&pull).await.is("plan", "error").has("CONFLICT (modify/delete)");
        assert!(has_resource(ctx, "net"));
    });
}

#[test]
fn it_is_applied_after_a_restart_on_an_empty_disk() {
    let setup = projects("", &["net"]).own_process();
    run_test(setup, async |ctx| {
        apply_main(ctx, &["net"]).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        ctx.server.kill().await;
        std::fs::remove_dir_all(ctx.server.data("repos")).unwrap();
        ctx.server.start().await;
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success").has("1 destroyed");
        assert!(!has_resource(ctx, "net"));
    });
}

#[test]
fn it_is_destroyed_at_an_executor() {
    let rules = workflow(&format!("{KEYS}\nexecutor: [{{plan: jobs, apply: jobs}}]"), &["init", "plan"], &["apply"]);
    let rules = format!("executors: {{jobs: {{kind: process}}}}\n{rules}");
    run_test(Setup::projects(&["net"]).repos_yaml(&rules).own_process(), async |ctx| {
        let pull = ctx.open_own("first", &["net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        pull.close().unwrap();
        ctx.next(&pull).await;
        let pull = delete(ctx, "second", &["net/main.tf"], &[]).await;
        ctx.next(&pull).await.is("plan", "success").has(DESTROY);
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis apply -d net").await.is("apply", "success").has("1 destroyed");
        assert!(!has_resource(ctx, "net"));
    });
}
