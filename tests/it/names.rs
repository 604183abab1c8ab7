//! A project is one state: its repository, directory and workspace. Its name only selects it, so another name is no way around an owner or
//! a lock, and a new name loses nothing.

use crate::support::*;
use tidelock_forge::Pull;

/// Projects in mode `strict`, planned and applied by Terraform; each apply writes its pull request's number.
fn strict() -> Setup {
    let rules =
        workflow("repo_locks: {mode: strict}", &["init", "plan"], &["apply", "echo $PULL_NUM >> {tmp}/applied"]);
    Setup::projects(&["net"]).repos_yaml(&rules)
}

/// Returns an `atlantis.yaml` that gives the directory `net` these names.
fn named(names: &[&str]) -> String {
    let projects = names.iter().map(|name| format!("  - {{dir: ./net/, name: {name}}}\n"));
    format!("version: 3\nprojects:\n{}", projects.collect::<String>())
}

/// Returns a new file in `net`, with a resource.
fn resource(name: &str) -> (String, String) {
    (format!("net/{name}.tf"), format!("resource \"terraform_data\" \"{name}\" {{}}\n"))
}

/// Opens a pull request with a new resource in `net`, and with these names for it, if any.
async fn open_named(ctx: &Ctx, branch: &str, names: &[&str]) -> Pull {
    let (path, text) = resource(branch);
    let config = named(names);
    match names {
        [] => ctx.open(branch, &[(&path, &text)]).await,
        _ => ctx.open(branch, &[(&path, &text), ("atlantis.yaml", &config)]).await,
    }
}

/// Returns `name #owner state` of each lock and owner in the API.
async fn owners(ctx: &Ctx) -> Vec<String> {
    let all = ctx.json("/api/locks").await;
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = all["Locks"].as_array().cloned().unwrap_or_default();
    rows.iter()
        .map(|row| format!("{} #{} {}", text(row, "ProjectName"), text(row, "PullID"), text(row, "State")))
        .collect()
}

fn state(ctx: &Ctx) -> String {
    std::fs::read_to_string(ctx.tmp.join("state/net.tfstate")).unwrap_or_default()
}

#[test]
fn another_name_is_no_way_around_the_owner() {
    run_test(strict(), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        let before = open_named(ctx, "second", &["other"]).await;
        ctx.next(&before).await.is("plan", "success").has("`other` is also changed by #1");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.next(&before).await.is_message("plans_fell").has("#1 changes the same");
        let said = ctx.say(&before, "atlantis plan").await;
        said.is("plan", "success").has("The plan of `other` is a preview: #1 must be merged first");
        let said = ctx.say(&before, "atlantis apply").await;
        said.is("apply", "failure")
            .because("locked")
            .has("#1")
            .has("`atlantis unlock --accept-drift -m \"why\"` on #1")
            .has("1st in line");
        assert_eq!(owners(ctx).await, [" #1 applied_unmerged"]);
        let all = ctx.json("/api/locks").await;
        assert_eq!(all["Locks"][0]["Waiting"], serde_json::json!(["2"]));
        assert!(state(ctx).contains("\"first\""));
        first.merge().await.unwrap();
        ctx.next(&before).await.is_message("plans_fell").has("`main` has moved to");
        ctx.next(&before).await.is_replan("success");
        ctx.say(&before, "atlantis apply").await.is("apply", "success");
        assert_eq!(owners(ctx).await, ["other #2 applied_unmerged"]);
        assert!(state(ctx).contains("\"first\"") && state(ctx).contains("\"second\""));
    });
}

#[test]
fn what_was_applied_under_an_old_name_is_done_at_the_merge() {
    run_test(strict().file("atlantis.yaml", &named(&["old"])), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert_eq!(owners(ctx).await, ["old #1 applied_unmerged"]);
        ctx.push(&first, "atlantis.yaml", &named(&["new"])).await;
        let said = ctx.next(&first).await;
        said.is("plan", "success").has("No changes").has_not("`old`");
        assert_eq!(said.outcomes().len(), 1);
        assert_eq!(owners(ctx).await, ["new #1 applied_unmerged"]);
        first.merge().await.unwrap();
        ctx.until("the merge frees it", async || owners(ctx).await.is_empty()).await;
        let second = open_named(ctx, "second", &[]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&second, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_new_name_that_was_not_planned_is_owed_once_and_can_be_applied() {
    run_test(strict().file("atlantis.yaml", &named(&["old"])).flags(&["--disable-autoplan"]), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        ctx.push(&first, "atlantis.yaml", &named(&["new"])).await;
        ctx.push(&first, "net/more.tf", "resource \"terraform_data\" \"more\" {}\n").await;
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes").has("Merged but not applied: 1 project");
        assert_eq!(owners(ctx).await, ["new #1 merged_unapplied"]);
        ctx.say(&first, "atlantis apply").await.is("plan", "success");
        ctx.say(&first, "atlantis apply -p new").await.is("apply", "success");
        assert!(owners(ctx).await.is_empty() && state(ctx).contains("\"more\""));
    });
}

#[test]
fn what_is_owed_is_found_under_the_name_that_the_base_branch_gives_it_later() {
    run_test(strict().file("atlantis.yaml", &named(&["old"])), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes").has("Merged but not applied");
        ctx.repo.push("main", &[("atlantis.yaml", Some(&named(&["new"])))]).await.unwrap();
        let second = open_named(ctx, "second", &[]).await;
        ctx.next(&second).await.is("plan", "success").has("a preview: #1 must be applied first");
        ctx.say(&second, "atlantis apply").await.is("apply", "failure").because("locked").has("#1");
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&first, "atlantis plan -p new").await.is("plan", "success").has("`atlantis apply`");
        assert_eq!(owners(ctx).await, ["new #1 merged_unapplied"]);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert!(owners(ctx).await.is_empty() && state(ctx).contains("\"first\""));
        ctx.next(&second).await.is_message("plans_fell");
        ctx.next(&second).await.is_replan("success");
    });
}

#[test]
fn an_apply_under_the_new_name_satisfies_what_was_merged_under_the_old_one() {
    run_test(strict().file("atlantis.yaml", &named(&["old"])), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("owes");
        let second = open_named(ctx, "second", &["new"]).await;
        ctx.next(&second).await.is("plan", "success");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes");
        assert_eq!(owners(ctx).await, ["old #1 merged_unapplied", "new #2 merged_unapplied"]);
        ctx.say(&second, "atlantis apply").await.is("plan", "success").has("It is applied now.");
        ctx.next(&second).await.is("apply", "success");
        ctx.next(&first).await.is_message("applied_by_another").has("#2");
        assert!(owners(ctx).await.is_empty());
    });
}

/// `net` under two names, which are not known to be two states; each apply writes its name.
fn two_names(mode: &str) -> Setup {
    let keys = format!("repo_locks: {{mode: {mode}}}");
    let rules = workflow(&keys, &[PLANNED], &["echo $PROJECT_NAME >> {tmp}/applied"]);
    Setup::projects(&["net"]).repos_yaml(&rules).file("atlantis.yaml", &named(&["dev", "prod"]))
}

#[test]
fn several_names_within_one_pull_request_are_applied_each() {
    run_test(two_names("strict"), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        assert_eq!(ctx.next(&first).await.is("plan", "success").outcomes().len(), 2);
        let second = open_named(ctx, "second", &[]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis apply -p dev").await.is("apply", "success");
        ctx.next(&second).await.is_message("plans_fell").has("`dev`").has("`prod`");
        // A change that one name has applied is not applied for the other.
        assert_eq!(owners(ctx).await, ["dev #1 applied_unmerged", "prod #1 planned"]);
        ctx.say(&first, "atlantis apply -p prod").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
        first.merge().await.unwrap();
        ctx.next(&second).await.is_replan("success");
        assert!(owners(ctx).await.is_empty());
    });
}

#[test]
fn several_names_within_one_pull_request_are_locked_each() {
    run_test(two_names("on_plan"), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        assert_eq!(ctx.next(&first).await.is("plan", "success").outcomes().len(), 2);
        let second = open_named(ctx, "second", &[]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/dev", "acme/infra/net/default/prod"]);
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 2);
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup");
        assert_eq!(ctx.next(&second).await.is_replan("success").outcomes().len(), 2);
    });
}

/// Checks that a command under another name is refused by the lock of the first pull request.
async fn refused_under_another_name(ctx: &Ctx, second: &Pull, command: &str, how: &str) {
    let said = ctx.say(second, command).await;
    said.is(how, "failure").because("locked").has("#1").has("`atlantis unlock`").has("1st in line");
}

#[test]
fn a_plan_locks_the_directory_and_workspace_under_any_name() {
    let quick = Setup::projects(&["net"]).steps(&[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(quick, async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        let second = open_named(ctx, "second", &["other"]).await;
        ctx.next(&second).await.is("plan", "failure").because("locked").has("Change by first");
        refused_under_another_name(ctx, &second, "atlantis plan -p other", "plan").await;
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
        let all = ctx.json("/api/locks").await;
        assert_eq!(all["Locks"][0]["Waiting"], serde_json::json!(["2"]));
        first.close().unwrap();
        ctx.next(&first).await.is_message("cleanup").has("Next in line").has("#2");
        ctx.next(&second).await.is_replan("success");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/other"]);
        let third = open_named(ctx, "third", &[]).await;
        ctx.next(&third).await.is("plan", "failure").because("locked").has("#2");
    });
}

#[test]
fn an_apply_locks_the_directory_and_workspace_under_any_name() {
    let rules = workflow("repo_locks: {mode: on_apply}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules), async |ctx| {
        let first = open_named(ctx, "first", &[]).await;
        ctx.next(&first).await.is("plan", "success");
        let second = open_named(ctx, "second", &["other"]).await;
        ctx.next(&second).await.is("plan", "success");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        refused_under_another_name(ctx, &second, "atlantis apply", "apply").await;
        assert_eq!(ctx.lines("applied"), 1);
        first.merge().await.unwrap();
        ctx.next(&first).await.is_message("cleanup");
        ctx.next(&second).await.is_replan("success");
    });
}

/// Two workflows with these steps before the plan, for the names `dev` and `prod`.
fn two_workflows(steps: [&str; 2]) -> Setup {
    let workflow = |name: &str, step: &str| {
        let planned = serde_json::Value::from(PLANNED);
        let first = format!("  {name}:\n    plan:\n      steps:\n        - {step}\n        - run: {planned}\n");
        format!("{first}    apply:\n      steps:\n        - run: echo applied\n")
    };
    let workflows = [("dev", steps[0]), ("prod", steps[1])].map(|(name, step)| workflow(name, step)).concat();
    let rules = format!("repos:\n  - id: /.*/\n    allowed_overrides: [workflow]\nworkflows:\n{workflows}");
    let projects = ["dev", "prod"].map(|name| format!("  - {{dir: net, name: {name}, workflow: {name}}}\n")).concat();
    let backend = "terraform {\n  backend \"local\" {}\n}\n";
    let files = [("net/main.tf", backend), ("net/dev.tfbackend", ""), ("net/prod.tfbackend", "")];
    Setup::repo(&files).repos_yaml(&rules).file("atlantis.yaml", &format!("version: 3\nprojects:\n{projects}"))
}

/// Returns true if two pull requests can plan `dev` and `prod` at the same time.
fn plans_beside(steps: [&str; 2]) -> bool {
    let beside = std::sync::Mutex::new(false);
    run_test(two_workflows(steps).flags(&["--disable-autoplan"]), async |ctx| {
        let (first, second) = (open_named(ctx, "first", &[]).await, open_named(ctx, "second", &[]).await);
        ctx.say(&first, "atlantis plan -p dev").await.is("plan", "success");
        let said = ctx.say(&second, "atlantis plan -p prod").await;
        *beside.lock().unwrap() = said.outcomes() == [("net".to_owned(), "success".to_owned())];
        if !*beside.lock().unwrap() {
            said.is("plan", "failure").because("locked").has("#1");
        }
    });
    beside.into_inner().unwrap()
}

#[test]
fn workflows_with_different_backend_files_or_data_directories_are_different_states() {
    let init = |text: &str| format!("init: {{extra_args: [{text}]}}");
    let env = |value: &str| format!("env: {{name: TF_DATA_DIR, value: {value}}}");
    let cases = [
        (init("-backend-config=dev.tfbackend"), init("-backend-config, prod.tfbackend"), true),
        (init("-backend-config=dev.tfbackend"), init("-backend-config=./x/../dev.tfbackend"), false),
        (init("-backend-config=dev.tfbackend"), "init".to_owned(), false),
        (env(".tf-dev"), env(".tf-prod"), true),
        (env(".tf-dev"), "env: {name: TF_DATA_DIR, command: echo .tf-prod}".to_owned(), false),
    ];
    for (dev, prod, expected) in cases {
        assert_eq!(plans_beside([&dev, &prod]), expected, "{dev} | {prod}");
    }
}
