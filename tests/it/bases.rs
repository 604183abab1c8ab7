//! With `--checkout-strategy=merge`, projects of one pull request may be planned on different commits of the base branch. Each is applied
//! on its own.

use crate::support::*;

/// Prints the base branch's file as the step sees it, and the changes of the plan's steps, if they exist.
fn seen(stage: &str) -> String {
    format!("cat ../base.txt tracked.txt made.txt > {{tmp}}/$REPO_REL_DIR.{stage}")
}

/// Projects in these directories, with files that steps change and make.
fn projects(dirs: &[&str], config: &str) -> Setup {
    let files = dirs
        .iter()
        .fold(Setup::projects(dirs), |setup, dir| setup.file(&format!("{dir}/tracked.txt"), "as committed\n"));
    files.file("base.txt", "base 1\n").file("atlantis.yaml", config)
}

fn listed(projects: &[(&str, &str)], parallel: bool) -> String {
    let listed = projects.iter().map(|(dir, workspace)| format!("  - dir: {dir}\n    workspace: {workspace}\n"));
    format!(
        "version: 3\nparallel_plan: {parallel}\nparallel_apply: {parallel}\nprojects:\n{}",
        listed.collect::<String>()
    )
}

async fn move_base(ctx: &Ctx, number: u32) {
    ctx.repo.push("main", &[("base.txt", Some(&format!("base {number}\n")))]).await.unwrap();
}

fn read(ctx: &Ctx, file: &str) -> String {
    std::fs::read_to_string(ctx.tmp.join(file)).unwrap_or_default()
}

/// Applies everything, and checks that each project is applied on the base of its own plan.
async fn each_on_its_own(ctx: &Ctx, pull: &tidelock_forge::Pull, bases: &[(&str, u32)]) {
    let said = ctx.say(pull, "atlantis apply").await;
    said.is("apply", "success");
    assert_eq!(said.outcomes().len(), bases.len());
    for (dir, base) in bases {
        let (planned, applied) = (read(ctx, &format!("{dir}.planned")), read(ctx, &format!("{dir}.applied")));
        assert!(planned.starts_with(&format!("base {base}\n")), "{dir}: {planned}");
        assert!(planned.ends_with("changed by the plan\nmade by the plan\n"), "{dir}: {planned}");
        assert_eq!(applied, planned, "{dir}");
    }
}

const CHANGE: &str = "echo changed by the plan >> tracked.txt && echo made by the plan > made.txt";

#[test]
fn one_by_one_each_project_is_applied_on_the_base_of_its_own_plan() {
    let dirs = ["a", "b", "c"];
    let config = listed(&[("a", "default"), ("b", "default"), ("c", "default")], false);
    let setup = projects(&dirs, &config);
    let setup = setup.steps(&["init", CHANGE, "plan", &seen("planned")], &[&seen("applied"), "apply"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &dirs).await;
        ctx.next(&pull).await.is("plan", "success");
        move_base(ctx, 2).await;
        ctx.say(&pull, "atlantis plan -d b").await.is("plan", "success");
        move_base(ctx, 3).await;
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        each_on_its_own(ctx, &pull, &[("a", 3), ("b", 2), ("c", 1)]).await;
        for dir in dirs {
            assert!(read(ctx, &format!("state/{dir}.tfstate")).contains("\"change\""), "{dir}");
        }
        // No tree is left but the one that plans are made in.
        ctx.quiet().await;
        let trees = std::fs::read_dir(ctx.server.data("repos/acme/infra/1")).unwrap();
        let trees: Vec<_> = trees.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(trees, ["default"]);
    });
}

#[test]
fn in_parallel_each_project_is_applied_on_the_base_of_its_own_plan_and_no_tree_moves_under_a_job() {
    let dirs = ["a", "b", "c", "d"];
    let config = listed(&[("a", "default"), ("b", "default"), ("c", "staging"), ("d", "staging")], true);
    // Each waits until all have begun, and looks then.
    let setup = projects(&dirs, &config).flags(&["--parallel-pool-size=8"]);
    let setup = setup.steps(&[CHANGE, PLANNED, &seen("planned")], &[&gate("apply"), &seen("applied")]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &dirs).await;
        ctx.next(&pull).await.is("plan", "success");
        move_base(ctx, 2).await;
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        ctx.say(&pull, "atlantis plan -d d -w staging").await.is("plan", "success");
        let comment = each_on_its_own(ctx, &pull, &[("a", 2), ("b", 1), ("c", 1), ("d", 2)]);
        let open = async {
            // As many as the machine admits; the others come later, in trees that are made then.
            ctx.reached("apply", 2).await;
            ctx.open_gate("apply");
        };
        tokio::join!(comment, open);
    });
}

#[test]
fn an_apply_is_not_moved_to_a_base_that_another_pull_request_has_fetched() {
    let config = listed(&[("a", "default"), ("b", "default")], false);
    let setup = projects(&["a", "b"], &config).steps(&[CHANGE, PLANNED, &seen("planned")], &[&seen("applied")]);
    run_test(setup, async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.next(&first).await.is("plan", "success");
        move_base(ctx, 2).await;
        let second = ctx.open_dirs("second", &["b"]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis version").await.has("Terraform");
        each_on_its_own(ctx, &first, &[("a", 1)]).await;
    });
}

#[test]
fn sparse_trees_hold_all_projects_of_a_command() {
    let dirs = ["a", "b"];
    let config = listed(&[("a", "staging"), ("b", "staging")], true);
    let setup = projects(&dirs, &config).file("other/readme", "not needed\n");
    let setup = setup.steps(&[&gate("plan"), CHANGE, PLANNED, &seen("planned")], &[&seen("applied")]);
    run_test(setup.flags(&["--sparse-checkout", "--parallel-pool-size=8"]), async |ctx| {
        let pull = ctx.open_dirs("change", &dirs).await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        each_on_its_own(ctx, &pull, &[("a", 1), ("b", 1)]).await;
        assert!(!ctx.server.data("repos/acme/infra/1/staging/other").exists());
    });
}

#[test]
fn sparse_trees_of_an_apply_hold_projects_that_nobody_listed() {
    let setup = Setup::projects(&["a", "b"]).file("other/readme", "not needed\n").flags(&["--sparse-checkout"]);
    run_test(setup.steps(&[PLANNED], &["cat main.tf"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("terraform_data");
    });
}
