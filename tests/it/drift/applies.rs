//! `/api/drift/remediate` with the action `apply`: corrected drift, refusals, and the comments and records about it.

use super::*;
use crate::runs_pages::{has, link, shown};
use tidelock_forge::Pull;

const APPLY: &str = "--enable-drift-remediation";
pub(super) const SECRET: [&str; 3] = ["--api-secret=s3cret-of-the-api", "--enable-drift-detection", APPLY];

/// Key in `repos.yaml`: applies correct only the branches that it names.
pub(super) const MAIN: &str = "branch: /^main$/";

/// Flags of a server without autoplan.
fn flags() -> Vec<&'static str> {
    [&FLAGS[..], &[APPLY]].concat()
}

pub(super) async fn apply(ctx: &Ctx, more: Value) -> (u16, Value) {
    let mut asked = json!({"action": "apply"});
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    remediate(ctx, asked).await
}

/// Returns `directory: status` of each project.
pub(super) fn statuses(data: &Value) -> Vec<String> {
    let projects = data["projects"].as_array().unwrap();
    projects
        .iter()
        .map(|one| format!("{}: {}", one["directory"].as_str().unwrap(), one["status"].as_str().unwrap()))
        .collect()
}

pub(super) fn error_of(project: &Value) -> &str {
    project["error"].as_str().unwrap()
}

#[test]
fn what_was_changed_by_hand_is_put_right_by_the_plan_that_was_made() {
    let setup = Setup::projects(&["net", "db"]).repos_yaml("repos:\n  - {id: /.*/, branch: /^main$/}\n");
    let setup = setup.flags(&flags()).own_process();
    run_test(setup, async |ctx| {
        let old = ctx.repo.tip("main").await.unwrap();
        let pull = ctx.open_dirs("first", &["net", "db"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        pull.merge().await.unwrap();
        ctx.next(&pull).await;
        ctx.until("the locks are free", async || ctx.locks().await.is_empty()).await;
        change_state(ctx, "net", "\"first\"", "\"by hand\"");

        let (status, error) = apply(ctx, json!({})).await;
        assert_eq!((status, &error["code"]), (409, &json!("CONFLICT")), "nothing is known yet: {error:#}");
        assert!(error["message"].as_str().unwrap().contains("/api/drift/detect first"), "{error:#}");
        detect(ctx, json!({})).await;
        let of_old = json!({"ref": old, "base_branch": "main"});
        let (status, error) = apply(ctx, of_old).await;
        assert_eq!(status, 409, "{error:#}");
        assert!(error["message"].as_str().unwrap().contains("not the tip"), "{error:#}");

        let (status, data) = apply(ctx, json!({})).await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{data:#}");
        assert_eq!((&data["action"], &data["status"]), (&json!("apply"), &json!("success")));
        let net = &data["projects"][0];
        assert!(net["plan_output"].as_str().unwrap().contains("by hand"), "{net:#}");
        assert!(net["apply_output"].as_str().unwrap().contains("Apply complete"), "{net:#}");
        assert_eq!(
            (&net["drift_before"]["to_change"], &net["drift_after"]["total_changes"]),
            (&json!(1), &json!(0)),
            "{net:#}"
        );
        assert!(net["apply_job_url"] != net["job_url"] && net["apply_job_url"] != "", "{net:#}");
        assert_eq!(found(&drift_status(ctx, "&path=net").await), ["net: same"]);
        let run = shown(ctx, &format!("/runs/{}", data["id"].as_str().unwrap())).await;
        has(
            &shown(ctx, &link(&run, "In the audit log")).await,
            &["drift apply", "net/default of 127.0.0.1/acme/infra"],
        );
        assert!(ctx.locks().await.is_empty());
        ctx.server.kill().await;
        ctx.server.start().await;
        assert_eq!(remediations(ctx, &format!("/{}", data["id"].as_str().unwrap())).await, data);
        assert_eq!(found(&detect(ctx, json!({})).await.1), ["db: same", "net: same"]);
        assert_eq!(apply(ctx, json!({})).await.0, 409, "nothing has drifted any more");
    });
}

/// A project whose apply waits for the test.
fn held(rules: &str) -> Setup {
    let apply = ["echo $PULL_NUM >> {tmp}/begun", &gate("apply")];
    Setup::projects(&["net"]).repos_yaml(&workflow(&format!("{MAIN}\n{rules}"), &[PLANNED], &apply))
}

/// Begins a remediation that applies, and does `meanwhile` while its apply waits.
async fn while_applied(ctx: &Ctx, meanwhile: impl AsyncFnOnce()) -> (u16, Value) {
    detect(ctx, json!({})).await;
    let during = async {
        ctx.reached("apply", 1).await;
        meanwhile().await;
        ctx.open_gate("apply");
    };
    tokio::join!(apply(ctx, json!({})), during).0
}

#[test]
fn who_plans_while_a_project_is_applied_waits_and_is_planned_after_it() {
    run_test(held("repo_locks: {mode: on_plan}").flags(&SECRET), async |ctx| {
        let mut pull = None;
        let (status, data) = while_applied(ctx, async || {
            assert_eq!(statuses(&remediations(ctx, "").await["remediations"][0]), ["net: running"]);
            let opened = ctx.open_dirs("first", &["net"]).await;
            let said = ctx.next(&opened).await;
            said.is("plan", "failure")
                .because("locked")
                .has("[a drift run that applies main]")
                .has("when that run ends");
            said.has("1st in line, behind a drift run").has_not("#0");
            ctx.status(&opened, "atlantis/plan: net/default", "failure", "drift run").await;
            let (_, page) = ctx.request("GET", "/", &[]).await;
            assert!(
                page.contains("acme&#x2f;infra a drift run")
                    && page.contains("that applies main")
                    && !page.contains("infra#0"),
                "{page}"
            );
            // Nobody can delete it meanwhile.
            let (status, text) =
                ctx.request("DELETE", "/api/locks?id=127.0.0.1/acme/infra/net/default/", &[TOKEN]).await;
            assert!((400..500).contains(&status), "{status} {text}");
            assert_eq!(ctx.locks().await.len(), 1);
            pull = Some(opened);
        })
        .await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{data:#}");
        let pull = pull.unwrap();
        ctx.next(&pull).await.is_replan("success");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
        let (status, error) = apply(ctx, json!({})).await;
        assert_eq!(status, 409, "{error:#}");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("begun")).unwrap(), "0\n1\n");
    });
}

#[test]
fn a_project_that_is_applied_is_held_under_every_name() {
    run_test(held("repo_locks: {mode: on_plan}").flags(&SECRET), async |ctx| {
        let mut pull = None;
        let (status, data) = while_applied(ctx, async || {
            let config = "version: 3\nprojects:\n  - {dir: net, name: other}\n";
            let opened = ctx.open("first", &[("net/more.tf", ""), ("atlantis.yaml", config)]).await;
            let said = ctx.next(&opened).await;
            said.is("plan", "failure").because("locked").has("`other`").has("[a drift run that applies main]");
            assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
            pull = Some(opened);
        })
        .await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{data:#}");
        ctx.next(&pull.unwrap()).await.is_replan("success");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/other"]);
    });
}

/// Checks that a plan from before, in a mode where plans lock nothing, is not applied meanwhile, and is invalidated at the end.
fn is_invalidated_by_the_end(mode: &str) {
    let rules = format!("repo_locks: {{mode: {mode}}}");
    run_test(held(&rules).flags(&SECRET), async |ctx| {
        let pull: Pull = ctx.open_dirs("first", &["net"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let (status, data) = while_applied(ctx, async || {
            ctx.say(&pull, "atlantis apply").await.is("apply", "failure").because("locked").has("a drift run");
        })
        .await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{mode}: {data:#}");
        let said = ctx.next(&pull).await;
        said.is_message("plans_fell").has("a drift run applied the base branch").has("again automatically");
        ctx.next(&pull).await.is_replan("success");
        assert!(ctx.locks().await.is_empty(), "{mode}");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("begun")).unwrap(), "0\n1\n", "{mode}");
    });
}

#[test]
fn a_plan_in_mode_strict_is_not_applied_beside_it_and_is_invalidated_by_its_end() {
    is_invalidated_by_the_end("strict");
}

#[test]
fn a_plan_where_applies_lock_is_not_applied_beside_it_and_is_invalidated_by_its_end() {
    is_invalidated_by_the_end("on_apply");
}

#[test]
fn a_plan_where_nothing_locks_is_not_applied_beside_it_and_is_invalidated_by_its_end() {
    is_invalidated_by_the_end("disabled");
}

#[test]
fn an_apply_that_was_killed_is_told_and_never_repeated_and_holds_nothing() {
    run_test(held("").flags(&flags()).own_process(), async |ctx| {
        detect(ctx, json!({})).await;
        let url = format!("{}/api/drift/remediate", ctx.server.url());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let body = request(json!({"action": "apply"})).to_string();
        let asked = tokio::spawn(client.post(url).header(TOKEN.0, TOKEN.1).body(body).send());
        ctx.reached("apply", 1).await;
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
        ctx.server.kill().await;
        assert!(asked.await.unwrap().is_err());
        ctx.open_gate("apply");
        ctx.server.start().await;
        ctx.quiet().await;
        assert!(ctx.locks().await.is_empty());
        let all = remediations(ctx, "").await["remediations"].clone();
        let one = remediations(ctx, &format!("/{}", all[0]["id"].as_str().unwrap())).await;
        assert_eq!((all.as_array().unwrap().len(), &one["status"]), (1, &json!("failed")), "{one:#}");
        assert!(one["error"].as_str().unwrap().contains("does not go on with it"), "{one:#}");
        assert_eq!(statuses(&one), ["net: failed"]);
        let said = error_of(&one["projects"][0]);
        assert!(said.contains("may have been applied") && said.contains("does not repeat it"), "{said}");
        // A second start has nothing left to do.
        ctx.server.restart().await;
        ctx.quiet().await;
        assert_eq!(remediations(ctx, "").await["remediations"][0]["projects"][0]["error"], said);
        assert_eq!(ctx.lines("begun"), 1);
        let pull = ctx.open_dirs("first", &["net"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        // Remaining drift is corrected by a new remediation.
        let (status, data) = apply(ctx, json!({})).await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{data:#}");
        assert_eq!(ctx.lines("begun"), 3);
    });
}

#[test]
fn an_apply_is_interrupted_by_sigterm_and_told() {
    run_test(held("").flags(&flags()).own_process(), async |ctx| {
        detect(ctx, json!({})).await;
        let stopping = async {
            ctx.reached("apply", 1).await;
            ctx.server.stop().await;
        };
        let url = format!("{}/api/drift/remediate", ctx.server.url());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let body = request(json!({"action": "apply"})).to_string();
        let asked = client.post(url).header(TOKEN.0, TOKEN.1).body(body).send();
        // The answer may be lost.
        let _ = tokio::join!(asked, stopping);
        ctx.server.start().await;
        let one = remediations(ctx, "").await["remediations"][0].clone();
        assert_eq!((&one["status"], statuses(&one)), (&json!("failed"), vec!["net: failed".to_owned()]), "{one:#}");
        assert!(error_of(&one["projects"][0]).contains("nterrupted"), "{one:#}");
        assert!(ctx.locks().await.is_empty() && ctx.lines("begun") == 1);
    });
}

#[test]
fn what_a_pull_request_takes_while_it_is_planned_is_not_applied() {
    let apply_steps = ["echo applied >> {tmp}/applied"];
    let setup =
        Setup::projects(&["net"]).repos_yaml(&workflow(MAIN, &[&gate("plan"), PLANNED], &apply_steps)).flags(&flags());
    run_test(setup, async |ctx| {
        ctx.open_gate("plan");
        detect(ctx, json!({})).await;
        std::fs::remove_file(ctx.tmp.join("plan.open")).unwrap();
        let locking = async {
            ctx.reached("plan", 2).await;
            let pull = ctx.open_dirs("first", &["net"]).await;
            pull.comment("alice", "atlantis plan").unwrap();
            ctx.reached("plan", 3).await;
            ctx.open_gate("plan");
            ctx.next(&pull).await.is("plan", "success");
            pull
        };
        let ((status, data), pull) = tokio::join!(apply(ctx, json!({})), locking);
        assert_eq!((status, statuses(&data)), (207, vec!["net: failed".to_owned()]), "{data:#}");
        assert!(error_of(&data["projects"][0]).starts_with("skipped: #1 has locked it"), "{data:#}");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn applies_that_are_stopped_are_stopped_for_drift_runs_too() {
    let steps = ["echo applied >> {tmp}/applied"];
    let setup = Setup::projects(&["net"]).repos_yaml(&workflow(MAIN, &[&gate("plan"), PLANNED], &steps));
    run_test(setup.flags(&flags()), async |ctx| {
        ctx.open_gate("plan");
        detect(ctx, json!({})).await;
        assert_eq!(ctx.request("POST", "/apply/lock?reason=freeze", &[]).await.0, 200);
        let (status, error) = apply(ctx, json!({})).await;
        assert_eq!((status, &error["code"]), (403, &json!("FORBIDDEN")), "{error:#}");
        assert!(error["message"].as_str().unwrap().contains("(freeze)"), "{error:#}");
        assert_eq!(remediate(ctx, json!({})).await.0, 200, "plans are made all the same");
        assert_eq!(ctx.request("DELETE", "/apply/unlock", &[]).await.0, 200);

        // The lock is set during the plan.
        std::fs::remove_file(ctx.tmp.join("plan.open")).unwrap();
        let planned = ctx.lines("plan.reached");
        let stopping = async {
            ctx.reached("plan", planned + 1).await;
            assert_eq!(ctx.request("POST", "/apply/lock?reason=late", &[]).await.0, 200);
            ctx.open_gate("plan");
        };
        let ((status, data), ()) = tokio::join!(apply(ctx, json!({})), stopping);
        assert_eq!((status, statuses(&data)), (207, vec!["net: failed".to_owned()]), "{data:#}");
        assert!(error_of(&data["projects"][0]).contains("(late)"), "{data:#}");
        assert!(ctx.lines("applied") == 0 && ctx.locks().await.is_empty());
    });
    let no_apply = [&flags()[..], &["--allow-commands=plan"]].concat();
    run_test(Setup::projects(&["net"]).repos_yaml(&workflow(MAIN, &[PLANNED], &steps)).flags(&no_apply), async |ctx| {
        detect(ctx, json!({})).await;
        let (status, error) = apply(ctx, json!({})).await;
        assert!(status == 403 && error["message"].as_str().unwrap().contains("--allow-commands"), "{error:#}");
    });
    let one_by_one = [&flags()[..], &["--disable-apply-all"]].concat();
    run_test(
        Setup::projects(&["net"]).repos_yaml(&workflow(MAIN, &[PLANNED], &steps)).flags(&one_by_one),
        async |ctx| {
            detect(ctx, json!({})).await;
            assert_eq!(apply(ctx, json!({})).await.0, 403);
            assert_eq!(apply(ctx, json!({"except": ["db"]})).await.0, 403, "nothing is named");
            assert_eq!(apply(ctx, json!({"paths": [{"directory": "net"}]})).await.0, 200);
            assert_eq!(ctx.lines("applied"), 1);
        },
    );
}

#[test]
fn a_plan_that_trips_a_guard_is_not_applied() {
    let keys = format!("{MAIN}\nguards: [{{name: few, max_destroys: 0, override: ['user:alice']}}]");
    let rules = workflow(&keys, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(Setup::projects(&["net"]).repos_yaml(&rules).flags(&flags()), async |ctx| {
        detect(ctx, json!({})).await;
        let (status, data) = apply(ctx, json!({})).await;
        assert_eq!((status, statuses(&data)), (207, vec!["net: failed".to_owned()]), "{data:#}");
        assert!(error_of(&data["projects"][0]).contains("Guard few tripped"), "{data:#}");
        assert!(ctx.lines("applied") == 0 && ctx.locks().await.is_empty());
    });
}

/// Later merges are not undone, and no other branch is applied.
#[test]
fn only_the_tip_of_a_branch_that_the_server_names_is_applied() {
    let steps = ["echo applied >> {tmp}/applied"];
    let setup = Setup::projects(&["net"]).repos_yaml(&workflow(MAIN, &[&gate("plan"), PLANNED], &steps));
    run_test(setup.flags(&flags()), async |ctx| {
        ctx.open_gate("plan");
        detect(ctx, json!({})).await;
        std::fs::remove_file(ctx.tmp.join("plan.open")).unwrap();
        let moving = async {
            ctx.reached("plan", 2).await;
            ctx.repo.push("main", &[("readme.md", Some("more\n"))]).await.unwrap();
            ctx.open_gate("plan");
        };
        let ((status, data), ()) = tokio::join!(apply(ctx, json!({})), moving);
        assert_eq!((status, statuses(&data)), (207, vec!["net: failed".to_owned()]), "{data:#}");
        assert!(error_of(&data["projects"][0]).contains("`main` has moved to "), "{data:#}");
        assert_eq!(ctx.lines("applied"), 0);
    });
    let any_branch = Setup::projects(&["net"]).repos_yaml(&workflow("", &[PLANNED], &steps));
    run_test(any_branch.flags(&flags()), async |ctx| {
        detect(ctx, json!({})).await;
        let (status, error) = apply(ctx, json!({})).await;
        assert_eq!(status, 403, "{error:#}");
        assert!(error["message"].as_str().unwrap().contains("branch: /^main$/"), "{error:#}");
    });
}

#[test]
fn what_comes_after_a_project_that_is_not_put_right_is_left_alone() {
    let config = "version: 3\nprojects:\n  - {dir: a, name: a}\n  - {dir: b}\n  - {dir: c, execution_order_group: 1}\n  - {dir: d, depends_on: [a]}\n";
    let steps = ["basename $DIR >> {tmp}/applied; [ $(basename $DIR) != a ]"];
    let setup = Setup::projects(&["a", "b", "c", "d"])
        .file("atlantis.yaml", config)
        .repos_yaml(&workflow(MAIN, &[PLANNED], &steps))
        .flags(&flags());
    run_test(setup, async |ctx| {
        detect(ctx, json!({})).await;
        let (status, data) = apply(ctx, json!({})).await;
        assert_eq!((status, &data["status"]), (207, &json!("partial")), "{data:#}");
        assert_eq!(statuses(&data), ["a: failed", "b: success", "d: failed", "c: failed"]);
        assert!(error_of(&data["projects"][0]).contains("exit status 1"), "{data:#}");
        assert!(error_of(&data["projects"][2]).contains("depends on `a`, which could not be put right"), "{data:#}");
        assert!(error_of(&data["projects"][3]).contains("n earlier group failed"), "{data:#}");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "a\nb\n");
        assert!(ctx.locks().await.is_empty());
        assert!(found(&drift_status(ctx, "&path=a").await)[0].contains("exit status 1"));
    });
}
