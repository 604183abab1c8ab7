//! The engine on a double of Cloud Run, whose executions are shell scripts.

use super::api::{RunCondition, RunExecution};
use super::*;
use crate::executors::follow::Beginning;
use insta::assert_snapshot;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use tidelock_run_double::{Call, Effect, JobSettings, RunDouble};

/// Name of the job.
const JOB: &str = "projects/acme/locations/europe-west1/jobs/tidelock-jobs";

/// A double with one job, and a directory for its executions.
struct Cloud {
    double: RunDouble,
    dir: tempfile::TempDir,
}

impl Cloud {
    /// Each execution runs this script, in the directory.
    async fn new(script: &str) -> Cloud {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let text = format!("#!/bin/sh\ncd '{}'\n{script}\n", dir.path().display());
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let double = RunDouble::start(program, env).await.unwrap();
        double.job(JOB, JobSettings::default());
        Cloud { double, dir }
    }

    /// Returns the engine of a server.
    fn engine(&self) -> CloudRunEngine {
        let [project, region, job] = ["acme", "europe-west1", "tidelock-jobs"].map(str::to_owned);
        CloudRunEngine::new(CloudRunSettings {
            job: CloudRunJob { project, region, job },
            endpoint: Some(self.double.endpoint().to_owned()),
            env: vec![("TIDELOCK_BUCKET".to_owned(), "gs://acme/prod".to_owned())],
            job_variable: "TIDELOCK_JOB",
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn searches(&self) -> u64 {
        self.double.calls(Call::List)
    }
}

/// Waits for something.
async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(40), waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

fn prefix(digit: char) -> JobPrefix {
    JobPrefix::new("jobs", &digit.to_string().repeat(32)).unwrap()
}

fn job(prefix: &JobPrefix) -> EngineJob<'_> {
    EngineJob { prefix, grace: Duration::ZERO, beginning: Beginning::Own, is_claimed: false }
}

fn of_earlier_leader(prefix: &JobPrefix) -> EngineJob<'_> {
    EngineJob { beginning: Beginning::Earlier, ..job(prefix) }
}

/// Waits for the end that the engine tells; until then it must not tell another.
async fn ended(engine: &CloudRunEngine, job: EngineJob<'_>) -> String {
    let mut told = None;
    until("it has ended", async || match engine.look(job).await {
        EngineState::Ended(_) => true,
        EngineState::Alive | EngineState::Unknown => false,
        other => panic!("{other:?}"),
    })
    .await;
    if let EngineState::Ended(why) = engine.look(job).await {
        told = Some(why);
    }
    told.unwrap()
}

#[tokio::test]
async fn a_start_gives_the_job_and_returns_the_page_of_its_execution() {
    let (cloud, a) = (Cloud::new("echo \"$* $TIDELOCK_JOB $TIDELOCK_BUCKET\" > told; sleep 20").await, prefix('a'));
    let engine = cloud.engine();
    let page = engine.start(job(&a), 1).await.unwrap().unwrap();
    assert_snapshot!(page, @"https://console.cloud.google.com/run/jobs/executions/details/europe-west1/tidelock-jobs-00000?project=acme");
    let told = || std::fs::read_to_string(cloud.file("told")).unwrap_or_default();
    until("it runs", async || told().ends_with('\n')).await;
    assert_eq!(told(), format!("run-job {a} gs://acme/prod\n"));
    assert_eq!(cloud.searches(), 0, "nobody else has started it");
    // A second start is none.
    assert_eq!(engine.start(job(&a), 2).await.unwrap().unwrap(), page);
    assert_eq!(cloud.double.executions().len(), 1);
}

#[tokio::test]
async fn a_start_without_an_answer_is_found_before_another() {
    let (cloud, a) = (Cloud::new("sleep 20").await, prefix('a'));
    let engine = cloud.engine();
    cloud.double.effect(Call::Run, Effect::Lost);
    let NotStarted::NotNow(why) = engine.start(job(&a), 1).await.unwrap_err() else { panic!("it is not final") };
    assert!(why.starts_with("Cloud Run did not answer: "), "{why}");
    engine.start(job(&a), 1).await.unwrap();
    assert_eq!((cloud.double.executions().len(), cloud.searches()), (1, 1));
    until("it is known to run", async || engine.look(job(&a)).await == EngineState::Alive).await;
}

#[tokio::test]
async fn the_start_of_an_earlier_leader_is_found_among_those_of_other_jobs() {
    let (cloud, a) = (Cloud::new("sleep 20").await, prefix('a'));
    let (earlier, next) = (cloud.engine(), cloud.engine());
    let page = earlier.start(job(&a), 1).await.unwrap();
    for other in 0..120 {
        let other = JobPrefix::new("jobs", &format!("{other:032}")).unwrap();
        cloud.double.effect(Call::Run, Effect::NoImage);
        earlier.start(job(&other), 1).await.unwrap();
    }
    assert_eq!(next.start(of_earlier_leader(&a), 1).await.unwrap(), page);
    assert_eq!((cloud.double.executions().len(), cloud.searches()), (121, 2), "it is on the second page");
}

#[tokio::test]
async fn a_quota_leaves_no_doubt() {
    let (cloud, a) = (Cloud::new("sleep 20").await, prefix('a'));
    let engine = cloud.engine();
    cloud.double.effect(Call::Run, Effect::Fail(429));
    let NotStarted::NotNow(why) = engine.start(job(&a), 1).await.unwrap_err() else { panic!("it is not final") };
    assert_snapshot!(why, @"Cloud Run does not do it now: 429 Too Many Requests: Quota exceeded for quota metric 'Job run requests' of service 'run.googleapis.com'");
    engine.start(job(&a), 1).await.unwrap();
    assert_eq!(cloud.searches(), 0);
}

#[tokio::test]
async fn a_refusal_tells_the_way_out() {
    let (cloud, a) = (Cloud::new("sleep 20").await, prefix('a'));
    cloud.double.effect(Call::Run, Effect::Fail(403));
    let NotStarted::NoRight(why) = cloud.engine().start(job(&a), 1).await.unwrap_err() else { panic!("it is a right") };
    assert_snapshot!(why, @"Cloud Run refuses it with 403 Forbidden: Permission 'run.jobs.run' denied on resource (or resource may not exist). Give the server's account `roles/run.jobsExecutorWithOverrides` and `roles/run.viewer` on the job `projects/acme/locations/europe-west1/jobs/tidelock-jobs`");
    let mut engine = cloud.engine();
    let [project, region, name] = ["acme", "europe-west1", "other"].map(str::to_owned);
    let api = RunApi::new(CloudRunJob { project, region, job: name }, Some(cloud.double.endpoint().to_owned()));
    Arc::get_mut(&mut engine.runs).unwrap().api = api;
    let NotStarted::Never(why) = engine.start(job(&a), 1).await.unwrap_err() else { panic!("it is final") };
    assert_snapshot!(why, @"Cloud Run refuses it with 404 Not Found: Resource 'projects/acme/locations/europe-west1/jobs/other' was not found. Create the job `projects/acme/locations/europe-west1/jobs/other`, or correct `job` of the executor in the server's `repos.yaml`");
}

#[tokio::test]
async fn a_job_has_ended_when_none_of_its_executions_runs() {
    // The second to come leaves the work to the first.
    let (cloud, a) =
        (Cloud::new("mkdir claim || exit 0; until [ -e go ]; do sleep 0.1; done; exit 3").await, prefix('a'));
    let engine = cloud.engine();
    cloud.double.effect(Call::Run, Effect::Doubled);
    engine.start(job(&a), 1).await.unwrap();
    until("one has ended", async || cloud.double.executions().iter().any(|run| run.has_ended)).await;
    let (polls, mut seen) = (cloud.double.calls(Call::Get) + cloud.searches(), Vec::new());
    while cloud.double.calls(Call::Get) + cloud.searches() < polls + 3 {
        seen.push(engine.look(job(&a)).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!seen.iter().any(|state| matches!(state, EngineState::Ended(_))), "{seen:?}");
    std::fs::write(cloud.file("go"), "").unwrap();
    let why = ended(&engine, job(&a)).await;
    assert!(why.contains("The container exited with an error (exit code 3) (NON_ZERO_EXIT_CODE)"), "{why}");
}

#[tokio::test]
async fn reasons_of_an_end_are_those_of_cloud_run() {
    let cloud = Cloud::new("touch running; sleep 20").await;
    let (a, b, c) = (prefix('a'), prefix('b'), prefix('c'));
    let engine = cloud.engine();
    engine.start(job(&a), 1).await.unwrap();
    until("it runs", async || cloud.file("running").exists()).await;
    cloud.double.exceed_memory();
    assert_snapshot!(ended(&engine, job(&a)).await, @"its execution tidelock-jobs-00000 has failed: Task tidelock-jobs-00000-task0 failed with message: Memory limit of 512 MiB exceeded with 526 MiB used. Consider increasing the memory limit, see https://cloud.google.com/run/docs/configuring/memory-limits");
    cloud.double.effect(Call::Run, Effect::NoImage);
    engine.start(job(&b), 1).await.unwrap();
    assert_snapshot!(ended(&engine, job(&b)).await, @"its execution tidelock-jobs-00001 has failed: Image 'example-docker.pkg.dev/p/r/tidelock:1' not found");
    cloud.double.limit_tasks(Duration::from_millis(100));
    engine.start(job(&c), 1).await.unwrap();
    assert_snapshot!(ended(&engine, job(&c)).await, @"its execution tidelock-jobs-00002 has failed: Task tidelock-jobs-00002-task0 failed with message: The configured timeout was reached");
}

#[tokio::test]
async fn an_end_cancels_what_runs_and_what_has_not_begun() {
    // It does not end by SIGTERM.
    let cloud = Cloud::new("trap '' TERM; touch running; while true; do sleep 1; done").await;
    let (a, b) = (prefix('a'), prefix('b'));
    let engine = cloud.engine();
    engine.start(job(&a), 1).await.unwrap();
    until("it runs", async || cloud.file("running").exists()).await;
    cloud.double.effect(Call::Run, Effect::Slow(Duration::from_secs(60)));
    engine.start(job(&b), 1).await.unwrap();
    for _ in 0..5 {
        engine.end(job(&a)).await;
        engine.end(job(&b)).await;
    }
    assert_eq!(cloud.double.calls(Call::Cancel), 2, "once each");
    for (job, name) in [(job(&a), "tidelock-jobs-00000"), (job(&b), "tidelock-jobs-00001")] {
        let why = ended(&engine, job).await;
        assert_eq!(why, format!("its execution {name} has failed: The execution was cancelled (CANCELLED)"));
    }
}

#[tokio::test]
async fn many_jobs_are_asked_for_by_pages() {
    let cloud = Cloud::new("sleep 20").await;
    let engine = cloud.engine();
    let all: Vec<JobPrefix> = ('0'..='9').chain('a'..='f').map(prefix).collect();
    for one in &all {
        engine.start(job(one), 1).await.unwrap();
    }
    until("three polls", async || {
        for one in &all {
            assert_eq!(engine.look(job(one)).await, EngineState::Alive);
        }
        cloud.searches() >= 3
    })
    .await;
    assert_eq!(cloud.double.calls(Call::Get), 0);
}

#[tokio::test]
async fn retries_and_missing_rights_are_told_at_the_start() {
    let cloud = Cloud::new("").await;
    assert_eq!(cloud.engine().check().await, [""; 0]);
    cloud.double.effect(Call::GetJob, Effect::Fail(403));
    let told = cloud.engine().check().await.join("\n");
    assert!(
        told.contains("cannot be checked: Cloud Run refuses it with 403") && told.contains("`roles/run.viewer`"),
        "{told}"
    );
    cloud.double.job(JOB, JobSettings { max_retries: 3 });
    assert_snapshot!(cloud.engine().check().await.join("\n"), @"the Cloud Run job projects/acme/locations/europe-west1/jobs/tidelock-jobs repeats what has failed, which hides the reason of a failure: set `max_retries = 0`, or run `gcloud run jobs update tidelock-jobs --region europe-west1 --project acme --max-retries 0`");
}

#[tokio::test]
async fn a_start_that_takes_long_is_told_with_what_it_waits_for() {
    let waiting = |message: &str, state: &str| {
        let [r#type, reason] = ["ContainerReady", "IMAGE"].map(str::to_owned);
        let [message, state] = [message, state].map(str::to_owned);
        let conditions = vec![RunCondition { r#type, state, message, reason, ..RunCondition::default() }];
        ExecutionState::of(&RunExecution { conditions, ..RunExecution::default() })
    };
    let (mut known, now) = (JobExecutions::new(Beginning::Own), Instant::now());
    let after = |seconds| now + Duration::from_secs(seconds);
    known.record("one", waiting("Pulling the image.", "CONDITION_RECONCILING"));
    assert_eq!(known.state(now), EngineState::Alive);
    let why = "Cloud Run has not started it within 30 s: Pulling the image (IMAGE)";
    assert_eq!(known.state(after(31)), EngineState::Held(why.to_owned()));
    // It may still wait, and is not started again.
    assert_eq!(known.state(after(70)), EngineState::Held("Cloud Run has not told for 60 s how it does".to_owned()));
    known.record("one", waiting("Permission denied.", "CONDITION_FAILED"));
    assert_eq!(known.state(now), EngineState::Held("Permission denied (IMAGE)".to_owned()));
}
