//! Drift runs whose jobs run at executors, as processes of this machine: what is found and put right there, and what becomes of it when the
//! server ends.

use super::applies::{MAIN, SECRET, apply, error_of, statuses};
use super::*;
use crate::executors::objects;
use crate::late_jobs::{give_up, jobs_with};
use crate::lying_plans::{SWAP, code};
use rustix::process::{Pid, Signal, kill_process};

/// Flags with which SIGTERM interrupts at once what may be interrupted, and with which applies of the server get time for their end.
const AT_ONCE_OR_LATER: [&[&str]; 2] = [&[], &["--shutdown-grace=2m"]];

/// Returns a `repos.yaml` that plans at the executor `jobs`, and applies at this one.
fn rules(applies: &str, plan: &[&str], apply: &[&str]) -> String {
    let keys = format!("{MAIN}\nexecutor: [{{plan: jobs, apply: {applies}}}]");
    format!("executors: {{jobs: {{kind: process}}, others: {{kind: process}}}}\n{}", workflow(&keys, plan, apply))
}

/// Returns a setup with these steps at the executor.
fn at_executor(plan: &[&str], apply: &[&str]) -> Setup {
    Setup::projects(&["net"]).repos_yaml(&rules("jobs", plan, apply)).flags(&SECRET).own_process()
}

type Asked = tokio::task::JoinHandle<reqwest::Result<reqwest::Response>>;

/// Sends a request that nobody waits for yet.
fn ask(ctx: &Ctx, route: &str, more: Value) -> Asked {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = client.post(format!("{}/api/drift/{route}", ctx.server.url())).header(TOKEN.0, TOKEN.1);
    tokio::spawn(post.body(request(more).to_string()).send())
}

/// Checks that the server stopped before it had a result. The answer may be lost.
async fn has_no_result(asked: Asked) {
    if let Ok(answer) = asked.await.unwrap() {
        assert_eq!(answer.status(), 503);
    }
}

/// Waits until nothing is left of jobs but their claims and trees.
async fn only_claims(ctx: &Ctx) {
    ctx.until("objects of ended jobs are deleted", async || {
        let names = objects(ctx);
        !names.is_empty() && names.iter().all(|name| name == "claim" || name.starts_with("tree/"))
    })
    .await;
}

async fn page_of(ctx: &Ctx, url: &Value) -> String {
    ctx.request("GET", url.as_str().unwrap().strip_prefix("http://tidelock.test").unwrap(), &[]).await.1
}

#[test]
fn what_is_found_at_an_executor_is_put_right_where_the_rules_say() {
    // `abspath` is part of the plan: elsewhere Terraform would refuse it.
    let code = format!("{}\noutput \"here\" {{\n  value = abspath(path.module)\n}}\n", terraform("root", "1"));
    for applies in ["jobs", "others", "local"] {
        let yaml = rules(applies, &["init", "plan"], &["apply"]);
        let setup = Setup::repo(&[("main.tf", &code)]).repos_yaml(&yaml).flags(&SECRET).own_process();
        run_test(setup, async |ctx| {
            let (status, data) = detect(ctx, json!({"include_plan_output": true})).await;
            assert_eq!((status, found(&data)), (200, vec![".: drift".to_owned()]), "{data:#}");
            assert!(data["projects"][0]["plan_output"].as_str().unwrap().contains("/var/tmp/tidelock/"), "{data:#}");
            let page = page_of(ctx, &data["projects"][0]["job_url"]).await;
            assert!(page.contains("at the executor jobs"), "{page}");

            let (status, data) = apply(ctx, json!({})).await;
            assert_eq!((status, statuses(&data)), (200, vec![".: success".to_owned()]), "{applies}: {data:#}");
            let project = &data["projects"][0];
            assert!(project["apply_output"].as_str().unwrap().contains("Apply complete"), "{data:#}");
            let page = page_of(ctx, &project["apply_job_url"]).await;
            assert_eq!(page.contains(&format!("at the executor {applies}")), applies != "local", "{page}");
            assert!(ctx.locks().await.is_empty());
            assert_eq!(found(&drift_status(ctx, "").await), [".: same"]);
            only_claims(ctx).await;
        });
    }
}

#[test]
fn no_more_plans_run_at_an_executor_than_its_limit() {
    let yaml = rules("jobs", &[&gate("plan"), PLANNED], &[]).replacen("process", "process, limit: 1", 1);
    let config = "version: 3\nparallel_plan: true\nprojects:\n  - {dir: a}\n  - {dir: b}\n";
    let setup = Setup::projects(&["a", "b"]).file("atlantis.yaml", config).repos_yaml(&yaml).flags(&SECRET);
    run_test(setup.own_process(), async |ctx| {
        let looking = async {
            let expected = json!({"name": "jobs", "running": 1, "waiting": 1, "limit": 1});
            ctx.until("the second job waits", async || ctx.json("/status").await["executors"][0] == expected).await;
            ctx.reached("plan", 1).await;
            assert_eq!(ctx.lines("plan.reached"), 1);
            ctx.open_gate("plan");
        };
        let ((_, data), ()) = tokio::join!(detect(ctx, json!({})), looking);
        assert_eq!(found(&data), ["a: drift", "b: drift"]);
    });
}

#[test]
fn a_plan_of_another_executor_that_lies_puts_nothing_right() {
    for applies in ["others", "local"] {
        let yaml = rules(applies, &["init", "plan", SWAP], &["apply"]);
        let setup = Setup::repo(&[("main.tf", &code())]).repos_yaml(&yaml).flags(&SECRET).own_process();
        run_test(setup, async |ctx| {
            detect(ctx, json!({})).await;
            let (status, data) = apply(ctx, json!({})).await;
            assert_eq!((status, statuses(&data)), (207, vec![".: failed".to_owned()]), "{applies}: {data:#}");
            let said = error_of(&data["projects"][0]);
            assert!(said.contains("differs from the approved text"), "{said}");
            assert!(!ctx.tmp.join("state/root.tfstate").exists() && ctx.locks().await.is_empty(), "{applies}");
        });
    }
}

#[test]
fn a_detection_at_an_executor_is_stopped_by_the_next_server_after_a_kill() {
    run_test(at_executor(&[&gate("plan"), PLANNED], &[]), async |ctx| {
        let asked = ask(ctx, "detect", json!({}));
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        has_no_result(asked).await;
        ctx.server.start().await;
        // It stores its result before its objects are deleted, and its gate is closed.
        only_claims(ctx).await;
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("interrupted") && !page.contains("drift running"), "{page}");
        assert_eq!(found(&drift_status(ctx, "").await), Vec::<String>::new());
        ctx.open_gate("plan");
        assert_eq!(found(&detect(ctx, json!({})).await.1), ["net: drift"]);
    });
}

#[test]
fn a_detection_at_an_executor_is_stopped_by_sigterm() {
    for flags in AT_ONCE_OR_LATER {
        run_test(at_executor(&[&gate("plan"), PLANNED], &[]).flags(flags), async |ctx| {
            let asked = ask(ctx, "detect", json!({}));
            ctx.reached("plan", 1).await;
            ctx.server.stop().await;
            has_no_result(asked).await;
            assert_eq!(jobs_with(ctx, "spec"), jobs_with(ctx, "result"), "none runs");
            ctx.server.start().await;
            let (_, page) = ctx.request("GET", "/", &[]).await;
            assert!(page.contains("Cancelled") && page.contains("nothing runs"), "{page}");
            ctx.open_gate("plan");
            assert_eq!(found(&detect(ctx, json!({})).await.1), ["net: drift"]);
        });
    }
}

/// Checks that an apply at an executor goes on when its server ends in this way, and that the next server records its end.
fn goes_on_after(flags: &[&str], end: impl AsyncFnOnce(&Ctx)) {
    let steps = ["echo $PULL_NUM >> {tmp}/begun", &gate("apply"), "echo put right"];
    run_test(at_executor(&[PLANNED], &steps).flags(flags), async |ctx| {
        detect(ctx, json!({})).await;
        let asked = ask(ctx, "remediate", json!({"action": "apply"}));
        ctx.reached("apply", 1).await;
        end(ctx).await;
        has_no_result(asked).await;
        ctx.server.start().await;
        // The project is held until the end is known.
        let one = remediations(ctx, "").await["remediations"][0].clone();
        assert_eq!((&one["status"], statuses(&one)), (&json!("running"), vec!["net: running".to_owned()]), "{one:#}");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
        let skipped = found(&detect(ctx, json!({})).await.1);
        assert!(skipped[0].contains("It is released when its apply ends"), "{skipped:?}");
        let pull = ctx.open_dirs("first", &["net"]).await;
        let said = ctx.next(&pull).await;
        said.is("plan", "failure").because("locked").has("[a drift run that applies main]");
        ctx.open_gate("apply");
        ctx.next(&pull).await.is_replan("success");
        let one = remediations(ctx, &format!("/{}", one["id"].as_str().unwrap())).await;
        assert_eq!((&one["status"], statuses(&one)), (&json!("failed"), vec!["net: success".to_owned()]), "{one:#}");
        assert!(error_of(&one).contains("does not go on with it"), "{one:#}");
        assert!(one["projects"][0]["apply_output"].as_str().unwrap().contains("put right"), "{one:#}");
        assert_eq!(found(&drift_status(ctx, "").await), ["net: same"]);
        let (log, said) = (ctx.server.log(), [r#""act":"drift apply""#, r#""result":"applied""#]);
        let told = log.lines().filter(|line| said.iter().all(|part| line.contains(part)));
        assert_eq!(told.filter(|line| line.contains(one["id"].as_str().unwrap())).count(), 1, "{log}");
        only_claims(ctx).await;
        // A second start has nothing left to do.
        ctx.server.restart().await;
        ctx.quiet().await;
        assert_eq!(remediations(ctx, &format!("/{}", one["id"].as_str().unwrap())).await, one);
        assert_eq!(ctx.lines("begun"), 1);
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"], "that of the pull request");
    });
}

#[test]
fn an_apply_at_an_executor_goes_on_after_a_kill_and_holds_its_project_until_its_end() {
    goes_on_after(&[], async |ctx| ctx.server.kill().await);
}

#[test]
fn an_apply_at_an_executor_goes_on_after_sigterm_and_holds_its_project_until_its_end() {
    for flags in AT_ONCE_OR_LATER {
        goes_on_after(flags, async |ctx| ctx.server.stop().await);
    }
}

/// The server is killed between the commit of its beginning and its start.
#[test]
fn an_apply_that_its_executor_never_had_is_told_and_frees_its_project() {
    let steps = [&format!("echo $PPID > {{tmp}}/job; {}", gate("apply"))[..]];
    run_test(at_executor(&[PLANNED], &steps), async |ctx| {
        detect(ctx, json!({})).await;
        let asked = ask(ctx, "remediate", json!({"action": "apply"}));
        ctx.reached("apply", 1).await;
        ctx.until("the objects of its plan are deleted", async || jobs_with(ctx, "spec").len() == 1).await;
        ctx.server.kill().await;
        has_no_result(asked).await;
        // As if nothing of it had been stored.
        let job = std::fs::read_to_string(ctx.tmp.join("job")).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(job).unwrap(), Signal::KILL).unwrap();
        std::fs::remove_dir_all(jobs_with(ctx, "spec").remove(0)).unwrap();
        ctx.open_gate("apply");
        ctx.server.start().await;
        ctx.until("the project is free", async || ctx.locks().await.is_empty()).await;
        let one = remediations(ctx, "").await["remediations"][0].clone();
        assert_eq!((&one["status"], statuses(&one)), (&json!("failed"), vec!["net: failed".to_owned()]), "{one:#}");
        let said = error_of(&one["projects"][0]);
        assert!(said.contains("nothing was run") && said.contains("another remediation"), "{said}");
        let (status, data) = apply(ctx, json!({})).await;
        assert_eq!((status, statuses(&data)), (200, vec!["net: success".to_owned()]), "{data:#}");
    });
}

#[test]
fn an_apply_at_an_executor_that_was_given_up_and_ends_after_all_is_recorded() {
    let steps = [&gate("apply"), "echo applied >> {tmp}/applied"];
    run_test(at_executor(&[PLANNED], &steps), async |ctx| {
        detect(ctx, json!({})).await;
        let giving_up = async {
            ctx.reached("apply", 1).await;
            give_up(ctx).await;
        };
        let ((status, data), ()) = tokio::join!(apply(ctx, json!({})), giving_up);
        assert_eq!((status, statuses(&data)), (207, vec!["net: failed".to_owned()]), "{data:#}");
        assert!(error_of(&data["projects"][0]).contains("has lost the job: its node is gone"), "{data:#}");
        ctx.open_gate("apply");
        ctx.until("its late end is recorded", async || {
            let one = remediations(ctx, &format!("/{}", data["id"].as_str().unwrap())).await;
            statuses(&one) == ["net: success"]
        })
        .await;
        assert_eq!(ctx.lines("applied"), 1);
        assert_eq!(found(&drift_status(ctx, "").await), ["net: same"]);
        ctx.until("its objects are deleted", async || jobs_with(ctx, "spec").is_empty()).await;
    });
}
