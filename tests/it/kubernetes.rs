//! Jobs in a cluster: a real API server and the real controllers, a stand-in for scheduler and kubelet, a double of Cloud Storage.
//!
//! `scripts/with-cluster` starts the cluster, and names it in `TIDELOCK_TEST_KUBE`; `just kube` runs the tests.

mod cluster;

use crate::support::*;
use cluster::{Cluster, JOBS};
use std::time::Duration;
use tidelock_storage_double::{Settings, StorageDouble};

/// Bucket of the double.
const BUCKET: &str = "acme-tidelock";
/// Lifetime of the lease: the server that follows a killed one waits for its end.
const SHORT: &str = "--lease-ttl=4s";

/// What differs between tests.
#[derive(Default)]
struct Story<'a> {
    /// Annotations of pods: faults of the stand-in for the kubelet.
    notes: &'a [(&'a str, &'a str)],
    /// Rights of the server at Jobs.
    rights: Option<&'a [&'a str]>,
    /// Time limit of the test.
    limit: Option<Duration>,
}

/// Runs a test with a server whose jobs run in a namespace of its own.
fn in_cluster(
    story: &Story<'_>,
    (plan, apply): (&[&str], &[&str]),
    test: impl AsyncFnOnce(&Ctx, &Cluster, &StorageDouble),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket(BUCKET, Settings::default());
    let cluster = runtime.block_on(Cluster::new(story.rights.unwrap_or(&["create", "get", "list", "watch", "delete"])));
    let template = cluster.template(env!("CARGO_BIN_EXE_tidelock").as_ref(), story.notes);
    let executors = format!("executors: {{jobs: {{kind: kubernetes, template: {}}}}}\n", template.display());
    let yaml = format!("{executors}{}", workflow("executor: [{plan: jobs, apply: jobs}]", plan, apply));
    let setup = Setup::projects(&["a", "b"])
        .flags(&[&format!("--bucket=gs://{BUCKET}/prod"), &format!("--bucket-endpoint={}", double.endpoint()), SHORT])
        .variable("KUBECONFIG", cluster.kubeconfig().to_str().unwrap())
        .repos_yaml(&yaml)
        .own_process();
    let limit = story.limit.unwrap_or(Duration::from_secs(150));
    run_test_within(limit, setup, async |ctx| test(ctx, &cluster, &double).await);
}

/// Returns the text of a job's page.
async fn page(ctx: &Ctx, job: &str) -> String {
    ctx.request("GET", &format!("/jobs/{job}"), &[]).await.1
}

/// Waits until the page of the only job that runs has this text.
async fn log_has(ctx: &Ctx, text: &str) {
    let job = regex::Regex::new("jobs/([0-9a-f]{32})").unwrap();
    ctx.until(&format!("the log has `{text}`"), async || {
        let dashboard = ctx.request("GET", "/", &[]).await.1.replace("&#x2f;", "/");
        match job.captures(&dashboard) {
            Some(found) => page(ctx, &found[1]).await.contains(text),
            None => false,
        }
    })
    .await;
}

const APPLIED: &str = "echo applied >> {tmp}/applied";

#[test]
#[ignore = "needs a cluster: just kube"]
fn plans_and_applies_run_as_jobs_of_the_cluster() {
    in_cluster(&Story::default(), (&["init", "plan"], &["apply"]), async |ctx, cluster, double| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        let planned = ctx.next(&pull).await;
        planned.is("plan", "success").has("1 to add");
        let applied = ctx.say(&pull, "atlantis apply").await;
        applied.is("apply", "success").has("1 added");
        assert!(ctx.tmp.join("state/a.tfstate").exists());
        let jobs = cluster.jobs().await;
        assert_eq!(jobs.len(), 2, "{jobs:#?}");
        for (job, said) in [(planned, 0), (applied, 1)].map(|(said, index)| (&jobs[index], said)) {
            let name = job["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("tidelock-") && name.ends_with("-1"), "{name}");
            assert!(page(ctx, &said.job()).await.contains(&format!("started as Job {name}")));
        }
        let text = serde_json::to_string(&jobs[0]["metadata"]).unwrap();
        let keys: Vec<String> = double.names(BUCKET).iter().filter_map(|name| key(name)).collect();
        assert!(!keys.is_empty() && keys.iter().all(|key| !text.contains(key)), "{text}");
        ctx.until("objects of ended jobs are deleted", async || {
            let names = double.names(BUCKET);
            let left = names.iter().filter(|name| name.starts_with("prod/jobs/"));
            left.clone().all(|name| name.ends_with("/claim") || name.contains("/tree/"))
        })
        .await;
    });
}

/// Returns the key in the name of a job's object.
fn key(name: &str) -> Option<String> {
    name.strip_prefix("prod/jobs/jobs/")?.split('/').next().map(str::to_owned)
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn an_apply_goes_on_without_a_server() {
    in_cluster(&Story::default(), (&[PLANNED], &[APPLIED, &gate("apply")]), async |ctx, cluster, _| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.until("it is followed", async || ctx.json("/status").await["executors"][0]["running"] == 1).await;
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
        assert_eq!(cluster.jobs().await.len(), 2, "no second start");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_cancelled_apply_is_interrupted_and_its_pod_ends() {
    in_cluster(&Story::default(), (&[PLANNED], &[&gate("apply"), APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.say(&pull, "atlantis cancel --apply").await.has("the running `apply`");
        ctx.next(&pull).await.is("apply", "error").has("interrupted by alice");
        assert_eq!(ctx.lines("applied"), 0);
        cluster.all_finished().await;
    });
}

/// Plays an apply whose pod gets a fault, and returns the answer.
fn apply_with_fault(fault: &str, check: impl FnOnce(&Said)) {
    in_cluster(&Story::default(), (&[PLANNED], &[&gate("apply"), APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        assert!(cluster.fault(&cluster.running_pod().await, fault).await);
        check(ctx.next(&pull).await.is("apply", "error"));
        assert_eq!(ctx.lines("applied"), 0);
        ctx.say(&pull, "atlantis apply").await.has("its plan was used by the apply that failed");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn an_apply_that_needs_too_much_memory_is_lost_with_that_reason() {
    apply_with_fault("oom", |said| {
        said.has("The executor `jobs` has lost the job").has("OOMKilled");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn an_evicted_apply_is_interrupted_and_says_so_itself() {
    apply_with_fault("evict", |said| {
        said.has_not("has lost the job").has("interrupted");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_killed_apply_is_lost_with_its_exit_code() {
    apply_with_fault("kill9", |said| {
        said.has("The executor `jobs` has lost the job").has("exited with code 137");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_missing_image_is_told_and_its_job_goes_with_the_cancelled_command() {
    let story = Story { notes: &[("fake/never-start", "ImagePullBackOff")], ..Story::default() };
    in_cluster(&story, (&[PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        log_has(ctx, "ImagePullBackOff: Back-off pulling image").await;
        ctx.say(&pull, "atlantis cancel").await.has("`plan`");
        ctx.next(&pull).await.is("plan", "failure").because("cancelled");
        ctx.until("its Job is deleted", async || cluster.jobs().await.is_empty()).await;
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_pod_without_a_place_waits_for_one() {
    in_cluster(&Story::default(), (&[PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        cluster.slots(0).await;
        let pull = ctx.open_dirs("change", &["a"]).await;
        log_has(ctx, "Unschedulable: 0/1 nodes are available").await;
        cluster.slots(4).await;
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_start_waits_for_a_full_quota() {
    in_cluster(&Story::default(), (&[PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        cluster.quota(0).await;
        let pull = ctx.open_dirs("change", &["a"]).await;
        log_has(ctx, "exceeded quota").await;
        cluster.quota(10).await;
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_server_without_the_right_says_which_one_it_needs() {
    let story = Story { rights: Some(&["list", "watch"]), ..Story::default() };
    in_cluster(&story, (&[PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        log_has(ctx, "may not create Jobs in the namespace").await;
        assert!(cluster.jobs().await.is_empty());
        // It is told when the right has been missing for a minute.
        tokio::time::sleep(LIMIT).await;
        ctx.next(&pull).await.is("plan", "error").has("cannot create resource");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_job_that_somebody_deletes_before_it_begins_is_started_again() {
    let story = Story { notes: &[("fake/start-after", "3")], ..Story::default() };
    in_cluster(&story, (&["echo planned >> {tmp}/planned", PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        ctx.until("there is a Job", async || cluster.jobs().await.len() == 1).await;
        cluster.delete_jobs().await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 1);
        let name = cluster.jobs().await[0]["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.ends_with("-2"), "{name}");
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn a_job_on_a_lost_node_is_given_up_when_it_is_silent() {
    let story = Story { limit: Some(Duration::from_secs(300)), ..Story::default() };
    in_cluster(&story, (&[PLANNED], &[&gate("apply"), APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let pod = cluster.running_pod().await;
        cluster.node("lost").await;
        // Nobody tells the API server of its end.
        assert!(cluster.fault(&pod, "kill9").await);
        let told = pull.wait_for_comment(1, Duration::from_secs(250)).await.unwrap();
        assert!(told.body.contains("has given no sign of life for 120 s"), "{}", told.body);
        ctx.next(&pull).await.is("apply", "error").has("has lost the job").has("taint");
        cluster.node("back").await;
    });
}

#[test]
#[ignore = "needs a cluster: just kube"]
fn what_the_engine_sends_is_what_an_operator_may_see() {
    in_cluster(&Story::default(), (&[PLANNED], &[APPLIED]), async |ctx, cluster, _| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let job = &cluster.jobs().await[0];
        let spec = &job["spec"];
        let pod = &spec["template"]["spec"];
        let labels = [JOBS, "tidelock/executor"].map(|label| job["metadata"]["labels"][label].is_string());
        assert_eq!(labels, [true, true], "{job:#}");
        let of_job = ["backoffLimit", "podReplacementPolicy", "activeDeadlineSeconds", "ttlSecondsAfterFinished"];
        assert_eq!(of_job.map(|key| spec[key].to_string()), ["0", "\"Failed\"", "86400", "600"]);
        let of_pod = ["restartPolicy", "automountServiceAccountToken", "serviceAccountName"];
        assert_eq!(of_pod.map(|key| pod[key].to_string()), ["\"Never\"", "false", "\"plan\""]);
        assert_eq!(pod["containers"][0]["args"], serde_json::json!(["run-job"]));
    });
}

mod restarted {
    use super::*;

    #[test]
    #[ignore = "needs a cluster: just kube"]
    fn an_apply_goes_on_without_an_api_server() {
        in_cluster(&Story::default(), (&[PLANNED], &[APPLIED, &gate("apply")]), async |ctx, cluster, _| {
            let pull = ctx.planned_dirs("change", &["a"]).await;
            pull.comment("alice", "atlantis apply").unwrap();
            ctx.reached("apply", 1).await;
            cluster.restart().await;
            ctx.open_gate("apply");
            ctx.next(&pull).await.is("apply", "success");
            assert_eq!(ctx.lines("applied"), 1);
            assert_eq!(cluster.jobs().await.len(), 2, "no second start");
        });
    }
}
