//! Jobs that run as executions of a Cloud Run job, as its double plays it, with the state in the double of Cloud Storage. `run-job` is the
//! real program.

use crate::support::*;
use std::time::Duration;
use tidelock_run_double::{Call, Effect, JobSettings, RunDouble};
use tidelock_storage_double::{Settings, StorageDouble};

/// Bucket of the double.
const BUCKET: &str = "acme-tidelock";
/// The job of all executions.
const JOB: &str = "projects/acme/locations/europe-west1/jobs/tidelock-jobs";

/// Returns a `repos.yaml` with these steps, whose jobs all run on Cloud Run.
fn on_cloud_run(plan: &[&str], apply: &[&str]) -> String {
    let rules = workflow("executor: [{plan: jobs, apply: jobs}]", plan, apply);
    format!("executors: {{jobs: {{kind: cloud_run, job: {JOB}}}}}\n{rules}")
}

/// Runs a test with a server in a process of its own and both doubles.
fn on_google(setup: Setup, test: impl AsyncFnOnce(&Ctx, &RunDouble)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let home = tempfile::tempdir().unwrap();
    let env = [
        ("PATH", std::env::var("PATH").unwrap()),
        ("HOME", home.path().to_str().unwrap().to_owned()),
        ("CHECKPOINT_DISABLE", "1".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let bucket = runtime.block_on(StorageDouble::start()).unwrap();
    bucket.bucket(BUCKET, Settings::default());
    let runs = runtime.block_on(RunDouble::start(env!("CARGO_BIN_EXE_tidelock").into(), env)).unwrap();
    runs.job(JOB, JobSettings::default());
    let place = format!("--bucket=gs://{BUCKET}/prod");
    let (bucket_endpoint, run_endpoint) =
        (format!("--bucket-endpoint={}", bucket.endpoint()), format!("--cloud-run-endpoint={}", runs.endpoint()));
    let setup = setup.flags(&[&place, &bucket_endpoint, &run_endpoint, "--lease-ttl=4s"]).own_process();
    run_test(setup, async |ctx| test(ctx, &runs).await);
}

/// Returns a setup with these steps in two projects.
fn two_projects(plan: &[&str], apply: &[&str]) -> Setup {
    Setup::projects(&["a", "b"]).repos_yaml(&on_cloud_run(plan, apply))
}

#[test]
fn plans_and_applies_run_as_executions_of_one_job() {
    let setup = Setup::one_project().repos_yaml(&on_cloud_run(&["init", "plan"], &["apply"]));
    on_google(setup, async |ctx, runs| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("1 to add");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added");
        assert!(ctx.tmp.join("state/root.tfstate").exists());
        assert_eq!(runs.executions().len(), 2);
        assert_eq!(runs.calls(Call::GetJob), 1, "the settings of the job are looked at once");
    });
}

#[test]
fn an_apply_whose_start_was_answered_with_nothing_is_found_and_not_repeated() {
    on_google(two_projects(&[PLANNED], &["echo applied >> {tmp}/applied", &gate("apply")]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        runs.effect(Call::Run, Effect::Lost);
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), runs.executions().len()), (1, 2));
    });
}

#[test]
fn a_doubled_apply_is_run_once_and_its_other_execution_is_not_its_end() {
    on_google(two_projects(&[PLANNED], &["echo applied >> {tmp}/applied", &gate("apply")]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        runs.effect(Call::Run, Effect::Doubled);
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.until("one of both has ended", async || runs.executions().iter().filter(|run| run.has_ended).count() == 2)
            .await;
        // Two looks of the server at what is left.
        let calls = runs.calls(Call::Get) + runs.calls(Call::List);
        ctx.until("the server looks at it", async || runs.calls(Call::Get) + runs.calls(Call::List) >= calls + 2).await;
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), runs.executions().len()), (1, 3));
    });
}

#[test]
fn a_start_waits_for_the_quota() {
    on_google(two_projects(&[PLANNED], &["echo applied"]), async |ctx, runs| {
        runs.effect(Call::Run, Effect::Fail(429));
        runs.effect(Call::Run, Effect::Fail(503));
        let pull = ctx.open_dirs("change", &["a"]).await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!((runs.calls(Call::Run), runs.executions().len()), (3, 1));
    });
}

#[test]
fn a_start_without_the_right_says_which_role_is_missing_and_waits_for_it() {
    on_google(two_projects(&[PLANNED], &["echo applied"]), async |ctx, runs| {
        runs.effect(Call::Run, Effect::Fail(403));
        let pull = ctx.open_dirs("change", &["a"]).await;
        let job = ctx.next(&pull).await.is("plan", "success").job();
        let (_, log) = ctx.request("GET", &format!("/jobs/{job}/log"), &[]).await;
        assert!(log.contains("roles/run.jobsExecutorWithOverrides") && log.contains(JOB), "{log}");
        assert_eq!((runs.calls(Call::Run), runs.executions().len()), (2, 1));
    });
}

#[test]
fn the_next_server_finds_a_start_that_has_not_begun_and_does_not_repeat_it() {
    on_google(two_projects(&[PLANNED], &["echo applied >> {tmp}/applied"]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        runs.effect(Call::Run, Effect::Slow(Duration::from_secs(12)));
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.until("it is started", async || runs.executions().len() == 2).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), runs.executions().len()), (1, 2));
    });
}

#[test]
fn an_apply_goes_on_without_a_server() {
    on_google(two_projects(&[PLANNED], &["echo applied >> {tmp}/applied", &gate("apply")]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("apply");
        ctx.until("it has ended", async || runs.executions().iter().all(|run| run.has_ended)).await;
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((ctx.lines("applied"), runs.executions().len()), (1, 2));
    });
}

#[test]
fn a_job_that_exceeds_its_memory_is_told_with_the_reason_of_cloud_run() {
    on_google(two_projects(&[PLANNED], &[&gate("apply")]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        runs.exceed_memory();
        let told = ctx.next(&pull).await;
        told.is("apply", "error").has("The executor `jobs` has lost the job").has("Memory limit of 512 MiB exceeded");
    });
}

#[test]
fn a_cancelled_apply_is_interrupted() {
    on_google(two_projects(&[PLANNED], &[&gate("apply"), "echo applied >> {tmp}/applied"]), async |ctx, runs| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.say(&pull, "atlantis cancel --apply").await.has("the running `apply`");
        ctx.next(&pull).await.is("apply", "error").has("interrupted by alice");
        assert_eq!((ctx.lines("applied"), runs.calls(Call::Cancel)), (0, 0), "Cloud Run kills after ten seconds");
    });
}

#[test]
fn a_bucket_on_this_machine_is_refused_at_the_start() {
    run_test(Setup::one_project(), async |ctx| {
        ctx.rewrite_repos_yaml(&on_cloud_run(&["plan"], &["apply"]));
        let config = format!("--repo-config={}", ctx.own.join("repos.yaml").display());
        let (code, said) = ctx.server.command("server", &[&config, "--port=1"]).await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the executor `jobs` of kind `cloud_run` needs a bucket of Cloud Storage"), "{said}");
    });
}
