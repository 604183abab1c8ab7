//! A project's directory is its real path: a link does not give it other rules, another lock or another owner.

use crate::support::*;
use crate::{api, drift};
use serde_json::json;

/// Rules by which alice may apply projects in `conf/dev`, and nobody else anything.
fn guarded() -> Setup {
    let rules = "allowed_users: ['*:plan', '*:import', 'alice:apply:conf/dev/**']";
    let rules = workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    Setup::projects(&["conf/prod", "conf/dev/own"]).repos_yaml(&rules).flags(&["--silence-no-projects"])
}

#[test]
fn a_pull_request_that_adds_a_link_gets_no_other_rules_for_what_it_leads_to() {
    run_test(guarded(), async |ctx| {
        ctx.push_links("change", &[("conf/dev/x", "../prod"), ("conf/dev/all", "..")]).await;
        let pull = ctx.open("change", &[("notes.md", "a link\n")]).await;
        for dir in ["conf/dev/x", "conf/dev/all/prod"] {
            let said = ctx.say(&pull, &format!("atlantis plan -d {dir}")).await;
            said.is("plan", "success").has(&format!("`{dir}` leads through a link to `conf/prod`"));
            assert_eq!(said.outcomes(), [("conf/prod".to_owned(), "success".to_owned())]);
            assert_eq!(ctx.locks().await, ["acme/infra/conf/prod/default/"]);
            let said = ctx.say(&pull, &format!("atlantis apply -d {dir}")).await;
            said.is("apply", "failure").because("not_permitted").has("on `conf/prod/default`");
        }
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis plan -d conf/dev/own").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply -d conf/dev/own").await.is("apply", "success");
    });
}

const LISTED: &str = "version: 3\nprojects:\n  - dir: conf/dev/*\n  - dir: other\n    name: linked\n";

#[test]
fn listed_directories_and_globs_are_resolved() {
    run_test(guarded().file("atlantis.yaml", LISTED), async |ctx| {
        ctx.push_links("change", &[("conf/dev/x", "../prod"), ("conf/dev/y", "x"), ("other", "conf/dev/own")]).await;
        let config = LISTED.replace("conf/dev/*", "conf/dev/[xy]");
        let pull = ctx.open("change", &[("atlantis.yaml", &config), ("conf/prod/new.tf", "")]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("leads through a link to `conf/prod`");
        // The other one's link is new.
        let dirs: Vec<_> = said.outcomes().into_iter().map(|(dir, _)| dir).collect();
        assert_eq!(dirs, ["conf/prod", "conf/dev/own"]);
        ctx.say(&pull, "atlantis apply -d conf/dev/[xy]").await.is("apply", "failure").because("not_permitted");
        let said = ctx.say(&pull, "atlantis plan -p linked").await;
        assert_eq!(said.outcomes(), [("conf/dev/own".to_owned(), "success".to_owned())]);
        ctx.push(&pull, "atlantis.yaml", &format!("{config}  - dir: conf/prod\n")).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "error").has("`conf/dev/x`").has("`conf/prod`").has("are one directory");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn what_leads_out_or_in_circles_is_refused_by_name() {
    run_test(guarded().file("outside.yaml", ""), async |ctx| {
        ctx.push_links("change", &[("out", "../../.."), ("circle", "circle"), ("gone", "nowhere")]).await;
        let pull = ctx.open("change", &[("notes.md", "links\n")]).await;
        for dir in ["out", "out/x", "circle", "circle/x"] {
            let said = ctx.say(&pull, &format!("atlantis plan -d {dir}")).await;
            said.has(&format!("`{dir}` leads through a link out of the repository or in a circle"));
        }
        ctx.say(&pull, "atlantis plan -d gone").await.has("does not exist");
    });
}

#[test]
fn the_owner_of_a_directory_owns_what_links_lead_to() {
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["net", "dns"]).repos_yaml(&rules), async |ctx| {
        let owner = ctx.planned_own("first", &["net"]).await;
        ctx.say(&owner, "atlantis apply").await.is("apply", "success");
        let config = "version: 3\nprojects:\n  - dir: x\n";
        ctx.push_links("second", &[("x", "net")]).await;
        let pull = ctx.open("second", &[("atlantis.yaml", config), ("net/second.tf", "")]).await;
        ctx.next(&pull).await.has("#1");
        ctx.say(&pull, "atlantis apply").await.has("#1");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

/// Paths in a request select the projects that they lead to, and those are locked under their real names.
#[test]
fn paths_of_the_api_mean_what_they_lead_to() {
    let setup = Setup::projects(&["conf/prod"]).steps(&[PLANNED], &["echo $DIR >> {tmp}/applied"]);
    run_test(setup.flags(&["--api-secret=s3cret-of-the-api", "--disable-autoplan"]), async |ctx| {
        ctx.push_links("first", &[("conf/dev/x", "../prod")]).await;
        let pull = ctx.open("first", &[("notes.md", "a link\n")]).await;
        let through_link = json!({"Paths": [{"Directory": "conf/dev/x", "Workspace": "default"}]});
        let (status, answer) = api::call(ctx, "/api/plan", &api::request(&pull, through_link.clone())).await;
        ctx.next(&pull).await.is("plan", "success").has("leads through a link to `conf/prod`");
        assert_eq!((status, &answer["ProjectResults"][0]["RepoRelDir"]), (200, &json!("conf/prod")), "{answer:#}");
        assert_eq!(ctx.locks().await, ["acme/infra/conf/prod/default/"]);
        let (status, answer) = api::call(ctx, "/api/apply", &api::request(&pull, through_link)).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.next(&pull).await.is("apply", "success");
        let dirs: Vec<_> =
            answer["ProjectResults"].as_array().unwrap().iter().map(|result| result["RepoRelDir"].clone()).collect();
        assert_eq!((status, dirs), (200, vec![json!("conf/prod"); 2]), "{answer:#}");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_drift_run_through_a_link_looks_at_the_real_project_and_at_who_has_it() {
    let setup = Setup::projects(&["conf/prod"]).steps(&["echo $DIR >> {tmp}/planned", PLANNED], &[]);
    run_test(setup.flags(&drift::FLAGS), async |ctx| {
        ctx.push_links("main", &[("conf/dev/x", "../prod")]).await;
        let through_link = json!({"paths": [{"directory": "conf/dev/x"}]});
        let (status, data) = drift::detect(ctx, through_link.clone()).await;
        assert_eq!((status, drift::found(&data)), (200, vec!["conf/prod: drift".to_owned()]), "{data:#}");
        let pull = ctx.open_dirs("first", &["conf/prod"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let (_, data) = drift::detect(ctx, through_link).await;
        let said = drift::found(&data);
        assert!(said[0].starts_with("conf/prod: skipped: #1 has locked it"), "{said:?}");
    });
}

#[test]
fn a_project_is_unlocked_through_a_link() {
    run_test(Setup::projects(&["conf/prod", "net"]).steps(&[PLANNED], &[]), async |ctx| {
        ctx.push_links("first", &[("conf/dev/x", "../prod"), ("away", "../..")]).await;
        let pull = ctx.open("first", &[("conf/prod/more.tf", "# more\n"), ("net/more.tf", "# more\n")]).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis unlock -d away").await;
        assert_eq!(ctx.locks().await.len(), 2);
        ctx.say(&pull, "atlantis unlock -d conf/dev/x").await.is_message("unlocked").has("conf/prod");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
    });
}

/// A hook or a step can exchange a directory of the tree at any time before the project's own steps begin.
#[test]
fn a_directory_that_has_become_a_link_before_its_steps_begin_is_refused() {
    let swap = "rm -rf ../b && ln -s conf/prod ../b; echo 'Plan: 1 to add, 0 to change, 0 to destroy.'";
    let rules = workflow("", &[swap], &["echo applied >> {tmp}/applied"]);
    let config =
        "version: 3\nprojects:\n  - dir: a\n    execution_order_group: 1\n  - dir: b\n    execution_order_group: 2\n";
    let setup = Setup::projects(&["a", "b", "conf/prod"]).file("atlantis.yaml", config).repos_yaml(&rules);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        said.has("The directory `b` cannot be used");
        assert_eq!(said.outcomes(), [("a".to_owned(), "success".to_owned()), ("b".to_owned(), "error".to_owned())]);
    });
}
